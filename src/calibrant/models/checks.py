"""Checks of what a network is asked for, with the sentences of `calibrant._validation`."""

from __future__ import annotations

import numbers

from calibrant import _validation
from calibrant._validation import short

#: The largest size that a network is asked for: a width, a number of classes, pixels of an image.
LARGEST = 10**9


def whole(parameter: str, value: int, low: int, high: int = LARGEST) -> int:
    """A whole number from ``low`` to ``high``."""
    return _validation.whole(parameter, value, low, high)


def share(parameter: str, value: float) -> float:
    """A number from 0 up to, but not, 1."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 <= value < 1:
        raise ValueError(f"{parameter} must be at least 0 and below 1, got {short(value)}")
    return float(value)
