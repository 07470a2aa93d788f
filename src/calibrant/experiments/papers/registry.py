"""The tables and figures of the papers, by name: what each shows, the function that makes it, and its files.

An item is a function of a `Workbench` with the decorator `item`; `calibrant paper`, its list, its pages and its tests
follow from that. Each paper has a module of its own; adding an item touches that module alone.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from calibrant._validation import did_you_mean
from calibrant.experiments import tables
from calibrant.experiments.spaces import methods, title_of
from calibrant.experiments.tables.cells import Table
from calibrant.experiments.tables.formats import write_table
from calibrant.report import PaperPart, in_style, save_figure, write_paper_page

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from calibrant.experiments.papers.workbench import Workbench

#: The papers, each with a module of this package by its name in lower case.
PAPERS = ("ALS", "ACLS", "MbLS", "LR", "SC")
#: What an item becomes: a file of each figure in every format, and a page.
FIGURES, PAGE = ("svg", "pdf", "png"), "index.html"


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


@dataclass(frozen=True)
class PaperItem:
    """A table or figure of a paper.

    Attributes:
        name: ``"acls.table3"``.
        title: What it shows.
        recipes: The recipes whose runs it needs; none if it needs no training.
        minutes: Approximate time of ``--small`` on two cores.
        make: The function that makes it.
        section: The section of the paper, if it is a number in the text.
    """

    name: str
    title: str
    recipes: tuple[str, ...]
    minutes: float
    make: Callable[[Workbench], Output]
    section: str = ""

    @property
    def paper(self) -> str:
        """The paper's short name."""
        return next(paper for paper in PAPERS if paper.lower() == self.name.partition(".")[0])

    @property
    def kind(self) -> Literal["figure", "table", "text"]:
        """What the paper prints it as."""
        return "text" if self.section else "figure" if ".fig" in self.name else "table"

    @property
    def place(self) -> str:
        """Its position in the paper: ``"ACLS, Table 3"``."""
        if self.section:
            return f"{self.paper}, {self.section}"
        word, number = ("Fig.", "fig") if self.kind == "figure" else ("Table", "table")
        return f"{self.paper}, {word} {self.name.partition('.')[2].removeprefix(number).upper()}"


_ITEMS: dict[str, PaperItem] = {}


def item(
    name: str, title: str, *, recipes: Iterable[str] = (), minutes: float, section: str = ""
) -> Callable[[Callable[[Workbench], Output]], Callable[[Workbench], Output]]:
    """Decorator that registers a function as the maker of a table or figure."""

    def register(make: Callable[[Workbench], Output]) -> Callable[[Workbench], Output]:
        if name in _ITEMS:
            raise ValueError(f"{name!r} is registered twice")

        @functools.wraps(make)
        def make_in_style(bench: Workbench) -> Output:
            with in_style():
                return make(bench)

        _ITEMS[name] = PaperItem(name, title, tuple(recipes), minutes, make_in_style, section)
        return make

    return register


def items() -> dict[str, PaperItem]:
    """Every table and figure, in the order of the papers and of their pages.

    Example:
        >>> items()["lr.fig2"].place
        'LR, Fig. 2'
    """
    for paper in PAPERS:
        importlib.import_module(f"calibrant.experiments.papers.{paper.lower()}")
    return dict(sorted(_ITEMS.items(), key=lambda entry: _position(entry[1])))


def _position(item: PaperItem) -> tuple[int, str, int, str]:
    """Paper, then figures and tables by their numbers; those of appendices have letters and come last."""
    number = re.search(r"\d+", item.name.partition(".")[2])
    return PAPERS.index(item.paper), item.kind, int(number[0]) if number else len(_ITEMS) + 100, item.name


def find_item(name: str) -> PaperItem:
    """The item of a name; an error with the nearest names if there is none."""
    registered = items()
    if name.lower() not in registered:
        hint = did_you_mean(name, registered)
        raise ValueError(f"no table or figure is called {name[:80]!r}; calibrant paper list shows them{hint}")
    return registered[name.lower()]


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
        methods={method: title_of(method) for method in methods()},
    )
    return [*files, folder / PAGE]
