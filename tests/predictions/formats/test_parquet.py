"""Parquet: every layout, and lists that become too large."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibrant import Predictions
from calibrant.predictions import files
from calibrant.predictions.formats import parquet
from tests.helpers.predictions import C, N, make, refusal


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
    with pytest.raises(ValueError, match="column 'logits' must be tensors in C order"):
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
    assert f"column '{role}' must become at most 100 times as large as its" in refusal(tmp_path / "a.parquet")


def test_a_sample_that_is_larger_than_its_file_can_hold_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(parquet, "LEAST_SAMPLE", 1 << 21)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(500_000)), 500_000)
    pq.write_table(pa.table({"logits": lists, "labels": [0]}), tmp_path / "a.parquet")
    assert "a sample must be at most 100 times as large as the file" in refusal(tmp_path / "a.parquet")
