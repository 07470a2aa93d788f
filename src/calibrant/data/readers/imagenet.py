"""ImageNet (ILSVRC 2012): folders of classes, and boxes from the localisation or detection task's XML files.

    train/<wnid>/*.JPEG                   or the same in Data/CLS-LOC or ILSVRC/Data/CLS-LOC, as Kaggle packs it
    val/<wnid>/*.JPEG, or val/*.JPEG with LOC_val_solution.csv
    Annotations/**/<file's stem>.xml      also in ILSVRC; CLS-LOC/<split> goes before other folders
    LOC_synset_mapping.txt or words.txt   names of the classes

Labels follow the sorted wnids of all splits: the official order. An image's class is its folder's, whatever its boxes
show. torchvision's ImageNet wants the original archives and has no boxes.
"""

from __future__ import annotations

import csv
import itertools
import os
import re
from collections.abc import Iterator
from pathlib import Path

from calibrant.data.dataset import NO_CLASS, Dataset
from calibrant.data.findings import Findings, OnError
from calibrant.data.layouts import layout
from calibrant.data.readers._boxes import Box, BoxSamples, Size, box
from calibrant.data.readers._checks import check_split
from calibrant.data.readers._voc_xml import parse_annotation
from calibrant.data.readers.tiny_imagenet import class_words
from calibrant.data.sources import UnreadableError, files_below, folders_in, inside, read_lines

_WNID = re.compile(r"n\d{8}", re.ASCII)
_DATA = ("", "Data/CLS-LOC/", "ILSVRC/Data/CLS-LOC/")
_SOLUTION = "LOC_val_solution.csv"

#: Of an image: its wnid, and its boxes as wnid and corners.
Solution = tuple[str, list[tuple[str, list[str]]]]


def _splits(root: Path) -> tuple[str, ...]:
    return tuple(split for split in ("train", "val") if _folder(root, split) is not None)


def _folder(root: Path, split: str) -> str | None:
    """Where the images of a split are, relative to the root."""
    for data in _DATA:
        path = root / f"{data}{split}"
        try:
            with os.scandir(path) as entries:
                first = list(itertools.islice(entries, 1000))  # looked at in many folders that are something else
            classes = any(_WNID.fullmatch(e.name) and e.is_dir() and not _is_tiny(e) for e in first)
        except OSError:
            continue
        flat = split == "val" and os.path.isfile(root / _SOLUTION) and any(e.name.endswith(".JPEG") for e in first)
        if classes or flat:
            return f"{data}{split}"
    return None


def _is_tiny(entry: os.DirEntry[str]) -> bool:
    return os.path.isfile(f"{entry.path}/{entry.name}_boxes.txt")  # Tiny ImageNet's folders look alike


@layout(
    "imagenet",
    summary="train/<wnid>/*.JPEG and val/<wnid>/*.JPEG (or flat with LOC_val_solution.csv), boxes in Annotations",
    splits=_splits,
    rank=10,
)
def imagenet(
    root: str | Path,
    split: str,
    *,
    on_error: OnError = "raise",
    annotations: str | Path | None = None,
    only_annotated: bool = False,
) -> Dataset:
    """Read ImageNet, or any part of its classes in the same layout; ``boxes`` is None if there are no annotations.

    Args:
        root: The folder with train and val, or Kaggle's top folder.
        split: ``"train"`` or ``"val"``.
        on_error: See `calibrant.data.read`.
        annotations: The folder of XML files, if it is not one that the layout knows.
        only_annotated: Leave out images without an annotation, as [ALS] does (38% of train have one). Otherwise they
            are kept, without boxes: their objectness is not 0 but unknown.
    """
    root = Path(root)
    check_split(root, split, _splits(root))
    folder = _folder(root, split) or ""
    solution = _solution(root) if _folder(root, "val") is not None else {}
    wnids = _wnids(root, solution)
    if split == "train":
        solution = {}
    files = _annotation_files(root, split, annotations)
    if only_annotated and not (files or solution):
        raise ValueError(f"{root}: only annotated images were asked for, and no annotation was found.")
    labels = {wnid: label for label, wnid in enumerate(wnids)}
    samples = BoxSamples(root, Findings(on_error))
    for name, wnid in _images(samples, folder, solution):
        stem = name.rpartition("/")[2].rpartition(".")[0]
        if stem in files or stem in solution:
            _add_annotated(samples, name, wnid, files.get(stem), solution.get(stem, ("", []))[1], labels)
        elif only_annotated:
            samples.findings.leave_out(name, "image without annotation")
        else:
            samples.add(name, () if files or solution else None, label=labels[wnid])
    mapping = next((f for f in ("LOC_synset_mapping.txt", "words.txt") if (root / f).is_file()), "words.txt")
    data = samples.dataset("imagenet", split, class_words(root / mapping, wnids))
    return data if files or solution else data.replace(boxes=None)


def _wnids(root: Path, solution: dict[str, Solution]) -> list[str]:
    """Sorted, over all splits, so that labels agree between them."""
    folders = [folder for split in ("train", "val") if (folder := _folder(root, split)) is not None]
    found = {name for folder in folders for name in folders_in(root / folder) if _WNID.fullmatch(name)}
    return sorted(found | {wnid for wnid, _ in solution.values()})


def _images(samples: BoxSamples, folder: str, solution: dict[str, Solution]) -> Iterator[tuple[str, str]]:
    """Path and wnid of every image."""
    for name in folders_in(samples.root / folder):
        if _WNID.fullmatch(name):
            for file in samples.listing(f"{folder}/{name}"):
                yield f"{folder}/{name}/{file}", name
        else:
            samples.findings.leave_out(f"{folder}/{name}", "folder that is not called by a wnid")
    with os.scandir(samples.root / folder) as entries:
        flat = sorted(e.name for e in entries if e.name.endswith(".JPEG") and e.name[0] != "." and e.is_file())
    for name in flat:
        if os.path.islink(samples.root / folder / name):
            inside(samples.root / folder, name)
        wnid = solution.get(name.removesuffix(".JPEG"), ("", []))[0]
        if wnid:
            yield f"{folder}/{name}", wnid
        else:
            samples.findings.skip(f"{folder}/{name}", "image without a label", f"{_SOLUTION} does not list it")


def _solution(root: Path) -> dict[str, Solution]:
    """Kaggle's labels of val: lines "ImageId,wnid x1 y1 x2 y2 wnid ..."."""
    path = root / _SOLUTION
    result: dict[str, Solution] = {}
    if not path.is_file():
        return result
    try:
        for row in csv.reader(read_lines(path)):
            words = row[1].split() if len(row) > 1 else []
            if words and _WNID.fullmatch(words[0]):  # not the header
                result[row[0]] = words[0], [(words[i], words[i + 1 : i + 5]) for i in range(0, len(words), 5)]
    except csv.Error as error:
        raise UnreadableError(f"{path}: the file is not CSV ({error}).") from error
    return result


def _annotation_files(root: Path, split: str, given: str | Path | None) -> dict[str, Path]:
    """The XML file for each stem; of several the first."""
    if given is not None:
        homes = [Path(given)]
        if not homes[0].is_dir():
            raise ValueError(f"{given}: the folder of annotations was asked for, and is not a folder.")
    else:
        homes = [root / "Annotations", root / "ILSVRC/Annotations"]
    for home in homes:
        for folder in (home / "CLS-LOC" / split, home / split, home):
            if folder.is_dir():
                names = list(files_below(folder, frozenset({".xml"})))
                return {name.rpartition("/")[2][:-4]: folder / name for name in reversed(names)}
    return {}


def _add_annotated(
    samples: BoxSamples,
    name: str,
    wnid: str,
    file: Path | None,
    objects: list[tuple[str, list[str]]],
    labels: dict[str, int],
) -> None:
    size: Size | None = None
    found: list[tuple[str, tuple[str, ...]]] = [(called, tuple(corners)) for called, corners in objects]
    if file is not None:
        try:
            annotation = parse_annotation(file)
        except (UnreadableError, OSError) as error:
            samples.findings.skip(name, "annotation that cannot be read", str(error).rstrip("."))
            return
        size, found = annotation.size, list(annotation.objects)

    def boxes() -> Iterator[Box]:
        return (box(corners, labels.get(called, NO_CLASS)) for called, corners in found)

    if samples.add(name, boxes(), label=labels[wnid], size=size, source=str(file or _SOLUTION)):
        for called, _ in found:
            if called not in labels:
                samples.findings.odd(name, "box of a class that the folder does not have")
