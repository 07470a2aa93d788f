"""PASCAL VOC's segmentation: ``JPEGImages``, ``SegmentationClass`` and ``ImageSets/Segmentation/<split>.txt``.

A mask is a palette image whose indices are the labels: 0 background, 1..20 the classes, 255 (the rim) ignored. With
the 10,582 images of SBD, as ``SegmentationClassAug`` and ``train_aug.txt``, there is a split ``"train_aug"``.
torchvision's reader knows one place below VOCdevkit for each year, and checks neither names nor values.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from calibrant.data.dataset import Dataset, Findings, OnError
from calibrant.data.layouts import layout
from calibrant.data.readers import voc
from calibrant.data.readers._checks import check_split
from calibrant.data.readers._masks import Mapped, segmented, table
from calibrant.data.readers._shared import lines_of, never_raising

CLASSES = ("background", *voc.CLASSES)
IGNORED = 255

_MEANING = table({value: value for value in (*range(len(CLASSES)), IGNORED)})
_LISTS = "ImageSets/Segmentation"
_MASKS = dict.fromkeys(("train", "val", "trainval", "test"), "SegmentationClass") | {
    "train_aug": "SegmentationClassAug"
}


def _splits(root: Path) -> tuple[str, ...]:
    if not (root / "JPEGImages").is_dir():
        return ()
    return tuple(s for s, masks in _MASKS.items() if (root / masks).is_dir() and (root / _LISTS / f"{s}.txt").is_file())


@layout(
    "voc-segmentation",
    summary="JPEGImages, SegmentationClass and ImageSets/Segmentation/{train,val,trainval}.txt",
    splits=never_raising(_splits),
    rank=60,  # a whole VOC folder has boxes as well: those are asked for more often
)
def voc_segmentation(root: str | Path, split: str, *, on_error: OnError = "raise") -> Dataset:
    """Read PASCAL VOC with its 21 classes, background first; 255 is ignored, other values are an error."""
    root = Path(root)
    check_split(root, split, _splits(root))
    findings = Findings(on_error)
    meant = Mapped(root, (), meaning=_MEANING)
    found = _listed(root, split)
    return segmented("voc-segmentation", split, CLASSES, found, meant, findings, ignore_index=IGNORED)


def _listed(root: Path, split: str) -> Iterator[tuple[str, str]]:
    """Pairs of names; a line is a stem, or (in some copies of train_aug.txt) the two paths."""
    for line in lines_of(root, f"{_LISTS}/{split}.txt"):
        names = [name.lstrip("/") for name in line.split()]
        if len(names) == 1:
            yield f"JPEGImages/{names[0]}.jpg", f"{_MASKS[split]}/{names[0]}.png"
        elif names:
            yield names[0], names[1]
