"""A cost matrix in a file, CSV or JSON: a row per label, a column per answer, named or in the order of the classes."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from calibrant._files import read_regular
from calibrant._validation import listing

LARGEST = 2**26  # bytes


def read_costs(path: Path, class_names: Sequence[str] | None) -> list[list[float]]:
    """The costs by label and answer, in the order of the classes.

    A CSV file may name the answers in its first row and the labels in its first column; then it names all of them, and
    they may be in any order. JSON is a list of rows.
    """
    if path.suffix.lower() not in (".csv", ".json"):
        raise ValueError(f"--costs {path}: a cost matrix is read from .csv or .json, got {path.suffix!r}")
    try:
        text = read_regular(path, LARGEST).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"--costs {path}: the file is not text in UTF-8") from None
    try:
        rows = json.loads(text) if path.suffix.lower() == ".json" else _order_by_names(text, class_names)
        return _numbers(rows)
    except (ValueError, RecursionError, csv.Error) as error:
        raise ValueError(f"--costs {path}: {error}") from None


def _order_by_names(text: str, class_names: Sequence[str] | None) -> list[list[str]]:
    rows = [[cell.strip() for cell in row] for row in csv.reader(text.splitlines()) if any(map(str.strip, row))]
    if not rows or _is_number(rows[0][-1]):
        return rows
    answers, labels = rows[0][1:], [row[0] for row in rows[1:]]
    names = list(class_names or map(str, range(len(answers))))
    for what, heads in (("answers in the first row", answers), ("labels in the first column", labels)):
        if sorted(heads) != sorted(names):
            raise ValueError(f"the {what} must be the classes {listing(names)}, each once")
    cells = {row[0]: dict(zip(answers, row[1:], strict=False)) for row in rows[1:]}
    return [[cells[label].get(answer, "") for answer in names] for label in names]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _numbers(rows: Any) -> list[list[float]]:
    if not isinstance(rows, list) or not rows or not all(isinstance(row, list) for row in rows):
        raise ValueError("a cost matrix must be a list of rows of numbers")
    if len({len(row) for row in rows}) > 1:
        raise ValueError("all rows of a cost matrix must have the same length")
    for row in rows:
        for cell in row:
            if isinstance(cell, bool) or not isinstance(cell, int | float | str) or not _is_number(str(cell)):
                raise ValueError(f"a cost must be a number, got {str(cell)[:40]!r}")
    return [[float(cell) for cell in row] for row in rows]
