"""What an error ends with: the likely mistake behind it, and what to do about it in Python and on the command line."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from calibrant._arrays import Array

NAMES = "give the names in the order of the classes: class_names=[...], on the command line --class-names"
COMPARED = 1000  # names of at most LONG characters among which a likely one is looked for
LONG = 60


def short(name: str) -> str:
    """A name as an error shows it, without its end if that is far away."""
    return name if len(name) <= LONG else name[: LONG - 3] + "..."


def near(name: str, candidates: Iterable[str]) -> str | None:
    """The name that was probably meant, whatever its case; of very many only the first are looked at."""
    plain: dict[str, str] = {}
    for candidate in itertools.islice(candidates, COMPARED):
        if len(candidate) <= LONG:
            plain.setdefault(candidate.strip().lower(), candidate)
    matches = difflib.get_close_matches(name[:LONG].strip().lower(), plain, 1)
    return plain[matches[0]] if matches else None


def meant(name: str, candidates: Iterable[str]) -> str:
    """``; did you mean 'x'?``, or nothing."""
    guess = near(name, candidates)
    return "" if guess is None else f"; did you mean {guess!r}?"


def listed(names: Sequence[Any], most: int = 20) -> str:
    """The first few of some names."""
    shown = ", ".join(short(str(name)) for name in names[:most])
    shown += f" and {len(names) - most} more" if len(names) > most else ""
    return shown or "nothing"


def choose(name: str, theirs: str = "NAME") -> str:
    """How to say which column is which."""
    return f'--column {name}={theirs} (in Python columns={{"{name}": "{theirs}"}})'


def absent(theirs: str, role: str, names: Sequence[str], path: str) -> ValueError:
    """The error about a name that was given and is not there."""
    guess = meant(theirs, names) or ";"
    return ValueError(f"{path}: no column {short(theirs)!r} (given as {role}){guess} it holds {listed(names)}")


def lacking(what: str, name: str, names: Sequence[str], path: str, aliases: Sequence[str] = ()) -> ValueError:
    """The error about one of our names that is not there, nor given under another."""
    guess = next((other for alias in (name, *aliases) if (other := near(alias, names))), "NAME")
    return ValueError(f"{path}: {what}; it holds {listed(names)}: say which it is, for example {choose(name, guess)}")


def of_share(name: str, array: Array) -> str:
    """Why numbers may lie outside 0..1."""
    low, high = float(array.min()), float(array.max())
    if name == "probabilities" and low < -1e-3:
        return " (if these are logits, name them logits)"
    return " (percentages? divide by 100)" if low >= 0 and 2 < high <= 100.5 else ""


def of_sums(furthest: float) -> str:
    """Why rows may not sum to 1; ``furthest`` is the largest distance of any row."""
    if furthest > 0.05:
        return ""
    return " (saved with too few digits? renormalise them: p / p.sum(1, keepdims=True))"


def of_labels(array: Array, outside: Array, classes: int) -> str:
    """Why labels may lie outside 0..C-1."""
    return " (labels count from 0)" if (array[outside] == classes).all() and (array != 0).all() else ""


def of_type(array: Array, shape: tuple[int, ...]) -> str:
    """How to make whole numbers of what came instead."""
    if array.shape != shape:
        return of_shape(array.shape, shape)
    if array.dtype.kind == "f" and np.isfinite(array).all() and (array == np.trunc(array)).all():
        return " (use .astype(int))"
    return " (use .astype(int))" if array.dtype.kind == "b" else ""


def of_shape(came: tuple[int, ...], shape: tuple[int, ...]) -> str:
    """How to make one value per sample of one row per sample."""
    if len(came) != len(shape) + 1 or came[0] != shape[0]:
        return ""
    return " (use .argmax(1))" if came[1] > 1 else " (use .squeeze(1))"


def of_text(values: Array) -> tuple[Any, str]:
    """The text among labels without class names that is to blame, and what to do."""
    flat = values.reshape(-1)
    try:
        numbers = flat.astype(np.float64)
    except ValueError:
        return flat[0].item(), f" ({NAMES})"
    odd = next((text for text in flat.tolist() if not text.isdecimal()), flat[0].item())
    return odd, " (use .astype(int))" if (numbers == np.trunc(numbers)).all() else ""
