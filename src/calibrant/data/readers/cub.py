"""Caltech-UCSD Birds 200-2011: 200 kinds of birds, one box per image.

    images/<class>/*.jpg
    images.txt  classes.txt  image_class_labels.txt  train_test_split.txt  bounding_boxes.txt (id x y width height)

Labels follow classes.txt; "001.Black_footed_Albatross" is called "Black footed Albatross". Images that images.txt does
not list are left out. torchvision has no reader for it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath

from calibrant.data.dataset import Dataset, Findings
from calibrant.data.readers._annotations import unique_names
from calibrant.data.readers._boxes import BoxSamples, parse_box
from calibrant.data.readers._folder import DataFolder, reader

_TABLES = ("images.txt", "image_class_labels.txt", "train_test_split.txt", "bounding_boxes.txt")
_IS_TRAIN = {"train": "1", "test": "0"}


def _splits(root: Path) -> tuple[str, ...]:
    has_tables = all(os.path.isfile(root / name) for name in ("classes.txt", *_TABLES))
    return tuple(_IS_TRAIN) if has_tables and os.path.isdir(root / "images") else ()


@reader("cub", summary="CUB-200-2011: images, images.txt, bounding_boxes.txt, train_test_split.txt", splits=_splits)
def cub(folder: DataFolder) -> Dataset:
    """Read CUB-200-2011, from the folder with images.txt."""
    findings, samples = folder.findings, BoxSamples(folder)
    classes = _by_id(folder, "classes.txt", Findings("raise"))  # a class that is missing would shift the others' labels
    images, labels, is_train, boxes = (_by_id(folder, name, findings) for name in _TABLES)
    label_of = {key: label for label, key in enumerate(classes)}
    for key, name in images.items():
        if is_train.get(key) not in _IS_TRAIN.values():
            findings.skip(f"images/{name}", "image of no split", "train_test_split.txt gives neither 0 nor 1")
        elif is_train[key] == _IS_TRAIN[folder.split]:
            path, label = samples.find("images", name, "images.txt"), label_of.get(labels.get(key, ""))
            if path is not None and label is None:
                findings.skip(path, "image without a class that classes.txt lists")
            elif path is not None and label is not None:
                sides = (boxes.get(key, "").split(),)
                birds = (parse_box(values, label, sides=True) for values in sides)
                samples.add(path, birds, label=label, source="bounding_boxes.txt")
    samples.leave_out_unannotated("images", {f"images/{PurePosixPath(name)}" for name in images.values()})
    names = [re.sub(r"^\d+\.", "", name).replace("_", " ") for name in classes.values()]
    return samples.dataset("cub", unique_names(names, list(classes)))


def _by_id(folder: DataFolder, name: str, findings: Findings) -> dict[str, str]:
    """The rest of each line by its first word."""
    values: dict[str, str] = {}
    for i, line in enumerate(folder.lines(name), 1):
        words = line.split(maxsplit=1)
        if len(words) == 2 and words[0] not in values:
            values[words[0]] = words[1].strip()
        elif words:
            findings.skip(f"{name}, line {i}", "line without a value for its id, or with an id that was there before")
    return values
