r"""Cost: an answer costs at most so much on average, by a matrix of what each answer costs each label.

The loss of an answer is its cost over the highest, and the mean is over answers. The answer is the class of the least
expected cost by calibrated probabilities, and that cost ranks samples.

With :math:`A \in \{0, 1\}` whether a sample is accepted and :math:`C \in [0, c_{\max}]` what an answer to it costs, the
mean cost of answers is above the target exactly if the mean of :math:`(\text{target}\, A - C A) / c_{\max}` is below 0.
Each threshold is tested by betting on the contrary, sample by sample [WaudbySmith2024], as for the pixels of images: an
exact test for every distribution of costs in that range. Thresholds are tested in a fixed sequence, which other samples
plan.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from pydantic import BeforeValidator, Field

from calibrant.base.arrays import ArrayLike
from calibrant.base.checks import LARGEST_SEED, Bools, Ints, check_integer, check_number, short
from calibrant.base.entries import NUMBER, Loss, must_be
from calibrant.base.numbers import count, number
from calibrant.metrics import Doubles, Interval
from calibrant.posthoc import Ops
from calibrant.posthoc.scores import Score, own_score
from calibrant.promises.base import ClassNames, Fitted, MeanPromise, Promise, PromiseMetric, promise, sure
from calibrant.promises.bounds import bounded_mean_interval, check_open_share, coverage_interval, mean_tail
from calibrant.promises.images import MOST_STAKE, can_show_risk, most_promising
from calibrant.promises.parts import ScoredSamples, ThresholdData
from calibrant.promises.price import Answered, LossTally, Price, evidence_name, price_of_errors
from calibrant.promises.split import draw_uniform, share_for_choice
from calibrant.promises.thresholds import ClassThreshold, PromiseTerms, candidates_of, curve_of

V = TypeVar("V")

LARGEST_COST = 1e9
MOST_COSTED = 1000  # classes of a cost matrix
#: Of the stake; a rare answer that costs the most would take nearly all of a whole one.
FRACTIONS = (0.35, 0.7)

EXPECTED_COST = own_score("expected_cost", "expected cost")

AnswerCost = Annotated[float, *NUMBER, Field(ge=0, le=LARGEST_COST), must_be(f"a number from 0 to {LARGEST_COST:g}")]
CostRow = Annotated[
    tuple[AnswerCost, ...], Field(min_length=2, max_length=MOST_COSTED), must_be("a list of numbers from 0 on")
]


def _as_rows(costs: Any) -> Any:
    return costs.tolist() if isinstance(costs, np.ndarray) else costs


@promise("cost")
class Cost(MeanPromise):
    """An answer costs at most so much on average.

    Args:
        target: the mean cost allowed among answers.
        costs: what each answer costs, ``[C, C]`` by label and answer.
        abstain_cost: what abstaining costs: an answer that is expected to cost more is not given.

    Example:
        >>> from calibrant.promises import Cost
        >>> Cost(0.4, [[0, 1], [5, 0]]).scale
        5.0
    """

    spelling: ClassVar[str] = "cost <= NUMBER"
    metric: ClassVar[PromiseMetric | None] = PromiseMetric("cost", is_error=True, highest=math.inf)
    planned: ClassVar[str] = "must"
    is_watched_by_loss: ClassVar[bool] = True

    target: Loss
    costs: Annotated[tuple[CostRow, ...], BeforeValidator(_as_rows)]
    abstain_cost: AnswerCost | None = None

    def __init__(self, target: float | None = None, costs: Any = None, **entries: Any) -> None:
        asked = {"target": target, "costs": costs}
        super().__init__(**{name: value for name, value in asked.items() if value is not None}, **entries)

    @classmethod
    def read(cls, label: str | None, value: float, **more: Any) -> Promise:
        """The cost that a person wrote, with its matrix."""
        if "costs" not in more:
            raise ValueError("a promise of cost needs costs: a matrix of what each answer costs each label")
        return cls(value, **more)

    @property
    def methods(self) -> tuple[str, ...]:
        """How its threshold may be found."""
        return ("best", "fixed-sequence")

    @property
    def cost_matrix(self) -> Doubles:
        """The costs as an array ``[C, C]``."""
        return np.array(self.costs, dtype=np.float64)

    @property
    def promised_mean(self) -> float:
        """The target."""
        return self.target

    @property
    def scale(self) -> float:
        """The most that an answer can cost."""
        return float(self.cost_matrix.max())

    @property
    def mean_loss(self) -> float:
        """The target over the highest cost."""
        return self.target / self.scale

    @property
    def score(self) -> Score | None:
        """The least expected cost."""
        return Score(EXPECTED_COST, of="calibrated")

    @property
    def score_range(self) -> tuple[float, float]:
        """From the highest cost, below 0, to none."""
        return -self.scale, 0.0

    def check(self, num_classes: int) -> None:
        """Raise unless the costs are of that many classes, and the target between none and the highest."""
        check_costs(self.costs, num_classes)
        if not 0 < self.target < self.scale:
            raise ValueError(
                f"promise.target must lie between 0 and the highest cost, above 0 and below {self.scale:g}, "
                f"got {self.target}"
            )

    def search(self, data: ThresholdData) -> tuple[Callable[[float], float], int]:
        """The fixed sequence at any mean loss, and about how many answers it needs if none of them costs anything."""
        scored, plan = data.scored, data.plan
        if plan is None:
            few = f"{len(scored.score)} samples are too few"
            raise ValueError(f"{few}: some plan the tests of the cost, others are tested")
        costs, highest = self.cost_matrix, self.scale
        planned, tested = (CostSamples(part.score, costs[part.labels, part.predicted]) for part in (plan, scored))
        lowest = -math.inf if self.abstain_cost is None else -self.abstain_cost

        def search_at(loss: float) -> float:
            return find_loosest_by_cost(planned, tested, loss * highest, highest, data.delta, lowest)

        gain = math.log1p(FRACTIONS[-1] * MOST_STAKE * self.mean_loss / (1 - self.mean_loss))
        return search_at, math.ceil(math.log(len(FRACTIONS) / data.delta) / gain)

    def silent_reason(self, scored: ScoredSamples) -> str:
        """That abstaining costs less than any answer."""
        if self.abstain_cost is None or (scored.score >= -self.abstain_cost).any():
            return ""
        return f"no answer is expected to cost as little as abstaining, {self.abstain_cost:g}"

    def rank(self, ops: Ops[V], ranked: V, probabilities: V) -> tuple[V, V | None]:
        """What each answer is expected to save, and the most of it."""
        savings = ops.sub(ops.constant(0.0), ops.matmul(probabilities, self.cost_matrix))
        return savings, ops.largest(savings)

    def losses(self, labels: Ints, answers: Ints, accept: Bools) -> tuple[Bools, Doubles]:
        """Of answers, their cost over the highest."""
        return accept, self.cost_matrix[labels, answers] / self.scale

    def notes(self, labels: Ints) -> dict[str, Any]:
        """The class that costs least where it is always answered."""
        return {"cheapest": describe_cheapest(labels, self.cost_matrix)}

    def break_p_value(self, tally: LossTally, target: float) -> float:
        """The chance of so large a loss, or a larger one, where the mean is the target: of losses in between too."""
        return mean_tail(tally.rows - tally.loss, tally.rows, 1 - target) if tally.rows else 1.0

    def is_shown(self, tally: LossTally, target: float, level: float) -> bool:
        """Whether these samples alone show the promise at a level."""
        return bool(tally.rows) and mean_tail(tally.loss, tally.rows, target) <= level

    def metric_interval(self, tally: LossTally, level: float) -> Interval:
        """The mean cost of an answer, with limits for any costs in their range."""
        share = bounded_mean_interval(tally.loss, tally.rows, (1 - level) / 2, (1 - level) / 2)
        return Interval(self.scale * share.value, self.scale * share.low, self.scale * share.high)

    def terms(self, class_names: ClassNames = None, part: ClassThreshold | None = None) -> PromiseTerms:
        """A mean cost of at most so much."""
        return PromiseTerms("mean cost", scale=self.scale, rates="costs")

    def options(self, loss: float, class_names: ClassNames) -> list[str]:
        """The options of ``calibrant fit`` that ask for another mean cost."""
        stay = [] if self.abstain_cost is None else ["--abstain-cost", f"{self.abstain_cost:g}"]
        return ["--costs", "COSTS", "--target-cost", f"{self.scale * loss:.6g}", *stay]

    def clause(self, class_names: ClassNames) -> str:
        """What an answer costs."""
        return f"an answer costs at most {self.target:g} on average"

    def words(self, fitted: Fitted) -> str:
        """What an answer costs, and with what confidence."""
        mean = f" (seen: {number(self.scale * self.seen.mean)} over {count(self.seen.rows)} answers)"
        seen = mean if self.seen.rows else ""
        return f"{sure(fitted)} {self.clause(fitted.class_names)}{seen}."

    def price(self, answered: Answered, class_names: ClassNames, level: float = 0.95) -> Price:
        """Coverage and error rate."""
        tally = answered.tally
        result = f"An answer costs {number(self.scale * tally.mean)} on average." if tally.rows else ""
        return price_of_errors(answered, level, result)

    def constant(
        self, answered: Answered, evidence: Mapping[str, Any], promised: float | None, class_names: ClassNames
    ) -> str:
        """What always giving the answer that costs least would cost."""
        cheapest = evidence.get("cheapest") or {}
        label, cost = cheapest.get("class"), cheapest.get("cost")
        if not isinstance(cost, float) or not isinstance(label, int):
            return ""
        text = f"Always answering {evidence_name(label, class_names)} would cost {number(cost)} on average."
        if not answered.accepted:
            return text
        if self.target >= cost:
            return f"Warning: {text} The promise of at most {self.target:g} is no better: ask for a lower cost."
        if (mean := self.scale * answered.tally.mean) >= cost:
            return f"Warning: {text} The policy's answers cost no less, {number(mean)}."
        return text

    def check_fitted(self, fitted: Fitted) -> None:
        """Raise unless what was seen is possible, and no answer is expected to cost more than abstaining.

        The mean may lie above the target: a bet may have been won before the last samples came.
        """
        self.check_seen()
        lowest = -math.inf if self.abstain_cost is None else -self.abstain_cost - 1e-9
        if not fitted.abstains and fitted.threshold.value < lowest:
            raise ValueError("threshold.accept_from must not lie below the abstain cost")


def check_costs(costs: Any, classes: int) -> Doubles:
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


def describe_cheapest(counts: Ints, costs: Doubles) -> dict[str, Any]:
    """The class that costs least where it is always answered, by its position, and its mean cost.

    Example:
        >>> describe_cheapest(np.array([90, 10]), np.array([[0.0, 1.0], [20.0, 0.0]]))  # 10 * 20 or 90 * 1, of 100
        {'class': 1, 'cost': 0.9}
    """
    means = counts @ costs / max(1, int(counts.sum()))
    return {"class": int(np.argmin(means)), "cost": float(means.min())}


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
