"""Files and arrays as people have them: what is accepted, and errors that say what to do; worked by hand."""

import gzip

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibrant import Predictions

P = np.array([[0.5, 0.25, 0.25], [0.0, 1.0, 0.0], [0.125, 0.375, 0.5], [0.25, 0.25, 0.5]])
ROWS = ["0.5,0.25,0.25", "0,1,0", "0.125,0.375,0.5", "0.25,0.25,0.5"]
ROUGH = P + np.array([0, 0, 0.01])
NAMES = ("cat", "dog", "bird")


def write(path, header, labels, rows=ROWS):
    path.write_text("\n".join([header, *(f"{row},{label}" for row, label in zip(rows, labels, strict=True)), ""]))
    return path


def message(call, *given, **how):
    with pytest.raises(ValueError, match=r".") as error:
        call(*given, **how).load()
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize(
    ("columns", "labels", "names", "numbers"),
    [
        (["p_cat", "p_dog", "p_bird"], ["dog", "cat", "bird", "dog"], NAMES, [1, 0, 2, 1]),
        (["p_cat", "p_dog", "p_bird"], [1, 0, 2, 1], NAMES, [1, 0, 2, 1]),
        (["p_cat", "p_dog", "p_cow"], ["p_dog", "p_cat", "p_cow", "p_cow"], ("p_cat", "p_dog", "p_cow"), [1, 0, 2, 2]),
        (["p_cat", "p_car", "p_cow"], ["car", "cat", "cow", "car"], ("cat", "car", "cow"), [1, 0, 2, 1]),
        (["cat", "car", "cow"], [1, 0, 2, 1], ("cat", "car", "cow"), [1, 0, 2, 1]),
        (["P(cat)", "P(dog)", "P(bird)"], ["dog", "cat", "bird", "dog"], NAMES, [1, 0, 2, 1]),
        (["cat_prob", "dog_prob", "bird_prob"], [1, 0, 2, 1], NAMES, [1, 0, 2, 1]),
        (["pcat", "pdog", "pbird"], ["dog", "cat", "bird", "dog"], NAMES, [1, 0, 2, 1]),
        (["p_0", "p_1", "p_2"], [1, 0, 2, 1], ("p_0", "p_1", "p_2"), [1, 0, 2, 1]),
        (["p_", "p_a", "p_b"], [1, 0, 2, 1], ("p_", "p_a", "p_b"), [1, 0, 2, 1]),
        ("p_*", ["p_dog", "p_cat", "p_bird", "p_dog"], ("p_cat", "p_dog", "p_bird"), [1, 0, 2, 1]),
        ("p*", ["dog", "cat", "bird", "dog"], NAMES, [1, 0, 2, 1]),
    ],
)  # fmt: skip
def test_chosen_columns_name_the_classes(suffix, columns, labels, names, numbers, tmp_path):
    held = ["p_cat", "p_dog", "p_bird"] if isinstance(columns, str) else columns
    path = tmp_path / f"a{suffix}"
    if suffix == ".csv":
        write(path, ",".join([*held, "truth"]), labels)
    else:
        pq.write_table(pa.table({**{name: P[:, j] for j, name in enumerate(held)}, "truth": labels}), path)
    opened = Predictions.open(path, columns={"probabilities": columns, "label": "truth"})
    assert opened.class_names == names
    assert opened.labels.tolist() == numbers
    assert opened.probabilities.tolist() == P.tolist()


def test_unknown_labels_list_the_class_names_and_how_to_give_them(tmp_path):
    path = write(tmp_path / "a.csv", "p_cat,p_dog,p_bird,labels", ["dog", "Cat", "bird", "dog"])
    text = message(Predictions.open, path, columns={"probabilities": "p_*"})
    assert "must be among the class names cat, dog, bird, got 'Cat' in line 3; did you mean 'cat'?" in text
    assert "class_names=[...]" in text
    assert "--class-names" in text
    many = message(Predictions.from_logits, np.eye(9), ["x"] * 9, class_names=list("abcdefghi"))
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
    assert message(Predictions.open, mapped).endswith("must be alike to be compared, got text and numbers")
    np.savez(tmp_path / "m.npz", confidence=sure, predicted=["a", "b", "c"], labels=[0, 1, 2])
    assert "must be alike to be compared, got text [3] and numbers [3]" in message(Predictions.open, tmp_path / "m.npz")
    np.savez(tmp_path / "m.npz", confidence=sure, predicted=[0, np.nan, 1], labels=[0, 1, 2])
    assert "predicted must have a value everywhere, got nan in row 1" in message(Predictions.open, tmp_path / "m.npz")
    np.savez(tmp_path / "m.npz", confidence=sure, labels=[0, 1, 2])
    text = message(Predictions.open, tmp_path / "m.npz")
    assert "neither correct nor predicted with labels; it holds confidence, labels" in text
    assert text.endswith('--column correct=NAME (in Python columns={"correct": "NAME"})')


def test_text_labels_of_a_list_column_take_class_names(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"probabilities": P.tolist(), "labels": ["dog", "cat", "bird", "dog"]}), path)
    assert Predictions.open(path, class_names=NAMES).labels.tolist() == [1, 0, 2, 1]
    text = message(Predictions.open, path)
    assert "class_names=[...]" in text
    assert "--class-names" in text


def test_missing_names_are_met_with_the_nearest(tmp_path):
    path = write(tmp_path / "a.csv", "p_cat,p_dog,p_bird,true_label, hospital ", [f"{i},x" for i in range(3)] + ["0,y"])
    columns = {"probabilities": "p_*", "label": "true_label"}
    assert Predictions.open(path, columns=columns, groups=["hospital"]).groups["hospital"].tolist() == list("xxxy")
    holds = "it holds p_cat, p_dog, p_bird, true_label, hospital"
    for groups in ({"groups": ["hosptial"]}, {"columns": columns | {"group.h": "hosptial"}}):
        text = message(Predictions.open, path, **({"columns": columns} | groups))
        assert text == f"{path}: no column 'hosptial' (given as group); did you mean 'hospital'? {holds}"
    text = message(Predictions.open, path, columns=columns | {"label": "truelabel"})
    assert text == f"{path}: no column 'truelabel' (given as labels); did you mean 'true_label'? {holds}"
    text = message(Predictions.open, path, columns=columns | {"probabilities": ["p_cat", "p_dgo", "p_bird"]})
    assert "no column 'p_dgo' (given as probabilities); did you mean 'p_dog'?" in text
    text = message(Predictions.open, path, columns={"probabilities": "p_*"})
    assert text.endswith('for example --column labels=true_label (in Python columns={"labels": "true_label"})')
    path = write(tmp_path / "b.csv", "logits_0,logits_1,logits_2,y", [0, 1, 2, 0])
    text = message(Predictions.open, path)
    assert text.endswith('for example --column labels=NAME (in Python columns={"labels": "NAME"})')
    assert "got 'labls'; did you mean 'labels'?" in message(Predictions.open, path, columns={"labls": "y"})
    assert "labels once, got labels and label" in message(Predictions.open, path, columns={"labels": "y", "label": "y"})
    assert Predictions.open(path, columns={"label": "y", "id": "y"}).ids.tolist() == [0, 1, 2, 0]


ENDS = {
    "percent": (lambda: Predictions.from_probabilities(100 * P, [0] * 4), "(percentages? divide by 100)"),
    "sure percent": (lambda: Predictions.from_confidence([50.0, 99.5], [0, 1]), "(percentages? divide by 100)"),
    "barely": (lambda: Predictions.from_confidence([0.5, 1.25], [0, 1]), "got 1.25 in row 1 (counted from 0)"),
    "from 1": (lambda: Predictions.from_logits(P, [1, 2, 3, 1]), "3 in row 2 (counted from 0) (labels count from 0)"),
    "not from 1": (lambda: Predictions.from_logits(P, [0, 2, 3, 1]), "got 3 in row 2 (counted from 0)"),
    "4": (lambda: Predictions.from_logits(P, [1, 4, 3, 1]), "got 4 in row 1 (counted from 0)"),
    "ignored": (lambda: Predictions.from_logits(P, [1, 9, 3, 1], ignore_index=9), "(labels count from 0)"),
    "logits": (lambda: Predictions.from_probabilities(4 * P - 1, [0] * 4), "(if these are logits, name them logits)"),
    "rounding": (lambda: Predictions.from_probabilities(P - 1e-9, [0] * 4), "row 1 (counted from 0), class 0"),
    "float": (lambda: Predictions.from_logits(P, [1.0, 0.0, 2.0, 1.0]), "got float64 [4] (use .astype(int))"),
    "half": (lambda: Predictions.from_logits(P, [1.5, 0.0, 2.0, 1.0]), "got float64 [4]"),
    "one-hot": (lambda: Predictions.from_logits(P, np.eye(4, 3, dtype=int)), "got int64 [4, 3] (use .argmax(1))"),
    "column": (lambda: Predictions.from_logits(P, [[0], [1], [2], [0]]), "got int64 [4, 1] (use .squeeze(1))"),
    "binary": (lambda: Predictions.from_probabilities(P[:, 0], [0] * 4), "(of two classes? np.stack([1 - p, p], 1))"),
    "digits": (
        lambda: Predictions.from_probabilities(ROUGH, [0] * 4),
        "(saved with too few digits? renormalise them: p / p.sum(1, keepdims=True))",
    ),
    "sums": (
        lambda: Predictions.from_probabilities(P * [[0.99], [1], [1], [0.9]], [0] * 4),
        "0.99 in row 0 (counted from 0)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ENDS)
def test_errors_about_values_end_with_what_to_do(case):
    call, end = ENDS[case]
    assert message(call).endswith(end)


def test_the_advice_in_errors_works():
    p = P[:, 0]
    assert Predictions.from_probabilities(np.stack([1 - p, p], 1), [0] * 4).num_classes == 2
    Predictions.from_probabilities(ROUGH / ROUGH.sum(1, keepdims=True), [0] * 4)


def test_one_hot_labels_in_files(tmp_path):
    np.savez(tmp_path / "a.npz", logits=P, labels=np.eye(4, 3))
    assert message(Predictions.open, tmp_path / "a.npz").endswith("got [4, 3] (use .argmax(1))")
    (tmp_path / "a.csv").write_text("probabilities,labels\n0.5,1\n")
    assert message(Predictions.open, tmp_path / "a.csv").endswith("(of two classes? add a column of 1 - p)")


def test_tabs_and_compression_are_read_and_pickles_are_not(tmp_path):
    body = write(tmp_path / "a.csv", "logits_0,logits_1,logits_2,labels", [0, 1, 2, 0]).read_text()
    (tmp_path / "a.tsv").write_text(body.replace(",", "\t"))
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(body.encode()))
    (tmp_path / "a.TSV.gz").write_bytes(gzip.compress(body.replace(",", "\t").encode()))
    for name in ("a.csv", "a.tsv", "a.csv.gz", "a.TSV.gz"):
        opened = Predictions.open(tmp_path / name)
        assert opened.logits.tolist() == P.tolist()
        assert len(opened) == 4
    assert len(Predictions.open(str(tmp_path / "*.tsv"))) == 4
    broken = gzip.compress(body.replace("0.375", "x").encode())
    (tmp_path / "a.csv.gz").write_bytes(broken)
    assert message(Predictions.open, tmp_path / "a.csv.gz").endswith("'logits_1' must be a number, got 'x' in line 4")
    for cut in (broken[:-20], broken[:5], b"", b"hello"):
        (tmp_path / "a.csv.gz").write_bytes(cut)
        assert message(Predictions.open, tmp_path / "a.csv.gz").startswith(f"{tmp_path / 'a.csv.gz'}: ")
    (tmp_path / "a.csv").write_text(body.replace(",", "\t"))
    assert message(Predictions.open, tmp_path / "a.csv").endswith(r"the header line has '\t' (name it .tsv)")
    for name in ("x.pt", "x.pth", "x.pkl"):
        text = message(Predictions.open, tmp_path / name)
        end = "(save arrays instead: np.savez('x.npz', logits=..., labels=...); pickles are never read)"
        assert text.endswith(end)
    with pytest.raises(ValueError, match=r"predictions are written as .*, got '\.tsv'$"):
        Predictions.from_logits(P, [0] * 4).save(tmp_path / "b.tsv")


def test_errors_in_text_give_the_line_an_editor_shows(tmp_path):
    """Empty lines and line breaks inside quotes count as an editor counts them."""
    path = tmp_path / "a.csv"
    start = '\ufeff\nlogits_0,logits_1,labels,note\n1,2,0,"two\nlines"\n\n'
    for row, end in (
        ("nan,1,0,x", "logits must be finite, got nan in line 6, class 0"),
        ("1,2,5,x", "labels must lie in 0..1, got 5 in line 6"),
        ("1,2", "line 6 has 2 fields, expected 4"),
        ("1,z,0,x", "column 'logits_1' must be a number, got 'z' in line 6"),
    ):
        path.write_text(start + row + "\n1,2,1,x\n")
        assert message(Predictions.open, path) == f"{path}: {end}"


def test_logits_that_look_like_probabilities_are_remarked_upon_and_used_as_they_are(tmp_path):
    for suffix in (".npz", ".csv"):
        Predictions.from_logits(P, [0, 1, 2, 0]).save(tmp_path / f"a{suffix}")
        opened = Predictions.open(tmp_path / f"a{suffix}")
        assert (len(opened.remarks), opened.holds) == (1, "logits")
        assert "name them probabilities" in opened.remarks[0]
        assert all(batch.remarks == opened.remarks for batch in opened.batches(3))
    assert Predictions.from_logits(np.log(P + 0.1), [0, 1, 2, 0]).remarks == ()
    assert Predictions.from_logits(P[:, ::-1] * [1, 0.5, 1], [0, 1, 2, 0]).remarks == ()
    assert Predictions.from_probabilities(P, [0, 1, 2, 0]).remarks == ()
    assert Predictions.from_confidence([0.5], [1]).remarks == ()


def test_load_is_told_apart_from_open():
    with pytest.raises(TypeError, match=r"read a file with Predictions\.open\(path\)"):
        Predictions.load("x.npz")
