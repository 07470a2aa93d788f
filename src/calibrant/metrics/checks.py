"""Checks of arguments. Every error is one sentence: NAME must be what was asked, got what came, and where."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from calibrant._arrays import ArrayLike, Precision, as_numpy, is_half, precision_of
from calibrant._validation import at_least, choice, number_in, whole

__all__ = [
    "LARGEST_SEED", "MOST_BINS", "ArrayLike", "Bools", "Floats", "Ints", "Numbers", "Precision", "at_least", "choice",
    "host", "is_half", "judged", "number_in", "place", "real", "truth", "whole", "within",
]  # fmt: skip

Floats: TypeAlias = npt.NDArray[np.floating[Any]]
Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]

MOST_BINS = 100_000
LARGEST_SEED = 2**63 - 1


class Numbers(NamedTuple):
    """Real numbers of any shape as float32 or float64, and the precision they came in."""

    values: Floats
    precision: Precision


def judged(score: ArrayLike, correct: ArrayLike, *, name: str = "score") -> tuple[Numbers, Bools]:
    """Scores and whether each prediction is right, both flattened to ``[N]``; a ``confidence`` must lie in 0..1."""
    numbers_, right = real(name, score), truth(correct)
    if right.shape != numbers_.values.shape:
        asked = f"the shape of {name} {list(numbers_.values.shape)}"
        raise ValueError(f"correct must have {asked}, got {list(right.shape)}")
    within(name, numbers_.values, *((0.0, 1.0) if name == "confidence" else (-np.inf, np.inf)))
    return Numbers(numbers_.values.reshape(-1), numbers_.precision), right.reshape(-1)


def real(name: str, x: ArrayLike) -> Numbers:
    """An array of real numbers that is not empty, without a copy where its type allows it."""
    array, precision = host(name, x)
    if array.dtype.kind not in "fiu":
        raise ValueError(f"{name} must be real numbers, got {array.dtype} {list(array.shape)}")
    if not array.size:
        raise ValueError(f"{name} must not be empty, got shape {list(array.shape)}")
    single = precision != "float64"
    return Numbers(array.astype(np.float32 if single else np.float64, copy=False), precision)


def truth(correct: ArrayLike) -> Bools:
    """Right or wrong as bool, from bool or from numbers that are 0 or 1."""
    array, _ = host("correct", correct)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"correct must be True and False or 1 and 0, got {array.dtype} {list(array.shape)}")
    if not array.size:
        raise ValueError(f"correct must not be empty, got shape {list(array.shape)}")
    if array.dtype.kind == "b":
        return array
    right: Bools = array == 1
    if not (right | (array == 0)).all():
        _refuse("correct", "True and False or 1 and 0", array, ~(right | (array == 0)))
    return right


def within(name: str, values: Floats, low: float, high: float, asked: str | None = None) -> None:
    """Raise unless every value is a number from ``low`` to ``high`` and finite; the first one that is not is named."""
    # NaN survives min and max, and two reductions allocate nothing.
    smallest, largest = float(values.min()), float(values.max())
    if not (low <= smallest and largest <= high and -np.inf < smallest and largest < np.inf):
        bounds = "finite" if low == -np.inf else f"between {low:g} and {high:g}"
        bad = ~((values >= low) & (values <= high) & np.isfinite(values))
        _refuse(name, asked or bounds, values, bad)


def place(index: int, shape: tuple[int, ...]) -> str:
    """Where a flat index lies: "in row 3", or "at position [0, 3]" of an array with more axes."""
    where = [int(i) for i in np.unravel_index(index, shape)] if shape else []
    return f"in row {where[0]}" if len(where) == 1 else f"at position {where}"


def _refuse(name: str, asked: str, values: npt.NDArray[Any], bad: npt.NDArray[Any]) -> None:
    first = int(np.argmax(bad))
    raise ValueError(f"{name} must be {asked}, got {values.reshape(-1)[first]} {place(first, values.shape)}")


def host(name: str, x: ArrayLike) -> tuple[npt.NDArray[Any], Precision]:
    """The argument as a NumPy array and the precision it came in; bfloat16, which NumPy has not, as float32."""
    array, _ = as_numpy(name, x)
    return array, precision_of(x if hasattr(x, "dtype") else array)
