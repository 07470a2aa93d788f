r"""What each row of logits or probabilities contributes to any metric, in one trip through the cache.

Per row z of C numbers with label y: the largest m and the first class that has it; of logits
:math:`\sum_{j} e^{z_j - m}` over the other classes, the squares of the same, and :math:`z_y - m`; of probabilities
their sum but for the largest, the sum of all squares, and the value at y. With m the largest logit, confidence is 1
over 1 plus the first of these sums; what else follows from the five numbers is `finish_rows`.

Rows go through in chunks that fit the cache, on as many threads as there are cores, each of which uses the same memory
for all its chunks: fetching it anew costs more than the arithmetic. Rows of few classes are transposed first, so that
every operation runs along the rows and fills the processor's vectors. `judge_rows` computes in float64. `tally_rows`,
for sketches, takes the exponentials of float32 logits in float32; the largest one, which is 1, is left out of their
sum, so that confidences are ranked down to 2e-16 from 1 all the same.

`top_label_blocks` goes through logits or probabilities of any shape, a block at a time: the samples that count, with
what each contributes to every metric (`TopLabel`). `SketchCounts` adds them up, with weights where there are some.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from calibrant.base.arrays import (
    Array,
    Doubles,
    Precision,
    class_rows,
    in_threads,
    precision_of,
    row_slices,
    sum_along,
    sum_products,
    take_rows,
)
from calibrant.base.checks import FARTHEST_SUM, Bools, Ints
from calibrant.metrics.grid import BASE, CELLS, base_bins, cells_of, cells_of_confidence

BLOCK = 1 << 17  # samples per block
BLOCK_NUMBERS = 1 << 23  # numbers per block: what a block takes in memory is a small multiple of them
FEW = 48  # classes up to which rows are transposed
# What a thread takes at a time: few enough for the cache, and enough that the interpreter's lock is seldom handed over.
CHUNK = 1 << 19  # numbers that are reduced
COLUMN = 1 << 15  # rows of which one number each is known
_FLUSH = 1 << 22  # codes of cells to hold before they are counted

# The C library gives freed blocks back to the system, to fetch them anew for the next chunk, until it has once freed a
# block as large as these; page faults would cost more than the arithmetic.
np.empty(1 << 24, np.uint8)


class Reduced(NamedTuple):
    """One number per row, float64 but where said; "others" are the classes other than the predicted one."""

    top: Doubles  # the largest value
    at_label: Doubles  # the label's logit minus the largest, or the label's probability
    others: Doubles  # the sum of the others' exponentials relative to the largest logit, or of their probabilities
    squares: Doubles  # the sum of the squares of all exponentials, or probabilities
    predicted: Ints  # the first class that has the largest value, int64


REDUCED = (np.float64, np.float64, np.float64, np.float64, np.int64)


class Finished(NamedTuple):
    """One number per row, float64 but where said."""

    confidence: Doubles  # of the predicted class
    shortfall: Doubles  # 1 - confidence; for logits without the rounding of that subtraction
    correct: Bools  # whether the label was predicted, bool
    nll: Doubles  # negative log-likelihood of the label
    brier: Doubles  # sum over classes of squared differences
    cells: Ints  # of the confidence in the partition of `grid`, int64


FINISHED = (np.float64, np.float64, np.bool_, np.float64, np.float64, np.int64)

#: What a sketch sums of w times values: NLL, its square, Brier score, its square and 1, of samples that have them; the
#: number of all samples; and the first four once more of w squared, for their standard errors.
MOMENTS = 10


class Tally(NamedTuple):
    """What a sketch adds up, of some samples: codes of their cells with weights, sums over base bins and over all."""

    code: Ints
    weight: Doubles | None
    base_counts: Doubles
    base_sums: Doubles
    base_squares: Doubles
    moments: Doubles


class ByClass(Protocol):
    """What is summed of every class's probability on the way; parts of the rows are summed apart and then added."""

    def empty(self) -> Any:
        """An accumulator of the same kind that has seen nothing."""

    def add(self, shares: Array, total: Doubles | None, labels: Ints, axis: int, weight: Doubles | None) -> None:
        """Add rows whose probabilities are shares, classes along ``axis``, of a total for each row (None: of 1)."""

    def absorb(self, other: Any) -> None:
        """Add what another one has seen."""


class _Workspace(threading.local):
    """Arrays that a thread uses again for every chunk, by name."""

    def __init__(self) -> None:
        self.flat: dict[str, Array] = {}

    def array(self, name: str, shape: tuple[int, int], dtype: Any) -> Array:
        """An array with any contents, whose memory the next array of this name will have."""
        size = shape[0] * shape[1]
        dtype = np.dtype(dtype)
        flat = self.flat.get(name)
        if flat is None or flat.dtype != dtype or len(flat) < size:
            flat = self.flat[name] = np.empty(size, dtype)
        return flat[:size].reshape(shape)


_workspace = _Workspace()


def judge_rows(
    values: Array,
    labels: Ints,
    kind: str,
    precision: Precision | None,
    by_class: ByClass | None = None,
    weight: Doubles | None = None,
) -> tuple[Reduced, Finished]:
    """Reduce ``[n, C]`` values of any floating-point type, with labels ``[n]`` in 0..C-1, and finish, in float64.

    ``precision`` is the type of the given probabilities, None for logits. NaN and infinite values are refused.
    ``by_class`` sums the probabilities of every class on the way, of samples with a weight ``[n]`` if there are any.
    """
    reduced = reduce_rows(values, labels, kind, np.float64, by_class, weight)
    columns: Any = [np.empty(len(labels), dtype) for dtype in FINISHED]

    def finish(rows: slice) -> None:
        part = finish_rows(take_rows(reduced, rows), labels[rows], kind, precision)
        for column, values_of_rows in zip(columns, part, strict=True):
            column[rows] = values_of_rows

    for _ in in_threads(finish, row_slices(len(labels), 1, COLUMN)):
        pass
    return reduced, Finished(*columns)


def tally_rows(
    values: Array, labels: Ints, kind: str, precision: Precision | None, weight: Doubles | None = None
) -> Iterator[Tally]:
    """Count and sum rows, keeping nothing else of them."""
    reduced = reduce_rows(values, labels, kind, np.float32)

    def work(rows: slice) -> Tally:
        part = finish_rows(take_rows(reduced, rows), labels[rows], kind, precision)
        weights = None if weight is None else weight[rows]
        return tally(part.cells, part.confidence, part.correct, part.nll, part.brier, weight=weights)

    return in_threads(work, row_slices(len(labels), 1, COLUMN))


def tally_confidences(
    confidence: Array, correct: Bools, precision: Precision, weight: Doubles | None = None
) -> Iterator[Tally]:
    """The same of samples ``[N]`` of which nothing but confidence and correctness are known."""

    def work(rows: slice) -> Tally:
        part = confidence[rows]
        low, high = part.min(), part.max()
        if not 0 <= low <= high <= 1:  # nor is NaN
            raise ValueError(f"confidence must lie in [0, 1], got values from {low:g} to {high:g}")
        part = part.astype(np.float64)
        weights = None if weight is None else weight[rows]
        return tally(cells_of_confidence(part, precision), part, correct[rows], weight=weights)

    return in_threads(work, row_slices(len(confidence), 1, COLUMN))


def tally(
    cells: Ints,
    confidence: Doubles,
    correct: Bools,
    nll: Doubles | None = None,
    brier: Doubles | None = None,
    *,
    weight: Doubles | None = None,
    ranks: Ints | None = None,
    bins: Ints | None = None,
) -> Tally:
    """Count samples by the cells of their confidence, or of the score that ranks them; sum what is known of them.

    ``bins`` are the base bins of the cells, where they are at hand.
    """
    is_wrong = ~correct
    side = 2 * (base_bins(cells) if bins is None else bins) + is_wrong
    moments = np.zeros(MOMENTS)
    moments[5] = len(cells)
    counts: Any = np.bincount(side, weight, minlength=2 * BASE)
    sums: Any = np.bincount(side, confidence if weight is None else confidence * weight, minlength=2 * BASE)
    squares: Any = counts if weight is None else np.bincount(side, weight * weight, minlength=2 * BASE)
    if nll is not None and brier is not None:
        with np.errstate(invalid="ignore", over="ignore"):  # an infinite NLL, of a label with probability 0
            if weight is None:
                moments[:5] = nll.sum(), nll @ nll, brier.sum(), brier @ brier, len(nll)
                moments[6:] = moments[:4]
            else:
                nll = without_weightless(nll, weight)
                heavy_nll, heavy_brier = weight * nll, weight * brier
                moments[:5] = heavy_nll.sum(), heavy_nll @ nll, heavy_brier.sum(), heavy_brier @ brier, weight.sum()
                moments[6:] = weight @ heavy_nll, heavy_nll @ heavy_nll, weight @ heavy_brier, heavy_brier @ heavy_brier
    code = (cells if ranks is None else ranks) + CELLS * is_wrong
    return Tally(code, weight, counts, sums, squares, moments)


def reduce_rows(
    values: Array,
    labels: Ints,
    kind: str,
    dtype: type[np.floating[Any]],
    by_class: ByClass | None = None,
    weight: Doubles | None = None,
) -> Reduced:
    """What rows ``[n, C]`` contribute, summed in the wider of ``dtype`` and the values' type."""
    columns: Any = [np.empty(len(labels), dtype) for dtype in REDUCED]

    def work(rows: slice) -> Any:
        sums = None if by_class is None else by_class.empty()
        weights = None if weight is None else weight[rows]
        part = _reduce_chunk(values[rows], labels[rows], kind, dtype, sums, weights)
        for column, values_of_rows in zip(columns, part, strict=True):
            column[rows] = values_of_rows
        return sums

    # A number of equal parts that any usual number of threads divides among itself, and that is always the same.
    parts = 4 * math.ceil(values.size / CHUNK / 4) if values.size > CHUNK else 1
    for sums in in_threads(work, row_slices(len(values), 1, math.ceil(len(values) / parts))):
        if by_class is not None:
            by_class.absorb(sums)
    return Reduced(*columns)


def _reduce_chunk(
    values: Array,
    labels: Ints,
    kind: str,
    dtype: type[np.floating[Any]],
    by_class: ByClass | None,
    weight: Doubles | None,
) -> Reduced:
    work = np.result_type(dtype, np.float64 if values.dtype.itemsize >= 8 else np.float32)
    shares, axis, predicted, top, position = find_largest(values, kind, work)
    flat = shares.reshape(-1)
    at_label = flat.take(position(labels)).astype(np.float64)
    if kind == "logits":
        at_label -= top
        with np.errstate(over="ignore"):  # logits of both ends of float32: the exponential of their difference is 0
            np.subtract(shares, np.expand_dims(top.astype(work, copy=False), axis), out=shares)
        np.exp(shares, out=shares)
        largest = position(predicted)
        flat[largest] = 0
        others = sum_along(shares, axis).astype(np.float64, copy=False)
        squares = 1 + sum_products(shares, shares, axis).astype(np.float64, copy=False)
        if by_class is not None:
            flat[largest] = 1
            by_class.add(shares, 1 + others, labels, axis, weight)
        return Reduced(top, at_label, others, squares, predicted)
    total = shares.sum(axis, dtype=np.float64)
    furthest = total[np.abs(total - 1).argmax()]
    if abs(furthest - 1) > FARTHEST_SUM:
        raise ValueError(f"probabilities must sum to 1, got a row that sums to {furthest:g}")
    squares = sum_products(shares, shares, axis).astype(np.float64, copy=False)
    if by_class is not None:
        by_class.add(shares, None, labels, axis, weight)
    return Reduced(top, at_label, total - top, squares, predicted)


def find_largest(
    values: Array, kind: str, dtype: npt.DTypeLike | None = None
) -> tuple[Array, int, Ints, Doubles, Callable[[Ints], Ints]]:
    """The largest value of each row ``[n, C]``, and a copy of all values in which further operations are fast.

    Returns:
        The copy, in the type asked for and transposed if C is small, whose memory the next call in this thread uses;
        its axis of classes; the first class that has the largest value of each row; that value, float64; and a
        function that gives the positions in the flat copy of one class of each row.
    """
    rows, classes = values.shape
    start = np.arange(rows)
    if classes > FEW:
        start *= classes
        predicted = values.argmax(1)
        copy, axis = _workspace.array("copy", (rows, classes), dtype or values.dtype), 1
        np.copyto(copy, values)
        top, lowest = copy.reshape(-1).take(start + predicted), values.min()
        position = lambda choice: start + choice  # noqa: E731
    else:
        copy, axis = _workspace.array("copy", (classes, rows), dtype or values.dtype), 0
        np.copyto(copy, values.T)
        top, lowest = copy.max(0), copy.min()
        predicted = _first_equal(copy, top)
        position = lambda choice: start + rows * choice  # noqa: E731
    if not (np.isfinite(top).all() and lowest > -math.inf):
        raise ValueError(f"{kind} must be finite, got NaN or infinity")
    if kind == "probabilities" and lowest < 0:
        raise ValueError(f"probabilities must lie in [0, 1], got {lowest:g}")
    return copy, axis, predicted, top.astype(np.float64, copy=False), position


def _first_equal(values: Array, top: Array) -> Ints:
    """The first of the classes ``[C, n]`` that has the largest value of each row.

    Small whole numbers that fall with the class: their maximum, much faster than argmax, tells the first.
    """
    classes = len(values)
    is_top = _workspace.array("is top", values.shape, np.bool_)
    np.equal(values, top, out=is_top)
    ranks = _workspace.array("ranks", values.shape, np.uint8)
    np.multiply(is_top, np.arange(classes, 0, -1, dtype=np.uint8)[:, None], out=ranks)
    first: Ints = np.subtract(classes, ranks.max(0), dtype=np.int64)
    return np.minimum(first, classes - 1)  # of NaN, which equals nothing


def finish_rows(reduced: Reduced, labels: Ints, kind: str, precision: Precision | None) -> Finished:
    """What follows from the reductions, row by row."""
    top, at_label, others, squares, predicted = reduced
    if kind == "logits":
        nll = np.log1p(others) - at_label
        confidence = 1 / (1 + others)
        share = np.exp(at_label) * confidence
        # 1 + others - 1, so that what is too small to be added is no shortfall, as it is none of the confidence.
        shortfall = ((1 + others) - 1) * confidence
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
    weight: Doubles | None = None  # of each sample; None if all count alike

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


def top_label_blocks(
    values: Array,
    labels: Array,
    *,
    kind: str,
    ignore_index: int | None = None,
    by_class: ByClass | None = None,
    weight: Doubles | None = None,
) -> Iterator[TopLabel]:
    """Go through ``[N, C]`` or ``[N, C, ...]`` with labels ``[N]`` or ``[N, ...]``, a block of samples at a time.

    Args:
        values: logits or probabilities.
        labels: whole numbers.
        kind: what the values are.
        ignore_index: label that counts nowhere.
        by_class: sums the probabilities of every class on the way.
        weight: ``[N]`` of the rows, or ``[N, ...]`` of the labels.
    """
    precision = None if kind == "logits" else precision_of(values)
    for z, truth, first, counted in counted_rows(values, labels, ignore_index):
        if not len(truth):  # all of the block is ignored
            continue
        weights = weight_of_block(weight, first, len(truth), counted)
        reduced, finished = judge_rows(z, truth, kind, precision, by_class, weights)
        yield TopLabel(*finished, truth, reduced.predicted, reduced.top, precision, first, counted, weights)


def weight_of_block(weight: Doubles | None, first: int, number: int, counted: Bools | None) -> Doubles | None:
    """The weights of the samples of a block of `counted_rows`, of weights of all rows or of all labels."""
    if weight is None:
        return None
    if counted is None:
        return weight[first : first + number].reshape(-1)
    mask = counted.reshape(len(counted), -1)
    part = weight[first : first + len(counted)].reshape(len(counted), -1)
    weights: Doubles = np.broadcast_to(part, mask.shape)[mask]
    return weights


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


def without_weightless(values: Doubles, weight: Doubles) -> Doubles:
    """The values, with 0 where the weight is 0: an infinite one counts as little there as any other."""
    return np.where(weight > 0, values, 0.0)


class SketchCounts:
    """The counts of one update, kept apart until all of it has been checked."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Ints, Doubles | None]] = []
        self.length = 0
        self.cells: Doubles | None = None
        self.base_counts, self.base_sums, self.base_squares = np.zeros((3, 2 * BASE))
        self.moments = np.zeros(MOMENTS)

    def add(self, part: Tally) -> None:
        """Add the tally of some samples."""
        self.base_counts += part.base_counts
        self.base_sums += part.base_sums
        self.base_squares += part.base_squares
        self.moments += part.moments
        self.waiting.append((part.code, part.weight))
        self.length += len(part.code)
        if self.length >= _FLUSH:
            self.cells = np.zeros(2 * CELLS) if self.cells is None else self.cells
            self._count_waiting(self.cells)

    def add_to(
        self, cells: Doubles, base_counts: Doubles, base_sums: Doubles, base_squares: Doubles, moments: Doubles
    ) -> None:
        """Add everything to the state of a sketch."""
        self._count_waiting(cells)
        if self.cells is not None:
            cells += self.cells
        base_counts += self.base_counts
        base_sums += self.base_sums
        base_squares += self.base_squares
        moments += self.moments

    def _count_waiting(self, cells: Doubles) -> None:
        for codes, weight in self.waiting:
            np.add.at(cells, codes, 1.0 if weight is None else weight)
        self.waiting, self.length = [], 0
