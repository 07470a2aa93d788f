"""Checks of arguments: each error says what was asked, what came, and what is wrong."""

from __future__ import annotations

import numbers
from collections.abc import Collection

#: The largest size that a network is asked for: a width, a number of classes, pixels of an image.
LARGEST = 10**9


def whole(parameter: str, value: int, low: int, high: int = LARGEST) -> int:
    """Return ``value`` if it is a whole number from ``low`` to ``high``, else raise."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < low:
        raise ValueError(f"{parameter} must be a whole number of at least {low}, got {_short(value)}")
    if value > high:
        raise ValueError(f"{parameter} must be a whole number of at most {high}, got {_short(value)}")
    return int(value)


def share(parameter: str, value: float) -> float:
    """Return ``value`` if it is a number from 0 up to, but not, 1, else raise."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 <= value < 1:
        raise ValueError(f"{parameter} must be at least 0 and below 1, got {_short(value)}")
    return float(value)


def flag(parameter: str, value: bool) -> bool:
    """Return ``value`` if it is True or False, else raise."""
    if not isinstance(value, bool):
        raise ValueError(f"{parameter} must be True or False, got {_short(value)}")
    return value


def choice(parameter: str, value: object, options: Collection[object]) -> None:
    """Raise if ``value`` is not one of ``options``."""
    if value not in options:
        raise ValueError(f"{parameter} must be one of {', '.join(map(repr, options))}, got {_short(value)}")


def _short(value: object) -> str:
    words = repr(value)
    return words if len(words) <= 100 else f"{words[:100]}..."
