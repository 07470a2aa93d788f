"""Files of named arrays, ``.npz``, ``.npy`` and ``.safetensors``: where the bytes lie, how they are read and written.

Rows are read into new memory rather than mapped: this is as fast, and rows that were read do not stay resident. A known
checksum is computed on the way, and compared before the last rows are returned.
"""

from __future__ import annotations

import contextlib
import math
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import IO, Any

import numpy as np

from calibrant.base.arrays import Array, as_text, check_characters, check_width
from calibrant.base.files import ArrayHeader, read_header, read_into
from calibrant.predictions.columns import FILE_FACTS, ColumnMap, OpenOptions, match_columns
from calibrant.predictions.files import BROKEN, DataFile, Reader, check_crc, file_errors
from calibrant.predictions.labels import LabelValues, compare
from calibrant.predictions.samples import rows_to_peek
from calibrant.predictions.schema import SPLIT, Schema
from calibrant.predictions.stores import BATCH, Store, first_dtypes
from calibrant.predictions.values import Location, shape_hint, two_columns

CHUNK = 1 << 18  # bytes that stay in the cache between reading and summing
MOST_ARRAYS = 10_000
FACT_BYTES = 1 << 28
LOOKED_AT = 1 << 12  # rows of an array that is refused, to say why


class ByteStream:
    """Bytes from where a file stands, and the checksum of those that were read."""

    def __init__(self, handle: IO[bytes]):
        self.handle: Any = handle
        self.crc = 0

    def readinto(self, space: memoryview) -> int:
        """Fill part of a buffer and return the number of bytes; 0 at the end."""
        count = self._fill(space[:CHUNK])
        self.crc = zlib.crc32(space[:count], self.crc)
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
        """Read some bytes only for the checksum."""
        while size:
            count = len(self.read(min(size, CHUNK)))
            if not count:
                raise ValueError("the file ends before its array does")
            size -= count


class InflatingStream(ByteStream):
    """What ``size`` compressed bytes from where a file stands become."""

    def __init__(self, handle: IO[bytes], size: int):
        super().__init__(handle)
        self.remaining = size
        self.engine = zlib.decompressobj(-zlib.MAX_WBITS)

    def _fill(self, space: memoryview) -> int:
        while not self.engine.eof:
            data = self.engine.unconsumed_tail
            if not data and self.remaining:
                data = self.handle.read(min(self.remaining, 1 << 16))
                self.remaining -= len(data)
            piece = self.engine.decompress(data, len(space))
            if piece:
                space[: len(piece)] = piece
                return len(piece)
            if not data:
                break
        return 0


@dataclass(frozen=True)
class StoredArray:
    """An array whose bytes lie in a file, as they are or deflated."""

    file: DataFile
    start: int  # of its bytes, or of those that its checksum is of
    skip: int  # the number of bytes before those of the array
    dtype: np.dtype[Any]
    shape: tuple[int, ...]  # known to fit the file
    fortran: bool = False  # whether it lies column by column
    crc: int | None = None  # the CRC-32 of all bytes from the start to the end of the array, if it is known
    deflated: int | None = None  # the number of compressed bytes, None if they are as they are
    mismatch: str = "the file is damaged"  # what a wrong checksum means
    stored_dtype: np.dtype[Any] | None = None  # of the bytes, where it is another
    #: Makes ``dtype`` of a block of ``stored_dtype``, given how errors start; of a module, so that it can be pickled.
    convert: Callable[[Array, str], Array] | None = None

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
            stream, dtype = self._stream(handle), self.stored_dtype or self.dtype
            if dtype.kind in "US":
                check_width("an array", min(rows, self.shape[0]), dtype.itemsize // 4)
            for start in range(0, self.shape[0], rows):
                stop = min(start + rows, self.shape[0])
                block = np.empty((stop - start, *self.shape[1:]), dtype)
                read_into(stream, as_bytes(block))
                if stop == self.shape[0] and isinstance(stream, ByteStream):
                    self._check_end(stream)
                yield block if self.convert is None else self.convert(block, f"{self.path}: ")

    def mapped(self) -> Array | None:
        """A map of the file, or None if its bytes are not those of the array, or not at multiples of their size."""
        if self.deflated is not None or self.convert or (self.start + self.skip) % self.dtype.alignment:
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


class ArrayReader(Reader):
    """A file of named arrays, or a set of files with one array each.

    ``arrays`` has those behind each of our columns: one, or predicted and labels where they stand for correct.
    """

    def __init__(self, path: str, arrays: dict[str, list[StoredArray]], columns: ColumnMap, schema: Schema):
        super().__init__(path, columns, schema, arrays[schema.holds][0].shape[0])
        self.arrays = arrays
        self.has_text_labels = "labels" in arrays and arrays["labels"][0].dtype.kind == "U"
        for name, (array, *_) in arrays.items():
            expected = (self.rows(), *schema.stored_shape_of(name))
            if array.shape != expected and not (columns.one_column and name == schema.holds):
                hint = ""
                if array.shape[:1] == expected[:1] and len(array.shape) == len(expected) + 1:
                    block = next(array.blocks(min(array.shape[0], LOOKED_AT)))
                    hint = shape_hint(block, (len(block), *expected[1:]))
                actual = f"{list(array.shape)}{hint}"
                raise ValueError(f"{path}: {columns.title(name)} must be {list(expected)}, got {actual}")

    def file_of(self, name: str) -> str:
        """The file that a column is in."""
        return self.arrays[name][0].path

    def pieces(self, names: Sequence[str], rows: int) -> Iterator[dict[str, Array]]:
        """Runs of some columns."""
        rows = min(rows, self.rows())
        with file_errors(self.path):
            for blocks in zip(*(self._blocks(name, rows) for name in names), strict=True):
                yield dict(zip(names, blocks, strict=True))

    def mapped(self, name: str) -> Array | None:
        """A whole column as a map of the file, if that is possible."""
        with file_errors(self.path):
            array = None if self._is_converted(name) else self.arrays[name][0].mapped()
        return array.transpose(0, 2, 1) if array is not None and self.schema.is_turned(name) else array

    def _blocks(self, name: str, rows: int) -> Iterator[Array]:
        row = 0
        for parts in zip(*(array.blocks(rows) for array in self.arrays[name]), strict=True):
            yield self._convert(name, parts, Location(f"{self.file_of(name)}: ", row))
            row += len(parts[0])

    def _is_converted(self, name: str) -> bool:
        """Whether the values of a column are not those of its array."""
        decoder, one_column = self.decoder, self.columns.one_column
        if name == "labels":
            return bool(decoder.codes or decoder.numeric or decoder.unclear or one_column)
        return one_column if name == self.schema.holds else len(self.arrays[name]) > 1

    def _convert(self, name: str, parts: Sequence[Array], location: Location) -> Array:
        values, schema, title = parts[0], self.schema, self.columns.title(name)
        if not self._is_converted(name):
            return values.transpose(0, 2, 1) if schema.is_turned(name) else values
        if name == schema.holds:
            return two_columns(name, title, schema.positive or 0, values, location)
        if name == "labels":
            return self.decoder.decode(title, as_text(location.prefix + title, values), schema.ignore_index, location)
        predicted, labels = (as_text(f"{location.prefix}labels", part) for part in parts)
        return compare(predicted, labels, location)

    def label_values(self) -> LabelValues:
        """The different labels, in a pass over them."""
        return self._values(self.arrays["labels"][0])

    def compared_values(self) -> tuple[LabelValues, LabelValues] | None:
        """The different values of predicted and labels, if they are text that is compared."""
        pair = self.arrays.get("correct", [])
        if len(pair) < 2 or {array.dtype.kind for array in pair} != {"U"}:
            return None
        return self._values(pair[0]), self._values(pair[1])

    def _values(self, array: StoredArray) -> LabelValues:
        values = LabelValues()
        for block in array.blocks(min(self.rows(), self.schema.rows(BATCH // 16))):
            values.add_array(as_text(f"{array.path}: labels", block))
        return values


def open_arrays(
    path: str,
    names: Sequence[str],
    array_of: Callable[[str], StoredArray],
    options: OpenOptions,
    facts: dict[str, Any],
    data: str | None = None,
) -> ArrayReader:
    """Find our arrays among the ``names`` of a file, and open them by ``array_of``.

    ``facts`` are class names and the like, as the file states them; ``data`` is what it holds, where its name says so.
    """
    names = [name for name in names if name not in FILE_FACTS or (name == SPLIT and SPLIT not in facts)]

    def peek(wanted: Sequence[str]) -> dict[str, Array]:
        return {name: sample for name in wanted if (sample := _first_rows(name, array_of)) is not None}

    columns = match_columns(names, options, path, table=False, data=data, peek=peek)
    arrays = {name: [array_of(source) for source in columns.sources(name)] for name in columns.columns}
    (numbers,), labels = arrays[columns.holds], arrays.get("labels", [])
    columns = columns.with_names(facts, options, path)
    if "kind" not in facts | options.facts and labels and _are_tokens(numbers.shape, labels[0].shape):
        facts["kind"] = "tokens"
    columns, schema = columns.with_schema(numbers.dtype, numbers.shape, facts, options, path)
    if labels and labels[0].shape[1:] == (1,) and not schema.shape_of("labels"):
        labels[0] = replace(labels[0], shape=labels[0].shape[:1])  # a column, as frames and networks have them
    return ArrayReader(path, arrays, columns, schema)


def _first_rows(name: str, array_of: Callable[[str], StoredArray]) -> Array | None:
    """The first rows of an array, for errors; None if it cannot be read, or has no rows."""
    with contextlib.suppress(*BROKEN):
        array = array_of(name)
        rows = min(array.shape[0], rows_to_peek(math.prod(array.shape[1:]))) if array.shape else 0
        if not rows or rows * math.prod(array.shape[1:]) * array.dtype.itemsize > FACT_BYTES:
            return None
        block = as_text(name, next(array.blocks(rows)))
        return block[:, 0] if block.shape[1:] == (1,) else block if block.dtype.kind in "biufU" else None
    return None


def _are_tokens(shape: tuple[int, ...], labels: tuple[int, ...]) -> bool:
    """Whether data are tokens ``[B, T, V]`` beyond doubt: by their shape and the labels', which fit nothing else."""
    return len(shape) == 3 and labels == shape[:2] and shape[1] != shape[2]


def read_facts(names: Sequence[str], array_of: Callable[[str], StoredArray]) -> dict[str, Any]:
    """The facts among the arrays of a file: class names, kind, ignore index, split."""
    facts: dict[str, Any] = {}
    for name in (name for name in FILE_FACTS if name in names):
        array = array_of(name)
        is_list = name == "class_names"
        if name == SPLIT and len(array.shape) == 1 and array.shape[0] > 1:
            continue  # one value per row
        if array.shape not in ((), (1,)) if not is_list else len(array.shape) != 1 or not array.shape[0]:
            expected = "a list" if is_list else "one value"
            raise ValueError(f"{array.path}: {name} must be {expected}, got {list(array.shape)}")
        rows = max(1, *array.shape, 1)
        if array.dtype.itemsize * rows > FACT_BYTES:
            actual = f"{array.dtype} {array.shape}"
            raise ValueError(f"{array.path}: {name} must be at most {FACT_BYTES:,} bytes, got {actual}")
        (values,) = replace(array, shape=(rows,)).blocks(rows)
        if values.dtype.kind == "U":
            check_characters(f"{array.path}: {name}", values)
        facts[name] = values if is_list else values[0].item()
    return facts


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


def write_column(file: Any, store: Store, name: str) -> None:
    """Write a column in the ``.npy`` format, block by block."""
    dtype, blocks = column_blocks(store, name)
    shape = (len(store), *store.schema.stored_shape_of(name))
    fields = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, fields)
    for block in blocks:
        file.write(as_bytes(block))


def column_blocks(store: Store, name: str) -> tuple[np.dtype[Any], Iterator[Array]]:
    """A column to write: its type, and its rows block by block."""
    dtype = first_dtypes(store, [name])[name]
    if dtype.kind == "U":  # its width is known only at the end
        column = store.column(name)
        return column.dtype, iter([column])
    blocks = (block[name] for block in store.blocks(store.schema.rows(BATCH), [name]))
    return dtype, (block.transpose(0, 2, 1) for block in blocks) if store.schema.is_turned(name) else blocks
