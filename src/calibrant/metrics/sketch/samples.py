"""One pass over logits or probabilities: the samples of each block, with what each contributes to every metric."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from calibrant._arrays import Array, Doubles, Precision, class_rows, precision_of, row_slices
from calibrant._validation import Bools, Ints
from calibrant.metrics.sketch.kernel import Finished, Reduced, is_large, judge_rows

BLOCK = 1 << 17  # samples per block
BLOCK_NUMBERS = 1 << 23  # numbers per block: what a block takes in memory is a small multiple of them

#: Called on each block with its values [n, C], what they were reduced to, their labels, and whether they are of many.
Visitor = Callable[[Array, Reduced, Ints, bool], None]


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
        cells: int64, where each confidence lies in the partition of `grid`.
        precision: the type in which confidences or probabilities were given; None if computed from logits.
        first: the row of the input where the block begins.
        counted: bool, which positions of the block's rows count, ``[rows, ...]``; None if all do and each row is one.
        large: whether it is one block of so many that compiled passes pay.
    """

    confidence: Doubles
    shortfall: Doubles
    correct: Bools
    labels: Ints
    predicted: Ints | None
    max_logit: Doubles
    nll: Doubles
    brier: Doubles
    cells: Ints
    precision: Precision | None
    first: int
    counted: Bools | None
    large: bool = False

    @classmethod
    def of(
        cls,
        reduced: Reduced,
        finished: Finished,
        labels: Ints,
        precision: Precision | None,
        first: int = 0,
        counted: Bools | None = None,
        large: bool = False,
    ) -> TopLabel:
        """The samples of a block that was reduced and finished."""
        confidence, shortfall, correct, nll, brier, cells = finished
        largest = reduced.predicted, reduced.top
        return cls(
            confidence, shortfall, correct, labels, *largest, nll, brier, cells, precision, first, counted, large
        )

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
        yield TopLabel.of(reduced, finished, truth, precision, first, counted, large)


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
