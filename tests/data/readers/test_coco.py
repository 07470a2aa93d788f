"""COCO's JSON, sound and broken."""

import numpy as np
import pytest

from calibrant.data import read
from calibrant.data.files import UnreadableError
from tests.helpers import box_files as files
from tests.helpers.box_files import image, odd, skipped, write
from tests.helpers.errors import facts
from tests.helpers.reader_data import INVERTED, MODES, NO_ANNOTATION, NO_NUMBERS, corners, one_sentence, where


@MODES
def test_coco(tmp_path, mode):
    data = read(files.coco(tmp_path), on_error=mode)
    assert (data.split, data.classes) == ("val2017", ("car", "bus", "toothbrush"))
    assert data.ids == ("val2017/x.jpg", "val2017/y.jpg", "val2017/z.jpg")
    assert data.labels.tolist() == [0, 2, -1]  # the largest box of x is a crowd
    assert corners(data, 0) == [[1, 2, 4.5, 6], [0, 0, 20, 10], [0, 0, 2, 2]]
    assert corners(data, 1) == [[15, 5, 25, 5]]
    assert data.boxes.labels.tolist() == [0, 2, 2, 2]
    assert data.boxes.crowd.tolist() == [False, True, False, False]
    assert odd(data.report) == {"box without area": 1, "box that leaves the image": 1, "image without objects": 1}
    data = read(tmp_path, classes=["car"], rename={"bus": "car"})
    assert (data.labels.tolist(), data.boxes.labels.tolist()) == ([0, -1, -1], [0, -1, -1, -1])
    data = read(tmp_path, rename={"toothbrush": ""})
    assert (data.classes, data.ids) == (("car", "bus"), ("val2017/x.jpg", "val2017/z.jpg"))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"area": 9.5}, 9.5),
        ({"area": 14}, 14.0),
        ({}, np.nan),
        ({"area": 0}, np.nan),
        ({"area": -3.0}, np.nan),
        ({"area": float("inf")}, np.nan),
        ({"area": "9.5 pixels"}, np.nan),
        ({"area": None}, np.nan),
    ],
)
def test_the_area_of_a_mask_is_read_and_no_image_is_lost_without_it(tmp_path, given, expected):
    content = files.coco_content()
    content["annotations"][0] |= given
    content["annotations"][1]["area"] = 120
    data = read(files.coco(tmp_path, content))
    np.testing.assert_array_equal(data.boxes.object_areas, [expected, 120, np.nan, np.nan])
    assert skipped(data.report) == {}
    assert data.boxes.areas.tolist() == [14, 200, 4, 0]  # of the boxes, whatever the mask has


BROKEN_JSON = {
    "empty": b"",
    "cut off": b'{"images": [',
    "a list": b"[]",
    "deep": b"[" * 100_000,
    "huge number": b'{"images": [' + b"9" * 5000 + b"]}",
    "not text": b"\xff\xfe\x00\x01\x02",
    "images that are numbers": b'{"images": [1], "annotations": [], "categories": []}',
    "no categories": b'{"images": [], "annotations": []}',
    "category without a name": b'{"images": [], "annotations": [], "categories": [{"id": 1}]}',
    "category with a list": b'{"images": [], "annotations": [], "categories": [{"id": [], "name": "x"}]}',
    "name with a line end": b'{"images":[],"annotations":[],"categories":[{"id":1,"name":"x\\ny"}]}',
    "name with half a character": b'{"images":[],"annotations":[],"categories":[{"id":1,"name":"x\\ud800"}]}',
    "key twice": b'{"images":[{"id":1,"id":2}],"annotations":[],"categories":[]}',
    "category twice": b'{"images":[],"annotations":[],"categories":[{"id":1,"name":"x"},{"id":1,"name":"y"}]}',
}


@pytest.mark.parametrize("mode", ["raise", "skip"])
@pytest.mark.parametrize("case", BROKEN_JSON)
def test_broken_json(tmp_path, case, mode):
    root = files.coco(tmp_path, BROKEN_JSON[case])
    with pytest.raises(ValueError, match=r"instances_val2017\.json") as error:
        read(root, on_error=mode)
    one_sentence(error)


def test_json_beyond_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr("calibrant.data.files.MAX_JSON", 100)
    with pytest.raises(UnreadableError, match=facts("instances_val2017.json", "100")):
        read(files.coco(tmp_path))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"bbox": [1, 2, -3, 4]}, INVERTED),
        ({"bbox": [1, 2, 3]}, NO_NUMBERS),
        ({"bbox": None}, NO_NUMBERS),
        ({"bbox": [float("nan"), 2, 3, 4]}, NO_NUMBERS),
        ({"bbox": [1, 2, float("inf"), 4]}, NO_NUMBERS),
        ({"bbox": ["x", {}, [], True]}, NO_NUMBERS),
        ({"bbox": [10**200, 0, 1, 1]}, NO_NUMBERS),
        ({"iscrowd": "yes"}, "box with an 'iscrowd' that is neither 0 nor 1"),
        ({"image_id": 12}, "annotation of an image that is not listed"),
        ({"image_id": [7]}, "annotation of an image that is not listed"),
        ({"category_id": 5}, "annotation of a category that is not listed"),
        ({"category_id": {}}, "annotation of a category that is not listed"),
    ],
)
def test_broken_annotations_of_coco(tmp_path, change, what):
    content = files.coco_content()
    content["annotations"][0] |= change
    root = files.coco(tmp_path, content)
    with pytest.raises(ValueError, match=what) as error:
        read(root)
    one_sentence(error, "instances_val2017.json")
    data = read(root, on_error="skip")
    assert skipped(data.report) == {what: 1}
    assert data.ids[-2:] == ("val2017/y.jpg", "val2017/z.jpg")
    assert len(data) == (2 if what.startswith(("inverted", "box")) else 3)


def test_coco_images_that_the_file_does_not_list(tmp_path):
    root = files.coco(tmp_path)
    image(root / "val2017/u.jpg")
    assert where(read(root).report.skipped) == {NO_ANNOTATION: ("val2017/u.jpg",)}
    # A folder of several splits: the image may be another's.
    (root / "val2017").rename(root / "images")
    write(root / "annotations/instances_train2017.json", "{}")
    assert skipped(read(root, "val2017").report) == {}


def test_places_in_coco_name_the_image(tmp_path):
    content = files.coco_content()
    content["annotations"][1]["category_id"] = 5
    content["annotations"][0]["id"] = content["annotations"][3]["id"]
    data = read(files.coco(tmp_path, content), on_error="skip")
    (place,) = where(data.report.skipped)["annotation of a category that is not listed"]
    assert place == "val2017/x.jpg (5, annotation 1 in annotations/instances_val2017.json)"
    assert where(data.report.odd)["annotation with the id of another"] == ("val2017/x.jpg",)
    assert len(data.boxes[0]) == 2  # both are kept


def test_images_that_show_only_crowds(tmp_path):
    content = files.coco_content()
    content["annotations"][2]["iscrowd"] = 1
    data = read(files.coco(tmp_path, content))
    assert data.labels.tolist() == [0, -1, -1]
    assert where(data.report.odd)["image that shows only crowds"] == ("val2017/y.jpg",)
    assert "image without a single object of a class asked for" not in odd(data.report)
