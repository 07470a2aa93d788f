"""Predictions that stay in their files: columns are found at once, values are checked as they are read.

A file must not change while it is read, and a path is only a name: between two uses of it another file may have taken
the place of the first. So the stamp of a file is taken from the very handle through which its header was read, and
every later pass opens a handle of its own that must bear the same stamp before the first byte is read and after the
last.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeAlias

import numpy as np

from calibrant._arrays import Array
from calibrant._files import open_regular
from calibrant.predictions.binary import find_positive, read_two_classes
from calibrant.predictions.columns import ColumnMap, OpenOptions, check_options
from calibrant.predictions.labels import LabelDecoder, LabelValues, check_comparable, choose_decoder
from calibrant.predictions.memory import MemoryStore, freeze, gather, rebatch
from calibrant.predictions.paths import READ, SUFFIXES, FileError, Remote, file_errors, find_files, suffix_of
from calibrant.predictions.schema import DATA, Schema
from calibrant.predictions.values import Location, check_column, count_row

GRAIN = 1 << 18  # numbers to read at once where batches are smaller


class Stamp(NamedTuple):
    """What tells one state of a file from another; None matches anything."""

    size: int
    modified: int
    inode: int | None = None
    changed: int | None = None

    def matches(self, other: Stamp) -> bool:
        """Whether nothing that both know differs."""
        return all(a == b or None in (a, b) for a, b in zip(self, other, strict=True))


@dataclass(frozen=True)
class DataFile:
    """A file on this machine, as it was when it was opened first."""

    path: str
    stamp: Stamp

    @contextlib.contextmanager
    def opened(self) -> Iterator[IO[bytes]]:
        """A handle of this file and no other; an error, at the latest in the end, if it changes."""
        with open_regular(self.path) as handle:
            self.check(handle)
            yield handle
            self.check(handle)

    def check(self, handle: IO[bytes]) -> None:
        """Refuse a handle of another file, or of this one in another state."""
        if not self.stamp.matches(_stamp(handle)):
            raise FileError(f"{self.path}: the file has changed since it was opened")

    def native_path(self, handle: IO[bytes]) -> str:
        """A path by which libraries that want one get the file behind a handle, whatever bears its name by now."""
        path = f"/dev/fd/{handle.fileno()}"
        return path if os.path.exists(path) else self.path  # a system without it: the check in the end must do

    def __getstate__(self) -> dict[str, Any]:
        """Other machines that share the storage may count its inodes differently."""
        return {"path": self.path, "stamp": Stamp(self.stamp.size, self.stamp.modified)}


@contextlib.contextmanager
def open_first(path: Path) -> Iterator[tuple[DataFile, IO[bytes]]]:
    """Open a file for the first time: its stamp from now on, and a handle to read its header."""
    with open_regular(path) as handle:
        file = DataFile(str(path), _stamp(handle))
        if not file.stamp.size:
            raise ValueError(f"{path}: the file is empty")
        yield file, handle
        file.check(handle)


def _stamp(handle: IO[bytes]) -> Stamp:
    status = os.fstat(handle.fileno())
    return Stamp(status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns)


class Reader:
    """One file, or one set of ``.npy`` files; it holds no open handle between reads, but reads no other file either.

    ``count`` is the number of samples, None if that takes a pass over the file.
    """

    def __init__(self, path: str, columns: ColumnMap, schema: Schema, count: int | None):
        self.path, self.columns, self.schema, self.count = path, columns, schema, count
        self.names, self.naming = tuple(columns.columns), columns.naming
        self.decoder = LabelDecoder(schema.class_names)

    def rows(self) -> int:
        """The number of samples, counted if need be."""
        assert self.count is not None
        return self.count

    def file_of(self, name: str) -> str:
        """The file that a column is in."""
        return self.path

    def name_row(self, row: int) -> str:
        """What errors call a row."""
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
        """The different values of predicted and labels, if they are compared and were not yet looked at."""
        return None

    def set_decoder(self, decoder: LabelDecoder) -> None:
        """Read labels like this from now on."""
        self.schema = replace(self.schema, class_names=decoder.names, positive=decoder.positive)
        self.decoder = decoder


def format_of(path: Path) -> Any:
    """The module of the format that a file is written in."""
    suffix = suffix_of(path)
    if suffix not in SUFFIXES:
        raise ValueError(f"{path}: predictions are written as {', '.join(SUFFIXES)}, got {suffix or path.name!r}")
    return importlib.import_module(f"calibrant.predictions.formats.{suffix[1:]}")


def open_files(
    path: Any,
    columns: Mapping[str, str | Sequence[str]] | None,
    groups: Sequence[str] | None,
    facts: dict[str, Any],
    *,
    unlabelled: bool = False,
) -> FileStore:
    """Open what a path means; see `Predictions.open`."""
    options = check_options(columns, groups, facts, unlabelled=unlabelled)
    data = [str(options.columns[name]) for name in DATA if name in options.columns]
    readers: list[Reader] = []
    for file in find_files(path, data or DATA):
        readers.append(_open_file(file, options))
        _check_same(readers[0], readers[-1])
    choose_decoders(readers)
    return FileStore(readers)


def _open_file(file: Path | Remote, options: OpenOptions) -> Reader:
    with file_errors(str(file)):
        reader: Reader = format_of(Path(f"x{READ[suffix_of(file)]}")).open_file(file, options)
        return reader


def choose_decoders(readers: Sequence[Reader]) -> None:
    """Decide, once for all files, what their labels mean."""
    first, values = readers[0], None
    if any(reader.needs_labels() for reader in readers):
        values = LabelValues()
        for reader in readers:
            with file_errors(reader.path):
                labels = reader.label_values()
            values.add(labels.numbers)
            values.add(labels.texts)
    decoder = _choose_decoder(first, values)
    for reader in readers:
        with file_errors(reader.path):
            pair = reader.compared_values()
        if pair is not None:
            check_comparable(*pair, reader.path)
        reader.set_decoder(decoder)


def _choose_decoder(reader: Reader, values: LabelValues | None) -> LabelDecoder:
    """How labels are read, by all of them, and which of two classes is the positive one."""
    columns, schema, prefix = reader.columns, reader.schema, f"{reader.path}: "
    if columns.one_column:
        (column,) = columns.sources(schema.holds)
        values, names = values or LabelValues(), reader.naming.names
        return read_two_classes(values, columns.positive, names, column, schema.ignore_index, prefix)
    decoder = choose_decoder(reader.naming, values, schema, reader.path)
    return replace(decoder, positive=find_positive(columns.positive, decoder.names, schema.num_classes, prefix))


def _check_same(first: Reader, other: Reader) -> None:
    facts: dict[str, tuple[Any, Any]] = {"columns": (sorted(first.names), sorted(other.names))}
    facts |= {name: (value, getattr(other.schema, name)) for name, value in vars(first.schema).items()}
    facts["numbers of the classes"] = (first.naming.codes, other.naming.codes)
    facts["the positive class"] = (first.columns.positive, other.columns.positive)
    for name, (expected, value) in facts.items():
        if value != expected:
            raise ValueError(
                f"{other.path}: shards must hold the same, "
                f"got {name} {str(value)[:80]} where {first.path} has {str(expected)[:80]}"
            )


class FileStore:
    """Columns in files, checked as they are read: arrays on first access, batches as they are asked for."""

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
            self.cache |= freeze({name: array})
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
                count = len(next(iter(piece.values())))
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
        """The number of samples if that is known, and where they are."""
        counts = [reader.count for reader in self.readers]
        size = "" if None in counts else f"{sum(count or 0 for count in counts)} samples in "
        more = f" and {len(counts) - 1} more" if len(counts) > 1 else ""
        return f"{size}{self.readers[0].path}{more}"

    @property
    def files(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(dict.fromkeys(reader.file_of(name) for reader in self.readers for name in self.names))


#: Where the columns of `Predictions` are.
Store: TypeAlias = MemoryStore | FileStore
