r"""Risk: of the answers, at most so many are wrong; of all, of those of every group, or of every predicted class.

The loss of an answer is 1 if it is wrong, and the mean is over answers. It is shown by exact binomial tests in a fixed
sequence of thresholds, each at the full level: `thresholds` has the argument. Groups and classes share the chance to
fail, so that all promises hold at once: `parts` has that one. For the pixels of images, images are the draws: `images`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, get_args

import numpy as np
from pydantic import Field

from calibrant.base.checks import Bools, Ints, listing
from calibrant.base.entries import Flag, OpenShare
from calibrant.base.numbers import allowed, count, percent
from calibrant.metrics import Doubles
from calibrant.promises.base import ClassNames, Fitted, FoundThresholds, Promise, promise, sure
from calibrant.promises.images import threshold_over_images
from calibrant.promises.parts import (
    ScoredSamples,
    ThresholdData,
    ThresholdTarget,
    threshold_over_samples,
    thresholds_by_class,
)
from calibrant.promises.price import Answered, Price, coverage_of, unanswered
from calibrant.promises.thresholds import FIXED_SEQUENCE, RISK, ClassThreshold, Method, PromiseTerms


@promise("risk")
class Risk(Promise):
    """At most so many of the answers are wrong.

    Args:
        target: the error rate allowed among answers; None where a coverage is asked for instead, and the risk follows.
        by_class: whether every predicted class has a threshold of its own, so that it holds for the answers of each.

    Example:
        >>> import numpy as np
        >>> from calibrant import Policy, Predictions
        >>> from calibrant.promises import Risk
        >>> rng = np.random.default_rng(0)
        >>> logits = 3 * rng.standard_normal((2000, 4))
        >>> labels = (logits + rng.gumbel(size=logits.shape)).argmax(1)
        >>> Policy.fit(Predictions.from_logits(logits, labels), Risk(0.1)).threshold.risk.high <= 0.1
        True
    """

    spelling: ClassVar[str] = "risk <= SHARE"
    has_groups: ClassVar[bool] = True

    target: OpenShare | None = Field(alias="target_risk")
    each_class: Flag = Field(False, alias="by_class")

    def __init__(self, target: float | None = 0.05, *, by_class: bool = False, **entries: Any) -> None:
        super().__init__(target_risk=target, by_class=by_class, **entries)

    @classmethod
    def read(cls, label: str | None, value: float, **more: Any) -> Promise:
        """The risk that a person wrote, of all answers or those of every class."""
        by_class = more.pop("by_class", False)
        return super().read(label, value, **more) if more else cls(value, by_class=by_class)

    @property
    def title(self) -> str:
        """What it is called in errors."""
        return "thresholds by class" if self.each_class else "a promise of risk"

    @property
    def methods(self) -> tuple[str, ...]:
        """How its threshold may be found."""
        return FIXED_SEQUENCE if self.each_class else get_args(Method)

    @property
    def is_plain(self) -> bool:
        """Whether it is that of all answers, or of every group."""
        return not self.each_class

    @property
    def by_class(self) -> bool:
        """Whether it holds for the answers of every predicted class at once."""
        return self.each_class

    @property
    def has_class_thresholds(self) -> bool:
        """Whether a threshold belongs to answers of one class."""
        return self.each_class

    @property
    def target_risk(self) -> float | None:
        """The risk that is promised."""
        return self.target

    def find(self, data: ThresholdData) -> FoundThresholds:
        """One threshold for all, one for each group, or one for each predicted class (and group)."""
        if self.is_plain:
            threshold, groups = threshold_over_samples(data)
            return FoundThresholds(self, threshold, groups)
        assert self.target is not None
        terms_of = functools.partial(self.terms, data.class_names)
        threshold, classes = thresholds_by_class(data, self.target, terms_of)
        return FoundThresholds(self, threshold, class_thresholds=classes)

    def find_on_images(
        self, parts: Iterable[ScoredSamples], plan: ScoredSamples, target: ThresholdTarget
    ) -> FoundThresholds:
        """The threshold for pixels."""
        return FoundThresholds(self, threshold_over_images(parts, plan, target))

    def losses(self, labels: Ints, answers: Ints, accept: Bools) -> tuple[Bools, Doubles]:
        """Of answers, whether they are wrong."""
        return accept, (answers != labels).astype(np.float64)

    def promised_risk(self, fitted: Fitted) -> float | None:
        """The target, or the limit that came with a coverage."""
        return fitted.threshold.risk.high if self.target is None else self.target

    def terms(self, class_names: ClassNames = None, part: ClassThreshold | None = None) -> PromiseTerms:
        """A risk of at most so much."""
        return RISK if part is None else PromiseTerms(samples=part.samples(class_names))

    def options(self, loss: float, class_names: ClassNames) -> list[str]:
        """The options of ``calibrant fit`` that ask for another risk."""
        return [*(["--by-class"] if self.each_class else []), "--target-risk", f"{loss:.6g}"]

    def clause(self, class_names: ClassNames) -> str:
        """What holds for the answers."""
        every = " of every predicted class" if self.each_class else ""
        return f"at most {allowed(self.target or 0)} of the answers{every} are wrong"

    def words(self, fitted: Fitted) -> str:
        """What holds for the answers, and with what confidence."""
        threshold = fitted.threshold
        wrong = f"{percent(threshold.risk.value)} of {count(threshold.accepted)}"
        if self.each_class:
            every = "of every predicted class" + ("" if fitted.group is None else f" in every {fitted.group}")
            text = f"at most {allowed(self.target)} of the answers {every} are wrong, at once"
            return f"{sure(fitted)} {text} (seen: {wrong} answers wrong).{never_answered(fitted)}"
        limit = self.promised_risk(fitted)
        assert limit is not None
        if math.isnan(limit):
            return f"No risk was asked for and none is promised (seen: {wrong} answers wrong)."
        if self.target is not None and threshold.confidence is None:
            met = f"{allowed(limit)} was met on these samples (seen: {wrong})"
            return f"The threshold is empirical: {met} and nothing is promised."
        text = f"{sure(fitted)} at most {allowed(limit)} of the answers are wrong"
        if fitted.groups is None or self.target is None:
            return f"{text} (seen: {wrong})."
        silent = [name for name, part in fitted.groups.items() if part.abstains]
        never = f" It never answers for {listing(silent, 5)}." if silent else ""
        return f"{text} in every {fitted.group} (seen: {wrong} in all).{never}"

    def subject(self, class_names: ClassNames, risk: float | None) -> str:
        """What is promised, as the subject of a sentence."""
        scope = " of every class" if self.each_class else ""
        return f"The promise of at most {allowed(risk or 0)} wrong answers{scope}"

    def price(self, answered: Answered, class_names: ClassNames, level: float = 0.95) -> Price:
        """The coverage."""
        return Price((coverage_of(answered),), unanswered(answered, level), "")

    @classmethod
    def from_entries(cls, entries: Mapping[str, Any], target_risk: Any) -> Promise:
        """The risk of a file, which is an entry of the policy."""
        promise = cls(target_risk, **entries)
        if promise.each_class and promise.target is None:
            raise ValueError("target_risk must be a number where classes have thresholds of their own")
        return promise

    def to_entries(self, class_names: ClassNames) -> dict[str, Any] | None:
        """None for that of all answers or of every group, as it is what a policy promises."""
        return {"of": self.of, "by_class": True} if self.each_class else None


def never_answered(fitted: Fitted) -> str:
    """The classes, in groups if there are groups, that are never answered, as a sentence."""
    silent = [part.name(fitted.class_names) for part in fitted.class_thresholds or () if part.threshold.abstains]
    return f" It never answers {listing(silent, 5)}." if silent else ""
