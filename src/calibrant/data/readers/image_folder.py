"""Images in folders named by their class: ``<split>/<class>/**`` or just ``<class>/**`` (split ``"all"``).

Classes are sorted as torchvision's ImageFolder sorts them, over all splits, so that a class that is missing from one
split does not shift the labels there. Its own `find_classes` takes hidden folders for classes, and stops at empty ones.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import numpy as np

from calibrant.data.dataset import Dataset
from calibrant.data.findings import Findings, OnError
from calibrant.data.layouts import layout
from calibrant.data.readers._checks import check_split
from calibrant.data.readers._shared import images_by_class, never_raising
from calibrant.data.sources import SUFFIXES, ImageFiles, folders_in

#: Folders of these names are splits, not classes.
SPLITS = ("train", "training", "val", "valid", "validation", "test", "testing")

_LOOKED_AT = 200  # entries of a folder: images are rarely few among many other files


def _holds_images(folder: str, depth: int = 2) -> bool:
    """Whether there is an image in a folder, or in the folders in it; looks at some entries only."""
    with os.scandir(folder) as entries:
        some = list(itertools.islice(entries, _LOOKED_AT))
    if any(os.path.splitext(entry.name)[1].lower() in SUFFIXES for entry in some):
        return True
    return depth > 0 and any(_holds_images(entry.path, depth - 1) for entry in some[:20] if entry.is_dir())


def _has_classes(folder: Path) -> bool:
    """Whether at least two folders in a folder hold images; one alone is no classification."""
    held = (1 for name in folders_in(folder) if _holds_images(str(folder / name)))
    return sum(itertools.islice(held, 2)) == 2


def _splits(root: Path) -> tuple[str, ...]:
    if not root.is_dir():
        return ()
    found = tuple(name for name in SPLITS if (root / name).is_dir() and _has_classes(root / name))
    return found or (("all",) if _has_classes(root) else ())


@layout(
    "image-folder",
    summary="<split>/<class>/** or <class>/**, images in folders named by their class",
    splits=never_raising(_splits),
    rank=100,
)
def image_folder(root: str | Path, split: str, *, on_error: OnError = "raise") -> Dataset:
    """Read images in class folders; a class is what the folder is called, at any depth below it."""
    root = Path(root)
    splits = _splits(root)
    check_split(root, split, splits)
    findings = Findings(on_error)
    if splits == ("all",):
        classes, prefix = folders_in(root), ""
    else:
        classes, prefix = sorted({name for s in splits for name in folders_in(root / s)}), f"{split}/"
    there = set(folders_in(root / prefix))
    for name in classes:
        if name not in there:
            findings.odd(f"{prefix}{name}", "class folder that only other splits have")
    folders = [(f"{prefix}{name}", label) for label, name in enumerate(classes) if name in there]
    names, labels = images_by_class(root, folders, findings)
    return Dataset(
        root.resolve().name,
        split,
        tuple(classes),
        names,
        np.asarray(labels),
        ImageFiles(root, names),
        report=findings.report(),
    )
