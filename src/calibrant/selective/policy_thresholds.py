"""The threshold of a policy, tested on samples that its calibrator and score were not chosen on.

Samples may be independent, or in groups with a threshold each; `image_thresholds` has those of pixels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import get_args

import numpy as np
import numpy.typing as npt

from calibrant._validation import Bools, Ints, choice, listing, number_in
from calibrant.metrics import Doubles
from calibrant.selective.bounds import coverage_interval, risk_interval
from calibrant.selective.menu import with_menu
from calibrant.selective.planning import plan_tests
from calibrant.selective.search import Curve, curve_of
from calibrant.selective.thresholds import (
    Method,
    Threshold,
    of_all_samples,
    open_share,
    threshold_for_coverage,
    threshold_on,
)

PLANNED = ("best", "fixed-sequence")  # methods whose tests are planned on other samples
FEWEST_TO_PLAN = 15  # rows, below which the order of the tests is not planned on them
FEWEST_OF_GROUP = 40  # rows of the choice, from which on a group's tests are planned on its own
MOST_GROUPS = 1000


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

    @property
    def is_planned(self) -> bool:
        """Whether the tests are better planned on other samples."""
        return self.risk is not None and self.method in PLANNED


def threshold_planned(
    scored: ScoredSamples,
    plan: ScoredSamples | None,
    risk: float,
    confidence: float,
    method: Method,
    curve: Curve | None = None,
) -> Threshold:
    """A threshold for one set of independent samples; the plan's, which are others, say in which order to test.

    The curve is that of the samples, for who asks more than once.
    """
    tests = None
    if plan is not None and len(plan.score) >= FEWEST_TO_PLAN and method in PLANNED:
        tests = plan_tests(plan.score, plan.correct, len(scored.score), risk, 1 - confidence)
    curve = curve_of(scored.score, scored.correct) if curve is None else curve
    return threshold_on(curve, risk, confidence, method, tests)


def _search_of(
    scored: ScoredSamples, plan: ScoredSamples | None, confidence: float, method: Method
) -> Callable[[float], Threshold]:
    """The search for a threshold, at any target risk."""
    curve = curve_of(scored.score, scored.correct)
    return lambda risk: threshold_planned(scored, plan, risk, confidence, method, curve)


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
        search_at = _search_of(ScoredSamples(score, correct), plan, target.confidence, target.method)
        return with_menu(of_all_samples(search_at(target.risk), share), search_at), None
    names = np.concatenate([part.groups for part in samples])
    scored, distinct = ScoredSamples(score, correct, names), np.unique(names).tolist()
    if len(distinct) > MOST_GROUPS:
        raise ValueError(
            f"group {group!r} has {len(distinct):,} different values, over {MOST_GROUPS:,}: it does not name groups"
        )
    each = 1 - (1 - target.confidence) / len(distinct)
    groups, searches = {}, {}
    for name in distinct:
        own = None if plan is None else plan.of_group(name)
        # Few rows of its own say less about where to test than all rows do.
        own = own if own is not None and len(own.score) >= FEWEST_OF_GROUP else plan
        searches[name] = _search_of(scored.of_group(name), own, each, target.method)
        groups[name] = of_all_samples(searches[name](target.risk), share)
    together = _over_groups(groups, target)
    if together.accepted:
        return together, groups

    def search_all(risk: float) -> Threshold:
        return _over_groups({name: search(risk) for name, search in searches.items()}, target)

    return replace(with_menu(replace(together, value=math.inf), search_all), value=math.nan), groups


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
