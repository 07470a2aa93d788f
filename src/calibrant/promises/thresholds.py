r"""Thresholds on a score: accept where score >= threshold, so that a target holds.

For a target risk r the answer is the threshold that accepts most among those that satisfy one of these:

====================  =================================================================================================
``"empirical"``       the error rate of the accepted samples is at most r on these data; no promise for others
``"sgr"``             [Geifman2017, Alg. 1]: a binary search over the n distinct scores; each of its
                      :math:`\lceil \log_2 n \rceil` steps compares the binomial bound at level delta / steps with r
``"fixed-sequence"``  [Angelopoulos2021]: candidates are tested in an order fixed beforehand, strict ones
                      first, each at the full level delta, until the first that cannot be shown to hold
``"best"``            the fixed sequence, which accepts more than SGR (`docs/guarantee.md`)
====================  =================================================================================================

The last three keep :math:`P(\text{risk} > r) \le \delta = 1 - \text{confidence}`, over samples drawn independently from
what the policy will see. The risk is that of new samples, given that they are accepted.

Why this holds. Let the k-th rank stand for "accept what scores above the (k+1)-th". Given that score, the samples above
it are independent draws from the accepted population, tied scores or not, and their errors are binomial: every single
test is exact. A fixed sequence of ``candidates``, or of rising ranks, keeps the level whatever the risk does, and SGR
if the risk, as more is accepted, crosses r once; `docs/repair.md` has the argument.

Without candidates the ranks start at a quarter of the samples, at least the fewest that could be shown to hold, and are
those at which one error more is allowed; a rank inside a tie stands for the whole tie. From sixteen times that number
on, a third of delta is kept for a second start, at the fewest that can bear two errors: it finds small coverages.

**The plan.** A fixed sequence that fails at its first test promises nothing, and one that starts too strict may fail on
its way for want of samples. So the tests are played through beforehand, on other samples than those that are tested.
The rows of the plan, ranked by their score, give a model of the error rate x ranks down,
:math:`\mathrm{logit}\, \eta(x) = a + b (x - 1/2)` with a normal prior on a and b, and in each part between `EDGES` a
beta distribution around it, by which the rates may leave the curve where there are rows enough. Of `PLAYS` curves drawn
from this model, and errors drawn by each, the start is the one with the largest mean coverage. Whatever the model says,
the promise holds: it decides what is tested, not what passes. What a threshold will accept of the tested samples is not
known beforehand as it is of a rank, so it is drawn too.

A menu says what else could be promised: a few risks, and the coverage that the same search finds at each. It is an
estimate: whoever chooses a risk after seeing it has looked at the samples that the promise rests on.
"""

from __future__ import annotations

import functools
import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator, BeforeValidator, Field, ValidatorFunctionWrapHandler, WrapValidator
from scipy.special import betaincinv, expit

from calibrant.base.arrays import ArrayLike
from calibrant.base.checks import Bools, Ints, check_choice, check_number, check_scores
from calibrant.base.entries import ENTRIES, ClassNumber, Count, Limit, Needed, OpenShare, Share, Text, nan_for_nothing
from calibrant.base.files import json_value
from calibrant.base.numbers import allowed, count, percent, round_percent
from calibrant.metrics import Doubles, Interval, group_by_score
from calibrant.predictions import class_name
from calibrant.promises.bounds import (
    UNKNOWN,
    allowed_errors,
    binomial_tail,
    check_open_share,
    coverage_interval,
    fewest,
    fewest_at_rates,
    fewest_with,
    risk_interval,
)

Method: TypeAlias = Literal["best", "fixed-sequence", "sgr", "empirical"]

FIXED_SEQUENCE: tuple[Method, ...] = ("best", "fixed-sequence")  # the methods that are one, and can be planned
LEVEL = 0.95  # of limits where no confidence is asked for
OFFERS = 5  # in a menu
ABSTAINS = "Always abstains: "
#: Infinite thresholds, which JSON has no number for, by what they accept.
WORDS = {math.inf: "nothing", -math.inf: "everything"}

#: Risks that a menu may name, of two digits each; above a half only where as much was allowed.
RISKS = tuple(round(digits * scale, 4) for scale in (1e-4, 1e-3, 1e-2) for digits in range(10, 100))

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


if TYPE_CHECKING:
    ShareInterval: TypeAlias = Interval
else:
    _NullableShare = Annotated[Share, WrapValidator(nan_for_nothing)]

    @dataclass
    class _ShareEntries:
        __pydantic_config__ = ENTRIES

        value: _NullableShare
        low: _NullableShare
        high: _NullableShare

    #: In a file, an object of a value and its limits, null where there is none.
    ShareInterval = Annotated[
        _ShareEntries,
        BeforeValidator(lambda share: vars(share) if isinstance(share, Interval) else share),
        AfterValidator(lambda entries: Interval(**vars(entries))),
    ]


def _accept_words(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    infinite = next((number for number, word in WORDS.items() if value in (number, word)), None)
    return nan_for_nothing(value, handler) if infinite is None else infinite


class Offer(NamedTuple):
    """A target risk, and the share of samples that would be answered with it.

    Of a promise about something else than a risk, the mean of its loss; `PromiseTerms` says what people call that.
    """

    risk: OpenShare
    coverage: Share


@dataclass(frozen=True)
class PromiseTerms:
    """How people ask for a mean loss: a risk of 5%, a precision of 95%, a mean cost of 0.4.

    Attributes:
        noun: what is asked for.
        is_least: whether at least so much is asked for, which is 1 minus the loss.
        scale: what a loss of 1 is, where that is not a share.
        samples: what the samples are called that a threshold is found on.
        rates: what the losses are called that were seen there.
        has_confidence: whether it holds with a confidence, and not on average over fits.

    Example:
        >>> (
        ...     PromiseTerms().goal(0.05),
        ...     PromiseTerms("precision", is_least=True).goal(0.2),
        ...     PromiseTerms("mean cost", scale=50).goal(0.01),
        ... )
        ('a risk of at most 5%', 'a precision of at least 80%', 'a mean cost of at most 0.5')
    """

    noun: str = "risk"
    is_least: bool = False
    scale: float | None = None
    samples: str = "samples"
    rates: str = "error rates"
    has_confidence: bool = True

    @property
    def too_close(self) -> str:
        """Why more samples would not help."""
        return f"the {self.rates} seen here are too close to it, or beyond it, for more samples to help"

    def show(self, loss: float) -> str:
        """What is asked for, as a number."""
        if self.scale is not None:
            return f"{self.scale * loss:.6g}"
        return allowed(round(1 - loss, 12) if self.is_least else loss)

    def goal(self, loss: float) -> str:
        """What is asked for, in words."""
        return f"{_with_article(self.noun)} of at {'least' if self.is_least else 'most'} {self.show(loss)}"


RISK = PromiseTerms()


def _with_article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


@dataclass(frozen=True)
class Threshold:
    """A threshold and what is known about it.

    Attributes:
        value: accept where score >= value; ``inf`` abstains always, ``-inf`` never.
        method: how it was found.
        target_risk: the risk asked for; None when a coverage was.
        confidence: of the guarantee and of the limits; None for the empirical threshold, which has none.
        samples: how many it was found on.
        accepted: how many of them it accepts.
        errors: how many of those are wrong.
        coverage: share accepted, with limits at the confidence (0.95 without one).
        risk: error rate of the accepted; above it the limit that was shown, below it one at half of 1 - confidence; NaN
            where nothing is accepted.
        needed: where the outcome is to abstain always, about how many samples would have changed that, by the error
            rates seen here; None where no number would.
        reason: a sentence or two about the outcome.
        menu: other target risks, from the lowest that could be promised upwards, each with its coverage: estimates,
            made where nothing is accepted and by policies that promise a risk.
    """

    __pydantic_config__ = ENTRIES

    value: Annotated[Limit, WrapValidator(_accept_words), Field(alias="accept_from")]
    method: Text
    target_risk: Share | None
    confidence: Share | None
    samples: Count
    accepted: Count
    errors: Count
    coverage: ShareInterval
    risk: ShareInterval
    needed: Needed | None
    reason: Text
    menu: tuple[Offer, ...] = ()

    @property
    def abstains(self) -> bool:
        """Whether nothing is accepted, ever."""
        return self.value == math.inf

    def to_entries(self) -> dict[str, Any]:
        """Its entries in a file."""
        entries = dict(vars(self))
        value = entries.pop("value")
        if menu := [offer._asdict() for offer in entries.pop("menu")]:
            entries["menu"] = menu
        intervals = {name: vars(entries[name]) for name in ("coverage", "risk")}
        return json_value({"accept_from": WORDS.get(value, value), **entries, **intervals})


@dataclass(frozen=True)
class ClassThreshold:
    """The threshold of answers that predict a class, in a group if there are groups."""

    __pydantic_config__ = ENTRIES

    label: Annotated[ClassNumber, Field(alias="class")]
    group: Text | None
    threshold: Threshold

    def name(self, class_names: Sequence[str] | None) -> str:
        """What it is called where parts are listed: the class, after the group if there is one."""
        name = class_name(self.label, class_names)
        return name if self.group is None else f"{self.group}: {name}"

    def samples(self, class_names: Sequence[str] | None) -> str:
        """What its samples are called in a sentence."""
        group = "" if self.group is None else f" in {self.group}"
        return f"samples{group} predicted to be {class_name(self.label, class_names)}"

    def to_entries(self, class_names: Sequence[str] | None) -> dict[str, Any]:
        """Its entries in a file, with the name of the class for readers."""
        name, threshold = class_name(self.label, class_names), self.threshold.to_entries()
        return {"class": self.label, "name": name, "group": self.group, "threshold": threshold}


def threshold_for_risk(
    score: ArrayLike,
    correct: ArrayLike,
    target_risk: float,
    *,
    confidence: float = 0.95,
    method: Method = "best",
    candidates: Sequence[float] | Doubles | None = None,
) -> Threshold:
    """The threshold that accepts most while the risk stays at most ``target_risk``.

    Args:
        score: ``[N]``, higher is more confident.
        correct: ``[N]``, whether each prediction is right.
        target_risk: the error rate allowed among accepted samples, above 0 and below 1.
        confidence: of the guarantee: P(risk > target_risk) <= 1 - confidence.
        method: how, see the table of the module.
        candidates: thresholds for the fixed sequence, in the order in which they are to be tested, chosen without
            looking at these data.

    Returns:
        The threshold, and what is known about it. Where none can be promised it abstains always, and says how many
        samples would be needed, and which higher risks could be promised.

    Example:
        >>> import numpy as np
        >>> from calibrant.promises import threshold_for_risk
        >>> rng = np.random.default_rng(0)
        >>> score = rng.random(2000)
        >>> correct = rng.random(2000) < 0.5 + 0.5 * np.sqrt(score)
        >>> threshold = threshold_for_risk(score, correct, 0.1, confidence=0.95)
        >>> threshold.method, bool(threshold.risk.high <= 0.1), round(threshold.coverage.value, 2)
        ('fixed-sequence', True, 0.58)
        >>> print(threshold_for_risk(score[:40], correct[:40], 0.1).reason)
        Always abstains: ...
    """
    target_risk = check_open_share("target_risk", target_risk)
    confidence = check_open_share("confidence", confidence)
    check_choice("method", method, get_args(Method))
    curve, tests = curve_of(score, correct), None
    if candidates is not None:
        order = np.asarray(candidates, dtype=np.float64)
        if order.ndim != 1 or not len(order) or np.isnan(order).any():
            raise ValueError(f"candidates must be thresholds [M], got {list(order.shape)}")
        tests = FixedSequence(thresholds=order)

    def search_at(risk: float) -> Threshold:
        return threshold_on(curve, risk, confidence, method, tests)

    threshold = search_at(target_risk)
    return add_menu(threshold, search_at) if threshold.abstains else threshold


def threshold_on(
    curve: Curve,
    target_risk: float,
    confidence: float,
    method: Method,
    tests: FixedSequence | None = None,
    terms: PromiseTerms = RISK,
) -> Threshold:
    """`threshold_for_risk` of arguments that were checked, without a menu."""
    if method == "empirical":
        fits = np.flatnonzero((curve.errors <= target_risk * curve.accepted) & (curve.accepted > 0))
        at = int(fits[-1]) if len(fits) else 0
        return _threshold_at(curve, at, "empirical", target_risk, None, (1 - LEVEL) / 2)
    name = "fixed-sequence" if method == "best" else method
    loosest = search(curve, name, target_risk, 1 - confidence, tests)
    method = name if loosest.at else method
    threshold = _threshold_at(curve, loosest.at, method, target_risk, confidence, loosest.level, terms)
    return threshold if loosest.value is None else replace(threshold, value=loosest.value)


def threshold_for_coverage(
    score: ArrayLike, correct: ArrayLike, coverage: float, *, confidence: float = 0.95
) -> Threshold:
    """The threshold that accepts the ``ceil(coverage N)`` most confident samples, or a whole tie more, and its risk.

    The rank is fixed beforehand, so the upper limit of the risk holds with the given confidence; it is wider where a
    tie is accepted whole.

    Args:
        score: ``[N]``, higher is more confident.
        correct: ``[N]``, whether each prediction is right.
        coverage: the share to accept, above 0 and at most 1.
        confidence: of the limits.

    Example:
        >>> from calibrant.promises import threshold_for_coverage
        >>> threshold = threshold_for_coverage([0.9, 0.8, 0.7, 0.6], [1, 1, 0, 1], 0.5)
        >>> threshold.accepted, 0.7 < threshold.value < 0.8
        (2, True)
    """
    coverage = check_number("coverage", coverage, 0.0, 1.0, open_low=True)
    confidence = check_open_share("confidence", confidence)
    curve = curve_of(score, correct)
    rank = math.ceil(coverage * curve.samples * (1 - 1e-12))
    at = int(np.searchsorted(curve.accepted, rank, side="left"))
    # Where a tie decides which set it is, the limit has to hold for every set that it might have been.
    sets = 1 if int(curve.accepted[at]) == rank else curve.sets
    return _threshold_at(curve, at, "coverage", None, confidence, (1 - confidence) / sets)


def thresholds_by_group(
    score: ArrayLike,
    correct: ArrayLike,
    groups: ArrayLike,
    target_risk: float,
    *,
    confidence: float = 0.95,
    method: Method = "best",
) -> dict[str, Threshold]:
    """A threshold for every group, such that the target holds in all of them at once with the given confidence.

    Each of G groups gets (1 - confidence) / G of the chance to fail.

    Args:
        score: ``[N]``, higher is more confident.
        correct: ``[N]``, whether each prediction is right.
        groups: ``[N]`` whole numbers or text.
        target_risk: the error rate allowed among accepted samples, in every group.
        confidence: of the guarantee, for all groups together.
        method: how, see the table of the module.

    Returns:
        Threshold by the group's name, as text.

    Example:
        >>> import numpy as np
        >>> from calibrant.promises import thresholds_by_group
        >>> score, site = np.linspace(0, 1, 600), np.arange(600) % 2
        >>> thresholds = thresholds_by_group(score, (site == 0) | (score > 0.5), site, 0.1)
        >>> thresholds["0"].value, round(thresholds["1"].coverage.value, 2)
        (-inf, 0.51)
    """
    (values, _), correct = check_scores(score, correct)
    names = np.asarray(groups).astype(str)
    if names.shape != values.shape:
        raise ValueError(f"groups must have the shape of score {list(values.shape)}, got {list(names.shape)}")
    confidence = check_open_share("confidence", confidence)
    distinct = np.unique(names).tolist()
    confidence = 1 - (1 - confidence) / len(distinct)  # of each group
    thresholds = {}
    for name in distinct:
        score, is_correct = values[names == name], correct[names == name]
        thresholds[name] = threshold_for_risk(score, is_correct, target_risk, confidence=confidence, method=method)
    return thresholds


def _threshold_at(
    curve: Curve,
    at: int,
    method: str,
    target_risk: float | None,
    confidence: float | None,
    delta: float,
    terms: PromiseTerms = RISK,
) -> Threshold:
    """The threshold at an index of the curve; ``delta`` is what the test behind it was allowed."""
    n, accepted, errors = curve.samples, int(curve.accepted[at]), int(curve.errors[at])
    level = LEVEL if confidence is None else confidence
    coverage = coverage_interval(accepted, n, level)
    risk = risk_interval(errors, accepted, (1 - level) / 2, delta)
    reason, needed = f"Accepts {count(accepted)} of {count(n)} samples, {count(errors)} of them wrong.", None
    if not accepted:
        assert target_risk is not None
        reason, needed = _explain_abstention(curve, method, target_risk, delta, terms)
    value = float(curve.threshold[at])
    return Threshold(value, method, target_risk, confidence, n, accepted, errors, coverage, risk, needed, reason)


def _explain_abstention(
    curve: Curve, method: str, target_risk: float, delta: float, terms: PromiseTerms = RISK
) -> tuple[str, int | None]:
    """The sentence for "abstain always", and how many samples would have been enough at the rates seen here."""
    accepted, errors = curve.accepted[1:], curve.errors[1:]
    if method == "empirical":
        lowest = float((errors / accepted).min())
        target = allowed(target_risk)
        return f"{ABSTAINS}the error rate is {percent(lowest)} at least, above the target of {target}.", None
    least = fewest(target_risk, delta)
    # Rates that lie above the true ones four times in five: a short lucky run at the top does not promise much.
    rate = betaincinv(errors + 1, np.maximum(accepted - errors, 0.5), 0.8)
    useful = np.flatnonzero(rate < 0.98 * target_risk)
    needed = None
    if len(useful):
        indices = useful[np.unique(np.linspace(0, len(useful) - 1, 64).astype(np.int64))]
        enough = fewest_at_rates(rate[indices], accepted[indices] / curve.samples, target_risk, delta)
        needed = max(enough, curve.samples + 1)  # no fewer than were here: these did not do
    elif curve.samples < 2 * least:  # too few to tell
        needed = max(least, curve.samples + 1)
    return _abstention_text(curve.samples, target_risk, least, needed, terms), needed


def _abstention_text(samples: int, target_risk: float, least: int, needed: int | None, terms: PromiseTerms) -> str:
    unit = terms.samples.replace("samples", "sample", 1) if samples == 1 else terms.samples
    head = f"{ABSTAINS}{count(samples)} {unit} cannot show {terms.goal(target_risk)}"
    if needed is None:
        return f"{head}; {terms.too_close}."
    if samples < least:
        head += f"; even without an error {count(least)} accepted samples are needed"
    return f"{head}; at the error rates seen here about {count(needed)} or more would do."


def include_choice_samples(threshold: Threshold, share: float, terms: PromiseTerms = RISK) -> Threshold:
    """The threshold with the samples needed in all, where a ``share`` of them is not for the threshold."""
    if threshold.needed is None or share == 0:
        return threshold
    # A split by chance may leave fewer than its share for the threshold; the samples that were here did not do.
    needed = math.ceil(max(threshold.needed, threshold.samples + 1 + 3 * math.sqrt(threshold.samples)) / (1 - share))
    risk, delta = threshold.target_risk or 0.5, 1 - (threshold.confidence or 0.0)
    reason = _abstention_text(threshold.samples, risk, fewest(risk, delta), needed, terms)
    return replace(threshold, needed=needed, reason=reason.replace("or more would do", "or more in all would do"))


def abstaining_threshold(method: str, target_risk: float | None, confidence: float | None) -> Threshold:
    """The threshold that accepts nothing, before anything is known."""
    return Threshold(math.inf, method, target_risk, confidence, 0, 0, 0, UNKNOWN, UNKNOWN, None, "Not fitted.")


def offers_from(coverage_at: Callable[[float], float], above: float = 0.0, *, rises: bool = True) -> tuple[Offer, ...]:
    """Risks from the lowest that can be promised up to one that answers as much as any, with the coverage of each.

    At most `OFFERS` risks that lie ``above`` one, in order; none where nothing can be promised. The share that would be
    answered, ``coverage_at`` a target risk, rises with it, but for the luck of the tests, and a risk that answers no
    more than a lower one is no offer. Where the share falls, as of a recall, the risks go on to the highest.

    Example:
        >>> [offer.risk for offer in offers_from(lambda risk: min(1.0, max(0.0, 10 * (risk - 0.05))), 0.05)]
        [0.051, 0.067, 0.087, 0.11, 0.15]
    """
    most = 0.5 if above < 0.5 else 1.0
    risks = [risk for risk in RISKS if above + 1e-12 < risk <= most]
    reach = functools.cache(lambda at: coverage_at(risks[at]))
    if not risks or reach(len(risks) - 1) <= 0:
        return ()
    indices = range(len(risks))
    lowest = bisect_left(indices, True, key=lambda at: reach(at) > 0)
    most = reach(len(risks) - 1) * (1 - 1e-12)
    highest = bisect_left(indices, True, lo=lowest, key=lambda at: reach(at) >= most) if rises else len(risks) - 1
    spaced = np.geomspace(risks[lowest], risks[highest], OFFERS)  # finer where it is strict
    nearest = sorted({lowest, highest, *(int(np.abs(np.array(risks) - risk).argmin()) for risk in spaced)})
    offers: list[Offer] = []
    for at in nearest:
        before = offers[-1].coverage if offers else 0.0
        if not offers or (reach(at) > before if rises else reach(at) < before):
            offers.append(Offer(risks[at], reach(at)))
    return tuple(offer for offer in offers if offer.coverage > 0)


def add_menu(threshold: Threshold, search_at: Callable[[float], Threshold], terms: PromiseTerms = RISK) -> Threshold:
    """The threshold with a menu of what the same search finds at other risks; a reason to abstain lists it too."""

    def coverage_at(risk: float) -> float:
        alternative = search_at(risk)
        return alternative.accepted / alternative.samples if alternative.samples else 0.0

    if not threshold.abstains:
        return replace(threshold, menu=offers_from(coverage_at))
    return explain_with_menu(threshold, offers_from(coverage_at, above=threshold.target_risk or 0.0), terms)


def explain_with_menu(
    threshold: Threshold, menu: tuple[Offer, ...], terms: PromiseTerms = RISK, unit: str = "samples"
) -> Threshold:
    """A threshold that accepts nothing, with a menu that its reason lists."""
    words = menu_words(menu, unit, threshold.confidence, terms)
    return replace(threshold, menu=menu, reason=f"{threshold.reason} {words}")


def menu_words(menu: Sequence[Offer], unit: str, confidence: float | None, terms: PromiseTerms = RISK) -> str:
    """A menu in sentences, with what it is worth and what to do."""
    noun = terms.noun
    if not menu:
        none = f"No {'lower' if terms.is_least else 'higher'} {noun} that would be of use"
        return f"{none} {'can be promised' if confidence else 'was met'} on those {unit} either."
    shares = ["all" if offer.coverage >= 1 else percent(offer.coverage) for offer in menu]
    offers = [f"at {terms.show(offer.risk)}, {share}" for offer, share in zip(menu, shares, strict=True)]
    verb = "that could be promised" if confidence else "that is met"
    best = "highest" if terms.is_least else "lowest"
    words = f"The {best} {noun} {verb} on those {unit} is about {terms.show(menu[0].risk)}, with {shares[0]} answered"
    words += f" ({'; '.join(offers[1:])})" if len(menu) > 1 else ""
    if confidence is None:
        return f"{words}. These are estimates."
    less = f"holds with less than {round_percent(confidence)} confidence" if terms.has_confidence else "need not hold"
    return (
        f"{words}. These are estimates: {_with_article(noun)} chosen after seeing them {less}, so fit again on fresh "
        f"{unit} with the {noun} you choose."
    )
