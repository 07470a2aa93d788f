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
``classwise_ece``      the bins of ``ece``, of every class's probability instead of the confidence alone.
=====================  =============================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar, overload

import numpy as np
import numpy.typing as npt

from calibrant._arrays import ArrayLike, Doubles, Precision, is_half, round_to
from calibrant._validation import (
    MOST_BINS,
    Bools,
    Floats,
    Ints,
    check_choice,
    check_integer,
    check_scores,
    check_within,
)
from calibrant.metrics.logits import Kind, Scored, as_scored, probabilities
from calibrant.metrics.ties import group_by_score

Convention: TypeAlias = Literal["standard", "pycalib"]
Scalar = TypeVar("Scalar", bound=np.number[Any])

Bins: TypeAlias = tuple[Ints, Doubles, Ints]  # per bin: predictions, sum of their confidences, right ones

ROWS = 1 << 16  # predictions that are binned at a time: they stay in the cache, and partial sums stay exact longer


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
        >>> diagram = reliability([0.9, 0.7, 0.3], [1, 0, 1], bins=2)
        >>> diagram.count.tolist(), diagram.confidence.tolist(), diagram.accuracy.tolist()
        ([1, 2], [0.3, 0.8], [1.0, 0.5])

    Reference:
        [Guo2017] Sec. 2.
    """
    (values, precision), correct = check_scores(confidence, correct, name="confidence")
    edges = bin_edges(bins, precision)
    count, *sums = _sum_bins(values, correct, edges)
    means = [np.divide(part, count, out=np.full(len(count), np.nan), where=count > 0) for part in sums]
    return Reliability(edges[:-1], edges[1:], count, *means)


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
    count, sums, hits = _bins(confidence, correct, bins, convention, classes)
    return float(np.abs(sums - hits).sum()) / int(count.sum())


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
    count, sums, hits = _bins(confidence, correct, bins, convention, classes)
    filled = np.flatnonzero(count)
    return float((np.abs(sums - hits)[filled] / count[filled]).max())


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
    check_choice("convention", convention, ("standard", "released"))
    (values, _), correct = check_scores(confidence, correct, name="confidence")
    groups = group_by_score(values, correct)
    score, count, errors = groups.score[::-1], groups.count[::-1], groups.errors[::-1]
    sums = score * count
    if convention == "standard":
        return aece_of_groups(count, errors, sums, bins=bins)
    bins, size = check_integer("bins", bins, 1, MOST_BINS), len(values)
    # np.interp(np.linspace(0, N, bins + 1), np.arange(N), sorted confidences), from groups.
    rank = np.minimum(np.linspace(0, size, bins + 1), size - 1)
    floor = rank.astype(np.int64)
    ends = np.cumsum(count)
    below, above = (score[np.searchsorted(ends, np.minimum(i, size - 1), side="right")] for i in (floor, floor + 1))
    upto = np.searchsorted(score, (above - below) * (rank - floor) + below, side="right")
    return float(np.abs(np.diff(running_sums(sums - (count - errors))[upto])).sum()) / size


def aece_of_groups(count: Ints, errors: Ints, confidence: Doubles, *, bins: int = 15) -> float:
    """`aece` from groups in order of rising confidence: predictions, errors and sum of confidences, ``[G]``."""
    bins = check_integer("bins", bins, 1, MOST_BINS)
    upto, gap = running_sums(count), running_sums(confidence - (count - errors))
    size = int(upto[-1])
    runs = np.arange(bins + 1)
    ends = runs * (size // bins) + np.minimum(runs, size % bins)
    # The gap grows evenly within a group, so its value at the end of a run is an interpolation.
    at = np.clip(np.searchsorted(upto, ends, side="left"), 1, len(count)) - 1
    share = (ends - upto[at]) / np.maximum(count[at], 1)
    return float(np.abs(np.diff(gap[at] + share * (gap[at + 1] - gap[at]))).sum()) / size


def bin_edges(bins: int, precision: Precision = "float64") -> Doubles:
    """The edges k/M of M bins, ``[bins + 1]``, rounded to the precision that the confidences came in."""
    bins = check_integer("bins", bins, 1, MOST_BINS)
    return round_to(np.arange(bins + 1) / bins, precision)


def _bins(confidence: ArrayLike, correct: ArrayLike, bins: int, convention: Convention, classes: int | None) -> Bins:
    """The bins of `ece` and `mce`."""
    check_choice("convention", convention, ("standard", "pycalib"))
    (values, precision), correct = check_scores(confidence, correct, name="confidence")
    if convention == "standard":
        return _sum_bins(values, correct, bin_edges(bins, precision))
    bins = check_integer("bins", bins, 1, MOST_BINS)
    if classes is None:
        raise ValueError("classes must be the number of classes when convention is 'pycalib', got None")
    low = 1 / check_integer("classes", classes, 2)
    # The largest of K probabilities is 1/K at least, up to rounding; less is not the confidence of K classes.
    slack = 1e-2 if is_half(precision) else 1e-4
    check_within("confidence", values, low * (1 - slack), 1.0, f"at least 1/{classes} for {classes} classes")
    count, _, hits = _sum_bins(values, correct, np.linspace(low, 1, bins + 1), side="right")
    return count, count * np.linspace(low + 1 / (2 * bins), 1 - 1 / (2 * bins), bins), hits


def _sum_bins(values: Floats, correct: Bools, edges: Doubles, *, side: Literal["left", "right"] = "left") -> Bins:
    """Count and sum over bins between edges: ``(low, high]`` with side ``"left"``, ``[low, high)`` with ``"right"``."""
    bins = len(edges) - 1
    parts = range(0, len(values), ROWS)
    count, hits = np.zeros((2, bins), dtype=np.int64)
    sums = np.zeros((len(parts), bins))
    for part, start in enumerate(parts):
        rows = slice(start, start + ROWS)
        index = np.searchsorted(edges[1:-1], values[rows], side=side)
        count += np.bincount(index, minlength=bins)
        hits += np.bincount(index[correct[rows]], minlength=bins)
        sums[part] = np.bincount(index, weights=values[rows], minlength=bins)
    return count, sums.sum(axis=0), hits


def running_sums(values: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    """Sums over the first 0, 1, ..., G entries, ``[G + 1]``."""
    sums = np.zeros(len(values) + 1, dtype=values.dtype)
    np.cumsum(values, out=sums[1:])
    return sums


@overload
def classwise_ece(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    bins: int = 15,
    kind: Kind = "logits",
    average: Literal["mean"] = "mean",
    ignore_index: int | None = None,
) -> float: ...


@overload
def classwise_ece(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    bins: int = 15,
    kind: Kind = "logits",
    average: None,
    ignore_index: int | None = None,
) -> npt.NDArray[np.float64]: ...


def classwise_ece(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    bins: int = 15,
    kind: Kind = "logits",
    average: Literal["mean"] | None = "mean",
    ignore_index: int | None = None,
) -> float | npt.NDArray[np.float64]:
    r"""ECE of each class's probability against how often the class occurs, over all samples.

    .. math:: \frac1C \sum_k \sum_b \frac{|B_{kb}|}{N} \bigl| \overline{p_k}(B_{kb}) - \overline{[y = k]}(B_{kb}) \bigr|

    with the bins of `ece`, on p_k.

    Args:
        logits: ``[N, C]`` or ``[N, C, ...]``.
        labels: ``[N]`` or ``[N, ...]``, from 0 to C - 1.
        bins: how many, of equal width.
        kind: ``"logits"`` or ``"probabilities"``, as for `nll`.
        average: ``"mean"`` over the C classes, absent ones too, or None for each class's own error.
        ignore_index: a label whose positions are left out.

    Returns:
        The mean, or an array ``[C]``; lower is better.

    Example:
        >>> from calibrant.metrics import classwise_ece
        >>> classwise_ece([[0.8, 0.2], [0.6, 0.4]], [0, 1], kind="probabilities")
        0.4
        >>> classwise_ece([[0.8, 0.2], [0.6, 0.4]], [0, 1], kind="probabilities", average=None).tolist()
        [0.4, 0.4]

    Reference:
        [Kull2019] Sec. 2; [Nixon2019] (static calibration error).
    """
    if average is not None:
        check_choice("average", average, ("mean",))
    data = as_scored(logits, labels, kind=kind, ignore_index=ignore_index)
    edges = bin_edges(bins, data.precision if kind == "probabilities" else "float64")
    errors: npt.NDArray[np.float64] = np.abs(_gaps(data, edges)).sum(axis=1) / data.size
    return errors if average is None else float(errors.mean())


def _gaps(data: Scored, edges: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Sum of probabilities minus occurrences for each class and bin, ``[C, bins]``."""
    bins, inner = len(edges) - 1, edges[1:-1]
    gaps = np.zeros(data.classes * bins)
    for block in data.blocks():
        assert block.labels is not None
        p, labels = probabilities(block, data.kind), block.labels
        if p.ndim == 3:
            p, labels = np.moveaxis(p, 1, 2).reshape(-1, data.classes), labels.reshape(-1)
        if block.counted is not None:
            counted = block.counted.reshape(-1)
            p, labels = p[counted], labels[counted]
        cell = np.searchsorted(inner, p) + np.arange(data.classes) * bins
        gaps += np.bincount(cell.reshape(-1), weights=p.reshape(-1), minlength=len(gaps))
        gaps -= np.bincount(cell[np.arange(len(labels)), labels], minlength=len(gaps))
    return gaps.reshape(data.classes, bins)
