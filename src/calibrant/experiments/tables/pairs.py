"""Methods compared seed by seed, with a reference or with each other; and one method over the values of a setting."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from calibrant.experiments.results import Results
from calibrant.experiments.spaces import short_title
from calibrant.experiments.tables.cells import Column, Line, Table, TableCell, cell_of, check_direction, column_of
from calibrant.experiments.tables.labels import (
    RowSource,
    counterparts,
    enumerate_words,
    references,
    rows_of_label,
    sources,
)

#: Up to this many differences, every assignment of signs is counted: SciPy's exact test does not handle ties, and its
#: permutation test takes 20 s for 14 seeds. Beyond, the normal approximation is good.
_ENUMERATED = 14
#: The fewest seeds for a verdict.
FEWEST = 3
#: A difference is beyond chance if Holm's p is below this.
LEVEL = 0.05


class Paired(NamedTuple):
    """Differences of two methods over their common seeds, first minus second.

    Attributes:
        seeds: of both methods.
        mean: of the differences.
        low, high: the 95% t-interval of the mean; NaN for one seed, and where all differences are the same: they say
            nothing of how seeds differ.
        t_p: of the paired t-test, two-sided; NaN likewise.
        wilcoxon_p: of the signed-rank test, two-sided and exact also with ties, up to 14 seeds; zeros are left out.
        wins: in how many seeds the first is better.
        differences: in the order of the seeds.
    """

    seeds: tuple[int, ...]
    mean: float
    low: float
    high: float
    t_p: float
    wilcoxon_p: float
    wins: int
    differences: tuple[float, ...]

    @property
    def is_testable(self) -> bool:
        """Whether an interval and a t-test are meaningful: not for few seeds, nor for equal differences."""
        return len(self.differences) >= FEWEST and not math.isnan(self.t_p)


def paired(results: Results, first: str, second: str, column: Column | str) -> Paired:
    """Compare two methods on their common seeds.

    Args:
        results: all numbers; those of stage ``"final"`` are compared.
        first: a label, as in `calibrant.experiments.tables`.
        second: another label.
        column: the metric to compare.

    Example:
        >>> from calibrant.experiments.results import Results, ResultRow
        >>> rows = [
        ...     ResultRow("0" * 16, method, "{}", "", "final", seed, "test", "none", float("nan"), "ece", value)
        ...     for method, values in {"ce": (0.04, 0.05, 0.06), "ls": (0.02, 0.02, 0.04)}.items()
        ...     for seed, value in enumerate(values)
        ... ]
        >>> pair = paired(Results(rows), "ls", "ce", "ece")
        >>> round(pair.mean, 4), pair.wins, round(pair.t_p, 4)
        (-0.0233, 3, 0.0198)
    """
    column = column_of(column)
    values = []
    for text in (first, second):
        rows, label = rows_of_label(results.where(stage="final"), text)
        values.append(rows.by_seed(set=column.set, posthoc=label.posthoc or column.posthoc, metric=column.metric))
    pair = pair_values(*values, better=column.better)
    if pair is None:
        raise ValueError(f"{first!r} and {second!r} have no seed in common with {column.metric} on {column.set!r}")
    return pair


def pair_values(first: Mapping[int, float], second: Mapping[int, float], *, better: str) -> Paired | None:
    """Compare values by seed, without infinite ones; None if there is no common seed."""
    gaps = {seed: first[seed] - second[seed] for seed in sorted(first.keys() & second.keys())}
    gaps = {seed: gap for seed, gap in gaps.items() if math.isfinite(gap)}
    if not gaps:
        return None
    d = np.array(list(gaps.values()), dtype=np.float64)
    mean = float(d.mean())
    wins = {"high": d > 0, "low": d < 0}.get(better, d != d)
    low, high, p = _t_test(d)
    return Paired(tuple(gaps), mean, low, high, p, _signed_ranks(d), int(wins.sum()), tuple(d.tolist()))


def _t_test(d: np.ndarray[Any, np.dtype[np.float64]]) -> tuple[float, float, float]:
    """The 95% interval of the mean, and the p-value of a mean of 0."""
    # Differences of rounded numbers are equal up to their last digits.
    if len(d) < 2 or np.ptp(d) <= 1e-9 * np.abs(d).max():
        return math.nan, math.nan, math.nan
    test = stats.ttest_1samp(d, 0.0)
    interval = test.confidence_interval(0.95)
    return float(interval.low), float(interval.high), float(test.pvalue)


def _signed_ranks(d: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    """Wilcoxon's test: the share of assignments of signs to the ranks whose sum is as far from its middle."""
    d = d[d != 0]
    if not len(d):
        return 1.0
    if len(d) > _ENUMERATED:
        return float(stats.wilcoxon(d, method="approx").pvalue)
    ranks = stats.rankdata(np.abs(d))
    signs = np.array(list(itertools.product((-1.0, 1.0), repeat=len(d))))
    # Twice a fractional rank is whole, so sums compare exactly.
    return float((np.abs(signs @ ranks) >= abs(np.sign(d) @ ranks)).mean())


class RowComparison(NamedTuple):
    """A row of a table compared with the reference."""

    row: int  # its position among the rows
    tuned_for: str
    pair: Paired
    holm: float  # p of the t-test after Holm's correction over the rows; NaN where there is no test
    change: str  # "better" or "worse" if that is beyond chance, else ""


def compare_rows(rows: Sequence[RowSource], reference: Mapping[str, RowSource], column: Column) -> list[RowComparison]:
    """Every row against the reference's row of the same tuning target, in one column."""
    pairs: list[tuple[int, str, Paired]] = []
    for k, row in enumerate(rows):
        base_rows = counterparts(row, reference)
        for targets, base in base_rows:
            pair = pair_values(row.values(column), base.values(column), better=column.better)
            if pair is not None:
                is_whole = len(base_rows) == 1 and set(targets) >= set(row.targets)
                pairs.append((k, row.tuned_for if is_whole else enumerate_words(targets), pair))
    corrected = _holm([pair.t_p if pair.is_testable else math.nan for _, _, pair in pairs])
    return [
        RowComparison(k, targets, pair, p, _change(pair, column) if p < LEVEL else "")
        for (k, targets, pair), p in zip(pairs, corrected, strict=True)
    ]


def marks(rows: Sequence[RowSource], reference: Mapping[str, RowSource], column: Column) -> tuple[dict[int, str], int]:
    """Which rows are better or worse than the reference beyond chance, and the number of tests.

    A row that is compared with several rows of the reference is marked if all tests agree.
    """
    if column.better == "none":
        return {}, 0
    changes: dict[int, set[str]] = {}
    tests = compare_rows(rows, reference, column)
    for test in tests:
        changes.setdefault(test.row, set()).add(test.change)
    agreed = {row: states.pop() for row, states in changes.items() if len(states) == 1}
    return agreed, sum(test.holm == test.holm for test in tests)


def _holm(values: Sequence[float]) -> list[float]:
    """p-values after Holm's correction; NaN stands for no test, and stays NaN."""
    order = sorted((p, n) for n, p in enumerate(values) if p == p)
    corrected, largest = [math.nan] * len(values), 0.0
    for rank, (p, n) in enumerate(order):
        largest = max(largest, min(1.0, p * (len(order) - rank)))
        corrected[n] = largest
    return corrected


def _change(pair: Paired, column: Column) -> str:
    if not pair.mean or column.better == "none":
        return ""
    return "better" if (pair.mean < 0) == (column.better == "low") else "worse"


def differences(
    results: Results,
    reference: str,
    columns: Sequence[Column | str],
    *,
    methods: Sequence[str] | None = None,
    title: str | None = None,
) -> Table:
    """Every method against one, seed by seed: a row per metric and method.

    A tuned reference is compared for the same target.

    Args:
        results: all numbers; those of stage ``"final"`` are compared.
        reference: a label.
        columns: what to compare.
        methods: labels; every method of the results if left out.
        title: of the table.

    Returns:
        Mean difference, its 95% t-interval, p of the paired t-test, the same after Holm's correction over the rows of
        a metric, p of Wilcoxon's test, and in how many seeds the method is better; with fewer than three seeds only
        the difference and in how many seeds it is better. It has no rows if the reference has no numbers.
    """
    base, rows = references(results, reference), list(sources(results, methods))
    lines, most = [], 0
    for column in map(column_of, columns):
        for k, targets, pair, holm, change in compare_rows(rows, base, column):
            n = len(pair.seeds)
            low, high, t_p = (pair.low, pair.high, pair.t_p) if pair.is_testable else (math.nan,) * 3
            numbers = (t_p, holm, pair.wilcoxon_p if n >= FEWEST else math.nan)
            tests = (TableCell(low, math.nan, n, high=high), *(TableCell(p, math.nan, n) for p in numbers))
            cells = (TableCell(pair.mean, math.nan, n, change=change), *tests, TableCell(pair.wins, math.nan, n))
            set_name = "" if column.set == "test" else column.set
            lines.append(Line(rows[k].name, targets, cells, set_name, column.metric))
            most = max(most, n)
    heads: tuple[Column, ...] = (
        Column("", kind="difference"), Column("", kind="interval"), Column("", title="p", kind="p"),
        Column("", title="p (Holm)", kind="p"), Column("", title="p (Wilcoxon)", kind="p"), Column("", kind="wins"),
    )  # fmt: skip
    name = short_title(reference)
    note = f"Each method minus {name}{same_target_words(base)}, seed by seed: the mean"
    if most < FEWEST:
        seeds = "one seed is" if most == 1 else f"{most} seeds are"
        note += f"; {seeds} too few for an interval or a test, which take {FEWEST}."
        heads = (heads[0], heads[-1])
        lines = [line._replace(cells=(line.cells[0], line.cells[-1])) for line in lines]
    else:
        note += (
            " and its interval, p of the paired t-test, the same after Holm's correction over the rows of a measure, "
            f"and p of Wilcoxon's signed-rank test; no interval and no t-test with fewer than {FEWEST} seeds, or where "
            f"all seeds differ by the same. • better and ∘ worse: Holm's p is below {LEVEL}."
        )
    return Table(f"Differences from {name}" if title is None else title, note, heads, tuple(lines))


def same_target_words(reference: Mapping[str, RowSource]) -> str:
    """Words after the reference's name, if its runs differ between tuning targets."""
    return " tuned for the same" if len({source.key for source in reference.values()}) > 1 else ""


class Point(NamedTuple):
    """One point of a curve over a setting: the value, and the numbers of the runs with it."""

    value: Any
    mean: float
    std: float
    runs: int


def sensitivity(
    results: Results,
    method: str,
    parameter: str,
    column: Column | str,
    *,
    at: Mapping[str, Any] | None = None,
    stage: str | None = None,
) -> list[Point]:
    """How a metric depends on one setting of a method (MbLS Fig. 1, ACLS Fig. A).

    Runs of the two stages are never mixed, as they are trained on different data; the short runs of successive halving
    are left out. Of several runs with the same settings and seed the last counts.

    Args:
        results: all numbers.
        method: its label in the results.
        parameter: name of the setting.
        column: the metric.
        at: values of the other settings; if left out, those of the best mean.
        stage: ``"search"`` or ``"final"``; if left out, the one with more values of the setting.

    Returns:
        Points by value; empty if the method has no such setting, or no numbers in the column.
    """
    column = column_of(column)
    rows = results.where(method=method, set=column.set, posthoc=column.posthoc, metric=column.metric)
    stages = {name: _by_settings(rows.where(stage=name), parameter) for name in ("final", "search")}
    groups = stages[stage] if stage else max(stages.values(), key=lambda group: len({value for value, _ in group}))
    points: dict[str, list[Point]] = {}
    for (value, settings), by_seed in groups.items():
        if at is not None and any(json.loads(settings).get(name) != setting for name, setting in at.items()):
            continue
        cell = cell_of(by_seed.values())
        if cell is not None:
            points.setdefault(settings, []).append(Point(json.loads(value), cell.mean, cell.std, cell.runs))
    if not points:
        return []
    curve = next(iter(points.values()))
    if len(points) > 1:
        sign = 1 if check_direction(column).better == "low" else -1
        curve = min(points.values(), key=lambda curve: min(sign * point.mean for point in curve))
    return sorted(curve, key=lambda point: (isinstance(point.value, str), point.value))


def _by_settings(rows: Results, parameter: str) -> dict[tuple[str, str], dict[int, float]]:
    """Values by seed, for each value of the setting and of the other settings, both as JSON."""
    groups: dict[tuple[str, str], dict[int, float]] = {}
    for row in rows:
        settings = json.loads(row.settings)
        if settings.get(parameter) is None:
            continue
        value = settings.pop(parameter)
        value = float(value) if isinstance(value, int) and not isinstance(value, bool) else value
        groups.setdefault((json.dumps(value), json.dumps(settings, sort_keys=True)), {})[row.seed] = row.value
    return groups
