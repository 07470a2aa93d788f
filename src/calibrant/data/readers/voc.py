"""PASCAL VOC, and sets in its form: one XML file of boxes per image.

    Annotations/**/*.xml  JPEGImages/**  ImageSets/Main/<split>.txt     without ImageSets one split, "all"
    *.xml and images in one folder                                      one split, "all"

Labels follow the sorted names over all annotations of the folder, so that they agree between splits; VOC's own 20 if
the names are among them and the set says that it is VOC: by its folder's name, by <folder>, or by having all 20.

An annotation's image is the one of its own stem (Annotations/sub/a.xml: JPEGImages/sub/a.jpg); if there is none, the
one that <filename> names, unless that has an annotation of its own; <path> is somebody else's disk. Images without an
annotation are left out and counted: where there are lists, in the split that lists them, and those in no list in every
split. torchvision's VOCDetection knows only VOC's own years, and checks nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path

from calibrant.data.dataset import ALIKE, NO_CLASS, Dataset, Findings, OnError
from calibrant.data.files import SUFFIXES, UnreadableError
from calibrant.data.layouts import layout
from calibrant.data.readers import _phrases as say
from calibrant.data.readers._boxes import Box, BoxSamples, box, class_labels, renamed
from calibrant.data.readers._checks import check_split, reason
from calibrant.data.readers._shared import joined, lines_of, listed, never_raising, set_name, stem
from calibrant.data.readers._voc_xml import Annotation, parse_annotation

# fmt: off
CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog",
    "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)
# fmt: on
_LISTS = "ImageSets/Main"
_ALL = ("all",)
_XML = frozenset({".xml"})
_VOC = re.compile(r"VOC(20\d\d)?")
_OTHER_IMAGE = "file name in the annotation is another image's: the one of its own name is used"
_NO_IMAGE = "file name in the annotation that is not there: the image beside it is used"


def _splits(root: Path) -> tuple[str, ...]:
    if os.path.isdir(root / "Annotations") and os.path.isdir(root / "JPEGImages"):
        return (_lists(root) or _ALL) if _holds(root / "Annotations", _XML, deeper=True) else ()
    return _ALL if _holds(root, _XML) and _holds(root, SUFFIXES) else ()


def _holds(folder: Path, suffixes: frozenset[str], deeper: bool = False) -> bool:
    """Whether a file of the kind is in a folder, or in one of the folders in it."""
    below = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if os.path.splitext(entry.name)[1].lower() in suffixes:
                return True
            if deeper and os.path.isdir(entry.path):
                below.append(Path(entry.path))
    return any(_holds(path, suffixes) for path in below)


def _lists(root: Path) -> tuple[str, ...]:
    """The lists of images in ImageSets/Main, without those of one class each ("cow_train" beside "train")."""
    if not os.path.isdir(root / _LISTS):
        return ()
    found = {stem(name) for name in os.listdir(root / _LISTS) if name.endswith(".txt")}
    return tuple(sorted(name for name in found if name.rpartition("_")[2] not in found - {name}))


@layout(
    "voc",
    summary="Annotations/*.xml, JPEGImages, ImageSets/Main/<split>.txt; or XML files beside their images",
    splits=never_raising(_splits),
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
    files = {stem(name): joined(folders[0], name) for name in listed(root, folders[0], findings, _XML)}
    read = {key: _parsed(root / file) for key, file in files.items()}
    names: dict[str, list[str]] = {}  # where each name occurs, once per box
    for key, annotation in read.items():
        for name, _ in annotation.objects if isinstance(annotation, Annotation) else ():
            names.setdefault(name, []).append(files[key])
    final = renamed(sorted(names), rename, root)
    _report_names(findings, names, final)
    if classes is None:
        kept = set(final.values()) - {""}
        classes = CLASSES if kept <= set(CLASSES) and _is_voc(root, kept, read) else sorted(kept)
    classes, labels = class_labels(sorted(names), classes, rename, root)
    images = _Images(samples, folders[1], files)
    for key in _listed(root, split, files, findings):
        annotation = read[key]
        if not isinstance(annotation, Annotation):
            findings.skip(files[key], say.BAD_ANNOTATION, reason(annotation, root / files[key]))
            continue
        if annotation.guessed:
            findings.odd(files[key], f"annotation that is {say.LATIN_1}")
        image = images.of(key, annotation.filename)
        if image is not None:
            _add(samples, image, annotation, files[key], labels)
    images.report_others(root, read)
    return samples.dataset(set_name(root), split, classes)


def _is_voc(root: Path, names: set[str], read: Mapping[str, Annotation | Exception]) -> bool:
    """Whether a set whose names are among VOC's says that it is VOC."""
    folders = (a.folder for a in read.values() if isinstance(a, Annotation))
    return names == set(CLASSES) or any(_VOC.fullmatch(f) for f in (root.resolve().name, set_name(root), *folders))


def _parsed(path: Path) -> Annotation | Exception:
    """The annotation, or why there is none: files of other splits may be broken, and are only asked for their names."""
    try:
        return parse_annotation(path)
    except (UnreadableError, OSError) as error:
        return error


def _entries(root: Path, split: str, files: Container[str]) -> Iterator[str]:
    """The stems that a list names: as they are, or with the image's suffix; what is not there as it is written."""
    for line in filter(str.strip, lines_of(root, f"{_LISTS}/{split}.txt")):
        written = line.strip(), line.split()[0]  # a second column says something of a class
        images = (stem(name) for name in written if os.path.splitext(name)[1].lower() in SUFFIXES)
        yield next((name for name in (*written, *images) if name in files), written[1])


def _listed(root: Path, split: str, files: Mapping[str, str], findings: Findings) -> Iterator[str]:
    """The stems of a split, in the order of its list."""
    if not (root / "Annotations").is_dir() or not _lists(root):
        yield from files
        return
    seen = set()
    for name in _entries(root, split, files):
        where = f"{_LISTS}/{split}.txt, {name[:200]!r}"
        if name not in files:
            findings.skip(where, "listed image without an annotation")
        elif name in seen:
            findings.skip(where, say.TWICE)
        else:
            seen.add(name)
            yield name


class _Images:
    """The images of a set: which one belongs to which annotation, and which belong to none."""

    def __init__(self, samples: BoxSamples, folder: str, files: Mapping[str, str]):
        self.samples, self.folder, self.files = samples, folder, files
        self.by_stem: dict[str, list[str]] = {}
        for name in samples.listing(folder):
            self.by_stem.setdefault(stem(name), []).append(name)

    def of(self, key: str, filename: str) -> str | None:
        """The id of an annotation's image."""
        findings, source = self.samples.findings, self.files[key]
        own = self.by_stem.get(key, [])
        if own:
            named = [name for name in own if filename in (name, name.rpartition("/")[2])]
            name = (named or own)[0]
            if len(own) > 1:
                findings.odd(", ".join(joined(self.folder, other) for other in own), say.ONE_STEM)
            if filename in self.samples.listing(self.folder) and not named:
                findings.odd(source, _OTHER_IMAGE)
            elif not named and filename not in ("", key, key.rpartition("/")[2]):
                findings.odd(source, _NO_IMAGE)
            return joined(self.folder, name)
        if filename in self.samples.listing(self.folder) and stem(filename) in self.files:
            findings.skip(source, say.TWICE, f"{filename!r} has an annotation of its own")
            return None
        return self.samples.find(self.folder, filename or f"{key}.jpg", source)

    def report_others(self, root: Path, read: Mapping[str, Annotation | Exception]) -> None:
        """Leave out the images of which no annotation and no list speaks; those in a list are its split's business."""
        known = set(self.files)
        known |= {stem(a.filename) for key, a in read.items() if isinstance(a, Annotation) and key not in self.by_stem}
        if self.folder:
            known |= {name for split in _lists(root) for name in _entries(root, split, self.by_stem)}
        others = {joined(self.folder, name) for key in self.by_stem.keys() & known for name in self.by_stem[key]}
        self.samples.leave_out_others(self.folder, others)


def _add(
    samples: BoxSamples, image: str, annotation: Annotation, source: str, labels: Mapping[str, int | None]
) -> None:
    objects = [(name, label, corners) for name, corners in annotation.objects if (label := labels[name]) is not None]
    if annotation.objects and not objects:
        samples.findings.leave_out(image, say.NOT_ASKED_FOR)
        return

    def boxes() -> Iterator[Box]:
        return (box(corners, label) for _, label, corners in objects)

    if samples.add(image, boxes(), size=annotation.size, source=source):
        for _, label, _ in objects:
            if label == NO_CLASS:
                samples.findings.odd(image, say.OTHER_CLASS)


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
            files = ", ".join(dict.fromkeys(places[name][:3]))
            pair = f"{name!r} ({len(places[name])}) beside {usual!r} ({len(places[usual])}), in {files}"
            findings.odd(pair, ALIKE)
    for name, where in places.items():
        if len(where) == 1:
            findings.odd(f"{name!r} in {where[0]}", "class with a single box")
