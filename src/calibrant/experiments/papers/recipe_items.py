"""What items of several papers share: tables of recipes with the printed numbers beside ours."""

from __future__ import annotations

from collections.abc import Sequence

from calibrant.experiments import tables
from calibrant.experiments.cells import Table
from calibrant.experiments.papers.registry import Output
from calibrant.experiments.papers.workbench import RunSet, Workbench
from calibrant.experiments.recipe_tables import recipe_table
from calibrant.training import load


def tables_beside(
    bench: Workbench, recipes: Sequence[str], number: str, *, tune: Sequence[str] = (), notes: Sequence[str] = ()
) -> Output:
    """A table of recipes as the paper prints it, and its numbers beside ours, for every recipe; in small for the first.

    Args:
        bench: Where runs come from.
        recipes: By name; each has a table of that number.
        number: Of the table.
        tune: Metrics for which settings are searched.
        notes: Sentences for the page.
    """
    made: dict[str, Table] = {}
    for recipe in recipes[:1] if bench.small else recipes:
        runs = bench.run(recipe, load(recipe).tables[number].rows, tune=tune)
        name = f"table{number.lower()}" if len(recipes) == 1 or bench.small else f"table{number.lower()}-{recipe}"
        made[name] = recipe_table(runs.results, runs.recipe, number)
        made[f"{name}-beside"] = beside(runs, number)
    return Output(tables=made, notes=tuple(notes))


def beside(runs: RunSet, number: str) -> Table:
    """The numbers that the paper prints for the rows of a table, beside ours, with the difference."""
    rows = {row.partition(", tuned for ")[0] for row in runs.recipe.tables[number].rows}
    wanted = tuple(entry for entry in runs.recipe.expected if entry.method.partition(", tuned for ")[0] in rows)
    return tables.expected(runs.results, runs.recipe.model_copy(update={"expected": wanted}))
