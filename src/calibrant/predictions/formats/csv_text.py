"""A CSV file as text: its header line, how it is written, and its lines as an editor counts them; Python's reader."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from calibrant.predictions import paths
from calibrant.predictions.paths import DataFile, check_expansion, suffix_of

LOOKED_AT = 20  # lines that tell how numbers are written
NOT_UTF8 = "expected text in UTF-8, got other bytes: save the file as UTF-8"
MOST_HEADER = 1 << 22  # bytes in which the header line must end
SEARCHED = 1 << 24  # characters that are looked through for the line of an error
SAMPLE = 1 << 23  # bytes of a compressed file that are decompressed before anything else
is_decimal_comma = re.compile(r"\s*[-+]?[0-9]*,[0-9]+(e[-+]?[0-9]+)?\s*", re.IGNORECASE).fullmatch


class Dialect(NamedTuple):
    """How a file is written: what separates fields, and what stands before the decimals of a number."""

    delimiter: str = ","
    decimal_point: str = "."


def is_gzip(path: str | Path) -> bool:
    """Whether a file is compressed, by its name."""
    return suffix_of(Path(path)).endswith(".gz")


def _decompress(handle: IO[bytes], path: str | Path) -> Any:
    return gzip.GzipFile(fileobj=handle) if is_gzip(path) else handle


def read_header(handle: IO[bytes], path: Path, size: int) -> tuple[list[str], Dialect, int]:
    """The names in the header line, how the file is written, and the length of that line in bytes."""
    if is_gzip(path):
        _check_start(handle, f"{path}: the file", size)
        handle.seek(0)
    start = _decompress(handle, path).read(MOST_HEADER)
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
        limit = f"{csv.field_size_limit():,} characters"
        raise ValueError(f"{path}: a name in the header line has more than {limit}") from None
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
    return "," if any(is_decimal_comma(field) for row in rows for field in row) else "."


def _check_start(handle: IO[bytes], name: str, size: int) -> None:
    """Refuse a gzip file of ``size`` bytes whose first megabytes become far too large."""
    if size * paths.DEFLATE_RATIO <= paths.LEAST:
        return
    handle.seek(0)
    data, count = handle.read(SAMPLE), 0
    engine = zlib.decompressobj(31)
    while data:
        count += len(engine.decompress(data, 1 << 20))
        data = engine.unconsumed_tail
        if engine.eof:  # a file may have several parts, one after the other
            data, engine = engine.unused_data, zlib.decompressobj(31)
        check_expansion(name, count, min(size, SAMPLE))


def read_lines(file: DataFile, dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    """The rows after the header, each with the number of the line it starts in; empty lines are no rows."""
    with file.opened() as handle:
        text = io.TextIOWrapper(_decompress(handle, file.path), "utf-8-sig", errors="replace", newline="")
        rows = csv.reader(_first_lines(text), delimiter=dialect.delimiter)
        end, header = 0, True
        for row in rows:
            start, end = end + 1, rows.line_num
            if row and not header:
                yield start, row
            header = header and not row


def _first_lines(text: io.TextIOWrapper) -> Iterator[str]:
    """Lines up to `SEARCHED` characters altogether; a line that never ends is not read to its end."""
    remaining = SEARCHED
    while remaining > 0 and (line := text.readline(remaining)):
        remaining -= len(line)
        if remaining > 0:
            yield line
