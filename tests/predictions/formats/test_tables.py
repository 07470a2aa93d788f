"""Tables: frames of pandas and polars, columns of every type, every layout of Parquet, lists that become too large."""

import datetime
import decimal
import re

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibrant import Predictions
from calibrant.predictions import files
from calibrant.predictions.formats import tables as table_format
from tests.helpers.errors import facts
from tests.helpers.predictions import C, N, make, refusal


def test_names_of_classes_label_the_rows_of_a_table(tmp_path):
    p = make("probabilities")
    names = np.array(["cat", "dog", "cow"])
    columns = {name: p.probabilities[:, j] for j, name in enumerate(names)}
    table = pa.table({**columns, "truth": names[p.labels], "site": ["x"] * N, "no": [None] * N})
    pq.write_table(table, tmp_path / "a.parquet")
    mapped = {"labels": "truth", "probabilities": ["cow", "cat", "dog"]}
    opened = Predictions.open(tmp_path / "a.parquet", columns=mapped, groups=["site"])
    assert opened.class_names == ("cow", "cat", "dog")
    assert np.array_equal(opened.probabilities, p.probabilities[:, [2, 0, 1]])
    assert np.array_equal(np.array(opened.class_names)[opened.labels], names[p.labels])
    assert opened.groups["site"].tolist() == ["x"] * N
    again = Predictions.open(tmp_path / "a.parquet", columns=mapped, class_names=["a", "b", "c"])
    with pytest.raises(ValueError, match=facts("labels", "'truth'", "a, b, c", "row 0")):
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


@pytest.mark.parametrize(
    ("frame", "told"),
    [
        ({"a": [1.0]}, "frame dict"),
        (pl.DataFrame({"a": [1.0]}).lazy(), "frame LazyFrame"),
        (pd.DataFrame({"a": [1.0]}), "frame logits"),
        (pd.DataFrame({"logits_0": [1.0], "logits_1": [2.0]}), "frame labels"),
        (pd.DataFrame({"logits_0": [1.0, None], "logits_1": [2.0, 3.0], "labels": [0, 1]}), "frame logits row 1"),
    ],
    ids=["dict", "lazy", "nothing", "labels", "empty value"],
)
def test_what_is_no_frame_of_predictions_is_refused(frame, told):
    with pytest.raises(ValueError, match=facts(*told.split())):
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
    assert "columns" in refusal(tmp_path / "a.parquet")
    schema = pa.schema({"logits": pa.list_(pa.float64(), 2), "labels": pa.int64()})
    with pq.ParquetWriter(tmp_path / "b.parquet", schema) as writer:
        for rows in (0, 2, 0, 1, 0):
            lists = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(2 * rows)), 2)
            writer.write_table(pa.table({"logits": lists, "labels": pa.array([0] * rows, pa.int64())}))
    assert len(Predictions.open(tmp_path / "b.parquet").labels) == 3
    np.savez(tmp_path / "a.npz", logits=np.eye(3), labels=np.arange(3), class_names=np.array([], "U1"))
    assert "class_names must be a list" in refusal(tmp_path / "a.npz")


Y = [0, 1, 0]
FEW, GAP = [[1.0, 2.0], [3.0, 4.0], [1.0, 2.0, 3.0]], [[1.0, 2.0], None, [1.0, 2.0]]
VALUES = [
    ({"logits": FEW, "labels": Y}, "'logits'|2|3|row 2"),
    ({"logits": GAP, "labels": Y}, "'logits'|no value|row 1"),
    ({"logits": [[1.0, 2.0], [1.0, 2.0], [1.0, None]], "labels": Y}, "'logits'|no value|row 2"),
    ({"logits": [["1", "2"]] * 3, "labels": Y}, "'logits'|string"),
    ({"logits": [0.5] * 3, "labels": [0, 1, 2]}, "two classes|3"),
    ({"logits": [[1.0, 2.0]] * 3, "labels": [0, 1, None]}, "'labels'|no value|row 2"),
    ({"logits": [[1.0, 2.0]] * 3, "labels": ["a"] * 3}, "'a'|row 0|--class-names|class_names="),
    ({"confidence": [0.5], "correct": [[1]]}, "'correct'|list|row 0"),
    ({"confidence": pa.array([], pa.float64()), "correct": Y[:0]}, "confidence|N >= 1|[0]"),
]


@pytest.mark.parametrize(("columns", "told"), VALUES, ids=lambda value: value if isinstance(value, str) else "")
def test_values_that_do_not_belong_in_a_table(columns, told, tmp_path):
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    assert re.search(facts(*told.split("|")), refusal(tmp_path / "a.parquet"))


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


def tables(p):
    """The same logits in every layout that tables have."""
    flat, z = pa.array(p.logits.reshape(-1)), p.logits
    fixed = pa.FixedSizeListArray.from_arrays(flat, C)
    order = [2, 0, 1]
    return {
        "fixed": {"logits": fixed},
        "list": {"logits": pa.array(z.tolist(), pa.list_(pa.float64()))},
        "large": {"logits": fixed.cast(pa.large_list(pa.float64()))},
        "tensor": {"logits": pa.FixedShapeTensorArray.from_numpy_ndarray(z)},
        "numbered": {f"logits_{j}": z[:, j] for j in order},
        "padded": {f"logits_{j:03d}": z[:, j] for j in order},
        "dotted": {f"logits.{j}": z[:, j] for j in order},
        "named": {f"logits.{name}": z[:, j] for j, name in enumerate(("cat", "dog", "cow"))},
    }


@pytest.mark.parametrize("layout", ["fixed", "list", "large", "tensor", "numbered", "padded", "dotted", "named"])
@pytest.mark.parametrize("size", [2, 4, 1000])
def test_parquet_of_arrow_in_every_layout(layout, size, tmp_path):
    p = make("probabilities")
    p = Predictions.from_logits(p.probabilities, p.labels)
    columns = tables(p)[layout]
    table = pa.table(
        {
            "split": ["x"] * N,
            **columns,
            "label": p.labels.astype(np.int8),
            "id": pa.array([f"i{i % 4}" for i in range(N)]).dictionary_encode(),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=5)
    opened = Predictions.open(tmp_path / "a.parquet")
    assert len(opened) == N
    assert np.array_equal(np.concatenate([b.logits for b in opened.batches(size)]), p.logits)
    assert np.array_equal(opened.logits, p.logits)
    assert np.array_equal(opened.labels, p.labels)
    assert opened.ids.tolist() == [f"i{i % 4}" for i in range(N)]
    assert opened.class_names == {"named": ("cat", "dog", "cow"), "dotted": ("0", "1", "2")}.get(layout)
    assert opened.split is None


def test_parquet_of_arrow_tensors_as_images(tmp_path):
    p = make("images")
    for z in (p.logits, np.ascontiguousarray(p.logits.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)):
        columns = {"logits": z, "labels": np.array(p.labels)}
        table = {name: pa.FixedShapeTensorArray.from_numpy_ndarray(array) for name, array in columns.items()}
        pq.write_table(pa.table(table), tmp_path / f"{z.flags.c_contiguous}.parquet")
    opened = Predictions.open(tmp_path / "True.parquet", kind="segmentation")
    assert np.array_equal(opened.logits, p.logits)
    assert np.array_equal(opened.labels, p.labels)
    with pytest.raises(ValueError, match=facts("'logits'", "C order")):
        Predictions.open(tmp_path / "False.parquet", kind="segmentation")


@pytest.mark.parametrize("role", ["logits", "labels", "ids"])
@pytest.mark.parametrize("kind", ["fixed", "list", "one long list"])
def test_lists_that_become_far_larger_than_their_file_are_refused(kind, role, monkeypatch, tmp_path):
    """A million zeros in a kilobyte; billions would fit as well."""
    monkeypatch.setattr(files, "LEAST", 1 << 22)
    size = 1_000_000
    zeros = pa.array(np.zeros(size, np.float16))
    lists = pa.FixedSizeListArray.from_arrays(zeros, size)
    if kind != "fixed":
        lists = pa.ListArray.from_arrays(pa.array([0, *([2] if kind != "list" else []), size]), zeros)
    rows = len(lists)
    columns = {"logits_0": [0.5] * rows, "logits_1": [0.5] * rows, "labels": [0] * rows}
    columns = {"labels": columns["labels"]} if role == "logits" else columns
    pq.write_table(pa.table({**columns, role: lists}), tmp_path / "a.parquet")
    assert re.search(facts(f"'{role}'", "100 times"), refusal(tmp_path / "a.parquet"))


def test_a_sample_that_is_larger_than_its_file_can_hold_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(table_format, "LEAST_SAMPLE", 1 << 21)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(500_000)), 500_000)
    pq.write_table(pa.table({"logits": lists, "labels": [0]}), tmp_path / "a.parquet")
    assert "100 times" in refusal(tmp_path / "a.parquet")
