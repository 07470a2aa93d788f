"""SC's look at the logits behind a score: why normalising them undoes what label smoothing does.

=================================  ==============================================  ==========
`sorted_logits`                    the logits of a sample from the largest down    SC Fig. 18
`normalised_given_max_logit`       the normalised largest logit of predictions     SC Fig. 19
                                   with a similar MSP, by their largest logit
=================================  ==============================================  ==========

The functions take arrays and give arrays; `calibrant.report` draws them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calibrant._arrays import ArrayLike, Doubles, cache_chunks, class_rows
from calibrant._validation import as_logits, check_finite, number_in, real, whole, within
from calibrant.selective.analysis import Windows, window_statistics

#: Bins of the MSP, each wide enough for some hundred samples of a test set.
MSP_EDGES = (0.2, 0.4, 0.6, 0.8, 1.0)


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
        >>> from calibrant.selective import sorted_logits
        >>> statistics = sorted_logits([[0.0, 2.0, 1.0], [3.0, 0.0, -1.0]], power=2)
        >>> statistics.plain.mean.tolist(), statistics.powered.mean.tolist()
        ([2.5, 0.5, -0.5], [6.5, 0.5, 0.5])

    Reference:
        SC, Fig. 18.
    """
    power, z = whole("power", power, 1), as_logits(logits)
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
        >>> from calibrant.selective import normalised_given_max_logit
        >>> (only,) = normalised_given_max_logit(
        ...     [0.5, 0.5, 0.9], [3.0, 4.0, 8.0], [0.8, 0.6, 0.9], edges=[0.4, 0.6], width=2.0, points=2, fewest=1
        ... )
        >>> only.count, only.max_logit.tolist(), only.normalised.mean.tolist(), round(only.slope, 6)
        (2, [2.5, 4.5], [0.8, 0.6], -0.2)

    Reference:
        SC, Fig. 19; the width is SC's.
    """
    points, fewest = whole("points", points, 2), whole("fewest", fewest, 1)
    width = number_in("width", width, 0.0, np.inf, open_low=True)
    bounds = [number_in("edges", edge, 0.0, 1.0) for edge in edges]
    if len(bounds) < 2 or any(low >= high for low, high in itertools.pairwise(bounds)):
        raise ValueError(f"edges must be at least two rising shares, got {list(edges)}")
    columns = [
        real(name, values).values.astype(np.float64).reshape(-1)
        for name, values in (("msp", msp), ("max_logit", max_logit), ("normalised", normalised))
    ]
    if len({len(column) for column in columns}) > 1:
        raise ValueError(f"msp, max_logit and normalised must be equally long, got {[len(c) for c in columns]}")
    for name, column in zip(("max_logit", "normalised"), columns[1:], strict=True):
        within(name, column, -np.inf, np.inf)
    confidence, height, scaled = columns
    within("msp", confidence, 0.0, 1.0)
    bins = []
    for low, high in itertools.pairwise(bounds):
        inside = (confidence > low) & (confidence <= high)
        if inside.any():
            bins.append(_bin(low, high, height[inside], scaled[inside], width, points, fewest))
    return bins


def _bin(low: float, high: float, height: Doubles, scaled: Doubles, width: float, points: int, fewest: int) -> MSPBin:
    middle, reach = float(height.mean()), 2 * float(height.std())
    usual = np.abs(height - middle) <= reach
    height, scaled = height[usual], scaled[usual]
    at = np.linspace(middle - reach, middle + reach, points)
    windows = window_statistics(height, scaled, at - width / 2, at + width / 2, fewest)
    spread = height - height.mean()
    slope = float(spread @ scaled / (spread @ spread)) if np.ptp(height) > 0 else np.nan
    return MSPBin(low, high, len(height), at, windows, slope)
