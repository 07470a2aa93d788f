"""Tables of the pages that benchmarks write."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

#: A cell that begins with a word, code or a link instead of a number.
_WORD = re.compile(r"[`*]*\[?[A-Za-z]")


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown: columns of numbers to the right, the first one and those with words to the left.

    Example:
        >>> print(table(["claim", "seeds"], [["LS is worse", "3"], ["LR is better", "5"]]))
        | claim | seeds |
        | --- | --: |
        | LS is worse | 3 |
        | LR is better | 5 |
        <BLANKLINE>
    """
    body = [list(row) for row in rows]
    sides = ["---" if n == 0 or any(_WORD.match(row[n]) for row in body) else "--:" for n in range(len(columns))]
    return "\n".join(f"| {' | '.join(line)} |" for line in [columns, sides, *body]) + "\n"
