"""An array whose bytes lie in a file: where they are, how they are read and written, and their checksum.

Rows are read into memory of their own rather than mapped: as fast, and what has been read does not stay resident. Where
a checksum is known, it is computed on the way, and compared before the last rows are given out.
"""

from __future__ import annotations

import math
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from calibrant._arrays import Array
from calibrant._npy import ArrayHeader, read_header
from calibrant.predictions.files import DataFile, Store
from calibrant.predictions.formats import check_crc
from calibrant.predictions.memory import BATCH, first_dtypes
from calibrant.predictions.schema import check_width

CHUNK = 1 << 18  # bytes that stay in the cache between reading and summing


class ByteStream:
    """Bytes from where a file stands, how many were read, and their checksum."""

    def __init__(self, handle: IO[bytes]):
        self.handle: Any = handle
        self.count = self.crc = 0

    def readinto(self, space: memoryview) -> int:
        """Fill some of a space, and say how much; nothing at the end."""
        count = self._fill(space[:CHUNK])
        self.crc = zlib.crc32(space[:count], self.crc)
        self.count += count
        return count

    def _fill(self, space: memoryview) -> int:
        return int(self.handle.readinto(space))

    def read(self, size: int) -> bytes:
        """That many bytes, fewer at the end."""
        data = bytearray(size)
        space = memoryview(data)
        while space and (count := self.readinto(space)):
            space = space[count:]
        return bytes(data[: size - len(space)])

    def skip(self, size: int) -> None:
        """Read some bytes for the sake of the checksum."""
        while size:
            count = len(self.read(min(size, CHUNK)))
            if not count:
                raise ValueError("the file ends before its array does")
            size -= count


class InflatingStream(ByteStream):
    """What ``size`` compressed bytes from where a file stands become."""

    def __init__(self, handle: IO[bytes], size: int):
        super().__init__(handle)
        self.left = size
        self.engine = zlib.decompressobj(-zlib.MAX_WBITS)

    def _fill(self, space: memoryview) -> int:
        while not self.engine.eof:
            data = self.engine.unconsumed_tail
            if not data and self.left:
                data = self.handle.read(min(self.left, 1 << 16))
                self.left -= len(data)
            piece = self.engine.decompress(data, len(space))
            if piece:
                space[: len(piece)] = piece
                return len(piece)
            if not data:
                break
        return 0


@dataclass(frozen=True)
class StoredArray:
    """An array whose bytes lie in a file, as they are or deflated.

    Attributes:
        file: the file.
        start: where its bytes start, or those that its checksum is of.
        skip: how many bytes come before those of the array.
        dtype: its type.
        shape: its shape, known to fit the file.
        fortran: whether it lies column by column.
        crc: the CRC-32 of all bytes from ``start`` to the end of the array, if it is known.
        deflated: the number of compressed bytes, None if they are as they are.
        mismatch: what another checksum means.
    """

    file: DataFile
    start: int
    skip: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool = False
    crc: int | None = None
    deflated: int | None = None
    mismatch: str = "the file is damaged"

    @property
    def path(self) -> str:
        """The file it is in."""
        return self.file.path

    def blocks(self, rows: int) -> Iterator[Array]:
        """Its rows in order, in new arrays of ``rows``; the last one may be shorter."""
        with self.file.opened() as handle:
            if self.fortran:
                array = self._map(handle) if self.deflated is None else self._inflate(handle)
                for start in range(0, len(array), rows):
                    yield np.array(array[start : start + rows], order="C")
                return
            stream: Any = self._stream(handle)
            left = self.shape[0]
            for block in read_rows(stream, self.dtype, self.shape, rows):
                left -= len(block)
                if not left and isinstance(stream, ByteStream):
                    self._check_end(stream)
                yield block

    def mapped(self) -> Array | None:
        """A map of the file, or None if it is deflated, or its numbers are not at multiples of their size."""
        if self.deflated is not None or (self.start + self.skip) % self.dtype.alignment:
            return None
        with self.file.opened() as handle:
            return self._map(handle)

    def _stream(self, handle: IO[bytes]) -> Any:
        """The bytes of the array: with a checksum if there is one to compare."""
        if self.crc is None:
            handle.seek(self.start + self.skip)
            return handle
        handle.seek(self.start)
        stream = ByteStream(handle) if self.deflated is None else InflatingStream(handle, self.deflated)
        stream.skip(self.skip)
        return stream

    def _check_end(self, stream: ByteStream) -> None:
        if self.deflated is not None and stream.read(1):
            raise ValueError(f"{self.path}: the file is damaged: an array goes on after its end")
        check_crc(stream.crc, self.crc or 0, self.path, self.mismatch)

    def _map(self, handle: IO[bytes]) -> Array:
        """A map that cannot be written to, after a pass that compares the checksum."""
        if self.crc is not None:
            stream = self._stream(handle)
            stream.skip(math.prod(self.shape) * self.dtype.itemsize)
            self._check_end(stream)
        order, offset = "F" if self.fortran else "C", self.start + self.skip
        return np.asarray(np.memmap(handle, self.dtype, "r", offset, self.shape, order))  # type: ignore[call-overload]

    def _inflate(self, handle: IO[bytes]) -> Array:
        """The array in a temporary file."""
        stream = self._stream(handle)
        with tempfile.TemporaryFile() as copy:
            while data := stream.read(CHUNK):
                copy.write(data)
            self._check_end(stream)
            copy.flush()
            return np.asarray(np.memmap(copy, self.dtype, "r", 0, self.shape, "F"))


def read_rows(file: Any, dtype: np.dtype[Any], shape: tuple[int, ...], rows: int) -> Iterator[Array]:
    """Read an array from where a file stands, ``rows`` rows at a time."""
    if dtype.kind in "US":
        check_width("an array", min(rows, shape[0]), dtype.itemsize // 4)
    for start in range(0, shape[0], rows):
        block = np.empty((min(rows, shape[0] - start), *shape[1:]), dtype)
        space = as_bytes(block)
        while space:
            count = file.readinto(space)
            if not count:
                raise ValueError("the file ends before its array does")
            space = space[count:]
        yield block


def parse_header(file: Any, size: int) -> ArrayHeader:
    """The header of a ``.npy`` array of numbers or text, which has ``size`` bytes with its header."""
    header = read_header(file)
    if header.kind in "mM":
        raise ValueError(f"arrays of numbers or text are read, got dates or times, {header.code!r}")
    stored = size - header.size
    if header.data_size != stored:
        announced = f"{header.dtype} {list(header.shape)}, {header.data_size} bytes"
        raise ValueError(f"the header claims {announced}, but the file holds {stored}")
    return header


def as_bytes(array: Array) -> memoryview:
    """The bytes of an array in C order."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def write_array(file: Any, array: Array) -> None:
    """Write an array in the ``.npy`` format."""
    _write_header(file, array.dtype, array.shape)
    file.write(as_bytes(array))


def write_column(file: Any, store: Store, name: str) -> None:
    """Write a column in the ``.npy`` format, block by block."""
    dtype, blocks = column_blocks(store, name)
    _write_header(file, dtype, (len(store), *store.schema.stored_shape_of(name)))
    for block in blocks:
        file.write(as_bytes(block))


def _write_header(file: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    fields = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, fields)


def column_blocks(store: Store, name: str) -> tuple[np.dtype[Any], Iterator[Array]]:
    """A column to write: its type, and its rows block by block."""
    dtype = first_dtypes(store, [name])[name]
    if dtype.kind == "U":  # its width is known only at the end
        column = store.column(name)
        return column.dtype, iter([column])
    blocks = (block[name] for block in store.blocks(store.schema.rows(BATCH), [name]))
    return dtype, (block.transpose(0, 2, 1) for block in blocks) if store.schema.is_turned(name) else blocks
