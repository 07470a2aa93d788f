"""Parquet: streamed as Arrow record batches, only the columns needed, in bounded memory.

Written: the data as a fixed-size list column, for images flat, with their shape in the file's metadata, and a checksum
in every page. Read: any list column, or one column per class; checksums are compared where there are some.

Files may lie in other storage. URIs are those of Arrow's file systems (s3, gs, abfs, hdfs, ...). They may carry the
options of their file system, ``s3://bucket/x.parquet?region=eu-west-1``; credentials come from the environment, as that
file system takes them.
"""

from __future__ import annotations

import base64
import contextlib
import glob
import json
import math
import re
import zlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from calibrant.base.arrays import Array
from calibrant.base.checks import shorten
from calibrant.base.files import parse_json, written_aside
from calibrant.base.parquet import column_chunks
from calibrant.predictions.columns import FILE_FACTS, ColumnMap, OpenOptions, facts_of, match_columns
from calibrant.predictions.files import (
    RATIO,
    URI_OPTIONS,
    DataFile,
    Remote,
    Stamp,
    check_crc,
    check_expansion,
    check_suffix,
    find_shards,
    open_first,
    suffix_of,
)
from calibrant.predictions.formats.tables import (
    TableReader,
    arrow_types,
    float_type,
    is_list,
    numbers_in_row,
    sample_columns,
    sample_shape,
    storage,
)
from calibrant.predictions.samples import rows_to_peek
from calibrant.predictions.schema import Schema
from calibrant.predictions.stores import BATCH, Store

LEAST_SAMPLE = 1 << 26  # bytes that one sample of any file may become
BUFFER = 1 << 24  # bytes read ahead, over all columns
SMALL = 1 << 26  # bytes of a file
CHECKSUM = b"calibrant_crc32"
_SECRET = re.compile(r"[^/]+://[^/]*:[^/]*@")


@dataclass(frozen=True)
class RemoteFile:
    """A file in other storage, as it was when it was opened first."""

    path: str
    stamp: Stamp

    @contextlib.contextmanager
    def opened(self) -> Iterator[Any]:
        """A handle of Arrow's for random access; an error, at the latest in the end, if the file changes."""
        self.stamp.check(_remote_stamp(self.path), self.path)
        system, path = _file_system(self.path)
        with system.open_input_file(path) as handle:
            yield handle
        self.stamp.check(_remote_stamp(self.path), self.path)


def _remote_stamp(uri: str) -> Stamp:
    """The size of a file in other storage, and when it was last written."""
    system, path = _file_system(uri)
    info = system.get_file_info(path)
    if not info.is_file:
        raise FileNotFoundError(uri)
    return Stamp(info.size or 0, info.mtime_ns or 0)


def _file_system(uri: str) -> tuple[Any, str]:
    """The file system of a URI, and what it calls the file; imported here, as most predictions are local."""
    from pyarrow.fs import FileSystem

    system, path = FileSystem.from_uri(uri)
    return system, path


def expand_uri(uri: str, data: Collection[str]) -> list[Remote]:
    """The files that a URI means, which may be a folder or a pattern; see `files.find_files`."""
    if _SECRET.match(uri):
        raise ValueError("credentials belong in the environment, as reports name the files they were made from")
    options = (URI_OPTIONS.search(uri) or [""])[0]
    plain = uri.removesuffix(options)
    if glob.has_magic(plain):
        parts = plain.split("/")
        start = next(i for i, part in enumerate(parts) if glob.has_magic(part))
        matches = _list_remote("/".join(parts[:start]), options, "/".join(parts[start:]))
        files = find_shards(matches, uri, "the pattern matches", data)
    else:
        system, path = _file_system(uri)
        files = [Remote(uri)]
        if system.get_file_info(path).type.name == "Directory":
            files = find_shards(_list_remote(plain.rstrip("/"), options, "*"), uri, "the folder holds", data)
    check_suffix(files[0])
    if suffix_of(files[0]) != ".parquet":
        raise ValueError(f"{files[0]}: only Parquet is read from remote storage; copy the file to this machine first")
    return files


def _list_remote(folder: str, options: str, pattern: str) -> list[Remote]:
    """The files below a folder that a pattern matches, part by part; ``**`` is any number of folders."""
    from pyarrow.fs import FileSelector

    system, root = _file_system(folder + options)
    selector = FileSelector(root, allow_not_found=True, recursive="/" in pattern)
    paths = [info.path.removeprefix(root).lstrip("/") for info in system.get_file_info(selector) if info.is_file]
    return [Remote(f"{folder}/{path}{options}") for path in paths if _matches(path.split("/"), pattern.split("/"))]


def _matches(parts: list[str], pattern: list[str]) -> bool:
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_matches(parts[i:], pattern[1:]) for i in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], pattern[0]) and _matches(parts[1:], pattern[1:])


class ParquetReader(TableReader):
    """A Parquet file of which only the footer has been read, and one row where a list's length is not in its type."""

    def __init__(self, file: DataFile | RemoteFile, columns: ColumnMap, schema: Schema, count: int, arrow_schema: Any):
        super().__init__(file.path, columns, schema, count, arrow_schema)
        self.file = file

    def _batches(self, columns: list[str], rows: int) -> Iterator[Any]:
        with self.file.opened() as handle, _open_parquet(handle, self.file, len(columns)) as parquet:
            yield from parquet.iter_batches(batch_size=rows, columns=columns)


def _open_parquet(handle: Any, file: DataFile | RemoteFile, columns: int) -> Any:
    """A reader that streams: it holds a buffer per column, not the row group.

    A small file needs no buffers, and is safer without: they grow to whatever size a damaged page claims to have.
    """
    is_local = isinstance(file, DataFile)
    least, most = (1 << 14, 1 << 20) if is_local else (1 << 20, 1 << 23)  # remote storage is asked less often
    return pq.ParquetFile(
        file.native_path(handle) if isinstance(file, DataFile) else handle,
        pre_buffer=False,
        buffer_size=min(most, max(least, BUFFER // columns)) if file.stamp.size > SMALL else 0,
        page_checksum_verification=True,
    )


def open_parquet(path: Path | Remote, options: OpenOptions) -> ParquetReader:
    """Read the footer and find our columns."""
    if isinstance(path, Remote):
        remote = RemoteFile(str(path), _remote_stamp(str(path)))
        if not remote.stamp.size:
            raise ValueError(f"{path}: the file is empty")
        with remote.opened() as remote_handle:
            return _read_footer(remote, remote_handle, options)
    with open_first(path) as (file, handle):
        return _read_footer(file, handle, options)


def _read_footer(file: DataFile | RemoteFile, handle: IO[bytes], options: OpenOptions) -> ParquetReader:
    path = file.path
    with _open_parquet(handle, file, 1) as parquet:
        arrow_schema, count = parquet.schema_arrow, parquet.metadata.num_rows
        _check_footer(parquet, handle, file)
        facts = _read_facts(parquet.metadata.metadata or {}, path)
        stated_shape = facts.pop("shape", None)

        def peek(names: Sequence[str]) -> dict[str, Array]:
            lists = {name for name in names if pa.types.is_nested(storage(arrow_schema.field(name).type))}
            _check_lists(handle, file, lists)
            first = next(parquet.iter_batches(batch_size=1, columns=list(names)), None)
            if first is None:
                return {}
            rows = rows_to_peek(numbers_in_row(first))
            return sample_columns(next(parquet.iter_batches(batch_size=rows, columns=list(names))))

        stated = _with_stated_names(options, facts)
        columns = match_columns(arrow_schema.names, stated, path, table=True, peek=peek)
        columns = columns.with_names(facts, options, path)
        ours = [column for column in columns.columns.values() if isinstance(column, str)]
        _check_lists(
            handle, file, {name for name in ours if pa.types.is_nested(storage(arrow_schema.field(name).type))}
        )
        dtype = float_type(arrow_schema, columns, path)

        def first_rows(column: str) -> Iterator[Any]:
            return parquet.iter_batches(batch_size=1, columns=[column])

        shape = sample_shape(arrow_schema, columns, first_rows, stated_shape)
    columns, schema = columns.with_schema(dtype, (count, *shape), facts, options, path)
    size = schema.numbers * schema.dtype.itemsize
    if size > max(LEAST_SAMPLE, RATIO * file.stamp.size):  # one sample alone is read at once
        limit = f"{RATIO} times as large as the file of {file.stamp.size:,} bytes"
        raise ValueError(f"{path}: a sample must be at most {limit}, got {size:,} bytes")
    return ParquetReader(file, columns, schema, count, arrow_schema)


def _with_stated_names(options: OpenOptions, facts: dict[str, Any]) -> OpenOptions:
    """Names that a file states besides its columns count as if they had been given."""
    if "class_names" not in facts or "class_names" in options.facts:
        return options
    return replace(options, facts=options.facts | {"class_names": facts["class_names"]})


def _check_footer(parquet: Any, handle: IO[bytes], file: DataFile | RemoteFile) -> None:
    """Refuse a footer whose two accounts of the columns disagree: Parquet's own, and Arrow's, where Arrow wrote it."""
    arrow_schema, path = parquet.schema_arrow, file.path
    if not arrow_schema.names:
        raise ValueError(f"{path}: the table has no columns")
    metadata = parquet.metadata.metadata or {}
    if CHECKSUM not in metadata:  # a damaged footer may have lost all of them
        handle.seek(file.stamp.size - 8)
        length = int.from_bytes(handle.read(4), "little")
        handle.seek(max(0, file.stamp.size - 8 - length))
        if CHECKSUM in handle.read(length):
            raise ValueError(f"{path}: the file is damaged: its metadata are not what was written there")
    stored = metadata.get(b"ARROW:schema")
    if stored is None:
        return
    arrow_stored = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(stored)))
    if len(arrow_stored) != len(arrow_schema):  # other programs leave out columns and keep the metadata
        return
    for by_arrow, by_parquet in zip(arrow_stored, arrow_schema, strict=True):
        if by_arrow.name != by_parquet.name or _differ_as_numbers(by_arrow.type, by_parquet.type):
            titles = [f"{shorten(f.name)!r} of {shorten(str(f.type))}" for f in (by_arrow, by_parquet)]
            raise ValueError(f"{path}: the file is damaged: its columns {' and '.join(titles)} must be the same")


def _differ_as_numbers(first: Any, second: Any) -> bool:
    """Whether two types differ and one of them is numbers, or lists of them."""
    first, second = (storage(k.value_type) if is_list(k) else k for k in map(storage, (first, second)))
    return first != second and (_is_number(first) or _is_number(second))


def _is_number(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _check_lists(handle: IO[bytes], file: DataFile | RemoteFile, lists: Collection[str]) -> None:
    """Refuse lists with far more numbers than the file has bytes: a kilobyte can hold billions of zeros in one row."""
    if not lists or isinstance(file, RemoteFile):
        return
    for chunk in column_chunks(handle):
        if chunk.path and chunk.path[0] in lists:
            check_expansion(f"{file.path}: column {shorten(chunk.path[0])!r}", 8 * chunk.values, file.stamp.size)


def _read_facts(metadata: dict[bytes, bytes], path: str) -> dict[str, Any]:
    """What a file's metadata says under ``calibrant``: facts, and for images the ``shape`` of a sample."""
    text, crc = metadata.get(b"calibrant"), metadata.get(CHECKSUM)
    if crc is not None:
        if text is None or not re.fullmatch(b"[0-9a-f]{8}", crc):
            raise ValueError(f"{path}: the file is damaged: its metadata 'calibrant' is not what was written there")
        check_crc(zlib.crc32(text), int(crc, 16), path)
    facts = parse_json(text or b"{}", "what was written as 'calibrant'")
    shape = facts.get("shape", []) if isinstance(facts, dict) else None
    if not isinstance(shape, list) or not all(type(n) is int and 0 < n < 2**63 for n in shape) or len(shape) > 32:
        raise ValueError(f"{path}: its metadata 'calibrant' is not what was written there")
    return {name: value for name, value in facts.items() if name in (*FILE_FACTS, "shape") and value is not None}


def _metadata(schema: Schema) -> dict[bytes, bytes]:
    """The facts, to be kept under ``calibrant``, and their checksum."""
    facts = facts_of(schema)
    if schema.kind == "segmentation":
        facts["shape"] = list(schema.shape)
    text = json.dumps(facts).encode()
    return {b"calibrant": text, CHECKSUM: f"{zlib.crc32(text):08x}".encode()}


def save_parquet(store: Store, path: Path) -> None:
    """Write row groups of about `BATCH` numbers, one after the other."""
    schema = store.schema
    if schema.kind == "tokens":
        raise ValueError(f"{path}: tokens are written as .npz, .npy or .safetensors")
    types = arrow_types(store)
    types = {name: types.get(name) or _list_type(schema, name) for name in store.names}
    fields = [pa.field(name, kind, nullable=False) for name, kind in types.items()]
    arrow_schema = pa.schema(fields, metadata=_metadata(schema))
    text = [name for name, kind in types.items() if pa.types.is_string(kind)]
    rows = schema.rows(BATCH)
    with (
        written_aside(path) as aside,
        pq.ParquetWriter(aside, arrow_schema, use_dictionary=text, write_page_checksum=True) as writer,
    ):
        for block in store.blocks(rows, store.names):
            columns = [_to_arrow(block[name], types[name]) for name in store.names]
            writer.write_batch(pa.record_batch(columns, schema=arrow_schema), row_group_size=rows)


def _list_type(schema: Schema, name: str) -> Any:
    inner = pa.from_numpy_dtype(schema.dtype if name == schema.holds else np.dtype(np.int64))
    shape = schema.shape_of(name)
    return pa.list_(pa.field("item", inner, nullable=False), math.prod(shape)) if shape else inner


def _to_arrow(array: Array, kind: Any) -> Any:
    if not pa.types.is_fixed_size_list(kind):
        return pa.array(array, kind)
    return pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(array).reshape(-1)), type=kind)
