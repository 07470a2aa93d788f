"""Readers of image folders and of label masks, on small data sets in the official layouts; expected values by hand."""

import re

import numpy as np
import pytest
from PIL import Image

from calibrant.data import ImageFiles, layouts, read, recognise
from calibrant.data.readers.cifar import CIFAR10, CIFAR100, SUPERCLASSES, cifar10, cifar100
from calibrant.data.readers.image_folder import PACS as PACS
from calibrant.data.readers.image_folder import image_folder, pacs
from calibrant.data.readers.segmentation import CITYSCAPES as CITYSCAPES
from calibrant.data.readers.segmentation import FROM_IDS, camvid, cityscapes
from calibrant.data.readers.voc import voc_segmentation


def picture(path, size=(5, 4), mode="RGB", color=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, color if color is not None else 0).save(path)


def mask(path, values, mode="L"):
    path.parent.mkdir(parents=True, exist_ok=True)
    array = np.array(values, dtype=np.uint8)
    image = Image.frombytes(mode, array.shape[::-1], array.tobytes())
    if mode == "P":
        image.putpalette([value for i in range(256) for value in (i, 255 - i, 7)])
    image.save(path)


def truncated(path):
    picture(path, size=(64, 64), color=(200, 10, 30))
    path.write_bytes(path.read_bytes()[:-150])


def skipped(data):
    return {f.what: (f.times, f.where) for f in data.report.skipped}


def odd(data):
    return {f.what: (f.times, f.where) for f in data.report.odd}


# Image folders


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
    assert odd(train) == {
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
    (times, places) = skipped(data)["image that cannot be read"]
    assert times == 3
    assert [place.partition(" (")[0] for place in places] == ["a/2.jpg", "b/3.png", "b/4.jpg"]
    assert all("the image is truncated or broken" in place and str(tmp_path) not in place[:40] for place in places)
    assert skipped(data)["hidden file"] == (1, ("b/._5.png",))


def test_what_is_no_image_folder_has_no_splits(tmp_path):
    kind = layouts()["image-folder"]
    (tmp_path / "file").write_text("x")
    picture(tmp_path / "only" / "x.jpg")
    assert kind.splits(tmp_path) == kind.splits(tmp_path / "file") == kind.splits(tmp_path / "nowhere") == ()
    with pytest.raises(ValueError, match="no known layout"):
        recognise(tmp_path)


# CIFAR as folders, PACS


def test_cifar_10_in_folders_has_the_official_order(tmp_path):
    for name in CIFAR10:
        picture(tmp_path / "test" / name / "0000.jpg", size=(32, 32))
    picture(tmp_path / "test" / "airplane" / "0001.jpg", size=(32, 32))
    assert recognise(tmp_path)[0].name == "cifar-10"
    data = cifar10(tmp_path, "test")
    assert data.labels.tolist() == [0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert data.ids[:3] == ("test/airplane/0000.jpg", "test/airplane/0001.jpg", "test/automobile/0000.jpg")
    with pytest.raises(ValueError, match="'train' was asked for, and the folder has the splits test"):
        cifar10(tmp_path, "train")


# The list that is passed around for CIFAR-100: the superclass of each of the hundred classes.
# fmt: off
COARSE = [
    4, 1, 14, 8, 0, 6, 7, 7, 18, 3, 3, 14, 9, 18, 7, 11, 3, 9, 7, 11, 6, 11, 5, 10, 7,
    6, 13, 15, 3, 15, 0, 11, 1, 10, 12, 14, 16, 9, 11, 5, 5, 19, 8, 8, 15, 13, 14, 17, 18, 10,
    16, 4, 17, 4, 2, 0, 17, 4, 18, 17, 10, 3, 2, 12, 12, 16, 12, 1, 9, 19, 2, 10, 0, 1, 16,
    12, 9, 13, 15, 13, 16, 19, 2, 4, 6, 19, 5, 5, 8, 19, 18, 1, 2, 15, 6, 0, 17, 8, 14, 13,
]
# fmt: on


def test_cifar_100_in_folders(tmp_path):
    assert len(CIFAR100) == 100
    assert CIFAR100[:3] == ("apple", "aquarium_fish", "baby")
    for name in CIFAR100:
        picture(tmp_path / "train" / name / "1.png", size=(32, 32))
    assert recognise(tmp_path)[0].name == "cifar-100"
    assert cifar100(tmp_path, "train").labels.tolist() == list(range(100))
    coarse = cifar100(tmp_path, "train", labels="coarse")
    assert coarse.labels.tolist() == COARSE
    assert coarse.classes == tuple(SUPERCLASSES) == tuple(sorted(SUPERCLASSES))
    with pytest.raises(ValueError, match="option labels must be 'fine' or 'coarse', got 'medium'"):
        cifar100(tmp_path, "train", labels="medium")


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


# Masks


@pytest.mark.parametrize("prefix", ["/SegNet/CamVid/", "CamVid/", ""])
def test_camvid_lists_with_any_prefix(tmp_path, prefix):
    root = tmp_path / "CamVid"
    for name, value in (("b", 3), ("a", 11)):
        picture(root / "train" / f"{name}.png", size=(3, 2))
        mask(root / "trainannot" / f"{name}.png", [[0, 1, value], [10, 2, value]])
    (root / "train.txt").write_text(
        f"{prefix}train/b.png {prefix}trainannot/b.png\n\n{prefix}train/a.png {prefix}trainannot/a.png\r\n"
    )
    data = read(tmp_path, "train")
    assert (data.name, len(data.classes), data.ignore_index) == ("camvid", 11, 11)
    assert data.ids == ("train/b.png", "train/a.png")
    assert data.labels.tolist() == [-1, -1]
    assert np.asarray(data[1].mask).tolist() == [[0, 1, 11], [10, 2, 11]]
    assert np.asarray(data.take([0])[0].mask).tolist() == [[0, 1, 3], [10, 2, 3]]
    assert isinstance(data.masks, ImageFiles)


def test_camvid_without_lists_and_with_broken_pairs(tmp_path):
    for name in ("1", "2", "3", "4", "5", "6", "7"):
        picture(tmp_path / "val" / f"{name}.jpg", size=(2, 1))
    mask(tmp_path / "valannot" / "1.png", [[0, 11]])
    mask(tmp_path / "valannot" / "2.png", [[0, 12]])
    mask(tmp_path / "valannot" / "3.png", [[0, 1, 2]])
    picture(tmp_path / "valannot" / "4.png", size=(2, 1), mode="RGB")
    mask(tmp_path / "valannot" / "6.png", [[0, 1]])
    truncated(tmp_path / "val" / "6.jpg")
    mask(tmp_path / "valannot" / "7.png", [[0, 1]])
    cut = (tmp_path / "valannot" / "7.png").read_bytes()[:45]
    (tmp_path / "valannot" / "7.png").write_bytes(cut)
    with pytest.raises(ValueError, match=r"val/5\.jpg: mask that is missing \(valannot/5\.png\)"):
        camvid(tmp_path, "val")
    data = camvid(tmp_path, "val", on_error="skip")
    assert data.ids == ("val/1.jpg",)
    found = {what: [place.partition(" (")[0] for place in where] for what, (_, where) in skipped(data).items()}
    assert found == {
        "mask that cannot be read": ["val/2.jpg", "val/4.jpg", "val/7.jpg"],
        "image and mask of different sizes": ["val/3.jpg"],
        "mask that is missing": ["val/5.jpg"],
        "image that cannot be read": ["val/6.jpg"],
    }
    assert "val/2.jpg (the mask holds the value 12, which is no label)" in str(data.report)
    mask(tmp_path / "valannot" / "5.png", [[0, 1]])
    data = camvid(tmp_path, "val")
    with pytest.raises(ValueError, match=r"2\.png: the mask holds the value 12, which is no label"):
        data.masks[1]
    with pytest.raises(ValueError, match=r"4\.png: a mask of 8-bit labels \(mode L or P\) is expected, got RGB"):
        data.masks[3]
    with pytest.raises(ValueError, match=r"7\.png: the image is truncated or broken"):
        data.masks[6]


def test_camvid_lists_that_lead_astray(tmp_path):
    picture(tmp_path / "outside.png")
    picture(tmp_path / "data" / "test" / "a.png", size=(2, 1))
    mask(tmp_path / "data" / "testannot" / "a.png", [[0, 1]])
    good = "test/a.png testannot/a.png\n"
    for line, message in (
        ("../outside.png testannot/a.png\n", "leads out of the data folder"),
        ("test/b.png testannot/a.png\n", "image that is missing"),
        ("test/a.png\n", "line 2: a line should name an image and a mask"),
        (good, "listed twice"),
    ):
        (tmp_path / "data" / "test.txt").write_text(good + line)
        with pytest.raises(ValueError, match=message):
            camvid(tmp_path / "data", "test")
        data = camvid(tmp_path / "data", "test", on_error="skip")
        assert data.ids == ("test/a.png",)
        assert data.report.skipped[0].times == 1


def test_cityscapes_maps_the_official_ids(tmp_path):
    for city, stem in (("ulm", "ulm_000001_000019"), ("aachen", "aachen_000000_000019")):
        picture(tmp_path / "leftImg8bit" / "train" / city / f"{stem}_leftImg8bit.png", size=(4, 1))
        mask(tmp_path / "gtFine" / "train" / city / f"{stem}_gtFine_labelIds.png", [[7, 33, 0, 255]])
    data = read(tmp_path, "train")
    assert data.name == "cityscapes"
    assert data.groups == ("aachen", "ulm")
    assert data.ids[0] == "leftImg8bit/train/aachen/aachen_000000_000019_leftImg8bit.png"
    assert np.asarray(data[1].mask).tolist() == [[0, 18, 255, 255]]
    for city, stem in (("ulm", "ulm_000001_000019"), ("aachen", "aachen_000000_000019")):
        mask(tmp_path / "gtFine" / "train" / city / f"{stem}_gtFine_labelTrainIds.png", [[18, 0, 255, 33]])
    with pytest.raises(ValueError, match=r"aachen.*labelTrainIds\.png: the mask holds the value 33"):
        cityscapes(tmp_path, "train")[0]


def test_the_cityscapes_table_is_torchvisions():
    from calibrant._torchvision import ensure

    ensure()
    from torchvision.datasets import Cityscapes

    for c in Cityscapes.classes:
        assert FROM_IDS[c.id] == (c.train_id if 0 <= c.train_id < 19 else 255), c.name  # id -1 is stored as 255
        if 0 <= c.train_id < 19:
            assert list(CITYSCAPES)[c.train_id] == c.name
    assert FROM_IDS[34] == -1


def test_voc_masks_are_palette_indices(tmp_path):
    root = tmp_path / "VOCdevkit" / "VOC2012"
    lists = root / "ImageSets" / "Segmentation"
    lists.mkdir(parents=True)
    for stem in ("2007_000032", "2007_000039", "2008_000003"):
        picture(root / "JPEGImages" / f"{stem}.jpg", size=(3, 2))
    mask(root / "SegmentationClass" / "2007_000032.png", [[0, 20, 255], [15, 0, 0]], mode="P")
    mask(root / "SegmentationClass" / "2007_000039.png", [[0, 21, 255], [15, 0, 0]], mode="P")
    mask(root / "SegmentationClassAug" / "2008_000003.png", [[1, 2, 3], [4, 5, 6]])
    (lists / "train.txt").write_text("2007_000032\n")
    (lists / "val.txt").write_text("2007_000039\n2008_000003\n../../../etc/passwd\n")
    (lists / "train_aug.txt").write_text("/JPEGImages/2008_000003.jpg /SegmentationClassAug/2008_000003.png\n")
    assert layouts()["voc-segmentation"].splits(root) == ("train", "val", "train_aug")
    data = voc_segmentation(root, "train")
    assert (data.ids, len(data.classes), data.ignore_index) == (("JPEGImages/2007_000032.jpg",), 21, 255)
    assert np.asarray(data[0].mask).tolist() == [[0, 20, 255], [15, 0, 0]]
    assert np.asarray(voc_segmentation(root, "train_aug")[0].mask).tolist() == [[1, 2, 3], [4, 5, 6]]
    reasons = "mask that cannot be read (1), mask that is missing (1), file name that leads out of the data folder (1)"
    with pytest.raises(ValueError, match=re.escape(f"'val' holds no image that can be used: {reasons}")):
        voc_segmentation(root, "val", on_error="skip")
