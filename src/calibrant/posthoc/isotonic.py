r"""Isotonic regression [Zadrozny2002]: the rising function of a probability that fits best what came true.

.. math:: \min_{f \text{ rising}} \sum_n \bigl( f(p_n) - [y_n = k] \bigr)^2

=============  ==============================================
paper          here
=============  ==============================================
scores s       p, the softmax probability
PAV            `pav`: pool adjacent violators
=============  ==============================================

Equal probabilities are pooled first. f is constant over a block of pooled samples, from its lowest probability to its
highest, linear between blocks, and constant beyond the first and the last: as
``sklearn.isotonic.IsotonicRegression(out_of_bounds="clip")`` has it, but for probabilities less than 1e-15 apart, which
scikit-learn takes for equal. ``knots_`` and ``shares_`` are the ends of the blocks.

``mode="one-vs-rest"`` (default) is what [Zadrozny2002, Guo2017] and scikit-learn do with more than two classes: a
function for each, then normalised. It changes predictions, and with few samples of a class it overfits;
``mode="top-label"`` fits the confidence alone and keeps every prediction. `calibrant.posthoc.tables` says how the
shares become logits, also where they are 0.

Memory: the probabilities of all samples for as many classes as fit in 128 MB, with a pass over the logits for each lot.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from calibrant.posthoc.ops import Ops
from calibrant.posthoc.stream import Stream
from calibrant.posthoc.tables import Doubles, Mode, Tabular, check_shares, columns, padded, ragged

V = TypeVar("V")

_STEEPEST = 1e300


class IsotonicCalibration(Tabular):
    """Isotonic regression of each class's probability, or of the confidence.

    Args:
        mode: ``"one-vs-rest"`` for a function of each class, ``"top-label"`` for one of the confidence.

    Attributes:
        knots_: where the pieces of each function end, ``[D, M]``, infinity after the last; D is C, or 1 for top-label.
        shares_: its values there, ``[D, M]``.
        passes_: how many passes over the logits it took.

    Example:
        >>> import torch
        >>> from calibrant.posthoc import IsotonicCalibration
        >>> generator = torch.Generator().manual_seed(0)
        >>> honest = 2 * torch.randn(4000, 5, generator=generator)
        >>> labels = torch.multinomial(honest.softmax(1), 1, generator=generator).squeeze(1)
        >>> calibration = IsotonicCalibration(mode="top-label").fit(3 * honest, labels)
        >>> found = calibration.predict_proba(3 * honest)
        >>> bool((found.argmax(1) == honest.argmax(1)).all())
        True
        >>> bool((found.amax(1) - honest.softmax(1).amax(1)).abs().mean() < 0.05)
        True
    """

    name = "isotonic"
    learned = "knots_"

    knots_: Doubles
    shares_: Doubles
    passes_: int

    def __init__(self, mode: Mode = "one-vs-rest") -> None:
        self.mode = mode

    def _fit(self, data: Stream) -> None:
        self._check_mode()
        found = [isotonic(p, hit) for p, hit in columns(data, self.mode)]
        self._take([x for x, _ in found], [y for _, y in found])
        self.passes_ = data.passes

    def _take(self, knots: list[Doubles], shares: list[Doubles]) -> None:
        self.knots_, self.shares_ = padded(knots, np.inf), padded(shares, np.nan)

    def _tables(self) -> int:
        return len(self.knots_)

    def _looked_up(self, ops: Ops[V], p: V) -> V:
        x, y = self.knots_, self.shares_
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            slope = np.minimum(np.diff(y) / np.diff(x), _STEEPEST)
        # No piece rises after the last knot, nor where the table is filled up.
        slope = np.where(np.isfinite(x[:, 1:]), slope, 0.0)
        flat = np.zeros((len(x), 1))
        slopes = np.concatenate([flat, slope, flat], 1)
        values = np.concatenate([y[:, :1], y], 1)
        origins = np.concatenate([flat, np.where(np.isfinite(x), x, 0.0)], 1)
        # From the piece's own end: an intercept at 0 would lose digits where the slope is steep.
        ahead = ops.sub(p, ops.lookup(p, x, origins))
        return ops.add(ops.lookup(p, x, values), ops.mul(ops.lookup(p, x, slopes), ahead))

    def state(self) -> dict[str, Any]:
        """The ends of the pieces, all tables one after the other, and how many each has."""
        self._check_fitted(self.learned)
        inside = np.isfinite(self.knots_)
        lengths = inside.sum(1).tolist()
        return {"lengths": lengths, "knots": self.knots_[inside].tolist(), "shares": self.shares_[inside].tolist()}

    def restore(self, state: Mapping[str, Any], num_classes: int) -> None:
        """Take over the tables."""
        knots, shares = ragged(state, num_classes, "knots", "shares")
        if any((np.diff(row) <= 0).any() or row[0] < 0 or row[-1] > 1 + 1e-9 for row in knots):
            raise ValueError("knots must rise from 0 or more to 1 at most in every table")
        check_shares("shares", shares, rising=True)
        self._take(knots, shares)
        self.n_classes_ = num_classes


def isotonic(p: Doubles, hit: npt.NDArray[np.bool_]) -> tuple[Doubles, Doubles]:
    """Knots and values of the rising function through probabilities ``[N]`` and what came true ``[N]``.

    Example:
        >>> import numpy as np
        >>> from calibrant.posthoc.isotonic import isotonic
        >>> isotonic(np.array([0.1, 0.4, 0.6, 0.9]), np.array([False, True, False, True]))
        (array([0.1, 0.4, 0.6, 0.9]), array([0. , 0.5, 0.5, 1. ]))
    """
    order = np.argsort(p, kind="stable")
    x, y = p[order], hit[order].astype(np.float64)
    # What differs in the last digits alone is one value, rounded in two ways.
    starts = np.flatnonzero(np.concatenate([[True], np.diff(x) > 1e-12 * x[1:]]))
    weights = np.diff(np.append(starts, len(x))).astype(np.float64)
    sums = np.add.reduceat(y, starts)
    first = pav(sums, weights)
    last = np.append(first[1:], len(starts)) - 1
    value = np.add.reduceat(sums, first) / np.add.reduceat(weights, first)
    x = x[starts]
    wide = last > first
    ends = np.stack([first, last], 1)[np.stack([np.ones_like(wide), wide], 1)]
    return x[ends], np.repeat(value, 1 + wide)


def pav(sums: Doubles, weights: Doubles) -> npt.NDArray[np.int64]:
    """Pool adjacent violators: where each block of the rising means sums / weights begins.

    Neighbours whose means do not rise always end in one block, so that all such runs are pooled at once, again and
    again while that removes a tenth of the blocks or more; the rest goes one by one. Either way the time is linear.

    Example:
        >>> import numpy as np
        >>> from calibrant.posthoc.isotonic import pav
        >>> pav(np.array([1.0, 3.0, 2.0, 5.0]), np.ones(4))
        array([0, 1, 3])
    """
    starts = np.arange(len(sums))
    while True:
        # Cross-multiplied: exact for counts.
        rises = sums[1:] * weights[:-1] > sums[:-1] * weights[1:]
        keep = np.flatnonzero(np.concatenate([[True], rises]))
        if len(keep) == len(starts):
            return starts
        shrunk = len(keep) <= 0.9 * len(starts)
        starts, sums, weights = starts[keep], np.add.reduceat(sums, keep), np.add.reduceat(weights, keep)
        if not shrunk:
            return starts[_one_by_one(sums.tolist(), weights.tolist())]


def _one_by_one(sums: list[float], weights: list[float]) -> list[int]:
    blocks: list[tuple[int, float, float]] = []
    for i, (s, w) in enumerate(zip(sums, weights, strict=True)):
        start = i
        while blocks and s * blocks[-1][2] <= blocks[-1][1] * w:
            start, before, weight = blocks.pop()
            s, w = s + before, w + weight
        blocks.append((start, s, w))
    return [start for start, _, _ in blocks]
