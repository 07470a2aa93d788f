"""Caltech-UCSD Birds 200-2011: 200 kinds of birds, one box per image.

    images/<class>/*.jpg
    images.txt  classes.txt  image_class_labels.txt  train_test_split.txt  bounding_boxes.txt (id x y width height)

Labels follow classes.txt; "001.Black_footed_Albatross" is called "Black footed Albatross". Images that images.txt does
not list are left out. torchvision has no reader for it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from calibrant.data.dataset import Dataset, Findings, OnError
from calibrant.data.layouts import layout
from calibrant.data.readers._boxes import Box, BoxSamples, box
from calibrant.data.readers._checks import check_split, unique_names
from calibrant.data.readers._shared import lines_of, never_raising

_TABLES = ("images.txt", "image_class_labels.txt", "train_test_split.txt", "bounding_boxes.txt")
_IS_TRAIN = {"train": "1", "test": "0"}


def _splits(root: Path) -> tuple[str, ...]:
    whole = all(os.path.isfile(root / name) for name in ("classes.txt", *_TABLES)) and os.path.isdir(root / "images")
    return ("train", "test") if whole else ()


@layout(
    "cub",
    summary="CUB-200-2011: images, images.txt, bounding_boxes.txt, train_test_split.txt",
    splits=never_raising(_splits),
)
def cub(root: str | Path, split: str, *, on_error: OnError = "raise") -> Dataset:
    """Read CUB-200-2011.

    Args:
        root: The folder with images.txt.
        split: ``"train"`` or ``"test"``.
        on_error: See `calibrant.data.read`.
    """
    root = Path(root)
    check_split(root, split, _splits(root))
    findings = Findings(on_error)
    classes = _by_id(root, "classes.txt", Findings("raise"))  # a class that is missing would shift the others' labels
    images, labels, is_train, boxes = (_by_id(root, name, findings) for name in _TABLES)
    label_of = {key: label for label, key in enumerate(classes)}
    samples = BoxSamples(root, findings)
    for key, name in images.items():
        if is_train.get(key) not in _IS_TRAIN.values():
            findings.skip(f"images/{name}", "image of no split", "train_test_split.txt gives neither 0 nor 1")
        elif is_train[key] == _IS_TRAIN[split]:
            path = samples.find("images", name, "images.txt")
            if path is None:
                continue
            label = label_of.get(labels.get(key, ""))
            if label is None:
                findings.skip(path, "image without a class that classes.txt lists")
                continue
            samples.add(path, _boxes(boxes.get(key, ""), label), label=label, source="bounding_boxes.txt")
    samples.leave_out_others("images", {f"images/{PurePosixPath(name)}" for name in images.values()})
    names = [re.sub(r"^\d+\.", "", name).replace("_", " ") for name in classes.values()]
    return samples.dataset("cub", split, unique_names(names, list(classes)))


def _boxes(sides: str, label: int) -> Iterator[Box]:
    yield box(sides.split(), label, sides=True)


def _by_id(root: Path, name: str, findings: Findings) -> dict[str, str]:
    """The rest of each line by its first word."""
    result: dict[str, str] = {}
    for i, line in enumerate(lines_of(root, name), 1):
        words = line.split(maxsplit=1)
        if len(words) == 2 and words[0] not in result:
            result[words[0]] = words[1].strip()
        elif words:
            findings.skip(f"{name}, line {i}", "line without a value for its id, or with an id that was there before")
    return result
