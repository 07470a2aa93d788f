"""Which class a label means, in every format."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibrant import Predictions
from calibrant.predictions.schema import codes_of, number_of
from tests.helpers.predictions import CLASSES, FORMATS, Q, refusal_of, write_table

P = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6], [0.5, 0.3, 0.2]])
LISTED = {"probabilities": ["p_1", "p_2", "p_3"]}
MATCHED = {"probabilities": "p_*"}


def table(path, columns, labels):
    """A table of P with one column per class, whatever the suffix."""
    held = {name: P[:, j] for j, name in enumerate(columns)} | {"labels": labels}
    if path.suffix == ".parquet":
        pq.write_table(pa.table(held), path)
        return path
    mark = "\t" if path.suffix == ".tsv" else ","
    rows = zip(*held.values(), strict=True)
    path.write_text("\n".join([mark.join(held), *(mark.join(map(str, row)) for row in rows), ""]))
    return path


def arrays(path, labels, **facts):
    np.savez(path, probabilities=P, labels=np.array(labels), **{k: np.array(v) for k, v in facts.items()})
    return path


def load_refusal(path, **how):
    with pytest.raises(ValueError, match=r".") as error:
        Predictions.open(path, **how).load()
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
@pytest.mark.parametrize("kind", [int, str])
@pytest.mark.parametrize(
    ("columns", "chosen", "labels", "positions", "names"),
    [
        (["p_1", "p_2", "p_3"], MATCHED, [1, 2, 1, 2], [0, 1, 0, 1], ("1", "2", "3")),
        (["p_1", "p_2", "p_3"], LISTED, [1, 2, 1, 2], [0, 1, 0, 1], ("1", "2", "3")),
        (["p_1", "p_2", "p_3"], MATCHED, [3, 2, 1, 2], [2, 1, 0, 1], ("1", "2", "3")),
        (["probabilities_1", "probabilities_2", "probabilities_3"], None, [1, 2, 1, 2], [0, 1, 0, 1], ("1", "2", "3")),
        (["probabilities.1", "probabilities.2", "probabilities.3"], None, [1, 2, 1, 2], [0, 1, 0, 1], ("1", "2", "3")),
        (["p_0", "p_10", "p_20"], MATCHED, [10, 0, 20, 0], [1, 0, 2, 0], ("0", "10", "20")),
        (["p_20", "p_0", "p_10"], {"probabilities": ["p_20", "p_0", "p_10"]}, [10, 0, 20, 0], [2, 1, 0, 1],
         ("20", "0", "10")),
        (["p_1", "p_0", "p_2"], {"probabilities": ["p_1", "p_0", "p_2"]}, [1, 0, 2, 0], [0, 1, 2, 1], ("1", "0", "2")),
        (["p_001", "p_002", "p_003"], MATCHED, [1, 2, 1, 2], [0, 1, 0, 1], ("001", "002", "003")),
        (["p_10", "p_11", "p_12"], {"probabilities": "p_1*"}, [11, 10, 12, 10], [1, 0, 2, 0], ("10", "11", "12")),
        (["1", "2", "3"], {"probabilities": ["1", "2", "3"]}, [1, 2, 1, 2], [0, 1, 0, 1], ("1", "2", "3")),
        (["probabilities.-1", "probabilities.0", "probabilities.1"], None, [-1, 1, 0, 1], [0, 2, 1, 2],
         ("-1", "0", "1")),
        (["probabilities.1.0", "probabilities.2.0", "probabilities.3.0"], None, [1, 2, 1, 2], [0, 1, 0, 1],
         ("1.0", "2.0", "3.0")),
        (["probabilities.class1", "probabilities.class2", "probabilities.class3"], None, [1, 2, 1, 2], [0, 1, 0, 1],
         ("class1", "class2", "class3")),
        (["class1_p", "class2_p", "class3_p"], {"probabilities": ["class1_p", "class2_p", "class3_p"]}, [1, 2, 1, 2],
         [0, 1, 0, 1], ("class1", "class2", "class3")),
        (["p_1", "p_2", "p_x"], MATCHED, [1, 2, 1, 2], [0, 1, 0, 1], ("1", "2", "x")),
        (["p_0", "p_1", "p_2"], MATCHED, [1, 2, 0, 2], [1, 2, 0, 2], None),
        (["probabilities.0", "probabilities.1", "probabilities.2"], None, [1, 2, 1, 2], [1, 2, 1, 2], ("0", "1", "2")),
        (["probabilities.cat", "probabilities.dog", "probabilities.cow"], None, [1, 2, 1, 2], [1, 2, 1, 2],
         ("cat", "dog", "cow")),
    ],
)  # fmt: skip
def test_labels_that_are_numbers_are_matched_with_the_numbers_of_columns(
    suffix, kind, columns, chosen, labels, positions, names, tmp_path
):
    opened = Predictions.open(table(tmp_path / f"a{suffix}", columns, list(map(kind, labels))), columns=chosen)
    assert opened.labels.tolist() == positions
    assert opened.class_names == names
    held = dict(zip(columns, P.T, strict=True))
    order = chosen["probabilities"] if chosen and isinstance(chosen["probabilities"], list) else sorted(columns)
    if not any(c.endswith(("cat", "-1")) for c in columns):
        assert np.array_equal(opened.probabilities, np.stack([held[c] for c in order], 1))


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("labels", [[0, 1, 2, 1], [1, 2, 4, 1], [-1, 1, 2, 1], [10, 20, 30, 10]])
def test_a_label_that_is_no_number_of_a_column_is_refused_with_both_lists(suffix, labels, tmp_path):
    text = load_refusal(table(tmp_path / f"a{suffix}", ["p_1", "p_2", "p_3"], labels), columns=MATCHED)
    assert "among the numbers of the classes, 1, 2, 3, got" in text
    assert f"the labels are {', '.join(map(str, sorted(set(labels))))};" in text
    assert "--class-names" in text


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_list_of_columns_with_names_says_otherwise(suffix, tmp_path):
    path = table(tmp_path / f"a{suffix}", ["p_1", "p_2", "p_3"], [0, 1, 2, 1])
    opened = Predictions.open(path, columns=LISTED, class_names=["0", "1", "2"])
    assert opened.labels.tolist() == [0, 1, 2, 1]
    assert "must be those of the columns, p_1, p_2, p_3, got 0, 1, 2: list the columns" in load_refusal(
        path, columns=MATCHED, class_names=["0", "1", "2"]
    )
    path = table(tmp_path / f"a{suffix}", ["p_1", "p_2", "p_3"], ["sick", "well", "well", "dead"])
    opened = Predictions.open(path, columns=LISTED, class_names=["well", "sick", "dead"])
    assert opened.labels.tolist() == [1, 0, 0, 2]
    path = table(tmp_path / f"a{suffix}", ["p_1", "p_2", "p_3"], [1, 2, 2, 1])
    text = load_refusal(path, columns=LISTED, class_names=["well", "sick", "dead"])
    assert "numbers may be those of the columns, p_1, p_2, p_3, or of the class names, well, sick, dead" in text


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_given_names_bring_columns_into_their_order(suffix, tmp_path):
    path = table(tmp_path / f"a{suffix}", ["p_cat", "p_dog", "p_cow"], ["dog", "cat", "cow", "dog"])
    opened = Predictions.open(path, columns=MATCHED, class_names=["cow", "dog", "cat"])
    assert np.array_equal(opened.probabilities, P[:, [2, 1, 0]])
    assert opened.labels.tolist() == [1, 2, 0, 1]
    assert opened.class_names == ("cow", "dog", "cat")
    numbered = table(tmp_path / f"b{suffix}", ["p_1", "p_2", "p_3"], [1, 2, 1, 2])
    opened = Predictions.open(numbered, columns=MATCHED, class_names=["3", "1", "2"])
    assert np.array_equal(opened.probabilities, P[:, [2, 0, 1]])
    assert opened.labels.tolist() == [1, 2, 1, 2]
    unlabelled = Predictions.open(path, columns=MATCHED, class_names=["p_cow", "p_dog", "p_cat"], unlabelled=True)
    assert np.array_equal(unlabelled.probabilities, P[:, [2, 1, 0]])
    text = load_refusal(path, columns=MATCHED, class_names=["cow", "dog", "hen"])
    assert "must be those of the columns, p_cat, p_dog, p_cow, got cow, dog, hen" in text
    positions = table(tmp_path / f"c{suffix}", ["p_cat", "p_dog", "p_cow"], [1, 0, 2, 1])
    assert Predictions.open(positions, columns=MATCHED, class_names=["cat", "dog", "cow"]).labels.tolist() == [
        1,
        0,
        2,
        1,
    ]
    assert "labels must be text, as numbers may be" in load_refusal(
        positions, columns=MATCHED, class_names=["cow", "dog", "cat"]
    )


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_all_rows_decide_what_labels_call_the_classes(suffix, tmp_path):
    """The first block has labels that fit several names; a later one must neither flip the meaning nor be lost."""
    count = 60_000
    columns = {"p_1": np.full(count, 0.5), "p_2": np.full(count, 0.5)}
    first = ["1"] * (count - 1)
    for last, number in (("p_2", None), ("x", None), ("2", 1)):
        path = tmp_path / f"a{suffix}"
        if suffix == ".parquet":
            pq.write_table(pa.table({**columns, "labels": [*first, last]}), path, row_group_size=1000)
        else:
            path.write_text("p_1,p_2,labels\n" + "0.5,0.5,1\n" * (count - 1) + f"0.5,0.5,{last}\n")
        if number is None:
            assert "labels must be among the class names" in load_refusal(path, columns=MATCHED)
        else:
            assert Predictions.open(path, columns=MATCHED).labels[[0, -1]].tolist() == [0, number]


STATED = {
    "names only": ([1, 2, 3, 1], [0, 1, 2, 0]),
    "positions only": ([0, 1, 2, 0], [0, 1, 2, 0]),
    "text names": (["1", "2", "1", "2"], [0, 1, 0, 1]),
    "text positions": (["0", "1", "2", "0"], [0, 1, 2, 0]),
}


@pytest.mark.parametrize("case", STATED)
def test_names_stated_beside_an_array_are_numbers(case, tmp_path):
    labels, positions = STATED[case]
    opened = Predictions.open(arrays(tmp_path / "a.npz", labels, class_names=["1", "2", "3"]))
    assert opened.labels.tolist() == positions
    assert opened.class_names == ("1", "2", "3")
    assert np.concatenate([b.labels for b in opened.batches(3)]).tolist() == positions


def test_codes_beside_an_array_and_in_other_formats(tmp_path):
    codes = [10, 20, 30, 10]
    assert Predictions.open(arrays(tmp_path / "a.npz", codes, class_names=["10", "20", "30"])).labels.tolist() == [
        0, 1, 2, 0,
    ]  # fmt: skip
    assert Predictions.open(arrays(tmp_path / "b.npz", codes), class_names=["10", "20", "30"]).labels.tolist() == [
        0, 1, 2, 0,
    ]  # fmt: skip
    for name, array in (
        ("probabilities", P),
        ("labels", np.array(codes)),
        ("class_names", np.array(["10", "20", "30"])),
    ):
        np.save(tmp_path / f"x_{name}.npy", array)
    assert Predictions.open(tmp_path / "x_probabilities.npy").labels.tolist() == [0, 1, 2, 0]
    for labels in (codes, list(map(str, codes))):
        pq.write_table(pa.table({"probabilities": P.tolist(), "labels": labels}), tmp_path / "a.parquet")
        opened = Predictions.open(tmp_path / "a.parquet", class_names=["10", "20", "30"])
        assert opened.labels.tolist() == [0, 1, 2, 0]


def test_what_may_be_both_is_refused_with_both_lists_and_can_be_said(tmp_path):
    path = arrays(tmp_path / "a.npz", [1, 2, 1, 2], class_names=["1", "2", "3"])
    text = load_refusal(path)
    assert "the labels are 1, 2, the class names 1, 2, 3; store the labels as text" in text
    assert "--class-names" in text
    assert Predictions.open(path, class_names=["0", "1", "2"]).labels.tolist() == [1, 2, 1, 2]
    assert "the labels are 1, 7, the class names 1, 2, 3" in load_refusal(
        arrays(tmp_path / "b.npz", [1, 7, 1, 7], class_names=["1", "2", "3"])
    )
    arrays(tmp_path / "s1.npz", [1, 2, 1, 2], class_names=["1", "2", "3"])
    arrays(tmp_path / "s2.npz", [3, 2, 1, 2], class_names=["1", "2", "3"])
    shards = Predictions.open(str(tmp_path / "s*.npz"))  # the labels of all files decide
    assert shards.labels.tolist() == [0, 1, 0, 1, 2, 1, 0, 1]


def test_names_that_the_file_states_are_not_overridden(tmp_path):
    path = arrays(tmp_path / "a.npz", [1, 2, 1, 0], class_names=["cat", "dog", "cow"])
    assert Predictions.open(path, class_names=["cat", "dog", "cow"]).labels.tolist() == [1, 2, 1, 0]
    assert "in their order: expected cat, dog, cow, got dog, cat, cow" in load_refusal(
        path, class_names=["dog", "cat", "cow"]
    )
    assert "expected cat, dog, cow, got a, b, c" in load_refusal(path, class_names=["a", "b", "c"])
    numbers = arrays(tmp_path / "b.npz", [1, 2, 1, 0], class_names=["0", "1", "2"])
    assert Predictions.open(numbers, class_names=["cat", "dog", "cow"]).class_names == ("cat", "dog", "cow")


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("names", [["1", "2", "3"], ["class1", "class2", "class3"], ["1", "x", "2"], ["0", "10", "20"]])
def test_what_is_written_with_names_that_are_numbers_is_read_unchanged(suffix, names, tmp_path):
    for labels in ([1, 2, 1, 2], [0, 1, 2, 0], [1, 1, 1, 1]):
        path = tmp_path / f"{''.join(map(str, labels))}_probabilities{suffix}"
        Predictions.from_probabilities(P, labels, class_names=names).save(path)
        opened = Predictions.open(path)
        assert opened.labels.tolist() == labels
        assert opened.class_names == tuple(names)


def test_ignored_labels_are_numbers_as_labels_have_them(tmp_path):
    codes = {"class_names": ["0", "10", "20"]}
    assert Predictions.open(
        arrays(tmp_path / "a.npz", [0, 10, 255, 20], **codes), ignore_index=255
    ).labels.tolist() == [0, 1, 255, 2]
    assert "ignore_index must not be the position of a class" in load_refusal(
        arrays(tmp_path / "b.npz", [0, 10, 1, 20], **codes), ignore_index=1
    )
    path = table(tmp_path / "a.csv", ["p_0", "p_10", "p_20"], [0, 10, -1, 20])
    assert Predictions.open(path, columns=MATCHED, ignore_index=-1).labels.tolist() == [0, 1, -1, 2]


def test_numbers_that_are_one_number_twice_are_refused(tmp_path):
    text = load_refusal(table(tmp_path / "a.csv", ["p_1", "p_01", "p_2"], [1, 2, 1, 2]), columns=MATCHED)
    assert "must have different numbers, got p_01 and p_1" in text
    text = load_refusal(
        table(tmp_path / "b.csv", ["p_1", "p_2", "p_3"], [1, 2, 1, 2]), columns={"probabilities": ["p_1"] * 2}
    )
    assert "different columns for probabilities, got 'p_1' 2 times" in text
    text = load_refusal(table(tmp_path / "c.csv", ["p_1", "p_2", "p_3"], [1, 2, 1, 2]), columns={"probabilities": "*"})
    assert "column 'labels' is taken both for probabilities and for labels" in text


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_compared_columns_agree_as_numbers_or_as_text_over_all_rows(suffix, tmp_path):
    def right(predicted, labels):
        path = tmp_path / f"a{suffix}"
        columns = {"confidence": np.full(len(labels), 0.5), "predicted": predicted, "labels": labels}
        if suffix == ".csv":
            rows = zip(*columns.values(), strict=True)
            path.write_text("\n".join([",".join(columns), *(",".join(map(str, row)) for row in rows), ""]))
        else:
            pq.write_table(pa.table(columns), path)
        return Predictions.open(path).correct.tolist()

    assert right(["1", "2", "3"], ["1", "3", "3"]) == [True, False, True]
    assert right(["1.0", "2", "cat"], ["1", "02", "cat"]) == [True, True, True]
    large = 2**53
    assert right([large, large + 1], [large, large]) == [True, False]
    if suffix == ".parquet":
        assert right(["1", "2"], [1, 3]) == [True, False]
    with pytest.raises(ValueError, match="must be alike to be compared, got text and numbers"):
        right(["cat", "dog"], ["1", "2"])
    many = 50_000
    assert right(["1"] * many + ["x"], ["1"] * many + ["x"])[-2:] == [True, True]


def test_numbers_in_names():
    assert [number_of(name) for name in ("7", "007", "-7", "+7", "7.0", "7.5", "", "a7", "7" * 19)] == [
        7, 7, -7, 7, 7, None, None, None, None,
    ]  # fmt: skip
    assert codes_of(["0", "1", "2"]) is None
    assert codes_of(["a", "b"]) is None
    assert codes_of(["0", "1", "other"]) is None
    assert codes_of(["1", "2"]) == (1, 2)
    assert codes_of(["x", "5"]) == (None, 5)


def test_unknown_labels_list_the_class_names_and_how_to_give_them(tmp_path):
    path = write_table(tmp_path / "a.csv", "p_cat,p_dog,p_bird,labels", ["dog", "Cat", "bird", "dog"])
    text = refusal_of(Predictions.open, path, columns={"probabilities": "p_*"})
    assert "must be among the class names cat, dog, bird, got 'Cat' in line 3; did you mean 'cat'?" in text
    assert "class_names=[...]" in text
    assert "--class-names" in text
    many = refusal_of(Predictions.from_logits, np.eye(9), ["x"] * 9, class_names=list("abcdefghi"))
    assert "class names a, b, c, d, e and 4 more, got 'x'" in many


def test_predicted_and_labels_stand_for_correct(tmp_path):
    sure, right = [0.5, 0.75, 1.0], [True, False, True]
    for number, (said, true) in enumerate(
        [([2, 0, 1], [2, 1, 1]), (["a", "b", "c"], ["a", "a", "c"]), ([2.0, 0.0, 1.0], [2, 1, 1])]
    ):
        text = "\n".join(
            ["confidence,predicted,labels", *(f"{c},{s},{t}" for c, s, t in zip(sure, said, true, strict=True))]
        )
        (tmp_path / f"{number}.csv").write_text(text)
        columns = {"confidence": np.array(sure), "predicted": np.array(said), "label": np.array(true)}
        pq.write_table(pa.table(columns), tmp_path / f"{number}.parquet")
        np.savez(tmp_path / f"{number}.npz", **columns)
        for name, values in columns.items():
            np.save(tmp_path / f"{number}_{name}.npy", values)
        for path in (f"{number}.csv", f"{number}.parquet", f"{number}.npz", f"{number}_confidence.npy"):
            opened = Predictions.open(tmp_path / path)
            assert opened.correct.tolist() == right
            assert [b.correct.tolist() for b in opened.batches(2)] == [right[:2], right[2:]]
    mapped = tmp_path / "m.csv"
    mapped.write_text("confidence,said,true,correct\n0.5,a,a,0\n0.5,a,b,1\n")
    assert Predictions.open(mapped).correct.tolist() == [False, True]
    assert Predictions.open(mapped, columns={"predicted": "said", "labels": "true"}).correct.tolist() == [True, False]
    mapped.write_text("confidence,predicted,labels\n0.5,a,0\n0.5,b,1\n")
    assert refusal_of(Predictions.open, mapped).endswith("must be alike to be compared, got text and numbers")
    np.savez(tmp_path / "m.npz", confidence=sure, predicted=["a", "b", "c"], labels=[0, 1, 2])
    assert "must be alike to be compared, got text [3] and numbers [3]" in refusal_of(
        Predictions.open, tmp_path / "m.npz"
    )
    np.savez(tmp_path / "m.npz", confidence=sure, predicted=[0, np.nan, 1], labels=[0, 1, 2])
    assert "predicted must have a value everywhere, got nan in row 1" in refusal_of(
        Predictions.open, tmp_path / "m.npz"
    )
    np.savez(tmp_path / "m.npz", confidence=sure, labels=[0, 1, 2])
    text = refusal_of(Predictions.open, tmp_path / "m.npz")
    assert "nothing that says whether it was right: correct, or predicted beside labels" in text
    assert text.endswith("--column correct=NAME")


def test_text_labels_of_a_list_column_take_class_names(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"probabilities": Q.tolist(), "labels": ["dog", "cat", "bird", "dog"]}), path)
    assert Predictions.open(path, class_names=CLASSES).labels.tolist() == [1, 0, 2, 1]
    text = refusal_of(Predictions.open, path)
    assert "class_names=[...]" in text
    assert "--class-names" in text
