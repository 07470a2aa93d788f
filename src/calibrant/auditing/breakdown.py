"""The tables that a pass over predictions fills in: small, and additive.

Counts by class, by group and by object size (ALS, section 4.2), with weights as sums of these, and a sample of rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant.base.arrays import Array, Doubles
from calibrant.base.checks import Bools, Ints, check_within
from calibrant.metrics import BASE, BINS, Bins, Interval, TopLabel, normal_interval
from calibrant.promises import binomial_tail

Columns = tuple[Array, ...]

MOST_LEVELS = 10_000
FEWEST_TESTED = 10  # a row with fewer samples is not tested
#: Bins of objectness, of equal width.
OBJECT_BINS = 10


@dataclass(frozen=True)
class Row:
    """One class or group: its predictions, their confidence and their accuracy."""

    name: str
    count: int  # its predictions
    accuracy: float  # the share of them that is correct
    confidence: float  # their mean confidence
    gap: float  # confidence minus accuracy
    gap_low: float  # lower end of its interval
    gap_high: float  # upper end
    ece: float  # with 15 bins
    classwise_ece: float | None  # of a class, over all samples
    flag: bool  # whether the gap is larger than that of all others together, beyond chance


class Breakdown:
    """Counts and sums of confidence over 15 bins, for each of a growing number of keys; of weights, their sums."""

    def __init__(self, keys: int = 0) -> None:
        self.samples = np.zeros(keys, np.int64)
        self.counts = np.zeros((keys, BINS, 2))
        self.sums = np.zeros((keys, BINS, 2))
        self.squares = np.zeros(keys)  # of confidence minus correctness
        self.weight_squares = np.zeros(keys)

    def add(self, key: Ints, top: TopLabel, bins: Ints, keys: int) -> None:
        """Count samples, with their base bins, under their keys ``[n]``, of which there are ``keys`` by now."""
        self.grow(keys)
        code = 2 * (bins // (BASE // BINS) + BINS * key) + ~top.correct
        size, shape, weight = 2 * BINS * keys, (keys, BINS, 2), top.weight
        confidence, square = top.confidence, np.square(top.confidence - top.correct)
        if weight is not None:
            confidence, square = weight * confidence, weight * square
        counts = np.bincount(code, weight, minlength=size).reshape(shape)
        samples = counts.sum((1, 2)) if weight is None else np.bincount(key, minlength=keys)
        self.samples += samples
        self.counts += counts
        self.sums += np.bincount(code, confidence, minlength=size).reshape(shape)
        self.squares += np.bincount(key, square, minlength=keys)
        self.weight_squares += samples if weight is None else np.bincount(key, np.square(weight), minlength=keys)

    def grow(self, keys: int) -> None:
        """Make room for more keys."""
        for name, table in vars(self).items():
            if keys > len(table):
                added = np.zeros((keys - len(table), *table.shape[1:]), table.dtype)
                setattr(self, name, np.concatenate([table, added]))

    def total(self) -> Breakdown:
        """All keys as one."""
        total = Breakdown(1)
        for name, table in vars(self).items():
            setattr(total, name, table.sum(0, keepdims=True))
        return total

    def scaled(self, keys: Ints) -> tuple[Ints, Doubles, Doubles]:
        """Of some keys: how many samples of equal weight would be as certain, and their correct ones and confidence."""
        sizes, squares = self.counts[keys].sum((1, 2)), self.weight_squares[keys]
        n = np.rint(np.divide(sizes**2, squares, out=np.ones(len(keys)), where=squares > 0))
        scale = n / np.where(sizes > 0, sizes, 1.0)
        return n.astype(np.int64), self.counts[keys, :, 0].sum(1) * scale, self.sums[keys].sum((1, 2)) * scale

    def rows(
        self, names: Sequence[str], *, level: float, compare: bool = True, classwise: Doubles | None = None
    ) -> list[Row]:
        """A row for each key that has samples, in order of the keys; ``compare`` flags those worse than the others.

        ``classwise`` holds the class-wise ECE of every key, if they are classes.
        """
        keys = np.flatnonzero(self.counts.sum((1, 2)))
        n, correct, confidence = self.scaled(keys)
        accuracy, mean = correct / n, confidence / n
        gap = mean - accuracy
        spread = np.maximum(self.squares[keys] / self.counts[keys].sum((1, 2)) - gap**2, 0.0)
        # The added sample keeps the standard error above 0 where a few samples are all alike.
        error = np.sqrt((spread + 0.25 / (n + 1)) / n)
        ece = Bins(self.counts[keys].sum(2), self.sums[keys].sum(2), self.counts[keys, :, 0]).mean_gap()
        flags = _flag_worse(n, correct, confidence, level) if compare else [False] * len(n)
        rows = []
        for i, k in enumerate(keys.tolist()):
            limits = normal_interval(float(gap[i]), float(error[i]), level, -1.0, 1.0)
            shares = float(accuracy[i]), float(mean[i]), limits.value, limits.low, limits.high
            of_class = None if classwise is None else float(classwise[k])
            rows.append(Row(names[k], int(self.samples[k]), *shares, float(ece[i]), of_class, bool(flags[i])))
        return rows


def _flag_worse(n: Ints, correct: Doubles, confidence: Doubles, level: float) -> Bools:
    """Flag rows whose gap of confidence and accuracy is larger than that of all others, by Holm's procedure.

    If a row is like the others, each of its predictions is correct with its confidence minus the gap of the others as
    probability. The number of correct ones then spreads at most like a binomial number; its exact tail is the p-value.
    """
    flags = np.zeros(len(n), np.bool_)
    tested = np.flatnonzero(n >= FEWEST_TESTED)
    if len(tested) < 2:
        return flags
    gap = (confidence - correct) / n
    rest_gap = ((confidence - correct).sum() - (confidence - correct)) / (n.sum() - n)
    expected = np.clip(confidence / n - rest_gap, 1e-9, 1 - 1e-9)
    p = np.array([two_sided(round(correct[i]), int(n[i]), float(expected[i])) for i in tested])
    for step, k in enumerate(np.argsort(p)):
        if p[k] > (1 - level) / (len(tested) - step):
            break
        flags[tested[k]] = abs(gap[tested[k]]) > abs(rest_gap[tested[k]])
    return flags


def two_sided(successes: int, number: int, share: float) -> float:
    """Two-sided p-value of a binomial number: twice the smaller tail, at most 1.

    Example:
        >>> from calibrant.auditing.breakdown import two_sided
        >>> round(two_sided(9, 10, 0.5), 6)  # 2 (10 + 1) / 1024
        0.021484
    """
    below = float(binomial_tail(successes, number, share))
    above = float(binomial_tail(number - successes, number, 1 - share))
    return min(1.0, 2 * min(below, above))


@dataclass
class Levels:
    """Integer codes of the values of a group column, in order of first appearance."""

    column: str
    codes: dict[Any, int] = field(default_factory=dict)

    def encode(self, values: Array, most: float = MOST_LEVELS) -> Ints:
        """The code of each value; an error if there are more than ``most`` different values."""
        distinct, inverse = np.unique(values, return_inverse=True)
        for value in distinct.tolist():
            self.codes.setdefault(value, len(self.codes))
        self.check(most)
        return np.array([self.codes[value] for value in distinct.tolist()], np.int64)[inverse]

    def check(self, most: float = MOST_LEVELS) -> None:
        """Raise if there are too many values."""
        if len(self.codes) > most:
            raise ValueError(
                f"column {self.column!r} has more than {MOST_LEVELS} different values: it does not name groups"
            )

    def names(self) -> list[str]:
        """The values as text, by code."""
        return [str(value) for value in self.codes]


class HashSample:
    """At most ``size`` samples, selected by a hash of their numbers, so that two files keep the same ones."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.parts: list[Columns] = []
        self.keys: list[npt.NDArray[np.uint64]] = []
        self.limit = np.iinfo(np.uint64).max
        self.count = 0

    def expect(self, total: int) -> None:
        """Say how many samples will come, so that hardly more are taken than are kept in the end.

        The number below the limit has a standard deviation of at most the root of its mean; a margin of twelve is
        always enough.
        """
        most = int(np.iinfo(np.uint64).max)
        needed = self.size + 12 * math.isqrt(self.size) + 144
        self.limit = most if needed >= total else most * needed // total

    def add(self, numbers: Ints, take: Callable[[Ints], Columns]) -> None:
        """Offer samples by their numbers; ``take`` returns the columns of those that are kept."""
        keys = _hash(numbers)
        if len(keys) > self.size:  # more than can be kept of all
            self.limit = min(self.limit, np.partition(keys, self.size - 1)[self.size - 1])
        rows = np.flatnonzero(keys <= self.limit)
        if len(rows):
            self._append([keys[rows]], [take(rows)], len(rows))

    def absorb(self, sample: HashSample) -> None:
        """Add the sample of a further part of the data."""
        self._append(sample.keys, sample.parts, sample.count)

    def _append(self, keys: list[npt.NDArray[np.uint64]], parts: list[Columns], count: int) -> None:
        self.keys += keys
        self.parts += parts
        self.count += count
        if self.count > 2 * self.size:
            self.prune()

    def prune(self) -> None:
        """Keep at most ``size`` samples."""
        keys = np.concatenate(self.keys)
        columns = tuple(np.concatenate(column) for column in zip(*self.parts, strict=True))
        if len(keys) > self.size:
            self.limit = np.partition(keys, self.size - 1)[self.size - 1]
            rows = keys <= self.limit
            keys, columns = keys[rows], tuple(column[rows] for column in columns)
        self.keys, self.parts, self.count = [keys], [columns], len(keys)

    def columns(self) -> Columns:
        """The columns of the kept samples, in order of their numbers."""
        self.prune()
        return self.parts[0]


def _hash(numbers: Ints) -> npt.NDArray[np.uint64]:
    """Splitmix64: pseudo-random numbers that depend on nothing but their arguments."""
    with np.errstate(over="ignore"):
        x = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


class ObjectSizes:
    """Counts and sums over bins of objectness, additive; ``[lo, hi)``, the last with its upper edge."""

    def __init__(self, bins: int = OBJECT_BINS) -> None:
        self.samples = np.zeros(bins, np.int64)
        self.counts, self.correct, self.confidence, self.objectness = np.zeros((4, bins))
        self.moments = np.zeros(4)  # of w and of the distance d of confidence and objectness: w d, w^2, w^2 d, w^2 d^2

    def add(
        self,
        objectness: npt.ArrayLike,
        confidence: Doubles,
        correct: npt.NDArray[np.bool_] | None = None,
        weight: Doubles | None = None,
    ) -> None:
        """Add samples; without ``correct`` accuracies are unknown."""
        share = np.asarray(objectness, np.float64)
        check_within("objectness", share, 0.0, 1.0)
        bins = len(self.counts)
        index = np.minimum((share * bins).astype(np.int64), bins - 1)
        w = np.ones(len(share)) if weight is None else weight
        self.samples += np.bincount(index, minlength=bins)
        self.counts += np.bincount(index, w, minlength=bins)
        if correct is not None:
            self.correct += np.bincount(index, w * correct, minlength=bins)
        self.confidence += np.bincount(index, w * confidence, minlength=bins)
        self.objectness += np.bincount(index, w * share, minlength=bins)
        distance = w * np.abs(confidence - share)
        self.moments += (distance.sum(), w @ w, w @ distance, distance @ distance)

    def deviation(self, level: float) -> Interval:
        """Mean distance of confidence and objectness, with the interval of a mean."""
        number, size = int(self.samples.sum()), self.counts.sum()
        total, squares, first, second = self.moments
        mean = total / size
        spread = max(0.0, second - 2 * mean * first + mean**2 * squares) * number / max(1, number - 1)
        error = math.sqrt(spread) / size if number > 1 else math.nan
        return normal_interval(float(mean), error, level, 0.0, 1.0)

    def series(self) -> dict[str, Any]:
        """Edges, counts, and means of every bin; NaN where it is empty."""
        bins = len(self.counts)
        edges = np.arange(bins + 1) / bins
        with np.errstate(invalid="ignore"):
            means = {"objectness": self.objectness / self.counts, "confidence": self.confidence / self.counts}
            accuracy = self.correct / self.counts
        return {"low": edges[:-1], "high": edges[1:], "count": self.samples, **means, "accuracy": accuracy}


def confidence_by_objectness(
    confidence: npt.ArrayLike, objectness: npt.ArrayLike, *, bins: int = OBJECT_BINS
) -> dict[str, Any]:
    """Mean confidence and mean objectness in bins of objectness.

    Args:
        confidence: ``[N]``.
        objectness: ``[N]``, between 0 and 1.
        bins: of equal width.

    Example:
        >>> part = confidence_by_objectness([0.5, 0.7, 0.9], [0.1, 0.2, 0.8], bins=2)
        >>> part["count"].tolist(), part["confidence"].round(2).tolist()
        ([2, 1], [0.6, 0.9])
    """
    sizes = ObjectSizes(bins)
    sizes.add(objectness, np.asarray(confidence, np.float64))
    series = sizes.series()
    del series["accuracy"]
    return series
