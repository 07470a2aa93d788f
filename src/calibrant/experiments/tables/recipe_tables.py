"""The tables that a recipe describes: rows and columns as the paper has them, and its numbers beside ours."""

from __future__ import annotations

import math
from collections.abc import Iterator

from calibrant._numbers import significant
from calibrant.experiments.results import Results
from calibrant.experiments.tables.cells import Column, Line, Table, TableCell, cell_of, mark_best, parse_column
from calibrant.experiments.tables.labels import Label, choices, enumerate_words, is_untuned, label_of, rows_of_method
from calibrant.experiments.tables.summaries import describe_runs
from calibrant.training import TUNED_FOR, Recipe


def columns_of(recipe: Recipe) -> list[Column]:
    """Every number that the recipe's tables and its printed numbers ask for: of each column, after each repair."""
    repairs = {"none", *(method.repair for method in recipe.methods.values() if method.repair is not None)}
    columns = {parse_column(text) for table in recipe.tables.values() for text in table.columns}
    columns |= {Column(metric, entry.where) for entry in recipe.expected for metric in entry.values}
    return sorted(
        {column._replace(posthoc=repair) for column in columns for repair in (*repairs, column.posthoc)},
        key=lambda column: (column.set, column.posthoc, column.metric),
    )


def recipe_table(results: Results, recipe: Recipe, number: str) -> Table:
    """A table of the recipe, with its rows as printed; those of which nothing was run are empty.

    Args:
        results: All numbers of a comparison of the recipe's methods.
        recipe: Whose ``tables`` has the table.
        number: Its name there.
    """
    settings = recipe.tables[number]
    columns = tuple(parse_column(text) for text in settings.columns)
    lines = [line for row in settings.rows for line in _lines(results, recipe, row, columns)]
    runs = {cell.runs for line in lines for cell in line.cells if cell is not None}
    if not runs:
        return Table("", "", columns, ())
    seeds = max(runs)
    behind = "One run each." if seeds == 1 else f"Mean ± standard deviation over {seeds} seeds."
    repaired = any(cell is not None and cell.remark for line in lines for cell in line.cells)
    words = (behind, "In brackets: the temperature, mean over the seeds." if repaired else "")
    title = settings.title or f"{recipe.paper}, Table {number}, {recipe.title}"
    return Table(title, " ".join(filter(None, words)), columns, mark_best(columns, lines))


def _lines(results: Results, recipe: Recipe, row: str, columns: tuple[Column, ...]) -> Iterator[Line]:
    """The row of a method; one for each target where it was tuned for several and the row does not say for which."""
    label = label_of(recipe, row, results.column("method"))
    name, _, target = row.partition(TUNED_FOR)
    printed = recipe.methods[name].label or name
    rows = rows_of_method(results, label)
    final = rows.where(stage="final")
    # What was run without tuning is not what a row means that says what it is tuned for.
    meanings = choices(final, label, tuned=not is_untuned(rows)) or [((), final.where(tuned_for=target))]
    for targets, chosen in meanings:
        cells = tuple(_cell(chosen, label, column) for column in columns)
        yield Line(printed, target or " and ".join(targets), cells)


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

    Ours are empty where nothing was run that the label means. Where it does not say what was tuned for and we tuned
    for several targets, there is a row for each. Settings that were only searched are found on the validation set.
    """
    columns = tuple(Column("", title=None, kind=kind) for kind in ("paper", "ours", "difference"))
    names: list[str] = results.column("method")
    lines = []
    for entry in recipe.expected:
        label = label_of(recipe, entry.method, names)
        rows = rows_of_method(results, label)
        meanings = choices(rows.where(stage="final"), label, tuned=not (label.settings or is_untuned(rows)))
        name = entry.method.partition(", tuned for ")[0]
        for targets, chosen in meanings or [((), rows.where(stage="search"))]:
            target = label.tuned_for or enumerate_words(targets)
            for metric, value in entry.values.items():
                ours = _ours(chosen, rows, label, Column(metric, entry.where))
                printed_cell = TableCell(value, math.nan, 0)
                gap = None if ours is None else TableCell(ours.mean - value, math.nan, ours.runs)
                lines.append(Line(name, target, (printed_cell, ours, gap), entry.where, metric, entry.note))
    source = ", ".join(filter(None, (recipe.paper, recipe.table)))
    head = title or (f"{source}: the paper's numbers and ours" if source else "The paper's numbers and ours")
    ours_only = [line._replace(cells=line.cells[1:2]) for line in lines]
    note = " ".join(
        filter(None, (f"Ours: {_lowered(describe_runs(ours_only))}", "Difference: ours minus the paper's."))
    )
    return Table(head, note if any(line.cells[1] for line in lines) else "", columns, tuple(lines))


def _ours(chosen: Results, rows: Results, label: Label, column: Column) -> TableCell | None:
    """Our cell; of several settings of one seed there is none that the label means."""
    for source in (chosen, rows.where(stage="search")) if label.settings else (chosen,):
        numbers = source.where(set=column.set, posthoc=label.posthoc or "none", metric=column.metric)
        if numbers and len(numbers) == len(numbers.column("seed")):
            return cell_of(numbers.by_seed().values())
    return None


def _lowered(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]
