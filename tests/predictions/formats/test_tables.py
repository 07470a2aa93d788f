"""Tables: frames of pandas and polars, columns of every type."""

import datetime
import decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibrant import Predictions, audit
from tests.helpers.predictions import N, make, refusal, refused


def test_names_of_classes_label_the_rows_of_a_table(tmp_path):
    p = make("probabilities")
    names = np.array(["cat", "dog", "cow"])
    columns = {name: p.probabilities[:, j] for j, name in enumerate(names)}
    pq.write_table(
        pa.table({**columns, "truth": names[p.labels], "site": ["x"] * N, "no": [None] * N}), tmp_path / "a.parquet"
    )
    mapped = {"labels": "truth", "probabilities": ["cow", "cat", "dog"]}
    opened = Predictions.open(tmp_path / "a.parquet", columns=mapped, groups=["site"])
    assert opened.class_names == ("cow", "cat", "dog")
    assert np.array_equal(opened.probabilities, p.probabilities[:, [2, 0, 1]])
    assert np.array_equal(np.array(opened.class_names)[opened.labels], names[p.labels])
    assert opened.groups["site"].tolist() == ["x"] * N
    again = Predictions.open(tmp_path / "a.parquet", columns=mapped, class_names=["a", "b", "c"])
    with pytest.raises(
        ValueError,
        match=r"a\.parquet: labels \(column 'truth'\) must be among the class names a, b, c, got '\w+' in row 0 ",
    ):
        again.load()
    text = "\r\n".join(
        ["\ufeffid,truth,p_1,p_0,p_2,note", '7,dog,0.5,0.25,0.25,"a\r\nb"', "08,cat,0,1,0,", "9,dog,1e-1,.4,0.5,x", ""]
    )
    (tmp_path / "a.csv").write_text(text, newline="")
    opened = Predictions.open(
        tmp_path / "a.csv", columns={"labels": "truth", "probabilities": "p_*"}, class_names=["cat", "dog", "cow"]
    )
    assert opened.probabilities.tolist() == [[0.25, 0.5, 0.25], [1, 0, 0], [0.4, 0.1, 0.5]]
    assert opened.labels.tolist() == [1, 0, 1]
    assert opened.ids.tolist() == ["7", "08", "9"]
    assert len(opened) == 3
    make("probabilities").save(tmp_path / "b.csv")
    assert repr(Predictions.open(tmp_path / "b.csv")).startswith(f"Predictions({tmp_path}")  # no pass to count rows


RNG = np.random.default_rng(0)
SHARES = RNG.dirichlet([1, 2, 3], 40)
ANIMALS = np.array(["cat", "dog", "fox"])
TRUTH = RNG.integers(0, 3, 40)
FRAME_COLUMNS = {"truth": ANIMALS[TRUTH].tolist(), "p_dog": SHARES[:, 1], "p_cat": SHARES[:, 0], "p_fox": SHARES[:, 2]}
FRAME_COLUMNS["site"] = ["north", "south"] * 20
FRAMES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "arrow": pa.table}


@pytest.mark.parametrize("kind", FRAMES)
def test_columns_and_labels_are_matched_by_name(kind):
    mapped = {"labels": "truth", "probabilities": "p_*"}
    found = Predictions.from_frame(FRAMES[kind](FRAME_COLUMNS), columns=mapped, groups=["site"], split="val")
    order = [list(ANIMALS).index(name) for name in found.class_names]
    np.testing.assert_array_equal(found.probabilities, SHARES[:, order])
    assert [found.class_names[k] for k in found.labels] == ANIMALS[TRUTH].tolist()
    assert found.groups["site"].tolist() == ["north", "south"] * 20
    assert (found.split, found.files) == ("val", ())


@pytest.mark.parametrize("kind", FRAMES)
def test_our_own_names_need_no_mapping(kind):
    z = np.log(SHARES).astype(np.float32)
    columns = {"label": TRUTH, "logits_0": z[:, 0], "logits_1": z[:, 1], "logits_2": z[:, 2], "id": np.arange(40)}
    found = Predictions.from_frame(FRAMES[kind](columns))
    np.testing.assert_array_equal(found.logits, z)
    np.testing.assert_array_equal(found.labels, TRUTH)
    assert audit(found, replicates=20).metrics == audit(Predictions.from_logits(z, TRUTH), replicates=20).metrics


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_arrays_of_frames_are_taken_as_they_are(kind):
    frame = FRAMES[kind]({"a": SHARES[:, 0], "b": SHARES[:, 1], "c": SHARES[:, 2], "y": TRUTH})
    found = Predictions.from_probabilities(frame[["a", "b", "c"]], frame["y"])
    np.testing.assert_array_equal(found.probabilities, SHARES)
    np.testing.assert_array_equal(found.labels, TRUTH)


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        ({"a": [1.0]}, "frame must be a frame of pandas, polars or another library with eager frames, got dict"),
        (pl.DataFrame({"a": [1.0]}).lazy(), "frame must be a frame of pandas.* got LazyFrame"),
        (pd.DataFrame({"a": [1.0]}), "frame: no logits, probabilities or confidence"),
        (pd.DataFrame({"logits_0": [1.0], "logits_1": [2.0]}), "frame: .*labels"),
        (pd.DataFrame({"logits_0": [1.0, None], "logits_1": [2.0, 3.0], "labels": [0, 1]}), "frame: .*no value|finite"),
    ],
    ids=["dict", "lazy", "nothing", "labels", "empty value"],
)
def test_what_is_no_frame_of_predictions_is_refused(frame, words):
    with pytest.raises(ValueError, match=words):
        Predictions.from_frame(frame)


KINDS = {
    "decimal": pa.array([decimal.Decimal("1"), decimal.Decimal("0")]),
    "timestamp": pa.array([datetime.datetime(2020, 1, 1)] * 2),
    "date": pa.array([1, 2], pa.date32()),
    "late date": pa.array([2**31 - 1, 2], pa.date32()),
    "duration": pa.array([1, 2], pa.duration("s")),
    "null": pa.nulls(2),
    "struct": pa.array([{"a": 1}] * 2),
    "map": pa.array([[("a", 1)]] * 2, pa.map_(pa.string(), pa.int64())),
    "bytes": pa.array([b"a", b"\xff"]),
    "list": pa.array([[1], [2]]),
    "zeros": pa.array(["a\0", "a"]),
}


@pytest.mark.parametrize("role", ["labels", "ids", "group.g", "objectness", "logits", "confidence", "correct"])
@pytest.mark.parametrize("kind", KINDS)
def test_columns_of_other_types(kind, role, tmp_path):
    columns = {"logits_0": [1.0, 2.0], "logits_1": [0.0, 1.0], "labels": [0, 1]}
    if role == "logits":
        columns = {"labels": [0, 1]}
    elif role in ("confidence", "correct"):
        columns = {"confidence": [0.5, 0.5], "correct": [1, 0]}
    columns[role] = KINDS[kind]
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    assert f"'{role}'" in refusal(tmp_path / "a.parquet")


def test_tables_with_nothing_in_them(tmp_path):
    pq.write_table(pa.table({}), tmp_path / "a.parquet")
    assert "the table has no columns" in refusal(tmp_path / "a.parquet")
    schema = pa.schema({"logits": pa.list_(pa.float64(), 2), "labels": pa.int64()})
    with pq.ParquetWriter(tmp_path / "b.parquet", schema) as writer:
        for rows in (0, 2, 0, 1, 0):
            lists = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(2 * rows)), 2)
            writer.write_table(pa.table({"logits": lists, "labels": pa.array([0] * rows, pa.int64())}))
    assert len(Predictions.open(tmp_path / "b.parquet").labels) == 3
    np.savez(tmp_path / "a.npz", logits=np.eye(3), labels=np.arange(3), class_names=np.array([], "U1"))
    assert "class_names must be a list" in refusal(tmp_path / "a.npz")


def test_values_that_do_not_belong_in_a_table(tmp_path):
    def parquet(message, **columns):
        pq.write_table(pa.table(columns), tmp_path / "a.parquet")
        refused(tmp_path / "a.parquet", message)

    y = [0, 1, 0]
    parquet(
        r"column 'logits' must be lists of 2 numbers, got 3 in row 2 .counted from 0.$",
        logits=[[1.0, 2.0], [3.0, 4.0], [1.0, 2.0, 3.0]],
        labels=y,
    )
    parquet(
        "column 'logits' has no value in row 1 .counted from 0.: fill it in",
        logits=[[1.0, 2.0], None, [1.0, 2.0]],
        labels=y,
    )
    parquet(
        "column 'logits' has no value in the list of row 2 .counted from 0.$",
        logits=[[1.0, 2.0], [1.0, 2.0], [1.0, None]],
        labels=y,
    )
    parquet("column 'logits' must be floating point, got .*string", logits=[["1", "2"]] * 3, labels=y)
    parquet("one column is of two classes, and the labels are of 3", logits=[0.5] * 3, labels=[0, 1, 2])
    parquet(
        "column 'labels' has no value in row 2 .counted from 0.: fill it in",
        logits=[[1.0, 2.0]] * 3,
        labels=[0, 1, None],
    )
    parquet(
        "labels must be whole numbers, or text with class names given, got 'a' in row 0 .*--class-names.*class_names=",
        logits=[[1.0, 2.0]] * 3,
        labels=["a"] * 3,
    )
    parquet(
        r"column 'correct' must be numbers, got list<.* in row 0 .counted from 0.$", confidence=[0.5], correct=[[1]]
    )
    parquet(
        r"confidence must be floating point \[N\] with N >= 1 .* got float64 \[0\]",
        confidence=pa.array([], pa.float64()),
        correct=y[:0],
    )

    def text(message, body):
        (tmp_path / "a.csv").write_text(body)
        refused(tmp_path / "a.csv", message)

    text(r"column 'logits_1' must be a number, got 'x' in line 3$", "logits_0,logits_1,labels\n1,2,0\n1,x,0\n")
    text(
        r"column 'logits_0' has no value in line 2: fill it in, or leave such rows out$",
        "logits_0,logits_1,labels\n,2,0\n1,3,0\n",
    )
    text(r"line 3 has 2 fields, expected 3$", "logits_0,logits_1,labels\n1,2,0\n1,3\n")
    text(r"logits must be finite, got nan in line 3, class 0$", "logits_0,logits_1,labels\n1,2,0\nnan,3,1\n")
    text(
        r"labels must be whole numbers, or text with class names given, got '1.0' in line 3 \(use \.astype\(int\)\)$",
        "logits_0,logits_1,labels\n1,2,0\n2,3,1.0\n",
    )
    text(r"correct must be true or false.* got '2' in line 3$", "confidence,correct\n1,true\n0.5,2\n")
    long = "logits_0,logits_1,labels\n" + "1,2,0\n" * 300_000
    text(r"column 'labels' must be a whole number, got 'cat' in line 300002$", long + "1,2,cat\n")
    text(r"no rows after the header line$", "confidence,correct\n")
    text(r"expected text in UTF-8", "confidence,correct\n0.5,1\n".encode("utf-16").decode("latin-1"))


def test_predicted_and_labels_of_a_frame_are_compared_with_each_other():
    """They are sources of correct and columns of their own; by hand, with a last column that is neither."""
    columns = {"confidence": [0.9, 0.6, 0.7], "predicted": ["a", "b", "c"], "labels": ["a", "a", "c"], "ids": [7, 8, 9]}
    predictions = Predictions.from_frame(pa.table(columns))
    assert predictions.correct.tolist() == [True, False, True]
    assert (predictions.predicted.tolist(), predictions.actual.tolist()) == (["a", "b", "c"], ["a", "a", "c"])
    assert predictions.ids.tolist() == [7, 8, 9]


def test_a_column_may_serve_twice_in_a_frame():
    columns = {"logits_0": [1.0, 2.0, 3.0], "logits_1": [2.0, 1.0, 0.0], "a": [0, 1, 1], "b": [5, 6, 7]}
    predictions = Predictions.from_frame(pa.table(columns), columns={"labels": "a", "ids": "a", "group.g": "b"})
    assert predictions.labels.tolist() == predictions.ids.tolist() == [0, 1, 1]
    assert predictions.groups["g"].tolist() == [5, 6, 7]
