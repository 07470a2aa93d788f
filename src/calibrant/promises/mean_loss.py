r"""The threshold of a promise about recall, a cost or an expected risk, and what the samples had that it was set on.

**Recall.** With n samples of the class, let c be the most that may be missed: the largest number with
:math:`P(\mathrm{Bin}(n, 1 - \rho) \le c) \le \delta`. The threshold lies at the (c + 1)-th lowest probability of the
class among these samples. The share of the class below the (c + 1)-th of n draws is above :math:`1 - \rho` exactly if c
draws or fewer lie below that quantile, which has this probability: one order statistic, and nothing to search.

**Expected risk.** Conformal risk control [Angelopoulos2022]: the loosest threshold with at most
:math:`\lfloor \alpha (n + 1) \rfloor - 1` answered errors among n samples, so that the next sample is answered wrongly
with probability :math:`\alpha` at most, on average over the n.

**Cost.** With :math:`A \in \{0, 1\}` whether a sample is accepted and :math:`C \in [0, c_{\max}]` what an answer to it
costs, the mean cost of answers is above the target exactly if the mean of
:math:`(\text{target}\, A - C A) / c_{\max}` is below 0. Each threshold is tested by betting on the contrary, sample by
sample [WaudbySmith2024], as for the pixels of images: an exact test for every distribution of costs in that range.
Thresholds are tested in a fixed sequence, which other samples plan.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from calibrant.base.arrays import ArrayLike
from calibrant.base.checks import LARGEST_SEED, Bools, check_integer, check_number
from calibrant.base.numbers import count, number
from calibrant.metrics import Doubles, Interval
from calibrant.promises.bounds import allowed_errors, check_open_share, coverage_interval, fewest, risk_interval
from calibrant.promises.images import MOST_STAKE, can_show_risk, most_promising
from calibrant.promises.parts import ScoredSamples, ThresholdTarget
from calibrant.promises.promise import LossTally, Promise
from calibrant.promises.split import draw_uniform, share_for_choice
from calibrant.promises.thresholds import (
    ABSTAINS,
    INTO_GAP,
    TIED,
    Threshold,
    abstaining_threshold,
    candidates_of,
    curve_of,
    explain_with_menu,
    offers_from,
)

#: Of the stake; a rare answer that costs the most would take nearly all of a whole one.
FRACTIONS = (0.35, 0.7)


def threshold_of_promise(
    scored: ScoredSamples,
    plan: ScoredSamples | None,
    promise: Promise,
    target: ThresholdTarget,
    class_names: Sequence[str] | None = None,
) -> tuple[Threshold, Promise]:
    """The threshold of a promise that has one for all samples, and the promise with what was seen."""
    delta, loss = 1 - target.confidence, promise.mean_loss
    assert loss is not None
    of_class = scored.labels == promise.label if promise.of == "recall" else np.ones(len(scored.score), dtype=bool)
    if promise.of == "recall":
        search_at = functools.partial(_recall_at, scored.score[of_class], delta)
        least = fewest(loss, delta)
    elif promise.of == "cost":
        search_at = functools.partial(_cost_at, *_planned_costs(scored, plan, promise), promise, delta)
        least = _fewest_for_cost(loss, delta)
    else:
        search_at = functools.partial(expected_risk_threshold, scored.score, scored.correct)
        least = math.ceil(1 / loss - 1e-9) - 1
    value = search_at(loss)
    accept = scored.score >= value
    answers = np.full_like(scored.predicted, promise.label) if promise.of == "recall" else scored.predicted
    rows, losses = promise.losses(scored.labels, answers, accept)
    tally = LossTally(int(rows.sum()), float(losses[rows].sum()))
    errors = int((accept & (answers != scored.labels)).sum())
    threshold = _make_threshold(value, promise, target, accept, errors)
    if threshold.abstains:
        terms, samples = promise.terms(class_names), int(of_class.sum())
        unit = terms.samples.replace("samples", "sample", 1) if samples == 1 else terms.samples
        remedy = f"even without an error {count(least)} are needed" if samples < least else terms.too_close
        if promise.abstain_cost is not None and not (scored.score >= -promise.abstain_cost).any():
            remedy = f"no answer is expected to cost as little as abstaining, {promise.abstain_cost:g}"
        reason = f"{ABSTAINS}{count(samples)} {unit} cannot show {terms.goal(loss)}; {remedy}."
        threshold = replace(threshold, reason=reason, needed=least if samples < least else None)
        menu = offers_from(
            lambda other: float((scored.score >= search_at(other)).mean()), above=loss, rises=promise.of != "recall"
        )
        threshold = explain_with_menu(threshold, menu, terms)
    return threshold, replace(promise, tally=tally)


def _recall_at(score: Doubles, delta: float, loss: float) -> float:
    return recall_threshold(score, round(1 - loss, 12), delta)


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


def _planned_costs(
    scored: ScoredSamples, plan: ScoredSamples | None, promise: Promise
) -> tuple[CostSamples, CostSamples]:
    """What answers cost, of the samples that plan the tests and of those that are tested."""
    if plan is None:
        raise ValueError(f"{len(scored.score)} samples are too few: some plan the tests of the cost, others are tested")
    costs = promise.cost_matrix
    planned, tested = (CostSamples(part.score, costs[part.labels, part.predicted]) for part in (plan, scored))
    return planned, tested


def _cost_at(planned: CostSamples, tested: CostSamples, promise: Promise, delta: float, loss: float) -> float:
    lowest = -math.inf if promise.abstain_cost is None else -promise.abstain_cost
    return find_loosest_by_cost(planned, tested, loss * promise.highest, promise.highest, delta, lowest)


def _fewest_for_cost(loss: float, delta: float) -> int:
    """About how many answers are needed if none of them costs anything."""
    gain = math.log1p(FRACTIONS[-1] * MOST_STAKE * loss / (1 - loss))
    return math.ceil(math.log(len(FRACTIONS) / delta) / gain)


def _make_threshold(value: float, promise: Promise, target: ThresholdTarget, accept: Bools, errors: int) -> Threshold:
    """The threshold with counts; limits are at the confidence, and not what the promise is about."""
    samples, accepted, delta = len(accept), int(accept.sum()), 1 - target.confidence
    nothing = replace(
        abstaining_threshold(promise.of, None, target.confidence),
        samples=samples,
        coverage=coverage_interval(accepted, samples, target.confidence),
    )
    if value == math.inf:
        return nothing
    return replace(
        nothing,
        value=value,
        accepted=accepted,
        errors=errors,
        risk=risk_interval(errors, accepted, delta / 2, delta / 2),
        reason=f"Accepts {count(accepted)} of {count(samples)} samples, {count(errors)} of them wrong.",
    )


@dataclass(frozen=True)
class CostThreshold:
    """A threshold and what is known about it.

    Attributes:
        value: accept where score >= value; ``inf`` abstains always, ``-inf`` never.
        target_cost: the mean cost of answers that is promised at most.
        confidence: of the guarantee.
        samples: how many it was tested on.
        accepted: how many of them it accepts.
        coverage: share accepted, with limits at the confidence.
        cost: mean cost of the accepted ones on these samples; NaN where nothing is accepted.
    """

    value: float
    target_cost: float
    confidence: float
    samples: int
    accepted: int
    coverage: Interval
    cost: float

    @property
    def abstains(self) -> bool:
        """Whether nothing is accepted, ever."""
        return self.value == math.inf

    @property
    def reason(self) -> str:
        """What it promises, in a sentence."""
        target = number(self.target_cost)
        if self.abstains:
            return f"Always abstains: {count(self.samples)} samples cannot show a mean cost of at most {target}."
        return (
            f"Accepts {count(self.accepted)} of {count(self.samples)} samples, at a mean cost of {number(self.cost)}; "
            f"with {100 * self.confidence:g}% confidence at most {target} on new samples."
        )


def threshold_for_cost(
    score: ArrayLike, cost: ArrayLike, target_cost: float, *, highest: float, confidence: float = 0.95, seed: int = 0
) -> CostThreshold:
    """The threshold that accepts most while the mean cost of an answer stays at most ``target_cost``.

    P(mean cost > target_cost) <= 1 - confidence over samples drawn independently from what will be answered, whatever
    the distribution of costs between 0 and ``highest`` is.

    Args:
        score: ``[N]``, higher is more confident.
        cost: ``[N]`` what answering each sample costs; with a cost matrix ``costs[labels, predicted]``.
        target_cost: the mean cost allowed among accepted samples, above 0 and below ``highest``.
        highest: the most that an answer can cost, known beforehand: the largest entry of the cost matrix.
        confidence: of the guarantee.
        seed: of the split into samples that plan the tests and samples that are tested.

    Example:
        >>> import numpy as np
        >>> from calibrant.promises import threshold_for_cost
        >>> rng = np.random.default_rng(7)
        >>> score = rng.random(3000)
        >>> labels = rng.integers(0, 2, 3000)
        >>> predicted = np.where(rng.random(3000) < 0.5 + 0.5 * np.sqrt(score), labels, 1 - labels)
        >>> costs = np.array([[0.0, 1.0], [5.0, 0.0]])  # a positive that is missed costs five times as much
        >>> threshold = threshold_for_cost(score, costs[labels, predicted], 0.5, highest=costs.max())
        >>> threshold.cost < 0.5, 0.4 < threshold.coverage.value < 0.9
        (True, True)
    """
    values, costs = (np.asarray(column, dtype=np.float64) for column in (score, cost))
    if values.ndim != 1 or values.shape != costs.shape or not len(values):
        raise ValueError(f"score and cost must be [N] each, got {list(values.shape)} and {list(costs.shape)}")
    highest = check_number("highest", highest, 0.0, math.inf, open_low=True)
    if not np.isfinite(values).all() or not ((costs >= 0) & (costs <= highest)).all():
        raise ValueError(f"score must be finite, and cost from 0 to highest = {highest:g}")
    check_open_share("target_cost / highest", target_cost / highest)
    confidence = check_open_share("confidence", confidence)
    plan = draw_uniform(check_integer("seed", seed, 0, LARGEST_SEED), 0, len(values)) < share_for_choice(len(values))
    if plan.all() or not plan.any():
        raise ValueError(f"{len(values)} samples are too few: some plan the tests, and others are tested")
    tested = ~plan
    planned, others = (CostSamples(values[rows], costs[rows]) for rows in (plan, tested))
    value = find_loosest_by_cost(planned, others, target_cost, highest, 1 - confidence)
    samples, accepted = int(tested.sum()), tested & (values >= value)
    answers = int(accepted.sum())
    return CostThreshold(
        value,
        float(target_cost),
        confidence,
        samples,
        answers,
        coverage_interval(answers, samples, confidence),
        float(costs[accepted].mean()) if answers else math.nan,
    )


class CostSamples(NamedTuple):
    """Samples whose answers cost something, ``[n]`` each."""

    score: Doubles
    cost: Doubles


def find_loosest_by_cost(
    plan: CostSamples, tested: CostSamples, target_cost: float, highest: float, delta: float, lowest: float = -math.inf
) -> float:
    """The loosest threshold whose answers are shown to cost at most ``target_cost`` on average; infinite if none is.

    The samples of the plan say which thresholds to test, from which on, and none below the ``lowest``; ``highest`` is
    the most that an answer can cost.
    """
    thresholds, _ = candidates_of(curve_of(plan.score, np.ones(len(plan.score), dtype=bool)))
    thresholds = np.unique(np.maximum(thresholds, lowest))[::-1]
    target = target_cost / highest
    start = most_promising(*_accept(plan.score, plan.cost / highest, thresholds), target)
    value = math.inf
    for threshold in thresholds[start:]:
        accepted, paid = _accept(tested.score, tested.cost / highest, np.array([threshold]))
        if not can_show_risk(accepted, paid, target, delta, FRACTIONS)[0]:
            break
        value = float(threshold)
    return value


def _accept(score: Doubles, cost: Doubles, thresholds: Doubles) -> tuple[Doubles, Doubles]:
    """Whether each threshold accepts each sample, ``[n, M]``, and what that costs."""
    accepted = (score[:, None] >= thresholds).astype(np.float64)
    return accepted, accepted * cost[:, None]
