"""How large the columns of a Parquet file are, from its footer and before anything of it is read.

pyarrow tells the same, but ends the process when a footer is damaged: ``RowGroupMetaData.column`` lets a C++ exception
through (seen with 26.0: "Definition level histogram size mismatch"). The footer is a struct in Thrift's compact
protocol [https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md]; four fields are taken.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import IO, Any, NamedTuple

#: Bytes of a footer, and parts that a table may be cut into: columns times row groups.
MAX_FOOTER, MAX_CHUNKS = 2**26, 100_000
_DEEPEST = 32

_BOOLEANS, _BYTE, _NUMBERS, _DOUBLE, _BINARY, _LISTS, _MAP, _STRUCT = (1, 2), 3, (4, 5, 6), 7, 8, (9, 10), 11, 12


class Chunk(NamedTuple):
    """A column in one row group."""

    path: tuple[str, ...]  # its name; of a column of lists ("x", "list", "element")
    values: int  # how many, missing ones included
    unpacked: int  # bytes of its pages once they are decompressed
    packed: int  # bytes in the file


def column_chunks(file: IO[bytes]) -> list[Chunk]:
    """The columns of every row group of an open file, as its footer states them.

    Raises:
        ValueError: it is no Parquet file, or its footer is damaged.
    """
    size = os.fstat(file.fileno()).st_size
    file.seek(max(0, size - 8))
    end = file.read(8)
    length = int.from_bytes(end[:4], "little")
    if len(end) < 8 or end[4:] != b"PAR1" or length > size - 12:
        raise ValueError("not a Parquet file, or one that is cut off")
    if length > MAX_FOOTER:
        raise ValueError(f"the footer has {length:,} bytes; at most {MAX_FOOTER:,} are read")
    file.seek(size - 8 - length)
    footer = _Compact(file.read(length))
    file.seek(0)
    chunks: list[Chunk] = []

    def column() -> None:
        fields = footer.fields({3: footer.texts, 5: footer.number, 6: footer.number, 7: footer.number})
        chunks.append(Chunk(tuple(fields.get(3, ())), *(fields.get(key, 0) for key in (5, 6, 7))))
        if len(chunks) > MAX_CHUNKS:
            raise ValueError(f"the table is cut into more than {MAX_CHUNKS:,} parts")

    def chunk() -> None:
        footer.fields({3: column})

    def row_group() -> None:
        footer.fields({1: lambda: footer.items(_STRUCT, chunk)})

    try:
        footer.fields({4: lambda: footer.items(_STRUCT, row_group)})
    except (IndexError, UnicodeDecodeError) as error:
        raise ValueError("the footer is damaged") from error
    if any(min(chunk[1:]) < 0 for chunk in chunks):
        raise ValueError("the footer states sizes below 0")
    return chunks


class _Compact:
    """Values of Thrift's compact protocol, one after the other; an IndexError where the bytes end."""

    def __init__(self, data: bytes):
        self.data, self.at, self.depth = data, 0, 0

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def count(self) -> int:
        """A number from 0 on: seven bits a byte, the lowest first."""
        value = self.byte()
        if value < 0x80:
            return value
        value, shift = value & 0x7F, 7
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
            if shift > 63:
                raise IndexError

    def number(self) -> int:
        value = self.count()
        return (value >> 1) ^ -(value & 1)

    def text(self) -> str:
        start = self.step(self.count())
        return self.data[start : self.at].decode()

    def texts(self) -> list[str]:
        return self.items(_BINARY, self.text)

    def step(self, length: int) -> int:
        """Skip so many bytes, and return where they start."""
        start = self.at
        self.at += length
        if self.at > len(self.data):
            raise IndexError
        return start

    def head_of_list(self) -> tuple[int, int]:
        byte = self.byte()
        number = byte >> 4 if byte >> 4 < 15 else self.count()
        if number > len(self.data) - self.at:  # each takes a byte at least
            raise IndexError
        return byte & 15, number

    def items(self, kind: int, read: Callable[[], Any]) -> list[Any]:
        stated, number = self.head_of_list()
        if number and stated != kind:
            raise IndexError
        return [read() for _ in range(number)]

    def fields(self, readers: dict[int, Callable[[], Any]]) -> dict[int, Any]:
        """The fields of a struct that have a reader, by their numbers; all others are skipped."""
        self.depth += 1
        if self.depth > _DEEPEST:
            raise IndexError
        values, key = {}, 0
        while head := self.byte():
            key = key + (head >> 4) if head >> 4 else self.number()
            if key in readers:
                values[key] = readers[key]()
            elif head & 15 not in _BOOLEANS:  # whose value is in the head
                self.skip(head & 15)
        self.depth -= 1
        return values

    def skip(self, kind: int) -> None:
        if kind in _NUMBERS:
            self.count()
        elif kind in (_BYTE, *_BOOLEANS):
            self.step(1)
        elif kind == _DOUBLE:
            self.step(8)
        elif kind == _BINARY:
            self.step(self.count())
        elif kind == _STRUCT:
            self.fields({})
        elif kind in _LISTS:
            self.skip_all(*self.head_of_list())
        elif kind == _MAP:
            number = self.count()
            kinds = self.byte() if number else 0
            for _ in range(min(number, len(self.data))):
                self.skip(kinds >> 4)
                self.skip(kinds & 15)
        else:
            raise IndexError

    def skip_all(self, kind: int, number: int) -> None:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise IndexError
        for _ in range(number):
            self.skip(kind)
        self.depth -= 1
