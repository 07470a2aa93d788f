"""The audit page's tables. Words and numbers are those of the document; the reader's browser does the sorting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from calibrant.report.charts import interval_bar, reach
from calibrant.report.parts import Part
from calibrant.report.svg import icon
from calibrant.report.text import DASH, count, escape, finite, name, number, percent, points, quantity, span

#: Rows shown at first; the rest is one button away.
SHOWN = 30

_DIRECTION = {"low": "↓ lower is better", "high": "↑ higher is better"}
_MARKS = {"better": "good", "worse": "poor", "unclear": "info"}
_CHANGES = {"better": "better", "worse": "worse", "unclear": "no clear change"}


def framed(table: str, label: str) -> str:
    """A table in a box of its own that scrolls when it is too wide; the keyboard can reach the box."""
    return f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(label)}">{table}</div>'


def file_heads(models: Sequence[Part]) -> str:
    """One column head per file, in the file's colour when there are several."""
    if len(models) == 1:
        return '<th scope="col">Value and interval</th>'
    dots = (f'<span class="key s{k % 7}"></span>' for k in range(len(models)))
    return "".join(
        f'<th scope="col"><span class="clip" title="{escape(m["name"])}">{dot}{name(m["name"])}</span></th>'
        for m, dot in zip(models, dots, strict=True)
    )


def metrics(models: Sequence[Part], level: float | None) -> str:
    """Every number with its interval: groups of rows, one column per file."""
    by_file = [{m["name"]: m for m in model.get("metrics") or ()} for model in models]
    order: dict[str, Part] = {}
    for found in by_file:
        order |= {key: m for key, m in found.items() if key not in order}
    # Groups in the order they first come up, so that a group is never opened twice.
    groups: dict[str, list[Part]] = {}
    for metric in order.values():
        groups.setdefault(str(metric.get("group") or "Other"), []).append(metric)
    body = ""
    for group, rows in groups.items():
        head = f'<tr class="group"><th scope="rowgroup" colspan="{1 + len(models)}">{escape(group)}</th></tr>'
        body += f"<tbody>{head}{''.join(_metric_row(m, by_file) for m in rows)}</tbody>"
    caption = "Numbers" if finite(level) is None else f"Numbers with {percent_words(level)} intervals"
    kind = "metrics single" if len(models) == 1 else "metrics"
    table = (
        f'<table class="{kind}"><caption class="unseen">{caption}</caption><thead><tr><th scope="col">Measure</th>'
        f"{file_heads(models)}</tr></thead>{body}</table>"
    )
    return framed(table, caption)


def percent_words(share: float | None) -> str:
    """A level as words have it: 95%."""
    return DASH if finite(share) is None else f"{100 * share:g}%"  # type: ignore[operator]


def _metric_row(metric: Part, by_file: Sequence[dict[str, Part]]) -> str:
    found = [file.get(metric["name"]) for file in by_file]
    across = _track(found)
    cells = "".join(_metric_cell(m, across, k) for k, m in enumerate(found))
    notes = [_DIRECTION.get(str(metric.get("better")), ""), escape(metric.get("help") or "")]
    note = " · ".join(n for n in notes if n)
    return f'<tr><th scope="row">{escape(metric["label"])}<span class="note">{note}</span></th>{cells}</tr>'


def _track(found: Sequence[Part | None]) -> tuple[float, float]:
    """The range of a row's bars: files against each other, or a single file's share against the whole."""
    values = [finite(m.get(key)) for m in found if m for key in ("value", "low", "high")]
    if len(found) > 1:
        return reach(values)
    within = all(0 <= v <= 1 for v in values if v is not None)
    return (0.0, 1.0) if within and found[0] and found[0]["unit"] == "share" else (0.0, 0.0)


def _metric_cell(metric: Part | None, across: tuple[float, float], colour: int) -> str:
    if metric is None:
        return f'<td class="num">{DASH}</td>'
    value, low, high, unit = metric["value"], metric.get("low"), metric.get("high"), metric["unit"]
    bound = finite(metric.get("bound")) or 0.0
    # Below this the bound is smaller than the digits shown.
    exact = f'<span class="note">± {quantity(bound, unit)} by the sketch</span>' if bound >= 1e-5 else ""
    bar = interval_bar(value, low, high, across, colour)
    return f'<td class="num">{_valued(value, low, high, unit)}{bar}{exact}</td>'


def _valued(value: Any, low: Any, high: Any, unit: str, *, change: bool = False) -> str:
    ends = span(low, high, unit, value, sign=change)
    interval = f' <span class="ci">{ends}</span>' if ends else ""
    shown = quantity(value, unit)
    if change:
        shown = points(value) if unit == "share" else number(value, sign=True)
    return f'<span class="v">{shown}</span>{interval}'


def _change(low: Any, high: Any, better: str) -> str:
    """Which way an interval of differences points; "" where neither way is better."""
    low, high = finite(low), finite(high)
    if better not in ("low", "high"):
        return ""
    if low is None or high is None or low <= 0 <= high:
        return "unclear"
    return "better" if (high < 0) == (better == "low") else "worse"


def _change_cell(low: Any, high: Any, better: str) -> str:
    word = _change(low, high, better)
    if not word:
        return f"<td>{DASH}</td>"
    return f'<td class="change {word}">{icon(_MARKS[word])}<span>{_CHANGES[word]}</span></td>'


def _difference_cell(row: Part, across: tuple[float, float]) -> str:
    value, low, high = row["difference"], row.get("low"), row.get("high")
    bar = interval_bar(value, low, high, across)
    return f'<td class="num">{_valued(value, low, high, row["unit"], change=True)}{bar}</td>'


def _reaches(rows: Sequence[Part]) -> dict[str, tuple[float, float]]:
    """One range of differences per unit: bars in the same unit can be compared."""
    units = {str(r["unit"]) for r in rows}
    return {u: reach([r.get(k) for r in rows if r["unit"] == u for k in ("difference", "low", "high")]) for u in units}


def comparison(part: Part) -> str:
    """Two files on the same samples: the second against the first."""
    rows, across = part["rows"], _reaches(part["rows"])
    body = "".join(
        f'<tr><th scope="row">{escape(r["label"])}</th><td class="num">{quantity(r["first"], r["unit"])}</td>'
        f'<td class="num">{quantity(r["second"], r["unit"])}</td>{_difference_cell(r, across[str(r["unit"])])}'
        f"{_change_cell(r.get('low'), r.get('high'), str(r.get('better')))}</tr>"
        for r in rows
    )
    heads = "".join(
        f'<th scope="col"><span class="clip" title="{escape(part[k])}">{name(part[k])}</span></th>'
        for k in ("first", "second")
    )
    table = (
        f'<table class="spans"><caption>{name(part["second"])} against {name(part["first"])}</caption><thead><tr>'
        f'<th scope="col">Measure</th>{heads}<th scope="col">Difference</th><th scope="col">The second is</th></tr>'
        f"</thead><tbody>{body}</tbody></table>"
    )
    return framed(table, f"{part['second']} against {part['first']}")


def fixes(rows: Sequence[Part], directions: dict[str, str], label: str) -> str:
    """What each remedy would change; a remedy's rows stand together."""
    across, body = _reaches(rows), ""
    for (fix, fitted), group in groupby(rows, key=lambda r: (str(r["name"]), str(r.get("fitted") or ""))):
        for k, row in enumerate(members := list(group)):
            head = (
                f'<th scope="row" rowspan="{len(members)}">{escape(fix)}<span class="note">{escape(fitted)}</span></th>'
            )
            unit = row["unit"]
            body += (
                f'<tr class="{"first" if k == 0 else "next"}">{head if k == 0 else ""}<td>{escape(row["metric"])}</td>'
                f'<td class="num">{quantity(row["before"], unit)}</td>'
                f'<td class="num">{quantity(row["after"], unit)}</td>'
                f"{_difference_cell(row, across[str(unit)])}"
                f"{_change_cell(row.get('low'), row.get('high'), directions.get(str(row['metric']), ''))}</tr>"
            )
    heads = "".join(f'<th scope="col">{h}</th>' for h in ("Fix", "Measure", "Before", "After", "Difference", "Change"))
    table = (
        f'<table class="spans"><caption class="unseen">{escape(label)}</caption><thead><tr>{heads}</tr></thead>'
        f"<tbody>{body}</tbody></table>"
    )
    return framed(table, label)


@dataclass(frozen=True)
class Cell:
    """What a cell shows, and what it sorts by (None sorts last)."""

    shown: str
    key: float | str | None

    def attribute(self) -> str:
        """The sorting key, if the shown text is not it."""
        if isinstance(self.key, str) or self.key is None:
            return ""
        return f' data-v="{self.key:.9g}"'


def sortable(
    ident: str,
    caption: str,
    heads: Sequence[tuple[str, str]],
    rows: Sequence[tuple[Sequence[Cell], bool]],
    *,
    noun: str,
    shown: int = SHOWN,
    searchable: bool = True,
) -> str:
    """A table whose heads the page's script turns into buttons; without it all rows are there as they come.

    Args:
        ident: the table's id.
        caption: HTML.
        heads: words and kind (``"text"`` or ``"num"``) of each column.
        rows: cells, the first of which names the row, and whether the row is flagged.
        noun: what the rows are, in the plural.
        shown: rows shown at first.
        searchable: whether a long table has a box to filter by name.
    """
    top = "".join(f'<th scope="col" data-sort="{kind}" class="{kind}">{escape(text)}</th>' for text, kind in heads)
    body = "".join(_row(cells, flagged, heads) for cells, flagged in rows)
    table = framed(
        f'<table id="{ident}" class="sortable"><caption>{caption}</caption><thead><tr>{top}</tr></thead>'
        f"<tbody>{body}</tbody></table>",
        f"Table of {noun}",
    )
    if len(rows) <= shown:
        return table
    search = (
        f'<label for="{ident}-find">Filter {escape(noun)}</label>'
        f'<input type="search" id="{ident}-find" autocomplete="off" spellcheck="false">'
    )
    tools = (
        f'<div class="tools" hidden data-table="{ident}" data-shown="{shown}" data-noun="{escape(noun)}">'
        f'{search if searchable else ""}<button type="button" aria-controls="{ident}">Show all {len(rows):,}</button>'
        f'<p class="status" role="status"></p></div>'
    )
    return tools + table


def _row(cells: Sequence[Cell], flagged: bool, heads: Sequence[tuple[str, str]]) -> str:
    mark = f'<span class="mark">{icon("flag")}<span class="unseen">flagged: </span></span>' if flagged else ""
    first = f'<th scope="row"{cells[0].attribute()}>{mark}{cells[0].shown}</th>'
    rest = "".join(
        f"<td{' class=num' if kind == 'num' else ''}{cell.attribute()}>{cell.shown}</td>"
        for cell, (_, kind) in zip(cells[1:], heads[1:], strict=True)
    )
    return f"<tr{' class=flag' if flagged else ''}>{first}{rest}</tr>"


def _measured(value: Any, shown: str) -> Cell:
    return Cell(shown, finite(value))


def population(ident: str, caption: str, rows: Sequence[Part], noun: str, head: str) -> str:
    """Classes or groups: flagged ones first, then by the size of their gap."""
    heads = [
        (head, "text"),
        ("Samples", "num"),
        ("Accuracy", "num"),
        ("Confidence", "num"),
        ("Gap", "num"),
        ("ECE", "num"),
    ]
    classwise = any(finite(r.get("classwise_ece")) is not None for r in rows)
    heads += [("Classwise ECE", "num")] if classwise else []
    across = reach([r.get(k) for r in rows for k in ("gap", "gap_low", "gap_high")])

    def worst(row: Part) -> tuple[bool, bool, float]:
        gap = finite(row.get("gap"))
        return (not row.get("flag"), gap is None, -abs(gap or 0.0))

    made = []
    for r in sorted(rows, key=worst):
        gap, low, high = r.get("gap"), r.get("gap_low"), r.get("gap_high")
        cells = [Cell(name(r["name"]), str(r["name"])), _measured(r.get("count"), count(r.get("count")))]
        cells += [_measured(r.get(k), percent(r.get(k))) for k in ("accuracy", "confidence")]
        cells.append(
            _measured(gap, _valued(gap, low, high, "share", change=True) + interval_bar(gap, low, high, across))
        )
        cells += [_measured(r.get(k), percent(r.get(k))) for k in ("ece", *(["classwise_ece"] if classwise else []))]
        made.append((cells, bool(r.get("flag"))))
    return sortable(ident, caption, heads, made, noun=noun)


def errors(ident: str, caption: str, rows: Sequence[Part]) -> str:
    """Wrong predictions, the surest first as they come."""
    heads = [("Sample", "text"), ("Label", "text"), ("Predicted", "text"), ("Confidence", "num")]
    made = [
        (
            [
                Cell(name(r["id"]), str(r["id"])),
                Cell(name(r["label"]), str(r["label"])),
                Cell(DASH if r.get("predicted") is None else name(r["predicted"]), ""),
                _measured(r.get("confidence"), percent(r.get("confidence"))),
            ],
            False,
        )
        for r in rows
    ]
    return sortable(ident, caption, heads, made, noun="errors", shown=15, searchable=False)


def reliability_numbers(part: Part, caption: str) -> str:
    """The numbers behind a reliability diagram."""
    series = (part[k] for k in ("low", "high", "count", "confidence", "accuracy", "accuracy_low", "accuracy_high"))
    body = "".join(
        f'<tr><th scope="row">({number(lo)}, {number(hi)}]</th><td class="num">{count(n)}</td>'
        f'<td class="num">{percent(c)}</td><td class="num">{_valued(a, a0, a1, "share")}</td></tr>'
        for lo, hi, n, c, a, a0, a1 in zip(*series, strict=True)
    )
    return _numbers(caption, ("Bin", "Samples", "Mean confidence", "Accuracy"), body)


def histogram_numbers(part: Part, caption: str) -> str:
    """The numbers behind a histogram."""
    edges = part["edges"]
    body = "".join(
        f'<tr><th scope="row">{number(lo)} to {number(hi)}</th><td class="num">{count(r)}</td>'
        f'<td class="num">{count(w)}</td></tr>'
        for lo, hi, r, w in zip(edges, edges[1:], part["right"], part["wrong"], strict=False)
    )
    return _numbers(caption, ("Confidence", "Right", "Wrong"), body)


def _numbers(caption: str, heads: Sequence[str], body: str) -> str:
    first, *rest = heads
    top = f'<th scope="col">{first}</th>' + "".join(f'<th scope="col" class="num">{h}</th>' for h in rest)
    table = f"<table><caption>{caption}</caption><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
    return (
        f"<details><summary>The numbers of this figure</summary>{framed(table, 'The numbers of this figure')}</details>"
    )
