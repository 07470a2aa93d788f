"""JSON lines: one object per line, ``{"logits": [1.5, -0.2], "label": 0}``; ``.ndjson`` too, and both with ``.gz``.

A field may hold an object, ``{"scores": {"cat": 0.9, "dog": 0.1}}``, or the list of a pipeline of Hugging Face,
``{"scores": [{"label": "cat", "score": 0.9}, ...]}``: they become the columns ``scores.cat`` and ``scores.dog``, of a
list in the order of their names.

The first line says which columns there are and what labels, ids and groups are, whole numbers or text; every other line
must be like it. Lines are parsed one by one, by the parser of all JSON here, and columns of them become those of a
table. Written with the data as a list, or as a number for confidences.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from calibrant.base.arrays import Array
from calibrant.base.checks import shorten
from calibrant.base.files import parse_json, written_aside
from calibrant.predictions.columns import ColumnMap, OpenOptions, match_columns
from calibrant.predictions.files import DataFile, check_expansion, file_errors, open_first
from calibrant.predictions.formats.tables import TableReader, check_rows, decompress, name_labels
from calibrant.predictions.samples import as_sample, rows_to_peek
from calibrant.predictions.schema import SPLIT, WEIGHT, Schema
from calibrant.predictions.stores import BATCH, Store
from calibrant.predictions.values import VERDICTS, verdict_of

LONGEST_LINE = 1 << 24  # bytes
PIECE = 1 << 16  # numbers that are converted at once, but of several lines, as columns have a cost of their own
LEAST_LINES = 8
#: What a column of a kind holds, in words and as a type of Arrow.
KINDS = {
    "number": ("a number", pa.float64()),
    "list": ("a list of numbers", pa.list_(pa.float64())),
    "whole": ("a whole number", pa.int64()),
    "text": ("text", pa.string()),
    "truth": ("true or false", pa.bool_()),
    "verdict": (VERDICTS, pa.bool_()),
}


class JsonLine(NamedTuple):
    """An object of a file, and the number of its line."""

    number: int
    fields: dict[str, Any]


class JsonlReader(TableReader):
    """A file of JSON lines of which the first has been read."""

    def __init__(self, file: DataFile, columns: ColumnMap, schema: Schema, kinds: dict[str, str]):
        self.types = {column: KINDS[kind][1] for column, kind in kinds.items()}
        super().__init__(file.path, columns, schema, None, pa.schema(self.types.items()))
        self.file, self.kinds = file, kinds

    def rows(self) -> int:
        """The number of samples, counted."""
        if self.count is None:
            with file_errors(self.path):
                self.count = sum(1 for _ in _read_lines(self.file))
        return self.count

    def name_row(self, row: int) -> str:
        """The line of a row, searched for again as this is only for errors."""
        line = next(itertools.islice(_read_lines(self.file), row, None), None)
        return super().name_row(row) if line is None else f"line {line.number}"

    def _batches(self, columns: list[str], rows: int) -> Iterator[Any]:
        rows = max(1, min(rows, max(LEAST_LINES, PIECE // max(1, self.schema.numbers))))
        lines = _read_lines(self.file)
        while part := list(itertools.islice(lines, rows)):
            values = {column: [self._value(line, column) for line in part] for column in columns}
            yield pa.record_batch({column: pa.array(values[column], self.types[column]) for column in columns})

    def _value(self, line: JsonLine, column: str) -> Any:
        """A field as its column has it, or an error that names the line."""
        if line.fields.get(column) is None:
            raise ValueError(f"{self.path}: column {shorten(column)!r} has no value in line {line.number}")
        value, kind = line.fields[column], self.kinds[column]
        if kind == "whole" and isinstance(value, float) and value.is_integer():
            value = int(value)
        match kind:  # true and false are no numbers
            case "number":
                fits = _is_number(value)
            case "whole":
                fits = type(value) is int and -(2**63) <= value < 2**63
            case "text":
                fits = isinstance(value, str)
            case "list":
                fits = isinstance(value, list) and (set(map(type, value)) == {float} or all(map(_is_number, value)))
            case "truth":
                fits = isinstance(value, bool)
            case _:
                fits = (verdict := verdict_of(value)) is not None
        if not fits:
            actual = f"{shorten(json.dumps(value))} in line {line.number}"
            raise ValueError(f"{self.path}: column {shorten(column)!r} must be {KINDS[kind][0]}, got {actual}")
        return verdict if kind == "verdict" else value


def open_file(path: Path, options: OpenOptions) -> JsonlReader:
    """Read the first line and find our columns."""
    with open_first(path) as (file, _):
        pass
    line = next(_read_lines(file), None)
    if line is None:
        raise ValueError(f"{path}: no line holds an object")

    def peek(names: Sequence[str]) -> dict[str, Array]:
        numbers = sum(len(value) if isinstance(value, list) else 1 for value in line.fields.values())
        lines = list(itertools.islice(_read_lines(file), rows_to_peek(numbers)))
        samples = {name: as_sample([line.fields.get(name) for line in lines]) for name in names}
        return {name: sample for name, sample in samples.items() if sample is not None}

    columns = match_columns(list(line.fields), options, str(path), table=True, peek=peek)
    kinds = {}
    for name in columns.columns:
        for column in columns.sources(name):
            kinds[column] = _kind(name, columns, line, column)
    sources = columns.sources(columns.holds)
    shape: tuple[int, ...] = (1, len(sources))
    if columns.is_single:
        shape = (1, len(line.fields[sources[0]])) if kinds[sources[0]] == "list" else (1,)
    columns, schema = columns.with_schema(np.dtype(np.float64), shape, {}, options, str(path))
    return JsonlReader(file, columns, schema, kinds)


def _is_number(value: Any) -> bool:
    """Whether a value is a number that float64 holds: not true or false, nor a whole number beyond its range."""
    return type(value) is float or (type(value) is int and abs(value) <= 2**53)


def _kind(name: str, columns: ColumnMap, line: JsonLine, column: str) -> str:
    """What a column holds, by its role and by the first line."""
    value = line.fields[column]
    if name == columns.holds:
        return "list" if isinstance(value, list) and columns.is_single and name != "confidence" else "number"
    if name in ("objectness", WEIGHT):
        return "number"
    if name == "correct" and not columns.compared:
        return "verdict"
    if name == "labels" and isinstance(value, list):
        return "list"
    return "truth" if isinstance(value, bool) else "text" if isinstance(value, str) else "whole"


def _read_lines(file: DataFile) -> Iterator[JsonLine]:
    """The objects of a file, in order; empty lines are none."""
    size = 0
    with file.opened() as handle:
        stream = decompress(handle, file.path)
        for number in itertools.count(1):
            text = stream.readline(LONGEST_LINE + 1)
            if not text:
                return
            size += len(text)
            if len(text) > LONGEST_LINE:
                raise ValueError(
                    f"{file.path}: a line must have at most {LONGEST_LINE:,} bytes, line {number} has more"
                )
            if stream is not handle:
                check_expansion(f"{file.path}: the file", size, file.stamp.size)
            text = text.removeprefix(b"\xef\xbb\xbf") if number == 1 else text
            if text.strip():
                yield JsonLine(number, _parse(text, number, file.path))


def _parse(text: bytes, number: int, path: str) -> dict[str, Any]:
    try:
        fields = parse_json(text, "an object in JSON")
    except ValueError as error:
        reason = str(error).removesuffix(" in line 1").removesuffix(" in line 2")
        raise ValueError(f"{path}: line {number} is {reason}") from None
    if not isinstance(fields, dict):
        example = ' such as {"scores": [...], "label": ...}' if isinstance(fields, list) else ""
        raise ValueError(f"{path}: line {number} must be an object{example}, got {shorten(json.dumps(fields))}")
    if not any(isinstance(value, dict) or _is_ranking(value) for value in fields.values()):
        return fields
    columns: dict[str, Any] = {}
    for name, value in fields.items():
        parts = sorted((str(entry["label"]), entry["score"]) for entry in value) if _is_ranking(value) else []
        if len(dict(parts)) < len(parts):
            raise ValueError(f"{path}: line {number} must give each label in {shorten(name)!r} one score, got several")
        parts = list(value.items()) if isinstance(value, dict) else parts
        columns |= {f"{name}.{part}": number for part, number in parts} if parts else {name: value}
    return columns


def _is_ranking(value: Any) -> bool:
    """Whether a field is the list of labels and scores that a pipeline of Hugging Face gives."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(entry, dict) and {"label", "score"} <= set(entry) for entry in value)
    )


def save(store: Store, path: Path) -> None:
    """Write the rows, block by block."""
    schema = store.schema
    check_rows(schema, path, "JSON lines")
    with written_aside(path) as aside, aside.open("w", encoding="utf-8") as file:
        for block in store.blocks(schema.rows(BATCH), store.names):
            block[schema.holds] = block[schema.holds].astype(np.float64)
            if schema.class_names is not None and "labels" in block:
                block["labels"] = name_labels(block["labels"], schema.class_names)
            for row in zip(*(array.tolist() for array in block.values()), strict=True):
                file.write(json.dumps(_fields(dict(zip(block, row, strict=True)), schema), allow_nan=False) + "\n")


def _fields(row: dict[str, Any], schema: Schema) -> dict[str, Any]:
    """A row with a field per class where classes have names, to keep these."""
    row = row if schema.split is None else row | {SPLIT: schema.split}
    if schema.class_names is None or schema.holds == "confidence":
        return row
    data = row.pop(schema.holds)
    return {f"{schema.holds}.{name}": value for name, value in zip(schema.class_names, data, strict=True)} | row
