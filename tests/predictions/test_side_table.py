"""Columns of text beside predictions: nothing is guessed from what values look like, and files are bounded."""

import gzip
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibrant.predictions.side_table import read_text_columns

IDS = ["00012", "2024-01-05T10:00:00", "0x0001", "+1", "1.50", "12345678901234567890", "Zoë", "NA", "true", " 7"]
COLUMNS = (("id", "ids"), ("label",))


def read(path):
    parts = list(read_text_columns(path, COLUMNS))
    return [[value for part in parts for value in part[k]] for k in (0, 1)]


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".csv.gz", ".jsonl", ".parquet"])
def test_ids_are_the_text_that_stands_there(tmp_path, suffix):
    path = tmp_path / f"labels{suffix}"
    mark = "\t" if suffix == ".tsv" else ","
    text = "".join(f"{mark.join(row)}\n" for row in [("id", "label"), *((name, "cat") for name in IDS)])
    if suffix == ".parquet":
        pq.write_table(pa.table({"id": IDS, "label": ["cat"] * len(IDS)}), path)
    elif suffix == ".jsonl":
        path.write_text("".join(json.dumps({"id": name, "label": "cat"}) + "\n" for name in IDS))
    elif suffix == ".csv.gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    assert read(path) == [IDS, ["cat"] * len(IDS)]


def test_numbers_and_gaps(tmp_path):
    table = pa.table({"ids": pa.array([2**63 + 5, 7], pa.uint64()), "label": [1.0, np.nan]})
    pq.write_table(table, tmp_path / "labels.parquet")
    assert read(tmp_path / "labels.parquet") == [["9223372036854775813", "7"], ["1", None]]


@pytest.mark.parametrize("ids", [[1.5, 2.0], [True, False], pa.array([0, 1], pa.timestamp("s"))])
def test_ids_of_other_types_are_refused(tmp_path, ids):
    pq.write_table(pa.table({"id": ids, "label": ["a", "b"]}), tmp_path / "labels.parquet")
    with pytest.raises(ValueError, match=r"labels\.parquet: column 'id' must be text or whole numbers"):
        read(tmp_path / "labels.parquet")


@pytest.mark.slow
def test_what_expands_too_far_is_refused(tmp_path):
    """A file of some kilobytes that holds a hundred million rows, and one with a long text on every row."""
    path = tmp_path / "labels.parquet"
    rows = pa.table({"id": pa.array(["x"] * 10**6).dictionary_encode(), "label": pa.array([1] * 10**6, pa.int8())})
    with pq.ParquetWriter(path, rows.schema) as writer:
        for _ in range(40):
            writer.write_table(rows)
    with pytest.raises(ValueError, match="times as large"):
        read(path)
    pq.write_table(pa.table({"id": ["y" * 10**6] * 5000, "label": ["a"] * 5000}), path)
    ids, _ = read(path)
    assert len(ids) == 5000
    assert len({id(name) for name in ids}) < 10  # one text, and not five gigabytes of them


def test_text_that_is_not_utf8_is_refused(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_bytes("id,label\nZoë,cat\n".encode("latin-1"))
    with pytest.raises(ValueError, match="UTF-8"):
        read(path)
