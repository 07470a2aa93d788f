"""Cityscapes: ``leftImg8bit/<split>/<city>/*_leftImg8bit.png`` and ``gtFine/<split>/<city>/*_gtFine_labelIds.png``.

The official ids are mapped to the 19 training classes when a mask is read; masks that are there as ``labelTrainIds``
already are taken as they are. torchvision's reader gives the official ids unmapped. The official masks of the test
split are withheld: every pixel in them is ignored.
"""

from __future__ import annotations

import os
from pathlib import Path

from calibrant.data.dataset import Dataset, Findings, OnError
from calibrant.data.layouts import layout
from calibrant.data.readers._checks import check_split
from calibrant.data.readers._masks import Mapped, segmented, table
from calibrant.data.readers._shared import listed, never_raising

#: Official id of each training class, in the order of the training ids.
CLASSES = {
    "road": 7,
    "sidewalk": 8,
    "building": 11,
    "wall": 12,
    "fence": 13,
    "pole": 17,
    "traffic light": 19,
    "traffic sign": 20,
    "vegetation": 21,
    "terrain": 22,
    "sky": 23,
    "person": 24,
    "rider": 25,
    "car": 26,
    "truck": 27,
    "bus": 28,
    "train": 31,
    "motorcycle": 32,
    "bicycle": 33,
}
IGNORED = 255

#: Ids run from 0 to 33; -1, the licence plate, could only be stored as 255.
FROM_IDS = table(
    dict.fromkeys((*range(34), 255), IGNORED) | {official: train for train, official in enumerate(CLASSES.values())}
)
FROM_TRAIN_IDS = table({i: i for i in (*range(len(CLASSES)), IGNORED)})

_IMAGE, _IDS, _TRAIN_IDS = "_leftImg8bit.png", "_gtFine_labelIds.png", "_gtFine_labelTrainIds.png"


def _splits(root: Path) -> tuple[str, ...]:
    return tuple(
        s for s in ("train", "val", "test") if (root / "leftImg8bit" / s).is_dir() and (root / "gtFine" / s).is_dir()
    )


@layout(
    "cityscapes",
    summary="leftImg8bit/<split>/<city>/*_leftImg8bit.png and gtFine/<split>/<city>/*_gtFine_labelIds.png",
    splits=never_raising(_splits),
)
def cityscapes(root: str | Path, split: str, *, on_error: OnError = "raise") -> Dataset:
    """Read Cityscapes with its 19 training classes; everything else is 255 and ignored. Groups are the cities."""
    root = Path(root)
    check_split(root, split, _splits(root))
    findings = Findings(on_error)
    found = listed(root, f"leftImg8bit/{split}", findings)
    stems = [name.removesuffix(_IMAGE) for name in found if name.endswith(_IMAGE)]
    # All masks of one kind: a table belongs to a split, not to a file.
    trained = bool(stems) and all(os.path.isfile(root / "gtFine" / split / f"{stem}{_TRAIN_IDS}") for stem in stems)
    ending, meaning = (_TRAIN_IDS, FROM_TRAIN_IDS) if trained else (_IDS, FROM_IDS)
    names = ((f"leftImg8bit/{split}/{stem}{_IMAGE}", f"gtFine/{split}/{stem}{ending}") for stem in stems)
    return segmented(
        "cityscapes",
        split,
        tuple(CLASSES),
        names,
        Mapped(root, (), meaning=meaning),
        findings,
        ignore_index=IGNORED,
        group=lambda name: name.split("/")[2],
    )
