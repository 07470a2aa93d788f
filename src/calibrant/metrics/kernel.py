r"""Reductions over the classes: what each row of logits or probabilities contributes, in one trip through the cache.

Per row z of C numbers with label y: the largest m and the first class that has it; of logits
:math:`\sum_j e^{z_j - m}`, :math:`\sum_j e^{2(z_j - m)}` and :math:`z_y - m`; of probabilities the sum, the sum of
squares and the value at y. With m the largest logit, confidence is 1 over the sum of exponentials; what else follows
from these five numbers is `finish_rows`.

`reduce_rows` and `finish_rows` are these formulas in NumPy, in float64, which small inputs use. Large ones use the same
formulas compiled by Numba (`compiled`), on as many threads as there are cores; the compiled code is kept on disk.
`judge_rows` is float64 either way. `tally_rows`, for sketches, takes the exponentials of float32 logits in float32, and
once more in float64 where one class holds nearly everything (a sum below `SATURATED`), so that confidences are ranked
down to 2e-16 from 1.

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

from calibrant._arrays import (
    CHUNK,
    Array,
    Doubles,
    Precision,
    class_rows,
    import_compiled,
    in_threads,
    is_half,
    precision_of,
    row_slices,
    take_rows,
)
from calibrant._validation import FARTHEST_SUM, Bools, Ints
from calibrant.metrics.grid import BASE, CELLS, base_bins, cells_of, cells_of_confidence, squash

SATURATED = 1.0 + 2.0**-7
LARGE = 4_000_000  # numbers from which on loading what was compiled pays, or compiling it, once, for seconds
BLOCK = 1 << 17  # samples per block
BLOCK_NUMBERS = 1 << 23  # numbers per block: what a block takes in memory is a small multiple of them
_FLUSH = 1 << 23  # codes of cells to hold before they are counted


def is_large(numbers: int) -> bool:
    """Whether so many numbers go through the compiled passes."""
    return numbers >= LARGE


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


def judge_rows(
    values: Array, labels: Ints, kind: str, precision: Precision | None, *, large: bool
) -> tuple[Reduced, Finished]:
    """Reduce ``[n, C]`` values of any floating-point type, with labels ``[n]`` in 0..C-1, and finish.

    ``precision`` is the type of the given probabilities, None for logits; ``large`` says that there are so many,
    in this and other calls, that the compiled pass pays. NaN and infinite values are refused.
    """
    reduced, finished = _columns(len(values))
    fill = _fill_compiled if large else _fill_plainly

    def work(rows: slice) -> None:
        z = values[rows].astype(np.float64, copy=False) if large and kind == "logits" else values[rows]
        fill(as_rows(z), labels[rows], kind, precision, take_rows(reduced, rows), take_rows(finished, rows))

    if large:
        list(in_threads(work, row_slices(len(values), values.shape[1], CHUNK // 4)))
    else:
        for rows in row_slices(len(values), values.shape[1]):
            work(rows)
    return reduced, finished


class Tally(NamedTuple):
    """What a sketch adds up, of some rows: codes of their cells, and sums over base bins and over all."""

    code: npt.NDArray[np.int32]
    base_counts: Ints
    base_sums: Doubles
    moments: Doubles


def tally_rows(values: Array, labels: Ints, kind: str, precision: Precision | None) -> Iterator[Tally]:
    """Count and sum rows, a chunk at a time, keeping nothing else of them, so that little leaves the cache."""

    def work(rows: slice) -> Tally:
        z, tally = as_rows(values[rows]), empty_tally(rows.stop - rows.start)
        bits, passes, y = z.view(f"i{z.itemsize}"), compiled_passes(), labels[rows]
        if kind == "logits":
            furthest = 1.0 if passes.tally_logits(z, bits, y, *tally) else math.nan
        else:
            furthest = passes.tally_probabilities(z, bits, y, precision == "float32", *tally)
        if math.isnan(furthest):
            raise ValueError(f"{kind} must be finite, got NaN or infinity")
        _check_sum(furthest)
        return tally

    return in_threads(work, row_slices(len(values), values.shape[1], CHUNK // 4))


def empty_tally(count: int) -> Tally:
    """A tally of ``count`` rows, with all sums at 0."""
    return Tally(np.empty(count, np.int32), np.zeros(2 * BASE, np.int64), np.zeros(2 * BASE), np.zeros(5))


def _columns(count: int) -> tuple[Reduced, Finished]:
    top, at_label, total, squares, confidence, shortfall, nll, brier = np.empty((8, count))
    predicted, cells = np.empty((2, count), np.int64)
    finished = Finished(confidence, shortfall, np.empty(count, np.bool_), nll, brier, cells)
    return Reduced(top, at_label, total, squares, predicted), finished


def as_rows(z: Array) -> Array:
    """Numbers as compiled passes take them: contiguous, float32 or float64 in native byte order."""
    return np.ascontiguousarray(z, dtype=np.float64 if z.itemsize >= 8 else np.float32)


def _fill_plainly(
    z: Array, labels: Ints, kind: str, precision: Precision | None, reduced: Reduced, finished: Finished
) -> None:
    rows = reduce_rows(z, labels, kind)
    _check_sums(rows.total, kind)
    results = *rows, *finish_rows(rows, labels, kind, precision)
    for column, numbers in zip((*reduced, *finished), results, strict=True):
        column[...] = numbers


def _fill_compiled(
    z: Array, labels: Ints, kind: str, precision: Precision | None, reduced: Reduced, finished: Finished
) -> None:
    passes, r = compiled_passes(), reduced
    reduce = passes.reduce_logits if kind == "logits" else passes.reduce_probabilities
    if not reduce(z, z.view(f"i{z.itemsize}"), labels, *r):
        raise ValueError(f"{kind} must be finite, got NaN or infinity")
    _check_sums(r.total, kind)
    if kind == "logits":
        passes.finish_logits(labels, r.at_label, r.total, r.squares, r.predicted, *finished)
        return
    single = precision == "float32"
    passes.finish_probabilities(labels, r.at_label, r.top, r.squares, r.predicted, single, *finished)
    if precision is not None and is_half(precision):  # which come to float32 on their way
        finished.cells[...] = cells_of_confidence(finished.confidence, precision)


def _check_sums(total: Doubles, kind: str) -> None:
    if kind == "probabilities" and len(total):
        _check_sum(float(total[np.abs(total - 1).argmax()]))


def _check_sum(furthest: float) -> None:
    """Raise if probabilities do not sum to 1."""
    if abs(furthest - 1) > FARTHEST_SUM:
        raise ValueError(f"probabilities must sum to 1, got a row that sums to {furthest:g}")


def reduce_rows(z: Array, labels: Ints, kind: str) -> Reduced:
    """The definition of what a row contributes, for float32 or float64 ``[n, C]``."""
    if not np.isfinite(z).all():
        raise ValueError(f"{kind} must be finite, got NaN or infinity")
    predicted = z.argmax(1)
    rows = np.arange(len(z))
    top, at_label = (z[rows, classes].astype(np.float64) for classes in (predicted, labels))
    if kind == "probabilities":
        p = z.astype(np.float64)
        return Reduced(top, at_label, p.sum(1), np.square(p).sum(1), predicted)
    exps = np.exp(z - top[:, None])
    return Reduced(top, at_label - top, exps.sum(1), np.square(exps).sum(1), predicted)


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


def compiled_passes() -> Any:
    """The compiled passes; imports Numba."""
    return import_compiled("calibrant.metrics.compiled")


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
    large: bool = False  # whether it is one block of so many that compiled passes pay

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


#: Called on each block with its values [n, C], what they were reduced to, their labels, and whether they are of many.
Visitor = Callable[[Array, Reduced, Ints, bool], None]


def top_label_blocks(
    values: Array,
    labels: Array,
    *,
    kind: str,
    ignore_index: int | None = None,
    visit: Visitor | None = None,
    large: bool = False,
) -> Iterator[TopLabel]:
    """Go through ``[N, C]`` or ``[N, C, ...]`` with labels ``[N]`` or ``[N, ...]``, a block of samples at a time.

    Args:
        values: logits or probabilities.
        labels: whole numbers.
        kind: what the values are.
        ignore_index: label that counts nowhere.
        visit: called on every block on the way.
        large: whether these are some of many, for which compiled passes pay even if these are few.
    """
    large = large or is_large(values.size)
    precision = None if kind == "logits" else precision_of(values)
    for z, truth, first, counted in counted_rows(values, labels, ignore_index):
        reduced, finished = judge_rows(z, truth, kind, precision, large=large)
        if visit is not None:
            visit(z, reduced, truth, large)
        largest = reduced.predicted, reduced.top
        yield TopLabel(*finished, truth, *largest, precision, first, counted, large)


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
    """The counts of one update, kept apart until all of it has been checked.

    Args:
        large: whether there are so many samples that counting them by compiled code pays.
    """

    def __init__(self, *, large: bool) -> None:
        self.large = large
        self.waiting: list[npt.NDArray[np.int32]] = []
        self.length = 0
        self.cells: Ints | None = None
        self.base_counts = np.zeros(2 * BASE, np.int64)
        self.base_sums = np.zeros(2 * BASE)
        self.moments = np.zeros(5)

    def observe(self, top: TopLabel, ranks: Doubles | None = None) -> None:
        """Judged samples, ranked by their confidence or by other scores."""
        if self.large and ranks is None:
            tally = empty_tally(len(top.cells))
            compiled_passes().tally(top.cells, top.correct, top.confidence, top.nll, top.brier, *tally)
            self.add(tally)
            return
        cells = top.cells if ranks is None else cells_of(*squash(ranks))
        self.count(cells, top.confidence, top.correct, base_bins(top.cells))
        nll, brier = top.nll, top.brier
        with np.errstate(invalid="ignore"):  # an infinite NLL, of a label with probability 0
            self.moments += np.array([nll.sum(), nll @ nll, brier.sum(), brier @ brier, len(nll)])

    def count(self, cells: Ints, confidence: Doubles, correct: Bools, base: npt.NDArray[np.int32]) -> None:
        """Samples by their cells and by the base bins of their confidence."""
        side = 2 * base + ~correct
        self.base_counts += np.bincount(side, minlength=2 * BASE)
        self.base_sums += np.bincount(side, confidence, minlength=2 * BASE)
        self._wait((cells + CELLS * ~correct).astype(np.int32))

    def add(self, tally: Tally) -> None:
        """Samples that were counted already, but for their cells."""
        self.base_counts += tally.base_counts
        self.base_sums += tally.base_sums
        self.moments += tally.moments
        self._wait(tally.code)

    def _wait(self, code: npt.NDArray[np.int32]) -> None:
        self.waiting.append(code)
        self.length += len(code)
        if self.length >= _FLUSH:
            self.cells = np.zeros(2 * CELLS, np.int64) if self.cells is None else self.cells
            self.flush(self.cells)

    def flush(self, counts: Ints) -> None:
        """Add the codes that wait to the counts of all cells, ``[2 * CELLS]``."""
        if self.large:
            for code in self.waiting:
                compiled_passes().count_codes(code, counts)
        elif self.waiting and self.length < CELLS // 8:
            np.add.at(counts, np.concatenate(self.waiting), 1)
        elif self.waiting:
            counts += np.bincount(np.concatenate(self.waiting), minlength=2 * CELLS)
        self.waiting, self.length = [], 0
