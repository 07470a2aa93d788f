"""Claims about trained networks, judged over seeds: holds, does not hold, within noise, or not run.

A claim is one number of each seed, made of the numbers of several methods with that seed, and the side of a bound on
which it should lie. It holds when the 95% t-interval of the mean over seeds lies on that side, does not hold when it
lies on the other one or when no seed shows any difference, and is within noise otherwise. It is not run below three
seeds. A claim that supposes another, as "what was lost is regained" supposes a loss, does not apply unless that one
holds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import stats

from calibrant.experiments import Results
from calibrant.experiments.tables.cells import parse_column
from calibrant.experiments.tables.labels import rows_of_label

HOLDS, FAILS, NOISE, NOT_RUN, IDLE = "holds", "does not hold", "within noise", "not run", "does not apply"
VERDICTS = (HOLDS, FAILS, NOISE, IDLE, NOT_RUN)
FEWEST = 3  # seeds of a verdict
LEVEL = 0.05
#: Of metrics between 0 and 1: what repairs that change nothing differ by, in float32.
NO_DIFFERENCE = 1e-6


class Design(NamedTuple):
    """What the seeds of a study are.

    Attributes:
        looks: How often the results were looked at before more seeds were added; they share the level.
        overlap: Test samples per training sample where both are drawn anew for every seed, so that seeds share samples
            [Nadeau2003]; 0 where they are not.
    """

    looks: int = 1
    overlap: float = 0.0


PLAIN = Design()


class Term(NamedTuple):
    """A weighted number of a method; a label and a column are as in `calibrant.experiments.tables`."""

    label: str
    column: str
    weight: float


@dataclass(frozen=True)
class Claim:
    """A sum of terms that should lie above (sign 1) or below (sign -1) a bound; of their logarithms for a ratio."""

    paper: str
    words: str
    terms: tuple[Term, ...]
    sign: int
    bound: float = 0.0
    is_ratio: bool = False
    supposes: Claim | None = None


def lower(paper: str, words: str, first: str, second: str, column: str) -> Claim:
    """The first method has a lower value than the second."""
    return Claim(paper, words, (Term(first, column, 1.0), Term(second, column, -1.0)), -1)


def higher(paper: str, words: str, first: str, second: str, column: str) -> Claim:
    """The first method has a higher value than the second."""
    return Claim(paper, words, (Term(first, column, 1.0), Term(second, column, -1.0)), 1)


def as_accurate(paper: str, words: str, first: str, second: str, margin: float = 0.005) -> Claim:
    """The first method's accuracy is at most ``margin`` below the second's."""
    return Claim(paper, words, (Term(first, "accuracy", 1.0), Term(second, "accuracy", -1.0)), 1, -margin)


def times_lower(paper: str, words: str, first: str, second: str, column: str, factor: float) -> Claim:
    """The second method's value is more than ``factor`` times the first's."""
    return Claim(paper, words, (Term(second, column, 1.0), Term(first, column, -1.0)), 1, math.log(factor), True)


def normalised(paper: str, words: str, label: str, at: str = "") -> Claim:
    """Logit normalisation lowers the AURC of a method."""
    return Claim(paper, words, (Term(label, f"aurc{at} + logit-norm", 1.0), Term(label, f"aurc{at}", -1.0)), -1)


def regained(paper: str, words: str, smoothed: str, plain: str, at: str = "") -> Claim:
    """Logit normalisation takes back more than half of the AURC by which smoothing is worse than plain training.

    Where smoothing is not worse, the claim does not apply.
    """
    lost = higher("", "", smoothed, plain, f"aurc{at}")
    terms = (
        Term(smoothed, f"aurc{at} + logit-norm", 1.0),
        Term(smoothed, f"aurc{at}", -0.5),
        Term(plain, f"aurc{at}", -0.5),
    )
    return Claim(paper, words, terms, -1, supposes=lost)


def values_by_seed(claim: Claim, results: Results) -> dict[int, float]:
    """The claim's number of every seed that has all of its terms."""
    columns: list[Mapping[int, float]] = []
    for term in claim.terms:
        column = parse_column(term.column)
        try:
            rows, label = rows_of_label(results, term.label)
        except ValueError:  # no run of this method yet
            return {}
        values = rows.by_seed(set=column.set, posthoc=label.posthoc or column.posthoc, metric=column.metric)
        if claim.is_ratio:  # 0 has no logarithm, and a seed that has it no ratio
            values = {seed: math.log(value) for seed, value in values.items() if value > 0}
        columns.append(values)
    seeds = set.intersection(*(set(column) for column in columns))
    return {
        seed: sum(term.weight * column[seed] for term, column in zip(claim.terms, columns, strict=True))
        for seed in sorted(seeds)
    }


@dataclass(frozen=True)
class Judgement:
    """A claim, what was measured of it, and the verdict."""

    claim: Claim
    values: Mapping[int, float]
    design: Design = PLAIN
    supposed: Judgement | None = None

    @property
    def mean(self) -> float:
        """Over seeds, less the claim's bound."""
        return float(np.mean([*self.values.values()])) - self.claim.bound

    @property
    def error(self) -> float:
        """The standard error of the mean; seeds that share samples are less than independent."""
        deviation = float(np.std([*self.values.values()], ddof=1))
        return deviation * math.sqrt(1 / len(self.values) + self.design.overlap)

    @property
    def interval(self) -> tuple[float, float]:
        """Of the mean, less the claim's bound."""
        reach = float(stats.t.ppf(1 - LEVEL / self.design.looks / 2, len(self.values) - 1)) * self.error
        return self.mean - reach, self.mean + reach

    @property
    def p(self) -> float | None:
        """Of a two-sided t-test of the mean against the bound, for all looks; None without a verdict by numbers."""
        if self.verdict in (NOT_RUN, IDLE):
            return None
        if self.error == 0:
            return 0.0 if self.mean else 1.0
        tail = float(stats.t.sf(abs(self.mean) / self.error, len(self.values) - 1))
        return min(1.0, 2 * tail * self.design.looks)

    @property
    def verdict(self) -> str:
        """By the side of the bound on which the interval lies."""
        if len(self.values) < FEWEST:
            return NOT_RUN
        if self.supposed is not None and self.supposed.verdict != HOLDS:
            return IDLE
        if not self.claim.bound and all(abs(value) < NO_DIFFERENCE for value in self.values.values()):
            return FAILS
        low, high = self.interval
        if low <= 0 <= high:
            return NOISE
        return HOLDS if self.claim.sign * low > 0 else FAILS

    @property
    def numbers(self) -> str:
        """The mean and its interval, in the claim's own terms."""
        if not self.values:
            return "none"
        limits = self.interval if len(self.values) >= FEWEST else ()
        mean, *limits = (bound + self.claim.bound for bound in (self.mean, *limits))
        if self.claim.is_ratio:
            mean, *limits = map(math.exp, (mean, *limits))
        form = "{:.2f}" if self.claim.is_ratio else "{:+.4f}"
        shown = form.format(mean) + " x" * self.claim.is_ratio
        return f"{shown} [{', '.join(map(form.format, limits))}]" if limits else f"{shown} so far"


def judge(claims: Sequence[Claim], results: Results, design: Design = PLAIN) -> list[Judgement]:
    """Every claim, by the final runs of the results."""
    finals = results.where(stage="final")
    return [_judgement(claim, finals, design) for claim in claims]


def _judgement(claim: Claim, finals: Results, design: Design) -> Judgement:
    supposed = None if claim.supposes is None else _judgement(claim.supposes, finals, design)
    return Judgement(claim, values_by_seed(claim, finals), design, supposed)


def survives_holm(judgements: Sequence[Judgement]) -> list[bool]:
    """Of each judgement: whether its side of the bound is known at 5% after Holm's correction for all that have a p."""
    judged = sorted((judgement.p, index) for index, judgement in enumerate(judgements) if judgement.p is not None)
    survivors = set()
    for rank, (p, index) in enumerate(judged):
        if p * (len(judged) - rank) > LEVEL:
            break
        survivors.add(index)
    return [index in survivors for index in range(len(judgements))]
