"""Names of classes: those that columns carry, those that a file states, those that the caller gives."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence

from calibrant.predictions import hints
from calibrant.predictions.labels import Naming, are_positions, codes_of, number_of

Columns = tuple[str, ...]
_DIGITS = re.compile("[0-9]{1,9}")


def numbered(parts: Sequence[str]) -> bool:
    """Whether all parts are numbers without a sign, so that they have an order."""
    return all(_DIGITS.fullmatch(part) for part in parts)


def ordered(columns: Sequence[str], parts: Sequence[str], path: str) -> tuple[Columns, Columns]:
    """Columns and what of their names differs: by number if all are numbers, else as the file has them."""
    if not numbered(parts):
        return tuple(columns), tuple(parts)
    rows = sorted(zip(map(int, parts), columns, parts, strict=True))
    for (number, column, _), (other, twin, _) in itertools.pairwise(rows):
        if number == other:
            both = f"{hints.short(column)} and {hints.short(twin)}"
            raise ValueError(f"{path}: columns of classes must have different numbers, got {both}")
    return tuple(column for _, column, _ in rows), tuple(part for _, _, part in rows)


def of_own_columns(parts: Columns, *, dotted: bool) -> Naming:
    """Names in columns that are called as ours are: ``logits_0``, or ``logits.cat`` (dotted)."""
    if not dotted and are_positions(parts):
        return Naming()
    return Naming(parts, (parts,), codes_in(parts))


def of_matched_columns(columns: Columns, parts: Columns) -> Naming:
    """Names in columns that the caller chose by a pattern; ``parts`` is what its wildcards stand for."""
    names = None if numbered(parts) and are_positions(parts) else parts
    return Naming(names, _options(columns, parts), codes_in(parts))


def of_listed_columns(columns: Columns) -> Naming:
    """Names in columns that the caller listed."""
    names = _short(columns)
    codes = codes_in(columns)
    bare = _without_ends(columns, _up_to_number)
    if codes is not None and all(number_of(part) is not None for part in bare) and names == columns:
        names = bare
    return Naming(names, _options(columns, names), codes)


def codes_in(names: Columns) -> tuple[int | None, ...] | None:
    """The numbers in names that share all else; or the numbers among names of any kind."""
    bare = _without_ends(names, _up_to_number)
    return codes_of(bare if all(number_of(part) is not None for part in bare) else names)


def _short(columns: Columns) -> Columns:
    """p_cat, p_car as cat, car: without what they share up to a mark; as they are if that leaves numbers or nothing."""
    parts = _without_ends(columns, lambda shared: len(shared) - len(re.split(r"_|[^\w\s]", shared)[-1]))
    return parts if all(parts) and not all(part.isdecimal() for part in parts) else columns


def _up_to_number(shared: str) -> int:
    """How much of what names share goes: all but digits, which would be cut off a number."""
    start = shared.rstrip("0123456789")
    if start.endswith(".") and start[-2:-1].isdigit():
        start = start[:-1].rstrip("0123456789")
    return len(start)


def _without_ends(columns: Columns, length: Callable[[str], int]) -> Columns:
    """Names without the start and the end that they share, of which ``length`` says how much goes."""
    for _ in "start", "end":  # the end is the start of the reversed names, which are turned back by the second round
        low, high = min(columns), max(columns)
        shared = low[: next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low))]
        columns = tuple(column[length(shared) :][::-1] for column in columns)
    return columns


def _options(columns: Columns, names: Columns) -> tuple[Columns, ...]:
    """What labels may call the classes: the columns' own names, those given, and without all that they share."""
    options = (columns, names, _short(columns), _without_ends(columns, _up_to_number))
    return tuple(dict.fromkeys(option for option in options if all(option) and len(set(option)) == len(columns)))


def with_given_columns(
    naming: Naming, columns: Columns, given: Columns, path: str, holds: str, *, listed: bool
) -> tuple[Columns, Naming]:
    """Match names that the caller gives with columns: by name where they have them, and else by number or as listed.

    Args:
        naming: what the columns are called by themselves.
        columns: the columns, in the order of the classes.
        given: the names that the caller gives.
        path: the file, for errors.
        holds: what the columns hold, for errors.
        listed: whether the caller listed the columns, so that both orders are meant.
    """
    if len(given) != len(columns):
        return columns, Naming(given)  # said by the check of all facts
    numbers = [number_of(part) for part in _without_ends(columns, _up_to_number)]
    has_numbers = all(number is not None for number in numbers)
    options = (*naming.options, *_options(columns, naming.names or columns), tuple(map(str, numbers)))
    same = next((option for option in options if set(option) == set(given)), None)
    if same is not None:
        place = {name: i for i, name in enumerate(same)}
        ordered = tuple(columns[place[name]] for name in given)
        codes = codes_in(ordered)
        return ordered, Naming(given, (given,), codes, unclear=_unclear(columns, given, ordered == columns or codes))
    if listed:
        codes = codes_of(given)
        clear = naming.codes is None or any(number_of(name) is not None for name in given)
        return columns, Naming(given, (given,), codes, unclear=_unclear(columns, given, clear or not has_numbers))
    if has_numbers and numbers == list(range(len(columns))) and codes_of(given) is None:
        return columns, Naming(given, (given,))
    raise ValueError(
        f"{path}: class names must be those of the columns, {hints.listed(columns, 5)}, got {hints.listed(given, 5)}: "
        f"list the columns in the same order to say which is which, --column {holds}=COLUMN,COLUMN,..."
    )


def _unclear(columns: Columns, given: Columns, clear: object) -> str:
    """Why labels that are numbers cannot be read, unless they can."""
    if clear:
        return ""
    return (
        f"must be text, as numbers may be those of the columns, {hints.listed(columns, 5)}, or of the class names, "
        f"{hints.listed(given, 5)} (write the labels as text to say which)"
    )


def of_array(own: Columns | None, given: Columns | None, path: str, *, positions: bool) -> Naming:
    """Names of the classes of an array: stated by the file, given by the caller, or both.

    Args:
        own: what the file states.
        given: what the caller says.
        path: the file, for errors.
        positions: whether the file says that its labels are positions.
    """
    if given is None or given == own:
        if own is None:
            return Naming()
        return Naming(own, (own,), None if positions else codes_of(own), certain=False)
    if own is None or len(given) != len(own):
        return Naming(given, (given,), codes_of(given))
    if are_positions(given) or (are_positions(own) and codes_of(given) is None):
        return Naming(given, (given,))
    verb = "in their order" if set(given) == set(own) else "or not be given"
    raise ValueError(
        f"{path}: class names must be those that the file states, {verb}: expected {hints.listed(own, 5)}, "
        f"got {hints.listed(given, 5)}"
    )
