"""The tables that a pass over predictions fills in: small, and additive.

Counts by class, by group and by object size (ALS, section 4.2), sums of class-wise ECE, and a sample of rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant.base.arrays import CHUNK, Array, Doubles, Precision, in_threads, row_slices
from calibrant.base.checks import Bools, Ints, check_within
from calibrant.metrics import BASE, BINS, Bins, Interval, Reduced, TopLabel, bin_edges, normal_interval
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
    """Counts and sums of confidence over 15 bins, for each of a growing number of keys."""

    def __init__(self, keys: int = 0) -> None:
        self.counts = np.zeros((keys, BINS, 2), np.int64)
        self.sums = np.zeros((keys, BINS, 2))
        self.squares = np.zeros(keys)

    def add(self, key: Ints, top: TopLabel, bins: npt.NDArray[np.int32], keys: int) -> None:
        """Count samples, with their base bins, under their keys ``[n]``, of which there are ``keys`` by now."""
        self.grow(keys)
        code = 2 * (bins // (BASE // BINS) + BINS * key) + ~top.correct
        size = 2 * BINS * keys
        self.counts += np.bincount(code, minlength=size).reshape(keys, BINS, 2)
        self.sums += np.bincount(code, top.confidence, minlength=size).reshape(keys, BINS, 2)
        self.squares += np.bincount(key, np.square(top.confidence - top.correct), minlength=keys)

    def grow(self, keys: int) -> None:
        """Make room for more keys."""
        for name, table in vars(self).items():
            if keys > len(table):
                added = np.zeros((keys - len(table), *table.shape[1:]), table.dtype)
                setattr(self, name, np.concatenate([table, added]))

    def rows(
        self, names: Sequence[str], *, level: float, compare: bool = True, classwise: Doubles | None = None
    ) -> list[Row]:
        """A row for each key that has samples, in order of the keys; ``compare`` flags those worse than the others.

        ``classwise`` holds the class-wise ECE of every key, if they are classes.
        """
        sizes = self.counts.sum((1, 2))
        keys = np.flatnonzero(sizes)
        n = sizes[keys]
        correct, confidence = self.counts[keys, :, 0].sum(1), self.sums[keys].sum((1, 2))
        gap = (confidence - correct) / n
        spread = np.maximum(self.squares[keys] / n - gap**2, 0.0)
        # The added sample keeps the standard error above 0 where a few samples are all alike.
        error = np.sqrt((spread + 0.25 / (n + 1)) / n)
        ece = Bins(self.counts[keys].sum(2), self.sums[keys].sum(2), self.counts[keys, :, 0]).mean_gap()
        flags = _flag_worse(n, correct, confidence, level) if compare else [False] * len(n)
        rows = []
        for i, k in enumerate(keys.tolist()):
            limits = normal_interval(float(gap[i]), float(error[i]), level, -1.0, 1.0)
            shares = float(correct[i] / n[i]), float(confidence[i] / n[i]), limits.value, limits.low, limits.high
            of_class = None if classwise is None else float(classwise[k])
            rows.append(Row(names[k], int(n[i]), *shares, float(ece[i]), of_class, bool(flags[i])))
        return rows


def _flag_worse(n: Ints, correct: Ints, confidence: Doubles, level: float) -> Bools:
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
    p = np.array([two_sided(int(correct[i]), int(n[i]), float(expected[i])) for i in tested])
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


class ClasswiseSums:
    """The sums behind class-wise ECE: for each class, over 15 bins of its probability.

    Nearly all probabilities of a sample lie in the lowest bin. Only those above 1/15 (14 at most) are binned one by
    one; the lowest bin is the rest of the class's total.

    Args:
        classes: number of classes.
        kind: of the values, logits or probabilities.
        precision: of the probabilities; bin edges are rounded to it.
    """

    def __init__(self, classes: int, kind: str = "logits", precision: Precision = "float64") -> None:
        self.kind, self.inner = kind, bin_edges(BINS, "float64" if kind == "logits" else precision)[1:-1]
        self.samples = 0
        self.total = np.zeros(classes)
        self.sums = np.zeros(classes * BINS)
        self.counts = np.zeros(classes * BINS, np.int64)
        self.hits = np.zeros(classes * BINS, np.int64)

    def visit(self, z: Array, reduced: Reduced, labels: Ints) -> None:
        """Add a block of values ``[n, C]``, as `top_label_blocks` shows them."""
        self.samples += len(labels)

        def work(rows: slice) -> tuple[Doubles, Doubles, Ints, Ints]:
            return self._sum(z[rows], reduced.top[rows], reduced.total[rows], labels[rows])

        for total, sums, counts, hits in in_threads(work, row_slices(len(z), z.shape[1], CHUNK)):
            self.total += total
            self.sums += sums
            self.counts += counts
            self.hits += hits

    def _sum(self, z: Array, top: Doubles, total: Doubles, labels: Ints) -> tuple[Doubles, Doubles, Ints, Ints]:
        """Totals of the classes, and sums, counts and hits of the bins.

        Exponentials of float32 logits are float32; a share that is binned one by one is computed anew in float64.
        """
        z = z.astype(np.float64 if z.itemsize >= 8 else np.float32, copy=False)
        p = z
        if self.kind == "logits":
            p = np.subtract(z, top[:, None], dtype=z.dtype)
            np.exp(p, out=p)
            p *= (1 / total[:, None]).astype(z.dtype)
        row, column = np.divmod(np.flatnonzero(p > self.inner[0] * (1 - 1e-6)), p.shape[1])
        share = self._shares(z[row, column], top[row], total[row])
        code = column * BINS + np.searchsorted(self.inner, share)
        is_above = share > self.inner[0]
        code, share = code[is_above], share[is_above]
        size = len(self.sums)
        sums: Any = np.bincount(code, share, minlength=size)
        counts: Ints = np.bincount(code, minlength=size)
        at_label = self._shares(z[np.arange(len(labels)), labels], top, total)
        hits: Ints = np.bincount(labels * BINS + np.searchsorted(self.inner, at_label), minlength=size)
        return p.sum(0, dtype=np.float64), sums, counts, hits

    def _shares(self, values: Array, top: Doubles, total: Doubles) -> Doubles:
        """Probabilities ``[n]`` of values, one of each row."""
        numbers = values.astype(np.float64)
        return numbers if self.kind == "probabilities" else np.exp(numbers - top) / total

    def by_class(self) -> Doubles:
        """Class-wise ECE of each class, ``[C]``."""
        sums, _, hits = self.tables()
        return np.abs(sums - hits).sum(1) / max(1, self.samples)

    def tables(self) -> tuple[Doubles, Ints, Ints]:
        """Sums of probability, counts, and samples of the class, by class and bin, with the lowest bin."""
        sums, counts = self.sums.reshape(-1, BINS).copy(), self.counts.reshape(-1, BINS).copy()
        sums[:, 0] = np.maximum(self.total - sums[:, 1:].sum(1), 0.0)
        counts[:, 0] = self.samples - counts[:, 1:].sum(1)
        return sums, counts, self.hits.reshape(-1, BINS)

    def replicates(self, rng: np.random.Generator, number: int) -> tuple[Doubles, Doubles]:
        """Bootstrap replicates of the mean over classes minus its value, and values of a perfectly calibrated model.

        In each class and bin, the counts of samples of the class and of others are drawn as Poisson numbers, each with
        the bin's mean probability. That classes share their samples is neglected.
        """
        sums, counts, hits = (part.astype(np.float64) for part in self.tables())
        filled = counts.ravel() > 0
        n, hit, p = counts.ravel()[filled], hits.ravel()[filled], (sums.ravel()[filled] / counts.ravel()[filled])
        resampled, null = np.empty(number), np.empty(number)
        for i in range(number):
            positive, negative = rng.poisson(hit), rng.poisson(np.maximum(n - hit, 0))
            resampled[i] = np.abs((positive + negative) * p - positive).sum()
            null[i] = np.abs(n * p - rng.binomial(n.astype(np.int64), np.clip(p, 0, 1))).sum()
        scale = max(1, self.samples) * len(sums)
        return (resampled - np.abs(n * p - hit).sum()) / scale, null / scale


class HashSample:
    """At most ``size`` samples, selected by a hash of their numbers, so that two files keep the same ones."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.parts: list[Columns] = []
        self.keys: list[npt.NDArray[np.uint64]] = []
        self.limit = np.iinfo(np.uint64).max
        self.count = 0

    def add(self, numbers: Ints, take: Callable[[Ints], Columns]) -> None:
        """Offer samples by their numbers; ``take`` returns the columns of those that are kept."""
        keys = _hash(numbers)
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
        self.counts, self.correct = np.zeros(bins, np.int64), np.zeros(bins, np.int64)
        self.confidence, self.objectness = np.zeros(bins), np.zeros(bins)
        self.moments = np.zeros(2)  # of the distance of confidence and objectness

    def add(self, objectness: npt.ArrayLike, confidence: Doubles, correct: npt.NDArray[np.bool_] | None = None) -> None:
        """Add samples; without ``correct`` accuracies are unknown."""
        share = np.asarray(objectness, np.float64)
        check_within("objectness", share, 0.0, 1.0)
        bins = len(self.counts)
        indices = np.minimum((share * bins).astype(np.int64), bins - 1)
        self.counts += np.bincount(indices, minlength=bins)
        if correct is not None:
            self.correct += np.bincount(indices[correct], minlength=bins)
        self.confidence += np.bincount(indices, confidence, minlength=bins)
        self.objectness += np.bincount(indices, share, minlength=bins)
        distance = np.abs(confidence - share)
        self.moments += (distance.sum(), np.square(distance).sum())

    def deviation(self, level: float) -> Interval:
        """Mean distance of confidence and objectness, with the interval of a mean."""
        number = int(self.counts.sum())
        mean, square = self.moments / number
        spread = max(0.0, square - mean**2) * number / max(1, number - 1)
        error = math.sqrt(spread / number) if number > 1 else math.nan
        return normal_interval(float(mean), error, level, 0.0, 1.0)

    def series(self) -> dict[str, Any]:
        """Edges, counts, and means of every bin; NaN where it is empty."""
        bins = len(self.counts)
        edges = np.arange(bins + 1) / bins
        with np.errstate(invalid="ignore"):
            means = {"objectness": self.objectness / self.counts, "confidence": self.confidence / self.counts}
            accuracy = self.correct / self.counts
        return {"low": edges[:-1], "high": edges[1:], "count": self.counts, **means, "accuracy": accuracy}


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
