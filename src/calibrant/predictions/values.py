"""Checks of values: one per column, the same for arrays in memory and for pieces of a file."""

from __future__ import annotations

import math

import numpy as np

from calibrant.base.arrays import Array, as_text, map_levels
from calibrant.base.checks import HEAVIEST, did_you_mean, listing, shorten
from calibrant.predictions.data import SINGLE_LABEL, check_share
from calibrant.predictions.locations import Location, no_value, row_blocks, value_error
from calibrant.predictions.schema import GROUP, IGNORED, WEIGHT, Schema, number_of

SOFT_LABEL = (
    "shares of several classes are not supported; give the class that happened, one whole number or name per sample"
)
NO_CLASS = np.iinfo(np.int64).min  # a label that is none, until the error about it
GIVE_NAMES = "give the names in the order of the classes, --class-names A,B,... (in Python class_names=[...])"
VERDICT_WORDS = {
    True: ("true", "t", "yes", "y", "right", "correct", "1"),
    False: ("false", "f", "no", "n", "wrong", "incorrect", "0"),
}
VERDICTS = "true or false, yes or no, right or wrong, or 1 or 0"  # what says whether a prediction was correct


def check_column(
    name: str, array: Array, rows: int, schema: Schema, location: Location, title: str | None = None
) -> Array:
    """A column as `Predictions` holds it, or a ValueError that names the row; errors call the column ``title``."""
    title = title or name
    shape = (rows, *schema.shape_of(name))
    if name in ("labels", "ids", "correct", "predicted", "actual") or name.startswith(GROUP):
        array = as_text(location.prefix + title, array)
    if name in (schema.holds, "objectness"):
        if array.shape != shape or array.dtype.kind != "f" or array.dtype.itemsize > 8:
            raise _shape_error(title, "floating point", array, shape, location)
        array = array.astype(array.dtype.newbyteorder("="), copy=False)
        if name == schema.holds:
            schema.data.check(title, array, location)
        else:
            check_share(title, array, location)
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


def _check_weight(title: str, array: Array, shape: tuple[int, ...], location: Location) -> Array:
    if array.shape != shape or array.dtype.kind not in "iuf" or array.dtype.itemsize > 8:
        raise _shape_error(title, "numbers, importance weights", array, shape, location)
    for start, block in row_blocks(array):
        odd = ~((block >= 0) & (block <= np.float64(HEAVIEST)))
        if odd.any():
            text = f"{title} must be importance weights, finite, at least 0 and at most {HEAVIEST:g}"
            raise value_error(text, block, odd, location, start=start)
    return array.astype(np.float64, copy=False)


def check_any_weight(weight: Array, prefix: str = "") -> None:
    """Refuse weights that are all 0; in a stream, where not all of them are known, only their sum can tell."""
    if not weight.any():
        raise ValueError(f"{prefix}{WEIGHT} must be above 0 in some row, got 0 in all {len(weight)}")


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
