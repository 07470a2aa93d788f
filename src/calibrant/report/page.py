"""Self-contained HTML pages."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from calibrant._files import written_aside


@dataclass(frozen=True)
class Section:
    """One part of a page: heading, text, and optionally a figure (SVG or PNG) and a table (head, rows of texts)."""

    heading: str
    text: str
    figure: Path | None = None
    table: tuple[Sequence[str], Sequence[Sequence[str]]] | None = None
    words: bool = False  # the table's cells are words, not numbers: left-aligned


def write_page(path: str | Path, *, title: str, intro: str, sections: Sequence[Section]) -> None:
    """Write one self-contained HTML page."""
    parts = [f"<h1>{html.escape(title)}</h1><p class='intro'>{html.escape(intro)}</p>"]
    for section in sections:
        parts.append(f"<section><h2>{html.escape(section.heading)}</h2><p>{html.escape(section.text)}</p>")
        if section.figure is not None:
            data = base64.b64encode(section.figure.read_bytes()).decode()
            kind = {".png": "png"}.get(section.figure.suffix.lower(), "svg+xml")
            parts.append(f"<img alt='{html.escape(section.heading)}' src='data:image/{kind};base64,{data}'>")
        parts.append((_table(*section.table, words=section.words) if section.table else "") + "</section>")
    page = _PAGE.replace("TITLE", html.escape(title)).replace("BODY", "\n".join(parts))
    with written_aside(path) as aside:
        aside.write_text(page, encoding="utf-8", errors="backslashreplace")  # names of files need not be UTF-8


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], *, words: bool = False) -> str:
    """A table of texts; all but the first column are right-aligned, unless they are words."""
    top = "".join(f"<th>{html.escape(h)}</th>" for h in head)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(c)}</td>" for c in row) + "</tr>" for row in rows)
    kind = " class='words'" if words else ""
    return f"<div class='scroll'><table{kind}><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>TITLE</title>
<style>
body{font:16px/1.55 system-ui,sans-serif;color:#1f2933;background:#f7f9fa}
body{margin:0 auto;max-width:66rem;padding:2rem 1.25rem}
h1{font-size:1.9rem;margin:0 0 .3rem}h2{font-size:1.15rem;margin:0 0 .4rem}.intro{color:#52606d;margin-top:0}
section{background:#fff;border:1px solid #e4e9ed;border-radius:10px;padding:1.1rem 1.3rem;margin:1.2rem 0}
img{width:100%;height:auto}.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:.9rem}
th,td{padding:.35rem .6rem;text-align:right;border-bottom:1px solid #e4e9ed;font-variant-numeric:tabular-nums}
th:first-child,td:first-child,.words td,.words th{text-align:left}.words td{overflow-wrap:anywhere}
th{color:#52606d;font-weight:600}
</style></head><body>
BODY
</body></html>
"""
