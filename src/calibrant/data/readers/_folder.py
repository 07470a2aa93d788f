"""Shared parts of all readers: registration, the data folder, and the wording of findings.

A reader is a function ``read(folder: DataFolder, *, options) -> Dataset`` with the decorator `reader`, which checks the
split and the options before the function is called.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from calibrant.base.checks import listing
from calibrant.data.dataset import Dataset, Findings, OnError
from calibrant.data.files import (
    MAX_PIXELS,
    SUFFIXES,
    UnreadableError,
    files_below,
    open_file,
    open_image,
    path_inside,
    read_lines,
    to_eight_bit,
)
from calibrant.data.layouts import layout
from calibrant.data.sources import ImageFiles, Inputs

Splits = Callable[[Path], tuple[str, ...]]

#: Findings of several readers, by which they are counted.
UNREADABLE = "image that cannot be read"
MISSING = "image that is missing"
TWICE = "image that is listed twice"
NAME_OUT = "file name that leads out of the data folder"
NO_LABEL = "image without a label"
BAD_LABEL = "label outside the classes"
NO_PROBABILITIES = "soft labels that are no probabilities"
BAD_ANNOTATION = "annotation that cannot be read"
HIDDEN = "hidden file"
NO_ANNOTATION = "image without an annotation"
ROTATED = "image with an EXIF rotation, which is not applied"
ONE_STEM = "images of one stem, of which one is used"
LATIN_1 = "not UTF-8, read as latin-1"

#: Largest deviation from 1 of the sum of soft labels.
SOFT_TOLERANCE = 1e-3

#: The end of a complete file, by PIL's name of the format.
_ENDS = {"JPEG": b"\xff\xd9", "MPO": b"\xff\xd9", "PNG": b"IEND"}
_TAIL = 1024
_ORIENTATION = 0x0112  # EXIF's tag; 1 is upright


def reader(
    name: str, *, summary: str, splits: Splits, rank: int = 0, absent: Mapping[str, str] | None = None
) -> Callable[[Callable[..., Dataset]], Callable[..., Dataset]]:
    """Decorator that registers a reader under the name of its layout; the arguments are the fields of `Layout`.

    ``splits`` may also raise an OSError or a ValueError if a folder has another layout. The decorated reader is called
    as ``read(root, split, *, on_error="raise", **options)``.
    """

    def register(read: Callable[..., Dataset]) -> Callable[..., Dataset]:
        @functools.wraps(read)
        def read_split(root: str | Path, split: str, *, on_error: OnError = "raise", **options: Any) -> Dataset:
            folder = DataFolder(Path(root), split, Findings(on_error))
            check_split(folder.root, split, splits(folder.root))
            return read(folder, **options)

        return layout(name, summary=summary, splits=suppress_errors(splits), rank=rank, absent=absent)(read_split)

    return register


def suppress_errors(splits: Splits) -> Splits:
    """The same function, with no splits instead of an error: layouts are tried on any folder."""

    @functools.wraps(splits)
    def splits_or_none(root: Path) -> tuple[str, ...]:
        try:
            return splits(Path(root))
        except (OSError, ValueError):
            return ()

    return splits_or_none


def check_split(root: Path, split: str, splits: Sequence[str]) -> None:
    """Raise if a folder does not have a split."""
    if split not in splits:
        content = f"the splits {listing(splits)}" if splits else "none of the layout's files"
        raise ValueError(f"{root}: split {split!r} was asked for, and the folder has {content}")


@dataclass(frozen=True)
class DataFolder:
    """The folder and split to read, and the findings of the reader."""

    root: Path
    split: str
    findings: Findings

    @property
    def name(self) -> str:
        """The name of the folder, resolved if it is ``.``."""
        return os.path.basename(os.path.abspath(self.root)) or "data"

    def lines(self, name: str) -> list[str]:
        """The lines of a text file; a link that leads out of the data folder is an error."""
        return read_lines(path_inside(self.root, name))

    def files(
        self,
        folder: str,
        suffixes: frozenset[str] | None = SUFFIXES,
        on_problem: Callable[[str, str], object] | None = None,
    ) -> Iterator[str]:
        """Names of the files below a folder, relative to it; hidden files are left out.

        Links that lead out of the data folder or nowhere are skipped, or go to ``on_problem`` if that is given.
        """
        for name in files_below(self.root / folder, suffixes, self.root, on_problem or self.findings.skip):
            if is_hidden(name):
                self.findings.leave_out(join_path(folder, name), HIDDEN)
            else:
                yield name

    def has_sound_image(self, name: str) -> bool:
        """Whether to keep an image: checked now with ``on_error="skip"``, otherwise when it is decoded."""
        if self.findings.on_error == "raise":
            return True
        try:
            _, is_rotated = check_image(self.root / name)
        except (ValueError, OSError) as error:
            self.findings.skip(name, UNREADABLE, reason(error, self.root / name))
            return False
        if is_rotated:
            self.findings.odd(name, ROTATED)
        return True

    def has_image(self, name: str, location: str) -> bool:
        """Whether to keep an image that is named in a line of a list or a row of a table, ``location``."""
        try:
            path = path_inside(self.root, name)
        except ValueError:
            self.findings.skip(location, NAME_OUT, repr(name[:200]))
            return False
        if not os.path.isfile(path):  # Path.is_file raises if the name is too long
            self.findings.skip(name, MISSING, location)
            return False
        return self.has_sound_image(name)

    def images_by_class(self, folders: Iterable[tuple[str, int]]) -> dict[str, int]:
        """The label of each image in folders of one class each, given as pairs of folder and label."""
        labels: dict[str, int] = {}
        for folder, label in folders:
            names = [f"{folder}/{file}" for file in self.files(folder)]
            labels |= {name: label for name in names if self.has_sound_image(name)}
            if not names:
                self.findings.odd(folder, "class folder without images")
        return labels

    def image_dataset(self, name: str, classes: Sequence[str], labels: dict[str, int], **columns: Any) -> Dataset:
        """A data set of image files, given as labels by path inside the folder."""
        return self.dataset(
            name, classes, labels, list(labels.values()), ImageFiles(self.root, tuple(labels)), **columns
        )

    def dataset(
        self, name: str, classes: Sequence[str], ids: Iterable[str], labels: Any, inputs: Inputs, **columns: Any
    ) -> Dataset:
        """A data set with these columns; an error with the reasons if it is empty."""
        self.check_any(len(inputs), {"array": "row"}.get(inputs.kind, inputs.kind))
        columns = {"report": self.findings.report()} | columns
        return Dataset(name, self.split, tuple(classes), tuple(ids), np.asarray(labels), inputs, **columns)

    def check_any(self, number: int, kind: str = "image") -> None:
        """Raise, with the reasons, if the split has no usable sample."""
        if not number:
            reasons = self.findings.reasons()
            reason_text = f": {reasons}" if reasons else ""
            raise ValueError(f"{self.root}: the split {self.split!r} holds no {kind} that can be used{reason_text}")


def stem(name: str) -> str:
    """A name without its suffix; folders stay.

    Example:
        >>> stem("sub/a.b.jpg")
        'sub/a.b'
    """
    return os.path.splitext(name)[0]


def join_path(folder: str, name: str) -> str:
    """The path of a name in a folder, which may be empty: the data folder."""
    return f"{folder}/{name}" if folder else name


def is_hidden(name: str) -> bool:
    """Whether a file or one of its folders is hidden: macOS writes "._x.jpg" beside x.jpg, which is not an image."""
    return any(part.startswith(".") for part in name.split("/"))


def reason(error: Exception, path: Path) -> str:
    """The message of an error without the path, for a message that names the file already."""
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return str(error).removeprefix(f"{path}: ").rstrip(".")


def check_image(path: Path, max_pixels: int = MAX_PIXELS) -> tuple[tuple[int, int], bool]:
    """Width and height of an image as stored, and whether its EXIF data ask for a rotation.

    Its header must parse, and its file must not be cut off.
    Images are decoded if their format has no end marker, if the marker is not in the last kilobyte (some cameras append
    data), and if they have more than 8 bits, whose values may be out of range.

    Raises:
        UnreadableError: The image is broken, truncated or too large; the message names the file.
        OSError: The file cannot be opened.
    """
    with open_image(path, max_pixels) as image:
        size, end = image.size, _ENDS.get(image.format or "")
        if min(size) < 1:
            raise UnreadableError(f"{path}: the image has {size[0]} x {size[1]} pixels")
        is_rotated = _is_rotated(image)
        if end is None or end not in _tail(path):
            image.load()
        if image.mode[0] in "IF":
            to_eight_bit(image, path)
    return size, is_rotated


def _is_rotated(image: Image.Image) -> bool:
    # PIL rotates TIFF by itself, and getexif would decode a PNG file to look behind its pixels.
    if image.format == "TIFF" or "exif" not in image.info:
        return False
    try:
        return image.getexif().get(_ORIENTATION, 1) in range(2, 9)
    except Exception:  # PIL's parser fails in many ways on broken metadata; the pixels may be fine
        return False


def _tail(path: Path) -> bytes:
    with open_file(path) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
        return file.read(_TAIL)
