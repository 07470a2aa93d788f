"""Texts and numbers as a page shows them: escaped, with the same digits everywhere.

The page's script shows the numbers of the curves again: `percent`, `threshold`, `span` and `count` have twins in
report.js, and the browser's tests compare the two.
"""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_HALF_UP, Context, Decimal
from typing import Any

DASH, MINUS, TIMES = "\u2013", "\u2212", "\u00d7"
_SPACE = "\u00a0"  # a number stays on the line of its unit
_UNSHOWABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
# Marks that turn the direction of what follows, by the mark that ends them.
_TURNS = dict.fromkeys("\u202a\u202b\u202d\u202e", "\u202c") | dict.fromkeys("\u2066\u2067\u2068", "\u2069")
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def plain(text: Any) -> str:
    """The text without what HTML or UTF-8 cannot hold, and without marks that would turn its neighbours."""
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
    """A name somebody gave to a file, class or sample: its direction of writing stays its own."""
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


def percent(share: float | None) -> str:
    """A share in percent: two decimals, two digits below 0.1%, and as many as keep 0.99999 from reading 100%."""
    return _format(share, "share") + ("" if _absent(share) else "%")


def round_percent(share: float | None) -> str:
    """A share that is round by choice, as levels and ticks are: 95%, 2.5%."""
    return DASH if _absent(share) else f"{100 * share:.6g}%".replace("-", MINUS)  # type: ignore[operator]


def number(value: float | None) -> str:
    """A number with four decimals, or two digits where those would all be zeros."""
    return _format(value, "number")


def threshold(value: float | None) -> str:
    """A number with four decimals, and as many more as keep one below 1 from reading 1."""
    return _format(value, "threshold")


def quantity(value: float | None, unit: str) -> str:
    """A value in its unit, ``"share"`` or ``"number"``."""
    return percent(value) if unit == "share" else number(value)


def difference(value: float | None, unit: str, of: Sequence[float | None]) -> str:
    """A difference of two values, signed, with their decimals; of shares in percentage points (pp).

    Of percents one could not tell what of.
    """
    if _absent(value):
        return DASH
    text = _fixed(_scaled(value, unit), _common(of, unit), True)  # type: ignore[arg-type]
    return f"{text}{_SPACE}pp" if unit == "share" else text


def difference_span(low: float | None, high: float | None, unit: str, of: Sequence[float | None]) -> str:
    """The interval of a difference, with the decimals of the values compared; empty if neither end is known."""
    return _bracketed(low, high, unit, _common(of, unit), sign=True)


def magnitude(value: float) -> str:
    """A tiny bound by its first digit, rounded up so that it still holds."""
    up = Context(prec=1, rounding=ROUND_CEILING).create_decimal(repr(float(value)))
    return f"{up.as_tuple().digits[0]}{_SPACE}{TIMES}{_SPACE}10{str(up.adjusted()).translate(_SUPERSCRIPT)}"


def span(low: float | None, high: float | None, unit: str, like: float | None) -> str:
    """An interval with the decimals of the value it belongs to, in the same unit; empty if neither end is known."""
    model = next((v for v in (like, high, low) if finite(v) is not None), None)
    return _bracketed(low, high, unit, None if model is None else _decimals(_scaled(model, unit), unit))


def count(value: float | None) -> str:
    """A count, its thousands apart."""
    return DASH if _absent(value) else f"{int(value):,}"  # type: ignore[arg-type]


def short_count(value: int) -> str:
    """A count in at most four characters or so: 950, 1.2k, 35k, 1.2M."""
    for limit, mark in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit * 0.9995:
            scaled = value / limit
            return f"{scaled:.0f}{mark}" if scaled >= 9.95 else f"{scaled:.1f}{mark}".replace(".0", "")
    return str(value)


def _absent(value: float | None) -> bool:
    return value is None or math.isnan(value)


def _scaled(value: float, unit: str) -> float:
    return value * 100.0 if unit == "share" else float(value)


def _format(value: float | None, unit: str) -> str:
    if value is None or math.isnan(value):
        return DASH
    value = _scaled(value, unit)
    return _fixed(value, _decimals(value, unit), False)


def _bracketed(low: float | None, high: float | None, unit: str, decimals: int | None, *, sign: bool = False) -> str:
    if _absent(low) and _absent(high):
        return ""
    mark = "%" if unit == "share" and not sign else ""
    ends = [
        DASH if v is None or math.isnan(v) else _fixed(_scaled(v, unit), decimals, sign) + mark for v in (low, high)
    ]
    return f"[{ends[0]},{_SPACE}{ends[1]}]"


def _common(values: Sequence[float | None], unit: str) -> int:
    """The decimals that values to be compared have in common: those of the finest of them, within reason."""
    usual = 2 if unit == "share" else 4
    decimals = [_decimals(_scaled(v, unit), unit) for v in values if v is not None and math.isfinite(v)]
    return max([usual, *(usual + 2 if d is None else min(d, usual + 2) for d in decimals)])


def _decimals(value: float, unit: str) -> int | None:
    """Digits after the point; None where only a power of ten will do."""
    if not math.isfinite(value):
        return None
    size = abs(float(value))  # NumPy prints its own numbers differently
    decimals, least, limit = (2, 0.1, 100) if unit == "share" else (4, 0.00005, 1 if unit == "threshold" else math.inf)
    if 0 < size < least:
        exponent = Decimal(repr(size)).adjusted()
        return 1 - exponent if exponent >= -6 else None
    while size < limit < math.inf and decimals < 15 and _rounded(size, decimals) >= limit:
        decimals += 1
    return decimals


def _rounded(value: float, decimals: int) -> Decimal:
    """As JavaScript's toFixed: by the exact binary value, a tie away from zero."""
    return Decimal(value).quantize(Decimal(1).scaleb(-decimals), ROUND_HALF_UP)


def _fixed(value: float, decimals: int | None, sign: bool) -> str:
    if math.isinf(value):
        text = "∞"
    elif decimals is not None:
        text = f"{abs(_rounded(value, decimals)):,.{decimals}f}"
    elif value == 0:
        text = "0"
    else:
        digits, power = f"{abs(value):.1e}".split("e")
        text = f"{digits}{_SPACE}{TIMES}{_SPACE}10{str(int(power)).translate(_SUPERSCRIPT)}"
    is_zero = not any(c in text for c in "123456789∞")
    return ("" if is_zero else MINUS if value < 0 else "+" if sign else "") + text
