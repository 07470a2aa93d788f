"""Which class a label means: by its name, or by a number, which is a position unless the names are numbers themselves.

Columns ``p_1, p_2, p_3`` name the classes 1, 2 and 3: label 1 is the first of them, not the second. The names of
columns, and names that the caller gives, therefore decide about labels that are numbers. Names that are stored beside
an array do not by themselves: such labels are positions by custom, and where they may be either, all labels of all
files decide, or the file is refused. What was decided holds for every row of every file.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from calibrant._arrays import Array
from calibrant.predictions import hints
from calibrant.predictions.about import About
from calibrant.predictions.text import as_numbers, is_whole
from calibrant.predictions.where import Where, blocks, error_at

MOST_VALUES = 100_000  # different labels that are remembered
_NUMBER = re.compile(r"[-+]?[0-9]{1,18}(\.0+)?")

Names = tuple[str, ...]
Numbers = tuple[int | None, ...]


def number_of(name: str) -> int | None:
    """The whole number that a name is: of 7, 007, -7 and 7.0; None if it is something else."""
    return int(name.partition(".")[0]) if _NUMBER.fullmatch(name) else None


def codes_of(names: Sequence[str]) -> Numbers | None:
    """The numbers among names, if one of them is not the position of its class."""
    numbers = tuple(map(number_of, names))
    return numbers if any(n is not None and n != i for i, n in enumerate(numbers)) else None


def are_positions(names: Sequence[str]) -> bool:
    """Whether the names are 0, 1, 2, ..."""
    return all(number_of(name) == i for i, name in enumerate(names))


@dataclass(frozen=True)
class Naming:
    """What a file, and its caller, say about the names of the classes, before any label is read.

    Attributes:
        names: the names, where labels do not choose between ``options``.
        options: what labels of text may call the classes, the most literal first.
        codes: the number that a label has for each class, where that is not its position.
        certain: whether numbers are looked up in ``codes`` whatever the labels are.
        unclear: why labels that are numbers cannot be read, if they cannot.
    """

    names: Names | None = None
    options: tuple[Names, ...] = ()
    codes: Numbers | None = None
    certain: bool = True
    unclear: str = ""


@dataclass
class LabelValues:
    """The different labels of files: numbers, and text."""

    numbers: set[int] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)

    def add(self, values: Iterable[int | str]) -> None:
        """Take some more, up to a limit."""
        for value in values:
            if len(self.numbers) + len(self.texts) >= MOST_VALUES:
                return
            if isinstance(value, str):
                self.texts.add(value)
            else:
                self.numbers.add(int(value))

    def listed(self) -> str:
        """The first few, in order."""
        return hints.listed([*sorted(self.numbers), *sorted(self.texts)], 8)


@dataclass(frozen=True)
class LabelCode:
    """How all labels of some files are read.

    Attributes:
        names: the names of the classes, or None.
        codes: the number that a label has for each class; None if it is the position.
        numeric: whether labels of text are numbers.
        unclear: why labels that are numbers cannot be read, if they cannot.
    """

    names: Names | None = None
    codes: Numbers | None = None
    numeric: bool = False
    unclear: str = ""

    def positions(self, title: str, labels: Array, ignore_index: int | None, where: Where) -> Array:
        """Labels that are numbers as positions; labels of text stay as they are, unless they are numbers."""
        if labels.dtype.kind == "U" and self.numeric:
            numbers = as_numbers(labels)
            if numbers is None:
                odd = np.array([not is_whole(text) for text in labels.flat]).reshape(labels.shape)
                raise error_at(f"{title} must be whole numbers as in other rows", labels, odd, 0, where, ("pixel",))
            labels = numbers
        if labels.dtype.kind not in "iu":
            return labels
        if self.unclear:
            raise ValueError(f"{where.head}{title} {self.unclear}, got {_some(labels)}")
        if self.codes is None:
            return labels
        position = {n: i for i, n in enumerate(self.codes) if n is not None}
        if ignore_index is not None:
            position[ignore_index] = ignore_index
        levels, places = np.unique(labels, return_inverse=True)
        numbers = np.array([position.get(level, UNKNOWN) for level in levels.tolist()], np.int64)
        if (numbers == UNKNOWN).any():
            text = f"{title} must be among the numbers of the classes, {self._listed()}"
            names = hints.listed(range(len(self.codes)), 3).replace(" and", ", ... and")
            how = f"to read them as positions list the columns (--column) and give the class names {names}"
            end = f" (the labels are {_some(labels)}; {how} in their order, class_names= or --class-names)"
            odd = (numbers == UNKNOWN)[places].reshape(labels.shape)
            raise error_at(text, labels, odd, 0, where, ("pixel",), end)
        return np.asarray(numbers[places].reshape(labels.shape))

    def _listed(self) -> str:
        pairs = zip(self.names or (), self.codes or (), strict=True)
        return hints.listed([name if n is None else n for name, n in pairs], 8)


UNKNOWN = np.iinfo(np.int64).min


def _some(labels: Array) -> str:
    return hints.listed(np.unique(labels)[:9].tolist(), 8)


def decide(naming: Naming, values: LabelValues | None, about: About, path: str) -> LabelCode:
    """How labels are read, by all of them.

    Args:
        naming: what is known of the names.
        values: the different labels, or None if they have not been looked at, because they cannot matter.
        about: the number of classes, and the label to ignore.
        path: the file, for errors.
    """
    if values is None:
        return _checked(LabelCode(naming.names, naming.codes, unclear=naming.unclear), about, path)
    texts = values.texts - {str(about.ignore_index)}
    whole = bool(texts) and all(map(is_whole, texts))
    by_name = texts and not (whole and naming.certain)
    matching = [option for option in naming.options if texts <= set(option)] if by_name else []
    if matching:
        _check_alike(matching, texts, path)
        return LabelCode(matching[0], naming.codes, unclear=naming.unclear)
    if texts and not whole:
        counts = [len(texts & set(option)) for option in naming.options]
        names = naming.options[counts.index(max(counts))] if any(counts) else naming.names
        return LabelCode(names, naming.codes, unclear=naming.unclear)
    numbers = values.numbers | {int(text) for text in texts}
    codes = naming.codes if naming.certain else _codes(naming, numbers - {about.ignore_index}, values, about, path)
    return _checked(LabelCode(naming.names, codes, whole, naming.unclear), about, path)


def _check_alike(options: Sequence[Names], texts: Collection[str], path: str) -> None:
    positions = [{name: i for i, name in enumerate(option)} for option in options]
    for option, position in zip(options[1:], positions[1:], strict=True):
        odd = next((text for text in texts if position[text] != positions[0][text]), None)
        if odd is not None:
            both = f"by the names {hints.listed(options[0], 5)} or {hints.listed(option, 5)}"
            raise ValueError(f"{path}: the label {hints.short(odd)!r} may mean two classes, {both}: {hints.NAMES}")


def _codes(naming: Naming, numbers: set[int], values: LabelValues, about: About, path: str) -> Numbers | None:
    """Whether numbers beside an array with names that are numbers are these names, or positions."""
    assert naming.codes is not None
    names = set(naming.codes)
    classes = about.num_classes or 0
    named, positional = numbers <= names, all(0 <= n < classes for n in numbers)
    same = named and positional and all(naming.codes[n] == n for n in numbers)
    if named and (same or not positional):
        return naming.codes
    if positional and not named:
        return None
    listed = f"the labels are {values.listed()}, the class names {hints.listed(naming.names or (), 8)}"
    if not named:
        raise ValueError(f"{path}: labels must be class names or positions, 0..{classes - 1}: {listed}")
    raise ValueError(
        f"{path}: labels may be class names or positions, which differ: {listed}; store the labels as text if they are "
        f"names, or give the class names 0..{classes - 1} (class_names=, --class-names) if they are positions"
    )


def _checked(code: LabelCode, about: About, path: str) -> LabelCode:
    """Refuse an ignored label that would hide a class: it is a number as labels have it, not a position."""
    ignored = about.ignore_index
    if code.codes and ignored is not None and 0 <= ignored < len(code.codes) and code.codes[ignored] != ignored:
        names = hints.listed(code.names or (), 5)
        raise ValueError(
            f"{path}: ignore_index must not be the position of a class whose label is another number, got {ignored} "
            f"with the classes {names}"
        )
    return code


def class_numbers(title: str, labels: Array, about: About, where: Where) -> Array:
    """Labels that are names of classes, as positions."""
    if about.class_names is None:
        odd, hint = hints.of_text(labels)
        line = where.at(int(np.argwhere(labels == odd)[0][0]))
        expected = "whole numbers, or text with class names given"
        raise ValueError(f"{where.head}{title} must be {expected}, got {hints.short(odd)!r} in {line}{hint}")
    position = {} if about.ignore_index is None else {str(about.ignore_index): about.ignore_index}
    position |= {name: i for i, name in enumerate(about.class_names)}
    numbers = np.empty(labels.shape, np.int64)
    for start, block in blocks(labels):
        levels, places = np.unique(block, return_inverse=True)
        indices = np.array([position.get(level, UNKNOWN) for level in levels.tolist()], np.int64)
        numbers[start : start + len(block)] = indices[places].reshape(block.shape)
        if (indices == UNKNOWN).any():
            unknown = (indices == UNKNOWN)[places].reshape(block.shape)
            guess = hints.meant(block[unknown][0].item(), about.class_names)
            text = f"{title} must be among the class names {hints.listed(about.class_names, 5)}"
            raise error_at(text, block, unknown, start, where, ("pixel",), f"{guess} ({hints.NAMES})")
    return numbers


def check_comparable(predicted: LabelValues, labels: LabelValues, path: str) -> None:
    """Refuse text in which one side has numbers throughout and the other none: they would never agree."""
    numbers = [[number_of(text) is not None for text in values.texts] for values in (predicted, labels)]
    for ours, theirs, kinds in ((*numbers, "numbers and text"), (*numbers[::-1], "text and numbers")):
        if ours and theirs and all(ours) and not any(theirs):
            raise ValueError(f"{path}: predicted and labels must be alike to be compared, got {kinds}")


def agreed(predicted: Array, labels: Array, where: Where) -> Array:
    """Whether what was predicted is what was true; text that is a number is that number, whatever the other side is."""
    if predicted.dtype.kind != labels.dtype.kind and "U" in predicted.dtype.kind + labels.dtype.kind:
        as_given = [array if array.dtype.kind != "U" else as_numbers(array) for array in (predicted, labels)]
        if any(array is None for array in as_given) or predicted.shape != labels.shape:
            kinds = ["text" if array.dtype.kind == "U" else "numbers" for array in (predicted, labels)]
            raise ValueError(
                f"{where.head}predicted and labels must be alike to be compared, "
                f"got {kinds[0]} {list(predicted.shape)} and {kinds[1]} {list(labels.shape)}"
            )
        predicted, labels = as_given  # type: ignore[assignment]
    for name, array in (("predicted", predicted), ("labels", labels)):
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise error_at(f"{name} must have a value everywhere", array, ~np.isfinite(array), 0, where)
        if array.dtype.kind not in "biufU" or array.ndim != 1:
            raise ValueError(f"{where.head}{name} must be [N] numbers or text, got {array.dtype} {list(array.shape)}")
    if predicted.dtype.kind == "U":
        predicted, labels = _normal(predicted), _normal(labels)
    return np.asarray(predicted == labels)


def _normal(texts: Array) -> Array:
    """Text without spaces around it, numbers in one spelling."""
    levels, places = np.unique(texts, return_inverse=True)
    plain = [level.strip() for level in levels.tolist()]
    return np.array([text if (n := number_of(text)) is None else str(n) for text in plain], dtype=np.str_)[places]
