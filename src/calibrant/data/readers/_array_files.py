"""Named arrays from an ``.npz`` or Parquet file: nothing is unpickled, and sizes are checked before anything is read.

A file is opened once, so that all arrays are from the same file even if it is replaced meanwhile. Checksums of an
archive, and of the pages of a Parquet file where present, are verified.
"""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from calibrant.base.files import ArrayHeader, read_header, read_values
from calibrant.base.parquet import column_chunks
from calibrant.data.files import DEFLATE_RATIO, UnreadableError, check_growth, open_file, short_repr

#: Largest array that is read, in bytes.
MAX_BYTES = 2**33
#: Columns of a table, and bytes of an archive's list of arrays.
MAX_COLUMNS, MAX_DIRECTORY = 10_000, 2**18
_UNICODE = 0x10FFFF

_BROKEN = (
    *(OSError, ValueError, LookupError, EOFError, TypeError, OverflowError, NotImplementedError, RuntimeError),
    *(MemoryError, zipfile.BadZipFile, zlib.error, struct.error, pa.ArrowException),
)


@contextmanager
def open_arrays(path: Path) -> Iterator[Npz | Parquet]:
    """The arrays of an ``.npz`` or Parquet file; any other or broken one is a ValueError.

    Its ``names`` say for each array whether it holds numbers, and can be a feature.
    """
    if path.suffix not in (".npz", ".parquet", ".pq"):
        raise ValueError(f"{path}: arrays are read from .npz and .parquet files")
    with open_file(path) as file:
        yield Npz(path, file) if path.suffix == ".npz" else Parquet(path, file)


class Npz:
    """A zip archive of ``.npy`` arrays."""

    def __init__(self, path: Path, file: IO[bytes]):
        self.path = path
        self.names: dict[str, bool] = {}
        with wrap_errors(path):
            stated = _stated_members(path, file)
            self._archive = zipfile.ZipFile(file)
            if len(self._archive.infolist()) != stated:  # a damaged length hides the members after it
                raise UnreadableError(f"{path}: the archive has a different number of members than it says")
            for info in self._archive.infolist():
                with self._archive.open(info) as member:  # compares its two names, also of what is no array
                    name = info.filename.removesuffix(".npy")
                    if name in self.names:
                        raise UnreadableError(f"{path}: the archive has {info.filename!r:.80} twice")
                    if info.filename.endswith(".npy"):
                        self.names[name] = read_header(member).kind in "biuf"

    def read(self, name: str) -> NDArray[Any]:
        """One array; its header is compared with the size of the member, and that with what deflate can do."""
        with wrap_errors(self.path):
            info = self._archive.getinfo(f"{name}.npy")
            stored = info.compress_type == zipfile.ZIP_STORED
            limit = min(info.file_size, info.compress_size * (1 if stored else DEFLATE_RATIO) + 64)
            subject = f"{self.path}: {name!r:.80}"
            with self._archive.open(info) as member:
                header = read_header(member)
                size = _check_size(header, limit, subject)
                if not stored:
                    check_growth(subject, info.compress_size, size)
                array = read_values(member, header)
                if member.read(1):  # at its end the checksum is compared
                    raise UnreadableError(f"{subject} goes on after the array that its header announces")
            return _check_text(array, subject)


def read_npy(path: Path) -> NDArray[Any]:
    """The array in an ``.npy`` file."""
    with open_file(path) as file, wrap_errors(path):
        header = read_header(file)
        _check_size(header, os.fstat(file.fileno()).st_size - header.size, f"{path}: the array")
        array = read_values(file, header)
        if file.read(1):
            raise UnreadableError(f"{path}: the file goes on after the array that its header announces")
        return _check_text(array, str(path))


def _stated_members(path: Path, file: IO[bytes]) -> int:
    """The number of members that an archive states; one with too long a list is refused."""
    size = os.fstat(file.fileno()).st_size
    file.seek(max(0, size - 2**16 - 22))
    tail = file.read()
    file.seek(0)
    end = tail.rfind(b"PK\5\6")
    if end < 0 or len(tail) < end + 22:
        raise zipfile.BadZipFile("File is not a zip file")
    number, length = struct.unpack_from("<HI", tail, end + 10)
    if length > MAX_DIRECTORY:
        raise UnreadableError(f"{path}: the archive has more members than a data set has arrays")
    return int(number)


def _check_size(header: ArrayHeader, limit: int, subject: str) -> int:
    """The size of an array in bytes; an error if it is 0, or more than the file has."""
    if header.kind == "V":
        raise UnreadableError(f"{subject} must be numbers or text, as nothing is unpickled, got {header.code}")
    size = header.data_size
    if not size:
        raise UnreadableError(f"{subject} announces the shape {list(header.shape)!r:.60}: it has no entries")
    if size > min(MAX_BYTES, limit):
        raise UnreadableError(f"{subject} announces {short_repr(size)} bytes, more than it has or may have")
    return size


def _check_text(array: NDArray[Any], subject: str) -> NDArray[Any]:
    """The array, if all its texts have valid characters, which NumPy does not check and Python requires."""
    if array.dtype.kind == "U":
        number = np.dtype(np.uint32).newbyteorder(array.dtype.byteorder)
        codes = np.ascontiguousarray(np.atleast_1d(array)).view(number)
        if codes.max(initial=0) > _UNICODE:
            raise UnreadableError(f"{subject} holds text with code points that are not characters")
    return array


class Parquet:
    """Columns of a Parquet file; a column of lists of equal length is an array [N, D], missing numbers are NaN."""

    def __init__(self, path: Path, file: IO[bytes]):
        import pyarrow.parquet as pq

        self.path = path
        with wrap_errors(path):
            self._file = pq.ParquetFile(file, page_checksum_verification=True)
            schema = self._file.schema_arrow

        if len(schema) > MAX_COLUMNS:
            raise UnreadableError(f"{path}: the table has {len(schema)} columns; at most {MAX_COLUMNS} are read")
        repeated, times = Counter(schema.names).most_common(1)[0] if schema.names else ("", 1)
        if times > 1:
            raise UnreadableError(f"{path}: the table has the column {repeated!r:.80} more than once")
        self.lists = {f.name for f in schema if is_list(f.type)}
        self.names = {f.name: _is_numeric(f.type.value_type if f.name in self.lists else f.type) for f in schema}
        with wrap_errors(path):
            self._sizes = self._measure(file)

    def read(self, name: str) -> NDArray[Any]:
        """One column."""
        subject = f"{self.path}: the column {name!r:.80}"
        values, packed = self._sizes[name]
        if 8 * values > MAX_BYTES:
            raise UnreadableError(f"{subject} has more values than {MAX_BYTES} bytes can hold")
        check_growth(subject, packed, 8 * values)
        with wrap_errors(self.path):
            column = self._file.read(columns=[name]).column(name).combine_chunks()
            if name not in self.lists:
                return np.asarray(column.to_numpy(zero_copy_only=False))
            flat = column.flatten().to_numpy(zero_copy_only=False)
            width = len(flat) // max(len(column), 1)
            # Lists of another length, or missing ones, would shift all that follow.
            if column.null_count or (column.value_lengths().to_numpy(zero_copy_only=False) != width).any():
                raise UnreadableError(f"{self.path}: the lists in {name!r} differ in length, or some are missing")
            return np.asarray(flat).reshape(len(column), width)

    def _measure(self, file: IO[bytes]) -> dict[str, tuple[int, int]]:
        """How many values each column has, and its bytes on disk, as the footer says."""
        sizes = dict.fromkeys(self.names, (0, 0))
        for chunk in column_chunks(file):
            name = chunk.path[0] if chunk.path else ""  # of a column of lists more follows
            if name not in sizes:
                raise UnreadableError(f"{self.path}: the file is damaged: two names of one column differ")
            values, packed = sizes[name]
            sizes[name] = values + max(chunk.values, chunk.unpacked // 8), packed + chunk.packed
        return sizes


def is_list(kind: pa.DataType) -> bool:
    """Whether a column holds lists of any kind."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_numeric(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


@contextmanager
def wrap_errors(path: Path) -> Iterator[None]:
    """Turn the errors of libraries about a broken file into one that names the file."""
    try:
        yield
    except (UnreadableError, FileNotFoundError, PermissionError):
        raise
    except _BROKEN as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UnreadableError(f"{path}: the file cannot be read ({reason[:300]})") from error
