"""What a promise costs: what it says nothing about, and what a constant answer would be worth.

A promise bounds one mean and leaves the other side open: a recall can be had by answering the class always, a precision
by answering hardly ever. Each kind has a function here, for the samples that set the threshold and for new ones alike.

===================  ======================================  ======================================
promise              its price                               the constant answer beside it
===================  ======================================  ======================================
``"risk"``           coverage                                the majority class
``"precision"``      recall of each class                    the class, always
``"recall"``         precision, and the share answered so    the class, always
``"cost"``           coverage and error rate                 the class that costs least
``"expected-risk"``  coverage and error rate                 the majority class
===================  ======================================  ======================================
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from calibrant.base.checks import listing
from calibrant.base.files import json_value
from calibrant.base.numbers import allowed, count, number, percent, round_percent, span_words
from calibrant.metrics import Interval
from calibrant.predictions import class_name
from calibrant.promises.bounds import risk_interval
from calibrant.promises.promise import LossTally, Promise


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
    """A share that belongs to the price: so many of so many, with exact binomial limits (coverage: Wilson's)."""

    name: str
    label: int | None
    part: int
    total: int
    share: Interval

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


def price_of(promise: Promise, answered: Answered, class_names: Sequence[str] | None, level: float = 0.95) -> Price:
    """What a promise costs on the samples that were answered, with limits at a level.

    Example:
        >>> from calibrant.promises.bounds import coverage_interval
        >>> of_class = ClassAnswers(label=1, samples=40, answers=300, right=36)
        >>> tally = LossTally(40, 4.0)
        >>> answered = Answered(1000, 300, 264, coverage_interval(300, 1000, 0.95), tally, (of_class,))
        >>> price = price_of(Promise("recall", shares=((1, 0.8),)), answered, ("no", "yes"))
        >>> price.measures[0].name, price.measures[0].share.value
        ('precision', 0.12)
    """
    return _PRICES[promise.of](promise, answered, class_names, level)


def _price_of_risk(promise: Promise, answered: Answered, class_names: Sequence[str] | None, level: float) -> Price:
    return Price((_coverage(answered),), _unanswered(answered, level), "")


def _price_of_precision(promise: Promise, answered: Answered, class_names: Sequence[str] | None, level: float) -> Price:
    recalls, precisions, words, results = [], [], [], []
    for label, samples, answers, right in answered.classes:
        name = class_name(label, class_names)
        recall = _measure("recall", label, right, samples, level)
        precision = _measure("precision", label, right, answers, level)
        found = f"{count(right)} of the {count(samples)} samples of {name} are answered as {name}"
        words.append(f"{found}{_named_share(recall, level)}")
        if answers:
            correct = f"{count(right)} of {count(answers)} answers that say {name} are right"
            results.append(f"{correct}{_named_share(precision, level)}.")
        recalls.append(recall)
        precisions.append(precision)
    clauses = "; ".join(words) or _unanswered(answered, level)
    return Price((*recalls, _coverage(answered)), clauses, " ".join(results), tuple(precisions))


def _price_of_recall(promise: Promise, answered: Answered, class_names: Sequence[str] | None, level: float) -> Price:
    ((label, samples, answers, right),) = answered.classes
    name, found, result = class_name(label, class_names), samples - round(answered.tally.loss), ""
    precision = _measure("precision", label, right, answers, level)
    recall = _measure("recall", label, found, samples, level)
    words = f"{count(right)} of {count(answers)} answers that say {name} are right{_named_share(precision, level)}"
    if samples:
        result = f"{count(found)} of {count(samples)} samples of {name} are answered as {name}"
        result = f"{result}{_named_share(recall, level)}."
    return Price((precision, _coverage(answered)), words, result, (recall,))


def _price_of_cost(promise: Promise, answered: Answered, class_names: Sequence[str] | None, level: float) -> Price:
    tally = answered.tally
    result = f"An answer costs {number(promise.highest * tally.mean)} on average." if tally.rows else ""
    return _price_of_errors(answered, level, result)


def _price_of_expected_risk(
    promise: Promise, answered: Answered, class_names: Sequence[str] | None, level: float
) -> Price:
    tally = answered.tally
    wrong = _measure("answered wrongly", None, round(tally.loss), tally.rows, level)
    result = f"{percent(tally.mean)} of all samples are answered wrongly." if tally.rows else ""
    return replace(_price_of_errors(answered, level, result), promised=(wrong,))


def _price_of_errors(answered: Answered, level: float, result: str) -> Price:
    errors = _measure("error rate", None, answered.errors, answered.accepted, level)
    wrong = f"{percent(errors.share.value)} of the answers are wrong{_limits(errors.share, level)}"
    return Price((_coverage(answered), errors), f"{_unanswered(answered, level)}, and {wrong}", result)


_PRICES: dict[str, Callable[[Promise, Answered, Sequence[str] | None, float], Price]] = {
    "risk": _price_of_risk,
    "precision": _price_of_precision,
    "recall": _price_of_recall,
    "cost": _price_of_cost,
    "expected-risk": _price_of_expected_risk,
}


def _measure(name: str, label: int | None, part: int, total: int, level: float) -> Measure:
    return Measure(name, label, part, total, risk_interval(part, total, (1 - level) / 2, (1 - level) / 2))


def _named_share(measure: Measure, level: float) -> str:
    """A share with its name and limits, which follows the counts it is made of; empty where there are none."""
    share = f"{percent(measure.share.value)}{_limits(measure.share, level)}"
    return f", a {measure.name} of {share}" if measure.total else ""


def _coverage(answered: Answered) -> Measure:
    return Measure("coverage", None, answered.accepted, answered.samples, answered.coverage)


def _unanswered(answered: Answered, level: float) -> str:
    if answered.accepted == answered.samples:
        return f"all {answered.unit} are answered"
    value, low, high = vars(answered.coverage).values()
    share = Interval(1 - value, 1 - high, 1 - low)
    return f"{percent(share.value)} of {answered.unit} go unanswered{_limits(share, level)}"


def _limits(share: Interval, level: float) -> str:
    words = span_words(share.low, share.high, "share", share.value)
    return f" ({round_percent(level)} interval {words})" if words else ""


def compare_with_constant(
    promise: Promise,
    answered: Answered,
    evidence: Mapping[str, Any],
    promised: float | None,
    class_names: Sequence[str] | None,
) -> str:
    """What one and the same answer to everything would be worth; a warning where the policy is worth no more.

    Args:
        promise: what is promised.
        answered: of the samples that set the threshold.
        evidence: that of a policy, with what `describe_majority` and `describe_cheapest` say of all labels.
        promised: of a risk, what is promised at most; None where nothing is.
        class_names: the names of the classes, or None.
    """
    if promise.of in ("precision", "recall"):
        texts = [_constant_class(promise, of_class, answered, class_names) for of_class in answered.classes]
        text = " ".join(sorted(filter(None, texts), key=lambda text: not text.startswith("Warning")))
        return _with_idle_groups(text, answered, evidence, class_names)
    if promise.of == "cost":
        return _constant_cost(promise, answered, evidence.get("cheapest") or {}, class_names)
    target = promise.target if promise.of == "expected-risk" else promised
    text = _constant_majority(promise, answered, evidence.get("majority") or {}, target, class_names)
    only = evidence.get("only_answer")
    if text and isinstance(only, int):
        text += f" All of the policy's answers say {_name(only, class_names)}."
    return _with_idle_groups(text, answered, evidence, class_names)


def _with_idle_groups(
    text: str, answered: Answered, evidence: Mapping[str, Any], class_names: Sequence[str] | None
) -> str:
    """What a constant answer is worth, before it the groups in which it keeps the promise, unless all is warned of."""
    idle = evidence.get("idle") or []
    if not idle or not answered.accepted or text.startswith("Warning"):
        return text
    groups = [
        f"{part['group']} ({_name(part['class'], class_names)}, wrong in {percent(part['error'])})" for part in idle
    ]
    warning = f"Warning: One and the same answer keeps the promise in {listing(groups, 5)}: it asks for nothing there."
    return f"{warning} {text}".rstrip()


def _constant_class(
    promise: Promise, of_class: ClassAnswers, answered: Answered, class_names: Sequence[str] | None
) -> str:
    """Always answering the class: every one of its samples is found, and as many answers are right as there are."""
    if not of_class.samples:
        return ""
    name, rate = class_name(of_class.label, class_names), of_class.samples / answered.samples
    text = f"Always answering {name} would be right in {percent(rate)} of all {answered.unit}"
    text += " and keep the promise, with a recall of 100%" if promise.of == "recall" else ""
    if not answered.accepted:
        return f"{text}."
    share = dict(promise.shares)[of_class.label]
    if promise.of == "precision" and rate >= share:
        return f"Warning: {text}. The promise of at least {allowed(share)} is no better: ask for more than that."
    precision = _measure("precision", of_class.label, of_class.right, of_class.answers, 0.95).share
    if of_class.answers and precision.low <= rate:
        return (
            f"Warning: {text}. The policy's answers are right in {percent(precision.value)}, no better beyond chance."
        )
    return f"{text}."


def _constant_cost(
    promise: Promise, answered: Answered, cheapest: Mapping[str, Any], class_names: Sequence[str] | None
) -> str:
    label, cost = cheapest.get("class"), cheapest.get("cost")
    if not isinstance(cost, float) or not isinstance(label, int) or promise.target is None:
        return ""
    text = f"Always answering {_name(label, class_names)} would cost {number(cost)} on average."
    if not answered.accepted:
        return text
    if promise.target >= cost:
        return f"Warning: {text} The promise of at most {promise.target:g} is no better: ask for a lower cost."
    if promise.highest * answered.tally.mean >= cost:
        return f"Warning: {text} The policy's answers cost no less, {number(promise.highest * answered.tally.mean)}."
    return text


def _constant_majority(
    promise: Promise,
    answered: Answered,
    majority: Mapping[str, Any],
    target: float | None,
    class_names: Sequence[str] | None,
) -> str:
    """Always answering the majority class; empty where that is wrong in over half of the samples, and no rival."""
    error, label = majority.get("error"), majority.get("class")
    if not isinstance(error, float) or not isinstance(label, int) or error > 0.5:
        return ""
    name = _name(label, class_names)
    if error == 0:
        unlearnt = "nothing was learnt about other classes, and no promise is about them"
        return f"Warning: all labels are {name}: {unlearnt}."
    text = f"Always answering {name} would be wrong in {percent(error)} of all {answered.unit}."
    if not answered.accepted:
        return text
    if target is not None and target >= error:
        noun = promise.terms().noun
        worth = f"The promise of at most {allowed(target)} is no better"
        return f"Warning: {text} {worth}: ask for {'an' if noun[0] == 'e' else 'a'} {noun} below that error."
    if _measure("error rate", None, answered.errors, answered.accepted, 0.95).share.high >= error:
        return f"Warning: {text} The policy's answers are wrong in {percent(answered.risk)}, no better beyond chance."
    return text


def _name(label: int, class_names: Sequence[str] | None) -> str:
    """The name of a class that evidence speaks of, which is not checked against the names."""
    return class_name(label, class_names if class_names is not None and label < len(class_names) else None)
