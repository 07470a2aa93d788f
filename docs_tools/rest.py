"""The reST of the method files' docstrings as Markdown: maths, simple tables, code; everything else is kept."""

from __future__ import annotations

import inspect
import re

_MATH = re.compile(r":math:`([^`]*)`")
_RULE = re.compile(r"=+(?: +=+)*")
#: TeX that a Markdown reader would take for its own escapes, in words.
_SPELLED = {r"\{": r"\lbrace ", r"\}": r"\rbrace ", r"\,": r"\thinspace ", r"\;": r"\thickspace ", r"\|": r"\Vert "}
_BAR = r"\vert "


def markdown(docstring: str) -> str:
    """Convert a docstring, block by block.

    Args:
        docstring: reST with ``:math:`` roles, ``.. math::`` blocks and simple tables.

    Returns:
        Markdown without a line break at its end.

    Example:
        >>> from docs_tools.rest import markdown
        >>> markdown("The ``gamma`` in :math:`p^2`.")
        'The `gamma` in $p^2$.'
    """
    return "\n\n".join(_block(block) for block in re.split(r"\n\s*\n", inspect.cleandoc(docstring)))


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table; the bars within its cells are escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_without_bars(cell) for cell in line) + " |" for line in lines)


def _block(block: str) -> str:
    if block.startswith(".. math::"):
        return f"$$\n{_tex(block.removeprefix('.. math::'))}\n$$"
    if _RULE.fullmatch(block.splitlines()[0]):
        return _simple_table(block.splitlines())
    return _inline(block)


def _inline(text: str) -> str:
    return _MATH.sub(lambda match: f"${_tex(match[1])}$", text).replace("``", "`")


def _tex(formula: str) -> str:
    """A formula on one line: a line that begins with a plus would start a list."""
    for escape, word in _SPELLED.items():
        formula = formula.replace(escape, word)
    return " ".join(formula.split())


def _simple_table(lines: list[str]) -> str:
    """A reST simple table: columns stand under the rules, a row without a first cell continues the one above."""
    starts = [match.start() for match in re.finditer("=+", lines[0])]
    ends = [*starts[1:], None]
    head: list[list[str]] = []
    rows: list[list[str]] = []
    for line in lines[1:]:
        if _RULE.fullmatch(line):
            head, rows = (rows, []) if not head else (head, rows)
            continue
        if any(line[start - 1 : start].strip() for start in starts[1:]):
            raise ValueError(f"text runs across the columns of a table: {line!r}")
        cells = [line[start:end].strip() for start, end in zip(starts, ends, strict=True)]
        if rows and not cells[0]:
            rows[-1] = [f"{above} {cell}".strip() for above, cell in zip(rows[-1], cells, strict=True)]
        else:
            rows.append(cells)
    return table([_inline(cell) for cell in head[0]], [[_inline(cell) for cell in row] for row in rows])


def _without_bars(cell: str) -> str:
    """A bar ends a cell even inside maths, where TeX has a word for it."""
    parts = re.split(r"\$([^$]*)\$", cell)
    parts[::2] = [text.replace("|", r"\|") for text in parts[::2]]
    parts[1::2] = [f"${_tex(formula.replace('|', _BAR))}$" for formula in parts[1::2]]
    return "".join(parts)
