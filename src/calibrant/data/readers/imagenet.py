"""ImageNet (ILSVRC 2012) and Tiny ImageNet: classes by wnid ("n02119789"), with boxes.

ImageNet has folders of classes, and boxes from the localisation or detection task's XML files:

    train/<wnid>/*.JPEG                   or the same in Data/CLS-LOC or ILSVRC/Data/CLS-LOC, as Kaggle packs it
    val/<wnid>/*.JPEG, or val/*.JPEG with LOC_val_solution.csv, or with the development kit's
                                          ILSVRC2012_validation_ground_truth.txt and map_clsloc.txt
    Annotations/**/<stem>.xml             also in ILSVRC; CLS-LOC/<split> takes precedence over other folders
    LOC_synset_mapping.txt or words.txt   names of the classes

Labels follow the sorted wnids of all splits, as torchvision's and Kaggle's do. The development kit numbers the classes
differently (1 is the kit fox), as map_clsloc.txt explains; meta.mat is not read. An image's class is its folder's,
whatever its boxes show. torchvision's ImageNet needs the original archives and has no boxes.

Tiny ImageNet has 200 classes, 64 x 64 pixels, and one box per image:

    wnids.txt  words.txt
    train/<wnid>/images/*.JPEG  train/<wnid>/<wnid>_boxes.txt     file, x1, y1, x2, y2
    val/images/*.JPEG           val/val_annotations.txt           file, wnid, x1, y1, x2, y2

Its labels follow wnids.txt. The test images have no labels and are not read. torchvision has no reader for it.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from calibrant.data.dataset import NO_CLASS, Dataset, unique_names
from calibrant.data.files import UnreadableError, check_name, csv_rows, files_below, folders_in, link_problem
from calibrant.data.readers._boxes import BoxSamples, Size, parse_annotation, parse_box
from calibrant.data.readers._folder import (
    BAD_ANNOTATION,
    HIDDEN,
    LATIN_1,
    NO_ANNOTATION,
    NO_LABEL,
    DataFolder,
    is_hidden,
    reader,
    reason,
    stem,
)

_WNID = re.compile(r"n\d{8}", re.ASCII)
_DATA = ("", "Data/CLS-LOC/", "ILSVRC/Data/CLS-LOC/")
_SOLUTION = "LOC_val_solution.csv"
_TRUTH, _MAP = "ILSVRC2012_validation_ground_truth.txt", "map_clsloc.txt"
_KIT = ("", "data/", "devkit/data/", "ILSVRC2012_devkit_t12/data/")
_TINY_VAL = "val/val_annotations.txt"

#: Wnid and corners of each box.
Objects = list[tuple[str, tuple[str, ...]]]
#: Of an image: its wnid, and its boxes; None if only the wnid is known.
Solution = tuple[str, Objects | None]


def _splits(root: Path) -> tuple[str, ...]:
    return tuple(split for split in ("train", "val") if _image_folder(root, split) is not None)


def _image_folder(root: Path, split: str) -> str | None:
    """The folder of a split's images, relative to the root."""
    for data in _DATA:
        try:
            with os.scandir(root / f"{data}{split}") as entries:
                sample = list(itertools.islice(entries, 1000))  # tried on many folders of other layouts
            has_classes = any(_WNID.fullmatch(e.name) and e.is_dir() and not _is_tiny(e) for e in sample)
        except OSError:
            continue
        is_flat = split == "val" and any(e.name.endswith(".JPEG") for e in sample)
        if has_classes or (is_flat and (os.path.isfile(root / _SOLUTION) or _kit_file(root, _TRUTH))):
            return f"{data}{split}"
    return None


def _kit_file(root: Path, name: str) -> str | None:
    """The path of a file of the development kit, relative to the root."""
    return next((folder + name for folder in _KIT if os.path.isfile(root / (folder + name))), None)


def _is_tiny(entry: os.DirEntry[str]) -> bool:
    return os.path.isfile(f"{entry.path}/{entry.name}_boxes.txt")  # Tiny ImageNet's folders look alike


@reader(
    "imagenet",
    summary="train/<wnid>/*.JPEG and val/<wnid>/*.JPEG (or flat with LOC_val_solution.csv), boxes in Annotations",
    splits=_splits,
    rank=10,
)
def imagenet(
    folder: DataFolder, *, annotations: str | Path | None = None, only_annotated: bool | None = None
) -> Dataset:
    """Read ImageNet, or any part of its classes in the same layout; ``boxes`` is None if there are no annotations.

    Args:
        folder: With train and val, or Kaggle's top folder.
        annotations: The folder of XML files, if it is not one that the layout knows.
        only_annotated: Leave out images without an annotation, as [ALS] does (38% of train have one); this is the
            default as soon as there are annotations. With False they are kept without boxes, reported as odd, and
            their objectness is 0, as if they showed nothing.
    """
    root, findings, samples = folder.root, folder.findings, BoxSamples(folder)
    solution = _kaggle_solution(folder) or _kit_solution(folder)
    wnids = _wnids(root, solution)
    if folder.split == "train":
        solution = {}
    files = _annotation_files(folder, annotations)
    has_boxes = bool(files) or any(boxes is not None for _, boxes in solution.values())
    if only_annotated and not has_boxes:
        raise ValueError(f"{root}: only annotated images were asked for, and no annotation was found")
    labels = {wnid: label for label, wnid in enumerate(wnids)}
    for name, wnid in _images(samples, _image_folder(root, folder.split) or "", solution):
        key = stem(name.rpartition("/")[2])
        boxes = solution[key][1] if key in solution else None
        if key in files or boxes is not None:
            _add_annotated(samples, name, wnid, files.get(key), boxes or [], labels)
        elif has_boxes and only_annotated is not False:
            findings.leave_out(name, NO_ANNOTATION)
        else:
            samples.add(name, () if has_boxes else None, label=labels[wnid])
    words = next((f for f in ("LOC_synset_mapping.txt", "words.txt") if (root / f).is_file()), "words.txt")
    data = samples.dataset("imagenet", _class_words(folder, words, wnids))
    return data if has_boxes else data.replace(boxes=None)


def _class_words(folder: DataFolder, name: str, wnids: list[str]) -> tuple[str, ...]:
    """The first word for each wnid, from lines "wnid words, words" (the wnid itself where there is none)."""
    words: dict[str, str] = {}
    for line in folder.lines(name) if (folder.root / name).is_file() else ():
        wnid, *rest = line.split(maxsplit=1)[:2] or [""]
        words[wnid] = rest[0].split(",")[0].strip() if rest else ""
    return unique_names([words.get(wnid) or wnid for wnid in wnids], wnids)


def _wnids(root: Path, solution: dict[str, Solution]) -> list[str]:
    """Sorted, over all splits, so that labels agree between them."""
    folders = [folder for split in ("train", "val") if (folder := _image_folder(root, split)) is not None]
    names = {name for folder in folders for name in folders_in(root / folder) if _WNID.fullmatch(name)}
    return sorted(names | {wnid for wnid, _ in solution.values()})


def _images(samples: BoxSamples, home: str, solution: dict[str, Solution]) -> Iterator[tuple[str, str]]:
    """Path and wnid of every image."""
    root, findings = samples.root, samples.findings
    for name in folders_in(root / home):
        if _WNID.fullmatch(name):
            yield from ((f"{home}/{name}/{file}", name) for file in samples.listing(f"{home}/{name}"))
        else:
            findings.leave_out(f"{home}/{name}", "folder that is not called by a wnid")
    with os.scandir(root / home) as entries:
        flat = sorted(e.name for e in entries if e.name.endswith(".JPEG") and (e.is_symlink() or e.is_file()))
    real_root = root.resolve()
    for file in flat:
        name, path = f"{home}/{file}", root / home / file
        if is_hidden(file):
            findings.leave_out(name, HIDDEN)
        elif os.path.islink(path) and (problem := link_problem(path, real_root)):
            findings.skip(name, problem)
        elif stem(file) in solution:
            yield name, solution[stem(file)][0]
        else:
            findings.skip(name, NO_LABEL, "no list of val's labels names it")


def _kaggle_solution(folder: DataFolder) -> dict[str, Solution]:
    """Kaggle's labels of val: lines "ImageId,wnid x1 y1 x2 y2 wnid ..."."""
    path = folder.root / _SOLUTION
    solution: dict[str, Solution] = {}
    if not path.is_file() or _image_folder(folder.root, "val") is None:
        return solution
    for row in csv_rows(path, iter(folder.lines(_SOLUTION))):
        words = row[1].split() if len(row) > 1 else []
        if words and _WNID.fullmatch(words[0]):  # not the header
            solution[row[0]] = words[0], [(words[i], tuple(words[i + 1 : i + 5])) for i in range(0, len(words), 5)]
    return solution


def _kit_solution(folder: DataFolder) -> dict[str, Solution]:
    """The development kit's labels of val, if it is flat: the number of a class per line, the images in order."""
    root = folder.root
    val, truth, mapping = _image_folder(root, "val"), _kit_file(root, _TRUTH), _kit_file(root, _MAP)
    if val is None or truth is None or any(map(_WNID.fullmatch, folders_in(root / val))):
        return {}
    if mapping is None and folder.split != "val":
        return {}
    if mapping is None:
        raise ValueError(f"{root / truth}: the file numbers the classes, and there is no {_MAP} to say which is which")
    fields = [line.split() for line in folder.lines(mapping) if line.strip()]  # "n02119789 1 kit_fox"
    wnids = {row[1]: row[0] for row in fields if len(row) > 1 and _WNID.fullmatch(row[0])}
    solution: dict[str, Solution] = {}
    for i, line in enumerate(folder.lines(truth), start=1):
        if line.strip() not in wnids:
            raise UnreadableError(f"{root / truth}: line {i} is {line[:50]!r}, which is not a number in {_MAP}")
        solution[f"ILSVRC2012_val_{i:08d}"] = wnids[line.strip()], None
    return solution


def _annotation_files(folder: DataFolder, annotations: str | Path | None) -> dict[str, Path]:
    """The XML file for each stem; of several the first."""
    homes = [folder.root / "Annotations", folder.root / "ILSVRC/Annotations"]
    if annotations is not None:
        homes = [Path(annotations)]
        if not homes[0].is_dir():
            raise ValueError(f"{annotations}: the folder of annotations was asked for, and is not a folder")
    for path in (path for home in homes for path in (home / "CLS-LOC" / folder.split, home / folder.split, home)):
        if path.is_dir():
            # A folder that was given may be anywhere, but what is in it stays there.
            limit = path if annotations is not None else folder.root
            names = list(files_below(path, frozenset({".xml"}), limit, folder.findings.skip))
            return {stem(name.rpartition("/")[2]): path / name for name in reversed(names) if not is_hidden(name)}
    return {}


def _add_annotated(
    samples: BoxSamples, name: str, wnid: str, file: Path | None, objects: Objects, labels: dict[str, int]
) -> None:
    size: Size | None = None
    if file is not None:
        try:
            annotation = parse_annotation(file)
        except (UnreadableError, OSError) as error:
            samples.findings.skip(name, BAD_ANNOTATION, f"{file}: {reason(error, file)}")
            return
        if annotation.guessed:
            samples.findings.odd(name, f"annotation that is {LATIN_1}")
        size, objects = annotation.size, list(annotation.objects)
    boxes = (parse_box(corners, labels.get(key, NO_CLASS)) for key, corners in objects)
    if samples.add(name, boxes, label=labels[wnid], size=size, source=str(file or _SOLUTION)):
        for key, _ in objects:
            if key not in labels:
                samples.findings.odd(name, "box of a class that the folder does not have")


def _tiny_splits(root: Path) -> tuple[str, ...]:
    if not os.path.isfile(root / "wnids.txt"):
        return ()
    has_split = {"train": os.path.isdir(root / "train"), "val": os.path.isfile(root / _TINY_VAL)}
    return tuple(split for split, is_there in has_split.items() if is_there)


@reader(
    "tiny-imagenet",
    summary="wnids.txt, train/<wnid>/images with <wnid>_boxes.txt, val/images with val_annotations.txt",
    splits=_tiny_splits,
)
def tiny_imagenet(folder: DataFolder, *, names: Literal["words", "wnid"] = "words") -> Dataset:
    """Read Tiny ImageNet, or any part of its classes in the same layout.

    Args:
        folder: With wnids.txt.
        names: ``"words"`` calls a class by the first of its words (words.txt), with the wnid where two would be called
            the same; ``"wnid"`` by its number.
    """
    wnids = [line.strip() for line in folder.lines("wnids.txt") if line.strip()]
    try:
        for wnid in wnids:
            check_name(folder.root, wnid)  # it becomes the name of a folder
    except ValueError as error:
        raise ValueError(f"{folder.root / 'wnids.txt'}: {error}") from error
    samples = BoxSamples(folder)
    (_read_train if folder.split == "train" else _read_val)(samples, {wnid: label for label, wnid in enumerate(wnids)})
    return samples.dataset("tiny-imagenet", wnids if names == "wnid" else _class_words(folder, "words.txt", wnids))


def _read_train(samples: BoxSamples, labels: dict[str, int]) -> None:
    findings, root = samples.findings, samples.root
    for name in folders_in(root / "train"):
        if name not in labels:
            findings.leave_out(f"train/{name}", "folder of a class that wnids.txt does not list")
    for wnid, label in labels.items():
        home, source = f"train/{wnid}/images", f"train/{wnid}/{wnid}_boxes.txt"
        if not (root / home).is_dir() or not (root / source).is_file():
            findings.skip(f"train/{wnid}", "class without its folder of images or its file of boxes")
            continue
        try:
            rows = _fields(samples.folder.lines(source))
        except ValueError as error:
            findings.skip(f"train/{wnid}", "file of boxes that cannot be read", str(error).rstrip("."))
            continue
        corners_of: dict[str, list[list[str]]] = {f"{home}/{name}": [] for name in samples.listing(home)}
        for name, *corners in rows:
            path = samples.find(home, name, source)
            if path is not None:
                corners_of[path].append(corners)
        for path, boxes in corners_of.items():
            samples.add(path, (parse_box(corners, label) for corners in boxes), label=label, source=source)


def _read_val(samples: BoxSamples, labels: dict[str, int]) -> None:
    home, findings = "val/images", samples.findings
    rows_of: dict[str, tuple[list[str], list[list[str]]]] = {}
    for name, *fields in _fields(samples.folder.lines(_TINY_VAL)):
        path = samples.find(home, name, _TINY_VAL)
        if path is not None:
            wnids, boxes = rows_of.setdefault(path, ([], []))
            wnids.extend(fields[:1])
            boxes.append(fields[1:])
    for path, (wnids, boxes) in rows_of.items():
        if len(set(wnids)) != 1 or wnids[0] not in labels:
            detail = f"{_TINY_VAL} says {', '.join(wnids)}"
            findings.skip(path, "image without one class that wnids.txt lists", detail)
            continue
        label = labels[wnids[0]]
        samples.add(path, (parse_box(corners, label) for corners in boxes), label=label, source=_TINY_VAL)
    for name in samples.listing(home):
        if f"{home}/{name}" not in rows_of:
            findings.skip(f"{home}/{name}", NO_LABEL, f"{_TINY_VAL} does not list it")


def _fields(lines: list[str]) -> Iterable[list[str]]:
    return (line.split("\t") if "\t" in line else line.split() for line in lines if line.strip())
