"""CSV: comma-separated text with a header line, streamed by Arrow's reader; ``.tsv`` with tabs, ``.gz`` compressed.

Written with one column per class, ``logits_0`` or, with class names, ``logits.cat``; numbers so that they read back as
the same float64. Ids and groups are whole numbers if every row is one, else text: that, and the number of rows, takes
a pass over the file, made when it is first needed. Labels are what those of the first block are, unless the names of
classes leave it open: then all labels decide, in the same pass.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from calibrant._arrays import Array
from calibrant._files import written_aside
from calibrant.predictions.about import GROUP, About, about
from calibrant.predictions.columns import Layout, Request, layout
from calibrant.predictions.csvlines import explained, is_gzip, lines, mark_of, read_header
from calibrant.predictions.expansion import check_expansion
from calibrant.predictions.hints import short
from calibrant.predictions.labels import LabelCode, LabelValues, number_of
from calibrant.predictions.naming import codes_in, numbered
from calibrant.predictions.shards import BROKEN, reading
from calibrant.predictions.stamps import DataFile, native_path, pinned
from calibrant.predictions.store import BATCH, Store
from calibrant.predictions.tables import arrow_types, converted, different
from calibrant.predictions.text import WHOLE
from calibrant.predictions.where import Where, counted

LONGEST = 1 << 24  # bytes of a line
NUMBERS = r"(?i)^\s*[-+]?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[-+]?[0-9]+)?|nan|inf(inity)?)\s*$"  # for Arrow's expressions


class CsvSource:
    """A CSV file of which only the header line has been read."""

    about: About

    def __init__(self, file: DataFile, plan: Layout, header: list[str], block: int):
        self.file, self.path, self.plan, self.block = file, file.path, plan, block
        self.header = [name.strip() for name in header]
        self.raw = dict(zip(self.header, header, strict=True))
        self.names, self.naming = tuple(plan.columns), plan.naming
        self.count: int | None = None
        self.types: dict[str, Any] = {}
        self.code = LabelCode()
        self.labels: LabelValues | None = None  # the different ones, if they were looked at

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
        """The line of the file that a row starts in, as an editor counts it; for errors, so it raises none itself."""
        try:
            return next(f"line {line}" for number, (line, _) in enumerate(lines(self.file)) if number == row)
        except (StopIteration, *BROKEN):
            return counted(row)

    def mapped(self, name: str) -> None:
        """Text: nothing to map."""

    def pieces(self, names: Sequence[str], rows: int) -> Iterator[dict[str, Array]]:
        """Runs of rows as arrays."""
        with reading(self.path):
            compared = self.plan.source("correct") if "correct" in names else []
            if any(_is_open(name) for name in names) or len(compared) > 1:
                self._survey()
            if "labels" in names and "labels" not in self.types:
                column = self.plan.source("labels")[0]
                first = self._first([column])
                self.types["labels"] = pa.int64() if first is None or _all(first.column(column), WHOLE) else pa.string()
            types = {}
            for name in names:
                for column in self.plan.source(name):
                    types[column] = self.types.get(name) or (pa.bool_() if name == "correct" else pa.float64())
            row = 0
            for batch in self._batches(types):
                if batch.num_rows:
                    where = Where(f"{self.path}: ", row, self.place)
                    yield converted(batch, self.plan, names, self.about, self.code, where)
                row += batch.num_rows
            if not row:
                raise ValueError(f"{self.path}: no rows after the header line")

    def labels_matter(self) -> bool:
        """Whether all labels must be seen to know how they are read: several names may be meant, or some numbers."""
        mixed = self.naming.codes is not None and None in self.naming.codes
        return "labels" in self.names and (len(self.naming.options) > 1 or mixed)

    def label_values(self) -> LabelValues:
        """The different labels, numbers if all are whole numbers."""
        self._survey(labels=True)
        assert self.labels is not None
        return self.labels

    def compared_values(self) -> None:
        """Looked at in the survey."""

    def settle(self, code: LabelCode) -> None:
        """Take what was decided about labels."""
        self.about, self.code = replace(self.about, class_names=code.names), replace(code, numeric=False)
        if self.labels is not None:
            self.types["labels"] = pa.int64() if code.numeric else pa.string()

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
        with reading(self.path), self.file.opened() as handle:
            try:
                with (
                    pa.input_stream(native_path(handle, self.file), "gzip" if is_gzip(self.path) else None) as stream,
                    pacsv.open_csv(
                        stream,
                        read_options=pacsv.ReadOptions(block_size=self.block),
                        parse_options=pacsv.ParseOptions(delimiter=mark_of(self.path), newlines_in_values=True),
                        convert_options=convert,
                    ) as reader,
                ):
                    yield from self._bounded(map(operator.methodcaller("rename_columns", list(types)), reader))
            except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
                if "straddl" in str(error):
                    raise ValueError(f"{self.path}: a line must have at most {self.block:,} bytes") from error
                raise explained(error, self.file, self.header, types) from error

    def _bounded(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Refuse a compressed file that becomes far larger than it is; a field has a character and a mark, at least."""
        rows = 0
        for batch in batches:
            rows += batch.num_rows
            if is_gzip(self.path):
                check_expansion(f"{self.path}: the file", 2 * rows * len(self.header), self.file.stamp.size)
            yield batch

    def _survey(self, *, labels: bool = False) -> None:
        """Count the rows, see whether ids and groups are whole numbers, and what is compared; collect the labels."""
        if self.count is not None and not (labels and self.labels is None):
            return
        names = [name for name in self.names if _is_open(name)]
        columns = [self.plan.source(name)[0] for name in names]
        correct = self.plan.source("correct") if "correct" in self.names else []
        compared = correct if len(correct) > 1 else []
        label = self.plan.source("labels")[:1] if labels else []
        looks = {column: _Look() for column in [*columns, *compared]}
        values, count = LabelValues(), 0
        for batch in self._batches(dict.fromkeys([*looks, *label] or self.header[:1], pa.string())):
            count += batch.num_rows
            for column, look in looks.items():
                look.take(batch.column(column), numbers=column in compared)
            for column in label:
                values.add(different(batch, column, f"{self.path}: "))
        if not count:
            raise ValueError(f"{self.path}: no rows after the header line")
        self.count, self.labels = count, values if labels else self.labels
        self.types |= {n: pa.int64() if looks[c].whole else pa.string() for n, c in zip(names, columns, strict=True)}
        if compared:
            self.types["correct"] = _compared_type(looks[compared[0]], looks[compared[1]], self.path)


class _Look:
    """What the values of a column of text are, over all batches."""

    def __init__(self) -> None:
        self.whole, self.numbers, self.some_numbers = True, True, False

    def take(self, column: Any, *, numbers: bool) -> None:
        """Look at a batch; whether values are any numbers takes longer."""
        self.whole = self.whole and _all(column, WHOLE)
        if numbers:
            matches = pc.match_substring_regex(column, NUMBERS)
            self.numbers = self.numbers and bool(pc.all(matches, min_count=0).as_py())
            self.some_numbers = self.some_numbers or bool(pc.any(matches, min_count=0).as_py())


def _compared_type(predicted: _Look, labels: _Look, path: str) -> Any:
    """Numbers if both columns are, else text; numbers in one and none in the other would never agree."""
    for ours, theirs, kinds in ((predicted, labels, "numbers and text"), (labels, predicted, "text and numbers")):
        if ours.numbers and not theirs.some_numbers:
            raise ValueError(f"{path}: predicted and labels must be alike to be compared, got {kinds}")
    return (
        pa.int64()
        if predicted.whole and labels.whole
        else pa.float64()
        if predicted.numbers and labels.numbers
        else pa.string()
    )


def _is_open(name: str) -> bool:
    """Whether a column may be whole numbers or text, and every row must be looked at to know."""
    return name == "ids" or name.startswith(GROUP)


def _all(column: Any, expression: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(column, expression), min_count=0).as_py())


def open_file(path: Path, asked: Request) -> CsvSource:
    """Read the header line and find our columns."""
    with pinned(path) as (file, handle):
        header, length = read_header(handle, path, file.stamp.size)
    try:
        plan = layout([name.strip() for name in header], asked, str(path), table=True)
    except ValueError as error:
        mark = next((mark for mark in ",;\t|" if len(header) == 1 and mark in header[0]), None)
        if mark is None:
            raise
        expected, hint = "tabs" if mark_of(path) == "\t" else "commas", " (name it .tsv)" if mark == "\t" else ""
        raise ValueError(
            f"{path}: expected columns separated by {expected}, the header line has {mark!r}{hint}"
        ) from error
    columns = plan.columns[plan.holds]
    if isinstance(columns, str) and plan.holds != "confidence":
        hint = " (of two classes? add a column of 1 - p)" if plan.holds == "probabilities" else ""
        got = short(columns)
        raise ValueError(f"{path}: {plan.holds} must be one column per class, {got}_0, {got}_1, ..., got {got}{hint}")
    # Arrow reads many blocks ahead, so that their size decides how much memory a pass takes.
    source = CsvSource(file, plan, header, max(1 << 18, min(LONGEST, 8 * length)))
    facts = asked.facts | {"class_names": plan.naming.names}
    if plan.holds == "confidence":
        facts = {"split": facts.get("split")}
    shape = (1,) if isinstance(columns, str) else (1, len(columns))
    source.about = about(plan.holds, np.dtype(np.float64), shape, **facts, head=f"{path}: ")
    return source


def save(store: Store, path: Path) -> None:
    """Write the header and the rows, block by block."""
    known = store.about
    if known.kind == "segmentation":
        raise ValueError(f"{path}: images do not fit a CSV file: write .npz, .npy, .parquet or .safetensors")
    data = _class_columns(known, path)
    types = {column: pa.float64() for column in data}
    for name, kind in arrow_types(store).items():
        types[name] = pa.int64() if pa.types.is_boolean(kind) else pa.float64() if name == "objectness" else kind
    named = known.class_names if known.class_names and codes_in(known.class_names) else None
    if "labels" in store.names:
        types["labels"] = pa.int64() if named is None else pa.string()
    schema = pa.schema(types.items())
    rows = max(1, BATCH // max(1, known.numbers))
    with written_aside(path) as aside, pacsv.CSVWriter(aside, schema) as writer:
        for block in store.blocks(rows, store.names):
            values = block.pop(known.holds).astype(np.float64, copy=False).reshape(-1, len(data))
            columns = dict(zip(data, values.T, strict=True)) | block
            if named is not None and "labels" in columns:
                columns["labels"] = _named(columns["labels"], named)
            writer.write_batch(pa.record_batch([_arrow(columns[name], types[name]) for name in types], schema=schema))


def _class_columns(known: About, path: Path) -> list[str]:
    if known.num_classes is None:
        return [known.holds]
    if known.class_names is None:
        return [f"{known.holds}_{j}" for j in range(known.num_classes)]
    if numbered(known.class_names):
        numbers = [number_of(name) or 0 for name in known.class_names]
        if any(number >= other for number, other in itertools.pairwise(numbers)):
            count = len(numbers)
            order = f"be 0..{count - 1}" if sorted(numbers) == [*range(count)] else "be in ascending order"
            raise ValueError(f"{path}: in a CSV file class names that are numbers must {order}")
    return [f"{known.holds}.{name}" for name in known.class_names]


def _named(labels: Array, names: tuple[str, ...]) -> Array:
    """Labels by name, where numbers would be taken for names; what is no class stays a number."""
    levels, places = np.unique(labels, return_inverse=True)
    texts = [names[level] if 0 <= level < len(names) else str(level) for level in levels.tolist()]
    return np.array(texts, dtype=np.str_)[places]


def _arrow(array: Array, kind: Any) -> Any:
    return pa.array(np.ascontiguousarray(array), kind) if array.dtype.kind == "U" else pa.array(array).cast(kind)
