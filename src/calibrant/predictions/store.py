"""Where the columns of `Predictions` live. This one: in memory. `opened.FileStore` leaves them in files."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from calibrant._arrays import Array, as_numpy
from calibrant.predictions.about import GROUP, About, about
from calibrant.predictions.checks import column, sums_off
from calibrant.predictions.text import WIDTH, check_width
from calibrant.predictions.where import BLOCK, Where

BATCH = 1 << 22  # numbers per batch where no size is given


class Store(Protocol):
    """Columns by name; every array that comes out has been checked."""

    about: About
    names: tuple[str, ...]

    def __len__(self) -> int: ...

    def column(self, name: str) -> Array:
        """A whole column."""

    def blocks(self, size: int, names: Sequence[str]) -> Iterator[dict[str, Array]]:
        """Consecutive runs of ``size`` samples of some columns; the last one may be shorter."""

    def take(self, rows: slice | Array) -> MemoryStore:
        """Some of the samples: a slice, or an array of row numbers."""

    def load(self) -> MemoryStore:
        """Everything, in memory."""

    def describe(self) -> str:
        """How many samples, or which file when that is not known without reading it."""

    @property
    def files(self) -> tuple[str, ...]:
        """The files behind it."""


class MemoryStore:
    """Columns that are arrays."""

    def __init__(self, about: About, columns: dict[str, Array]):
        self.about = about
        self.columns = columns
        self.names = tuple(columns)

    def __len__(self) -> int:
        return len(self.columns[self.about.holds])

    def column(self, name: str) -> Array:
        """A column."""
        return self.columns[name]

    def blocks(self, size: int, names: Sequence[str]) -> Iterator[dict[str, Array]]:
        """Views of consecutive runs."""
        for start in range(0, len(self), size):
            yield {name: self.columns[name][start : start + size] for name in names}

    def take(self, rows: slice | Array) -> MemoryStore:
        """Some of the samples; a slice gives views."""
        taken = {name: array[rows] for name, array in self.columns.items()}
        return MemoryStore(self.about, taken if isinstance(rows, slice) else frozen(taken))

    def load(self) -> MemoryStore:
        """Itself."""
        return self

    def describe(self) -> str:
        """The number of samples."""
        return f"{len(self)} samples"

    @property
    def files(self) -> tuple[str, ...]:
        """None."""
        return ()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        frozen(self.columns)  # what comes out of a pickle is ours


def frozen(columns: dict[str, Array]) -> dict[str, Array]:
    """Mark arrays that are ours as not writeable."""
    for array in columns.values():
        array.setflags(write=False)
    return columns


def checked(
    given: dict[str, Any], *, ids: Any = None, groups: Any = None, objectness: Any = None, **facts: Any
) -> MemoryStore:
    """Build a store from arrays as they were given: the data, what must come with it, and what may."""
    lost = next((name for name, values in given.items() if values is None), None)
    if lost is not None:
        raise ValueError(f"{lost} must be an array, got None")
    holds = next(iter(given))
    given = given | {"ids": ids, "objectness": objectness} | _groups(groups)
    arrays = {name: as_numpy(name, values) for name, values in given.items() if values is not None}
    data = arrays[holds][0]
    known = about(holds, data.dtype, data.shape, **facts)
    columns = {}
    for name, (array, ours) in arrays.items():
        columns[name] = column(name, array, len(data), known, Where())
        if ours or columns[name] is not array:
            columns[name].setflags(write=False)
    return MemoryStore(known, columns)


def _groups(groups: Any) -> dict[str, Any]:
    if groups is None:
        return {}
    if not hasattr(groups, "items"):
        raise ValueError(f"groups must be a dict of name to one value per sample, got {type(groups).__name__}")
    odd = [name for name in groups if not isinstance(name, str) or not name]
    if odd:
        raise ValueError(f"groups must have names that are text, got {odd[0]!r}")
    lost = next((name for name in groups if groups[name] is None), None)
    if lost is not None:
        raise ValueError(f"groups must have one value per sample, got None for {lost!r}")
    return {GROUP + name: values for name, values in groups.items()}


def dtypes(store: Store, names: Sequence[str]) -> dict[str, np.dtype[Any]]:
    """The types of columns, from their first row; text may be wider further on."""
    return {name: array.dtype for name, array in next(store.blocks(1, names)).items()}


def suspicions(store: Store) -> tuple[str, ...]:
    """What is odd about values that are allowed, one sentence each."""
    holds = store.about.holds
    if holds != "logits":
        return ()
    for block in store.blocks(max(1, BLOCK // max(1, store.about.numbers)), [holds]):
        values = block[holds]
        tolerance, found = sums_off(values)
        if values.min() < 0 or values.max() > 1 or any((off > tolerance).any() for _, _, off in found):
            return ()
    return ("The logits lie in 0..1 and sum to 1 in every row: if they are probabilities, name them probabilities.",)


def joined(pieces: list[dict[str, Array]], head: str = "") -> dict[str, Array]:
    """Pieces put together, in memory that is nobody else's; each is let go as soon as it is copied."""
    if len(pieces) == 1:
        return {name: array if array.flags.writeable else array.copy() for name, array in pieces.pop().items()}
    out = {}
    for name in list(pieces[0]):
        parts = [piece.pop(name) for piece in pieces]
        whole = _empty(head + name, (sum(map(len, parts)), *parts[0].shape[1:]), np.result_type(*parts))
        start = 0
        for i in range(len(parts)):
            whole[start : start + len(parts[i])] = parts[i]
            start += len(parts[i])
            parts[i] = parts[i][:0].copy()
        out[name] = whole
    return out


def _empty(name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Memory for a column, unless one long text would blow up all others."""
    if dtype.kind == "U":
        check_width(name, math.prod(shape), dtype.itemsize // 4)
    return np.empty(shape, dtype)


def rebatched(pieces: Iterable[dict[str, Array]], size: int, head: str = "") -> Iterator[dict[str, Array]]:
    """Pieces of any length as runs of ``size`` samples; the last one may be shorter. Errors start with ``head``."""
    waiting, missing = Waiting(size, head), size
    for piece in pieces:
        start, rows = 0, len(next(iter(piece.values())))
        while start < rows:
            stop = min(rows, start + missing)
            waiting.add({name: array[start:stop] for name, array in piece.items()})
            missing -= stop - start
            start = stop
            if not missing:
                yield waiting.joined()
                waiting, missing = Waiting(size, head), size
    if missing < size:
        yield waiting.joined()


class Waiting:
    """Pieces on the way to a batch; copied at once, while they are in the cache, unless the batch may be very large."""

    def __init__(self, size: int, head: str = ""):
        self.size, self.rows, self.head = size, 0, head
        self.pieces: list[dict[str, Array]] = []
        self.batch: dict[str, Array] = {}

    def add(self, piece: dict[str, Array]) -> None:
        """Take the next piece."""
        count = len(next(iter(piece.values())))
        numbers = sum(math.prod(array.shape[1:]) for array in piece.values())
        wide = any(array.dtype.kind == "U" and array.itemsize > 4 * WIDTH for array in piece.values())
        if not self.rows and (count == self.size or wide or self.size * numbers > 4 * BATCH):
            self.pieces = [piece]
        elif self.pieces:
            self.pieces.append(piece)
        else:
            for name, array in piece.items():
                self.batch[name] = self._filled(name, array, count)
        self.rows += count

    def _filled(self, name: str, array: Array, count: int) -> Array:
        batch = self.batch.get(name)
        if batch is None:
            batch = _empty(self.head + name, (self.size, *array.shape[1:]), array.dtype)
        elif batch.dtype != array.dtype:  # longer text
            dtype = np.result_type(batch, array)
            batch, shorter = _empty(self.head + name, batch.shape, dtype), batch
            batch[: self.rows] = shorter[: self.rows]
        batch[self.rows : self.rows + count] = array
        return batch

    def joined(self) -> dict[str, Array]:
        """The batch, in memory that is nobody else's."""
        if self.pieces:
            return joined(self.pieces, self.head)
        return {name: batch[: self.rows] for name, batch in self.batch.items()}


def gathered(blocks: Iterable[dict[str, Array]], rows: Array) -> dict[str, Array]:
    """The samples with the given numbers, in that order, out of consecutive blocks that are read only once."""
    order = np.argsort(rows, kind="stable")
    wanted = rows[order]
    pieces, start, done = [], 0, 0
    for block in blocks:
        stop = start + len(next(iter(block.values())))
        until = int(np.searchsorted(wanted, stop))
        if until > done:
            pieces.append({name: array[wanted[done:until] - start] for name, array in block.items()})
        start, done = stop, until
        if done == len(wanted):
            break
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return {name: array[back] for name, array in joined(pieces).items()}
