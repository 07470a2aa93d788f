r"""Isotonic regression and histogram binning: a probability becomes the share that came true around it.

**Isotonic regression** [Zadrozny2002]: the rising function of a probability that fits best what came true.

.. math:: \min_{f \text{ rising}} \sum_n \bigl( f(p_n) - [y_n = k] \bigr)^2

The paper's scores s are p, the softmax probability. Equal probabilities are pooled first. f is constant over a block of
pooled samples, from its lowest probability to its highest, linear between blocks, and constant beyond the first and the
last: as ``sklearn.isotonic.IsotonicRegression(out_of_bounds="clip")`` has it, but for probabilities less than 1e-15
apart, which scikit-learn takes for equal. ``knots_`` and ``shares_`` are the ends of the blocks.

**Histogram binning** [Zadrozny2001; Guo2017, Sec. 4.1]: the share that came true in a bin.

.. math:: f(p) = \frac{\sum_{n \in B(p)} [y_n = k]}{|B(p)|}

The paper's M is ``bins``, a_m is ``edges_``, theta_m is ``shares_``. Bins are open below and closed above, (lo, hi], as
in the ECE; 0 is in the first. ``binning="width"`` has edges at m / M; an empty bin's share is its middle.
``binning="mass"`` has equally many samples in each bin as far as can be: its edges lie halfway between samples, equal
probabilities are never parted, and bins that would be empty are left out. [Zadrozny2001] has 10 bins of equal mass,
[Guo2017] chooses; the default, 15 of equal width, is the ECE's, and takes one pass and no memory.

`calibrant.posthoc.lookup` says how shares become logits in both modes, also where they are 0.
"""

from __future__ import annotations

import itertools
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt

from calibrant._validation import MOST_BINS, choice, whole
from calibrant.posthoc.base import Doubles, Stream
from calibrant.posthoc.lookup import MODES, Bools, Mode, Tabular, columns, probabilities
from calibrant.posthoc.ops import Ops

V = TypeVar("V")

_STEEPEST = 1e300
_MANY = 100  # passes of pooling, when each pools little: means that rise, and then one far below them all


class IsotonicCalibration(Tabular):
    """Isotonic regression of each class's probability, or of the confidence.

    Args:
        mode: ``"one-vs-rest"`` for a function of each class, ``"top-label"`` for one of the confidence.

    Attributes:
        knots_: where the pieces of each function end, ``[D, M]``, infinity after the last; D is C, or 1 for top-label.
        shares_: its values there, ``[D, M]``.

    Example:
        >>> import torch
        >>> from calibrant.posthoc import IsotonicCalibration
        >>> generator = torch.Generator().manual_seed(0)
        >>> honest = 2 * torch.randn(4000, 5, generator=generator)
        >>> labels = torch.multinomial(honest.softmax(1), 1, generator=generator).squeeze(1)
        >>> calibration = IsotonicCalibration(mode="top-label").fit(3 * honest, labels)
        >>> calibrated = calibration.predict_proba(3 * honest)
        >>> bool((calibrated.argmax(1) == honest.argmax(1)).all())
        True
        >>> bool((calibrated.amax(1) - honest.softmax(1).amax(1)).abs().mean() < 0.05)
        True
    """

    name = "isotonic"
    title = "Isotonic regression"
    learned = "knots_"

    knots_: Doubles

    def __init__(self, mode: Mode = "one-vs-rest") -> None:
        self.mode = mode

    def _fit(self, data: Stream) -> None:
        mode = choice("mode", self.mode, MODES)
        self._set_tables([isotonic(p, hit) for p, hit in columns(data, mode)])

    def _look_up(self, ops: Ops[V], p: V) -> V:
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

    def _check_table(self, ends: Doubles, shares: Doubles) -> None:
        if (np.diff(ends) <= 0).any() or ends[0] < 0 or ends[-1] > 1 + 1e-9:
            raise ValueError("knots must rise from 0 or more to 1 at most in every table")
        if shares.min() < 0 or shares.max() > 1 or (np.diff(shares) < 0).any():
            raise ValueError("shares must lie in [0, 1] and not fall")


class HistogramBinning(Tabular):
    """The share that came true, in bins of each class's probability or of the confidence.

    Args:
        bins: how many.
        binning: ``"width"`` for bins of equal width, ``"mass"`` for bins of equally many samples.
        mode: ``"one-vs-rest"`` for bins of each class, ``"top-label"`` for those of the confidence.

    Attributes:
        edges_: upper ends of the bins, ``[D, M]``, the last 1 and infinity after it; D is C, or 1 for top-label.
        shares_: what came true in each bin, ``[D, M]``.

    Example:
        >>> import torch
        >>> from calibrant.posthoc import HistogramBinning
        >>> z = torch.tensor([[3.0, 0.0], [2.0, 0.0], [2.5, 0.0], [0.0, 0.2]])
        >>> binning = HistogramBinning(bins=2, mode="top-label").fit(z, torch.tensor([0, 1, 0, 1]))
        >>> binning.edges_, binning.shares_
        (array([[0.5, 1. ]]), array([[0.25, 0.75]]))
        >>> binning.predict_proba(z)[:, 0]
        tensor([0.7500, 0.7500, 0.7500, 0.2500])
    """

    name = "histogram"
    title = "Histogram binning"
    learned = "edges_"

    edges_: Doubles

    def __init__(
        self, bins: int = 15, *, binning: Literal["width", "mass"] = "width", mode: Mode = "one-vs-rest"
    ) -> None:
        self.bins = bins
        self.binning = binning
        self.mode = mode

    def _fit(self, data: Stream) -> None:
        bins, mode = whole("bins", self.bins, 1, MOST_BINS), choice("mode", self.mode, MODES)
        if choice("binning", self.binning, ("width", "mass")) == "width":
            edges = np.arange(1, bins + 1) / bins
            self._set_tables([(edges, shares) for shares in _equal_width(data, edges, mode)])
        else:
            self._set_tables([_equal_mass(p, hit, bins) for p, hit in columns(data, mode)])

    def _look_up(self, ops: Ops[V], p: V) -> V:
        # A knot is reached when p equals it, but an edge still belongs to the bin below. The last edge bounds nothing:
        # probabilities may round to above 1.
        knots = np.where(self.edges_ < 1, np.nextafter(self.edges_, np.inf), np.inf)
        return ops.lookup(p, knots, np.concatenate([self.shares_, self.shares_[:, -1:]], 1))

    def _check_table(self, ends: Doubles, shares: Doubles) -> None:
        if (np.diff(ends) <= 0).any() or ends[0] < 0 or ends[-1] != 1:
            raise ValueError("edges must rise from 0 or more to 1 in every table")
        if shares.min() < 0 or shares.max() > 1:
            raise ValueError("shares must lie in [0, 1]")


def isotonic(p: Doubles, hit: Bools) -> tuple[Doubles, Doubles]:
    """Knots and values of the rising function through probabilities ``[N]`` and what came true ``[N]``."""
    order = np.argsort(p, kind="stable")
    x, y = p[order], hit[order].astype(np.float64)
    # What differs in the last digits alone is one value, rounded in two ways.
    starts = np.flatnonzero(np.concatenate([[True], np.diff(x) > 1e-12 * x[1:]]))
    weights = np.diff(np.append(starts, len(x))).astype(np.float64)
    sums = np.add.reduceat(y, starts)
    first = pool(sums, weights)
    last = np.append(first[1:], len(starts)) - 1
    value = np.add.reduceat(sums, first) / np.add.reduceat(weights, first)
    x = x[starts]
    wide = last > first
    ends = np.stack([first, last], 1)[np.stack([np.ones_like(wide), wide], 1)]
    return x[ends], np.repeat(value, 1 + wide)


def pool(sums: Doubles, weights: Doubles) -> npt.NDArray[np.int64]:
    """Pool adjacent violators: where each block of the rising means sums / weights begins.

    A pass pools all of them at once, and some ten passes do. SciPy's function is as fast for a million means, but its
    import takes a third of a second, a thousand times what pooling 10,000 means does.
    """
    starts, s, w = np.arange(len(sums)), sums, weights
    for passes in itertools.count(1):
        rises = s[1:] * w[:-1] > s[:-1] * w[1:]  # cross-multiplied, counts are exact
        if rises.all():
            break
        first = np.flatnonzero(np.concatenate([[True], rises]))
        if passes == _MANY:
            from scipy.optimize import isotonic_regression

            first = isotonic_regression(s / w, weights=w).blocks[:-1]
        starts, s, w = starts[first], np.add.reduceat(s, first), np.add.reduceat(w, first)
    return starts


def _equal_width(data: Stream, edges: Doubles, mode: Mode) -> Doubles:
    """What came true in bins with the same edges for all, ``[D, M]``, in one pass."""
    bins, tables = len(edges), 1 if mode == "top-label" else data.num_classes
    counts, hits = np.zeros((2, tables * bins))
    for z, y in data:
        p = probabilities(z)
        if tables == 1:
            p, right = p.max(1, keepdims=True), np.flatnonzero(z.argmax(1) == y)
            table = np.zeros_like(right)
        else:
            right, table = np.arange(len(y)), y
        # Places in the flattened tables; of bins (lo, hi] an edge belongs to the one below.
        cell = np.searchsorted(edges[:-1], p) + bins * np.arange(tables)
        counts += np.bincount(cell.reshape(-1), minlength=len(counts))
        hits += np.bincount(cell[right, table], minlength=len(hits))
    middles = np.tile(edges - 0.5 / bins, tables)
    return np.where(counts > 0, hits / np.maximum(counts, 1), middles).reshape(tables, bins)


def _equal_mass(p: Doubles, hit: Bools, bins: int) -> tuple[Doubles, Doubles]:
    """Upper ends and shares of bins with as equal counts as ties allow."""
    order = np.argsort(p, kind="stable")
    x = np.minimum(p[order], 1.0)
    last = -(-len(x) * np.arange(1, bins + 1) // bins) - 1  # the m-th bin ends with the ceil(m N / M)-th sample
    ends = np.unique(x[last[last >= 0]])  # the largest in each bin
    cell = np.searchsorted(ends, x)
    after = x[np.minimum(np.searchsorted(x, ends, side="right"), len(x) - 1)]
    edges = (ends + after) / 2
    shares = np.bincount(cell, hit[order], len(edges)) / np.bincount(cell, minlength=len(edges))
    edges[-1] = 1.0
    return edges, shares
