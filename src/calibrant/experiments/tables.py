"""Tables as the papers print them: means over seeds, average ranks, and a paper's numbers beside ours.

Means are of runs of stage ``"final"``. A label may say more than a method's name: ``"ls + temperature"`` takes that
repair whatever the column says, ``"ls, tuned for ece"`` one tuning target, ``"acls, lambda1=0.1"`` one setting.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import numpy as np
from scipy.stats import rankdata

from calibrant.experiments.cells import Cell, Column, Line, Table, as_column, cell_of, directed, marked, titled, usual
from calibrant.experiments.labels import Label, choices, named, nothing_tuned, parse, the_one
from calibrant.experiments.pairs import Paired, Point, compared, paired, sensitivity
from calibrant.experiments.rendering import csv, heads, html, latex, markdown, text
from calibrant.experiments.results import Results
from calibrant.training.recipe import Recipe

__all__ = [
    "Cell", "Column", "Line", "Paired", "Point", "Table", "average_ranks", "csv", "expected", "heads", "html", "latex",
    "markdown", "paired", "sensitivity", "summary", "text", "titled",
]  # fmt: skip

Columns = Sequence[Column | str]


def summary(
    results: Results,
    columns: Columns,
    *,
    methods: Sequence[str] | None = None,
    tuned_for: str | Sequence[str] | None = None,
    reference: str | None = None,
    ranks: bool = False,
    title: str = "",
) -> Table:
    """Mean and standard deviation over seeds, a row per method and tuning target.

    Args:
        results: all numbers.
        columns: what to show; a metric's name is that metric on the test set.
        methods: labels of the rows, in their order; every method of the results if left out.
        tuned_for: targets to keep; methods without anything to tune stay.
        reference: a label; cells whose paired differences from it over the seeds are beyond chance are marked
            (t-test, p < 0.05 after Holm's correction over the rows of a column).
        ranks: add a last column with the mean rank over the columns.
        title: of the table.

    Returns:
        The best cell of each column marked, and the second; empty where there is no number.

    Example:
        >>> from calibrant.experiments.results import Results, Row
        >>> rows = [
        ...     Row("0" * 16, method, "{}", "", "final", seed, "test", "none", float("nan"), "ece", value)
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
    shown = tuple(as_column(column) for column in columns)
    final = results.where(stage="final")
    lines: list[Line] = []
    sources: list[tuple[Results, Label]] = []
    for name, target, source in _rows_of(final, results, methods, _several(tuned_for)):
        lines.append(Line(name, target, tuple(_cell(*source, column) for column in shown)))
        sources.append(source)
    notes = [_behind(lines)]
    if any(column.better != "none" for column in shown) and len(lines) > 1:
        notes.append("Best in bold, second underlined.")
    if reference is not None:
        lines = _against(lines, sources, the_one(final, reference), shown)
        notes.append(
            f"• better and ∘ worse than {reference} over the seeds (paired t-test, p < 0.05, Holm's correction)."
        )
    if ranks:
        lines = _with_ranks(lines, shown)
        shown = (*shown, Column("", title="Mean rank", kind="rank"))
        notes.append("Mean rank: over the columns in which one end is better; ties share the mean of their ranks.")
    return Table(title, " ".join(filter(None, notes)), shown, marked(shown, lines))


def _several(tuned_for: str | Sequence[str] | None) -> Sequence[str] | None:
    return (tuned_for,) if isinstance(tuned_for, str) else tuned_for


def _rows_of(
    final: Results, results: Results, methods: Sequence[str] | None, wanted: Sequence[str] | None
) -> Iterable[tuple[str, str, tuple[Results, Label]]]:
    """Label, tuning target and numbers of every row of a table."""
    known: list[str] = final.column("method")
    for name in known if methods is None else methods:
        label = parse(name, known)
        if label.method not in known:
            raise ValueError(f"no final results of {name!r}: there are {', '.join(known) or 'none at all'}")
        rows = named(final, label)
        alike = nothing_tuned(results.where(method=label.method))
        for target, chosen in choices(rows, label, tuned=not alike):
            if wanted is None or target in (*wanted, ""):
                yield name.partition(", tuned for ")[0] if label.tuned_for else name, target, (chosen, label)


def _values(rows: Results, label: Label, column: Column) -> dict[int, float]:
    posthoc = label.posthoc or column.posthoc
    return rows.by_seed(set=column.set, posthoc=posthoc, metric=column.metric)


def _cell(rows: Results, label: Label, column: Column) -> Cell | None:
    return cell_of(_values(rows, label, column).values())


def _behind(lines: Sequence[Line]) -> str:
    counts = [cell.runs for line in lines for cell in line.cells if cell is not None]
    most = usual(counts)
    if not most:
        return ""
    words = f"Mean ± standard deviation over {most} seeds" if most > 1 else "One run each"
    return words + (", or as many as a cell says." if len(set(counts)) > 1 else ".")


def _against(
    lines: list[Line],
    sources: Sequence[tuple[Results, Label]],
    reference: tuple[Results, Label],
    shown: Sequence[Column],
) -> list[Line]:
    """The lines with cells marked whose differences from the reference are beyond chance."""
    cells = [list(line.cells) for line in lines]
    for k, column in enumerate(shown):
        if column.better == "none":
            continue
        base = _values(*reference, column)
        tests = [compared(_values(*source, column), base, better=column.better) for source in sources]
        order = sorted(
            (t.t_p, n) for n, t in enumerate(tests) if t is not None and t.t_p == t.t_p and any(t.differences)
        )
        for rank, (p, n) in enumerate(order):
            if p * (len(order) - rank) >= 0.05:
                break
            test, cell = tests[n], cells[n][k]
            if test is not None and cell is not None and test.mean:
                change = "better" if (test.mean < 0) == (column.better == "low") else "worse"
                cells[n][k] = cell._replace(change=change)
    return [line._replace(cells=tuple(new)) for line, new in zip(lines, cells, strict=True)]


def _with_ranks(lines: list[Line], shown: Sequence[Column]) -> list[Line]:
    kept = [k for k, column in enumerate(shown) if column.better != "none"]
    found = [_ranked([line.cells[k] for line in lines], shown[k].better) for k in kept]
    means = [_mean_rank([ranks[n] for ranks in found]) for n in range(len(lines))]
    return [line._replace(cells=(*line.cells, rank)) for line, rank in zip(lines, means, strict=True)]


def _ranked(
    cells: Sequence[Cell | None], better: str, ties: Literal["average", "min"] = "average", decimals: int | None = None
) -> list[float]:
    """Ranks by mean, 1 the best; NaN where there is no cell."""
    means = np.array([math.nan if cell is None else cell.mean for cell in cells], dtype=np.float64)
    means = means if decimals is None else np.round(means, decimals)
    there = ~np.isnan(means)
    ranks = np.full(len(means), math.nan)
    if there.any():
        ranks[there] = rankdata(means[there] if better == "low" else -means[there], method=ties)
    return ranks.tolist()


def _mean_rank(ranks: Iterable[float]) -> Cell | None:
    cell = cell_of(ranks)
    return None if cell is None else cell._replace(std=math.nan)


def average_ranks(
    results: Results | Mapping[str, Results],
    columns: Columns,
    *,
    methods: Sequence[str] | None = None,
    ties: Literal["average", "min"] = "average",
    decimals: int | None = None,
    stand_ins: Mapping[str, Mapping[str, str]] | None = None,
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
        decimals: round means to so many first. LR's ranks are of means rounded to 3.
        stand_ins: by target, labels to take in a method's place. LR has
            ``{"ece": {"ce": "ce + temperature"}}``.
        title: of the table.
    """
    shown = [directed(as_column(column)) for column in columns]
    sets = {"": results} if isinstance(results, Results) else dict(results)
    finals = {name: one.where(stage="final") for name, one in sets.items()}
    known = list(dict.fromkeys(m for final in finals.values() for m in final.column("method")))
    labels = known if methods is None else list(methods)
    for label in labels:
        if parse(label, known).method not in known:
            raise ValueError(f"no final results of {label!r}: there are {', '.join(known) or 'none at all'}")
    groups = list(dict.fromkeys(t for final in finals.values() for t in final.column("tuned_for") if t)) or [""]
    taken: dict[tuple[str, int], list[list[float]]] = {}
    for target in groups:
        names = [(stand_ins or {}).get(target, {}).get(label, label) for label in labels]
        for final in finals.values():
            sources = [_for_target(final, name, target) for name in names]
            for k, column in enumerate(shown):
                cells = [source and _cell(*source, column) for source in sources]
                taken.setdefault((target, k), []).append(_ranked(cells, column.better, ties, decimals))
    places = [(t, k) for t in groups if t for k in range(len(shown))]
    heads_ = [shown[k]._replace(title=f"{shown[k].name}, tuned for {t}", kind="rank") for t, k in places]
    heads_ += [column._replace(title=f"{column.name}, overall", kind="rank") for column in shown]
    lines = []
    for n, label in enumerate(labels):
        by_target = [_mean_rank(ranks[n] for ranks in taken[place]) for place in places]
        overall = [_mean_rank(ranks[n] for target in groups for ranks in taken[target, k]) for k in range(len(shown))]
        lines.append(Line(label, "", (*by_target, *overall)))
    tied = "Ties share the mean of their ranks." if ties == "average" else "Ties share the smallest of their ranks."
    over = f", over {len(sets)} data sets" if len(sets) > 1 else ""
    note = f"Ranks of the means over seeds, 1 is best{over}. {tied}"
    return Table(title, note, tuple(heads_), marked(heads_, lines))


def _for_target(final: Results, name: str, target: str) -> tuple[Results, Label] | None:
    """The numbers of a label among those tuned for a target; the untuned ones if the method has no others."""
    label = parse(name, final.column("method"))
    rows = named(final, label)
    found: list[str] = rows.column("tuned_for")
    asked = label.tuned_for or (target if target in found else "" if found == [""] else None)
    return None if asked is None else (rows.where(tuned_for=asked), label)


def expected(results: Results, recipe: Recipe, *, title: str = "") -> Table:
    """A paper's numbers beside ours: a row per method, set and metric that the recipe's ``expected`` names.

    Ours are empty where nothing was run that the label means. Where it does not say what was tuned for and we tuned
    for several targets, there is a row for each. Settings that were only searched are found on the validation set.
    """
    columns = tuple(Column("", title=None, kind=kind) for kind in ("paper", "ours", "difference"))
    known: list[str] = results.column("method")
    lines = []
    for entry in recipe.expected:
        label = parse(entry.method, known)
        rows = named(results, label)
        found = choices(rows.where(stage="final"), label, tuned=not (label.settings or nothing_tuned(rows)))
        name = entry.method.partition(", tuned for ")[0]
        for target, chosen in found or [("", rows.where(stage="search"))]:
            said = label.tuned_for or target
            for metric, value in entry.values.items():
                ours = _ours(chosen, rows, label, Column(metric, entry.where))
                theirs = Cell(value, math.nan, 0)
                gap = None if ours is None else Cell(ours.mean - value, math.nan, ours.runs)
                lines.append(Line(name, said, (theirs, ours, gap), entry.where, metric, entry.note))
    source = ", ".join(filter(None, (recipe.paper, recipe.table)))
    head = title or (f"{source}: the paper's numbers and ours" if source else "The paper's numbers and ours")
    ours_only = [line._replace(cells=line.cells[1:2]) for line in lines]
    note = " ".join(filter(None, (f"Ours: {_lowered(_behind(ours_only))}", "Difference: ours minus the paper's.")))
    return Table(head, note if any(line.cells[1] for line in lines) else "", columns, tuple(lines))


def _ours(chosen: Results, rows: Results, label: Label, column: Column) -> Cell | None:
    """Our cell; of several settings of one seed there is none that the label means."""
    for source in (chosen, rows.where(stage="search")) if label.settings else (chosen,):
        picked = source.where(set=column.set, posthoc=label.posthoc or "none", metric=column.metric)
        if picked and len(picked) == len(picked.column("seed")):
            return cell_of(picked.by_seed().values())
    return None


def _lowered(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]
