"""PACS: photographs, art paintings, cartoons and sketches of the same seven classes, ``<domain>/<class>/*``.

Each domain is a split, and ``"all"`` is the four together; the domain of each sample is its group.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from calibrant.data.dataset import Dataset
from calibrant.data.findings import Findings, OnError
from calibrant.data.layouts import layout
from calibrant.data.readers._checks import check_split
from calibrant.data.readers._shared import images_by_class, never_raising
from calibrant.data.sources import ImageFiles, folders_in

DOMAINS = ("photo", "art_painting", "cartoon", "sketch")
CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")


def _splits(root: Path) -> tuple[str, ...]:
    there = tuple(d for d in DOMAINS if (root / d).is_dir() and set(folders_in(root / d)) == set(CLASSES))
    return (*there, "all") if there else ()


@layout("pacs", summary="<domain>/<class>/*, four domains of seven classes", splits=never_raising(_splits))
def pacs(root: str | Path, split: str, *, on_error: OnError = "raise") -> Dataset:
    """Read one domain of PACS, or all of them."""
    root = Path(root)
    splits = _splits(root)
    check_split(root, split, splits)
    findings = Findings(on_error)
    domains = splits[:-1] if split == "all" else (split,)
    folders = [(f"{domain}/{name}", label) for domain in domains for label, name in enumerate(CLASSES)]
    names, labels = images_by_class(root, folders, findings)
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
