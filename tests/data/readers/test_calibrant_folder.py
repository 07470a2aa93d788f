"""Folders that Calibrant writes: nothing before everything is checked, nothing of a stranger's, and a killed run leaves
no trace; and how those are read that somebody may have changed."""

import fcntl
import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibrant.base.files import PART
from calibrant.cli import main
from calibrant.data import Dataset, ImageArray, read
from calibrant.data.files import UnreadableError
from calibrant.data.readers._folder import BAD_LABEL, MISSING, NAME_OUT, NO_PROBABILITIES
from calibrant.data.readers.calibrant_folder import check_folder, read_description, write_dataset
from tests.helpers import box_files
from tests.helpers.box_files import image, skipped, write
from tests.helpers.errors import facts

FILL = ["--fill", "9,8,7"]


def run(*words):
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    return stop.value.code


def toy(number=3, split="all", **changes):
    pixels = np.random.default_rng(0).integers(0, 255, (number, 6, 5, 3), dtype=np.uint8)
    names = tuple(f"id{i}" for i in range(number))
    return Dataset("toy", split, ("a", "b"), names, [i % 2 for i in range(number)], ImageArray(pixels), **changes)


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


@pytest.mark.parametrize("variant", ["context-only", "single-object"])
def test_what_is_wrong_in_the_last_split_is_found_first(tmp_path, capsys, variant):
    """An image that is broken, or the only one of a split without an object."""
    source = box_files.voc(tmp_path / "source")
    if variant == "context-only":
        box_files.cut(source / "JPEGImages/e.jpg")
    else:
        box_files.write(source / "Annotations/e.xml", box_files.xml([], "e.jpg"))
    assert run("data", "make-variant", source, variant, "-o", tmp_path / "out", *FILL) == 2
    assert ("e.jpg" if variant == "context-only" else "val") in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_failed_write_leaves_no_folder(tmp_path):
    class Broken(ImageArray):
        def open(self, index, draft=None):
            raise OSError(28, "No space left on device")

    pixels = np.zeros((9, 4, 4, 3), np.uint8)
    data = Dataset("toy", "all", ("a",), tuple(map(str, range(9))), [0] * 9, Broken(pixels))
    with pytest.raises(OSError, match=facts("No space")):
        write_dataset(data, tmp_path / "a/b/c")
    assert not (tmp_path / "a").exists()


def test_killed_before_anything_was_written(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / f"{PART}{'0' * 12}.abcdefgh.json").write_bytes(b"{")
    write_dataset(toy(), out)
    assert sorted(os.listdir(out)) == ["all", "all.parquet", "dataset.json"]


def test_two_at_once(tmp_path):
    """The folder is locked while it is written, by a lock that ends with its process and leaves nothing behind."""
    out = tmp_path / "out"

    def progress(what, done, total):
        if done == 1:
            with pytest.raises(ValueError, match=facts("out")):
                write_dataset(toy(split="other"), out)

    write_dataset(toy(), out, progress=progress)
    assert sorted(os.listdir(out)) == ["all", "all.parquet", "dataset.json"]
    write_dataset(toy(split="other"), out)
    assert set(read_description(out / "dataset.json").splits) == {"all", "other"}
    handle = os.open(out, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # nobody holds it any more
    os.close(handle)


def test_another_data_set_that_came_first_is_not_mixed_in(tmp_path, monkeypatch):
    """Both found the folder empty; the second looks again once it has the lock."""
    import calibrant.data.readers.calibrant_folder as module

    out, check = tmp_path / "out", module.check_writable
    first = toy(made := 2)

    def overtaken(*words, **options):
        description = check(*words, **options)
        monkeypatch.setattr(module, "check_writable", check)
        write_dataset(first, out, made_from={"variant": "first"})
        return description

    monkeypatch.setattr(module, "check_writable", overtaken)
    with pytest.raises(ValueError, match=facts("out")):
        write_dataset(toy(), out, made_from={"variant": "second"})
    assert len(read(out, "all")) == made


def test_links_that_lead_out_are_not_written_through(tmp_path):
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    write_dataset(toy(), out)
    elsewhere.mkdir()
    for path in list((out / "all").rglob("*.png")):
        path.unlink()
    for folder in list((out / "all").iterdir()):
        folder.rmdir()
        folder.symlink_to(elsewhere)
    with pytest.raises(ValueError, match=facts("all/")):
        write_dataset(toy(), out)
    assert not os.listdir(elsewhere)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, facts("format")),
        ({"version": 2}, facts("version")),
        ({"version": "1"}, facts("version")),
        ({"name": 5}, facts("name")),
        ({"classes": "ab"}, facts("classes")),
        ({"classes": ["a", 5]}, facts("classes.1")),
        ({"classes": []}, facts("class")),
        ({"classes": ["a", "a"]}, facts("class")),
        ({"splits": [1]}, facts("splits")),
        ({"splits": {"all": 5}}, facts("splits.all")),
        ({"made_from": None}, facts("made_from")),
        ([], facts("dataset.json")),
        (None, facts("dataset.json")),
    ],
)
def test_descriptions_of_other_kinds(tmp_path, change, message):
    write_dataset(toy(), tmp_path / "out")
    path = tmp_path / "out/dataset.json"
    document = json.loads(path.read_text()) | change if isinstance(change, dict) else change
    path.write_text(json.dumps(document))
    for look in (lambda: read(tmp_path / "out", "all"), lambda: check_folder(tmp_path / "out")):
        with pytest.raises(UnreadableError, match=message):
            look()
    before = contents(tmp_path / "out")
    with pytest.raises(UnreadableError, match=message):
        write_dataset(toy(), tmp_path / "out")
    assert contents(tmp_path / "out") == before


def test_names_of_any_kind_in_a_table(tmp_path):
    data = toy(groups=("caf\udce9", "b\u202e", "c\0"))
    write_dataset(data, tmp_path / "out")
    assert read(tmp_path / "out", "all").groups == ("caf\\xe9", "b\u202e", "c\0")


@pytest.mark.parametrize("mode", ["raise", "skip"])
def test_calibrant_s_own_folder(tmp_path, mode):
    data = read(folder(tmp_path), on_error=mode)
    assert (data.name, data.ids, data.labels.tolist()) == ("made", ("p", "q", "r"), [0, 1, -1])
    assert data.boxes.corners.tolist() == [[1, 1, 5, 5], [2, 2, 4, 4], [0, 0, 20, 10]]
    assert (data.boxes.counts.tolist(), data.boxes.labels.tolist()) == ([2, 1, 0], [0, -1, 1])
    assert data.boxes.crowd.tolist() == [False, True, False]
    assert (data.groups, data.context.tolist()) == (("x", "y", ""), [False, False, True])
    assert data.soft.tolist() == [[1, 0], [0.25, 0.75], [0.5, 0.5]]


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
def test_tables_of_calibrant_s_own_folder_that_are_broken(tmp_path, changes):
    root = folder(tmp_path, **changes)
    for mode in ("raise", "skip"):
        with pytest.raises(ValueError, match=facts("train.parquet", repr(next(iter(changes))))):
            read(root, on_error=mode)


#: Three samples; the tests change what the table says of the second.
CORNERS = pa.list_(pa.list_(pa.float64()))
ROWS = {
    "id": (["p", "q", "r"], None),
    "file": (["train/p.png", "train/q.png", "train/r.png"], None),
    "label": ([0, 1, -1], None),
    "boxes": ([[[1, 1, 5, 5], [2, 2, 4, 4]], [[0, 0, 20, 10]], []], CORNERS),
    "box_labels": ([[0, -1], [1], []], pa.list_(pa.int64())),
    "crowd": ([[False, True], [False], []], pa.list_(pa.bool_())),
    "context": ([False, False, True], None),
    "group": (["x", "y", ""], None),
    "soft": ([[1, 0], [0.25, 0.75], [0.5, 0.5]], pa.list_(pa.float64())),
}


def folder(root, **changes):
    for name in "pqr":
        image(root / f"train/{name}.png")
    description = {"format": "calibrant-dataset", "version": 1, "name": "made", "classes": ["cat", "dog"]}
    write(root / "dataset.json", json.dumps(description))
    columns = {name: pa.array(values, kind) for name, (values, kind) in ROWS.items()} | changes
    pq.write_table(pa.table({k: v for k, v in columns.items() if v is not None}), root / "train.parquet")
    return root


@pytest.mark.parametrize(
    ("column", "value", "what"),
    [
        ("id", None, "row without a value"),
        ("id", "p", "id that occurs twice"),
        ("file", None, "row without a value"),
        ("file", "../q.png", NAME_OUT),
        ("file", "train/s.png", MISSING),
        ("label", 2, BAD_LABEL),
        ("label", -2, BAD_LABEL),
        ("label", None, "row without a value"),
        ("boxes", [[9, 0, 2, 1]], "inverted box"),
        ("boxes", [[0, 0, float("nan"), 1]], "box that is not made of numbers"),
        ("boxes", [None], "box that is not made of numbers"),
        ("boxes", None, "row without a value"),
        ("boxes", [], "boxes, box_labels and crowd of different lengths"),
        ("box_labels", [2], "box with a label outside the classes"),
        ("box_labels", [None], "box with a label outside the classes"),
        ("crowd", [None], "row without a value"),
        ("context", None, "row without a value"),
        ("group", None, "row without a value"),
        ("soft", [0.5, 0.6], NO_PROBABILITIES),
        ("soft", [1.5, -0.5], NO_PROBABILITIES),
        ("soft", [1.0], NO_PROBABILITIES),
        ("soft", [1.0, None], NO_PROBABILITIES),
    ],
)
def test_rows_of_calibrant_s_own_folder_that_are_broken(tmp_path, column, value, what):
    values, kind = ROWS[column]
    root = folder(tmp_path, **{column: pa.array([values[0], value, values[2]], kind)})
    with pytest.raises(ValueError, match=facts("train")):
        read(root)
    data = read(root, on_error="skip")
    assert (data.ids, skipped(data.report)) == (("p", "r"), {what: 1})
    assert data.boxes.counts.tolist() == [2, 0]
