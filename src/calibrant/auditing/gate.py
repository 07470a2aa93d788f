"""A gate for a model: every requirement is judged by the interval of its number, not by the number alone.

A requirement passes if the whole interval meets it, fails if the whole interval misses it, and is undecided otherwise.
Then the judgement says roughly how many samples would decide, since an interval shrinks with the square root of their
number. The level is shared between the groups of a column (Bonferroni), so that a good model fails in some group as
rarely as it would without groups.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from calibrant._numbers import count, difference, difference_span, quantity, span_words
from calibrant._progress import Progress, silent, track
from calibrant.auditing.requirement import Requirement, parse_requirement
from calibrant.metrics import Interval, check_level, describe
from calibrant.predictions import Predictions, check_group

if TYPE_CHECKING:
    from calibrant.auditing.collect import Collected
    from calibrant.metrics import Summary
    from calibrant.selective import Outcome, Policy

Status = Literal["pass", "fail", "unknown"]
_WORDS = {"pass": "passes", "fail": "fails", "unknown": "cannot tell"}
#: A larger number of samples is not worth suggesting.
_MOST_NEEDED = 10**9


@dataclass(frozen=True)
class Judgement:
    """The judgement of a requirement, on all samples or in one group.

    Attributes:
        requirement: as it was written.
        metric: the name of the metric.
        group: ``column=value``, or empty for all samples.
        status: ``"pass"``, ``"fail"`` or ``"unknown"``.
        value: the measured value, NaN if there is none.
        low: lower end of its interval.
        high: upper end of its interval.
        limit: the limit of the requirement.
        samples: number of samples behind the value.
        needed: the approximate number of samples that would decide; None if it is decided, or no number would do.
        text: the judgement in one sentence.
    """

    requirement: str
    metric: str
    group: str
    status: Status
    value: float
    low: float
    high: float
    limit: float
    samples: int
    needed: int | None
    text: str


@dataclass(frozen=True)
class Check:
    """The outcome of a check.

    Attributes:
        requirements: a judgement for every requirement, and for every group of it.
    """

    requirements: tuple[Judgement, ...]

    @property
    def passed(self) -> bool | None:
        """True if all pass, False if one fails, None if one is undecided and none fails."""
        statuses = {judgement.status for judgement in self.requirements}
        return False if "fail" in statuses else None if "unknown" in statuses else True

    @property
    def document(self) -> dict[str, Any]:
        """The whole check as plain values."""
        passed = {True: "pass", False: "fail", None: "unknown"}[self.passed]
        parts = [asdict(judgement) for judgement in self.requirements]
        return {"format": "calibrant.check", "version": 1, "status": passed, "requirements": parts}

    def __bool__(self) -> bool:
        raise TypeError("a check passes, fails or cannot tell: ask for .passed, which is True, False or None")


def check(
    predictions: Predictions,
    *requirements: str,
    policy: Policy | None = None,
    baseline: Predictions | None = None,
    groups: str | None = None,
    level: float = 0.95,
    replicates: int = 1000,
    seed: int = 0,
    progress: Progress = silent,
) -> Check:
    """Judge requirements on a model's numbers by their intervals.

    Args:
        predictions: labelled predictions.
        requirements: as `parse_requirement` reads them: ``"ece <= 0.03"``, ``"risk@0.8 <= 5%"``, ``"ece no worse"``.
        policy: the policy that ``policy.risk``, ``policy.coverage`` and the like refer to. If it has thresholds by
            class, risk and coverage are also judged in each class.
        baseline: predictions of another model on the same samples, for ``no worse``.
        groups: a column; every requirement is also judged in each of its groups.
        level: of the intervals.
        replicates: of the bootstrap.
        seed: of the bootstrap.
        progress: called as samples are read.

    Example:
        >>> import numpy as np
        >>> from calibrant import Predictions, check
        >>> rng = np.random.default_rng(0)
        >>> logits = 2 * rng.standard_normal((3000, 5))
        >>> labels = (logits + rng.gumbel(size=logits.shape)).argmax(1)
        >>> gate = check(Predictions.from_logits(logits, labels), "ece <= 0.05", "accuracy >= 0.9")
        >>> gate.passed, [judgement.status for judgement in gate.requirements]
        (False, ['pass', 'fail'])
    """
    from calibrant.auditing.collect import collect
    from calibrant.selective import Outcome

    check_level(level, replicates, seed)
    parsed = [parse_requirement(text) for text in requirements]
    _check_arguments(parsed, predictions, policy, baseline, groups)
    outcome = None if policy is None else Outcome(policy)
    if policy is not None:
        policy.check(predictions)
    collected = collect(predictions, groups=(), outcome=outcome, progress=progress)
    sampling = {"level": level, "replicates": replicates, "seed": seed}
    changes = {}
    if baseline is not None:
        baseline_collected = collect(baseline, groups=(), stage="reading the baseline", progress=progress)
        changes = _changes(baseline_collected, collected, sampling)
    parts = [_Samples("", sampling, collected, outcome)]
    if groups is not None:
        split = _split(predictions, groups, policy, progress)
        shared = sampling | {"level": 1 - (1 - level) / max(1, len(split))}
        parts += [_Samples(f"{groups}={name}", shared, *part) for name, part in split.items()]
    judgements = []
    for requirement in parsed:
        for part in parts + _by_class(requirement, outcome, sampling):
            if requirement.is_relative and part.name:
                continue  # a baseline is compared on all samples
            interval = changes[requirement.metric] if requirement.is_relative else part.interval(requirement)
            judgements.append(_judge(requirement, part.name, interval, part.size(requirement.metric)))
    return Check(tuple(judgements))


def _check_arguments(
    requirements: Sequence[Requirement],
    predictions: Predictions,
    policy: Policy | None,
    baseline: Predictions | None,
    groups: str | None,
) -> None:
    if not requirements:
        raise ValueError("a check takes at least one requirement, for example 'ece <= 0.03'")
    if not predictions.labelled:
        raise ValueError("a check needs labels, and the predictions have none")
    for requirement in requirements:
        if requirement.is_of_policy and policy is None:
            raise ValueError(f"{requirement.text!r} is about a policy: give one")
        of = {"policy.recall": "recall", "policy.cost": "cost"}.get(requirement.metric)
        if of is not None and policy is not None and policy.promise.of != of:
            raise ValueError(f"{requirement.text!r} is about a policy that promises a {of}, and this one does not")
        if requirement.is_relative and baseline is None:
            raise ValueError(f"{requirement.text!r} is a comparison: give a baseline")
        if predictions.holds == "confidence" and requirement.metric in ("nll", "brier", "classwise_ece"):
            raise ValueError(
                f"{requirement.text!r} needs logits or probabilities, and the predictions hold confidences"
            )
    if groups is not None:
        check_group(predictions, groups)


@dataclass
class _Samples:
    """Samples that are judged together."""

    name: str  # ``column=value``, or empty for all samples
    sampling: dict[str, Any]  # level, replicates and seed of their intervals
    # What a pass collected of them; None for the predictions of a class, of which only answers are judged.
    collected: Collected | None
    outcome: Any = None  # what a policy did with them

    def size(self, metric: str) -> int:
        """The number of samples behind a metric; for the risk of a policy, its answers."""
        if metric in ("policy.risk", "policy.cost"):
            return int(self.outcome.accepted)
        if metric == "policy.recall":
            return int(self.outcome.tally.rows)
        return int(self.outcome.samples) if self.collected is None else self.collected.samples

    def interval(self, requirement: Requirement) -> Interval:
        """The number and its limits."""
        from calibrant.metrics import interval_at

        metric, level = requirement.metric, self.sampling["level"]
        if requirement.is_of_policy:
            return _policy_interval(metric, self.outcome, level)
        summary, numbers = self._measured
        return numbers[metric] if metric in numbers else interval_at(summary, metric, level)

    @functools.cached_property
    def _measured(self) -> tuple[Summary, dict[str, Interval]]:
        from calibrant.auditing.document import numbers_of

        assert self.collected is not None
        summary = self.collected.summary()
        return summary, numbers_of(self.collected, summary, **self.sampling)[1]


def _policy_interval(metric: str, outcome: Any, level: float) -> Interval:
    """A metric of a policy with its limits."""
    from calibrant.selective import bounded_mean_interval, coverage_interval, risk_interval

    tails = (1 - level) / 2, (1 - level) / 2
    if metric == "policy.coverage":
        return coverage_interval(outcome.accepted, outcome.samples, level)
    if metric == "policy.risk":
        return risk_interval(outcome.errors, outcome.accepted, *tails)
    if metric == "policy.wrong":
        return risk_interval(outcome.errors, outcome.samples, *tails)
    tally = outcome.tally
    if metric == "policy.recall":
        return risk_interval(tally.rows - round(tally.loss), tally.rows, *tails)
    highest = outcome.policy.promise.highest
    share = bounded_mean_interval(tally.loss, tally.rows, *tails)
    return Interval(highest * share.value, highest * share.low, highest * share.high)


def _by_class(requirement: Requirement, outcome: Any, sampling: dict[str, Any]) -> list[_Samples]:
    """The answers of each class, where the policy has a threshold for it; the level is shared."""
    if requirement.metric not in ("policy.risk", "policy.coverage") or outcome is None or not outcome.classes:
        return []
    shared = sampling | {"level": 1 - (1 - sampling["level"]) / len(outcome.classes)}
    return [
        _Samples(f"class={name}", shared, None, counts) for name, counts in outcome.classes.items() if counts.samples
    ]


def _split(
    predictions: Predictions, column: str, policy: Policy | None, progress: Progress
) -> dict[str, tuple[Collected, Outcome | None]]:
    """What one pass collects about every group, and what the policy decides there."""
    from calibrant.auditing.collect import add_batch, begin
    from calibrant.selective import Outcome

    parts: dict[str, tuple[Collected, Outcome | None]] = {}
    for batch in track(predictions.batches(), f"reading by {column}", None, progress, size=len):
        names = np.asarray(batch.groups[column]).astype(str)
        for name in np.unique(names).tolist():
            if name not in parts:
                parts[name] = begin(predictions, ()), None if policy is None else Outcome(policy)
            collected, outcome = parts[name]
            rows = batch.samples(np.flatnonzero(names == name))
            add_batch(collected, rows)
            if outcome is not None:
                outcome.add(rows, outcome.policy.decide(rows))
    return dict(sorted(parts.items()))


def _changes(baseline: Collected, collected: Collected, sampling: dict[str, Any]) -> dict[str, Interval]:
    """The differences of the model from the baseline, on the same samples."""
    from calibrant.auditing.audit import explain_mismatch
    from calibrant.metrics import paired_differences

    reason = explain_mismatch(baseline, collected)
    if reason is not None:
        raise ValueError(f"the model cannot be compared with the baseline: {reason}")
    return paired_differences(baseline.pairs(), collected.pairs(), **sampling)


def _judge(requirement: Requirement, group: str, interval: Interval, samples: int) -> Judgement:
    value, low, high = interval.value, interval.low, interval.high
    limit = requirement.limit
    if not requirement.at_most:  # the same question about the negated number
        value, low, high, limit = -value, -high, -low, -limit
    status: Status = "pass" if high <= limit else "fail" if low > limit else "unknown"
    # A calibration error whose interval reaches 0 may be noise alone.
    is_noise = interval.low == 0 and not requirement.is_of_policy and describe(requirement.metric).absolute
    needed = _needed(value, low, high, limit, samples, is_noise=is_noise) if status == "unknown" else None
    judgement = Judgement(
        requirement.text, requirement.metric, group, status, interval.value, interval.low, interval.high,
        requirement.limit, samples, needed, "",
    )  # fmt: skip
    return replace(judgement, text=_sentence(requirement, judgement))


def _needed(value: float, low: float, high: float, limit: float, samples: int, *, is_noise: bool) -> int | None:
    """The approximate number of samples that would decide: limits narrow with its square root."""
    reach, gap = (high - value, limit - value) if value <= limit else (value - low, value - limit)
    if is_noise:  # with more samples the value shrinks, as its upper limit does
        reach, gap = high, limit
    if not (math.isfinite(reach) and gap > 0 and samples):
        return None
    needed = samples * (reach / gap) ** 2
    return _two_digits(needed) if needed <= _MOST_NEEDED else None


def _two_digits(number: float) -> int:
    """A number rounded up to two significant digits.

    Example:
        >>> _two_digits(38160.2), _two_digits(7.0)
        (39000, 7)
    """
    unit = 10 ** max(0, math.floor(math.log10(max(number, 1))) - 1)
    return math.ceil(number / unit) * unit


def _sentence(requirement: Requirement, judgement: Judgement) -> str:
    unit = "share" if requirement.is_share else "number"
    measured, limits = quantity(judgement.value, unit), span_words(judgement.low, judgement.high, unit, judgement.value)
    if requirement.is_relative:
        limits = difference_span(judgement.low, judgement.high, unit).strip("[]").replace(", ", " to ")
        measured = f"difference {difference(judgement.value, unit)}"
    group = f" in {judgement.group}" if judgement.group else ""
    words = f"{_WORDS[judgement.status]}: {requirement.text}{group}"
    if math.isnan(judgement.value):
        return f"{words}; there is no such number on {count(judgement.samples)} samples"
    if math.isnan(judgement.low):
        measured = f"{measured} on {count(judgement.samples)} samples, too few for an interval"
    else:
        measured = f"{measured} ({limits}) on {count(judgement.samples)} samples"
    advice = f"; about {count(judgement.needed)} samples would do" if judgement.needed is not None else ""
    return f"{words}; {measured}{advice}"
