"""What all readers of boxes share: the checks of each image and its boxes, and the classes that were asked for."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np

from calibrant.data.boxes import Boxes
from calibrant.data.dataset import NO_CLASS, Dataset, Findings
from calibrant.data.files import UnreadableError, inside, opened_image
from calibrant.data.readers import _phrases as say
from calibrant.data.readers._checks import check_image, number, reason
from calibrant.data.readers._shared import check_any, joined, listed
from calibrant.data.sources import ImageFiles

Size = tuple[int, int]

#: Boxes that one image may have: the area of their union takes the square of their number.
MAX_BOXES = 10_000
#: x + w in decimals may pass the edge by a rounding error; that is not worth a word.
_SLACK = 0.01


class BoxError(ValueError):
    """A broken box: what its image shows cannot be known.

    Attributes:
        what: The phrase under which it is counted.
    """

    def __init__(self, what: str, detail: str):
        super().__init__(detail)
        self.what = what


class Box(NamedTuple):
    """One object: corners, class (-1: none of the classes), and whether it is a crowd."""

    x1: float
    y1: float
    x2: float
    y2: float
    label: int = NO_CLASS
    crowd: bool = False

    @property
    def area(self) -> float:
        """Width times height."""
        return (self.x2 - self.x1) * (self.y2 - self.y1)

    def leaves(self, size: Size) -> bool:
        """Whether a part of it is outside the image."""
        return min(self.x1, self.y1) < -_SLACK or self.x2 > size[0] + _SLACK or self.y2 > size[1] + _SLACK


def box(values: Sequence[object], label: int = NO_CLASS, crowd: bool = False, *, sides: bool = False) -> Box:
    """A checked box from x1, y1, x2, y2, or from x, y, width, height with ``sides``."""
    if len(values) != 4:
        raise BoxError(say.NO_NUMBERS, f"{len(values)} numbers instead of 4")
    try:
        x1, y1, x2, y2 = map(number, values)
    except ValueError as error:
        raise BoxError(say.NO_NUMBERS, str(error)) from error
    if sides:
        x2, y2 = x1 + x2, y1 + y2
    if x2 < x1 or y2 < y1:
        raise BoxError(say.INVERTED, f"x1, y1, x2, y2 = {x1:g}, {y1:g}, {x2:g}, {y2:g}")
    return Box(x1, y1, x2, y2, label, crowd)


class BoxSamples:
    """Images with boxes, added one at a time, checked, and at last a data set.

    With ``on_error="skip"`` every image file is opened (its header, and its end); otherwise only where the size in the
    annotation cannot be right.
    """

    def __init__(self, root: Path, findings: Findings):
        self.root, self.findings = root, findings
        self._names: dict[str, None] = {}
        self._labels, self._counts = array("q"), array("q")
        self._corners, self._box_labels, self._crowd = array("d"), array("q"), array("b")
        self._listings: dict[str, dict[str, None]] = {}
        self._refused: set[str] = set()

    def listing(self, folder: str) -> dict[str, None]:
        """The images below a folder of the data folder, in order; read once."""
        if folder not in self._listings:
            found = listed(self.root, folder, self.findings, trouble=self._refuse)
            self._listings[folder] = dict.fromkeys(found)
        return self._listings[folder]

    def _refuse(self, name: str, what: str) -> None:
        self._refused.add(name)
        self.findings.skip(name, what)

    def find(self, folder: str, name: str, source: str) -> str | None:
        """The id of an image that an annotation names; None, after a word to the findings, if it is not there."""
        usual = str(PurePosixPath(name))  # ./a.jpg, b//a.jpg
        path = joined(folder, usual)
        if usual in self.listing(folder):  # the listing holds no links that lead out
            return path
        if self._refused and (path in self._refused or folder in self._refused):
            return None  # and the findings know
        try:
            inside(self.root / folder, name)
        except (ValueError, OSError):
            self.findings.skip(source, say.NAME_OUT, repr(name[:200]))
        else:
            self.findings.skip(joined(folder, name), say.MISSING, f"named in {source}")
        return None

    def leave_out_others(self, folder: str, annotated: Container[str]) -> None:
        """Report the images of a folder that no annotation speaks of, by their ids."""
        for name in self.listing(folder):
            if joined(folder, name) not in annotated:
                self.findings.leave_out(joined(folder, name), say.NO_ANNOTATION)

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
            boxes: Its objects; a generator may raise `BoxError`. None: they are not known, and nobody expects them.
            label: Its class; that of its largest box if left out.
            size: Width and height as the annotation says, 0 where it does not; None if the layout has no such field.
            normalised: Whether the boxes are given in units of the image's width and height.
            source: The file that the boxes come from, for errors.
        """
        if name in self._names:
            self.findings.skip(name, say.TWICE, source)
            return False
        try:
            rows = list(itertools.islice(boxes or (), MAX_BOXES + 1))
            if len(rows) > MAX_BOXES:
                raise BoxError(f"image with more than {MAX_BOXES} boxes", "")
            actual, rotated = self._look(name, rows, size, normalised)
        except BoxError as error:
            self.findings.skip(name, error.what, ", ".join(filter(None, (str(error), source and f"in {source}"))))
            return False
        except (UnreadableError, OSError) as error:
            self.findings.skip(name, say.UNREADABLE, reason(error, self.root / name))
            return False
        if normalised and actual is not None:
            width, height = actual
            rows = [b._replace(x1=b.x1 * width, y1=b.y1 * height, x2=b.x2 * width, y2=b.y2 * height) for b in rows]
        self._keep(name, rows, _class_of(rows) if label is None else label)
        if rotated:
            self.findings.odd(name, say.ROTATED)
        self._report(name, rows, size, actual, boxes is None, label is not None)
        return True

    def _look(self, name: str, rows: list[Box], stated: Size | None, needed: bool) -> tuple[Size | None, bool]:
        """The image's size, as far as it is known without a look at files that need none, and if it is rotated."""
        path = self.root / name
        if self.findings.on_error == "skip":
            return check_image(path)
        if needed or (stated is not None and (min(stated) < 1 or any(b.leaves(stated) for b in rows))):
            with opened_image(path) as image:
                return image.size, False
        return stated, False

    def _keep(self, name: str, rows: list[Box], label: int) -> None:
        self._names[name] = None
        self._labels.append(label)
        self._counts.append(len(rows))
        for row in rows:
            self._corners.extend(row[:4])
            self._box_labels.append(row.label)
            self._crowd.append(row.crowd)

    def _report(
        self, name: str, rows: list[Box], stated: Size | None, actual: Size | None, unknown: bool, labelled: bool
    ) -> None:
        odd = self.findings.odd
        if stated is not None and stated != actual:
            odd(name, say.OTHER_SIZE)
        if unknown:
            return
        if not rows:
            odd(name, say.NO_BOX if labelled else say.NO_OBJECTS)
        elif self._labels[-1] == NO_CLASS:
            odd(name, say.ONLY_CROWDS if all(row.crowd for row in rows) else say.NO_SINGLE)
        for row in rows:
            if row.area == 0:
                odd(name, say.NO_AREA)
            if actual is not None and row.leaves(actual):
                odd(name, say.LEAVES)

    def __len__(self) -> int:
        return len(self._names)

    def dataset(self, name: str, split: str, classes: Sequence[str]) -> Dataset:
        """The images that were added."""
        check_any(self.root, split, len(self), self.findings)
        names = tuple(self._names)
        boxes = Boxes(
            np.array(self._corners).reshape(-1, 4),
            np.concatenate([[0], np.cumsum(self._counts)]).astype(np.int64),
            np.array(self._box_labels, dtype=np.int64),
            np.array(self._crowd, dtype=bool),
        )
        labels = np.array(self._labels, dtype=np.int64)
        inputs = ImageFiles(self.root, names)
        return Dataset(name, split, tuple(classes), names, labels, inputs, boxes, report=self.findings.report())


def _class_of(rows: list[Box]) -> int:
    """Class of the largest box, of equals the first; a crowd is no single object."""
    known = [row for row in rows if row.label != NO_CLASS and not row.crowd]
    return max(known, key=lambda row: row.area).label if known else NO_CLASS


def class_labels(
    found: Iterable[str], classes: Sequence[str] | None, rename: Mapping[str, str] | None, where: Path
) -> tuple[tuple[str, ...], dict[str, int | None]]:
    """The classes, and the label of each name found: -1 if it was not asked for, None if its boxes are to be dropped.

    Example:
        >>> class_labels(["cat", "Cat", "dog", "hair"], None, {"Cat": "cat", "hair": ""}, Path("data"))
        (('cat', 'dog'), {'cat': 0, 'Cat': 0, 'dog': 1, 'hair': None})
        >>> class_labels(["cat", "dog"], ["dog"], None, Path("data"))
        (('dog',), {'cat': -1, 'dog': 0})
    """
    if isinstance(classes, str):
        raise ValueError(f"classes takes a list of names, got the text {classes!r}.")
    final = renamed(found, rename, where)
    classes = tuple(dict.fromkeys(filter(None, final.values())) if classes is None else classes)
    labels = {name: i for i, name in enumerate(classes)}
    return classes, {name: labels.get(new, NO_CLASS) if new else None for name, new in final.items()}


def renamed(found: Iterable[str], rename: Mapping[str, str] | None, where: Path) -> dict[str, str]:
    """The new name of each name found; a name to change that was not found is an error."""
    rename = rename or {}
    names = dict.fromkeys(found)
    missing = [name for name in rename if name not in names]
    if missing:
        raise ValueError(f"{where}: the class {missing[0]!r} was to be renamed, and is not among the classes found.")
    return {name: rename.get(name, name) for name in names}
