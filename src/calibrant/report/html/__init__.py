"""Pages: one self-contained HTML file each; this file has what they share, and the plain page of a paper's item.

A page has its style, script and policy in it, a list of contents and sections; the other modules fill these.

Abbreviations are marked where they stand, with what they stand for: those of metrics as the catalogue of metrics has
them, and the names of a page's methods.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from calibrant.base.files import written_aside
from calibrant.metrics import METRICS
from calibrant.report.html.svg import SYMBOLS, icon
from calibrant.report.html.tables import clipped
from calibrant.report.text import escape, name

#: Elements whose text is never marked: it is no prose, or it cannot hold markup.
_OPAQUE = {"script", "style", "svg", "code", "pre", "button", "select", "abbr", "title"}
#: Elements that are read by themselves: every abbreviation in them is marked, elsewhere the first of a section.
_ALONE = {"th", "h2", "h3", "dt", "li", "figcaption", "caption"}
_TAG = re.compile(r"(<[^>]*>)")
_NAME = re.compile(r"</?([a-z][a-z0-9]*)")


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

    Sections that are None or empty are left out. ``top`` is HTML below the title, ``skip`` the words of the link that
    goes past the contents, ``style`` CSS beyond that of all reports. Abbreviations of metrics are marked, and with
    ``methods`` (titles by name) those of methods, in names too; then a section before the last explains all of them.
    """
    entries, in_names = collect_abbreviations(methods), bool(methods)
    top = mark_abbreviations(top, entries, in_names=in_names)
    present = [section for section in sections if section is not None and section.body]
    marked = [mark_abbreviations(_section(section), entries, in_names=in_names) for section in present]
    if methods and (explained := explain_abbreviations("".join([top, *marked]), entries)):
        glossary = ReportSection("names", "What the names mean", "Names", terms("terms", explained))
        present.insert(-1, glossary)
        marked.insert(-1, _section(glossary))
    contents = "".join(f'<li><a href="#{section.ident}">{escape(section.short)}</a></li>' for section in present)
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


def level_line(level: str, words: str, whose: str = "") -> str:
    """The sign of a level and its words, and whose it is where that must be said; all of it HTML."""
    return f'<p class="level">{icon(level)}<span>{words}</span>{whose}</p>'


def verdict_box(level: str, words: str, headline: str, text: str, whose: str = "") -> str:
    """The verdict at the top of a page, all of it HTML: the `level_line`, a headline and the text below."""
    return (
        f'<section class="verdict {level}" aria-labelledby="verdict-h">{level_line(level, words, whose)}'
        f'<h2 id="verdict-h">{headline}</h2>{text}</section>'
    )


def command_box(command: str) -> str:
    """A command with a button that copies it."""
    return (
        f'<div class="command"><pre tabindex="0"><code>{escape(command)}</code></pre>'
        '<button type="button" class="copy" hidden>Copy</button></div>'
    )


def reproduction(command: str | None, facts: Sequence[tuple[object, object]] = ()) -> ReportSection:
    """The section that says how to make the page again, with facts about its making."""
    body = (command_box(command) if command else "") + terms("facts", facts)
    return ReportSection("reproduce", "How to reproduce", "Reproduce", body)


def terms(kind: str, pairs: Sequence[tuple[object, object]]) -> str:
    """A list of terms with what is said of each; nothing if it is empty."""
    items = "".join(f"<div><dt>{escape(term)}</dt><dd>{escape(text)}</dd></div>" for term, text in pairs)
    return f'<dl class="{kind}">{items}</dl>' if items else ""


def card(heading: str, value: str, text: str, *, interval: str = "", level: str = "") -> str:
    """A card: a heading, one big number with its interval, and a sentence, all plain text.

    ``level`` colours the number (``good``, ``fair``, ``poor``, ``info``). `cards` puts several side by side.
    """
    spread = f' <span class="ci">{escape(interval)}</span>' if interval else ""
    kind = f"card {level}" if level else "card"
    return (
        f'<article class="{escape(kind)}"><h3>{escape(heading)}</h3>'
        f'<p class="big"><span class="v">{escape(value)}</span>{spread}</p><p>{escape(text)}</p></article>'
    )


def cards(*items: str) -> str:
    """Cards side by side, as many in a row as fit."""
    return f'<div class="cards">{"".join(items)}</div>' if items else ""


def columns(*items: str) -> str:
    """Figures, or other HTML, in two columns where the window is wide enough and one below the other where not."""
    return f'<div class="columns">{"".join(items)}</div>' if items else ""


def figure(drawing: str, caption: str) -> str:
    """A drawing with what is said of it, all of it HTML."""
    return f"<figure>{drawing}<figcaption>{caption}</figcaption></figure>"


def legend(items: Iterable[str]) -> str:
    """What the colours or lines of figures stand for, each item HTML; nothing if there are none."""
    entries = "".join(f"<li>{item}</li>" for item in items)
    return f'<ul class="legend curves">{entries}</ul>' if entries else ""


def painted_legend(colours: Iterable[tuple[str, Sequence[int]]]) -> str:
    """What the colours of painted pixels stand for, each red, green, blue in 0..255."""
    return legend(
        f'<span class="box" style="background:rgb({",".join(map(str, colour))})"></span>{clipped(label)}'
        for label, colour in colours
    )


class Abbreviation(NamedTuple):
    """How an abbreviation is written, what it stands for, and a line that explains it."""

    spelling: str
    title: str
    explained: str


def collect_abbreviations(methods: Mapping[str, str] | None = None) -> dict[str, Abbreviation]:
    """The abbreviations of the metrics and of a page's methods, by their lower-case spelling.

    A metric is written as its label, also where the text has the name of its function; methods in lower case stay as
    they are.

    Example:
        >>> collect_abbreviations()["e_aurc"].spelling
        'E-AURC'
        >>> collect_abbreviations({"ls": "Label smoothing"})["ls"].title
        'Label smoothing'
    """
    entries: dict[str, Abbreviation] = {}
    for method, title in (methods or {}).items():
        # A title that repeats the name explains nothing.
        if title.lower() != method.lower():
            entries[method.lower()] = Abbreviation("" if method.islower() else method, title, title)
    for metric in METRICS.values():
        if metric.title:
            has_title = metric.title in metric.description
            explained = metric.description if has_title else f"{metric.title}: {metric.description}"
            entry = Abbreviation(metric.label, metric.title, explained)
            entries |= {metric.label.lower(): entry, metric.name: entry}
    return entries


def mark_abbreviations(html: str, entries: Mapping[str, Abbreviation], *, in_names: bool = False) -> str:
    """The HTML of a section with its abbreviations as ``abbr`` elements.

    Args:
        html: A fragment in which every ``<`` opens a tag and every ``>`` ends one.
        entries: As `collect_abbreviations` gives them.
        in_names: Whether names (``bdi``) are those of methods; else somebody else chose them, and they stay untouched.
    """
    if not entries:
        return html
    pattern = _pattern(entries)
    opaque = _OPAQUE if in_names else _OPAQUE | {"bdi"}
    depth = {"opaque": 0, "alone": 0}
    marked: set[str] = set()

    def mark(match: re.Match[str]) -> str:
        entry = entries[match[0].lower()]
        if not depth["alone"] and entry.title in marked:
            return entry.spelling or match[0]
        marked.add(entry.title)
        return f'<abbr title="{escape(entry.title)}">{entry.spelling or match[0]}</abbr>'

    parts = _TAG.split(html)
    for k, part in enumerate(parts):
        if k % 2:
            if tag := _NAME.match(part):
                change = -1 if part.startswith("</") else 1
                depth["opaque"] += change * (tag[1] in opaque)
                depth["alone"] += change * (tag[1] in _ALONE)
        elif part and not depth["opaque"]:
            parts[k] = pattern.sub(mark, part)
    return "".join(parts)


def explain_abbreviations(html: str, entries: Mapping[str, Abbreviation]) -> list[tuple[str, str]]:
    """The abbreviations that a page marks, and a line on each, in the order of the entries."""
    titles = set(re.findall(r'<abbr title="([^"]*)">', html))
    by_title = {
        entry.title: (entry.spelling or key, entry.explained)
        for key, entry in entries.items()
        if escape(entry.title) in titles
    }
    return list(by_title.values())


def _pattern(keys: Iterable[str]) -> re.Pattern[str]:
    """Any of the keys as a word of its own: no part of a path, an option or another abbreviation."""
    longest_first = sorted(keys, key=len, reverse=True)
    return re.compile(rf"(?<![\w./\\=+-])(?:{'|'.join(map(re.escape, longest_first))})(?![\w/\\=-]|\.\w)", re.I)


@dataclass(frozen=True)
class PaperPart:
    """A figure (a file of SVG) or a table (HTML) of the page, with its heading and a text below."""

    heading: str
    text: str = ""
    figure: Path | None = None
    table: str = ""

    def html(self) -> str:
        """The body of its section."""
        words = f'<p class="note">{escape(self.text)}</p>' if self.text else ""
        if self.figure is None:
            return f"{self.table}{words}"
        data = base64.b64encode(self.figure.read_bytes()).decode()
        return f'<img class="figure" alt="{escape(self.heading)}" src="data:image/svg+xml;base64,{data}">{words}'


def write_paper_page(
    path: Path,
    *,
    title: str,
    lead: str,
    parts: Sequence[PaperPart],
    notes: Sequence[str],
    files: Sequence[str],
    command: str,
    methods: Mapping[str, str] | None = None,
) -> None:
    """Write the page of a table or figure; the file appears whole or not at all.

    ``methods`` are titles by name; those that the page names are marked and explained.
    """
    sections = [
        ReportSection(f"part-{k}", part.heading, part.heading, part.html()) for k, part in enumerate(parts, start=1)
    ]
    remarks = "".join(f"<li>{escape(note)}</li>" for note in notes)
    links = "".join(f'<li><a href="{escape(file)}">{escape(file)}</a></li>' for file in files)
    write_report(
        path,
        [
            *sections,
            ReportSection("notes", "Notes", "Notes", f"<ul>{remarks}</ul>" if remarks else ""),
            ReportSection("files", "Files", "Files", f'<ul class="files">{links}</ul>' if links else ""),
            ReportSection("again", "How to reproduce", "Reproduce", command_box(command)),
        ],
        title=title,
        kind="Calibrant",
        created=None,
        top=f'<div class="lead"><p>{escape(lead)}</p></div>',
        skip="Skip to the table or figure",
        style=asset("comparison.css") + asset("paper.css"),
        methods=methods,
    )
