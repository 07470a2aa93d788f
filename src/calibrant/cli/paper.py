"""``calibrant paper``: every table and figure of the papers by its name, on their data or in small."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from calibrant.cli.console import (
    acknowledge_interrupts,
    continuable,
    print_json,
    print_results,
    print_table,
    remark,
    say,
    show_progress,
)
from calibrant.cli.options import Json, Quiet, command_line, parse_seeds

LIST = "list"


def paper_command(
    name: Annotated[str, typer.Argument(help="Name of the item, such as acls.table3; list shows all.")],
    more_runs: Annotated[list[Path] | None, typer.Argument(metavar="[RUN]...", help="More runs, after --runs.")] = None,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="Folder; every item gets its own folder in it, and all share the runs."),
    ] = Path("papers"),
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            metavar="[NAME=]DIR",
            help="Folder of the data; with NAME=, of one data set: fashion-mnist=DIR (repeat for more).",
        ),
    ] = None,
    small: Annotated[
        bool, typer.Option("--small", help="The same methods on drawn scenes, in minutes on two cores.")
    ] = False,
    runs: Annotated[
        list[Path] | None, typer.Option(help="Take these finished runs or comparisons instead of training.")
    ] = None,
    seeds: Annotated[str, typer.Option(help="Number of seeds (3 means 0 to 2), or a list: 0,1,7.")] = "3",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make a table or figure of one of the papers, or list them all.

    Writes the table (md, tex, csv, html) or the figure (svg, pdf, png), the printed numbers beside ours, and a page.
    Finished runs are not repeated.
    """
    from calibrant.experiments import papers

    if name.lower() == LIST:
        every = [recipe for item in papers.items().values() for recipe in item.recipes]
        _list(output, *papers.parse_folders(data or (), every), as_json)
        return
    item = papers.find_item(name)
    if more_runs and not runs:
        raise ValueError(f"got {str(more_runs[0])!r} after the name; finished runs are given with --runs")
    if item.recipes and not (small or data or runs):
        raise ValueError(
            f"{item.place} is made from runs on {_data_of(item)}: give their folder with --data, finished runs with "
            "--runs, or --small for drawn scenes"
        )
    folder, named = papers.parse_folders(data or (), item.recipes)
    existing = [*(runs or ()), *(more_runs or ())]
    with show_progress(quiet, lines=True) as progress, continuable(quiet), acknowledge_interrupts(quiet):
        bench = papers.Workbench(output, small, folder, named, existing, parse_seeds(seeds), progress=progress)
        result = item.make(bench)
    source = "drawn scenes (--small)" if small else "finished runs" if existing else _data_of(item)
    lead = f"Made from {source}." if item.recipes else "Computed from the formulas; nothing was trained."
    files = papers.write_item(item, result, output / item.name, command=command_line(), lead=lead)
    if as_json:
        print_json({"item": item.name, "files": [str(file) for file in files]})
    elif not quiet:
        print_results(result.tables.values())
        for note in result.notes:
            say(note)
    remark(f"open {files[-1]}", quiet)


def _list(output: Path, folder: str | None, named: dict[str, str], as_json: bool) -> None:
    from calibrant.experiments import papers

    rows = [
        {
            "name": item.name,
            "shows": item.title,
            "data": _data_of(item) or "none",
            "here": "made" if (output / item.name / papers.PAGE).exists() else _readiness(item, folder, named),
            "minutes": item.minutes,
            "runs": _runs_of(item),
        }
        for item in papers.items().values()
    ]
    if as_json:
        print_json(rows)
        return
    lines = [
        [str(row["name"]), _cut(str(row["shows"]), 48), _first(str(row["data"])), str(row["here"]),
         f"{row['minutes']:g}"]
        for row in rows
    ]  # fmt: skip
    # Data and full length of every item are in --json.
    print_table("Tables and figures of the papers; minutes of --small", ("name", "shows", "data", "here", "min"), lines)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _first(data: str) -> str:
    """The first of several data sets, and how many more."""
    first, *further = data.split(", ")
    return first + (f" +{len(further)}" if further else "")


def _data_of(item: Any) -> str:
    """The names of the data sets that an item's recipes need."""
    from calibrant.experiments import papers

    return ", ".join(dict.fromkeys(data.name for name in item.recipes if (data := papers.data_of(name)) is not None))


def _readiness(item: Any, folder: str | None, named: dict[str, str]) -> str:
    """Whether the data of an item are in the given folders; else --small."""
    from calibrant.experiments import papers

    if not item.recipes:
        return "ready"
    if folder is None and not named:
        return "--small"
    from calibrant.data import recognise  # here, because it imports PyTorch

    for recipe in dict.fromkeys(item.recipes):
        data = papers.data_of(recipe)
        try:
            place = papers.find_data(recipe, folder, named)
            if place is not None and data is not None and recognise(place, data.layout):
                return f"{data.name} is here"
        except ValueError:
            continue
    return "--small"


def _runs_of(item: Any) -> str:
    """How much the papers' own experiment is: methods and epochs."""
    from calibrant.recipes import plain_recipe

    plans = [plain_recipe(recipe) for recipe in item.recipes]
    counts = [f"{max(1, len(p.get('methods', ())))} x {p['training'].get('epochs') or 1:g} epochs" for p in plans]
    return "; ".join(dict.fromkeys(counts)) or "seconds"
