"""Shared parts of tables (CSV, JSON lines, Parquet, frames): columns as NumPy arrays, without an object per value.

Frames of pandas, polars and other libraries that narwhals supports are read here, by the rules for columns of files.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa

from calibrant.base.arrays import Array, check_texts, check_width, map_levels
from calibrant.base.checks import shorten
from calibrant.predictions.columns import ColumnMap, OpenOptions, match_columns
from calibrant.predictions.files import Reader, choose_decoders, file_errors, suffix_of
from calibrant.predictions.labels import LabelValues, compare
from calibrant.predictions.row_selection import select_split
from calibrant.predictions.samples import as_sample, rows_to_peek
from calibrant.predictions.schema import SPLIT, UNITS, WEIGHT, Schema
from calibrant.predictions.stores import BATCH, FileStore, MemoryStore, Store, first_dtypes
from calibrant.predictions.values import (
    SINGLE_LABEL,
    Location,
    class_positions,
    count_row,
    no_value,
    two_columns,
    verdict_of,
)

PIECE = 1 << 19  # numbers per record batch: large enough for Arrow's threads, small enough for the cache
NUMBERS_OR_TEXT = "whole numbers or text"
FLOATS = {pa.float16(): np.float16, pa.float32(): np.float32, pa.float64(): np.float64}
FRAME = "frame"  # what errors call one


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


def from_frame(frame: Any, options: OpenOptions) -> MemoryStore:
    """The predictions of a frame, in memory; see `Predictions.from_frame`."""
    table = _as_table(frame)
    with file_errors(FRAME):

        def peek(names: Sequence[str]) -> dict[str, Array]:
            return sample_columns(table.select(names))

        matched = match_columns(table.schema.names, options, FRAME, table=True, peek=peek)
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
    if columns.holds == "confidence":
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
        return two_columns(name, reader.columns.title(name), schema.positive or 0, numbers, location)
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


def is_gzip(path: str | Path) -> bool:
    """Whether a file is compressed, by its name."""
    return suffix_of(Path(path)).endswith(".gz")


def decompress(handle: IO[bytes], path: str | Path) -> Any:
    """A stream of what a file holds, compressed or not."""
    if not is_gzip(path):
        return handle
    import gzip  # here, because few files are compressed

    return gzip.GzipFile(fileobj=handle)


def arrow_types(store: Store) -> dict[str, Any]:
    """The Arrow type of every column that has one value per sample."""
    names = [name for name in store.names if name not in (store.schema.holds, "labels")]
    return {name: pa.from_numpy_dtype(dtype) for name, dtype in first_dtypes(store, names).items()}


def check_rows(schema: Schema, path: Path, title: str) -> None:
    """Refuse to write images or sequences in a format, called ``title``, that holds one sample per line."""
    if schema.kind != "classification":
        lists = ".parquet, " if schema.kind == "segmentation" else ""
        raise ValueError(f"{path}: {UNITS[schema.kind][0]} do not fit {title}: write {lists}.npz, .npy or .safetensors")


def name_labels(labels: Array, names: Sequence[str]) -> Array:
    """Labels by name, to be written; a label that is no class stays a number."""
    return map_levels(labels, lambda label: names[label] if 0 <= label < len(names) else str(label), np.str_)
