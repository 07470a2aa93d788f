r"""Reductions over the classes: what each row of logits or probabilities contributes, in one trip through the cache.

Per row z of C numbers with label y: the largest m and the first class that has it; of logits
:math:`\sum_j e^{z_j - m}`, :math:`\sum_j e^{2(z_j - m)}` and :math:`z_y - m`; of probabilities the sum, the sum of
squares and the value at y. With m the largest logit, confidence is 1 over the sum of exponentials; what else follows
from these five numbers is `finish_rows`.

Rows go through in chunks that fit the cache, on as many threads as there are cores. Rows of few classes are transposed
first, so that every operation runs along the rows and fills the processor's vectors. `judge_rows` computes in float64.
`tally_rows`, for sketches, takes the exponentials of float32 logits in float32; the largest one, which is 1, is left
out of their sum and added in float64, so that confidences are ranked down to 2e-16 from 1.

`top_label_blocks` goes through logits or probabilities of any shape, a block at a time: the samples that count, with
what each contributes to every metric (`TopLabel`). `SketchCounts` adds them up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from calibrant.base.arrays import Array, Doubles, Precision, class_rows, in_threads, join_rows, precision_of, row_slices
from calibrant.base.checks import FARTHEST_SUM, Bools, Ints
from calibrant.metrics.grid import BASE, CELLS, base_bins, cells_of, cells_of_confidence

BLOCK = 1 << 17  # samples per block
BLOCK_NUMBERS = 1 << 23  # numbers per block: what a block takes in memory is a small multiple of them
FEW = 48  # classes up to which rows are transposed
CHUNK = 1 << 18  # numbers that are reduced at a time
TASK = 1 << 14  # rows that a thread takes at a time, of few classes; of many, an eighth
_FLUSH = 1 << 23  # codes of cells to hold before they are counted

# The C library gives freed blocks back to the system, to fetch them anew for the next chunk, until it has once freed a
# block as large as these; page faults would cost more than the arithmetic.
np.empty(1 << 24, np.uint8)


class Reduced(NamedTuple):
    """One number per row, float64 but where said."""

    top: Doubles  # the largest value
    at_label: Doubles  # the label's logit minus the largest, or the label's probability
    total: Doubles  # the sum of exponentials relative to the largest logit, or of probabilities
    squares: Doubles  # the sum of their squares
    predicted: Ints  # the first class that has the largest value, int64


class Finished(NamedTuple):
    """One number per row, float64 but where said."""

    confidence: Doubles  # of the predicted class
    shortfall: Doubles  # 1 - confidence; for logits without the rounding of that subtraction
    correct: Bools  # whether the label was predicted, bool
    nll: Doubles  # negative log-likelihood of the label
    brier: Doubles  # sum over classes of squared differences
    cells: Ints  # of the confidence in the partition of `grid`, int64


class Tally(NamedTuple):
    """What a sketch adds up, of some samples: codes of their cells, and sums over base bins and over all."""

    code: npt.NDArray[np.int32]
    base_counts: Ints
    base_sums: Doubles
    moments: Doubles


def judge_rows(values: Array, labels: Ints, kind: str, precision: Precision | None) -> tuple[Reduced, Finished]:
    """Reduce ``[n, C]`` values of any floating-point type, with labels ``[n]`` in 0..C-1, and finish, in float64.

    ``precision`` is the type of the given probabilities, None for logits. NaN and infinite values are refused.
    """

    def work(rows: slice) -> tuple[Reduced, Finished]:
        reduced = reduce_rows(values[rows], labels[rows], kind, np.float64)
        return reduced, finish_rows(reduced, labels[rows], kind, precision)

    parts = list(in_threads(work, task_slices(*values.shape)))
    if len(parts) == 1:
        return parts[0]
    reduced, finished = zip(*parts, strict=True)
    return join_rows(reduced), join_rows(finished)


def tally_rows(values: Array, labels: Ints, kind: str, precision: Precision | None) -> Iterator[Tally]:
    """Count and sum rows, keeping nothing else of them, so that little leaves the cache."""

    def work(rows: slice) -> Tally:
        reduced = reduce_rows(values[rows], labels[rows], kind, np.float32)
        finished = finish_rows(reduced, labels[rows], kind, precision)
        return tally(finished.cells, finished.confidence, finished.correct, finished.nll, finished.brier)

    return in_threads(work, task_slices(*values.shape))


def tally_confidences(confidence: Array, correct: Bools, precision: Precision) -> Iterator[Tally]:
    """The same of samples ``[N]`` of which nothing but confidence and correctness are known."""

    def work(rows: slice) -> Tally:
        part = confidence[rows]
        low, high = part.min(), part.max()
        if not 0 <= low <= high <= 1:  # nor is NaN
            raise ValueError(f"confidence must lie in [0, 1], got values from {low:g} to {high:g}")
        part = part.astype(np.float64)
        return tally(cells_of_confidence(part, precision), part, correct[rows])

    return in_threads(work, row_slices(len(confidence), 1, TASK))


def tally(
    cells: Ints,
    confidence: Doubles,
    correct: Bools,
    nll: Doubles | None = None,
    brier: Doubles | None = None,
    *,
    ranks: Ints | None = None,
) -> Tally:
    """Count samples by the cells of their confidence, or of the score that ranks them; sum what is known of them."""
    is_wrong = ~correct
    side = 2 * base_bins(cells) + is_wrong
    counts: Ints = np.bincount(side, minlength=2 * BASE)
    sums: Any = np.bincount(side, confidence, minlength=2 * BASE)
    moments = np.zeros(5)
    if nll is not None and brier is not None:
        with np.errstate(invalid="ignore"):  # an infinite NLL, of a label with probability 0
            moments[:] = nll.sum(), np.square(nll).sum(), brier.sum(), np.square(brier).sum(), len(nll)
    code = (cells if ranks is None else ranks) + CELLS * is_wrong
    return Tally(code.astype(np.int32), counts, sums, moments)


def task_slices(rows: int, classes: int) -> Iterator[slice]:
    """Runs of rows for one thread at a time."""
    return row_slices(rows, 1, TASK if classes <= FEW else TASK // 8)


def reduce_rows(values: Array, labels: Ints, kind: str, dtype: type[np.floating[Any]]) -> Reduced:
    """What rows ``[n, C]`` contribute; exponentials and sums are of the wider of ``dtype`` and the values' type."""
    reduce = _reduce_logits if kind == "logits" else _reduce_probabilities
    parts = []
    for rows in row_slices(len(values), values.shape[1], CHUNK):
        z = values[rows]
        z = np.ascontiguousarray(z, dtype=np.float64 if z.itemsize >= 8 else np.float32)
        with np.errstate(over="ignore"):  # logits of both ends of float32: the exponential of their difference is 0
            parts.append(reduce(z, labels[rows], np.result_type(dtype, z.dtype)))
    return parts[0] if len(parts) == 1 else join_rows(parts)


def _reduce_logits(z: Array, labels: Ints, dtype: np.dtype[Any]) -> Reduced:
    z, axis, predicted, top, position = find_largest(z, "logits")
    at_label = z.reshape(-1)[position(labels)].astype(np.float64) - top
    exps = np.subtract(z, np.expand_dims(top.astype(z.dtype), axis), dtype=dtype)
    np.exp(exps, out=exps)
    # The largest exponential, 1, is added in float64, so that what the others add to it is not rounded away.
    exps.reshape(-1)[position(predicted)] = 0
    total, squares = (1 + sums.astype(np.float64) for sums in (exps.sum(axis), sum_products(exps, exps, axis)))
    return Reduced(top, at_label, total, squares, predicted)


def _reduce_probabilities(p: Array, labels: Ints, dtype: np.dtype[Any]) -> Reduced:
    p, axis, predicted, top, position = find_largest(p, "probabilities")
    p = p.astype(dtype, copy=False)
    total = p.sum(axis, dtype=np.float64)
    furthest = total[np.abs(total - 1).argmax()]
    if abs(furthest - 1) > FARTHEST_SUM:
        raise ValueError(f"probabilities must sum to 1, got a row that sums to {furthest:g}")
    at_label = p.reshape(-1)[position(labels)].astype(np.float64)
    return Reduced(top, at_label, total, sum_products(p, p, axis).astype(np.float64), predicted)


def find_largest(z: Array, kind: str) -> tuple[Array, int, Ints, Doubles, Callable[[Ints], Ints]]:
    """The largest value of each row ``[n, C]``, and a layout in which further operations are fast.

    Returns:
        The values, transposed if C is small; their axis of classes; the first class that has the largest value of each
        row; that value, float64; and a function that gives the positions in the flat values of one class of each row.
    """
    rows, classes = z.shape
    if classes > FEW:
        start = np.arange(rows) * classes
        predicted = z.argmax(1)
        top = z.reshape(-1)[start + predicted]
        axis, position = 1, lambda choice: start + choice
    else:
        z, start = np.ascontiguousarray(z.T), np.arange(rows)
        top = z.max(0)
        # Small whole numbers that fall with the class: their maximum, much faster than argmax, tells the first.
        falling = np.arange(classes, 0, -1, dtype=np.uint8)[:, None]
        predicted = np.subtract(classes, np.multiply(z == top, falling).max(0), dtype=np.int64)
        axis, position = 0, lambda choice: start + rows * choice
    if not (np.isfinite(top).all() and z.min() > -math.inf):
        raise ValueError(f"{kind} must be finite, got NaN or infinity")
    return z, axis, predicted, top.astype(np.float64), position


def sum_products(first: Array, second: Array, axis: int) -> Array:
    """Sums of products along an axis of two arrays of two dimensions."""
    sums: Array = np.einsum("ij,ij->j" if axis == 0 else "ij,ij->i", first, second)
    return sums


def finish_rows(reduced: Reduced, labels: Ints, kind: str, precision: Precision | None) -> Finished:
    """What follows from the reductions, row by row."""
    top, at_label, total, squares, predicted = reduced
    if kind == "logits":
        nll = np.log(total) - at_label
        share = np.exp(-nll)
        confidence = 1 / total
        shortfall = (total - 1) * confidence
        squares = squares * np.square(confidence)
        cells = cells_of(confidence, shortfall)
    else:
        share = at_label
        with np.errstate(divide="ignore"):  # a label of probability 0
            nll = np.maximum(-np.log(share), 0.0)
        confidence = np.minimum(top, 1.0)
        shortfall = 1 - confidence
        cells = cells_of_confidence(confidence, precision or "float64")
    brier = np.maximum(squares - 2 * share + 1, 0.0)
    return Finished(confidence, shortfall, predicted == labels, nll, brier, cells)


@dataclass(frozen=True)
class TopLabel:
    """Statistics of n samples, each ``[n]``, float64 but where said; the first are those of `Finished`."""

    confidence: Doubles  # of the predicted class
    shortfall: Doubles  # 1 - confidence; for logits without the rounding of that subtraction
    correct: Bools  # bool; of tied maxima the first is the prediction
    nll: Doubles  # negative log-likelihood of the label
    brier: Doubles  # sum over classes of squared differences
    cells: Ints  # int64, where each confidence lies in the partition of `grid`
    labels: Ints  # int64
    predicted: Ints | None  # int64, or None where it is not known
    max_logit: Doubles  # the largest value of the sample: its largest logit or probability
    # The type in which confidences or probabilities were given; None if computed from logits.
    precision: Precision | None
    first: int = 0  # the row of the input where the block begins
    # Bool, which positions of the block's rows count, ``[rows, ...]``; None if all do and each row is one.
    counted: Bools | None = None

    def rows(self) -> Ints:
        """The row of the input that each sample came from."""
        if self.counted is None:
            return np.arange(self.first, self.first + len(self.labels))
        return np.nonzero(self.counted)[0] + self.first

    def take(self, values: Array) -> Array:
        """The values ``[n, C]`` of these samples, out of the whole input ``[N, C, ...]``."""
        if self.counted is None:
            return values[self.first : self.first + len(self.labels)]
        part = values[self.first : self.first + len(self.counted)]
        return class_rows(part)[self.counted.reshape(-1)]


#: Called on each block with its values [n, C], what they were reduced to, and their labels.
Visitor = Callable[[Array, Reduced, Ints], None]


def top_label_blocks(
    values: Array, labels: Array, *, kind: str, ignore_index: int | None = None, visit: Visitor | None = None
) -> Iterator[TopLabel]:
    """Go through ``[N, C]`` or ``[N, C, ...]`` with labels ``[N]`` or ``[N, ...]``, a block of samples at a time.

    Args:
        values: logits or probabilities.
        labels: whole numbers.
        kind: what the values are.
        ignore_index: label that counts nowhere.
        visit: called on every block on the way.
    """
    precision = None if kind == "logits" else precision_of(values)
    for z, truth, first, counted in counted_rows(values, labels, ignore_index):
        if not len(truth):  # all of the block is ignored
            continue
        reduced, finished = judge_rows(z, truth, kind, precision)
        if visit is not None:
            visit(z, reduced, truth)
        yield TopLabel(*finished, truth, reduced.predicted, reduced.top, precision, first, counted)


def counted_rows(
    values: Array, labels: Array, ignore_index: int | None
) -> Iterator[tuple[Array, Ints, int, Bools | None]]:
    """Blocks of samples ``[n, C]`` that count, their labels, and the block's ``first`` and ``counted``."""
    classes, spots = values.shape[1], math.prod(values.shape[2:])
    limit = min(BLOCK * classes, max(BLOCK_NUMBERS, classes * spots))
    for rows in row_slices(len(values), classes * spots, limit):
        z, y = class_rows(values[rows]), labels[rows].reshape(rows.stop - rows.start, -1)
        counted = None
        if ignore_index is not None or values.ndim > 2:
            counted = np.ones(y.shape, np.bool_) if ignore_index is None else y != ignore_index
            if not counted.all():
                z = z[counted.reshape(-1)]
            elif values.ndim == 2:
                counted = None
        truth = (y if counted is None else y[counted]).reshape(-1).astype(np.int64, copy=False)
        yield z, truth, rows.start, counted if counted is None or values.ndim > 2 else counted[:, 0]


class SketchCounts:
    """The counts of one update, kept apart until all of it has been checked."""

    def __init__(self) -> None:
        self.waiting: list[npt.NDArray[np.int32]] = []
        self.length = 0
        self.cells: Ints | None = None
        self.base_counts = np.zeros(2 * BASE, np.int64)
        self.base_sums = np.zeros(2 * BASE)
        self.moments = np.zeros(5)

    def add(self, part: Tally) -> None:
        """Add the tally of some samples."""
        self.base_counts += part.base_counts
        self.base_sums += part.base_sums
        self.moments += part.moments
        self.waiting.append(part.code)
        self.length += len(part.code)
        if self.length >= _FLUSH:
            self.cells = np.zeros(2 * CELLS, np.int64) if self.cells is None else self.cells
            self._count_waiting(self.cells)

    def add_to(self, cells: Ints, base_counts: Ints, base_sums: Doubles, moments: Doubles) -> None:
        """Add everything to the state of a sketch."""
        self._count_waiting(cells)
        if self.cells is not None:
            cells += self.cells
        base_counts += self.base_counts
        base_sums += self.base_sums
        moments += self.moments

    def _count_waiting(self, cells: Ints) -> None:
        if not self.waiting:
            return
        codes = np.concatenate(self.waiting)
        if len(codes) < CELLS // 8:  # few enough that going through all cells would cost more
            np.add.at(cells, codes, 1)
        else:
            cells += np.bincount(codes, minlength=2 * CELLS)
        self.waiting, self.length = [], 0
