"""Where values lie: rows and what errors call them, blocks of rows, and the error about the first bad value."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from calibrant._arrays import Array
from calibrant.predictions.hints import short

BLOCK = 1 << 17  # numbers: a block stays in the cache between the passes of its check


def counted(row: int) -> str:
    """What errors call a row, unless the file has lines."""
    return f"row {row} (counted from 0)"


class Where(NamedTuple):
    """Where a piece comes from: what an error starts with, the number of its first row, and what rows are called."""

    head: str = ""
    row: int = 0
    place: Callable[[int], str] = counted

    def at(self, row: int) -> str:
        """The place of a row of the piece."""
        return self.place(self.row + row)


def blocks(array: Array) -> Iterator[tuple[int, Array]]:
    """The array in runs of whole rows of about ``BLOCK`` numbers, each with the number of its first row."""
    rows = max(1, BLOCK // max(1, math.prod(array.shape[1:])))
    for start in range(0, len(array), rows):
        yield start, array[start : start + rows]


def error_at(
    text: str,
    values: Array,
    bad: Array,
    start: int,
    where: Where,
    axes: tuple[str, ...] = ("class", "pixel"),
    hint: str = "",
) -> ValueError:
    """The error about the first bad value: ``text``, the value, its row and further place, and what to do."""
    row, *rest = (int(i) for i in np.argwhere(bad)[0])
    place = where.at(start + row)
    if rest and axes[0] == "class":
        place += f", class {rest.pop(0)}"
    if rest:
        place += f", pixel {rest}"
    value = values[tuple(np.argwhere(bad)[0])].item()
    value = short(value) if isinstance(value, str) else value
    return ValueError(f"{where.head}{text}, got {value!r} in {place}{hint}")
