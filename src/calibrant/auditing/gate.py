"""A gate for a model: every requirement is judged by the interval of its number, not by the number alone.

A requirement (``ece <= 0.03``, ``risk@0.8 <= 5%``, ``ece no worse``) passes if the whole interval meets it, fails if
the whole interval misses it, and is undecided otherwise. Then the judgement says roughly how many samples would decide,
since an interval shrinks with the square root of their number. The level is shared between the groups of a column
(Bonferroni), so that a good model fails in some group as rarely as it would without groups.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from calibrant.auditing.audit import explain_mismatch
from calibrant.auditing.collect import Collected, add_batch, begin, collect, expect
from calibrant.auditing.document import numbers_of
from calibrant.auditing.shards import Offsets, Part, merge, offsets_by_group
from calibrant.base.checks import did_you_mean, short
from calibrant.base.numbers import count, difference, difference_span, quantity, span_words
from calibrant.base.progress import Progress, silent
from calibrant.metrics import (
    COMPARED,
    MEASURED,
    Interval,
    Summary,
    check_level,
    describe,
    interval_at,
    paired_differences,
    split_name,
)
from calibrant.policy import FITTED_ON_THESE, Outcome, Policy
from calibrant.predictions import LOCAL, PassEngine, Piece, Predictions, check_group, refuse_weights, resolve_repeats
from calibrant.promises import PROMISES, coverage_interval, risk_interval

Status = Literal["pass", "fail", "unknown"]
#: Measures of a policy: shares, and the mean cost of its answers.
PROMISE_METRICS = {f"policy.{cls.metric.name}": cls.metric for cls in PROMISES.values() if cls.metric is not None}
POLICY_METRICS = ("policy.risk", "policy.coverage", "policy.wrong", *PROMISE_METRICS)
#: Those of which less is better.
POLICY_ERRORS = (
    "policy.risk", "policy.wrong", *(name for name, metric in PROMISE_METRICS.items() if metric.is_error)
)  # fmt: skip
#: Short names of metrics at a share: ``risk@0.8``.
_AT = {"risk": "risk_at_coverage", "coverage": "coverage_at_risk"}
_AT_EXAMPLES = {"risk": "risk@0.8 for that at 80% coverage", "coverage": "coverage@0.05 for that at 5% risk"}
_ABSOLUTE = re.compile(r"\s*([a-z_.0-9]+?(?:@[0-9.]+%?)?)\s*(<=|>=|<|>)\s*([-+0-9.eE]+)\s*(%?)\s*")
_RELATIVE = re.compile(r"\s*([a-z_.0-9]+)\s+no\s+worse(?:\s+by\s+([0-9.eE+-]+)\s*(%?))?\s*")
_WORDS = {"pass": "passes", "fail": "fails", "unknown": "cannot tell"}


@dataclass(frozen=True)
class Requirement:
    """One requirement."""

    text: str  # as it was written
    metric: str  # a name of `calibrant.metrics.METRICS`, with its setting, or of `POLICY_METRICS`
    at_most: bool  # whether the value must be at most the limit; otherwise at least
    limit: float  # the limit; of a comparison, the largest difference from the baseline
    is_relative: bool = False  # whether the value is the difference from a baseline

    @property
    def is_of_policy(self) -> bool:
        """Whether it is about a policy."""
        return self.metric in POLICY_METRICS

    @property
    def is_share(self) -> bool:
        """Whether its numbers are printed in percent."""
        return _bounds(self.metric) == (0, 1) if self.is_of_policy else describe(self.metric).unit == "share"


def parse_requirement(text: str) -> Requirement:
    """Read a requirement.

    It is ``METRIC <= NUMBER`` or ``METRIC >= NUMBER`` with a metric of `calibrant.metrics`, ``risk@COVERAGE``,
    ``coverage@RISK`` or one of `POLICY_METRICS`; or ``METRIC no worse``, ``METRIC no worse by NUMBER``. Shares may be
    in percent. What every model meets, or none can, is refused: 3 and 90 where 3% and 90% are meant, and ``ece <= 1``;
    so is a limit on the better side, such as ``ece >= 3%``.

    Example:
        >>> parse_requirement("risk@0.8 <= 5%")
        Requirement(text='risk@0.8 <= 5%', metric='risk_at_coverage_0.8', at_most=True, limit=0.05, is_relative=False)
        >>> parse_requirement("accuracy no worse by 1%").limit
        -0.01
    """
    if match := _RELATIVE.fullmatch(text):
        metric = _parse_metric(match[1], text)
        if metric not in COMPARED:
            raise ValueError(f"{short(text)}: only {', '.join(COMPARED)} are compared with a baseline")
        if describe(metric).better == "none":
            raise ValueError(f"{short(text)}: neither end of {metric} is better as such")
        margin = _parse_limit(metric, match[2], match[3] or "", text) if match[2] else 0.0
        if margin < 0:
            raise ValueError(f"{short(text)}: a margin is at least 0")
        low, high = _bounds(metric)
        if margin >= high - low:
            raise ValueError(f"{short(text)} is met by every model: two never differ by more than {high - low:g}")
        at_most = describe(metric).better == "low"
        return Requirement(text.strip(), metric, at_most, margin if at_most else -margin, True)
    if match := _ABSOLUTE.fullmatch(text):
        metric = _parse_metric(match[1], text)
        limit, at_most = _parse_limit(metric, match[3], match[4], text), match[2] in ("<=", "<")
        low, high = _bounds(metric)
        if limit >= high if at_most else limit <= low:
            hint = "; write one percent as 1% or 0.01" if (high, limit) == (1, 1) else ""
            equal = f" ({match[2]} is read as {match[2]}=)" if len(match[2]) == 1 else ""
            raise ValueError(f"{short(text)} is met by every model, because {_extent(metric)}{equal}{hint}")
        if limit < low if at_most else limit > high:
            raise ValueError(f"{short(text)} is met by no model, because {_extent(metric)}")
        better = "low" if metric in POLICY_ERRORS else "high" if metric in POLICY_METRICS else describe(metric).better
        if better == ("high" if at_most else "low"):
            sign, verb = (">=", "higher") if at_most else ("<=", "lower")
            rewritten = f"{match[1]} {sign} {match[3]}{match[4]}"
            raise ValueError(f"{short(text)}: {verb} is better for {match[1]}, so write {short(rewritten)}")
        return Requirement(text.strip(), metric, at_most, limit)
    raise ValueError(f"a requirement must be like 'ece <= 0.03', 'risk@0.8 <= 5%' or 'ece no worse', got {short(text)}")


def _parse_metric(name: str, text: str) -> str:
    word, at, share = name.partition("@")
    if at:
        if word not in _AT:
            raise ValueError(f"{short(text)}: only risk@COVERAGE and coverage@RISK take a share, got {name!r}")
        value = _parse_number(share.removesuffix("%"), "%" * share.endswith("%"), text)
        if not 0 < value < 1:
            spellings = f"; write {value:g}% or {value / 100:g}" if 1 < value < 100 and not share.endswith("%") else ""
            raise ValueError(f"{short(text)}: the share behind @ lies between 0 and 1, got {share!r}{spellings}")
        return f"{_AT[word]}_{value:g}"
    if name in POLICY_METRICS or name in MEASURED or name == "classwise_ece":
        return name
    base, setting = split_name(name)
    if base in _AT.values() and setting is not None and 0 < setting < 1:
        return name
    if name in _AT:
        raise ValueError(f"{short(text)}: write policy.{name} for that of a policy, or {_AT_EXAMPLES[name]}")
    names = [*MEASURED, "classwise_ece", *POLICY_METRICS, "risk@0.8", "coverage@0.05"]
    listed = ", ".join(word for word in names if "_at_" not in word)
    raise ValueError(f"{short(text)}: no metric {name[:60]!r}{did_you_mean(name, names) or f'; there are {listed}'}")


def _bounds(metric: str) -> tuple[float, float]:
    """The smallest and the largest value that a metric can have."""
    if metric in POLICY_METRICS:
        return (0, PROMISE_METRICS[metric].highest) if metric in PROMISE_METRICS else (0, 1)
    return describe(metric).bounds


def _extent(metric: str) -> str:
    low, high = _bounds(metric)
    return f"{metric} lies between {low:g} and {high:g}" if math.isfinite(high) else f"{metric} is at least {low:g}"


def _parse_limit(metric: str, digits: str, percent: str, text: str) -> float:
    """A limit, or a margin, in the unit of the metric; a number of percent without its sign is refused."""
    value = _parse_number(digits, percent, text)
    if percent and _bounds(metric)[1] != 1:
        raise ValueError(f"{short(text)}: {metric} is no share, so its limit is not in percent")
    if not percent and _bounds(metric) == (0, 1) and 1 < value <= 100:
        raise ValueError(f"{short(text)}: {_extent(metric)}, so write {value:g}% or {value / 100:g}")
    return value


def _parse_number(digits: str, percent: str, text: str) -> float:
    try:
        value = float(digits)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{short(text)}: {digits[:40]!r} is not a number")
    return value / 100 if percent else value


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
        notes: what limits all of them: values that seem to mean something else, a policy fitted on these predictions.
    """

    requirements: tuple[Judgement, ...]
    notes: tuple[str, ...] = ()

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
        facts = {"format": "calibrant.check", "version": 1, "status": passed, "notes": list(self.notes)}
        return {**facts, "requirements": parts}

    def __bool__(self) -> bool:
        raise TypeError("a check passes, fails or cannot tell: ask for .passed, which is True, False or None")


def check(
    predictions: Predictions,
    *requirements: str,
    policy: Policy | None = None,
    baseline: Predictions | None = None,
    groups: str | None = None,
    repeats: Literal["first"] | None = None,
    level: float = 0.95,
    replicates: int = 1000,
    seed: int = 0,
    progress: Progress = silent,
    engine: PassEngine = LOCAL,
) -> Check:
    """Judge requirements on a model's numbers by their intervals.

    Args:
        predictions: labelled predictions.
        requirements: as `parse_requirement` reads them: ``"ece <= 0.03"``, ``"risk@0.8 <= 5%"``, ``"ece no worse"``.
        policy: the policy that ``policy.risk``, ``policy.coverage`` and the like refer to. If it has thresholds by
            class, risk and coverage are also judged in each class.
        baseline: predictions of another model on the same samples, for ``no worse``.
        groups: a column; every requirement is also judged in each of its groups.
        repeats: ``"first"`` keeps the first row of each id; without it ids that repeat are refused, because they are
            no new evidence.
        level: of the intervals.
        replicates: of the bootstrap.
        seed: of the bootstrap.
        progress: called as samples are read.
        engine: what goes through the predictions, if not this process alone: ``calibrant.predictions.OnRay()`` for
            a cluster.

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
    check_level(level, replicates, seed)
    parsed = [parse_requirement(text) for text in requirements]
    _check_arguments(parsed, predictions, policy, baseline, groups)
    predictions = resolve_repeats(predictions, repeats, engine)
    try:
        baseline = None if baseline is None else resolve_repeats(baseline, repeats, engine)
    except ValueError as error:
        raise ValueError(f"baseline: {error}") from None
    outcome = None
    if policy is not None:
        policy.check(predictions)
        refuse_weights(predictions, "the judgement of a policy")
        outcome = Outcome(policy)
    reading: dict[str, Any] = {"groups": (), "progress": progress, "engine": engine}
    collected = collect(predictions, outcome=outcome, **reading)
    sampling: dict[str, Any] = {"level": level, "replicates": replicates, "seed": seed}
    changes = {}
    if baseline is not None:
        reference = collect(baseline, stage="reading the baseline", **reading)
        if (reason := explain_mismatch(reference, collected)) is not None:
            raise ValueError(f"the model cannot be compared with the baseline: {reason}")
        changes = paired_differences(reference.pairs(), collected.pairs(), **sampling)
    parts = [_Samples("", sampling, collected, outcome)]
    if groups is not None:
        split = _split(predictions, groups, policy, progress, engine)
        shared = sampling | {"level": 1 - (1 - level) / max(1, len(split))}
        parts += [_Samples(f"{groups}={name}", shared, group.collected, group.outcome) for name, group in split.items()]
    judgements = []
    for requirement in parsed:
        for part in parts + _by_class(requirement, outcome, sampling):
            if requirement.is_relative and part.name:
                continue  # a baseline is compared on all samples
            interval = changes[requirement.metric] if requirement.is_relative else part.interval(requirement)
            judgements.append(_judge(requirement, part.name, interval, part.size(requirement.metric)))
    notes = (FITTED_ON_THESE,) if outcome is not None and outcome.fitted_on_these else ()
    return Check(tuple(judgements), (*collected.warnings, *notes))


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
        text = repr(requirement.text)
        if requirement.is_of_policy and policy is None:
            raise ValueError(f"{text} is about a policy: give one")
        asked = PROMISE_METRICS.get(requirement.metric)
        if asked is not None and policy is not None and policy.promise.metric != asked:
            raise ValueError(f"{text} is about a policy that promises a {asked.name}, and this one does not")
        if requirement.is_relative and baseline is None:
            raise ValueError(f"{text} is a comparison: give a baseline")
        if not predictions.data_type.has_classes and requirement.metric in ("nll", "brier", "classwise_ece"):
            raise ValueError(f"{text} needs logits or probabilities, and the predictions hold confidences")
    if groups is not None:
        check_group(predictions, groups)


@dataclass
class _Samples:
    """Samples that are judged together."""

    name: str  # ``column=value``, or empty for all samples
    sampling: dict[str, Any]  # level, replicates and seed of their intervals
    collected: Collected | None  # by a pass over them; None for the predictions of a class: only answers are judged
    outcome: Any = None  # what a policy did with them

    def size(self, metric: str) -> int:
        """The number of samples behind a metric; for the risk of a policy, its answers."""
        if metric == "policy.risk":
            return int(self.outcome.accepted)
        if metric in PROMISE_METRICS:
            return int(self.outcome.tally.rows)
        return int(self.outcome.samples) if self.collected is None else self.collected.samples

    def interval(self, requirement: Requirement) -> Interval:
        metric, level = requirement.metric, self.sampling["level"]
        if requirement.is_of_policy:
            return _policy_interval(metric, self.outcome, level)
        summary, numbers = self._measured
        return numbers[metric] if metric in numbers else interval_at(summary, metric, level)

    @functools.cached_property
    def _measured(self) -> tuple[Summary, dict[str, Interval]]:
        assert self.collected is not None
        summary = self.collected.summary()
        return summary, numbers_of(self.collected, summary, **self.sampling)[1]


def _policy_interval(metric: str, outcome: Any, level: float) -> Interval:
    tails = (1 - level) / 2, (1 - level) / 2
    if metric == "policy.coverage":
        return coverage_interval(outcome.accepted, outcome.samples, level)
    if metric == "policy.risk":
        return risk_interval(outcome.errors, outcome.accepted, *tails)
    if metric == "policy.wrong":
        return risk_interval(outcome.errors, outcome.samples, *tails)
    interval: Interval = outcome.policy.promise.metric_interval(outcome.tally, level)
    return interval


def _by_class(requirement: Requirement, outcome: Any, sampling: dict[str, Any]) -> list[_Samples]:
    """The answers of each class, where the policy has a threshold for it; the level is shared."""
    if requirement.metric not in ("policy.risk", "policy.coverage") or outcome is None or not outcome.classes:
        return []
    answers = {name: counts for name, counts in outcome.classes.items() if counts.samples}
    shared = sampling | {"level": 1 - (1 - sampling["level"]) / len(outcome.classes)}
    return [_Samples(f"class={name}", shared, None, counts) for name, counts in answers.items()]


def _split(
    predictions: Predictions, column: str, policy: Policy | None, progress: Progress, engine: PassEngine
) -> dict[str, Part]:
    """What one pass collects about every group, and what the policy decides there."""
    offsets = None
    if len(engine.pieces(predictions)) > 1:
        offsets = offsets_by_group(predictions, column, engine)
    work = partial(collect_by_group, column=column, policy=policy, offsets=offsets)
    parts: dict[str, list[Part]] = {}
    for by_group in engine.run(work, predictions, f"reading by {column}", progress):
        for name, part in by_group.items():
            parts.setdefault(name, []).append(part)
    merged = {name: merge(group) for name, group in sorted(parts.items())}
    # Of a group whose samples all have weight 0 there is nothing to say.
    return {name: part for name, part in merged.items() if part.collected.is_heavy or not part.collected.samples}


def collect_by_group(
    piece: Piece, column: str, policy: Policy | None, offsets: Sequence[Mapping[str, Offsets]] | None
) -> Iterator[dict[str, Part]]:
    """What a pass over a piece collects about every group of a column, whose places are given by ``offsets``."""
    parts: dict[str, Part] = {}
    for _, batch in piece.batches():
        names = np.asarray(batch.groups[column]).astype(str)
        for name in np.unique(names).tolist():
            if name not in parts:
                own = Offsets() if offsets is None else offsets[piece.number][name]
                parts[name] = Part(begin(piece.predictions, ()), own, None if policy is None else Outcome(policy))
                expect(parts[name].collected, own)
            rows = batch.samples(np.flatnonzero(names == name))
            add_batch(parts[name].collected, rows)
            if (outcome := parts[name].outcome) is not None:
                outcome.add(rows, outcome.policy.decide(rows))
    yield parts


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
    if needed > 10**9:  # not worth suggesting
        return None
    unit = 10 ** max(0, math.floor(math.log10(max(needed, 1))) - 1)
    return math.ceil(needed / unit) * unit  # up to two significant digits


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
