"""Precision: of the answers that say a class, at least so many are right; other classes are not answered.

The loss of an answer is 1 if it is wrong, and the mean is over the answers that say the class. It is shown as the risk
of a predicted class is, by exact binomial tests in a fixed sequence: `parts` has the argument.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from calibrant.base.checks import Bools, Ints
from calibrant.base.numbers import count, percent
from calibrant.metrics import Doubles
from calibrant.predictions import Predictions, class_name
from calibrant.promises.base import ClassNames, Fitted, FoundThresholds, Promise, promise, sure
from calibrant.promises.parts import ThresholdData, thresholds_by_class
from calibrant.promises.price import (
    Answered,
    ClassAnswers,
    Price,
    always_a_class,
    coverage_of,
    measure,
    named_share,
    unanswered,
    with_idle_groups,
)
from calibrant.promises.risk import never_answered
from calibrant.promises.shares import ClassShares, check_shares
from calibrant.promises.thresholds import FIXED_SEQUENCE, ClassThreshold, PromiseTerms


@promise("precision")
class Precision(Promise):
    """At least so many of the answers that say a class are right.

    A policy promises it of several classes at once, each with a threshold of its own, and answers no other class.

    Args:
        label: the class, by its name or its number.
        share: the share of right answers.

    Example:
        >>> from calibrant.promises import Precision
        >>> Precision("dog", 0.95).shares[0].risk
        0.05
    """

    spelling: ClassVar[str] = "precision[CLASS] >= SHARE"
    has_groups: ClassVar[bool] = True

    shares: ClassShares = Field(min_length=1)

    def __init__(self, label: int | str | None = None, share: float | None = None, **entries: Any) -> None:
        shares = {} if label is None else {"shares": [{"class": label, "share": share}]}
        super().__init__(**shares, **entries)

    @property
    def methods(self) -> tuple[str, ...]:
        """How its thresholds may be found."""
        return FIXED_SEQUENCE

    @property
    def has_class_thresholds(self) -> bool:
        """Whether a threshold belongs to answers of one class."""
        return True

    @property
    def risks(self) -> Mapping[int, float]:
        """What is promised of the answers that say each class."""
        return {share.number: share.risk for share in self.shares}

    @property
    def labels(self) -> tuple[int, ...]:
        """The classes whose answers are promised to be right."""
        return tuple(share.number for share in self.shares)

    def join(self, others: Sequence[Promise]) -> Promise:
        """The precision of several classes at once."""
        shares = [share for one in (self, *others) if isinstance(one, Precision) for share in one.shares]
        if not all(isinstance(one, Precision) for one in others):
            return super().join(others)
        if len({share.label for share in shares}) < len(shares):
            raise ValueError("the precision of a class is promised twice")
        return Precision(shares=shares)

    def number_classes(self, predictions: Predictions) -> Promise:
        """The promise with the positions of its classes."""
        bound = self.model_copy(update={"shares": tuple(share.bind(predictions) for share in self.shares)})
        if len(set(bound.labels)) < len(bound.labels):
            raise ValueError("the precision of a class is promised twice")
        return bound

    def check(self, num_classes: int) -> None:
        """Raise unless it is about different classes of that many."""
        check_shares(self.shares, num_classes)

    def find(self, data: ThresholdData) -> FoundThresholds:
        """A threshold for each class, in every group if there are groups."""
        terms_of = functools.partial(self.terms, data.class_names)
        threshold, classes = thresholds_by_class(data, self.risks, terms_of)
        counted = [int((data.scored.labels == label).sum()) for label in self.labels]
        shares = tuple(replace(part, samples=samples) for part, samples in zip(self.shares, counted, strict=True))
        return FoundThresholds(self.model_copy(update={"shares": shares}), threshold, class_thresholds=classes)

    def losses(self, labels: Ints, answers: Ints, accept: Bools) -> tuple[Bools, Doubles]:
        """Of answers, whether they are wrong."""
        return accept, (answers != labels).astype(np.float64)

    def promised_risk(self, fitted: Fitted) -> float | None:
        """The largest of all classes, which holds over the answers of all."""
        return max(part.threshold.target_risk or 0.0 for part in fitted.class_thresholds or ())

    def class_answers(self, fitted: Fitted) -> tuple[ClassAnswers, ...]:
        """What the samples that set the thresholds had of the classes."""
        classes = []
        for share in self.shares if all(share.samples is not None for share in self.shares) else ():
            parts = [part.threshold for part in fitted.class_thresholds or () if part.label == share.number]
            answers, errors = sum(part.accepted for part in parts), sum(part.errors for part in parts)
            classes.append(ClassAnswers(share.number, share.samples or 0, answers, answers - errors))
        return tuple(classes)

    def terms(self, class_names: ClassNames = None, part: ClassThreshold | None = None) -> PromiseTerms:
        """A precision of at least so much."""
        samples = "samples" if part is None else part.samples(class_names)
        return PromiseTerms("precision", is_least=True, samples=samples)

    def clause(self, class_names: ClassNames) -> str:
        """What holds for the answers."""
        shares = [share.words("of the answers that say", class_names) for share in self.shares]
        return f"at least {' and '.join(shares)} are right"

    def words(self, fitted: Fitted) -> str:
        """What holds for the answers, and with what confidence."""
        threshold = fitted.threshold
        seen = f"{percent(1 - threshold.risk.value)} of {count(threshold.accepted)} answers right"
        text = f"{sure(fitted)} {self.clause(fitted.class_names)}"
        scope = "" if fitted.group is None else f" in every {fitted.group}"
        return f"{text}{scope} (seen: {seen}); no other class is answered.{never_answered(fitted)}"

    def price(self, answered: Answered, class_names: ClassNames, level: float = 0.95) -> Price:
        """The recall of each class."""
        recalls, precisions, words, results = [], [], [], []
        for (label, samples, answers, right), share in zip(answered.classes, self.shares, strict=False):
            name = class_name(label, class_names)
            recall = measure("recall", label, right, samples, level)
            precision = measure("precision", label, right, answers, level, f"promised: {share.least}")
            found = f"{count(right)} of the {count(samples)} samples of {name} are answered as {name}"
            words.append(f"{found}{named_share(recall, level)}")
            if answers:
                correct = f"{count(right)} of {count(answers)} answers that say {name} are right"
                results.append(f"{correct}{named_share(precision, level)}.")
            recalls.append(recall)
            precisions.append(precision)
        clauses = "; ".join(words) or unanswered(answered, level)
        return Price((*recalls, coverage_of(answered)), clauses, " ".join(results), tuple(precisions))

    def constant(
        self, answered: Answered, evidence: Mapping[str, Any], promised: float | None, class_names: ClassNames
    ) -> str:
        """What always answering each class would be worth, warnings first."""
        texts = [
            always_a_class(of_class, answered, class_names, least=share.share)
            for of_class, share in zip(answered.classes, self.shares, strict=False)
        ]
        text = " ".join(sorted(filter(None, texts), key=lambda text: not text.startswith("Warning")))
        return with_idle_groups(text, answered, evidence, class_names)

    def to_entries(self, class_names: ClassNames) -> dict[str, Any] | None:
        """Its entries in a file."""
        return {"of": self.of, "shares": [share.to_entries(class_names) for share in self.shares]}

    def check_fitted(self, fitted: Fitted) -> None:
        """Raise unless every class has a threshold, and no other has one, and counts can be true."""
        promised, parts = set(self.labels), fitted.class_thresholds or ()
        for part in parts:
            if part.label not in promised:
                raise ValueError(f"class_thresholds have class {part.label}, whose precision is not promised")
        unserved = promised - {part.label for part in parts}
        if unserved:
            raise ValueError(f"class_thresholds lack class {min(unserved)}, whose precision is promised")
        counted = [share for share in self.shares if share.samples is not None]
        if counted and len(counted) < len(self.shares):
            raise ValueError("promise.shares must have samples each, or none of them")
        for share in counted:
            thresholds = [part.threshold for part in parts if part.label == share.number]
            right, most = sum(part.accepted - part.errors for part in thresholds), fitted.threshold.samples
            if not right <= (share.samples or 0) <= most:
                raise ValueError(f"promise.shares.samples must be from {right} to {most}, got {share.samples}")
