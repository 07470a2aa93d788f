r"""What a policy promises: the mean of which loss, over which samples, is at most how much, how shown, and in words.

===================  =====================================  ========================  =================================
promise              loss, in [0, 1]                        mean over                 shown by
===================  =====================================  ========================  =================================
``"risk"``           the answer is wrong                    answers: all, or those    exact binomial tests in a fixed
                                                            of a group or a class     sequence, of each part at once
``"precision"``      the answer is wrong                    answers of a class        the same
``"recall"``         the sample is not answered as its      samples of the class      an exact binomial limit of the
                     class                                                            class's own samples
``"cost"``           the answer's cost over the highest     answers                   bets, in a fixed sequence
``"expected-risk"``  the sample is answered, and wrongly    samples                   conformal risk control: on
                                                                                      average over fits
===================  =====================================  ========================  =================================

All but the last hold with the policy's confidence. `docs/repair.md` has the arguments.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np

from calibrant.base.checks import Bools, Ints, did_you_mean, listing, short, shorten
from calibrant.base.numbers import allowed, count, number, percent, round_percent
from calibrant.metrics import Doubles
from calibrant.posthoc import Ops
from calibrant.posthoc.scores import CLASS_PROBABILITY, EXPECTED_COST, Score
from calibrant.predictions import class_name
from calibrant.promises.bounds import binomial_tail, check_open_share, coverage_p_value, mean_tail, upper_limit
from calibrant.promises.thresholds import ClassThreshold, PromiseTerms, Threshold

V = TypeVar("V")

KINDS = ("risk", "precision", "recall", "cost", "expected-risk")
SPELLINGS = "precision=CLASS:SHARE, recall=CLASS:SHARE or expected-risk:SHARE"
LARGEST_COST = 1e9
MOST_COSTED = 1000  # classes of a cost matrix


class LossTally(NamedTuple):
    """How many samples a mean is over, and the sum of their losses."""

    rows: int = 0
    loss: float = 0.0

    @property
    def mean(self) -> float:
        """The mean loss; NaN without samples."""
        return self.loss / self.rows if self.rows else float("nan")


@dataclass(frozen=True)
class Promise:
    """What is promised; see the table of the module.

    Attributes:
        of: a key of that table.
        by_class: of a risk, whether each predicted class has a threshold of its own.
        shares: of precision and recall, each class with the share that is promised at least.
        target: of a cost or an expected risk, the mean that is promised at most.
        costs: of a cost, ``costs[label][answer]``.
        abstain_cost: of a cost, what no answer costs; no answer is given that is expected to cost more.
        tally: of recall, cost and expected risk, the losses of the samples that set the threshold.
        class_samples: of precision, how many of the samples that set the threshold are of each of its classes.
    """

    of: str = "risk"
    by_class: bool = False
    shares: tuple[tuple[int, float], ...] = ()
    target: float | None = None
    costs: tuple[tuple[float, ...], ...] | None = None
    abstain_cost: float | None = None
    tally: LossTally | None = None
    class_samples: tuple[int, ...] = ()

    @property
    def is_plain(self) -> bool:
        """Whether it is the risk of all answers, or of every group."""
        return self.of == "risk" and not self.by_class

    @property
    def has_class_thresholds(self) -> bool:
        """Whether a threshold belongs to answers of one class."""
        return self.by_class or self.of == "precision"

    @property
    def label(self) -> int:
        """The class of recall."""
        return self.shares[0][0]

    @property
    def answer(self) -> int | None:
        """The class that all accepted samples get, even where another is likelier; None where there is none."""
        return self.label if self.of == "recall" else None

    @property
    def cost_matrix(self) -> Doubles:
        """The costs as an array ``[C, C]``."""
        return np.array(self.costs, dtype=np.float64)

    @property
    def highest(self) -> float:
        """The most that an answer can cost."""
        return float(self.cost_matrix.max())

    @property
    def mean_loss(self) -> float | None:
        """The mean loss that is promised at most, where it is one number and the promise is not of a risk."""
        if self.of == "recall":
            return round(1 - self.shares[0][1], 12)
        if self.of == "cost" and self.target is not None:
            return self.target / self.highest
        return self.target if self.of == "expected-risk" else None

    @property
    def score(self) -> Score | None:
        """What answers are ranked by, where the promise leaves no choice."""
        names = {"recall": CLASS_PROBABILITY, "cost": EXPECTED_COST}
        return Score(names[self.of], of="calibrated") if self.of in names else None

    def risk_of(self, label: int) -> float | None:
        """Of precision, the risk that is promised for answers of a class."""
        return next((round(1 - share, 12) for promised, share in self.shares if promised == label), None)

    def terms(self, class_names: Sequence[str] | None = None, part: ClassThreshold | None = None) -> PromiseTerms:
        """How people ask for it, of all samples or of a part that has a threshold of its own."""
        samples = "samples"
        if part is not None:
            group = "" if part.group is None else f" in {part.group}"
            samples = f"samples{group} predicted to be {class_name(part.label, class_names)}"
        if self.of == "precision":
            return PromiseTerms("precision", is_least=True, samples=samples)
        if self.of == "recall":
            return PromiseTerms("recall", is_least=True, samples=f"samples of {class_name(self.label, class_names)}")
        if self.of == "cost":
            return PromiseTerms("mean cost", scale=self.highest, rates="costs")
        if self.of == "expected-risk":
            return PromiseTerms("expected risk", has_confidence=False)
        return PromiseTerms(samples=samples)

    def options(self, loss: float, class_names: Sequence[str] | None) -> list[str]:
        """The options of ``calibrant fit`` that ask for it with another mean loss."""
        terms = self.terms(class_names)
        asked = f"{terms.scale * loss if terms.scale else 1 - loss if terms.is_least else loss:.6g}"
        if self.of == "risk":
            return [*(["--by-class"] if self.by_class else []), "--target-risk", asked]
        if self.of == "cost":
            stay = [] if self.abstain_cost is None else ["--abstain-cost", f"{self.abstain_cost:g}"]
            return ["--costs", "COSTS", "--target-cost", asked, *stay]
        scope = "" if self.of == "expected-risk" else f"={class_name(self.label, class_names)}"
        return ["--promise", f"{self.of}{scope}:{asked}"]

    def losses(self, labels: Ints, answers: Ints, accept: Bools) -> tuple[Bools, Doubles]:
        """Which samples the mean is over, and the loss of every sample."""
        if self.of == "recall":
            return labels == self.label, (~accept).astype(np.float64)
        if self.of == "cost":
            return accept, self.cost_matrix[labels, answers] / self.highest
        errors = (answers != labels).astype(np.float64)
        return (np.ones_like(accept), errors * accept) if self.of == "expected-risk" else (accept, errors)

    def rank(self, ops: Ops[V], ranked: V, probabilities: V) -> tuple[V, V | None]:
        """The values whose largest decides the class of an answer, and the score where the promise has its own."""
        if self.of == "recall":
            return ranked, ops.columns(probabilities, self.label, self.label + 1)
        if self.of == "cost":
            savings = ops.sub(ops.constant(0.0), ops.matmul(probabilities, self.cost_matrix))
            return savings, ops.largest(savings)
        return ranked, None

    def break_p_value(self, tally: LossTally, target: float) -> float:
        """The chance of so large a loss, or a larger one, where the mean loss is the target; 1 without samples.

        Example:
            >>> Promise().break_p_value(LossTally(2, 2.0), 0.1)  # 0.1 ** 2
            0.01
        """
        if not tally.rows:
            return 1.0
        if self.of == "cost":
            return mean_tail(tally.rows - tally.loss, tally.rows, 1 - target)
        without_loss = tally.rows - round(tally.loss)
        if self.of == "expected-risk":
            # The share that a fit answers wrongly is distributed as Beta(m + 1, n - m), or is smaller [Vovk2012].
            samples = 0 if self.tally is None else self.tally.rows
            rank = samples + 1 - math.floor(target * (samples + 1) * (1 + 1e-12))
            return coverage_p_value(without_loss, tally.rows, rank, samples) if 0 < rank <= samples else 1.0
        return float(binomial_tail(without_loss, tally.rows, 1 - target))

    def is_shown(self, tally: LossTally, target: float, level: float) -> bool:
        """Whether these samples alone show the promise at a level; an average over fits is shown by none."""
        if self.of == "expected-risk" or not tally.rows:
            return False
        if self.of == "cost":
            return mean_tail(tally.loss, tally.rows, target) <= level
        return upper_limit(round(tally.loss), tally.rows, level) <= target

    def words(
        self,
        parts: Sequence[ClassThreshold],
        threshold: Threshold,
        class_names: Sequence[str] | None,
        group: str | None,
        target_risk: float | None,
        confidence: float,
    ) -> str:
        """What holds for the answers, or for the samples, and with what confidence."""
        sure = f"With {round_percent(confidence)} confidence"
        if self.has_class_thresholds:
            rate, state = threshold.risk.value, "wrong"
            if self.of == "precision":
                rate, state = 1 - rate, "right"
            observed = f"seen: {percent(rate)} of {count(threshold.accepted)} answers {state}"
            scope = "" if group is None else f" in every {group}"
            if self.by_class:
                every = "of every predicted class" + scope
                text = f"{sure} at most {allowed(target_risk)} of the answers {every} are wrong, at once ({observed})."
            else:
                shares = self._share_words("of the answers that say", class_names)
                text = f"{sure} at least {shares} are right{scope} ({observed}); no other class is answered."
            silent = [part.name(class_names) for part in parts if part.threshold.abstains]
            return text + (f" It never answers {listing(silent, 5)}." if silent else "")
        tally = self.tally
        if self.of == "recall":
            name, share = class_name(self.label, class_names), self.shares[0][1]
            observed = "" if tally is None else f" (seen: {percent(1 - tally.mean)} of {count(tally.rows)})"
            return f"{sure} at least {allowed(share)} of the samples of {name} are answered as {name}{observed}."
        if self.of == "cost":
            seen = LossTally() if tally is None else tally
            observed = (
                f" (seen: {number(self.highest * seen.mean)} over {count(seen.rows)} answers)" if seen.rows else ""
            )
            return f"{sure} an answer costs at most {self.target:g} on average{observed}."
        observed = "" if tally is None else f" (seen: {percent(tally.mean)} of {count(tally.rows)})"
        return (
            f"On average over validation sets, at most {allowed(self.target)} of all samples are answered wrongly"
            f"{observed}: an expected risk, which a single fit may exceed."
        )

    def title(self, class_names: Sequence[str] | None, risk: float | None) -> str:
        """What is promised, as the subject of a sentence."""
        if self.of == "recall":
            name, least = class_name(self.label, class_names), allowed(self.shares[0][1])
            return f"The promise that at least {least} of the samples of {name} are answered as {name}"
        if self.of == "cost":
            return f"The promise that an answer costs at most {self.target:g} on average"
        if self.of == "expected-risk":
            return f"The expectation that at most {allowed(self.target)} of all samples are answered wrongly"
        if self.of == "precision":
            return f"The promise that at least {self._share_words('of the answers that say', class_names)} are right"
        scope = " of every class" if self.by_class else ""
        return f"The promise of at most {allowed(risk or 0)} wrong answers{scope}"

    def _share_words(self, scope: str, class_names: Sequence[str] | None) -> str:
        shares = (f"{allowed(share)} {scope} {class_name(label, class_names)}" for label, share in self.shares)
        return " and ".join(shares)


def check_costs(costs: Any, classes: int) -> Any:
    """A cost matrix ``[C, C]`` of numbers that are at least 0, some of them above."""
    try:
        matrix = np.asarray(costs, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):  # the last of a whole number beyond every float
        raise ValueError(f"costs must be numbers [{classes}, {classes}], got {short(costs)}") from None
    if classes > MOST_COSTED:
        raise ValueError(f"costs are for at most {MOST_COSTED:,} classes, got {classes:,}")
    if matrix.shape != (classes, classes):
        raise ValueError(f"costs must be [{classes}, {classes}], by label and answer, got {list(matrix.shape)}")
    if not ((matrix >= 0) & (matrix <= LARGEST_COST)).all() or not matrix.max() > 0:
        raise ValueError(f"costs must lie between 0 and {LARGEST_COST:g}, some above 0")
    return matrix


def parse_promises(texts: str | Sequence[str], class_names: Sequence[str] | None, num_classes: int) -> Promise:
    """A promise as people write it: several of precision, or one of another kind.

    Example:
        >>> parse_promises("precision=dog:0.95", ("cat", "dog"), 2).shares
        ((1, 0.95),)
        >>> parse_promises("expected-risk:0.05", None, 10).target
        0.05
    """
    entries = list(texts) if isinstance(texts, list | tuple) else [texts]
    promises = [_parse(text, class_names, num_classes) for text in entries]
    if not promises:
        raise ValueError(f"promise must be {SPELLINGS}, got nothing")
    if len(promises) == 1:
        return promises[0]
    if any(promise.of != "precision" for promise in promises):
        raise ValueError("several promises at once must be for the precision of different classes")
    shares = tuple(share for promise in promises for share in promise.shares)
    if len(dict(shares)) < len(shares):
        raise ValueError("the precision of a class is promised twice")
    return Promise("precision", shares=shares)


def _parse(text: Any, class_names: Sequence[str] | None, num_classes: int) -> Promise:
    head, colon, digits = text.rpartition(":") if isinstance(text, str) else ("", "", "")
    kind, equals, name = head.partition("=")
    kind = kind.strip()
    if not colon or kind not in ("precision", "recall", "expected-risk") or bool(equals) != (kind != "expected-risk"):
        raise ValueError(f"promise must be {SPELLINGS}, got {short(text)}")
    try:
        share = float(digits.strip().removesuffix("%")) / (100 if digits.strip().endswith("%") else 1)
    except ValueError:
        raise ValueError(f"promise {short(text)} must end in a share between 0 and 1, got {digits[:40]!r}") from None
    share = check_open_share(f"the share of {short(text)}", share)
    if kind == "expected-risk":
        return Promise(kind, target=share)
    name, names = name.strip(), list(class_names or map(str, range(num_classes)))
    if name not in names:
        hint = did_you_mean(name, names) or f"; there are {listing(names)}"
        raise ValueError(f"no class {shorten(name)!r}{hint}")
    return Promise(kind, shares=((names.index(name), share),))
