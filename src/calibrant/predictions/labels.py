"""The class of a label: by name, or by number, which is a position unless the class names are numbers themselves.

Columns ``p_1, p_2, p_3`` name the classes 1, 2 and 3: label 1 is the first of them, not the second. The names of
columns, and names that the caller gives, therefore decide about labels that are numbers. Names that are stored beside
an array do not by themselves: such labels are positions by convention, and where they may be either, all labels of all
files decide, or the file is refused. The decision holds for every row of every file.

`Naming` holds the class names of files and caller, `LabelDecoder` how labels are read.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from calibrant._arrays import Array, map_levels
from calibrant._validation import did_you_mean, listing, shorten
from calibrant.predictions.schema import Schema, as_numbers, is_whole
from calibrant.predictions.values import GIVE_NAMES, NO_CLASS, Location, value_error, whole_labels

MOST_VALUES = 100_000  # different labels that are remembered
_NUMBER = re.compile(r"[-+]?[0-9]{1,18}(\.0+)?")
#: Pairs whose second member is positive by convention.
CUSTOMARY_PAIRS = (("0", "1"), ("false", "true"), ("-1", "1"))

Names = tuple[str, ...]
Codes = tuple[int | None, ...]


@dataclass(frozen=True)
class Naming:
    """The class names that a file and its caller give, before any label is read.

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
    """The whole number that a name stands for, such as 7, 007, -7 or 7.0; None if it is not a number."""
    return int(name.partition(".")[0]) if _NUMBER.fullmatch(name) else None


def codes_of(names: Sequence[str]) -> Codes | None:
    """The numbers among names, if one of them is not the position of its class."""
    numbers = tuple(map(number_of, names))
    return numbers if any(n is not None and n != i for i, n in enumerate(numbers)) else None


def are_positions(names: Sequence[str]) -> bool:
    """Whether the names are 0, 1, 2, ..."""
    return all(number_of(name) == i for i, name in enumerate(names))


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


def as_name(positive: object) -> str:
    """The positive class as the caller gives it, a name, a number or a truth value, as text; empty if it is None."""
    return "" if positive is None else str(positive).strip()


def customary_positive(names: Names | None) -> int | None:
    """The position of the class of two that is positive by convention; None where there is no convention."""
    lower = ["0", "1"] if names is None else [name.lower() for name in names]
    return next((lower.index(pair[1]) for pair in CUSTOMARY_PAIRS if sorted(pair) == sorted(lower)), None)


def find_positive(positive: str, names: Names | None, classes: int | None, prefix: str) -> int | None:
    """The position of the positive class of ``classes``, as named or by convention; None where that is unknown."""
    if classes == 2:
        return position_of(positive, names or ("0", "1"), prefix) if positive else customary_positive(names)
    if positive:
        kinds = "confidences alone" if classes is None else f"{classes} classes"
        raise ValueError(f"{prefix}positive is for two classes, got {positive!r} with {kinds}")
    return None


def position_of(positive: str, classes: Names, prefix: str) -> int:
    """The position of the positive class, by its name."""
    name = same_class(positive, classes)
    if not name:
        raise not_among(positive, classes, "the classes", prefix)
    return classes.index(name)


def same_class(name: str, classes: Collection[str]) -> str:
    """The class that a name means; if the classes are False and True, also 0 and 1, in any case."""
    if name in classes:
        return name
    by_case = {candidate.lower(): candidate for candidate in classes}
    if set(by_case) <= {"false", "true"}:
        return by_case.get({"0": "false", "1": "true"}.get(name, name.lower()), "")
    return ""


def not_among(positive: str, classes: Sequence[str], title: str, prefix: str) -> ValueError:
    """The error about a positive class that is not among the classes."""
    guess = did_you_mean(positive, classes)
    actual = f"{shorten(positive)!r}{guess}"
    return ValueError(f"{prefix}positive must be one of {title} {listing(classes, 2)}, got {actual}")


@dataclass
class LabelValues:
    """The different labels of files: numbers, and text."""

    numbers: set[int] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)

    def add_array(self, labels: Array) -> None:
        """Add those of an array of whole numbers, text or truth values; these are False and True."""
        if labels.dtype.kind == "f" and np.array_equal(labels, np.trunc(labels)):  # and none is NaN
            labels = labels.astype(np.int64)
        if labels.dtype.kind in "biuU":
            values = np.unique(labels).tolist()
            self.add(map(str, values) if labels.dtype.kind == "b" else values)

    def add(self, values: Iterable[int | str]) -> None:
        """Add some more, up to a limit."""
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
        positions = map_levels(labels, lambda label: position.get(label, NO_CLASS), np.int64)
        unknown = positions == NO_CLASS
        if unknown.any():
            names = [name if n is None else n for name, n in zip(self.names or (), class_codes, strict=True)]
            order = listing(range(len(class_codes)), 3).replace(" and", ", ... and")
            advice = f"to read them as positions list the columns (--column) and give the class names {order}"
            hint = f" (the labels are {_first_values(labels)}; {advice} in their order, class_names= or --class-names)"
            text = f"{title} must be among the numbers of the classes, {listing(names, 8)}"
            raise value_error(text, labels, unknown, location, hint=hint)
        return positions


def _first_values(labels: Array) -> str:
    return listing(np.unique(labels)[:9].tolist(), 8)


def choose_decoder(naming: Naming, values: LabelValues | None, schema: Schema, path: str) -> LabelDecoder:
    """Choose how labels are read, from all of them; ``values`` is None if they do not matter."""
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
            readings = f"by the names {listing(spellings[0], 5)} or {listing(spelling, 5)}"
            raise ValueError(f"{path}: the label {shorten(odd)!r} may mean two classes, {readings}: {GIVE_NAMES}")


def _choose_codes(names: Names, codes: Codes, numbers: set[int], values: LabelValues, path: str) -> Codes | None:
    """Whether numbers beside an array with names that are numbers are these names, or positions."""
    classes = len(codes)
    is_named, is_positional = numbers <= set(codes), all(0 <= n < classes for n in numbers)
    is_same = is_named and is_positional and all(codes[n] == n for n in numbers)
    if is_named and (is_same or not is_positional):
        return codes
    if is_positional and not is_named:
        return None
    labels = listing([*sorted(values.numbers), *sorted(values.texts)], 8)
    facts = f"the labels are {labels}, the class names {listing(names, 8)}"
    if not is_named:
        raise ValueError(f"{path}: labels must be class names or positions, 0..{classes - 1}: {facts}")
    raise ValueError(
        f"{path}: labels may be class names or positions, which differ: {facts}; store the labels as text if they are "
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
    for side, opposite, kinds in ((*numbers, "numbers and text"), (*numbers[::-1], "text and numbers")):
        if side and opposite and all(side) and not any(opposite):
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

    def normalise(text: str) -> str:
        number = number_of(text.strip())
        return text.strip() if number is None else str(number)

    return map_levels(texts, normalise, np.str_)
