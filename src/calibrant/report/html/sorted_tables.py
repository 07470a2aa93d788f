"""Tables that a reader sorts and searches: classes, groups, errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from calibrant.report.document import Part
from calibrant.report.html.charts import interval_bar, reach
from calibrant.report.html.svg import icon
from calibrant.report.html.tables import SHOWN, changed_value, clipped, labelled, table, valued
from calibrant.report.text import DASH, count, escape, finite, percent


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
    total_attribute = "" if total is None else f' data-total="{total}"'
    return (
        f'<div class="tools" hidden data-table="{ident}" data-shown="{shown}" '
        f'data-one="{escape(noun[0])}" data-noun="{escape(noun[1])}"{total_attribute}>'
        f'{search if searchable else ""}<button type="button" aria-controls="{ident}">{words}</button>'
        f'<p class="status" role="status"></p></div>{framed_table}'
    )


def _row(cells: Sequence[SortedCell], flagged: bool, columns: Sequence[tuple[str, str]]) -> str:
    mark = f'<span class="mark">{icon("flag")}<span class="unseen">flagged: </span></span>' if flagged else ""
    title = f'<div class="named">{mark}{cells[0].html}</div>' if flagged else cells[0].html
    head_cell = f'<th scope="row"{cells[0].attribute}>{title}</th>'
    further_cells = "".join(
        f"<td{' class=num' if kind == 'num' else ''}{cell.attribute}{labelled(head)}>{cell.html}</td>"
        for cell, (head, kind) in zip(cells[1:], columns[1:], strict=True)
    )
    return f"<tr{' class=flag' if flagged else ''}>{head_cell}{further_cells}</tr>"


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
        change = changed_value(*gap, "share", (r.get("accuracy"), r.get("confidence"))) + interval_bar(*gap, across)
        cells = [SortedCell(clipped(r["name"])), SortedCell(change, finite(gap[0]))]
        cells.append(SortedCell(count(r.get("count")), finite(r.get("count"))))
        cells += [SortedCell(percent(r.get(k)), finite(r.get(k))) for k in shares]
        entries.append((cells, bool(r.get("flag"))))
    start = "Flagged first, then those" if any(flag for _, flag in entries) else "Those first"
    order = f"{start} whose gap is most surely not 0: by the limit of its interval nearest 0."
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
