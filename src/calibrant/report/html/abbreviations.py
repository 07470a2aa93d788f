"""Abbreviations on pages: marked where they stand, with what they stand for.

Those of metrics come from the catalogue of metrics; a page adds the names of its methods.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from calibrant.metrics import METRICS
from calibrant.report.text import escape

#: Elements whose text is never marked: it is no prose, or it cannot hold markup.
_OPAQUE = {"script", "style", "svg", "code", "pre", "button", "select", "abbr", "title"}
#: Elements that are read by themselves: every abbreviation in them is marked, elsewhere the first of a section.
_ALONE = {"th", "h2", "h3", "dt", "li", "figcaption", "caption"}
_TAG = re.compile(r"(<[^>]*>)")
_NAME = re.compile(r"</?([a-z][a-z0-9]*)")


class Abbreviation(NamedTuple):
    """How an abbreviation is written, what it stands for, and a line that explains it."""

    written: str
    title: str
    explained: str


def collect_abbreviations(methods: Mapping[str, str] | None = None) -> dict[str, Abbreviation]:
    """The abbreviations of the metrics and of a page's methods, by their lower-case spelling.

    A metric is written as its label, also where the text has the name of its function; methods stay as they are.

    Example:
        >>> collect_abbreviations()["e_aurc"].written
        'E-AURC'
        >>> collect_abbreviations({"ls": "Label smoothing"})["ls"].title
        'Label smoothing'
    """
    entries: dict[str, Abbreviation] = {}
    for method, title in (methods or {}).items():
        # A title that repeats the name explains nothing.
        if title.lower() != method.lower():
            entries[method.lower()] = Abbreviation("", title, title)
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
            return entry.written or match[0]
        marked.add(entry.title)
        return f'<abbr title="{escape(entry.title)}">{entry.written or match[0]}</abbr>'

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
        entry.title: (entry.written or key, entry.explained)
        for key, entry in entries.items()
        if escape(entry.title) in titles
    }
    return list(by_title.values())


def _pattern(keys: Iterable[str]) -> re.Pattern[str]:
    """Any of the keys as a word of its own: no part of a path, an option or another abbreviation."""
    longest_first = sorted(keys, key=len, reverse=True)
    return re.compile(rf"(?<![\w./\\=+-])(?:{'|'.join(map(re.escape, longest_first))})(?![\w/\\=-]|\.\w)", re.I)
