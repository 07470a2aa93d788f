"""Arrays by name from an ``.npz`` or Parquet file: nothing is unpickled, sizes are checked before anything is read."""

from __future__ import annotations

import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from calibrant.data.sources import UnreadableError

#: Largest array that is read, in bytes.
MAX_BYTES = 2**33
_DEFLATE = 1032  # how many bytes one packed byte can become

# NumPy parses headers as Python text, hence the errors of its tokenizer and compiler.
_BROKEN = (
    *(OSError, ValueError, LookupError, EOFError, TypeError, OverflowError, NotImplementedError, RuntimeError),
    *(SyntaxError, MemoryError, tokenize.TokenError, zipfile.BadZipFile, zlib.error, struct.error, pa.ArrowException),
)


class ArrayFile(Protocol):
    """A file of named arrays; ``names`` says of each whether it can be a feature: whether it holds numbers."""

    names: dict[str, bool]

    def read(self, name: str) -> NDArray[Any]:
        """One array, its first dimension the samples."""


def open_arrays(path: Path) -> ArrayFile:
    """The arrays of a file, by its suffix.

    Raises:
        ValueError: It is neither npz nor Parquet, or broken.
    """
    if path.suffix == ".npz":
        return Npz(path)
    if path.suffix in (".parquet", ".pq"):
        return Parquet(path)
    raise ValueError(f"{path}: arrays are read from .npz and .parquet files.")


class Npz:
    """A zip archive of ``.npy`` arrays."""

    def __init__(self, path: Path):
        self.path = path
        self.names: dict[str, bool] = {}
        with naming(path), zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                if info.filename.endswith(".npy"):
                    with archive.open(info) as member:
                        dtype = _header(member)[0]
                    self.names[info.filename.removesuffix(".npy")] = dtype.kind in "biuf"

    def read(self, name: str) -> NDArray[Any]:
        """One array; its header is compared with the size of the member, and that with what deflate can do."""
        with naming(self.path), zipfile.ZipFile(self.path) as archive:
            info = archive.getinfo(f"{name}.npy")
            packed = info.compress_size * (1 if info.compress_type == zipfile.ZIP_STORED else _DEFLATE)
            with archive.open(info) as member:
                dtype, shape = _header(member)
            size = math.prod(shape) * dtype.itemsize
            if dtype.hasobject:
                raise UnreadableError(f"{self.path}: {name!r} holds Python objects, which are not unpickled.")
            if size > min(MAX_BYTES, info.file_size, packed + 64):
                raise UnreadableError(f"{self.path}: {name!r} announces {size} bytes, more than it has or may have.")
            with archive.open(info) as member:
                return np.asarray(np.lib.format.read_array(member, allow_pickle=False))


def _header(member: IO[bytes]) -> tuple[np.dtype[Any], tuple[int, ...]]:
    version = np.lib.format.read_magic(member)
    if version == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(member)
    elif version == (2, 0):
        shape, _, dtype = np.lib.format.read_array_header_2_0(member)
    else:
        raise ValueError(f"version {version} of the npy format")
    return dtype, shape


class Parquet:
    """Columns of a Parquet file; a column of lists of equal length is an array [N, D], missing numbers are NaN."""

    def __init__(self, path: Path):
        import pyarrow.parquet as pq

        self.path = path
        with naming(path), pq.ParquetFile(path) as file:
            self.metadata, schema = file.metadata, file.schema_arrow

        def numeric(kind: Any) -> bool:
            return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))

        self.lists = {f.name for f in schema if pa.types.is_list(f.type) or pa.types.is_large_list(f.type)} | {
            f.name for f in schema if pa.types.is_fixed_size_list(f.type)
        }
        self.names = {f.name: numeric(f.type.value_type if f.name in self.lists else f.type) for f in schema}

    def read(self, name: str) -> NDArray[Any]:
        """One column."""
        import pyarrow.parquet as pq

        if 8 * self._values(name) > MAX_BYTES:
            raise UnreadableError(f"{self.path}: the column {name!r} has more values than {MAX_BYTES} bytes can hold.")
        with naming(self.path), pq.ParquetFile(self.path) as file:
            column = file.read(columns=[name]).column(name).combine_chunks()
            if name not in self.lists:
                return np.asarray(column.to_numpy(zero_copy_only=False))
            flat = column.flatten().to_numpy(zero_copy_only=False)
            width = len(flat) // max(len(column), 1)
            # Lists of other lengths, or missing ones, would shift all that follow.
            if column.null_count or any(n != width for n in column.value_lengths().to_pylist()):
                raise UnreadableError(f"{self.path}: the lists in {name!r} differ in length, or some are missing.")
            return np.asarray(flat).reshape(len(column), width)

    def _values(self, name: str) -> int:
        """How many values a column has, by the metadata."""
        count = 0
        for group in map(self.metadata.row_group, range(self.metadata.num_row_groups)):
            for column in map(group.column, range(group.num_columns)):
                if column.path_in_schema == name or column.path_in_schema.startswith(f"{name}."):
                    count += max(column.num_values, column.total_uncompressed_size // 8)
        return count


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """What a library says about a broken file, as an error that names the file."""
    try:
        yield
    except (UnreadableError, FileNotFoundError, PermissionError):
        raise
    except _BROKEN as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UnreadableError(f"{path}: the file cannot be read ({reason}).") from error
