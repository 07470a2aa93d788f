"""Where a value comes from, and the error about one that is not what it should be.

Values are checked in blocks, so that checking never needs memory of the size of the data. An error names the first
invalid value, its row, and the likely mistake.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from calibrant.base.arrays import Array
from calibrant.base.checks import shorten

BLOCK = 1 << 17  # numbers: a block stays in the cache between the passes of its check


def count_row(row: int) -> str:
    """The name of a row in errors, unless the file has lines."""
    return f"row {row} (counted from 0)"


def no_value(title: str, row: str) -> str:
    """The sentence about a missing value."""
    return f"{title} has no value in {row}: fill it in, or leave such rows out"


class Location(NamedTuple):
    """Where an array comes from: what an error starts with, the number of its first row, and what rows are called."""

    prefix: str = ""
    row: int = 0
    name_row: Callable[[int], str] = count_row

    def at(self, row: int) -> str:
        """The name of a row of the array in errors."""
        return self.name_row(self.row + row)


def row_blocks(array: Array) -> Iterator[tuple[int, Array]]:
    """Runs of rows of about ``BLOCK`` numbers, each with the number of its first row."""
    rows = max(1, BLOCK // max(1, math.prod(array.shape[1:])))
    for start in range(0, len(array), rows):
        yield start, array[start : start + rows]


def value_error(
    text: str, values: Array, bad: Array, location: Location, *, start: int = 0, classes: bool = False, hint: str = ""
) -> ValueError:
    """The error about the first bad value of a block from row ``start``; ``classes``: its second axis counts them."""
    index = tuple(int(i) for i in np.argwhere(bad)[0])
    row, *axes = index
    at = location.at(start + row)
    if axes and classes:
        at += f", class {axes.pop(0)}"
    if axes:
        at += f", pixel {axes}" if len(axes) > 1 else f", token {axes[0]}"
    value = values[index].item()
    value = shorten(value) if isinstance(value, str) else value
    return ValueError(f"{location.prefix}{text}, got {value!r} in {at}{hint}")
