"""``.npz``: a zip archive of ``.npy`` arrays, stored or compressed; nothing is unpickled.

Stored arrays are read where they lie in the archive, compressed ones as a stream, and both against the checksums of the
archive. What the archive declares is checked before anything is allocated: its directory against the members' own
headers, sizes against the arrays' headers and against what deflate can do.
"""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np

from calibrant.base.checks import shorten
from calibrant.base.files import written_aside
from calibrant.predictions.columns import OpenOptions, facts_of
from calibrant.predictions.files import DEFLATE_RATIO, DataFile, check_expansion, open_first
from calibrant.predictions.formats.arrays import (
    MOST_ARRAYS,
    ArrayReader,
    InflatingStream,
    StoredArray,
    open_arrays,
    parse_header,
    read_facts,
    write_column,
)
from calibrant.predictions.stores import Store

MOST_DIRECTORY = 1 << 23  # bytes
_END = struct.Struct("<4s4H2LH")
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR = struct.Struct("<4sLQL")
_LOCAL = struct.Struct("<4s2B4HL2L2H")
_LATER = 1 << 3  # flag: sizes and checksum come after the data
_FLAGS = 1 | _LATER | 1 << 11  # those that matter: encrypted, later, names in UTF-8


def open_file(path: Path, options: OpenOptions) -> ArrayReader:
    """Open an archive."""
    with open_first(path) as (file, handle):
        if handle.read(2) != b"PK":
            raise ValueError(f"{path}: not an .npz archive")
        count = _count_members(handle, file)
        with zipfile.ZipFile(handle) as archive:
            members = archive.infolist()
        if len(members) != count:
            raise ValueError(f"{path}: the archive says that it holds {count} members, its directory {len(members)}")
        starts = _find_starts(handle, file, members)
        arrays = [info for info in members if info.filename.endswith(".npy")]
        names = [info.filename.removesuffix(".npy") for info in arrays]
        infos = dict(zip(names, arrays, strict=True))

        def array_of(name: str) -> StoredArray:
            return _stored_array(file, handle, infos[name], starts[infos[name].filename])

        return open_arrays(str(path), names, array_of, options, read_facts(names, array_of))


def _count_members(handle: IO[bytes], file: DataFile) -> int:
    """How many members the archive says it has; raises if its directory is too large to be read."""
    span = min(file.stamp.size, 0xFFFF + _END.size + _LOCATOR.size)
    handle.seek(-span, 2)
    tail = handle.read(span)
    end = tail.rfind(b"PK\x05\x06")
    if end < 0 or len(tail) - end < _END.size:
        raise ValueError(f"{file.path}: the archive has no end: it is cut off, or no .npz archive")
    *_, count, size, _, _ = _END.unpack_from(tail, end)
    if end >= _LOCATOR.size and (count == 0xFFFF or size == 0xFFFFFFFF):
        signature, _, offset, _ = _LOCATOR.unpack_from(tail, end - _LOCATOR.size)
        if signature == b"PK\x06\x07":
            handle.seek(min(offset, file.stamp.size))
            record = handle.read(_END64.size)
            if len(record) == _END64.size and record.startswith(b"PK\x06\x06"):
                *_, count, size, _ = _END64.unpack(record)
    if count > MOST_ARRAYS or size > MOST_DIRECTORY:
        raise ValueError(f"{file.path}: an archive may hold at most {MOST_ARRAYS:,} arrays, got {count:,}")
    return int(count)


def _find_starts(handle: IO[bytes], file: DataFile, members: list[zipfile.ZipInfo]) -> dict[str, int]:
    """Where the bytes of each member start; its own header must say what the directory says, and none may overlap."""
    starts, end, previous = {}, 0, ""
    for info in sorted(members, key=lambda info: info.header_offset):
        name = shorten(info.filename)
        if info.header_offset < end:
            raise ValueError(f"{file.path}: the archive is damaged: {name} overlaps {previous}")
        handle.seek(info.header_offset)
        head = handle.read(_LOCAL.size)
        if len(head) < _LOCAL.size or head[:4] != b"PK\x03\x04":
            raise ValueError(f"{file.path}: {name} is not where the archive says")
        _, _, _, flags, method, _, _, crc, compressed, size, length, extra = _LOCAL.unpack(head)
        title = handle.read(length).decode("utf-8" if flags & 0x800 else "cp437", "replace")
        expected = (info.orig_filename, info.flag_bits & _FLAGS, info.compress_type)
        sizes = [(crc, info.CRC), (compressed, info.compress_size), (size, info.file_size)]
        differ = not flags & _LATER and any(local not in (central, 0xFFFFFFFF) for local, central in sizes)
        if (title, flags & _FLAGS, method) != expected or differ:
            raise ValueError(f"{file.path}: the archive is damaged: {name} and the directory disagree")
        starts[info.filename] = info.header_offset + _LOCAL.size + length + extra
        end, previous = starts[info.filename] + info.compress_size, name
    if end > file.stamp.size:
        raise ValueError(f"{file.path}: {previous} ends after the file does")
    return starts


def _stored_array(file: DataFile, handle: IO[bytes], info: zipfile.ZipInfo, start: int) -> StoredArray:
    name = f"{file.path}: {shorten(info.filename.removesuffix('.npy'))}"
    if info.flag_bits & 1:
        raise ValueError(f"{name} is encrypted")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{name} must be stored or deflated, got zip method {info.compress_type}")
    is_stored = info.compress_type == zipfile.ZIP_STORED
    limit = info.compress_size if is_stored else DEFLATE_RATIO * info.compress_size + 64
    if info.file_size > limit or info.compress_size > file.stamp.size or (is_stored and info.file_size != limit):
        raise ValueError(f"{name} declares {info.file_size} bytes, more than {info.compress_size} can hold")
    check_expansion(name, info.file_size, info.compress_size)
    handle.seek(start)
    stream: Any = handle if is_stored else InflatingStream(handle, info.compress_size)
    header = parse_header(stream, info.file_size)
    deflated = None if is_stored else info.compress_size
    return StoredArray(file, start, header.size, header.dtype, header.shape, header.fortran, info.CRC, deflated)


def save(store: Store, path: Path) -> None:
    """Write an archive of stored arrays, one after the other."""
    with written_aside(path) as aside, zipfile.ZipFile(aside, "w") as archive:
        for name in store.names:
            with archive.open(_align(archive, f"{name}.npy"), "w", force_zip64=True) as file:
                write_column(file, store, name)
        for name, value in facts_of(store.schema).items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w") as file:
                np.lib.format.write_array(file, np.array(value))


def _align(archive: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
    """A member whose array starts at a multiple of 64 bytes, so that it can be mapped; an extra field pads it."""
    info = zipfile.ZipInfo(name)
    assert archive.fp is not None
    start = archive.fp.tell() + 30 + len(name.encode()) + 20 + 4  # local header, name, zip64 field, head of the padding
    padding = -start % 64
    info.extra = struct.pack("<HH", 0xD935, padding) + bytes(padding)
    return info
