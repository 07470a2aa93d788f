"""PACS: photographs, art paintings, cartoons and sketches of the same seven classes, ``<domain>/<class>/*``.

Each domain is a split, and ``"all"`` is the four together; the domain of each sample is its group. With the official
lists (``photo_train_kfold.txt``: lines "photo/dog/x.jpg 1", labels from 1) beside the domains, or in a folder that
copies keep them in, there are also ``"photo-train"``, ``"photo-crossval"`` and ``"photo-test"``, which is the first two
together: a domain is tested whole by a model that was trained on the others.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import numpy as np

from calibrant.data.dataset import Dataset, Findings, OnError
from calibrant.data.files import folders_in
from calibrant.data.layouts import layout
from calibrant.data.readers._checks import check_split
from calibrant.data.readers._phrases import TWICE
from calibrant.data.readers._shared import check_any, images_by_class, is_there, joined, lines_of, never_raising
from calibrant.data.sources import ImageFiles

DOMAINS = ("photo", "art_painting", "cartoon", "sketch")
CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")

_PARTS = ("train", "crossval", "test")
_PLACES = ("", "splits", "pacs_label", "image_list", "Train val splits and h5py files pre-read")


def _splits(root: Path) -> tuple[str, ...]:
    there = tuple(d for d in DOMAINS if (root / d).is_dir() and set(folders_in(root / d)) == set(CLASSES))
    lists = tuple(f"{domain}-{part}" for domain in there for part in _PARTS if _list(root, domain, part) is not None)
    return (*there, "all", *lists) if there else ()


def _list(root: Path, domain: str, part: str) -> str | None:
    """The official list of a part of a domain."""
    names = (joined(place, f"{domain}_{part}_kfold.txt") for place in _PLACES)
    return next((name for name in names if (root / name).is_file()), None)


@layout(
    "pacs",
    summary="<domain>/<class>/*, four domains of seven classes, with <domain>_<part>_kfold.txt or without",
    splits=never_raising(_splits),
)
def pacs(root: str | Path, split: str, *, on_error: OnError = "raise") -> Dataset:
    """Read one domain of PACS, a part of it, or all of them."""
    root = Path(root)
    splits = _splits(root)
    check_split(root, split, splits)
    findings = Findings(on_error)
    domain, _, part = split.partition("-")
    if part:
        names, labels = _listed(root, _list(root, domain, part) or "", domain, findings)
    else:
        domains = [d for d in DOMAINS if d in splits] if split == "all" else [domain]
        folders = [(f"{d}/{name}", label) for d in domains for label, name in enumerate(CLASSES)]
        names, labels = images_by_class(root, folders, findings)
    check_any(root, split, len(names), findings)
    return Dataset(
        "pacs",
        split,
        CLASSES,
        names,
        np.asarray(labels),
        ImageFiles(root, names),
        groups=tuple(name.partition("/")[0] for name in names),
        report=findings.report(),
    )


def _listed(root: Path, source: str, domain: str, findings: Findings) -> tuple[tuple[str, ...], list[int]]:
    """Names and labels of the images in a list; copies put other folders before "photo/dog/x.jpg"."""
    kept: dict[str, int] = {}
    for number, line in enumerate(lines_of(root, source), start=1):
        if not line.strip():
            continue
        path, _, given = line.strip().rpartition(" ")
        parts = PurePosixPath(path.strip()).parts[-3:]
        name, where = "/".join(parts), f"{source}, line {number}"
        if len(parts) != 3 or parts[0] != domain or parts[1] not in CLASSES:
            findings.skip(where, "line that names no image of the domain", line)
        elif given != str(CLASSES.index(parts[1]) + 1):
            findings.skip(name, "label in the list that is not its folder's", f"{given!r}, {where}")
        elif name in kept:
            findings.skip(name, TWICE, where)
        elif is_there(root, name, where, findings):
            kept[name] = CLASSES.index(parts[1])
    return tuple(kept), list(kept.values())
