"""Parquet: streamed as Arrow record batches, only the columns needed, in bounded memory.

Written: the data as a fixed-size list column, for images flat, with their shape in the file's metadata. Read: any list
column, or one column per class.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from calibrant._files import written_aside
from calibrant.predictions.arrays import Array
from calibrant.predictions.checks import About, Where, about, counted
from calibrant.predictions.columns import Layout, Request, layout
from calibrant.predictions.remote import Remote, is_remote
from calibrant.predictions.shards import reading
from calibrant.predictions.store import BATCH, Store
from calibrant.predictions.tables import (
    arrow_types,
    converted,
    facts_in,
    facts_json,
    first_labels,
    float_type,
    is_list,
    storage,
)

PIECE = 1 << 19  # numbers per record batch: large enough for Arrow's threads, small enough for the cache
BUFFER = 1 << 24  # bytes read ahead, over all columns


class ParquetSource:
    """A Parquet file of which only the footer has been read, and one row where a list's length is not in its type."""

    def __init__(self, path: str, plan: Layout, known: About, count: int):
        self.path, self.plan, self.about, self.count = path, plan, known, count
        self.names = tuple(plan.columns)

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
        with reading(self.path), _file(self.path, len(theirs)) as file:
            for batch in file.iter_batches(batch_size=rows, columns=theirs):
                if batch.num_rows:
                    yield converted(batch, self.plan, names, self.about, Where(f"{self.path}: ", row))
                row += batch.num_rows
            if row != self.count:
                raise ValueError(f"{self.path}: the footer promises {self.count} rows, the file holds {row}")


def _file(path: str, columns: int) -> Any:
    """A reader that streams: it holds a buffer per column, not the row group."""
    far = is_remote(path)
    least, most = (1 << 20, 1 << 23) if far else (1 << 14, 1 << 20)  # what is far away is asked for less often
    source = Remote(path).open() if far else path
    return pq.ParquetFile(source, pre_buffer=False, buffer_size=min(most, max(least, BUFFER // columns)))


def open_file(path: Path | Remote, asked: Request) -> ParquetSource:
    """Read the footer and find our columns."""
    if not (path.stamp()[0] if isinstance(path, Remote) else path.stat().st_size):
        raise ValueError(f"{path}: the file is empty")
    with _file(str(path), 1) as file:
        schema, count = file.schema_arrow, file.metadata.num_rows
        plan = layout(schema.names, asked, str(path), table=True)
        facts = facts_in(schema.metadata, str(path)) | asked.facts
        facts |= {"class_names": facts.get("class_names") or _class_names(file, plan)}
        dtype = np.result_type(*(float_type(schema.field(c).type, c, str(path)) for c in plan.source(plan.holds)))
        shape = facts.pop("shape", None) or _sample_shape(file, plan)
    if plan.holds == "confidence":
        facts = {"split": facts.get("split")}
    return ParquetSource(str(path), plan, about(plan.holds, dtype, (count, *shape), **facts, head=f"{path}: "), count)


def _class_names(file: Any, plan: Layout) -> tuple[str, ...] | None:
    """The class names that the columns give; where that is open, the first labels tell."""
    if not plan.namings or "labels" not in plan.columns:
        return plan.class_names
    column = plan.source("labels")[0]
    first = next(file.iter_batches(batch_size=4096, columns=[column]), None)
    return plan.class_names if first is None else plan.named_by(first_labels(first, column))


def _sample_shape(file: Any, plan: Layout) -> tuple[int, ...]:
    if plan.holds == "confidence":
        return ()
    columns = plan.source(plan.holds)
    if not isinstance(plan.columns[plan.holds], str):
        return (len(columns),)
    kind = file.schema_arrow.field(columns[0]).type
    if isinstance(kind, pa.FixedShapeTensorType):
        if kind.permutation not in (None, [*range(len(kind.shape))]):
            raise ValueError(f"column {columns[0]!r} must be tensors in C order, got {kind}")
        return tuple(kind.shape)
    kind = storage(kind)
    if pa.types.is_fixed_size_list(kind):
        return (kind.list_size,)
    if not is_list(kind):
        raise ValueError(f"column {columns[0]!r} must be lists, got {kind}{_two(plan)}")
    first = next((b.column(0)[0] for b in file.iter_batches(batch_size=1, columns=columns) if b.num_rows), None)
    if first is None or not first.is_valid:
        raise ValueError(f"column {columns[0]!r} has no value in {counted(0)}")
    return (len(first.values),)


def _two(plan: Layout) -> str:
    return " (of two classes? lists of 1 - p and p)" if plan.holds == "probabilities" else ""


def save(store: Store, path: Path) -> None:
    """Write row groups of about `BATCH` numbers, one after the other."""
    known = store.about
    types = arrow_types(store)
    types = {name: types.get(name) or _list_type(known, name) for name in store.names}
    schema = pa.schema([pa.field(name, kind, nullable=False) for name, kind in types.items()])
    schema = schema.with_metadata({"calibrant": facts_json(known)})
    text = [name for name, kind in types.items() if pa.types.is_string(kind)]
    rows = max(1, BATCH // max(1, known.numbers))
    with written_aside(path) as aside, pq.ParquetWriter(aside, schema, use_dictionary=text) as writer:
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
