"""CIFAR-10, CIFAR-100 and CIFAR-10H: the official Python and binary batches, image folders, and human votes.

torchvision's reader unpickles the batches, which can execute arbitrary code; here nothing is unpickled
(`calibrant.data.readers._pickle`). Ids are ``data_batch_1/0017``, or ``train/cat/0017.jpg`` in folders with the
official class names. A broken or missing batch is an error even with ``on_error="skip"``: it is part of the data set,
not a sample.

CIFAR-10H has the votes of about fifty people on each test image of CIFAR-10, as soft labels. ``cifar10h-probs.npy`` and
``cifar10h-counts.npy`` are [10000, 10] in the order of the official test batch. The images are CIFAR-10's, given by
``images=``. In the official batches they have that order; for image folders ``jpeg_index.csv``
(``cifar10_test_set_idx,label,path``) maps files to rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibrant.data.boxes import Floats, Integers
from calibrant.data.dataset import NO_CLASS, Dataset
from calibrant.data.files import UnreadableError, csv_rows, folders_in, parse_count, read_bytes, read_lines, short_repr
from calibrant.data.readers._array_files import read_npy
from calibrant.data.readers._folder import BAD_LABEL, DataFolder, reader
from calibrant.data.readers._pickle import read_pickle
from calibrant.data.sources import ImageArray, Rows

CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

#: The 20 superclasses of CIFAR-100 and their classes, both in alphabetical order.
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
_SUPERCLASS = {fine: coarse for coarse, names in SUPERCLASSES.items() for fine in names.split()}
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
    """The folder of the data below ``root``, the suffix of its batches ("/" for image folders), and its splits."""
    for name in version.folders:
        home = root / name
        for suffix in ("", ".bin"):
            splits = tuple(s for s, files in version.batches.items() if (home / (files[0] + suffix)).is_file())
            if splits and (home / version.markers[suffix]).exists():
                return home, suffix, splits
    names = set(version.classes)
    return root, "/", tuple(s for s in version.batches if (root / s).is_dir() and set(folders_in(root / s)) == names)


@reader(
    "cifar-10",
    summary="cifar-10-batches-py, cifar-10-batches-bin, or {train,test}/<one of the ten classes>/*.jpg",
    splits=lambda root: _find(root, _TEN)[2],
)
def cifar10(folder: DataFolder) -> Dataset:
    """Read CIFAR-10; labels are in the official order, even for image folders."""
    return _read(folder, _TEN, "labels")


@reader(
    "cifar-100",
    summary="cifar-100-python, cifar-100-binary, or {train,test}/<one of the hundred classes>/*.jpg",
    splits=lambda root: _find(root, _HUNDRED)[2],
)
def cifar100(folder: DataFolder, *, labels: Literal["fine", "coarse"] = "fine") -> Dataset:
    """Read CIFAR-100.

    Args:
        folder: The folder of the batches or the one above, or a folder with train/ and test/.
        labels: ``"fine"`` for the 100 classes, ``"coarse"`` for the 20 superclasses.
    """
    return _read(folder, _HUNDRED, f"{labels}_labels")


def _read(folder: DataFolder, version: _Version, key: str) -> Dataset:
    home, suffix, _ = _find(folder.root, version)
    classes = tuple(SUPERCLASSES) if key == "coarse_labels" else version.classes
    if suffix == "/":
        names = {c: _SUPERCLASS[c] if c not in classes else c for c in version.classes}
        folders = [(f"{folder.split}/{c}", classes.index(name)) for c, name in names.items()]
        return folder.image_dataset(version.name, classes, folder.images_by_class(folders))
    classes = _class_names(home, suffix, version, key, classes)
    ids: list[str] = []
    parts: list[tuple[NDArray[np.uint8], Integers]] = []
    for batch in version.batches[folder.split]:
        path = home / (batch + suffix)
        pixels, values = _read_binary(path, key) if suffix else _read_pickled(path, key)
        is_label = (values >= 0) & (values < len(classes))
        for row in np.flatnonzero(~is_label):
            folder.findings.skip(f"{path.name}/{row:04d}", BAD_LABEL, f"{values[row]} of {len(classes)}")
        rows = np.flatnonzero(is_label)
        ids += [f"{path.name}/{row:04d}" for row in rows]
        parts.append((pixels if len(rows) == len(pixels) else pixels[rows], values[rows]))
    inputs = ImageArray(_images([pixels for pixels, _ in parts]), name=str(home))
    return folder.dataset(version.name, classes, ids, np.concatenate([values for _, values in parts]), inputs)


def _images(parts: Sequence[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """[N, 32, 32, 3] from rows that hold one colour after the other."""
    images = [pixels.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1) for pixels in parts]
    return np.concatenate(images, out=np.empty((sum(map(len, parts)), SIDE, SIDE, 3), dtype=np.uint8))


def _read_pickled(path: Path, key: str) -> tuple[NDArray[np.uint8], Integers]:
    batch = read_pickle(path)
    pixels, labels = batch.get("data"), batch.get(key)
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (PIXELS,):
        raise UnreadableError(f"{path}: 'data' should be a uint8 array [N, {PIXELS}], got {_kind(pixels)}")
    values = labels
    if isinstance(labels, list) and all(type(label) is int and abs(label) < 2**31 for label in labels):
        values = np.array(labels, dtype=np.int64)
    if not isinstance(values, np.ndarray) or values.shape != pixels.shape[:1]:
        raise UnreadableError(f"{path}: {key!r} should be {len(pixels)} integers, got {_kind(labels)}")
    return pixels, values.astype(np.int64)


def _kind(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {list(value.shape)}"
    return f"a list of {len(value)}" if isinstance(value, list) else type(value).__name__


def _read_binary(path: Path, key: str) -> tuple[NDArray[np.uint8], Integers]:
    """Rows of one label (or the coarse and the fine one) and 3072 pixels."""
    before = 1 if key == "labels" else 2
    data = read_bytes(path, 2**29)
    if not data or len(data) % (before + PIXELS):
        raise UnreadableError(f"{path}: {len(data)} bytes are not a whole number of rows of {before + PIXELS}")
    rows = np.frombuffer(data, np.uint8).reshape(-1, before + PIXELS)
    return rows[:, before:], rows[:, 1 if key == "fine_labels" else 0].astype(np.int64)


def _class_names(home: Path, suffix: str, version: _Version, key: str, official: tuple[str, ...]) -> tuple[str, ...]:
    """The names that come with the batches, else the official ones."""
    singular = key.replace("labels", "label_names")
    path = home / (version.meta if not suffix else "batches.meta.txt" if key == "labels" else f"{singular}.txt")
    if not path.is_file():
        return official
    names = read_pickle(path).get(singular) if not suffix else [line for line in read_lines(path) if line.strip()]
    if not isinstance(names, list) or not all(isinstance(name, (str, bytes)) for name in names):
        raise UnreadableError(f"{path}: {singular!r} should be a list of names, got {_kind(names)}")
    if len(names) != len(official):
        raise UnreadableError(f"{path}: {len(official)} class names are expected, got {len(names)}")
    return tuple(name.decode("latin-1") if isinstance(name, bytes) else name for name in names)


_PROBS, _COUNTS, _INDEX = "cifar10h-probs.npy", "cifar10h-counts.npy", "jpeg_index.csv"
_TOLERANCE = 1e-6  # how far from 1 the sum of a row may be, and how far probabilities from counts


@reader(
    "cifar-10h",
    summary="cifar10h-probs.npy or cifar10h-counts.npy, with jpeg_index.csv for images in folders",
    splits=lambda root: ("test",) if (root / _PROBS).is_file() or (root / _COUNTS).is_file() else (),
)
def cifar10h(folder: DataFolder, *, images: str | Path | None = None) -> Dataset:
    """Read CIFAR-10H; rows that are no probabilities, and images that have none, are skipped.

    Args:
        folder: The folder of its files.
        images: CIFAR-10, in any form that its reader takes; if left out, the inputs are the rows of counts.
    """
    root, findings = folder.root, folder.findings
    counts, soft = _load_votes(root)
    sums = soft.sum(axis=1)
    is_sound = (soft >= 0).all(axis=1) & (np.abs(sums - 1) <= _TOLERANCE)  # NaN is neither
    source = _PROBS if (root / _PROBS).is_file() else _COUNTS
    for row in np.flatnonzero(~is_sound):
        findings.skip(f"{source}[{row}]", "votes that are no probabilities", f"they sum to {sums[row]:g}")
    labels, row_of = _read_index(root / _INDEX, len(soft))
    if images is None:
        rows = np.flatnonzero(is_sound)
        if (labels[rows] == NO_CLASS).any():
            findings.odd(_INDEX, "labels unknown without it, or without images")
        ids, inputs = (f"test/{row:05d}" for row in rows), Rows(counts[rows], _COUNTS)
        return folder.dataset("cifar-10h", CIFAR10, ids, labels[rows], inputs, soft=soft[rows])
    data = cifar10(images, "test", on_error=findings.on_error)
    if isinstance(data.inputs, ImageArray):
        if len(data) > len(soft) or (len(data) < len(soft) and not data.report.skipped):
            raise ValueError(f"{root}: {len(soft)} rows of votes for the {len(data)} images in {images}")
        row_of = {name: int(name.rpartition("/")[2]) for name in data.ids}
    elif not row_of:
        raise ValueError(f"{root}: {_INDEX} is needed to find the rows of images in folders, and is not there")
    findings.add(data.report)
    pairs = []  # of an image and its row
    for i, name in enumerate(data.ids):
        vote = row_of.get(name, -1)
        if not 0 <= vote < len(soft):
            findings.skip(name, "no row of votes for the image")
        elif labels[vote] not in (NO_CLASS, data.labels[i]):
            findings.skip(name, "its label is not the one of its votes", f"{data.labels[i]} and {labels[vote]}")
        elif is_sound[vote]:  # else it is counted already
            pairs.append((i, vote))
    folder.check_any(len(pairs))
    indices, rows = np.array(pairs, dtype=np.int64).T
    return data.take(indices, name="cifar-10h", soft=soft[rows], report=findings.report())


def _load_votes(root: Path) -> tuple[Floats, Floats]:
    """Counts and probabilities, [N, 10] each; one from the other if only one is there."""
    counts, probs = (_read_votes(root / name) if (root / name).is_file() else None for name in (_COUNTS, _PROBS))
    if counts is not None:
        with np.errstate(invalid="ignore", divide="ignore"):  # a row without votes is found later
            shares = counts / counts.sum(axis=1, keepdims=True)
        if probs is None:
            return counts, shares
        if probs.shape != counts.shape:
            raise ValueError(f"{root}: {_COUNTS} has {len(counts)} rows, and {_PROBS} has {len(probs)}")
        differing = np.flatnonzero((np.abs(probs - shares) > _TOLERANCE).any(axis=1))
        if len(differing):
            raise ValueError(f"{root}: row {differing[0]} of {_PROBS} is not that of {_COUNTS} divided by its sum")
    assert probs is not None  # the layout has one of the two
    return probs if counts is None else counts, probs


def _read_votes(path: Path) -> Floats:
    values = read_npy(path)
    if values.dtype.kind not in "iuf" or values.shape[1:] != (len(CIFAR10),):
        raise UnreadableError(f"{path}: numbers [N, {len(CIFAR10)}] are expected, got {_kind(values)}")
    return np.array(values, dtype=np.float64)


def _read_index(path: Path, number: int) -> tuple[Integers, dict[str, int]]:
    """The label of each row, and the row of each image file."""
    labels = np.full(number, NO_CLASS, dtype=np.int64)
    row_of: dict[str, int] = {}
    for line, entry in enumerate(csv_rows(path, iter(read_lines(path))) if path.is_file() else (), start=1):
        if line == 1 and entry[:1] == ["cifar10_test_set_idx"]:
            continue
        try:
            row, label, name = parse_count(entry[0]), parse_count(entry[1]), entry[2]
        except (ValueError, IndexError) as error:
            expected = "a row, a label and a path"
            raise UnreadableError(f"{path}: line {line} should be {expected}, got {short_repr(entry)}") from error
        if not (0 <= row < number and 0 <= label < len(CIFAR10)) or name in row_of or labels[row] != NO_CLASS:
            raise UnreadableError(f"{path}: line {line} repeats a row or a path, or is outside the {number} rows")
        labels[row], row_of[name] = label, row
    return labels, row_of
