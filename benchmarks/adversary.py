"""A search for the population on which a promise is broken most often.

    ./dev bench guarantee --adversary              random populations, the worst of them improved, then drawn afresh
    ./dev bench guarantee --adversary --rounds 200 --draws 5000

A population has up to eight parts, from the highest scores to the lowest. Each has a share of the samples, an error
rate, and scores that are either all different or all the same (a tie). So it may be flat at the target, cross it again
and again, drop steeply, or consist of duplicates of a few scores; with two groups, each has a population of its own and
the promise is broken if it is broken in either. Populations are drawn at random, around the target more often than not,
and the worst are changed a little, over and over, each time judged on fresh data sets. The worst that remains is the
maximum of many noisy numbers; so its own number is found on data sets that the search has never seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv, expit, logit

from benchmarks._harness import say
from calibrant.promises.split import share_for_choice
from calibrant.promises.thresholds import FixedSequence, curve_of, plan_tests, search

Doubles = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
PARTS = 8
SURVIVORS = 6  # of the random populations, that are improved
FEW = 100  # data sets by which the search judges a population


@dataclass(frozen=True)
class Population:
    """Parts from high scores to low, with what is asked: ``[groups, parts]`` each."""

    share: tuple[tuple[float, ...], ...]
    wrong: tuple[tuple[float, ...], ...]
    tied: tuple[tuple[bool, ...], ...]
    samples: int
    risk: float
    confidence: float

    def draw(self, group: int, samples: int, rng: np.random.Generator) -> tuple[Doubles, Bools]:
        """Scores and correctness; a part has scores between its number and the next, the first part the highest."""
        share, wrong, tied = (np.array(rows[group]) for rows in (self.share, self.wrong, self.tied))
        part = rng.choice(len(share), samples, p=share)
        score = float(len(share)) - part - np.where(tied[part], 0.5, rng.random(samples))
        return score, rng.random(samples) >= wrong[part]

    def risk_at(self, group: int, threshold: float) -> float:
        """The error rate of what scores at least the threshold; 0 where that is nothing."""
        share, wrong, tied = (np.array(rows[group]) for rows in (self.share, self.wrong, self.tied))
        low = len(share) - 1 - np.arange(len(share), dtype=np.float64)
        whole = np.where(low + 0.5 >= threshold, 1.0, 0.0)
        accepted = share * np.where(tied, whole, np.clip(low + 1 - threshold, 0.0, 1.0))
        return float((accepted * wrong).sum() / accepted.sum()) if accepted.sum() > 0 else 0.0


def planned(score: Doubles, correct: Bools, risk: float, delta: float) -> float:
    """The threshold of a policy: the first samples plan the tests."""
    first = round(share_for_choice(len(score)) * len(score))
    tests = plan_tests(score[:first], correct[:first], len(score) - first, risk, delta)
    return loosest(score[first:], correct[first:], risk, delta, tests)


def unplanned(score: Doubles, correct: Bools, risk: float, delta: float) -> float:
    """The threshold that ranks of all samples give."""
    return loosest(score, correct, risk, delta, None)


def loosest(
    score: Doubles,
    correct: Bools,
    risk: float,
    delta: float,
    tests: FixedSequence | None,
    method: str = "fixed-sequence",
) -> float:
    """The loosest threshold that a method shows to hold, without what a `Threshold` says of it, which takes longer."""
    curve = curve_of(score, correct)
    result = search(curve, method, risk, delta, tests)
    return float(curve.threshold[result.at]) if result.value is None else result.value


Finder = Callable[[Doubles, Bools, float, float], float]
FINDERS: dict[str, Finder] = {"planned": planned, "fixed-sequence": unplanned}


def broken(population: Population, finder: Finder, draws: int, seed: Any) -> int:
    """In how many of the draws the promise is broken, in any group."""
    rng = np.random.default_rng(seed)
    groups, number = len(population.share), 0
    delta = (1 - population.confidence) / groups
    for _ in range(draws):
        for group in range(groups):
            data = population.draw(group, population.samples // groups, rng)
            if population.risk_at(group, finder(*data, population.risk, delta)) > population.risk * (1 + 1e-12):
                number += 1
                break
    return number


def random_population(rng: np.random.Generator) -> Population:
    """Any population, with error rates around the target: mostly so that a threshold is nearly right."""
    groups = 2 if rng.random() < 0.2 else 1
    parts = int(rng.integers(1, PARTS + 1))
    risk = float(rng.choice([0.05, 0.1, 0.2]))
    spread = float(rng.choice([0.01, 0.3, 2.0]))
    wrong = expit(logit(risk) + 0.01 + spread * rng.standard_normal((groups, parts)))
    share = rng.dirichlet(np.full(parts, 0.7), groups)
    tied = rng.random((groups, parts)) < rng.choice([0.0, 0.3, 1.0])
    samples = groups * int(rng.choice([100, 200, 400]))
    return Population(_rows(share), _rows(wrong), _rows(tied), samples, risk, float(rng.choice([0.9, 0.95])))


def changed(population: Population, rng: np.random.Generator) -> Population:
    """A population near this one."""
    share = np.array(population.share) * np.exp(0.3 * rng.standard_normal(np.shape(population.share)))
    wrong = np.clip(population.wrong, 1e-6, 1 - 1e-6)
    wrong = expit(logit(wrong) + rng.choice([0.02, 0.3]) * rng.standard_normal(wrong.shape))
    tied = np.array(population.tied) ^ (rng.random(wrong.shape) < 0.1)
    return replace(population, share=_rows(share / share.sum(1, keepdims=True)), wrong=_rows(wrong), tied=_rows(tied))


def _rows(values: npt.NDArray[Any]) -> tuple[tuple[Any, ...], ...]:
    return tuple(tuple(row) for row in values.tolist())


def worst_of(finder: Finder, rounds: int, seed: int) -> tuple[Population, int]:
    """The population that breaks most promises beyond what is allowed, by what the search saw; how many it saw."""
    rng = np.random.default_rng([seed, 1])

    def excess(population: Population) -> float:
        allowed = 1 - population.confidence
        number = broken(population, finder, FEW, int(rng.integers(2**62)))
        return (number / FEW - allowed) / (allowed * (1 - allowed) / FEW) ** 0.5

    judged = [(excess(population), population) for population in (random_population(rng) for _ in range(rounds))]
    judged = sorted(judged, key=lambda pair: -pair[0])[:SURVIVORS]
    for _ in range(rounds):
        at = int(rng.integers(len(judged)))
        value, population = judged[at]
        other = changed(population, rng)
        # The old one is judged again as well: what was luck does not stay.
        judged[at] = max((0.5 * (value + excess(population)), population), (excess(other), other), key=lambda p: p[0])
    return max(judged, key=lambda pair: pair[0])[1], 2 * rounds


def search_worst(rounds: int, draws: int, seed: int) -> dict[str, Any]:
    """For each finder, the worst population, and how often it breaks the promise on fresh data sets."""
    results: dict[str, Any] = {"rounds": rounds, "draws": draws, "seed": seed, "worst": []}
    for name, finder in FINDERS.items():
        population, seen = worst_of(finder, rounds, seed)
        number = broken(population, finder, draws, [seed, 2])
        low = float(betaincinv(number, draws - number + 1, 0.025)) if number else 0.0
        high = float(betaincinv(number + 1, draws - number, 0.975))
        row = {"method": name, "seen": seen, "broken": number / draws, "low": low, "high": high}
        results["worst"].append({**row, **asdict(population)})
        allowed = 1 - population.confidence
        say(f"{name}: {number / draws:.2%} ({low:.2%} to {high:.2%}) of {draws:,}, where {allowed:.0%} is allowed")
    return results


def words(population: dict[str, Any]) -> str:
    """A population in a table's cell: share, error rate and ties of each part."""
    groups = []
    for share, wrong, tied in zip(population["share"], population["wrong"], population["tied"], strict=True):
        parts = zip(share, wrong, tied, strict=True)
        groups.append(", ".join(f"{s:.0%} at {w:.3g}{' (tied)' * t}" for s, w, t in parts))
    return "; other group: ".join(groups)
