"""Named arrays in files: ``.npz``, sets of ``.npy`` files, and ``.safetensors``; nothing is unpickled.

Archives are read by `zipfile`, which compares their checksums and names, and the header of a safetensors file by its
own library, which knows no gaps or overlaps. What is left to check here is how large things may become before memory is
taken for them.

Rows are read into new memory rather than mapped: this is as fast, and rows that were read do not stay resident.

=================  =====================================================================================================
``.npz``           a zip archive of arrays, stored or deflated
``.npy``           one array per file: ``x_logits.npy`` goes with ``x_labels.npy``, ``x_group.site.npy``, ... A set that
                   is written here has ``x_checksums.npy``, which holds it together: files of two sets, such as those of
                   a set that is being replaced, are noticed, and damaged ones
``.safetensors``   arrays where they lie; text as codes, whose levels are in the metadata, with a checksum of each array
                   and one of the header itself, in which this one entry counts as zeros
=================  =====================================================================================================

Facts that are not the default (class names, kind, ignore index, split) are arrays too, or metadata of safetensors.
"""

from __future__ import annotations

import bisect
import contextlib
import fcntl
import json
import math
import os
import re
import struct
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from calibrant.base.arrays import Array, as_text, check_characters, check_texts, check_width
from calibrant.base.checks import shorten
from calibrant.base.files import ArrayHeader, parse_json, read_header, read_into, sync, written_aside
from calibrant.predictions.data import DATA
from calibrant.predictions.files import (
    BROKEN,
    DataFile,
    Reader,
    array_name,
    check_crc,
    check_expansion,
    file_errors,
    open_first,
)
from calibrant.predictions.hints import rows_to_peek
from calibrant.predictions.labels import LabelValues, compare
from calibrant.predictions.locations import Location
from calibrant.predictions.schema import (
    FILE_FACTS,
    GROUP,
    SINGLE,
    SPLIT,
    ColumnMap,
    OpenOptions,
    Schema,
    facts_of,
    match_columns,
)
from calibrant.predictions.stores import BATCH, Store, first_dtypes
from calibrant.predictions.values import shape_hint

CHUNK = 1 << 18  # bytes that stay in the cache between reading and summing
MOST_ARRAYS = 10_000  # of an archive or a safetensors file
MOST_DIRECTORY = 1 << 23  # bytes of the list of an archive's members
MOST_HEADER = 1 << 24  # bytes of that of a safetensors file; the format allows six times as much
MOST_FILES = 500  # of a set of .npy files: each is open until all are written
LOCK_SECONDS = 10  # to wait for the renames of another process
FACT_BYTES = 1 << 28
LOOKED_AT = 1 << 12  # rows of an array that is refused, to say why
CHECKSUMS = "checksums"
DAMAGED = "the file is damaged"
MISMATCH = f"{DAMAGED}, or of another set than the checksums beside it, which may be about to be replaced"
#: Types of safetensors files; bfloat16, which NumPy does not have, is read as the bits that it has.
TYPES = {"F16": "<f2", "F32": "<f4", "F64": "<f8", "BOOL": "|b1", "BF16": "<u2"}
TYPES |= {f"{kind}{8 * size}": f"<{kind.lower()}{size}" for kind in "IU" for size in (1, 2, 4, 8)}
_OURS, _SUMS, _OWN_SUM, _ZEROS = "calibrant", "calibrant_crc32", "calibrant_header_crc32", "0" * 8
_OWN = re.compile(rb'("calibrant_header_crc32": ")([0-9a-f]{8})"')


class SummedFile:
    """A file that keeps the checksum of what is read from it, or written to it."""

    def __init__(self, handle: Any):
        self.handle, self.crc = handle, 0

    def readinto(self, space: memoryview) -> int:
        """Fill part of a buffer and return the number of bytes; 0 at the end."""
        count = int(self.handle.readinto(space[:CHUNK]))
        self.crc = zlib.crc32(space[:count], self.crc)
        return count

    def write(self, data: Any) -> int:
        """Write all bytes."""
        self.crc = zlib.crc32(data, self.crc)
        return int(self.handle.write(data))


@dataclass(frozen=True)
class StoredArray:
    """An array whose bytes lie in a file, or in a member of a zip archive."""

    file: DataFile
    dtype: np.dtype[Any]  # of its values, once they are decoded
    shape: tuple[int, ...]  # known to fit the file
    start: int | None  # where its bytes begin, None if they are deflated
    fortran: bool = False  # whether it lies column by column
    member: str | None = None  # of an archive, which has its checksum
    crc: int | None = None  # the CRC-32 of the bytes from `summed` to the end of the array, if it is known
    summed: int = 0
    mismatch: str = DAMAGED  # what a wrong checksum means
    stored: np.dtype[Any] | None = None  # of the bytes, where it is another: of bfloat16, or of codes of text
    levels: Array | None = None  # the texts that codes stand for

    @property
    def path(self) -> str:
        """The file it is in."""
        return self.file.path

    def blocks(self, rows: int) -> Iterator[Array]:
        """Its rows in order, in new arrays of ``rows``; the last one may be shorter."""
        if self.fortran:
            array = self._whole()
            for start in range(0, len(array), rows):
                yield np.array(array[start : start + rows], order="C")
            return
        dtype = self.stored or self.dtype
        if self.dtype.kind in "US":
            check_width(f"{self.path}: text", min(rows, self.shape[0]), self.dtype.itemsize // 4)
        with self._opened() as stream:
            for start in range(0, self.shape[0], rows):
                stop = min(start + rows, self.shape[0])
                block = np.empty((stop - start, *self.shape[1:]), dtype)
                read_into(stream, as_bytes(block))
                if stop == self.shape[0]:
                    self._check_end(stream)
                yield self._decode(block)

    def mapped(self) -> Array | None:
        """A map of the file, or None if its bytes are not those of the array, or not at multiples of their size."""
        is_itself = self.start is not None and self.stored is None and self.start % self.dtype.alignment == 0
        return self._whole() if is_itself else None

    def _whole(self) -> Array:
        """A map of the file, after a pass that compares the checksum; of deflated bytes, that of a temporary file."""
        with self.file.opened() as handle, contextlib.ExitStack() as stack:
            source, start = handle, self.start or 0
            if self.start is None:
                source = stack.enter_context(tempfile.TemporaryFile())
            if self.member is not None or self.crc is not None:
                self._copy(None if self.start is not None else source)
            source.flush()
            order = "F" if self.fortran else "C"
            array = np.memmap(source, self.dtype, "r", start, self.shape, order)  # type: ignore[call-overload]
            return np.asarray(array)

    def _copy(self, copy: IO[bytes] | None) -> None:
        """Read the whole array, for its checksum, and perhaps write it to a file."""
        size, space = math.prod(self.shape) * self.dtype.itemsize, memoryview(bytearray(CHUNK))
        with self._opened() as stream:
            for start in range(0, size, CHUNK):
                part = space[: min(CHUNK, size - start)]
                read_into(stream, part)
                if copy is not None:
                    copy.write(part)
            self._check_end(stream)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[Any]:
        """The bytes of the array, from the first one on."""
        with self.file.opened() as handle:
            if self.member is not None:
                with zipfile.ZipFile(handle) as archive, archive.open(self.member) as stream:
                    read_header(stream)
                    yield stream
            elif self.crc is None:
                handle.seek(self.start or 0)
                yield handle
            else:
                handle.seek(self.summed)
                summed = SummedFile(handle)
                read_into(summed, memoryview(bytearray((self.start or 0) - self.summed)))
                yield summed

    def _check_end(self, stream: Any) -> None:
        if self.member is not None and stream.read(1):  # at its end the checksum is compared
            raise ValueError(f"{self.path}: the file is damaged: an array goes on after its end")
        if self.crc is not None:
            check_crc(stream.crc, self.crc, self.path, self.mismatch)

    def _decode(self, block: Array) -> Array:
        """The values that stored numbers stand for."""
        if self.stored is None:
            return block
        if self.levels is None:  # bfloat16 is the upper half of float32
            return (block.astype(np.uint32) << 16).view(np.float32)
        if block.dtype.kind not in "iu" or not 0 <= block.min() <= block.max() < len(self.levels):
            raise ValueError(f"{self.path}: codes of text must be whole numbers in 0..{len(self.levels) - 1}")
        return self.levels[block]


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
            return schema.data.widen(title, schema.positive or 0, values, location)
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


# ---- opening --------------------------------------------------------------------------------------------------------
def open_npz(path: Path, options: OpenOptions) -> ArrayReader:
    """Open an archive, whose members must be named as its directory says, and may not overlap."""
    with open_first(path) as (file, handle):
        stated = _count_members(handle, file)
        with zipfile.ZipFile(handle) as archive:
            members = archive.infolist()
            if len(members) != stated:
                raise ValueError(
                    f"{path}: the archive says that it holds {stated} members, its directory {len(members)}"
                )
            end, following = file.stamp.size, "the directory"
            for info in sorted(members, key=lambda info: -info.header_offset):
                if info.header_offset + 30 + info.compress_size > end:
                    raise ValueError(f"{path}: the archive is damaged: {shorten(info.filename)} overlaps {following}")
                end, following = info.header_offset, shorten(info.filename)
            for info in members:
                if not info.flag_bits & 1 and info.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    archive.open(info).close()  # compares its two names, also of what is no array of ours
            arrays = [info for info in members if info.filename.endswith(".npy")]
            names = [info.filename.removesuffix(".npy") for info in arrays]
            infos = dict(zip(names, arrays, strict=True))

            def array_of(name: str) -> StoredArray:
                return _read_member(file, handle, archive, infos[name])

            return _open_arrays(str(path), names, array_of, options, _read_facts(names, array_of))


def _count_members(handle: IO[bytes], file: DataFile) -> int:
    """How many members the archive says it has; raises if its directory is too large to be read."""
    span = min(file.stamp.size, 0xFFFF + 22 + 20)
    handle.seek(-span, 2)
    tail = handle.read(span)
    end = tail.rfind(b"PK\x05\x06")
    if end < 0 or len(tail) - end < 22:
        raise ValueError(f"{file.path}: not an .npz archive, or one that is cut off")
    count, size = struct.unpack_from("<HL", tail, end + 10)
    if end >= 20 and tail[end - 20 :].startswith(b"PK\x06\x07"):  # a record of large archives goes before
        handle.seek(min(struct.unpack_from("<Q", tail, end - 12)[0], file.stamp.size))
        record = handle.read(56)
        if len(record) == 56 and record.startswith(b"PK\x06\x06"):
            count, size = struct.unpack_from("<QQ", record, 32)
    if count > MOST_ARRAYS or size > MOST_DIRECTORY:
        raise ValueError(f"{file.path}: an archive may hold at most {MOST_ARRAYS:,} arrays, got {count:,}")
    return int(count)


def _read_member(file: DataFile, handle: IO[bytes], archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> StoredArray:
    """The array of a member, of which the header is read."""
    title = f"{file.path}: {shorten(info.filename.removesuffix('.npy'))}"
    if info.flag_bits & 1:
        raise ValueError(f"{title} is encrypted")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{title} must be stored or deflated, got zip method {info.compress_type}")
    check_expansion(title, info.file_size, info.compress_size)
    with archive.open(info) as member:
        header = parse_header(member, info.file_size)
    start = None
    if info.compress_type == zipfile.ZIP_STORED:
        handle.seek(info.header_offset + 26)
        start = info.header_offset + 30 + sum(struct.unpack("<2H", handle.read(4))) + header.size
    return StoredArray(file, header.dtype, header.shape, start, header.fortran, info.filename)


def open_npy(path: Path, options: OpenOptions) -> ArrayReader:
    """Open the file of the data, and the files that go with it."""
    mapped = {str(options.columns[name]): name for name in DATA if name in options.columns}
    data_of = mapped or {name: name for name in DATA}
    ending = array_name(path, data_of)
    if ending is None:
        raise ValueError(f"{path}: the name of a .npy file must say what it holds: end it in {' or '.join(data_of)}")
    if not path.exists():
        raise ValueError(f"{path}: no such file")
    start = path.stem.removesuffix(ending)
    names = _list_set(path, start, options.listings)
    sums = _read_checksums(path, start) if CHECKSUMS in names else {}
    absent = next((name for name in sums if name not in names), None)
    if absent is not None:
        raise ValueError(f"{path}: {shorten(start + absent)}.npy is missing, which was written with it")

    def array_of(name: str) -> StoredArray:
        return _read_npy(path.with_name(f"{start}{name}.npy"), sums.get(name))

    names = [name for name in names if name != CHECKSUMS]
    return _open_arrays(str(path), names, array_of, options, _read_facts(names, array_of), data=data_of[ending])


def _list_set(path: Path, start: str, listings: dict[str, list[str]]) -> list[str]:
    """The ends of the names of all ``.npy`` files that start alike; a folder of many shards is listed once."""
    folder = str(path.parent)
    if folder not in listings:
        listings[folder] = sorted(entry for entry in os.listdir(folder) if entry.endswith(".npy"))
    entries, ends = listings[folder], []
    for entry in entries[bisect.bisect_left(entries, start) :]:
        if not entry.startswith(start):
            break
        ends.append(entry[len(start) : -len(".npy")])
    return ends


def _read_npy(path: Path, crc: int | None) -> StoredArray:
    with file_errors(str(path)), open_first(path) as (file, handle):
        header = parse_header(handle, file.stamp.size)
        return StoredArray(file, header.dtype, header.shape, header.size, header.fortran, crc=crc, mismatch=MISMATCH)


def _read_checksums(path: Path, start: str) -> dict[str, int]:
    """The checksum of every file of the set, by what its name ends in."""
    sums = _read_npy(path.with_name(f"{start}{CHECKSUMS}.npy"), None)
    if len(sums.shape) != 1 or sums.dtype.kind != "U" or not 0 < sums.shape[0] <= MOST_FILES:
        raise ValueError(f"{sums.path}: expected the checksums of a set of files, got {sums.dtype} {list(sums.shape)}")
    (lines,) = sums.blocks(sums.shape[0])
    check_characters(sums.path, lines)
    pairs = [line.partition(" ") for line in lines.tolist()]
    if not all(name and re.fullmatch("[0-9a-f]{8}", crc) for crc, _, name in pairs):
        raise ValueError(f"{sums.path}: expected lines of a checksum and a name, got something else")
    return {name: int(crc, 16) for crc, _, name in pairs}


def open_safetensors(path: Path, options: OpenOptions) -> ArrayReader:
    """Open a file whose header the format's library accepts, and whose own checksums are those of its parts."""
    from safetensors import SafetensorError, safe_open  # here, because few files are of this format

    with open_first(path) as (file, handle):
        length = int.from_bytes(handle.read(8), "little")
        if length > MOST_HEADER and length <= file.stamp.size:
            expected = f"at most {MOST_HEADER:,} bytes"
            raise ValueError(f"{path}: the header of a safetensors file must be {expected}, got {length:,}")
        try:
            with safe_open(file.native_path(handle), "numpy") as tensors:
                metadata, count = tensors.metadata() or {}, len(tensors.keys())
        except SafetensorError as error:
            raise ValueError(f"{path}: not a whole safetensors file: {error}") from None
        if count > MOST_ARRAYS:
            raise ValueError(f"{path}: a safetensors file may hold at most {MOST_ARRAYS:,} arrays, got {count:,}")
        header = handle.read(length)
        _check_header(header, metadata, file)
        ours = parse_json(metadata.get(_OURS, "{}"), f"what was written as {_OURS!r}")
        sums = parse_json(metadata.get(_SUMS, "{}"), f"what was written as {_SUMS!r}")
        levels: Any = ours.get("levels", {}) if isinstance(ours, dict) else None
        if not _are_levels(levels) or not _are_sums(sums):
            raise ValueError(f"{path}: its metadata 'calibrant' is not what was written there")
        entries = parse_json(header, "the header of a safetensors file")
        entries.pop("__metadata__", None)

        def array_of(name: str) -> StoredArray:
            crc = int(sums[name], 16) if name in sums else None
            return _read_tensor(file, name, entries[name], 8 + length, levels.get(name), crc)

        facts = {name: ours[name] for name in FILE_FACTS if ours.get(name) is not None}
        return _open_arrays(str(path), list(entries), array_of, options, facts)


def _check_header(header: bytes, metadata: dict[str, str], file: DataFile) -> None:
    """Compare the header with its checksum, if it has one."""
    if _OWN_SUM not in metadata:
        return
    match = _OWN.search(header)
    if match is None:
        actual = f"the checksum of its header is {shorten(metadata[_OWN_SUM])!r}"
        raise ValueError(f"{file.path}: the file is damaged: {actual}")
    blank = header[: match.start(2)] + _ZEROS.encode() + header[match.end(2) :]
    check_crc(zlib.crc32(blank), int(match[2], 16), file.path)


def _are_levels(levels: Any) -> bool:
    return isinstance(levels, dict) and all(
        isinstance(names, list) and all(isinstance(name, str) for name in names) for names in levels.values()
    )


def _are_sums(sums: Any) -> bool:
    return isinstance(sums, dict) and all(
        isinstance(crc, str) and re.fullmatch("[0-9a-f]{8}", crc) for crc in sums.values()
    )


def _read_tensor(
    file: DataFile, name: str, entry: dict[str, Any], data: int, levels: list[str] | None, crc: int | None
) -> StoredArray:
    kind, shape, start = entry["dtype"], tuple(entry["shape"]), data + entry["data_offsets"][0]
    if kind not in TYPES:
        expected = "numbers that NumPy has, or bfloat16"
        raise ValueError(f"{file.path}: {shorten(name)} must be {expected}, got {shorten(kind)}")
    stored = StoredArray(file, np.dtype(TYPES[kind]), shape, start, crc=crc, summed=start)
    if kind == "BF16":
        return replace(stored, dtype=np.dtype(np.float32), stored=stored.dtype)
    if levels is None:
        return stored
    check_texts(f"{file.path}: {shorten(name)}", levels)
    check_width(f"{file.path}: text", len(levels), max(map(len, levels), default=1))
    texts = np.array(levels, dtype=np.str_)
    return replace(stored, dtype=texts.dtype, stored=stored.dtype, levels=texts)


def _open_arrays(
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


def _read_facts(names: Sequence[str], array_of: Callable[[str], StoredArray]) -> dict[str, Any]:
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


# ---- writing --------------------------------------------------------------------------------------------------------
def as_bytes(array: Array) -> memoryview:
    """The bytes of an array in C order."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _column_blocks(store: Store, name: str) -> tuple[np.dtype[Any], Iterator[Array]]:
    """A column to write: its type, and its rows block by block."""
    dtype = first_dtypes(store, [name])[name]
    if dtype.kind == "U":  # its width is known only at the end
        column = store.column(name)
        return column.dtype, iter([column])
    blocks = (block[name] for block in store.blocks(store.schema.rows(BATCH), [name]))
    return dtype, (block.transpose(0, 2, 1) for block in blocks) if store.schema.is_turned(name) else blocks


def _write_column(file: Any, store: Store, name: str) -> None:
    """Write a column in the ``.npy`` format, block by block."""
    dtype, blocks = _column_blocks(store, name)
    shape = (len(store), *store.schema.stored_shape_of(name))
    fields = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, fields)
    for block in blocks:
        file.write(as_bytes(block))


def save_npz(store: Store, path: Path) -> None:
    """Write an archive of stored arrays, one after the other, each of which can be mapped."""
    with written_aside(path) as aside, zipfile.ZipFile(aside, "w") as archive:
        for name in store.names:
            info = zipfile.ZipInfo(f"{name}.npy")
            assert archive.fp is not None
            # Local header, name, zip64 field and head of the padding: the array starts at a multiple of 64 bytes.
            padding = -(archive.fp.tell() + 30 + len(info.filename.encode()) + 20 + 4) % 64
            info.extra = struct.pack("<HH", 0xD935, padding) + bytes(padding)
            with archive.open(info, "w", force_zip64=True) as file:
                _write_column(file, store, name)
        for name, value in facts_of(store.schema).items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w") as file:
                np.lib.format.write_array(file, np.array(value))


def save_npy(store: Store, path: Path) -> None:
    """Write one file per column, all aside; then rename them, the one named by ``path`` last."""
    holds, facts = store.schema.holds, facts_of(store.schema)
    if array_name(path, (holds,)) is None:
        raise ValueError(f"{path}: predictions that hold {holds} are written as NAME_{holds}.npy, got {path.name}")
    start = path.stem.removesuffix(holds)
    slash = next((name for name in store.names if "/" in name or os.sep in name), None)
    if slash is not None:
        raise ValueError(f"{path}: {shorten(slash)!r} cannot be part of the name of a file")
    names = [*sorted(store.names, key=lambda name: name != holds), *facts]
    if len(names) > MOST_FILES:
        raise ValueError(f"{path}: a set of .npy files has at most {MOST_FILES}, got {len(names)}: write .npz")
    _refuse_leftovers(path, start, {*names, CHECKSUMS})
    lines = []
    with contextlib.ExitStack() as asides:  # closed in the opposite order: the data last
        for name in names:
            aside = asides.enter_context(written_aside(path.with_name(f"{start}{name}.npy")))
            with aside.open("wb") as handle:
                file: Any = SummedFile(handle)
                if name in facts:
                    np.lib.format.write_array(file, np.array(facts[name]))
                else:
                    _write_column(file, store, name)
            lines.append(f"{file.crc:08x} {name}")
            sync(aside)
        aside = asides.enter_context(written_aside(path.with_name(f"{start}{CHECKSUMS}.npy")))
        with aside.open("wb") as handle:
            np.save(handle, np.array(lines))
        with _lock(path.parent):
            asides.close()


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Keep other processes from renaming a set of files here meanwhile, if the file system has locks."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        until = time.monotonic() + LOCK_SECONDS
        while time.monotonic() < until:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.01)
            except OSError:
                break
        yield
    finally:
        os.close(handle)


def _refuse_leftovers(path: Path, start: str, names: set[str]) -> None:
    """A file of an earlier set would be read as part of this one."""
    reserved = {alias for aliases in SINGLE.values() for alias in aliases} | set(FILE_FACTS)
    for entry in sorted(os.listdir(path.parent)) if path.parent.is_dir() else ():
        name = entry.removesuffix(".npy").removeprefix(start)
        if entry == f"{start}{name}.npy" and name not in names and (name in reserved or name.startswith(GROUP)):
            raise ValueError(f"{path}: {entry} is there already and would be read as part of it: remove it first")


def save_safetensors(store: Store, path: Path) -> None:
    """Write the header, one column after the other, and then the header once more with the checksums."""
    columns: dict[str, tuple[np.dtype[Any], Iterator[Array]]] = {}
    levels: dict[str, list[str]] = {}
    for name in store.names:
        dtype, blocks = _column_blocks(store, name)
        if dtype.kind == "U":  # as codes
            texts, codes = np.unique(store.column(name), return_inverse=True)
            dtype, blocks, levels[name] = np.dtype(np.int64), iter([codes.astype(np.int64)]), texts.tolist()
        columns[name] = dtype, blocks
    # Wide types first, as the format's own writer has it: every array then starts at a multiple of its type's size.
    names = sorted(columns, key=lambda name: -columns[name][0].itemsize)
    entries: dict[str, Any] = {}
    end = 0
    for name in names:
        dtype, shape = columns[name][0], (len(store), *store.schema.stored_shape_of(name))
        size = math.prod(shape) * dtype.itemsize
        kind = next(kind for kind, code in TYPES.items() if np.dtype(code) == dtype)
        entries[name] = {"dtype": kind, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    ours = json.dumps(facts_of(store.schema) | ({"levels": levels} if levels else {}))
    sums = dict.fromkeys(names, _ZEROS)
    header = _make_header(ours, sums, entries)
    if len(header) > MOST_HEADER or len(names) > MOST_ARRAYS:
        raise ValueError(f"{path}: too much text for the header of a safetensors file: write .npz or .parquet")
    with written_aside(path) as aside, aside.open("wb") as handle:
        handle.write(struct.pack("<Q", len(header)) + header)
        for name in names:
            file = SummedFile(handle)
            for block in columns[name][1]:
                file.write(as_bytes(block))
            sums[name] = f"{file.crc:08x}"
        handle.seek(8)
        handle.write(_make_header(ours, sums, entries))


def _make_header(ours: str, sums: dict[str, str], entries: dict[str, Any]) -> bytes:
    """The header, whose length does not depend on the checksums."""
    metadata = {_OURS: ours, _SUMS: json.dumps(sums), _OWN_SUM: _ZEROS}
    header = json.dumps({"__metadata__": metadata} | entries).encode()
    header += b" " * (-len(header) % 8)
    match = _OWN.search(header)
    assert match is not None
    return header[: match.start(2)] + f"{zlib.crc32(header):08x}".encode() + header[match.end(2) :]
