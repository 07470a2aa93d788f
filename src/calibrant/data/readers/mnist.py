"""MNIST, Fashion-MNIST and others in the same format: four idx files, compressed with gzip or not.

torchvision's reader verifies the files only when it downloads them, and expects them in one place; here they may lie
anywhere, and their headers are checked. Which of the data sets it is, the first labels say, else the path. Ids are
``train/00017``.
"""

from __future__ import annotations

import gzip
import math
import os
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calibrant.data.dataset import Dataset
from calibrant.data.files import DEFLATE_RATIO, UnreadableError, check_growth, folders_in, open_file
from calibrant.data.readers._folder import BAD_LABEL, DataFolder, reader
from calibrant.data.sources import ImageArray

FASHION = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
DIGITS = tuple("0123456789")

#: The first labels of the published files, which tell data sets apart whatever their folder is called.
FIRST_LABELS = {
    "mnist": {"train": (5, 0, 4, 1, 9, 2, 1, 3, 1, 4), "test": (7, 2, 1, 0, 4, 1, 4, 9, 5, 9)},
    "fashion-mnist": {"train": (9, 0, 0, 3, 0, 2, 7, 2, 5, 5), "test": (9, 2, 1, 1, 6, 1, 4, 6, 5, 7)},
}

_FOLDERS = ("", "raw", "MNIST/raw", "FashionMNIST/raw")
_PARTS = {"train": "train", "test": "t10k"}

#: Largest array that is read, in bytes; MNIST's has 47 MB.
MAX_BYTES = 2**31


def _file(home: Path, split: str, part: str) -> Path | None:
    dimensions = 3 if part == "images" else 1
    names = (f"{_PARTS[split]}-{part}{dot}idx{dimensions}-ubyte{gz}" for dot in "-." for gz in ("", ".gz"))
    return next((home / name for name in names if (home / name).is_file()), None)


def _splits_in(home: Path) -> tuple[str, ...]:
    """The splits of which both files are in a folder."""
    return tuple(split for split in _PARTS if _file(home, split, "images") and _file(home, split, "labels"))


def _homes(root: Path) -> list[Path]:
    """The folders with both files of some split."""
    return [home for home in (root / name for name in _FOLDERS) if _splits_in(home)]


@reader(
    "mnist",
    summary="{train,t10k}-{images-idx3,labels-idx1}-ubyte[.gz], here or in MNIST/raw or FashionMNIST/raw",
    splits=lambda root: next(map(_splits_in, _homes(root)), ()),
)
def mnist(folder: DataFolder, *, classes: Sequence[str] | None = None) -> Dataset:
    """Read MNIST or a data set in its format; files that disagree with themselves are always an error.

    Args:
        folder: The folder of the idx files, or the one above MNIST/raw.
        classes: Their names; if left out, Fashion-MNIST's if the labels begin as its do or the path mentions fashion,
            else the ten digits.
    """
    homes = _homes(folder.root)
    if len(homes) > 1:
        raise ValueError(f"{folder.root}: {' and '.join(map(str, homes))} hold data; give one of them")
    is_fashion = name_of_files(homes[0]) == "fashion-mnist"
    names = tuple(classes) if classes is not None else FASHION if is_fashion else DIGITS
    images, labels = (_file(homes[0], folder.split, part) for part in ("images", "labels"))
    assert images is not None  # _splits_in saw both
    assert labels is not None
    pixels, values = read_idx(images, 3), read_idx(labels, 1).astype(np.int64)
    if len(pixels) != len(values):
        raise UnreadableError(f"{images}: {len(pixels)} images, but {labels.name} has {len(values)} labels")
    is_label = values < len(names)
    for row in np.flatnonzero(~is_label):
        folder.findings.skip(f"{labels.name}[{row}]", BAD_LABEL, f"{values[row]} of {len(names)}")
    rows = np.flatnonzero(is_label)
    ids = (f"{folder.split}/{row:05d}" for row in rows)
    inputs = ImageArray(pixels if is_label.all() else pixels[rows], name=str(images))
    return folder.dataset("fashion-mnist" if is_fashion else "mnist", names, ids, values[rows], inputs)


def name_of_files(home: Path) -> str:
    """The data set of a folder of idx files: by its first labels, else by its path; empty if neither says.

    Of the path, the last part that mentions MNIST counts, or any part that mentions fashion.
    """
    for split in _splits_in(home):
        file = _file(home, split, "labels")
        assert file is not None
        first = tuple(read_idx(file, 1)[:10].tolist())
        for name, labels in FIRST_LABELS.items():
            if first == labels[split]:
                return name
    parts = [part.lower() for part in home.resolve().parts]
    mnist_parts = [part for part in parts if "mnist" in part]
    if any("fashion" in part for part in mnist_parts[-1:] or parts):
        return "fashion-mnist"
    return "mnist" if any(part.startswith("mnist") for part in mnist_parts[-1:]) else ""


def find_mnist(path: str | Path) -> dict[Path, str]:
    """The folders of idx files in a folder, up to three levels below, each with the name of its data set.

    The name is ``"mnist"``, ``"fashion-mnist"``, or empty if neither the labels nor the path say.
    """
    level = [Path(path)]
    folders = list(level)
    for _ in range(3):
        level = [folder / name for folder in level if folder.is_dir() for name in folders_in(folder)[:20]]
        folders += level
    return {home: name_of_files(home) for home in folders if _splits_in(home)}


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """The array of bytes in an idx file; never more is unpacked than its header announces."""
    is_packed = path.suffix == ".gz"
    try:
        with open_file(path) as stored, gzip.GzipFile(fileobj=stored) if is_packed else stored as file:
            size = os.fstat(stored.fileno()).st_size
            head = file.read(4 + 4 * dimensions)
            if len(head) < 4 + 4 * dimensions:
                raise UnreadableError(f"{path}: the file ends inside its header")
            magic, *shape = struct.unpack(f">{1 + dimensions}I", head)
            if magic != 0x800 + dimensions:
                raise UnreadableError(
                    f"{path}: an idx file of bytes in {dimensions} dimensions begins with {0x800 + dimensions:#010x}, "
                    f"and this one with {magic:#010x}"
                )
            length = math.prod(shape)
            if not length:
                raise UnreadableError(f"{path}: the header announces {shape}, an array without entries")
            if length > min(MAX_BYTES, size * (DEFLATE_RATIO if is_packed else 1)):
                raise UnreadableError(f"{path}: the header announces {shape}, more than {size} bytes can hold")
            check_growth(f"{path}: the array", size, length)
            data = file.read(length + 1)  # one more, to detect trailing bytes
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UnreadableError(f"{path}: the file is truncated or broken ({error})") from error
    if len(data) != length:
        raise UnreadableError(
            f"{path}: the header announces {shape}, and the file has {'more' if len(data) > length else len(data)} "
            "bytes after it"
        )
    return np.frombuffer(data, np.uint8).reshape(shape)
