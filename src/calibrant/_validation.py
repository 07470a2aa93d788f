"""Checks of arguments. Every error is one sentence: NAME must be what was asked, got what came."""

from __future__ import annotations

import math
import numbers
import sys
from collections.abc import Collection
from typing import Any

_LARGEST = sys.float_info.max


def choice(name: str, value: Any, options: Collection[Any]) -> Any:
    """``value`` if it is one of ``options``."""
    if value not in options:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, options))}, got {short(value)}")
    return value


def flag(name: str, value: bool) -> bool:
    """``value`` if it is True or False."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, got {short(value)}")
    return value


def at_least(name: str, value: float, low: float, at_most: float = math.inf) -> float:
    """``value`` if it is a finite number from ``low`` to ``at_most``."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ValueError(f"{name} must be a number, got {short(value)}")
    if not low <= value <= at_most or value > _LARGEST:
        bounds = f"finite and at least {low:g}" if at_most == math.inf else f"between {low:g} and {at_most:g}"
        raise ValueError(f"{name} must be {bounds}, got {short(value)}")
    return float(value)


def whole(name: str, value: int, low: int, high: int | None = None) -> int:
    """A whole number of at least ``low``, and of at most ``high`` if that is given."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < low:
        raise ValueError(f"{name} must be a whole number of at least {low}, got {short(value)}")
    if high is not None and value > high:
        came = f"{value:,}" if value < 10**30 else "more"
        raise ValueError(f"{name} must be a whole number of at most {high:,}, got {came}")
    return int(value)


def number_in(name: str, value: float, low: float, high: float, *, open_low: bool = False) -> float:
    """A number from ``low`` to ``high``; with ``open_low`` the lower end is left out."""
    real_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not real_number or not low <= value <= high or (open_low and value == low):
        asked = f"above {low:g} and at most {high:g}" if open_low else f"between {low:g} and {high:g}"
        raise ValueError(f"{name} must be a number {asked}, got {value!r}")
    return float(value)


def short(value: object, most: int = 60) -> str:
    """A value for a message, of which only the beginning is shown where it is long."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**most:
        return "a number of over 60 digits"  # which Python may refuse to print
    text = repr(value.tolist() if hasattr(value, "tolist") else value)
    return text if len(text) <= most else f"{text[:most]}..."
