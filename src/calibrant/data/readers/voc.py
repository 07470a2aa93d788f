"""PASCAL VOC, and sets in its form: one XML file of boxes per image.

    Annotations/*.xml  JPEGImages/*  ImageSets/Main/<split>.txt     without ImageSets one split, "all"
    *.xml and images in one folder                                  one split, "all"

Labels follow the sorted names over all annotations of the folder, so that they agree between splits; VOC's own 20 if
all names are among them. An image is the one that <filename> names, else the one with the annotation's own stem; <path>
is somebody else's disk. torchvision's VOCDetection knows only VOC's own years, and checks nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from calibrant.data.dataset import NO_CLASS, Dataset
from calibrant.data.findings import Findings, OnError
from calibrant.data.layouts import layout
from calibrant.data.readers._boxes import Box, BoxSamples, box, class_labels, renamed
from calibrant.data.readers._checks import check_split
from calibrant.data.readers._voc_xml import Annotation, parse_annotation
from calibrant.data.sources import SUFFIXES, UnreadableError, files_below, read_lines

# fmt: off
CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog",
    "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)
# fmt: on
_LISTS = "ImageSets/Main"
_ALL = ("all",)


def _splits(root: Path) -> tuple[str, ...]:
    try:
        if os.path.isdir(root / "Annotations") and os.path.isdir(root / "JPEGImages"):
            return (_lists(root) or _ALL) if _holds(root / "Annotations", {".xml"}) else ()
        return _ALL if _holds(root, {".xml"}) and _holds(root, SUFFIXES) else ()
    except OSError:
        return ()


def _holds(folder: Path, suffixes: set[str] | frozenset[str]) -> bool:
    with os.scandir(folder) as entries:
        return any(os.path.splitext(e.name)[1].lower() in suffixes for e in entries)


def _lists(root: Path) -> tuple[str, ...]:
    """The lists of images in ImageSets/Main, without those of one class each ("cow_train" beside "train")."""
    if not os.path.isdir(root / _LISTS):
        return ()
    stems = {name[:-4] for name in os.listdir(root / _LISTS) if name.endswith(".txt")}
    return tuple(sorted(stem for stem in stems if stem.rpartition("_")[2] not in stems - {stem}))


@layout(
    "voc",
    summary="Annotations/*.xml, JPEGImages, ImageSets/Main/<split>.txt; or XML files beside their images",
    splits=_splits,
    rank=50,
)
def voc(
    root: str | Path,
    split: str,
    *,
    on_error: OnError = "raise",
    classes: Sequence[str] | None = None,
    rename: Mapping[str, str] | None = None,
) -> Dataset:
    """Read a set in VOC's form; an image's class is that of its largest box.

    Args:
        root: The folder with Annotations, or with XML files and images.
        split: A list in ImageSets/Main, or ``"all"`` where there are none.
        on_error: See `calibrant.data.read`.
        classes: The classes, in the order of the labels; boxes of others are kept without a class.
        rename: New names by old ones, which merges classes ("trash can" to "trashcan"); an empty new name drops a
            class's boxes.
    """
    root = Path(root)
    check_split(root, split, _splits(root))
    folders = ("Annotations", "JPEGImages") if (root / "Annotations").is_dir() else ("", "")
    findings = Findings(on_error)
    samples = BoxSamples(root, findings)
    files = {name[:-4]: f"{folders[0]}/{name}".lstrip("/") for name in _xml_names(root / folders[0])}
    read = {stem: _parsed(root / file) for stem, file in files.items()}
    names: dict[str, list[str]] = {}  # where each name occurs, once per box
    for stem, annotation in read.items():
        for name, _ in annotation.objects if isinstance(annotation, Annotation) else ():
            names.setdefault(name, []).append(files[stem])
    final = renamed(sorted(names), rename, root)
    _report_names(findings, names, final)
    if classes is None:
        kept = sorted(set(final.values()) - {""})
        classes = CLASSES if set(kept) <= set(CLASSES) else kept
    classes, labels = class_labels(sorted(names), classes, rename, root)
    by_stem = {name.rpartition(".")[0]: name for name in samples.listing(folders[1])}
    for stem in _listed(root, split, files, findings):
        annotation = read[stem]
        if not isinstance(annotation, Annotation):
            findings.skip(files[stem], "annotation that cannot be read", str(annotation).rstrip("."))
            continue
        image = _image(samples, folders[1], annotation.filename, stem, files[stem], by_stem)
        if image is not None:
            _add(samples, image, annotation, files[stem], labels)
    return samples.dataset("voc", split, classes)


def _xml_names(folder: Path) -> list[str]:
    return [name for name in files_below(folder, frozenset({".xml"})) if "/" not in name and name[0] != "."]


def _parsed(path: Path) -> Annotation | Exception:
    """The annotation, or why there is none: files of other splits may be broken, and are only asked for their names."""
    try:
        return parse_annotation(path)
    except (UnreadableError, OSError) as error:
        return error


def _listed(root: Path, split: str, files: Mapping[str, str], findings: Findings) -> Iterator[str]:
    """The stems of a split, in the order of its list."""
    if not (root / "Annotations").is_dir() or not _lists(root):
        yield from files
        return
    seen = set()
    for line in filter(str.strip, read_lines(root / _LISTS / f"{split}.txt")):
        stem = line.strip() if line.strip() in files else line.split()[0]  # a second column says something of a class
        where = f"{_LISTS}/{split}.txt"
        if stem not in files:
            findings.skip(where, "listed image without an annotation", repr(stem[:200]))
        elif stem in seen:
            findings.skip(where, "image that is listed twice", repr(stem[:200]))
        else:
            seen.add(stem)
            yield stem


def _image(
    samples: BoxSamples, folder: str, filename: str, stem: str, source: str, by_stem: Mapping[str, str]
) -> str | None:
    """The id of an annotation's image."""
    listing = samples.listing(folder)
    if filename in listing:
        name = filename
    elif stem in by_stem:
        name = by_stem[stem]
        if filename not in ("", stem):
            samples.findings.odd(source, "file name in the annotation that is not there: the image beside it is used")
    else:
        return samples.find(folder, filename or f"{stem}.jpg", source)
    return f"{folder}/{name}" if folder else name


def _add(
    samples: BoxSamples, image: str, annotation: Annotation, source: str, labels: Mapping[str, int | None]
) -> None:
    objects = [(name, label, corners) for name, corners in annotation.objects if (label := labels[name]) is not None]
    if annotation.objects and not objects:
        samples.findings.leave_out(image, "image without an object of the classes asked for")
        return

    def boxes() -> Iterator[Box]:
        return (box(corners, label) for _, label, corners in objects)

    if samples.add(image, boxes(), size=annotation.size, source=source):
        for _, label, _ in objects:
            if label == NO_CLASS:
                samples.findings.odd(image, "box of a class that was not asked for")


def _report_names(findings: Findings, names: Mapping[str, list[str]], final: Mapping[str, str]) -> None:
    """Names that look like slips: one that differs from another by little, one with a single box."""
    places: dict[str, list[str]] = {}
    for name, where in names.items():
        places.setdefault(final[name], []).extend(where)
    places.pop("", None)
    alike: dict[str, list[str]] = {}
    for name in places:
        alike.setdefault(name.casefold().translate({ord(c): None for c in " -_"}), []).append(name)
    for group in alike.values():
        usual, *rest = sorted(group, key=lambda name: -len(places[name]))
        for name in rest:
            pair = f"{name!r} ({len(places[name])}) beside {usual!r} ({len(places[usual])})"
            findings.odd(pair, "class name that differs from another only by case, spaces, '-' or '_'")
    for name, where in places.items():
        if len(where) == 1:
            findings.odd(f"{name!r} in {where[0]}", "class with a single box")
