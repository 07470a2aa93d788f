"""Files of named arrays, whatever their container: where each array lies, and reading it by rows.

Rows are read into memory of their own rather than mapped: as fast, and what has been read does not stay resident.
"""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import IO, Any, Protocol

import numpy as np

from calibrant.predictions.arrays import Array
from calibrant.predictions.checks import About, Where, about, agreed, counted
from calibrant.predictions.columns import Layout, Request, layout
from calibrant.predictions.hints import of_shape
from calibrant.predictions.shards import reading
from calibrant.predictions.store import BATCH, Store, dtypes

FACTS = ("class_names", "kind", "ignore_index", "split")


class Member(Protocol):
    """One array in a file: its type and shape, known to fit the file, and its rows."""

    @property
    def path(self) -> str:
        """The file it is in."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Its type."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""

    def blocks(self, rows: int) -> Iterator[Array]:
        """Its rows in order, in new arrays of ``rows``; the last one may be shorter."""

    def mapped(self) -> Array | None:
        """The whole array as a map of the file, or None if its bytes are not there as they are."""


@dataclass(frozen=True)
class Stored:
    """An array whose bytes lie in a file as they are."""

    path: str
    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool = False

    def blocks(self, rows: int) -> Iterator[Array]:
        """Read block by block."""
        if self.fortran:
            yield from copied_rows(self._map(), rows)
            return
        with open(self.path, "rb") as file:
            file.seek(self.offset)
            yield from read_rows(file, self.dtype, self.shape, rows)

    def mapped(self) -> Array | None:
        """A map that cannot be written to, or None where numbers would not lie at multiples of their size."""
        return None if self.offset % self.dtype.alignment else self._map()

    def _map(self) -> Array:
        order = "F" if self.fortran else "C"
        return np.asarray(np.memmap(self.path, self.dtype, "r", self.offset, self.shape, order))  # type: ignore[call-overload]


@dataclass(frozen=True)
class Deflated:
    """An array compressed in a zip archive, ``skip`` bytes into a member."""

    path: str
    name: str
    skip: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool = False

    def blocks(self, rows: int) -> Iterator[Array]:
        """Decompress block by block; columns that lie one after the other go through a temporary file."""
        with zipfile.ZipFile(self.path) as archive, archive.open(self.name) as stream:
            stream.read(self.skip)
            if not self.fortran:
                yield from read_rows(stream, self.dtype, self.shape, rows)
                return
            with tempfile.TemporaryFile() as file:
                shutil.copyfileobj(stream, file, 1 << 20)
                file.flush()
                yield from copied_rows(np.memmap(file, self.dtype, "r", 0, self.shape, "F"), rows)

    def mapped(self) -> None:
        """Not possible."""


@dataclass(frozen=True)
class Levels:
    """Text stored as numbers of levels."""

    codes: Member
    levels: tuple[str, ...]

    @property
    def path(self) -> str:
        """The file of the codes."""
        return self.codes.path

    @property
    def dtype(self) -> np.dtype[Any]:
        """Text."""
        return np.array(self.levels or ("",)).dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the codes."""
        return self.codes.shape

    def blocks(self, rows: int) -> Iterator[Array]:
        """Text, looked up."""
        levels = np.array(self.levels, dtype=np.str_)
        for codes in self.codes.blocks(rows):
            if codes.dtype.kind not in "iu" or not 0 <= codes.min() <= codes.max() < len(levels):
                raise ValueError(f"{self.path}: codes of text must be whole numbers in 0..{len(levels) - 1}")
            yield levels[codes]

    def mapped(self) -> None:
        """Not possible."""


@dataclass(frozen=True)
class Widened:
    """bfloat16, which NumPy does not have, as float32: its bits are the upper half."""

    bits: Stored

    @property
    def path(self) -> str:
        """The file of the bits."""
        return self.bits.path

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32."""
        return np.dtype(np.float32)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the bits."""
        return self.bits.shape

    def blocks(self, rows: int) -> Iterator[Array]:
        """Floats, made from their bits."""
        for block in self.bits.blocks(rows):
            yield (block.astype(np.uint32) << 16).view(np.float32)

    def mapped(self) -> None:
        """Not possible."""


@dataclass(frozen=True)
class Compared:
    """Whether what was predicted is what was true, from two arrays."""

    predicted: Member
    labels: Member

    @property
    def path(self) -> str:
        """The file of what was predicted."""
        return self.predicted.path

    @property
    def dtype(self) -> np.dtype[Any]:
        """bool."""
        return np.dtype(np.bool_)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of what was predicted."""
        return self.predicted.shape

    def blocks(self, rows: int) -> Iterator[Array]:
        """Both, compared."""
        row = 0
        for predicted, labels in zip(self.predicted.blocks(rows), self.labels.blocks(rows), strict=True):
            yield agreed(predicted, labels, Where(f"{self.path}: ", row))
            row += len(predicted)

    def mapped(self) -> None:
        """Not possible."""


def copied_rows(whole: Array, rows: int) -> Iterator[Array]:
    """Rows of an array that lies column by column."""
    for start in range(0, len(whole), rows):
        yield np.array(whole[start : start + rows], order="C")


def read_rows(file: IO[bytes], dtype: np.dtype[Any], shape: tuple[int, ...], rows: int) -> Iterator[Array]:
    """Read an array from where a file stands, ``rows`` rows at a time."""
    for start in range(0, shape[0], rows):
        block = np.empty((min(rows, shape[0] - start), *shape[1:]), dtype)
        space = block.reshape(-1).view(np.uint8).data
        while space:
            count = file.readinto(space)  # type: ignore[attr-defined]
            if not count:
                raise ValueError("the file ends before its array does")
            space = space[count:]
        yield block


class ArraySource:
    """A file of named arrays, or a set of files with one array each."""

    def __init__(self, path: str, members: dict[str, Member], plan: Layout, known: About):
        self.path, self.about, self.plan = path, known, plan
        self.names = tuple(members)
        self.members = members
        self.count = self.members[known.holds].shape[0]
        for name, member in self.members.items():
            expected = (self.count, *known.shape_of(name))
            if member.shape != expected:
                hint = of_shape(member.shape, expected)
                raise ValueError(f"{path}: {plan.title(name)} must be {list(expected)}, got {list(member.shape)}{hint}")

    def title(self, name: str) -> str:
        """What an error calls a column."""
        return self.plan.title(name)

    def file_of(self, name: str) -> str:
        """The file a column is in."""
        return self.members[name].path

    def rows(self) -> int:
        """The number of samples."""
        return self.count

    def known_rows(self) -> int | None:
        """The number of samples, always known."""
        return self.count

    def pieces(self, names: Sequence[str], rows: int) -> Iterator[dict[str, Array]]:
        """Runs of some columns, as the file has them."""
        rows = min(rows, self.count)
        with reading(self.path):
            for blocks in zip(*(self.members[name].blocks(rows) for name in names), strict=True):
                yield dict(zip(names, blocks, strict=True))

    def place(self, row: int) -> str:
        """What errors call a row."""
        return counted(row)

    def mapped(self, name: str) -> Array | None:
        """A whole column as a map of the file, if that is possible."""
        return self.members[name].mapped()


def open_members(
    path: str,
    held: Sequence[str],
    member: Callable[[str], Member],
    asked: Request,
    facts: dict[str, Any],
    data: str | None = None,
) -> ArraySource:
    """Find our arrays in a file of named arrays.

    Args:
        path: the file, for errors.
        held: the names of its arrays.
        member: gives an array by name; only those that are ours are asked for.
        asked: what the caller said.
        facts: class names and the like, as the file states them.
        data: what the file holds, where its name says so.
    """
    plan = layout([name for name in held if name not in FACTS], asked, path, table=False, data=data)
    members = {name: member(plan.source(name)[0]) for name in plan.columns}
    if not isinstance(plan.columns.get("correct", ""), str):
        members["correct"] = Compared(*map(member, plan.source("correct")))
    facts = facts | asked.facts
    if plan.holds == "confidence":
        facts = {"split": facts.get("split")}
    first = members[plan.holds]
    return ArraySource(path, members, plan, about(plan.holds, first.dtype, first.shape, **facts, head=f"{path}: "))


def stated(held: Sequence[str], member: Callable[[str], Stored | Deflated]) -> dict[str, Any]:
    """The facts among the arrays of a file: class names, kind, ignore index, split."""
    found: dict[str, Any] = {}
    for name in (name for name in FACTS if name in held):
        array = member(name)
        one = name != "class_names"
        if array.shape not in ((), (1,)) if one else len(array.shape) != 1:
            raise ValueError(
                f"{array.path}: {name} must be {'one value' if one else 'a list'}, got {list(array.shape)}"
            )
        (whole,) = replace(array, shape=array.shape or (1,)).blocks(max(1, *array.shape, 1))
        found[name] = whole[0].item() if one else whole
    return found


def facts_of(known: About) -> dict[str, Array]:
    """The facts as arrays, those that are not the default."""
    facts = {name: getattr(known, name) for name in FACTS}
    if known.kind == "classification":
        del facts["kind"]
    return {name: np.array(value) for name, value in facts.items() if value is not None}


def column_blocks(store: Store, name: str) -> tuple[np.dtype[Any], Iterator[Array]]:
    """A column to write: its type, and its rows block by block."""
    dtype = dtypes(store, [name])[name]
    if dtype.kind == "U":  # its width is known only at the end
        whole = store.column(name)
        return whole.dtype, iter([whole])
    size = max(1, BATCH // max(1, store.about.numbers))
    return dtype, (block[name] for block in store.blocks(size, [name]))


def as_bytes(array: Array) -> memoryview:
    """The bytes of an array in C order."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
