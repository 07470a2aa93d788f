"""What `Predictions` accepts: one check per column, the same for arrays in memory and for pieces of a file.

Values are looked at in blocks, so that checking never needs memory of the size of the data.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from calibrant.predictions import hints
from calibrant.predictions.arrays import Array, as_text, is_text

DATA = ("logits", "probabilities", "confidence")
KINDS = ("classification", "segmentation")
SPLITS = ("train", "val", "test")
BLOCK = 1 << 17  # numbers: a block stays in the cache between the passes of its check
GROUP = "group."


def counted(row: int) -> str:
    """What errors call a row, unless the file has lines."""
    return f"row {row} (counted from 0)"


class Where(NamedTuple):
    """Where a piece comes from: what an error starts with, the number of its first row, and what rows are called."""

    head: str = ""
    row: int = 0
    place: Callable[[int], str] = counted

    def at(self, row: int) -> str:
        """The place of a row of the piece."""
        return self.place(self.row + row)


@dataclass(frozen=True)
class About:
    """What is known of predictions before any value is read; ``shape`` is that of one sample's data."""

    holds: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...] = ()
    kind: str = "classification"
    class_names: tuple[str, ...] | None = None
    ignore_index: int | None = None
    split: str | None = None

    @property
    def num_classes(self) -> int | None:
        """The number of classes, None for confidences."""
        return self.shape[0] if self.shape else None

    @property
    def numbers(self) -> int:
        """Numbers per sample."""
        return math.prod(self.shape)

    def shape_of(self, name: str) -> tuple[int, ...]:
        """The shape of one sample in a column."""
        if name == self.holds:
            return self.shape
        return self.shape[1:] if name == "labels" else ()


def about(
    holds: str,
    dtype: np.dtype[Any],
    shape: Sequence[int],
    *,
    kind: str = "classification",
    class_names: Any = None,
    ignore_index: Any = None,
    split: str | None = None,
    head: str = "",
) -> About:
    """Check everything but the values; ``shape`` is that of all the data, ``[N, ...]``."""
    if kind not in KINDS:
        raise ValueError(f"{head}kind must be one of {', '.join(KINDS)}, got {kind!r}")
    if split is not None and split not in SPLITS:
        raise ValueError(f"{head}split must be None or one of {', '.join(SPLITS)}, got {split!r}")
    form = "[N]" if holds == "confidence" else "[N, C]" if kind == "classification" else "[N, C, H, W]"
    few = len(shape) > 1 and shape[1] < 2
    if dtype.kind != "f" or dtype.itemsize > 8 or len(shape) != form.count(",") + 1 or 0 in shape or few:
        size = "N >= 1" if holds == "confidence" else "N >= 1 and C >= 2"
        hint = '; images take kind="segmentation"' if len(shape) == 4 and kind == "classification" else ""
        if holds == "probabilities" and (len(shape) == 1 or (len(shape) == 2 and shape[1] == 1)):
            hint = f" (of two classes? np.stack([1 - p, p], 1){' with p = p[:, 0]' if len(shape) > 1 else ''})"
        raise ValueError(
            f"{head}{holds} must be floating point {form} with {size} (float16, float32 or float64), "
            f"got {dtype} {list(shape)}{hint}"
        )
    return About(
        holds,
        dtype.newbyteorder("="),
        tuple(int(n) for n in shape[1:]),
        kind,
        None if class_names is None else _class_names(class_names, int(shape[1]), head),
        None if ignore_index is None else _whole("ignore_index", ignore_index, head),
        split,
    )


def _class_names(names: Any, classes: int, head: str) -> tuple[str, ...]:
    found = tuple(names.tolist() if isinstance(names, np.ndarray) else names)
    odd = [name for name in found if not isinstance(name, str)]
    if odd or isinstance(names, str):
        raise ValueError(f"{head}class_names must be a list of text, got {odd[0] if odd else names!r}")
    if len(found) != classes:
        raise ValueError(f"{head}class_names must be {classes}, one per class, got {len(found)}")
    if len(set(found)) < len(found):
        twice = next(name for i, name in enumerate(found) if name in found[:i])
        raise ValueError(f"{head}class_names must differ, got {twice!r} twice")
    return found


def _whole(name: str, value: Any, head: str) -> int:
    try:
        if not isinstance(value, (bool, np.bool_)):
            return operator.index(value)
    except TypeError:
        pass
    raise ValueError(f"{head}{name} must be None or a whole number, got {value!r}")


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


def blocks(array: Array) -> Iterator[tuple[int, Array]]:
    """The array in runs of whole rows of about ``BLOCK`` numbers, each with the number of its first row."""
    rows = max(1, BLOCK // max(1, math.prod(array.shape[1:])))
    for start in range(0, len(array), rows):
        yield start, array[start : start + rows]


def _check_finite(title: str, array: Array, where: Where) -> None:
    for start, block in blocks(array):
        if array.itemsize == 2:  # NumPy's isfinite of halves is slow: look at the exponent's bits
            fine = bool(((block.view(np.uint16) & 0x7FFF) < 0x7C00).all())
        else:
            fine = bool(np.isfinite(block).all())
        if not fine:
            raise _at(f"{title} must be finite", block, ~np.isfinite(block), start, where)


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
                raise _at(f"{title} must lie in 0..1", block, outside, start, where, hint=hint)


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
            raise _at(text, sums, off > tolerance, start, where, axes=("pixel",), hint=hint)


def _at(
    text: str,
    values: Array,
    bad: Array,
    start: int,
    where: Where,
    axes: tuple[str, ...] = ("class", "pixel"),
    hint: str = "",
) -> ValueError:
    """The error about the first bad value: ``text``, the value, its row and further place, and what to do."""
    row, *rest = (int(i) for i in np.argwhere(bad)[0])
    place = where.at(start + row)
    if rest and axes[0] == "class":
        place += f", class {rest.pop(0)}"
    if rest:
        place += f", pixel {rest}"
    value = values[tuple(np.argwhere(bad)[0])].item()
    return ValueError(f"{where.head}{text}, got {value!r} in {place}{hint}")


def _labels(title: str, array: Array, shape: tuple[int, ...], about: About, where: Where) -> Array:
    if array.dtype.kind == "U" and array.shape == shape:
        return named_labels(title, array, about, where)
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
                raise _at(text, block, outside, start, where, ("pixel",), hint)
    return array.astype(np.int64, copy=False)


def _outside(labels: Array, about: About) -> Array:
    outside: Array = (labels < 0) | (labels >= (about.num_classes or 0))
    return outside if about.ignore_index is None else outside & (labels != about.ignore_index)


def named_labels(title: str, array: Array, about: About, where: Where) -> Array:
    """Labels that are names of classes, as numbers of classes."""
    if about.class_names is None:
        odd, hint = hints.of_text(array)
        line = where.at(int(np.argwhere(array == odd)[0][0]))
        expected = "whole numbers, or text with class names given"
        raise ValueError(f"{where.head}{title} must be {expected}, got {odd!r} in {line}{hint}")
    names = np.array(about.class_names)
    order = np.argsort(names)
    found = np.empty(array.shape, np.int64)
    for start, block in blocks(array):
        place = np.searchsorted(names, block, sorter=order).clip(max=len(names) - 1)
        found[start : start + len(block)] = order[place]
        unknown = names[order[place]] != block
        if unknown.any():
            guess = hints.meant(block[unknown][0].item(), about.class_names)
            text = f"{title} must be among the class names {hints.listed(about.class_names, 5)}"
            raise _at(text, block, unknown, start, where, ("pixel",), f"{guess} ({hints.NAMES})")
    return found


def _correct(title: str, array: Array, shape: tuple[int, ...], where: Where) -> Array:
    if array.shape != shape or array.dtype.kind not in "biuf":
        raise _wrong(title, "true or false, or 0 or 1,", array, shape, where)
    if array.dtype.kind != "b":
        for start, block in blocks(array):
            odd = (block != 0) & (block != 1)
            if odd.any():
                raise _at(f"{title} must be true or false, or 0 or 1", block, odd, start, where)
    return array.astype(np.bool_, copy=False)


def _whole_or_text(title: str, array: Array, shape: tuple[int, ...], where: Where) -> Array:
    if array.shape != shape or array.dtype.kind not in "iuU":
        raise _wrong(title, "whole numbers or text", array, shape, where)
    if array.dtype.kind == "U":
        return array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.dtype.kind == "u" and array.itemsize == 8 and (array > np.iinfo(np.int64).max).any():
        raise _at(f"{title} must fit 64-bit whole numbers", array, array > np.iinfo(np.int64).max, 0, where)
    return array.astype(np.int64, copy=False)


def agreed(predicted: Array, labels: Array, where: Where) -> Array:
    """Whether what was predicted is what was true, both numbers or both text."""
    kinds = ["text" if array.dtype.kind == "U" else "numbers" for array in (predicted, labels)]
    if kinds[0] != kinds[1] or predicted.shape != labels.shape:
        raise ValueError(
            f"{where.head}predicted and labels must be alike to be compared, "
            f"got {kinds[0]} {list(predicted.shape)} and {kinds[1]} {list(labels.shape)}"
        )
    for name, array in (("predicted", predicted), ("labels", labels)):
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise _at(f"{name} must have a value everywhere", array, ~np.isfinite(array), 0, where)
        if array.dtype.kind not in "biufU" or array.ndim != 1:
            raise ValueError(f"{where.head}{name} must be [N] numbers or text, got {array.dtype} {list(array.shape)}")
    return np.asarray(predicted == labels)
