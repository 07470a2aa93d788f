"""Text in arrays: what NumPy can hold without breaking, in memory that is not out of proportion."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from calibrant._arrays import Array

#: What whole numbers look like where text is read, for Arrow's expressions and for Python's; they fit 64 bits.
WHOLE = "^(0|-?[1-9][0-9]{0,17})$"
is_whole = re.compile(WHOLE.removesuffix("$") + r"\Z").match

MEMORY = 1 << 28  # bytes that a column of text may take, in which every value is as wide as the widest,
WIDTH = 64  # unless the widest has no more characters than this
_BLOCK = 1 << 20


def is_text(array: Array) -> bool:
    """Whether an array holds text, or Python objects that may be text."""
    return array.dtype.kind in "UTO"


def as_text(name: str, array: Array) -> Array:
    """Text of any NumPy kind (fixed width, variable width, objects that are all ``str``) as fixed-width text."""
    if array.dtype.kind == "O" and not all(isinstance(value, str) for value in array.flat):
        odd = next(value for value in array.flat if not isinstance(value, str))
        raise ValueError(f"{name} must be text or whole numbers, got an object array with {type(odd).__name__}")
    if array.dtype.kind in "OT":
        check_width(name, array.size, max(map(len, array.flat), default=1))
        array = array.astype(np.str_)
    check_characters(name, array)
    return array


def check_characters(name: str, array: Array) -> None:
    """Refuse fixed-width text in which a number stands for no character: Python breaks over it, or cannot write it."""
    flat = array.reshape(-1)
    rows = max(1, _BLOCK // max(1, array.itemsize))
    for start in range(0, len(flat), rows):
        block = np.ascontiguousarray(flat[start : start + rows])
        points = block.view(np.dtype(np.uint32).newbyteorder(array.dtype.byteorder))
        if len(points) and points.max() > 0xD7FF:
            odd = points[(points > 0x10FFFF) | ((points >= 0xD800) & (points <= 0xDFFF))]
            if len(odd):
                raise ValueError(f"{name} must be text, got a character that does not exist, {int(odd[0]):#x}")


def check_names(name: str, texts: Iterable[str]) -> None:
    """Refuse texts that NumPy or UTF-8 could not keep: with characters that do not exist, or with zeros."""
    for text in texts:
        if "\0" in text or (not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)):
            raise ValueError(f"{name} must be text, got {text[:60]!r} with a character that cannot be kept")


def check_width(name: str, rows: int, width: int) -> None:
    """Refuse a column of text whose longest value would blow up all others."""
    if width > WIDTH and 4 * rows * width > MEMORY:
        raise ValueError(
            f"{name} must be short text, got a value of {width:,} characters among {rows:,}: "
            f"{4 * rows * width:,} bytes in memory, at most {MEMORY:,} are taken"
        )


def as_numbers(texts: Array) -> Array | None:
    """Whole numbers that are written as text, or None if a text is something else."""
    levels, places = np.unique(texts, return_inverse=True)
    if not all(map(is_whole, levels.tolist())):
        return None
    numbers: Array = np.array([int(level) for level in levels.tolist()], np.int64)[places].reshape(texts.shape)
    return numbers
