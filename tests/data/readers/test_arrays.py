"""Data sets in one file of arrays, npz and Parquet; arrays that lie about their size, checksums or characters."""

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

from calibrant.data import files, layouts, read
from calibrant.data.files import UnreadableError
from calibrant.data.readers import _array_files
from calibrant.data.readers._folder import NO_PROBABILITIES
from calibrant.data.readers.arrays import arrays
from tests.helpers.data_trees import TREES
from tests.helpers.errors import facts
from tests.helpers.reader_data import skipped_in

X = np.array([[1.0, 2, 3], [4, 5, 6], [7, 8, 9], [10, 11, 12]])


@pytest.mark.parametrize("name", ["x", "X", "features", "embeddings", "images"])
@pytest.mark.parametrize("labels", ["y", "labels"])
def test_npz_by_its_usual_names(tmp_path, name, labels):
    path = tmp_path / "set.npz"
    np.savez_compressed(path, **{name: X, labels: np.array([2, 0, 2, 5])})
    data = read(path)
    assert (data.name, data.split, data.classes) == ("set", "all", ("0", "2", "5"))
    assert data.labels.tolist() == [1, 0, 1, 2]
    assert data.ids == ("set/0", "set/1", "set/2", "set/3")
    assert data.inputs.values.dtype == np.float32
    assert data[3].input.tolist() == [10, 11, 12]


def test_npz_with_everything(tmp_path):
    path = tmp_path / "set.npz"
    soft = np.array([[0.5, 0.5], [1, 0], [0, 1], [0.25, 0.75]])
    np.savez(
        path,
        x=X,
        y=np.array([0, 1, 1, 0]),
        ids=np.array(["a", "b", "c", "d"]),
        groups=np.array([3, 3, 4, 4]),
        soft=soft,
        classes=np.array(["no", "yes"]),
        split=np.array(["val", "train", "val", "train"]),
    )
    assert layouts()["arrays"].splits(path) == ("val", "train")
    data = read(path, "train")
    assert (data.ids, data.classes, data.groups) == (("b", "d"), ("no", "yes"), ("3", "4"))
    assert data.labels.tolist() == [1, 0]
    assert data.soft.tolist() == [[1, 0], [0.25, 0.75]]
    assert data.inputs.values.tolist() == [[4, 5, 6], [10, 11, 12]]
    with pytest.raises(ValueError, match=facts("all")):
        arrays(path, "all")


@pytest.mark.parametrize("shape", [(3, 5, 4), (3, 5, 4, 3)])
def test_uint8_images_are_images(tmp_path, shape):
    pixels = np.random.default_rng(2).integers(0, 256, shape, dtype=np.uint8)
    np.savez(tmp_path / "i.npz", images=pixels, labels=np.array(["b", "a", "b"]))
    data = read(tmp_path / "i.npz")
    assert (data.kind, data.classes, data.labels.tolist()) == ("image", ("a", "b"), [1, 0, 1])
    assert data[2].input.size == (4, 5)
    np.savez(tmp_path / "r.npz", images=pixels[..., :2], labels=np.arange(3))
    assert read(tmp_path / "r.npz").kind == ("image" if len(shape) == 3 else "array")


def test_rows_that_cannot_be_used(tmp_path):
    path = tmp_path / "set.npz"
    x = np.concatenate([X, X])
    x[1, 2], x[2, 0], x[7, 1] = np.nan, np.inf, 1e300  # the last is infinite in float32
    soft = np.tile([0.4, 0.6], (8, 1))
    soft[4] = [0.9, 0.6]
    np.savez(path, x=x, y=np.array([0, 1, 1, 2, 1, 0, 0, 1]), soft=soft, ids=np.array(list("abcdefaa")))
    with pytest.raises(ValueError, match=facts("set.npz", "[1]")):
        arrays(path, "all")
    data = arrays(path, "all", on_error="skip")
    assert data.ids == ("a", "f")
    assert skipped_in(data) == {
        "features that are not finite": (3, ("set.npz[1]", "set.npz[2]", "set.npz[7]")),
        "no label, or one outside the classes": (1, ("set.npz[3]",)),
        NO_PROBABILITIES: (1, ("set.npz[4]",)),
        "id that occurs twice": (1, ("set.npz[6] (a)",)),
    }


@pytest.mark.parametrize(
    ("held", "message"),
    [
        ({"x": X, "z": np.arange(4)}, facts("label", "x, z")),
        ({"x": X, "y": np.arange(3)}, facts("'y'", "[3]", "4")),
        ({"x": X, "y": X}, facts("[N]", "[4, 3]")),
        ({"x": X, "y": np.array([0.5, 1, 2, 3])}, facts("0.5")),
        ({"x": X, "y": np.arange(4) + 0j}, facts("complex128")),
        ({"x": X + 0j, "y": np.arange(4)}, facts("'x'")),
        ({"x": np.array(1.0), "y": np.arange(4)}, facts("'x'")),
        ({"x": X, "y": np.arange(4), "soft": np.arange(4)}, facts("soft")),
        ({"x": X, "y": np.arange(4), "ids": np.array("a")}, facts("ids", "4")),
        ({"x": X, "y": np.arange(4), "split": np.array("all")}, facts("split", "4")),
        ({"x": X, "y": np.array(3)}, facts("'y'", "4")),
        ({"x": X, "y": np.arange(4), "soft": np.eye(3)}, facts("soft", "[3, 3]", "4")),
    ],
)
def test_archives_with_the_wrong_contents(tmp_path, held, message):
    np.savez(tmp_path / "x.npz", **held)
    with pytest.raises(ValueError, match=message) as caught:
        arrays(tmp_path / "x.npz", "all")
    assert "x.npz" in str(caught.value)


def test_an_archive_of_other_things_is_not_this_layout(tmp_path):
    np.savez(tmp_path / "p.npz", logits=X, labels=np.arange(4))
    (tmp_path / "t.txt").write_text("x")
    for name in ("p.npz", "t.txt", "none.npz", "."):
        assert layouts()["arrays"].splits(tmp_path / name) == ()


def test_parquet_with_columns(tmp_path):
    path = tmp_path / "table.parquet"
    table = {
        "width": [1.5, 2.5, None, 4.5, 5.5],
        "height": [1, 2, 3, 4, 5],
        "label": ["dog", "ant", "dog", None, "cat"],
        "split": ["train", "train", "train", "train", "test"],
        "note": ["-"] * 5,
    }
    pq.write_table(pa.table(table), path)
    data = read(path, "train", on_error="skip")
    assert data.classes == ("ant", "cat", "dog")
    assert data.ids == ("table/0", "table/1")
    assert data.labels.tolist() == [2, 0]
    assert data.inputs.values.tolist() == [[1.5, 1], [2.5, 2]]
    assert skipped_in(data) == {
        "features that are not finite": (1, ("table.parquet[2]",)),
        "no label, or one outside the classes": (1, ("table.parquet[3]",)),
    }
    assert read(path, "test").labels.tolist() == [1]
    by_height = arrays(path, "test", label="height", features=["width"])
    assert (by_height.classes, by_height.inputs.values.tolist()) == (("1", "2", "3", "4", "5"), [[5.5]])
    with pytest.raises(ValueError, match=facts("depth", "width")):
        arrays(path, "test", features="depth")
    with pytest.raises(ValueError, match=facts("note")):
        arrays(path, "test", features="note")


@pytest.mark.parametrize("kind", [pa.list_(pa.float32(), 2), pa.list_(pa.float32()), pa.large_list(pa.float64())])
def test_parquet_with_a_column_of_lists(tmp_path, kind):
    path = tmp_path / "e.parquet"
    column = pa.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], kind)
    pq.write_table(pa.table({"embedding": column, "label": [7, 3, 7]}), path, row_group_size=2)
    data = read(path)
    assert data.inputs.values.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert (data.classes, data.labels.tolist()) == (("3", "7"), [1, 0, 1])


def test_parquet_with_categories_and_without_rows(tmp_path):
    path = tmp_path / "c.parquet"
    labels = pa.array(["b", None, "a", "b"]).dictionary_encode()
    table = pa.table({"f": [1.0, 2.0, 3.0, 4.0], "label": labels})
    pq.write_table(table, path, row_group_size=3)
    data = arrays(path, "all", on_error="skip")
    assert (data.classes, data.labels.tolist(), data.ids) == (("a", "b"), [1, 0, 1], ("c/0", "c/2", "c/3"))
    pq.write_table(table.slice(0, 0), path)
    with pytest.raises(ValueError, match=facts("c.parquet", "all")):
        arrays(path, "all")


def test_parquet_that_is_broken(tmp_path):
    path = tmp_path / "e.parquet"
    pq.write_table(pa.table({"e": [[1.0], [2.0, 3.0]], "label": [0, 1]}), path)
    with pytest.raises(ValueError, match=facts("e.parquet", "'e'")):
        read(path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match=facts("e.parquet")):
        arrays(path, "all")


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


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("ids", npy("'<U0'", "(1000000000000,)"), facts("ids")),
        ("split", npy("'|S0'", "(1000000000000,)"), facts("split")),
        ("classes", npy("'|V0'", "(1000000000000,)"), facts("classes")),
        ("x", npy("'<f4'", "(1000000000000, 0)"), facts("'x'")),
        ("x", npy("'<f4'", "(-2, -3)", bytes(24)), facts("shape")),
        ("x", npy("'<f4'", "(1000000000000, 1000000)", bytes(24)), facts("'x'", "4000000000000000000")),
        ("y", npy("'<i8'", f"({'9' * 4000},)"), facts("shape")),
        ("y", npy("'<i8'", f"({'9' * 5000},)"), facts("a.npz")),
        ("y", npy("'<i8'", "(" * 3000 + ")" * 3000), facts("a.npz")),
        ("y", npy("'<i8'", "(2,)", bytes(32)), facts("'y'")),
        ("ids", npy("'<U1'", "(2,)", b"\xff\xff\xff\x7f" * 2), facts("ids")),
        ("ids", npy("'>U1'", "(2,)", b"\x00\x11\x00\x00" * 2), facts("ids")),
        ("classes", npy("'<U2'", "(2,)", b"\0\0\x11\0" * 4), facts("classes")),
        ("ids", npy("'|O'", "(2,)", pickle.dumps([1, 2])), facts("ids", "|O")),
        ("ids", npy("[('a', '<U1'), ('b', '<i4')]", "(2,)", b"\xff" * 16), facts("ids")),
        ("y", npy("'<c8'", "(2,)", bytes(16)), facts("complex64")),
        ("y", npy("'<i8'", "()", bytes(8)), facts("'y'")),
    ],
)
def test_arrays_that_lie(tmp_path, name, data, message):
    for compression in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
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
    with pytest.raises(ValueError, match=facts("a.npz")):
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
    for at in np.random.default_rng(0).integers(0, 8 * len(original), 40).tolist():
        damaged = bytearray(original)
        damaged[at // 8] ^= 1 << at % 8
        path.write_bytes(damaged)
        try:
            assert contents() == sound
        except ValueError:
            refused += 1
    assert refused > 10


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
    assert read(archive(tmp_path / "s.npz", *((f"{k}.npy", v) for k, v in SOUND.items()))).labels.tolist() == [0, 1]
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros((50_000, 10), np.float32), y=np.arange(50_000) % 2)
    assert len(read(tmp_path / "a.npz")) == 50_000
    labels = struct.pack(">2I", 0x801, 60_000) + bytes(60_000)
    (tmp_path / "m").mkdir()
    (tmp_path / "m/train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))
    images = struct.pack(">4I", 0x803, 60_000, 28, 28) + bytes(60_000 * 784)
    (tmp_path / "m/train-images-idx3-ubyte.gz").write_bytes(gzip.compress(images, 1))
    assert len(read(tmp_path / "m", "train")) == 60_000


@pytest.mark.slow
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
