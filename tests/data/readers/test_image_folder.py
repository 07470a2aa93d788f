"""Images in class folders, PACS, and CUB's tables, sound and broken."""

import pytest

from calibrant.data import layouts, read, recognise
from calibrant.data.readers._folder import HIDDEN, MISSING, NAME_OUT, TWICE, UNREADABLE
from calibrant.data.readers.image_folder import DOMAINS, PACS, image_folder, pacs
from tests.helpers import box_files as files
from tests.helpers.box_files import image, odd, skipped, write
from tests.helpers.errors import facts
from tests.helpers.reader_data import (
    INVERTED,
    MODES,
    NO_ANNOTATION,
    odd_in,
    one_sentence,
    picture,
    skipped_in,
    truncated,
    where,
)


@pytest.mark.parametrize(
    "names",
    [
        ("train2017", "val2017", "annotations"),
        ("Train2014", "cat", "dog"),
        ("images", "masks"),
        ("Images", "labels"),
        ("JPEGImages", "SegmentationClass"),
        ("train", "train_labels", "val"),
        ("testing", "trainannot"),
        ("frames", "frames_masks"),
        ("701_StillsRaw_full", "LabeledApproved_full"),
        ("train", "test"),
    ],
)
def test_parts_of_other_layouts_are_no_classes(tmp_path, names):
    for name in names:
        image(tmp_path / name / "1.png")
    assert layouts()["image-folder"].splits(tmp_path) == ()
    (tmp_path / "train" / "inner").mkdir(parents=True, exist_ok=True)
    assert layouts()["image-folder"].splits(tmp_path) == ()


def test_classes_that_are_called_nearly_so(tmp_path):
    for name in ("train", "bus", "mask", "no_mask", "label"):  # a train is a class here
        image(tmp_path / "set" / name / "1.png")
    assert read(tmp_path / "set").classes == ("bus", "label", "mask", "no_mask", "train")


@pytest.mark.parametrize("place", ["", "Train val splits and h5py files pre-read"])
def test_pacs_lists(tmp_path, place):
    for domain in DOMAINS:
        for name in PACS:
            image(tmp_path / domain / name / "1.jpg")
    image(tmp_path / "photo/dog/2.jpg")
    lines = "kfold/photo/person/1.jpg 7\nphoto/dog/2.jpg 1\n\nphoto/dog/1.jpg 1\n"
    write(tmp_path / place / "photo_train_kfold.txt", lines)
    assert layouts()["pacs"].splits(tmp_path) == (*DOMAINS, "all", "photo-train")
    data = pacs(tmp_path, "photo-train")
    assert data.ids == ("photo/person/1.jpg", "photo/dog/2.jpg", "photo/dog/1.jpg")
    assert (data.labels.tolist(), data.groups) == ([6, 0, 0], ("photo",) * 3)
    assert len(pacs(tmp_path, "all")) == 29
    for line, what in (
        ("photo/dog/1.jpg 2", "label in the list that is not its folder's"),
        ("photo/dog/1.jpg", "line that names no image of the domain"),
        ("sketch/dog/1.jpg 1", "line that names no image of the domain"),
        ("photo/dog/9.jpg 1", MISSING),
        ("photo/dog/.. 1", NAME_OUT),
        ("photo/dog/2.jpg 1", TWICE),
    ):
        write(tmp_path / place / "photo_train_kfold.txt", f"photo/dog/2.jpg 1\n{line}\n")
        with pytest.raises(ValueError, match=what):
            pacs(tmp_path, "photo-train")
        data = pacs(tmp_path, "photo-train", on_error="skip")
        assert (data.ids, skipped(data.report), odd(data.report)) == (("photo/dog/2.jpg",), {what: 1}, {})


@pytest.fixture
def folder(tmp_path):
    for name in ("train/cat/b.jpg", "train/cat/deep/a.PNG", "train/ant/1.png", "val/cat/x.jpg", "val/dog/y.jpg"):
        picture(tmp_path / name)
    (tmp_path / "train" / "cat" / "notes.txt").write_text("no image")
    (tmp_path / "train" / "bee").mkdir()
    (tmp_path / "train" / ".ipynb_checkpoints").mkdir()
    picture(tmp_path / "test" / "unlabelled.jpg")
    return tmp_path


def test_classes_are_those_of_all_splits_in_the_order_of_the_alphabet(folder):
    assert recognise(folder)[0].splits(folder) == ("train", "val")
    train, val = read(folder, "train"), read(folder, "val")
    assert train.classes == val.classes == ("ant", "bee", "cat", "dog")
    assert train.ids == ("train/ant/1.png", "train/cat/b.jpg", "train/cat/deep/a.PNG")
    assert train.labels.tolist() == [0, 2, 2]
    assert val.ids == ("val/cat/x.jpg", "val/dog/y.jpg")
    assert val.labels.tolist() == [2, 3]
    assert odd_in(train) == {
        "class folder that only other splits have": (1, ("train/dog",)),
        "class folder without images": (1, ("train/bee",)),
    }
    assert train[1].input.size == (5, 4)


def test_without_splits_the_labels_are_those_of_torchvision(tmp_path):
    from calibrant._torchvision import ensure

    ensure()
    from torchvision.datasets import ImageFolder

    for name in ("zebra/1.png", "Ape/1.png", "ape/2.png", "ape/10.png", "zebra/0/3.png"):
        picture(tmp_path / name)
    data, theirs = read(tmp_path), ImageFolder(str(tmp_path))
    assert data.split == "all"
    assert list(data.classes) == theirs.classes
    assert {str(tmp_path / i): k for i, k in zip(data.ids, data.labels.tolist(), strict=True)} == dict(theirs.samples)


@pytest.mark.parametrize("mode", ["L", "CMYK", "1", "RGB"])
def test_images_of_every_mode_are_read_as_rgb(tmp_path, mode):
    suffix = "png" if mode == "1" else "jpg"
    picture(tmp_path / "a" / f"x.{suffix}", mode=mode)
    picture(tmp_path / "b" / f"x.{suffix}")
    assert image_folder(tmp_path, "all")[0].input.mode == "RGB"


def test_broken_images_are_errors_when_read_or_skipped_at_once(tmp_path):
    picture(tmp_path / "a" / "1.jpg")
    truncated(tmp_path / "a" / "2.jpg")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "3.png").write_bytes(b"")
    (tmp_path / "b" / "4.jpg").write_text("no image")
    picture(tmp_path / "b" / "5.png")
    (tmp_path / "b" / "._5.png").write_bytes(b"\0\5\x16\7")
    data = image_folder(tmp_path, "all")
    assert data.ids == ("a/1.jpg", "a/2.jpg", "b/3.png", "b/4.jpg", "b/5.png")
    for i, name in ((1, "2.jpg"), (2, "3.png"), (3, "4.jpg")):
        with pytest.raises(ValueError, match=name):
            data[i]
    data = image_folder(tmp_path, "all", on_error="skip")
    assert data.ids == ("a/1.jpg", "b/5.png")
    assert data.labels.tolist() == [0, 1]
    (times, places) = skipped_in(data)[UNREADABLE]
    assert times == 3
    assert [place.partition(" (")[0] for place in places] == ["a/2.jpg", "b/3.png", "b/4.jpg"]
    assert skipped_in(data)[HIDDEN] == (1, ("b/._5.png",))


def test_what_is_no_image_folder_has_no_splits(tmp_path):
    kind = layouts()["image-folder"]
    (tmp_path / "file").write_text("x")
    picture(tmp_path / "only" / "x.jpg")
    assert kind.splits(tmp_path) == kind.splits(tmp_path / "file") == kind.splits(tmp_path / "nowhere") == ()
    with pytest.raises(ValueError, match=facts(str(tmp_path))):
        recognise(tmp_path)


def test_pacs_has_its_domains_as_splits_and_as_groups(tmp_path):
    for domain, suffix in (("photo", "jpg"), ("sketch", "png")):
        for name in PACS:
            picture(tmp_path / "PACS" / domain / name / f"1.{suffix}")
    kind, root = recognise(tmp_path)
    assert (kind.name, root, kind.splits(root)) == ("pacs", tmp_path / "PACS", ("photo", "sketch", "all"))
    data = pacs(root, "sketch")
    assert data.ids[:2] == ("sketch/dog/1.png", "sketch/elephant/1.png")
    assert data.labels.tolist() == [0, 1, 2, 3, 4, 5, 6]
    whole = pacs(root, "all")
    assert whole.groups == ("photo",) * 7 + ("sketch",) * 7
    assert whole.labels.tolist() == 2 * [0, 1, 2, 3, 4, 5, 6]


@MODES
def test_cub(tmp_path, mode):
    root = files.cub(tmp_path)
    data = read(root, "test", on_error=mode)
    assert data.classes == ("Black Bird", "Red Bird")
    assert data.ids == ("images/001.Black_Bird/a.jpg", "images/002.Red_Bird/c.jpg")
    assert data.labels.tolist() == [0, 1]
    assert data.boxes.corners.tolist() == [[2, 1, 7.5, 5], [18, 0, 23, 5]]
    assert odd(data.report) == ({"box that leaves the image": 1} if mode == "skip" else {})  # the size is in no file
    assert read(root, "train", on_error=mode).ids == ("images/002.Red_Bird/b.jpg",)


@pytest.mark.parametrize(
    ("file", "content", "what"),
    [
        ("train_test_split.txt", "1 0\n2 1\n3 yes\n", "image of no split"),
        ("image_class_labels.txt", "1 1\n2 2\n3 7\n", "image without a class that classes.txt lists"),
        ("bounding_boxes.txt", "1 2 1 5.5 4\n2 0 0 20 10\n3 18 0 -5 5\n", INVERTED),
        ("images.txt", "1 001.Black_Bird/a.jpg\n2 002.Red_Bird/b.jpg\n3 002.Red_Bird/d.jpg\n", MISSING),
    ],
)
def test_broken_lines_of_cub(tmp_path, file, content, what):
    root = files.cub(tmp_path)
    write(root / file, content)
    with pytest.raises(ValueError, match=what) as error:
        read(root, "test")
    one_sentence(error, "images/002.Red_Bird/")
    data = read(root, "test", on_error="skip")
    others = {NO_ANNOTATION: 1} if file == "images.txt" else {}  # c.jpg, now that d.jpg has its line
    assert (data.ids, skipped(data.report)) == (("images/001.Black_Bird/a.jpg",), {what: 1} | others)


def test_tables_of_cub_that_are_not_tables(tmp_path):
    root = files.cub(tmp_path)
    write(root / "bounding_boxes.txt", "1 2 1 5.5 4\n2 0 0 20 10\n3\n")
    with pytest.raises(ValueError, match=facts("bounding_boxes.txt", "3")):
        read(root, "test")
    data = read(root, "test", on_error="skip")
    assert data.ids == ("images/001.Black_Bird/a.jpg",)
    assert list(skipped(data.report).values()) == [1, 1]  # the line, and the image that has no box now
    write(root / "classes.txt", "1 001.Black_Bird\n1 002.Red_Bird\n")
    with pytest.raises(ValueError, match=facts("classes.txt", "2")):
        read(root, "test", on_error="skip")


def test_cub_images_that_no_line_lists(tmp_path):
    root = files.cub(tmp_path)
    image(root / "images/002.Red_Bird/u.jpg")
    for split in ("train", "test"):
        assert where(read(root, split).report.skipped) == {NO_ANNOTATION: ("images/002.Red_Bird/u.jpg",)}
