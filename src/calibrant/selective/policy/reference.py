"""How score, confidence and predicted class were distributed where a policy's threshold was set, for monitoring later.

A random part of the samples decides where bins begin and which classes share a cell, and is counted nowhere. Given the
bins, the counts of the others are those of independent draws, as the counts of new samples are while nothing changes:
a test may compare the two, whatever the distribution is and however often values are tied.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from calibrant._validation import Bools, Ints
from calibrant.metrics import Doubles

BINS = 16  # of scores and confidences, and cells of classes
APART, MOST_APART = 0.2, 2000  # of the samples, for the bins
FEWEST_ROWS = 50  # below which nothing is kept
MOST_KEPT = 100_000
MOST_LISTED = 1000  # classes, above which their labels are not counted


class ReferenceRows(NamedTuple):
    """Samples, ``[n]`` each: random number, score, confidence, predicted class and group."""

    draw: Doubles
    score: Doubles
    confidence: Doubles
    predicted: Ints
    group: npt.NDArray[np.str_]

    def take(self, rows: Bools) -> ReferenceRows:
        """Some of the samples."""
        columns: tuple[Any, ...] = self
        return ReferenceRows(*(column[rows] for column in columns))


class Reference:
    """A random choice of samples, collected some at a time: all of them, or about a hundred thousand of more."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng([seed, 0x5EED])
        self._parts: list[ReferenceRows] = []
        self._limit, self._size = 1.0, 0

    def add(self, score: Doubles, confidence: Doubles, predicted: Ints, group: npt.NDArray[np.str_]) -> None:
        """Add some samples."""
        draw = self._random.random(len(score))
        part = ReferenceRows(draw, score, confidence, np.asarray(predicted, np.int64), group)
        self._parts.append(part.take(draw < self._limit))
        self._size += len(self._parts[-1].draw)
        while self._size > 2 * MOST_KEPT:
            self._limit /= 2
            rows = self._rows()
            self._parts = [rows.take(rows.draw < self._limit)]
            self._size = len(self._parts[0].draw)

    def _rows(self) -> ReferenceRows:
        columns: Any = zip(*self._parts, strict=True)
        return ReferenceRows(*(np.concatenate(column) for column in columns))

    def evidence(
        self, limits: Callable[[npt.NDArray[np.str_], Ints], Doubles] | float, labels: Ints, answer: int | None = None
    ) -> dict[str, Any] | None:
        """The sketch as plain data; None of too few samples.

        Args:
            limits: the threshold, or a function that gives it for the groups and predicted classes of samples.
            labels: ``[C]`` how often each label occurs.
            answer: the class that all accepted samples are answered as, if there is one; its probability is the score.
        """
        if self._size < FEWEST_ROWS:
            return None
        rows = self._rows()
        accepted = rows.score >= (limits(rows.group, rows.predicted) if callable(limits) else limits)
        if answer is not None:
            rows = rows._replace(
                confidence=np.where(accepted, rows.score, rows.confidence),
                predicted=np.where(accepted, answer, rows.predicted),
            )
        # The smallest draws: random, and the same share of few samples as of many.
        apart = rows.draw <= np.partition(rows.draw, count := min(int(APART * self._size), MOST_APART))[count - 1]
        first, rest = rows.take(apart), rows.take(~apart)
        classes = frequent_classes(np.bincount(first.predicted, minlength=len(labels)))
        doubt = 1 - rest.confidence[accepted[~apart]]
        return {
            "rows": len(rest.draw),
            "score": _binned(first.score, rest.score),
            "confidence": _binned(first.confidence, rest.confidence),
            "predicted": {"classes": classes.tolist(), "counts": class_counts(rest.predicted, classes).tolist()},
            "labels": labels.tolist() if len(labels) <= MOST_LISTED else None,
            "implied_risk": float(doubt.mean()) if len(doubt) else None,
        }


def frequent_classes(counts: Ints) -> Ints:
    """The most frequent classes, which have a cell each; all others share the last."""
    return np.argsort(-counts, kind="stable")[: min(len(counts), BINS) - 1]


def class_counts(predicted: Ints, classes: npt.ArrayLike) -> Ints:
    """How often each class is predicted, and how often any other."""
    counts = (predicted[:, None] == np.asarray(classes, dtype=np.int64)).sum(0)
    return np.append(counts, len(predicted) - counts.sum()).astype(np.int64)


def bin_counts(values: Doubles, edges: npt.ArrayLike) -> Ints:
    """How many values lie in each bin; an edge belongs to the bin above it."""
    bins = np.asarray(edges, dtype=np.float64)
    return np.bincount(np.searchsorted(bins, values, side="right"), minlength=len(bins) + 1).astype(np.int64)


def _binned(apart: Doubles, values: Doubles) -> dict[str, Any]:
    edges = np.unique(np.quantile(apart, np.arange(1, BINS) / BINS, method="inverted_cdf"))
    edges = edges[edges > apart.min()]  # else nothing lies below the first
    return {"edges": edges.tolist(), "counts": bin_counts(values, edges).tolist()}
