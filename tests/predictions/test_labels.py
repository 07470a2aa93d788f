"""Which class a label means, in every format."""

import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibrant import Predictions
from calibrant.predictions.schema import codes_of, number_of
from tests.helpers.errors import facts
from tests.helpers.predictions import FORMATS, refusal_of, write_columns

P = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6], [0.5, 0.3, 0.2]])
LISTED = {"probabilities": ["p_1", "p_2", "p_3"]}
MATCHED = {"probabilities": "p_*"}


def table(path, columns, labels):
    """A table of P with one column per class, whatever the suffix."""
    return write_columns(path, {name: P[:, j] for j, name in enumerate(columns)} | {"labels": labels})


def arrays(path, labels, **facts):
    return write_columns(path, {"probabilities": P, "labels": labels} | facts)


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
    assert re.search(facts("1, 2, 3", ", ".join(map(str, sorted(set(labels)))), "--class-names"), text)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_list_of_columns_with_names_says_otherwise(suffix, tmp_path):
    names, health = ["p_1", "p_2", "p_3"], ["well", "sick", "dead"]
    path = table(tmp_path / f"a{suffix}", names, [0, 1, 2, 1])
    assert Predictions.open(path, columns=LISTED, class_names=["0", "1", "2"]).labels.tolist() == [0, 1, 2, 1]
    text = load_refusal(path, columns=MATCHED, class_names=["0", "1", "2"])
    assert re.search(facts("p_1, p_2, p_3", "0, 1, 2"), text)
    path = table(tmp_path / f"a{suffix}", names, ["sick", "well", "well", "dead"])
    assert Predictions.open(path, columns=LISTED, class_names=health).labels.tolist() == [1, 0, 0, 2]
    path = table(tmp_path / f"a{suffix}", names, [1, 2, 2, 1])
    text = load_refusal(path, columns=LISTED, class_names=health)
    assert re.search(facts("numbers", "p_1, p_2, p_3", "well, sick, dead"), text)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_given_names_bring_columns_into_their_order(suffix, tmp_path):
    animals, numbers = ["p_cat", "p_dog", "p_cow"], ["p_1", "p_2", "p_3"]
    for columns, labels, names, order, positions in (
        (animals, ["dog", "cat", "cow", "dog"], ("cow", "dog", "cat"), [2, 1, 0], [1, 2, 0, 1]),
        (numbers, [1, 2, 1, 2], ("3", "1", "2"), [2, 0, 1], [1, 2, 1, 2]),
        (animals, [1, 0, 2, 1], ("cat", "dog", "cow"), [0, 1, 2], [1, 0, 2, 1]),
    ):
        opened = Predictions.open(table(tmp_path / f"a{suffix}", columns, labels), columns=MATCHED, class_names=names)
        assert np.array_equal(opened.probabilities, P[:, order])
        assert (opened.labels.tolist(), opened.class_names) == (positions, names)
    assert "labels must be text" in load_refusal(opened.files[0], columns=MATCHED, class_names=["cow", "dog", "cat"])
    path = table(tmp_path / f"a{suffix}", animals, ["dog", "cat", "cow", "dog"])
    unlabelled = Predictions.open(path, columns=MATCHED, class_names=["p_cow", "p_dog", "p_cat"], unlabelled=True)
    assert np.array_equal(unlabelled.probabilities, P[:, [2, 1, 0]])
    text = load_refusal(path, columns=MATCHED, class_names=["cow", "dog", "hen"])
    assert re.search(facts("p_cat, p_dog, p_cow", "cow, dog, hen"), text)


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
            assert re.search(facts("labels", "class names"), load_refusal(path, columns=MATCHED))
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
    codes, names = [10, 20, 30, 10], ["10", "20", "30"]
    for name, array in (("probabilities", P), ("labels", np.array(codes)), ("class_names", np.array(names))):
        np.save(tmp_path / f"x_{name}.npy", array)
    paths = [arrays(tmp_path / "a.npz", codes), tmp_path / "x_probabilities.npy"]
    for k, labels in enumerate((codes, list(map(str, codes)))):
        paths.append(tmp_path / f"{k}.parquet")
        pq.write_table(pa.table({"probabilities": P.tolist(), "labels": labels}), paths[-1])
    for path in paths:
        assert Predictions.open(path, class_names=names).labels.tolist() == [0, 1, 2, 0]
    assert Predictions.open(arrays(tmp_path / "b.npz", codes, class_names=names)).labels.tolist() == [0, 1, 2, 0]


def test_what_may_be_both_is_refused_with_both_lists_and_can_be_said(tmp_path):
    names = {"class_names": ["1", "2", "3"]}
    path = arrays(tmp_path / "a.npz", [1, 2, 1, 2], **names)
    assert re.search(facts("1, 2", "1, 2, 3", "text", "--class-names"), load_refusal(path))
    assert Predictions.open(path, class_names=["0", "1", "2"]).labels.tolist() == [1, 2, 1, 2]
    assert re.search(facts("1, 7", "1, 2, 3"), load_refusal(arrays(tmp_path / "b.npz", [1, 7, 1, 7], **names)))
    arrays(tmp_path / "s1.npz", [1, 2, 1, 2], **names)
    arrays(tmp_path / "s2.npz", [3, 2, 1, 2], **names)
    shards = Predictions.open(str(tmp_path / "s*.npz"))  # the labels of all files decide
    assert shards.labels.tolist() == [0, 1, 0, 1, 2, 1, 0, 1]


def test_names_that_the_file_states_are_not_overridden(tmp_path):
    path = arrays(tmp_path / "a.npz", [1, 2, 1, 0], class_names=["cat", "dog", "cow"])
    assert Predictions.open(path, class_names=["cat", "dog", "cow"]).labels.tolist() == [1, 2, 1, 0]
    for names in (["dog", "cat", "cow"], ["a", "b", "c"]):
        assert re.search(facts("cat, dog, cow", ", ".join(names)), load_refusal(path, class_names=names))
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
    assert "ignore_index" in load_refusal(arrays(tmp_path / "b.npz", [0, 10, 1, 20], **codes), ignore_index=1)
    path = table(tmp_path / "a.csv", ["p_0", "p_10", "p_20"], [0, 10, -1, 20])
    assert Predictions.open(path, columns=MATCHED, ignore_index=-1).labels.tolist() == [0, 1, -1, 2]


def test_numbers_that_are_one_number_twice_are_refused(tmp_path):
    text = load_refusal(table(tmp_path / "a.csv", ["p_1", "p_01", "p_2"], [1, 2, 1, 2]), columns=MATCHED)
    assert "p_01 and p_1" in text


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_compared_columns_agree_as_numbers_or_as_text_over_all_rows(suffix, tmp_path):
    def right(predicted, labels):
        columns = {"confidence": np.full(len(labels), 0.5), "predicted": predicted, "labels": labels}
        return Predictions.open(write_columns(tmp_path / f"a{suffix}", columns)).correct.tolist()

    assert right(["1", "2", "3"], ["1", "3", "3"]) == [True, False, True]
    assert right(["1.0", "2", "cat"], ["1", "02", "cat"]) == [True, True, True]
    large = 2**53
    assert right([large, large + 1], [large, large]) == [True, False]
    if suffix == ".parquet":
        assert right(["1", "2"], [1, 3]) == [True, False]
    with pytest.raises(ValueError, match=facts("text and numbers")):
        right(["cat", "dog"], ["1", "2"])
    many = 50_000
    assert right(["1"] * many + ["x"], ["1"] * many + ["x"])[-2:] == [True, True]


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npz", ".npy"])
@pytest.mark.parametrize(
    ("predicted", "labels"), [([2, 0, 1], [2, 1, 1]), (["a", "b", "c"], ["a", "a", "c"]), ([2.0, 0.0, 1.0], [2, 1, 1])]
)
def test_predicted_and_labels_stand_for_correct(predicted, labels, suffix, tmp_path):
    columns = {"confidence": [0.5, 0.75, 1.0], "predicted": predicted, "label": labels}
    opened = Predictions.open(write_columns(tmp_path / f"x{suffix}", columns))
    assert opened.correct.tolist() == [True, False, True]
    assert [b.correct.tolist() for b in opened.batches(2)] == [[True, False], [True]]


def test_predicted_and_labels_are_chosen_or_missed(tmp_path):
    path, sure = tmp_path / "m.csv", {"confidence": [0.5, 0.75]}
    write_columns(path, sure | {"said": ["a", "a"], "true": ["a", "b"], "correct": [0, 1]})
    assert Predictions.open(path).correct.tolist() == [False, True]
    assert Predictions.open(path, columns={"predicted": "said", "labels": "true"}).correct.tolist() == [True, False]
    for name, columns, told in (
        ("a.csv", {"predicted": ["a", "b"], "labels": [0, 1]}, ("text and numbers",)),
        ("a.npz", {"predicted": ["a", "b"], "labels": [0, 1]}, ("text [2] and numbers [2]",)),
        ("b.npz", {"predicted": [0, np.nan], "labels": [0, 1]}, ("predicted", "nan", "row 1")),
        ("c.npz", {"labels": [0, 1]}, ("correct", "predicted")),
    ):
        text = refusal_of(Predictions.open, write_columns(tmp_path / name, sure | columns))
        assert re.search(facts(*told), text)


def test_numbers_in_names():
    assert [number_of(name) for name in ("7", "007", "-7", "+7", "7.0", "7.5", "", "a7", "7" * 19)] == [
        7, 7, -7, 7, 7, None, None, None, None,
    ]  # fmt: skip
    for names, codes in ((["0", "1", "2"], None), (["a", "b"], None), (["1", "2"], (1, 2)), (["x", "5"], (None, 5))):
        assert codes_of(names) == codes
