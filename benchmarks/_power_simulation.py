"""The part of ./dev bench guarantee --power: how much is answered where samples are few, or their scores tied.

Of the populations of `benchmarks.guarantee` with a rising risk, `Policy.fit` as it is called by default, the threshold
of `threshold_for_risk` on all samples, and a plain grid: a hundred thresholds that are fixed beforehand, each tested by
the limit of Clopper and Pearson at the full level, from the strictest that accepts enough samples to pass, until the
first that fails. With `--data DIR` also on real files (`benchmarks._evidence_files` says which): samples are drawn from
a file without repeats, and what is answered and wrong is counted on the whole file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks._evidence_files import LOGIT_FILES, read_logits
from benchmarks._markdown import table
from benchmarks.guarantee import SHAPES, TIES, Doubles, Setting, clairvoyant
from calibrant import Policy, Predictions
from calibrant.base.arrays import Array
from calibrant.base.checks import Bools, Ints
from calibrant.metrics import coverage_at_risk
from calibrant.posthoc import NumpyOps, msp_formula
from calibrant.promises import threshold_for_risk
from calibrant.promises.bounds import binomial_tail, fewest

RISK, CONFIDENCE = 0.05, 0.95
SAMPLES = (200, 300, 500, 1000)
REAL_SAMPLES = (200, 300)
POINTS = 4096  # of a population
GRID = np.linspace(0.99, 0.0, 100)
METHODS = ("policy", "threshold_for_risk", "grid")


class Answers(NamedTuple):
    """The share of a population that is answered, and whether more of it is wrong than was promised."""

    coverage: float
    broken: bool


def grid_threshold(score: Doubles, correct: Bools) -> float:
    """The loosest of the fixed thresholds up to the first that cannot be shown to hold; infinite where none can."""
    accept = score[:, None] >= GRID
    accepted, errors = accept.sum(0), (accept & ~correct[:, None]).sum(0)
    tested = np.flatnonzero(accepted >= fewest(RISK, 1 - CONFIDENCE))
    passed = binomial_tail(errors[tested], accepted[tested], RISK) <= 1 - CONFIDENCE
    number = len(passed) if passed.all() else int(np.argmin(passed))
    return float(GRID[tested[number - 1]]) if number else np.inf


THRESHOLDS: dict[str, Callable[[Doubles, Bools], float]] = {
    "threshold_for_risk": lambda score, correct: threshold_for_risk(score, correct, RISK, confidence=CONFIDENCE).value,
    "grid": grid_threshold,
}


def _answers(accept: Bools, wrong: Doubles) -> Answers:
    return Answers(float(accept.mean()), bool(accept.any()) and float(wrong[accept].mean()) > RISK)


def _probabilities(score: Doubles) -> Doubles:
    """Of two classes; the first is predicted, the more surely the higher the score."""
    confidence = 0.501 + 0.498 * score
    return np.stack([confidence, 1 - confidence], axis=1)


def simulate(setting: Setting, draws: int, seed: int) -> dict[str, Any]:
    """What each method answers over drawn data sets, and how often it breaks the promise."""
    u = (np.arange(POINTS) + 0.5) / POINTS
    population, wrong = TIES[setting.ties](u), SHAPES[setting.shape](u, RISK)
    rng = np.random.default_rng(seed)
    answers: dict[str, list[Answers]] = {name: [] for name in METHODS}
    for _ in range(draws):
        score, correct = setting.draw(rng)
        data = Predictions.from_probabilities(_probabilities(score), np.where(correct, 0, 1))
        decisions = Policy.fit(data, RISK, CONFIDENCE).decide(_probabilities(population))
        of_answer = np.where(decisions.labels == 0, wrong, 1 - wrong)
        answers["policy"].append(_answers(decisions.accept, of_answer))
        for name, find in THRESHOLDS.items():
            answers[name].append(_answers(population >= find(score, correct), wrong))
    best = clairvoyant(setting)
    return {"scores": setting.ties, "samples": setting.samples, "best": best, "methods": _means(answers)}


def measure_file(logits: Array, labels: Ints, samples: int, draws: int, seed: int) -> dict[str, Any]:
    """The same on samples that are drawn from a file of logits, and counted on all of it."""
    score, correct = _confidence(logits), logits.argmax(1) == labels
    answers: dict[str, list[Answers]] = {name: [] for name in METHODS}
    for number in range(draws):
        rows = np.random.default_rng([seed, samples, number]).choice(len(labels), samples, replace=False)
        policy = Policy.fit(Predictions.from_logits(logits[rows], labels[rows]), RISK, CONFIDENCE)
        decisions = policy.decide(logits)
        answers["policy"].append(_answers(decisions.accept, (decisions.labels != labels).astype(np.float64)))
        for name, find in THRESHOLDS.items():
            answers[name].append(_answers(score >= find(score[rows], correct[rows]), (~correct).astype(np.float64)))
    return {"samples": samples, "best": coverage_at_risk(score, correct, RISK), "methods": _means(answers)}


def _confidence(logits: Array) -> Doubles:
    parts = np.array_split(logits, max(1, logits.size // 2**22))
    return np.concatenate([msp_formula(NumpyOps(), part.astype(np.float64))[:, 0] for part in parts])


def _means(answers: dict[str, list[Answers]]) -> dict[str, dict[str, float]]:
    means = {name: np.mean(rows, axis=0).tolist() for name, rows in answers.items()}
    return {name: {"coverage": coverage, "broken": broken} for name, (coverage, broken) in means.items()}


def settings() -> Iterator[Setting]:
    """Every kind of scores with every number of samples."""
    for ties, samples in product(TIES, SAMPLES):
        yield Setting("rising", ties, samples, RISK, CONFIDENCE)


def simulate_row(arguments: tuple[Setting, int, int]) -> dict[str, Any]:
    """`simulate`, for a pool of processes."""
    return simulate(*arguments)


def file_rows(data: Path, draws: int, seed: int) -> Iterator[dict[str, Any]]:
    """`measure_file` of every file that is more than twice as large as what is drawn."""
    for file in LOGIT_FILES:
        logits, labels = read_logits(data, file.file)
        for samples in REAL_SAMPLES:
            if len(labels) >= 2 * samples:
                yield {"file": file.title, **measure_file(logits, labels, samples, draws, seed)}


def tables(rows: list[dict[str, Any]]) -> str:
    """The results as Markdown: of populations as multiples of the clairvoyant's coverage, of files as coverage."""
    simulated = [row for row in rows if "file" not in row]
    head = [f"{name}, broken" for name in METHODS]
    text = table(
        ["scores", "samples", "clairvoyant covers", *head],
        [
            [row["scores"], f"{row['samples']:,}", f"{row['best']:.1%}"]
            + [f"{row['methods'][n]['coverage'] / row['best']:.2f}, {row['methods'][n]['broken']:.1%}" for n in METHODS]
            for row in simulated
        ],
    )
    files = [row for row in rows if "file" in row]
    if files:
        text += "\n" + table(
            ["file", "samples", "oracle covers", *head],
            [
                [row["file"], f"{row['samples']:,}", f"{row['best']:.1%}"]
                + [f"{row['methods'][n]['coverage']:.1%}, {row['methods'][n]['broken']:.1%}" for n in METHODS]
                for row in files
            ],
        )
    return text
