"""Bins of confidences: edges, counts and sums per bin, and what ECE and its kin are in terms of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from calibrant._arrays import Precision, rounded
from calibrant._validation import MOST_BINS, Bools, Floats, Ints, whole
from calibrant.metrics.ties import Doubles

Scalar = TypeVar("Scalar", bound=np.number[Any])

ROWS = 1 << 16  # how many predictions are binned at once: they stay in cache, and partial sums stay exact longer


@dataclass(frozen=True, eq=False)
class Bins:
    """Per bin: how many predictions, the sum of their confidences, and how many are right."""

    count: Ints
    confidence: Doubles
    right: Ints


def bin_edges(bins: int, precision: Precision = "float64") -> Doubles:
    """The edges k/M of M bins, ``[bins + 1]``, rounded to the precision that the confidences came in."""
    bins = whole("bins", bins, 1, MOST_BINS)
    return rounded(np.arange(bins + 1) / bins, precision)


def bin_sums(values: Floats, right: Bools, edges: Doubles, *, side: Literal["left", "right"] = "left") -> Bins:
    """Count and sum over bins between edges: ``(low, high]`` with side ``"left"``, ``[low, high)`` with ``"right"``."""
    bins = len(edges) - 1
    inner = edges[1:-1]
    parts = range(0, len(values), ROWS)
    count, hits = np.zeros((2, bins), dtype=np.int64)
    sums = np.zeros((len(parts), bins))
    for part, start in enumerate(parts):
        chunk, good = values[start : start + ROWS], right[start : start + ROWS]
        place = np.searchsorted(inner, chunk, side=side)
        count += np.bincount(place, minlength=bins)
        hits += np.bincount(place[good], minlength=bins)
        sums[part] = np.bincount(place, weights=chunk, minlength=bins)
    return Bins(count, sums.sum(axis=0), hits)


def released_edges(score: Doubles, upto: Ints, bins: int) -> Doubles:
    """``np.interp(np.linspace(0, N, bins + 1), np.arange(N), sorted confidences)``, from groups."""
    size = int(upto[-1])
    x = np.minimum(np.linspace(0, size, bins + 1), size - 1)
    floor = x.astype(np.int64)
    below, above = (score[np.searchsorted(upto, np.minimum(i, size - 1), side="right")] for i in (floor, floor + 1))
    return (above - below) * (x - floor) + below


def ece_of_bins(bins: Bins) -> float:
    """`ece` from each bin's counts and sum."""
    return float(np.abs(bins.confidence - bins.right).sum()) / int(bins.count.sum())


def mce_of_bins(bins: Bins) -> float:
    """`mce` from each bin's counts and sum."""
    held = np.flatnonzero(bins.count)
    return float((np.abs(bins.confidence - bins.right)[held] / bins.count[held]).max())


def aece_of_groups(count: Ints, errors: Ints, confidence: Doubles, *, bins: int = 15) -> float:
    """`aece` from groups in order of rising confidence: predictions, errors and sum of confidences, ``[G]``.

    Each member of a group counts with the group's mean confidence and mean correctness.
    """
    bins = whole("bins", bins, 1, MOST_BINS)
    upto, gap = running(count), running(confidence - (count - errors))
    size = int(upto[-1])
    runs = np.arange(bins + 1)
    ends = runs * (size // bins) + np.minimum(runs, size % bins)
    # The gap grows evenly within a group, so its value at the end of a run is an interpolation.
    at = np.clip(np.searchsorted(upto, ends, side="left"), 1, len(count)) - 1
    share = (ends - upto[at]) / np.maximum(count[at], 1)
    return float(np.abs(np.diff(gap[at] + share * (gap[at + 1] - gap[at]))).sum()) / size


def running(x: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    """Sums over the first 0, 1, ..., G entries, ``[G + 1]``."""
    sums = np.zeros(len(x) + 1, dtype=x.dtype)
    np.cumsum(x, out=sums[1:])
    return sums
