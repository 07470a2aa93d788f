r"""Thresholds by predicted class, and by class in every group, such that all of their promises hold at once.

A part is the answers that predict one class, in one group if there are groups. Given what is predicted, and of which
group each sample is, the samples of a part are independent draws from it, and their errors are those of a policy of its
own: each part is tested in a fixed sequence, as all answers would be. The chance to fail, :math:`\delta`, is shared:

- Parts with too few samples for any test at their share have none of it, and never answer; how many samples a part has
  says nothing about its errors. The others have equal shares.
- A part that passes all of its tests, and so answers everything, hands its share to those that have not
  [Bretz2009]. Their tests, which stay the same, are made again at the larger level.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from calibrant._validation import Bools
from calibrant.selective.bounds import fewest
from calibrant.selective.promise import Promise
from calibrant.selective.thresholds.planning import plan_tests
from calibrant.selective.thresholds.risk import ClassThreshold, Threshold, abstaining, of_all_samples, threshold_on
from calibrant.selective.thresholds.samples import (
    FEWEST_OF_GROUP,
    FEWEST_TO_PLAN,
    PLANNED,
    ScoredSamples,
    ThresholdTarget,
    distinct_groups,
    over_parts,
)
from calibrant.selective.thresholds.search import Curve, FixedSequence, critical_ranks, curve_of


@dataclass(frozen=True, eq=False)
class _Part:
    """The samples of a part, what is promised of them, and those that plan its tests, if there are any."""

    label: int
    group: str | None
    scored: ScoredSamples
    plan: ScoredSamples | None
    risk: float

    @property
    def samples(self) -> int:
        return len(self.scored.score)

    def tests(self, delta: float) -> FixedSequence:
        """The tests to make, in order: planned on other samples, or ranks from a quarter of its own on."""
        if self.plan is not None and len(self.plan.score) >= FEWEST_TO_PLAN:
            return plan_tests(self.plan.score, self.plan.correct, self.samples, self.risk, delta)
        return FixedSequence(ranks=critical_ranks(self.samples, self.risk, delta, self.samples // 4))

    def search(self, delta: float) -> Callable[[float], Threshold]:
        """The loosest threshold that its tests show, which ``delta`` decides, at any level."""
        curve: Curve = curve_of(self.scored.score, self.scored.correct)
        tests = self.tests(delta)
        return lambda level: threshold_on(curve, self.risk, 1 - level, "best", tests)

    def abstaining(self, level: float) -> Threshold:
        """The threshold where no test could pass at the level."""
        if not self.samples:
            nothing = abstaining("best", self.risk, 1 - level)
            return replace(nothing, reason="Abstain always: no sample is predicted to be of the class.")
        curve = curve_of(self.scored.score, self.scored.correct)
        return threshold_on(curve, self.risk, 1 - level, "best", FixedSequence(ranks=np.empty(0, np.int64)))


def thresholds_by_class(
    scored: ScoredSamples,
    plan: ScoredSamples | None,
    promise: Promise,
    target: ThresholdTarget,
    group: str | None,
    share: float,
    class_names: Sequence[str] | None = None,
) -> tuple[Threshold, tuple[ClassThreshold, ...]]:
    """The thresholds of all classes, or of those that are named, and what they give together.

    Args:
        scored: the samples that are tested.
        plan: other samples, by which the order of the tests is planned.
        promise: whose classes they are, with the risk of each; or all classes, with the target's.
        target: the risk, and the confidence with which all promises hold.
        group: name of the group column.
        share: the share of all samples that is not among these.
        class_names: what parts are called in a reason.
    """
    if target.method not in PLANNED:
        raise ValueError(f"thresholds by class are tested in a fixed sequence, got method {target.method!r}")
    parts = _parts(scored, plan, promise, target, group)
    delta = 1 - target.confidence
    tested = parts_with_enough([(part.samples, part.risk) for part in parts], delta)
    level = delta / max(1, len(tested))
    thresholds = recycle({number: parts[number].search(level) for number in tested}, delta)
    classes = tuple(
        ClassThreshold(part.label, part.group, of_all_samples(thresholds.get(number) or part.abstaining(level), share))
        for number, part in enumerate(parts)
    )
    names = {part.name(class_names): part.threshold for part in classes}
    return over_parts(names, target, "class", len(scored.score)), classes


def parts_with_enough(parts: list[tuple[int, float]], delta: float) -> list[int]:
    """Which of several parts, by samples and risk, could pass a test without an error at their share of delta.

    Example:
        >>> from calibrant.selective.thresholds.classes import parts_with_enough
        >>> parts_with_enough([(500, 0.05), (70, 0.05), (10, 0.05)], 0.05)  # two parts need 72 each, one needs 59
        [0]
    """
    left = [number for number, (samples, risk) in enumerate(parts) if samples >= fewest(risk, delta)]
    while left:
        lacking = {number: parts[number][0] / fewest(parts[number][1], delta / len(left)) for number in left}
        worst = min(lacking, key=lambda number: lacking[number])
        if lacking[worst] >= 1:
            break
        left.remove(worst)
    return left


def recycle(searches: Mapping[int, Callable[[float], Threshold]], delta: float) -> dict[int, Threshold]:
    """The thresholds of parts that share delta; one that answers everything leaves its share to the others.

    Args:
        searches: of each part, the threshold at a level; it must not become stricter as the level rises.
        delta: the chance that any of the promises is broken.
    """
    thresholds: dict[int, Threshold] = {}
    left = set(searches)
    while left:
        level = delta / len(left)
        thresholds |= {number: searches[number](level) for number in sorted(left)}
        done = {number for number in left if thresholds[number].value == -math.inf}
        if not done:
            break
        left -= done
    return {number: thresholds[number] for number in searches}


def _parts(
    scored: ScoredSamples, plan: ScoredSamples | None, promise: Promise, target: ThresholdTarget, group: str | None
) -> list[_Part]:
    """All parts that have samples."""
    labels = [label for label, _ in promise.shares] if promise.shares else np.unique(scored.predicted).tolist()
    groups = [None] if group is None else distinct_groups(scored.groups, group)
    parts = []
    for name in groups:
        for label in labels:
            rows = _rows(scored, name, label)
            part_plan = None if plan is None else plan.take(_rows(plan, name, label))
            # Few rows of its own say less about where to test than all rows do.
            part_plan = part_plan if part_plan is not None and len(part_plan.score) >= FEWEST_OF_GROUP else plan
            risk = promise.risk_of(label) if promise.shares else target.risk
            assert risk is not None
            if promise.shares or rows.any():
                parts.append(_Part(label, name, scored.take(rows), part_plan, risk))
    return parts


def _rows(scored: ScoredSamples, group: str | None, label: int) -> Bools:
    rows = scored.predicted == label
    return rows if group is None else rows & (scored.groups == group)
