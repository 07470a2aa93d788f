"""Arrays in files, whatever their container: where each lies, and its rows.

Rows are read into memory of their own rather than mapped: as fast, and what has been read does not stay resident. Where
a checksum is known, it is computed on the way, and compared before the last rows are given out.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Any, Protocol

import numpy as np

from calibrant._arrays import Array
from calibrant.predictions.labels import LabelCode, agreed
from calibrant.predictions.stamps import DataFile
from calibrant.predictions.streams import CHUNK, Checksum, Inflating, Summing, check_sum, copied_rows, read_rows
from calibrant.predictions.text import as_text, check_width, is_text
from calibrant.predictions.where import Where


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

    file: DataFile
    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool = False
    checksum: Checksum | None = None

    @property
    def path(self) -> str:
        """The file."""
        return self.file.path

    def blocks(self, rows: int) -> Iterator[Array]:
        """Read block by block."""
        with self.file.opened() as handle:
            if self.fortran:
                self._verify(handle)
                yield from copied_rows(self._map(handle), rows)
                return
            stream: Any = handle
            handle.seek(self.offset)
            if self.checksum is not None:
                handle.seek(self.checksum.start)
                stream = Summing(handle)
                stream.skip(self.offset - self.checksum.start)
            left = self.shape[0]
            for block in read_rows(stream, self.dtype, self.shape, rows):
                left -= len(block)
                if self.checksum is not None and not left:
                    check_sum(stream.crc, self.checksum.value, self.path, self.checksum.otherwise)
                yield block

    def mapped(self) -> Array | None:
        """A map that cannot be written to, or None where numbers would not lie at multiples of their size."""
        if self.offset % self.dtype.alignment:
            return None
        with self.file.opened() as handle:
            self._verify(handle)
            return self._map(handle)

    def _map(self, handle: IO[bytes]) -> Array:
        order = "F" if self.fortran else "C"
        return np.asarray(np.memmap(handle, self.dtype, "r", self.offset, self.shape, order))  # type: ignore[call-overload]

    def _verify(self, handle: IO[bytes]) -> None:
        """Compare the checksum in a pass of its own."""
        if self.checksum is None:
            return
        handle.seek(self.checksum.start)
        end = self.offset + math.prod(self.shape) * self.dtype.itemsize
        stream = Summing(handle)
        stream.skip(end - self.checksum.start)
        check_sum(stream.crc, self.checksum.value, self.path, self.checksum.otherwise)


@dataclass(frozen=True)
class Deflated:
    """An array compressed in a zip archive, ``skip`` bytes into a member of ``size`` bytes."""

    file: DataFile
    start: int
    size: int
    crc: int
    skip: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool = False

    @property
    def path(self) -> str:
        """The archive."""
        return self.file.path

    def blocks(self, rows: int) -> Iterator[Array]:
        """Decompress block by block; columns that lie one after the other go through a temporary file."""
        with self.file.opened() as handle:
            handle.seek(self.start)
            stream = Inflating(handle, self.size)
            stream.read(self.skip)
            if not self.fortran:
                left = self.shape[0]
                for block in read_rows(stream, self.dtype, self.shape, rows):
                    left -= len(block)
                    if not left:
                        self._check_end(stream)
                    yield block
                return
            with tempfile.TemporaryFile() as copy:
                while data := stream.read(CHUNK):
                    copy.write(data)
                self._check_end(stream)
                copy.flush()
                yield from copied_rows(np.memmap(copy, self.dtype, "r", 0, self.shape, "F"), rows)

    def _check_end(self, stream: Inflating) -> None:
        if stream.read(1):
            raise ValueError(f"{self.path}: the file is damaged: an array goes on after its end")
        check_sum(stream.crc, self.crc, self.path)

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
        return np.dtype(f"U{max(map(len, self.levels), default=1) or 1}")

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the codes."""
        return self.codes.shape

    def blocks(self, rows: int) -> Iterator[Array]:
        """Text, looked up."""
        check_width(f"{self.path}: text", len(self.levels), max(map(len, self.levels), default=1))
        levels = np.array(self.levels, dtype=np.str_)
        for codes in self.codes.blocks(rows):
            if codes.dtype.kind not in "iu" or not 0 <= codes.min() <= codes.max() < len(levels):
                raise ValueError(f"{self.path}: codes of text must be whole numbers in 0..{len(levels) - 1}")
            check_width(f"{self.path}: text", codes.size, levels.itemsize // 4)
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
        for pair in zip(self.predicted.blocks(rows), self.labels.blocks(rows), strict=True):
            where = Where(f"{self.path}: ", row)
            predicted, labels = (as_text(f"{where.head}labels", a) if is_text(a) else a for a in pair)
            yield agreed(predicted, labels, where)
            row += len(predicted)

    def mapped(self) -> None:
        """Not possible."""


@dataclass(frozen=True)
class Coded:
    """Labels whose numbers are not positions of classes, or are written as text."""

    labels: Member
    code: LabelCode
    title: str
    ignore_index: int | None

    @property
    def path(self) -> str:
        """The file of the labels."""
        return self.labels.path

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type in the file."""
        return self.labels.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the labels."""
        return self.labels.shape

    def blocks(self, rows: int) -> Iterator[Array]:
        """Positions, or text that is names of classes."""
        row = 0
        for block in self.labels.blocks(rows):
            where = Where(f"{self.path}: ", row)
            labels = as_text(where.head + self.title, block) if is_text(block) else block
            yield self.code.positions(self.title, labels, self.ignore_index, where)
            row += len(block)

    def mapped(self) -> None:
        """Not possible."""


def values_of(member: Member, rows: int, add: Callable[[list[Any]], None]) -> None:
    """Hand the different values of an array to ``add``, block by block."""
    for block in member.blocks(rows):
        array = as_text(f"{member.path}: labels", block) if is_text(block) else block
        if array.dtype.kind in "iuU":
            add(np.unique(array).tolist())
