"""What `Predictions` accepts: one check per column, the same for arrays in memory and for pieces of a file.

Values are looked at in blocks, so that checking never needs memory of the size of the data.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from calibrant._arrays import Array
from calibrant.predictions import hints
from calibrant.predictions.about import GROUP, About
from calibrant.predictions.labels import class_numbers
from calibrant.predictions.text import as_text, is_text
from calibrant.predictions.where import Where, blocks, error_at


def column(name: str, array: Array, rows: int, about: About, where: Where, title: str | None = None) -> Array:
    """A column as `Predictions` holds it, or a ValueError that names the row.

    Args:
        name: its name: what ``about`` holds, correct, labels, ids, objectness or group.NAME.
        array: its values as they came.
        rows: how many samples there must be.
        about: what is known of the predictions.
        where: file and first row, for errors.
        title: what errors call the column, its name if not given.
    """
    title = title or name
    shape = (rows, *about.shape_of(name))
    if name in ("labels", "ids") or name.startswith(GROUP):
        array = as_text(where.head + title, array) if is_text(array) else array
    if name == about.holds or name == "objectness":
        array = _floating(title, array, shape, where)
        if name == "logits":
            _check_finite(title, array, where)
        else:
            _check_share(name, title, array, where)
        if name == "probabilities":
            _check_sums(array, where)
        return array
    if name == "labels":
        return _labels(title, array, shape, about, where)
    if name == "correct":
        return _correct(title, array, shape, where)
    if array.dtype.kind == "b" and name != "ids":
        array = array.astype(np.int64)
    return _whole_or_text(title, array, shape, where)


def _wrong(title: str, what: str, array: Array, shape: tuple[int, ...], where: Where) -> ValueError:
    hint = hints.of_type(array, shape) if "whole" in what else ""
    return ValueError(f"{where.head}{title} must be {what} {list(shape)}, got {array.dtype} {list(array.shape)}{hint}")


def _floating(title: str, array: Array, shape: tuple[int, ...], where: Where) -> Array:
    if array.shape != shape or array.dtype.kind != "f" or array.dtype.itemsize > 8:
        raise _wrong(title, "floating point", array, shape, where)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _check_finite(title: str, array: Array, where: Where) -> None:
    for start, block in blocks(array):
        if array.itemsize == 2:  # NumPy's isfinite of halves is slow: look at the exponent's bits
            fine = bool(((block.view(np.uint16) & 0x7FFF) < 0x7C00).all())
        else:
            fine = bool(np.isfinite(block).all())
        if not fine:
            raise error_at(f"{title} must be finite", block, ~np.isfinite(block), start, where)


def _check_share(name: str, title: str, array: Array, where: Where) -> None:
    """All values in 0..1. The bits of 0..1 are ordered, and those of anything else (-0.0 too) are larger."""
    high = 1 + 1e-6 if name == "probabilities" else 1.0
    bits = np.dtype(f"u{array.itemsize}")
    one = np.ones(1, array.dtype).view(bits)[0]
    for start, block in blocks(array):
        if block.view(bits).max() > one:
            outside = ~((block >= 0) & (block.astype(np.float64) <= high))
            if outside.any():
                hint = hints.of_share(name, array)
                raise error_at(f"{title} must lie in 0..1", block, outside, start, where, hint=hint)


def sums_off(array: Array) -> tuple[float, Iterator[tuple[int, Array, Array]]]:
    """How far sums over the classes may be from 1; and block by block their first row, the sums, how far they are."""
    half = array.itemsize == 2
    ones = np.ones(array.shape[1], np.float32 if half else array.dtype)

    def found() -> Iterator[tuple[int, Array, Array]]:
        for start, block in blocks(array):
            values = block.astype(np.float32) if half else block
            # A product with ones is several times faster than sum(1) when there are few classes.
            sums = values @ ones if values.ndim == 2 else values.sum(1)
            yield start, sums, np.abs(sums - 1)

    return 1e-2 if half else 1e-3, found()


def _check_sums(array: Array, where: Where) -> None:
    tolerance, found = sums_off(array)
    for start, sums, off in found:
        if (off > tolerance).any():
            hint = hints.of_sums(max(float(off.max()) for _, _, off in sums_off(array)[1]))
            text = f"probabilities must sum to 1 within {tolerance:g}"
            raise error_at(text, sums, off > tolerance, start, where, axes=("pixel",), hint=hint)


def _labels(title: str, array: Array, shape: tuple[int, ...], about: About, where: Where) -> Array:
    if array.dtype.kind == "U" and array.shape == shape:
        return class_numbers(title, array, about, where)
    if array.shape != shape or array.dtype.kind not in "iu":
        raise _wrong(title, "whole numbers", array, shape, where)
    classes = about.num_classes or 0
    for start, block in blocks(array):
        if block.min() < 0 or block.max() >= classes:
            outside = _outside(block, about)
            if outside.any():
                known = "" if about.ignore_index is None else f" or be the ignored {about.ignore_index}"
                hint = hints.of_labels(array, _outside(array, about), classes)
                text = f"{title} must lie in 0..{classes - 1}{known}"
                raise error_at(text, block, outside, start, where, ("pixel",), hint)
    return array.astype(np.int64, copy=False)


def _outside(labels: Array, about: About) -> Array:
    outside: Array = (labels < 0) | (labels >= (about.num_classes or 0))
    return outside if about.ignore_index is None else outside & (labels != about.ignore_index)


def _correct(title: str, array: Array, shape: tuple[int, ...], where: Where) -> Array:
    if array.shape != shape or array.dtype.kind not in "biuf":
        raise _wrong(title, "true or false, or 0 or 1,", array, shape, where)
    if array.dtype.kind == "b" and array.size and array.view(np.uint8).max() > 1:
        raise ValueError(f"{where.head}{title} must be true or false, got bytes that are neither")
    if array.dtype.kind != "b":
        for start, block in blocks(array):
            odd = (block != 0) & (block != 1)
            if odd.any():
                raise error_at(f"{title} must be true or false, or 0 or 1", block, odd, start, where)
    return array.astype(np.bool_, copy=False)


def _whole_or_text(title: str, array: Array, shape: tuple[int, ...], where: Where) -> Array:
    if array.shape != shape or array.dtype.kind not in "iuU":
        raise _wrong(title, "whole numbers or text", array, shape, where)
    if array.dtype.kind == "U":
        return array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.dtype.kind == "u" and array.itemsize == 8 and (array > np.iinfo(np.int64).max).any():
        raise error_at(f"{title} must fit 64-bit whole numbers", array, array > np.iinfo(np.int64).max, 0, where)
    return array.astype(np.int64, copy=False)
