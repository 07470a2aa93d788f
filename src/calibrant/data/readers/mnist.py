"""MNIST, Fashion-MNIST and others in its format: four idx files, packed by gzip or not.

torchvision's reader compares the files with its own list of md5 sums only when it downloads them, and wants them at one
place; here they may lie anywhere, and what their headers say is checked. Ids are ``train/00017``.
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

from calibrant.data.dataset import Dataset, Findings, OnError
from calibrant.data.files import UnreadableError, check_growth, open_file
from calibrant.data.layouts import layout
from calibrant.data.readers._checks import check_split
from calibrant.data.readers._phrases import BAD_LABEL
from calibrant.data.readers._shared import check_any, never_raising
from calibrant.data.sources import ImageArray

FASHION = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
DIGITS = tuple("0123456789")

_FOLDERS = ("", "raw", "MNIST/raw", "FashionMNIST/raw")
_PARTS = {"train": "train", "test": "t10k"}

#: Largest array that is read, in bytes; MNIST's has 47 MB.
MAX_BYTES = 2**31
_DEFLATE = 1032  # how many bytes one packed byte can become


def _file(home: Path, split: str, what: str) -> Path | None:
    dimensions = 3 if what == "images" else 1
    names = (f"{_PARTS[split]}-{what}{dot}idx{dimensions}-ubyte{gz}" for dot in "-." for gz in ("", ".gz"))
    return next((home / name for name in names if (home / name).is_file()), None)


def _homes(root: Path) -> list[Path]:
    """The folders with both files of some split."""
    return [
        home
        for home in (root / name for name in _FOLDERS)
        if any(_file(home, split, "images") and _file(home, split, "labels") for split in _PARTS)
    ]


def _splits(root: Path) -> tuple[str, ...]:
    home = next(iter(_homes(root)), None)
    return () if home is None else tuple(s for s in _PARTS if _file(home, s, "images") and _file(home, s, "labels"))


@layout(
    "mnist",
    summary="{train,t10k}-{images-idx3,labels-idx1}-ubyte[.gz], here or in MNIST/raw or FashionMNIST/raw",
    splits=never_raising(_splits),
)
def mnist(
    root: str | Path, split: str, *, on_error: OnError = "raise", classes: Sequence[str] | None = None
) -> Dataset:
    """Read MNIST or a data set in its format.

    Args:
        root: The folder of the idx files, or the one above MNIST/raw.
        split: ``"train"`` or ``"test"``.
        on_error: What to do with broken samples; files that disagree with themselves are always an error.
        classes: Their names; the ten digits if left out, or Fashion-MNIST's if the path speaks of fashion.
    """
    root = Path(root)
    check_split(root, split, _splits(root))
    homes = _homes(root)
    if len(homes) > 1:
        raise ValueError(f"{root}: {' and '.join(map(str, homes))} hold data; give one of them.")
    fashion = _is_fashion(homes[0])
    names = tuple(classes) if classes is not None else FASHION if fashion else DIGITS
    images, labels = (_file(homes[0], split, what) for what in ("images", "labels"))
    assert images is not None  # check_split saw both
    assert labels is not None
    pixels, values = read_idx(images, 3), read_idx(labels, 1).astype(np.int64)
    if len(pixels) != len(values):
        raise UnreadableError(f"{images}: {len(pixels)} images, but {labels.name} has {len(values)} labels.")
    findings = Findings(on_error)
    good = values < len(names)
    for row in np.flatnonzero(~good):
        findings.skip(f"{labels.name}[{row}]", BAD_LABEL, f"{values[row]} of {len(names)}")
    rows = np.flatnonzero(good)
    check_any(root, split, len(rows), findings)
    return Dataset(
        "fashion-mnist" if fashion else "mnist",
        split,
        names,
        tuple(f"{split}/{row:05d}" for row in rows),
        values[rows],
        ImageArray(pixels if good.all() else pixels[rows], name=str(images)),
        report=findings.report(),
    )


def _is_fashion(home: Path) -> bool:
    """Whether the path says so: its last part that speaks of MNIST, else any part."""
    parts = [part.lower() for part in home.resolve().parts]
    named = [part for part in parts if "mnist" in part]
    return "fashion" in named[-1] if named else any("fashion" in part for part in parts)


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """The array of bytes in an idx file; never more is unpacked than its header announces."""
    packed = path.suffix == ".gz"
    try:
        with open_file(path) as stored, gzip.GzipFile(fileobj=stored) if packed else stored as file:
            size = os.fstat(stored.fileno()).st_size
            head = file.read(4 + 4 * dimensions)
            if len(head) < 4 + 4 * dimensions:
                raise UnreadableError(f"{path}: the file ends inside its header.")
            magic, *shape = struct.unpack(f">{1 + dimensions}I", head)
            if magic != 0x800 + dimensions:
                raise UnreadableError(
                    f"{path}: an idx file of bytes in {dimensions} dimensions begins with {0x800 + dimensions:#010x}, "
                    f"and this one with {magic:#010x}."
                )
            length = math.prod(shape)
            if not length:
                raise UnreadableError(f"{path}: the header announces {shape}, an array without entries.")
            if length > min(MAX_BYTES, size * (_DEFLATE if packed else 1)):
                raise UnreadableError(f"{path}: the header announces {shape}, more than {size} bytes can hold.")
            check_growth(f"{path}: the array", size, length)
            data = file.read(length + 1)  # one more, to see whether the file goes on
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UnreadableError(f"{path}: the file is truncated or broken ({error}).") from error
    if len(data) != length:
        raise UnreadableError(
            f"{path}: the header announces {shape}, and the file has {'more' if len(data) > length else len(data)} "
            "bytes after it."
        )
    return np.frombuffer(data, np.uint8).reshape(shape)
