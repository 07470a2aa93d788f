"""Folders that Calibrant wrote and somebody may have changed."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibrant.data import read
from calibrant.data.files import UnreadableError
from tests.helpers.box_files import cut, image, skipped, write


def folder(root, **changes):
    corners = pa.list_(pa.list_(pa.float64(), 4))
    columns = {
        "id": pa.array(["p", "q", "r"]),
        "file": pa.array(["train/p.png", "train/q.png", "train/r.png"]),
        "label": pa.array([0, 1, -1]),
        "boxes": pa.array([[[1, 1, 5, 5], [2, 2, 4, 4]], [[0, 0, 20, 10]], []], corners),
        "box_labels": pa.array([[0, -1], [1], []], pa.list_(pa.int64())),
        "crowd": pa.array([[False, True], [False], []], pa.list_(pa.bool_())),
        "context": pa.array([False, False, True]),
        "group": pa.array(["x", "y", ""]),
        "soft": pa.array([[1, 0], [0.25, 0.75], [0.5, 0.5]], pa.list_(pa.float64(), 2)),
    }
    for name in "pqr":
        image(root / f"train/{name}.png")
    description = {"format": "calibrant-dataset", "version": 1, "name": "made", "classes": ["cat", "dog"]}
    write(root / "dataset.json", json.dumps(description))
    columns = {k: v for k, v in (columns | changes).items() if v is not None}
    pq.write_table(pa.table(columns), root / "train.parquet")
    return root


@pytest.mark.parametrize("mode", ["raise", "skip"])
def test_calibrant_s_own_folder(tmp_path, mode):
    data = read(folder(tmp_path), on_error=mode)
    assert (data.name, data.ids, data.labels.tolist()) == ("made", ("p", "q", "r"), [0, 1, -1])
    assert data.boxes.corners.tolist() == [[1, 1, 5, 5], [2, 2, 4, 4], [0, 0, 20, 10]]
    assert (data.boxes.counts.tolist(), data.boxes.labels.tolist()) == ([2, 1, 0], [0, -1, 1])
    assert data.boxes.crowd.tolist() == [False, True, False]
    assert (data.groups, data.context.tolist()) == (("x", "y", ""), [False, False, True])
    assert data.soft.tolist() == [[1, 0], [0.25, 0.75], [0.5, 0.5]]


CORNERS = pa.list_(pa.list_(pa.float64()))


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"id": pa.array(["p", None, "r"])}, "row without a value"),
        ({"id": pa.array(["p", "p", "r"])}, "id that occurs twice"),
        ({"file": pa.array(["train/p.png", None, "train/r.png"])}, "row without a value"),
        ({"file": pa.array(["train/p.png", "../q.png", "train/r.png"])}, "file name that leads out of the data folder"),
        ({"file": pa.array(["train/p.png", "train/s.png", "train/r.png"])}, "image that is missing"),
        ({"label": pa.array([0, 2, -1])}, "label outside the classes"),
        ({"label": pa.array([0, -2, -1])}, "label outside the classes"),
        ({"label": pa.array([0, None, -1])}, "row without a value"),
        ({"boxes": pa.array([[[1, 1, 5, 5], [2, 2, 4, 4]], [[9, 0, 2, 1]], []], CORNERS)}, "inverted box"),
        (
            {"boxes": pa.array([[[1, 1, 5, 5], [2, 2, 4, 4]], [[0, 0, float("nan"), 1]], []], CORNERS)},
            "box that is not made of numbers",
        ),
        ({"boxes": pa.array([[[1, 1, 5, 5], [2, 2, 4, 4]], [None], []], CORNERS)}, "box that is not made of numbers"),
        ({"boxes": pa.array([[[1, 1, 5, 5], [2, 2, 4, 4]], None, []], CORNERS)}, "row without a value"),
        (
            {"boxes": pa.array([[[1, 1, 5, 5], [2, 2, 4, 4]], [], []], CORNERS)},
            "boxes, box_labels and crowd of different lengths",
        ),
        ({"box_labels": pa.array([[0, -1], [2], []])}, "box with a label outside the classes"),
        ({"box_labels": pa.array([[0, -1], [None], []])}, "box with a label outside the classes"),
        ({"crowd": pa.array([[False, True], [None], []])}, "row without a value"),
        ({"context": pa.array([False, None, True])}, "row without a value"),
        ({"group": pa.array(["x", None, "y"])}, "row without a value"),
        ({"soft": pa.array([[1.0, 0.0], [0.5, 0.6], [0.5, 0.5]])}, "soft labels that are no probabilities"),
        ({"soft": pa.array([[1.0, 0.0], [1.5, -0.5], [0.5, 0.5]])}, "soft labels that are no probabilities"),
        ({"soft": pa.array([[1.0, 0.0], [1.0], [0.5, 0.5]])}, "soft labels that are no probabilities"),
        ({"soft": pa.array([[1.0, 0.0], [1.0, None], [0.5, 0.5]])}, "soft labels that are no probabilities"),
    ],
)
def test_rows_of_calibrant_s_own_folder_that_are_broken(tmp_path, changes, what):
    root = folder(tmp_path, **changes)
    with pytest.raises(ValueError, match=what):
        read(root)
    data = read(root, on_error="skip")
    assert (data.ids, skipped(data.report)) == (("p", "r"), {what: 1})
    assert data.boxes.counts.tolist() == [2, 0]


@pytest.mark.parametrize(
    "changes",
    [
        {"id": pa.array([1, 2, 3])},
        {"label": pa.array([0.0, 1.0, 0.5])},
        {"label": None},
        {"crowd": None},
        {"boxes": pa.array([[1.0], [2.0], []])},
        {"context": pa.array([0, 0, 1])},
    ],
)
@pytest.mark.parametrize("mode", ["raise", "skip"])
def test_tables_of_calibrant_s_own_folder_that_are_broken(tmp_path, changes, mode):
    with pytest.raises(ValueError, match=rf"train\.parquet: .*{next(iter(changes))!r}"):
        read(folder(tmp_path, **changes), on_error=mode)


def test_calibrant_s_own_folder_with_broken_files(tmp_path):
    root = folder(tmp_path)
    cut(root / "train/q.png")
    assert skipped(read(root, on_error="skip").report) == {"image that cannot be read": 1}
    write(root / "train.parquet", b"PAR1 no")
    with pytest.raises(UnreadableError, match=r"train\.parquet: the file cannot be read"):
        read(root)
    for text in ("", "[]", "{}", '{"format": "calibrant-dataset", "version": 1, "name": "x", "classes": ["a", "a"]}'):
        write(root / "dataset.json", text)
        with pytest.raises(UnreadableError, match=r"dataset\.json: "):
            read(root)
