"""What predictions hold: `Logits`, `Probabilities` of every class, or `Scores`, one number per prediction.

Each says what its numbers must be, what one column of two classes stands for, what looks odd although it is valid, and
what serves as logits. Nothing outside asks which one it is by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from calibrant.base.arrays import Array
from calibrant.base.checks import FARTHEST_SUM, as_logits
from calibrant.predictions.locations import Location, row_blocks, value_error

if TYPE_CHECKING:
    from calibrant.predictions.predictions import Predictions

SINGLE_LABEL = (
    "several labels per sample are not supported; audit each label as a binary problem of its own, with its column of "
    "probabilities and its labels 0 and 1"
)
FLOOR = 1e-30  # of probabilities, whose logarithms serve as logits, where none is 0 and none was rounded
MOST_PLACES = {2: 2, 4: 5, 8: 6}  # decimal places that rounding shows in, by the bytes of a number
FIRST = 1 << 12  # numbers whose decimal places are counted first
LEAST_DECISIONS = 30  # samples from which on it is odd that all probabilities are 0 or 1


@dataclass(frozen=True, eq=False)
class Data:
    """The numbers of some samples, and what they mean.

    Attributes:
        values: ``[N]``, or of every class ``[N, C, ...]``.
    """

    values: Array

    name: ClassVar[str]  # of the column, in files and for users
    truth: ClassVar[str] = "labels"  # the column that says what is right
    has_classes: ClassVar[bool] = True  # whether there is a number for every class

    def logits(self, floor: float = FLOOR) -> Array:
        """What serves as logits, float32 or float64; probabilities below ``floor`` count as that."""
        raise NotImplementedError

    @classmethod
    def find_floor(cls, predictions: Predictions) -> float:
        """What replaces smaller probabilities before a logarithm is taken, in a pass where that must be seen."""
        return FLOOR

    @classmethod
    def check(cls, title: str, array: Array, location: Location) -> None:
        """Refuse numbers that are none of this kind; the second axis, if there is one, counts the classes."""
        raise NotImplementedError

    @classmethod
    def complement(cls, column: Array) -> Array:
        """The numbers of the other class of two, from those of one."""
        raise NotImplementedError

    @classmethod
    def find_oddity(cls, blocks: Iterable[Array], positive: int | None) -> str:
        """A sentence about what is odd in all of the values; empty if nothing is. Reading stops where that is known."""
        raise NotImplementedError

    @classmethod
    def is_one_column(cls, shape: Sequence[int]) -> bool:
        """Whether data of this shape are one column for two classes: ``[N]``, ``[N, 1]`` or ``[N, 1, H, W]``."""
        return cls.has_classes and (len(shape) == 1 or (len(shape) in (2, 4) and shape[1] == 1))

    @classmethod
    def widen(cls, title: str, positive: int, values: Array, location: Location) -> Array:
        """The numbers of both classes, ``[n, 2, ...]``, from those of the positive one, ``[n]`` or ``[n, 1, ...]``."""
        values = values.astype(values.dtype.newbyteorder("="), copy=False)
        cls._check_column(title, values[:, 0] if values.ndim == 2 else values, location)
        column = values[:, None] if values.ndim == 1 else values
        complement = cls.complement(column)
        pair = (column, complement) if positive == 0 else (complement, column)
        return np.concatenate(pair, axis=1, dtype=values.dtype)

    @classmethod
    def _check_column(cls, title: str, values: Array, location: Location) -> None:
        """Check the numbers of one class alone."""
        cls.check(title, values, location)


class Logits(Data):
    """Any finite numbers of every class, whose softmax are probabilities."""

    name = "logits"

    def logits(self, floor: float = FLOOR) -> Array:
        """These."""
        return as_logits(self.values)

    @classmethod
    def check(cls, title: str, array: Array, location: Location) -> None:
        """Finite."""
        for start, block in row_blocks(array):
            if array.itemsize == 2:  # NumPy's isfinite of halves is slow: look at the exponent's bits
                finite = bool(((block.view(np.uint16) & 0x7FFF) < 0x7C00).all())
            else:
                finite = bool(np.isfinite(block).all())
            if not finite:
                text = f"{title} must be finite"
                raise value_error(text, block, ~np.isfinite(block), location, start=start, classes=True)

    @classmethod
    def complement(cls, column: Array) -> Array:
        """0: the softmax of 0 and z is sigmoid(z)."""
        return np.zeros_like(column)

    @classmethod
    def find_oddity(cls, blocks: Iterable[Array], positive: int | None) -> str:
        """Logits that look like probabilities, or like logarithms of them."""
        # What all values are so far; each is dropped at the first block in which it is not so.
        odd = {
            "softmax": "The logits lie in 0..1 and sum to 1 in every row, as softmax values do: if they are "
            "probabilities, name them probabilities.",
            "column": "The logits lie in 0..1 in every row: if they are probabilities, name them probabilities.",
            "logarithms": "The logits are never above 0, so that one class is never predicted: if they are logarithms "
            "of probabilities, take exp() of them and name them probabilities or confidence.",
        }
        for values in blocks:
            is_share = values.min() >= 0 and values.max() <= 1
            if not is_share or any((errors > sum_tolerance(values)).any() for _, _, errors in sum_errors(values)):
                odd.pop("softmax", None)
            is_column = positive is not None and not values[:, 1 - positive].any()
            if not is_share or not is_column:
                odd.pop("column", None)
            if not is_column or values.max() > 0 or values.min() == 0:
                odd.pop("logarithms", None)
            if not odd:
                break
        return next(iter(odd.values()), "")


class Probabilities(Data):
    """Shares of every class, in 0..1, that sum to 1 within rounding."""

    name = "probabilities"

    def logits(self, floor: float = FLOOR) -> Array:
        """Their logarithms, float64."""
        return log_probabilities(as_logits(self.values), floor)

    @classmethod
    def find_floor(cls, predictions: Predictions) -> float:
        """That of their `Digits`."""
        digits = Digits(int(predictions.num_classes))
        for batch in predictions.batches():
            digits.add(batch.data.values)
        return digits.floor

    @classmethod
    def check(cls, title: str, array: Array, location: Location) -> None:
        """In 0..1, with sums of 1 as far as rounding allows."""
        cls._check_column(title, array, location)
        tolerance = sum_tolerance(array)
        for start, sums, errors in sum_errors(array):
            if (errors > tolerance).any() and (errors > _rounding(array[start : start + len(sums)])).any():
                largest = max(float(errors.max()) for _, _, errors in sum_errors(array))
                hint = " (saved with too few digits? renormalise them: p / p.sum(1, keepdims=True))"
                text = f"probabilities must sum to 1 within {tolerance:g}"
                if largest > 0.05:
                    hint = f" (are the classes not exclusive? then {SINGLE_LABEL})" if largest > 0.5 else ""
                raise value_error(text, sums, errors == errors.max(), location, start=start, hint=hint)

    @classmethod
    def _check_column(cls, title: str, values: Array, location: Location) -> None:
        advice = " (if these are logits or logarithms of probabilities, name them logits)"
        check_share(title, values, location, high=1 + 1e-6, advice=advice)

    @classmethod
    def complement(cls, column: Array) -> Array:
        """1 - p; p may be beyond 1 by rounding, and its complement may not be below 0."""
        complement: Array = np.maximum(1 - column, 0)
        return complement

    @classmethod
    def find_oddity(cls, blocks: Iterable[Array], positive: int | None) -> str:
        """Decisions in place of probabilities."""
        if not _are_decisions(blocks):
            return ""
        return "All probabilities are 0 or 1: if they are predicted classes, there is no confidence to judge."


class Scores(Data):
    """One confidence in 0..1 per prediction, beside whether that was correct."""

    name, truth, has_classes = "confidence", "correct", False

    def logits(self, floor: float = FLOOR) -> Array:
        """There are none."""
        raise ValueError("logits or probabilities of every class are needed, got confidences alone")

    @classmethod
    def check(cls, title: str, array: Array, location: Location) -> None:
        """In 0..1."""
        check_share(title, array, location)

    @classmethod
    def find_oddity(cls, blocks: Iterable[Array], positive: int | None) -> str:
        """Decisions in place of confidences."""
        if not _are_decisions(blocks):
            return ""
        return (
            "All confidences are 0 or 1: if they are predicted classes, or whether these are right, there is no "
            "confidence to judge."
        )


#: What predictions may hold, by the name of its column.
DATA: dict[str, type[Data]] = {data.name: data for data in (Logits, Probabilities, Scores)}


def is_one_column(holds: str, shape: Sequence[int]) -> bool:
    """Whether data of this name and shape are one column for two classes."""
    return DATA[holds].is_one_column(shape)


def widen(holds: str, values: Array, positive: int) -> Array:
    """Both classes from one column in memory."""
    return DATA[holds].widen(holds, positive, values, Location())


def _are_decisions(blocks: Iterable[Array]) -> bool:
    """Whether all of many values are 0 or 1."""
    rows = 0
    for values in blocks:
        if ((values > 0) & (values < 1)).any():
            return False
        rows += len(values)
    return rows >= LEAST_DECISIONS


def check_share(title: str, array: Array, location: Location, *, high: float = 1.0, advice: str = "") -> None:
    """Refuse values outside of 0..1, with ``advice`` where some are clearly negative.

    The bits of 0..1 are ordered, and those of anything else (-0.0 too) are larger.
    """
    bits = np.dtype(f"u{array.itemsize}")
    bits_of_1 = np.ones(1, array.dtype).view(bits)[0]
    for start, block in row_blocks(array):
        if block.view(bits).max() > bits_of_1:
            outside = ~((block >= 0) & (block.astype(np.float64) <= high))
            if outside.any():
                low, top = float(array.min()), float(array.max())
                hint = " (percentages? divide by 100)" if low >= 0 and 2 < top <= 100.5 else ""
                hint = advice if low < -1e-3 and advice else hint
                text = f"{title} must lie in 0..1"
                raise value_error(text, block, outside, location, start=start, classes=True, hint=hint)


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


def _rounding(block: Array) -> float:
    """How far rounding to few decimal places can have moved the sum of a row, at most."""
    places = decimal_places(block, 1)
    return 0.0 if places is None else min(FARTHEST_SUM, block.shape[1] * 0.5 * 10.0**-places) * (1 + 1e-6)


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
