"""CIFAR-10 and CIFAR-100: the official Python and binary batches, and image folders with the official class names.

torchvision's reader unpickles the batches, which runs whatever a file says; here nothing is unpickled
(`calibrant.data.readers._cifar_pickle`). Ids are ``data_batch_1/0017`` or ``train/cat/0017.jpg``. A batch that is
broken or missing is an error also with ``on_error="skip"``: it is a part of the data set, not a sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibrant.data.boxes import Integers
from calibrant.data.dataset import Dataset, Findings, OnError
from calibrant.data.files import UnreadableError, folders_in, read_bytes, read_lines
from calibrant.data.layouts import layout
from calibrant.data.readers._checks import check_split
from calibrant.data.readers._cifar_pickle import read_pickle
from calibrant.data.readers._phrases import BAD_LABEL
from calibrant.data.readers._shared import check_any, images_by_class, never_raising
from calibrant.data.sources import ImageArray, ImageFiles

CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

#: The 20 superclasses of CIFAR-100 and their classes; both orders are the alphabet's.
SUPERCLASSES = {
    "aquatic_mammals": "beaver dolphin otter seal whale",
    "fish": "aquarium_fish flatfish ray shark trout",
    "flowers": "orchid poppy rose sunflower tulip",
    "food_containers": "bottle bowl can cup plate",
    "fruit_and_vegetables": "apple mushroom orange pear sweet_pepper",
    "household_electrical_devices": "clock keyboard lamp telephone television",
    "household_furniture": "bed chair couch table wardrobe",
    "insects": "bee beetle butterfly caterpillar cockroach",
    "large_carnivores": "bear leopard lion tiger wolf",
    "large_man-made_outdoor_things": "bridge castle house road skyscraper",
    "large_natural_outdoor_scenes": "cloud forest mountain plain sea",
    "large_omnivores_and_herbivores": "camel cattle chimpanzee elephant kangaroo",
    "medium_mammals": "fox porcupine possum raccoon skunk",
    "non-insect_invertebrates": "crab lobster snail spider worm",
    "people": "baby boy girl man woman",
    "reptiles": "crocodile dinosaur lizard snake turtle",
    "small_mammals": "hamster mouse rabbit shrew squirrel",
    "trees": "maple_tree oak_tree palm_tree pine_tree willow_tree",
    "vehicles_1": "bicycle bus motorcycle pickup_truck train",
    "vehicles_2": "lawn_mower rocket streetcar tank tractor",
}
_SUPERCLASS = {fine: coarse for coarse, held in SUPERCLASSES.items() for fine in held.split()}
CIFAR100 = tuple(sorted(_SUPERCLASS))

SIDE, PIXELS = 32, 3 * 32 * 32


class _Version(NamedTuple):
    """How one of the two data sets is laid out."""

    name: str
    classes: tuple[str, ...]
    folders: tuple[str, ...]
    batches: dict[str, tuple[str, ...]]
    meta: str
    markers: dict[str, str]  # by suffix: a file besides the batches, where these have names as common as "train"


_TEN = _Version(
    "cifar-10",
    CIFAR10,
    ("", "cifar-10-batches-py", "cifar-10-batches-bin"),
    {"train": tuple(f"data_batch_{i}" for i in range(1, 6)), "test": ("test_batch",)},
    "batches.meta",
    {"": "", ".bin": ""},
)
_HUNDRED = _Version(
    "cifar-100",
    CIFAR100,
    ("", "cifar-100-python", "cifar-100-binary"),
    {"train": ("train",), "test": ("test",)},
    "meta",
    {"": "meta", ".bin": "fine_label_names.txt"},
)


def _find(root: Path, version: _Version) -> tuple[Path, str, tuple[str, ...]]:
    """Where the data lies below ``root``, the suffix of its batches ("/" for image folders), and its splits."""
    for name in version.folders:
        home = root / name
        for suffix in ("", ".bin"):
            there = tuple(s for s, files in version.batches.items() if (home / (files[0] + suffix)).is_file())
            if there and (home / version.markers[suffix]).exists():
                return home, suffix, there
    named = set(version.classes)
    return root, "/", tuple(s for s in version.batches if (root / s).is_dir() and set(folders_in(root / s)) == named)


@layout(
    "cifar-10",
    summary="cifar-10-batches-py, cifar-10-batches-bin, or {train,test}/<one of the ten classes>/*.jpg",
    splits=never_raising(lambda root: _find(root, _TEN)[2]),
)
def cifar10(root: str | Path, split: str, *, on_error: OnError = "raise") -> Dataset:
    """Read CIFAR-10; the labels are in the official order, also those of image folders."""
    return _read(Path(root), split, _TEN, "labels", on_error)


@layout(
    "cifar-100",
    summary="cifar-100-python, cifar-100-binary, or {train,test}/<one of the hundred classes>/*.jpg",
    splits=never_raising(lambda root: _find(root, _HUNDRED)[2]),
)
def cifar100(
    root: str | Path, split: str, *, on_error: OnError = "raise", labels: Literal["fine", "coarse"] = "fine"
) -> Dataset:
    """Read CIFAR-100.

    Args:
        root: The folder of the batches or the one above, or a folder with train/ and test/.
        split: ``"train"`` or ``"test"``.
        on_error: What to do with broken samples.
        labels: ``"fine"`` for the 100 classes, ``"coarse"`` for the 20 superclasses.
    """
    if labels not in ("fine", "coarse"):
        raise ValueError(f"cifar-100 has the labels 'fine' and 'coarse', got {labels!r}.")
    return _read(Path(root), split, _HUNDRED, f"{labels}_labels", on_error)


def _read(root: Path, split: str, version: _Version, key: str, on_error: OnError) -> Dataset:
    home, suffix, splits = _find(root, version)
    check_split(root, split, splits)
    findings = Findings(on_error)
    if suffix == "/":
        classes = tuple(SUPERCLASSES) if key == "coarse_labels" else version.classes
        folders = [(f"{split}/{c}", classes.index(_SUPERCLASS[c] if c not in classes else c)) for c in version.classes]
        names, held = images_by_class(home, folders, findings)
        check_any(root, split, len(names), findings)
        return Dataset(
            version.name, split, classes, names, np.asarray(held), ImageFiles(home, names), report=findings.report()
        )
    classes = _classes(home, suffix, version, key)
    ids: list[str] = []
    parts: list[tuple[NDArray[np.uint8], Integers]] = []
    for batch in version.batches[split]:
        path = home / (batch + suffix)
        pixels, values = _binary(path, key) if suffix else _pickled(path, key)
        good = (values >= 0) & (values < len(classes))
        for row in np.flatnonzero(~good):
            findings.skip(f"{path.name}/{row:04d}", BAD_LABEL, f"{values[row]} of {len(classes)}")
        rows = np.flatnonzero(good)
        ids += [f"{path.name}/{row:04d}" for row in rows]
        parts.append((pixels if len(rows) == len(pixels) else pixels[rows], values[rows]))
    check_any(root, split, len(ids), findings)
    inputs = ImageArray(_images([pixels for pixels, _ in parts]), name=str(home))
    labels = np.concatenate([values for _, values in parts])
    return Dataset(version.name, split, classes, tuple(ids), labels, inputs, report=findings.report())


def _images(parts: Sequence[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """[N, 32, 32, 3] from rows that hold one colour after the other."""
    result = np.empty((sum(map(len, parts)), SIDE, SIDE, 3), dtype=np.uint8)
    start = 0
    for pixels in parts:
        result[start : start + len(pixels)] = pixels.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)
        start += len(pixels)
    return result


def _pickled(path: Path, key: str) -> tuple[NDArray[np.uint8], Integers]:
    batch = read_pickle(path)
    pixels, labels = batch.get("data"), batch.get(key)
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (PIXELS,):
        raise UnreadableError(f"{path}: 'data' should be a uint8 array [N, {PIXELS}], got {_kind(pixels)}.")
    held = labels
    if isinstance(labels, list) and all(type(label) is int and abs(label) < 2**31 for label in labels):
        held = np.array(labels, dtype=np.int64)
    if not isinstance(held, np.ndarray) or held.shape != pixels.shape[:1]:
        raise UnreadableError(f"{path}: {key!r} should be {len(pixels)} integers, got {_kind(labels)}.")
    return pixels, held.astype(np.int64)


def _kind(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {list(value.shape)}"
    return f"a list of {len(value)}" if isinstance(value, list) else type(value).__name__


def _binary(path: Path, key: str) -> tuple[NDArray[np.uint8], Integers]:
    """Rows of one label (or the coarse and the fine one) and 3072 pixels."""
    before = 1 if key == "labels" else 2
    data = read_bytes(path, 2**29)
    if not data or len(data) % (before + PIXELS):
        raise UnreadableError(f"{path}: {len(data)} bytes are not a whole number of rows of {before + PIXELS}.")
    rows = np.frombuffer(data, np.uint8).reshape(-1, before + PIXELS)
    return rows[:, before:], rows[:, 1 if key == "fine_labels" else 0].astype(np.int64)


def _classes(home: Path, suffix: str, version: _Version, key: str) -> tuple[str, ...]:
    """The names that come with the batches, else the official ones."""
    names = tuple(SUPERCLASSES) if key == "coarse_labels" else version.classes
    singular = key.replace("labels", "label_names")
    path = home / (version.meta if not suffix else "batches.meta.txt" if key == "labels" else f"{singular}.txt")
    if not path.is_file():
        return names
    held = read_pickle(path).get(singular) if not suffix else [line for line in read_lines(path) if line.strip()]
    if not isinstance(held, list) or not all(isinstance(name, (str, bytes)) for name in held):
        raise UnreadableError(f"{path}: {singular!r} should be a list of names, got {_kind(held)}.")
    if len(held) != len(names):
        raise UnreadableError(f"{path}: {len(names)} class names are expected, got {len(held)}.")
    return tuple(name.decode("latin-1") if isinstance(name, bytes) else name for name in held)
