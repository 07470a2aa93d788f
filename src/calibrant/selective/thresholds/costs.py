r"""A threshold for the cost of answers: their mean cost, and not only their number of errors, stays below a target.

With :math:`A \in \{0, 1\}` whether a sample is accepted and :math:`C \in [0, c_{\max}]` what an answer to it costs, the
mean cost of answers is above the target exactly if the mean of :math:`(\text{target}\, A - C A) / c_{\max}` is below 0.
Each threshold is tested by betting on the contrary, sample by sample [WaudbySmith2024], as for the pixels of images: an
exact test for every distribution of costs in that range. Thresholds are tested in a fixed sequence, which a fifth of
the samples plans and the others decide.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from calibrant._arrays import ArrayLike
from calibrant._numbers import count, number
from calibrant._validation import LARGEST_SEED, number_in, whole
from calibrant.metrics import Doubles, Interval
from calibrant.selective.bounds import coverage_interval
from calibrant.selective.split import draws, share_for_choice
from calibrant.selective.thresholds.images import most_promising, shows
from calibrant.selective.thresholds.risk import open_share
from calibrant.selective.thresholds.search import candidates_of, curve_of

#: Of the stake; a rare answer that costs the most would take nearly all of a whole one.
FRACTIONS = (0.35, 0.7)


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
            return f"Abstain always: {count(self.samples)} samples cannot show a mean cost of at most {target}."
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
        >>> from calibrant.selective import threshold_for_cost
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
    highest = number_in("highest", highest, 0.0, math.inf, open_low=True)
    if not np.isfinite(values).all() or not ((costs >= 0) & (costs <= highest)).all():
        raise ValueError(f"score must be finite, and cost from 0 to highest = {highest:g}")
    open_share("target_cost / highest", target_cost / highest)
    confidence = open_share("confidence", confidence)
    is_plan = draws(whole("seed", seed, 0, LARGEST_SEED), 0, len(values)) < share_for_choice(len(values))
    if is_plan.all() or not is_plan.any():
        raise ValueError(f"{len(values)} samples are too few: some plan the tests, and others are tested")
    plan, tested = is_plan, ~is_plan
    value = loosest_by_cost(
        CostSamples(values[plan], costs[plan]), CostSamples(values[tested], costs[tested]), target_cost, highest,
        1 - confidence,
    )  # fmt: skip
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


def loosest_by_cost(
    plan: CostSamples, tested: CostSamples, target_cost: float, highest: float, delta: float, lowest: float = -math.inf
) -> float:
    """The loosest threshold whose answers are shown to cost at most ``target_cost`` on average; infinite if none is.

    Args:
        plan: samples that say which thresholds to test, from which on.
        tested: others, that are tested.
        target_cost: the mean cost allowed.
        highest: the most that an answer can cost.
        delta: the chance to be wrong about it.
        lowest: no threshold below this is tested.
    """
    thresholds, _, _ = candidates_of(curve_of(plan.score, np.ones(len(plan.score), dtype=bool)))
    thresholds = np.unique(np.maximum(thresholds, lowest))[::-1]
    target = target_cost / highest
    first = most_promising(*_accepted(plan.score, plan.cost / highest, thresholds), target)
    value = math.inf
    for threshold in thresholds[first:]:
        accepted, paid = _accepted(tested.score, tested.cost / highest, np.array([threshold]))
        if not shows(accepted, paid, target, delta, FRACTIONS)[0]:
            break
        value = float(threshold)
    return value


def _accepted(score: Doubles, cost: Doubles, thresholds: Doubles) -> tuple[Doubles, Doubles]:
    """Whether each threshold accepts each sample, ``[n, M]``, and what that costs."""
    accepted = (score[:, None] >= thresholds).astype(np.float64)
    return accepted, accepted * cost[:, None]
