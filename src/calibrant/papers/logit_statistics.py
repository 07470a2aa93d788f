"""SC's look at the logits behind a score: why normalising them undoes what label smoothing does.

=================================  ==============================================  ======================
`max_logit_given_msp`              the largest logit of right and wrong            SC Fig. 9 right, 13, 14
                                   predictions with the same MSP
`sorted_logits`                    the logits of a sample from the largest down    SC Fig. 18
`normalised_given_max_logit`       the normalised largest logit of predictions     SC Fig. 19
                                   with a similar MSP, by their largest logit
=================================  ==============================================  ======================

The functions take arrays and give arrays; `calibrant.report` draws them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calibrant.base.arrays import ArrayLike, Doubles, cache_chunks, class_rows, round_to
from calibrant.base.checks import (
    Floats,
    Ints,
    as_host_array,
    as_logits,
    check_finite,
    check_integer,
    check_number,
    check_numbers,
    check_scores,
    check_within,
)
from calibrant.papers.rankings import flatten_like

#: Bins of the MSP, each wide enough for some hundred samples of a test set.
MSP_EDGES = (0.2, 0.4, 0.6, 0.8, 1.0)


@dataclass(frozen=True, eq=False)
class Windows:
    """Mean and spread of the values in each window.

    Attributes:
        count: ``[P]`` how many samples the window has.
        mean: ``[P]``, NaN where they are too few.
        std: ``[P]`` standard deviation of the samples (divided by their count), NaN likewise.
    """

    count: Ints
    mean: Doubles
    std: Doubles


@dataclass(frozen=True, eq=False)
class MaxLogitGivenMSP:
    """The largest logit in windows of the MSP.

    Attributes:
        msp: ``[P]`` the middle of each window.
        width: of the windows.
        right: the largest logit of right predictions.
        wrong: that of wrong ones.
    """

    msp: Doubles
    width: float
    right: Windows
    wrong: Windows


def max_logit_given_msp(
    msp: ArrayLike,
    max_logit: ArrayLike,
    correct: ArrayLike,
    *,
    width: float = 0.05,
    points: int | ArrayLike = 201,
    fewest: int = 10,
) -> MaxLogitGivenMSP:
    r"""Mean and standard deviation of the largest logit given the MSP, of right and of wrong predictions.

    The window at x holds the samples with an MSP in :math:`[x - w/2, x + w/2]`, both ends included. The ends are
    rounded to 12 decimals and then to the precision the MSP came in, so that 0.275 lies on the edge 0.3 - 0.05/2.

    Args:
        msp: ``[N]`` largest softmax probability.
        max_logit: ``[N]`` largest logit.
        correct: ``[N]``, whether each prediction is right.
        width: w, above 0 and at most 1.
        points: how many windows, their middles evenly spaced from 0 to 1 (at least 2); or the middles themselves.
        fewest: a window with fewer samples than this gives NaN.

    Returns:
        Counts, means and standard deviations for right and wrong predictions.

    Example:
        >>> from calibrant.papers import max_logit_given_msp
        >>> windows = max_logit_given_msp(
        ...     [0.48, 0.5, 0.52, 0.9], [4.0, 5.0, 7.0, 9.0], [1, 1, 0, 1], points=[0.5, 0.9], fewest=1
        ... )
        >>> windows.right.count.tolist(), windows.right.mean.tolist(), windows.right.std.tolist()
        ([2, 1], [4.5, 9.0], [0.5, 0.0])
        >>> windows.wrong.count.tolist(), windows.wrong.mean.tolist()
        ([1, 0], [7.0, nan])

    Reference:
        SC, Fig. 9 (right) and 13; the width is SC's.
    """
    width = check_number("width", width, 0.0, 1.0, open_low=True)
    fewest = check_integer("fewest", fewest, 1)
    at = _middles(points)
    (confidence, precision), correct = check_scores(msp, correct, name="msp")
    check_within("msp", confidence, 0.0, 1.0)
    height = flatten_like("max_logit", check_numbers("max_logit", max_logit).values, "msp", msp)
    check_within("max_logit", height, -np.inf, np.inf)
    low, high = (round_to(np.round(at + s * width / 2, 12), precision) for s in (-1, 1))
    windows = [window_statistics(confidence[rows], height[rows], low, high, fewest) for rows in (correct, ~correct)]
    return MaxLogitGivenMSP(at, width, *windows)


def _middles(points: int | ArrayLike) -> Doubles:
    """Middles of windows: that many from 0 to 1, or those given."""
    if as_host_array("points", points)[0].ndim == 0:
        return np.linspace(0.0, 1.0, check_integer("points", points, 2))
    middles = check_numbers("points", points).values.astype(np.float64).reshape(-1)
    check_within("points", middles, 0.0, 1.0)
    return middles


def window_statistics(x: Floats, y: Floats, low: Doubles, high: Doubles, fewest: int) -> Windows:
    """Statistics of y where x lies in [low, high].

    The sorted samples are cut at every end of a window. Each piece is summed once, about its own mean; a window is a
    run of pieces, put together by the formula for merged samples. Unlike a difference of running sums of squares, this
    loses no digits where the values of a window lie close together and far from the others.
    """
    order = np.argsort(x)
    x, y = x[order], y[order].astype(np.float64)
    begin, end = np.searchsorted(x, low, side="left"), np.searchsorted(x, high, side="right")
    count = end - begin
    mean, std = np.full(len(low), np.nan), np.full(len(low), np.nan)
    filled = np.flatnonzero(count >= fewest)
    if not len(filled):
        return Windows(count, mean, std)
    cuts = np.unique(np.concatenate([begin[filled], end[filled]]))
    first_piece, end_piece = np.searchsorted(cuts, begin), np.searchsorted(cuts, end)
    # Samples before the first cut and after the last one are in no window.
    y, size, start = y[cuts[0] : cuts[-1]], np.diff(cuts), cuts[:-1] - cuts[0]
    middle = np.add.reduceat(y, start) / size
    residual = y - np.repeat(middle, size)
    middle += np.add.reduceat(residual, start) / size  # what rounding left of the first sum
    square = np.add.reduceat(residual * residual, start)
    for i in filled:
        run = slice(first_piece[i], end_piece[i])
        centre = (size[run] * middle[run]).sum() / count[i]
        spread = square[run].sum() + (size[run] * (middle[run] - centre) ** 2).sum()
        mean[i], std[i] = centre, np.sqrt(spread / count[i])
    return Windows(count, mean, std)


@dataclass(frozen=True, eq=False)
class RankStatistics:
    """Mean and standard deviation over samples, of the largest logit first.

    Attributes:
        mean: ``[K]``.
        std: ``[K]``, of the samples (divided by their count).
    """

    mean: Doubles
    std: Doubles


@dataclass(frozen=True, eq=False)
class SortedLogits:
    """The logits of every sample sorted from the largest down, averaged over samples, in three forms.

    Attributes:
        power: p.
        plain: v.
        powered: v to the p, which the p-norm sums.
        exponential: exp v, which softmax sums.
    """

    power: int
    plain: RankStatistics
    powered: RankStatistics
    exponential: RankStatistics


def sorted_logits(logits: ArrayLike, power: int = 5) -> SortedLogits:
    """Mean and standard deviation of v, v^p and exp v at every rank, of logits sorted from the largest down.

    Args:
        logits: ``[N, K]``.
        power: p; SC draws 5.

    Example:
        >>> from calibrant.papers import sorted_logits
        >>> statistics = sorted_logits([[0.0, 2.0, 1.0], [3.0, 0.0, -1.0]], power=2)
        >>> statistics.plain.mean.tolist(), statistics.powered.mean.tolist()
        ([2.5, 0.5, -0.5], [6.5, 0.5, 0.5])

    Reference:
        SC, Fig. 18.
    """
    power, z = check_integer("power", power, 1), as_logits(logits)
    parts = []
    for chunk in cache_chunks(z):
        check_finite(chunk)
        parts.append(-np.sort(-class_rows(chunk).astype(np.float64), axis=1))
    v = np.concatenate(parts)
    with np.errstate(over="ignore"):
        forms = (v, v**power, np.exp(v))
    return SortedLogits(power, *(RankStatistics(form.mean(0), form.std(0)) for form in forms))


@dataclass(frozen=True, eq=False)
class MSPBin:
    """Predictions with an MSP in ``(low, high]``: their normalised largest logit, in windows of the largest logit.

    Attributes:
        low: end of the bin, not in it.
        high: the other end, in it.
        count: how many predictions are counted in it.
        max_logit: ``[P]`` the middle of each window.
        normalised: of the predictions in it.
        slope: of the straight line of least squares through the bin's predictions: what the normalised largest logit
            gains for each unit of the largest logit; NaN if there are fewer than two different ones.
    """

    low: float
    high: float
    count: int
    max_logit: Doubles
    normalised: Windows
    slope: float


def normalised_given_max_logit(
    msp: ArrayLike,
    max_logit: ArrayLike,
    normalised: ArrayLike,
    *,
    edges: Sequence[float] = MSP_EDGES,
    width: float = 0.2,
    points: int = 61,
    fewest: int = 10,
) -> list[MSPBin]:
    r"""Mean and standard deviation of the normalised largest logit given the largest, for similar MSPs.

    In each bin the windows' middles lie evenly between the mean of the largest logit -+ 2 standard deviations; samples
    beyond that are left out, as SC does, because averages over the few of them are noise.

    Args:
        msp: ``[N]`` largest softmax probability.
        max_logit: ``[N]`` largest logit.
        normalised: ``[N]`` largest logit over the p-norm of the logits.
        edges: of the bins of the MSP, rising, at least two.
        width: of a window of the largest logit.
        points: how many windows a bin has, at least 2.
        fewest: a window with fewer samples than this gives NaN.

    Returns:
        The bins that have samples, lowest MSP first.

    Example:
        >>> from calibrant.papers import normalised_given_max_logit
        >>> (only,) = normalised_given_max_logit(
        ...     [0.5, 0.5, 0.9], [3.0, 4.0, 8.0], [0.8, 0.6, 0.9], edges=[0.4, 0.6], width=2.0, points=2, fewest=1
        ... )
        >>> only.count, only.max_logit.tolist(), only.normalised.mean.tolist(), round(only.slope, 6)
        (2, [2.5, 4.5], [0.8, 0.6], -0.2)

    Reference:
        SC, Fig. 19; the width is SC's.
    """
    points, fewest = check_integer("points", points, 2), check_integer("fewest", fewest, 1)
    width = check_number("width", width, 0.0, np.inf, open_low=True)
    bounds = [check_number("edges", edge, 0.0, 1.0) for edge in edges]
    if len(bounds) < 2 or any(low >= high for low, high in itertools.pairwise(bounds)):
        raise ValueError(f"edges must be at least two rising shares, got {list(edges)}")
    columns = [
        check_numbers(name, values).values.astype(np.float64).reshape(-1)
        for name, values in (("msp", msp), ("max_logit", max_logit), ("normalised", normalised))
    ]
    if len({len(column) for column in columns}) > 1:
        raise ValueError(f"msp, max_logit and normalised must be equally long, got {[len(c) for c in columns]}")
    for name, column in zip(("max_logit", "normalised"), columns[1:], strict=True):
        check_within(name, column, -np.inf, np.inf)
    confidence, height, scaled = columns
    check_within("msp", confidence, 0.0, 1.0)
    bins = []
    for low, high in itertools.pairwise(bounds):
        inside = (confidence > low) & (confidence <= high)
        if inside.any():
            bins.append(_describe_bin(low, high, height[inside], scaled[inside], width, points, fewest))
    return bins


def _describe_bin(
    low: float, high: float, height: Doubles, scaled: Doubles, width: float, points: int, fewest: int
) -> MSPBin:
    middle, reach = float(height.mean()), 2 * float(height.std())
    usual = np.abs(height - middle) <= reach
    height, scaled = height[usual], scaled[usual]
    at = np.linspace(middle - reach, middle + reach, points)
    windows = window_statistics(height, scaled, at - width / 2, at + width / 2, fewest)
    spread = height - height.mean()
    slope = float(spread @ scaled / (spread @ spread)) if np.ptp(height) > 0 else np.nan
    return MSPBin(low, high, len(height), at, windows, slope)
