"""Arrays in files: headers and shapes, rows against NumPy's own reading, and what is written, loaded by NumPy."""

import io
import json
import struct
import zipfile
import zlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibrant import Predictions
from calibrant.predictions.files import open_first
from calibrant.predictions.formats.arrays import StoredArray, as_bytes, column_blocks, parse_header, write_column
from tests.helpers.predictions import Q, archive, npy, refusal_of, refused


def test_one_hot_labels_in_files(tmp_path):
    np.savez(tmp_path / "a.npz", logits=Q, labels=np.eye(3, dtype=int)[[0, 1, 2, 0]])
    assert refusal_of(Predictions.open, tmp_path / "a.npz").endswith("got [4, 3] (use .argmax(1))")


def test_headers_that_promise_what_is_not_there(tmp_path):
    huge = 10**12
    for number, (descr, shape) in enumerate(
        [("<f8", (huge, 3)), ("<f4", (3, huge)), ("<f8", (2**62, 4)), ("<f8", (3, 4))]
    ):
        claim = npy(descr, shape, bytes(72))
        for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            archive(tmp_path / "a.npz", claim, method)
            refused(tmp_path / "a.npz", "header claims .* bytes, but the file holds 72$")
        (tmp_path / f"{number}_logits.npy").write_bytes(claim)
        np.save(tmp_path / f"{number}_labels.npy", np.zeros(3, int))
        refused(tmp_path / f"{number}_logits.npy", "header claims .* bytes, but the file holds 72$")
    for descr, shape, message in (
        ("|O", (3, 3), r"nothing is unpickled, got '\|O'"),
        ([("a", "<f8")], (3, 3), "nothing is unpickled"),
        ("<U0", (huge,), "nothing is unpickled"),
        ("<f8", (-3, -3), "has no shape"),
        ("<f8", "3", "has no shape"),
    ):
        archive(tmp_path / "a.npz", npy(descr, shape, bytes(72)))
        refused(tmp_path / "a.npz", message)
    archive(tmp_path / "a.npz", b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 65535)
    refused(tmp_path / "a.npz", "at most 10000 bytes")
    np.savez(tmp_path / "a.npz", logits=np.array([{"a": 1}], dtype=object), labels=np.zeros(1, dtype=int))
    refused(tmp_path / "a.npz", "nothing is unpickled")
    header = json.dumps({"logits": {"dtype": "F32", "shape": [huge, 3], "data_offsets": [0, 12 * huge]}}).encode()
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(36))
    refused(tmp_path / "a.safetensors", "not a whole safetensors file")
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", 2**62) + b"{}")
    refused(tmp_path / "a.safetensors", "not a whole safetensors file")
    table = pa.table({"logits": [[1.0] * 6], "labels": [[0] * 2]})
    pq.write_table(
        table.replace_schema_metadata({"calibrant": json.dumps({"kind": "segmentation", "shape": [huge, huge, 2]})}),
        tmp_path / "a.parquet",
    )
    refused(
        tmp_path / "a.parquet",
        "column 'logits' must be lists of 2000000000000000000000000 numbers, got 6 in row 0 .counted from 0.$",
    )


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("deflated", [False, True], ids=["plain", "deflated"])
def test_rows_are_numpys(order, deflated, tmp_path):
    array = np.asarray(np.random.default_rng(0).standard_normal((7, 3)), order=order)
    buffer = io.BytesIO()
    np.save(buffer, array)
    whole = buffer.getvalue()
    engine = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    body = engine.compress(whole) + engine.flush() if deflated else whole
    path = tmp_path / "array"
    path.write_bytes(b"before" + body)
    header = parse_header(io.BytesIO(whole), len(whole))
    with open_first(path) as (file, _):
        pass
    size, crc = (len(body) if deflated else None), zlib.crc32(whole)
    stored = StoredArray(file, 6, header.size, header.dtype, header.shape, order == "F", crc, size)
    np.testing.assert_array_equal(np.concatenate(list(stored.blocks(2))), np.load(io.BytesIO(whole)))
    assert [len(block) for block in stored.blocks(3)] == [3, 3, 1]
    other = StoredArray(file, 6, header.size, header.dtype, header.shape, order == "F", crc ^ 1, size)
    with pytest.raises(ValueError, match="damaged"):
        list(other.blocks(2))


def test_a_header_that_claims_more_than_there_is_is_refused():
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(4))
    with pytest.raises(ValueError, match="the header claims float64"):
        parse_header(io.BytesIO(buffer.getvalue()), len(buffer.getvalue()) - 8)


def test_bytes_are_those_of_rows():
    assert bytes(as_bytes(np.array([[1, 2], [3, 4]], np.uint8, order="F"))) == b"\x01\x02\x03\x04"


LOGITS = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)


def test_numpy_loads_columns():
    given = Predictions.from_logits(LOGITS, [0, 1, 2, 0, 1], ids=["a", "bb", "c", "d", "e"])
    for write, expected in (
        (lambda file: write_column(file, given._store, "logits"), LOGITS),
        (lambda file: write_column(file, given._store, "ids"), given.ids),
    ):
        file = io.BytesIO()
        write(file)
        loaded = np.load(io.BytesIO(file.getvalue()))
        assert loaded.dtype == expected.dtype
        np.testing.assert_array_equal(loaded, expected)


def test_tokens_are_written_as_they_came():
    """[B, T, V], though they are held as [B, V, T]."""
    logits = np.arange(24.0).reshape(2, 3, 4)
    given = Predictions.from_logits(logits, np.zeros((2, 3), int), kind="tokens")
    dtype, blocks = column_blocks(given._store, "logits")
    assert dtype == np.float64
    np.testing.assert_array_equal(np.concatenate(list(blocks)), logits)
