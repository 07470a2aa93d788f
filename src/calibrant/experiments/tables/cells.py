"""The parts of a table of results, and how their numbers are printed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from calibrant.base.numbers import fixed
from calibrant.metrics import describe
from calibrant.report import typeset
from calibrant.training import REPAIRS

Kind = Literal["value", "rank", "paper", "ours", "difference", "interval", "p", "wins"]

_ARROWS = {"low": "↓", "high": "↑", "none": ""}
#: The note about the marks of `mark_best`.
BEST = "Best in bold, second underlined."
_KIND_HEADS = {
    "paper": "Paper",
    "ours": "Ours",
    "difference": "Difference",
    "interval": "95% interval",
    "wins": "Better in",
}


class Column(NamedTuple):
    """One column of a table: a metric on a set of predictions.

    Attributes:
        metric: as in `ResultRow`.
        set: which predictions.
        posthoc: their repair.
        title: the head, instead of the metric's name.
        kind: what the cells are: values of the metric, average ranks by it, or one side of a comparison.
        direction: which end is better, if it differs from the metric's: ``"low"``, ``"high"`` or ``"none"``.
        unit: ``"share"`` or ``"number"``, if it differs from the metric's.
    """

    metric: str
    set: str = "test"
    posthoc: str = "none"
    title: str | None = None
    kind: Kind = "value"
    direction: str | None = None
    unit: str = ""

    @property
    def better(self) -> str:
        """``"low"``, ``"high"`` or ``"none"``, for what the cells hold."""
        if self.kind != "value":
            return "low" if self.kind == "rank" else "none"
        return self.direction or describe(self.metric).better

    @property
    def is_share(self) -> bool:
        """Whether values are printed in percent."""
        if self.unit or not self.metric:
            return self.unit == "share"
        return self.kind != "rank" and describe(self.metric).unit == "share"

    @property
    def name(self) -> str:
        """The head without unit and direction."""
        if self.title is not None:
            return self.title
        if self.kind in _KIND_HEADS:
            return _KIND_HEADS[self.kind]
        of_set = "" if self.set == "test" else f", {self.set}"
        return describe(self.metric).label + of_set + ("" if self.posthoc == "none" else f" + {self.posthoc}")

    @property
    def head(self) -> str:
        """Name, unit and direction: ``"ECE (%) ↓"``."""
        return " ".join(filter(None, (self.name, "(%)" if self.is_share else "", _ARROWS[self.better])))


class TableCell(NamedTuple):
    """One method in one column.

    Attributes:
        mean: over seeds; of an average rank, over rankings; NaN if there are no runs.
        std: with N - 1 in the denominator; NaN for one run.
        runs: number of runs.
        best: whether no other cell of the column is better, as printed.
        second: whether only the best are better.
        change: ``"better"`` or ``"worse"`` than the reference beyond chance, else ``""``.
        high: the upper end of an interval, whose lower end is the mean.
        remark: printed in brackets after the number: the temperature of a repair.
    """

    mean: float
    std: float
    runs: int
    best: bool = False
    second: bool = False
    change: str = ""
    high: float = math.nan
    remark: str = ""


#: The cell of a method without numbers.
NOTHING = TableCell(math.nan, math.nan, 0)


class Line(NamedTuple):
    """One row of a table: of a method, or of one metric of it where ``metric`` is given."""

    method: str
    tuned_for: str
    cells: tuple[TableCell | None, ...]
    set: str = ""
    metric: str = ""
    note: str = ""


@dataclass(frozen=True)
class Table:
    """A table to be printed by `markdown`, `latex`, `csv`, `html` or `text`; cells without a number are None."""

    title: str
    note: str
    columns: tuple[Column, ...]
    rows: tuple[Line, ...]

    def usual_runs(self, k: int) -> int:
        """The number of runs of the cells of a column that do not print their own.

        For values it is the most common number in the table, for average ranks the largest of the column.
        """
        if self.columns[k].kind == "rank":
            return max((cell.runs for line in self.rows if (cell := line.cells[k]) is not None), default=0)
        kinds = [column.kind in ("value", "ours") for column in self.columns]
        cells = (c for line in self.rows for c, counts in zip(line.cells, kinds, strict=True) if counts)
        return usual_count(cell.runs for cell in cells if cell is not None)


def usual_count(counts: Iterable[int]) -> int:
    """The most common count above 0, and the largest of equally common ones; 0 if there is none."""
    counted = Counter(filter(None, counts))
    return max(counted, key=lambda n: (counted[n], n), default=0)


def column_of(column: Column | str) -> Column:
    """A column, given as such or as a metric on the test set; the metric must exist."""
    column = Column(column) if isinstance(column, str) else column
    describe(column.metric)
    return column


def parse_column(text: str) -> Column:
    """A column as recipes write it: ``metric``, ``metric@set``, ``metric + repair``.

    Example:
        >>> parse_column("ece@context + temperature").head
        'ECE, context + temperature (%) ↓'
    """
    measured, _, repair = (part.strip() for part in text.partition(" + "))
    metric, _, name = measured.partition("@")
    if repair not in ("", *REPAIRS):
        raise ValueError(f"a column's repair is one of {', '.join(REPAIRS)}, got {repair!r} in {text!r}")
    return column_of(Column(metric, name or "test", repair or "none"))


def check_direction(column: Column) -> Column:
    """The column, if one end of its metric is better than the other."""
    if column.better == "none":
        raise ValueError(f"{column.metric} has no direction: methods cannot be ranked by it")
    return column


def cell_of(values: Iterable[float]) -> TableCell | None:
    """Mean and standard deviation; None if there is no number. NaN does not count as a run."""
    numbers = [v for v in values if v == v]
    if not numbers:
        return None
    # Two passes over Python floats: at most a few dozen, and fsum does not depend on their order.
    mean, n = math.fsum(numbers) / len(numbers), len(numbers)
    if n == 1 or not math.isfinite(mean):
        return TableCell(mean, math.nan, n)
    return TableCell(mean, math.sqrt(math.fsum((v - mean) ** 2 for v in numbers) / (n - 1)), n)


def number_text(value: float, column: Column, metric: str = "", *, sign: bool = False) -> str:
    """A number as tables print it: shares in percent with two decimals, ranks with two, others with four.

    Example:
        >>> number_text(0.932, Column("accuracy")), number_text(0.25, Column("nll"))
        ('93.20', '0.2500')
        >>> number_text(1.875, Column("ece", kind="rank"))
        '1.88'
    """
    share = describe(metric).unit == "share" if metric else column.is_share
    decimals = 2 if share or column.kind == "rank" else 4
    return typeset(fixed(100 * value if share else value, decimals, sign=sign and math.isfinite(value)))


def mark_best(columns: Sequence[Column], rows: Sequence[Line]) -> tuple[Line, ...]:
    """Mark the best and second best cells of every column, by the printed mean."""
    cells = [list(line.cells) for line in rows]
    for k, column in enumerate(columns):
        present = [cell.mean for line in cells if (cell := line[k]) is not None and cell.runs]
        if column.better == "none" or len(present) < 2:
            continue
        sign = 1 if column.better == "low" else -1
        order = dict.fromkeys(number_text(mean, column) for mean in sorted(present, key=lambda mean: sign * mean))
        best, *second = list(order)[:2]
        for line in cells:
            cell = line[k]
            if cell is not None and cell.runs:
                text = number_text(cell.mean, column)
                line[k] = cell._replace(best=text == best, second=text in second)
    return tuple(line._replace(cells=tuple(marked)) for line, marked in zip(rows, cells, strict=True))


def retitle(table: Table, title: str | None = None, note: str | None = None) -> Table:
    """The table under another title, or with another note."""
    return replace(table, title=table.title if title is None else title, note=table.note if note is None else note)
