"""``.npz``: a zip archive of ``.npy`` arrays, stored or compressed; nothing is unpickled.

Stored arrays are read where they lie in the archive, compressed ones as a stream. Sizes that the archive declares are
checked against the arrays' headers and against what deflate can do, before anything is allocated.
"""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

from calibrant._files import written_aside
from calibrant.predictions.columns import Request
from calibrant.predictions.members import ArraySource, Deflated, Stored, as_bytes, facts_of, open_members, stated
from calibrant.predictions.npy import check_size, parse_header, write_column, write_header
from calibrant.predictions.store import Store

RATIO = 1032  # deflate cannot compress better than this


def open_file(path: Path, asked: Request) -> ArraySource:
    """Open an archive."""
    with path.open("rb") as file:
        start = file.read(2)
    if start != b"PK":
        raise ValueError(f"{path}: not an .npz archive" if start else f"{path}: the file is empty")
    with zipfile.ZipFile(path) as archive:
        held = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]

        def member(name: str) -> Stored | Deflated:
            return _member(archive, path, name)

        return open_members(str(path), held, member, asked, stated(held, member))


def _member(archive: zipfile.ZipFile, path: Path, name: str) -> Stored | Deflated:
    info = archive.getinfo(f"{name}.npy")
    if info.flag_bits & 1:
        raise ValueError(f"{path}: {name} is encrypted")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{path}: {name} must be stored or deflated, got zip method {info.compress_type}")
    stored = info.compress_type == zipfile.ZIP_STORED
    limit = info.compress_size if stored else RATIO * info.compress_size + 64
    if info.file_size > limit or info.compress_size > path.stat().st_size:
        raise ValueError(f"{path}: {name} declares {info.file_size} bytes, more than {info.compress_size} can hold")
    with archive.open(info) as stream:
        dtype, shape, fortran = parse_header(stream)
        skip = stream.tell()
    check_size(dtype, shape, info.file_size - skip)
    if not stored:
        return Deflated(str(path), info.filename, skip, dtype, shape, fortran)
    return Stored(str(path), _offset(path, info) + skip, dtype, shape, fortran)


def _offset(path: Path, info: zipfile.ZipInfo) -> int:
    """Where the bytes of a stored member start: after its local header, whose length only it knows."""
    with path.open("rb") as file:
        file.seek(info.header_offset)
        local = file.read(30)
    if len(local) < 30 or local[:4] != b"PK\x03\x04":
        raise ValueError(f"{path}: {info.filename} is not where the archive says")
    name, extra = struct.unpack("<HH", local[26:30])
    start: int = info.header_offset + 30 + name + extra
    if start + info.compress_size > path.stat().st_size:
        raise ValueError(f"{path}: {info.filename} ends after the file does")
    return start


def _aligned(archive: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
    """A member whose array starts at a multiple of 64 bytes, so that it can be mapped; an extra field pads it."""
    info = zipfile.ZipInfo(name)
    assert archive.fp is not None
    start = archive.fp.tell() + 30 + len(name.encode()) + 20 + 4  # local header, name, zip64 field, head of the padding
    padding = -start % 64
    info.extra = struct.pack("<HH", 0xD935, padding) + bytes(padding)
    return info


def save(store: Store, path: Path) -> None:
    """Write an archive of stored arrays, one after the other."""
    with written_aside(path) as aside, zipfile.ZipFile(aside, "w") as archive:
        for name in store.names:
            with archive.open(_aligned(archive, f"{name}.npy"), "w", force_zip64=True) as file:
                write_column(file, store, name)
        for name, value in facts_of(store.about).items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w") as file:
                write_header(file, value.dtype, value.shape)
                file.write(as_bytes(value))
