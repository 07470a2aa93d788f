"""Tables of HTML: framed, of numbers with intervals, and sorted by the reader's browser."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from calibrant.report.html.svg import icon
from calibrant.report.text import DASH, count, difference, difference_span, escape, name, quantity, span

#: Rows shown at first; the rest is one button away.
SHOWN = 30


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


def number_table(
    kind: str, caption: str, words: Sequence[str], rows: Iterable[Sequence[Any]], *, last: str = "", **options: Any
) -> str:
    """A `table` of numbers: ``words`` are the heads, a row is its name and its cells, which are HTML.

    ``last`` is the head of a last column without numbers, whose cell is then the third part of a row.
    """
    body = "".join(
        f'<tr><th scope="row">{first}</th>{"".join(map(numeric, words[1:], cells))}{"".join(last_cell)}</tr>'
        for first, cells, *last_cell in rows
    )
    head, *titles = map(escape, words)
    top = heads(head) + heads(*titles, numbers=True) + (heads(last) if last else "")
    return table(kind, caption, top, body, **options)


def figure_numbers(
    caption: str,
    words: Sequence[str],
    rows: Iterable[tuple[str, Sequence[str]]],
    label: str = "The numbers of this figure",
) -> str:
    """The numbers behind a figure, folded away: a row is its name and its cells, all of them HTML."""
    numbers = number_table("tiles", caption, words, rows, label=label)
    return f"<details><summary>The numbers of this figure</summary>{numbers}</details>"


def with_interval(value: str, ends: str) -> str:
    """A value and its interval, if it has one."""
    interval = f' <span class="ci">{ends}</span>' if ends else ""
    return f'<span class="v">{value}</span>{interval}'


def valued(value: Any, low: Any, high: Any, unit: str) -> str:
    """A value with its interval, in the unit."""
    return with_interval(quantity(value, unit), span(low, high, unit, value))


def changed_value(value: Any, low: Any, high: Any, unit: str, of: Sequence[Any]) -> str:
    """A difference of the values in ``of``, which lend it their decimals."""
    return with_interval(difference(value, unit, of), difference_span(low, high, unit, of))


def verdict_cell(label: str, kind: str, sign: str, words: str) -> str:
    """A cell with an icon and its words; a dash where there is no icon."""
    says = f"{icon(sign)}<span>{escape(words)}</span>" if sign else DASH
    return f'<td class="change {kind}"{labelled(label)}><span class="says">{says}</span></td>'


class PrintedNumber(NamedTuple):
    """A number as text, with its spread after "±"; a remark behind it; and its place among those of its column."""

    number: str
    remark: str = ""
    is_best: bool = False
    is_second: bool = False


def render_comparison_table(
    title: str, columns: Sequence[tuple[str, bool]], rows: Sequence[Sequence[str | PrintedNumber]]
) -> str:
    """A table as a fragment of a page, in a box that scrolls, without title and note.

    Args:
        title: For readers of the page who do not see it.
        columns: The text over every column, and whether it is one of numbers.
        rows: Words and numbers; the first of a row is its name.
    """
    top = "".join(heads(escape(text), numbers=is_number) for text, is_number in columns)
    body = "".join(
        f'<tr><th scope="row">{name(first)}</th>'
        + "".join(_cell(cell, head) for cell, (head, _) in zip(cells, columns[1:], strict=True))
        + "</tr>"
        for first, *cells in rows
    )
    listing = f'<table class="comparison tiles"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>'
    return framed(listing, title)


def _cell(cell: str | PrintedNumber, head: str) -> str:
    if isinstance(cell, str):
        return f"<td{labelled(head)}>{escape(cell)}</td>"
    mean, _, spread = cell.number.partition(" ± ")
    css = " best" if cell.is_best else " second" if cell.is_second else ""
    tag = "strong" if cell.is_best else "u" if cell.is_second else ""
    text = f'<span class="v">{escape(mean)}</span>' if mean else ""
    text += f' <span class="ci">± {escape(spread)}</span>' if spread else ""
    text = f"<{tag}>{text}</{tag}>" if tag else text
    remark = f' <span class="remark">{escape(cell.remark)}</span>' if cell.remark else ""
    return f'<td class="num{css}"{labelled(head)}>{text}{remark}</td>'


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
