"""Are promises about classes, recall, costs and expected risks kept: data sets drawn from populations that are known.

Scores are uniform before they are tied; a fifth of the samples plans the tests, as in a policy. The loss depends on the
score in the ways of `benchmarks.guarantee`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks._markdown import table
from benchmarks.guarantee import SHAPES, TIES
from calibrant.promises import Precision, Promise, Risk
from calibrant.promises.cost import CostSamples, find_loosest_by_cost
from calibrant.promises.expected_risk import expected_risk_threshold
from calibrant.promises.parts import ScoredSamples, ThresholdData, ThresholdTarget
from calibrant.promises.recall import recall_threshold

Doubles = npt.NDArray[np.float64]
POINTS = 1 << 14  # of the integrals
SHARES = np.array([0.4, 0.3, 0.2, 0.1])  # of the predicted classes
DELTA = 0.1
MORE = {"recall": 20, "expected risk": 20}  # times as many draws, where a draw costs little
#: The loss of each class: all alike, or two that are easy and hand on their part of the chance to fail.
MIXED = {**{name: (name,) * 4 for name in SHAPES}, "two easy": ("easy", "flat", "easy", "flat")}
EASY = {"easy": lambda u, r: np.full_like(u, 0.1 * r)}


@dataclass(frozen=True)
class PromiseSetting:
    """A promise, the population and the number of samples."""

    promise: str
    shape: str
    ties: str
    samples: int
    target: float

    def loss_rate(self, shape: str, u: Doubles) -> Doubles:
        """The mean loss at each score."""
        rate: Doubles = (SHAPES | EASY)[shape](u, self.target)
        return rate

    def mean_loss(self, shape: str, value: float) -> tuple[float, float]:
        """Of what scores ``value`` or more: the share, and the mean loss."""
        u = (np.arange(POINTS) + 0.5) / POINTS
        accept = TIES[self.ties](u) >= value
        share = float(accept.mean())
        return share, float(self.loss_rate(shape, u)[accept].mean()) if share else 0.0


def settings() -> Iterator[PromiseSetting]:
    """What is simulated."""
    for ties in ("continuous", "ten values"):
        for shape in MIXED:
            for promise in ("risk by class", "risk by class and group"):
                yield PromiseSetting(promise, shape, ties, 4000, 0.1)
        for shape in SHAPES:
            yield PromiseSetting("precision", shape, ties, 1500, 0.1)
            yield PromiseSetting("cost", shape, ties, 1500, 0.1)
            yield PromiseSetting("expected risk", shape, ties, 300, 0.1)
        for samples in (40, 300):
            yield PromiseSetting("recall", "any", ties, samples, 0.1)


def _draw_classes(setting: PromiseSetting, rng: np.random.Generator, groups: int) -> tuple[float, bool]:
    """Coverage, and whether any class, in any group, is wrong more often than promised."""
    u = rng.random(setting.samples)
    predicted = rng.choice(len(SHARES), setting.samples, p=SHARES)
    group = rng.integers(0, groups, setting.samples).astype(str)
    rate = np.zeros(setting.samples)
    for label, shape in enumerate(MIXED[setting.shape]):
        rate = np.where(predicted == label, setting.loss_rate(shape, u), rate)
    correct = rng.random(setting.samples) >= rate
    score = TIES[setting.ties](u)
    is_plan = np.arange(setting.samples) < setting.samples // 5

    def part(rows: npt.NDArray[np.bool_]) -> ScoredSamples:
        return ScoredSamples(score[rows], correct[rows], group[rows], predicted=predicted[rows], labels=predicted[rows])

    promise: Promise = Risk(setting.target, by_class=True)
    if setting.promise == "precision":
        promise = Precision(1, 1 - setting.target)
    target, column = ThresholdTarget(setting.target, None, 1 - DELTA), "site" if groups > 1 else None
    data = ThresholdData(part(~is_plan), part(is_plan), target, column, 0.2)
    classes = promise.find(data).class_thresholds or ()
    covered, broken = 0.0, False
    for own in classes:
        share, loss = setting.mean_loss(MIXED[setting.shape][own.label], own.threshold.value)
        covered += share * SHARES[own.label] / groups
        broken |= share > 0 and loss > setting.target
    return covered, broken


def _draw_recall(setting: PromiseSetting, rng: np.random.Generator) -> tuple[float, bool]:
    score = TIES[setting.ties](rng.random(setting.samples))
    value = recall_threshold(score, 1 - setting.target, DELTA)
    reached, _ = setting.mean_loss("easy", value)
    return reached, math.isfinite(value) and reached < 1 - setting.target


def _draw_cost(setting: PromiseSetting, rng: np.random.Generator) -> tuple[float, bool]:
    u = rng.random(setting.samples)
    # Errors cost all or a fifth of the highest, so that the mean is that of the shape.
    wrong = rng.random(setting.samples) < np.minimum(1.0, setting.loss_rate(setting.shape, u) / 0.6)
    cost = wrong * rng.choice([1.0, 0.2], setting.samples)
    score, first = TIES[setting.ties](u), setting.samples // 5
    plan, tested = CostSamples(score[:first], cost[:first]), CostSamples(score[first:], cost[first:])
    share, loss = setting.mean_loss(setting.shape, find_loosest_by_cost(plan, tested, setting.target, 1.0, DELTA))
    return share, share > 0 and loss > setting.target


def _draw_expected(setting: PromiseSetting, rng: np.random.Generator) -> tuple[float, float]:
    """Coverage, and the share of all samples that is answered wrongly."""
    u = rng.random(setting.samples)
    correct = rng.random(setting.samples) >= setting.loss_rate(setting.shape, u)
    share, loss = setting.mean_loss(setting.shape, expected_risk_threshold(TIES[setting.ties](u), correct, 0.05))
    return share, share * loss


DRAWS: dict[str, Callable[[PromiseSetting, np.random.Generator], tuple[float, float]]] = {
    "risk by class": lambda setting, rng: _draw_classes(setting, rng, 1),
    "risk by class and group": lambda setting, rng: _draw_classes(setting, rng, 2),
    "precision": lambda setting, rng: _draw_classes(setting, rng, 1),
    "recall": _draw_recall,
    "cost": _draw_cost,
    "expected risk": _draw_expected,
}


def simulate(setting: PromiseSetting, draws: int, seed: int) -> dict[str, Any]:
    """The share of broken promises and the mean coverage; of an expected risk, its mean."""
    rng = np.random.default_rng(seed)
    draws *= MORE.get(setting.promise, 1)
    rows = np.array([DRAWS[setting.promise](setting, rng) for _ in range(draws)], dtype=np.float64)
    covered, loss = rows.mean(0)
    is_mean = setting.promise == "expected risk"
    allowed = 0.05 if is_mean else DELTA
    error = rows[:, 1].std() / math.sqrt(draws) if is_mean else math.sqrt(allowed * (1 - allowed) / draws)
    return {
        **vars(setting),
        "draws": draws,
        "coverage": covered,
        "allowed": allowed,
        "broken": loss,
        "holds": bool(loss <= allowed + 3 * error),
    }


def page(results: dict[str, Any]) -> str:
    """The results as a page of the documentation."""
    rows = results["rows"]
    body = [
        [
            row["promise"], row["shape"], row["ties"], f"{row['samples']:,}", f"{row['draws']:,}",
            f"{row['allowed']:.0%}", f"{row['broken']:.1%}", f"{row['coverage']:.1%}",
        ]
        for row in rows if row["promise"] != "expected risk"
    ]  # fmt: skip
    expected = [
        [
            row["shape"], row["ties"], f"{row['samples']:,}", f"{row['draws']:,}", "5%", f"{row['broken']:.2%}",
            f"{row['coverage']:.1%}",
        ]
        for row in rows if row["promise"] == "expected risk"
    ]  # fmt: skip
    return PAGE_TEXT.format(
        draws=results["draws"],
        seed=results["seed"],
        settings=len(rows),
        error=math.sqrt(0.09 / results["draws"]),
        broken=sum(not row["holds"] for row in rows),
        table=table(["promise", "loss by score", "scores", "samples", "draws", "allowed", "broken", "coverage"], body),
        expected=table(["loss by score", "scores", "samples", "draws", "allowed", "mean", "coverage"], expected),
    )


PAGE_TEXT = """\
<!-- Written by ./dev bench guarantee --promises --page; edit benchmarks/_promise_simulation.py instead. -->

# Do promises about classes, recall and costs hold?

For each of {settings} settings, {draws:,} data sets or more were drawn (seed {seed}): enough to see a promise that is
broken far too often, and not one that is broken a little too often, as a share of 10% of {draws:,} has a standard error
of {error:.1%}.
`./dev bench guarantee --promises --draws 2000` repeats it with more. What each promise means, and why it holds, is in
the [guide to repairing and abstaining](repair.md#other-promises). The risk of all answers is in
[guarantee.md](guarantee.md), which also says in which ways the loss depends on the score.

A promise may be broken in 10% of the data sets (confidence 90%). In {broken} of the {settings} settings it was broken
more often than that by over three standard errors. The target is a mean loss of 10%. By class there are four predicted
classes, with 40%, 30%, 20% and 10% of the samples, and the promise counts as broken if it is in any of them, or in any
of them in one of two groups. In "two easy" two classes are nearly always right, answer everything, and hand their part
of the chance to fail to the two others, whose risk is just above the target everywhere. Errors cost the highest cost,
or a fifth of it.

{table}
Of a promised recall, the samples are those of the class, and the coverage is the recall.

## Expected risk

The share of all samples that is answered wrongly, as a mean over the data sets; it is to be at most 5%.

{expected}"""
