r"""The threshold of a policy, tested on samples that its calibrator and score were not chosen on.

Samples may be independent, in groups with a threshold each, or pixels. Pixels of an image are alike, so images are the
draws: with A the share of an image's positions that are accepted and Y the share that is accepted and wrong (of all
positions, counted or not, a number known before any image is seen), the risk over pixels is E[Y] / E[A], and it is
above r exactly if the mean of :math:`X = r A - Y \in [r - 1, r]` is negative. Whoever bets on the contrary, with stakes
that depend on earlier images alone, has the capital :math:`K_i = \prod_{j \le i} (1 + \lambda_j X_j)`, which reaches
:math:`1 / \delta` with probability :math:`\delta` at most if the risk is above r [WaudbySmith2024]: an exact test,
whatever happens inside an image.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import get_args

import numpy as np
import numpy.typing as npt

from calibrant._validation import Bools, Ints, choice, listing, number_in
from calibrant.metrics import Doubles, Interval, normal_interval
from calibrant.selective.bounds import coverage_interval, risk_interval
from calibrant.selective.search import STEPS, candidates_of, plan_tests
from calibrant.selective.thresholds import (
    LEVEL,
    Method,
    Threshold,
    abstaining,
    of_all_samples,
    open_share,
    threshold_for_coverage,
    threshold_for_risk,
)

FEWEST_TO_PLAN = 50  # rows, below which the order of the tests is not planned on them
FEWEST_OF_GROUP = 200  # rows of the choice, from which on a group's tests are planned on its own
MOST_GROUPS = 1000
FINE_STEPS = 512  # candidates over images where none is tested
MOST_STAKE = 0.9  # of the stake at which the worst image would take everything


@dataclass(frozen=True, eq=False)
class ScoredSamples:
    """What a threshold needs of its samples, a row each.

    Attributes:
        score: ``[n]``.
        correct: ``[n]`` bool.
        groups: ``[n]`` names; needed for thresholds by group.
        images: ``[n]`` number of the image, from 0 on; needed for pixels.
        num_images: how many there are, with or without positions that count.
        places: how many positions an image has, whether they count or not: the most that it could have accepted,
            known before any image is seen.
    """

    score: Doubles
    correct: Bools
    groups: npt.NDArray[np.str_] = field(default_factory=lambda: np.empty(0, np.str_))
    images: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    num_images: int = 0
    places: int = 1

    def of_group(self, name: str) -> ScoredSamples:
        """The rows of a group."""
        rows = self.groups == name
        return ScoredSamples(self.score[rows], self.correct[rows])


@dataclass(frozen=True)
class ThresholdTarget:
    """What is asked of a threshold: a risk, found by a method, or a coverage; with the confidence of the guarantee."""

    risk: float | None
    coverage: float | None
    confidence: float
    method: Method = "best"

    def __post_init__(self) -> None:
        if (self.risk is None) == (self.coverage is None):
            raise ValueError("give a target risk or a target coverage, not both")
        choice("method", self.method, get_args(Method))
        if self.risk is not None:
            object.__setattr__(self, "risk", open_share("target_risk", self.risk))
        if self.coverage is not None:
            if self.method != "best":
                raise ValueError(f"method is for a target risk, got {self.method!r} with a target coverage")
            object.__setattr__(self, "coverage", number_in("target_coverage", self.coverage, 0.0, 1.0, open_low=True))
        object.__setattr__(self, "confidence", open_share("confidence", self.confidence))


def threshold_planned(
    scored: ScoredSamples, plan: ScoredSamples | None, risk: float, confidence: float, method: Method
) -> Threshold:
    """A threshold for one set of independent samples; the plan's, which are others, say in which order to test."""
    candidates = None
    if plan is not None and len(plan.score) >= FEWEST_TO_PLAN and method in ("best", "fixed-sequence"):
        candidates, better = plan_tests(plan.score, plan.correct, len(scored.score), risk, 1 - confidence)
        method = better if method == "best" else method
    elif method == "best":
        method = "fixed-sequence"
    return threshold_for_risk(
        scored.score, scored.correct, risk, confidence=confidence, method=method,
        candidates=candidates if method == "fixed-sequence" else None,
    )  # fmt: skip


def threshold_over_samples(
    parts: Iterable[ScoredSamples], plan: ScoredSamples | None, target: ThresholdTarget, group: str | None, share: float
) -> tuple[Threshold, dict[str, Threshold] | None]:
    """A threshold for all samples, and one for each group if there is a group column.

    Args:
        parts: the samples, some at a time.
        plan: other samples, by which the order of the tests is planned.
        target: what is asked for.
        group: name of the group column.
        share: of all samples, how many are not among these.
    """
    samples = list(parts)
    if not sum(len(part.score) for part in samples):
        raise ValueError("no sample that counts is left for the threshold: there are too few")
    score, correct = (np.concatenate([getattr(part, key) for part in samples]) for key in ("score", "correct"))
    if target.risk is None:
        assert target.coverage is not None
        return threshold_for_coverage(score, correct, target.coverage, confidence=target.confidence), None
    if group is None:
        threshold = threshold_planned(
            ScoredSamples(score, correct), plan, target.risk, target.confidence, target.method
        )
        return of_all_samples(threshold, share), None
    names = np.concatenate([part.groups for part in samples])
    scored, distinct = ScoredSamples(score, correct, names), np.unique(names).tolist()
    if len(distinct) > MOST_GROUPS:
        raise ValueError(
            f"group {group!r} has {len(distinct):,} different values, over {MOST_GROUPS:,}: it does not name groups"
        )
    each = 1 - (1 - target.confidence) / len(distinct)
    groups = {}
    for name in distinct:
        own = None if plan is None else plan.of_group(name)
        # Few rows of its own say less about where to test than all rows do.
        own = own if own is not None and len(own.score) >= FEWEST_OF_GROUP else plan
        threshold = threshold_planned(scored.of_group(name), own, target.risk, each, target.method)
        groups[name] = of_all_samples(threshold, share)
    return _over_groups(groups, target), groups


def _over_groups(groups: dict[str, Threshold], target: ThresholdTarget) -> Threshold:
    """What the thresholds of all groups give together."""
    samples, accepted, errors = (
        sum(getattr(threshold, key) for threshold in groups.values()) for key in ("samples", "accepted", "errors")
    )
    delta = 1 - target.confidence
    silent = [name for name, threshold in groups.items() if threshold.abstains]
    reason = f"Accepts {accepted:,} of {samples:,} samples, {errors:,} of them wrong, over {len(groups)} groups."
    if silent:
        reason += f" Abstains always in {listing(silent, 5)}."
    return Threshold(
        value=math.nan,
        method="by group",
        target_risk=target.risk,
        confidence=None if target.method == "empirical" else target.confidence,
        samples=samples,
        accepted=accepted,
        errors=errors,
        coverage=coverage_interval(accepted, samples, target.confidence),
        risk=risk_interval(errors, accepted, delta / 2, delta / 2),
        needed=None,
        reason=reason,
    )


def shows(accepted: Doubles, errors: Doubles, target_risk: float, delta: float) -> Bools:
    """Whether a risk of at most ``target_risk`` is shown at level ``delta``, for each column.

    Args:
        accepted: ``[I, M]`` share of each image's pixels accepted by each of M thresholds.
        errors: ``[I, M]`` share accepted and wrong.
        target_risk: the risk.
        delta: the chance to be wrong about it.

    Example:
        >>> import numpy as np
        >>> from calibrant.selective.policy_thresholds import shows
        >>> shows(np.ones((80, 1)), np.zeros((80, 1)), 0.05, 0.05).tolist()
        [True]
        >>> shows(np.ones((50, 1)), np.zeros((50, 1)), 0.05, 0.05).tolist()
        [False]
    """
    gain = target_risk * accepted - errors
    count = np.arange(len(gain))[:, None]
    # Mean and variance of the images before, with one imagined image that has a quarter of the target to win.
    guess, spread = target_risk / 4, target_risk / 4
    before = np.cumsum(gain, axis=0) - gain
    mean = (guess + before) / (count + 1)
    squares = np.cumsum(np.square(gain), axis=0) - np.square(gain)
    variance = np.maximum((spread**2 + squares) / (count + 1) - np.square(mean), spread**2 / (count + 1))
    stake = np.clip(mean / (variance + np.square(mean)), 0, MOST_STAKE / (1 - target_risk))
    capital = np.cumsum(np.log1p(stake * gain), axis=0)
    reached: Bools = capital.max(axis=0) >= math.log(1 / delta)
    return reached


def fewest_images(target_risk: float, delta: float) -> int:
    """About how many images are needed if every pixel is accepted and right."""
    return math.ceil(math.log(1 / delta) / math.log1p(MOST_STAKE * target_risk / (1 - target_risk)))


def threshold_over_images(parts: Iterable[ScoredSamples], plan: ScoredSamples, target: ThresholdTarget) -> Threshold:
    """A threshold for pixels, found on images; only counts for each image and candidate are kept of the ``parts``."""
    is_tested = target.risk is not None and target.method != "empirical"
    candidates, _, _ = candidates_of(plan.score, plan.correct, STEPS if is_tested else FINE_STEPS)
    counts, pixels, places = [], 0, 0
    for part in parts:
        counts.append(_count_by_image(candidates, part))
        pixels += len(part.score)
        places = places or part.places
    if not pixels:
        raise ValueError("no pixel that counts is left for the threshold: there are too few images")
    accepted, errors = (np.concatenate(column) for column in zip(*counts, strict=True))
    at, method = _loosest(accepted, errors, pixels, places, candidates, plan, target)
    confidence = None if method == "empirical" else target.confidence
    nothing = replace(abstaining(method, target.risk, confidence), samples=pixels, coverage=Interval(0.0, 0.0, 0.0))
    if at < 0:
        return _abstaining_over(nothing, len(accepted))
    number, wrong = int(accepted[:, at].sum()), int(errors[:, at].sum())
    # Images with few positions that count weigh little, in the share and in its error alike.
    positions = accepted[:, -1] if np.isneginf(candidates[-1]) else accepted.max(1)
    error = math.sqrt(float(np.square(accepted[:, at] - number / pixels * positions).sum())) / pixels
    limit = target.risk if is_tested and target.risk is not None else math.nan
    return replace(
        nothing,
        value=float(candidates[at]),
        accepted=number,
        errors=wrong,
        coverage=normal_interval(number / pixels, error, confidence or LEVEL, 0.0, 1.0),
        risk=Interval(wrong / number if number else math.nan, math.nan, limit),
        reason=f"Accepts {number:,} of {pixels:,} pixels, {wrong:,} of them wrong.",
    )


def _loosest(
    accepted: Ints,
    errors: Ints,
    pixels: int,
    places: int,
    candidates: Doubles,
    plan: ScoredSamples,
    target: ThresholdTarget,
) -> tuple[int, str]:
    """The index of the candidate that accepts most and meets the target, -1 if none does, and the method's name."""
    total = accepted.sum(0)
    if target.risk is None:  # the strictest that accepts so large a share; nothing is promised about the risk
        assert target.coverage is not None
        enough = np.flatnonzero(total >= target.coverage * pixels * (1 - 1e-12))
        return int(enough[0]) if len(enough) else len(total) - 1, "coverage over images"
    if target.method == "empirical":
        fits = np.flatnonzero((errors.sum(0) <= target.risk * total) & (total > 0))
        return int(fits[-1]) if len(fits) else -1, "empirical"
    first = _first_test(plan, candidates, target.risk)
    shares, wrong = accepted[:, first:] / places, errors[:, first:] / places
    holds = shows(shares, wrong, target.risk, 1 - target.confidence)
    passed = len(holds) if holds.all() else int(np.argmin(holds))
    return first + passed - 1 if passed else -1, "fixed-sequence over images"


def _abstaining_over(nothing: Threshold, images: int) -> Threshold:
    """The same with a reason, and with how many images would be needed."""
    risk = nothing.target_risk or 0.5
    if nothing.confidence is None:
        return replace(nothing, reason=f"Abstain always: no threshold has an error rate of {risk:.2%} or less.")
    least = fewest_images(risk, 1 - nothing.confidence)
    more = f"even without a wrong pixel about {least:,} images are needed" if images < least else "more may"
    reason = f"Abstain always: {images:,} images cannot show a risk of at most {risk:.2%}; {more}."
    return replace(nothing, reason=reason, needed=least if images < least else None)


def _count_by_image(thresholds: Doubles, scored: ScoredSamples) -> tuple[Ints, Ints]:
    """How many positions of each image falling thresholds accept, and how many of those are wrong, ``[images, M]``."""
    # The first of the thresholds that accepts a pixel; what it accepts, all later ones do.
    first = np.searchsorted(-thresholds, -scored.score, side="left")
    shape = (scored.num_images, len(thresholds) + 1)
    code = scored.images * shape[1] + first
    parts = (np.bincount(code, weights, shape[0] * shape[1]).reshape(shape) for weights in (None, ~scored.correct))
    accepted, errors = (np.cumsum(part, axis=1)[:, :-1].astype(np.int64) for part in parts)
    return accepted, errors


def _first_test(plan: ScoredSamples, candidates: Doubles, risk: float) -> int:
    """The most promising candidate: how far below the target it seems to be, in units of the spread over images."""
    accepted, errors = (counts / plan.places for counts in _count_by_image(candidates, plan))
    gain = risk * accepted - errors
    return int(np.argmax(gain.mean(0) / (gain.std(0) + 1e-3 * risk)))
