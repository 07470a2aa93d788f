"""Parquet: streamed as Arrow record batches, only the columns needed, in bounded memory.

Written: the data as a fixed-size list column, for images flat, with their shape in the file's metadata, and a checksum
in every page. Read: any list column, or one column per class; checksums are compared where there are some.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from calibrant._arrays import Array
from calibrant._files import written_aside
from calibrant._parquet import column_chunks
from calibrant.predictions import naming
from calibrant.predictions.about import About, about, checked_names
from calibrant.predictions.arrayfile import LABELS_ARE, is_positions
from calibrant.predictions.columns import Layout, Request, layout
from calibrant.predictions.expansion import check_expansion, check_sample
from calibrant.predictions.hints import short
from calibrant.predictions.labels import LabelCode, LabelValues
from calibrant.predictions.remote import Remote
from calibrant.predictions.shards import reading
from calibrant.predictions.stamps import DataFile, RemoteFile, native_path, pinned, pinned_remote
from calibrant.predictions.store import BATCH, Store
from calibrant.predictions.tables import (
    CHECKSUM,
    arrow_types,
    converted,
    different,
    facts_in,
    float_type,
    is_list,
    is_text,
    metadata_of,
    storage,
)
from calibrant.predictions.where import Where, counted

PIECE = 1 << 19  # numbers per record batch: large enough for Arrow's threads, small enough for the cache
BUFFER = 1 << 24  # bytes read ahead, over all columns
SMALL = 1 << 26  # bytes of a file


class ParquetSource:
    """A Parquet file of which only the footer has been read, and one row where a list's length is not in its type."""

    def __init__(self, file: DataFile | RemoteFile, plan: Layout, known: About, count: int, text: bool):
        self.file = file
        self._take_over(file.path, plan, known, count, text)

    def _take_over(self, path: str, plan: Layout, known: About, count: int, text: bool) -> None:
        self.path, self.plan, self.about, self.count = path, plan, known, count
        self.names, self.naming = tuple(plan.columns), plan.naming
        self.text = text  # whether labels are
        self.code = LabelCode(known.class_names)

    def title(self, name: str) -> str:
        """What an error calls a column."""
        return self.plan.title(name)

    def file_of(self, name: str) -> str:
        """The file."""
        return self.path

    def rows(self) -> int:
        """The number of samples, from the footer."""
        return self.count

    def known_rows(self) -> int | None:
        """The number of samples, from the footer."""
        return self.count

    def place(self, row: int) -> str:
        """What errors call a row."""
        return counted(row)

    def mapped(self, name: str) -> None:
        """Parquet is encoded: nothing to map."""

    def pieces(self, names: Sequence[str], rows: int) -> Iterator[dict[str, Array]]:
        """Record batches as arrays."""
        theirs = [column for name in names for column in self.plan.source(name)]
        numbers = sum(math.prod(self.about.shape_of(name)) for name in names)
        rows = min(rows, max(1, PIECE // numbers, min(4096, BATCH // numbers)))
        row = 0
        with reading(self.path):
            for batch in self._batches(theirs, rows):
                if batch.num_rows:
                    where = Where(f"{self.path}: ", row)
                    yield converted(batch, self.plan, names, self.about, self.code, where)
                row += batch.num_rows
            if row != self.count:
                raise ValueError(f"{self.path}: the footer promises {self.count} rows, the file holds {row}")

    def _batches(self, columns: list[str], rows: int) -> Iterator[Any]:
        with self.file.opened() as handle, _reader(handle, self.file, len(columns)) as file:
            yield from file.iter_batches(batch_size=rows, columns=columns)

    def labels_matter(self) -> bool:
        """Whether labels must be seen to know how they are read: text, or numbers that may be names."""
        return "labels" in self.names and (self.text or (self.naming.codes is not None and not self.naming.certain))

    def label_values(self) -> LabelValues:
        """The different labels, in a pass over them."""
        return self._values(self.plan.source("labels")[0])

    def compared_values(self) -> tuple[LabelValues, LabelValues] | None:
        """The different values of predicted and labels, if they are compared."""
        columns = self.plan.source("correct") if "correct" in self.names else []
        return (self._values(columns[0]), self._values(columns[1])) if len(columns) > 1 else None

    def _values(self, column: str) -> LabelValues:
        values = LabelValues()
        with reading(self.path):
            for batch in self._batches([column], 1 << 16):
                values.add(different(batch, column, f"{self.path}: "))
        return values

    def settle(self, code: LabelCode) -> None:
        """Take what was decided about labels."""
        self.about, self.code = replace(self.about, class_names=code.names), code


def _reader(handle: Any, data: DataFile | RemoteFile, columns: int) -> Any:
    """A reader that streams: it holds a buffer per column, not the row group.

    A small file needs no buffers, and is safer without: they grow to whatever size a damaged page claims to have.
    """
    far = isinstance(data, RemoteFile)
    least, most = (1 << 20, 1 << 23) if far else (1 << 14, 1 << 20)  # what is far away is asked for less often
    return pq.ParquetFile(
        native_path(handle, data) if isinstance(data, DataFile) else handle,
        pre_buffer=False,
        buffer_size=min(most, max(least, BUFFER // columns)) if data.stamp.size > SMALL else 0,
        page_checksum_verification=True,
    )


def open_file(path: Path | Remote, asked: Request) -> ParquetSource:
    """Read the footer and find our columns."""
    if isinstance(path, Remote):
        remote = pinned_remote(path)
        with remote.opened() as far:
            return _opened(remote, far, asked)
    with pinned(path) as (file, handle):
        return _opened(file, handle, asked)


def _opened(data: DataFile | RemoteFile, handle: IO[bytes], asked: Request) -> ParquetSource:
    path = data.path
    with _reader(handle, data, 1) as file:
        schema, count = file.schema_arrow, file.metadata.num_rows
        _check_footer(file, handle, data)
        facts = facts_in(file.metadata.metadata, path)
        own, positions = facts.pop("class_names", None), is_positions(facts.pop(LABELS_ARE, None), path)
        plan = layout(schema.names, _with_own(asked, own), path, table=True)
        if isinstance(plan.columns[plan.holds], str) and plan.holds != "confidence":
            given = asked.facts.get("class_names")
            stated, said = (None if names is None else checked_names(names, f"{path}: ") for names in (own, given))
            plan = replace(plan, naming=naming.of_array(stated, said, path, positions=positions))
        _check_lists(handle, data, schema, plan)
        dtype = np.result_type(*(float_type(schema.field(c).type, c, path) for c in plan.source(plan.holds)))
        shape = sample_shape(file, plan, facts.pop("shape", None))
    facts |= asked.facts | {"class_names": plan.naming.names}
    if plan.holds == "confidence":
        facts = {"split": facts.get("split")}
    known = about(plan.holds, dtype, (count, *shape), **facts, head=f"{path}: ")
    check_sample(path, known.numbers * known.dtype.itemsize, data.stamp.size)
    text = "labels" in plan.columns and is_text(schema.field(plan.source("labels")[0]).type)
    return ParquetSource(data, plan, known, count, text)


def _with_own(asked: Request, own: Any) -> Request:
    """Names that a file states besides its columns count as if they had been given."""
    return (
        asked
        if own is None or "class_names" in asked.facts
        else replace(asked, facts=asked.facts | {"class_names": own})
    )


def _check_footer(file: Any, handle: IO[bytes], data: DataFile | RemoteFile) -> None:
    """Refuse a footer whose two accounts of the columns disagree: Parquet's own, and Arrow's, where Arrow wrote it."""
    schema, path = file.schema_arrow, data.path
    if not schema.names:
        raise ValueError(f"{path}: the table has no columns")
    metadata = file.metadata.metadata or {}
    if CHECKSUM not in metadata:  # a damaged footer may have lost all of them
        handle.seek(data.stamp.size - 8)
        length = int.from_bytes(handle.read(4), "little")
        handle.seek(max(0, data.stamp.size - 8 - length))
        if CHECKSUM in handle.read(length):
            raise ValueError(f"{path}: the file is damaged: its metadata are not what was written there")
    stored = metadata.get(b"ARROW:schema")
    if stored is None:
        return
    written = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(stored)))
    if len(written) != len(schema):  # other programs leave out columns and keep the metadata
        return
    for ours, theirs in zip(written, schema, strict=True):
        if ours.name != theirs.name or _is_other_number(ours.type, theirs.type):
            raise ValueError(
                f"{path}: the file is damaged: its columns {short(ours.name)!r} of {short(str(ours.type))} and "
                f"{short(theirs.name)!r} of {short(str(theirs.type))} must be the same"
            )


def _check_lists(handle: IO[bytes], data: DataFile | RemoteFile, schema: Any, plan: Layout) -> None:
    """Refuse lists with far more numbers than the file has bytes: a kilobyte can hold billions of zeros in one row."""
    ours = {
        column
        for column in plan.columns.values()
        if isinstance(column, str) and pa.types.is_nested(storage(schema.field(column).type))
    }
    if not ours or isinstance(data, RemoteFile):
        return
    for chunk in column_chunks(handle):
        if chunk.path and chunk.path[0] in ours:
            check_expansion(f"{data.path}: column {short(chunk.path[0])!r}", 8 * chunk.values, data.stamp.size)


def _is_other_number(kind: Any, other: Any) -> bool:
    """Whether two types are numbers, or lists of them, and differ."""
    kind, other = (storage(k.value_type) if is_list(k) else k for k in map(storage, (kind, other)))
    return kind != other and (_is_number(kind) or _is_number(other))


def _is_number(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def sample_shape(file: Any, plan: Layout, stated: list[int] | None) -> tuple[int, ...]:
    """The shape of one sample: of the columns, of their type, as the file states it, or of the first list."""
    if plan.holds == "confidence":
        return ()
    columns = plan.source(plan.holds)
    if not isinstance(plan.columns[plan.holds], str):
        return (len(columns),)
    kind = file.schema_arrow.field(columns[0]).type
    if isinstance(kind, pa.FixedShapeTensorType):
        if kind.permutation not in (None, [*range(len(kind.shape))]):
            raise ValueError(f"column {short(columns[0])!r} must be tensors in C order, got {short(str(kind))}")
        return tuple(kind.shape)
    kind = storage(kind)
    if not is_list(kind):
        raise ValueError(f"column {short(columns[0])!r} must be lists, got {short(str(kind))}{_two(plan)}")
    fixed = kind.list_size if pa.types.is_fixed_size_list(kind) else None
    if fixed is None:
        first = next((b.column(0)[0] for b in file.iter_batches(batch_size=1, columns=columns) if b.num_rows), None)
        if first is None or not first.is_valid:
            raise ValueError(f"column {short(columns[0])!r} has no value in {counted(0)}")
        fixed = len(first.values)
    if stated is not None and math.prod(stated) != fixed:
        size = f"{math.prod(stated)} numbers, got {fixed} in {counted(0)}"
        raise ValueError(f"column {short(columns[0])!r} must be lists of {size}")
    return (fixed,) if stated is None else tuple(stated)


def _two(plan: Layout) -> str:
    return " (of two classes? lists of 1 - p and p)" if plan.holds == "probabilities" else ""


def save(store: Store, path: Path) -> None:
    """Write row groups of about `BATCH` numbers, one after the other."""
    known = store.about
    types = arrow_types(store)
    types = {name: types.get(name) or _list_type(known, name) for name in store.names}
    schema = pa.schema([pa.field(name, kind, nullable=False) for name, kind in types.items()])
    schema = schema.with_metadata(metadata_of(known))
    text = [name for name, kind in types.items() if pa.types.is_string(kind)]
    rows = max(1, BATCH // max(1, known.numbers))
    with (
        written_aside(path) as aside,
        pq.ParquetWriter(aside, schema, use_dictionary=text, write_page_checksum=True) as writer,
    ):
        for block in store.blocks(rows, store.names):
            columns = [_arrow(block[name], types[name]) for name in store.names]
            writer.write_batch(pa.record_batch(columns, schema=schema), row_group_size=rows)


def _list_type(known: About, name: str) -> Any:
    inner = pa.from_numpy_dtype(known.dtype if name == known.holds else np.dtype(np.int64))
    shape = known.shape_of(name)
    return pa.list_(pa.field("item", inner, nullable=False), math.prod(shape)) if shape else inner


def _arrow(array: Array, kind: Any) -> Any:
    if not pa.types.is_fixed_size_list(kind):
        return pa.array(array, kind)
    return pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(array).reshape(-1)), type=kind)
