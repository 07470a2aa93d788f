"""The sheet that reports are written on: one HTML file with style, script and policy in it, sections and contents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from calibrant._files import written_aside
from calibrant.report.head import head
from calibrant.report.svg import SYMBOLS
from calibrant.report.text import escape, name


@dataclass(frozen=True)
class Section:
    """A section of a report, and its word in the list of contents."""

    ident: str
    heading: str
    short: str
    body: str


def asset(file: str) -> str:
    """A style or a script that lies beside this module."""
    return resources.files("calibrant.report").joinpath(file).read_text(encoding="utf-8")


def write_sheet(
    path: str | Path,
    sections: Sequence[Section],
    *,
    title: str,
    kind: str,
    created: str | None,
    top: str,
    skip: str,
    style: str = "",
) -> None:
    """Write a report; the file appears whole or not at all, and its policy forbids the browser to fetch anything.

    Args:
        path: where to write.
        sections: in their order.
        title: as it is.
        kind: what made it.
        created: when, if that is told.
        top: HTML below the title.
        skip: what the link says that goes past the contents.
        style: beyond that of all reports.
    """
    contents = "".join(f'<li><a href="#{one.ident}">{escape(one.short)}</a></li>' for one in sections)
    body = "".join(
        f'<section id="{one.ident}" aria-labelledby="{one.ident}-h"><h2 id="{one.ident}-h">{escape(one.heading)}</h2>'
        f"{one.body}</section>\n"
        for one in sections
    )
    script = asset("audit.js")
    made = " · ".join(escape(x) for x in (kind, created) if x)
    page = (
        f'{head(title, script=script)}<meta name="color-scheme" content="light dark">\n'
        f"<style>{asset('audit.css')}{style}</style></head>\n<body>{SYMBOLS}\n"
        f'<a class="skip" href="#main">{escape(skip)}</a>\n<div class="page">\n'
        f'<header class="top"><p class="made">{made}</p><h1>{name(title)}</h1>{top}</header>\n'
        f'<nav class="contents" aria-label="Contents"><ol>{contents}</ol></nav>\n'
        f'<main id="main">\n{body}</main>\n</div>\n<script>{script}</script></body></html>\n'
    )
    with written_aside(path) as aside:
        aside.write_text(page, encoding="utf-8", newline="\n")
