"""The search for a threshold: what every threshold accepts, and which tests are made in which order.

`calibrant.selective.thresholds.risk` says what the methods are and why they hold.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from calibrant._arrays import ArrayLike
from calibrant._validation import Ints, judged
from calibrant.metrics import Doubles, group_by_score
from calibrant.selective.bounds import allowed_errors, binomial_tail, fewest, fewest_with

STEPS = 64  # candidates of a sequence
PLENTY = 16  # times the fewest samples: from here on a second start
FEWEST_ACCEPTED = 5  # of the rows that tests are planned on, for a candidate
_ROUNDING = 1e-12  # relative: scores that differ by less are tied
_SAFE_GAP = 1e-10  # relative: between scores that are farther apart no chain of ties will reach
_INTO_GAP = 2.0**-10  # how far above the first rejected score a threshold lies, as a share of the gap


@dataclass(frozen=True, eq=False)
class Curve:
    """What each threshold accepts, ``[G + 1]``: nothing first, then one more of the G distinct scores each.

    Attributes:
        threshold: just above the first score that is not accepted.
        lowest: the lowest accepted score.
        accepted: how many samples.
        errors: how many of those are wrong.
    """

    threshold: Doubles
    lowest: Doubles
    accepted: Ints
    errors: Ints

    @property
    def samples(self) -> int:
        """The number of samples."""
        return int(self.accepted[-1])

    @property
    def sets(self) -> int:
        """The number of distinct scores, each of which ends a set that can be accepted."""
        return len(self.accepted) - 1

    def at_rank(self, rank: npt.ArrayLike) -> Ints:
        """The index of the largest whole set of ties with at most ``rank`` members."""
        return np.searchsorted(self.accepted, rank, side="right") - 1

    def at_threshold(self, threshold: npt.ArrayLike) -> Ints:
        """The index of the set that a threshold of one's own accepts."""
        return np.searchsorted(-self.lowest, -np.asarray(threshold, dtype=np.float64), side="right") - 1


def curve_of(score: ArrayLike, correct: ArrayLike) -> Curve:
    """Count what every threshold accepts; ties are accepted whole or not at all."""
    (values, _), right = judged(score, correct)
    groups = group_by_score(values, right)
    lower = np.append(groups.score[1:], -np.inf)
    with np.errstate(invalid="ignore", over="ignore"):
        gap = groups.score - lower
        # Scores that differ in the last digits alone may do so the other way round in another program: tied.
        ends = np.flatnonzero(gap > _ROUNDING * np.abs(groups.score))
        # Just above the first rejected score, which the proof asks for, by more than rounding.
        inside = (lower + gap * _INTO_GAP)[ends]
    inside[-1] = -np.inf
    threshold = np.concatenate([[np.inf], inside])
    accepted, errors = (np.concatenate([[0], np.cumsum(x)[ends]]) for x in (groups.count, groups.errors))
    return Curve(threshold, np.concatenate([[np.inf], groups.score[ends]]), accepted, errors)


@functools.lru_cache(maxsize=1024)  # each group, and each risk of a menu, asks for the same again
def critical_ranks(samples: int, risk: float, delta: float, first: int | None = None, steps: int = STEPS) -> Ints:
    """Numbers of accepted samples to test, from the fewest that could be shown to hold (or ``first``) up to all.

    Each is the smallest at which its number of errors is allowed: a few samples more would have to bear the same
    number, at a lower level than delta.

    Example:
        >>> from calibrant.selective.thresholds.search import critical_ranks
        >>> critical_ranks(160, 0.05, 0.05).tolist()  # 0, 1, 2, 3 errors, and all samples
        [59, 93, 124, 153, 160]
    """
    least = fewest(risk, delta)
    start = least if first is None else max(first, least)
    if start > samples:
        return np.empty(0, np.int64)
    ends = (start, samples, max(2, steps // 2))
    even = np.unique(np.concatenate([np.linspace(*ends), np.geomspace(*ends)]).round().astype(np.int64))
    ranks = fewest_with(allowed_errors(even, risk, delta), even, risk, delta)
    ranks = np.unique(np.append(ranks, samples))
    ranks.setflags(write=False)  # it is shared
    return ranks


def sequence(curve: Curve, target_risk: float, delta: float) -> list[tuple[Ints, float]]:
    """The tests of a sequence that nobody planned: for each start, indices into the curve and its share of delta."""
    n = curve.samples
    least = fewest(target_risk, delta)
    starts = [(n // 4, 1.0)]
    if n >= PLENTY * least:
        starts = [(n // 4, 2 / 3), (fewest(target_risk, delta / 3, errors=2), 1 / 3)]
    tests = []
    for start, share in starts:
        indices = np.unique(curve.at_rank(critical_ranks(n, target_risk, delta * share, start)))
        # A rank inside a large tie stands for the few samples above it, which could never be shown to hold.
        tests.append((indices[curve.accepted[indices] >= fewest(target_risk, delta * share)], share))
    return tests


class FixedSequence(NamedTuple):
    """What a fixed sequence tests, in order, decided without looking at the samples that are tested.

    Attributes:
        thresholds: ``[M]``, or None.
        ranks: ``[M]`` rising: "accept what scores above the (k+1)-th sample", of whatever samples are tested; or None.
    """

    thresholds: Doubles | None = None
    ranks: Ints | None = None


class Search(NamedTuple):
    """The result of a search.

    Attributes:
        at: index into the curve, 0 where nothing could be shown to hold.
        level: of the test that was passed.
        method: of the search.
        value: the threshold, where it was among candidates.
    """

    at: int
    level: float
    method: str
    value: float | None = None


def search(curve: Curve, method: str, target_risk: float, delta: float, tests: FixedSequence | None) -> Search:
    """The loosest threshold that a method can show to hold."""
    if method == "sgr":
        return _sgr(curve, target_risk, delta)
    if tests is not None and tests.thresholds is not None:
        indices = curve.at_threshold(tests.thresholds)
        passed = _count_passed(curve, indices, target_risk, delta)
        at = int(indices[:passed].max()) if passed else 0
        # The candidate itself is the threshold, not the place in the gap where these data would put it.
        return Search(at, delta, method, float(tests.thresholds[:passed].min()) if at else None)
    if tests is not None and tests.ranks is not None:
        indices = curve.at_rank(tests.ranks)
        passed = _count_passed(curve, indices, target_risk, delta)
        return Search(int(indices[passed - 1]) if passed else 0, delta, method)
    searches = [Search(0, delta, method)]
    for indices, share in sequence(curve, target_risk, delta):
        passed = _count_passed(curve, indices, target_risk, delta * share)
        searches.append(Search(int(indices[:passed].max()) if passed else 0, delta * share, method))
    return max(searches, key=lambda search: search.at)


def _count_passed(curve: Curve, indices: Ints, target_risk: float, level: float) -> int:
    """How many tests of a sequence hold before the first that does not."""
    holds = binomial_tail(curve.errors[indices], curve.accepted[indices], target_risk) <= level
    return len(holds) if holds.all() else int(np.argmin(holds))


def steps_of_sgr(scores: int, tied: bool = False) -> int:
    """How many bounds SGR's search over distinct scores looks at."""
    return max(1, math.ceil(math.log2(scores + tied)))


def _sgr(curve: Curve, target_risk: float, delta: float) -> Search:
    """The binary search of [Geifman2017, Alg. 1] over the distinct scores; the loosest that holds."""
    # As published the strictest is never looked at, which is a single sample, or a whole tie, that may be all there is.
    tied = curve.sets < curve.samples
    low, high, best = 0 if tied else 1, curve.sets, 0
    steps = steps_of_sgr(curve.sets, tied)
    for _ in range(steps):
        at = math.ceil((low + high) / 2)
        if float(binomial_tail(curve.errors[at], curve.accepted[at], target_risk)) <= delta / steps:
            low, best = at, max(best, at)
        else:
            high = at
    return Search(best, delta / steps, "sgr")


def candidates_of(curve: Curve, steps: int = STEPS) -> tuple[Doubles, Doubles, Doubles]:
    """Thresholds from strict to loose, midway between scores, with what they accept and how many errors that has.

    The last one accepts everything. None lies in a narrow gap: close to a confidence of 1 more samples than these may
    be one chain of ties, of which a threshold inside would accept nothing.
    """
    size = curve.samples
    # Evenly over all, and ever closer towards the top, where a strict target may be met by a small share alone.
    ranks = np.concatenate([np.linspace(size / steps, size, steps), size / steps * 2.0 ** -np.arange(0.5, 8, 0.5)])
    at = curve.at_rank(ranks[ranks >= FEWEST_ACCEPTED].round().astype(np.int64))
    below = np.append(curve.lowest[1:], -np.inf)
    is_wide = curve.lowest - below > _SAFE_GAP * np.abs(curve.lowest)
    is_wide[0], is_wide[-1] = False, True
    at = np.unique(np.append(at[is_wide[at]], curve.sets))
    below = below[at]
    middle = np.where(np.isinf(below), -np.inf, (curve.lowest[at] + below) / 2)
    return middle, curve.accepted[at].astype(np.float64), curve.errors[at].astype(np.float64)
