r"""Expected risk: of all samples, at most so many are answered wrongly, on average over fits.

The loss of a sample is 1 if it is answered, and wrongly, and the mean is over all samples. By conformal risk control
[Angelopoulos2022] the threshold is the loosest with at most :math:`\lfloor \alpha (n + 1) \rfloor - 1` answered errors
among n samples, so that the next sample is answered wrongly with probability :math:`\alpha` at most, on average over
the n. A single fit may exceed it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from calibrant.base.checks import Bools, Ints
from calibrant.base.entries import OpenShare
from calibrant.base.numbers import allowed, count, percent
from calibrant.metrics import Doubles
from calibrant.promises.base import ClassNames, Fitted, MeanPromise, promise
from calibrant.promises.bounds import coverage_p_value
from calibrant.promises.parts import ThresholdData
from calibrant.promises.price import Answered, LossTally, Price, measure, price_of_errors
from calibrant.promises.thresholds import ClassThreshold, PromiseTerms, curve_of


@promise("expected-risk")
class ExpectedRisk(MeanPromise):
    """At most so many of all samples are answered wrongly, on average over fits.

    Args:
        target: that share.

    Example:
        >>> from calibrant.promises import ExpectedRisk
        >>> ExpectedRisk(0.05).mean_loss
        0.05
    """

    spelling: ClassVar[str] = "expected-risk <= SHARE"
    holds_on_average: ClassVar[bool] = True
    untested: ClassVar[str] = (
        "An expected risk is an average over fits, which one policy may exceed: it is not tested, and the error rate "
        "of answers is estimated."
    )

    target: OpenShare

    def __init__(self, target: float | None = None, **entries: Any) -> None:
        super().__init__(**{} if target is None else {"target": target}, **entries)

    @property
    def mean_loss(self) -> float:
        """The target."""
        return self.target

    def search(self, data: ThresholdData) -> tuple[Callable[[float], float], int]:
        """Conformal risk control at any target, and how many samples this target needs."""
        search_at = functools.partial(expected_risk_threshold, data.scored.score, data.scored.correct)
        return search_at, math.ceil(1 / self.target - 1e-9) - 1

    def losses(self, labels: Ints, answers: Ints, accept: Bools) -> tuple[Bools, Doubles]:
        """Of samples, whether they are answered, and wrongly."""
        return np.ones_like(accept), (answers != labels).astype(np.float64) * accept

    def break_p_value(self, tally: LossTally, target: float) -> float:
        """The chance of so many wrong answers, or more.

        The share that a fit answers wrongly is distributed as Beta(m + 1, n - m), or is smaller [Vovk2012].
        """
        samples = self.seen.rows
        rank = samples + 1 - math.floor(target * (samples + 1) * (1 + 1e-12))
        if not tally.rows or not 0 < rank <= samples:
            return 1.0
        return coverage_p_value(tally.rows - round(tally.loss), tally.rows, rank, samples)

    def is_shown(self, tally: LossTally, target: float, level: float) -> bool:
        """Never: no samples show an average over fits."""
        return False

    def terms(self, class_names: ClassNames = None, part: ClassThreshold | None = None) -> PromiseTerms:
        """An expected risk of at most so much."""
        return PromiseTerms("expected risk", has_confidence=False)

    def clause(self, class_names: ClassNames) -> str:
        """What holds on average."""
        return f"at most {allowed(self.target)} of all samples are answered wrongly"

    def words(self, fitted: Fitted) -> str:
        """What holds on average."""
        seen = "" if self.tally is None else f" (seen: {percent(self.tally.mean)} of {count(self.tally.rows)})"
        return (
            f"On average over validation sets, {self.clause(fitted.class_names)}{seen}: an expected risk, which a "
            "single fit may exceed."
        )

    def subject(self, class_names: ClassNames, risk: float | None) -> str:
        """What is expected, as the subject of a sentence."""
        return f"The expectation that {self.clause(class_names)}"

    def price(self, answered: Answered, class_names: ClassNames, level: float = 0.95) -> Price:
        """Coverage and error rate."""
        tally = answered.tally
        expected = f"expected: at most {allowed(self.target)}"
        wrong = measure("answered wrongly", None, round(tally.loss), tally.rows, level, expected)
        result = f"{percent(tally.mean)} of all samples are answered wrongly." if tally.rows else ""
        return price_of_errors(answered, level, result, (wrong,))

    def constant(
        self, answered: Answered, evidence: Mapping[str, Any], promised: float | None, class_names: ClassNames
    ) -> str:
        """What always answering the majority class would be worth, against the target."""
        return super().constant(answered, evidence, self.target, class_names)


def expected_risk_threshold(score: Doubles, correct: Bools, target: float) -> float:
    """The loosest threshold of conformal risk control for the loss "answered, and wrong"; infinite if none will do.

    Example:
        >>> score, correct = np.arange(19.0, 0, -1), np.ones(19, dtype=bool)
        >>> correct[[9, 14]] = False
        >>> 10 < expected_risk_threshold(score, correct, 0.05) < 11  # no error may be answered
        True
    """
    allowed_wrong = math.floor(target * (len(score) + 1) * (1 + 1e-12)) - 1
    curve = curve_of(score, correct)
    fits = np.flatnonzero((curve.errors <= allowed_wrong) & (curve.accepted > 0))
    return float(curve.threshold[fits[-1]]) if len(fits) else math.inf
