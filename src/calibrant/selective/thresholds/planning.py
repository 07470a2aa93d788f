r"""Which thresholds to test, and where to start: planned on other samples than those that are tested.

A fixed sequence that fails at its first test promises nothing, and one that starts too strict may fail on its way for
want of samples. So the tests are played through beforehand. The rows of the plan, ranked by their score, give a model
of the error rate x ranks down, :math:`\mathrm{logit}\, \eta(x) = a + b (x - 1/2)` with a normal prior on a and b, and
in each part between `EDGES` a beta distribution around it, by which the rates may leave the curve where there are rows
enough. Of `PLAYS` curves drawn from this model, and errors drawn by each, the start is the one with the largest mean
coverage.

Whatever the model says, the promise holds: it decides what is tested, not what passes.
"""

from __future__ import annotations

import functools

import numpy as np
from scipy.special import expit

from calibrant._validation import Bools, Ints
from calibrant.metrics import Doubles
from calibrant.selective.bounds import allowed_errors
from calibrant.selective.thresholds.search import FixedSequence, candidates_of, critical_ranks, curve_of

PLAYS = 200  # of the tests, before they are made
#: Shares of the ranked rows between which the error rate is one number.
EDGES = np.concatenate([[0, 1 / 64, 1 / 32, 1 / 16, 1 / 8], np.linspace(0.2, 1, 9)])
STRENGTH = 50.0  # rows that the curve is worth, in each part
SLOPE = 3.0  # of the curve, before any row is seen: the least confident are wrong some twenty times as often
PRECISION = np.array([0.3, 0.15])  # of the prior of a and b


def plan_tests(score: Doubles, correct: Bools, samples: int, risk: float, delta: float) -> FixedSequence:
    """The tests to make on ``samples`` others: ranks of theirs, or thresholds where there are ties.

    Ranks are those at which one error more is allowed, so that no test wastes a part of its level. With ties the number
    of accepted samples is not free to choose, and the thresholds of these rows are tested instead.

    Example:
        >>> import numpy as np
        >>> from calibrant.selective.thresholds.planning import plan_tests
        >>> tests = plan_tests(np.linspace(1, 0, 100), np.arange(100) < 90, 400, 0.05, 0.05)
        >>> tests.thresholds is None, len(tests.ranks) > 5, int(tests.ranks[-1])
        (True, True, 400)
    """
    curve = curve_of(score, correct)
    wrong = ~correct[np.argsort(-score, kind="stable")]
    if curve.sets == len(score):
        ranks, allowed = _ranks_to_test(samples, risk, delta)
        return FixedSequence(ranks=ranks[best_start(wrong, ranks, allowed, samples, risk) :])
    thresholds, accepted, _ = candidates_of(curve)
    counts = np.round(accepted * (samples / len(score))).astype(np.int64)
    allowed = allowed_errors(counts, risk, delta)
    return FixedSequence(thresholds=thresholds[best_start(wrong, counts, allowed, samples, risk) :])


@functools.lru_cache(maxsize=1024)  # as of `critical_ranks`
def _ranks_to_test(samples: int, risk: float, delta: float) -> tuple[Ints, Ints]:
    """The ranks of a plan and the errors that each allows, which depend on no row; not to be written to."""
    ranks = critical_ranks(samples, risk, delta)
    allowed = allowed_errors(ranks, risk, delta)
    allowed.setflags(write=False)
    return ranks, allowed


def best_start(wrong: Bools, counts: Ints, allowed: Ints, samples: int, risk: float) -> int:
    """Of tests that accept rising ``counts`` of the samples, the one to start with.

    Args:
        wrong: ``[k]`` whether rows of the plan are wrong, the most confident first.
        counts: ``[M]`` how many of the ``samples`` each test accepts, no test fewer than the one before.
        allowed: ``[M]`` the most errors with which each test is passed.
        samples: how many there are to test on.
        risk: the target.
    """
    if len(counts) < 2:
        return 0
    rng = np.random.default_rng(0)
    rates = _drawn_rates(wrong, risk, rng)
    mass = np.concatenate([np.zeros((PLAYS, 1)), np.cumsum(rates * np.diff(EDGES), axis=1)], axis=1)
    share = np.clip(counts / samples, 0.0, 1.0)
    part = np.minimum(np.searchsorted(EDGES, share, side="right") - 1, len(EDGES) - 2)
    expected = samples * (mass[:, part] + (share - EDGES[part]) * rates[:, part])
    more = np.maximum(np.diff(counts, prepend=0), 0)
    chance = np.clip(np.diff(expected, axis=1, prepend=0.0) / np.maximum(more, 1), 0.0, 1.0)
    errors = np.cumsum(rng.binomial(np.broadcast_to(more, chance.shape), chance), axis=1)
    return int(np.argmax(reached_from(errors <= allowed, counts).sum(0)))


def reached_from(passed: Bools, counts: Ints) -> Ints:
    """From each of rising ``counts`` ``[M]`` on, the last before the first test that is not ``passed``, ``[..., M]``.

    Example:
        >>> import numpy as np
        >>> from calibrant.selective.thresholds.planning import reached_from
        >>> reached_from(np.array([True, True, False, True]), np.array([10, 20, 30, 40])).tolist()
        [20, 20, 0, 40]
    """
    tests = np.arange(len(counts))
    failed = np.where(passed, len(counts), tests)
    first = np.minimum.accumulate(failed[..., ::-1], axis=-1)[..., ::-1]
    reached: Ints = np.where(passed, counts[first - 1], 0)
    return reached


def _drawn_rates(wrong: Bools, risk: float, rng: np.random.Generator) -> Doubles:
    """Error rates of each part of the ranking, ``[PLAYS, parts]``, drawn from the model."""
    ends = np.round(EDGES * len(wrong)).astype(np.int64)
    total = np.concatenate([[0], np.cumsum(wrong)])[ends]
    rows, errors = np.diff(ends), np.diff(total)
    middle = (EDGES[1:] + EDGES[:-1]) / 2 - 0.5
    mean, covariance = _fit_curve(np.stack([np.ones_like(middle), middle], axis=1), rows, errors, risk)
    curves = rng.multivariate_normal(mean, covariance, PLAYS, method="cholesky")
    rates = expit(curves[:, :1] + curves[:, 1:] * middle)
    tiny = 1e-3  # a beta distribution has positive parameters
    samples: Doubles = rng.beta(STRENGTH * rates + errors + tiny, STRENGTH * (1 - rates) + rows - errors + tiny)
    return samples


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
