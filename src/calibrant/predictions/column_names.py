"""What the names of columns mean that hold one class each.

They are numbered or named, ``logits_0`` or ``p_cat``; they are put into the order of the class names that the caller
gives.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Sequence

from calibrant.base.checks import listing, shorten
from calibrant.predictions.column_errors import column_options
from calibrant.predictions.schema import Codes, Names, Naming, are_positions, codes_of, number_of

_DIGITS = re.compile("[0-9]{1,9}")


def per_class(names: Sequence[str], word: str, mark: str) -> list[str]:
    """Columns such as logits_0 (numbers only, so that logits_file is none) or logits.cat."""
    pattern = re.compile(re.escape(word) + (r"_[0-9]{1,9}" if mark == "_" else r"\..+"), re.DOTALL)
    return [column for column in names if pattern.fullmatch(column)]


def take_own_columns(
    names: Sequence[str], word: str, mark: str, holds: str, requested: Names | None, path: str
) -> tuple[Names, Naming]:
    """Columns named like ours, ``logits_0`` or ``logits.cat``: in order, with the class names that they imply.

    ``requested`` are the class names that the caller gives, if any, as for the functions that follow.
    """
    columns = per_class(names, word, mark)
    present = set(columns)
    unnumbered = [column for column in names if column.startswith(word + mark) and column not in present]
    if len(columns) == 1 and unnumbered:
        raise ValueError(
            f"{path}: holds {shorten(columns[0])} and {listing(unnumbered, 3)}, expected one column per class: "
            f"say which it is with {column_options({holds: columns[0]})}, or list all of them"
        )
    ordered, parts = _sort_columns(columns, [column[len(word) + 1 :] for column in columns], path)
    naming = Naming(parts, (parts,), codes_of_columns(parts))
    if mark == "_" and are_positions(parts):
        naming = Naming()
    return _rename(naming, ordered, requested, path, holds)


def take_matching_columns(
    columns: Sequence[str], pattern: str, holds: str, requested: Names | None, path: str
) -> tuple[Names, Naming]:
    """Columns that the caller chose by a pattern; the classes are named by what its wildcards match."""
    before = re.split(r"[*?\[]", pattern)[0].rstrip("0123456789")  # what begins or ends a number is part of it
    after = re.split(r"[*?\]]", pattern)[-1].lstrip("0123456789")
    ordered, parts = _sort_columns(columns, [c[len(before) : len(c) - len(after)] for c in columns], path)
    names = None if are_unsigned(parts) and are_positions(parts) else parts
    naming = Naming(names, _spellings(ordered, parts), codes_of_columns(parts))
    return _rename(naming, ordered, requested, path, holds)


def take_listed_columns(columns: Names, holds: str, requested: Names | None, path: str) -> tuple[Names, Naming]:
    """Columns that the caller listed."""
    repeated, count = Counter(columns).most_common(1)[0] if columns else ("", 0)
    if count != 1:
        actual = f"{shorten(repeated)!r} {count} times" if columns else "none"
        raise ValueError(f"{path}: columns must list different columns for {holds}, got {actual}")
    names, codes = _without_shared_words(columns), codes_of_columns(columns)
    bare = _without_ends(columns, _up_to_number)
    if codes is not None and all(number_of(part) is not None for part in bare) and names == columns:
        names = bare
    naming = Naming(names, _spellings(columns, names), codes)
    return _rename(naming, columns, requested, path, holds, listed=True)


def are_unsigned(parts: Sequence[str]) -> bool:
    """Whether all parts are numbers without a sign, so that they have an order."""
    return all(_DIGITS.fullmatch(part) for part in parts)


def _sort_columns(columns: Sequence[str], parts: Sequence[str], path: str) -> tuple[Names, Names]:
    """Columns and the parts of their names that differ, sorted by number if all are numbers."""
    if not are_unsigned(parts):
        return tuple(columns), tuple(parts)
    rows = sorted(zip(map(int, parts), columns, parts, strict=True))
    for (number, column, _), (next_number, next_column, _) in itertools.pairwise(rows):
        if number == next_number:
            names = f"{shorten(column)} and {shorten(next_column)}"
            raise ValueError(f"{path}: columns of classes must have different numbers, got {names}")
    return tuple(column for _, column, _ in rows), tuple(part for _, _, part in rows)


def codes_of_columns(names: Names) -> Codes | None:
    """The numbers in names that differ only by a number; or the numbers among names of any kind."""
    bare = _without_ends(names, _up_to_number)
    return codes_of(bare if all(number_of(part) is not None for part in bare) else names)


def _without_shared_words(columns: Names) -> Names:
    """p_cat, p_car as cat, car: without their shared words; unchanged if only numbers or nothing would be left."""
    parts = _without_ends(columns, lambda shared: len(shared) - len(re.split(r"_|[^\w\s]", shared)[-1]))
    return parts if all(parts) and not all(part.isdecimal() for part in parts) else columns


def _up_to_number(shared: str) -> int:
    """The length of a shared prefix without trailing digits, which may belong to a number."""
    start = shared.rstrip("0123456789")
    if start.endswith(".") and start[-2:-1].isdigit():
        start = start[:-1].rstrip("0123456789")
    return len(start)


def _without_ends(columns: Names, length: Callable[[str], int]) -> Names:
    """Names without the prefix and the suffix that they share; ``length`` says how much of each is removed."""
    for _ in "start", "end":  # the suffix is the prefix of the reversed names; the second round reverses them back
        low, high = min(columns), max(columns)
        shared = low[: next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low))]
        columns = tuple(column[length(shared) :][::-1] for column in columns)
    return columns


def _spellings(columns: Names, names: Names) -> tuple[Names, ...]:
    """Spellings of the classes in labels: names of columns, given names, and names without shared parts."""
    options = (columns, names, _without_shared_words(columns), _without_ends(columns, _up_to_number))
    return tuple(dict.fromkeys(option for option in options if all(option) and len(set(option)) == len(columns)))


def _rename(
    naming: Naming, columns: Names, requested: Names | None, path: str, holds: str, *, listed: bool = False
) -> tuple[Names, Naming]:
    """Match names that the caller gives with columns: by name, or else by number or in the order listed."""
    if requested is None:
        return columns, naming
    if len(requested) != len(columns):
        return columns, Naming(requested)  # refused by the check of the schema
    numbers = [number_of(part) for part in _without_ends(columns, _up_to_number)]
    has_numbers = all(number is not None for number in numbers)
    spellings = (*naming.spellings, *_spellings(columns, naming.names or columns), tuple(map(str, numbers)))
    matching = next((spelling for spelling in spellings if set(spelling) == set(requested)), None)
    if matching is not None:
        position = {name: i for i, name in enumerate(matching)}
        ordered = tuple(columns[position[name]] for name in requested)
        codes = codes_of_columns(ordered)
        unclear = "" if ordered == columns or codes else _unclear_reason(columns, requested)
        return ordered, Naming(requested, (requested,), codes, unclear=unclear)
    if listed:
        clear = naming.codes is None or any(number_of(name) is not None for name in requested) or not has_numbers
        unclear = "" if clear else _unclear_reason(columns, requested)
        return columns, Naming(requested, (requested,), codes_of(requested), unclear=unclear)
    if has_numbers and numbers == list(range(len(columns))) and codes_of(requested) is None:
        return columns, Naming(requested, (requested,))
    raise ValueError(
        f"{path}: class names must be those of the columns, {listing(columns, 5)}, got {listing(requested, 5)}: "
        f"list the columns in the same order to say which is which, --column {holds}=COLUMN,COLUMN,..."
    )


def _unclear_reason(columns: Names, requested: Names) -> str:
    return (
        f"must be text, as numbers may be those of the columns, {listing(columns, 5)}, or of the class names, "
        f"{listing(requested, 5)} (write the labels as text to say which)"
    )
