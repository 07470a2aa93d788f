"""Tables as record batches of Arrow, their columns as NumPy arrays without an object per value; frames and Parquet.

Frames are those of pandas, polars and other libraries that narwhals supports, read by the rules for columns of files.

Parquet is streamed, only the columns needed, in bounded memory. Written: the data as a fixed-size list column, for
images flat, with their shape in the file's metadata, and a checksum in every page. Read: any list column, or one column
per class; checksums are compared where there are some.
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
import re
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa

from calibrant.base.arrays import Array, check_texts, check_width
from calibrant.base.checks import shorten
from calibrant.base.files import parse_json, written_aside
from calibrant.base.parquet import column_chunks
from calibrant.predictions.data import SINGLE_LABEL
from calibrant.predictions.files import (
    RATIO,
    DataFile,
    Reader,
    Remote,
    RemoteFile,
    check_crc,
    check_expansion,
    choose_decoders,
    file_errors,
    open_first,
)
from calibrant.predictions.hints import as_sample, rows_to_peek
from calibrant.predictions.labels import LabelValues, compare
from calibrant.predictions.locations import Location, count_row, no_value
from calibrant.predictions.rows import select_split
from calibrant.predictions.schema import (
    FILE_FACTS,
    SPLIT,
    WEIGHT,
    ColumnMap,
    OpenOptions,
    Schema,
    facts_of,
    match_columns,
)
from calibrant.predictions.stores import BATCH, FileStore, MemoryStore, Store, first_dtypes
from calibrant.predictions.values import class_positions, verdict_of

PIECE = 1 << 19  # numbers per record batch: large enough for Arrow's threads, small enough for the cache
NUMBERS_OR_TEXT = "whole numbers or text"
FLOATS = {pa.float16(): np.float16, pa.float32(): np.float32, pa.float64(): np.float64}
FRAME = "frame"  # what errors call one
LEAST_SAMPLE = 1 << 26  # bytes that one sample of any file may become
BUFFER = 1 << 24  # bytes read ahead, over all columns
SMALL = 1 << 26  # bytes of a file
CHECKSUM = b"calibrant_crc32"


class TableReader(Reader):
    """A table whose types are known, read as record batches."""

    def __init__(self, path: str, columns: ColumnMap, schema: Schema, count: int | None, arrow_schema: Any):
        super().__init__(path, columns, schema, count)
        if "labels" in self.names:
            self.has_text_labels = is_text(arrow_schema.field(columns.sources("labels")[0]).type)

    def _batches(self, columns: list[str], rows: int) -> Iterator[Any]:
        raise NotImplementedError

    def pieces(self, names: Sequence[str], rows: int) -> Iterator[dict[str, Array]]:
        """Record batches as arrays."""
        # Once each: predicted and labels are sources of correct, too, and Arrow refuses a name that appears twice.
        sources = list(dict.fromkeys(column for name in names for column in self.columns.sources(name)))
        numbers = sum(math.prod(self.schema.shape_of(name)) for name in names)
        rows = min(rows, max(1, PIECE // numbers, min(4096, BATCH // numbers)))
        row = 0
        with file_errors(self.path):
            for batch in self._batches(sources, rows):
                if batch.num_rows:
                    yield convert_batch(batch, self, names, Location(f"{self.path}: ", row, self.name_row))
                row += batch.num_rows
            if self.count not in (None, row):
                raise ValueError(f"{self.path}: the footer promises {self.count} rows, the file holds {row}")

    def label_values(self) -> LabelValues:
        """The different labels, in a pass over them."""
        return self._values(self.columns.sources("labels")[0])

    def compared_values(self) -> tuple[LabelValues, LabelValues] | None:
        """The different values of predicted and labels, if they are compared."""
        columns = self.columns.compared
        return (self._values(columns[0]), self._values(columns[1])) if columns else None

    def _values(self, column: str) -> LabelValues:
        values = LabelValues()
        for batch in self._batches([column], 1 << 16):
            values.add(distinct_values(batch, column, f"{self.path}: "))
        return values


class FrameReader(TableReader):
    """A table in memory."""

    def __init__(self, table: Any, columns: ColumnMap, schema: Schema):
        super().__init__(FRAME, columns, schema, table.num_rows, table.schema)
        self.table = table

    def _batches(self, columns: list[str], rows: int) -> Iterator[Any]:
        yield from self.table.select(columns).to_batches(max_chunksize=rows)


def from_frame(frame: Any, options: OpenOptions, *, has_hints: bool = True) -> MemoryStore:
    """The predictions of a frame, in memory; see `Predictions.from_frame`. Errors may do without hints."""
    table = _as_table(frame)
    with file_errors(FRAME):

        def peek(names: Sequence[str]) -> dict[str, Array]:
            return sample_columns(table.select(names))

        matched = match_columns(table.schema.names, options, FRAME, table=True, peek=peek if has_hints else None)
        dtype = float_type(table.schema, matched, FRAME)
        shape = sample_shape(table.schema, matched, lambda column: table.select([column]).to_batches(1))
        matched, schema = matched.with_schema(dtype, (table.num_rows, *shape), {}, options, FRAME)
    reader = FrameReader(table, matched, schema)
    choose_decoders([reader])
    return select_split(FileStore([reader]), options.facts.get(SPLIT)).load()


def sample_columns(table: Any) -> dict[str, Array]:
    """The first rows of a table or record batch as arrays, for errors; without columns that are neither."""
    samples: dict[str, Array] = {}
    rows = rows_to_peek(numbers_in_row(table))
    for name, column in zip(table.schema.names, table.columns, strict=True):
        with contextlib.suppress(ValueError, ArithmeticError, pa.ArrowException):
            sample = as_sample(column.slice(0, rows).to_pylist())
            if sample is not None:
                samples[name] = sample
    return samples


def numbers_in_row(table: Any) -> int:
    """How many numbers the first row of a table or record batch has, counting those of lists."""
    firsts = [column[0] for column in table.columns if len(column) and is_list(column.type)]
    return int(table.num_columns) + sum(len(first.values) for first in firsts if first.is_valid)


def _as_table(frame: Any) -> Any:
    """A frame as a table of Arrow."""
    if isinstance(frame, pa.Table):
        return frame
    import narwhals as nw  # here, because it looks for every kind of frame there is

    try:
        table = nw.from_native(frame, eager_only=True).to_arrow()
    except TypeError:
        expected = "a frame of pandas, polars or another library with eager frames"
        raise ValueError(f"frame must be {expected}, got {type(frame).__name__}") from None
    if not all(isinstance(name, str) for name in table.schema.names):
        raise ValueError("frame must have columns named by text")
    return table


def storage(kind: Any) -> Any:
    """The plain type below extension types such as tensors, and below dictionaries."""
    while isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def plain(column: Any) -> Any:
    """A column without extension types and dictionaries, in one piece."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    while isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def is_text(kind: Any) -> bool:
    """Whether a type is text."""
    kind = storage(kind)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_list(kind: Any) -> bool:
    """Whether a type is a list of any kind that is read."""
    kind = storage(kind)
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def float_type(arrow_schema: Any, columns: ColumnMap, path: str) -> np.dtype[Any]:
    """The NumPy type of the data, columns of numbers or of lists of numbers."""
    types = []
    for column in columns.sources(columns.holds):
        kind = storage(arrow_schema.field(column).type)
        inner = storage(kind.value_type) if is_list(kind) else kind
        if inner not in FLOATS:
            raise ValueError(f"{path}: column {shorten(column)!r} must be floating point, got {shorten(str(kind))}")
        types.append(FLOATS[inner])
    return np.result_type(*types)


def sample_shape(
    arrow_schema: Any, columns: ColumnMap, batches: Callable[[str], Iterable[Any]], stated: Sequence[int] | None = None
) -> tuple[int, ...]:
    """The shape of one sample: of the columns, of their type, as the file states it, or of the first list."""
    if not columns.data.has_classes:
        return ()
    column, *further = columns.sources(columns.holds)
    if not columns.is_single:
        return (1 + len(further),)
    title = f"column {shorten(column)!r}"
    kind = arrow_schema.field(column).type
    if isinstance(kind, pa.FixedShapeTensorType):
        if kind.permutation not in (None, [*range(len(kind.shape))]):
            raise ValueError(f"{title} must be tensors in C order, got {shorten(str(kind))}")
        return tuple(kind.shape)
    kind = storage(kind)
    if not is_list(kind):
        return ()  # of two classes
    if pa.types.is_fixed_size_list(kind):
        size = kind.list_size
    else:
        value = next((batch.column(0)[0] for batch in batches(column) if batch.num_rows), None)
        if value is None or not value.is_valid:
            raise ValueError(f"{title} has no value in {count_row(0)}")
        size = len(value.values)
    if stated is not None and math.prod(stated) != size:
        raise ValueError(f"{title} must be lists of {math.prod(stated)} numbers, got {size} in {count_row(0)}")
    return (size,) if stated is None else tuple(stated)


def convert_batch(batch: Any, reader: Reader, names: Sequence[str], location: Location) -> dict[str, Array]:
    """The columns of a record batch that are ours; labels are positions, or names of classes."""
    return {name: _convert(batch, reader, name, location) for name in names}


def _convert(batch: Any, reader: Reader, name: str, location: Location) -> Array:
    schema, sources = reader.schema, reader.columns.sources(name)
    columns = [_column(batch, source, location) for source in sources]
    if name == "correct" and reader.columns.compared:
        predicted, labels = (_values(*pair, location) for pair in zip(columns, sources, strict=True))
        return compare(predicted, labels, location)
    if name == "correct" and is_text(columns[0].type):
        levels, codes = _encode(columns[0], sources[0], location)
        verdicts = [verdict_of(level) for level in levels.tolist()]
        return levels[codes] if None in verdicts else np.array(verdicts, np.bool_)[codes]  # the check names the row
    if name == schema.holds and not reader.columns.is_single:
        numbers = np.empty((batch.num_rows, len(sources)), schema.dtype)
        for j, (column, source) in enumerate(zip(columns, sources, strict=True)):
            numbers[:, j] = _numbers(column, source, location)
        return numbers
    (column,), (source,), shape = columns, sources, schema.shape_of(name)
    if name == "labels":
        return _labels(column, source, reader, location)
    if name == schema.holds and reader.columns.one_column:
        is_listed = is_list(column.type)
        numbers = _lists(column, source, (1,), location) if is_listed else _numbers(column, source, location)
        return schema.data.widen(reader.columns.title(name), schema.positive or 0, numbers, location)
    if shape:
        return _lists(column, source, shape, location)
    expected = "numbers" if name in (schema.holds, "correct", "objectness", WEIGHT) else NUMBERS_OR_TEXT
    return _values(column, source, location, expected)


def _labels(column: Any, source: str, reader: Reader, location: Location) -> Array:
    """Labels as positions, or as text that is no name of a class, for an error."""
    title, schema, decoder = reader.columns.title("labels"), reader.schema, reader.decoder
    if is_text(column.type) and not decoder.numeric and schema.class_names is not None:
        levels, codes = _encode(column, source, location)
        if set(levels.tolist()) <= set(schema.class_names):
            return class_positions(title, levels, schema, location)[codes]
        return levels[codes]
    shape = schema.shape_of("labels")
    if not shape and is_list(column.type):
        raise ValueError(f"{location.prefix}column {shorten(source)!r} must have one label per row: {SINGLE_LABEL}")
    values = _lists(column, source, shape, location) if shape else _values(column, source, location)
    return decoder.decode(title, values, schema.ignore_index, location)


def _values(column: Any, title: str, location: Location, expected: str = NUMBERS_OR_TEXT) -> Array:
    """Numbers or text."""
    if not is_text(column.type):
        return _numbers(column, title, location, expected)
    levels, codes = _encode(column, title, location)
    return levels[codes]


def _encode(column: Any, title: str, location: Location) -> tuple[Array, Array]:
    """Text as its different values, decoded once each, and their numbers."""
    encoded = column.dictionary_encode()
    texts = encoded.dictionary.to_pylist()
    check_texts(f"{location.prefix}column {shorten(title)!r}", texts)
    check_width(f"{location.prefix}column {shorten(title)!r}", len(column), max(map(len, texts), default=1))
    return np.array(texts, dtype=np.str_), as_array(encoded.indices)


def distinct_values(batch: Any, column: str, prefix: str) -> list[Any]:
    """The different values of a column of a record batch, if they are whole numbers or text."""
    values = plain(batch.column(column))
    if pa.types.is_boolean(values.type):
        return [str(value) for value in values.unique().to_pylist() if value is not None]
    if pa.types.is_floating(values.type):
        return [int(value) for value in values.unique().to_pylist() if value is not None and float(value).is_integer()]
    if not is_text(values.type) and not pa.types.is_integer(values.type):
        return []
    texts = [value for value in values.unique().to_pylist() if value is not None]
    if is_text(values.type):
        check_texts(f"{prefix}column {shorten(column)!r}", texts)
    return texts


def _column(batch: Any, name: str, location: Location) -> Any:
    """A column in which every row has a value."""
    column = plain(batch.column(name))
    if column.null_count:
        row = int(np.argmax(as_array(column.is_null())))
        raise ValueError(location.prefix + no_value(f"column {shorten(name)!r}", location.at(row)))
    return column


def as_array(column: Any) -> Array:
    """An Arrow array of numbers or truth values without nulls as NumPy's; pyarrow's own way would import pandas."""
    if pa.types.is_boolean(column.type):
        return np.from_dlpack(column.cast(pa.uint8())).view(np.bool_)
    return np.from_dlpack(column)


def _numbers(column: Any, title: str, location: Location, expected: str = "numbers") -> Array:
    kind = column.type
    if pa.types.is_boolean(kind) or kind in FLOATS or pa.types.is_integer(kind):
        return as_array(column)
    raise _type_error(column, title, expected, location)


def _type_error(column: Any, title: str, expected: str, location: Location) -> ValueError:
    kind = shorten(str(column.type))
    with contextlib.suppress(ValueError, ArithmeticError, pa.ArrowException):  # dates beyond Python's, for example
        kind += f": {shorten(str(column[0].as_py()))!r} in {location.at(0)}"
    return ValueError(f"{location.prefix}column {shorten(title)!r} must be {expected}, got {kind}")


def _lists(column: Any, title: str, shape: tuple[int, ...], location: Location) -> Array:
    """Lists of one length as an array: their values lie one after the other already."""
    if not is_list(column.type):
        raise _type_error(column, title, "lists", location)
    size = math.prod(shape)
    if pa.types.is_fixed_size_list(column.type):
        lengths = np.array([column.type.list_size])
    else:
        lengths = np.diff(as_array(column.offsets))
    if (lengths != size).any():
        row = int(np.argmax(lengths != size))
        actual = f"{lengths[row]} in {location.at(row)}"
        raise ValueError(f"{location.prefix}column {shorten(title)!r} must be lists of {size} numbers, got {actual}")
    values = plain(column.flatten())
    if values.null_count:
        row = int(np.argmax(as_array(values.is_null()))) // size
        raise ValueError(f"{location.prefix}column {shorten(title)!r} has no value in the list of {location.at(row)}")
    return _numbers(values, title, location).reshape(len(column), *shape)


def arrow_types(store: Store) -> dict[str, Any]:
    """The Arrow type of every column that has one value per sample."""
    names = [name for name in store.names if name not in (store.schema.holds, "labels")]
    return {name: pa.from_numpy_dtype(dtype) for name, dtype in first_dtypes(store, names).items()}


# ---- Parquet --------------------------------------------------------------------------------------------------------
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
    import pyarrow.parquet as pq  # here, because frames and text need it not

    least, most = file.buffers
    return pq.ParquetFile(
        file.native_path(handle),
        pre_buffer=False,
        buffer_size=min(most, max(least, BUFFER // columns)) if file.stamp.size > SMALL else 0,
        page_checksum_verification=True,
    )


def open_parquet(path: Path | Remote, options: OpenOptions) -> ParquetReader:
    """Read the footer and find our columns."""
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
    if not lists or isinstance(file, RemoteFile):  # whose footer is too far away to be read twice
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
    import pyarrow.parquet as pq

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
