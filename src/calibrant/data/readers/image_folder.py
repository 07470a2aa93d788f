"""Images in folders named by their class: ``<split>/<class>/**`` or just ``<class>/**`` (split ``"all"``).

Classes are sorted as torchvision's ImageFolder sorts them, over all splits, so that a class that is missing from one
split does not shift the labels there. Its own `find_classes` takes hidden folders for classes, and stops at empty ones.

It is not this layout if folders of images are called like parts of another one, in any case: a split with its year
(train2017), images, JPEGImages, labels, masks, annotations, SegmentationClass, CamVid's two, or anything that ends in
_labels, _masks or annot; or if two or more are called like splits (one alone may be a class: trains).
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from calibrant.data.dataset import Dataset, Findings, OnError
from calibrant.data.files import SUFFIXES, folders_in
from calibrant.data.layouts import layout
from calibrant.data.readers._checks import check_split
from calibrant.data.readers._shared import check_any, images_by_class, never_raising, set_name
from calibrant.data.sources import ImageFiles

#: Folders of these names are splits, not classes.
SPLITS = ("train", "training", "val", "valid", "validation", "test", "testing")

#: Folders of images of these names are parts of another layout.
_NO_CLASS = re.compile(
    rf"({'|'.join(SPLITS)})\d{{4}}|(jpeg)?images|labels|masks|annotations|segmentation(class|object)(aug)?"
    "|.*_(labels|masks)|.*annot|701_stillsraw_full|labeledapproved_full",
    re.IGNORECASE,
)
_LOOKED_AT = 200  # entries of a folder: images are rarely few among many other files


def _holds_images(folder: str, depth: int = 2) -> bool:
    """Whether there is an image in a folder, or in the folders in it; looks at some entries only."""
    with os.scandir(folder) as entries:
        some = list(itertools.islice(entries, _LOOKED_AT))
    if any(os.path.splitext(entry.name)[1].lower() in SUFFIXES for entry in some):
        return True
    return depth > 0 and any(_holds_images(entry.path, depth - 1) for entry in some[:20] if os.path.isdir(entry.path))


def _has_classes(folder: Path) -> bool:
    """Whether at least two folders in a folder hold images of a class; one alone is no classification."""
    names = folders_in(folder)

    def holding(some: Iterable[str]) -> int:
        return sum(1 for _ in itertools.islice((n for n in some if _holds_images(str(folder / n))), 2))

    if holding(n for n in names if _NO_CLASS.fullmatch(n)) or holding(n for n in names if n.lower() in SPLITS) == 2:
        return False
    return holding(names) == 2


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
    check_any(root, split, len(names), findings)
    return Dataset(
        set_name(root),
        split,
        tuple(classes),
        names,
        np.asarray(labels),
        ImageFiles(root, names),
        report=findings.report(),
    )
