"""What a promise is: the mean of which loss, over which samples, is at most how much, how shown, and in words.

Every promise is a class with a file of its own, registered by `promise`. Fits, policies, outcomes, watches, checks,
files and pages ask the interface of `Promise` and nothing else.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
from pydantic import Field, PlainSerializer

from calibrant.base.checks import Bools, Ints
from calibrant.base.entries import Entries, excerpt
from calibrant.base.numbers import count, round_percent
from calibrant.metrics import Doubles, Interval
from calibrant.posthoc import Ops
from calibrant.posthoc.scores import Score
from calibrant.predictions import Predictions, class_name
from calibrant.promises.bounds import binomial_tail, coverage_interval, risk_interval, upper_limit
from calibrant.promises.parts import ScoredSamples, ThresholdData, ThresholdTarget
from calibrant.promises.price import (
    Answered,
    ClassAnswers,
    LossTally,
    Price,
    always_the_majority,
    price_of_errors,
    with_idle_groups,
)
from calibrant.promises.thresholds import (
    ABSTAINS,
    ClassThreshold,
    PromiseTerms,
    Threshold,
    abstaining_threshold,
    explain_with_menu,
    offers_from,
)

#: In a file, an object of rows and loss.
Seen = Annotated[LossTally, PlainSerializer(lambda tally: tally._asdict())]

ClassNames: TypeAlias = Sequence[str] | None
V = TypeVar("V")
P = TypeVar("P", bound="type[Promise]")

NO_RATE = "The policy promises no error rate: it is estimated, and not tested."

#: The promises by the names that files and people call them.
PROMISES: dict[str, type[Promise]] = {}


def promise(name: str) -> Callable[[P], P]:
    """Register a promise by its name."""

    def register(cls: P) -> P:
        cls.of = name
        PROMISES[name] = cls
        return cls

    return register


class Fitted(Protocol):
    """What a promise asks of the policy that makes it."""

    threshold: Threshold
    groups: dict[str, Threshold] | None
    class_thresholds: tuple[ClassThreshold, ...] | None
    group: str | None
    class_names: tuple[str, ...] | None
    confidence: float

    @property
    def abstains(self) -> bool:
        """Whether it never answers."""


class FoundThresholds(NamedTuple):
    """The thresholds that a fit found, of all answers and of groups or classes; and the promise with what was seen."""

    promise: Promise
    threshold: Threshold
    groups: dict[str, Threshold] | None = None
    class_thresholds: tuple[ClassThreshold, ...] | None = None


class PromiseMetric(NamedTuple):
    """The number that a promise is about, as a requirement of `calibrant.check` on a policy."""

    name: str  # after "policy."
    is_error: bool  # whether less is better
    highest: float  # the largest value that it can have


class Promise(Entries):
    """A promise that a policy makes; what every promise can be asked.

    Its fields are its entries in a policy's file. A promise as it is asked for may name classes; `bind` gives it the
    numbers of a data set's classes, and a fit what was seen.
    """

    of: ClassVar[str]
    #: How people write it: a share or another number, that is asked for at least or at most, of a class or not.
    spelling: ClassVar[str]
    #: Whether other samples plan the tests: where that is better ("may"), always ("must"), or there is nothing to plan.
    planned: ClassVar[str] = "may"
    #: Whether it also holds within groups that have thresholds of their own.
    has_groups: ClassVar[bool] = False
    #: The requirement that `calibrant.check` knows of it, besides those of every policy.
    metric: ClassVar[PromiseMetric | None] = None
    #: Whether its mean is over samples that are not answered too, so that a policy can keep or break it in silence.
    counts_silence: ClassVar[bool] = False
    #: Whether all accepted samples get one answer, even where another is likelier.
    gives_one_answer: ClassVar[bool] = False
    #: Whether it holds on average over fits, which a single one may break.
    holds_on_average: ClassVar[bool] = False
    #: Whether a watch tests the mean loss of answers, and not the rate of errors.
    is_watched_by_loss: ClassVar[bool] = False
    #: Why a watch cannot test it.
    untested: ClassVar[str] = NO_RATE

    def __init__(self, *arguments: Any, **entries: Any) -> None:
        """What a promise is asked for by has an order of its own in each; entries have names."""
        if arguments:
            raise TypeError(f"a promise of {self.of} is asked for by entries with their names")
        super().__init__(**entries)

    @classmethod
    def _document(cls) -> str:
        return f"a promise of {cls.of}"

    # What is asked for, and of what.

    @property
    def title(self) -> str:
        """What it is called in errors."""
        return f"a promise of {self.of.replace('-', ' ')}"

    @property
    def methods(self) -> tuple[str, ...]:
        """How its threshold may be found."""
        return ("best",)

    @property
    def is_plain(self) -> bool:
        """Whether it is the risk of all answers, or of every group: what a policy promises unless it says otherwise."""
        return False

    @property
    def by_class(self) -> bool:
        """Whether it holds for the answers of every predicted class at once."""
        return False

    @property
    def has_class_thresholds(self) -> bool:
        """Whether a threshold belongs to answers of one class."""
        return False

    @property
    def target_risk(self) -> float | None:
        """The risk that is promised of all answers, groups or classes alike; None where something else is."""
        return None

    @property
    def risks(self) -> Mapping[int, float] | float | None:
        """The risk that is promised of answers: by class, or of all; None where something else is promised."""
        return self.target_risk

    @property
    def labels(self) -> tuple[int, ...]:
        """The classes that it names."""
        return ()

    @property
    def answer(self) -> int | None:
        """The class that all accepted samples get, even where another is likelier; None where there is none."""
        return None

    @property
    def seen(self) -> LossTally:
        """The losses of the samples that set the threshold, where it is about a mean of losses."""
        return LossTally()

    @property
    def mean_loss(self) -> float | None:
        """The mean loss that is promised at most, where it is one number and the promise is not of a risk."""
        return None

    @property
    def promised_mean(self) -> float:
        """The mean that is promised, in the unit in which it is asked for."""
        return math.nan if self.mean_loss is None else self.mean_loss

    @property
    def scale(self) -> float:
        """What a loss of 1 is, in the unit in which it is asked for."""
        return 1.0

    @property
    def score(self) -> Score | None:
        """What answers are ranked by, where the promise leaves no choice."""
        return None

    @property
    def score_range(self) -> tuple[float, float]:
        """Between what this score lies."""
        return 0.0, 1.0

    @classmethod
    def read(cls, label: str | None, value: float, **more: Any) -> Promise:
        """The promise that a person wrote: the class that it names or None, the number, and what goes with it."""
        if more:
            raise ValueError(f"{next(iter(more))} does not go with a promise of {cls.of}")
        return cls(value) if label is None else cls(label, value)

    def join(self, others: Sequence[Promise]) -> Promise:
        """This promise and others at once, as one."""
        raise ValueError("several promises at once must be for the precision of different classes")

    def bind(self, predictions: Predictions) -> Promise:
        """The promise about the classes of these predictions, checked."""
        if predictions.kind == "segmentation" and not self.is_plain:
            raise ValueError(f"{self.title} is for classification; for segmentation the risk of all pixels is promised")
        bound = self.number_classes(predictions)
        bound.check(int(predictions.num_classes))
        return bound

    def number_classes(self, predictions: Predictions) -> Promise:
        """The promise with the classes that it names by their positions."""
        return self

    def check(self, num_classes: int) -> None:
        """Raise unless it is about that many classes."""

    # How it is kept.

    @abstractmethod
    def find(self, data: ThresholdData) -> FoundThresholds:
        """The thresholds that keep it."""

    def find_on_images(
        self, parts: Iterable[ScoredSamples], plan: ScoredSamples, target: ThresholdTarget
    ) -> FoundThresholds:
        """The threshold for pixels that keeps it, found on images some at a time."""
        raise ValueError(f"{self.title} is for classification; for segmentation the risk of all pixels is promised")

    def rank(self, ops: Ops[V], ranked: V, probabilities: V) -> tuple[V, V | None]:
        """The values whose largest decides the class of an answer, and the score where the promise has its own."""
        return ranked, None

    @abstractmethod
    def losses(self, labels: Ints, answers: Ints, accept: Bools) -> tuple[Bools, Doubles]:
        """Which samples the mean is over, and the loss of every sample, from 0 to 1."""

    def notes(self, labels: Ints) -> dict[str, Any]:
        """What a fit notes for it, by how often each label occurs."""
        return {}

    # Whether it was kept.

    def promised_risk(self, fitted: Fitted) -> float | None:
        """The most that answers are promised to be wrong, which a policy has shown; None where it is none."""
        return None

    def break_p_value(self, tally: LossTally, target: float) -> float:
        """The chance of so large a loss, or a larger one, where the mean loss is the target; 1 without samples.

        Of losses that are 0 or 1, by the binomial distribution.
        """
        return float(binomial_tail(tally.rows - round(tally.loss), tally.rows, 1 - target)) if tally.rows else 1.0

    def is_shown(self, tally: LossTally, target: float, level: float) -> bool:
        """Whether these samples alone show the promise at a level."""
        return bool(tally.rows) and upper_limit(round(tally.loss), tally.rows, level) <= target

    def metric_interval(self, tally: LossTally, level: float) -> Interval:
        """The value of its metric on these samples, with limits at a level."""
        raise NotImplementedError(f"a promise of {self.of} has no metric")

    def class_answers(self, fitted: Fitted) -> tuple[ClassAnswers, ...]:
        """What the samples that set the threshold had of the classes that it names, where that is known."""
        return ()

    # In words.

    @abstractmethod
    def clause(self, class_names: ClassNames) -> str:
        """What holds, as a clause: "an answer costs at most 0.4 on average"."""

    def words(self, fitted: Fitted) -> str:
        """What holds for the answers, or for the samples, and with what confidence."""
        return f"{sure(fitted)} {self.clause(fitted.class_names)}."

    def subject(self, class_names: ClassNames, risk: float | None) -> str:
        """What is promised, as the subject of a sentence; ``risk`` is that of all answers, where there is one."""
        return f"The promise that {self.clause(class_names)}"

    def terms(self, class_names: ClassNames = None, part: ClassThreshold | None = None) -> PromiseTerms:
        """How people ask for it, of all samples or of a part that has a threshold of its own."""
        return PromiseTerms(self.of, is_least=">" in self.spelling)

    def options(self, loss: float, class_names: ClassNames) -> list[str]:
        """The options of ``calibrant fit`` that ask for it with another mean loss."""
        scope = f"={class_name(self.labels[0], class_names)}" if self.labels else ""
        return ["--promise", f"{self.of}{scope}:{1 - loss if '>' in self.spelling else loss:.6g}"]

    def price(self, answered: Answered, class_names: ClassNames, level: float = 0.95) -> Price:
        """What it costs on the samples that were answered, with limits at a level: coverage and error rate."""
        return price_of_errors(answered, level, "")

    def constant(
        self, answered: Answered, evidence: Mapping[str, Any], promised: float | None, class_names: ClassNames
    ) -> str:
        """What one and the same answer to everything would be worth; a warning where the policy is worth no more.

        Args:
            answered: of the samples that set the threshold.
            evidence: that of a policy, with what is noted of all labels.
            promised: what is promised of answers at most, as a risk; None where nothing is.
            class_names: the names of the classes, or None.
        """
        text = always_the_majority(answered, evidence, self.terms().noun, promised, class_names)
        return with_idle_groups(text, answered, evidence, class_names)

    # In a policy's file.

    @classmethod
    def from_entries(cls, entries: Mapping[str, Any], target_risk: Any) -> Promise:
        """The promise of a file: of its own entries, and the file's target risk."""
        if target_risk is not None:
            raise ValueError(f"target_risk must be null with a promise of {cls.of}, got {excerpt(target_risk)}")
        return cls(**entries)

    def to_entries(self, class_names: ClassNames) -> dict[str, Any] | None:
        """Its entries in a file, where it needs any; classes have their names beside them."""
        return {"of": self.of, **self.model_dump(by_alias=True, exclude_defaults=True)}

    def check_fitted(self, fitted: Fitted) -> None:
        """Raise unless what was seen bears it out, as far as counts can tell."""


def read_promise(entries: Any, target_risk: Any) -> Promise:
    """The promise of a policy's file, by its entries, or None, and by the file's target risk."""
    entries = {"of": "risk"} if entries is None else entries
    if not isinstance(entries, dict):
        raise ValueError(f"promise must be an object, got {excerpt(entries)}")
    entries = {name: value for name, value in entries.items() if value is not None and value != []}
    name = entries.pop("of", None)
    if not isinstance(name, str) or name not in PROMISES:
        raise ValueError(f"promise.of must be one of {', '.join(PROMISES)}, got {excerpt(name)}")
    try:
        return PROMISES[name].from_entries(entries, target_risk)
    except ValueError as error:
        prefix = "" if str(error).startswith("target_risk") else "promise."
        raise ValueError(f"{prefix}{error}") from None


class MeanPromise(Promise):
    """A promise of the mean of one loss over all samples of some kind, with one threshold for all.

    Attributes:
        tally: the losses of the samples that set the threshold; known in a policy.
    """

    planned: ClassVar[str] = "never"
    tally: Seen | None = Field(None, alias="seen")

    def __init__(self, *arguments: Any, **entries: Any) -> None:
        super().__init__(*arguments, **entries)

    @property
    def seen(self) -> LossTally:
        """The losses of the samples that set the threshold."""
        return LossTally() if self.tally is None else self.tally

    @abstractmethod
    def search(self, data: ThresholdData) -> tuple[Callable[[float], float], int]:
        """The threshold at any mean loss, infinite where none will do, and how many samples this mean loss needs."""

    def counted(self, scored: ScoredSamples) -> Bools:
        """The samples that the mean is over, if all are answered."""
        return np.ones(len(scored.score), dtype=bool)

    def find(self, data: ThresholdData) -> FoundThresholds:
        """One threshold; where it abstains, why, and which mean losses could be promised."""
        scored, loss = data.scored, self.mean_loss
        assert loss is not None
        search_at, least = self.search(data)
        value = search_at(loss)
        accept = scored.score >= value
        answers = scored.predicted if self.answer is None else np.full_like(scored.predicted, self.answer)
        rows, losses = self.losses(scored.labels, answers, accept)
        seen = self.model_copy(update={"tally": LossTally(int(rows.sum()), float(losses[rows].sum()))})
        errors = int((accept & (answers != scored.labels)).sum())
        threshold = self._threshold(value, data.target, accept, errors)
        if threshold.abstains:
            terms, samples = self.terms(data.class_names), int(self.counted(scored).sum())
            unit = terms.samples.replace("samples", "sample", 1) if samples == 1 else terms.samples
            remedy = f"even without an error {count(least)} are needed" if samples < least else terms.too_close
            remedy = self.silent_reason(scored) or remedy
            reason = f"{ABSTAINS}{count(samples)} {unit} cannot show {terms.goal(loss)}; {remedy}."
            threshold = replace(threshold, reason=reason, needed=least if samples < least else None)

            def coverage_at(other: float) -> float:
                return float((scored.score >= search_at(other)).mean())

            # A stricter recall answers more, all others less.
            menu = offers_from(coverage_at, above=loss, rises=not self.counts_silence)
            threshold = explain_with_menu(threshold, menu, terms)
        return FoundThresholds(seen, threshold)

    def silent_reason(self, scored: ScoredSamples) -> str:
        """Why nothing is answered whatever is tested; empty where there is no such reason."""
        return ""

    def _threshold(self, value: float, target: ThresholdTarget, accept: Bools, errors: int) -> Threshold:
        """The threshold with counts; limits are at the confidence, and not what the promise is about."""
        samples, accepted, delta = len(accept), int(accept.sum()), 1 - target.confidence
        nothing = replace(
            abstaining_threshold(self.of, None, target.confidence),
            samples=samples,
            coverage=coverage_interval(accepted, samples, target.confidence),
        )
        if value == np.inf:
            return nothing
        return replace(
            nothing,
            value=value,
            accepted=accepted,
            errors=errors,
            risk=risk_interval(errors, accepted, delta / 2, delta / 2),
            reason=f"Accepts {count(accepted)} of {count(samples)} samples, {count(errors)} of them wrong.",
        )

    def check_seen(self) -> None:
        """Raise unless the losses that were seen are there and possible."""
        if self.tally is None:
            raise ValueError(f"promise.seen is missing with a promise of {self.of}")
        if self.tally.loss > self.tally.rows * (1 + 1e-9):
            raise ValueError(
                f"promise.seen.loss must be at most its rows, got {self.tally.loss:g} of {self.tally.rows}"
            )

    def check_fitted(self, fitted: Fitted) -> None:
        """Raise unless the losses that were seen bear it out, as far as they can tell."""
        self.check_seen()
        most, mean = self.mean_loss, self.seen.mean
        if not fitted.abstains and fitted.confidence >= 0.5 and most is not None and mean > most + 1e-9:
            raise ValueError(f"promise.seen must have a mean loss of at most {most:.4g}, got {mean:.4g}")


def sure(fitted: Fitted) -> str:
    """With what confidence something holds, as the beginning of a sentence."""
    return f"With {round_percent(fitted.confidence)} confidence"
