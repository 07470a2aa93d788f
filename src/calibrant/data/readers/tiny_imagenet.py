"""Tiny ImageNet: 200 classes, 64 x 64 pixels, one box per image.

    wnids.txt  words.txt
    train/<wnid>/images/*.JPEG  train/<wnid>/<wnid>_boxes.txt     file, x1, y1, x2, y2
    val/images/*.JPEG           val/val_annotations.txt           file, wnid, x1, y1, x2, y2

Labels follow wnids.txt. The test images have no labels and are not read. torchvision has no reader for it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from calibrant.data.dataset import Dataset, Findings, OnError
from calibrant.data.files import check_name, folders_in
from calibrant.data.layouts import layout
from calibrant.data.readers._boxes import BoxSamples, box
from calibrant.data.readers._checks import check_split
from calibrant.data.readers._phrases import NO_LABEL
from calibrant.data.readers._shared import class_words, lines_of, never_raising

_VAL = "val/val_annotations.txt"


def _splits(root: Path) -> tuple[str, ...]:
    if not os.path.isfile(root / "wnids.txt"):
        return ()
    there = {"train": os.path.isdir(root / "train"), "val": os.path.isfile(root / _VAL)}
    return tuple(split for split, is_there in there.items() if is_there)


@layout(
    "tiny-imagenet",
    summary="wnids.txt, train/<wnid>/images with <wnid>_boxes.txt, val/images with val_annotations.txt",
    splits=never_raising(_splits),
)
def tiny_imagenet(
    root: str | Path, split: str, *, on_error: OnError = "raise", names: Literal["words", "wnid"] = "words"
) -> Dataset:
    """Read Tiny ImageNet, or any part of its classes in the same layout.

    Args:
        root: The folder with wnids.txt.
        split: ``"train"`` or ``"val"``.
        on_error: See `calibrant.data.read`.
        names: ``"words"`` calls a class by the first of its words (words.txt), with the wnid where two would be called
            the same; ``"wnid"`` by its number.
    """
    root = Path(root)
    check_split(root, split, _splits(root))
    if names not in ("words", "wnid"):
        raise ValueError(f"names takes 'words' or 'wnid', got {names!r}.")
    wnids = [line.strip() for line in lines_of(root, "wnids.txt") if line.strip()]
    try:
        for wnid in wnids:
            check_name(root, wnid)  # it becomes the name of a folder
    except ValueError as error:
        raise ValueError(f"{root / 'wnids.txt'}: {error}") from error
    samples = BoxSamples(root, Findings(on_error))
    (_read_train if split == "train" else _read_val)(samples, {wnid: label for label, wnid in enumerate(wnids)})
    return samples.dataset("tiny-imagenet", split, wnids if names == "wnid" else class_words(root, "words.txt", wnids))


def _read_train(samples: BoxSamples, labels: dict[str, int]) -> None:
    findings, root = samples.findings, samples.root
    for folder in folders_in(root / "train"):
        if folder not in labels:
            findings.leave_out(f"train/{folder}", "folder of a class that wnids.txt does not list")
    for wnid, label in labels.items():
        folder, source = f"train/{wnid}/images", f"train/{wnid}/{wnid}_boxes.txt"
        if not (root / folder).is_dir() or not (root / source).is_file():
            findings.skip(f"train/{wnid}", "class without its folder of images or its file of boxes")
            continue
        try:
            lines = _fields(lines_of(root, source))
        except ValueError as error:
            findings.skip(f"train/{wnid}", "file of boxes that cannot be read", str(error).rstrip("."))
            continue
        boxes: dict[str, list[list[str]]] = {name: [] for name in samples.listing(folder)}
        for name, *corners in lines:
            path = samples.find(folder, name, source)
            if path is not None:
                boxes[path.removeprefix(f"{folder}/")].append(corners)
        for name, rows in boxes.items():
            samples.add(f"{folder}/{name}", (box(row, label) for row in rows), label=label, source=source)


def _read_val(samples: BoxSamples, labels: dict[str, int]) -> None:
    folder, findings = "val/images", samples.findings
    found: dict[str, tuple[list[str], list[list[str]]]] = {}
    for name, *rest in _fields(lines_of(samples.root, _VAL)):
        path = samples.find(folder, name, _VAL)
        if path is not None:
            wnids, rows = found.setdefault(path, ([], []))
            wnids.extend(rest[:1])
            rows.append(rest[1:])
    for path, (wnids, rows) in found.items():
        if len(set(wnids)) != 1 or wnids[0] not in labels:
            findings.skip(path, "image without one class that wnids.txt lists", f"{_VAL} says {', '.join(wnids)}")
            continue
        label = labels[wnids[0]]
        samples.add(path, (box(row, label) for row in rows), label=label, source=_VAL)
    for name in samples.listing(folder):
        if f"{folder}/{name}" not in found:
            findings.skip(f"{folder}/{name}", NO_LABEL, f"{_VAL} does not list it")


def _fields(lines: list[str]) -> Iterable[list[str]]:
    return (line.split("\t") if "\t" in line else line.split() for line in lines if line.strip())
