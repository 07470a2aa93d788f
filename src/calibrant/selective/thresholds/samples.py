"""The threshold of a policy, tested on samples that its calibrator and score were not chosen on.

Samples may be independent, or in groups with a threshold each; `image_thresholds` has those of pixels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from calibrant._validation import Bools, Ints, choice, listing, number_in
from calibrant.metrics import Doubles
from calibrant.selective.bounds import coverage_interval, risk_interval
from calibrant.selective.thresholds.menu import with_menu
from calibrant.selective.thresholds.planning import plan_tests
from calibrant.selective.thresholds.risk import (
    Method,
    Threshold,
    of_all_samples,
    open_share,
    threshold_for_coverage,
    threshold_on,
)
from calibrant.selective.thresholds.search import Curve, curve_of

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
        image_size: how many positions an image has, whether they count or not: the most that it could have accepted,
            known before any image is seen.
        predicted: ``[n]`` the class of the answer; needed by promises about classes and costs.
        labels: ``[n]`` the true class; likewise.
    """

    score: Doubles
    correct: Bools
    groups: npt.NDArray[np.str_] = field(default_factory=lambda: np.empty(0, np.str_))
    images: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    num_images: int = 0
    image_size: int = 1
    predicted: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    labels: Ints = field(default_factory=lambda: np.empty(0, np.int64))

    def of_group(self, name: str) -> ScoredSamples:
        """The rows of a group."""
        return self.take(self.groups == name)

    def take(self, rows: Bools) -> ScoredSamples:
        """Scores and correctness of some rows."""
        return ScoredSamples(self.score[rows], self.correct[rows])

    @classmethod
    def joined(cls, parts: Iterable[ScoredSamples]) -> ScoredSamples:
        """Samples that are independent, out of some at a time."""
        samples = list(parts)
        if not sum(len(part.score) for part in samples):
            raise ValueError("no sample that counts is left for the threshold: there are too few")
        names = ("score", "correct", "groups", "predicted", "labels")
        columns: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in samples]) for name in names}
        return cls(**columns)


@dataclass(frozen=True)
class ThresholdTarget:
    """What is asked of a threshold: a risk, found by a method, or a coverage; with the confidence of the guarantee.

    Neither is asked for where a promise is about something else.
    """

    risk: float | None
    coverage: float | None
    confidence: float
    method: Method = "best"

    def __post_init__(self) -> None:
        if self.risk is not None and self.coverage is not None:
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
        return self.coverage is None and self.method in PLANNED


def threshold_planned(
    scored: ScoredSamples,
    plan: ScoredSamples | None,
    risk: float,
    confidence: float,
    method: Method,
    curve: Curve | None = None,
) -> Threshold:
    """A threshold for independent samples; those of the plan, a different set, decide the order of the tests.

    ``curve`` is that of the samples, where the caller searches more than once.
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
        share: the share of all samples that is not among these.
    """
    scored = ScoredSamples.joined(parts)
    score, correct, names = scored.score, scored.correct, scored.groups
    if target.risk is None:
        assert target.coverage is not None
        return threshold_for_coverage(score, correct, target.coverage, confidence=target.confidence), None
    if group is None:
        search_at = _search_of(ScoredSamples(score, correct), plan, target.confidence, target.method)
        return with_menu(of_all_samples(search_at(target.risk), share), search_at), None
    distinct = distinct_groups(names, group)
    each = 1 - (1 - target.confidence) / len(distinct)
    groups, searches = {}, {}
    for name in distinct:
        group_plan = None if plan is None else plan.of_group(name)
        # Few rows of its own say less about where to test than all rows do.
        group_plan = group_plan if group_plan is not None and len(group_plan.score) >= FEWEST_OF_GROUP else plan
        searches[name] = _search_of(scored.of_group(name), group_plan, each, target.method)
        groups[name] = of_all_samples(searches[name](target.risk), share)
    together = over_parts(groups, target, "group")
    if together.accepted:
        return together, groups

    def search_all(risk: float) -> Threshold:
        return over_parts({name: search(risk) for name, search in searches.items()}, target, "group")

    return replace(with_menu(replace(together, value=math.inf), search_all), value=math.nan), groups


def distinct_groups(names: npt.NDArray[np.str_], group: str) -> list[str]:
    """The groups of a column; one with too many values does not name groups."""
    distinct: list[str] = np.unique(names).tolist()
    if len(distinct) > MOST_GROUPS:
        raise ValueError(
            f"group {group!r} has {len(distinct):,} different values, over {MOST_GROUPS:,}: it does not name groups"
        )
    return distinct


def over_parts(
    parts: Mapping[str, Threshold], target: ThresholdTarget, noun: str, samples: int | None = None
) -> Threshold:
    """The thresholds of all groups or classes put together; ``samples`` counts also those that belong to none."""
    total, accepted, errors = (
        sum(getattr(threshold, key) for threshold in parts.values()) for key in ("samples", "accepted", "errors")
    )
    total = total if samples is None else samples
    delta = 1 - target.confidence
    silent = [name for name, threshold in parts.items() if threshold.abstains]
    plural = {"group": "groups", "class": "classes"}[noun]
    reason = f"Accepts {accepted:,} of {total:,} samples, {errors:,} of them wrong, over {len(parts)} {plural}."
    if silent:
        reason += f" Abstains always in {listing(silent, 5)}."
    return Threshold(
        value=math.nan,
        method=f"by {noun}",
        target_risk=target.risk,
        confidence=None if target.method == "empirical" else target.confidence,
        samples=total,
        accepted=accepted,
        errors=errors,
        coverage=coverage_interval(accepted, total, target.confidence),
        risk=risk_interval(errors, accepted, delta / 2, delta / 2),
        needed=None,
        reason=reason,
    )
