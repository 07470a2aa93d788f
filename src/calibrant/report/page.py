"""Self-contained HTML pages."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from calibrant._files import open_regular, written_aside
from calibrant.report.head import head
from calibrant.report.text import escape, name

#: By this a page of ours is told from a stranger's.
GENERATOR = "calibrant data inspect"


@dataclass(frozen=True)
class Section:
    """One part of a page: heading, text, and optionally a figure (SVG or PNG) and a table (head, rows of texts)."""

    heading: str
    text: str
    figure: Path | None = None
    table: tuple[Sequence[str], Sequence[Sequence[str]]] | None = None
    words: bool = False  # the table's cells are words, not numbers: left-aligned


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
    page = f"{head(title, generator=GENERATOR)}<style>{_STYLE}</style></head><body>\n{body}\n</body></html>\n"
    with written_aside(path) as aside:
        aside.write_text(page, encoding="utf-8")


def is_page(path: Path) -> bool:
    """Whether a file is a page that `write_page` wrote, which it may therefore overwrite."""
    try:
        with open_regular(path) as file:
            return f'<meta name="generator" content="{GENERATOR}">'.encode() in file.read(2000)
    except (OSError, ValueError):
        return False


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], *, words: bool = False) -> str:
    """A table of texts; all but the first column are right-aligned, unless they are words."""
    top = "".join(f"<th>{escape(h)}</th>" for h in head)
    body = "".join("<tr>" + "".join(f"<td>{name(c)}</td>" for c in row) + "</tr>" for row in rows)
    kind = " class='words'" if words else ""
    return f"<div class='scroll'><table{kind}><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"


_STYLE = """
"""
