"""Readers of sets with boxes on broken and hostile files: an error in one sentence that names the file, or a count."""

import json

import pytest

from calibrant.data import read
from calibrant.data.files import UnreadableError
from calibrant.data.readers import _annotations
from calibrant.data.readers._annotations import MAX_XML, parse_annotation
from tests import box_files as files
from tests.box_files import image, odd, skipped, write, xml

COLUMNS = "line with another number of columns"
INVERTED, NO_NUMBERS = "inverted box", "box that is not made of numbers"
BOMB = (
    '<?xml version="1.0"?><!DOCTYPE b [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'
    "<annotation><filename>&b;</filename></annotation>"
)
BROKEN_XML = {
    "entity bomb": (BOMB, "declares a document type or entities"),
    "document type": ('<!DOCTYPE annotation SYSTEM "file:///etc/passwd"><annotation/>', "declares a document type"),
    "empty": ("", "not XML"),
    "cut off": (xml([("bed", 1, 1, 2, 2)])[:-30], "not XML"),
    "another root": ("<html/>", "root of the file is <html>"),
    "no name": ("<annotation><object><bndbox/></object></annotation>", "an <object> has no <name>"),
    "no box": ("<annotation><object><name>bed</name></object></annotation>", "'bed' has no <bndbox>"),
    "unknown encoding": ('<?xml version="1.0" encoding="no-such"?><annotation', "not XML"),
    "too large": (" " * (MAX_XML + 1), "at most 4194304 are read"),
    "binary": (bytes(range(256)), "not XML"),
}


def one_sentence(error, *words):
    text = str(error.value)
    assert "\n" not in text
    assert ": " in text
    assert all(word in text for word in words), text


@pytest.mark.parametrize("case", BROKEN_XML)
def test_broken_xml(tmp_path, case):
    content, words = BROKEN_XML[case]
    root = files.voc(tmp_path)
    write(root / "Annotations/a.xml", content)
    with pytest.raises(ValueError, match=r"a\.xml") as error:
        read(root, "train")
    one_sentence(error, "Annotations/a.xml", words)
    data = read(root, "train", on_error="skip")
    assert data.ids == tuple(f"JPEGImages/{stem}.jpg" for stem in "cbd")
    assert skipped(data.report) == {"annotation that cannot be read": 1}
    assert read(root, "val").ids == ("JPEGImages/e.jpg",)  # the broken file belongs to another split


def test_deeply_nested_xml(tmp_path):
    deep = write(tmp_path / "deep.xml", "<annotation>" + "<a>" * 200_000 + "</a>" * 200_000 + "</annotation>")
    assert parse_annotation(deep).objects == ()
    with pytest.raises(UnreadableError, match=r"deep\.xml: the file is not XML"):
        parse_annotation(write(deep, "<a>" * 200_000))


def test_xml_in_other_encodings(tmp_path):
    text = xml([("Stühle", 1, 1, 2, 2)])
    for i, content in enumerate(
        [
            text.encode("latin-1"),
            b'<?xml version="1.0" encoding="ISO-8859-1"?>' + text.encode("latin-1"),
            b"\xef\xbb\xbf" + text.encode(),
            text.encode("utf-16"),
        ]
    ):
        annotation = parse_annotation(write(tmp_path / f"{i}.xml", content))
        assert annotation.objects == (("Stühle", ("1", "1", "2", "2")),)


@pytest.mark.parametrize(
    ("corners", "what"),
    [
        ((9, 1, 3, 4), INVERTED),
        ((1, 9, 3, 4), INVERTED),
        (("nan", 1, 3, 4), NO_NUMBERS),
        (("", 1, 3, 4), NO_NUMBERS),
        (("x", 1, 3, 4), NO_NUMBERS),
        ((1, 1, "1e999", 4), NO_NUMBERS),
        ((1, 1, 10**20, 4), NO_NUMBERS),
    ],
)
def test_broken_boxes_take_their_image_along(tmp_path, corners, what):
    root = files.voc(tmp_path)
    write(root / "Annotations/a.xml", xml([("bed", 1, 1, 2, 2), ("bed", *corners)], "a.jpg"))
    with pytest.raises(ValueError, match=r"a\.jpg") as error:
        read(root, "train")
    one_sentence(error, "JPEGImages/a.jpg", what, "in Annotations/a.xml")
    data = read(root, "train", on_error="skip")
    assert "JPEGImages/a.jpg" not in data.ids
    assert skipped(data.report) == {what: 1}
    (place,) = data.report.skipped[0].where  # the reason is not lost
    assert place.startswith("JPEGImages/a.jpg (")
    assert place.endswith("in Annotations/a.xml)")


@pytest.mark.parametrize("line", ["1 1 2", "9 1 3 4", "a b c d", "1 1 2 2 2", "nan 0 1 1"])
def test_broken_lines_of_boxes(tmp_path, line):
    what = INVERTED if line.startswith("9") else NO_NUMBERS
    root = files.tiny_imagenet(tmp_path)
    write(root / "val/val_annotations.txt", f"val_3.JPEG n01 {line}\nval_0.JPEG n02 1 1 2 2\n")
    with pytest.raises(ValueError, match=r"val_3\.JPEG") as error:
        read(root, "val")
    one_sentence(error, "val/images/val_3.JPEG", what, "val_annotations.txt")
    data = read(root, "val", on_error="skip")
    assert (data.ids, skipped(data.report)) == (("val/images/val_0.JPEG",), {what: 1})


@pytest.mark.parametrize("name", ["../secret.jpg", "/etc/passwd", "C:\\x.jpg", "a/../../secret.jpg", "", "x\0y.jpg"])
def test_names_that_lead_out(tmp_path, name):
    image(tmp_path / "secret.jpg")
    content = files.coco_content()
    content["images"][1]["file_name"] = name
    root = files.coco(tmp_path / "data", content)
    with pytest.raises(ValueError, match=r"instances_val2017\.json: file name that leads out of the data folder"):
        read(root)
    data = read(root, on_error="skip")
    assert data.ids == ("val2017/x.jpg", "val2017/z.jpg")
    assert skipped(data.report) == {"file name that leads out of the data folder": 1, "image without an annotation": 1}


def test_other_names_that_lead_out(tmp_path):
    image(tmp_path / "secret.jpg")
    root = files.voc(tmp_path / "voc")
    write(root / "Annotations/a.xml", xml([("bed", 1, 1, 2, 2)], "../../secret.jpg"))
    assert "JPEGImages/a.jpg" in read(root, "train").ids  # by the annotation's own stem
    write(root / "ImageSets/Main/train.txt", "../../secret\na\na\n")
    assert skipped(read(root, "train", on_error="skip").report) == {
        "listed image without an annotation": 1,
        "image that is listed twice": 1,
    }
    root = files.cub(tmp_path / "cub")
    write(root / "images.txt", "1 ../../secret.jpg\n2 002.Red_Bird/b.jpg\n3 002.Red_Bird/c.jpg\n")
    with pytest.raises(ValueError, match=r"images\.txt: file name that leads out"):
        read(root, "test")
    root = files.tiny_imagenet(tmp_path / "tiny")
    write(root / "wnids.txt", "../..\n")
    with pytest.raises(ValueError, match=r"wnids\.txt: .* not a name inside the data folder"):
        read(root, "train")


def test_missing_and_doubled_images(tmp_path):
    root = files.voc(tmp_path / "voc")
    (root / "JPEGImages/a.jpg").unlink()
    (root / "JPEGImages/b.jpg").unlink()
    write(root / "Annotations/b.xml", xml([("bed", 1, 1, 2, 2)], "c.jpg"))
    with pytest.raises(ValueError, match=r"JPEGImages/a\.jpg: image that is missing \(named in Annotations/a\.xml\)"):
        read(root, "train")
    for order in ("c a b d", "b d c a"):  # c.jpg belongs to c.xml, whoever comes first
        write(root / "ImageSets/Main/train.txt", order.replace(" ", "\n"))
        data = read(root, "train", on_error="skip")
        assert skipped(data.report) == {"image that is missing": 1, "image that is listed twice": 1}
        assert data.labels[data.ids.index("JPEGImages/c.jpg")] == 2
    content = files.coco_content()
    content["images"] += [{"id": 7, "file_name": "y.jpg"}, {"id": 8, "file_name": "./x.jpg"}, {"id": 6}]
    root = files.coco(tmp_path / "coco", content)
    assert skipped(read(root, on_error="skip").report) == {
        "image with the id of another": 1,
        "image that is listed twice": 1,
        "image without an id or a file name": 1,
    }


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
    monkeypatch.setattr(_annotations, "MAX_JSON", 100)
    with pytest.raises(UnreadableError, match=r"instances_val2017\.json: the file has \d+ bytes; at most 100"):
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


@pytest.mark.parametrize(
    ("file", "content", "what"),
    [
        ("train_test_split.txt", "1 0\n2 1\n3 yes\n", "image of no split"),
        ("image_class_labels.txt", "1 1\n2 2\n3 7\n", "image without a class that classes.txt lists"),
        ("bounding_boxes.txt", "1 2 1 5.5 4\n2 0 0 20 10\n3 18 0 -5 5\n", INVERTED),
        ("images.txt", "1 001.Black_Bird/a.jpg\n2 002.Red_Bird/b.jpg\n3 002.Red_Bird/d.jpg\n", "image that is missing"),
    ],
)
def test_broken_lines_of_cub(tmp_path, file, content, what):
    root = files.cub(tmp_path)
    write(root / file, content)
    with pytest.raises(ValueError, match=what) as error:
        read(root, "test")
    one_sentence(error, "images/002.Red_Bird/")
    data = read(root, "test", on_error="skip")
    others = {"image without an annotation": 1} if file == "images.txt" else {}  # c.jpg, now that d.jpg has its line
    assert (data.ids, skipped(data.report)) == (("images/001.Black_Bird/a.jpg",), {what: 1} | others)


def test_tables_of_cub_that_are_not_tables(tmp_path):
    root = files.cub(tmp_path)
    write(root / "bounding_boxes.txt", "1 2 1 5.5 4\n2 0 0 20 10\n3\n")
    with pytest.raises(ValueError, match=r"bounding_boxes\.txt, line 3: line without a value for its id"):
        read(root, "test")
    data = read(root, "test", on_error="skip")
    assert data.ids == ("images/001.Black_Bird/a.jpg",)
    assert list(skipped(data.report).values()) == [1, 1]  # the line, and the image that has no box now
    write(root / "classes.txt", "1 001.Black_Bird\n1 002.Red_Bird\n")
    with pytest.raises(ValueError, match=r"classes\.txt, line 2: .* an id that was there before"):
        read(root, "test", on_error="skip")


def test_latin_1_class_names(tmp_path):
    root = files.tiny_imagenet(tmp_path)
    write(root / "words.txt", "n01\tGrünspecht\n", "latin-1")
    assert read(root, "val").classes == ("n02", "Grünspecht", "n03")
