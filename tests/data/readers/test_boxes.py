"""Boxes that are broken, and images that are missing, in every layout that has boxes; and XML nobody vouches for."""

import numpy as np
import pytest
from PIL import Image

from calibrant.data import read
from calibrant.data.files import UnreadableError
from calibrant.data.readers._boxes import MAX_XML, parse_annotation, parse_number
from tests.helpers import box_files as files
from tests.helpers.box_files import cut, image, odd, skipped, write, xml
from tests.helpers.errors import facts
from tests.helpers.reader_data import INVERTED, NO_NUMBERS, ROTATED, one_sentence, saved


def test_broken_images_are_found_when_opened_or_when_decoded(tmp_path):
    root = files.cub(tmp_path)
    image(root / "images/001.Black_Bird/a.jpg", (200, 200))
    cut(root / "images/001.Black_Bird/a.jpg")
    write(root / "images/002.Red_Bird/c.jpg", b"")
    data = read(root, "test")
    for i in range(2):
        with pytest.raises(UnreadableError, match=r"(a|c).jpg: the image is truncated or broken"):
            data[i]
    write(root / "train_test_split.txt", "1 0\n2 0\n3 0\n")
    data = read(root, "test", on_error="skip")
    assert data.ids == ("images/002.Red_Bird/b.jpg",)
    assert skipped(data.report) == {"image that cannot be read": 2}


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


@pytest.mark.parametrize(
    "size", [{"width": 0, "height": 0}, {"width": "x", "height": 10**99}, {"width": 19, "height": 9}]
)
def test_sizes_that_are_not_the_image_s(tmp_path, size):
    content = files.coco_content()
    content["images"][0] |= size
    data = read(files.coco(tmp_path, content), on_error="skip")
    assert odd(data.report)["size in the annotation that is not the image's"] == 1
    assert odd(data.report)["box that leaves the image"] == 1  # that of y, as before


def test_an_exif_rotation_beside_boxes_and_broken_metadata(tmp_path):
    root = files.cub(tmp_path)
    exif = Image.Exif()
    exif[0x0112] = 3
    saved(root / "images/001.Black_Bird/a.jpg", np.zeros((10, 20, 3), dtype=np.uint8), exif=exif)
    assert odd(read(root, "test", on_error="skip").report)[ROTATED] == 1
    saved(root / "images/001.Black_Bird/a.jpg", np.zeros((10, 20, 3), dtype=np.uint8), exif=b"Exif\0\0MM\0*\xff\xff")
    data = read(root, "test", on_error="skip")
    assert len(data) == 2
    assert ROTATED not in odd(data.report)


@pytest.mark.parametrize(
    "value", ["", "x", "nan", "inf", "1e400", "1_000", "1,5", None, True, [1], float("nan"), 10**400]
)
def test_what_is_not_a_number(value):
    with pytest.raises(ValueError, match="coordinate"):
        parse_number(value)


def test_numbers():
    assert [parse_number(v) for v in (" 12 ", "-3.5", "1e2", ".5", 7, 2.25)] == [12, -3.5, 100, 0.5, 7, 2.25]


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
    with pytest.raises(UnreadableError, match=facts("deep.xml", "XML")):
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
