"""Predictions that stay in their files: found at once, checked as they are read."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from calibrant._arrays import Array
from calibrant.predictions.about import DATA, About
from calibrant.predictions.checks import column
from calibrant.predictions.columns import request
from calibrant.predictions.labels import LabelCode, LabelValues, Naming, check_comparable, decide
from calibrant.predictions.shards import READ, SUFFIXES, find, reading, suffix_of
from calibrant.predictions.store import MemoryStore, frozen, gathered, rebatched
from calibrant.predictions.where import Where

GRAIN = 1 << 18  # numbers to read at once where batches are smaller


class Source(Protocol):
    """One file, or one set of ``.npy`` files; it holds no open handle between reads, but reads no other file either."""

    path: str
    about: About
    names: tuple[str, ...]
    naming: Naming

    def rows(self) -> int:
        """The number of samples."""

    def known_rows(self) -> int | None:
        """The number of samples, unless that takes a pass over the file."""

    def title(self, name: str) -> str:
        """What errors call a column."""

    def file_of(self, name: str) -> str:
        """The file a column is in."""

    def place(self, row: int) -> str:
        """What errors call a row."""

    def pieces(self, names: Sequence[str], rows: int) -> Iterator[dict[str, Array]]:
        """All rows of some columns in order, unchecked, in pieces of at most ``rows``."""

    def mapped(self, name: str) -> Array | None:
        """A whole column as a map of the file, or None."""

    def labels_matter(self) -> bool:
        """Whether all labels must be seen to know how they are read."""

    def label_values(self) -> LabelValues:
        """The different labels."""

    def compared_values(self) -> tuple[LabelValues, LabelValues] | None:
        """The different values of predicted and labels, if they are compared and were not yet looked at."""

    def settle(self, code: LabelCode) -> None:
        """Read labels like this from now on."""


def format_of(path: Path) -> Any:
    """The module of the format that a file is written in."""
    suffix = suffix_of(path)
    if suffix not in SUFFIXES:
        raise ValueError(f"{path}: predictions are written as {', '.join(SUFFIXES)}, got {suffix or path.name!r}")
    return importlib.import_module(f"calibrant.predictions.{suffix[1:]}")


def open_files(
    path: Any,
    columns: Mapping[str, str | Sequence[str]] | None,
    groups: Sequence[str] | None,
    facts: dict[str, Any],
    *,
    unlabelled: bool = False,
) -> FileStore:
    """Open what a path means; see `Predictions.open`."""
    asked = request(columns, groups, facts, unlabelled=unlabelled)
    data = [str(asked.columns[name]) for name in DATA if name in asked.columns]
    sources: list[Source] = []
    for file in find(path, data or DATA):
        with reading(str(file)):
            sources.append(format_of(Path(f"x{READ[suffix_of(file)]}")).open_file(file, asked))
        _check_same(sources[0], sources[-1])
    settle_labels(sources)
    return FileStore(sources)


def settle_labels(sources: Sequence[Source]) -> None:
    """Decide, once for all files, what their labels mean."""
    first, values = sources[0], LabelValues()
    matter = [source for source in sources if source.labels_matter()]
    for source in sources if matter else ():
        with reading(source.path):
            labels = source.label_values()
        values.add(labels.numbers)
        values.add(labels.texts)
    code = decide(first.naming, values if matter else None, first.about, first.path)
    for source in sources:
        with reading(source.path):
            pair = source.compared_values()
        if pair is not None:
            check_comparable(*pair, source.path)
        source.settle(code)


def _check_same(first: Source, other: Source) -> None:
    facts: dict[str, tuple[Any, Any]] = {"columns": (sorted(first.names), sorted(other.names))}
    facts |= {name: (getattr(first.about, name), getattr(other.about, name)) for name in vars(first.about)}
    facts["numbers of the classes"] = (first.naming.codes, other.naming.codes)
    for name, (ours, theirs) in facts.items():
        if ours != theirs:
            raise ValueError(
                f"{other.path}: shards must hold the same, "
                f"got {name} {str(theirs)[:80]} where {first.path} has {str(ours)[:80]}"
            )


class FileStore:
    """Columns in files; arrays are made on first access, batches as they are asked for."""

    def __init__(self, sources: Sequence[Source]):
        self.sources = sources
        self.about, self.names = sources[0].about, sources[0].names
        self.cache: dict[str, Array] = {}

    def __len__(self) -> int:
        return sum(source.rows() for source in self.sources)

    def column(self, name: str) -> Array:
        """A whole column: a map of the file where there is one and it needs no change, else read and kept."""
        if name not in self.cache:
            whole = self._mapped(name) if len(self.sources) == 1 else None
            if whole is None:
                (columns,) = self.blocks(sys.maxsize, [name])
                whole = frozen(columns)[name]
            self.cache[name] = whole
        return self.cache[name]

    def _mapped(self, name: str) -> Array | None:
        source = self.sources[0]
        with reading(source.path):
            whole = source.mapped(name)
        if whole is None:
            return None
        where = Where(f"{source.file_of(name)}: ")
        checked = column(name, whole, len(self), self.about, where, source.title(name))
        return frozen({name: checked})[name]

    def blocks(self, size: int, names: Sequence[str]) -> Iterator[dict[str, Array]]:
        """Stream the files, in order."""
        numbers = sum(math.prod(self.about.shape_of(name)) for name in names)
        rows = size * max(1, GRAIN // (size * numbers))  # small batches are cut from larger reads
        return rebatched(self._pieces(names, rows), size, f"{self.sources[0].path}: ")

    def _pieces(self, names: Sequence[str], rows: int) -> Iterator[dict[str, Array]]:
        types: dict[str, str] = {}
        for source in self.sources:
            row = 0
            for piece in source.pieces(names, rows):
                count = len(next(iter(piece.values())))
                for name, array in piece.items():
                    where = Where(f"{source.file_of(name)}: ", row, source.place)
                    piece[name] = column(name, array, count, self.about, where, source.title(name))
                    kind = "text" if piece[name].dtype.kind == "U" else str(piece[name].dtype)
                    if types.setdefault(name, kind) != kind:
                        raise ValueError(
                            f"{where.head}shards must hold the same, got {name} {kind} after {types[name]}"
                        )
                row += count
                yield piece

    def take(self, rows: slice | Array) -> MemoryStore:
        """Some of the samples, in one pass over the files."""
        if isinstance(rows, slice):
            rows = np.arange(*rows.indices(len(self)))
        size = max(1, GRAIN // max(1, self.about.numbers))
        return MemoryStore(self.about, frozen(gathered(self.blocks(size, self.names), rows)))

    def load(self) -> MemoryStore:
        """All columns, in one pass over the files."""
        (columns,) = self.blocks(sys.maxsize, self.names)
        return MemoryStore(self.about, frozen(columns))

    def describe(self) -> str:
        """The number of samples if that is known, and where they are."""
        counts = [source.known_rows() for source in self.sources]
        known = [count for count in counts if count is not None]
        size = f"{sum(known)} samples in " if len(known) == len(counts) else ""
        more = f" and {len(counts) - 1} more" if len(counts) > 1 else ""
        return f"{size}{self.sources[0].path}{more}"

    @property
    def files(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(dict.fromkeys(source.file_of(name) for source in self.sources for name in self.names))
