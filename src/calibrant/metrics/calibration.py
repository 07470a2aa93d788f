r"""Calibration: does a confidence of 0.8 mean right in 8 cases out of 10?

Every binned metric sorts the predictions into bins B_1..B_M and compares each bin's mean confidence with its accuracy.

=====================  =============================================================================================
``ece``, ``mce``       equal width on (0, 1]: bin k is ((k-1)/M, k/M], edges correctly rounded; 0 is in the first bin.
                       Of float32, float16 and bfloat16 confidences the edges are rounded to that type first, so that
                       0.2 lies in the bin that ends at 0.2.
``"pycalib"``          what the package of [Wenger2020] computes, and ALS's tables show: M bins on [1/K, 1] of K
                       classes, closed below (the last one on both sides), and in place of bin j's mean confidence the
                       j-th of M points evenly spaced from 1/K + 1/(2M) to 1 - 1/(2M). These are not quite the
                       mid-points, which start at 1/K + (1 - 1/K)/(2M): the first ones are too high, by 1/(2KM) at
                       most, and the last ones too low, so it shows when K and M are small.
``aece``               equal counts: sorted by confidence, runs whose sizes differ by one at most, the larger ones
                       first. Each prediction of a tie counts with the tie's mean correctness, so that the order of
                       the rows does not matter.
``"released"``         what the papers' code computes: edges interpolated between sorted confidences, bins open below,
                       so that the smallest confidence and all that equal it are lost.
=====================  =============================================================================================

**Smooth ECE** [Blasiok2024] has no bins. With the residuals :math:`\rho_i = y_i - c_i` (correct minus confidence) and a
Gaussian kernel :math:`K_s` of width s that is reflected at 0 and 1 (images at :math:`2k + c` and :math:`2k - c`),

.. math:: \mathrm{smECE}_s = \int_0^1 \Bigl| \frac1N \sum_i K_s(t, c_i)\, \rho_i \Bigr| \, dt .

It never rises with s, so there is one width with :math:`\mathrm{smECE}_s = s`: that value is the smooth ECE. (The
package of the authors, relplot, stops its search for it after ten halvings, and at 0.001.)

How it is computed: the residuals are put on a grid of spacing h, each split between its two neighbours so that its
place is kept on average. On the cosine series of the grid the reflected kernel multiplies the k-th term by
:math:`e^{-(\pi k s)^2 / 2}`, without error, so each further width costs one FFT. The splitting and the sum over the
grid are each off by about :math:`\frac{1}{8} (h/s)^2 \cdot \frac1N \sum |\rho_i|` at most; h is chosen from that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from calibrant.base.arrays import Array, ArrayLike, Doubles, Precision, in_threads, is_half, round_to, row_slices
from calibrant.base.checks import (
    MOST_BINS,
    Bools,
    Floats,
    Ints,
    check_choice,
    check_integer,
    check_number,
    check_scores,
    check_within,
)
from calibrant.metrics.grid import BASE
from calibrant.metrics.tables import Groups, as_groups, check_weight, measured, result, running_sums

Convention: TypeAlias = Literal["standard", "pycalib"]

ROWS = 1 << 16  # predictions that are binned at a time: they stay in the cache, and partial sums stay exact longer
TOLERANCE = 2e-6  # bound on the error by the grid, well inside the 1e-5 that is promised
NARROWEST = 1e-4  # of the widths that can be asked for: below it the finest grid is too coarse for the promise
COARSE, FINE = 1 << 14, 1 << 22
RESIDUALS = 1 << 20  # that are put on a grid at a time
MOST_DAMPED = 3.0  # times 1 / s: further terms of the series are damped by over 1e-19


@dataclass(frozen=True, eq=False)
class Bins:
    """Bins of the confidence, ``[B]`` or ``[R, B]``: all that a calibration error with these bins depends on."""

    count: Array  # predictions, or sums of weights
    sure: Doubles  # sums of their confidences
    right: Array  # the right ones among them

    @property
    def gaps(self) -> Doubles:
        """What the confidences claim beyond the right predictions."""
        gaps: Doubles = np.abs(self.sure - self.right)
        return gaps

    def mean_gap(self) -> Any:
        """The calibration error: the gaps of all bins, each weighted by its share of the predictions."""
        return self.gaps.sum(-1) / self.count.sum(-1)

    def largest_gap(self) -> Any:
        """The largest gap of mean confidence and accuracy of a bin that holds something."""
        share = np.divide(self.gaps, self.count, out=np.full(self.gaps.shape, -np.inf), where=self.count > 0)
        return share.max(-1)


@dataclass(frozen=True, eq=False)
class Reliability:
    """What a reliability diagram shows; every array is ``[bins]``.

    Attributes:
        low: lower edge of each bin, not part of it (0 is part of the first).
        high: upper edge, part of the bin.
        count: how many predictions lie in it, or the sum of their weights.
        confidence: their mean confidence, NaN in an empty bin.
        accuracy: the share that is right, NaN in an empty bin.
    """

    low: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]
    count: npt.NDArray[Any]
    confidence: npt.NDArray[np.float64]
    accuracy: npt.NDArray[np.float64]

    @property
    def effective(self) -> npt.NDArray[Any]:
        """How many predictions of equal weight would be as certain as those of each bin."""
        return self.count


@dataclass(frozen=True, eq=False)
class WeightedReliability(Reliability):
    """The same of predictions with weights; ``squares`` are the sums of squared weights of each bin."""

    squares: npt.NDArray[np.float64]

    @property
    def effective(self) -> npt.NDArray[Any]:
        """How many predictions of equal weight would be as certain as those of each bin."""
        numbers = np.divide(np.square(self.count), self.squares, out=np.zeros(len(self.count)), where=self.squares > 0)
        return np.maximum(np.rint(numbers), self.count > 0).astype(np.int64)


def reliability(
    confidence: ArrayLike | Groups, correct: ArrayLike | None = None, *, weight: ArrayLike | None = None, bins: int = 15
) -> Reliability:
    """The bins that `ece` and `mce` compare, for a reliability diagram; arguments are those of `ece`.

    Example:
        >>> from calibrant.metrics import reliability
        >>> diagram = reliability([0.9, 0.7, 0.3], [1, 0, 1], bins=2)
        >>> diagram.count.tolist(), diagram.confidence.tolist(), diagram.accuracy.tolist()
        ([1, 2], [0.3, 0.8], [1.0, 0.5])

    Reference:
        [Guo2017] Sec. 2.
    """
    if isinstance(confidence, Groups):
        edges, table, squares = bin_edges(bins), merge_bins(confidence, bins), confidence.squares
        if squares is not None:
            squares = merge_bins(replace(confidence, count=squares), bins).count
    else:
        values, correct, weights, precision = _arrays(confidence, correct, weight)
        edges = bin_edges(bins, precision)
        table = _sum_bins(values, correct, weights, edges)
        squares = None if weights is None else _sum_bins(values, correct, np.square(weights), edges).count
    means, accuracies = (
        np.divide(part, table.count, out=np.full(len(table.count), np.nan), where=table.count > 0)
        for part in (table.sure, table.right)
    )
    columns = edges[:-1], edges[1:], table.count, means, accuracies
    return Reliability(*columns) if squares is None else WeightedReliability(*columns, squares)


@measured
def ece(
    confidence: ArrayLike | Groups,
    correct: ArrayLike | None = None,
    *,
    weight: ArrayLike | None = None,
    bins: int = 15,
    convention: Convention = "standard",
    classes: int | None = None,
) -> float:
    r"""Expected calibration error: :math:`\sum_b \frac{|B_b|}{N} |\mathrm{conf}(B_b) - \mathrm{acc}(B_b)|`.

    Args:
        confidence: ``[N]``, between 0 and 1.
        correct: ``[N]``, whether each prediction is right.
        weight: ``[N]`` importance of each prediction, at least 0; None if all count alike.
        bins: how many, of equal width.
        convention: ``"standard"`` or ``"pycalib"``, see the table of the module.
        classes: the number of classes, which ``"pycalib"`` needs.

    Returns:
        The error, between 0 and 1; lower is better.

    Example:
        >>> from calibrant.metrics import ece
        >>> ece([0.9, 0.7, 0.3], [1, 0, 1], bins=2)  # |0.3 - 1| / 3 + |1.6 - 1| / 3
        0.43333333333333335

    Reference:
        [Naeini2015]; [Guo2017] Eq. 3; ACLS supplement, Eq. 23.
    """
    return result(bin_confidences(confidence, correct, weight, bins, convention, classes).mean_gap())


@measured
def mce(
    confidence: ArrayLike | Groups,
    correct: ArrayLike | None = None,
    *,
    weight: ArrayLike | None = None,
    bins: int = 15,
    convention: Convention = "standard",
    classes: int | None = None,
) -> float:
    r"""Maximum calibration error: the largest :math:`|\mathrm{conf}(B_b) - \mathrm{acc}(B_b)|` of a bin with members.

    Arguments and the range of the value are those of `ece`.

    Example:
        >>> from calibrant.metrics import mce
        >>> mce([0.9, 0.7, 0.3], [1, 0, 1], bins=2)
        0.7

    Reference:
        [Naeini2015]; [Guo2017] Eq. 5; ALS, Sec. 4.2.
    """
    return result(bin_confidences(confidence, correct, weight, bins, convention, classes).largest_gap())


@measured
def aece(
    confidence: ArrayLike | Groups,
    correct: ArrayLike | None = None,
    *,
    weight: ArrayLike | None = None,
    bins: int = 15,
    convention: Literal["standard", "released"] = "standard",
) -> float:
    """Adaptive ECE: the gaps of `ece` over bins that hold equally many predictions.

    Args:
        confidence: ``[N]``, between 0 and 1.
        correct: ``[N]``, whether each prediction is right.
        weight: ``[N]`` importance of each prediction, at least 0; None if all count alike.
        bins: how many; with fewer predictions than that, each is its own bin.
        convention: ``"standard"`` or ``"released"`` (without weights), see the table of the module.

    Returns:
        The error, between 0 and 1; lower is better.

    Example:
        >>> from calibrant.metrics import aece
        >>> aece([0.9, 0.7, 0.3], [1, 0, 1], bins=2)  # 0.3 and 0.7 against one half, 0.9 against 1
        0.03333333333333333

    Reference:
        [Nixon2019]; ACLS supplement, Sec. S2.1.
    """
    check_choice("convention", convention, ("standard", "released"))
    bins = check_integer("bins", bins, 1, MOST_BINS)
    groups = as_groups(confidence, correct, weight, name="confidence")
    count, gap = groups.count[..., ::-1], (groups.sure - (groups.count - groups.errors))[..., ::-1]
    if groups.is_replicated:
        runs = np.stack([gaps_of_runs(*row, bins) for row in zip(count, gap, strict=True)])
        return result(np.abs(runs).sum(-1) / groups.size)
    if convention == "standard":
        return result(np.abs(gaps_of_runs(count, gap, bins)).sum() / groups.size)
    if not groups.is_whole:
        raise ValueError("weight must be None with convention='released', which counts predictions")
    return _aece_released(groups.score[::-1], count, gap, bins)


def gaps_of_runs(count: Array, gap: Doubles, bins: int) -> Doubles:
    """What the confidences of each run of equal count claim beyond the right predictions, from the lowest up.

    Args:
        count: predictions of each group, in order of rising confidence.
        gap: what their confidences claim beyond the right ones.
        bins: how many runs.
    """
    upto, running = running_sums(count), running_sums(gap)
    ends = ends_of_runs(upto[-1], bins)
    # The gap grows evenly within a group, so its value at the end of a run is an interpolation.
    at = np.clip(np.searchsorted(upto, ends, side="left"), 1, len(count)) - 1
    share = np.divide(ends - upto[at], count[at], out=np.zeros(bins + 1), where=count[at] > 0)
    gaps: Doubles = np.diff(running[at] + share * (running[at + 1] - running[at]))
    return gaps


def ends_of_runs(size: Any, bins: int) -> Array:
    """Where runs of equal count end, ``[bins + 1]`` from 0 on: of whole predictions the larger runs come first."""
    runs = np.arange(bins + 1)
    return runs * (size // bins) + np.minimum(runs, size % bins) if size.dtype.kind == "i" else runs * (size / bins)


def _aece_released(score: Doubles, count: Ints, gap: Doubles, bins: int) -> float:
    """np.interp(np.linspace(0, N, bins + 1), np.arange(N), sorted confidences) for the edges, from groups."""
    ends, size = np.cumsum(count), int(count.sum())
    rank = np.minimum(np.linspace(0, size, bins + 1), size - 1)
    floor = rank.astype(np.int64)
    below, above = (score[np.searchsorted(ends, np.minimum(i, size - 1), side="right")] for i in (floor, floor + 1))
    upto = np.searchsorted(score, (above - below) * (rank - floor) + below, side="right")
    return float(np.abs(np.diff(running_sums(gap)[upto])).sum()) / size


def bin_edges(bins: int, precision: Precision = "float64") -> Doubles:
    """The edges k/M of M bins, ``[bins + 1]``, rounded to the precision that the confidences came in."""
    bins = check_integer("bins", bins, 1, MOST_BINS)
    return round_to(np.arange(bins + 1) / bins, precision)


def bin_confidences(
    confidence: Any,
    correct: ArrayLike | None,
    weight: ArrayLike | None,
    bins: int,
    convention: Convention = "standard",
    classes: int | None = None,
) -> Bins:
    """The bins of `ece` and `mce`, of a table or of arrays."""
    check_choice("convention", convention, ("standard", "pycalib"))
    if isinstance(confidence, Groups):
        return merge_bins(confidence, bins)
    values, right, weights, precision = _arrays(confidence, correct, weight)
    if convention == "standard":
        return _sum_bins(values, right, weights, bin_edges(bins, precision))
    bins = check_integer("bins", bins, 1, MOST_BINS)
    if classes is None:
        raise ValueError("classes must be the number of classes when convention is 'pycalib', got None")
    low = 1 / check_integer("classes", classes, 2)
    # The largest of K probabilities is 1/K at least, up to rounding; less is not the confidence of K classes.
    slack = 1e-2 if is_half(precision) else 1e-4
    check_within("confidence", values, low * (1 - slack), 1.0, f"at least 1/{classes} for {classes} classes")
    table = _sum_bins(values, right, weights, np.linspace(low, 1, bins + 1), side="right")
    return replace(table, sure=table.count * np.linspace(low + 1 / (2 * bins), 1 - 1 / (2 * bins), bins))


def _arrays(
    confidence: ArrayLike, correct: ArrayLike | None, weight: ArrayLike | None
) -> tuple[Floats, Bools, Doubles | None, Precision]:
    (values, precision), right = check_scores(confidence, correct, name="confidence")
    return values, right, check_weight(weight, len(values)), precision


def find_bins(values: Floats, edges: Doubles) -> Ints:
    """The bin ``(low, high]`` of each value between 0 and 1, where the edges of M bins are k/M up to rounding."""
    bins = len(edges) - 1
    index = np.clip(np.ceil(values * np.float64(bins)) - 1, 0, bins - 1).astype(np.int64)
    # The product may be rounded across an edge; what is below the first edge or above the last one stays.
    low, high = edges[:-1].copy(), edges[1:].copy()
    low[0], high[-1] = -np.inf, np.inf
    index -= values <= low.take(index)
    index += values > high.take(index)
    return index


def _sum_bins(
    values: Floats, correct: Bools, weight: Doubles | None, edges: Doubles, *, side: Literal["left", "right"] = "left"
) -> Bins:
    """Count and sum over bins between edges: ``(low, high]`` with side ``"left"``, ``[low, high)`` with ``"right"``."""
    bins = len(edges) - 1

    def sum_part(rows: slice) -> tuple[Array, Array, Array]:
        sure, right = values[rows], correct[rows]
        index = find_bins(sure, edges) if side == "left" else np.searchsorted(edges[1:-1], sure, side=side)
        if weight is None:
            wrong, hits = np.bincount(2 * index + right, minlength=2 * bins).reshape(bins, 2).T
            return wrong + hits, np.bincount(index, sure, minlength=bins), hits
        w = weight[rows]
        columns = (w, w * sure, w * right)
        return tuple(np.bincount(index, column, minlength=bins) for column in columns)  # type: ignore[return-value]

    parts = [np.stack(part) for part in zip(*in_threads(sum_part, row_slices(len(values), 1, ROWS)), strict=True)]
    return Bins(*(part.sum(axis=0) for part in parts))


def merge_bins(groups: Groups, bins: int) -> Bins:
    """Bins of equal width from groups of confidences; exact where the base bins of the groups can be put together."""
    bins = check_integer("bins", bins, 1, MOST_BINS)
    if groups.base is not None and BASE % bins == 0:
        index = groups.base * bins // BASE
    else:
        index = find_bins(groups.score, bin_edges(bins, groups.precision))
    begin = np.flatnonzero(np.diff(index, prepend=-1) != 0)
    columns = []
    for part in (groups.count, groups.sure, groups.count - groups.errors):
        column = np.zeros((*part.shape[:-1], bins), part.dtype)
        column[..., index[begin]] = np.add.reduceat(part, begin, -1)
        columns.append(column)
    return Bins(*columns)


@measured
def smooth_ece(
    confidence: ArrayLike | Groups,
    correct: ArrayLike | None = None,
    *,
    weight: ArrayLike | None = None,
    bandwidth: float | None = None,
) -> float:
    r"""Smooth ECE: the residuals smoothed by a kernel as wide as the result; error below 1e-5.

    Args:
        confidence: ``[N]``, between 0 and 1.
        correct: ``[N]``, whether each prediction is right.
        weight: ``[N]`` importance of each prediction, at least 0; None if all count alike.
        bandwidth: the width s of the kernel, at least 1e-4; by default the width at which
            :math:`\mathrm{smECE}_s = s`.

    Returns:
        The error, between 0 and 1; lower is better.

    Example:
        >>> from calibrant.metrics import smooth_ece
        >>> round(smooth_ece([0.9, 0.9, 0.9, 0.9], [1, 1, 0, 0]), 6)  # every residual at one place: |0.5 - 0.9|
        0.4

    Reference:
        [Blasiok2024].
    """
    if isinstance(confidence, Groups):
        residual = confidence.count - confidence.errors - confidence.sure
        if confidence.is_replicated:
            return result(_smooth_replicates(confidence, residual))
        return _smooth_ece(confidence.score, lambda rows: residual[rows], float(confidence.size), bandwidth)
    values, right, weights, _ = _arrays(confidence, correct, weight)

    def residuals(rows: slice) -> Doubles:
        difference: Doubles = right[rows] - values[rows].astype(np.float64)
        return difference if weights is None else weights[rows] * difference

    return _smooth_ece(values, residuals, len(values), bandwidth)


def _smooth_ece(position: Floats, residual: Callable[[slice], Doubles], size: float, bandwidth: float | None) -> float:
    """Grids of growing fineness until the bound on the error holds at the width that was asked or found."""
    if bandwidth is not None:
        bandwidth = check_number("bandwidth", bandwidth, NARROWEST)
    cells = COARSE if len(position) < RESIDUALS else COARSE << 3  # putting many residuals on a grid twice costs most
    while True:
        mass, weights = _on_grid(position, residual, cells)
        spectrum = np.fft.rfft(weights / size, n=2 * cells).real
        width = _fixed_point(spectrum) if bandwidth is None else bandwidth
        needed = math.sqrt(mass / size / TOLERANCE / 2) / width if width > TOLERANCE else 0.0
        if needed <= cells or cells == FINE:
            return width if bandwidth is None else _at_width(spectrum, width)
        cells = min(FINE, 1 << math.ceil(math.log2(needed)))


def _on_grid(position: Floats, residual: Callable[[slice], Doubles], cells: int) -> tuple[float, Doubles]:
    """The sum of the absolute residuals, and the residuals split between the nodes j / cells, ``[cells + 1]``."""
    mass, weights = 0.0, np.zeros(cells + 1)
    for start in range(0, len(position), RESIDUALS):
        rows = slice(start, start + RESIDUALS)
        amount = residual(rows)
        x = position[rows] * np.float64(cells)
        node = np.minimum(x.astype(np.int64), cells - 1)
        upper = amount * (x - node)
        weights[:-1] += np.bincount(node, weights=amount - upper, minlength=cells)
        weights[1:] += np.bincount(node, weights=upper, minlength=cells)
        mass += float(np.abs(amount).sum())
    return mass, weights


def _at_width(spectrum: Doubles, width: float) -> float:
    """The integral of the smoothed residuals' absolute value, by the trapezoid rule on the grid."""
    cells = len(spectrum) - 1
    terms = min(cells, int(MOST_DAMPED / width) + 1 if width > MOST_DAMPED / cells else cells) + 1
    damped = spectrum[:terms] * np.exp(-0.5 * (math.pi * width * np.arange(terms)) ** 2)
    smoothed = np.abs(np.fft.irfft(damped, n=2 * cells)[: cells + 1])  # without the terms that are as good as 0
    # The density is 2 cells times this, the spacing is 1 / cells.
    return float(2 * smoothed.sum() - smoothed[0] - smoothed[-1])


def _fixed_point(spectrum: Doubles) -> float:
    """The width s with smECE_s = s, to 1e-9, by false position with the step of Anderson and Björck.

    smECE_s - s falls at least as fast as -s, so that its value bounds the distance to the root.
    """
    low, high = abs(float(spectrum[0])), _at_width(spectrum, 0.0)
    if high - low <= 1e-9:
        return high
    above, below = high - low, _at_width(spectrum, high) - high
    while high - low > 1e-9:
        width = min(max(low + (high - low) * above / (above - below), low), high)
        gap = _at_width(spectrum, width) - width
        if abs(gap) <= 5e-10:
            return width
        # The end that stays counts for less, by as much as the other one has gained.
        if gap > 0:
            low, above, below = width, gap, below * _weight(gap / above)
        else:
            high, below, above = width, gap, above * _weight(gap / below)
    return (low + high) / 2


def _weight(ratio: float) -> float:
    return 1 - ratio if ratio < 1 else 0.5


def _smooth_replicates(groups: Groups, residual: Doubles, terms: int = 64, points: int = 129) -> Doubles:
    """Smooth ECE of each replicate at base-bin resolution: its cosine series, damped until width and value agree."""
    k = np.arange(terms)
    if groups.base is None:
        position = groups.score
    else:
        begin = np.flatnonzero(np.diff(groups.base, prepend=-1) != 0)
        residual, position = np.add.reduceat(residual, begin, -1), (groups.base[begin] + 0.5) / BASE
    weights = np.where(k == 0, 1.0, 2.0)[:, None]
    series = (residual / groups.size[:, None]) @ np.cos(np.pi * np.outer(position, k))
    grid = weights * np.cos(np.pi * np.outer(k, (np.arange(points - 1) + 0.5) / (points - 1)))
    low, high = np.zeros(len(residual)), np.ones(len(residual))
    for _ in range(12):
        width = 0.5 * (low + high)
        smoothed = np.abs((series * np.exp(-0.5 * (np.pi * np.outer(width, k)) ** 2)) @ grid).mean(1)
        low, high = np.where(smoothed > width, width, low), np.where(smoothed > width, high, width)
    return 0.5 * (low + high)
