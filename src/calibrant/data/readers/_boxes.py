"""Shared parts of all readers of boxes: VOC's XML, checks of numbers, boxes and images, and labels of classes."""

from __future__ import annotations

import codecs
import itertools
import math
import re
from array import array
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import ParseError, fromstring

from calibrant.base.checks import printable
from calibrant.data.boxes import Boxes
from calibrant.data.dataset import NO_CLASS, Dataset
from calibrant.data.files import UnreadableError, decode, open_image, path_inside, read_bytes, short_repr
from calibrant.data.readers import _folder
from calibrant.data.readers._folder import DataFolder, join_path
from calibrant.data.sources import ImageFiles

Size = tuple[int, int]

#: Boxes that one image may have: the area of their union takes the square of their number.
MAX_BOXES = 10_000
#: x + w in decimals may exceed the edge by a rounding error, which is not reported.
_SLACK = 0.01
#: Largest coordinate.
_LARGEST = 1e9
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)

#: Findings of several readers of boxes.
NO_NUMBERS = "box that is not made of numbers"
TOO_MANY = f"image with more than {MAX_BOXES} boxes"

#: Largest XML file, in bytes: a thousand objects take a third of a megabyte.
MAX_XML = 2**22
_CORNERS = ("xmin", "ymin", "xmax", "ymax")
_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
    b"<\0": "utf-16-le",
    b"\0<": "utf-16-be",
}
_DECLARED = re.compile(rb"""\s*<\?xml[^>]*?\sencoding\s*=\s*["']([\w.:-]{1,40})["']""", re.ASCII)
#: Text encodings of Python that no annotation is written in.
_NO_ENCODINGS = {"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape"}


class SampleError(ValueError):
    """A sample with a broken box or another invalid value, and the finding under which it is counted."""

    def __init__(self, finding: str, detail: str):
        super().__init__(detail)
        self.finding = finding


class Box(NamedTuple):
    """One object: corners, class (-1: none), whether it is a crowd, and its pixels if annotated."""

    x1: float
    y1: float
    x2: float
    y2: float
    label: int = NO_CLASS
    crowd: bool = False
    pixels: float = math.nan

    @property
    def area(self) -> float:
        """Width times height."""
        return (self.x2 - self.x1) * (self.y2 - self.y1)

    def is_beyond(self, size: Size) -> bool:
        """Whether a part of it is outside the image."""
        return min(self.x1, self.y1) < -_SLACK or self.x2 > size[0] + _SLACK or self.y2 > size[1] + _SLACK


def parse_number(value: object) -> float:
    """A coordinate from JSON or text; a ValueError if it is not a finite number of a plausible size."""
    result = math.nan
    if isinstance(value, str):
        text = value.strip()
        if len(text) < 100 and _NUMBER.fullmatch(text):  # float() would also take 1_000, nan and inf
            result = float(text)
    elif isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= _LARGEST:
        result = float(value)
    if not abs(result) <= _LARGEST:
        raise ValueError(f"{short_repr(value)} is not a valid coordinate")
    return result


def parse_side(value: object) -> int:
    """The width or height of an image in an annotation; 0 if it is missing or cannot be right."""
    try:
        return max(0, int(parse_number(value)))
    except ValueError:
        return 0


def parse_box(values: Sequence[object], label: int = NO_CLASS, crowd: bool = False, *, sides: bool = False) -> Box:
    """A checked box from x1, y1, x2, y2, or from x, y, width, height with ``sides``."""
    if len(values) != 4:
        raise SampleError(NO_NUMBERS, f"{len(values)} numbers instead of 4")
    try:
        x1, y1, x2, y2 = map(parse_number, values)
    except ValueError as error:
        raise SampleError(NO_NUMBERS, str(error)) from error
    if sides:
        x2, y2 = x1 + x2, y1 + y2
    if x2 < x1 or y2 < y1:
        raise SampleError("inverted box", f"x1, y1, x2, y2 = {x1:g}, {y1:g}, {x2:g}, {y2:g}")
    return Box(x1, y1, x2, y2, label, crowd)


class BoxSamples:
    """Collects images with boxes, checks them, and makes a data set of them.

    With ``on_error="skip"`` every image file is opened (its header, and its end); otherwise only if the annotated size
    cannot be right.
    """

    def __init__(self, folder: DataFolder):
        self.folder, self.root, self.findings = folder, folder.root, folder.findings
        self._names: dict[str, None] = {}
        self._labels, self._counts = array("q"), array("q")
        self._corners, self._box_labels, self._crowd = array("d"), array("q"), array("b")
        self._pixels = array("d")
        self._listings: dict[str, dict[str, None]] = {}
        self._refused: set[str] = set()

    def listing(self, folder: str) -> dict[str, None]:
        """The images below a folder of the data folder, in order; listed once."""
        if folder not in self._listings:
            self._listings[folder] = dict.fromkeys(self.folder.files(folder, on_problem=self._refuse))
        return self._listings[folder]

    def _refuse(self, name: str, problem: str) -> None:
        self._refused.add(name)
        self.findings.skip(name, problem)

    def find(self, folder: str, name: str, source: str) -> str | None:
        """The id of an image that an annotation names; None, and a finding, if it is missing."""
        usual = str(PurePosixPath(name))  # ./a.jpg, b//a.jpg
        path = join_path(folder, usual)
        if usual in self.listing(folder):  # the listing holds no links that lead out
            return path
        if path in self._refused or folder in self._refused:
            return None  # reported already
        try:
            path_inside(self.root / folder, name)
        except (ValueError, OSError):
            self.findings.skip(source, _folder.NAME_OUT, repr(name[:200]))
        else:
            self.findings.skip(join_path(folder, name), _folder.MISSING, f"named in {source}")
        return None

    def leave_out_unannotated(self, folder: str, annotated: Container[str]) -> None:
        """Report the images of a folder that are not annotated."""
        for name in self.listing(folder):
            if join_path(folder, name) not in annotated:
                self.findings.leave_out(join_path(folder, name), _folder.NO_ANNOTATION)

    def add(
        self,
        name: str,
        boxes: Iterable[Box] | None,
        *,
        label: int | None = None,
        size: Size | None = None,
        normalised: bool = False,
        source: str = "",
    ) -> bool:
        """Add an image, unless it or one of its boxes is broken.

        Args:
            name: Its path inside the data folder, which is its id.
            boxes: Its objects; a generator may raise `SampleError`. None if the layout has no boxes.
            label: Its class; that of its largest box if left out.
            size: Width and height in the annotation, 0 if missing; None if the layout has no such field.
            normalised: Whether boxes are in units of the image's width and height.
            source: The file with the boxes, for errors.
        """
        if name in self._names:
            self.findings.skip(name, _folder.TWICE, source)
            return False
        try:
            rows = list(itertools.islice(boxes or (), MAX_BOXES + 1))
            if len(rows) > MAX_BOXES:
                raise SampleError(TOO_MANY, "")
            actual, is_rotated = self._check_file(name, rows, size, normalised)
        except SampleError as error:
            self.findings.skip(name, error.finding, ", ".join(filter(None, (str(error), source and f"in {source}"))))
            return False
        except (UnreadableError, OSError) as error:
            self.findings.skip(name, _folder.UNREADABLE, _folder.reason(error, self.root / name))
            return False
        if normalised and actual is not None:
            width, height = actual
            rows = [b._replace(x1=b.x1 * width, y1=b.y1 * height, x2=b.x2 * width, y2=b.y2 * height) for b in rows]
        self._names[name] = None
        self._labels.append(_main_class(rows) if label is None else label)
        self._counts.append(len(rows))
        for row in rows:
            self._corners.extend(row[:4])
            self._box_labels.append(row.label)
            self._crowd.append(row.crowd)
            self._pixels.append(row.pixels)
        if is_rotated:
            self.findings.odd(name, _folder.ROTATED)
        if size is not None and size != actual:
            self.findings.odd(name, "size in the annotation that is not the image's")
        if boxes is not None:
            self._report_odd(name, rows, actual, label is not None)
        return True

    def add_labelled(
        self,
        name: str,
        objects: Sequence[tuple[int | None, Any]],
        make_box: Callable[[Any, int], Box],
        *,
        size: Size,
        source: str,
    ) -> None:
        """Add an image whose objects have labels of `class_labels`: those without a label are dropped, -1 is odd."""
        labelled = [(label, content) for label, content in objects if label is not None]
        if objects and not labelled:
            self.findings.leave_out(name, "image without an object of the classes asked for")
        elif self.add(name, (make_box(content, label) for label, content in labelled), size=size, source=source):
            for label, _ in labelled:
                if label == NO_CLASS:
                    self.findings.odd(name, "box of a class that was not asked for")

    def _check_file(self, name: str, rows: list[Box], stated: Size | None, must_open: bool) -> tuple[Size | None, bool]:
        """The image's size and whether it is rotated; the file is opened only if necessary."""
        path = self.root / name
        if self.findings.on_error == "skip":
            return _folder.check_image(path)
        if must_open or (stated is not None and (min(stated) < 1 or any(b.is_beyond(stated) for b in rows))):
            with open_image(path) as image:
                return image.size, False
        return stated, False

    def _report_odd(self, name: str, rows: list[Box], actual: Size | None, has_label: bool) -> None:
        odd = self.findings.odd
        if not rows:
            odd(name, "image without a box" if has_label else "image without objects")
        elif self._labels[-1] == NO_CLASS:
            only_crowds = all(row.crowd for row in rows)
            odd(name, "image that shows only crowds" if only_crowds else
                "image without a single object of a class asked for")  # fmt: skip
        for row in rows:
            if row.area == 0:
                odd(name, "box without area")
            if actual is not None and row.is_beyond(actual):
                odd(name, "box that leaves the image")

    def dataset(self, name: str, classes: Sequence[str]) -> Dataset:
        """The images that were added."""
        boxes = Boxes(
            np.array(self._corners).reshape(-1, 4),
            np.concatenate([[0], np.cumsum(self._counts)]).astype(np.int64),
            np.array(self._box_labels, dtype=np.int64),
            np.array(self._crowd, dtype=bool),
            None if all(map(math.isnan, self._pixels)) else np.array(self._pixels),
        )
        labels, names = np.array(self._labels, dtype=np.int64), tuple(self._names)
        return self.folder.dataset(name, classes, names, labels, ImageFiles(self.root, names), boxes=boxes)


def _main_class(rows: list[Box]) -> int:
    """Class of the largest single object, the first of equals."""
    candidates = [row for row in rows if row.label != NO_CLASS and not row.crowd]
    return max(candidates, key=lambda row: row.area).label if candidates else NO_CLASS


def class_labels(
    names: Iterable[str], classes: Sequence[str] | None, rename: Mapping[str, str] | None, path: Path
) -> tuple[tuple[str, ...], dict[str, int | None]]:
    """The classes, and the label of each name: -1 if it is not a class, None if its boxes are dropped.

    Example:
        >>> class_labels(["cat", "Cat", "dog", "hair"], None, {"Cat": "cat", "hair": ""}, Path("data"))
        (('cat', 'dog'), {'cat': 0, 'Cat': 0, 'dog': 1, 'hair': None})
        >>> class_labels(["cat", "dog"], ["dog"], None, Path("data"))
        (('dog',), {'cat': -1, 'dog': 0})
    """
    new_names = rename_classes(names, rename, path)
    classes = tuple(dict.fromkeys(filter(None, new_names.values())) if classes is None else classes)
    labels = {name: i for i, name in enumerate(classes)}
    return classes, {name: labels.get(new_name, NO_CLASS) if new_name else None for name, new_name in new_names.items()}


def rename_classes(names: Iterable[str], rename: Mapping[str, str] | None, path: Path) -> dict[str, str]:
    """The new name of each name; an error if a name to change does not exist."""
    rename, names = rename or {}, dict.fromkeys(names)
    unknown = [name for name in rename if name not in names]
    if unknown:
        raise ValueError(f"{path}: the class {unknown[0]!r} was to be renamed, and is not among the classes")
    return {name: rename.get(name, name) for name in names}


class Annotation(NamedTuple):
    """The contents of a file of VOC's XML, which ImageNet uses too; a text that is missing is empty.

    Objects are their class name and x1, y1, x2, y2 as text, so that a file with a broken box still has its class names.
    """

    folder: str
    filename: str
    size: Size  # each side 0 if missing
    objects: tuple[tuple[str, tuple[str, ...]], ...]
    guessed: bool  # the file does not have the encoding that it should have, and was read as latin-1


def parse_annotation(path: Path) -> Annotation:
    """Read one XML file, without DTDs or entities; failures are an `UnreadableError` that names it, or an OSError."""
    text, guessed = _decode_xml(path)
    try:
        root = fromstring(text, forbid_dtd=True)
    except DefusedXmlException as error:
        raise UnreadableError(f"{path}: the file declares a document type or entities, which are not read") from error
    except (ParseError, ValueError, LookupError, RecursionError) as error:
        raise UnreadableError(f"{path}: the file is not XML ({' '.join(str(error).split())[:200]})") from error
    if root.tag != "annotation":
        raise UnreadableError(f"{path}: the root of the file is <{printable(root.tag, 50)}>, not <annotation>")
    objects = []
    for item in root.iterfind("object"):
        name, corners = _text(item, "name"), item.find("bndbox")
        if not name:
            raise UnreadableError(f"{path}: an <object> has no <name>")
        if corners is None:
            raise UnreadableError(f"{path}: the <object> {name[:50]!r} has no <bndbox>")
        objects.append((name, tuple(_text(corners, tag) for tag in _CORNERS)))
    width, height = (parse_side(_text(root, f"size/{tag}")) for tag in ("width", "height"))
    return Annotation(_text(root, "folder"), _text(root, "filename"), (width, height), tuple(objects), guessed)


def _decode_xml(path: Path) -> tuple[str, bool]:
    """The file's text, and whether its encoding was guessed.

    The encoding is that of the byte order mark, or else the declared one, by Python's codecs (the parser knows only
    four). A file that declares nothing or UTF-8, and is not UTF-8, is read as latin-1.
    """
    data = read_bytes(path, MAX_XML)
    marked = next((name for mark, name in _MARKS.items() if data.startswith(mark)), None)
    declared = _DECLARED.match(data)
    encoding = marked or (declared[1].decode("ascii") if declared else "utf-8")
    try:
        codec = codecs.lookup(encoding).name
        # Windows declares "utf-16" in files that are not: a declaration that is readable as ASCII cannot be either.
        if codec == "utf-8" or (not marked and codec.startswith(("utf-16", "utf-32"))):
            text, is_utf8 = decode(data)
            return text, not is_utf8
        if codec in _NO_ENCODINGS:
            raise LookupError
        return data.decode(codec), False
    except LookupError as error:
        raise UnreadableError(f"{path}: the file is not XML in a known encoding, but {encoding!r}") from error
    except ValueError as error:
        raise UnreadableError(f"{path}: the file is not XML in {encoding}, as its beginning says") from error


def _text(element: Any, tag: str) -> str:
    return " ".join((element.findtext(tag) or "").split())
