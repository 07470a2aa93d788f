"""Texts and numbers as a page shows them: escaped, and set with the signs of print.

The digits are those of `calibrant.base.numbers`, as in every sentence.
"""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Sequence
from decimal import ROUND_CEILING, Context
from typing import Any

from calibrant.base import numbers

DASH, MINUS, TIMES = "\u2013", "\u2212", "\u00d7"
_SPACE = "\u00a0"  # a number stays on the line of its unit
_UNSHOWABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
# Marks that turn the direction of what follows, by the mark that ends them.
_TURNS = dict.fromkeys("\u202a\u202b\u202d\u202e", "\u202c") | dict.fromkeys("\u2066\u2067\u2068", "\u2069")
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_POWER = re.compile(r"e(-?\d+)")


def plain(text: Any) -> str:
    """The text without characters that HTML or UTF-8 cannot hold, and without unbalanced marks of direction."""
    return _balanced(_UNSHOWABLE.sub("\ufffd", str(text)))


def _balanced(text: str) -> str:
    """The text without marks of direction that have no end, or no beginning, in it."""
    if not any(mark in text for mark in (*_TURNS, "\u202c", "\u2069")):
        return text
    characters, open_marks = list(text), list[int]()
    for i, character in enumerate(text):
        if character in _TURNS:
            open_marks.append(i)
        elif character in _TURNS.values():
            if open_marks and _TURNS[text[open_marks[-1]]] == character:
                open_marks.pop()
            else:
                characters[i] = "\ufffd"
    for i in open_marks:
        characters[i] = "\ufffd"
    return "".join(characters)


def escape(text: Any) -> str:
    """The text for HTML, inside quotes as well."""
    return html.escape(plain(text), quote=True)


def name(text: Any) -> str:
    """The name of a file, class or sample, with its own direction of writing."""
    return f"<bdi>{escape(text)}</bdi>"


def isolated(text: object) -> str:
    """A name inside a plain text: its direction of writing ends with it."""
    return f"\u2068{plain(text)}\u2069"


def embedded(data: Any) -> str:
    """JSON for a script element: nothing in it can end the element or open another."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"), sort_keys=True)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def finite(value: Any) -> float | None:
    """The value as a float, or None if it is absent or no number can be drawn for it."""
    return float(value) if value is not None and math.isfinite(value) else None


def typeset(text: str) -> str:
    """A number's text with the signs of print: a minus, a power of ten, and spaces that do not break."""
    text = _POWER.sub(lambda power: f" {TIMES} 10{str(int(power[1])).translate(_SUPERSCRIPT)}", text)
    return text.replace("-", MINUS).replace("inf", "\u221e").replace(" ", _SPACE)


def percent(share: float | None) -> str:
    """A share that was measured, in percent."""
    return quantity(share, "share")


def round_percent(share: float | None) -> str:
    """A share that is round by choice, as levels and ticks are: 95%, 2.5%."""
    return DASH if numbers.is_absent(share) else typeset(numbers.round_percent(share))


def allowed(share: float | None) -> str:
    """A share that is promised or required, with the digits it was given with."""
    return DASH if numbers.is_absent(share) else typeset(numbers.allowed(share))


def table_percent(share: float | None) -> str:
    """A share with the two decimals that papers' tables print, for what stands beside such a table."""
    return DASH if share is None or math.isnan(share) else typeset(f"{numbers.fixed(100 * share, 2)}%")


def number(value: float | None) -> str:
    """A number with four decimals, or two digits where those would all be zeros."""
    return quantity(value, "number")


def threshold(value: float | None) -> str:
    """A number with four decimals, and as many more as keep one below 1 from reading 1."""
    return quantity(value, "threshold")


def quantity(value: float | None, unit: str) -> str:
    """A value in its unit: ``"share"``, ``"number"`` or ``"threshold"``."""
    return DASH if numbers.is_absent(value) else typeset(numbers.quantity(value, unit))


def difference(value: float | None, unit: str, of: Sequence[float | None] = ()) -> str:
    """A difference of two values, signed, with their decimals; of shares in percentage points (pp)."""
    return DASH if numbers.is_absent(value) else typeset(numbers.difference(value, unit, of))


def difference_span(low: float | None, high: float | None, unit: str, of: Sequence[float | None] = ()) -> str:
    """The interval of a difference, with the decimals of the values compared; empty if neither end is known."""
    return _typeset_span(numbers.difference_span(low, high, unit, of))


def span(low: float | None, high: float | None, unit: str, like: float | None) -> str:
    """An interval with the decimals of the value it belongs to, in the same unit; empty if neither end is known."""
    return _typeset_span(numbers.span(low, high, unit, like))


def _typeset_span(text: str) -> str:
    """An interval; an end that is not known is a dash."""
    ends = text.strip("[]").split(", ")
    return f"[{f',{_SPACE}'.join(DASH if end == numbers.ABSENT else typeset(end) for end in ends)}]" if text else ""


def magnitude(value: float) -> str:
    """A tiny bound by its first digit, rounded up so that it still holds."""
    up = Context(prec=1, rounding=ROUND_CEILING).create_decimal(repr(float(value)))
    return typeset(f"{up.as_tuple().digits[0]}e{up.adjusted()}")


def count(value: float | None) -> str:
    """A count with separated thousands."""
    return DASH if numbers.is_absent(value) else numbers.count(value)


def short_count(value: int) -> str:
    """A count in at most four characters or so: 950, 1.2k, 35k, 1.2M."""
    for limit, mark in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit * 0.9995:
            scaled = value / limit
            return f"{scaled:.0f}{mark}" if scaled >= 9.95 else f"{scaled:.1f}{mark}".replace(".0", "")
    return str(value)
