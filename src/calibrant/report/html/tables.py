"""The tables of the pages. Words and numbers are those of the document; the reader's browser does the sorting."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from calibrant.report.document import RELIABILITY, Part
from calibrant.report.html.charts import bar_legend, coloured, interval_bar, key, reach
from calibrant.report.html.svg import icon
from calibrant.report.text import (
    DASH,
    allowed,
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
#: By the way an interval of differences points: icon and words.
_CHANGES = {"better": ("good", "better"), "worse": ("poor", "worse"), "unclear": ("info", "no clear change")}


def framed(table: str, label: str) -> str:
    """A table in a box of its own that scrolls when it is too wide; the keyboard can reach the box."""
    return f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(label)}">{table}</div>'


def table(
    kind: str, caption: str, top: str, body: str, *, label: str | None = None, unseen: bool = False, ident: str = ""
) -> str:
    """A framed table of HTML parts; the label is plain text, and an unseen caption is read aloud only.

    On narrow screens the rows of a ``stack`` and of ``tiles`` become blocks, whose cells are `labelled`: one below the
    other in a stack, side by side as tiles.
    """
    attributes = (f' id="{ident}"' if ident else "") + (f' class="{kind}"' if kind else "")
    hidden = ' class="unseen"' if unseen else ""
    bodies = body if body.startswith("<tbody") else f"<tbody>{body}</tbody>"
    return framed(
        f"<table{attributes}><caption{hidden}>{caption}</caption><thead><tr>{top}</tr></thead>{bodies}</table>",
        caption if label is None else label,
    )


def heads(*words: str, numbers: bool = False) -> str:
    """Heads of columns; the words are HTML."""
    kind = ' class="num"' if numbers else ""
    return "".join(f'<th scope="col"{kind}>{word}</th>' for word in words)


def clipped(text: Any) -> str:
    """A name that may be long: cut to a few lines, complete when it is pointed at or clicked."""
    return f'<span class="clip" title="{escape(text)}">{name(text)}</span>'


def labelled(label: Any) -> str:
    """The attribute that names a cell where the screen is too narrow for columns and cells are stacked."""
    return f' data-label="{escape(label)}"'


def numeric(label: Any, text: str) -> str:
    """A cell of a number, named for narrow screens."""
    return f'<td class="num"{labelled(label)}>{text}</td>'


def metrics(models: Sequence[Part], level: float | None) -> str:
    """Every metric with its interval: groups of rows, one column per file."""
    by_file = [{m["name"]: m for m in model.get("metrics") or ()} for model in models]
    order: dict[str, Part] = {}
    for values in by_file:
        order |= {key: metric for key, metric in values.items() if key not in order}
    # Groups in the order they first come up, so that a group is never opened twice.
    groups: dict[str, list[Part]] = {}
    for metric in order.values():
        groups.setdefault(str(metric.get("group") or "Other"), []).append(metric)
    body = ""
    for group, rows in groups.items():
        head = f'<tr class="group"><th scope="rowgroup" colspan="{1 + len(models)}">{escape(group)}</th></tr>'
        body += f"<tbody>{head}{''.join(_metric_row(m, by_file, models) for m in rows)}</tbody>"
    caption = "Numbers" if finite(level) is None else f"Numbers with {round_percent(level)} intervals"
    if len(models) == 1:
        kind, files = "metrics single", ["Value and interval"]
    else:
        models_html = (f"{key(coloured(k))}{clipped(m['name'])}" for k, m in enumerate(models))
        kind, files = "metrics stack", [f'<div class="named">{file}</div>' for file in models_html]
    legend = bar_legend("the largest value or limit of the row")
    return legend + table(kind, caption, heads("Measure", *files), body, unseen=True)


def _metric_row(metric: Part, by_file: Sequence[dict[str, Part]], models: Sequence[Part]) -> str:
    values = [file.get(metric["name"]) for file in by_file]
    across = reach([m.get(end) for m in values if m for end in ("value", "low", "high")])
    cells = "".join(_metric_cell(m, across, k, models[k]["name"]) for k, m in enumerate(values))
    notes = (_DIRECTION.get(str(metric.get("better")), ""), escape(metric.get("help") or ""))
    note = " · ".join(filter(None, notes))
    return f'<tr><th scope="row">{escape(metric["label"])}<span class="note">{note}</span></th>{cells}</tr>'


def _metric_cell(metric: Part | None, across: tuple[float, float], colour: int, file: Any) -> str:
    start = f'<td class="num of {coloured(colour)}"{labelled(file)}>'
    if metric is None:
        return f"{start}{DASH}</td>"
    value, low, high, unit = metric["value"], metric.get("low"), metric.get("high"), metric["unit"]
    bound = finite(metric.get("bound")) or 0.0
    notes = [metric["note"]] if metric.get("note") else []
    # Below this the bound is smaller than the digits shown.
    notes += [f"at most {quantity(bound, unit)} off the exact value"] if bound >= 1e-5 else []
    noted = "".join(f'<span class="note">{escape(note)}</span>' for note in notes)
    return f"{start}{valued(value, low, high, unit)}{interval_bar(value, low, high, across, colour)}{noted}</td>"


def valued(value: Any, low: Any, high: Any, unit: str) -> str:
    """A value with its interval, in the unit."""
    return with_interval(quantity(value, unit), span(low, high, unit, value))


def _changed(value: Any, low: Any, high: Any, unit: str, of: Sequence[Any]) -> str:
    """A difference of the values in ``of``, which lend it their decimals."""
    return with_interval(difference(value, unit, of), difference_span(low, high, unit, of))


def with_interval(value: str, ends: str) -> str:
    """A value and its interval, if it has one."""
    interval = f' <span class="ci">{ends}</span>' if ends else ""
    return f'<span class="v">{value}</span>{interval}'


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
    change = _changed(value, low, high, row["unit"], (before, after)) + interval_bar(value, low, high, across)
    word = _change(low, high, str(row.get("better")))
    return numeric("Difference", change) + verdict_cell("Change", word, *_CHANGES.get(word, ("", "")))


def verdict_cell(label: str, kind: str, sign: str, words: str) -> str:
    """A cell with an icon and its words; a dash where there is no icon."""
    says = f"{icon(sign)}<span>{escape(words)}</span>" if sign else DASH
    return f'<td class="change {kind}"{labelled(label)}><span class="says">{says}</span></td>'


def _reaches(rows: Sequence[Part]) -> dict[str, tuple[float, float]]:
    """One range of differences per unit: bars in the same unit can be compared."""
    units = {str(r["unit"]) for r in rows}
    return {u: reach([r.get(k) for r in rows if r["unit"] == u for k in ("difference", "low", "high")]) for u in units}


def comparison(part: Part) -> str:
    """Two files on the same samples: the second against the first."""
    rows, across, files = part["rows"], _reaches(part["rows"]), ("first", "second")
    body = "".join(
        f'<tr><th scope="row">{escape(r["label"])}</th>'
        + "".join(numeric(part[k], quantity(r[k], r["unit"])) for k in files)
        + f"{_change_cells(r, r['first'], r['second'], across[str(r['unit'])])}</tr>"
        for r in rows
    )
    top = heads("Measure", *(clipped(part[k]) for k in files), "Difference", "The second is")
    caption = f"{name(part['second'])} against {name(part['first'])}"
    return table("spans stack", caption, top, body, label=f"{part['second']} against {part['first']}")


def valued_rows(rows: Sequence[Part]) -> str:
    """Rows of a label with a note, and a value with its interval."""
    return "".join(
        f'<tr><th scope="row">{escape(r["label"])}<span class="note">{escape(r.get("note") or "")}</span></th>'
        f'<td class="num">{valued(r["value"], r.get("low"), r.get("high"), r["unit"])}</td></tr>'
        for r in rows
    )


def outcome(part: Part) -> str:
    """What a policy did: shares answered and wrong, and the same by group."""
    top, body = heads("Share", "Value and interval"), valued_rows(part["rows"])
    answers = table("metrics single", "Answers of the policy", top, body, unseen=True)
    if part.get("groups"):
        titles = ("Samples", "Answered", "Wrong answers", "Promised at most")
        body = ""
        for g in part["groups"]:
            wrong = valued(g["wrong"], g.get("low"), g.get("high"), "share")
            texts = (count(g["samples"]), percent(g["answered"]), wrong, allowed(g.get("promised")))
            note = f'<span class="note">{escape(g.get("note") or "")}</span>'
            body += f'<tr><th scope="row">{clipped(g["name"])}{note}</th>{"".join(map(numeric, titles, texts))}</tr>'
        column = escape(part.get("column") or "Group")
        top, label = heads(column) + heads(*titles, numbers=True), f"Answers of the policy by {column}"
        answers += table("stack outcome", f"By {column}", top, body, label=label)
    if part.get("menu"):
        body = "".join(
            f'<tr><th scope="row">at most {round_percent(offer["risk"])} wrong</th>'
            f"{numeric('Would answer', percent(offer['coverage']))}</tr>"
            for offer in part["menu"]
        )
        top = heads("Promise") + heads("Would answer", numbers=True)
        answers += table("metrics single", "What could be promised (estimates)", top, body)
    return f'<div class="outcome">{answers}</div>'


def fixes(rows: Sequence[Part], caption: str) -> str:
    """What each repair would change; a repair's rows stand together."""
    across, body = _reaches(rows), ""
    # Without "repair" the name is the repair's, as in older documents; with it, the measure's.
    for (fix, fitted), group in groupby(rows, key=lambda r: (str(r.get("repair", r["name"])), r.get("fitted") or "")):
        members, note = list(group), f'<span class="note">{escape(fitted)}</span>'
        for k, row in enumerate(members):
            head = "" if k else f'<th scope="row" rowspan="{len(members)}">{escape(fix)}{note}</th>'
            unit, before, after = row["unit"], row["before"], row["after"]
            body += (
                f'<tr class="{"next" if k else "first"}">{head}<td class="measure">{escape(row["metric"])}</td>'
                f"{numeric('Before', quantity(before, unit))}{numeric('After', quantity(after, unit))}"
                f"{_change_cells(row, before, after, across[str(unit)])}</tr>"
            )
    top = heads("Fix", "Measure", "Before", "After", "Difference", "Change")
    return table("spans stack", escape(caption), top, body, label=caption, unseen=True)


def difference_legend() -> str:
    """How to read the bars of differences."""
    return bar_legend("all differences of the table that are in the same unit")


class SortedCell(NamedTuple):
    """A cell of a table, and the number it is sorted by; None sorts by the text."""

    html: str
    number: float | None = None

    @property
    def attribute(self) -> str:
        """The number for the script that sorts."""
        return "" if self.number is None else f' data-v="{self.number:.9g}"'


def sortable(
    ident: str,
    caption: str,
    columns: Sequence[tuple[str, str]],
    rows: Sequence[tuple[Sequence[SortedCell], bool]],
    *,
    noun: tuple[str, str],
    shown: int = SHOWN,
    searchable: bool = True,
    total: int | None = None,
) -> str:
    """A table whose heads the page's script turns into buttons; without it all rows are there as they come.

    A column is its words and its kind (``"text"`` or ``"num"``), a row its cells, the first of which names it, and
    whether it is flagged; ``noun`` is what a row is called, in the singular and the plural. ``total`` is how many there
    are where the rows are only the most confident of them.
    """
    top = "".join(f'<th scope="col" data-sort="{kind}" class="{kind}">{escape(text)}</th>' for text, kind in columns)
    body = "".join(_row(cells, flagged, columns) for cells, flagged in rows)
    framed_table = table("sortable tiles", caption, top, body, label=f"Table of {noun[1]}", ident=ident)
    if len(rows) <= shown:
        return framed_table
    search = (
        f'<label for="{ident}-find">Filter {escape(noun[1])}</label>'
        f'<input type="search" id="{ident}-find" autocomplete="off" spellcheck="false">'
    )
    words = f"{'Show all' if total in (None, len(rows)) else 'Show the first'} {count(len(rows))}"
    whole = "" if total is None else f' data-total="{total}"'
    return (
        f'<div class="tools" hidden data-table="{ident}" data-shown="{shown}" '
        f'data-one="{escape(noun[0])}" data-noun="{escape(noun[1])}"{whole}>'
        f'{search if searchable else ""}<button type="button" aria-controls="{ident}">{words}</button>'
        f'<p class="status" role="status"></p></div>{framed_table}'
    )


def _row(cells: Sequence[SortedCell], flagged: bool, columns: Sequence[tuple[str, str]]) -> str:
    mark = f'<span class="mark">{icon("flag")}<span class="unseen">flagged: </span></span>' if flagged else ""
    title = f'<div class="named">{mark}{cells[0].html}</div>' if flagged else cells[0].html
    first = f'<th scope="row"{cells[0].attribute}>{title}</th>'
    rest = "".join(
        f"<td{' class=num' if kind == 'num' else ''}{cell.attribute}{labelled(head)}>{cell.html}</td>"
        for cell, (head, kind) in zip(cells[1:], columns[1:], strict=True)
    )
    return f"<tr{' class=flag' if flagged else ''}>{first}{rest}</tr>"


def _order(row: Part) -> tuple[bool, bool, float]:
    """Flagged rows first, then by the limit of the gap nearest 0, which is below 0 where 0 is inside."""
    low, high = finite(row.get("gap_low")), finite(row.get("gap_high"))
    if low is None or high is None:
        return not row.get("flag"), True, -abs(finite(row.get("gap")) or 0.0)
    return not row.get("flag"), False, -max(low, -high)


def population(
    ident: str, caption: str, rows: Sequence[Part], *, noun: tuple[str, str], head: str, unit: str, right: str
) -> str:
    """Classes or groups: flagged ones first, then those whose gap is most surely not 0; ``right`` heads accuracies."""
    shares = {"accuracy": right, "confidence": "Confidence", "ece": "ECE"}
    if any(finite(r.get("classwise_ece")) is not None for r in rows):
        shares["classwise_ece"] = "Class-wise ECE"
    across = reach([r.get(k) for r in rows for k in ("gap", "gap_low", "gap_high")])
    entries = []
    for r in sorted(rows, key=_order):
        gap = r.get("gap"), r.get("gap_low"), r.get("gap_high")
        change = _changed(*gap, "share", (r.get("accuracy"), r.get("confidence"))) + interval_bar(*gap, across)
        cells = [SortedCell(clipped(r["name"])), SortedCell(change, finite(gap[0]))]
        cells.append(SortedCell(count(r.get("count")), finite(r.get("count"))))
        cells += [SortedCell(percent(r.get(k)), finite(r.get(k))) for k in shares]
        entries.append((cells, bool(r.get("flag"))))
    first = "Flagged first, then those" if any(flag for _, flag in entries) else "Those first"
    order = f"{first} whose gap is most surely not 0: by the limit of its interval nearest 0."
    # The gap comes first: on a phone the rest may have to be scrolled to.
    columns = [(head, "text"), *((word, "num") for word in ("Gap", unit.capitalize(), *shares.values()))]
    return sortable(ident, f"{caption}{'. ' if caption else ''}{order}", columns, entries, noun=noun)


def errors(ident: str, rows: Sequence[Part], head: str, total: int | None) -> str:
    """Wrong predictions, the most confident first as they come; what no row knows has no column.

    ``total`` is how many there are in all, which documents of earlier releases do not say.
    """
    caption = "Wrong predictions, the most confident first"
    if total is not None:
        listed = f"The {count(len(rows))} most confident of {count(total)} errors"
        caption = f"{listed if len(rows) < total else f'All errors, {count(total)}'}: the most confident first"
    optional = (("place", "Place"), ("label", "Label"), ("predicted", "Predicted"))
    filled = [(k, title) for k, title in optional if any(r.get(k) is not None for r in rows)]
    columns = [(head, "text"), *((title, "text") for _, title in filled), ("Confidence", "num")]
    entries = []
    for r in rows:
        texts = (DASH if r.get(k) is None else clipped(r[k]) for k, _ in filled)
        confidence = SortedCell(percent(r.get("confidence")), finite(r.get("confidence")))
        entries.append(([SortedCell(clipped(r["id"])), *map(SortedCell, texts), confidence], False))
    return sortable(ident, caption, columns, entries, noun=("error", "errors"), shown=15, searchable=False, total=total)


def by_label(ident: str, rows: Sequence[Part]) -> str:
    """Every class with what it is said to be and what it is: precision and recall with their intervals."""
    columns = [("Class", "text"), *((w, "num") for w in ("Samples", "Precision", "Recall", "Mean P", "Happens"))]
    entries = []
    for r in rows:
        cells = [SortedCell(clipped(r["name"])), SortedCell(count(r["labels"]), finite(r["labels"]))]
        for key_ in ("precision", "recall"):
            share = r[key_]
            cells.append(
                SortedCell(valued(share["value"], share["low"], share["high"], "share"), finite(share["value"]))
            )
        cells += [SortedCell(percent(r[key_]), finite(r[key_])) for key_ in ("claimed", "happened")]
        entries.append((cells, bool(r.get("flag"))))
    return sortable(ident, "The rarest class first.", columns, entries, noun=("class", "classes"))


def positive(part: Part) -> str:
    """What is known of P(positive): shares and scores with intervals."""
    rows = "".join(
        f'<tr><th scope="row">{escape(r["label"])}<span class="note">{escape(r.get("note") or "")}</span></th>'
        f'<td class="num">{valued(r["value"], r.get("low"), r.get("high"), r["unit"])}</td></tr>'
        for r in part["metrics"]
    )
    caption = f"P({part['name']})"
    return table("metrics single", escape(caption), heads("Measure", "Value and interval"), rows, unseen=True)


def reliability_numbers(
    part: Part, caption: str, unit: str, words: tuple[str, str] = ("Mean confidence", "Accuracy")
) -> str:
    """The numbers behind a reliability diagram; the caption is HTML."""
    rows = (
        (f"({percent(lo)}, {percent(hi)}]", (count(n), percent(c), valued(a, a0, a1, "share")))
        for lo, hi, n, c, a, a0, a1 in zip(*(part[k] for k in RELIABILITY), strict=True)
    )
    return figure_numbers(caption, ("Bin", unit.capitalize(), *words), rows)


def histogram_numbers(part: Part, caption: str, unit: str) -> str:
    """The numbers behind a histogram; the caption is HTML."""
    rows = (
        (f"{percent(lo)} to {percent(hi)}", (count(r), count(w)))
        for lo, hi, r, w in zip(part["edges"], part["edges"][1:], part["right"], part["wrong"], strict=False)
    )
    return figure_numbers(caption, ("Confidence", f"Right {unit}", f"Wrong {unit}"), rows)


def object_numbers(part: Part, caption: str, unit: str) -> str:
    """The numbers behind confidence against object size; the caption is HTML."""
    keys = ("low", "high", "count", "confidence", "accuracy")
    rows = (
        (f"{percent(lo)} to {percent(hi)}", (count(n), percent(c), percent(a)))
        for lo, hi, n, c, a in zip(*(part[key] for key in keys), strict=True)
    )
    return figure_numbers(caption, ("Object size", unit.capitalize(), "Mean confidence", "Accuracy"), rows)


def figure_numbers(
    caption: str,
    words: Sequence[str],
    rows: Iterable[tuple[str, Sequence[str]]],
    label: str = "The numbers of this figure",
) -> str:
    """The numbers behind a figure, folded away: a row is its name and its cells, all of them HTML."""
    body = "".join(
        f'<tr><th scope="row">{first}</th>{"".join(map(numeric, words[1:], cells))}</tr>' for first, cells in rows
    )
    first, *rest = map(escape, words)
    numbers = table("tiles", caption, heads(first) + heads(*rest, numbers=True), body, label=label)
    return f"<details><summary>The numbers of this figure</summary>{numbers}</details>"
