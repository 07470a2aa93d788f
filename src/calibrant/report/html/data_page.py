"""The page of a data set: balance, boxes, contact sheets, and everything that was skipped or is odd."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibrant._files import PART, check_output, open_regular, remove_leftovers, written_aside
from calibrant.report.html.layout import asset, head
from calibrant.report.text import escape, name

if TYPE_CHECKING:
    from calibrant.report.figures.data import Cell

PAGE = "index.html"
#: Tells a page of ours from a stranger's.
GENERATOR = "calibrant data inspect"


@dataclass(frozen=True)
class Section:
    """One part of a page: heading, text, and optionally a figure (SVG or PNG) and a table (head, rows of texts)."""

    heading: str
    text: str
    figure: Path | None = None
    table: tuple[Sequence[str], Sequence[Sequence[str]]] | None = None
    words: bool = False  # the table's cells are words, not numbers: left-aligned


@dataclass(frozen=True)
class ContactSheet:
    """Pictures of a split, what is said of them, and the colours of its masks by class."""

    cells: Sequence[Cell]
    text: str
    legend: Mapping[str, tuple[float, float, float]] | None = None


def write_page(path: str | Path, *, title: str, intro: str, sections: Sequence[Section]) -> None:
    """Write one self-contained HTML page; its policy forbids the browser to fetch or to run anything."""
    parts = [f"<h1>{name(title)}</h1><p class='intro'>{name(intro)}</p>"]
    for section in sections:
        parts.append(f"<section><h2>{name(section.heading)}</h2><p>{name(section.text)}</p>")
        if section.figure is not None:
            data = base64.b64encode(section.figure.read_bytes()).decode()
            kind = {".png": "png"}.get(section.figure.suffix.lower(), "svg+xml")
            parts.append(f"<img alt='{escape(section.heading)}' src='data:image/{kind};base64,{data}'>")
        parts.append((_table(*section.table, words=section.words) if section.table else "") + "</section>")
    body = "\n".join(parts)
    top = f"{head(title, generator=GENERATOR)}<style>\n{asset('data.css')}</style></head>"
    with written_aside(path) as aside:
        aside.write_text(f"{top}<body>\n{body}\n</body></html>\n", encoding="utf-8")


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, words: bool) -> str:
    """A table of texts; all but the first column are right-aligned, unless they are words."""
    top = "".join(f"<th>{escape(word)}</th>" for word in heads)
    body = "".join("<tr>" + "".join(f"<td>{name(text)}</td>" for text in row) + "</tr>" for row in rows)
    kind = " class='words'" if words else ""
    return f"<div class='scroll'><table{kind}><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"


def is_page(path: Path) -> bool:
    """Whether a file is a page that `write_page` wrote, which it may therefore overwrite."""
    try:
        with open_regular(path) as file:
            return f'<meta name="generator" content="{GENERATOR}">'.encode() in file.read(2000)
    except (OSError, ValueError):
        return False


def check_page_folder(folder: Path) -> None:
    """Refuse a folder that holds anything but an earlier page of ours, before any work is done."""
    check_output(folder, folder=True)
    # What a killed process had begun to write does not count.
    if folder.exists() and not is_page(folder / PAGE) and not all(n.startswith(PART) for n in os.listdir(folder)):
        raise ValueError(
            f"{folder} is not empty and holds no page of calibrant data inspect; name a new folder, or an empty one."
        )


def write_data_page(
    folder: Path,
    document: Mapping[str, Any],
    sheets: Mapping[str, ContactSheet],
    findings: Sequence[tuple[str, str]],
    *,
    size: str,
) -> dict[str, str]:
    """Write index.html and its figures of an inspection's document; gives the paths of what was written, by name.

    The page is written first: it has the figures in it, and a folder that has the page is ours when the command is
    repeated after it was killed.
    """
    from calibrant.report.figures.data import draw_contact_sheet, draw_data_summary  # brings matplotlib along

    check_page_folder(folder)
    with tempfile.TemporaryDirectory(prefix="calibrant-") as drawing:
        figures = {"summary": Path(drawing) / "summary.svg"}
        draw_data_summary(figures["summary"], document["splits"])
        sections = [Section("Balance, boxes, objectness", "Shares are of the whole image.", figure=figures["summary"])]
        for split, sheet in sheets.items():
            figure = figures[f"contact sheet of {split}"] = Path(drawing) / f"contact-sheet-{_file_part(split)}.png"
            draw_contact_sheet(figure, sheet.cells, legend=sheet.legend)
            sections.append(Section(f"Contact sheet: {split}", sheet.text, figure=figure))
        skipped = (("split", "finding"), findings or [("all", "nothing")])
        about = "Skipped samples are not in the data set; odd ones are."
        sections.append(Section("Skipped and odd", about, table=skipped, words=True))
        intro = f"{size}, layout {document['layout']}."
        write_page(folder / PAGE, title=f"{document['name']}: what is in it", intro=intro, sections=sections)
        remove_leftovers(folder)
        for figure in figures.values():
            with written_aside(folder / figure.name) as aside:
                shutil.copyfile(figure, aside)
    return {"page": str(folder / PAGE)} | {what: str(folder / figure.name) for what, figure in figures.items()}


def _file_part(split: str) -> str:
    """A split's name as a part of a file's; one that had to be changed gets a hash, so that no two are the same."""
    plain = re.sub(r"[^\w.+-]+", "-", split)[:60]
    if plain == split:
        return split
    return f"{plain}-{hashlib.blake2b(split.encode('utf-8', 'surrogateescape'), digest_size=4).hexdigest()}"
