"""Arrays of the ``.npy`` format: what NumPy writes is read, and headers are never evaluated."""

import io

import numpy as np
import pytest

from calibrant._npy import CHUNK, LONGEST_HEADER, MAGIC, read_header, read_values


def npy(array, version=None):
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version)
    return file.getvalue()


def with_header(text, version=1):
    body = text.encode("latin-1")
    return MAGIC + bytes([version, 0]) + len(body).to_bytes(2 if version == 1 else 4, "little") + body


def header_of(descr="'<f4'", order="False", shape="(2, 3)"):
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"


ARRAYS = {
    "float64": np.arange(12.0).reshape(4, 3),
    "columns": np.arange(12.0).reshape(4, 3).T,
    "three axes by column": np.asfortranarray(np.arange(24).reshape(2, 3, 4)),
    "float16": np.arange(6, dtype=np.float16),
    "other byte order": np.arange(6, dtype=">i4"),
    "bool": np.array([True, False]),
    "complex": np.array([1 + 2j]),
    "text": np.array(["a", "bc", "\u00e9"]),
    "bytes": np.array([b"a", b"bc"]),
    "dates": np.array(["2020-01-01", "2021-02-03"], dtype="M8[D]"),
    "single number": np.array(3.5),
    "no rows": np.empty((0, 3), np.float32),
    "several reads": np.arange(CHUNK, dtype=np.int64),
}


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.parametrize("name", ARRAYS)
def test_what_numpy_writes_is_read(name, version):
    array = ARRAYS[name]
    data = npy(array, version)
    file = io.BytesIO(data)
    header = read_header(file)
    assert (header.dtype, header.shape, header.kind) == (array.dtype, array.shape, array.dtype.kind)
    assert header.size == file.tell() == len(data) - header.data_size
    values = read_values(file, header)
    theirs = np.load(io.BytesIO(data))
    np.testing.assert_array_equal(values, theirs, strict=True)
    assert values.dtype == theirs.dtype
    assert values.flags.writeable
    assert values.flags.f_contiguous == theirs.flags.f_contiguous


def test_lengths_of_python_2_are_read():
    assert read_header(io.BytesIO(with_header(header_of(shape="(3L, 4L)")))).shape == (3, 4)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "^not a .npy array$"),
        (MAGIC, "^not a .npy array$"),
        (b"PK\3\4" + bytes(20), "^not a .npy array$"),
        (with_header(header_of(), 9), r"got version 9\.0$"),
        (with_header(header_of())[:-5], "cut off"),
        (MAGIC + b"\1\0", "damaged"),
        (with_header(header_of() + " " * LONGEST_HEADER), "at most 10000 bytes, got 1"),
        (with_header(header_of(), 2)[:8] + b"\xff" * 4, "at most 10000 bytes, got 4294967295"),
        (with_header(header_of()[:-1]), "damaged"),
        (with_header(header_of(order="1")), "damaged"),
        (with_header("{'descr': " + "[" * 3000), "damaged"),
        (with_header(header_of(shape="(-2, -3)")), "no shape of whole numbers"),
        (with_header(header_of(shape="(2.0, 3)")), "no shape of whole numbers"),
        (with_header(header_of(shape=f"({'9' * 5000},)")), "no shape of whole numbers"),
        (with_header(header_of(shape="(" * 3000 + ")" * 3000)), "no shape of whole numbers"),
    ],
)
def test_headers_that_are_refused(data, message):
    with pytest.raises(ValueError, match=message):
        read_header(io.BytesIO(data))


@pytest.mark.parametrize(
    "descr",
    ["'|O'", "'<U0'", "'|V8'", "'<f4,<f4'", "[('a', '<f4')]", "__import__('os').abort()", "'M8[" + "9" * 99 + "s]'"],
)
def test_types_that_are_never_made(descr):
    header = read_header(io.BytesIO(with_header(header_of(descr))))
    assert header.kind == "V"
    with pytest.raises(ValueError, match="nothing is unpickled, got") as error:
        read_values(io.BytesIO(bytes(100)), header)
    assert len(str(error.value)) < 200


def test_a_type_that_numpy_has_not():
    header = read_header(io.BytesIO(with_header(header_of("'<f5'"))))
    with pytest.raises(ValueError, match="names a type that NumPy does not have, '<f5'"):
        _ = header.dtype


def test_a_shape_that_is_there_twice_is_read_as_it_was_checked():
    text = header_of(shape="(1,)")[:-1] + "'shape': (1000000000000,)}"
    file = io.BytesIO(with_header(text) + bytes(4))
    header = read_header(file)
    assert read_values(file, header).shape == header.shape == (1,)


def test_a_file_that_ends_early():
    file = io.BytesIO(npy(np.arange(5.0))[:-1])
    header = read_header(file)
    with pytest.raises(ValueError, match="ends before its array does"):
        read_values(file, header)
