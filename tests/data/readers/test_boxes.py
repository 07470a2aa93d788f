"""Boxes: COCO's JSON, Open Images' tables, XML nobody vouches for, and what is broken or missing in every layout."""

import json

import numpy as np
import pytest

from calibrant.data import read, single_object
from calibrant.data.files import UnreadableError
from calibrant.data.readers._boxes import MAX_XML, parse_annotation
from calibrant.data.readers._folder import MISSING, NAME_OUT, TWICE
from tests.helpers import box_files as files
from tests.helpers.box_files import image, odd, skipped, write, xml
from tests.helpers.errors import facts
from tests.helpers.reader_data import INVERTED, MODES, NO_ANNOTATION, NO_NUMBERS, corners, where


@pytest.mark.parametrize(
    ("corners", "what"),
    [
        ((9, 1, 3, 4), INVERTED),
        ((1, 9, 3, 4), INVERTED),
        (("nan", 1, 3, 4), NO_NUMBERS),
        (("", 1, 3, 4), NO_NUMBERS),
        (("x", 1, 3, 4), NO_NUMBERS),
        (("1_000", 1, 3, 4), NO_NUMBERS),
        ((1, 1, "1e999", 4), NO_NUMBERS),
        ((1, 1, 10**20, 4), NO_NUMBERS),
    ],
)
def test_broken_boxes_take_their_image_along(tmp_path, corners, what):
    root = files.voc(tmp_path)
    write(root / "Annotations/a.xml", xml([("bed", 1, 1, 2, 2), ("bed", *corners)], "a.jpg"))
    with pytest.raises(ValueError, match=facts("JPEGImages/a.jpg", what, "in Annotations/a.xml")):
        read(root, "train")
    data = read(root, "train", on_error="skip")
    assert "JPEGImages/a.jpg" not in data.ids
    assert skipped(data.report) == {what: 1}
    (place,) = data.report.skipped[0].where  # the reason is not lost
    assert place.startswith("JPEGImages/a.jpg (")
    assert place.endswith("in Annotations/a.xml)")


@pytest.mark.parametrize("name", ["../secret.jpg", "/etc/passwd", "C:\\x.jpg", "a/../../secret.jpg", "", "x\0y.jpg"])
def test_names_that_lead_out(tmp_path, name):
    image(tmp_path / "secret.jpg")
    content = files.coco_content()
    content["images"][1]["file_name"] = name
    root = files.coco(tmp_path / "data", content)
    with pytest.raises(ValueError, match=facts("instances_val2017.json")):
        read(root)
    data = read(root, on_error="skip")
    assert data.ids == ("val2017/x.jpg", "val2017/z.jpg")
    assert skipped(data.report) == {NAME_OUT: 1, NO_ANNOTATION: 1}


def test_other_names_that_lead_out(tmp_path):
    image(tmp_path / "secret.jpg")
    root = files.voc(tmp_path / "voc")
    write(root / "Annotations/a.xml", xml([("bed", 1, 1, 2, 2)], "../../secret.jpg"))
    assert "JPEGImages/a.jpg" in read(root, "train").ids  # by the annotation's own stem
    write(root / "ImageSets/Main/train.txt", "../../secret\na\na\n")
    assert skipped(read(root, "train", on_error="skip").report) == {"listed image without an annotation": 1, TWICE: 1}
    root = files.cub(tmp_path / "cub")
    write(root / "images.txt", "1 ../../secret.jpg\n2 002.Red_Bird/b.jpg\n3 002.Red_Bird/c.jpg\n")
    with pytest.raises(ValueError, match=facts("images.txt")):
        read(root, "test")
    root = files.tiny_imagenet(tmp_path / "tiny")
    write(root / "wnids.txt", "../..\n")
    with pytest.raises(ValueError, match=facts("wnids.txt")):
        read(root, "train")


def test_missing_and_doubled_images(tmp_path):
    root = files.voc(tmp_path / "voc")
    (root / "JPEGImages/a.jpg").unlink()
    (root / "JPEGImages/b.jpg").unlink()
    write(root / "Annotations/b.xml", xml([("bed", 1, 1, 2, 2)], "c.jpg"))
    with pytest.raises(ValueError, match=facts("JPEGImages", "Annotations/a.xml")):
        read(root, "train")
    for order in ("c a b d", "b d c a"):  # c.jpg belongs to c.xml, whoever comes first
        write(root / "ImageSets/Main/train.txt", order.replace(" ", "\n"))
        data = read(root, "train", on_error="skip")
        assert skipped(data.report) == {MISSING: 1, TWICE: 1}
        assert data.labels[data.ids.index("JPEGImages/c.jpg")] == 2
    content = files.coco_content()
    content["images"] += [{"id": 7, "file_name": "y.jpg"}, {"id": 8, "file_name": "./x.jpg"}, {"id": 6}]
    root = files.coco(tmp_path / "coco", content)
    assert skipped(read(root, on_error="skip").report) == {
        "image with the id of another": 1,
        TWICE: 1,
        "image without an id or a file name": 1,
    }


@pytest.mark.parametrize(
    "size", [{"width": 0, "height": 0}, {"width": "x", "height": 10**99}, {"width": 19, "height": 9}]
)
def test_sizes_that_are_not_the_image_s(tmp_path, size):
    content = files.coco_content()
    content["images"][0] |= size
    data = read(files.coco(tmp_path, content), on_error="skip")
    assert odd(data.report)["size in the annotation that is not the image's"] == 1
    assert odd(data.report)["box that leaves the image"] == 1  # that of y, as before


@pytest.mark.parametrize(
    ("encoding", "declared", "name", "guessed"),
    [
        ("gbk", "GBK", "椅子", False),
        ("shift_jis", "Shift_JIS", "椅子", False),
        ("cp1251", "windows-1251", "стул", False),
        ("latin-1", "ISO-8859-1", "Stühle", False),
        ("utf-16", "utf-16", "椅子", False),
        ("utf-16-le", None, "椅子", False),
        ("utf-8", "utf-16", "椅子", False),  # as Windows writes it
        ("utf-8-sig", None, "椅子", False),
        ("latin-1", None, "Stühle", True),
        ("latin-1", "UTF-8", "Stühle", True),
    ],
)
def test_xml_is_decoded_as_it_declares(tmp_path, encoding, declared, name, guessed):
    head = f'<?xml version="1.0" encoding="{declared}"?>' if declared else ""
    path = write(tmp_path / "a.xml", (head + xml([(name, 1, 1, 2, 2)])).encode(encoding))
    annotation = parse_annotation(path)
    assert (annotation.objects[0][0], annotation.guessed) == (name, guessed)


@pytest.mark.parametrize("declared", ["no-such", "hex", "rot13", "punycode", "unicode_escape", "undefined", "ascii"])
def test_xml_in_encodings_that_are_none(tmp_path, declared):
    text = f'<?xml version="1.0" encoding="{declared}"?>' + xml([("Stühle", 1, 1, 2, 2)])
    with pytest.raises(UnreadableError, match=facts("a.xml", "XML")):
        parse_annotation(write(tmp_path / "a.xml", text))


BROKEN_XML = {
    "document type": '<!DOCTYPE annotation SYSTEM "file:///etc/passwd"><annotation/>',
    "entity bomb": '<!DOCTYPE b [<!ENTITY a "aa"><!ENTITY b "&a;&a;">]><annotation>&b;</annotation>',
    "empty": "",
    "cut off": xml([("bed", 1, 1, 2, 2)])[:-30],
    "another root": "<html/>",
    "no name": "<annotation><object><bndbox/></object></annotation>",
    "no box": "<annotation><object><name>bed</name></object></annotation>",
    "unknown encoding": '<?xml version="1.0" encoding="no-such"?><annotation',
    "too large": " " * (MAX_XML + 1),
    "binary": bytes(range(256)),
}


@pytest.mark.parametrize("case", BROKEN_XML)
def test_broken_xml(tmp_path, case):
    root = files.voc(tmp_path)
    write(root / "Annotations/a.xml", BROKEN_XML[case])
    with pytest.raises(ValueError, match=facts("Annotations/a.xml")):
        read(root, "train")
    data = read(root, "train", on_error="skip")
    assert data.ids == tuple(f"JPEGImages/{stem}.jpg" for stem in "cbd")
    assert list(skipped(data.report).values()) == [1]
    assert read(root, "val").ids == ("JPEGImages/e.jpg",)  # the broken file belongs to another split


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
    "cut off": b'{"images": [',
    "a list": b"[]",
    "not text": b"\xff\xfe\x00\x01\x02",
    "images that are numbers": b'{"images": [1], "annotations": [], "categories": []}',
    "no categories": b'{"images": [], "annotations": []}',
    "category without a name": b'{"images": [], "annotations": [], "categories": [{"id": 1}]}',
    "category with a list": b'{"images": [], "annotations": [], "categories": [{"id": [], "name": "x"}]}',
    "name with a line end": b'{"images":[],"annotations":[],"categories":[{"id":1,"name":"x\\ny"}]}',
    "name with half a character": b'{"images":[],"annotations":[],"categories":[{"id":1,"name":"x\\ud800"}]}',
    "category twice": b'{"images":[],"annotations":[],"categories":[{"id":1,"name":"x"},{"id":1,"name":"y"}]}',
}


@pytest.mark.parametrize("case", BROKEN_JSON)
def test_broken_json(tmp_path, case):
    root = files.coco(tmp_path, BROKEN_JSON[case])
    for mode in ("raise", "skip"):
        with pytest.raises(ValueError, match=facts("instances_val2017.json")):
            read(root, on_error=mode)


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
        ({"bbox": ["x", {}, [], 3]}, NO_NUMBERS),
        ({"bbox": [True, 2, 3, 4]}, NO_NUMBERS),
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
    with pytest.raises(ValueError, match=facts(what, "instances_val2017.json")):
        read(root)
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
    with pytest.raises(ValueError, match=facts(what, "train-annotations-bbox.csv")):
        read(root)
    data = read(root, on_error="skip")
    assert skipped(data.report)[what] == 1
    assert ("train/i4.jpg" in data.ids) == (what in ("box of a class that has no description", COLUMNS))


@pytest.mark.parametrize(
    ("file", "content", "word"),
    [
        ("oidv6-train-annotations-bbox.csv", "", "ImageID"),
        ("oidv6-train-annotations-bbox.csv", "ImageID,LabelName,XMin,XMax,YMin\n", "YMax"),
        ("oidv6-train-annotations-bbox.csv", "x" * 70_000, "65536"),
        ("class-descriptions-boxable.csv", "/m/cat\n", "MID"),
        ("class-descriptions-boxable.csv", "/m/cat,Cat\n/m/cat,Dog\n", "MID"),
        ("bbox_labels_600_hierarchy.json", "[]", "LabelName"),
        ("bbox_labels_600_hierarchy.json", json.dumps({"LabelName": "a", "Subcategory": 3}), ""),
    ],
)
def test_broken_tables_of_open_images(tmp_path, file, content, word):
    root = files.open_images(tmp_path)
    write(root / file, content)
    with pytest.raises(ValueError, match=facts(file, word)):
        read(root, on_error="skip")
