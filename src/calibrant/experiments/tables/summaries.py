"""Means over seeds and average ranks, as the papers print them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import numpy as np
from scipy.stats import rankdata

from calibrant.experiments.results import Results
from calibrant.experiments.tables.cells import (
    BEST,
    NOTHING,
    Column,
    Line,
    Table,
    TableCell,
    cell_of,
    check_direction,
    column_of,
    mark_best,
    usual,
)
from calibrant.experiments.tables.labels import RowSource, enumerate_words, parse, references, rows_of_method, sources
from calibrant.experiments.tables.pairs import FEWEST, marks, of_the_same

Columns = Sequence[Column | str]


def summary(
    results: Results,
    columns: Columns,
    *,
    methods: Sequence[str] | None = None,
    tuned_for: str | Sequence[str] | None = None,
    reference: str | None = None,
    ranks: bool = False,
    missing: Sequence[tuple[str, str]] = (),
    title: str = "",
) -> Table:
    """Mean and standard deviation over seeds, a row per method and tuning target.

    Targets for which a method has the same runs share a row.

    Args:
        results: all numbers.
        columns: what to show; a metric's name is that metric on the test set.
        methods: labels of the rows, in their order; every method of the results if left out.
        tuned_for: targets to keep; methods without anything to tune stay.
        reference: a label; cells whose paired differences from it over three seeds or more are beyond chance are marked
            (t-test, p < 0.05 after Holm's correction over the rows of a column). Where it was tuned for several
            targets, a row is compared with that of its own. The note says so if it has no numbers.
        ranks: add a last column with the mean rank over the columns.
        missing: methods without numbers, and the targets for which they have none (``""``: all); a row of dashes each.
        title: of the table.

    Returns:
        The best cell of each column marked, and the second; empty where there is no number.

    Example:
        >>> from calibrant.experiments.results import Results, ResultRow
        >>> from calibrant.experiments.tables import markdown
        >>> rows = [
        ...     ResultRow("0" * 16, method, "{}", "", "final", seed, "test", "none", float("nan"), "ece", value)
        ...     for method, seed, value in [("ce", 0, 0.04), ("ce", 1, 0.05), ("ls", 0, 0.02), ("ls", 1, 0.03)]
        ... ]
        >>> print(markdown(summary(Results(rows), ["ece"])))
        | Method | ECE (%) ↓ |
        |:--|--:|
        | ce | <u>4.50 ± 0.71</u> |
        | ls | **2.50 ± 0.71** |
        <BLANKLINE>
        Mean ± standard deviation over 2 seeds. Best in bold, second underlined.
    """
    heads = tuple(column_of(column) for column in columns)
    rows = list(sources(results, methods, (tuned_for,) if isinstance(tuned_for, str) else tuned_for))
    lines = [Line(row.name, row.tuned_for, tuple(cell_of(row.values(c).values()) for c in heads)) for row in rows]
    notes = [describe_runs(lines), _describe_marks(heads, lines)]
    if reference is not None:
        lines, words = _mark_against(lines, rows, references(results, reference), reference, heads)
        notes.append(words)
    lines += [Line(name, target, (NOTHING,) * len(heads)) for name, target in missing]
    if ranks:
        lines = _with_ranks(lines, heads)
        heads = (*heads, Column("", title="Mean rank", kind="rank"))
        notes.append("Mean rank: over the columns in which one end is better; ties share the mean of their ranks.")
    notes.append(_describe_missing(missing))
    return Table(title, " ".join(filter(None, notes)), heads, mark_best(heads, lines))


def describe_runs(lines: Sequence[Line]) -> str:
    """How many runs are behind the cells, in a sentence."""
    counts = [cell.runs for line in lines for cell in line.cells if cell is not None]
    most = usual(counts)
    if not most:
        return ""
    words = f"Mean ± standard deviation over {most} seeds" if most > 1 else "One run each"
    return words + (", or over n where a cell says so." if len(set(counts)) > 1 else ".")


def _describe_marks(columns: Sequence[Column], lines: Sequence[Line]) -> str:
    return BEST if len(lines) > 1 and any(column.better != "none" for column in columns) else ""


def _describe_missing(missing: Sequence[tuple[str, str]]) -> str:
    names = [name + (f" tuned for {target}" if target else "") for name, target in missing]
    return f"0 runs of {enumerate_words(names)} have numbers." if names else ""


def _mark_against(
    lines: list[Line],
    rows: Sequence[RowSource],
    base: Mapping[str, RowSource],
    reference: str,
    columns: Sequence[Column],
) -> tuple[list[Line], str]:
    """The lines with cells marked whose differences from the reference are beyond chance, and what marks mean."""
    if not base:
        return lines, f"Nothing is tested against {reference}: it has no numbers here."
    cells, tests = [list(line.cells) for line in lines], 0
    for k, column in enumerate(columns):
        changes, number = marks(rows, base, column)
        tests += number
        for n, change in changes.items():
            cell = cells[n][k]
            if cell is not None:
                cells[n][k] = cell._replace(change=change)
    words = f"• better and ∘ worse than {reference}{of_the_same(base)} (paired t-test over the seeds, p < 0.05, Holm's "
    words = f"{words}correction)." if tests else f"Nothing is tested against {reference}: that takes {FEWEST} seeds."
    return [line._replace(cells=tuple(new)) for line, new in zip(lines, cells, strict=True)], words


def _with_ranks(lines: list[Line], columns: Sequence[Column]) -> list[Line]:
    rankings = [
        _ranked([line.cells[k] for line in lines], column.better)
        for k, column in enumerate(columns)
        if column.better != "none"
    ]
    means = [_mean_rank([ranks[n] for ranks in rankings]) for n in range(len(lines))]
    return [line._replace(cells=(*line.cells, rank)) for line, rank in zip(lines, means, strict=True)]


def _ranked(
    cells: Sequence[TableCell | None],
    better: str,
    ties: Literal["average", "min"] = "average",
    decimals: int | None = None,
) -> list[float]:
    """Ranks by mean, 1 the best; NaN where there is no cell."""
    means = np.array([math.nan if cell is None else cell.mean for cell in cells], dtype=np.float64)
    means = means if decimals is None else np.round(means, decimals)
    there = ~np.isnan(means)
    ranks = np.full(len(means), math.nan)
    if there.any():
        ranks[there] = rankdata(means[there] if better == "low" else -means[there], method=ties)
    return ranks.tolist()


def _mean_rank(ranks: Iterable[float]) -> TableCell:
    return (cell_of(ranks) or NOTHING)._replace(std=math.nan)


def average_ranks(
    results: Results | Mapping[str, Results],
    columns: Columns,
    *,
    methods: Sequence[str] | None = None,
    ties: Literal["average", "min"] = "average",
    decimals: int | None = None,
    stand_ins: Mapping[str, Mapping[str, str]] | None = None,
    target: str | None = None,
    missing: Sequence[str] = (),
    title: str = "Average ranks",
) -> Table:
    """Ranks of the methods by mean in each column of each data set, averaged for every tuning target and overall.

    A method without anything to tune takes part for every target. One that lacks a number is not ranked there.

    Args:
        results: of one data set, or of several by their names.
        columns: what to rank by, each with a column of the table per target and one overall.
        methods: labels; every method of the results if left out.
        ties: ``"average"``: ties share the mean of their ranks; ``"min"``: the smallest of them, which gives the ranks
            by accuracy of LR's Table 3 (those by ECE do not all follow from its Tables 1 and 2).
        decimals: round means to this many decimals first. LR's ranks are of means rounded to 3.
        stand_ins: by target, labels to take in a method's place. LR has
            ``{"ece": {"ce": "ce + temperature"}}``.
        target: only the ranks among what was tuned for this; ``""``: only those overall. Both kinds if left out, which
            is LR's Table 3 and as wide.
        missing: methods without numbers: a row of dashes each.
        title: of the table.
    """
    heads = [check_direction(column_of(column)) for column in columns]
    sets = {"": results} if isinstance(results, Results) else dict(results)
    finals = {name: numbers.where(stage="final") for name, numbers in sets.items()}
    all_methods = list(dict.fromkeys(m for final in finals.values() for m in final.column("method")))
    labels = all_methods if methods is None else list(methods)
    for label in labels:
        if parse(label, all_methods).method not in all_methods:
            raise ValueError(f"no final results of {label!r}: there are {', '.join(all_methods) or 'none at all'}")
    groups = list(dict.fromkeys(t for final in finals.values() for t in final.column("tuned_for") if t)) or [""]
    ranks_of: dict[tuple[str, int], list[list[float]]] = {}
    if target and target not in groups:
        raise ValueError(f"nothing was tuned for {target!r}, only for {', '.join(filter(None, groups)) or 'nothing'}")
    for tuned in groups:
        names = [(stand_ins or {}).get(tuned, {}).get(label, label) for label in labels]
        for final in finals.values():
            rows = [_for_target(final, name, tuned) for name in names]
            for k, column in enumerate(heads):
                cells = [None if row is None else cell_of(row.values(column).values()) for row in rows]
                ranks_of.setdefault((tuned, k), []).append(_ranked(cells, column.better, ties, decimals))
    # What stands together in a column: the ranks for one target, or those for all.
    parts = [[t] for t in groups if t and target in (None, t)] + ([groups] if not target else [])
    rank_columns = [
        column._replace(title=column.name + ("" if target is not None else _over(part, groups)), kind="rank")
        for part in parts
        for column in heads
    ]
    lines = [
        Line(label, "", tuple(
            _mean_rank(ranks[n] for t in part for ranks in ranks_of[t, k]) for part in parts for k in range(len(heads))
        ))
        for n, label in enumerate(labels)
    ]  # fmt: skip
    lines += [Line(label, "", (NOTHING,) * len(rank_columns)) for label in missing]
    tied = "Ties share the mean of their ranks." if ties == "average" else "Ties share the smallest of their ranks."
    over = f", over {len(sets)} data sets" if len(sets) > 1 else ""
    note = f"Ranks of the means over seeds, 1 is best{over}. {tied} {_describe_marks(rank_columns, lines)}"
    words = (note, _fewer(lines), _describe_missing([(label, "") for label in missing]))
    return Table(
        title, " ".join(filter(None, map(str.strip, words))), tuple(rank_columns), mark_best(rank_columns, lines)
    )


def _over(part: Sequence[str], groups: Sequence[str]) -> str:
    return ", overall" if part is groups else f", tuned for {part[0]}"


def _fewer(lines: Sequence[Line]) -> str:
    columns = zip(*(line.cells for line in lines), strict=True)
    uneven = any(len({cell.runs for cell in column if cell is not None and cell.runs}) > 1 for column in columns)
    return "n: over that many rankings only." if uneven else ""


def _for_target(final: Results, name: str, target: str) -> RowSource | None:
    """The numbers of a label among those tuned for a target; the untuned ones if the method has no others."""
    label = parse(name, final.column("method"))
    rows = rows_of_method(final, label)
    targets: list[str] = rows.column("tuned_for")
    target_of_row = label.tuned_for or (target if target in targets else "" if targets == [""] else None)
    return None if target_of_row is None else RowSource(name, (), rows.where(tuned_for=target_of_row), label)
