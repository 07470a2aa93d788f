"""How numbers read, in sentences, tables, cards and charts alike: one rule of rounding for all of them.

A share is a percentage with two decimals; below 0.1% it has two digits, and near 1 as many as keep 0.99996 from
reading 100%. Other numbers have four decimals. An interval has the decimals of its value, a difference those of the
values compared. A half is rounded away from zero. Texts are ASCII; pages set them with their own minus and spaces.

The script of the pages shows shares and thresholds again: `percent`, `threshold`, `span` and `count` have twins in
report.js, and the browser's tests compare the two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Context, Decimal

#: Where there is no number.
ABSENT = "-"
#: From here on, and below a millionth, a number is a digit or two and a power of ten.
LARGE = 1e15

# Binary's 57.00499999999999 is a half, too: a paper's 0.57005 is 57.01%.
_NUDGE, _NUDGED_DECIMALS = 1e-11, 6
_EXACT = Context(prec=400, rounding=ROUND_HALF_UP)


def is_absent(value: float | None) -> bool:
    """Whether there is no number to show."""
    return value is None or math.isnan(value)


def percent(share: float | None) -> str:
    """A share that was measured.

    Example:
        >>> percent(0.8693), percent(0.125), percent(0.99996), percent(0.0004), percent(1.0), percent(None)
        ('86.93%', '12.50%', '99.996%', '0.040%', '100.00%', '-')
    """
    return quantity(share, "share")


def round_percent(share: float | None) -> str:
    """A share that somebody chose, as levels, targets and ticks are: its own digits and no others.

    Example:
        >>> round_percent(0.95), round_percent(0.025), round_percent(0.1 + 0.2)
        ('95%', '2.5%', '30%')
    """
    return ABSENT if share is None or math.isnan(share) else f"{100 * share:.6g}%"


def allowed(share: float | None) -> str:
    """A share that is promised or asked for: its own digits if somebody chose it, else as if it were measured.

    Example:
        >>> allowed(0.05), allowed(0.0025), allowed(0.0437213)
        ('5%', '0.25%', '4.37%')
    """
    text = round_percent(share)
    return text if len(text.partition(".")[2]) <= 4 else percent(share)


def number(value: float | None) -> str:
    """A number with four decimals, or two digits where those would all be zeros.

    Example:
        >>> number(0.45812), number(1234.5), number(0.00002)
        ('0.4581', '1,234.5000', '0.000020')
    """
    return quantity(value, "number")


def threshold(value: float | None) -> str:
    """A number with four decimals, and as many more as keep one below 1 from reading 1."""
    return quantity(value, "threshold")


def quantity(value: float | None, unit: str) -> str:
    """A value in its unit: ``"share"``, ``"number"`` or ``"threshold"``."""
    if value is None or math.isnan(value):
        return ABSENT
    scaled = _scale(value, unit)
    return fixed(scaled, _decimals(scaled, unit)) + ("%" if unit == "share" else "")


def span(low: float | None, high: float | None, unit: str, like: float | None) -> str:
    """An interval with the decimals of the value it belongs to; empty if neither end is known.

    Example:
        >>> span(0.075, 0.088, "share", 0.0812), span(None, None, "share", 0.5)
        ('[7.50%, 8.80%]', '')
    """
    model = next((v for v in (like, high, low) if v is not None and math.isfinite(v)), None)
    return _bracket(low, high, unit, None if model is None else _decimals(_scale(model, unit), unit))


def span_words(low: float | None, high: float | None, unit: str, like: float | None) -> str:
    """An interval in the middle of a sentence.

    Example:
        >>> span_words(0.184, 0.3537, "share", 0.26)
        '18.40% to 35.37%'
    """
    return span(low, high, unit, like).strip("[]").replace(", ", " to ")


def difference(value: float | None, unit: str, of: Sequence[float | None] = ()) -> str:
    """A difference of two values, signed, with their decimals; of shares in percentage points (pp).

    A difference in percent could be taken for a relative one.

    Example:
        >>> difference(-0.0684, "share", (0.08, 0.0116)), difference(0.00031, "share", (0.0004, 0.00071))
        ('-6.84 pp', '+0.031 pp')
    """
    if value is None or math.isnan(value):
        return ABSENT
    text = fixed(_scale(value, unit), _common_decimals(of, unit), sign=True)
    return f"{text} pp" if unit == "share" else text


def difference_span(low: float | None, high: float | None, unit: str, of: Sequence[float | None] = ()) -> str:
    """The interval of a difference, with the decimals of the values compared; empty if neither end is known."""
    return _bracket(low, high, unit, _common_decimals(of, unit), sign=True)


def count(value: float | None) -> str:
    """A count, its thousands apart."""
    return ABSENT if value is None or math.isnan(value) else f"{int(value):,}"


def significant(value: float, digits: int = 2) -> str:
    """A number by its first digits, for text without a table beside it.

    Example:
        >>> significant(2.3456, 3), significant(0.00012345), significant(0.125)
        ('2.35', '0.00012', '0.13')
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    decimals = digits - 1 - Decimal(repr(float(value))).adjusted()
    return f"{float(_round(value, decimals)):.{digits}g}"


def p_value(p: float) -> str:
    """The p of a test: four decimals, or that it is below what they show.

    Example:
        >>> p_value(0.01234), p_value(0.00002)
        ('0.0123', '<0.0001')
    """
    return "<0.0001" if p < 0.0001 else fixed(p, 4)


def p_words(p: float) -> str:
    """The p of a test in a sentence.

    Example:
        >>> p_words(0.01234), p_words(0.00002)
        ('p = 0.0123', 'p < 0.0001')
    """
    text = p_value(p)
    return f"p < {text[1:]}" if text.startswith("<") else f"p = {text}"


def fixed(value: float, decimals: int | None, *, sign: bool = False) -> str:
    """A number with so many decimals, a half rounded away from zero; None stands for a power of ten.

    Example:
        >>> fixed(57.00499999999999, 2), fixed(-0.125, 2), fixed(0.001, 2, sign=True), fixed(1.2e-7, None)
        ('57.01', '-0.13', '0.00', '1.2e-7')
    """
    if math.isinf(value):
        text = "inf"
    elif decimals is not None and abs(value) < LARGE:
        text = f"{abs(_round(value, decimals)):,.{decimals}f}"
    elif value == 0:
        text = "0"
    else:
        digits, power = f"{abs(value):.1e}".split("e")
        text = f"{digits}e{int(power)}"
    is_zero = text != "inf" and not any(c in text for c in "123456789")
    return ("" if is_zero else "-" if value < 0 else "+" if sign else "") + text


def _scale(value: float, unit: str) -> float:
    return 100.0 * float(value) if unit == "share" else float(value)  # NumPy prints its own numbers differently


def _bracket(low: float | None, high: float | None, unit: str, decimals: int | None, *, sign: bool = False) -> str:
    if is_absent(low) and is_absent(high):
        return ""
    mark = "%" if unit == "share" and not sign else ""
    ends = (
        ABSENT if v is None or math.isnan(v) else fixed(_scale(v, unit), decimals, sign=sign) + mark
        for v in (low, high)
    )
    return f"[{', '.join(ends)}]"


def _common_decimals(values: Sequence[float | None], unit: str) -> int:
    """The decimals that values to be compared have in common: those of the finest of them, within reason."""
    usual = 2 if unit == "share" else 4
    decimals = [_decimals(_scale(v, unit), unit) for v in values if v is not None and math.isfinite(v)]
    return max([usual, *(usual + 2 if d is None else min(d, usual + 2) for d in decimals)])


def _decimals(value: float, unit: str) -> int | None:
    """Digits after the point; None where only a power of ten will do."""
    size = abs(value)
    if not size < LARGE:
        return None
    decimals, least, limit = (2, 0.1, 100) if unit == "share" else (4, 0.00005, 1 if unit == "threshold" else math.inf)
    if 0 < size < least:
        exponent = Decimal(repr(size)).adjusted()
        return 1 - exponent if exponent >= -6 else None
    while size < limit < math.inf and decimals < 15 and _round(size, decimals) >= limit:
        decimals += 1
    return decimals


def _round(value: float, decimals: int) -> Decimal:
    if decimals <= _NUDGED_DECIMALS:
        value += math.copysign(_NUDGE, value)
    return Decimal(value).quantize(Decimal(1).scaleb(-decimals), context=_EXACT)
