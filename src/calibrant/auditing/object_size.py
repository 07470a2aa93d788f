"""Confidence by the share of the image that the object covers, its objectness: ALS, section 4.2."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant._validation import within
from calibrant.metrics import Doubles, Interval, normal_interval

#: Bins of objectness of equal width.
BINS = 10


class ObjectSizes:
    """Counts and sums over bins of objectness, additive; ``[lo, hi)``, the last with its upper edge."""

    def __init__(self, bins: int = BINS) -> None:
        self.counts, self.right = np.zeros(bins, np.int64), np.zeros(bins, np.int64)
        self.confidence, self.objectness = np.zeros(bins), np.zeros(bins)
        self.moments = np.zeros(2)  # of the distance of confidence and objectness

    def add(self, objectness: npt.ArrayLike, confidence: Doubles, correct: npt.NDArray[np.bool_] | None = None) -> None:
        """Add samples; without ``correct`` accuracies are unknown."""
        share = np.asarray(objectness, np.float64)
        within("objectness", share, 0.0, 1.0)
        bins = len(self.counts)
        at = np.minimum((share * bins).astype(np.int64), bins - 1)
        self.counts += np.bincount(at, minlength=bins)
        if correct is not None:
            self.right += np.bincount(at[correct], minlength=bins)
        self.confidence += np.bincount(at, confidence, minlength=bins)
        self.objectness += np.bincount(at, share, minlength=bins)
        distance = np.abs(confidence - share)
        self.moments += (distance.sum(), np.square(distance).sum())

    def deviation(self, level: float) -> Interval:
        """Mean distance of confidence and objectness, with the interval of a mean."""
        number = int(self.counts.sum())
        mean, square = self.moments / number
        spread = max(0.0, square - mean**2) * number / max(1, number - 1)
        error = math.sqrt(spread / number) if number > 1 else math.nan
        return normal_interval(float(mean), error, level, 0.0, 1.0)

    def series(self) -> dict[str, Any]:
        """Edges, counts, and means of every bin; NaN where it is empty."""
        bins = len(self.counts)
        edges = np.arange(bins + 1) / bins
        with np.errstate(invalid="ignore"):
            means = {"objectness": self.objectness / self.counts, "confidence": self.confidence / self.counts}
            accuracy = self.right / self.counts
        return {"low": edges[:-1], "high": edges[1:], "count": self.counts, **means, "accuracy": accuracy}


def confidence_by_objectness(
    confidence: npt.ArrayLike, objectness: npt.ArrayLike, *, bins: int = BINS
) -> dict[str, Any]:
    """Mean confidence and mean objectness in bins of objectness.

    Args:
        confidence: ``[N]``.
        objectness: ``[N]``, between 0 and 1.
        bins: Of equal width.

    Example:
        >>> part = confidence_by_objectness([0.5, 0.7, 0.9], [0.1, 0.2, 0.8], bins=2)
        >>> part["count"].tolist(), part["confidence"].round(2).tolist()
        ([2, 1], [0.6, 0.9])
    """
    sizes = ObjectSizes(bins)
    sizes.add(objectness, np.asarray(confidence, np.float64))
    series = sizes.series()
    del series["accuracy"]
    return series
