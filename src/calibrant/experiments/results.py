"""The numbers of a comparison: one table in long format, one row per number, as Parquet and CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from calibrant.base.files import written_aside

PARQUET, CSV = "results.parquet", "results.csv"


class ResultRow(NamedTuple):
    """One number, and what it measures.

    Attributes:
        run: key of the resolved recipe, which names the run's folder.
        method: its label in tables: ``"ce"``, ``"ls"``, ``"acls"``.
        settings: the searched and fixed settings of the method, as JSON with sorted keys.
        tuned_for: the metric that chose the settings, or ``""`` if nothing was tuned.
        stage: ``"search"`` (evaluated on held-out training data), ``"short"`` (the same, with shorter training: the
            first rounds of halving) or ``"final"``.
        seed: of the run.
        set: of the predictions: ``"val"``, ``"test"``, ``"context"``.
        posthoc: ``"none"``, ``"temperature"``, ``"logit-norm"``, or ``"abstention"``: the ranking by that output.
        parameter: the temperature, or p of the logit normalisation, negative if logits are not centred; NaN if there
            is none.
        metric: a name of `calibrant.metrics.METRICS`, with its setting if it has one: ``"ece_10"``.
        value: the number; NaN if it is undefined (overconfidence of a run without errors).
    """

    run: str
    method: str
    settings: str
    tuned_for: str
    stage: str
    seed: int
    set: str
    posthoc: str
    parameter: float
    metric: str
    value: float


_KINDS: dict[str, Any] = {"seed": int, "parameter": float, "value": float}
_TYPES = {str: pa.string(), int: pa.int64(), float: pa.float64()}
_SCHEMA = pa.schema(
    [(name, _TYPES[_KINDS.get(name, str)]) for name in ResultRow._fields], metadata={b"calibrant": b"results 1"}
)


@dataclass(frozen=True, init=False)
class Results:
    """Rows without duplicates: a repeated number is stored once, and an error if its value differs.

    Example:
        >>> from calibrant.experiments.results import Results, ResultRow
        >>> ece = lambda seed, value: ResultRow(
        ...     "0" * 16, "ls", "{}", "", "final", seed, "test", "none", float("nan"), "ece", value
        ... )
        >>> Results([ece(0, 0.02), ece(1, 0.03), ece(0, 0.02)]).by_seed(method="ls", metric="ece")
        {0: 0.02, 1: 0.03}
    """

    rows: tuple[ResultRow, ...]

    def __init__(self, rows: Iterable[ResultRow] = ()):
        distinct: dict[tuple[Any, ...], ResultRow] = {}
        for row in (_typed_row(row, "results") for row in rows):
            before = distinct.setdefault(row[:-1], row)
            if before != row:
                raise ValueError(
                    f"results hold two values for one number: {before.value!r} and {row.value!r} for {_describe(row)}"
                )
        object.__setattr__(self, "rows", tuple(distinct.values()))

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[ResultRow]:
        return iter(self.rows)

    def __add__(self, other: Results) -> Results:
        return Results((*self.rows, *other.rows)) if isinstance(other, Results) else NotImplemented

    def where(self, **conditions: Any) -> Results:
        """The rows whose columns have the given values; a tuple, list or set allows any of its elements."""
        tests = [(_index(name), _allowed(value)) for name, value in conditions.items()]
        return self._of(row for row in self.rows if all(row[index] in allowed for index, allowed in tests))

    def column(self, name: str) -> list[Any]:
        """Distinct values of a column, in order of appearance."""
        index = _index(name)
        return list(dict.fromkeys(row[index] for row in self.rows))

    def by_seed(self, **conditions: Any) -> dict[int, float]:
        """The value of every seed among the rows with the given values; an error if a seed has two."""
        rows: dict[int, ResultRow] = {}
        for row in self.where(**conditions):
            before = rows.setdefault(row.seed, row)
            if before is not row:
                pairs = list(zip(ResultRow._fields, before, row, strict=True))[:-1]
                values = "; ".join(f"{n} {a!r} and {b!r}" for n, a, b in pairs if a is not b and a != b)
                raise ValueError(f"seed {row.seed} has more than one {row.metric} of {row.method!r}: {values}")
        return {seed: row.value for seed, row in sorted(rows.items())}

    def save(self, folder: str | Path) -> None:
        """Write results.parquet and results.csv into a folder."""
        folder = Path(folder)
        with written_aside(folder / CSV) as aside, aside.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(ResultRow._fields)
            writer.writerows(["" if v != v else v for v in row] for row in self.rows)
        # Last: the one that is read back.
        with written_aside(folder / PARQUET) as aside:
            columns = list(zip(*self.rows, strict=True)) or [()] * len(ResultRow._fields)
            arrays = [pa.array(c, f.type) for c, f in zip(columns, _SCHEMA, strict=True)]
            pq.write_table(pa.Table.from_arrays(arrays, schema=_SCHEMA), aside)

    @classmethod
    def load(cls, path: str | Path) -> Results:
        """Read what `save` wrote: the folder, or either file."""
        path = Path(path)
        if path.is_dir():
            files = [path / name for name in (PARQUET, CSV) if (path / name).exists()]
            if not files:
                raise ValueError(f"{path}: the folder holds no results: neither {PARQUET} nor {CSV}")
            path = files[0]
        rows = _rows_of_csv(path) if path.suffix.lower() == ".csv" else _rows_of_parquet(path)
        try:
            return cls(rows)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    @classmethod
    def _of(cls, rows: Iterable[ResultRow]) -> Results:
        """Results from rows that are checked already."""
        self = object.__new__(cls)
        object.__setattr__(self, "rows", tuple(rows))
        return self


def _typed_row(values: Sequence[Any], location: str) -> ResultRow:
    """A row with Python's own types, and with the NaN object that equals itself in tuples."""
    if len(values) != len(ResultRow._fields):
        raise ValueError(f"a row of results has {len(ResultRow._fields)} columns, got {len(values)}: {values!r}")
    typed: list[Any] = []
    for name, value in zip(ResultRow._fields, values, strict=True):
        kind = _KINDS.get(name, str)
        if kind is str and not isinstance(value, str):
            raise ValueError(f"{location}: {name} must be text, got {value!r}")
        try:
            number = kind(value)
        except (TypeError, ValueError):
            raise ValueError(f"{location}: {name} must be a number, got {value!r}") from None
        typed.append(math.nan if number != number else number)
    return ResultRow(*typed)


def _describe(row: ResultRow) -> str:
    pairs = zip(ResultRow._fields[:-1], row[:-1], strict=True)
    return ", ".join(f"{name}={value!r}" for name, value in pairs if value not in ("", math.nan))


def _index(name: str) -> int:
    if name not in ResultRow._fields:
        raise ValueError(f"results have no column {name!r}; they have {', '.join(ResultRow._fields)}")
    return ResultRow._fields.index(name)


def _allowed(value: Any) -> tuple[Any, ...] | frozenset[Any]:
    values = value if isinstance(value, tuple | list | set | frozenset) else (value,)
    return frozenset(math.nan if v != v else v for v in values)


def _check_columns(names: Iterable[str], path: Path) -> None:
    absent = [name for name in ResultRow._fields if name not in set(names)]
    if absent:
        raise ValueError(f"{path}: not a file of results: no column {', '.join(absent)}")


def _rows_of_parquet(path: Path) -> Iterator[ResultRow]:
    try:
        with path.open("rb") as file:
            table = pq.read_table(file)
    except pa.ArrowException as error:
        raise ValueError(f"{path}: not a Parquet file, or only a part of one: {str(error).splitlines()[0]}") from error
    except OSError as error:
        if error.errno is not None:  # a file that is not there, or not ours to read
            raise
        raise ValueError(f"{path}: only a part of a Parquet file: {str(error).splitlines()[0]}") from error
    _check_columns(table.column_names, path)
    columns: list[list[Any]] = []
    for name in ResultRow._fields:
        values = table[name].to_pylist()
        columns.append([math.nan if v is None else v for v in values] if _KINDS.get(name) is float else values)
    yield from map(ResultRow, *columns)


def _rows_of_csv(path: Path) -> Iterator[ResultRow]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            text = file.read()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not a CSV file: its text is not UTF-8") from error
    if not text:
        raise ValueError(f"{path}: the file is empty")
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        head = next(reader)
        _check_columns(head, path)
        if not text.endswith("\n"):  # a number that was cut off would still be a number
            raise ValueError(f"{path}: the file ends in the middle of its last line")
        order = [(head.index(name), _KINDS.get(name) is float) for name in ResultRow._fields]
        for line in reader:
            if len(line) != len(head):
                raise ValueError(f"{path}: line {reader.line_num} has {len(line)} columns instead of {len(head)}")
            values = [math.nan if is_float and not line[at] else line[at] for at, is_float in order]
            yield _typed_row(values, f"{path}: line {reader.line_num}")
    except csv.Error as error:
        raise ValueError(f"{path}: line {reader.line_num} is not CSV: {error}") from error
