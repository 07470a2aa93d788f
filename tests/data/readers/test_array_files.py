"""Arrays in files that lie about their size, their checksums or their characters are refused before they cost much."""

import gzip
import io
import os
import pickle
import struct
import warnings
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibrant.data import files, read
from calibrant.data.files import UnreadableError
from calibrant.data.readers import _array_files
from tests.helpers.data_trees import TREES
from tests.helpers.errors import facts


def npy(descr, shape, data=b""):
    """An array whose header says whatever it likes."""
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header + data


SOUND = {"x": npy("'<f4'", "(2, 3)", bytes(24)), "y": npy("'<i8'", "(2,)", struct.pack("<2q", 0, 1))}


def archive(path, *members, compression=zipfile.ZIP_STORED):
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w", compression) as made:
        warnings.simplefilter("ignore")  # of names that are there twice
        for name, data in members:
            made.writestr(name, data)
    return path


def with_member(path, name, data, **options):
    members = {f"{key}.npy": value for key, value in SOUND.items()} | {f"{name}.npy": data}
    return archive(path / "a.npz", *members.items(), **options)


def test_the_archive_that_is_damaged_below_is_sound(tmp_path):
    assert read(archive(tmp_path / "a.npz", *((f"{k}.npy", v) for k, v in SOUND.items()))).labels.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("ids", npy("'<U0'", "(1000000000000,)"), facts("ids")),
        ("split", npy("'|S0'", "(1000000000000,)"), facts("split")),
        ("classes", npy("'|V0'", "(1000000000000,)"), facts("classes")),
        ("x", npy("'<f4'", "(1000000000000, 0)"), "it has no entries"),
        ("x", npy("'<f4'", "(-2, -3)", bytes(24)), "no shape of whole numbers"),
        ("x", npy("'<f4'", "(1000000000000, 1000000)", bytes(24)), facts("'x'", "4000000000000000000")),
        ("y", npy("'<i8'", f"({'9' * 4000},)"), "no shape of whole numbers"),
        ("y", npy("'<i8'", f"({'9' * 5000},)"), "cannot be read"),
        ("y", npy("'<i8'", "(" * 3000 + ")" * 3000), "cannot be read"),
        ("y", npy("'<i8'", "(2,)", bytes(32)), facts("'y'")),
        ("ids", npy("'<U1'", "(2,)", b"\xff\xff\xff\x7f" * 2), facts("ids")),
        ("ids", npy("'>U1'", "(2,)", b"\x00\x11\x00\x00" * 2), facts("ids")),
        ("classes", npy("'<U2'", "(2,)", b"\0\0\x11\0" * 4), facts("classes")),
        ("ids", npy("'|O'", "(2,)", pickle.dumps([1, 2])), facts("ids", "|O")),
        ("ids", npy("[('a', '<U1'), ('b', '<i4')]", "(2,)", b"\xff" * 16), facts("ids")),
        ("y", npy("'<c8'", "(2,)", bytes(16)), "labels are integers or strings"),
        ("y", npy("'<i8'", "()", bytes(8)), facts("'y'")),
    ],
)
@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_arrays_that_lie(tmp_path, name, data, message, compression):
    with pytest.raises(ValueError, match=message) as error:
        read(with_member(tmp_path, name, data, compression=compression))
    assert "a.npz" in str(error.value)
    assert len(str(error.value)) < 700


def test_characters_at_the_edge_are_read(tmp_path):
    data = with_member(tmp_path, "ids", npy("'<U1'", "(2,)", struct.pack("<2I", 0x10FFFF, 0xD800)))
    assert read(data).ids == ("\U0010ffff", "\ud800")


def test_members_that_are_there_twice(tmp_path):
    members = [(f"{key}.npy", value) for key, value in SOUND.items()]
    with pytest.raises(ValueError, match=facts("x.npy")):
        read(archive(tmp_path / "a.npz", *members, members[0]))


def test_too_many_members(tmp_path):
    members = [(f"m{i}.npy", b"") for i in range(5000)]
    with pytest.raises(ValueError, match="more members than a data set has arrays"):
        read(archive(tmp_path / "a.npz", *members, compression=zipfile.ZIP_STORED))


@pytest.mark.parametrize("case", ["arrays", "compressed arrays", "table", "calibrant"])
def test_no_flipped_bit_is_read_in_silence(tmp_path, case):
    make, layout, split, _ = TREES[case]
    root = make(tmp_path / "set")
    path = root if root.is_file() else root / "all.parquet"

    def contents():
        data = read(root, split, layout=layout)
        inputs = [np.asarray(sample.input).tolist() for sample in data]
        return data.ids, data.labels.tolist(), data.classes, data.groups, inputs

    original, sound = path.read_bytes(), contents()
    refused = 0
    for at in np.random.default_rng(0).integers(0, 8 * len(original), 80).tolist():
        damaged = bytearray(original)
        damaged[at // 8] ^= 1 << at % 8
        path.write_bytes(damaged)
        try:
            assert contents() == sound
        except ValueError:
            refused += 1
    assert refused > 20


def test_a_file_is_opened_once(tmp_path, monkeypatch):
    """Somebody replaces the file while it is read: all arrays are the old one's."""
    path = tmp_path / "a.npz"
    np.savez(path, x=np.zeros((3, 2), np.float32), y=np.array(["a", "b", "a"]))
    other = io.BytesIO()
    np.savez(other, x=np.ones((3, 2), np.float32), y=np.array(["c", "d", "c"]))
    header = _array_files.read_header

    def replacing(member):
        (tmp_path / "new").write_bytes(other.getvalue())
        os.replace(tmp_path / "new", path)
        return header(member)

    monkeypatch.setattr(_array_files, "read_header", replacing)
    from calibrant.data.readers.arrays import arrays

    data = arrays(path, "all")
    assert (data.classes, data.inputs.values.max()) == (("a", "b"), 0.0)
    assert arrays(path, "all").classes == ("c", "d")


# Bombs


@pytest.fixture
def little(monkeypatch):
    monkeypatch.setattr(files, "MAX_UNPACKED", 2**20)


@pytest.mark.usefixtures("little")
def test_archives_that_unpack_to_far_more(tmp_path):
    bomb = npy("'<f4'", "(1000000, 1)", bytes(4_000_000))
    with pytest.raises(ValueError, match=facts("'x'", "4,000,000")):
        read(with_member(tmp_path, "x", bomb, compression=zipfile.ZIP_DEFLATED))
    with pytest.raises(ValueError, match=facts("'y'")):
        read(with_member(tmp_path, "x", bomb))  # it is as large as it says


@pytest.mark.usefixtures("little")
def test_idx_files_that_unpack_to_far_more(tmp_path):
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, 3) + bytes(3))
    bomb = struct.pack(">4I", 0x803, 3, 1000, 1000) + bytes(3_000_000)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(bomb))
    with pytest.raises(ValueError, match=facts("3,000,000")):
        read(tmp_path, "train")
    (tmp_path / "train-images-idx3-ubyte.gz").unlink()
    (tmp_path / "train-images-idx3-ubyte").write_bytes(bomb)
    assert len(read(tmp_path, "train")) == 3


@pytest.mark.usefixtures("little")
@pytest.mark.parametrize("kind", ["lists", "numbers"])
def test_columns_that_unpack_to_far_more(tmp_path, kind):
    path, number = tmp_path / "a.parquet", 400_000
    values = pa.nulls(number, pa.float32())
    if kind == "lists":
        values = pa.ListArray.from_arrays(pa.array([0, number // 2, number], pa.int32()), values)
    pq.write_table(pa.table({"x": values, "label": np.arange(len(values)) % 2}), path)
    with pytest.raises(ValueError, match=facts("'x'", "3,200,000")):
        read(path)


@pytest.mark.usefixtures("little")
def test_tables_of_calibrant_that_unpack_to_far_more(tmp_path):
    root = TREES["calibrant"][0](tmp_path / "set")
    rows = 200_000
    columns = {"id": ["a"] * rows, "file": ["b"] * rows, "label": [0] * rows}
    pq.write_table(pa.table(columns), root / "all.parquet")
    with pytest.raises(ValueError, match=facts("all.parquet", "38,400,000")):
        read(root, "all")


def test_honest_compression_is_read(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros((50_000, 10), np.float32), y=np.arange(50_000) % 2)
    assert len(read(tmp_path / "a.npz")) == 50_000
    labels = struct.pack(">2I", 0x801, 60_000) + bytes(60_000)
    (tmp_path / "m").mkdir()
    (tmp_path / "m/train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))
    images = struct.pack(">4I", 0x803, 60_000, 28, 28) + bytes(60_000 * 784)
    (tmp_path / "m/train-images-idx3-ubyte.gz").write_bytes(gzip.compress(images, 1))
    assert len(read(tmp_path / "m", "train")) == 60_000


def test_more_columns_or_splits_than_anybody_has(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({f"c{i}": [1.0] for i in range(10_001)}), path)
    with pytest.raises(ValueError, match=facts("10001", "10000")):
        read(path)
    np.savez(tmp_path / "a.npz", x=np.zeros((1500, 1)), y=np.arange(1500) % 2, split=np.arange(1500))
    with pytest.raises(ValueError, match=facts("split", "1500", "1000")):
        read(tmp_path / "a.npz")


def test_a_broken_file_is_not_called_an_unknown_layout(tmp_path):
    (tmp_path / "a.npz").write_bytes(b"PK\x03\x04 and no more")
    for layout in (None, "arrays"):
        with pytest.raises(UnreadableError, match=facts("a.npz")):
            read(tmp_path / "a.npz", layout=layout)
