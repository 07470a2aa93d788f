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

**Shares become logits** in both alike. With p the softmax of the logits and :math:`\varepsilon` =
1e-6:

- ``"one-vs-rest"`` (default) [Guo2017, Sec. 4.2; Zadrozny2002]: each class k has its own table, :math:`q_k \propto
  f_k(p_k) + \varepsilon p_k`. It changes predictions, and with few samples of a class it overfits.
- ``"top-label"``: one table for the confidence c, the largest probability; the new confidence is
  :math:`c' = (f(c) + \varepsilon c) / (1 + \varepsilon)`, but never below 1/K, where a largest probability cannot be.
  The other classes share 1 - c' in proportion to their p. Where the second would then overtake the first, the rest is
  mixed with as much of a uniform one as keeps it just below: the predicted class stays and has confidence c'.

:math:`\varepsilon` settles what the papers leave open. A class whose share is 0 keeps :math:`\varepsilon p_k`, so that
no logarithm is infinite; a row in which every share is 0 keeps its own p; classes of equal shares keep their order.
Probabilities below 1e-300 count as that. The result is log q.

Fitting holds the probabilities of all samples for as many classes as fit in 128 MB, with a pass for each such lot.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, get_args

import numpy as np

from calibrant.base.arrays import Array, Doubles, in_threads
from calibrant.base.checks import MOST_BINS, Bools, Ints, check_choice, check_integer
from calibrant.posthoc.base import Calibrator, Stream, read_numbers
from calibrant.posthoc.ops import NumpyOps, Ops, V, softmax

Mode = Literal["one-vs-rest", "top-label"]
MODES = get_args(Mode)

EPSILON = 1e-6
LEAST = 1e-300
AHEAD = 2e-6  # by how much, relative, the predicted class stays ahead: float32 logits still tell them apart
BUDGET = 2**27  # bytes of probabilities held at a time
_STEEPEST = 1e300
_MANY = 100  # passes of pooling, when each pools little: means that rise, and then one far below them all


class Tabular(Calibrator):
    """A calibrator that looks probabilities up, in a table for each class or in one for the confidence."""

    mode: Mode
    shares_: Doubles

    @property
    def keeps_order(self) -> bool:
        """With one table for the confidence, not with one for each class."""
        return len(self.shares_) == 1

    @abstractmethod
    def _look_up(self, ops: Ops[V], p: V) -> V:
        """The share that belongs to each probability; ``[n, D]`` with D tables."""

    @abstractmethod
    def _check_table(self, ends: Doubles, shares: Doubles) -> None:
        """Raise if a table from a file does not rise as it must."""

    def apply(self, ops: Ops[V], z: V) -> V:
        """Logarithms of the calibrated probabilities."""
        q = self._top_label(ops, z) if self.keeps_order else self._one_vs_rest(ops, z)
        return ops.log(ops.maximum(q, ops.constant(LEAST)))

    def _one_vs_rest(self, ops: Ops[V], z: V) -> V:
        p = softmax(ops, z)
        q = ops.add(self._look_up(ops, p), ops.mul(p, ops.constant(EPSILON)))
        return ops.div(q, ops.total(q))

    def _top_label(self, ops: Ops[V], z: V) -> V:
        one, zero, classes = ops.constant(1.0), ops.constant(0.0), self.n_classes_
        c = ops.largest(softmax(ops, z))
        c = ops.div(ops.add(self._look_up(ops, c), ops.mul(c, ops.constant(EPSILON))), ops.constant(1 + EPSILON))
        c = ops.maximum(c, ops.constant((1 + 2 * AHEAD) / classes))
        rest = ops.sub(one, c)
        # How the others share the rest, from their own logits: exact where the largest probability rounds to 1.
        predicted = ops.predicted(z)
        second = ops.columns(ops.top(z, 2), 1, 2)
        shares = ops.where(predicted, zero, ops.exp(ops.where(predicted, zero, ops.sub(z, second))))
        shares = ops.div(shares, ops.total(shares))
        # Mixed with t of a uniform share, the second's is c / (1 + AHEAD): t between 0 and 1 as c is above 1/K.
        most, even = ops.largest(shares), ops.constant(1 / (classes - 1))
        allowed = ops.div(ops.div(c, ops.constant(1 + AHEAD)), ops.maximum(rest, ops.constant(LEAST)))
        over = ops.maximum(ops.sub(most, allowed), zero)
        t = ops.div(over, ops.maximum(ops.sub(most, even), ops.maximum(over, ops.constant(LEAST))))
        shares = ops.add(ops.mul(shares, ops.sub(one, t)), ops.mul(t, even))
        return ops.where(predicted, c, ops.mul(rest, shares))

    def _set_tables(self, tables: Sequence[tuple[Doubles, Doubles]]) -> None:
        """Ends and shares of different lengths as two arrays, filled up with infinity and with the last share."""
        padding = [(0, max(len(ends) for ends, _ in tables) - len(ends)) for ends, _ in tables]
        pairs = list(zip(tables, padding, strict=True))
        ends = np.array([np.pad(ends, pad, constant_values=np.inf) for (ends, _), pad in pairs])
        self.shares_ = np.array([np.pad(shares, pad, mode="edge") for (_, shares), pad in pairs])
        setattr(self, self.learned, ends)

    def _state(self) -> dict[str, Any]:
        """All tables one after the other, and how long each is."""
        ends = getattr(self, self.learned)
        inside = np.isfinite(ends)
        lists = {self.learned.rstrip("_"): ends[inside].tolist(), "shares": self.shares_[inside].tolist()}
        return {"lengths": inside.sum(1).tolist(), **lists}

    def _restore(self, state: Mapping[str, Any], num_classes: int) -> None:
        lengths = read_numbers(state, "lengths", (None,))
        if len(lengths) not in (1, num_classes) or (lengths < 1).any() or (lengths % 1 != 0).any():
            raise ValueError(f"lengths must be whole numbers from 1 on, one or {num_classes} of them")
        stops, columns = np.cumsum(lengths), []
        for key in (self.learned.rstrip("_"), "shares"):
            flat = read_numbers(state, key, (None,))
            if len(flat) != stops[-1]:
                raise ValueError(f"{key} must have {stops[-1]:.0f} numbers as lengths say, got {len(flat)}")
            columns.append(np.split(flat, stops[:-1].astype(np.int64)))
        tables = list(zip(*columns, strict=True))
        for ends, shares in tables:
            self._check_table(ends, shares)
        self._set_tables(tables)


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
        mode = check_choice("mode", self.mode, MODES)
        self._set_tables(list(_fit_tables(data, mode, isotonic)))

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
            raise ValueError("shares must lie in [0, 1] and must not fall")


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
        bins, mode = check_integer("bins", self.bins, 1, MOST_BINS), check_choice("mode", self.mode, MODES)
        if check_choice("binning", self.binning, ("width", "mass")) == "width":
            edges = np.arange(1, bins + 1) / bins
            self._set_tables([(edges, shares) for shares in _equal_width(data, edges, mode)])
        else:
            self._set_tables(list(_fit_tables(data, mode, partial(_equal_mass, bins=bins))))

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


def _probabilities(z: Array) -> Doubles:
    """The softmax as `Tabular.apply` has it, to the last bit: samples are looked up where they were counted."""
    return softmax(NumpyOps(), z.astype(np.float64))


def _fit_tables(
    data: Stream, mode: str, fit: Callable[[Doubles, Bools], tuple[Doubles, Doubles]]
) -> Iterator[tuple[Doubles, Doubles]]:
    """What ``fit`` makes of the probabilities ``[N]`` that belong to each table, and of whether each came true.

    Classes go in blocks, with one pass for each, so that no more than `BUDGET` bytes are held.
    """
    if mode == "top-label":
        pairs = zip(*data.map(lambda z, y: (_probabilities(z).max(1), z.argmax(1) == y)), strict=True)
        yield fit(*map(np.concatenate, pairs))
        return
    labels = np.concatenate(list(data.map(lambda z, y: y)))
    size = max(1, min(data.num_classes, BUDGET // (9 * len(labels))))
    for start in range(0, data.num_classes, size):
        classes = range(start, min(start + size, data.num_classes))
        block, row = np.empty((len(classes), len(labels))), 0
        for p in data.map(lambda z, _, classes=classes: _probabilities(z)[:, classes].T):  # type: ignore[misc]
            block[:, row : row + p.shape[1]] = p
            row += p.shape[1]
        yield from in_threads(lambda pair: fit(pair[1], labels == pair[0]), zip(classes, block, strict=True))


def isotonic(p: Doubles, hit: Bools) -> tuple[Doubles, Doubles]:
    """Knots and values of the rising function through probabilities ``[N]`` and what came true ``[N]``."""
    order = np.argsort(p, kind="stable")
    x, y = p[order], hit[order].astype(np.float64)
    # What differs in the last digits alone is one value, rounded in two ways.
    starts = np.flatnonzero(np.concatenate([[True], np.diff(x) > 1e-12 * x[1:]]))
    weights = np.diff(np.append(starts, len(x))).astype(np.float64)
    sums = np.add.reduceat(y, starts)
    begin = pool(sums, weights)
    end = np.append(begin[1:], len(starts)) - 1
    value = np.add.reduceat(sums, begin) / np.add.reduceat(weights, begin)
    x = x[starts]
    wide = end > begin
    ends = np.stack([begin, end], 1)[np.stack([np.ones_like(wide), wide], 1)]
    return x[ends], np.repeat(value, 1 + wide)


def pool(sums: Doubles, weights: Doubles) -> Ints:
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

    def count(z: Array, y: Ints) -> tuple[Array, Array]:
        p, rows, table = _probabilities(z), np.arange(len(y)), y
        if tables == 1:
            p, rows = p.max(1, keepdims=True), np.flatnonzero(z.argmax(1) == y)
            table = np.zeros_like(rows)
        # Places in the flattened tables; of bins (lo, hi] an edge belongs to the one below.
        cell = np.searchsorted(edges[:-1], p) + bins * np.arange(tables)
        size = tables * bins
        return np.bincount(cell.ravel(), minlength=size), np.bincount(cell[rows, table], minlength=size)

    counts, hits = data.total(count)
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
