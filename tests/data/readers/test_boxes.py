"""Boxes that are broken, and images that are missing, in every layout that has boxes."""

import numpy as np
import pytest
from PIL import Image

from calibrant.data import read
from calibrant.data.files import UnreadableError
from tests.helpers import box_files as files
from tests.helpers.box_files import cut, image, odd, skipped, write, xml
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
