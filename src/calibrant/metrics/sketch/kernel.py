r"""Reductions over the classes: what each row of logits or probabilities contributes, in one trip through the cache.

Per row z of C numbers with label y: the largest m and the first class that has it; of logits
:math:`\sum_j e^{z_j - m}`, :math:`\sum_j e^{2(z_j - m)}` and :math:`z_y - m`; of probabilities the sum, the sum of
squares and the value at y. With m the largest logit, confidence is 1 over the sum of exponentials; what else follows
from these five numbers is `finish_rows`.

`define` and `finish_rows` say so in NumPy, in float64, and are what small inputs use. Large ones go through the same
formulas compiled by Numba (`compiled`), on as many threads as there are cores; the compiled code is kept on disk.
`judge_rows` is float64 either way. `tally_rows`, for sketches, takes the exponentials of float32 logits in float32, and
once more in float64 where one class holds nearly everything (a sum below `SATURATED`), so that confidences are ranked
down to 2e-16 from 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from calibrant._arrays import CHUNK, Array, Doubles, Precision, import_compiled, in_threads, is_half, row_slices
from calibrant._validation import FARTHEST_SUM, Bools, Ints
from calibrant.metrics.sketch.grid import BASE, cells_of, cells_of_confidence

SATURATED = 1.0 + 2.0**-7
LARGE = 4_000_000  # numbers from which on loading what was compiled pays, or compiling it, once, for seconds


def is_large(numbers: int) -> bool:
    """Whether so many numbers go through the compiled passes."""
    return numbers >= LARGE


class Reduced(NamedTuple):
    """One number per row, float64 but where said.

    Attributes:
        top: the largest value.
        at_label: the label's logit minus the largest, or the label's probability.
        total: the sum of exponentials relative to the largest logit, or of probabilities.
        squares: the sum of their squares.
        predicted: the first class that has the largest value, int64.
    """

    top: Doubles
    at_label: Doubles
    total: Doubles
    squares: Doubles
    predicted: Ints


class Finished(NamedTuple):
    """One number per row, float64 but where said.

    Attributes:
        confidence: of the predicted class.
        shortfall: 1 - confidence; for logits without the rounding of that subtraction.
        correct: whether the label was predicted, bool.
        nll: negative log-likelihood of the label.
        brier: sum over classes of squared differences.
        cells: of the confidence in the partition of `grid`, int64.
    """

    confidence: Doubles
    shortfall: Doubles
    correct: Bools
    nll: Doubles
    brier: Doubles
    cells: Ints


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
        fill(as_rows(z), labels[rows], kind, precision, _cut(reduced, rows), _cut(finished, rows))

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
    """The same for rows of which nothing but counts and sums are wanted, so that little leaves the cache."""

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
    """Room for the codes of some rows, and sums that are 0."""
    return Tally(np.empty(count, np.int32), np.zeros(2 * BASE, np.int64), np.zeros(2 * BASE), np.zeros(5))


def _columns(count: int) -> tuple[Reduced, Finished]:
    top, at_label, total, squares, confidence, shortfall, nll, brier = np.empty((8, count))
    predicted, cells = np.empty((2, count), np.int64)
    finished = Finished(confidence, shortfall, np.empty(count, np.bool_), nll, brier, cells)
    return Reduced(top, at_label, total, squares, predicted), finished


def _cut(columns: Any, rows: slice) -> Any:
    return type(columns)(*(column[rows] for column in columns))


def as_rows(z: Array) -> Array:
    """Numbers as compiled passes take them: float32 or float64 of this machine, one after the other."""
    return np.ascontiguousarray(z, dtype=np.float64 if z.itemsize >= 8 else np.float32)


def _fill_plainly(
    z: Array, labels: Ints, kind: str, precision: Precision | None, reduced: Reduced, finished: Finished
) -> None:
    rows = define(z, labels, kind)
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


def define(z: Array, labels: Ints, kind: str) -> Reduced:
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
    return import_compiled("calibrant.metrics.sketch.compiled")
