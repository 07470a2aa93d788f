"""Open Images' tables, sound and broken."""

import json

import numpy as np
import pytest

from calibrant.data import read, single_object
from tests.helpers import box_files as files
from tests.helpers.box_files import odd, skipped, write
from tests.helpers.errors import facts
from tests.helpers.reader_data import INVERTED, MODES, NO_NUMBERS, corners, one_sentence


@MODES
def test_open_images(tmp_path, mode):
    data = read(files.open_images(tmp_path), on_error=mode)
    assert data.classes == ("Cat", "Woman", "Man")
    assert data.ids == ("train/i1.jpg", "train/i2.jpg", "train/i4.jpg")
    assert data.labels.tolist() == [0, 2, 1]  # the cats of i2 are a group
    np.testing.assert_allclose(corners(data, 0), [[10, 0, 20, 5]])
    np.testing.assert_allclose(corners(data, 1), [[10, 2, 20, 12], [0, 0, 40, 20]])
    assert data.boxes.crowd.tolist() == [False, False, True, False]
    assert skipped(data.report) == {
        "box of a class above others, or of a dropped class": 2,
        "box of an image that is not there": 1,
        "image without a box of the classes asked for": 2,
    }
    assert odd(data.report) == {"box without area": 1}


def test_open_images_options(tmp_path):
    root = files.open_images(tmp_path)
    data = read(root, leaf_only=False, merge={"Man": "Person", "Woman": "Person"})
    assert (data.classes, data.labels.tolist()) == (("Cat", "Person"), [1, 1, 1, 1])
    capped = read(root, leaf_only=False, merge={"Man": "Person", "Woman": "Person"}, cap=3)
    assert len(capped) == 3
    assert skipped(capped.report)["image beyond the cap of its class"] == 1
    assert list(capped.ids) == [name for name in data.ids if name in capped.ids]
    chosen = {
        read(root, leaf_only=False, merge={"Man": "Person", "Woman": "Person"}, cap=1, seed=s).ids for s in range(9)
    }
    assert len(chosen) > 1
    # A smaller set of images keeps those of the choice that are still there.
    (root / next(name for name in data.ids if name not in capped.ids)).unlink()
    assert read(root, leaf_only=False, merge={"Man": "Person", "Woman": "Person"}, cap=3).ids == capped.ids
    with pytest.raises(ValueError, match=facts("cap", "0")):
        read(root, cap=0)
    (root / "bbox_labels_600_hierarchy.json").unlink()
    with pytest.raises(ValueError, match=facts("leaf_only", "bbox_labels_600_hierarchy.json")):
        read(root)


def test_the_cap_of_objects_counts_samples_of_one_object(tmp_path):
    """[ALS] A.2 restricts the samples per class once each shows one object."""
    root = files.open_images(tmp_path)
    merged = {"leaf_only": False, "merge": {"Man": "Person", "Woman": "Person"}}
    everything = single_object(read(root, **merged))
    counts = np.bincount(everything.labels)
    assert counts.max() > 2
    for cap in (1, 2, 100):
        whole = read(root, **merged, cap_objects=cap)
        data = single_object(whole)
        assert np.bincount(data.labels, minlength=len(counts)).tolist() == np.minimum(counts, cap).tolist()
        assert set(data.ids) <= set(everything.ids)
        assert whole.ids == read(root, **merged).ids  # every image stays, and so do the boxes to be covered
        assert len(whole.boxes.labels) == len(read(root, **merged).boxes.labels)
    assert (
        single_object(read(root, **merged, cap_objects=1)).ids == single_object(read(root, **merged, cap_objects=1)).ids
    )
    chosen = {single_object(read(root, **merged, cap_objects=1, seed=s)).ids for s in range(9)}
    assert len(chosen) > 1
    with pytest.raises(ValueError, match=facts("cap_objects", "0")):
        read(root, cap_objects=0)


COLUMNS = "line with another number of columns"


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("i4,x,/m/cat,1,0.9,0.1,0,1,0,0,0,0", INVERTED),
        ("i4,x,/m/cat,1,,0.1,0,1,0,0,0,0", NO_NUMBERS),
        ("i4,x,/m/cat,1,2,18,3,9,0,0,0,0", "box that is not normalised"),
        ("i4,x,/m/nothing,1,0,0.1,0,1,0,0,0,0", "box of a class that has no description"),
        ("i4,x,/m/cat", COLUMNS),
        ('i4,"x\n\x1b[2J",/m/cat', COLUMNS),
    ],
)
def test_broken_lines_of_open_images(tmp_path, line, what):
    root = files.open_images(tmp_path, line + "\n")
    with pytest.raises(ValueError, match=what) as error:
        read(root)
    one_sentence(error, "train-annotations-bbox.csv")
    data = read(root, on_error="skip")
    assert skipped(data.report)[what] == 1
    assert ("train/i4.jpg" in data.ids) == (what in ("box of a class that has no description", COLUMNS))
    assert "pixel" not in str(error.value)


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("oidv6-train-annotations-bbox.csv", "", "no column ImageID"),
        ("oidv6-train-annotations-bbox.csv", "ImageID,LabelName,XMin,XMax,YMin\n", "no column YMax"),
        ("oidv6-train-annotations-bbox.csv", "x" * 70_000, "a line has 65536 characters or more"),
        ("class-descriptions-boxable.csv", "/m/cat\n", "a line has no MID"),
        ("class-descriptions-boxable.csv", "/m/cat,Cat\n/m/cat,Dog\n", "a MID that was there before"),
        ("bbox_labels_600_hierarchy.json", "[]", "a node without a LabelName"),
        ("bbox_labels_600_hierarchy.json", json.dumps({"LabelName": "a", "Subcategory": 3}), "no list of nodes below"),
        ("bbox_labels_600_hierarchy.json", '{"Part":[' * 50_000, "the file is not JSON"),
    ],
)
def test_broken_tables_of_open_images(tmp_path, file, content, words):
    root = files.open_images(tmp_path)
    write(root / file, content)
    with pytest.raises(ValueError, match=file) as error:
        read(root, on_error="skip")
    one_sentence(error, words)
