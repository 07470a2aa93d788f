"""Checks of arguments. Every error is one sentence: NAME must be what was asked, got what came, and where."""

from __future__ import annotations

import difflib
import itertools
import math
import numbers
import sys
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from calibrant.base.arrays import ArrayLike, Precision, as_numpy, precision_of

Floats: TypeAlias = npt.NDArray[np.floating[Any]]
Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]

MOST_BINS = 100_000
LARGEST_SEED = 2**63 - 1
LARGEST_SIZE = 10**9  # a width, a number of classes, the pixels of an image
HEAVIEST = 1e100  # weight of a sample that is added up: sums of squares are finite, and
LIGHTEST = 1e-100  # their mean at least: squares are above 0
FARTHEST_SUM = 1e-2  # of probabilities from 1, where they were written with few digits
LARGEST_LOGIT = 1e100  # the squares of larger ones are not finite in float64
_LARGEST = sys.float_info.max


def check_choice(name: str, value: Any, options: Collection[Any]) -> Any:
    """``value`` if it is one of ``options``."""
    if value not in options:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, options))}, got {short(value)}")
    return value


def check_flag(name: str, value: bool) -> bool:
    """``value`` if it is True or False."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, got {short(value)}")
    return value


def check_number(
    name: str, value: float, low: float, high: float = math.inf, *, open_low: bool = False, open_high: bool = False
) -> float:
    """``value`` if it is a finite number from ``low`` to ``high``; an end that is open is left out."""
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if isinstance(value, np.generic):  # float32 cannot be compared with the largest float64
        value = value.item()
    is_left_out = is_number and ((open_low and value == low) or (open_high and value == high))
    if is_number and not is_left_out and low <= value <= min(high, _LARGEST):
        return float(value)
    if not is_number and high == math.inf:
        requirement = "a number"
    elif high == math.inf:
        requirement = f"finite and {'above' if open_low else 'at least'} {low:g}"
    elif open_low or open_high:
        start, end = "above" if open_low else "of at least", "below" if open_high else "at most"
        requirement = f"a number {start} {low:g} and {end} {high:g}"
    else:
        requirement = f"a number between {low:g} and {high:g}"
    raise ValueError(f"{name} must be {requirement}, got {short(value)}")


def check_rate(name: str, value: float) -> float:
    """A number from 0 up to, but not including, 1: the rate of a dropout."""
    return check_number(name, value, 0, 1, open_high=True)


def check_integer(name: str, value: int, low: int, high: int | None = None) -> int:
    """A whole number of at least ``low``, and of at most ``high`` if that is given."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < low:
        raise ValueError(f"{name} must be a whole number of at least {low}, got {short(value)}")
    if high is not None and value > high:
        size = f"{value:,}" if value < 10**30 else "more"
        raise ValueError(f"{name} must be a whole number of at most {high:,}, got {size}")
    return int(value)


def check_size(name: str, value: int, low: int = 1) -> int:
    """A whole number from ``low`` to a billion: a width, a number of classes, pixels."""
    return check_integer(name, value, low, LARGEST_SIZE)


def short(value: object, most: int = 60) -> str:
    """A value for a message, cut where it is long."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**most:
        return f"a number of over {most} digits"  # which Python may refuse to print
    text = repr(value.tolist() if hasattr(value, "tolist") else value)
    return text if len(text) <= most else f"{text[:most]}..."


def shorten(text: str) -> str:
    """A text for a message, of at most 60 characters."""
    return text if len(text) <= 60 else text[:57] + "..."


def printable(text: str, most: int = 300) -> str:
    r"""A text of a file, fit for a message of one line: cut, and line ends and control codes escaped.

    Example:
        >>> print(printable("Stühle\n\x1b[2J"))
        Stühle\n\x1b[2J
    """
    start = text[:most]
    escaped = start if start.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in start)
    return escaped if len(text) <= most and len(escaped) <= 2 * most else escaped[: 2 * most] + "..."


def listing(names: Sequence[Any], most: int = 20, characters: int = 400) -> str:
    """The first few of some names, printable and short together, and how many more there are.

    Example:
        >>> listing(["red", "green", "blue"], 2)
        'red, green and 1 more'
    """
    texts = [printable(shorten(str(name))) for name in names[:most]]
    lengths = itertools.accumulate(len(text) + len(", ") for text in texts)
    fitting = max(1, sum(length <= characters for length in lengths))
    left_out = len(names) - min(fitting, len(texts))
    return (", ".join(texts[:fitting]) + (f" and {left_out} more" if left_out else "")) or "nothing"


def find_closest(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate that was probably meant, whatever its case; of very many only the first are compared."""
    originals: dict[str, str] = {}
    for candidate in itertools.islice(candidates, 2000):
        if len(candidate) <= 60:
            originals.setdefault(candidate.strip().lower(), candidate)
    matches = difflib.get_close_matches(name[:60].strip().lower(), originals, 1)
    return originals[matches[0]] if matches else None


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """``; did you mean 'x'?``, or nothing."""
    guess = find_closest(name, candidates)
    return "" if guess is None else f"; did you mean {guess!r}?"


class Numbers(NamedTuple):
    """Real numbers of any shape as float32 or float64, and the precision they came in."""

    values: Floats
    precision: Precision


def check_scores(score: ArrayLike, correct: ArrayLike, *, name: str = "score") -> tuple[Numbers, Bools]:
    """Scores and whether each prediction is right, both flattened to ``[N]``; a ``confidence`` must lie in 0..1."""
    (values, precision), correct = check_numbers(name, score), check_correct(correct)
    if correct.shape != values.shape:
        raise ValueError(f"correct must have the shape of {name} {list(values.shape)}, got {list(correct.shape)}")
    check_within(name, values, *((0.0, 1.0) if name == "confidence" else (-np.inf, np.inf)))
    return Numbers(values.reshape(-1), precision), correct.reshape(-1)


def check_numbers(name: str, x: ArrayLike) -> Numbers:
    """An array of real numbers that is not empty, without a copy where its type allows it."""
    array, precision = as_host_array(name, x)
    if array.dtype.kind not in "fiu":
        raise ValueError(f"{name} must be real numbers, got {array.dtype} {list(array.shape)}")
    if not array.size:
        raise ValueError(f"{name} must not be empty, got shape {list(array.shape)}")
    single = precision != "float64"
    return Numbers(array.astype(np.float32 if single else np.float64, copy=False), precision)


def check_correct(correct: ArrayLike, *, name: str = "correct") -> Bools:
    """True and False, from bool or from numbers that are 0 or 1."""
    array, _ = as_host_array(name, correct)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} must be True and False or 1 and 0, got {array.dtype} {list(array.shape)}")
    if not array.size:
        raise ValueError(f"{name} must not be empty, got shape {list(array.shape)}")
    if array.dtype.kind == "b":
        return array
    is_one: Bools = array == 1
    if not (is_one | (array == 0)).all():
        _refuse(name, "True and False or 1 and 0", array, ~(is_one | (array == 0)))
    return is_one


def check_within(name: str, values: Floats, low: float, high: float, requirement: str | None = None) -> None:
    """Raise unless every value is a number from ``low`` to ``high`` and finite; the first one that is not is named."""
    # NaN survives min and max, and two reductions allocate nothing.
    smallest, largest = float(values.min()), float(values.max())
    if not (low <= smallest and largest <= high and -np.inf < smallest and largest < np.inf):
        bounds = "finite" if low == -np.inf else f"between {low:g} and {high:g}"
        bad = ~((values >= low) & (values <= high) & np.isfinite(values))
        _refuse(name, requirement or bounds, values, bad)


def position(index: int, shape: tuple[int, ...]) -> str:
    """Where a flat index lies: "in row 3", or "at position [0, 3]" of an array with more axes."""
    indices = [int(i) for i in np.unravel_index(index, shape)] if shape else []
    return f"in row {indices[0]}" if len(indices) == 1 else f"at position {indices}"


def _refuse(name: str, requirement: str, values: npt.NDArray[Any], bad: npt.NDArray[Any]) -> None:
    index = int(np.argmax(bad))  # of the first
    raise ValueError(f"{name} must be {requirement}, got {values.reshape(-1)[index]} {position(index, values.shape)}")


def as_host_array(name: str, x: ArrayLike) -> tuple[npt.NDArray[Any], Precision]:
    """The argument as a NumPy array and the precision it came in; bfloat16, which NumPy does not have, as float32."""
    array, _ = as_numpy(name, x)
    return array, precision_of(x if hasattr(x, "dtype") else array)


def as_logits(logits: ArrayLike, name: str = "logits") -> npt.NDArray[Any]:
    """Check that logits, or what the name says, are floating point ``[N, C, ...]``; half precision becomes float32."""
    z, _ = as_numpy(name, logits)
    if z.dtype.kind != "f" or z.ndim < 2 or not z.size or z.shape[1] < 2:
        requirement = "floating point [N, C] or [N, C, ...] with N >= 1 and C >= 2"
        raise ValueError(f"{name} must be {requirement}, got {z.dtype} {list(z.shape)}")
    return z.astype(np.float64 if z.itemsize >= 8 else np.float32, copy=False)


def check_finite(z: npt.NDArray[Any]) -> float:
    """Raise if a logit is NaN, infinite or beyond `LARGEST_LOGIT`; gives the largest absolute value."""
    low, high = (float(end) for end in (z.min(), z.max()))  # NaN survives both
    if not math.isfinite(low) or not math.isfinite(high):
        raise ValueError("logits must be finite, got NaN or infinity")
    size = max(-low, high)
    if size > LARGEST_LOGIT:
        raise ValueError(f"logits must lie between -{LARGEST_LOGIT:g} and {LARGEST_LOGIT:g}, got one of size {size:g}")
    return size


def differing_names(first: Sequence[str], second: Sequence[str]) -> tuple[str, str]:
    """Five names of each of two different lists, up to where they begin to differ.

    Example:
        >>> differing_names(["a", "b", "c", "d", "e", "f"], ["a", "b", "c", "d", "e", "g"])
        ('..., b, c, d, e, f', '..., b, c, d, e, g')
    """
    pairs = enumerate(zip(first, second, strict=False))
    index = next((i for i, (a, b) in pairs if a != b), min(len(first), len(second)))
    start = max(0, index + 1 - 5)
    head = ["..."] if start else []
    a, b = (", ".join([*head, *names[start : start + 5]]) for names in (first, second))
    return a, b
