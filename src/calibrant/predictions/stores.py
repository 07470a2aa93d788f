"""The columns of predictions: arrays that a caller gives, checked at once, or files, checked as they are read."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from calibrant.base.arrays import Array, as_numpy, as_text, check_width
from calibrant.base.checks import shorten
from calibrant.predictions.data import DATA, Data
from calibrant.predictions.labels import LabelValues, compare, read_two_classes
from calibrant.predictions.locations import BLOCK, Location
from calibrant.predictions.schema import (
    GROUP,
    NO_WEIGHT,
    WEIGHT,
    Schema,
    as_name,
    check_schema,
    find_positive,
    two_shape,
)
from calibrant.predictions.values import check_any_weight, check_column

if TYPE_CHECKING:
    from calibrant.predictions.files import Reader

BATCH = 1 << 22  # numbers per batch where no size is given
GRAIN = 1 << 18  # numbers to read at once where batches are smaller


class MemoryStore:
    """Columns that are arrays, checked."""

    files = ()

    def __init__(self, schema: Schema, columns: dict[str, Array]):
        self.schema, self.columns, self.names = schema, columns, tuple(columns)

    def __len__(self) -> int:
        return len(self.columns[self.schema.holds])

    def column(self, name: str) -> Array:
        """A whole column."""
        return self.columns[name]

    def blocks(self, size: int, names: Sequence[str]) -> Iterator[dict[str, Array]]:
        """Consecutive runs of ``size`` samples of some columns; the last one may be shorter."""
        for start in range(0, len(self), size):
            yield {name: self.columns[name][start : start + size] for name in names}

    def take(self, rows: slice | Array) -> MemoryStore:
        """Some of the samples: a slice, which gives views, or an array of row numbers."""
        columns = {name: array[rows] for name, array in self.columns.items()}
        return MemoryStore(self.schema, columns if isinstance(rows, slice) else freeze(columns))

    def without(self, name: str) -> MemoryStore:
        """The same samples without a column."""
        return MemoryStore(self.schema, {key: array for key, array in self.columns.items() if key != name})

    def load(self) -> MemoryStore:
        """Everything in memory: itself."""
        return self

    def title(self, name: str) -> str:
        """What a column is called."""
        return name

    def describe(self) -> str:
        """The number of samples."""
        return f"{len(self)} samples"

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        freeze(self.columns)  # what comes out of a pickle is ours


@dataclass(eq=False)
class FileStore:
    """Columns in files, checked as they are read: arrays on first access, batches one at a time."""

    readers: Sequence[Reader]
    cache: dict[str, Array] = field(default_factory=dict)

    @property
    def schema(self) -> Schema:
        """What all files hold."""
        return self.readers[0].schema

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return self.readers[0].names

    def __len__(self) -> int:
        return sum(reader.rows() for reader in self.readers)

    def column(self, name: str) -> Array:
        """A whole column: a map of the file where there is one and it needs no change, else read and kept."""
        if name not in self.cache:
            array = self._mapped(name) if len(self.readers) == 1 else None
            if array is None:
                (columns,) = self.blocks(sys.maxsize, [name])
                array = columns[name]
            if name == WEIGHT:
                check_any_weight(array, f"{self.readers[0].path}: ")
            array.setflags(write=False)
            self.cache[name] = array
        return self.cache[name]

    def _mapped(self, name: str) -> Array | None:
        reader = self.readers[0]
        array = reader.mapped(name)
        if array is None:
            return None
        location = Location(f"{reader.file_of(name)}: ")
        return check_column(name, array, len(self), self.schema, location, reader.columns.title(name))

    def blocks(self, size: int, names: Sequence[str]) -> Iterator[dict[str, Array]]:
        """Stream the files, in order."""
        numbers = sum(math.prod(self.schema.shape_of(name)) for name in names)
        rows = size * max(1, GRAIN // (size * numbers))  # small batches are cut from larger reads
        return rebatch(self._pieces(names, rows), size, f"{self.readers[0].path}: ")

    def _pieces(self, names: Sequence[str], rows: int) -> Iterator[dict[str, Array]]:
        types: dict[str, str] = {}
        for reader in self.readers:
            row = 0
            for piece in reader.pieces(names, rows):
                count = _rows_in(piece)
                for name, array in piece.items():
                    location = Location(f"{reader.file_of(name)}: ", row, reader.name_row)
                    array = check_column(name, array, count, self.schema, location, reader.columns.title(name))
                    kind = "text" if array.dtype.kind == "U" else str(array.dtype)
                    if types.setdefault(name, kind) != kind:
                        actual = f"{name} {kind} after {types[name]}"
                        raise ValueError(f"{location.prefix}shards must hold the same, got {actual}")
                    piece[name] = array
                row += count
                yield piece

    def take(self, rows: slice | Array) -> MemoryStore:
        """Some of the samples, in one pass over the files."""
        if isinstance(rows, slice):
            rows = np.arange(*rows.indices(len(self)))
        blocks = self.blocks(self.schema.rows(GRAIN), self.names)
        return MemoryStore(self.schema, freeze(gather(blocks, rows)))

    def load(self) -> MemoryStore:
        """All columns, in one pass over the files."""
        (columns,) = self.blocks(sys.maxsize, self.names)
        if WEIGHT in columns:
            check_any_weight(columns[WEIGHT], f"{self.readers[0].path}: ")
        return MemoryStore(self.schema, freeze(columns))

    def without(self, name: str) -> FileStore:
        """The same samples without a column, which is then not read."""
        return FileStore([reader.without(name) for reader in self.readers])

    def title(self, name: str) -> str:
        """What the files call a column."""
        return self.readers[0].columns.sources(name)[0]

    def describe(self) -> str:
        """The number of samples, if known, and their files."""
        counts = [reader.count for reader in self.readers]
        size = "" if None in counts else f"{sum(count or 0 for count in counts)} samples in "
        suffix = f" and {len(counts) - 1} more" if len(counts) > 1 else ""
        return f"{size}{self.readers[0].path}{suffix}"

    @property
    def files(self) -> tuple[str, ...]:
        """The files behind the columns, each once."""
        return tuple(dict.fromkeys(reader.file_of(name) for reader in self.readers for name in self.names))


#: The columns of `Predictions`, in memory or in files.
Store: TypeAlias = MemoryStore | FileStore


def first_dtypes(store: Store, names: Sequence[str]) -> dict[str, np.dtype[Any]]:
    """The types of columns, from their first row; text may be wider in later rows."""
    return {name: array.dtype for name, array in next(store.blocks(1, names)).items()} if names else {}


def rebatch(pieces: Iterable[dict[str, Array]], size: int, prefix: str) -> Iterator[dict[str, Array]]:
    """Pieces of any length as runs of ``size`` samples; the last one may be shorter. Errors start with ``prefix``."""
    parts: list[dict[str, Array]] = []
    remaining = size
    for piece in pieces:
        start, rows = 0, _rows_in(piece)
        while start < rows:
            stop = min(rows, start + remaining)
            parts.append({name: array[start:stop] for name, array in piece.items()})
            remaining -= stop - start
            start = stop
            if not remaining:
                yield _join(parts, prefix)
                parts, remaining = [], size
    if parts:
        yield _join(parts, prefix)


def _join(pieces: list[dict[str, Array]], prefix: str = "") -> dict[str, Array]:
    """Join pieces in new memory; each is released as soon as it is copied."""
    if len(pieces) == 1:
        return {name: array if array.flags.writeable else array.copy() for name, array in pieces.pop().items()}
    columns = {}
    for name in list(pieces[0]):
        parts = [piece.pop(name) for piece in pieces]
        shape, dtype = (sum(map(len, parts)), *parts[0].shape[1:]), np.result_type(*parts)
        if dtype.kind == "U":  # one long text would make all others as wide
            check_width(prefix + name, math.prod(shape), dtype.itemsize // 4)
        columns[name], stop = np.empty(shape, dtype), shape[0]
        while parts:
            part = parts.pop()
            columns[name][stop - len(part) : stop] = part
            stop -= len(part)
    return columns


def _rows_in(piece: dict[str, Array]) -> int:
    return len(next(iter(piece.values())))


def gather(blocks: Iterable[dict[str, Array]], rows: Array) -> dict[str, Array]:
    """The samples with the given row numbers, in that order, from consecutive blocks that are read only once."""
    order = np.argsort(rows, kind="stable")
    ordered = rows[order]
    pieces, start, position = [], 0, 0
    for block in blocks:
        stop = start + _rows_in(block)
        end = int(np.searchsorted(ordered, stop))
        if end > position:
            pieces.append({name: array[ordered[position:end] - start] for name, array in block.items()})
        start, position = stop, end
        if position == len(ordered):
            break
    inverse = np.argsort(order)
    return {name: array[inverse] for name, array in _join(pieces).items()}


def as_rows(index: Any, count: int) -> slice | Array:
    """A slice, or the numbers of rows in 0..count - 1, from a slice, row numbers or a bool mask; at least one."""
    if isinstance(index, slice):
        if not range(*index.indices(count)):
            raise ValueError(f"samples must be at least one, got none of {count} with {index}")
        return index
    rows, _ = as_numpy("index", index)
    if rows.dtype.kind == "b" and rows.shape == (count,):
        rows = np.flatnonzero(rows)
    if rows.ndim != 1 or rows.dtype.kind not in "iu":
        raise ValueError(f"samples takes a slice, row numbers or a mask [{count}], got {rows.dtype} {list(rows.shape)}")
    if not len(rows):
        raise ValueError(f"samples must be at least one, got none of {count}")
    outside = rows[(rows < -count) | (rows >= count)]
    if len(outside):
        raise ValueError(f"samples must lie in 0..{count - 1}, got {outside[0]}")
    rows = rows.astype(np.int64)
    return np.where(rows < 0, rows + count, rows)


def freeze(columns: dict[str, Array]) -> dict[str, Array]:
    """Mark arrays that are ours as read-only."""
    for array in columns.values():
        array.setflags(write=False)
    return columns


def store_arrays(
    data: dict[str, Any],
    further: dict[str, Any] | None = None,
    /,
    *,
    ids: Any = None,
    groups: Any = None,
    objectness: Any = None,
    weight: Any = None,
    **facts: Any,
) -> MemoryStore:
    """Check the arrays that a caller gives: the data with labels or correct, and optional columns."""
    absent = next((name for name, values in data.items() if values is None), None)
    if absent is not None:
        raise ValueError(f"{absent} must be an array, got None")
    holds = next(iter(data))
    form = DATA[holds]
    optional = {"ids": ids, "objectness": objectness, WEIGHT: weight}
    values_of = data | (further or {}) | optional | _group_columns(groups)
    arrays = {name: as_numpy(name, values) for name, values in values_of.items() if values is not None}
    if "labels" in arrays and arrays[holds][0].ndim <= 2 and arrays["labels"][0].shape[1:] == (1,):
        labels, is_ours = arrays["labels"]
        arrays["labels"] = labels[:, 0], is_ours
    positive = as_name(facts.pop("positive", None))
    if facts.get("class_names") is None:
        facts["class_names"] = _frame_names(holds, data[holds])
    if form.is_one_column(arrays[holds][0].shape):
        schema = _widen(arrays, form, positive, facts)
    else:
        numbers, is_ours = arrays[holds]
        schema = check_schema(form, numbers.dtype, numbers.shape, facts)
        if schema.is_turned(holds):
            arrays[holds] = numbers.transpose(0, 2, 1), is_ours
        schema = replace(schema, positive=find_positive(positive, schema.class_names, schema.num_classes, ""))
    columns = {}
    numbers = arrays[holds][0]
    for name, (array, is_ours) in arrays.items():
        columns[name] = check_column(name, array, len(numbers), schema, Location())
        if is_ours or columns[name] is not array:
            columns[name].setflags(write=False)
    if WEIGHT in columns:
        check_any_weight(columns[WEIGHT])
    return MemoryStore(schema, columns)


def _frame_names(holds: str, values: Any) -> tuple[str, ...] | None:
    """The names of the classes, where a frame's columns are named; numbers in order are no names."""
    names = getattr(values, "columns", None)
    if names is None or len(names) < 2 or not all(isinstance(name, str) for name in names):
        return None
    if not all(name.isdecimal() for name in names):
        return tuple(map(str, names))
    if list(names) != [str(k) for k in range(len(names))]:
        raise ValueError(
            f"{holds} has the columns {', '.join(names)}, expected them in the order of the classes, from 0 on: "
            "order them, or say their names with class_names=[...]"
        )
    return None


def compare_arrays(predicted: Any, labels: Any) -> Array:
    """Whether predictions are correct, from the arrays that a caller gives."""
    pair = {"predicted": predicted, "labels": labels}
    predicted, labels = (as_text(name, as_numpy(name, values)[0]) for name, values in pair.items())
    if predicted.shape != labels.shape:
        raise ValueError(f"labels must be {list(predicted.shape)} like predicted, got {list(labels.shape)}")
    return compare(predicted, labels, Location())


def _widen(arrays: dict[str, tuple[Array, bool]], form: type[Data], positive: str, facts: dict[str, Any]) -> Schema:
    """Put both classes in the place of one column, and the positions of the classes in that of labels."""
    holds = form.name
    numbers, labels = arrays[holds][0], as_text("labels", arrays["labels"][0])
    schema = check_schema(form, numbers.dtype, two_shape(numbers.shape), facts)
    values = LabelValues()
    values.add_array(labels)
    decoder = read_two_classes(values, positive, schema.class_names, "", schema.ignore_index, "")
    assert decoder.positive is not None
    arrays[holds] = form.widen(holds, decoder.positive, numbers, Location()), True
    arrays["labels"] = decoder.decode("labels", labels, schema.ignore_index, Location()), True
    return replace(schema, class_names=decoder.names, positive=decoder.positive)


def _group_columns(groups: Any) -> dict[str, Any]:
    if groups is None:
        return {}
    if not hasattr(groups, "items"):
        raise ValueError(f"groups must be a dict of name to one value per sample, got {type(groups).__name__}")
    odd = [name for name in groups if not isinstance(name, str) or not name]
    if odd:
        raise ValueError(f"groups must have names that are text, got {odd[0]!r}")
    empty = next((name for name in groups if groups[name] is None), None)
    if empty is not None:
        raise ValueError(f"groups must have one value per sample, got None for {empty!r}")
    return {GROUP + name: values for name, values in groups.items()}


def find_remarks(store: Store) -> tuple[str, ...]:
    """What a reader should know about valid values, one sentence each: what is odd, and what was taken for weights."""
    if WEIGHT not in store.names:
        return find_oddities(store)
    low, high = np.inf, -np.inf
    for block in store.blocks(GRAIN, [WEIGHT]):
        low, high = min(low, block[WEIGHT].min()), max(high, block[WEIGHT].max())
    return *find_oddities(store), describe_weights(store.title(WEIGHT), low, high)


def find_oddities(store: Store) -> tuple[str, ...]:
    """What is odd about valid values, one sentence each."""
    schema = store.schema
    blocks = (block[schema.holds] for block in store.blocks(schema.rows(BLOCK), [schema.holds]))
    oddity = schema.data.find_oddity(blocks, schema.positive)
    return (oddity,) if oddity else ()


def describe_weights(title: str, low: float, high: float) -> str:
    """What was taken for weights, and between which numbers they lie: a person's weight in kilograms is none."""
    return (
        f"Column {shorten(title)}: importance weights from {low:.4g} to {high:.4g}; if they are something else, "
        f"{NO_WEIGHT} leaves them out."
    )
