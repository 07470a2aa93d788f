"""The class of a label: by name, or by number, which is a position unless the class names are numbers themselves.

`LabelDecoder` says how labels are read, the same for every row of every file.

One column for two classes holds P(positive), or as a logit the input of a sigmoid. The positive class is given by the
caller, by the name of the column, or by convention if the classes are 0 and 1, False and True, or -1 and 1; otherwise
the file is refused.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from calibrant.base.arrays import Array, as_numbers, is_whole, map_levels
from calibrant.base.checks import listing, shorten
from calibrant.predictions.locations import Location, value_error
from calibrant.predictions.schema import (
    CUSTOMARY_PAIRS,
    Codes,
    Names,
    Naming,
    Schema,
    codes_of,
    customary_positive,
    not_among,
    number_of,
    position_of,
    same_class,
)
from calibrant.predictions.values import GIVE_NAMES, NO_CLASS, whole_labels

MOST_VALUES = 100_000  # different labels that are remembered
_OWN = re.compile(r"(probabilities|logits)[._](.+)", re.DOTALL)
_OF_PROBABILITY = re.compile(r"(p|prob|proba|probability|probabilities|logit|logits)[^0-9a-z]", re.IGNORECASE)


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
    """How all labels of some files are read."""

    names: Names | None = None  # of the classes
    codes: Codes | None = None  # the number that a label has for each class; None if it is the position
    numeric: bool = False  # whether labels of text are numbers
    unclear: str = ""  # why labels that are numbers cannot be read, if they cannot
    positive: int | None = None  # the position of the positive class of two; None where it is not known

    def decode(self, title: str, labels: Array, ignore_index: int | None, location: Location) -> Array:
        """Labels that are numbers as positions; labels of text stay as they are, unless they are numbers."""
        if labels.dtype.kind == "U" and self.numeric:
            numbers = as_numbers(labels)
            if numbers is None:
                odd = np.array([not is_whole(text) for text in labels.flat]).reshape(labels.shape)
                raise value_error(f"{title} must be whole numbers as in other rows", labels, odd, location)
            labels = numbers
        if labels.dtype.kind == "b":  # true and false are no numbers: names, or whether it is the positive class
            lower = [name.lower() for name in self.names or ()]
            if sorted(lower) == ["false", "true"]:
                return np.array([lower.index("false"), lower.index("true")])[labels.astype(np.int64)]
            if lower and self.positive == 1 and not all(map(is_whole, lower)):
                return labels.astype(np.int64)
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


def choose_decoder(naming: Naming, values: LabelValues, schema: Schema, path: str) -> LabelDecoder:
    """Choose how labels are read, from all of them; ``values`` is empty if they do not matter."""
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


def read_two_classes(
    values: LabelValues, positive: str, names: Names | None, column: str, ignore_index: int | None, prefix: str
) -> LabelDecoder:
    """Choose how labels are read if the data are one column, and which class that column belongs to.

    ``positive`` is the positive class, if the caller names it, and ``names`` those of the classes in order, if they are
    known; the ``column`` may name its class.
    """
    labels = sorted({*map(str, values.numbers), *values.texts} - {str(ignore_index)})
    if len(labels) > 2:
        raise ValueError(
            f"{prefix}one column is of two classes, and the labels are of {len(labels)}, {listing(labels, 5)}: give "
            "one column per class"
        )
    numeric = all(map(is_whole, labels)) and not (names is not None and set(labels) <= set(names))
    claimed = _class_in(column, names or labels or ("0", "1"))
    if positive and claimed and same_class(positive, names or labels) not in ("", claimed):
        raise ValueError(
            f"{prefix}column {shorten(column)!r} names the class {shorten(claimed)!r}, and positive is given as "
            f"{shorten(positive)!r}: they must be the same"
        )
    match = _OWN.fullmatch(column)
    if match and not claimed:
        claimed = match[2]
        if len(names or labels) == 2 or (number_of(claimed) is not None and not set(labels) <= {"0", "1"}):
            raise ValueError(
                f"{prefix}column {shorten(column)!r} names the class {shorten(claimed)!r}, which is not among the "
                f"classes {listing(names or labels, 2)}"
            )
    positive = positive or claimed
    is_positional = any(set(labels) <= set(pair) for pair in (("0", "1"), ("False", "True")))
    if labels and names is not None and not positive and is_positional and not set(labels) <= set(names):
        return LabelDecoder(names, numeric=numeric, positive=1)  # the label 1 or True, which has a name
    classes = names or _both_classes(labels, positive, prefix)
    position = position_of(positive, classes, prefix) if positive else customary_positive(classes)
    if position is None:
        actual = f"the classes are {listing(classes, 2)}" if len(classes) > 1 else f"all labels are {listing(classes)}"
        raise ValueError(
            f"{prefix}one column is of one class, and it is not said of which: {actual}; add "
            f"{' or '.join(f'--positive {shlex.quote(shorten(name))}' for name in classes)} (in Python positive=...)"
        )
    codes = tuple(map(number_of, classes))
    if None in codes or names is not None:
        return LabelDecoder(classes, None if None in codes else codes_of(classes), numeric, positive=position)
    # Labels that are 0 and 1 need no names.
    return LabelDecoder(None if codes == (0, 1) else classes, codes_of(classes), numeric=True, positive=position)


def _both_classes(labels: Sequence[str], positive: str, prefix: str) -> Names:
    """The classes in their conventional order, or the negative one first; an unknown negative one is "not yes"."""
    matching = same_class(positive, labels)
    if positive and not matching and len(labels) == 2:
        raise not_among(positive, labels, "the labels", prefix)
    positive = matching or positive
    candidates = dict.fromkeys([*labels, positive] if positive else labels)
    custom = next((pair for pair in CUSTOMARY_PAIRS if {name.lower() for name in candidates} <= set(pair)), None)
    if custom is not None:
        spelling = {name.lower(): name for name in candidates}
        is_title = not candidates or any(map(str.istitle, candidates))
        return tuple(spelling.get(name, name.title() if is_title else name) for name in custom)
    if not labels:
        raise ValueError(f"{prefix}the class beside {shorten(positive)!r} is not known: give the two class_names")
    negatives = [name for name in candidates if name != positive]
    return (*(negatives or [f"not {positive}"]), *([positive] if positive else []))


def _class_in(column: str, options: Collection[str]) -> str:
    """The class that the name of a column ends with, as in p_yes, P(yes) and yes; empty if there is none.

    A number names a class only after a word for probability: fold_0 says nothing about the class 0.
    """
    for name in sorted(filter(None, options), key=len, reverse=True):
        match = re.fullmatch(rf"(|.*[^0-9A-Za-z]){re.escape(name)}[)\]]?", column, re.DOTALL)
        if match and (number_of(name) is None or _OF_PROBABILITY.fullmatch(match[1])):
            return name
    return ""
