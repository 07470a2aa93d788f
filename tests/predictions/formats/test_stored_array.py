"""Arrays in files against NumPy's own reading, stored and deflated, in rows and in columns."""

import io
import zlib

import numpy as np
import pytest

from calibrant.predictions.files import open_first
from calibrant.predictions.formats.stored_array import StoredArray, as_bytes, parse_header


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
