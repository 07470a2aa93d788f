"""Checks of one thing at a time: an image file, a number, a JSON file, a split; they raise, and know no findings."""

from __future__ import annotations

import csv
import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image

from calibrant.data.files import MAX_PIXELS, UnreadableError, eight_bit, open_file, opened_image, read_bytes, some_names

#: What a whole file holds in its last bytes, by PIL's name of the format.
_ENDS = {"JPEG": b"\xff\xd9", "MPO": b"\xff\xd9", "PNG": b"IEND"}
_TAIL = 1024
_ORIENTATION = 0x0112  # EXIF's number for it; 1 is upright

#: Larger coordinates than this are no pixels.
_LARGEST = 1e9
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)

#: How far from 1 the sum of a row of soft labels may be.
SOFT_TOLERANCE = 1e-3
#: Largest annotation file that is read: COCO's own train2017 has 448 MB.
MAX_JSON = 2**29


class Checked(NamedTuple):
    """Of an image: width and height as stored, and whether its EXIF data ask for a rotation."""

    size: tuple[int, int]
    rotated: bool


def check_image(path: Path, max_pixels: int = MAX_PIXELS) -> Checked:
    """The size of an image whose header parses and whose file is not cut off.

    Files of the formats that have no mark at their end, or that lack it in the last kilobyte (some cameras append
    data), are decoded to be sure; so are images of more than 8 bits, whose values may be beyond what is read.

    Raises:
        UnreadableError: The image is broken, truncated or too large; the message names the file.
        OSError: The file cannot be opened.
    """
    with opened_image(path, max_pixels) as image:
        size, end = image.size, _ENDS.get(image.format or "")
        if min(size) < 1:
            raise UnreadableError(f"{path}: the image has {size[0]} x {size[1]} pixels.")
        rotated = _is_rotated(image)
        if end is None or end not in _tail(path):
            image.load()
        if image.mode[0] in "IF":
            eight_bit(image, path)
    return Checked(size, rotated)


def _is_rotated(image: Image.Image) -> bool:
    # PIL turns TIFF by itself; and asked all the same, it would decode a PNG file to look behind its pixels.
    if image.format == "TIFF" or "exif" not in image.info:
        return False
    try:
        return image.getexif().get(_ORIENTATION, 1) in range(2, 9)
    except Exception:  # PIL's parser fails in many ways on broken metadata, and the pixels are fine
        return False


def _tail(path: Path) -> bytes:
    with open_file(path) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
        return file.read(_TAIL)


def number(value: object) -> float:
    """A finite number of a bearable size, from JSON or from text; else a ValueError that shows what came."""
    if isinstance(value, str):
        text = value.strip()
        # float() would also take 1_000, nan and inf.
        result = float(text) if len(text) < 100 and _NUMBER.fullmatch(text) else math.nan
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        result = math.nan if abs(value) > _LARGEST else float(value)
    else:
        result = math.nan
    if not abs(result) <= _LARGEST:
        raise ValueError(f"{shown(value)} is not a number that a coordinate can be")
    return result


def whole(text: str) -> int:
    """A whole number from text, if it is not below 0 and of a bearable size; else a ValueError."""
    digits = text.strip()
    if len(digits) > 18 or not (digits.isascii() and digits.isdecimal()):
        raise ValueError(f"{shown(text)} is not a whole number from 0 on")
    return int(digits)


def shown(value: object) -> str:
    """A value out of a file, short enough for a message."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # integers of more than 4300 digits, lists in lists in lists
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."


def read_json(path: Path, drop: str | None = None) -> Any:
    """What a JSON file holds; an object that has a key twice is an error: only one of its values would be seen.

    Args:
        path: The file.
        drop: A key that is thrown away while reading, so that memory is spared.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        row = dict(pairs)
        if len(row) != len(pairs):
            twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
            raise UnreadableError(f"{path}: the key {shown(twice)} occurs twice in one object.")
        row.pop(drop or "", None)
        return row

    data = read_bytes(path, MAX_JSON)
    try:
        return json.loads(data, object_pairs_hook=unique)
    except UnreadableError:
        raise
    except RecursionError as error:
        raise UnreadableError(f"{path}: the file is not JSON of a data set: it is nested too deeply.") from error
    except ValueError as error:
        cause = "a number has too many digits" if "digits" in str(error) else " ".join(str(error).split())[:200]
        raise UnreadableError(f"{path}: the file is not JSON ({cause}).") from error


def csv_rows(path: Path, lines: Iterator[str]) -> Iterator[list[str]]:
    """The fields of each line of a CSV file; what cannot be one is an `UnreadableError`."""
    try:
        yield from csv.reader(lines)
    except csv.Error as error:
        raise UnreadableError(f"{path}: the file is not CSV ({error}).") from error


def reason(error: Exception, path: Path) -> str:
    """What an error says of a file, for a message that names the file already."""
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return str(error).removeprefix(f"{path}: ").rstrip(".")


def check_split(root: Path, split: str, splits: Sequence[str]) -> None:
    """An error that names the splits if a folder does not have the one that was asked for."""
    if split not in splits:
        there = f"the splits {some_names(splits)}" if splits else "none of the layout's files"
        raise ValueError(f"{root}: split {split!r} was asked for, and the folder has {there}.")


def unique_names(names: Sequence[str], keys: Sequence[object]) -> tuple[str, ...]:
    """Names with their keys added where two classes would have the same one.

    Example:
        >>> unique_names(["crane", "bee", "crane"], ["n02012849", "n02206856", "n03126707"])
        ('crane (n02012849)', 'bee', 'crane (n03126707)')
    """
    times: dict[str, int] = {}
    for name in names:
        times[name] = times.get(name, 0) + 1
    return tuple(name if times[name] == 1 else f"{name} ({key})" for name, key in zip(names, keys, strict=True))
