"""The table of a comparison as HTML: it prints the texts that it is given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from calibrant.report.html.tables import framed, labelled
from calibrant.report.text import escape, name

_NUMERIC = ' class="num"'


class PrintedNumber(NamedTuple):
    """A number as text, with its spread after "±"; a remark behind it; and its place among those of its column."""

    number: str
    remark: str = ""
    is_best: bool = False
    is_second: bool = False


def render_comparison_table(
    title: str, heads: Sequence[tuple[str, bool]], rows: Sequence[Sequence[str | PrintedNumber]]
) -> str:
    """A table as a fragment of a page, in a box that scrolls, without title and note.

    Args:
        title: For readers of the page who do not see it.
        heads: The text over every column, and whether it is one of numbers.
        rows: Words and numbers; the first of a row is its name.
    """
    top = "".join(f'<th scope="col"{_NUMERIC * is_number}>{escape(text)}</th>' for text, is_number in heads)
    body = "".join(
        f'<tr><th scope="row">{name(first)}</th>'
        + "".join(_cell(cell, head) for cell, (head, _) in zip(cells, heads[1:], strict=True))
        + "</tr>"
        for first, *cells in rows
    )
    table = f'<table class="comparison tiles"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>'
    return framed(table, title)


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
