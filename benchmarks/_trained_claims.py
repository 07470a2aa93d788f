"""Claims about trained networks, judged over seeds: holds, does not hold, within noise, or not run.

A claim is one number of each seed, made of the numbers of several methods with that seed, and the side of a bound on
which it should lie. It holds when the 95% t-interval of the mean over seeds lies on that side, does not hold when it
lies on the other one, and is within noise otherwise. It is not run below three seeds. A claim that supposes another, as
"what was lost is regained" supposes a loss, does not apply unless that one holds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from calibrant.experiments import Results
from calibrant.experiments.tables.cells import parse_column
from calibrant.experiments.tables.labels import rows_of_label
from calibrant.experiments.tables.pairs import FEWEST, Paired, pair_values

HOLDS, FAILS, NOISE, NOT_RUN, IDLE = "holds", "does not hold", "within noise", "not run", "does not apply"
VERDICTS = (HOLDS, FAILS, NOISE, IDLE, NOT_RUN)


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
    pair: Paired | None
    supposed: Judgement | None = None

    @property
    def verdict(self) -> str:
        """By the side of the bound on which the interval lies."""
        if self.pair is None or len(self.values) < FEWEST:
            return NOT_RUN
        if self.supposed is not None and self.supposed.verdict != HOLDS:
            return IDLE
        low, high = self.pair.low, self.pair.high
        if low <= 0 <= high:
            return NOISE
        return HOLDS if self.claim.sign * low > 0 else FAILS

    @property
    def numbers(self) -> str:
        """The mean and its interval, in the claim's own terms."""
        if self.pair is None or not self.values:
            return "none"
        mean, low, high = (bound + self.claim.bound for bound in (self.pair.mean, self.pair.low, self.pair.high))
        if self.claim.is_ratio:
            mean, low, high = math.exp(mean), math.exp(low), math.exp(high)
        shown = f"{mean:.2f} x" if self.claim.is_ratio else f"{mean:+.4f}"
        if len(self.values) < FEWEST:
            return f"{shown} so far"
        limits = f"{low:.2f}, {high:.2f}" if self.claim.is_ratio else f"{low:+.4f}, {high:+.4f}"
        return f"{shown} [{limits}]"


def judge(claims: Sequence[Claim], results: Results) -> list[Judgement]:
    """Every claim, by the final runs of the results."""
    finals = results.where(stage="final")
    return [_judgement(claim, finals) for claim in claims]


def _judgement(claim: Claim, finals: Results) -> Judgement:
    values = values_by_seed(claim, finals)
    pair = pair_values(values, dict.fromkeys(values, claim.bound), better="none")
    return Judgement(claim, values, pair, None if claim.supposes is None else _judgement(claim.supposes, finals))
