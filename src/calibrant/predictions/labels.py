"""Which class a label means: by its name, or by a number, which is a position unless the names are numbers themselves.

Columns ``p_1, p_2, p_3`` name the classes 1, 2 and 3: label 1 is the first of them, not the second. The names of
columns, and names that the caller gives, therefore decide about labels that are numbers. Names that are stored beside
an array do not by themselves: such labels are positions by custom, and where they may be either, all labels of all
files decide, or the file is refused. The decision holds for every row of every file.

First what columns, files and the caller call the classes (`Naming`), then how labels are read (`LabelDecoder`).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from calibrant._arrays import Array
from calibrant._validation import listing, shorten
from calibrant.predictions.schema import Schema, as_numbers, is_whole
from calibrant.predictions.values import GIVE_NAMES, NO_CLASS, Location, value_error, whole_labels

MOST_VALUES = 100_000  # different labels that are remembered
_NUMBER = re.compile(r"[-+]?[0-9]{1,18}(\.0+)?")
_DIGITS = re.compile("[0-9]{1,9}")

Names = tuple[str, ...]
Codes = tuple[int | None, ...]


@dataclass(frozen=True)
class Naming:
    """What a file, and its caller, say about the names of the classes, before any label is read.

    Attributes:
        names: the names, where labels do not choose between ``spellings``.
        spellings: what labels of text may call the classes, the most literal first.
        codes: the number that a label has for each class, where that is not its position.
        certain: whether numbers are looked up in ``codes`` whatever the labels are.
        unclear: why labels that are numbers cannot be read, if they cannot.
    """

    names: Names | None = None
    spellings: tuple[Names, ...] = ()
    codes: Codes | None = None
    certain: bool = True
    unclear: str = ""


def number_of(name: str) -> int | None:
    """The whole number that a name is: of 7, 007, -7 and 7.0; None if it is something else."""
    return int(name.partition(".")[0]) if _NUMBER.fullmatch(name) else None


def codes_of(names: Sequence[str]) -> Codes | None:
    """The numbers among names, if one of them is not the position of its class."""
    numbers = tuple(map(number_of, names))
    return numbers if any(n is not None and n != i for i, n in enumerate(numbers)) else None


def codes_of_columns(names: Names) -> Codes | None:
    """The numbers in names that share all else; or the numbers among names of any kind."""
    bare = _without_ends(names, _up_to_number)
    return codes_of(bare if all(number_of(part) is not None for part in bare) else names)


def are_positions(names: Sequence[str]) -> bool:
    """Whether the names are 0, 1, 2, ..."""
    return all(number_of(name) == i for i, name in enumerate(names))


def are_digits(parts: Sequence[str]) -> bool:
    """Whether all parts are numbers without a sign, so that they have an order."""
    return all(_DIGITS.fullmatch(part) for part in parts)


def sort_columns(columns: Sequence[str], parts: Sequence[str], path: str) -> tuple[Names, Names]:
    """Columns and what of their names differs: by number if all are numbers, else as the file has them."""
    if not are_digits(parts):
        return tuple(columns), tuple(parts)
    rows = sorted(zip(map(int, parts), columns, parts, strict=True))
    for (number, column, _), (other, twin, _) in itertools.pairwise(rows):
        if number == other:
            both = f"{shorten(column)} and {shorten(twin)}"
            raise ValueError(f"{path}: columns of classes must have different numbers, got {both}")
    return tuple(column for _, column, _ in rows), tuple(part for _, _, part in rows)


def name_own_columns(parts: Names, *, dotted: bool) -> Naming:
    """Names in columns that are called as ours are: ``logits_0``, or ``logits.cat`` (dotted)."""
    if not dotted and are_positions(parts):
        return Naming()
    return Naming(parts, (parts,), codes_of_columns(parts))


def name_matched_columns(columns: Names, parts: Names) -> Naming:
    """Names in columns that the caller chose by a pattern; ``parts`` is what its wildcards stand for."""
    names = None if are_digits(parts) and are_positions(parts) else parts
    return Naming(names, _spellings(columns, parts), codes_of_columns(parts))


def name_listed_columns(columns: Names) -> Naming:
    """Names in columns that the caller listed."""
    names = _without_shared_words(columns)
    codes = codes_of_columns(columns)
    bare = _without_ends(columns, _up_to_number)
    if codes is not None and all(number_of(part) is not None for part in bare) and names == columns:
        names = bare
    return Naming(names, _spellings(columns, names), codes)


def _without_shared_words(columns: Names) -> Names:
    """p_cat, p_car as cat, car: without what they share up to a mark; as they are if that leaves numbers or nothing."""
    parts = _without_ends(columns, lambda shared: len(shared) - len(re.split(r"_|[^\w\s]", shared)[-1]))
    return parts if all(parts) and not all(part.isdecimal() for part in parts) else columns


def _up_to_number(shared: str) -> int:
    """How much of what names share goes: all but digits, which would be cut off a number."""
    start = shared.rstrip("0123456789")
    if start.endswith(".") and start[-2:-1].isdigit():
        start = start[:-1].rstrip("0123456789")
    return len(start)


def _without_ends(columns: Names, length: Callable[[str], int]) -> Names:
    """Names without the start and the end that they share, of which ``length`` says how much goes."""
    for _ in "start", "end":  # the end is the start of the reversed names, which are turned back by the second round
        low, high = min(columns), max(columns)
        shared = low[: next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low))]
        columns = tuple(column[length(shared) :][::-1] for column in columns)
    return columns


def _spellings(columns: Names, names: Names) -> tuple[Names, ...]:
    """What labels may call the classes: the columns' own names, those given, and without all that they share."""
    options = (columns, names, _without_shared_words(columns), _without_ends(columns, _up_to_number))
    return tuple(dict.fromkeys(option for option in options if all(option) and len(set(option)) == len(columns)))


def rename_columns(
    naming: Naming, columns: Names, requested: Names, path: str, holds: str, *, listed: bool
) -> tuple[Names, Naming]:
    """Match names that the caller gives with columns: by name where they have them, and else by number or as listed."""
    if len(requested) != len(columns):
        return columns, Naming(requested)  # refused by the check of the schema
    numbers = [number_of(part) for part in _without_ends(columns, _up_to_number)]
    has_numbers = all(number is not None for number in numbers)
    spellings = (*naming.spellings, *_spellings(columns, naming.names or columns), tuple(map(str, numbers)))
    same = next((spelling for spelling in spellings if set(spelling) == set(requested)), None)
    if same is not None:
        position = {name: i for i, name in enumerate(same)}
        ordered = tuple(columns[position[name]] for name in requested)
        codes = codes_of_columns(ordered)
        unclear = "" if ordered == columns or codes else _unclear(columns, requested)
        return ordered, Naming(requested, (requested,), codes, unclear=unclear)
    if listed:
        clear = naming.codes is None or any(number_of(name) is not None for name in requested) or not has_numbers
        unclear = "" if clear else _unclear(columns, requested)
        return columns, Naming(requested, (requested,), codes_of(requested), unclear=unclear)
    if has_numbers and numbers == list(range(len(columns))) and codes_of(requested) is None:
        return columns, Naming(requested, (requested,))
    raise ValueError(
        f"{path}: class names must be those of the columns, {listing(columns, 5)}, got {listing(requested, 5)}: "
        f"list the columns in the same order to say which is which, --column {holds}=COLUMN,COLUMN,..."
    )


def _unclear(columns: Names, requested: Names) -> str:
    return (
        f"must be text, as numbers may be those of the columns, {listing(columns, 5)}, or of the class names, "
        f"{listing(requested, 5)} (write the labels as text to say which)"
    )


def name_array(stated: Names | None, requested: Names | None, path: str, *, positions: bool) -> Naming:
    """Names of the classes of an array: stated by the file, requested by the caller, or both.

    ``positions`` is whether the file says that its labels are positions.
    """
    if requested is None or requested == stated:
        if stated is None:
            return Naming()
        return Naming(stated, (stated,), None if positions else codes_of(stated), certain=False)
    if stated is None or len(requested) != len(stated):
        return Naming(requested, (requested,), codes_of(requested))
    if are_positions(requested) or (are_positions(stated) and codes_of(requested) is None):
        return Naming(requested, (requested,))
    verb = "in their order" if set(requested) == set(stated) else "or not be given"
    expected = f"must be those that the file states, {verb}: expected {listing(stated, 5)}"
    raise ValueError(f"{path}: class names {expected}, got {listing(requested, 5)}")


@dataclass
class LabelValues:
    """The different labels of files: numbers, and text."""

    numbers: set[int] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)

    def add_array(self, labels: Array) -> None:
        """Take those of an array, if it holds whole numbers, text or truth values; these are False and True."""
        if labels.dtype.kind == "f" and np.array_equal(labels, np.trunc(labels)):  # and none is NaN
            labels = labels.astype(np.int64)
        if labels.dtype.kind in "biuU":
            values = np.unique(labels).tolist()
            self.add(map(str, values) if labels.dtype.kind == "b" else values)

    def add(self, values: Iterable[int | str]) -> None:
        """Take some more, up to a limit."""
        for value in values:
            if len(self.numbers) + len(self.texts) >= MOST_VALUES:
                return
            if isinstance(value, str):
                self.texts.add(value)
            else:
                self.numbers.add(int(value))


@dataclass(frozen=True)
class LabelDecoder:
    """How all labels of some files are read.

    Attributes:
        names: the names of the classes, or None.
        codes: the number that a label has for each class; None if it is the position.
        numeric: whether labels of text are numbers.
        unclear: why labels that are numbers cannot be read, if they cannot.
        positive: the position of the positive class of two; None where it is not known.
    """

    names: Names | None = None
    codes: Codes | None = None
    numeric: bool = False
    unclear: str = ""
    positive: int | None = None

    def decode(self, title: str, labels: Array, ignore_index: int | None, location: Location) -> Array:
        """Labels that are numbers as positions; labels of text stay as they are, unless they are numbers."""
        if labels.dtype.kind == "U" and self.numeric:
            numbers = as_numbers(labels)
            if numbers is None:
                odd = np.array([not is_whole(text) for text in labels.flat]).reshape(labels.shape)
                raise value_error(f"{title} must be whole numbers as in other rows", labels, odd, location)
            labels = numbers
        if labels.dtype.kind == "b" and self.positive is not None:
            lower = [name.lower() for name in self.names or ()]
            positions = [lower.index("false"), lower.index("true")] if "true" in lower and "false" in lower else [0, 1]
            return np.array(positions)[labels.astype(np.int64)]
        labels = whole_labels(title, labels, location)
        if labels.dtype.kind not in "iu":
            return labels
        if self.unclear:
            raise ValueError(f"{location.prefix}{title} {self.unclear}, got {_first_values(labels)}")
        return labels if self.codes is None else self._look_up(self.codes, title, labels, ignore_index, location)

    def _look_up(
        self, class_codes: Codes, title: str, labels: Array, ignore_index: int | None, location: Location
    ) -> Array:
        position = {code: i for i, code in enumerate(class_codes) if code is not None}
        if ignore_index is not None:
            position[ignore_index] = ignore_index
        levels, codes = np.unique(labels, return_inverse=True)
        positions = np.array([position.get(level, NO_CLASS) for level in levels.tolist()], np.int64)
        if (positions == NO_CLASS).any():
            names = [name if n is None else n for name, n in zip(self.names or (), class_codes, strict=True)]
            order = listing(range(len(class_codes)), 3).replace(" and", ", ... and")
            how = f"to read them as positions list the columns (--column) and give the class names {order}"
            hint = f" (the labels are {_first_values(labels)}; {how} in their order, class_names= or --class-names)"
            odd = (positions == NO_CLASS)[codes].reshape(labels.shape)
            text = f"{title} must be among the numbers of the classes, {listing(names, 8)}"
            raise value_error(text, labels, odd, location, hint=hint)
        return np.asarray(positions[codes].reshape(labels.shape))


def _first_values(labels: Array) -> str:
    return listing(np.unique(labels)[:9].tolist(), 8)


def choose_decoder(naming: Naming, values: LabelValues | None, schema: Schema, path: str) -> LabelDecoder:
    """How labels are read, by all of them; ``values`` is None where they have not been read, as they cannot matter."""
    if values is None:
        return _check_ignored(LabelDecoder(naming.names, naming.codes, unclear=naming.unclear), schema, path)
    texts = values.texts - {str(schema.ignore_index)}
    are_whole = bool(texts) and all(map(is_whole, texts))
    by_name = texts and not (are_whole and naming.certain)
    matching = [spelling for spelling in naming.spellings if texts <= set(spelling)] if by_name else []
    if matching:
        _check_alike(matching, texts, path)
        return LabelDecoder(matching[0], naming.codes, unclear=naming.unclear)
    if texts and not are_whole:
        counts = [len(texts & set(spelling)) for spelling in naming.spellings]
        names = naming.spellings[counts.index(max(counts))] if any(counts) else naming.names
        return LabelDecoder(names, naming.codes, unclear=naming.unclear)
    codes = naming.codes
    if codes is not None and not naming.certain:
        numbers = values.numbers | {int(text) for text in texts}
        codes = _choose_codes(naming.names or (), codes, numbers - {schema.ignore_index}, values, path)
    return _check_ignored(LabelDecoder(naming.names, codes, are_whole, naming.unclear), schema, path)


def _check_alike(spellings: Sequence[Names], texts: Collection[str], path: str) -> None:
    positions = [{name: i for i, name in enumerate(spelling)} for spelling in spellings]
    for spelling, position in zip(spellings[1:], positions[1:], strict=True):
        odd = next((text for text in texts if position[text] != positions[0][text]), None)
        if odd is not None:
            both = f"by the names {listing(spellings[0], 5)} or {listing(spelling, 5)}"
            raise ValueError(f"{path}: the label {shorten(odd)!r} may mean two classes, {both}: {GIVE_NAMES}")


def _choose_codes(names: Names, codes: Codes, numbers: set[int], values: LabelValues, path: str) -> Codes | None:
    """Whether numbers beside an array with names that are numbers are these names, or positions."""
    classes = len(codes)
    is_named, is_positional = numbers <= set(codes), all(0 <= n < classes for n in numbers)
    same = is_named and is_positional and all(codes[n] == n for n in numbers)
    if is_named and (same or not is_positional):
        return codes
    if is_positional and not is_named:
        return None
    labels = listing([*sorted(values.numbers), *sorted(values.texts)], 8)
    both = f"the labels are {labels}, the class names {listing(names, 8)}"
    if not is_named:
        raise ValueError(f"{path}: labels must be class names or positions, 0..{classes - 1}: {both}")
    raise ValueError(
        f"{path}: labels may be class names or positions, which differ: {both}; store the labels as text if they are "
        f"names, or give the class names 0..{classes - 1} (class_names=, --class-names) if they are positions"
    )


def _check_ignored(decoder: LabelDecoder, schema: Schema, path: str) -> LabelDecoder:
    """Refuse an ignored label that would hide a class: it is a number as labels have it, not a position."""
    ignored, codes = schema.ignore_index, decoder.codes
    if codes and ignored is not None and 0 <= ignored < len(codes) and codes[ignored] != ignored:
        raise ValueError(
            f"{path}: ignore_index must not be the position of a class whose label is another number, got {ignored} "
            f"with the classes {listing(decoder.names or (), 5)}"
        )
    return decoder


def check_comparable(predicted: LabelValues, labels: LabelValues, path: str) -> None:
    """Refuse text in which one side has numbers throughout and the other none: they would never agree."""
    numbers = [[number_of(text) is not None for text in values.texts] for values in (predicted, labels)]
    for side, other, kinds in ((*numbers, "numbers and text"), (*numbers[::-1], "text and numbers")):
        if side and other and all(side) and not any(other):
            raise ValueError(f"{path}: predicted and labels must be alike to be compared, got {kinds}")


def compare(predicted: Array, labels: Array, location: Location) -> Array:
    """Whether predictions are correct; text that is a number is that number, whatever the other side is."""
    if predicted.dtype.kind != labels.dtype.kind and "U" in predicted.dtype.kind + labels.dtype.kind:
        numbers = [array if array.dtype.kind != "U" else as_numbers(array) for array in (predicted, labels)]
        if any(array is None for array in numbers) or predicted.shape != labels.shape:
            kinds = ["text" if array.dtype.kind == "U" else "numbers" for array in (predicted, labels)]
            raise ValueError(
                f"{location.prefix}predicted and labels must be alike to be compared, "
                f"got {kinds[0]} {list(predicted.shape)} and {kinds[1]} {list(labels.shape)}"
            )
        predicted, labels = numbers  # type: ignore[assignment]
    for name, array in (("predicted", predicted), ("labels", labels)):
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise value_error(f"{name} must have a value everywhere", array, ~np.isfinite(array), location)
        if array.dtype.kind not in "biufU" or array.ndim != 1:
            actual = f"{array.dtype} {list(array.shape)}"
            raise ValueError(f"{location.prefix}{name} must be [N] numbers or text, got {actual}")
    if predicted.dtype.kind == "U":
        predicted, labels = _normalise(predicted), _normalise(labels)
    return np.asarray(predicted == labels)


def _normalise(texts: Array) -> Array:
    """Text without spaces around it, numbers in one spelling."""
    levels, codes = np.unique(texts, return_inverse=True)
    plain = [level.strip() for level in levels.tolist()]
    return np.array([text if (n := number_of(text)) is None else str(n) for text in plain], dtype=np.str_)[codes]
