"""Frames of pandas, polars and others (whatever narwhals knows) as predictions, by the rules for columns of files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from calibrant.predictions.about import about
from calibrant.predictions.columns import layout, request
from calibrant.predictions.opened import FileStore, settle_labels
from calibrant.predictions.parquet import ParquetSource, sample_shape
from calibrant.predictions.shards import reading
from calibrant.predictions.store import MemoryStore
from calibrant.predictions.tables import float_type, is_text

NAME = "frame"  # what errors call it


class FrameSource(ParquetSource):
    """A table in memory, read as the table of a Parquet file is."""

    def __init__(self, table: Any, plan: Any, known: Any, text: bool) -> None:
        self._take_over(NAME, plan, known, table.num_rows, text)
        self.table = table

    def _batches(self, columns: list[str], rows: int) -> Iterator[Any]:
        yield from self.table.select(columns).to_batches(max_chunksize=rows)


class _File:
    """What `sample_shape` looks at."""

    def __init__(self, table: Any) -> None:
        self.table, self.schema_arrow = table, table.schema

    def iter_batches(self, batch_size: int, columns: list[str]) -> list[Any]:
        batches: list[Any] = self.table.select(columns).to_batches(max_chunksize=batch_size)
        return batches


def from_frame(
    frame: Any,
    columns: Mapping[str, str | Sequence[str]] | None,
    groups: Sequence[str] | None,
    facts: dict[str, Any],
    *,
    unlabelled: bool,
) -> MemoryStore:
    """The predictions of a frame, in memory; see `Predictions.from_frame`."""
    asked = request(columns, groups, facts, unlabelled=unlabelled)
    table = as_table(frame)
    with reading(NAME):
        plan = layout(table.schema.names, asked, NAME, table=True)
        dtype = np.result_type(*(float_type(table.schema.field(c).type, c, NAME) for c in plan.source(plan.holds)))
        shape = sample_shape(_File(table), plan, None)
        known: dict[str, Any] = {"split": asked.facts.get("split")}
        if plan.holds != "confidence":
            known = asked.facts | {"class_names": plan.naming.names}
        described = about(plan.holds, dtype, (table.num_rows, *shape), **known, head=f"{NAME}: ")
        text = "labels" in plan.columns and is_text(table.schema.field(plan.source("labels")[0]).type)
    source = FrameSource(table, plan, described, text)
    settle_labels([source])
    return FileStore([source]).load()


def as_table(frame: Any) -> Any:
    """A frame as Arrow's table; what is no frame is refused in one sentence."""
    if isinstance(frame, pa.Table):
        return frame
    import narwhals as nw  # here, because it looks for every kind of frame there is

    try:
        table = nw.from_native(frame, eager_only=True).to_arrow()
    except TypeError:
        asked = "a frame of pandas, polars or another library with eager frames"
        raise ValueError(f"frame must be {asked}, got {type(frame).__name__}") from None
    if not all(isinstance(name, str) for name in table.schema.names):
        raise ValueError("frame must have columns named by text")
    return table
