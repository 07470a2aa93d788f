"""Predictions in files: columns are found when a file is opened, values are checked as they are read."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from calibrant._arrays import Array
from calibrant.predictions.class_columns import read_two_classes
from calibrant.predictions.columns import ColumnMap, check_options
from calibrant.predictions.labels import LabelDecoder, LabelValues, check_comparable, choose_decoder, find_positive
from calibrant.predictions.memory import MemoryStore, freeze
from calibrant.predictions.paths import READ, SUFFIXES, file_errors, find_files, suffix_of
from calibrant.predictions.schema import DATA, Schema, check_width
from calibrant.predictions.values import Location, check_column, count_row

GRAIN = 1 << 18  # numbers to read at once where batches are smaller


class Reader:
    """One file, or one set of ``.npy`` files; a file replaced between reads is noticed, although no handle is kept.

    ``count`` is the number of samples, None if that takes a pass over the file.
    """

    def __init__(self, path: str, columns: ColumnMap, schema: Schema, count: int | None):
        self.path, self.columns, self.schema, self.count = path, columns, schema, count
        self.names, self.naming = tuple(columns.columns), columns.naming
        self.decoder = LabelDecoder(schema.class_names)

    def rows(self) -> int:
        """The number of samples, counted if necessary."""
        assert self.count is not None
        return self.count

    def file_of(self, name: str) -> str:
        """The file that a column is in."""
        return self.path

    def name_row(self, row: int) -> str:
        """The name of a row in errors."""
        return count_row(row)

    def pieces(self, names: Sequence[str], rows: int) -> Iterator[dict[str, Array]]:
        """All rows of some columns in order, unchecked, in pieces of at most ``rows``."""
        raise NotImplementedError

    def mapped(self, name: str) -> Array | None:
        """A whole column as a map of the file, or None."""
        return None

    def needs_labels(self) -> bool:
        """Whether all labels must be seen to know how they are read: text, or numbers that may be names."""
        unclear = self.columns.one_column or (self.naming.codes is not None and not self.naming.certain)
        return "labels" in self.names and (unclear or self._has_text_labels())

    def _has_text_labels(self) -> bool:
        raise NotImplementedError

    def label_values(self) -> LabelValues:
        """The different labels."""
        raise NotImplementedError

    def compared_values(self) -> tuple[LabelValues, LabelValues] | None:
        """The different values of predicted and labels, if they are compared and not yet checked."""
        return None

    def set_decoder(self, decoder: LabelDecoder) -> None:
        """Use a decoder for the labels from now on."""
        self.schema = replace(self.schema, class_names=decoder.names, positive=decoder.positive)
        self.decoder = decoder


def format_of(path: Path) -> Any:
    """The module of the format that a file is written in."""
    suffix = suffix_of(path)
    if suffix not in SUFFIXES:
        raise ValueError(f"{path}: predictions are written as {', '.join(SUFFIXES)}, got {suffix or path.name!r}")
    return _format(suffix)


def _format(suffix: str) -> Any:
    return importlib.import_module(f"calibrant.predictions.formats.{suffix[1:]}")


def open_files(
    path: Any,
    columns: Mapping[str, str | Sequence[str]] | None,
    groups: Sequence[str] | None,
    facts: dict[str, Any],
    *,
    unlabelled: bool = False,
) -> FileStore:
    """Open the files that a path means; see `Predictions.open`."""
    options = check_options(columns, groups, facts, unlabelled=unlabelled)
    data = [str(options.columns[name]) for name in DATA if name in options.columns]
    readers: list[Reader] = []
    for file in find_files(path, data or DATA):
        with file_errors(str(file)):
            readers.append(_format(READ[suffix_of(file)]).open_file(file, options))
        _check_shard(readers[0], readers[-1])
    choose_decoders(readers)
    return FileStore(readers)


def choose_decoders(readers: Sequence[Reader]) -> None:
    """Decide, once for all files, what their labels mean."""
    values = None
    if any(reader.needs_labels() for reader in readers):
        values = LabelValues()
        for reader in readers:
            with file_errors(reader.path):
                labels = reader.label_values()
            values.add(labels.numbers)
            values.add(labels.texts)
    decoder = _choose_decoder(readers[0], values)
    for reader in readers:
        with file_errors(reader.path):
            pair = reader.compared_values()
        if pair is not None:
            check_comparable(*pair, reader.path)
        reader.set_decoder(decoder)


def _choose_decoder(reader: Reader, values: LabelValues | None) -> LabelDecoder:
    """Choose how labels are read, from all labels, and the positive class of two."""
    columns, schema, prefix = reader.columns, reader.schema, f"{reader.path}: "
    if columns.one_column:
        (column,) = columns.sources(schema.holds)
        values, names = values or LabelValues(), reader.naming.names
        return read_two_classes(values, columns.positive, names, column, schema.ignore_index, prefix)
    decoder = choose_decoder(reader.naming, values, schema, reader.path)
    return replace(decoder, positive=find_positive(columns.positive, decoder.names, schema.num_classes, prefix))


def _check_shard(reference: Reader, reader: Reader) -> None:
    facts: dict[str, tuple[Any, Any]] = {"columns": (sorted(reference.names), sorted(reader.names))}
    facts |= {name: (value, getattr(reader.schema, name)) for name, value in vars(reference.schema).items()}
    facts["numbers of the classes"] = (reference.naming.codes, reader.naming.codes)
    facts["the positive class"] = (reference.columns.positive, reader.columns.positive)
    for name, (expected, value) in facts.items():
        if value != expected:
            raise ValueError(
                f"{reader.path}: shards must hold the same, "
                f"got {name} {str(value)[:80]} where {reference.path} has {str(expected)[:80]}"
            )


class FileStore:
    """Columns in files, checked as they are read: arrays on first access, batches one at a time."""

    def __init__(self, readers: Sequence[Reader]):
        self.readers = readers
        self.schema, self.names = readers[0].schema, readers[0].names
        self.cache: dict[str, Array] = {}

    def __len__(self) -> int:
        return sum(reader.rows() for reader in self.readers)

    def column(self, name: str) -> Array:
        """A whole column: a map of the file where there is one and it needs no change, else read and kept."""
        if name not in self.cache:
            array = self._mapped(name) if len(self.readers) == 1 else None
            if array is None:
                (columns,) = self.blocks(sys.maxsize, [name])
                array = columns[name]
            array.setflags(write=False)
            self.cache[name] = array
        return self.cache[name]

    def _mapped(self, name: str) -> Array | None:
        reader = self.readers[0]
        with file_errors(reader.path):
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
        return MemoryStore(self.schema, freeze(columns))

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
