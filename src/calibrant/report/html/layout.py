"""The layout of a report: one HTML file with its style, script and policy in it, a list of contents and sections."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from calibrant._files import written_aside
from calibrant.report.html.abbreviations import collect_abbreviations, explain_abbreviations, mark_abbreviations
from calibrant.report.html.svg import SYMBOLS
from calibrant.report.text import escape, name


@dataclass(frozen=True)
class ReportSection:
    """A section of a report, and its word in the list of contents; the body is HTML."""

    ident: str
    heading: str
    short: str
    body: str


def head(title: str, *, script: str | None = None, generator: str = "calibrant") -> str:
    """The beginning of a page up to its title; only the script that is given may run, and the element stays open."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy(script)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="generator" content="{escape(generator)}">\n'
        # Without an icon of its own a served page would make the browser ask for one.
        f'<link rel="icon" href="data:,">\n<title>{escape(title)}</title>\n'
    )


def policy(script: str | None = None) -> str:
    """The content security policy of a page with this script, or with none: the browser fetches nothing."""
    digest = base64.b64encode(hashlib.sha256((script or "").encode()).digest()).decode()
    allowed = f"'sha256-{digest}'" if script is not None else "'none'"
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src {allowed}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def asset(file: str) -> str:
    """A style or a script of the pages."""
    return resources.files("calibrant.report").joinpath("html", "assets", file).read_text(encoding="utf-8")


def write_report(
    path: str | Path,
    sections: Sequence[ReportSection | None],
    *,
    title: str,
    kind: str,
    created: str | None,
    top: str,
    skip: str,
    style: str = "",
    generator: str = "calibrant",
    methods: Mapping[str, str] | None = None,
) -> None:
    """Write a report; the file appears whole or not at all.

    Sections that are None are left out. ``top`` is HTML below the title, ``skip`` the words of the link that goes past
    the contents, ``style`` CSS beyond that of all reports. Abbreviations of metrics are marked, and with ``methods``
    (titles by name) those of methods, in names too; then a section before the last explains all of them.
    """
    entries, in_names = collect_abbreviations(methods), bool(methods)
    top = mark_abbreviations(top, entries, in_names=in_names)
    written = [section for section in sections if section is not None]
    marked = [mark_abbreviations(_section(section), entries, in_names=in_names) for section in written]
    if methods and (explained := explain_abbreviations("".join([top, *marked]), entries)):
        glossary = ReportSection("names", "What the names mean", "Names", terms("terms", explained))
        written.insert(-1, glossary)
        marked.insert(-1, _section(glossary))
    contents = "".join(f'<li><a href="#{section.ident}">{escape(section.short)}</a></li>' for section in written)
    body = "".join(marked)
    script = asset("report.js")
    origin = " · ".join(escape(text) for text in (kind, created) if text)
    page = (
        f'{head(title, script=script, generator=generator)}<meta name="color-scheme" content="light dark">\n'
        f"<style>{asset('report.css')}{style}</style></head>\n<body>{SYMBOLS}\n"
        f'<a class="skip" href="#main">{escape(skip)}</a>\n<div class="page">\n'
        f'<header class="top"><p class="made">{origin}</p><h1>{name(title)}</h1>{top}</header>\n'
        f'<nav class="contents" aria-label="Contents"><ol>{contents}</ol></nav>\n'
        f'<main id="main">\n{body}</main>\n</div>\n<script>{script}</script></body></html>\n'
    )
    with written_aside(path) as aside:
        aside.write_text(page, encoding="utf-8", newline="\n")


def _section(section: ReportSection) -> str:
    return (
        f'<section id="{section.ident}" aria-labelledby="{section.ident}-h">'
        f'<h2 id="{section.ident}-h">{escape(section.heading)}</h2>{section.body}</section>\n'
    )


def command_box(command: str) -> str:
    """A command with a button that copies it."""
    return (
        f'<div class="command"><pre tabindex="0"><code>{escape(command)}</code></pre>'
        '<button type="button" class="copy" hidden>Copy</button></div>'
    )


def terms(kind: str, pairs: Sequence[tuple[object, object]]) -> str:
    """A list of terms with what is said of each; nothing if it is empty."""
    items = "".join(f"<div><dt>{escape(term)}</dt><dd>{escape(text)}</dd></div>" for term, text in pairs)
    return f'<dl class="{kind}">{items}</dl>' if items else ""


def card(heading: str, value: str, text: str, *, interval: str = "", level: str = "", figure: str = "") -> str:
    """A card: a heading, one big number with its interval, a sentence, and optionally a figure below them.

    ``level`` colours the number (``good``, ``fair``, ``poor``, ``info``) and may be left out; ``figure`` is HTML, the
    rest plain text. `cards` puts several side by side.
    """
    spread = f' <span class="ci">{escape(interval)}</span>' if interval else ""
    kind = f"card {level}" if level else "card"
    return (
        f'<article class="{escape(kind)}"><h3>{escape(heading)}</h3>'
        f'<p class="big"><span class="v">{escape(value)}</span>{spread}</p><p>{escape(text)}</p>{figure}</article>'
    )


def cards(*items: str) -> str:
    """Cards side by side, as many in a row as fit."""
    return f'<div class="cards">{"".join(items)}</div>' if items else ""


def columns(*items: str) -> str:
    """Figures, or other HTML, in two columns where the window is wide enough and one below the other where not."""
    return f'<div class="columns">{"".join(items)}</div>' if items else ""
