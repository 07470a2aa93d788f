"""What a promise costs: what it says nothing about, and what a constant answer would be worth.

A promise bounds one mean and leaves the other side open: a recall can be had by answering the class always, a precision
by answering hardly ever. Each promise says what it costs in the words and measures that are made here, for the samples
that set the threshold and for new ones alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from calibrant.base.checks import listing
from calibrant.base.entries import Count, Loss
from calibrant.base.files import json_value
from calibrant.base.numbers import allowed, percent, round_percent, span_words
from calibrant.metrics import Interval
from calibrant.predictions import class_name
from calibrant.promises.bounds import risk_interval


class LossTally(NamedTuple):
    """How many samples a mean is over, and the sum of their losses."""

    rows: Count = 0
    loss: Loss = 0.0

    @property
    def mean(self) -> float:
        """The mean loss; NaN without samples."""
        return self.loss / self.rows if self.rows else math.nan


class ClassAnswers(NamedTuple):
    """Of one class: its samples, the answers that say it, and how many of those are right."""

    label: int
    samples: int
    answers: int
    right: int


class Answered(NamedTuple):
    """What a policy answered of labelled samples.

    Attributes:
        samples: how many there are.
        accepted: how many were answered.
        errors: how many answers are wrong.
        coverage: the share answered, with limits.
        tally: the losses that a promise of recall, of a cost or of an expected risk is about.
        classes: those that a promise of precision or recall names.
        unit: what they are called.
    """

    samples: int
    accepted: int
    errors: int
    coverage: Interval
    tally: LossTally = LossTally()
    classes: tuple[ClassAnswers, ...] = ()
    unit: str = "samples"

    @property
    def risk(self) -> float:
        """The share of the answers that is wrong; NaN without any."""
        return self.errors / self.accepted if self.accepted else math.nan


class Measure(NamedTuple):
    """A share that belongs to the price: so many of so many, with exact binomial limits (coverage: Wilson's).

    Of a share that is promised, the ``note`` says how much.
    """

    name: str
    label: int | None
    part: int
    total: int
    share: Interval
    note: str = ""

    def title(self, class_names: Sequence[str] | None) -> str:
        """Its name in a table."""
        if self.label is None:
            return {"answered wrongly": "Answered wrongly, of all"}.get(self.name, self.name.capitalize())
        return f"{self.name.capitalize()} of {class_name(self.label, class_names)}"

    def to_dict(self, class_names: Sequence[str] | None) -> dict[str, Any]:
        """For JSON."""
        name = None if self.label is None else class_name(self.label, class_names)
        counts = {"name": self.name, "class": name, "count": self.part, "of": self.total}
        return {**counts, **json_value(vars(self.share))}


@dataclass(frozen=True)
class Price:
    """What a promise costs, on some samples.

    Attributes:
        measures: the shares that the promise says nothing about; all but the coverage are slightly optimistic on the
            samples that set the threshold, which was chosen on them.
        words: the same as a clause, which can stand in a sentence.
        result: what came of what is promised, in a sentence; empty where it is the share of wrong answers.
        promised: the shares that the promise is about, other than that of wrong answers.
    """

    measures: tuple[Measure, ...]
    words: str
    result: str
    promised: tuple[Measure, ...] = ()


def measure(name: str, label: int | None, part: int, total: int, level: float, note: str = "") -> Measure:
    """So many of so many, with exact limits at a level."""
    return Measure(name, label, part, total, risk_interval(part, total, (1 - level) / 2, (1 - level) / 2), note)


def coverage_of(answered: Answered) -> Measure:
    """The share that was answered."""
    return Measure("coverage", None, answered.accepted, answered.samples, answered.coverage)


def named_share(share: Measure, level: float) -> str:
    """A share with its name and limits, which follows the counts it is made of; empty where there are none."""
    text = f"{percent(share.share.value)}{_limits(share.share, level)}"
    return f", a {share.name} of {text}" if share.total else ""


def unanswered(answered: Answered, level: float) -> str:
    """The share that was not answered, as a clause."""
    if answered.accepted == answered.samples:
        return f"all {answered.unit} are answered"
    value, low, high = vars(answered.coverage).values()
    share = Interval(1 - value, 1 - high, 1 - low)
    return f"{percent(share.value)} of {answered.unit} go unanswered{_limits(share, level)}"


def price_of_errors(answered: Answered, level: float, result: str, promised: tuple[Measure, ...] = ()) -> Price:
    """Coverage and error rate, where the promise is about neither."""
    errors = measure("error rate", None, answered.errors, answered.accepted, level)
    wrong = f"{percent(errors.share.value)} of the answers are wrong{_limits(errors.share, level)}"
    words = f"{unanswered(answered, level)}, and {wrong}"
    return Price((coverage_of(answered), errors), words, result, promised)


def _limits(share: Interval, level: float) -> str:
    words = span_words(share.low, share.high, "share", share.value)
    return f" ({round_percent(level)} interval {words})" if words else ""


def always_a_class(
    of_class: ClassAnswers,
    answered: Answered,
    class_names: Sequence[str] | None,
    *,
    also: str = "",
    least: float | None = None,
) -> str:
    """What always answering a class is worth: every one of its samples is found, and as many answers are right.

    ``also`` is what else it would do, ``least`` the precision that is promised. A warning where that, or the policy's
    answers that say the class, are no better.
    """
    if not of_class.samples:
        return ""
    name, rate = class_name(of_class.label, class_names), of_class.samples / answered.samples
    text = f"Always answering {name} would be right in {percent(rate)} of all {answered.unit}{also}"
    if not answered.accepted:
        return f"{text}."
    if least is not None and rate >= least:
        return f"Warning: {text}. The promise of at least {allowed(least)} is no better: ask for more than that."
    precision = measure("precision", of_class.label, of_class.right, of_class.answers, 0.95).share
    if of_class.answers and precision.low <= rate:
        share = percent(precision.value)
        return f"Warning: {text}. The policy's answers are right in {share}, no better beyond chance."
    return f"{text}."


def always_the_majority(
    answered: Answered, evidence: Mapping[str, Any], noun: str, target: float | None, class_names: Sequence[str] | None
) -> str:
    """What always answering the majority class is worth, where at most a ``target`` of errors is promised.

    Empty where that is wrong in over half of the samples, and no rival. A warning where the policy is worth no more.
    """
    majority = evidence.get("majority") or {}
    error, label = majority.get("error"), majority.get("class")
    if not isinstance(error, float) or not isinstance(label, int) or error > 0.5:
        return ""
    name = evidence_name(label, class_names)
    text = f"Always answering {name} would be wrong in {percent(error)} of all {answered.unit}."
    if error == 0:
        unlearnt = "nothing was learnt about other classes, and no promise is about them"
        text = f"Warning: all labels are {name}: {unlearnt}."
    elif answered.accepted and target is not None and target >= error:
        worth = f"The promise of at most {allowed(target)} is no better"
        text = f"Warning: {text} {worth}: ask for {'an' if noun[0] == 'e' else 'a'} {noun} below that error."
    elif answered.accepted:
        limit = measure("error rate", None, answered.errors, answered.accepted, 0.95).share.high
        if limit >= error:
            share = percent(answered.risk)
            text = f"Warning: {text} The policy's answers are wrong in {share}, no better beyond chance."
    only = evidence.get("only_answer")
    if isinstance(only, int):
        text += f" All of the policy's answers say {evidence_name(only, class_names)}."
    return text


def with_idle_groups(
    text: str, answered: Answered, evidence: Mapping[str, Any], class_names: Sequence[str] | None
) -> str:
    """What a constant answer is worth, before it the groups in which it keeps the promise, unless all is warned of."""
    idle = evidence.get("idle") or []
    if not idle or not answered.accepted or text.startswith("Warning"):
        return text
    groups = [
        f"{part['group']} ({evidence_name(part['class'], class_names)}, wrong in {percent(part['error'])})"
        for part in idle
    ]
    warning = f"Warning: One and the same answer keeps the promise in {listing(groups, 5)}: it asks for nothing there."
    return f"{warning} {text}".rstrip()


def evidence_name(label: int, class_names: Sequence[str] | None) -> str:
    """The name of a class that evidence speaks of, which is not checked against the names."""
    return class_name(label, class_names if class_names is not None and label < len(class_names) else None)
