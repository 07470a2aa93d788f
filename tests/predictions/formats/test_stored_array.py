"""Arrays in files against NumPy's own reading, stored and deflated; and what is written, loaded by NumPy."""

import io
import zlib

import numpy as np
import pytest

from calibrant import Predictions
from calibrant.predictions.files import open_first
from calibrant.predictions.formats.stored_array import (
    StoredArray,
    as_bytes,
    column_blocks,
    parse_header,
    write_array,
    write_column,
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


def test_numpy_loads_arrays_and_columns():
    given = Predictions.from_logits(LOGITS, [0, 1, 2, 0, 1], ids=["a", "bb", "c", "d", "e"])
    for write, expected in (
        (lambda file: write_array(file, LOGITS.T), LOGITS.T),
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
