"""Inputs for the check of an export: numbers, of the size they say, and nothing that is run."""

import io
import os
import zipfile

import numpy as np
import pytest

from calibrant.export.input_file import read_inputs

X = np.arange(12.0).reshape(4, 3)


def npy(array, **more):
    file = io.BytesIO()
    np.save(file, array, **more)
    return file.getvalue()


def header(text, data=b"", version=1):
    """A ``.npy`` file with a header of one's own."""
    body = text.encode().ljust(118) + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + len(body).to_bytes(2 if version == 1 else 4, "little") + body + data


def archive(members, **more):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", **more) as made:
        for name, data in members.items():
            made.writestr(name, data)
    return file.getvalue()


def test_what_numpy_writes_is_read(tmp_path):
    for array in (X, X.T, X.astype(np.float16), X.astype(">f4"), np.arange(3), X > 2, np.array(3.0), X[:0]):
        np.save(tmp_path / "x.npy", array)
        np.testing.assert_array_equal(read_inputs(tmp_path / "x.npy"), array)
        for save in (np.savez, np.savez_compressed):
            save(tmp_path / "x.npz", a=array, b=X)
            found = read_inputs(tmp_path / "x.npz")
            assert sorted(found) == ["a", "b"]
            np.testing.assert_array_equal(found["a"], array)


BAD = {
    "empty": (b"", "not a .npy or .npz file"),
    "text": (b"1,2,3\n", "not a .npy or .npz file"),
    "objects": (npy(np.array([print, {}], dtype=object), allow_pickle=True), "must be numbers, got object"),
    "words": (npy(np.array(["a"])), "must be numbers, got <U1"),
    "records": (npy(np.zeros(2, dtype=[("a", "f4")])), "must be numbers"),
    "dates": (npy(np.zeros(2, dtype="M8[s]")), "must be numbers"),
    "cut": (npy(X)[:-1], r"must have 96 bytes of float64 \[4, 3\], got 95"),
    "more": (npy(X) + b"x", "got 97"),
    "claim": (header("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,)}"), "8,000,000,000,000 bytes"),
    "negative": (header("{'descr': '<f8', 'fortran_order': False, 'shape': (-1, -1)}", bytes(8)), "must have"),
    "code": (header("{'descr': __import__('os').system('x'), 'fortran_order': False, 'shape': ()}"), "header"),
    "deep": (header("{'descr': " + "[" * 90), "header"),
    "version": (header("{'descr': '<f8', 'fortran_order': False, 'shape': ()}", bytes(8), 9), "version"),
    "pickle": (b"\x80\x04cos\nsystem\n(S'touch x'\ntR.", "not a .npy or .npz file"),
    "empty archive": (archive({}), "there is no array in it"),
    "other member": (archive({"a.txt": b"hello"}), "a.txt is not an array"),
    "object member": (archive({"a.npy": npy(np.array([{}]), allow_pickle=True)}), "a must be numbers"),
    "same names": (archive({"a.npy": npy(X), "a": npy(X)}), "names that differ"),
    "bomb": (archive({"a.npy": bytes(2**22)}, compression=zipfile.ZIP_DEFLATED), "a is not an array"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_is_refused(tmp_path, name):
    data, words = BAD[name]
    path = tmp_path / "x.npy"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=words) as error:
        read_inputs(path)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_wrong_checksum_is_noticed(tmp_path, compression):
    data = bytearray(archive({"a.npy": npy(X)}, compression=compression))
    at = data.index(b"NUMPY") + 150 if compression == zipfile.ZIP_STORED else 60
    data[at] ^= 4
    (tmp_path / "x.npz").write_bytes(data)
    with pytest.raises(ValueError, match=r"CRC|decompressing|header|must have"):
        read_inputs(tmp_path / "x.npz")


def test_sizes_are_checked_before_memory_is_taken(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "x.npz", a=np.zeros(10**5), b=np.zeros(10**5))
    monkeypatch.setattr("calibrant.export.input_file.LARGEST", 10**6)
    with pytest.raises(ValueError, match="the arrays must have at most 1,000,000 bytes, got 1,600,"):
        read_inputs(tmp_path / "x.npz")
    np.save(tmp_path / "x.npy", np.zeros(10**6))
    with pytest.raises(ValueError, match="expected at most 1,000,000 bytes, got 8,000,"):
        read_inputs(tmp_path / "x.npy")
    os.mkfifo(tmp_path / "pipe.npy")
    with pytest.raises(ValueError, match="expected a file, got a named pipe"):
        read_inputs(tmp_path / "pipe.npy")
