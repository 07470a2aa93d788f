"""Tables of text: CSV with a header line, streamed by Arrow's reader, and JSON lines; both with ``.gz`` compressed.

**CSV**, ``.tsv`` with tabs. A header line without commas may have semicolons or tabs instead; with semicolons, numbers
may have decimal commas, as spreadsheets write them in some countries. Files are written with one column per class,
``logits_0`` or, with class names, ``logits.cat``; numbers are read back as the same float64. Ids and groups are whole
numbers if every row is one, else text: that, and the number of rows, takes a pass over the file when it is first
needed. The first block decides the type of labels, unless the class names leave it open: then all labels decide, in the
same pass. Python's reader reads the header line, and finds the line behind an error of Arrow's as an editor counts it.

**JSON lines**, one object per line, ``{"logits": [1.5, -0.2], "label": 0}``. A field may hold an object,
``{"scores": {"cat": 0.9, "dog": 0.1}}``, or the list of a pipeline of Hugging Face,
``{"scores": [{"label": "cat", "score": 0.9}, ...]}``: they become the columns ``scores.cat`` and ``scores.dog``, of a
list in the order of their names. The first line says which columns there are and what labels, ids and groups are, whole
numbers or text; every other line must be like it. Written with the data as a list, or as a number for confidences.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
import zlib
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from calibrant.base.arrays import WHOLE, Array, is_whole, map_levels
from calibrant.base.checks import shorten
from calibrant.base.files import parse_json, written_aside
from calibrant.base.spreadsheet import quote_formulas
from calibrant.predictions import files
from calibrant.predictions.files import BROKEN, DataFile, Reader, check_expansion, file_errors, open_first, suffix_of
from calibrant.predictions.formats.tables import TableReader, arrow_types, convert_batch, distinct_values
from calibrant.predictions.hints import LONGEST_SAMPLE, as_sample, rows_to_peek
from calibrant.predictions.labels import LabelDecoder, LabelValues
from calibrant.predictions.locations import Location, count_row, no_value
from calibrant.predictions.schema import (
    ACTUAL,
    GROUP,
    PREDICTED,
    SPLIT,
    UNITS,
    WEIGHT,
    ColumnMap,
    OpenOptions,
    Schema,
    are_unsigned,
    codes_of_columns,
    match_columns,
    number_of,
)
from calibrant.predictions.stores import BATCH, Store
from calibrant.predictions.values import VERDICTS, verdict_of

LONGEST_LINE = 1 << 24  # bytes
LOOKED_AT = 20  # lines that tell how numbers are written
NOT_UTF8 = "expected text in UTF-8, got other bytes: save the file as UTF-8"
MOST_HEADER = 1 << 22  # bytes in which the header line must end
SEARCHED = 1 << 24  # characters that are looked through for the line of an error
SAMPLE = 1 << 23  # bytes of a compressed file that are decompressed before anything else
NUMBER = r"\s*[-+]?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[-+]?[0-9]+)?|nan|inf(inity)?)\s*"
NUMBERS = f"(?i)^{NUMBER}$"  # for Arrow's expressions
WHOLE_FLOAT = r"^-?[0-9]{1,15}\.0*$"
EXPECTED = {pa.int64(): "a whole number", pa.float64(): "a number"}
_is_number = re.compile(NUMBER, re.IGNORECASE).fullmatch
_is_whole_float = re.compile(WHOLE_FLOAT).match
_is_decimal_comma = re.compile(r"\s*[-+]?[0-9]*,[0-9]+(e[-+]?[0-9]+)?\s*", re.IGNORECASE).fullmatch
_ARROW_ERROR = re.compile(r"In CSV column #([0-9]+): .*?invalid value '(.*)'", re.DOTALL)
JSON_PIECE = 1 << 16  # numbers that are converted at once, but of several lines, as columns have a cost of their own
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


def is_gzip(path: str | Path) -> bool:
    """Whether a file is compressed, by its name."""
    return suffix_of(Path(path)).endswith(".gz")


def decompress(handle: IO[bytes], path: str | Path) -> Any:
    """A stream of what a file holds, compressed or not."""
    if not is_gzip(path):
        return handle
    import gzip  # here, because few files are compressed

    return gzip.GzipFile(fileobj=handle)


def check_rows(schema: Schema, path: Path, title: str) -> None:
    """Refuse to write images or sequences in a format, called ``title``, that holds one sample per line."""
    if schema.kind != "classification":
        lists = ".parquet, " if schema.kind == "segmentation" else ""
        raise ValueError(f"{path}: {UNITS[schema.kind][0]} do not fit {title}: write {lists}.npz, .npy or .safetensors")


def name_labels(labels: Array, names: Sequence[str]) -> Array:
    """Labels by name, to be written; a label that is no class stays a number."""
    return map_levels(labels, lambda label: names[label] if 0 <= label < len(names) else str(label), np.str_)


# ---- CSV ------------------------------------------------------------------------------------------------------------
class Dialect(NamedTuple):
    """How a file is written: what separates fields, and what stands before the decimals of a number."""

    delimiter: str = ","
    decimal_point: str = "."


@dataclass(frozen=True)
class CsvFile:
    """A CSV file of which the header line has been read; ``block`` is the number of bytes to read at a time."""

    file: DataFile
    header: list[str]
    dialect: Dialect
    block: int

    @classmethod
    def open(cls, path: Path) -> CsvFile:
        """Read the header line."""
        with open_first(path) as (file, handle):
            header, dialect, length = _read_header(handle, path, file.stamp.size)
        # Arrow reads many blocks ahead, so that their size decides how much memory a pass takes.
        return cls(file, header, dialect, max(1 << 18, min(LONGEST_LINE, 8 * length)))

    @property
    def path(self) -> str:
        """The path of the file."""
        return self.file.path

    @property
    def names(self) -> list[str]:
        """The columns, without spaces around their names."""
        return [name.strip() for name in self.header]

    def lines(self) -> Iterator[tuple[int, list[str]]]:
        """The rows after the header, each with the number of the line it starts in; empty lines are no rows."""
        with self.file.opened() as handle:
            text = io.TextIOWrapper(decompress(handle, self.path), "utf-8-sig", errors="replace", newline="")
            rows = csv.reader(_first_lines(text), delimiter=self.dialect.delimiter)
            end, header = 0, True
            for row in rows:
                start, end = end + 1, rows.line_num
                if row and not header:
                    yield start, row
                header = header and not row

    def name_row(self, row: int) -> str:
        """The line of the file that a row starts in, as an editor counts it; for errors, so it never raises."""
        try:
            line, _ = next(itertools.islice(self.lines(), row, None))
            return f"line {line}"
        except (StopIteration, *BROKEN):
            return count_row(row)

    def sample(self, wanted: Sequence[str]) -> dict[str, Array]:
        """The first values of columns."""
        names = self.names
        lines = itertools.islice(self.lines(), rows_to_peek(len(names)))
        rows = [row for _, row in lines if len(row) == len(names)]
        fields = dict(zip(names, zip(*rows, strict=True), strict=True)) if rows else {}
        return {name: _parse_fields(fields[name], self.dialect) for name in wanted if name in fields}

    def batches(self, types: dict[str, Any]) -> Generator[Any, None, None]:
        """Record batches of some columns, each of a type of Arrow."""
        raw_names = dict(zip(self.names, self.header, strict=True))
        raw = {raw_names[column]: kind for column, kind in types.items()}
        delimiter, point = self.dialect
        read = pacsv.ReadOptions(block_size=self.block)
        parse = pacsv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
        convert = pacsv.ConvertOptions(column_types=raw, include_columns=list(raw), null_values=[], decimal_point=point)
        with file_errors(self.path), self.file.opened() as handle:
            try:
                with (
                    pa.input_stream(self.file.native_path(handle), "gzip" if is_gzip(self.path) else None) as stream,
                    pacsv.open_csv(stream, read, parse, convert) as reader,
                ):
                    rows = 0
                    for batch in reader:
                        rows += batch.num_rows
                        if is_gzip(self.path):  # a field has a character and a mark, at least
                            check_expansion(f"{self.path}: the file", 2 * rows * len(self.names), self.file.stamp.size)
                        yield batch.rename_columns(list(types))
            except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
                if "straddl" in str(error):
                    raise ValueError(f"{self.path}: a line must have at most {self.block:,} bytes") from error
                raise self._explain(error, types) from error

    def _explain(self, error: pa.ArrowException, types: dict[str, Any]) -> Exception:
        """The error of Arrow's reader with the line that it is about, if that is not too far away."""
        index = {name: i for i, name in enumerate(self.names)}
        line = 1
        if "UTF8" in str(error):
            return ValueError(f"{self.path}: {NOT_UTF8}")
        try:
            for line, row in self.lines():
                fields, expected = len(row), len(self.names)
                if fields != expected:
                    at_end = fields == expected + 1 and not row[-1]
                    hint = f" (does every line end in {self.dialect.delimiter!r}?)" if at_end else ""
                    return ValueError(f"{self.path}: line {line} has {fields} fields, expected {expected}{hint}")
                for column, kind in types.items():
                    if not self._fits(row[index[column]], kind):
                        return _field_error(column, kind, row[index[column]], f" in line {line}", self.file)
        except csv.Error:
            limit = csv.field_size_limit()
            return ValueError(f"{self.path}: a field after line {line} has more than {limit:,} characters")
        match = _ARROW_ERROR.search(str(error))
        if match and int(match[1]) < len(types):
            column, kind = list(types.items())[int(match[1])]
            return _field_error(column, kind, match[2], "", self.file)
        return error

    def _fits(self, text: str, kind: Any) -> bool:
        if kind == pa.int64():
            return is_whole(text) is not None
        return kind == pa.string() or _is_number(text.replace(self.dialect.decimal_point, ".")) is not None


def _read_header(handle: IO[bytes], path: Path, size: int) -> tuple[list[str], Dialect, int]:
    """The names in the header line, how the file is written, and the length of that line in bytes."""
    if is_gzip(path):
        _check_start(handle, f"{path}: the file", size)
        handle.seek(0)
    start = decompress(handle, path).read(MOST_HEADER)
    if not start.strip():
        raise ValueError(f"{path}: the file is empty")
    if b"\0" in start[:4096]:
        raise ValueError(f"{path}: {NOT_UTF8}")
    decoded = start.decode("utf-8-sig", errors="replace")
    text = io.StringIO(decoded, newline="")
    try:
        delimiter = _delimiter(decoded, path)
        header = next((row for row in csv.reader(text, delimiter=delimiter) if row), [])
    except csv.Error:
        limit = csv.field_size_limit()
        raise ValueError(f"{path}: a name in the header line has more than {limit:,} characters") from None
    if len(start) == MOST_HEADER and text.tell() >= len(text.getvalue()):
        raise ValueError(f"{path}: the header line does not end within {MOST_HEADER:,} bytes")
    return header, Dialect(delimiter, _decimal_point(decoded, delimiter)), text.tell()


def _delimiter(text: str, path: Path) -> str:
    """What separates fields: tabs in a .tsv file, else commas, or what a header line without commas has."""
    if suffix_of(path).startswith(".tsv"):
        return "\t"
    fields = next((row for row in csv.reader(io.StringIO(text, newline="")) if row), [])
    return next((mark for mark in ";\t|" if len(fields) == 1 and mark in fields[0]), ",")


def _decimal_point(text: str, delimiter: str) -> str:
    """A comma where it does not separate fields and a number of the first lines has one, else a point."""
    if delimiter == ",":
        return "."
    rows = itertools.islice(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), 1, LOOKED_AT)
    return "," if any(_is_decimal_comma(field) for row in rows for field in row) else "."


def _check_start(handle: IO[bytes], name: str, size: int) -> None:
    """Refuse a gzip file of ``size`` bytes whose first megabytes become far too large."""
    if size * files.DEFLATE_RATIO <= files.LEAST:
        return
    data, count = handle.read(SAMPLE), 0
    engine = zlib.decompressobj(31)
    while data:
        count += len(engine.decompress(data, 1 << 20))
        data = engine.unconsumed_tail
        if engine.eof:  # a file may have several parts, one after the other
            data, engine = engine.unused_data, zlib.decompressobj(31)
        check_expansion(name, count, min(size, SAMPLE))


def _first_lines(text: io.TextIOWrapper) -> Iterator[str]:
    """Lines up to `SEARCHED` characters altogether; a line that never ends is not read to its end."""
    remaining = SEARCHED
    while remaining > 0 and (line := text.readline(remaining)):
        remaining -= len(line)
        if remaining > 0:
            yield line


def _parse_fields(texts: Sequence[str], dialect: Dialect) -> Array:
    """The fields of a column as numbers if all that are not empty are some, else as text."""
    stripped = [text.strip().replace(dialect.decimal_point, ".") for text in texts]
    if not any(stripped) or not all(_is_number(text) for text in stripped if text):
        return np.array([text[:LONGEST_SAMPLE] for text in texts])
    is_int = all(is_whole(text) for text in stripped if text)
    sample = as_sample([(int(text) if is_int else float(text)) if text else None for text in stripped])
    assert sample is not None
    return sample


def _field_error(column: str, kind: Any, text: str, location: str, file: DataFile) -> ValueError:
    if not text.strip():
        return ValueError(f"{file.path}: {no_value(f'column {shorten(column)!r}', location.removeprefix(' in '))}")
    expected = EXPECTED.get(kind, "text in UTF-8")
    if kind == pa.float64() and text.rstrip().endswith("%"):
        location += " (percentages? leave out the % and divide by 100)"
    if kind == pa.float64() and _is_decimal_comma(text):
        location += " (a decimal comma? write 0.5, or separate columns by semicolons)"
    return ValueError(f"{file.path}: column {shorten(column)!r} must be {expected}, got {shorten(text)!r}{location}")


class CsvReader(Reader):
    """Predictions in a CSV file, whose types are seen when they are needed."""

    def __init__(self, table: CsvFile, columns: ColumnMap, schema: Schema):
        super().__init__(table.path, columns, schema, None)
        self.table = table
        self.types: dict[str, Any] = {}
        self.labels: LabelValues | None = None  # the different ones, once collected

    def name_row(self, row: int) -> str:
        """The line of the file that a row starts in."""
        return self.table.name_row(row)

    def rows(self) -> int:
        """The number of samples, counted."""
        self._survey()
        return self.count or 0

    def pieces(self, names: Sequence[str], rows: int) -> Iterator[dict[str, Array]]:
        """Runs of rows as arrays."""
        with file_errors(self.path):
            if any(map(_is_whole_or_text, names)) or ("correct" in names and self.columns.compared):
                self._survey()
            if "labels" in names and "labels" not in self.types:
                self.types["labels"] = self._first_label_type()
            types, defaults = {}, {"correct": pa.string(), SPLIT: pa.string()}
            for name in names:
                for column in self.columns.sources(name):
                    types[column] = self.types.get(name) or defaults.get(name, pa.float64())
            row = 0
            for batch in self.table.batches(types):
                if batch.num_rows:
                    yield convert_batch(batch, self, names, Location(f"{self.path}: ", row, self.name_row))
                row += batch.num_rows
            if not row:
                raise ValueError(f"{self.path}: no rows after the header line")

    def _first_label_type(self) -> Any:
        """What the labels of the first block are."""
        column = self.columns.sources("labels")[0]
        batches = self.table.batches({column: pa.string()})
        batch = next(batches, None)
        batches.close()
        if batch is None or _all_match(batch.column(column), WHOLE):
            return pa.int64()
        return pa.float64() if _all_match(batch.column(column), WHOLE_FLOAT) else pa.string()

    def needs_labels(self) -> bool:
        """Whether all labels must be seen to know how they are read: several names may be meant, or some numbers."""
        mixed = self.naming.codes is not None and None in self.naming.codes
        return "labels" in self.names and (self.columns.one_column or len(self.naming.spellings) > 1 or mixed)

    def label_values(self) -> LabelValues:
        """The different labels, numbers if all are whole numbers."""
        self._survey(labels=True)
        assert self.labels is not None
        return self.labels

    def set_decoder(self, decoder: LabelDecoder) -> None:
        """Use a decoder for the labels from now on; numbers are then read as numbers."""
        super().set_decoder(replace(decoder, numeric=False))
        if self.labels is not None:
            kind = pa.int64() if decoder.numeric else pa.string()
            self.types["labels"] = pa.float64() if self.labels.numbers else kind

    def _survey(self, *, labels: bool = False) -> None:
        """Count the rows, see whether ids and groups are whole numbers, and what is compared; collect the labels."""
        if self.count is not None and not (labels and self.labels is None):
            return
        names = {name: self.columns.sources(name)[0] for name in self.names if _is_whole_or_text(name)}
        compared = self.columns.compared
        label = self.columns.sources("labels")[:1] if labels else []
        surveys = {column: _Survey() for column in [*names.values(), *compared]}
        values, count = LabelValues(), 0
        for batch in self.table.batches(dict.fromkeys([*surveys, *label] or self.table.names[:1], pa.string())):
            count += batch.num_rows
            for column, survey in surveys.items():
                survey.add(batch.column(column), numbers=column in compared)
            for column in label:
                values.add(distinct_values(batch, column, f"{self.path}: "))
        if "" in values.texts:
            index = self.table.names.index(label[0])
            at = next((f"line {line}" for line, row in self.table.lines() if not row[index]), "some line")
            raise ValueError(f"{self.path}: {no_value(self.columns.title('labels'), at)}")
        if not count:
            raise ValueError(f"{self.path}: no rows after the header line")
        class_names = set[str]().union(*self.naming.spellings)
        if values.texts and not values.texts <= class_names and all(map(_is_whole_float, values.texts)):
            values = LabelValues({int(float(text)) for text in values.texts})
        self.count, self.labels = count, values if labels else self.labels
        self.types |= {name: pa.int64() if surveys[column].all_whole else pa.string() for name, column in names.items()}
        if compared:
            self.types["correct"] = _compared_type(surveys[compared[0]], surveys[compared[1]], self.path)
            self.types[PREDICTED] = self.types[ACTUAL] = self.types["correct"]


@dataclass
class _Survey:
    """What the values of a column of text are, over all batches."""

    all_whole: bool = True
    all_numbers: bool = True
    any_numbers: bool = False

    def add(self, column: Any, *, numbers: bool) -> None:
        """Take a batch into account; ``numbers`` also checks for numbers of any kind, which takes longer."""
        self.all_whole = self.all_whole and _all_match(column, WHOLE)
        if numbers:
            matches = pc.match_substring_regex(column, NUMBERS)
            self.all_numbers = self.all_numbers and bool(pc.all(matches, min_count=0).as_py())
            self.any_numbers = self.any_numbers or bool(pc.any(matches, min_count=0).as_py())


def _compared_type(predicted: _Survey, labels: _Survey, path: str) -> Any:
    """Numbers if both columns are, else text; numbers in one and none in the other would never agree."""
    for side, opposite, kinds in ((predicted, labels, "numbers and text"), (labels, predicted, "text and numbers")):
        if side.all_numbers and not opposite.any_numbers:
            raise ValueError(f"{path}: predicted and labels must be alike to be compared, got {kinds}")
    if predicted.all_whole and labels.all_whole:
        return pa.int64()
    return pa.float64() if predicted.all_numbers and labels.all_numbers else pa.string()


def _is_whole_or_text(name: str) -> bool:
    """Whether a column may be whole numbers or text, which only all rows can tell."""
    return name in ("ids", PREDICTED, ACTUAL) or name.startswith(GROUP)


def _all_match(column: Any, expression: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(column, expression), min_count=0).as_py())


def open_csv(path: Path, options: OpenOptions) -> CsvReader:
    """Read the header line and find our columns."""
    table = CsvFile.open(path)
    columns = match_columns(table.names, options, str(path), table=True, peek=table.sample)
    shape = (1,) if columns.is_single else (1, len(columns.sources(columns.holds)))
    columns, schema = columns.with_schema(np.dtype(np.float64), shape, {}, options, str(path))
    return CsvReader(table, columns, schema)


def save_csv(store: Store, path: Path, *, spreadsheet_safe: bool = False) -> None:
    """Write the header and the rows, block by block."""
    schema = store.schema
    check_rows(schema, path, "a CSV file")
    data = _data_columns(schema, path)
    types = {column: pa.float64() for column in data}
    for name, kind in arrow_types(store).items():
        types[name] = pa.int64() if pa.types.is_boolean(kind) else pa.float64() if name == "objectness" else kind
    # Labels are written by name where numbers would be taken for names.
    names = schema.class_names if schema.class_names and codes_of_columns(schema.class_names) else None
    if "labels" in store.names:
        types["labels"] = pa.int64() if names is None else pa.string()
    if schema.split is not None:
        types[SPLIT] = pa.string()
    arrow_schema = pa.schema(types.items())
    with written_aside(path) as aside, pacsv.CSVWriter(aside, arrow_schema) as writer:
        for block in store.blocks(schema.rows(BATCH), store.names):
            values = block.pop(schema.holds).astype(np.float64, copy=False).reshape(-1, len(data))
            columns = dict(zip(data, values.T, strict=True)) | block
            if names is not None and "labels" in columns:
                columns["labels"] = name_labels(columns["labels"], names)
            columns[SPLIT] = np.full(len(values), schema.split or "")
            arrays = [pa.array(np.ascontiguousarray(columns[name])).cast(kind) for name, kind in types.items()]
            batch = pa.record_batch(arrays, schema=arrow_schema)
            writer.write_batch(quote_formulas(batch) if spreadsheet_safe else batch)


def _data_columns(schema: Schema, path: Path) -> list[str]:
    if schema.num_classes is None:
        return [schema.holds]
    if schema.class_names is None:
        return [f"{schema.holds}_{j}" for j in range(schema.num_classes)]
    if are_unsigned(schema.class_names):
        numbers = [number_of(name) or 0 for name in schema.class_names]
        if any(number >= following for number, following in itertools.pairwise(numbers)):
            count = len(numbers)
            order = f"be 0..{count - 1}" if sorted(numbers) == [*range(count)] else "be in ascending order"
            raise ValueError(f"{path}: in a CSV file class names that are numbers must {order}")
    return [f"{schema.holds}.{name}" for name in schema.class_names]


# ---- JSON lines -----------------------------------------------------------------------------------------------------
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
                self.count = sum(1 for _ in read_objects(self.file))
        return self.count

    def name_row(self, row: int) -> str:
        """The line of a row, searched for again as this is only for errors."""
        line = next(itertools.islice(read_objects(self.file), row, None), None)
        return super().name_row(row) if line is None else f"line {line.number}"

    def _batches(self, columns: list[str], rows: int) -> Iterator[Any]:
        rows = max(1, min(rows, max(LEAST_LINES, JSON_PIECE // max(1, self.schema.numbers))))
        lines = read_objects(self.file)
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
                fits = _is_json_number(value)
            case "whole":
                fits = type(value) is int and -(2**63) <= value < 2**63
            case "text":
                fits = isinstance(value, str)
            case "list":
                fits = isinstance(value, list) and (
                    set(map(type, value)) == {float} or all(map(_is_json_number, value))
                )
            case "truth":
                fits = isinstance(value, bool)
            case _:
                fits = (verdict := verdict_of(value)) is not None
        if not fits:
            actual = f"{shorten(json.dumps(value))} in line {line.number}"
            raise ValueError(f"{self.path}: column {shorten(column)!r} must be {KINDS[kind][0]}, got {actual}")
        return verdict if kind == "verdict" else value


def open_jsonl(path: Path, options: OpenOptions) -> JsonlReader:
    """Read the first line and find our columns."""
    with open_first(path) as (file, _):
        pass
    line = next(read_objects(file), None)
    if line is None:
        raise ValueError(f"{path}: no line holds an object")

    def peek(names: Sequence[str]) -> dict[str, Array]:
        numbers = sum(len(value) if isinstance(value, list) else 1 for value in line.fields.values())
        lines = list(itertools.islice(read_objects(file), rows_to_peek(numbers)))
        samples = {name: as_sample([line.fields.get(name) for line in lines]) for name in names}
        return {name: sample for name, sample in samples.items() if sample is not None}

    columns = match_columns(list(line.fields), options, str(path), table=True, peek=peek)
    kinds = {}
    for name in columns.columns:
        for column in columns.sources(name):
            kinds[column] = _kind_of(name, columns, line, column)
    sources = columns.sources(columns.holds)
    shape: tuple[int, ...] = (1, len(sources))
    if columns.is_single:
        shape = (1, len(line.fields[sources[0]])) if kinds[sources[0]] == "list" else (1,)
    columns, schema = columns.with_schema(np.dtype(np.float64), shape, {}, options, str(path))
    return JsonlReader(file, columns, schema, kinds)


def _is_json_number(value: Any) -> bool:
    """Whether a value is a number that float64 holds: not true or false, nor a whole number beyond its range."""
    return type(value) is float or (type(value) is int and abs(value) <= 2**53)


def _kind_of(name: str, columns: ColumnMap, line: JsonLine, column: str) -> str:
    """What a column holds, by its role and by the first line."""
    value = line.fields[column]
    if name == columns.holds:
        return "list" if isinstance(value, list) and columns.is_single and columns.data.has_classes else "number"
    if name in ("objectness", WEIGHT):
        return "number"
    if name == "correct" and not columns.compared:
        return "verdict"
    if name == "labels" and isinstance(value, list):
        return "list"
    return "truth" if isinstance(value, bool) else "text" if isinstance(value, str) else "whole"


def read_objects(file: DataFile) -> Iterator[JsonLine]:
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
                yield JsonLine(number, _parse_object(text, number, file.path))


def _parse_object(text: bytes, number: int, path: str) -> dict[str, Any]:
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


def save_jsonl(store: Store, path: Path) -> None:
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
    if schema.class_names is None or not schema.data.has_classes:
        return row
    data = row.pop(schema.holds)
    return {f"{schema.holds}.{name}": value for name, value in zip(schema.class_names, data, strict=True)} | row
