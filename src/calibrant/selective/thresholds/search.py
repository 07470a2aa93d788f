r"""The search for a threshold: what every threshold accepts, which tests are planned, and which of them pass.

`calibrant.selective.thresholds.risk` says what the methods are and why they hold.

**The plan.** A fixed sequence that fails at its first test promises nothing, and one that starts too strict may fail on
its way for want of samples. So the tests are played through beforehand, on other samples than those that are tested.
The rows of the plan, ranked by their score, give a model of the error rate x ranks down,
:math:`\mathrm{logit}\, \eta(x) = a + b (x - 1/2)` with a normal prior on a and b, and in each part between `EDGES` a
beta distribution around it, by which the rates may leave the curve where there are rows enough. Of `PLAYS` curves drawn
from this model, and errors drawn by each, the start is the one with the largest mean coverage. Whatever the model says,
the promise holds: it decides what is tested, not what passes. What a threshold will accept of the tested samples is not
known beforehand as it is of a rank, so it is drawn too.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from calibrant.base.arrays import ArrayLike
from calibrant.base.checks import Bools, Ints, check_scores
from calibrant.metrics import Doubles, group_by_score
from calibrant.selective.bounds import allowed_errors, binomial_tail, fewest, fewest_with

STEPS = 64  # candidates of a sequence
PLENTY = 16  # times the fewest samples: from here on a second start
FEWEST_ACCEPTED = 5  # of the rows that tests are planned on, for a candidate
TIED = 1e-12  # relative: scores that differ by less count as equal
_SAFE_GAP = 1e-10  # relative: between scores that are farther apart no chain of ties will reach
INTO_GAP = 2.0**-10  # how far into the gap between two scores a threshold lies, from one of them

PLAYS = 200  # of the tests, before they are made
#: Shares of the ranked rows between which the error rate is one number.
EDGES = np.concatenate([[0, 1 / 64, 1 / 32, 1 / 16, 1 / 8], np.linspace(0.2, 1, 9)])
STRENGTH = 50.0  # rows that the curve is worth, in each part
SLOPE = 3.0  # of the curve, before any row is seen: the least confident are wrong some twenty times as often
PRECISION = np.array([0.3, 0.15])  # of the prior of a and b


@dataclass(frozen=True, eq=False)
class Curve:
    """What each threshold accepts, ``[G + 1]``: nothing first, then one more of the G distinct scores each."""

    threshold: Doubles  # just above the first score that is not accepted
    lowest: Doubles  # accepted score
    accepted: Ints  # how many samples
    errors: Ints  # how many of those are wrong

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
    (values, _), correct = check_scores(score, correct)
    groups = group_by_score(values, correct)
    lower = np.append(groups.score[1:], -np.inf)
    with np.errstate(invalid="ignore", over="ignore"):
        gap = groups.score - lower
        # Scores that differ in the last digits alone may do so the other way round in another program: tied.
        ends = np.flatnonzero(gap > TIED * np.abs(groups.score))
        # Just above the first rejected score, which the proof asks for, by more than rounding.
        inside = (lower + gap * INTO_GAP)[ends]
    inside[-1] = -np.inf
    threshold = np.concatenate([[np.inf], inside])
    accepted, errors = (np.concatenate([[0], np.cumsum(x)[ends]]) for x in (groups.count, groups.errors))
    return Curve(threshold, np.concatenate([[np.inf], groups.score[ends]]), accepted, errors)


@functools.lru_cache(maxsize=1024)  # each group, and each risk of a menu, asks for the same again
def critical_ranks(samples: int, risk: float, delta: float, first: int | None = None) -> Ints:
    """Numbers of accepted samples to test, from the fewest that could be shown to hold (or ``first``) up to all.

    Each is the smallest at which its number of errors is allowed: a few samples more would have to bear the same
    number, at a lower level than delta.

    Example:
        >>> critical_ranks(160, 0.05, 0.05).tolist()  # 0, 1, 2, 3 errors, and all samples
        [59, 93, 124, 153, 160]
    """
    least = fewest(risk, delta)
    start = least if first is None else max(first, least)
    if start > samples:
        return np.empty(0, np.int64)
    ends = (start, samples, STEPS // 2)
    even = np.unique(np.concatenate([np.linspace(*ends), np.geomspace(*ends)]).round().astype(np.int64))
    ranks = fewest_with(allowed_errors(even, risk, delta), even, risk, delta)
    ranks = np.unique(np.append(ranks, samples))
    ranks.setflags(write=False)  # it is shared
    return ranks


def unplanned_tests(curve: Curve, target_risk: float, delta: float) -> list[tuple[Ints, float]]:
    """The tests of a sequence that nobody planned: for each start, indices into the curve and its share of delta."""
    n = curve.samples
    starts = [(n // 4, 1.0)]
    if n >= PLENTY * fewest(target_risk, delta):
        starts = [(n // 4, 2 / 3), (fewest(target_risk, delta / 3, errors=2), 1 / 3)]
    tests = []
    for start, share in starts:
        # A rank inside a tie stands for the whole tie: the few samples above might be too few for any test.
        ranks = critical_ranks(n, target_risk, delta * share, start)
        tests.append((np.unique(np.searchsorted(curve.accepted, ranks, side="left")), share))
    return tests


class FixedSequence(NamedTuple):
    """What a fixed sequence tests, in order, decided without looking at the samples that are tested.

    Thresholds ``[M]``, or rising ranks ``[M]``: "accept what scores above the (k+1)-th", whatever samples are tested.
    """

    thresholds: Doubles | None = None
    ranks: Ints | None = None


class Search(NamedTuple):
    """The result of a search."""

    at: int  # index into the curve, 0 where nothing could be shown to hold
    level: float  # of the test that was passed
    value: float | None = None  # the threshold, where it was among candidates


def search(curve: Curve, method: str, target_risk: float, delta: float, tests: FixedSequence | None) -> Search:
    """The loosest threshold that a method can show to hold."""
    if method == "sgr":
        return _sgr(curve, target_risk, delta)
    if tests is not None and tests.thresholds is not None:
        indices = curve.at_threshold(tests.thresholds)
        passed = _count_passed(curve, indices, target_risk, delta)
        at = int(indices[:passed].max()) if passed else 0
        # The candidate itself is the threshold, not the point in the gap where these data would put it.
        return Search(at, delta, float(tests.thresholds[:passed].min()) if at else None)
    if tests is not None and tests.ranks is not None:
        indices = curve.at_rank(tests.ranks)
        passed = _count_passed(curve, indices, target_risk, delta)
        return Search(int(indices[passed - 1]) if passed else 0, delta)
    searches = [Search(0, delta)]
    for indices, share in unplanned_tests(curve, target_risk, delta):
        passed = _count_passed(curve, indices, target_risk, delta * share)
        searches.append(Search(int(indices[:passed].max()) if passed else 0, delta * share))
    return max(searches, key=lambda search: search.at)


def _count_passed(curve: Curve, indices: Ints, target_risk: float, level: float) -> int:
    """How many tests of a sequence hold before the first that does not."""
    holds = binomial_tail(curve.errors[indices], curve.accepted[indices], target_risk) <= level
    return len(holds) if holds.all() else int(np.argmin(holds))


def _sgr(curve: Curve, target_risk: float, delta: float) -> Search:
    """The binary search of [Geifman2017, Alg. 1] over the distinct scores; the loosest that holds."""
    # As published the strictest is never looked at, which is a single sample, or a whole tie, that may be all there is.
    tied = curve.sets < curve.samples
    low, high, best = 0 if tied else 1, curve.sets, 0
    steps = max(1, math.ceil(math.log2(curve.sets + tied)))
    for _ in range(steps):
        at = math.ceil((low + high) / 2)
        if float(binomial_tail(curve.errors[at], curve.accepted[at], target_risk)) <= delta / steps:
            low, best = at, max(best, at)
        else:
            high = at
    return Search(best, delta / steps)


def candidates_of(curve: Curve, steps: int = STEPS) -> tuple[Doubles, Doubles]:
    """Thresholds from strict to loose, midway between scores, and how many samples they accept.

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
    return middle, curve.accepted[at].astype(np.float64)


def plan_tests(score: Doubles, correct: Bools, samples: int, risk: float, delta: float) -> FixedSequence:
    """The tests to make on ``samples`` others: ranks of theirs, or thresholds where there are ties.

    Ranks are those at which one error more is allowed, so that no test wastes a part of its level. With ties the number
    of accepted samples is not free to choose, and the thresholds of these rows are tested instead.

    Example:
        >>> tests = plan_tests(np.linspace(1, 0, 100), np.arange(100) < 90, 400, 0.05, 0.05)
        >>> tests.thresholds is None, len(tests.ranks) > 5, int(tests.ranks[-1])
        (True, True, 400)
    """
    curve = curve_of(score, correct)
    is_wrong = ~correct[np.argsort(-score, kind="stable")]
    rng = np.random.default_rng(0)
    if curve.sets == len(score):
        ranks, allowed = _ranks_to_test(samples, risk, delta)
        return FixedSequence(ranks=ranks[best_start(is_wrong, ranks, allowed, samples, risk, rng) :])
    thresholds, accepted = candidates_of(curve)
    counts = _draw_counts(accepted, len(score), samples, rng)
    errors, critical = _critical_counts(samples, risk, delta)
    allowed = np.floor(np.interp(counts, critical, errors, left=-1.0)).astype(np.int64)
    return FixedSequence(thresholds=thresholds[best_start(is_wrong, counts, allowed, samples, risk, rng) :])


def _draw_counts(accepted: Doubles, rows: int, samples: int, rng: np.random.Generator) -> Ints:
    """How many of the ``samples`` thresholds may accept, ``[PLAYS, M]``, by how many of the plan's rows they do."""
    between = np.diff(accepted, prepend=0.0, append=float(rows))
    shares = rng.gamma(between, size=(PLAYS, len(between)))
    added = rng.multinomial(samples, shares / shares.sum(axis=1, keepdims=True))
    return np.cumsum(added[:, :-1], axis=1)


@functools.lru_cache(maxsize=1024)  # as of `critical_ranks`
def _critical_counts(samples: int, risk: float, delta: float) -> tuple[Ints, Ints]:
    """Numbers of errors, and the fewest accepted samples with which each is allowed; not all of large numbers."""
    most = int(allowed_errors(samples, risk, delta))
    some = np.geomspace(max(most, 1), 1, STEPS).round().astype(np.int64)
    errors = np.unique(np.concatenate([np.arange(min(most, PLENTY * STEPS)), some[some <= most], [max(most, 0)]]))
    return errors, fewest_with(errors, np.full_like(errors, max(samples, fewest(risk, delta))), risk, delta)


@functools.lru_cache(maxsize=1024)  # as of `critical_ranks`
def _ranks_to_test(samples: int, risk: float, delta: float) -> tuple[Ints, Ints]:
    """The ranks of a plan and the errors that each allows, which depend on no row; not to be written to."""
    ranks = critical_ranks(samples, risk, delta)
    allowed = allowed_errors(ranks, risk, delta)
    allowed.setflags(write=False)
    return ranks, allowed


def best_start(
    is_wrong: Bools, counts: Ints, allowed: Ints, samples: int, risk: float, rng: np.random.Generator
) -> int:
    """Of tests that accept rising ``counts`` of the samples, the one to start with.

    Where several starts reach as much, it is the middle one: those at the edges are passed by the least margin.

    Args:
        is_wrong: ``[k]`` whether rows of the plan are wrong, the most confident first.
        counts: ``[M]``, or ``[PLAYS, M]`` drawn, how many of the ``samples`` each test accepts.
        allowed: likewise, the most errors with which each test is passed.
        samples: how many there are to test on.
        risk: the target.
        rng: draws the plays.
    """
    if counts.shape[-1] < 2:
        return 0
    rates = _draw_rates(is_wrong, risk, rng)
    mass = np.concatenate([np.zeros((PLAYS, 1)), np.cumsum(rates * np.diff(EDGES), axis=1)], axis=1)
    counts = np.broadcast_to(counts, (PLAYS, counts.shape[-1]))
    share = np.clip(counts / samples, 0.0, 1.0)
    part = np.minimum(np.searchsorted(EDGES, share, side="right") - 1, len(EDGES) - 2)
    play = np.arange(PLAYS)[:, None]
    expected = samples * (mass[play, part] + (share - EDGES[part]) * rates[play, part])
    added = np.maximum(np.diff(counts, axis=1, prepend=0), 0)
    chance = np.clip(np.diff(expected, axis=1, prepend=0.0) / np.maximum(added, 1), 0.0, 1.0)
    errors = np.cumsum(rng.binomial(added, chance), axis=1)
    reached = reached_from(errors <= allowed, counts).sum(0)
    best = np.flatnonzero(reached == reached.max())
    return int(best[len(best) // 2])


def reached_from(passed: Bools, counts: Ints) -> Ints:
    """From each of rising ``counts`` on, the last before the first test that is not ``passed``, both ``[..., M]``.

    Example:
        >>> reached_from(np.array([True, True, False, True]), np.array([10, 20, 30, 40])).tolist()
        [20, 20, 0, 40]
    """
    tests = np.arange(passed.shape[-1])
    failed = np.where(passed, len(tests), tests)
    next_failed = np.minimum.accumulate(failed[..., ::-1], axis=-1)[..., ::-1]
    before = np.take_along_axis(np.broadcast_to(counts, passed.shape), np.maximum(next_failed - 1, 0), axis=-1)
    return np.where(passed, before, 0)


def _draw_rates(is_wrong: Bools, risk: float, rng: np.random.Generator) -> Doubles:
    """Error rates of each part of the ranking, ``[PLAYS, parts]``, drawn from the model."""
    ends = np.round(EDGES * len(is_wrong)).astype(np.int64)
    total = np.concatenate([[0], np.cumsum(is_wrong)])[ends]
    rows, errors = np.diff(ends), np.diff(total)
    middle = (EDGES[1:] + EDGES[:-1]) / 2 - 0.5
    mean, covariance = _fit_curve(np.stack([np.ones_like(middle), middle], axis=1), rows, errors, risk)
    curves = rng.multivariate_normal(mean, covariance, PLAYS, method="cholesky")
    rates = expit(curves[:, :1] + curves[:, 1:] * middle)
    tiny = 1e-3  # a beta distribution has positive parameters
    return rng.beta(STRENGTH * rates + errors + tiny, STRENGTH * (1 - rates) + rows - errors + tiny)


def _fit_curve(design: Doubles, rows: Ints, errors: Ints, risk: float) -> tuple[Doubles, Doubles]:
    """Mode of a and b, and the covariance around it: Newton's method, which the prior keeps away from infinity."""
    prior = np.array([np.log(2 * risk), SLOPE])
    weights = prior.copy()
    for _ in range(30):
        rate = expit(design @ weights)
        gradient = design.T @ (errors - rows * rate) - PRECISION * (weights - prior)
        curvature = (design * (rows * rate * (1 - rate))[:, None]).T @ design + np.diag(PRECISION)
        step = np.clip(np.linalg.solve(curvature, gradient), -2.0, 2.0)
        weights = weights + step
        if np.abs(step).max() < 1e-6:
            break
    return weights, np.linalg.inv(curvature)
