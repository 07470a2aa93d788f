"""Checks that readers share: of image files without decoding them, of numbers in annotations, of splits."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from pathlib import Path

from calibrant.data.sources import MAX_PIXELS, UnreadableError, opened_image

#: What a whole file holds in its last bytes, by PIL's name of the format.
_ENDS = {"JPEG": b"\xff\xd9", "MPO": b"\xff\xd9", "PNG": b"IEND"}
_TAIL = 1024

#: Larger coordinates than this are no pixels.
_LARGEST = 1e9
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def check_image(path: Path, max_pixels: int = MAX_PIXELS) -> tuple[int, int]:
    """Width and height of an image whose header parses and whose file is not cut off.

    A JPEG or PNG file without its end marker in the last kilobyte is decoded to be sure: some cameras append data.

    Raises:
        UnreadableError: The image is broken, truncated or too large; the message names the file.
        OSError: The file cannot be opened.
    """
    with opened_image(path, max_pixels) as image:
        size, end = image.size, _ENDS.get(image.format or "")
        if min(size) < 1:
            raise UnreadableError(f"{path}: the image has {size[0]} x {size[1]} pixels.")
        if end is not None and end not in _tail(path):
            image.load()
    return size


def _tail(path: Path) -> bytes:
    with path.open("rb") as file:
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
        raise ValueError(f"{_shown(value)} is not a number of pixels")
    return result


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # integers of more than 4300 digits, lists in lists in lists
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."


def printable(text: str, limit: int = 200) -> str:
    """A name out of a file, fit for a message of one line: cut, and escaped if it holds line ends or control codes."""
    return text[:limit] if text[:limit].isprintable() else ascii(text[:limit])


def check_split(root: Path, split: str, splits: Sequence[str]) -> None:
    """An error that names the splits if a folder does not have the one that was asked for."""
    if split not in splits:
        there = f"the splits {', '.join(splits)}" if splits else "none of the layout's files"
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
