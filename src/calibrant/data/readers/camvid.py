"""CamVid as SegNet's tutorial lays it out: ``{train,val,test}``, ``{train,val,test}annot`` and lists of pairs.

A line of ``train.txt`` names an image and its mask, under any prefix (``/SegNet/CamVid/train/x.png``): the last two
parts of each name count. Without a list, masks go with the images of the same stem.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import numpy as np

from calibrant.data.dataset import NO_CLASS, Dataset
from calibrant.data.findings import Findings, OnError
from calibrant.data.layouts import layout
from calibrant.data.readers._checks import check_split
from calibrant.data.readers._masks import pairs, table
from calibrant.data.readers._shared import never_raising
from calibrant.data.sources import files_below, read_lines

CLASSES = (
    *("Sky", "Building", "Pole", "Road", "Pavement", "Tree"),
    *("SignSymbol", "Fence", "Car", "Pedestrian", "Bicyclist"),
)
VOID = 11

_MEANING = table({value: value for value in range(VOID + 1)})


def _splits(root: Path) -> tuple[str, ...]:
    return tuple(s for s in ("train", "val", "test") if (root / s).is_dir() and (root / f"{s}annot").is_dir())


@layout(
    "camvid",
    summary="{train,val,test} and {train,val,test}annot, with lists {train,val,test}.txt or without",
    splits=never_raising(_splits),
)
def camvid(root: str | Path, split: str, *, on_error: OnError = "raise") -> Dataset:
    """Read CamVid with 11 classes; 11 (unlabelled) is ignored, any other value in a mask is an error."""
    root = Path(root)
    check_split(root, split, _splits(root))
    findings = Findings(on_error)
    listed = _listed(root, split, findings) if (root / f"{split}.txt").is_file() else _found(root, split)
    images, masks = pairs(root, listed, _MEANING, findings)
    return Dataset(
        "camvid",
        split,
        CLASSES,
        images.names,
        np.full(len(images), NO_CLASS),
        images,
        masks=masks,
        ignore_index=VOID,
        report=findings.report(),
    )


def _listed(root: Path, split: str, findings: Findings) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(read_lines(root / f"{split}.txt"), start=1):
        names = line.split()
        if len(names) == 2:
            image, mask = ("/".join(PurePosixPath(name.replace("\\", "/")).parts[-2:]) for name in names)
            yield image, mask
        elif names:
            findings.skip(f"{split}.txt line {number}", "a line should name an image and a mask", f"{len(names)} names")


def _found(root: Path, split: str) -> Iterator[tuple[str, str]]:
    masks = {PurePosixPath(name).with_suffix("").as_posix(): name for name in files_below(root / f"{split}annot")}
    for name in files_below(root / split):
        stem = PurePosixPath(name).with_suffix("").as_posix()
        yield f"{split}/{name}", f"{split}annot/{masks.get(stem, stem + '.png')}"
