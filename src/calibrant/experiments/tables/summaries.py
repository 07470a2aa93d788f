"""Means over seeds, average ranks, and the tables that a recipe describes, with the paper's numbers beside ours."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

import numpy as np
from scipy.stats import rankdata

from calibrant.base.numbers import significant
from calibrant.experiments.results import Results
from calibrant.experiments.spaces import short_title
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
    parse_column,
    usual_count,
)
from calibrant.experiments.tables.labels import (
    Label,
    RowSource,
    choices,
    enumerate_words,
    is_untuned,
    label_of,
    parse,
    references,
    rows_of_method,
    sources,
)
from calibrant.experiments.tables.pairs import FEWEST, marks, same_target_words
from calibrant.training import TUNED_FOR, Recipe

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
        reference: a label; cells that differ from it beyond chance are marked (paired t-test over three seeds or more,
            p < 0.05 after Holm's correction over the rows of a column). If it was tuned for several targets, a row is
            compared with the reference of its own target. The note says so if the reference has no numbers.
        ranks: add a last column with the mean rank over the columns.
        missing: methods without numbers, and the targets for which they have none (``""``: all); a row of dashes each.
        title: of the table.

    Returns:
        The table, with the best and second best cell of each column marked; cells without a number are empty.

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
        | CE | <u>4.50 ± 0.71</u> |
        | LS | **2.50 ± 0.71** |
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
        notes.append("Mean rank: over the columns with a direction; ties share the mean of their ranks.")
    notes.append(_describe_missing(missing))
    return Table(title, " ".join(filter(None, notes)), heads, mark_best(heads, lines))


def describe_runs(lines: Sequence[Line]) -> str:
    """How many runs are behind the cells, in a sentence."""
    counts = [cell.runs for line in lines for cell in line.cells if cell is not None]
    most = usual_count(counts)
    if not most:
        return ""
    words = f"Mean ± standard deviation over {most} seeds" if most > 1 else "One run each"
    return words + (", or over n where a cell says so." if len(set(counts)) > 1 else ".")


def _describe_marks(columns: Sequence[Column], lines: Sequence[Line]) -> str:
    return BEST if len(lines) > 1 and any(column.better != "none" for column in columns) else ""


def _describe_missing(missing: Sequence[tuple[str, str]]) -> str:
    names = [short_title(name) + (f" tuned for {target}" if target else "") for name, target in missing]
    return f"No runs of {enumerate_words(names)} have numbers." if names else ""


def _mark_against(
    lines: list[Line],
    rows: Sequence[RowSource],
    base: Mapping[str, RowSource],
    reference: str,
    columns: Sequence[Column],
) -> tuple[list[Line], str]:
    """The lines, with cells marked that differ from the reference beyond chance, and the note on the marks."""
    if not base:
        return lines, f"Nothing is tested against {short_title(reference)}: it has no numbers here."
    cells, tests = [list(line.cells) for line in lines], 0
    for k, column in enumerate(columns):
        changes, number = marks(rows, base, column)
        tests += number
        for n, change in changes.items():
            cell = cells[n][k]
            if cell is not None:
                cells[n][k] = cell._replace(change=change)
    words = (
        f"• better and ∘ worse than {short_title(reference)}{same_target_words(base)} (paired t-test over the seeds, "
        "p < 0.05, Holm's correction)."
    )
    if not tests:
        words = f"Nothing is tested against {short_title(reference)}: that takes {FEWEST} seeds."
    return [line._replace(cells=tuple(marked)) for line, marked in zip(lines, cells, strict=True)], words


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
    has_mean = ~np.isnan(means)
    ranks = np.full(len(means), math.nan)
    if has_mean.any():
        ranks[has_mean] = rankdata(means[has_mean] if better == "low" else -means[has_mean], method=ties)
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

    A method without anything to tune is ranked for every target; one without a number is not ranked in that column.

    Args:
        results: of one data set, or of several by their names.
        columns: what to rank by, each with a column of the table per target and one overall.
        methods: labels; every method of the results if left out.
        ties: ``"average"``: ties share the mean of their ranks; ``"min"``: the smallest of them, which gives the ranks
            by accuracy of LR's Table 3 (those by ECE do not all follow from its Tables 1 and 2).
        decimals: round means to this many decimals first. LR's ranks are of means rounded to 3.
        stand_ins: by target, labels that replace those of methods. LR has
            ``{"ece": {"ce": "ce + temperature"}}``.
        target: only the ranks for this tuning target; ``""``: only those overall. Both kinds if left out, as in LR's
            Table 3.
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
    # The targets whose ranks a column averages: one of them, or all.
    parts = [[t] for t in groups if t and target in (None, t)] + ([groups] if not target else [])
    rank_columns = []
    for part in parts:
        over = "" if target is not None else ", overall" if part is groups else f", tuned for {part[0]}"
        rank_columns += [column._replace(title=column.name + over, kind="rank") for column in heads]
    lines = [
        Line(label, "", tuple(
            _mean_rank(ranks[n] for t in part for ranks in ranks_of[t, k]) for part in parts for k in range(len(heads))
        ))
        for n, label in enumerate(labels)
    ]  # fmt: skip
    lines += [Line(label, "", (NOTHING,) * len(rank_columns)) for label in missing]
    tied = "Ties share the mean of their ranks." if ties == "average" else "Ties share the smallest of their ranks."
    sets_words = f", over {len(sets)} data sets" if len(sets) > 1 else ""
    note = f"Ranks of the means over seeds, 1 is best{sets_words}. {tied} {_describe_marks(rank_columns, lines)}"
    words = (note, _describe_uneven(lines), _describe_missing([(label, "") for label in missing]))
    return Table(
        title, " ".join(filter(None, map(str.strip, words))), tuple(rank_columns), mark_best(rank_columns, lines)
    )


def _describe_uneven(lines: Sequence[Line]) -> str:
    columns = zip(*(line.cells for line in lines), strict=True)
    uneven = any(len({cell.runs for cell in column if cell is not None and cell.runs}) > 1 for column in columns)
    return "Where a cell says n, its mean is over n rankings only." if uneven else ""


def _for_target(final: Results, name: str, target: str) -> RowSource | None:
    """The numbers of a label as tuned for a target; the untuned ones if the method was not tuned."""
    label = parse(name, final.column("method"))
    rows = rows_of_method(final, label)
    targets: list[str] = rows.column("tuned_for")
    target_of_row = label.tuned_for or (target if target in targets else "" if targets == [""] else None)
    return None if target_of_row is None else RowSource(name, (), rows.where(tuned_for=target_of_row), label)


def columns_of(recipe: Recipe) -> list[Column]:
    """Every column that the recipe's tables and expected numbers need, after each repair."""
    repairs = {"none", *(method.repair for method in recipe.methods.values() if method.repair is not None)}
    columns = {parse_column(text) for table in recipe.tables.values() for text in table.columns}
    columns |= {Column(metric, entry.where) for entry in recipe.expected for metric in entry.values}
    return sorted(
        {column._replace(posthoc=repair) for column in columns for repair in (*repairs, column.posthoc)},
        key=lambda column: (column.set, column.posthoc, column.metric),
    )


def recipe_table(results: Results, recipe: Recipe, number: str) -> Table:
    """A table of the recipe, by its name there, with the rows of the paper that have runs."""
    settings = recipe.tables[number]
    columns = tuple(parse_column(text) for text in settings.columns)
    lines = [line for row in settings.rows for line in _lines(results, recipe, row, columns) if any(line.cells)]
    runs = describe_runs(lines)
    if not runs:
        return Table("", "", columns, ())
    repaired = any(cell is not None and cell.remark for line in lines for cell in line.cells)
    words = (runs, "In brackets: the mean temperature over the seeds." if repaired else "")
    title = settings.title or ", ".join(filter(None, (recipe.paper, f"Table {number}", recipe.title)))
    return Table(title, " ".join(filter(None, words)), columns, mark_best(columns, lines))


def _lines(results: Results, recipe: Recipe, row: str, columns: tuple[Column, ...]) -> Iterator[Line]:
    """The row of a method, or a row for each tuning target if there are several and the row names none."""
    label = label_of(recipe, row, results.column("method"))
    name, _, target = row.partition(TUNED_FOR)
    title = recipe.methods[name].label or name
    rows = rows_of_method(results, label)
    final = rows.where(stage="final")
    # A row that names its tuning target does not stand for runs without tuning.
    meanings = choices(final, label, tuned=not is_untuned(rows)) or [((), final.where(tuned_for=target))]
    for targets, tuned_rows in meanings:
        cells = tuple(_cell(tuned_rows, label, column) for column in columns)
        yield Line(title, target or " and ".join(targets), cells)


def _cell(rows: Results, label: Label, column: Column) -> TableCell | None:
    repair = column.posthoc if column.posthoc != "none" else label.posthoc or "none"
    numbers = rows.where(set=column.set, posthoc=repair, metric=column.metric)
    cell = cell_of(numbers.by_seed().values()) if len(numbers) == len(numbers.column("seed")) else None
    temperatures = [row.parameter for row in numbers if not math.isnan(row.parameter)]
    if cell is None or not temperatures or not repair.startswith("temperature") or column.metric == "accuracy":
        return cell
    return cell._replace(remark=f"T {significant(math.fsum(temperatures) / len(temperatures), 3)}")


def expected(results: Results, recipe: Recipe, *, title: str = "") -> Table:
    """A paper's numbers beside ours: a row per method, set and metric that the recipe's ``expected`` names.

    A label without runs has no row. If we tuned for several targets and the label names none, there is a row for each.
    Settings that only the search ran have their numbers on the validation set.
    """
    columns = tuple(Column("", title=None, kind=kind) for kind in ("paper", "ours", "difference"))
    names: list[str] = results.column("method")
    lines = []
    for entry in recipe.expected:
        label = label_of(recipe, entry.method, names)
        rows = rows_of_method(results, label)
        if not rows:
            continue
        meanings = choices(rows.where(stage="final"), label, tuned=not (label.settings or is_untuned(rows)))
        name = entry.method.partition(", tuned for ")[0]
        for targets, tuned_rows in meanings or [((), rows.where(stage="search"))]:
            target = label.tuned_for or enumerate_words(targets)
            for metric, value in entry.values.items():
                ours = _ours(tuned_rows, rows, label, Column(metric, entry.where))
                printed_cell = TableCell(value, math.nan, 0)
                gap = None if ours is None else TableCell(ours.mean - value, math.nan, ours.runs)
                lines.append(Line(name, target, (printed_cell, ours, gap), entry.where, metric, entry.note))
    source = ", ".join(filter(None, (recipe.paper, recipe.table)))
    head = title or (f"{source}: the paper's numbers and ours" if source else "The paper's numbers and ours")
    runs = describe_runs([line._replace(cells=line.cells[1:2]) for line in lines])
    note = f"Ours: {runs[:1].lower()}{runs[1:]} Difference: ours minus the paper's." if runs else ""
    return Table(head, note, columns, tuple(lines))


def _ours(tuned_rows: Results, rows: Results, label: Label, column: Column) -> TableCell | None:
    """Our cell; None if the label stands for several settings of one seed."""
    for source in (tuned_rows, rows.where(stage="search")) if label.settings else (tuned_rows,):
        numbers = source.where(set=column.set, posthoc=label.posthoc or "none", metric=column.metric)
        if numbers and len(numbers) == len(numbers.column("seed")):
            return cell_of(numbers.by_seed().values())
    return None
