"""ImageNet (ILSVRC 2012): folders of classes, and boxes from the localisation or detection task's XML files.

    train/<wnid>/*.JPEG                   or the same in Data/CLS-LOC or ILSVRC/Data/CLS-LOC, as Kaggle packs it
    val/<wnid>/*.JPEG, or val/*.JPEG with LOC_val_solution.csv, or with the development kit's
                                          ILSVRC2012_validation_ground_truth.txt and map_clsloc.txt, here or in its data
    Annotations/**/<file's stem>.xml      also in ILSVRC; CLS-LOC/<split> goes before other folders
    LOC_synset_mapping.txt or words.txt   names of the classes

Labels follow the sorted wnids of all splits, as torchvision's and Kaggle's do; the numbers in the development kit are
others (1 is the kit fox), which only map_clsloc.txt explains: meta.mat is not read. An image's class is its folder's,
whatever its boxes show. torchvision's ImageNet wants the original archives and has no boxes.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator
from pathlib import Path

from calibrant.data.dataset import NO_CLASS, Dataset, Findings, OnError
from calibrant.data.files import UnreadableError, files_below, folders_in, link_trouble
from calibrant.data.layouts import layout
from calibrant.data.readers import _phrases as say
from calibrant.data.readers._boxes import Box, BoxSamples, Size, box
from calibrant.data.readers._checks import check_split, csv_rows, reason
from calibrant.data.readers._shared import class_words, is_hidden, lines_of, never_raising, stem
from calibrant.data.readers._voc_xml import parse_annotation

_WNID = re.compile(r"n\d{8}", re.ASCII)
_DATA = ("", "Data/CLS-LOC/", "ILSVRC/Data/CLS-LOC/")
_SOLUTION = "LOC_val_solution.csv"
_TRUTH, _MAP = "ILSVRC2012_validation_ground_truth.txt", "map_clsloc.txt"
_KIT = ("", "data/", "devkit/data/", "ILSVRC2012_devkit_t12/data/")

#: Of an image: its wnid, and its boxes as wnid and corners; None if only the wnid is known.
Solution = tuple[str, list[tuple[str, list[str]]] | None]


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
        flat = split == "val" and any(e.name.endswith(".JPEG") for e in first)
        if classes or (flat and (os.path.isfile(root / _SOLUTION) or _in_kit(root, _TRUTH))):
            return f"{data}{split}"
    return None


def _in_kit(root: Path, name: str) -> str | None:
    """Where a file of the development kit is, relative to the root."""
    return next((place + name for place in _KIT if os.path.isfile(root / (place + name))), None)


def _is_tiny(entry: os.DirEntry[str]) -> bool:
    return os.path.isfile(f"{entry.path}/{entry.name}_boxes.txt")  # Tiny ImageNet's folders look alike


@layout(
    "imagenet",
    summary="train/<wnid>/*.JPEG and val/<wnid>/*.JPEG (or flat with LOC_val_solution.csv), boxes in Annotations",
    splits=never_raising(_splits),
    rank=10,
)
def imagenet(
    root: str | Path,
    split: str,
    *,
    on_error: OnError = "raise",
    annotations: str | Path | None = None,
    only_annotated: bool | None = None,
) -> Dataset:
    """Read ImageNet, or any part of its classes in the same layout; ``boxes`` is None if there are no annotations.

    Args:
        root: The folder with train and val, or Kaggle's top folder.
        split: ``"train"`` or ``"val"``.
        on_error: See `calibrant.data.read`.
        annotations: The folder of XML files, if it is not one that the layout knows.
        only_annotated: Leave out images without an annotation, as [ALS] does (38% of train have one); so it is, if left
            out, as soon as there are annotations. With False they are kept without boxes, reported as odd, and their
            objectness is 0, as if they showed nothing.
    """
    root = Path(root)
    check_split(root, split, _splits(root))
    folder = _folder(root, split) or ""
    solution = _solution(root) or _truth(root, needed=split == "val")
    wnids = _wnids(root, solution)
    if split == "train":
        solution = {}
    findings = Findings(on_error)
    files = _annotation_files(root, split, annotations, findings)
    annotated = bool(files) or any(boxes is not None for _, boxes in solution.values())
    if only_annotated and not annotated:
        raise ValueError(f"{root}: only annotated images were asked for, and no annotation was found.")
    labels = {wnid: label for label, wnid in enumerate(wnids)}
    samples = BoxSamples(root, findings)
    for name, wnid in _images(samples, folder, solution):
        key = stem(name.rpartition("/")[2])
        boxes = solution[key][1] if key in solution else None
        if key in files or boxes is not None:
            _add_annotated(samples, name, wnid, files.get(key), boxes or [], labels)
        elif annotated and only_annotated is not False:
            findings.leave_out(name, say.NO_ANNOTATION)
        else:
            samples.add(name, () if annotated else None, label=labels[wnid])
    mapping = next((f for f in ("LOC_synset_mapping.txt", "words.txt") if (root / f).is_file()), "words.txt")
    data = samples.dataset("imagenet", split, class_words(root, mapping, wnids))
    return data if annotated else data.replace(boxes=None)


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
        flat = sorted(e.name for e in entries if e.name.endswith(".JPEG") and (e.is_symlink() or e.is_file()))
    home = samples.root.resolve()
    for file in flat:
        name, path = f"{folder}/{file}", samples.root / folder / file
        if is_hidden(file):
            samples.findings.leave_out(name, say.HIDDEN)
        elif os.path.islink(path) and (wrong := link_trouble(path, home)):
            samples.findings.skip(name, wrong)
        elif stem(file) in solution:
            yield name, solution[stem(file)][0]
        else:
            samples.findings.skip(name, say.NO_LABEL, "no list of val's labels names it")


def _solution(root: Path) -> dict[str, Solution]:
    """Kaggle's labels of val: lines "ImageId,wnid x1 y1 x2 y2 wnid ..."."""
    path = root / _SOLUTION
    result: dict[str, Solution] = {}
    if not path.is_file() or _folder(root, "val") is None:
        return result
    for row in csv_rows(path, iter(lines_of(root, _SOLUTION))):
        words = row[1].split() if len(row) > 1 else []
        if words and _WNID.fullmatch(words[0]):  # not the header
            result[row[0]] = words[0], [(words[i], words[i + 1 : i + 5]) for i in range(0, len(words), 5)]
    return result


def _truth(root: Path, needed: bool) -> dict[str, Solution]:
    """The development kit's labels of val, if it is flat: the number of a class per line, the images in order."""
    val, truth, mapping = _folder(root, "val"), _in_kit(root, _TRUTH), _in_kit(root, _MAP)
    if val is None or truth is None or any(map(_WNID.fullmatch, folders_in(root / val))):
        return {}
    if mapping is None:
        if not needed:
            return {}
        raise ValueError(f"{root / truth}: the file numbers the classes, and there is no {_MAP} to say which is which.")
    fields = [line.split() for line in lines_of(root, mapping) if line.strip()]  # "n02119789 1 kit_fox"
    wnids = {row[1]: row[0] for row in fields if len(row) > 1 and _WNID.fullmatch(row[0])}
    result: dict[str, Solution] = {}
    for i, line in enumerate(lines_of(root, truth), start=1):
        if line.strip() not in wnids:
            raise UnreadableError(f"{root / truth}: line {i} is {line[:50]!r}, which is no number in {_MAP}.")
        result[f"ILSVRC2012_val_{i:08d}"] = wnids[line.strip()], None
    return result


def _annotation_files(root: Path, split: str, given: str | Path | None, findings: Findings) -> dict[str, Path]:
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
                # A folder that was given may be anywhere, but what is in it stays there.
                home = folder if given is not None else root
                names = list(files_below(folder, frozenset({".xml"}), home, findings.skip))
                shown = [name for name in reversed(names) if not is_hidden(name)]
                return {stem(name.rpartition("/")[2]): folder / name for name in shown}
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
            samples.findings.skip(name, say.BAD_ANNOTATION, f"{file}: {reason(error, file)}")
            return
        if annotation.guessed:
            samples.findings.odd(name, f"annotation that is {say.LATIN_1}")
        size, found = annotation.size, list(annotation.objects)

    def boxes() -> Iterator[Box]:
        return (box(corners, labels.get(called, NO_CLASS)) for called, corners in found)

    if samples.add(name, boxes(), label=labels[wnid], size=size, source=str(file or _SOLUTION)):
        for called, _ in found:
            if called not in labels:
                samples.findings.odd(name, "box of a class that the folder does not have")
