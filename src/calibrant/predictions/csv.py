"""CSV: comma-separated text with a header line, streamed by Arrow's reader; ``.tsv`` with tabs, ``.gz`` compressed.

Written with one column per class, ``logits_0`` or, with class names, ``logits.cat``; numbers so that they read back as
the same float64. Ids and groups are whole numbers if every row is one, else text: that, and the number of rows, takes
a pass over the file, made when it is first needed. Labels are what those of the first block are.
"""

from __future__ import annotations

import csv
import gzip
import io
import operator
import re
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from calibrant._files import written_aside
from calibrant.predictions.arrays import Array
from calibrant.predictions.checks import GROUP, About, Where, about
from calibrant.predictions.columns import Layout, Request, layout
from calibrant.predictions.shards import reading, suffix_of
from calibrant.predictions.store import BATCH, Store
from calibrant.predictions.tables import arrow_types, converted, first_labels

HEAD = 1 << 22  # bytes in which the header line must end
WHOLE = "^(0|-?[1-9][0-9]{0,17})$"
NUMBER = re.compile(r"\s*[-+]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[-+]?[0-9]+)?|nan|inf(inity)?)\s*", re.IGNORECASE)
EXPECTED = {pa.bool_(): "true or false, or 0 or 1", pa.int64(): "a whole number", pa.float64(): "a number"}


class CsvSource:
    """A CSV file of which only the header line has been read."""

    about: About

    def __init__(self, path: str, plan: Layout, header: list[str], block: int):
        self.path, self.plan, self.block = path, plan, block
        self.header = [name.strip() for name in header]
        self.raw = dict(zip(self.header, header, strict=True))
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

    def place(self, row: int) -> str:
        """The line of the file that a row starts in, as an editor counts it."""
        return next((f"line {line}" for number, (line, _) in enumerate(self._lines()) if number == row), f"row {row}")

    def mapped(self, name: str) -> None:
        """Text: nothing to map."""

    def pieces(self, names: Sequence[str], rows: int) -> Iterator[dict[str, Array]]:
        """Runs of rows as arrays."""
        if any(_is_open(name) for name in names):
            self._survey()
        if "labels" in names and "labels" not in self.types:
            column = self.plan.source("labels")[0]
            first = self._first([column])
            self.types["labels"] = pa.int64() if first is None or _all_whole(first.column(column)) else pa.string()
        compared = self.plan.source("correct") if "correct" in names else []
        if len(compared) > 1 and "correct" not in self.types:
            self.types["correct"] = self._compared_type(compared)
        types = {}
        for name in names:
            for column in self.plan.source(name):
                types[column] = self.types.get(name) or (pa.bool_() if name == "correct" else pa.float64())
        row = 0
        for batch in self._batches(types):
            if batch.num_rows:
                yield converted(batch, self.plan, names, self.about, Where(f"{self.path}: ", row, self.place))
            row += batch.num_rows
        if not row:
            raise ValueError(f"{self.path}: no rows after the header line")

    def class_names(self) -> tuple[str, ...] | None:
        """The class names that the columns give; where that is open, the first labels tell."""
        if not self.plan.namings or "labels" not in self.plan.columns:
            return self.plan.class_names
        column = self.plan.source("labels")[0]
        first = self._first([column])
        if first is None or _all_whole(first.column(column)):
            return self.plan.class_names
        return self.plan.named_by(first_labels(first, column))

    def _compared_type(self, columns: list[str]) -> Any:
        """Numbers if both columns are, else text; numbers in one and none in the other would never agree."""
        first = self._first(columns)
        if first is None:
            return pa.float64()
        numbers = [[bool(NUMBER.fullmatch(text)) for text in first.column(c).unique().to_pylist()] for c in columns]
        for one, other, kinds in ((*numbers, "numbers and text"), (*numbers[::-1], "text and numbers")):
            if all(one) and not any(other):
                raise ValueError(f"{self.path}: predicted and labels must be alike to be compared, got {kinds}")
        return pa.float64() if all(map(all, numbers)) else pa.string()

    def _first(self, columns: list[str]) -> Any:
        """The first block of some columns as text, or None."""
        batches = self._batches(dict.fromkeys(columns, pa.string()))
        first = next(batches, None)
        batches.close()
        return first

    def _batches(self, types: dict[str, Any]) -> Generator[Any, None, None]:
        raw = {self.raw[column]: kind for column, kind in types.items()}
        convert = pacsv.ConvertOptions(
            column_types=raw, include_columns=list(raw), null_values=[], strings_can_be_null=False
        )
        with reading(self.path):
            try:
                with pacsv.open_csv(
                    self.path,
                    read_options=pacsv.ReadOptions(block_size=self.block),
                    parse_options=pacsv.ParseOptions(delimiter=_mark(self.path), newlines_in_values=True),
                    convert_options=convert,
                ) as reader:
                    yield from map(operator.methodcaller("rename_columns", list(types)), reader)
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
        place = {self.header.index(column): (column, kind) for column, kind in types.items()}
        for line, row in self._lines():
            if len(row) != len(self.header):
                return ValueError(f"{self.path}: line {line} has {len(row)} fields, expected {len(self.header)}")
            for i, (column, kind) in place.items():
                if not _fits(row[i], kind):
                    got = f"{row[i][:60]!r} in line {line}"
                    return ValueError(f"{self.path}: column {column!r} must be {EXPECTED[kind]}, got {got}")
        return None

    def _lines(self) -> Iterator[tuple[int, list[str]]]:
        """The rows after the header, each with the number of the line it starts in; empty lines are no rows."""
        with _opened(self.path) as file:
            rows = csv.reader(io.TextIOWrapper(file, "utf-8-sig", newline=""), delimiter=_mark(self.path))
            end, header = 0, True
            for row in rows:
                start, end = end + 1, rows.line_num
                if row and not header:
                    yield start, row
                header = header and not row


def _opened(path: str | Path) -> IO[bytes]:
    return gzip.open(path, "rb") if suffix_of(Path(path)).endswith(".gz") else open(path, "rb")  # type: ignore[return-value]


def _mark(path: str | Path) -> str:
    """What stands between columns."""
    return "\t" if suffix_of(Path(path)).startswith(".tsv") else ","


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
        plan = layout([name.strip() for name in header], asked, str(path), table=True)
    except ValueError as error:
        mark = next((mark for mark in ",;\t|" if len(header) == 1 and mark in header[0]), None)
        if mark is None:
            raise
        expected, hint = "tabs" if _mark(path) == "\t" else "commas", " (name it .tsv)" if mark == "\t" else ""
        raise ValueError(
            f"{path}: expected columns separated by {expected}, the header line has {mark!r}{hint}"
        ) from error
    columns = plan.columns[plan.holds]
    if isinstance(columns, str) and plan.holds != "confidence":
        hint = " (of two classes? add a column of 1 - p)" if plan.holds == "probabilities" else ""
        raise ValueError(
            f"{path}: {plan.holds} must be one column per class, {columns}_0, {columns}_1, ..., got {columns}{hint}"
        )
    # Arrow reads many blocks ahead, so that their size decides how much memory a pass takes.
    source = CsvSource(str(path), plan, header, min(1 << 30, max(1 << 18, 8 * length)))
    facts = asked.facts
    if plan.holds == "confidence":
        facts = {"split": facts.get("split")}
    elif "class_names" not in facts:
        facts = facts | {"class_names": source.class_names()}
    shape = (1,) if isinstance(columns, str) else (1, len(columns))
    source.about = about(plan.holds, np.dtype(np.float64), shape, **facts, head=f"{path}: ")
    return source


def _header(path: Path) -> tuple[list[str], int]:
    """The names in the header line, and its length in bytes."""
    with _opened(path) as file:
        start = file.read(HEAD)
    if not start.strip():
        raise ValueError(f"{path}: the file is empty")
    if b"\0" in start[:4096]:
        raise ValueError(f"{path}: expected text in UTF-8, got bytes that are none")
    lines = io.StringIO(start.decode("utf-8-sig", errors="replace"), newline="")
    rows = csv.reader(lines, delimiter=_mark(path))
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
