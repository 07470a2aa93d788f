"""Images in folders named by their class, those of PACS and of CUB among them.

image-folder: ``<split>/<class>/**`` or just ``<class>/**`` (split ``"all"``). Classes are sorted as torchvision's
ImageFolder sorts them, over all splits, so that a class that is missing from one split does not shift the labels there.
torchvision's `find_classes` takes hidden folders for classes, and fails on empty ones.

It is not this layout if folders of images are named like parts of another (case does not matter): a split with its year
(train2017), images, JPEGImages, labels, masks, annotations, SegmentationClass, CamVid's two, or anything that ends in
_labels, _masks or annot; or if two or more are called like splits (one alone may be a class: trains).

PACS: photographs, art paintings, cartoons and sketches of seven classes, ``<domain>/<class>/*``. Each domain is a
split, and ``"all"`` is all four; the domain of each sample is its group. With the official lists
(``photo_train_kfold.txt``: lines "photo/dog/x.jpg 1", labels from 1) beside the domains, or in a usual
subfolder, there are also ``"photo-train"``, ``"photo-crossval"`` and ``"photo-test"``, which is the first two
together: a domain is tested whole by a model that was trained on the others.

CUB (Caltech-UCSD Birds 200-2011): 200 kinds of birds, one box per image.

    images/<class>/*.jpg
    images.txt  classes.txt  image_class_labels.txt  train_test_split.txt  bounding_boxes.txt (id x y width height)

Its labels follow classes.txt; "001.Black_footed_Albatross" is called "Black footed Albatross". Images that images.txt
does not list are left out. torchvision has no reader for it.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from calibrant.data.dataset import Dataset, Findings, unique_names
from calibrant.data.files import SUFFIXES, folders_in
from calibrant.data.readers._boxes import BoxSamples, parse_box
from calibrant.data.readers._folder import TWICE, DataFolder, join_path, reader

#: Folders of these names are splits, not classes.
SPLITS = ("train", "training", "val", "valid", "validation", "test", "testing")

#: Folders of images of these names are parts of another layout.
_NO_CLASS = re.compile(
    rf"({'|'.join(SPLITS)})\d{{4}}|(jpeg)?images|labels|masks|annotations|segmentation(class|object)(aug)?"
    "|.*_(labels|masks)|.*annot|701_stillsraw_full|labeledapproved_full",
    re.IGNORECASE,
)
_LOOKED_AT = 200  # entries of a folder: images are rarely few among many other files

DOMAINS = ("photo", "art_painting", "cartoon", "sketch")
PACS = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
_PARTS = ("train", "crossval", "test")
_LIST_FOLDERS = ("", "splits", "pacs_label", "image_list", "Train val splits and h5py files pre-read")


def _has_images(folder: str, depth: int = 2) -> bool:
    """Whether there is an image in a folder, or in the folders in it; looks at some entries only."""
    with os.scandir(folder) as entries:
        sample = list(itertools.islice(entries, _LOOKED_AT))
    if any(os.path.splitext(entry.name)[1].lower() in SUFFIXES for entry in sample):
        return True
    return depth > 0 and any(_has_images(entry.path, depth - 1) for entry in sample[:20] if os.path.isdir(entry.path))


def _has_classes(folder: Path) -> bool:
    """Whether at least two folders in a folder hold images of a class; one alone is no classification."""
    names = folders_in(folder)

    def up_to_two(some: Iterable[str]) -> int:
        return sum(1 for _ in itertools.islice((n for n in some if _has_images(str(folder / n))), 2))

    if up_to_two(n for n in names if _NO_CLASS.fullmatch(n)) or up_to_two(n for n in names if n.lower() in SPLITS) == 2:
        return False
    return up_to_two(names) == 2


def _splits(root: Path) -> tuple[str, ...]:
    if not root.is_dir():
        return ()
    splits = tuple(name for name in SPLITS if (root / name).is_dir() and _has_classes(root / name))
    return splits or (("all",) if _has_classes(root) else ())


@reader(
    "image-folder",
    summary="<split>/<class>/** or <class>/**, images in folders named by their class",
    splits=_splits,
    rank=100,
)
def image_folder(folder: DataFolder) -> Dataset:
    """Read images in class folders, at any depth; a class is named by its folder."""
    splits, prefix = _splits(folder.root), f"{folder.split}/"
    if splits == ("all",):
        splits, prefix = ("",), ""
    classes = sorted({name for split in splits for name in folders_in(folder.root / split)})
    names = set(folders_in(folder.root / prefix))
    for name in classes:
        if name not in names:
            folder.findings.odd(f"{prefix}{name}", "class folder that only other splits have")
    folders = [(f"{prefix}{name}", label) for label, name in enumerate(classes) if name in names]
    return folder.image_dataset(folder.name, classes, folder.images_by_class(folders))


def _pacs_splits(root: Path) -> tuple[str, ...]:
    domains = tuple(d for d in DOMAINS if (root / d).is_dir() and set(folders_in(root / d)) == set(PACS))
    lists = tuple(f"{domain}-{part}" for domain in domains for part in _PARTS if _pacs_list(root, domain, part))
    return (*domains, "all", *lists) if domains else ()


def _pacs_list(root: Path, domain: str, part: str) -> str | None:
    """The official list of a part of a domain."""
    names = (join_path(folder, f"{domain}_{part}_kfold.txt") for folder in _LIST_FOLDERS)
    return next((name for name in names if (root / name).is_file()), None)


@reader(
    "pacs",
    summary="<domain>/<class>/*, four domains of seven classes, with <domain>_<part>_kfold.txt or without",
    splits=_pacs_splits,
)
def pacs(folder: DataFolder) -> Dataset:
    """Read one domain of PACS, a part of it, or all of them."""
    domain, _, part = folder.split.partition("-")
    if part:
        labels = _labels_in_list(folder, _pacs_list(folder.root, domain, part) or "", domain)
    else:
        domains = [d for d in DOMAINS if d in _pacs_splits(folder.root)] if domain == "all" else [domain]
        labels = folder.images_by_class((f"{d}/{name}", i) for d in domains for i, name in enumerate(PACS))
    return folder.image_dataset("pacs", PACS, labels, groups=tuple(name.partition("/")[0] for name in labels))


def _labels_in_list(folder: DataFolder, source: str, domain: str) -> dict[str, int]:
    """Labels of the images in a list; copies put other folders before "photo/dog/x.jpg"."""
    labels: dict[str, int] = {}
    for number, line in enumerate(folder.lines(source), start=1):
        if not line.strip():
            continue
        path, _, label = line.strip().rpartition(" ")
        parts = PurePosixPath(path.strip()).parts[-3:]
        name, location = "/".join(parts), f"{source}, line {number}"
        if len(parts) != 3 or parts[0] != domain or parts[1] not in PACS:
            folder.findings.skip(location, "line that names no image of the domain", line)
        elif label != str(PACS.index(parts[1]) + 1):
            folder.findings.skip(name, "label in the list that is not its folder's", f"{label!r}, {location}")
        elif name in labels:
            folder.findings.skip(name, TWICE, location)
        elif folder.has_image(name, location):
            labels[name] = PACS.index(parts[1])
    return labels


_CUB_TABLES = ("images.txt", "image_class_labels.txt", "train_test_split.txt", "bounding_boxes.txt")
_IS_TRAIN = {"train": "1", "test": "0"}


def _cub_splits(root: Path) -> tuple[str, ...]:
    has_tables = all(os.path.isfile(root / name) for name in ("classes.txt", *_CUB_TABLES))
    return tuple(_IS_TRAIN) if has_tables and os.path.isdir(root / "images") else ()


@reader("cub", summary="CUB-200-2011: images, images.txt, bounding_boxes.txt, train_test_split.txt", splits=_cub_splits)
def cub(folder: DataFolder) -> Dataset:
    """Read CUB-200-2011, from the folder with images.txt."""
    findings, samples = folder.findings, BoxSamples(folder)
    classes = _by_id(folder, "classes.txt", Findings("raise"))  # a class that is missing would shift the others' labels
    images, labels, is_train, boxes = (_by_id(folder, name, findings) for name in _CUB_TABLES)
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
