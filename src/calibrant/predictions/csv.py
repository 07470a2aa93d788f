"""CSV: comma-separated text with a header line, streamed by Arrow's reader.

Written with one column per class, ``logits_0`` or, with class names, ``logits.cat``; numbers so that they read back as
the same float64. Ids and groups are whole numbers if every row is one, else text: that, and the number of rows, takes
a pass over the file, made when it is first needed. Labels are what those of the first block are.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.csv as pacsv  # type: ignore[import-untyped]

from calibrant.files import written_aside
from calibrant.predictions.arrays import Array
from calibrant.predictions.checks import GROUP, About, Where, about
from calibrant.predictions.columns import Layout, Request, layout
from calibrant.predictions.shards import reading
from calibrant.predictions.store import BATCH, Store
from calibrant.predictions.tables import arrow_types, converted

HEAD = 1 << 22  # bytes in which the header line must end
WHOLE = "^(0|-?[1-9][0-9]{0,17})$"
NUMBER = re.compile(r"\s*[-+]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[-+]?[0-9]+)?|nan|inf(inity)?)\s*", re.IGNORECASE)
EXPECTED = {pa.bool_(): "true or false, or 0 or 1", pa.int64(): "a whole number", pa.float64(): "a number"}


class CsvSource:
    """A CSV file of which only the header line has been read."""

    def __init__(self, path: str, plan: Layout, known: About, header: list[str], block: int):
        self.path, self.plan, self.about, self.header, self.block = path, plan, known, header, block
        self.names = tuple(plan.columns)
        self.count: int | None = None
        self.types: dict[str, Any] = {}

    def title(self, name: str) -> str:
        """What an error calls a column."""
        return self.plan.title(name)

    def file_of(self, name: str) -> str:
        """The file."""
        return self.path

    def rows(self) -> int:
        """The number of samples, counted."""
        self._survey()
        return self.count or 0

    def known_rows(self) -> int | None:
        """The number of samples, if it has been counted."""
        return self.count

    def mapped(self, name: str) -> None:
        """Text: nothing to map."""

    def pieces(self, names: Sequence[str], rows: int) -> Iterator[dict[str, Array]]:
        """Runs of rows as arrays."""
        if any(_is_open(name) for name in names):
            self._survey()
        if "labels" in names and "labels" not in self.types:
            column = self.plan.source("labels")[0]
            first = next(self._batches({column: pa.string()}), None)
            self.types["labels"] = pa.int64() if first is None or _all_whole(first.column(column)) else pa.string()
        types = {}
        for name in names:
            for column in self.plan.source(name):
                types[column] = self.types.get(name) or (pa.bool_() if name == "correct" else pa.float64())
        row = 0
        for batch in self._batches(types):
            if batch.num_rows:
                yield converted(batch, self.plan, names, self.about, Where(f"{self.path}: ", row))
            row += batch.num_rows
        if not row:
            raise ValueError(f"{self.path}: no rows after the header line")

    def _batches(self, types: dict[str, Any]) -> Iterator[Any]:
        convert = pacsv.ConvertOptions(
            column_types=types, include_columns=list(types), null_values=[], strings_can_be_null=False
        )
        with reading(self.path):
            try:
                with pacsv.open_csv(
                    self.path,
                    read_options=pacsv.ReadOptions(block_size=self.block),
                    parse_options=pacsv.ParseOptions(newlines_in_values=True),
                    convert_options=convert,
                ) as reader:
                    yield from reader
            except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
                located = self._located(types)
                if located is None:
                    raise
                raise located from error

    def _survey(self) -> None:
        """Count the rows, and see whether ids and groups are whole numbers."""
        if self.count is not None:
            return
        names = [name for name in self.names if _is_open(name)]
        columns = [self.plan.source(name)[0] for name in names] or [self.header[0]]
        whole, count = dict.fromkeys(columns, True), 0
        for batch in self._batches(dict.fromkeys(columns, pa.string())):
            count += batch.num_rows
            for column in columns:
                whole[column] = whole[column] and _all_whole(batch.column(column))
        if not count:
            raise ValueError(f"{self.path}: no rows after the header line")
        self.count = count
        self.types |= {n: pa.int64() if whole[c] else pa.string() for n, c in zip(names, columns, strict=False)}

    def _located(self, types: dict[str, Any]) -> ValueError | None:
        """The first row that Arrow could not take, found by reading once more, slowly."""
        place = {self.header.index(column): (column, kind) for column, kind in types.items() if column in self.header}
        with open(self.path, encoding="utf-8-sig", newline="") as file:
            rows = (row for row in csv.reader(file) if row)
            next(rows)
            for number, row in enumerate(rows):
                if len(row) != len(self.header):
                    return ValueError(f"{self.path}: row {number} has {len(row)} fields, expected {len(self.header)}")
                for i, (column, kind) in place.items():
                    if not _fits(row[i], kind):
                        expected = EXPECTED[kind]
                        return ValueError(
                            f"{self.path}: column {column!r} must be {expected}, got {row[i][:60]!r} in row {number}"
                        )
        return None


def _is_open(name: str) -> bool:
    """Whether a column may be whole numbers or text, and every row must be looked at to know."""
    return name == "ids" or name.startswith(GROUP)


def _all_whole(column: Any) -> bool:
    return bool(pc.all(pc.match_substring_regex(column, WHOLE), min_count=0).as_py())


def _fits(text: str, kind: Any) -> bool:
    if kind == pa.bool_():
        return text.lower() in ("0", "1", "true", "false")
    if kind == pa.int64():
        return re.match(WHOLE, text) is not None
    return kind == pa.string() or NUMBER.fullmatch(text) is not None


def open_file(path: Path, asked: Request) -> CsvSource:
    """Read the header line and find our columns."""
    header, length = _header(path)
    try:
        plan = layout(header, asked, str(path), table=True)
    except ValueError as error:
        mark = next((mark for mark in ";\t|" if len(header) == 1 and mark in header[0]), None)
        if mark is None:
            raise
        raise ValueError(f"{path}: expected columns separated by commas, the header line has {mark!r}") from error
    columns = plan.columns[plan.holds]
    if isinstance(columns, str) and plan.holds != "confidence":
        raise ValueError(
            f"{path}: {plan.holds} must be one column per class, {columns}_0, {columns}_1, ..., got {columns}"
        )
    facts = {"class_names": plan.class_names} | asked.facts
    if plan.holds == "confidence":
        facts = {"split": facts.get("split")}
    shape = (1,) if isinstance(columns, str) else (1, len(columns))
    known = about(plan.holds, np.dtype(np.float64), shape, **facts, head=f"{path}: ")
    return CsvSource(str(path), plan, known, header, min(1 << 30, max(1 << 20, 8 * length)))


def _header(path: Path) -> tuple[list[str], int]:
    """The names in the header line, and its length in bytes."""
    with path.open("rb") as file:
        start = file.read(HEAD)
    if not start.strip():
        raise ValueError(f"{path}: the file is empty")
    if b"\0" in start[:4096]:
        raise ValueError(f"{path}: expected text in UTF-8, got bytes that are none")
    lines = io.StringIO(start.decode("utf-8-sig", errors="replace"), newline="")
    rows = csv.reader(lines)
    header = next((row for row in rows if row), [])
    if len(start) == HEAD and lines.tell() >= len(lines.getvalue()):
        raise ValueError(f"{path}: the header line does not end within {HEAD} bytes")
    return header, lines.tell()


def save(store: Store, path: Path) -> None:
    """Write the header and the rows, block by block."""
    known = store.about
    if known.kind == "segmentation":
        raise ValueError(f"{path}: images do not fit a CSV file: write .npz, .npy, .parquet or .safetensors")
    data = _class_columns(known, path)
    types = {column: pa.float64() for column in data}
    for name, kind in arrow_types(store).items():
        types[name] = pa.int64() if pa.types.is_boolean(kind) else pa.float64() if name == "objectness" else kind
    if "labels" in store.names:
        types["labels"] = pa.int64()
    schema = pa.schema(types.items())
    rows = max(1, BATCH // max(1, known.numbers))
    with written_aside(path) as aside, pacsv.CSVWriter(aside, schema) as writer:
        for block in store.blocks(rows, store.names):
            values = block.pop(known.holds).astype(np.float64, copy=False).reshape(-1, len(data))
            columns = dict(zip(data, values.T, strict=True)) | block
            writer.write_batch(pa.record_batch([_arrow(columns[name], types[name]) for name in types], schema=schema))


def _class_columns(known: About, path: Path) -> list[str]:
    if known.num_classes is None:
        return [known.holds]
    if known.class_names is None:
        return [f"{known.holds}_{j}" for j in range(known.num_classes)]
    if all(re.fullmatch("[0-9]{1,9}", name) for name in known.class_names):
        expected = tuple(map(str, range(known.num_classes)))
        if known.class_names != expected:
            raise ValueError(f"{path}: in a CSV file class names that are numbers must be 0..{known.num_classes - 1}")
    return [f"{known.holds}.{name}" for name in known.class_names]


def _arrow(array: Array, kind: Any) -> Any:
    return pa.array(np.ascontiguousarray(array), kind) if array.dtype.kind == "U" else pa.array(array).cast(kind)
