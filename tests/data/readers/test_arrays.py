"""Data sets in one file of arrays: npz and Parquet."""

import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibrant.data import layouts, read
from calibrant.data.readers.arrays import arrays
from tests.helpers.errors import facts
from tests.helpers.reader_data import npy, skipped_in

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
        "soft labels that are no probabilities": (1, ("set.npz[4]",)),
        "id that occurs twice": (1, ("set.npz[6] (a)",)),
    }


def archive(path, **members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in members.items():
            file.writestr(f"{name}.npy", data)


def test_archives_that_lie(tmp_path):
    path = tmp_path / "x.npz"
    huge = npy(X).replace(b"(4, 3), }                    ", b"(4000000000, 3000), }        ")
    assert b"4000000000" in huge
    archive(path, x=huge, y=npy(np.arange(4)))
    with pytest.raises(ValueError, match=facts("x.npz", "'x'", "96000000000000")):
        arrays(path, "all")
    np.savez(path, x=np.array([{}, {}], dtype=object), y=np.arange(2))
    with pytest.raises(ValueError, match=facts("'x'")):
        arrays(path, "all")
    np.savez(path, x=X, y=np.array([{}] * 4, dtype=object))
    with pytest.raises(ValueError, match=facts("'y'", "|O")):
        arrays(path, "all")
    whole = path.read_bytes()
    for data in (b"", b"PK\3\4 nothing", whole[:-30], whole.replace(b"NUMPY", b"NOMPY")):
        path.write_bytes(data)
        with pytest.raises(ValueError, match=facts("x.npz")):
            arrays(path, "all")
        assert layouts()["arrays"].splits(path) == ()


@pytest.mark.parametrize(
    ("held", "message"),
    [
        ({"x": X, "z": np.arange(4)}, "no label called y or labels or label; the file has x, z"),
        ({"x": X, "y": np.arange(3)}, facts("'y'", "[3]", "4")),
        ({"x": X, "y": X}, r"labels \[N\] are expected"),
        ({"x": X, "y": np.array([0.5, 1, 2, 3])}, "integer labels are expected"),
        ({"x": X, "y": np.arange(4) + 0j}, facts("complex128")),
        ({"x": X + 0j, "y": np.arange(4)}, facts("'x'")),
        ({"x": np.array(1.0), "y": np.arange(4)}, "single number"),
        ({"x": X, "y": np.arange(4), "soft": np.arange(4)}, r"soft labels \[N, K\] are expected"),
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
    with pytest.raises(ValueError, match=r"no feature called depth; the file has width, height"):
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
