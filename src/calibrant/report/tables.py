"""The audit page's tables. Words and numbers are those of the document; the reader's browser does the sorting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from calibrant.report.charts import bar_legend, coloured, interval_bar, key, reach
from calibrant.report.parts import RELIABILITY, Part
from calibrant.report.svg import icon
from calibrant.report.text import (
    DASH,
    count,
    difference,
    difference_span,
    escape,
    finite,
    name,
    percent,
    quantity,
    round_percent,
    span,
)

#: Rows shown at first; the rest is one button away.
SHOWN = 30

_DIRECTION = {"low": "↓ lower is better", "high": "↑ higher is better"}
_MARKS = {"better": "good", "worse": "poor", "unclear": "info"}
_CHANGES = {"better": "better", "worse": "worse", "unclear": "no clear change"}


def framed(table: str, label: str) -> str:
    """A table in a box of its own that scrolls when it is too wide; the keyboard can reach the box."""
    return f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(label)}">{table}</div>'


def clipped(text: Any) -> str:
    """A name that may be long: cut to a few lines, whole when it is pointed at or clicked."""
    return f'<span class="clip" title="{escape(text)}">{name(text)}</span>'


def labelled(label: Any) -> str:
    """What a cell is called where the screen is too narrow for columns and cells stand below each other."""
    return f' data-label="{escape(label)}"'


def file_heads(models: Sequence[Part]) -> str:
    """One column head per file, in the file's colour when there are several."""
    if len(models) == 1:
        return '<th scope="col">Value and interval</th>'
    return "".join(
        f'<th scope="col"><div class="named">{key(k)}{clipped(m["name"])}</div></th>' for k, m in enumerate(models)
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
        body += f"<tbody>{head}{''.join(_metric_row(m, by_file, models) for m in rows)}</tbody>"
    caption = "Numbers" if finite(level) is None else f"Numbers with {round_percent(level)} intervals"
    kind = "metrics single" if len(models) == 1 else "metrics stack"
    table = (
        f'<table class="{kind}"><caption class="unseen">{caption}</caption><thead><tr><th scope="col">Measure</th>'
        f"{file_heads(models)}</tr></thead>{body}</table>"
    )
    return bar_legend("the largest value or limit of the row") + framed(table, caption)


def _metric_row(metric: Part, by_file: Sequence[dict[str, Part]], models: Sequence[Part]) -> str:
    found = [file.get(metric["name"]) for file in by_file]
    across = reach([m.get(end) for m in found if m for end in ("value", "low", "high")])
    cells = "".join(_metric_cell(m, across, k, models[k]["name"]) for k, m in enumerate(found))
    notes = [_DIRECTION.get(str(metric.get("better")), ""), escape(metric.get("help") or "")]
    note = " · ".join(n for n in notes if n)
    return f'<tr><th scope="row">{escape(metric["label"])}<span class="note">{note}</span></th>{cells}</tr>'


def _metric_cell(metric: Part | None, across: tuple[float, float], colour: int, file: Any) -> str:
    start = f'<td class="num of {coloured(colour)}"{labelled(file)}>'
    if metric is None:
        return f"{start}{DASH}</td>"
    value, low, high, unit = metric["value"], metric.get("low"), metric.get("high"), metric["unit"]
    bound = finite(metric.get("bound")) or 0.0
    # Below this the bound is smaller than the digits shown.
    notes = [metric["note"]] if metric.get("note") else []
    notes += [f"at most {quantity(bound, unit)} off the exact value"] if bound >= 1e-5 else []
    noted = "".join(f'<span class="note">{escape(note)}</span>' for note in notes)
    return f"{start}{_valued(value, low, high, unit)}{interval_bar(value, low, high, across, colour)}{noted}</td>"


def _valued(value: Any, low: Any, high: Any, unit: str) -> str:
    return _with_interval(quantity(value, unit), span(low, high, unit, value))


def _changed(value: Any, low: Any, high: Any, unit: str, of: Sequence[Any]) -> str:
    """A difference of the values in ``of``, which lend it their decimals."""
    return _with_interval(difference(value, unit, of), difference_span(low, high, unit, of))


def _with_interval(shown: str, ends: str) -> str:
    interval = f' <span class="ci">{ends}</span>' if ends else ""
    return f'<span class="v">{shown}</span>{interval}'


def _change(low: Any, high: Any, better: str) -> str:
    """Which way an interval of differences points; "" where neither way is better."""
    low, high = finite(low), finite(high)
    if better not in ("low", "high"):
        return ""
    if low is None or high is None or low <= 0 <= high:
        return "unclear"
    return "better" if (high < 0) == (better == "low") else "worse"


def _change_cells(row: Part, before: Any, after: Any, across: tuple[float, float]) -> str:
    """The difference of a row and which way it points."""
    value, low, high = row["difference"], row.get("low"), row.get("high")
    shown = _changed(value, low, high, row["unit"], (before, after)) + interval_bar(value, low, high, across)
    word = _change(low, high, str(row.get("better")))
    says = f"{icon(_MARKS[word])}<span>{_CHANGES[word]}</span>" if word else DASH
    return (
        f'<td class="num"{labelled("Difference")}>{shown}</td>'
        f'<td class="change {word}"{labelled("Change")}><span class="says">{says}</span></td>'
    )


def _reaches(rows: Sequence[Part]) -> dict[str, tuple[float, float]]:
    """One range of differences per unit: bars in the same unit can be compared."""
    units = {str(r["unit"]) for r in rows}
    return {u: reach([r.get(k) for r in rows if r["unit"] == u for k in ("difference", "low", "high")]) for u in units}


def comparison(part: Part) -> str:
    """Two files on the same samples: the second against the first."""
    rows, across = part["rows"], _reaches(part["rows"])
    body = "".join(
        f'<tr><th scope="row">{escape(r["label"])}</th>'
        + "".join(f'<td class="num"{labelled(part[k])}>{quantity(r[k], r["unit"])}</td>' for k in ("first", "second"))
        + f"{_change_cells(r, r['first'], r['second'], across[str(r['unit'])])}</tr>"
        for r in rows
    )
    heads = "".join(f'<th scope="col">{clipped(part[k])}</th>' for k in ("first", "second"))
    table = (
        f'<table class="spans stack"><caption>{name(part["second"])} against {name(part["first"])}</caption><thead><tr>'
        f'<th scope="col">Measure</th>{heads}<th scope="col">Difference</th><th scope="col">The second is</th></tr>'
        f"</thead><tbody>{body}</tbody></table>"
    )
    return framed(table, f"{part['second']} against {part['first']}")


def outcome(part: Part) -> str:
    """What a policy did: shares answered and wrong, and the same by group."""
    rows = "".join(
        f'<tr><th scope="row">{escape(r["label"])}<span class="note">{escape(r.get("note") or "")}</span></th>'
        f'<td class="num">{_valued(r["value"], r.get("low"), r.get("high"), r["unit"])}</td></tr>'
        for r in part["rows"]
    )
    table = (
        '<table class="metrics single"><caption class="unseen">Answers of the policy</caption><thead><tr>'
        f'<th scope="col">Share</th><th scope="col">Value and interval</th></tr></thead><tbody>{rows}</tbody></table>'
    )
    made = framed(table, "Answers of the policy")
    if part.get("groups"):
        body = "".join(
            f'<tr><th scope="row">{clipped(g["name"])}<span class="note">{escape(g.get("note") or "")}</span></th>'
            f'<td class="num"{labelled("Samples")}>{count(g["samples"])}</td>'
            f'<td class="num"{labelled("Answered")}>{quantity(g["answered"], "share")}</td>'
            f'<td class="num"{labelled("Wrong answers")}>'
            f"{_valued(g['wrong'], g.get('low'), g.get('high'), 'share')}</td>"
            f'<td class="num"{labelled("Promised at most")}>{quantity(g.get("promised"), "share")}</td></tr>'
            for g in part["groups"]
        )
        heads = "".join(
            f'<th scope="col" class="num">{head}</th>'
            for head in ("Samples", "Answered", "Wrong answers", "Promised at most")
        )
        column = escape(part.get("column") or "Group")
        grouped = (
            f'<table class="stack outcome"><caption>By {column}</caption><thead><tr><th scope="col">{column}</th>'
            f"{heads}</tr></thead><tbody>{body}</tbody></table>"
        )
        made += framed(grouped, f"Answers of the policy by {column}")
    return f'<div class="outcome">{made}</div>'


def fixes(rows: Sequence[Part], label: str) -> str:
    """What each remedy would change; a remedy's rows stand together."""
    across, body = _reaches(rows), ""
    # Without "repair" the name is the remedy's, as in older documents; with it, the measure's.
    for (fix, fitted), group in groupby(rows, key=lambda r: (str(r.get("repair", r["name"])), r.get("fitted") or "")):
        for k, row in enumerate(members := list(group)):
            head = (
                f'<th scope="row" rowspan="{len(members)}">{escape(fix)}<span class="note">{escape(fitted)}</span></th>'
            )
            unit, before, after = row["unit"], row["before"], row["after"]
            body += (
                f'<tr class="{"first" if k == 0 else "next"}">{head if k == 0 else ""}'
                f'<td class="measure">{escape(row["metric"])}</td>'
                f'<td class="num"{labelled("Before")}>{quantity(before, unit)}</td>'
                f'<td class="num"{labelled("After")}>{quantity(after, unit)}</td>'
                f"{_change_cells(row, before, after, across[str(unit)])}</tr>"
            )
    heads = "".join(f'<th scope="col">{h}</th>' for h in ("Fix", "Measure", "Before", "After", "Difference", "Change"))
    table = (
        f'<table class="spans stack"><caption class="unseen">{escape(label)}</caption><thead><tr>{heads}</tr></thead>'
        f"<tbody>{body}</tbody></table>"
    )
    return framed(table, label)


def difference_legend() -> str:
    """How to read the bars of differences."""
    return bar_legend("all differences of the table that are in the same unit")


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
    noun: tuple[str, str],
    shown: int = SHOWN,
    searchable: bool = True,
) -> str:
    """A table whose heads the page's script turns into buttons; without it all rows are there as they come.

    Args:
        ident: the table's id.
        caption: HTML.
        heads: words and kind (``"text"`` or ``"num"``) of each column.
        rows: cells, the first of which names the row, and whether the row is flagged.
        noun: what a row is and what rows are.
        shown: rows shown at first.
        searchable: whether a long table has a box to filter by name.
    """
    top = "".join(f'<th scope="col" data-sort="{kind}" class="{kind}">{escape(text)}</th>' for text, kind in heads)
    body = "".join(_row(cells, flagged, heads) for cells, flagged in rows)
    table = framed(
        f'<table id="{ident}" class="sortable"><caption>{caption}</caption><thead><tr>{top}</tr></thead>'
        f"<tbody>{body}</tbody></table>",
        f"Table of {noun[1]}",
    )
    if len(rows) <= shown:
        return table
    search = (
        f'<label for="{ident}-find">Filter {escape(noun[1])}</label>'
        f'<input type="search" id="{ident}-find" autocomplete="off" spellcheck="false">'
    )
    tools = (
        f'<div class="tools" hidden data-table="{ident}" data-shown="{shown}" '
        f'data-one="{escape(noun[0])}" data-noun="{escape(noun[1])}">'
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


def _surely_off(row: Part) -> tuple[bool, bool, float]:
    """The order of a table: flagged first, then by the limit of the gap nearest 0, below 0 where 0 is inside."""
    low, high = finite(row.get("gap_low")), finite(row.get("gap_high"))
    known = low is not None and high is not None
    return (not row.get("flag"), not known, -max(low, -high) if known else -abs(finite(row.get("gap")) or 0.0))  # type: ignore[operator, type-var]


def population(
    ident: str, caption: str, rows: Sequence[Part], *, noun: tuple[str, str], head: str, unit: str, right: str
) -> str:
    """Classes or groups: flagged ones first, then those whose gap is most surely not 0.

    Args:
        ident: the table's id.
        caption: HTML; how the rows are ordered is added.
        rows: as in the document.
        noun: what a row is and what rows are.
        head: of the first column.
        unit: what is counted.
        right: head of the column of accuracies.
    """
    classwise = any(finite(r.get("classwise_ece")) is not None for r in rows)
    # The gap comes first: on a phone the rest may have to be scrolled to.
    words = ("Gap", unit.capitalize(), right, "Confidence", "ECE", *(["Class-wise ECE"] if classwise else []))
    across = reach([r.get(k) for r in rows for k in ("gap", "gap_low", "gap_high")])
    made = []
    for r in sorted(rows, key=_surely_off):
        gap, low, high = r.get("gap"), r.get("gap_low"), r.get("gap_high")
        shown = _changed(gap, low, high, "share", (r.get("accuracy"), r.get("confidence")))
        cells = [Cell(clipped(r["name"]), str(r["name"])), _measured(gap, shown + interval_bar(gap, low, high, across))]
        cells.append(_measured(r.get("count"), count(r.get("count"))))
        shares = ("accuracy", "confidence", "ece", *(["classwise_ece"] if classwise else []))
        cells += [_measured(r.get(k), percent(r.get(k))) for k in shares]
        made.append((cells, bool(r.get("flag"))))
    first = "Flagged first, then those" if any(flag for _, flag in made) else "Those first"
    order = f"{first} whose gap is most surely not 0: by the limit of its interval nearest 0."
    heads = [(head, "text"), *((word, "num") for word in words)]
    return sortable(ident, f"{caption}{'. ' if caption else ''}{order}", heads, made, noun=noun)


def errors(ident: str, caption: str, rows: Sequence[Part], head: str) -> str:
    """Wrong predictions, the surest first as they come; what no row knows has no column."""
    optional = (("place", "Place"), ("label", "Label"), ("predicted", "Predicted"))
    known = [(k, title) for k, title in optional if any(r.get(k) is not None for r in rows)]
    heads = [(head, "text"), *((title, "text") for _, title in known), ("Confidence", "num")]
    made = [
        (
            [
                Cell(clipped(r["id"]), str(r["id"])),
                *(Cell(DASH if r.get(k) is None else clipped(r[k]), "") for k, _ in known),
                _measured(r.get("confidence"), percent(r.get("confidence"))),
            ],
            False,
        )
        for r in rows
    ]
    return sortable(ident, caption, heads, made, noun=("error", "errors"), shown=15, searchable=False)


def reliability_numbers(part: Part, caption: str, unit: str) -> str:
    """The numbers behind a reliability diagram."""
    body = "".join(
        f'<tr><th scope="row">({percent(lo)}, {percent(hi)}]</th><td class="num">{count(n)}</td>'
        f'<td class="num">{percent(c)}</td><td class="num">{_valued(a, a0, a1, "share")}</td></tr>'
        for lo, hi, n, c, a, a0, a1 in zip(*(part[k] for k in RELIABILITY), strict=True)
    )
    return _numbers(caption, ("Bin", unit.capitalize(), "Mean confidence", "Accuracy"), body)


def histogram_numbers(part: Part, caption: str, unit: str) -> str:
    """The numbers behind a histogram."""
    edges = part["edges"]
    body = "".join(
        f'<tr><th scope="row">{percent(lo)} to {percent(hi)}</th><td class="num">{count(r)}</td>'
        f'<td class="num">{count(w)}</td></tr>'
        for lo, hi, r, w in zip(edges, edges[1:], part["right"], part["wrong"], strict=False)
    )
    return _numbers(caption, ("Confidence", f"Right {unit}", f"Wrong {unit}"), body)


def _numbers(caption: str, heads: Sequence[str], body: str) -> str:
    first, *rest = heads
    top = f'<th scope="col">{first}</th>' + "".join(f'<th scope="col" class="num">{h}</th>' for h in rest)
    table = f"<table><caption>{caption}</caption><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
    return (
        f"<details><summary>The numbers of this figure</summary>{framed(table, 'The numbers of this figure')}</details>"
    )
