"""The tables and figures of the papers, by name: what each shows, the function that makes it, and its files.

An item is an entry of the catalogue, and a function of a `Workbench` with the decorator `item`; `calibrant paper`, its
list, its pages and its tests follow from that. Each paper has a module of its own. The rows, columns and
printed numbers of a table are in the recipes: `tables_beside` makes it as the paper prints it, and beside ours.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibrant.base.checks import listing
from calibrant.experiments import tables
from calibrant.experiments.papers.catalogue import MAKERS, PAGE, PaperItem, find_item
from calibrant.experiments.papers.workbench import SMALL_NOTE, RunSet, Workbench
from calibrant.experiments.spaces import methods, short_title, title_of
from calibrant.experiments.tables.cells import Column, Line, Table, TableCell, mark_best, parse_column
from calibrant.experiments.tables.formats import write_table
from calibrant.experiments.tables.labels import enumerate_words
from calibrant.experiments.tables.summaries import recipe_table
from calibrant.report import MINUS, PaperPart, in_style, save_figure, write_paper_page
from calibrant.training import TUNED_FOR, Recipe, load

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: The formats of a figure.
FIGURES = ("svg", "pdf", "png")

#: Lays out the tables of several recipes, by their names, as the paper's one table.
Layout = Callable[[Mapping[str, Table]], Table]
#: The cells of a table by the names of its rows.
Rows = Mapping[str, Sequence[TableCell | None]]


@dataclass(frozen=True)
class Output:
    """The output of an item.

    Attributes:
        tables: By the name of their files; the first is the table as the paper has it.
        figures: Likewise.
        notes: Sentences for the page: what is shown, how it differs from the paper, and the findings.
    """

    tables: dict[str, Table] = field(default_factory=dict)
    figures: dict[str, Figure] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def item(name: str, **options: Any) -> Callable[[Callable[..., Output]], Callable[..., Output]]:
    """Decorator that registers a function as the maker of a table or figure of the catalogue.

    A function that makes several is decorated once for each: it takes the item as ``item``, and its ``options``.
    """
    of_catalogue = find_item(name)

    def register(make: Callable[..., Output]) -> Callable[..., Output]:
        if name in MAKERS:
            raise ValueError(f"{name!r} is registered twice")

        @functools.wraps(make)
        def make_in_style(bench: Workbench) -> Output:
            own = {"item": of_catalogue} if "item" in inspect.signature(make).parameters else {}
            with in_style():
                return make(replace(bench, item=of_catalogue), **own, **options)

        MAKERS[name] = make_in_style
        return make

    return register


def write_item(item: PaperItem, output: Output, folder: Path, *, command: str, lead: str) -> list[Path]:
    """Write the output of an item into a folder; return the files, the page last.

    Args:
        item: The item.
        output: The output of its function.
        folder: For the files; created if missing.
        command: The command that makes it.
        lead: A sentence on what it was made from.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files: list[Path] = []
    parts: list[PaperPart] = []
    for name, figure in output.figures.items():
        for suffix in FIGURES:
            files.append(folder / f"{name}.{suffix}")
            save_figure(figure, files[-1])
        heading = item.place if len(output.figures) == 1 else f"{item.place}: {name}"
        parts.append(PaperPart(heading, figure=folder / f"{name}.svg"))
    for name, table in output.tables.items():
        files += write_table(table, folder, name)
        parts.append(PaperPart(table.title or name, text=table.note, table=tables.html(table)))
    write_paper_page(
        folder / PAGE,
        title=f"{item.place}: {item.title}",
        lead=lead,
        parts=parts,
        notes=output.notes,
        files=[file.name for file in files],
        command=command,
        methods={short_title(method): title_of(method) for method in methods()},
    )
    return [*files, folder / PAGE]


def tables_beside(
    bench: Workbench,
    recipes: Sequence[str],
    number: str,
    *,
    masks: bool = False,
    layout: Layout | None = None,
    directions: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
    small_notes: Sequence[str] = (),
) -> Output:
    """A table of recipes as the paper prints it, and its numbers beside ours, for every recipe; in small for the first.

    Args:
        bench: Provides the runs.
        recipes: By name; each has a table of that number.
        number: Number of the table.
        masks: In small: scenes with a label for every pixel.
        layout: Lays out the tables of all recipes; one below the other if left out.
        directions: By metric, which end is better here: ``"low"`` or ``"high"``, if not the metric's own.
        notes: Sentences for the page.
        small_notes: Further ones, in small.
    """
    sets = {
        recipe: bench.run(recipe, load(recipe).tables[number].rows, masks=masks) for recipe in bench.recipes(recipes)
    }
    if bench.small:
        notes = [*notes, *small_notes, *([SMALL_NOTE] if masks else [])]
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
    tables_of = {
        recipe: _set_directions(recipe_table(runs.results, runs.recipe, number), directions or {})
        for recipe, runs in sets.items()
    }
    if not any(table.rows for table in tables_of.values()):
        rows = listing(
            list(dict.fromkeys(row for runs in sets.values() for row in runs.recipe.tables[number].rows)), 12
        )
        raise ValueError(f"no run has a number for a row of Table {number}, which has {rows}")
    head = f"table{number.lower()}"
    names = {recipe: head if len(sets) == 1 else f"{head}-{recipe}" for recipe in sets}
    tables_by_name: dict[str, Table] = {}
    if layout is not None:
        tables_by_name[head] = layout(tables_of)
    for recipe, runs in sets.items():
        tables_by_name.setdefault(names[recipe], tables_of[recipe])
        printed = beside(runs, number)
        if printed.rows:
            tables_by_name[f"{names[recipe]}-beside"] = printed
    sentences = [*notes]
    for recipe, table in tables_of.items():
        sentences += _leaders(table, f"{_setting(sets[recipe].recipe)}, " if len(sets) > 1 else "")
    sentences += [words for runs in sets.values() for words in runs.notes]
    return Output(tables=tables_by_name, notes=tuple(sentences))


def _set_directions(table: Table, directions: Mapping[str, str]) -> Table:
    """The table with its best cells marked by other directions of some metrics."""
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
    entries = []
    for entry in recipe.expected:
        values = {metric: value for metric, value in entry.values.items() if (metric, entry.where) in numbers}
        if values and entry.method.partition(TUNED_FOR)[0] in rows:
            entries.append(entry.model_copy(update={"values": values}))
    title = f"{recipe.paper}, Table {number}, {_setting(recipe)}: the paper's numbers and ours"
    return tables.expected(runs.results, recipe.model_copy(update={"expected": tuple(entries)}), title=title)


def _setting(recipe: Recipe) -> str:
    """Data set and network: the title without the method or the paper that it ends in."""
    return recipe.title.rpartition(", ")[0] or recipe.title


def _leaders(table: Table, setting: str = "") -> list[str]:
    """The best and the second best methods of each column, in a sentence each; none where all have the same number."""
    sentences = []
    for k, column in enumerate(table.columns):
        cells = [(cell.mean, _row(line)) for line in table.rows if (cell := line.cells[k]) is not None and cell.runs]
        cells.sort(key=lambda pair: pair[0] if column.better == "low" else -pair[0])
        places: dict[str, list[str]] = {}  # equal as printed
        for value, name in cells:
            places.setdefault(amount(value, column), []).append(name)
        if column.better == "none" or len(places) < 2:
            continue
        (best, names), (second, next_names), *_ = places.items()
        sentences.append(
            f"{setting}{column.name}: {enumerate_words(names)} {'is' if len(names) == 1 else 'are'} best with {best}, "
            f"then {enumerate_words(next_names)} with {second}."
        )
    return sentences


def _row(line: Line) -> str:
    return line.method + (f", tuned for {line.tuned_for}" if line.tuned_for else "")


def share_table(title: str, heads: Sequence[str], rows: Rows, note: str = "", better: str = "none") -> Table:
    """A table of shares, with a row of cells for each name."""
    columns = tuple(Column("", title=head, direction=better, unit="share") for head in heads)
    return Table(title, note, columns, tuple(Line(name, "", tuple(cells)) for name, cells in rows.items()))


def amount(value: float, column: Column) -> str:
    """A number of a column in a sentence: shares with their unit."""
    return f"{100 * value:.2f}%" if column.is_share else f"{value:.4g}".replace("-", MINUS)
