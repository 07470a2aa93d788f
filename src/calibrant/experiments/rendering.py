"""Tables as Markdown, LaTeX, CSV, HTML and for the terminal: the same numbers with the same digits."""

from __future__ import annotations

import csv as csv_files
import io
import math
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from calibrant.experiments.cells import BEST, Cell, Column, Line, Table, printed
from calibrant.metrics import describe
from calibrant.report import DASH, MINUS, TIMES, escape, framed, labelled, name

_CHANGES = {"better": "•", "worse": "∘", "": ""}
_MARKDOWN = re.compile(r"([\\`*_\[\]<>|])")
_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\textquotedbl{}", "±": r"$\pm$", "↑": r"$\uparrow$", "↓": r"$\downarrow$", MINUS: r"$-$",
    "∞": r"$\infty$", "•": r"$\bullet$", "∘": r"$\circ$", TIMES: r"$\times$",
    DASH: "--",
}  # fmt: skip


#: What a column of CSV has beside the number.
_CSV_PARTS: dict[str, tuple[str, ...]] = {
    "paper": (), "difference": (), "p": (), "rank": ("rankings",), "interval": ("high",), "wins": ("seeds",),
}  # fmt: skip


class _Words(NamedTuple):
    """A column of words: its head, and what a row says in it."""

    head: str
    of: Callable[[Line], str]


class _Shown(NamedTuple):
    """A cell in print: the mean with its spread, what is to be said of it, and its place."""

    number: str
    remark: str
    best: bool
    second: bool


def _measure(line: Line) -> str:
    if not line.metric:
        return ""
    metric = describe(line.metric)
    return f"{metric.label} (%)" if metric.unit == "share" else metric.label


def _before(table: Table) -> list[_Words]:
    """The columns of words on the left: the method, and those in which some row says something."""
    more = [
        _Words("Tuned for", lambda line: line.tuned_for),
        _Words("Set", lambda line: line.set),
        _Words("Measure", _measure),
    ]
    return [_Words("Method", lambda line: line.method), *(w for w in more if any(map(w.of, table.rows)))]


def _after(table: Table) -> list[_Words]:
    return [_Words("Note", lambda line: line.note)] if any(line.note for line in table.rows) else []


def _shown(cell: Cell | None, column: Column, line: Line, usual: int) -> _Shown:
    if cell is None:
        return _Shown("", "", False, False)
    number = _number(cell, column, line.metric)
    if cell.std == cell.std:
        number += f" ± {printed(cell.std, column, line.metric)}"
    odd = cell.runs not in (0, usual) and column.kind in ("value", "rank", "ours")
    remarks = filter(None, (_CHANGES[cell.change], f"(n={cell.runs})" if odd else ""))
    return _Shown(number, " ".join(remarks), cell.best, cell.second)


def _number(cell: Cell, column: Column, metric: str) -> str:
    if math.isnan(cell.mean):
        return DASH
    if column.kind == "wins":
        return f"{cell.mean:.0f} of {cell.runs}"
    if column.kind == "p":
        return "<0.0001" if cell.mean < 0.0001 else f"{cell.mean:.4f}"
    if column.kind == "interval":
        return f"[{', '.join(printed(end, column, metric, sign=True) for end in (cell.mean, cell.high))}]"
    return printed(cell.mean, column, metric, sign=column.kind == "difference")


def _lines(table: Table) -> Iterator[tuple[Line, list[_Shown]]]:
    usual = [table.usual_runs(k) for k in range(len(table.columns))]
    for line in table.rows:
        cells = zip(line.cells, table.columns, usual, strict=True)
        yield line, [_shown(cell, column, line, n) for cell, column, n in cells]


def _texts(
    table: Table, number: Callable[[_Shown], str], word: Callable[[str], str]
) -> tuple[list[str], list[list[str]]]:
    """Heads and rows of the whole table, with words and numbers written by the given functions."""
    before, after = _before(table), _after(table)
    top = [word(t) for t in (*(w.head for w in before), *(c.head for c in table.columns), *(w.head for w in after))]
    rows = [
        [*(word(w.of(line)) for w in before), *map(number, cells), *(word(w.of(line)) for w in after)]
        for line, cells in _lines(table)
    ]
    return top, rows


def _joined(*parts: str) -> str:
    return " ".join(filter(None, parts))


def heads(table: Table) -> list[str]:
    """The heads over the rows of `text`."""
    return _texts(table, _plain, str)[0]


def text(table: Table) -> list[list[str]]:
    """Rows for the terminal; ¹ stands before the best of a column and ² before the second."""
    return _texts(table, _plain, str)[1]


def notes(table: Table) -> list[str]:
    """What is to be said below the rows of `text`, in sentences.

    Example:
        >>> from calibrant.experiments.cells import Table
    from calibrant.metrics import describe
        >>> notes(Table("", "One run each. Best in bold, second underlined.", (), ()))
        ['One run each.', '¹ best and ² second of a column.']
    """
    plain = table.note.replace(BEST, "¹ best and ² second of a column.")
    return [sentence for sentence in re.split(r"(?<=[.!?]) (?=\S)", plain) if sentence]


def _plain(cell: _Shown) -> str:
    # In front, where it leaves numbers that are set flush right in line.
    return _joined("¹" if cell.best else "²" if cell.second else "", cell.number, cell.remark)


def markdown(table: Table) -> str:
    """A table in GitHub's Markdown: the title, the table, the note."""

    def number(cell: _Shown) -> str:
        strong = f"**{cell.number}**" if cell.best else f"<u>{cell.number}</u>" if cell.second else cell.number
        return _joined(strong, cell.remark)

    top, rows = _texts(table, number, _escaped_markdown)
    left, right = len(_before(table)), len(_after(table))
    rule = [":--"] * left + ["--:"] * len(table.columns) + [":--"] * right
    lines = [" | ".join(row) for row in (top, *rows)]
    body = "\n".join([f"| {lines[0]} |", f"|{'|'.join(rule)}|", *(f"| {line} |" for line in lines[1:])])
    title = f"**{_escaped_markdown(table.title)}**" if table.title else ""
    return "\n\n".join(filter(None, (title, body, _escaped_markdown(table.note))))


def _escaped_markdown(words: str) -> str:
    return _MARKDOWN.sub(r"\\\1", _one_line(words))


def _one_line(words: str) -> str:
    return " ".join(words.split())


def latex(table: Table) -> str:
    """A LaTeX table; its first line says what the document needs for it."""

    def number(cell: _Shown) -> str:
        shown = _escaped_latex(cell.number)
        strong = rf"\textbf{{{shown}}}" if cell.best else rf"\underline{{{shown}}}" if cell.second else shown
        return _joined(strong, _escaped_latex(cell.remark))

    top, rows = _texts(table, number, _escaped_latex)
    shape = "l" * len(_before(table)) + "r" * len(table.columns) + "l" * len(_after(table))
    # A cell that opens with a bracket would be read as an option of the line break before it.
    lines = [("{}" if row[0].startswith(("[", "*")) else "") + " & ".join(row) + r" \\" for row in (top, *rows)]
    caption = _escaped_latex(_joined(table.title and f"{table.title.rstrip('.')}.", table.note))
    fonts = r" and \usepackage[T1]{fontenc}" if r"\textquotedbl" in "".join((caption, *lines)) else ""
    return "\n".join(
        [
            rf"% needs \usepackage{{booktabs}}{fonts}",
            r"\begin{table}",
            r"\centering",
            *([rf"\caption{{{caption}}}"] if caption else []),
            rf"\begin{{tabular}}{{{shape}}}",
            r"\toprule",
            lines[0],
            r"\midrule",
            *lines[1:],
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
    )


def _escaped_latex(words: str) -> str:
    return "".join(_LATEX.get(c, c) for c in _one_line(words))


def csv(table: Table) -> str:
    """Comma-separated values: per column mean, standard deviation and number of runs, unrounded; shares as shares."""
    before, after = _before(table), _after(table)
    file = io.StringIO()
    writer = csv_files.writer(file, lineterminator="\n")
    numbers = [title for c in table.columns for title in _csv_heads(c)]
    writer.writerow([*(w.head for w in before), *numbers, *(w.head for w in after)])
    for line in table.rows:
        cells = [v for cell, c in zip(line.cells, table.columns, strict=True) for v in _csv_values(cell, c)]
        writer.writerow([*(_csv_word(w, line) for w in before), *cells, *(w.of(line) for w in after)])
    return file.getvalue()


def _csv_word(words: _Words, line: Line) -> str:
    return line.metric if words.of is _measure else words.of(line)


def _csv_heads(column: Column) -> list[str]:
    if column.kind == "interval":
        return [f"{column.name} {end}" for end in ("low", "high")]
    return [column.name, *(f"{column.name} {what}" for what in _csv_parts(column))]


def _csv_parts(column: Column) -> tuple[str, ...]:
    return _CSV_PARTS.get(column.kind, ("std", "runs"))


def _csv_values(cell: Cell | None, column: Column) -> list[str]:
    parts = _csv_parts(column)
    if cell is None:
        return [""] * (1 + len(parts))
    values = {"std": cell.std, "high": cell.high, "runs": cell.runs, "rankings": cell.runs, "seeds": cell.runs}
    return ["" if v != v else repr(v) for v in (cell.mean, *(values[part] for part in parts))]


def html(table: Table) -> str:
    """The table as a fragment of a page, without title and note; classes are those of the report."""
    before, after = _before(table), _after(table)
    top = "".join(f'<th scope="col">{escape(w.head)}</th>' for w in before)
    top += "".join(f'<th scope="col" class="num">{escape(c.head)}</th>' for c in table.columns)
    top += "".join(f'<th scope="col">{escape(w.head)}</th>' for w in after)
    body = []
    for line, cells in _lines(table):
        first, *more = before
        row = f'<th scope="row">{name(first.of(line))}</th>'
        row += "".join(f"<td{labelled(w.head)}>{escape(w.of(line))}</td>" for w in more)
        row += "".join(map(_html_cell, cells, table.columns))
        row += "".join(f"<td{labelled(w.head)}>{escape(w.of(line))}</td>" for w in after)
        body.append(f"<tr>{row}</tr>")
    made = f'<table class="comparison"><thead><tr>{top}</tr></thead><tbody>{"".join(body)}</tbody></table>'
    return framed(made, table.title or "Results")


def _html_cell(cell: _Shown, column: Column) -> str:
    mean, _, std = cell.number.partition(" ± ")
    place = " best" if cell.best else " second" if cell.second else ""
    tag = "strong" if cell.best else "u" if cell.second else ""
    shown = f'<span class="v">{escape(mean)}</span>' if mean else ""
    shown += f' <span class="ci">± {escape(std)}</span>' if std else ""
    shown = f"<{tag}>{shown}</{tag}>" if tag else shown
    remark = f' <span class="remark">{escape(cell.remark)}</span>' if cell.remark else ""
    return f'<td class="num{place}"{labelled(column.head)}>{shown}{remark}</td>'
