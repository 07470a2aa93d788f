"""Tables as Markdown, LaTeX, CSV, HTML and for the terminal: the same numbers with the same digits."""

from __future__ import annotations

import csv as csv_files
import io
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from calibrant.base.files import written_aside
from calibrant.base.numbers import p_value
from calibrant.experiments.spaces import short_title
from calibrant.experiments.tables.cells import BEST, Column, Line, Table, TableCell, number_text
from calibrant.metrics import describe
from calibrant.report import DASH, MINUS, TIMES, PrintedNumber, render_comparison_table

_CHANGES = {"better": "•", "worse": "∘", "": ""}
_MARKDOWN = re.compile(r"([\\`*_\[\]<>|])")
_LATEX = str.maketrans({
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\textquotedbl{}", "±": r"$\pm$", "↑": r"$\uparrow$", "↓": r"$\downarrow$", MINUS: r"$-$",
    "∞": r"$\infty$", "•": r"$\bullet$", "∘": r"$\circ$", TIMES: r"$\times$",
    DASH: "--",
})  # fmt: skip

#: What a CSV column has besides the number.
_CSV_PARTS: dict[str, tuple[str, ...]] = {
    "paper": (), "difference": (), "p": (), "rank": ("rankings",), "interval": ("high",), "wins": ("seeds",),
}  # fmt: skip


class _Words(NamedTuple):
    """A column of words: its head, and the entry of a row."""

    head: str
    of: Callable[[Line], str]


def _measure(line: Line) -> str:
    if not line.metric:
        return ""
    metric = describe(line.metric)
    return f"{metric.label} (%)" if metric.unit == "share" else metric.label


def _words(table: Table) -> tuple[list[_Words], list[_Words]]:
    """The columns of words left and right of the numbers: the method, and those with an entry in some row."""
    left = [
        _Words("Tuned for", lambda line: line.tuned_for),
        _Words("Set", lambda line: line.set),
        _Words("Measure", _measure),
    ]
    right = [_Words("Note", lambda line: line.note)]
    left, right = ([words for words in side if any(map(words.of, table.rows))] for side in (left, right))
    return [_Words("Method", lambda line: short_title(line.method)), *left], right


def _printed_number(cell: TableCell | None, column: Column, line: Line, usual: int) -> PrintedNumber:
    if cell is None:
        return PrintedNumber("")
    number = _mean(cell, column, line.metric)
    if cell.std == cell.std:
        number += f" ± {number_text(cell.std, column, line.metric)}"
    is_unusual = cell.runs not in (0, usual) and column.kind in ("value", "rank", "ours")
    words = [cell.remark, f"n={cell.runs}" if is_unusual else ""]
    remark = _join(_CHANGES[cell.change], f"({', '.join(filter(None, words))})" if any(words) else "")
    return PrintedNumber(number, remark, cell.best, cell.second)


def _mean(cell: TableCell, column: Column, metric: str) -> str:
    if math.isnan(cell.mean):
        return DASH
    if column.kind == "wins":
        return f"{cell.mean:.0f} of {cell.runs}"
    if column.kind == "p":
        return p_value(cell.mean)
    if column.kind == "interval":
        return f"[{', '.join(number_text(end, column, metric, sign=True) for end in (cell.mean, cell.high))}]"
    return number_text(cell.mean, column, metric, sign=column.kind == "difference")


class _Printed(NamedTuple):
    """A table as text: heads and rows, and the number of word columns left and right of the numbers."""

    heads: list[str]
    rows: list[list[str | PrintedNumber]]
    left: int
    right: int

    def texts(self, word: Callable[[str], str], number: Callable[[PrintedNumber], str]) -> list[list[str]]:
        """Heads and rows, with words and numbers written by the given functions."""
        heads = [word(head) for head in self.heads]
        rows = [[word(cell) if isinstance(cell, str) else number(cell) for cell in row] for row in self.rows]
        return [heads, *rows]


def _print(table: Table) -> _Printed:
    left, right = _words(table)
    heads = [*(w.head for w in left), *(column.head for column in table.columns), *(w.head for w in right)]
    usual = [table.usual_runs(k) for k in range(len(table.columns))]
    rows: list[list[str | PrintedNumber]] = []
    for line in table.rows:
        cells = zip(line.cells, table.columns, usual, strict=True)
        numbers = [_printed_number(cell, column, line, n) for cell, column, n in cells]
        rows.append([*(w.of(line) for w in left), *numbers, *(w.of(line) for w in right)])
    return _Printed(heads, rows, len(left), len(right))


def _join(*parts: str) -> str:
    return " ".join(filter(None, parts))


def _one_line(words: str) -> str:
    return " ".join(words.split())


def heads(table: Table) -> list[str]:
    """The heads over the rows of `text`."""
    return _print(table).heads


def text(table: Table) -> list[list[str]]:
    """Rows for the terminal; ¹ stands before the best of a column and ² before the second."""

    def number(cell: PrintedNumber) -> str:
        # In front, so that right-aligned numbers stay in line.
        return _join("¹" if cell.is_best else "²" if cell.is_second else "", cell.number, cell.remark)

    return _print(table).texts(str, number)[1:]


def notes(table: Table) -> list[str]:
    """The sentences below the rows of `text`.

    Example:
        >>> from calibrant.experiments.tables.cells import Table
        >>> notes(Table("", "One run each. Best in bold, second underlined.", (), ()))
        ['One run each.', '¹ best and ² second of a column.']
    """
    plain = table.note.replace(BEST, "¹ best and ² second of a column.")
    return [sentence for sentence in re.split(r"(?<=[.!?]) (?=\S)", plain) if sentence]


def markdown(table: Table) -> str:
    """A table in GitHub's Markdown: the title, the table, the note."""

    def word(words: str) -> str:
        return _MARKDOWN.sub(r"\\\1", _one_line(words))

    def number(cell: PrintedNumber) -> str:
        strong = f"**{cell.number}**" if cell.is_best else f"<u>{cell.number}</u>" if cell.is_second else cell.number
        return _join(strong, cell.remark)

    page = _print(table)
    rule = [":--"] * page.left + ["--:"] * len(table.columns) + [":--"] * page.right
    head, *rows = (f"| {' | '.join(row)} |" for row in page.texts(word, number))
    body = "\n".join([head, f"|{'|'.join(rule)}|", *rows])
    title = f"**{word(table.title)}**" if table.title else ""
    return "\n\n".join(filter(None, (title, body, word(table.note))))


def latex(table: Table) -> str:
    """A LaTeX table; its first line says which packages it needs."""

    def word(words: str) -> str:
        return _one_line(words).translate(_LATEX)

    def number(cell: PrintedNumber) -> str:
        plain = word(cell.number)
        strong = rf"\textbf{{{plain}}}" if cell.is_best else rf"\underline{{{plain}}}" if cell.is_second else plain
        return _join(strong, word(cell.remark))

    page = _print(table)
    shape = "l" * page.left + "r" * len(table.columns) + "l" * page.right
    # A cell that begins with a bracket would be read as an option of the line break before it.
    lines = [
        ("{}" if row[0].startswith(("[", "*")) else "") + " & ".join(row) + r" \\" for row in page.texts(word, number)
    ]
    caption = word(_join(table.title and f"{table.title.rstrip('.')}.", table.note))
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


def html(table: Table) -> str:
    """The table as a fragment of a page, without title and note."""
    page = _print(table)
    numbers = range(page.left, page.left + len(table.columns))
    return render_comparison_table(
        table.title or "Results", [(h, k in numbers) for k, h in enumerate(page.heads)], page.rows
    )


def csv(table: Table) -> str:
    """Comma-separated values: per column mean, standard deviation and number of runs, unrounded; shares as shares.

    Methods have the names that the results have.
    """
    left, right = _words(table)
    file = io.StringIO()
    writer = csv_files.writer(file, lineterminator="\n")
    heads_ = [head for column in table.columns for head in _csv_heads(column)]
    writer.writerow([*(w.head for w in left), *heads_, *(w.head for w in right)])
    for line in table.rows:
        before = [line.method, *(line.metric if w.of is _measure else w.of(line) for w in left[1:])]
        cells = [v for cell, c in zip(line.cells, table.columns, strict=True) for v in _csv_values(cell, c)]
        writer.writerow([*before, *cells, *(w.of(line) for w in right)])
    return file.getvalue()


def _csv_parts(column: Column) -> tuple[str, ...]:
    return _CSV_PARTS.get(column.kind, ("std", "runs"))


def _csv_heads(column: Column) -> list[str]:
    head = f"{column.name} low" if column.kind == "interval" else column.name
    return [head, *(f"{column.name} {part}" for part in _csv_parts(column))]


def _csv_values(cell: TableCell | None, column: Column) -> list[str]:
    parts = _csv_parts(column)
    if cell is None:
        return [""] * (1 + len(parts))
    values = {"std": cell.std, "high": cell.high, "runs": cell.runs, "rankings": cell.runs, "seeds": cell.runs}
    return ["" if v != v else repr(v) for v in (cell.mean, *(values[part] for part in parts))]


#: How a table is written, by the ending of its file.
FORMATS: dict[str, Callable[[Table], str]] = {"md": markdown, "tex": latex, "csv": csv, "html": html}


def write_table(table: Table, folder: Path, name: str) -> list[Path]:
    """Write a table into a folder in every format; return the files."""
    files = [folder / f"{name}.{suffix}" for suffix in FORMATS]
    for file, write in zip(files, FORMATS.values(), strict=True):
        with written_aside(file) as aside:
            aside.write_text(write(table).rstrip("\n") + "\n", encoding="utf-8")
    return files
