r"""The threshold of a policy over independent samples: one for all, or one for each group, predicted class, or both.

With several thresholds all promises hold at once, as
their parts share the chance to fail, :math:`\delta`.

**Groups** have equal shares of :math:`\delta`.

**Classes.** A part is the answers that predict one class, in one group if there are groups. Given what is predicted,
and of which group each sample is, the samples of a part are independent draws from it, and their errors are those of a
policy of its own: each part is tested in a fixed sequence, as all answers would be.

- Parts with too few samples for any test at their share have none of it, and never answer; how many samples a part has
  says nothing about its errors. The others have equal shares.
- A part that passes all of its tests, and so answers everything, hands its share to those that have not
  [Bretz2009]. Their tests, which stay the same, are made again at the larger level.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from calibrant.base.checks import Bools, Ints, check_choice, check_number, listing
from calibrant.metrics import Doubles
from calibrant.promises.bounds import check_open_share, coverage_interval, fewest, risk_interval
from calibrant.promises.thresholds import (
    ABSTAINS,
    FIXED_SEQUENCE,
    RISK,
    ClassThreshold,
    FixedSequence,
    Method,
    PromiseTerms,
    Threshold,
    abstaining_threshold,
    add_menu,
    critical_ranks,
    curve_of,
    include_choice_samples,
    plan_tests,
    threshold_for_coverage,
    threshold_on,
)

MOST_MENUS = 20  # of groups or classes that are never answered
FEWEST_TO_PLAN = 15  # rows, below which the order of the tests is not planned on them
FEWEST_OF_PART = 40  # rows of the choice, from which on the tests of a group or class are planned on its own
MOST_GROUPS = 1000
_RECALL_HINT = "a promise of recall gives that answer even where another class is likelier"


@dataclass(frozen=True, eq=False)
class ScoredSamples:
    """What a threshold needs of its samples; arrays are ``[n]``, or empty where they are not needed.

    Groups are names, images are numbered from 0 on, and an image has ``image_size`` positions, whether they count or
    not: the most that it could have accepted, known before any image is seen. Promises about classes and costs need the
    class of the answer and the label.
    """

    score: Doubles
    correct: Bools
    groups: npt.NDArray[np.str_] = field(default_factory=lambda: np.empty(0, np.str_))
    images: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    num_images: int = 0  # with or without positions that count
    image_size: int = 1
    predicted: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    labels: Ints = field(default_factory=lambda: np.empty(0, np.int64))

    def of_part(self, group: str | None, label: int | None = None) -> ScoredSamples:
        """Scores and correctness of the rows of a group, of a predicted class, or of both."""
        rows = np.ones(len(self.score), dtype=bool)
        if group is not None:
            rows &= self.groups == group
        if label is not None:
            rows &= self.predicted == label
        return ScoredSamples(self.score[rows], self.correct[rows])

    def plan_of_part(self, group: str | None, label: int | None = None) -> ScoredSamples:
        """The rows that plan the tests of a part: all, where its own are too few to say where to test."""
        part = self.of_part(group, label)
        return part if len(part.score) >= FEWEST_OF_PART else self

    @classmethod
    def join(cls, parts: Iterable[ScoredSamples]) -> ScoredSamples:
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
        check_choice("method", self.method, get_args(Method))
        if self.risk is not None:
            object.__setattr__(self, "risk", check_open_share("target_risk", self.risk))
        if self.coverage is not None:
            if self.method != "best":
                raise ValueError(f"method is for a target risk, got {self.method!r} with a target coverage")
            coverage = check_number("target_coverage", self.coverage, 0.0, 1.0, open_low=True)
            object.__setattr__(self, "coverage", coverage)
        object.__setattr__(self, "confidence", check_open_share("confidence", self.confidence))

    @property
    def is_planned(self) -> bool:
        """Whether the tests are better planned on other samples."""
        return self.coverage is None and self.method in FIXED_SEQUENCE


def plan_search(
    scored: ScoredSamples, plan: ScoredSamples | None, confidence: float, method: Method = "best"
) -> Callable[[float], Threshold]:
    """The search for a threshold at any target risk; the samples of the plan decide the order of its tests."""
    curve = curve_of(scored.score, scored.correct)

    def search_at(risk: float) -> Threshold:
        tests = None
        if plan is not None and len(plan.score) >= FEWEST_TO_PLAN and method in FIXED_SEQUENCE:
            tests = plan_tests(plan.score, plan.correct, len(scored.score), risk, 1 - confidence)
        return threshold_on(curve, risk, confidence, method, tests)

    return search_at


@dataclass(frozen=True, eq=False)
class ThresholdData:
    """What thresholds are found on and for.

    Attributes:
        scored: the samples that are tested.
        plan: those that plan the tests, if there are any.
        target: what is asked for, the method and the confidence.
        group: the column whose groups have thresholds of their own, or None.
        share: of all samples, those that only chose and planned.
        class_names: what classes are called in a reason.
    """

    scored: ScoredSamples
    plan: ScoredSamples | None
    target: ThresholdTarget
    group: str | None = None
    share: float = 0.0
    class_names: Sequence[str] | None = None

    @property
    def delta(self) -> float:
        """The chance to fail."""
        return 1 - self.target.confidence


def threshold_over_samples(data: ThresholdData) -> tuple[Threshold, dict[str, Threshold] | None]:
    """A threshold for all samples, and one for each group if there is a group column."""
    scored, plan, target, group, share = data.scored, data.plan, data.target, data.group, data.share
    if target.risk is None:
        assert target.coverage is not None
        return threshold_for_coverage(scored.score, scored.correct, target.coverage, confidence=target.confidence), None
    if group is None:
        search_at = plan_search(scored, plan, target.confidence, target.method)
        return add_menu(include_choice_samples(search_at(target.risk), share), search_at), None
    names, searches = _distinct_groups(scored.groups, group), {}
    group_confidence = 1 - (1 - target.confidence) / len(names)
    for name in names:
        group_plan = None if plan is None else plan.plan_of_part(name)
        searches[name] = plan_search(scored.of_part(name), group_plan, group_confidence, target.method)
    groups = {name: include_choice_samples(search(target.risk), share) for name, search in searches.items()}
    combined = _combine(groups, target, "group")

    def search_all(risk: float) -> Threshold:
        return _combine({name: search(risk) for name, search in searches.items()}, target, "group")

    if not combined.accepted:
        return _abstain_everywhere(combined, groups, RISK, search_all), groups
    offers = _offer_to_silent(list(groups.values()), list(searches.values()), [RISK] * len(groups))
    return combined, dict(zip(groups, offers, strict=True))


def _distinct_groups(names: npt.NDArray[np.str_], group: str) -> list[str]:
    """The groups of a column; one with too many values does not name groups."""
    distinct: list[str] = np.unique(names).tolist()
    if len(distinct) > MOST_GROUPS:
        raise ValueError(
            f"group {group!r} has {len(distinct):,} different values, over {MOST_GROUPS:,}: it does not name groups"
        )
    return distinct


def _combine(
    parts: Mapping[str, Threshold], target: ThresholdTarget, noun: str, samples: int | None = None
) -> Threshold:
    """The thresholds of all groups or classes put together; ``samples`` counts also those that belong to none."""
    accepted, errors = (sum(getattr(part, key) for part in parts.values()) for key in ("accepted", "errors"))
    total = sum(part.samples for part in parts.values()) if samples is None else samples
    delta = 1 - target.confidence
    silent = [name for name, threshold in parts.items() if threshold.abstains]
    plural = {"group": "groups", "class": "classes"}[noun]
    number = f"{len(parts)} {noun if len(parts) == 1 else plural}"
    reason = f"Accepts {accepted:,} of {total:,} samples, {errors:,} of them wrong, over {number}."
    reason += f" Always abstains in {listing(silent, 5)}." if silent else ""
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


def _abstain_everywhere(
    combined: Threshold,
    parts: Mapping[str, Threshold],
    terms: PromiseTerms,
    search_all: Callable[[float], Threshold] | None,
) -> Threshold:
    """The thresholds of groups or classes that all abstain, put together: why, and what else could be promised.

    ``search_all`` puts together the thresholds at another risk of all of them; None where each has a risk of its own.
    """
    first, *others = parts.values()
    reason, needs = first.reason, {name: part.needed for name, part in parts.items() if part.needed is not None}
    if others and search_all is None:
        reasons = [part.reason.removeprefix(ABSTAINS) for part in parts.values()]
        reason = ABSTAINS + " ".join(f"{text[0].upper()}{text[1:]}" for text in reasons)
    elif others and not any(part.samples for part in parts.values()):
        goal = f"{terms.goal(first.target_risk or 0.0)} cannot be shown"
        reason = f"{ABSTAINS}{goal}: none of {listing(list(parts), 5)} is ever predicted; {_RECALL_HINT}."
    elif others:
        nearest = min(needs, key=lambda name: needs[name], default="")
        remedy = f"about {needs[nearest]:,} or more samples would do for {nearest}" if needs else terms.too_close
        goal = f"{terms.goal(first.target_risk or 0.0)} cannot be shown for any of {listing(list(parts), 5)}"
        reason = f"{ABSTAINS}{goal}; {remedy}."
    explained = replace(combined, value=math.inf, target_risk=first.target_risk, reason=reason)
    if search_all is not None and any(part.samples for part in parts.values()):
        explained = add_menu(explained, search_all, terms)
    needed = min(needs.values(), default=None)
    return replace(combined, reason=explained.reason, menu=explained.menu, needed=needed)


def _offer_to_silent(
    parts: Sequence[Threshold], searches: Sequence[Callable[[float], Threshold]], terms: Sequence[PromiseTerms]
) -> list[Threshold]:
    """Groups or classes, of which those that are never answered say what could be promised of them."""
    silent = [number for number, part in enumerate(parts) if part.abstains and part.samples][:MOST_MENUS]
    return [
        add_menu(part, searches[number], terms[number]) if number in silent else part
        for number, part in enumerate(parts)
    ]


@dataclass(frozen=True, eq=False)
class _Part:
    """The samples of a class and group, what is promised of them, and those that plan its tests, if there are any."""

    label: int
    group: str | None
    scored: ScoredSamples
    plan: ScoredSamples | None
    risk: float
    name: str
    terms: PromiseTerms

    @property
    def samples(self) -> int:
        return len(self.scored.score)

    def tests(self, delta: float) -> FixedSequence:
        """The tests to make, in order: planned on other samples, or ranks from a quarter of its own on."""
        if self.plan is not None and len(self.plan.score) >= FEWEST_TO_PLAN:
            return plan_tests(self.plan.score, self.plan.correct, self.samples, self.risk, delta)
        return FixedSequence(ranks=critical_ranks(self.samples, self.risk, delta, self.samples // 4))

    def search(self, tests: FixedSequence) -> Callable[[float], Threshold]:
        """The loosest threshold that these tests show, at any level."""
        curve = curve_of(self.scored.score, self.scored.correct)
        return lambda level: threshold_on(curve, self.risk, 1 - level, "best", tests, self.terms)

    def abstaining_threshold(self, level: float) -> Threshold:
        """The threshold where no test could pass at the level."""
        if not self.samples:
            nothing = abstaining_threshold("best", self.risk, 1 - level)
            reason = f"{ABSTAINS}there are no {self.terms.samples} to show {self.terms.goal(self.risk)} on"
            return replace(nothing, reason=f"{reason}; {_RECALL_HINT}.")
        return self.search(FixedSequence(ranks=np.empty(0, np.int64)))(level)


def thresholds_by_class(
    data: ThresholdData, risks: Mapping[int, float] | float, terms_of: Callable[[ClassThreshold | None], PromiseTerms]
) -> tuple[Threshold, tuple[ClassThreshold, ...]]:
    """A threshold for each class, in every group if there are groups; and what they give together.

    ``risks`` is what is promised of answers by class, or of those of every class that is predicted; ``terms_of`` how
    people ask for it, of all classes or of one.
    """
    if data.target.method not in FIXED_SEQUENCE:
        raise ValueError(f"thresholds by class are tested in a fixed sequence, got method {data.target.method!r}")
    parts, delta = _split_parts(data, risks, terms_of), data.delta

    def combine(thresholds: Sequence[Threshold]) -> Threshold:
        names = [part.name for part in parts]
        return _combine(dict(zip(names, thresholds, strict=True)), data.target, "class", len(data.scored.score))

    thresholds = [
        include_choice_samples(threshold, data.share, part.terms)
        for part, threshold in zip(parts, _search_parts(parts, delta), strict=True)
    ]
    combined, has_one_risk = combine(thresholds), len({part.risk for part in parts}) == 1
    if not combined.accepted:

        def search_all(risk: float) -> Threshold:
            return combine(_search_parts([replace(part, risk=risk) for part in parts], delta))

        by_name = dict(zip([part.name for part in parts], thresholds, strict=True))
        combined = _abstain_everywhere(combined, by_name, terms_of(None), search_all if has_one_risk else None)
    if combined.accepted or not has_one_risk:
        searches = [
            functools.partial(_search_part, part, 1 - (threshold.confidence or 0.0))
            for part, threshold in zip(parts, thresholds, strict=True)
        ]
        thresholds = _offer_to_silent(thresholds, searches, [part.terms for part in parts])
    return combined, tuple(
        ClassThreshold(part.label, part.group, threshold) for part, threshold in zip(parts, thresholds, strict=True)
    )


def _search_parts(parts: Sequence[_Part], delta: float) -> list[Threshold]:
    """The thresholds of parts that share delta."""
    tested = find_testable_parts([(part.samples, part.risk) for part in parts], delta)
    level = delta / max(1, len(tested))
    thresholds = recycle({number: parts[number].search(parts[number].tests(level)) for number in tested}, delta)
    return [thresholds.get(number) or part.abstaining_threshold(level) for number, part in enumerate(parts)]


def _search_part(part: _Part, level: float, risk: float) -> Threshold:
    """The threshold of a part at another risk, by itself."""
    part = replace(part, risk=risk)
    is_testable = part.samples >= fewest(risk, level)
    return part.search(part.tests(level))(level) if is_testable else part.abstaining_threshold(level)


def find_testable_parts(parts: list[tuple[int, float]], delta: float) -> list[int]:
    """Which of several parts, by samples and risk, could pass a test without an error at their share of delta.

    Example:
        >>> find_testable_parts([(500, 0.05), (70, 0.05), (10, 0.05)], 0.05)  # two parts need 72 each, one needs 59
        [0]
    """
    numbers = [number for number, (samples, risk) in enumerate(parts) if samples >= fewest(risk, delta)]
    while numbers:
        lacking = {number: parts[number][0] / fewest(parts[number][1], delta / len(numbers)) for number in numbers}
        worst = min(lacking, key=lambda number: lacking[number])
        if lacking[worst] >= 1:
            break
        numbers.remove(worst)
    return numbers


def recycle(searches: Mapping[int, Callable[[float], Threshold]], delta: float) -> dict[int, Threshold]:
    """The thresholds of parts that share delta; one that answers everything leaves its share to the others.

    The threshold at a level, that ``searches`` gives for each part, must not become stricter as the level rises.
    """
    thresholds: dict[int, Threshold] = {}
    pending = set(searches)
    while pending:
        level = delta / len(pending)
        thresholds |= {number: searches[number](level) for number in sorted(pending)}
        passed = {number for number in pending if thresholds[number].value == -math.inf}
        if not passed:
            break
        pending -= passed
    return {number: thresholds[number] for number in searches}


def _split_parts(
    data: ThresholdData, risks: Mapping[int, float] | float, terms_of: Callable[[ClassThreshold | None], PromiseTerms]
) -> list[_Part]:
    """The classes that are promised, or all that are predicted, in every group."""
    plan, is_of_each = data.plan, isinstance(risks, Mapping)
    labels = list(risks) if isinstance(risks, Mapping) else np.unique(data.scored.predicted).tolist()
    parts = []
    for name in [None] if data.group is None else _distinct_groups(data.scored.groups, data.group):
        for label in labels:
            risk = risks[label] if isinstance(risks, Mapping) else risks
            part_plan = None if plan is None else plan.plan_of_part(name, label)
            unknown = ClassThreshold(label, name, abstaining_threshold("best", risk, None))
            own = data.scored.of_part(name, label)
            part = _Part(label, name, own, part_plan, risk, unknown.name(data.class_names), terms_of(unknown))
            if is_of_each or part.samples:
                parts.append(part)
    return parts
