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

The bins themselves, and the same metrics from counts and sums, are in `calibrant.metrics.bins`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from calibrant._arrays import ArrayLike, is_half
from calibrant._validation import MOST_BINS, Numbers, choice, judged, real, truth, whole, within
from calibrant.metrics.bins import (
    Bins,
    aece_of_groups,
    bin_edges,
    bin_sums,
    ece_of_bins,
    mce_of_bins,
    released_edges,
    running,
)
from calibrant.metrics.ties import group_by_score

Convention: TypeAlias = Literal["standard", "pycalib"]


@dataclass(frozen=True, eq=False)
class Reliability:
    """What a reliability diagram shows; every array is ``[bins]``.

    Attributes:
        low: lower edge of each bin, not part of it (0 is part of the first).
        high: upper edge, part of the bin.
        count: how many predictions lie in it.
        confidence: their mean confidence, NaN in an empty bin.
        accuracy: the share that is right, NaN in an empty bin.
    """

    low: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]
    count: npt.NDArray[np.int64]
    confidence: npt.NDArray[np.float64]
    accuracy: npt.NDArray[np.float64]


def accuracy(correct: ArrayLike) -> float:
    """The share of predictions that are right.

    Args:
        correct: ``[N]``, whether each prediction is right.

    Returns:
        A share between 0 and 1; higher is better.

    Example:
        >>> from calibrant.metrics import accuracy
        >>> accuracy([1, 1, 0, 1])
        0.75
    """
    right = truth(correct)
    return int(np.count_nonzero(right)) / right.size


def mean_confidence(confidence: ArrayLike) -> float:
    """The mean confidence; above the accuracy it says too much, below it too little.

    Args:
        confidence: ``[N]``, between 0 and 1.

    Returns:
        The mean.

    Example:
        >>> from calibrant.metrics import mean_confidence
        >>> mean_confidence([0.5, 1.0])
        0.75

    Reference:
        ALS, Table 1 ("A.conf").
    """
    values = real("confidence", confidence).values
    within("confidence", values, 0.0, 1.0)
    return float(values.mean(dtype=np.float64))


def overconfidence(confidence: ArrayLike, correct: ArrayLike) -> float:
    """The mean confidence of the wrong predictions.

    Args:
        confidence: ``[N]``, between 0 and 1.
        correct: ``[N]``, whether each prediction is right.

    Returns:
        The mean, NaN if none is wrong; lower is better.

    Example:
        >>> from calibrant.metrics import overconfidence
        >>> overconfidence([0.9, 0.8, 0.6], [1, 0, 0])
        0.7

    Reference:
        [Mund2015]; ALS, Sec. 4.2.
    """
    (values, _), right = judged(confidence, correct, name="confidence")
    wrong = values[~right]
    return float(wrong.mean(dtype=np.float64)) if len(wrong) else math.nan


def underconfidence(confidence: ArrayLike, correct: ArrayLike) -> float:
    """The mean of 1 - confidence over the right predictions.

    Args:
        confidence: ``[N]``, between 0 and 1.
        correct: ``[N]``, whether each prediction is right.

    Returns:
        The mean, NaN if none is right; lower is better.

    Example:
        >>> from calibrant.metrics import underconfidence
        >>> underconfidence([0.9, 0.8, 0.6], [1, 1, 0])
        0.15

    Reference:
        [Mund2015]; ALS, Sec. 4.2.
    """
    (values, _), right = judged(confidence, correct, name="confidence")
    held = values[right]
    return float((1.0 - held.astype(np.float64)).mean()) if len(held) else math.nan


def reliability(confidence: ArrayLike, correct: ArrayLike, *, bins: int = 15) -> Reliability:
    """The bins that `ece` and `mce` compare, for a reliability diagram.

    Args:
        confidence: ``[N]``, between 0 and 1.
        correct: ``[N]``, whether each prediction is right.
        bins: how many, of equal width.

    Returns:
        Edges, counts, mean confidences and accuracies.

    Example:
        >>> from calibrant.metrics import reliability
        >>> seen = reliability([0.9, 0.7, 0.3], [1, 0, 1], bins=2)
        >>> seen.count.tolist(), seen.confidence.tolist(), seen.accuracy.tolist()
        ([1, 2], [0.3, 0.8], [1.0, 0.5])

    Reference:
        [Guo2017] Sec. 2.
    """
    numbers, right = judged(confidence, correct, name="confidence")
    edges = bin_edges(bins, numbers.precision)
    held = bin_sums(numbers.values, right, edges)
    means = [
        np.divide(x, held.count, out=np.full(len(held.count), np.nan), where=held.count > 0)
        for x in (held.confidence, held.right)
    ]
    return Reliability(edges[:-1], edges[1:], held.count, *means)


def ece(
    confidence: ArrayLike,
    correct: ArrayLike,
    *,
    bins: int = 15,
    convention: Convention = "standard",
    classes: int | None = None,
) -> float:
    r"""Expected calibration error: :math:`\sum_b \frac{|B_b|}{N} |\mathrm{conf}(B_b) - \mathrm{acc}(B_b)|`.

    Args:
        confidence: ``[N]``, between 0 and 1.
        correct: ``[N]``, whether each prediction is right.
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
    return ece_of_bins(_binned(confidence, correct, bins, convention, classes))


def mce(
    confidence: ArrayLike,
    correct: ArrayLike,
    *,
    bins: int = 15,
    convention: Convention = "standard",
    classes: int | None = None,
) -> float:
    r"""Maximum calibration error: the largest :math:`|\mathrm{conf}(B_b) - \mathrm{acc}(B_b)|` of a bin with members.

    Args:
        confidence: ``[N]``, between 0 and 1.
        correct: ``[N]``, whether each prediction is right.
        bins: how many, of equal width.
        convention: ``"standard"`` or ``"pycalib"``, see the table of the module.
        classes: the number of classes, which ``"pycalib"`` needs.

    Returns:
        The error, between 0 and 1; lower is better.

    Example:
        >>> from calibrant.metrics import mce
        >>> mce([0.9, 0.7, 0.3], [1, 0, 1], bins=2)
        0.7

    Reference:
        [Naeini2015]; [Guo2017] Eq. 5; ALS, Sec. 4.2.
    """
    return mce_of_bins(_binned(confidence, correct, bins, convention, classes))


def aece(
    confidence: ArrayLike,
    correct: ArrayLike,
    *,
    bins: int = 15,
    convention: Literal["standard", "released"] = "standard",
) -> float:
    """Adaptive ECE: the gaps of `ece` over bins that hold equally many predictions.

    Args:
        confidence: ``[N]``, between 0 and 1.
        correct: ``[N]``, whether each prediction is right.
        bins: how many; with fewer predictions than that, each is its own bin.
        convention: ``"standard"`` or ``"released"``, see the table of the module.

    Returns:
        The error, between 0 and 1; lower is better.

    Example:
        >>> from calibrant.metrics import aece
        >>> aece([0.9, 0.7, 0.3], [1, 0, 1], bins=2)  # 0.3 and 0.7 against one half, 0.9 against 1
        0.03333333333333333

    Reference:
        [Nixon2019]; ACLS supplement, Sec. S2.1.
    """
    choice("convention", convention, ("standard", "released"))
    (values, _), right = judged(confidence, correct, name="confidence")
    groups = group_by_score(values, right)
    score, count, errors = groups.score[::-1], groups.count[::-1], groups.errors[::-1]
    sums = score * count
    if convention == "standard":
        return aece_of_groups(count, errors, sums, bins=bins)
    edges = released_edges(score, np.cumsum(count), whole("bins", bins, 1, MOST_BINS))
    upto = np.searchsorted(score, edges, side="right")
    gaps = np.diff(running(sums - (count - errors))[upto])
    return float(np.abs(gaps).sum()) / len(values)


def _binned(confidence: ArrayLike, correct: ArrayLike, bins: int, convention: Convention, classes: int | None) -> Bins:
    choice("convention", convention, ("standard", "pycalib"))
    numbers, right = judged(confidence, correct, name="confidence")
    if convention == "standard":
        return bin_sums(numbers.values, right, bin_edges(bins, numbers.precision))
    bins = whole("bins", bins, 1, MOST_BINS)
    if classes is None:
        raise ValueError("classes must be the number of classes when convention is 'pycalib', got None")
    low = 1 / whole("classes", classes, 2)
    _not_below(numbers, low, classes)
    held = bin_sums(numbers.values, right, np.linspace(low, 1, bins + 1), side="right")
    stand_in = np.linspace(low + 1 / (2 * bins), 1 - 1 / (2 * bins), bins)
    return replace(held, confidence=held.count * stand_in)


def _not_below(numbers: Numbers, low: float, classes: int) -> None:
    """The largest of K probabilities is 1/K at least, up to rounding; less is not the confidence of K classes."""
    slack = 1e-2 if is_half(numbers.precision) else 1e-4
    within("confidence", numbers.values, low * (1 - slack), 1.0, f"at least 1/{classes} for {classes} classes")
