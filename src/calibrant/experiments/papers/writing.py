"""What an item made, as files: tables and figures in the formats that papers are written with, and a page."""

from __future__ import annotations

from pathlib import Path

from calibrant.experiments import tables
from calibrant.experiments.papers.registry import Output, PaperItem
from calibrant.experiments.plan.spaces import methods, title_of
from calibrant.experiments.tables.formats import write_table
from calibrant.report import PaperPart, save_figure, write_paper_page

FIGURES = ("svg", "pdf", "png")
PAGE = "index.html"


def write_item(item: PaperItem, output: Output, folder: Path, *, command: str, lead: str) -> list[Path]:
    """Write everything that an item made into a folder; gives the files, the page last.

    Args:
        item: What was made.
        output: What its function returned.
        folder: For the files; made if it is not there.
        command: That makes it again.
        lead: What it was made from, in a sentence.
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
    names = [file.name for file in files]
    page = folder / PAGE
    write_paper_page(
        page,
        title=f"{item.place}: {item.title}",
        lead=lead,
        parts=parts,
        notes=output.notes,
        files=names,
        command=command,
        methods={method: title_of(method) for method in methods()},
    )
    return [*files, page]
