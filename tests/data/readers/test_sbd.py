"""VOC's augmented training set: masks that SciPy wrote as MATLAB files, and the list that follows from four lists."""

import re

import numpy as np
import pytest
from scipy.io import savemat

from calibrant.data import read
from tests.data.readers.test_voc import mask, picture

LISTS = "ImageSets/Segmentation"


def mat(path, labels):
    path.parent.mkdir(parents=True, exist_ok=True)
    savemat(path, {"GTcls": {"Segmentation": np.array(labels, np.uint8), "Boundaries": np.zeros((2, 3))}})


@pytest.fixture
def root(tmp_path):
    """Own training images a and b, validation c; SBD has b (also VOC's), c (left out), d and e."""
    home = tmp_path / "VOC2012"
    for stem in "abcde":
        picture(home / "JPEGImages" / f"{stem}.jpg", size=(3, 2))
    for stem in "abc":
        mask(home / "SegmentationClass" / f"{stem}.png", [[0, 1, 255], [15, 0, 0]], mode="P")
    (home / LISTS).mkdir(parents=True)
    (home / LISTS / "train.txt").write_text("a\nb\n")
    (home / LISTS / "val.txt").write_text("c\n")
    return home


def with_sbd(root, name="SBD"):
    for k, stem in enumerate("bcde"):
        mat(root / name / "cls" / f"{stem}.mat", [[k, 2, 3], [4, 5, 20]])
    (root / name / "train.txt").write_text("b\nd\n")
    (root / name / "val.txt").write_text("c\ne\n")


@pytest.mark.parametrize("name", ["SBD", "benchmark_RELEASE/dataset"])
def test_the_list_follows_from_the_lists_of_both(root, name):
    with_sbd(root, name)
    data = read(root, "train_aug", layout="voc-segmentation")
    assert data.ids == tuple(f"JPEGImages/{stem}.jpg" for stem in "abde")
    labels = [np.asarray(data[k].mask).tolist() for k in range(4)]
    own = [[0, 1, 255], [15, 0, 0]]
    assert labels == [own, own, [[2, 2, 3], [4, 5, 20]], [[3, 2, 3], [4, 5, 20]]]  # b has VOC's own mask
    assert np.asarray(data.take(np.array([3]))[0].mask).tolist() == labels[3]


def test_a_list_of_the_user_comes_first(root):
    with_sbd(root)
    (root / "SegmentationClassAug").mkdir()
    (root / LISTS / "train_aug.txt").write_text("e\na\n")
    data = read(root, "train_aug", layout="voc-segmentation")
    assert data.ids == ("JPEGImages/e.jpg", "JPEGImages/a.jpg")
    assert np.asarray(data[0].mask).tolist() == [[3, 2, 3], [4, 5, 20]]


def test_without_sbd_it_is_said_what_is_needed(root):
    expected = "split 'train_aug' was asked for, and voc-segmentation has train, val; it needs SBD: "
    with pytest.raises(ValueError, match=re.escape(expected)):
        read(root, "train_aug", layout="voc-segmentation")


def test_files_that_are_no_masks_are_said_in_a_sentence(root):
    with_sbd(root)
    (root / "SBD/cls/d.mat").write_bytes(b"MATLAB 5.0 MAT-file, cut")
    savemat(root / "SBD/cls/e.mat", {"GTcls": {"Segmentation": np.zeros((2, 3))}})
    data = read(root, "train_aug", layout="voc-segmentation")
    with pytest.raises(ValueError, match=r"d\.mat: not a mask of SBD"):
        data.masks[2]
    with pytest.raises(ValueError, match=r"e\.mat: GTcls\.Segmentation must be an array of 8-bit labels"):
        data.masks[3]
