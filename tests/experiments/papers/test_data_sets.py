"""Which data set a folder or a run has: fake folders of idx files, in the official layout."""

import gzip
import struct

import numpy as np
import pytest

from calibrant.data import find_mnist, read
from calibrant.data.readers.mnist import FIRST_LABELS
from calibrant.experiments.papers.data_sets import PUBLISHED, data_of, find_data, parse_folders
from calibrant.recipes import names
from tests.helpers.errors import facts

MNIST, FASHION = "lr_mnist_mlp", "lr_fashion_mnist_mlp"


def write_idx(home, first=None, packed=False, samples=12):
    """Files of MNIST's layout whose labels begin as those of a data set, or with zeros."""
    home.mkdir(parents=True)
    for split, part in (("train", "train"), ("test", "t10k")):
        labels = np.resize(np.array(FIRST_LABELS[first][split] if first else [0]), samples).astype(np.uint8)
        images = np.zeros((samples, 28, 28), np.uint8)
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            data = struct.pack(f">{1 + array.ndim}I", 0x800 + array.ndim, *array.shape) + array.tobytes()
            name = f"{part}-{kind}-ubyte"
            (home / f"{name}.gz").write_bytes(gzip.compress(data)) if packed else (home / name).write_bytes(data)
    return home


def test_every_recipe_of_a_paper_has_a_data_set():
    for name in names():
        if not name.startswith("small/") and name.partition("_")[0] in ("acls", "als", "lr", "mbls", "sc"):
            data = data_of(name)
            assert data is not None, name
            assert data.classes > 1
    assert data_of("small/scenes") is None
    assert len({data.name for data in PUBLISHED.values()}) == len(PUBLISHED)


@pytest.mark.parametrize(
    ("samples", "val_of", "fits"),
    [
        ({"train": 45_000, "val": 5_000, "test": 10_000}, "train", True),
        ({"train": 50_000, "test": 10_000}, "train", True),
        ({"train": 50_000, "val": 5_000, "test": 5_000}, "test", True),
        ({"train": 450, "val": 50, "test": 100}, "train", False),
        ({"train": 1_000, "test": 10_000}, "train", False),  # trained on a part
        ({"train": 50_000, "test": 1_000}, "train", False),
        ({"test": 10_000}, "train", True),  # of before sizes were recorded
        ({"test": 9_999}, "train", False),
    ],
)
def test_the_samples_of_a_run_are_all_of_the_data_set(samples, val_of, fits):
    assert data_of("acls_cifar10_resnet50").has_sizes(samples, val_of=val_of, redrawn=False) is fits
    for scale, redrawn in ((1, True), (10, False)):  # merged and drawn again, data count together
        assert (
            data_of(MNIST).has_sizes({"train": 60_000 // scale, "test": 10_000 // scale}, val_of="train", redrawn=True)
            is redrawn
        )


@pytest.mark.parametrize("packed", [False, True])
def test_labels_tell_mnist_and_fashion_mnist_apart_whatever_the_folder_is_called(tmp_path, packed):
    plain = write_idx(tmp_path / "fashion" / "a", "mnist", packed)
    fashion = write_idx(tmp_path / "mnist" / "b", "fashion-mnist", packed)
    assert find_mnist(tmp_path) == {plain: "mnist", fashion: "fashion-mnist"}
    assert read(fashion, "train").classes[0] == "T-shirt/top"
    assert read(plain, "train").classes[0] == "0"
    assert find_data(MNIST, str(tmp_path), {}) == str(plain)
    assert find_data(FASHION, str(tmp_path), {}) == str(fashion)


def test_a_folder_with_both_gives_each_recipe_its_own(tmp_path):
    for name in ("MNIST", "FashionMNIST"):
        write_idx(tmp_path / name / "raw")
    assert find_data(MNIST, str(tmp_path), {}).endswith("/MNIST/raw")
    assert find_data(FASHION, str(tmp_path), {}).endswith("/FashionMNIST/raw")


def test_mnist_alone_is_not_taken_for_fashion_mnist(tmp_path):
    write_idx(tmp_path / "MNIST" / "raw", "mnist")
    with pytest.raises(ValueError, match=facts("Fashion-MNIST", "mnist", "--data fashion-mnist=DIR")):
        find_data(FASHION, str(tmp_path), {})
    with pytest.raises(ValueError, match=facts("mnist")):  # a name does not change what the files are
        find_data(FASHION, None, {"fashion-mnist": str(tmp_path)})


def test_files_that_do_not_say_are_asked_for_by_name(tmp_path):
    home = write_idx(tmp_path / "a")
    with pytest.raises(ValueError, match=facts("--data mnist=DIR")):
        find_data(MNIST, str(home), {})
    assert find_data(FASHION, None, {"fashion-mnist": str(home)}) == str(home)
    with pytest.raises(ValueError, match=facts("mnist", "fashion-mnist")):
        find_data(FASHION, None, {"fashion-mnist": str(home), "mnist": str(tmp_path / "." / "a")})


def test_folders_are_given_plain_or_by_name(tmp_path):
    recipes = [MNIST, FASHION]
    odd = tmp_path / "mnist=x"
    odd.mkdir()
    assert parse_folders([str(tmp_path), "fashion-mnist=b"], recipes) == (str(tmp_path), {"fashion-mnist": "b"})
    assert parse_folders([str(odd)], recipes) == (str(odd), {})
    with pytest.raises(ValueError, match=facts("fashion-mnist")):
        parse_folders(["fashon-mnist=b"], recipes)
    with pytest.raises(ValueError, match=facts("mnist")):
        parse_folders(["mnist=a", "mnist=b"], recipes)
    with pytest.raises(ValueError, match=facts("mnist=")):
        parse_folders(["mnist="], recipes)
    with pytest.raises(ValueError, match=facts("NAME=DIR")):
        parse_folders([str(tmp_path), str(odd)], recipes)
