"""What items of several papers share: tables of recipes, the printed numbers beside ours, and ways to lay them out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from calibrant.experiments import tables
from calibrant.experiments.papers.registry import Output
from calibrant.experiments.papers.workbench import RunSet, Workbench
from calibrant.experiments.tables.cells import Column, Line, Table, TableCell, cell_of, mark_best, parse_column
from calibrant.experiments.tables.recipe_tables import recipe_table
from calibrant.report import MINUS
from calibrant.training import TUNED_FOR, load

#: Lays out the tables of several recipes, by their names, as the paper's one table.
Layout = Callable[[Mapping[str, Table]], Table]


def tables_beside(
    bench: Workbench,
    recipes: Sequence[str],
    number: str,
    *,
    tune: Sequence[str] = (),
    changes: Mapping[str, Any] | None = None,
    masks: bool = False,
    layout: Layout | None = None,
    directions: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
) -> Output:
    """A table of recipes as the paper prints it, and its numbers beside ours, for every recipe; in small for the first.

    Args:
        bench: Where runs come from.
        recipes: By name; each has a table of that number.
        number: Number of the table.
        tune: Metrics for which settings are searched.
        changes: In small: values of the experiment to replace, by section.
        masks: In small: scenes with a label for every pixel.
        layout: Lays out the tables of all recipes; one below the other if left out.
        directions: By metric, which end is better here: ``"low"`` or ``"high"``, if not the metric's own.
        notes: Sentences for the page.
    """
    sets = {
        recipe: bench.run(recipe, load(recipe).tables[number].rows, tune=tune, changes=changes, masks=masks)
        for recipe in bench.recipes(recipes)
    }
    return beside_of(sets, number, layout=layout, directions=directions, notes=notes)


def beside_of(
    sets: Mapping[str, RunSet],
    number: str,
    *,
    layout: Layout | None = None,
    directions: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
) -> Output:
    """As `tables_beside`, for runs that exist already."""
    own = {
        recipe: _directed(recipe_table(runs.results, runs.recipe, number), directions or {})
        for recipe, runs in sets.items()
    }
    head = f"table{number.lower()}"
    names = {recipe: head if len(sets) == 1 else f"{head}-{recipe}" for recipe in sets}
    tables_by_name: dict[str, Table] = {}
    if layout is not None:
        tables_by_name[head] = layout(own)
    for recipe, runs in sets.items():
        tables_by_name.setdefault(names[recipe], own[recipe])
        printed = beside(runs, number)
        if printed.rows:
            tables_by_name[f"{names[recipe]}-beside"] = printed
    sentences = [*notes, *(words for table in own.values() for words in _leaders(table))]
    sentences += [words for runs in sets.values() for words in runs.notes]
    return Output(tables=tables_by_name, notes=tuple(sentences))


def _directed(table: Table, directions: Mapping[str, str]) -> Table:
    """The table with its best cells marked by other ends of some metrics."""
    columns = tuple(column._replace(direction=directions.get(column.metric)) for column in table.columns)
    return Table(table.title, table.note, columns, mark_best(columns, table.rows)) if directions else table


def beside(runs: RunSet, number: str) -> Table:
    """The numbers that the paper prints for the rows of a table, beside ours, with the difference."""
    recipe, table = runs.recipe, runs.recipe.tables[number]
    columns = [parse_column(text) for text in table.columns]
    rows = {row.partition(TUNED_FOR)[0] for row in table.rows}
    # A column after a repair is printed under the name of the method that is repaired.
    repairs = {column.posthoc for column in columns}
    rows |= {name for name, method in recipe.methods.items() if method.of in rows and method.repair in repairs}
    numbers = {(column.metric, column.set) for column in columns}
    wanted = []
    for entry in recipe.expected:
        values = {metric: value for metric, value in entry.values.items() if (metric, entry.where) in numbers}
        if values and entry.method.partition(TUNED_FOR)[0] in rows:
            wanted.append(entry.model_copy(update={"values": values}))
    title = f"{recipe.paper}, Table {number}: the paper's numbers and ours"
    return tables.expected(runs.results, recipe.model_copy(update={"expected": tuple(wanted)}), title=title)


def _leaders(table: Table) -> list[str]:
    """Who is best in each column, and by how much the next is worse, in a sentence a column."""
    sentences = []
    for k, column in enumerate(table.columns):
        cells = [(cell.mean, line) for line in table.rows if (cell := line.cells[k]) is not None and cell.runs]
        if column.better == "none" or len(cells) < 2:
            continue
        (first, best), (second, other), *_ = sorted(
            cells, key=lambda pair: pair[0] if column.better == "low" else -pair[0]
        )
        sentences.append(
            f"{column.name}: {_row(best)} is best with {amount(first, column)}, then {_row(other)} with "
            f"{amount(second, column)}."
        )
    return sentences


def _row(line: Line) -> str:
    return line.method + (f", tuned for {line.tuned_for}" if line.tuned_for else "")


def amount(value: float, column: Column) -> str:
    """A number of a column in a sentence: shares with their unit."""
    return f"{100 * value:.2f}%" if column.is_share else f"{value:.4g}".replace("-", MINUS)


def side_by_side(parts: Mapping[str, Table], title: str = "") -> Table:
    """Tables with the same rows as one, the name of each before the heads of its columns."""
    if len(parts) == 1:
        return next(iter(parts.values()))
    keys = list(dict.fromkeys((line.method, line.tuned_for) for table in parts.values() for line in table.rows))
    cells: dict[tuple[str, str], list[TableCell | None]] = {key: [] for key in keys}
    columns: list[Column] = []
    for name, table in parts.items():
        columns += [column._replace(title=f"{name}: {column.name}") for column in table.columns]
        rows = {(line.method, line.tuned_for): line.cells for line in table.rows}
        for key in keys:
            cells[key] += rows.get(key, (None,) * len(table.columns))
    lines = [Line(*key, tuple(cells[key])) for key in keys]
    first = next(iter(parts.values()))
    return Table(title or first.title, first.note, tuple(columns), mark_best(columns, lines))


def methods_across(parts: Mapping[str, Table], title: str) -> Table:
    """A table as MbLS prints it: a row for each data set and network, columns for each method.

    A row's name is the method, and after a comma the network: ``"CE, R-50"``.
    """
    values: dict[str, dict[str, tuple[TableCell | None, ...]]] = {}
    for name, table in parts.items():
        for line in table.rows:
            method, _, network = line.method.partition(", ")
            values.setdefault(", ".join(filter(None, (name, network))), {})[method] = line.cells
    first = next(iter(parts.values()))
    methods = list(dict.fromkeys(method for row in values.values() for method in row))
    columns = tuple(column._replace(title=f"{method}, {column.name}") for method in methods for column in first.columns)
    none = (None,) * len(first.columns)
    lines = [
        Line(name, "", tuple(cell for method in methods for cell in row.get(method, none)))
        for name, row in values.items()
    ]
    plain = tuple(line._replace(cells=tuple(_unmarked(cell) for cell in line.cells)) for line in lines)
    return Table(title, first.note, columns, plain)


def _unmarked(cell: TableCell | None) -> TableCell | None:
    """A cell without what was best among others than those that it stands beside now."""
    return None if cell is None else cell._replace(best=False, second=False)


def mean_of(runs: RunSet, method: str, metric: str, *, name: str = "test") -> TableCell:
    """A metric of a method, mean and standard deviation over its seeds."""
    values = runs.results.by_seed(method=method, stage="final", set=name, posthoc="none", metric=metric)
    return cell_of(values.values()) or TableCell(math.nan, math.nan, 0)
