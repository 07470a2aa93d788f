r"""One pass over logits or probabilities: what each sample contributes to every top-label metric.

With m the largest logit of a sample and :math:`t = \sum_{j \ne \hat y} e^{z_j - m}`, confidence is :math:`1/(1+t)`. The
reductions over the classes are `kernel.reduce_rows`; here follows the arithmetic on their results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant._arrays import Precision, precision_of, row_slices
from calibrant.metrics.cells import cells_of, snapped
from calibrant.metrics.kernel import LARGE, Reduced, reduce_rows

Array = npt.NDArray[Any]
Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

BLOCK = 1 << 17  # samples per block
BLOCK_NUMBERS = 1 << 23  # numbers per block: what a block takes in memory is a small multiple of them

#: Called on each chunk with unnormalised probabilities [n, C], their sums [n] and labels [n].
Visitor = Callable[[Array, Doubles, Ints], None]


@dataclass(frozen=True)
class TopLabel:
    """Statistics of n samples, each ``[n]``, float64 but where said.

    Attributes:
        confidence: of the predicted class.
        shortfall: 1 - confidence; for logits without the rounding of that subtraction.
        correct: bool; of tied maxima the first is the prediction.
        labels: int64.
        predicted: int64, or None where it is not known.
        max_logit: the largest value of the sample: its largest logit or probability.
        nll: negative log-likelihood of the label.
        brier: sum over classes of squared differences.
        given: the type in which the confidence was given, as a probability or itself; None if it is ours, of logits.
        first: the row of the input where the block begins.
        counted: bool, which positions of the block's rows count, ``[rows, ...]``; None if all do and each row is one.
    """

    confidence: Doubles
    shortfall: Doubles
    correct: Bools
    labels: Ints
    predicted: Ints | None
    max_logit: Doubles
    nll: Doubles
    brier: Doubles
    given: Precision | None
    first: int
    counted: Bools | None

    def cells(self) -> Ints:
        """The cell of each sample's confidence; one that was rounded to an edge lies on it."""
        if self.given is None or self.given == "float64":
            return cells_of(self.confidence, self.shortfall)
        placed = snapped(self.confidence, self.given)
        return cells_of(placed, 1 - placed)

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
        if values.ndim == 2:
            return part[self.counted]
        return np.moveaxis(part.reshape(*part.shape[:2], -1), 1, -1)[self.counted]


def blocks(
    values: Array, labels: Array, *, kind: str, ignore_index: int | None = None, visit: Visitor | None = None
) -> Iterator[TopLabel]:
    """Go through ``[N, C]`` or ``[N, C, ...]`` with labels ``[N]`` or ``[N, ...]``, a block of samples at a time.

    Args:
        values: logits or probabilities.
        labels: whole numbers.
        kind: what the values are.
        ignore_index: label that counts nowhere.
        visit: called on every chunk of unnormalised probabilities on the way.
    """
    classes, spots = values.shape[1], math.prod(values.shape[2:])
    flat = values.reshape(len(values), classes, -1) if values.ndim > 2 else values
    limit = min(BLOCK * classes, max(BLOCK_NUMBERS, classes * spots))
    large = values.size >= LARGE
    for rows in row_slices(len(values), classes * spots, limit):
        part, y = flat[rows], labels[rows].reshape(rows.stop - rows.start, -1)
        z = np.moveaxis(part, 1, 2).reshape(-1, classes) if part.ndim == 3 else part
        counted = None
        if ignore_index is not None or values.ndim > 2:
            counted = np.ones(y.shape, np.bool_) if ignore_index is None else y != ignore_index
            if not counted.all():
                z = z[counted.reshape(-1)]
        truth = (y if counted is None else y[counted]).reshape(-1).astype(np.int64, copy=False)
        reduced = reduce_rows(z, truth, kind, large=large)
        if kind == "probabilities" and len(truth):
            furthest = int(np.abs(reduced.total - 1).argmax())
            if abs(reduced.total[furthest] - 1) > 1e-2:
                raise ValueError(f"probabilities must sum to 1, got a row that sums to {reduced.total[furthest]:g}")
        if visit is not None:
            _show(visit, z, reduced, truth, kind, large)
        given = None if kind == "logits" else precision_of(values)
        counted = counted if counted is None or values.ndim > 2 else counted[:, 0]
        yield combined(reduced, truth, kind, given, rows.start, counted)


def _show(visit: Visitor, z: Array, reduced: Reduced, labels: Ints, kind: str, large: bool) -> None:
    """Hand the probabilities out, in chunks that fit the cache."""
    for rows in row_slices(len(z), z.shape[1]):
        if kind == "probabilities":
            visit(z[rows], np.ones(rows.stop - rows.start), labels[rows])
        else:
            part = z[rows] if z.dtype == np.float64 or large else z[rows].astype(np.float64)
            part = part.astype(np.float32) if part.itemsize < 4 else part
            visit(np.exp(part - reduced.top[rows, None].astype(part.dtype)), reduced.total[rows], labels[rows])


def combined(
    reduced: Reduced, labels: Ints, kind: str, given: Precision | None, first: int, counted: Bools | None
) -> TopLabel:
    """Arithmetic on the samples of a block."""
    top, at_label, total, squares, predicted = reduced
    if kind == "logits":
        nll = np.log(total) - at_label
        share = np.exp(-nll)
        confidence = 1 / total
        shortfall = (total - 1) * confidence
        squares = squares * np.square(confidence)
    else:
        share = at_label
        with np.errstate(divide="ignore"):  # a label of probability 0
            nll = np.maximum(-np.log(share), 0.0)
        confidence = np.minimum(top, 1.0)
        shortfall = 1 - confidence
    brier = np.maximum(squares - 2 * share + 1, 0.0)
    correct = predicted == labels
    return TopLabel(confidence, shortfall, correct, labels, predicted, top, nll, brier, given, first, counted)
