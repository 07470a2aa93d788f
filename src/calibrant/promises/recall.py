r"""Recall: at least so many of the samples of a class are answered as that class; no other answer is given.

The loss of a sample is 1 if it is not answered as the class, and the mean is over the samples of the class. Samples
are ranked by the probability of the class, and whatever reaches the threshold is answered as the class, likelier ones
or not.

With n samples of the class, let c be the most that may be missed: the largest number with
:math:`P(\mathrm{Bin}(n, 1 - \rho) \le c) \le \delta`. The threshold lies at the (c + 1)-th lowest probability of the
class among these samples. The share of the class below the (c + 1)-th of n draws is above :math:`1 - \rho` exactly if
c draws or fewer lie below that quantile, which has this probability: one order statistic, and nothing to search.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

import numpy as np
from pydantic import Field

from calibrant.base.checks import Bools, Ints
from calibrant.base.numbers import allowed, count, percent
from calibrant.metrics import Doubles, Interval
from calibrant.posthoc import Ops
from calibrant.posthoc.scores import Score, own_score
from calibrant.predictions import Predictions, class_name
from calibrant.promises.base import ClassNames, Fitted, MeanPromise, Promise, PromiseMetric, promise, sure
from calibrant.promises.bounds import allowed_errors, fewest, risk_interval
from calibrant.promises.parts import ScoredSamples, ThresholdData
from calibrant.promises.price import (
    Answered,
    ClassAnswers,
    LossTally,
    Price,
    always_a_class,
    coverage_of,
    measure,
    named_share,
    with_idle_groups,
)
from calibrant.promises.shares import ClassShare, ClassShares, check_shares
from calibrant.promises.thresholds import INTO_GAP, TIED, ClassThreshold, PromiseTerms

V = TypeVar("V")

CLASS_PROBABILITY = own_score("class_probability", "probability of the class")


@promise("recall")
class Recall(MeanPromise):
    """At least so many of the samples of a class are answered as that class.

    Args:
        label: the class, by its name or its number.
        share: the share of its samples.

    Example:
        >>> from calibrant.promises import Recall
        >>> Recall("dog", 0.95).mean_loss
        0.05
    """

    spelling: ClassVar[str] = "recall[CLASS] >= SHARE"
    metric: ClassVar[PromiseMetric | None] = PromiseMetric("recall", is_error=False, highest=1.0)
    counts_silence: ClassVar[bool] = True
    gives_one_answer: ClassVar[bool] = True
    untested: ClassVar[str] = (
        "The promised recall needs the labels of samples that were not answered, and a watch has those of answers: "
        "judge it with calibrant apply on labelled samples."
    )

    shares: ClassShares = Field(min_length=1, max_length=1)

    def __init__(self, label: int | str | None = None, share: float | None = None, **entries: Any) -> None:
        shares = {} if label is None else {"shares": [{"class": label, "share": share}]}
        super().__init__(**shares, **entries)

    @property
    def _share(self) -> ClassShare:
        return self.shares[0]

    @property
    def label(self) -> int:
        """The position of the class."""
        return self._share.number

    @property
    def labels(self) -> tuple[int, ...]:
        """The class."""
        return (self.label,)

    @property
    def answer(self) -> int | None:
        """The class, which all accepted samples get."""
        return self.label

    @property
    def mean_loss(self) -> float:
        """The share that may be missed."""
        return self._share.risk

    @property
    def score(self) -> Score | None:
        """The probability of the class."""
        return Score(CLASS_PROBABILITY, of="calibrated")

    def number_classes(self, predictions: Predictions) -> Promise:
        """The promise with the positions of its classes."""
        return self.model_copy(update={"shares": (self._share.bind(predictions),)})

    def check(self, num_classes: int) -> None:
        """Raise unless it is about a class of that many."""
        check_shares(self.shares, num_classes)

    def search(self, data: ThresholdData) -> tuple[Callable[[float], float], int]:
        """The order statistic at any mean loss, and how many samples of the class it needs."""
        score, delta = data.scored.score[self.counted(data.scored)], data.delta
        return lambda loss: recall_threshold(score, round(1 - loss, 12), delta), fewest(self.mean_loss, delta)

    def counted(self, scored: ScoredSamples) -> Bools:
        """The samples of the class."""
        return scored.labels == self.label

    def rank(self, ops: Ops[V], ranked: V, probabilities: V) -> tuple[V, V | None]:
        """The order stays; the score is the probability of the class."""
        return ranked, ops.columns(probabilities, self.label, self.label + 1)

    def losses(self, labels: Ints, answers: Ints, accept: Bools) -> tuple[Bools, Doubles]:
        """Of samples of the class, whether they are missed."""
        return labels == self.label, (~accept).astype(np.float64)

    def metric_interval(self, tally: LossTally, level: float) -> Interval:
        """The share that was answered, with exact limits."""
        return risk_interval(tally.rows - round(tally.loss), tally.rows, (1 - level) / 2, (1 - level) / 2)

    def class_answers(self, fitted: Fitted) -> tuple[ClassAnswers, ...]:
        """What the samples that set the threshold had of the class."""
        accepted, errors = fitted.threshold.accepted, fitted.threshold.errors
        return (ClassAnswers(self.label, self.seen.rows, accepted, accepted - errors),)

    def terms(self, class_names: ClassNames = None, part: ClassThreshold | None = None) -> PromiseTerms:
        """A recall of at least so much."""
        return PromiseTerms("recall", is_least=True, samples=f"samples of {class_name(self.label, class_names)}")

    def words(self, fitted: Fitted) -> str:
        """What holds for the samples of the class, and with what confidence."""
        seen = "" if self.tally is None else f" (seen: {percent(1 - self.tally.mean)} of {count(self.tally.rows)})"
        return f"{sure(fitted)} {self.clause(fitted.class_names)}{seen}."

    def clause(self, class_names: ClassNames) -> str:
        """What holds for the samples of the class."""
        name = class_name(self.label, class_names)
        return f"at least {allowed(self._share.share)} of the samples of {name} are answered as {name}"

    def price(self, answered: Answered, class_names: ClassNames, level: float = 0.95) -> Price:
        """The precision of the answers, and how many there are."""
        label, samples, answers, right = answered.classes[0] if answered.classes else (self.label, 0, 0, 0)
        name, found, result = class_name(label, class_names), samples - round(answered.tally.loss), ""
        precision = measure("precision", label, right, answers, level)
        recall = measure("recall", label, found, samples, level, f"promised: {self._share.least}")
        words = f"{count(right)} of {count(answers)} answers that say {name} are right{named_share(precision, level)}"
        if samples:
            result = f"{count(found)} of {count(samples)} samples of {name} are answered as {name}"
            result = f"{result}{named_share(recall, level)}."
        return Price((precision, coverage_of(answered)), words, result, (recall,))

    def constant(
        self, answered: Answered, evidence: Mapping[str, Any], promised: float | None, class_names: ClassNames
    ) -> str:
        """What always answering the class would be worth, which keeps its recall."""
        also = " and keep the promise, with a recall of 100%"
        texts = [always_a_class(of_class, answered, class_names, also=also) for of_class in answered.classes]
        return with_idle_groups("".join(texts), answered, evidence, class_names)

    def to_entries(self, class_names: ClassNames) -> dict[str, Any] | None:
        """Its entries in a file."""
        entries = super().to_entries(class_names) or {}
        return {**entries, "shares": [self._share.to_entries(class_names)]}


def recall_threshold(score: Doubles, share: float, delta: float) -> float:
    """The highest threshold that ``share`` of a class reaches, with probability 1 - delta; of its samples' scores.

    Infinite where the samples are too few.

    Example:
        >>> 0.1 < recall_threshold(np.arange(1, 94) / 93, 0.95, 0.05) * 93 < 2  # of 93 samples one may be missed
        True
    """
    misses = int(allowed_errors(len(score), round(1 - share, 12), delta)) if len(score) else -1
    if misses < 0:
        return math.inf
    rising = np.sort(score)
    at = rising[misses]
    below = rising[rising < at - TIED * abs(at)]  # what ties with it is accepted too
    gap = at - below[-1] if len(below) else abs(at)
    return float(at - gap * INTO_GAP) if gap else -math.inf
