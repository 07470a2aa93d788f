"""The lines of a CSV file, read slowly: its header, and the line and field behind an error of Arrow's fast reader."""

from __future__ import annotations

import csv
import gzip
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from calibrant.predictions.expansion import check_start
from calibrant.predictions.hints import short
from calibrant.predictions.shards import suffix_of
from calibrant.predictions.stamps import DataFile
from calibrant.predictions.text import is_whole

HEAD = 1 << 22  # bytes in which the header line must end
SEARCHED = 1 << 24  # characters that are looked through for the line of an error
NUMBER = re.compile(r"\s*[-+]?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[-+]?[0-9]+)?|nan|inf(inity)?)\s*", re.IGNORECASE)
EXPECTED = {pa.bool_(): "true or false, or 0 or 1", pa.int64(): "a whole number", pa.float64(): "a number"}
_ARROW = re.compile(r"In CSV column #([0-9]+): .*?invalid value '(.*)'", re.DOTALL)


def is_gzip(path: str | Path) -> bool:
    """Whether a file is compressed."""
    return suffix_of(Path(path)).endswith(".gz")


def mark_of(path: str | Path) -> str:
    """What stands between columns."""
    return "\t" if suffix_of(Path(path)).startswith(".tsv") else ","


def read_header(handle: IO[bytes], path: Path, size: int) -> tuple[list[str], int]:
    """The names in the header line, and its length in bytes."""
    if is_gzip(path):
        check_start(handle, f"{path}: the file", size)
        handle.seek(0)
    start = _content(handle, path).read(HEAD)
    if not start.strip():
        raise ValueError(f"{path}: the file is empty")
    if b"\0" in start[:4096]:
        raise ValueError(f"{path}: expected text in UTF-8, got bytes that are none")
    text = io.StringIO(start.decode("utf-8-sig", errors="replace"), newline="")
    try:
        header = next((row for row in csv.reader(text, delimiter=mark_of(path)) if row), [])
    except csv.Error:
        raise ValueError(
            f"{path}: a name in the header line has more than {csv.field_size_limit():,} characters"
        ) from None
    if len(start) == HEAD and text.tell() >= len(text.getvalue()):
        raise ValueError(f"{path}: the header line does not end within {HEAD:,} bytes")
    return header, text.tell()


def lines(file: DataFile) -> Iterator[tuple[int, list[str]]]:
    """The rows after the header, each with the number of the line it starts in; empty lines are no rows."""
    with file.opened() as handle:
        text = io.TextIOWrapper(_content(handle, file.path), "utf-8-sig", errors="replace", newline="")
        rows = csv.reader(_first_lines(text), delimiter=mark_of(file.path))
        end, header = 0, True
        for row in rows:
            start, end = end + 1, rows.line_num
            if row and not header:
                yield start, row
            header = header and not row


def _first_lines(text: io.TextIOWrapper) -> Iterator[str]:
    """Lines up to `SEARCHED` characters altogether; a line that never ends is not read to its end."""
    left = SEARCHED
    while left > 0 and (line := text.readline(left)):
        left -= len(line)
        if left > 0:
            yield line


def explained(error: pa.ArrowException, file: DataFile, header: list[str], types: dict[str, Any]) -> Exception:
    """The error of Arrow's reader with the line that it is about, if that is not too far away."""
    place = {name: i for i, name in enumerate(header)}
    line = 1
    try:
        for line, row in lines(file):
            if len(row) != len(header):
                return ValueError(f"{file.path}: line {line} has {len(row)} fields, expected {len(header)}")
            for column, kind in types.items():
                if not _fits(row[place[column]], kind):
                    return _unfit(column, kind, row[place[column]], f" in line {line}", file)
    except csv.Error:
        limit = csv.field_size_limit()
        return ValueError(f"{file.path}: a field after line {line} has more than {limit:,} characters")
    match = _ARROW.search(str(error))
    if match and int(match[1]) < len(types):
        column, kind = list(types.items())[int(match[1])]
        return _unfit(column, kind, match[2], "", file)
    return error


def _unfit(column: str, kind: Any, text: str, where: str, file: DataFile) -> ValueError:
    expected = EXPECTED.get(kind, "text in UTF-8")
    return ValueError(f"{file.path}: column {short(column)!r} must be {expected}, got {short(text)!r}{where}")


def _fits(text: str, kind: Any) -> bool:
    if kind == pa.bool_():
        return text.lower() in ("0", "1", "true", "false")
    if kind == pa.int64():
        return is_whole(text) is not None
    return kind == pa.string() or NUMBER.fullmatch(text) is not None


def _content(handle: IO[bytes], path: str | Path) -> Any:
    return gzip.GzipFile(fileobj=handle) if is_gzip(path) else handle
