"""MNIST wherever it lies, and idx files that lie."""

import gzip
import struct

import numpy as np
import pytest

from calibrant.data import read, recognise
from calibrant.data.readers.mnist import FASHION, mnist
from tests.helpers.errors import facts
from tests.helpers.reader_data import skipped_in


def idx(array):
    return struct.pack(f">{1 + array.ndim}I", 0x800 + array.ndim, *array.shape) + array.tobytes()


DRAWN = np.random.default_rng(7).integers(0, 256, (4, 3, 2), dtype=np.uint8)


DIGITS = np.array([7, 0, 9, 3], dtype=np.uint8)


@pytest.mark.parametrize(
    ("folder", "dot", "packed"),
    [("", "-", False), ("MNIST/raw", "-", True), ("raw", ".", False), ("FashionMNIST/raw", ".", True)],
)
def test_mnist_wherever_it_is(tmp_path, folder, dot, packed):
    home = tmp_path / folder
    home.mkdir(parents=True, exist_ok=True)
    for name, array in (("images", DRAWN), ("labels", DIGITS)):
        data = gzip.compress(idx(array)) if packed else idx(array)
        (home / f"t10k-{name}{dot}idx{array.ndim}-ubyte{'.gz' if packed else ''}").write_bytes(data)
    data = mnist(tmp_path, "test")
    fashion = folder.startswith("Fashion")
    assert (data.name, data.classes) == (("fashion-mnist", FASHION) if fashion else ("mnist", tuple("0123456789")))
    assert data.labels.tolist() == [7, 0, 9, 3]
    assert data.ids == ("test/00000", "test/00001", "test/00002", "test/00003")
    assert np.asarray(data[2].input).tolist() == np.repeat(DRAWN[2, :, :, None], 3, axis=2).tolist()
    assert recognise(tmp_path)[0].splits(tmp_path) == ("test",)
    data = mnist(tmp_path, "test", on_error="skip", classes=list("abcdefgh"))
    assert data.ids == ("test/00000", "test/00001", "test/00003")
    assert skipped_in(data)["label outside the classes"][0] == 1
    with pytest.raises(ValueError, match=facts("[2]", "9", "8")):
        mnist(tmp_path, "test", classes=list("abcdefgh"))


BOMB = gzip.compress(struct.pack(">4I", 0x803, 2, 2, 2) + bytes(10**6))


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (b"", "ends inside its header"),
        (gzip.compress(b"\0\0\x08\x03"), "ends inside its header"),
        (gzip.compress(idx(DIGITS) + bytes(99)), "begins with 0x00000803, and this one with 0x00000801"),
        (gzip.compress(idx(DRAWN)[:-1]), facts("[4, 3, 2]", "23")),
        (gzip.compress(idx(DRAWN))[:-9], "truncated or broken|bytes after it"),
        (b"no gzip at all", "truncated or broken"),
        (BOMB, facts("[2, 2, 2]")),
        (gzip.compress(struct.pack(">4I", 0x803, 2**20, 2**10, 2**10)), "more than .* bytes can hold"),
        (gzip.compress(struct.pack(">4I", 0x803, 0, 28, 28)), "without entries"),
        (gzip.compress(idx(DRAWN[:3])), "3 images, but train-labels-idx1-ubyte has 4 labels"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_idx_files_that_lie(tmp_path, images, message):
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(images)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(DIGITS))
    with pytest.raises(ValueError, match=message) as caught:
        mnist(tmp_path, "train", on_error="skip")
    assert "train-images-idx3-ubyte.gz" in str(caught.value)


def test_mnist_beside_fashion_mnist_is_not_guessed(tmp_path):
    for folder in ("MNIST/raw", "FashionMNIST/raw"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "train-images-idx3-ubyte").write_bytes(idx(DRAWN))
        (tmp_path / folder / "train-labels-idx1-ubyte").write_bytes(idx(DIGITS))
    with pytest.raises(ValueError, match="give one of them"):
        read(tmp_path, "train")
    assert mnist(tmp_path / "MNIST", "train").name == "mnist"
