"""Links that lead out, nowhere or in a circle, in every layout."""

import os
import sys

import pytest
from PIL import Image

from calibrant.data import read
from calibrant.data.files import files_below
from calibrant.data.readers._folder import HIDDEN
from tests.helpers import box_files as files
from tests.helpers.box_files import image, odd, skipped, write
from tests.helpers.errors import facts
from tests.helpers.reader_data import NOWHERE, OUT

MAKE = {
    "voc": ("JPEGImages", "train"),
    "coco": ("val2017", "val2017"),
    "tiny_imagenet": ("val/images", "val"),
    "cub": ("images", "test"),
    "open_images": ("train", "train"),
}


def two_classes(root):
    for name in ("a/1.jpg", "b/2.jpg"):
        image(root / name)
    return root


@pytest.mark.parametrize("what", [OUT, NOWHERE])
@pytest.mark.parametrize("reader", MAKE)
def test_links_that_lead_out_or_nowhere(tmp_path, reader, what):
    outside = image(tmp_path / "secret.jpg")
    root = getattr(files, reader)(tmp_path / "data")
    folder, split = MAKE[reader]
    whole = read(root, split, on_error="skip")
    os.symlink(outside if what == OUT else tmp_path / "gone.jpg", root / folder / "link.jpg")
    with pytest.raises(ValueError, match=facts(f"{folder}/link.jpg")):
        read(root, split)
    data = read(root, split, on_error="skip")
    assert data.ids == whole.ids
    assert skipped(data.report) == skipped(whole.report) | {what: 1}


def test_an_annotated_link_is_reported_once(tmp_path):
    root = files.coco(tmp_path / "data")
    (root / "val2017/y.jpg").unlink()
    (root / "val2017/y.jpg").symlink_to(image(tmp_path / "secret.jpg"))
    data = read(root, on_error="skip")
    assert (data.ids, skipped(data.report)) == (("val2017/x.jpg", "val2017/z.jpg"), {OUT: 1})


def test_links_inside_the_data_folder_work(tmp_path):
    root = files.coco(tmp_path / "data")
    (root / "store").mkdir()
    (root / "val2017/y.jpg").rename(root / "store/1.jpg")
    (root / "val2017/y.jpg").symlink_to("../store/1.jpg")
    assert read(root).ids == ("val2017/x.jpg", "val2017/y.jpg", "val2017/z.jpg")
    (tmp_path / "entry").symlink_to(root)  # the data folder itself may be a link
    data = read(tmp_path / "entry")
    assert (data.name, data.ids, data[1].input.size) == ("entry", read(root).ids, (20, 10))


def test_class_folders_that_are_links(tmp_path):
    root = two_classes(tmp_path / "data")
    image(tmp_path / "elsewhere/3.jpg")
    image(root / "b/.store/4.jpg")
    (root / "c").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match=r"^c: "):
        read(root)
    data = read(root, on_error="skip")
    assert data.ids == ("a/1.jpg", "b/2.jpg")
    assert skipped(data.report) == {HIDDEN: 1, OUT: 1}
    assert odd(data.report) == {"class folder without images": 1}
    (root / "c").unlink()
    (root / "c").symlink_to("b/.store")
    assert read(root).ids == ("a/1.jpg", "b/2.jpg", "c/4.jpg")


def test_links_in_a_circle_end(tmp_path):
    root = two_classes(tmp_path / "data")
    image(root / "other/3.jpg")
    (root / "a/up").symlink_to("..")
    (root / "a/self").symlink_to("self")
    (root / "a/here").symlink_to(".")
    (root / "a/other").symlink_to("../other")
    (root / "other/back").symlink_to("../a")
    (root / "other/again").symlink_to("../other")
    trouble = []
    assert list(files_below(root / "a", home=root, on_problem=lambda *t: trouble.append(t))) == ["1.jpg", "other/3.jpg"]
    assert trouble == [("a/self", NOWHERE)]


@pytest.mark.parametrize("name", ["loop", "loop.jpg"])
def test_a_link_to_itself_hinders_nobody(tmp_path, name):
    root = two_classes(tmp_path / "data")
    (root / name).symlink_to(name)
    assert read(root).ids == ("a/1.jpg", "b/2.jpg")
    root = flat_imagenet(tmp_path / "imagenet")
    (root / "val/loop.JPEG").symlink_to("loop.JPEG")
    data = read(root, "val", on_error="skip")
    assert (data.ids, skipped(data.report)) == (("val/ILSVRC2012_val_00000001.JPEG",), {NOWHERE: 1, HIDDEN: 1})


def flat_imagenet(root):
    image(root / "val/ILSVRC2012_val_00000001.JPEG")
    image(root / "val/._ILSVRC2012_val_00000001.JPEG")
    write(root / "LOC_val_solution.csv", "ImageId,PredictionString\nILSVRC2012_val_00000001,n00000005 1 2 3 4\n")
    return root


def test_a_file_that_nobody_asks_for_may_be_any_link(tmp_path):
    root = two_classes(tmp_path / "data")
    write(tmp_path / "README.txt", "x")
    (root / "a/README.txt").symlink_to(tmp_path / "README.txt")
    assert read(root).ids == ("a/1.jpg", "b/2.jpg")


def test_folders_in_folders_without_end(tmp_path, monkeypatch):
    root = two_classes(tmp_path / "data")
    monkeypatch.chdir(root / "a")
    depth = sys.getrecursionlimit()
    for _ in range(depth):
        os.mkdir("d")
        os.chdir("d")
    try:
        with pytest.raises(ValueError, match=facts("64")):
            read(root)
        data = read(root, on_error="skip")
        assert (data.ids, list(skipped(data.report).values())) == (("a/1.jpg", "b/2.jpg"), [1])
    finally:  # pytest's clean-up recurses, and would not come to the end of it
        for _ in range(depth):
            os.chdir("..")
            os.rmdir("d")


@pytest.mark.parametrize(
    ("reader", "file"),
    [
        ("coco", "annotations/instances_val2017.json"),
        ("cub", "images.txt"),
        ("tiny_imagenet", "val/val_annotations.txt"),
        ("tiny_imagenet", "words.txt"),
        ("open_images", "oidv6-train-annotations-bbox.csv"),
        ("voc", "ImageSets/Main/train.txt"),
    ],
)
def test_annotation_files_that_are_links(tmp_path, reader, file):
    root = getattr(files, reader)(tmp_path / "data")
    split = MAKE[reader][1]
    ids = read(root, split).ids
    (root / file).rename(root / "kept")
    (root / file).symlink_to(root / "kept")
    assert read(root, split).ids == ids
    (root / "kept").rename(tmp_path / "secret")
    (root / file).unlink()
    (root / file).symlink_to(tmp_path / "secret")
    with pytest.raises(ValueError, match=facts(file.rpartition("/")[2])):
        read(root, split, on_error="skip")


@pytest.mark.parametrize("name", ["loop.png", "x" * 5000])
def test_lists_that_name_links_to_themselves_or_too_much(tmp_path, name):
    for folder in ("test", "testannot"):
        Image.new("L", (2, 1)).save(write(tmp_path / folder / "a.png", ""))
    (tmp_path / "test/loop.png").symlink_to("loop.png")
    write(tmp_path / "test.txt", f"test/a.png testannot/a.png\ntest/{name} testannot/a.png\n")
    with pytest.raises(ValueError, match="test/"):
        read(tmp_path, "test")
    data = read(tmp_path, "test", on_error="skip")
    assert data.ids == ("test/a.png",)
    assert sum(skipped(data.report).values()) == 1
