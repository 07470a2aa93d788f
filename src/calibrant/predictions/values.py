"""Checks of values: one per column, the same for arrays in memory and for pieces of a file.

Values are checked in blocks, so that checking never needs memory of the size of the data. An error names the first
invalid value, its row, and the likely mistake. Also: one column of two classes as two, and the decimal places of
probabilities (`Digits`), with what replaces a zero in a logarithm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from calibrant.base.arrays import Array, as_text, map_levels
from calibrant.base.checks import FARTHEST_SUM, did_you_mean, listing, shorten
from calibrant.predictions.schema import GROUP, IGNORED, WEIGHT, Schema, number_of

BLOCK = 1 << 17  # numbers: a block stays in the cache between the passes of its check
SINGLE_LABEL = (
    "several labels per sample are not supported; audit each label as a binary problem of its own, with its column of "
    "probabilities and its labels 0 and 1"
)
SOFT_LABEL = (
    "shares of several classes are not supported; give the class that happened, one whole number or name per sample"
)
NO_CLASS = np.iinfo(np.int64).min  # a label that is none, until the error about it
GIVE_NAMES = "give the names in the order of the classes, --class-names A,B,... (in Python class_names=[...])"
NO_WEIGHT = "--column weight= (in Python columns={'weight': None})"
FLOOR = 1e-30  # of probabilities, whose logarithms serve as logits, where none is 0 and none was rounded
MOST_PLACES = {2: 2, 4: 5, 8: 6}  # decimal places that rounding shows in, by the bytes of a number
FIRST = 1 << 12  # numbers whose decimal places are counted first
VERDICT_WORDS = {
    True: ("true", "t", "yes", "y", "right", "correct", "1"),
    False: ("false", "f", "no", "n", "wrong", "incorrect", "0"),
}
VERDICTS = "true or false, yes or no, right or wrong, or 1 or 0"  # what says whether a prediction was correct


def count_row(row: int) -> str:
    """The name of a row in errors, unless the file has lines."""
    return f"row {row} (counted from 0)"


def no_value(title: str, row: str) -> str:
    """The sentence about a missing value."""
    return f"{title} has no value in {row}: fill it in, or leave such rows out"


class Location(NamedTuple):
    """Where an array comes from: what an error starts with, the number of its first row, and what rows are called."""

    prefix: str = ""
    row: int = 0
    name_row: Callable[[int], str] = count_row

    def at(self, row: int) -> str:
        """The name of a row of the array in errors."""
        return self.name_row(self.row + row)


def row_blocks(array: Array) -> Iterator[tuple[int, Array]]:
    """Runs of rows of about ``BLOCK`` numbers, each with the number of its first row."""
    rows = max(1, BLOCK // max(1, math.prod(array.shape[1:])))
    for start in range(0, len(array), rows):
        yield start, array[start : start + rows]


def value_error(
    text: str, values: Array, bad: Array, location: Location, *, start: int = 0, classes: bool = False, hint: str = ""
) -> ValueError:
    """The error about the first bad value of a block from row ``start``; ``classes``: its second axis counts them."""
    index = tuple(int(i) for i in np.argwhere(bad)[0])
    row, *axes = index
    at = location.at(start + row)
    if axes and classes:
        at += f", class {axes.pop(0)}"
    if axes:
        at += f", pixel {axes}" if len(axes) > 1 else f", token {axes[0]}"
    value = values[index].item()
    value = shorten(value) if isinstance(value, str) else value
    return ValueError(f"{location.prefix}{text}, got {value!r} in {at}{hint}")


def check_column(
    name: str, array: Array, rows: int, schema: Schema, location: Location, title: str | None = None
) -> Array:
    """A column as `Predictions` holds it, or a ValueError that names the row; errors call the column ``title``."""
    title = title or name
    shape = (rows, *schema.shape_of(name))
    if name in ("labels", "ids", "correct", "predicted", "actual") or name.startswith(GROUP):
        array = as_text(location.prefix + title, array)
    if name == schema.holds or name == "objectness":
        if array.shape != shape or array.dtype.kind != "f" or array.dtype.itemsize > 8:
            raise _shape_error(title, "floating point", array, shape, location)
        array = array.astype(array.dtype.newbyteorder("="), copy=False)
        check_numbers(name, title, array, location)
        if name == "probabilities":
            _check_sums(array, location)
        return array
    if name == WEIGHT:
        return _check_weight(title, array, shape, location)
    if name == "labels":
        return _check_labels(title, array, shape, schema, location)
    if name == "correct":
        return _check_correct(title, array, shape, location)
    if name in ("predicted", "actual") and array.dtype.kind in "fU" and array.shape == shape:
        # Classes as text without spaces around it; numbers as they are usually written.
        return map_levels(array, lambda value: value.strip() if isinstance(value, str) else f"{value:.15g}", np.str_)
    if array.dtype.kind == "b" and name != "ids":
        array = array.astype(np.int64)
    if name == "ids" and array.dtype.kind == "U" and array.shape == shape and (array == "").any():
        raise ValueError(location.prefix + no_value(title, location.at(int(np.argmax(array == "")))))
    return _check_whole_or_text(title, array, shape, location)


def _shape_error(title: str, expected: str, array: Array, shape: tuple[int, ...], location: Location) -> ValueError:
    hint = ""
    if "whole" in expected:
        hint = " (use .astype(int))" if array.shape == shape and array.dtype.kind == "b" else shape_hint(array, shape)
    actual = f"{array.dtype} {list(array.shape)}{hint}"
    return ValueError(f"{location.prefix}{title} must be {expected} {list(shape)}, got {actual}")


def shape_hint(array: Array, expected: tuple[int, ...]) -> str:
    """Advice on how to reduce a row per sample to one value per sample, if that is possible."""
    if array.ndim != len(expected) + 1 or array.shape[0] != expected[0]:
        return ""
    if array.shape[1] == 1:
        return " (use .squeeze(1))"
    if array.dtype.kind not in "biuf":
        return ""
    sums = array.sum(1)
    if ((array == 0) | (array == 1)).all():
        return " (use .argmax(1))" if (sums == 1).all() else f": {SINGLE_LABEL}"
    is_soft = array.dtype.kind == "f" and array.min() >= 0 and bool((np.abs(sums - 1) <= 1e-3).all())
    return f": {SOFT_LABEL}" if is_soft else f": {SINGLE_LABEL}"


def whole_labels(title: str, labels: Array, location: Location) -> Array:
    """Labels that are whole numbers written as floating point, 1.0, as whole numbers; others as they are."""
    if labels.dtype.kind != "f":
        return labels
    is_nan = np.isnan(labels)
    if is_nan.any():
        raise ValueError(location.prefix + no_value(title, location.at(int(np.argwhere(is_nan)[0][0]))))
    odd = ~(np.isfinite(labels) & (labels == np.trunc(labels)) & (np.abs(labels) < 2**53))
    if odd.any():
        raise value_error(f"{title} must be whole numbers", labels, odd, location)
    return labels.astype(np.int64)


def check_numbers(name: str, title: str, array: Array, location: Location) -> None:
    """Logits must be finite, all else must lie in 0..1; the second axis, if there is one, counts the classes."""
    if name == "logits":
        _check_finite(title, array, location)
    else:
        _check_share(name, title, array, location)


def _check_finite(title: str, array: Array, location: Location) -> None:
    for start, block in row_blocks(array):
        if array.itemsize == 2:  # NumPy's isfinite of halves is slow: look at the exponent's bits
            finite = bool(((block.view(np.uint16) & 0x7FFF) < 0x7C00).all())
        else:
            finite = bool(np.isfinite(block).all())
        if not finite:
            text = f"{title} must be finite"
            raise value_error(text, block, ~np.isfinite(block), location, start=start, classes=True)


def _check_share(name: str, title: str, array: Array, location: Location) -> None:
    """All values in 0..1. The bits of 0..1 are ordered, and those of anything else (-0.0 too) are larger."""
    high = 1 + 1e-6 if name == "probabilities" else 1.0
    bits = np.dtype(f"u{array.itemsize}")
    bits_of_1 = np.ones(1, array.dtype).view(bits)[0]
    for start, block in row_blocks(array):
        if block.view(bits).max() > bits_of_1:
            outside = ~((block >= 0) & (block.astype(np.float64) <= high))
            if outside.any():
                low, top = float(array.min()), float(array.max())
                hint = " (percentages? divide by 100)" if low >= 0 and 2 < top <= 100.5 else ""
                if name == "probabilities" and low < -1e-3:
                    hint = " (if these are logits or logarithms of probabilities, name them logits)"
                text = f"{title} must lie in 0..1"
                raise value_error(text, block, outside, location, start=start, classes=True, hint=hint)


def _check_weight(title: str, array: Array, shape: tuple[int, ...], location: Location) -> Array:
    if array.shape != shape or array.dtype.kind not in "iuf" or array.dtype.itemsize > 8:
        raise _shape_error(title, "numbers, importance weights", array, shape, location)
    for start, block in row_blocks(array):
        odd = ~(np.isfinite(block) & (block >= 0))
        if odd.any():
            text = f"{title} must be importance weights, finite and at least 0"
            raise value_error(text, block, odd, location, start=start)
    return array.astype(np.float64, copy=False)


def check_any_weight(weight: Array, prefix: str = "") -> None:
    """Refuse weights that are all 0; in a stream, where not all of them are known, only their sum can tell."""
    if not weight.any():
        raise ValueError(f"{prefix}{WEIGHT} must be above 0 in some row, got 0 in all {len(weight)}")


def two_columns(holds: str, title: str, positive: int, values: Array, location: Location) -> Array:
    """The numbers of both classes, ``[n, 2, ...]``, from those of the positive class, ``[n]`` or ``[n, 1, ...]``."""
    values = values.astype(values.dtype.newbyteorder("="), copy=False)
    check_numbers(holds, title, values[:, 0] if values.ndim == 2 else values, location)
    column = values[:, None] if values.ndim == 1 else values
    # A probability may be beyond 1 by rounding, and its complement may not be below 0. Logits are 0 and z, whose
    # softmax is sigmoid(z).
    complement = np.maximum(1 - column, 0) if holds == "probabilities" else np.zeros_like(column)
    pair = (column, complement) if positive == 0 else (complement, column)
    return np.concatenate(pair, axis=1, dtype=values.dtype)


def widen(holds: str, values: Array, positive: int) -> Array:
    """`two_columns` for an array in memory."""
    return two_columns(holds, holds, positive, values, Location())


def sum_tolerance(array: Array) -> float:
    """How far sums of probabilities over the classes may be from 1."""
    return 1e-2 if array.itemsize == 2 else 1e-3


def sum_errors(array: Array) -> Iterator[tuple[int, Array, Array]]:
    """Block by block the first row, the sums over the classes, and how far they are from 1."""
    dtype = np.dtype(np.float32) if array.itemsize == 2 else array.dtype
    ones = np.ones(array.shape[1], dtype)
    for start, block in row_blocks(array):
        values = block.astype(dtype, copy=False)
        # A product with ones is several times faster than sum(1) when there are few classes.
        sums = values @ ones if values.ndim == 2 else values.sum(1)
        yield start, sums, np.abs(sums - 1)


def _check_sums(array: Array, location: Location) -> None:
    tolerance = sum_tolerance(array)
    for start, sums, errors in sum_errors(array):
        if (errors > tolerance).any() and (errors > _rounding(array[start : start + len(sums)])).any():
            largest = max(float(errors.max()) for _, _, errors in sum_errors(array))
            hint = " (saved with too few digits? renormalise them: p / p.sum(1, keepdims=True))"
            text = f"probabilities must sum to 1 within {tolerance:g}"
            if largest > 0.05:
                hint = f" (are the classes not exclusive? then {SINGLE_LABEL})" if largest > 0.5 else ""
            raise value_error(text, sums, errors == errors.max(), location, start=start, hint=hint)


def _rounding(block: Array) -> float:
    """How far rounding to few decimal places can have moved the sum of a row, at most."""
    places = decimal_places(block, 1)
    return 0.0 if places is None else min(FARTHEST_SUM, block.shape[1] * 0.5 * 10.0**-places) * (1 + 1e-6)


def _check_labels(title: str, array: Array, shape: tuple[int, ...], schema: Schema, location: Location) -> Array:
    if array.dtype.kind == "U" and array.shape == shape:
        return class_positions(title, array, schema, location)
    array = whole_labels(title, array, location) if array.shape == shape else array
    if array.shape == shape and array.dtype.kind == "b" and schema.num_classes == 2:
        hint = "in a table name the classes, --class-names False,True; else use .astype(int)"
        raise ValueError(f"{location.prefix}{title} must be whole numbers, got {array.dtype} {list(shape)} ({hint})")
    if array.shape != shape or array.dtype.kind not in "iu":
        raise _shape_error(title, "whole numbers", array, shape, location)
    classes = schema.num_classes or 0
    for start, block in row_blocks(array):
        if block.min() < 0 or block.max() >= classes:
            outside = _outside(block, schema)
            if outside.any():
                from_1 = (array[_outside(array, schema)] == classes).all() and (array != 0).all()
                hint = " (labels count from 0)" if from_1 else _void_hint(array, schema)
                ignored = "" if schema.ignore_index in (None, IGNORED) else f" or be the ignored {schema.ignore_index}"
                text = f"{title} must lie in 0..{classes - 1}{ignored}"
                raise value_error(text, block, outside, location, start=start, hint=hint)
    return array.astype(np.int64, copy=False)


def _void_hint(labels: Array, schema: Schema) -> str:
    """How to leave out a single label that is no class, as 255 and -1 often are."""
    odd = np.unique(labels[_outside(labels, schema)])
    if len(odd) > 1 or odd[0] not in (255, -1):
        return ""
    return f": if that marks what does not count, add --ignore-index {odd[0]} (in Python ignore_index={odd[0]})"


def _outside(labels: Array, schema: Schema) -> Array:
    outside: Array = (labels < 0) | (labels >= (schema.num_classes or 0))
    return outside if schema.ignore_index is None else outside & (labels != schema.ignore_index)


def class_positions(title: str, labels: Array, schema: Schema, location: Location) -> Array:
    """Labels that are names of classes, as positions."""
    empty = np.flatnonzero(labels.reshape(-1) == "")
    if len(empty) and "" not in (schema.class_names or ()):
        row = int(empty[0]) // max(1, math.prod(labels.shape[1:]))
        raise ValueError(location.prefix + no_value(title, location.at(row)))
    if schema.class_names is None:
        raise _unnamed(title, labels, location)
    position = {} if schema.ignore_index is None else {str(schema.ignore_index): schema.ignore_index}
    position |= {name: i for i, name in enumerate(schema.class_names)}
    positions = np.empty(labels.shape, np.int64)
    for start, block in row_blocks(labels):
        indices = map_levels(block, lambda label: position.get(label, NO_CLASS), np.int64)
        positions[start : start + len(block)] = indices
        unknown = indices == NO_CLASS
        if unknown.any():
            guess = did_you_mean(block[unknown][0].item(), schema.class_names)
            hint = f"{guess or ';'} leave out labels of other classes, or {GIVE_NAMES}"
            text = f"{title} must be among the class names {listing(schema.class_names, 5)}"
            raise value_error(text, block, unknown, location, start=start, hint=hint)
    return positions


def _unnamed(title: str, labels: Array, location: Location) -> ValueError:
    """The error about labels of text without class names: the first that is to blame, and what to do."""
    flat = labels.reshape(-1)
    try:
        numbers = flat.astype(np.float64)
        odd = next((text for text in flat.tolist() if not text.isdecimal()), flat[0].item())
        hint = " (use .astype(int))" if (numbers == np.trunc(numbers)).all() else ""
    except ValueError:
        odd, hint = flat[0].item(), f": {GIVE_NAMES}"
    text = f"{title} must be whole numbers, or text with class names given"
    row = location.at(int(np.argwhere(labels == odd)[0][0]))
    return ValueError(f"{location.prefix}{text}, got {shorten(odd)!r} in {row}{hint}")


def verdict_of(value: object) -> bool | None:
    """Whether a value says that a prediction was correct, as text in any case or as a number; None if it says neither.

    Example:
        >>> [verdict_of(value) for value in (True, "NO", "right", "1.0", 0.0, 0.5)]
        [True, False, True, True, False, None]
    """
    if isinstance(value, int | float):
        return bool(value) if value in (0, 1) else None
    text = str(value).strip().lower()
    number = number_of(text)
    word = text if number is None else str(number)
    return True if word in VERDICT_WORDS[True] else False if word in VERDICT_WORDS[False] else None


def _check_correct(title: str, array: Array, shape: tuple[int, ...], location: Location) -> Array:
    if array.shape != shape or array.dtype.kind not in "biufU":
        raise _shape_error(title, f"{VERDICTS},", array, shape, location)
    if array.dtype.kind == "U":
        verdicts = map_levels(array, lambda text: {True: 1, False: 0, None: -1}[verdict_of(text)], np.int8)
        if (verdicts < 0).any():
            row = int(np.argmax(verdicts < 0))
            if not array[row].strip():
                raise ValueError(location.prefix + no_value(title, location.at(row)))
            raise value_error(f"{title} must be {VERDICTS}", array, verdicts < 0, location)
        array = verdicts
    if array.dtype.kind == "b" and array.size and array.view(np.uint8).max() > 1:
        raise ValueError(f"{location.prefix}{title} must be true or false, got bytes that are neither")
    if array.dtype.kind != "b":
        for start, block in row_blocks(array):
            odd = (block != 0) & (block != 1)
            if odd.any():
                raise value_error(f"{title} must be {VERDICTS}", block, odd, location, start=start)
    return array.astype(np.bool_, copy=False)


def _check_whole_or_text(title: str, array: Array, shape: tuple[int, ...], location: Location) -> Array:
    if array.shape != shape or array.dtype.kind not in "iuU":
        raise _shape_error(title, "whole numbers or text", array, shape, location)
    if array.dtype.kind == "U":
        return array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.dtype.kind == "u" and array.itemsize == 8 and (array > np.iinfo(np.int64).max).any():
        raise value_error(f"{title} must fit 64-bit whole numbers", array, array > np.iinfo(np.int64).max, location)
    return array.astype(np.int64, copy=False)


@dataclass(eq=False)
class Digits:
    """The rounding of probabilities ``[N, C, ...]``, and what replaces a zero in a logarithm.

    Probabilities in files are often rounded, and forests give exact zeros. A zero only means a probability below what
    the file can represent: half of its last decimal place or, if nothing was rounded, the smallest probability above 0
    in the file, at most one in twice the number of samples. The classes of a sample other than the predicted one share
    that bound, so that zeros never add more to a row than the file could have hidden in one number.
    """

    classes: int
    values: int = 0  # the number of probabilities
    zeros: int = 0  # of them exactly 0
    ones: int = 0  # of them exactly 1
    least: float = 1.0  # the smallest probability above 0
    places: int | None = 0  # that represent every probability, 0 if all are 0 or 1; None beyond `MOST_PLACES`

    def add(self, probabilities: Array) -> None:
        """Count further probabilities."""
        self.values += probabilities.size
        low = float(probabilities.min())
        if low <= 0:
            self.zeros += int(np.count_nonzero(probabilities == 0))
            low = float(probabilities.min(where=probabilities > 0, initial=1.0))
        self.least = min(self.least, low)
        if probabilities.max() >= 1:
            self.ones += int(np.count_nonzero(probabilities == 1))
        for part in (probabilities.reshape(-1)[:FIRST], probabilities):
            if self.places is not None:
                self.places = decimal_places(part, self.places)

    def absorb(self, other: Digits) -> None:
        """Merge the counts of another object into this one."""
        self.values += other.values
        self.zeros += other.zeros
        self.ones += other.ones
        self.least = min(self.least, other.least)
        self.places = None if None in (self.places, other.places) else max(self.places or 0, other.places or 0)

    @property
    def samples(self) -> int:
        """The number of samples, or pixels."""
        return self.values // max(1, self.classes)

    @property
    def matter(self) -> bool:
        """Whether probabilities were rounded, or some are 0."""
        return self.places is not None or self.zeros > 0

    @property
    def hidden(self) -> float:
        """The threshold below which a probability may have been written as 0."""
        return 0.5 * 10.0**-self.places if self.places else min(self.least, 0.5 / max(1, self.samples))

    @property
    def floor(self) -> float:
        """The smallest probability that a logarithm is taken of; smaller ones count as this."""
        return max(FLOOR, self.hidden / max(1, self.classes - 1)) if self.matter and self.values else FLOOR


def decimal_places(probabilities: Array, least: int) -> int | None:
    """The fewest decimal places, at least ``least``, that represent all probabilities; None if there are more."""
    values = probabilities.astype(np.float64)
    error = 4 * float(np.finfo(probabilities.dtype).eps)
    for places in range(least, MOST_PLACES[probabilities.itemsize] + 1):
        scaled = values * 10.0**places
        nearest = np.rint(scaled)
        # Only 0 itself may round to 0: the tiny probabilities of a confident model were not rounded.
        off = np.where(nearest == 0, values, np.abs(scaled - nearest) * 10.0**-places)
        if not (off > np.where(nearest == 0, 0.0, error)).any():
            return places
    return None


def log_probabilities(probabilities: Array, floor: float = FLOOR) -> Array:
    """Probabilities as logits, float64: their logarithms, with values below ``floor`` raised to it."""
    return np.log(np.maximum(probabilities.astype(np.float64), floor))
