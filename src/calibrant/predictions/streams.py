"""Bytes of files on their way into arrays, with their checksums."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

import numpy as np

from calibrant._arrays import Array
from calibrant.predictions.shards import FileError
from calibrant.predictions.text import check_width

CHUNK = 1 << 18  # bytes that stay in the cache between reading and summing


class Checksum(NamedTuple):
    """The CRC-32 of the bytes from ``start`` to the end of an array, and what it means if they have another."""

    start: int
    value: int
    otherwise: str = "the file is damaged"


def check_sum(crc: int, expected: int, path: str, otherwise: str = "the file is damaged") -> None:
    """Refuse bytes that are not those that were written."""
    if crc != expected:
        raise FileError(f"{path}: {otherwise}: a checksum is {crc:08x}, expected {expected:08x}; get or write it again")


class Summing:
    """A file with the checksum of all that was read of it, computed while it is in the cache."""

    def __init__(self, handle: Any):
        self.handle, self.crc = handle, 0

    def readinto(self, space: memoryview) -> int:
        """Fill some of a space, and say how much; nothing at the end."""
        count = self.handle.readinto(space[:CHUNK])
        self.crc = zlib.crc32(space[:count], self.crc)
        return int(count)

    def skip(self, size: int) -> None:
        """Read some bytes for the sake of the checksum."""
        space = memoryview(bytearray(min(size, CHUNK)))
        while size:
            count = self.readinto(space[:size])
            if not count:
                raise ValueError("the file ends before its array does")
            size -= count


class Inflating:
    """Compressed bytes from where a file stands, as a stream that knows how much came out of it, and its checksum."""

    def __init__(self, handle: IO[bytes], size: int):
        self.handle, self.left, self.crc, self.count = handle, size, 0, 0
        self.engine = zlib.decompressobj(-zlib.MAX_WBITS)

    def readinto(self, space: memoryview) -> int:
        """Fill some of a space, and say how much; nothing at the end."""
        while not self.engine.eof:
            data = self.engine.unconsumed_tail
            if not data and self.left:
                data = self.handle.read(min(self.left, 1 << 16))
                self.left -= len(data)
            piece = self.engine.decompress(data, len(space))
            if piece:
                space[: len(piece)] = piece
                self.crc = zlib.crc32(piece, self.crc)
                self.count += len(piece)
                return len(piece)
            if not data:
                break
        return 0

    def read(self, size: int) -> bytes:
        """That many bytes, fewer at the end."""
        data = bytearray(size)
        space = memoryview(data)
        while space and (count := self.readinto(space)):
            space = space[count:]
        return bytes(data[: size - len(space)])


def copied_rows(whole: Array, rows: int) -> Iterator[Array]:
    """Rows of an array that lies column by column."""
    for start in range(0, len(whole), rows):
        yield np.array(whole[start : start + rows], order="C")


def read_rows(file: Any, dtype: np.dtype[Any], shape: tuple[int, ...], rows: int) -> Iterator[Array]:
    """Read an array from where a file stands, ``rows`` rows at a time."""
    if dtype.kind in "US":
        check_width("an array", min(rows, shape[0]), dtype.itemsize // 4)
    for start in range(0, shape[0], rows):
        block = np.empty((min(rows, shape[0] - start), *shape[1:]), dtype)
        space = block.reshape(-1).view(np.uint8).data
        while space:
            count = file.readinto(space)
            if not count:
                raise ValueError("the file ends before its array does")
            space = space[count:]
        yield block
