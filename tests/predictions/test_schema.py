"""Text in arrays and files that could not be kept, or would fill memory."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibrant import Predictions, _arrays
from tests.helpers.predictions import refusal


@pytest.mark.parametrize("point", [0x110000, 0xD800, 0xDFFF, 0xFFFFFFFF])
@pytest.mark.parametrize("role", ["ids", "labels", "class_names", "kind", "split", "group.g", "predicted"])
def test_characters_that_do_not_exist(role, point, tmp_path):
    odd = np.array([point, 65, 66], np.uint32).view("<U1")
    arrays = {"logits": np.eye(3), "labels": np.arange(3)}
    if role == "predicted":
        arrays = {"confidence": np.full(3, 0.5), "labels": odd}
    if role == "labels":
        arrays["class_names"] = np.array(["A", "B", "C"])
    arrays[role] = odd[:1] if role in ("kind", "split") else odd
    np.savez(tmp_path / "a.npz", **arrays)
    assert "character that does not exist" in refusal(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", **arrays | {role: arrays[role].byteswap().view(">U1")})
    assert "character that does not exist" in refusal(tmp_path / "b.npz")


def test_text_that_formats_could_not_keep_is_refused_in_memory_as_well():
    for bad in ("\ud800", "a\0"):
        with pytest.raises(ValueError, match="class_names must be text"):
            Predictions.from_logits(np.eye(2), [0, 1], class_names=[bad, "b"])
    with pytest.raises(ValueError, match="ids must be text, got a character that does not exist, 0xd800"):
        Predictions.from_logits(np.eye(2), [0, 1], ids=["\ud800", "b"])
    with pytest.raises(ValueError, match=r"class_names must have at most 1000 characters, got 1001: 'x{57}"):
        Predictions.from_logits(np.eye(2), [0, 1], class_names=["x" * 1001, "b"])


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_one_long_text_does_not_blow_up_all_others(suffix, monkeypatch, tmp_path):
    """Each value takes as much memory as the longest: a megabyte of file would be gigabytes."""
    path, rows = tmp_path / f"a{suffix}", 200_000
    ids = ["a"] * (rows - 1) + ["b" * 20_000]
    if suffix == ".csv":
        path.write_text("confidence,correct,ids\n" + "".join(f"0.5,1,{name}\n" for name in ids))
    else:
        pq.write_table(pa.table({"confidence": np.full(rows, 0.5), "correct": np.ones(rows, bool), "ids": ids}), path)
    assert "must be short text, got a value of 20,000 characters" in refusal(path)
    assert Predictions.open(path).confidence.sum() == rows / 2
    ids = ["a"] * 1000 + ["b" * 100]
    columns = {"confidence": np.full(1001, 0.5), "correct": np.ones(1001, bool), "ids": ids}
    pq.write_table(pa.table(columns), tmp_path / "b.parquet")
    pq.write_table(pa.table(columns).slice(1000), tmp_path / "c.parquet")
    monkeypatch.setattr(_arrays, "TEXT_BYTES", 400 * 1001)
    parts = Predictions.open([tmp_path / "b.parquet", tmp_path / "c.parquet"])
    assert sum(len(batch) for batch in parts.batches(500)) == 1002
    with pytest.raises(ValueError, match=r"b\.parquet: ids must be short text"):
        parts.load()
