"""A table beside predictions, such as labels that came later: columns of text, read by the readers of predictions.

Nothing is guessed from what values look like: ``00012`` stays ``00012``. The limits are those of predictions: how long
a line may be, and how far a file may expand.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from calibrant.base.checks import listing, shorten
from calibrant.base.parquet import column_chunks
from calibrant.predictions.files import READ, check_expansion, file_errors, open_first, suffix_of
from calibrant.predictions.formats.tables import is_text
from calibrant.predictions.formats.text import CsvFile, read_objects

ROWS = 4096  # that are read at once
LEAST_ROW = 16  # bytes that a value takes, at least, once it is read

Texts = list[str | None]


def read_text_columns(path: str | Path, columns: Sequence[Sequence[str]]) -> Iterator[list[Texts]]:
    """Some rows at a time, the values of each column as text, None where there is none.

    ``columns`` are the names that each of them may have; the first of these is required to be whole numbers or text,
    the others may be floating point as well.
    """
    path = Path(path)
    kind = READ.get(suffix_of(path))
    if kind not in (".csv", ".jsonl", ".parquet"):
        raise ValueError(f"{path}: labels are read from .csv, .tsv, .jsonl or .parquet, got {suffix_of(path)!r}")
    read = {".csv": _read_csv, ".jsonl": _read_jsonl, ".parquet": _read_parquet}[kind]
    with file_errors(str(path)):
        yield from read(path, columns)


def _read_csv(path: Path, columns: Sequence[Sequence[str]]) -> Iterator[list[Texts]]:
    table = CsvFile.open(path)
    names = [_find(path, table.names, aliases) for aliases in columns]
    for batch in table.batches(dict.fromkeys(names, pa.string())):
        yield [[text or None for text in batch.column(name).to_pylist()] for name in names]


def _read_jsonl(path: Path, columns: Sequence[Sequence[str]]) -> Iterator[list[Texts]]:
    with open_first(path) as (file, _):
        pass
    lines = read_objects(file)
    first = next(lines, None)
    if first is None:
        raise ValueError(f"{path}: no line holds an object")
    names = [_find(path, list(first.fields), aliases) for aliases in columns]
    lines = itertools.chain([first], lines)
    while part := list(itertools.islice(lines, ROWS)):
        yield [[_text(path, name, line.fields.get(name), k > 0) for line in part] for k, name in enumerate(names)]


def _read_parquet(path: Path, columns: Sequence[Sequence[str]]) -> Iterator[list[Texts]]:
    with open_first(path) as (file, handle):
        arrow_schema = pq.read_schema(handle)
        names = [_find(path, arrow_schema.names, aliases) for aliases in columns]
        chunks = [chunk for chunk in column_chunks(handle) if chunk.path[:1] in [(name,) for name in names]]
        check_expansion(f"{path}: the table", sum(chunk.unpacked for chunk in chunks), file.stamp.size)
        # Runs of one value take next to no room in the file.
        check_expansion(f"{path}: the table", LEAST_ROW * sum(chunk.values for chunk in chunks), file.stamp.size)
        # A text that is repeated is kept once, as the file has it.
        texts = [name for name in names if is_text(arrow_schema.field(name).type)]
        with pq.ParquetFile(handle, read_dictionary=texts, page_checksum_verification=True) as parquet:
            for batch in parquet.iter_batches(batch_size=ROWS, columns=names):
                yield [
                    [_text(path, name, value, k > 0) for value in _values(batch.column(name))]
                    for k, name in enumerate(names)
                ]


def _values(column: Any) -> list[Any]:
    """The values of a column of Arrow's; equal texts are one object."""
    if not pa.types.is_dictionary(column.type):
        values: list[Any] = column.to_pylist()
        return values
    levels = column.dictionary.to_pylist()
    return [None if code is None else levels[code] for code in column.indices.to_pylist()]


def _text(path: Path, name: str, value: Any, takes_floats: bool) -> str | None:
    """A value as text: whole numbers as they are written, and a floating point number only if it is whole."""
    if value is None or isinstance(value, str):
        return value or None
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if takes_floats and isinstance(value, float):
        if math.isnan(value):
            return None
        if value.is_integer():
            return str(int(value))
    kind = f"{type(value).__name__} {shorten(str(value))}"
    raise ValueError(f"{path}: column {shorten(name)!r} must be text or whole numbers, got {kind}; save it as text")


def _find(path: Path, names: Sequence[str], aliases: Sequence[str]) -> str:
    matches = [name for name in names if name in aliases]
    if len(matches) != 1:
        expected = " or ".join(map(repr, aliases))
        raise ValueError(f"{path}: expected a column {expected}, and only one, got {listing(names, 5)}")
    return matches[0]
