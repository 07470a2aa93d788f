"""Prediction sets of a policy: what is asked of them, the quantiles that were fitted, and what they promise."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from scipy.special import betaincinv

from calibrant._numbers import count, number, percent, round_percent
from calibrant._validation import LARGEST_SEED, at_least, flag, listing, short, whole
from calibrant._validation import choice as check_choice
from calibrant.metrics import Doubles, Interval
from calibrant.posthoc import Ops
from calibrant.predictions import class_name
from calibrant.selective.bounds import coverage_p_value
from calibrant.selective.sets.conformal import METHODS, RANKED, ROUNDING, conformal_rank, fewest_samples, set_scores
from calibrant.selective.sets.counts import SetCounts

V = TypeVar("V")

LARGEST_PENALTY = 1e3
_TITLES = {"lac": "LAC", "aps": "APS", "raps": "RAPS", "class-conditional": "class-conditional LAC"}


@dataclass(frozen=True)
class SetTarget:
    """The prediction sets that are asked for.

    Attributes:
        level: the share of true classes that sets are to hold.
        method: ``"lac"``, ``"aps"``, ``"raps"`` or ``"class-conditional"``.
        penalty: of RAPS, for each class after the first ``free_ranks``; chosen where it is None.
        free_ranks: of RAPS; chosen where it is None.
        randomised: whether APS and RAPS count a random part of the class itself.
        seed: of those random numbers.
    """

    level: float
    method: str = "lac"
    penalty: float | None = None
    free_ranks: int | None = None
    randomised: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        is_share = isinstance(self.level, numbers.Real) and not isinstance(self.level, bool) and 0 < self.level < 1
        if not is_share:
            raise ValueError(f"sets must be a share between 0 and 1, got {short(self.level)}")
        check_choice("set_method", self.method, METHODS)
        flag("set_randomised", self.randomised)
        whole("seed", self.seed, 0, LARGEST_SEED)
        if self.penalty is not None:
            at_least("set_penalty", self.penalty, 0.0, LARGEST_PENALTY)
        if self.free_ranks is not None:
            whole("set_free_ranks", self.free_ranks, 0)
        for name, value in (("set_penalty", self.penalty), ("set_free_ranks", self.free_ranks)):
            if value is not None and self.method != "raps":
                raise ValueError(f"{name} is for the set_method 'raps', got {self.method!r}")
        if self.randomised and self.method not in RANKED:
            raise ValueError(f"set_randomised is for the set_methods 'aps' and 'raps', got {self.method!r}")

    @property
    def has_choice(self) -> bool:
        """Whether samples are needed that choose the regularisation of RAPS."""
        return self.method == "raps" and (self.penalty is None or self.free_ranks is None)


@dataclass(frozen=True)
class PredictionSets:
    """The fitted sets of a policy: the classes whose score is at most a quantile.

    Attributes:
        level: the share of true classes that sets hold, at least, on average over calibration sets.
        method: of `SetTarget`.
        quantiles: of all classes, or one for each where the method is class-conditional; infinite where samples are
            too few for the level, and the class is in every set.
        samples: how many scores each quantile is of.
        penalty: of RAPS, 0 otherwise.
        free_ranks: of RAPS, 0 otherwise.
        randomised: whether a random part of the class itself counts.
        seed: of the random numbers.
        counts: what the sets are on the samples of the quantile.
    """

    level: float
    method: str
    quantiles: tuple[float, ...]
    samples: tuple[int, ...]
    penalty: float = 0.0
    free_ranks: int = 0
    randomised: bool = False
    seed: int = 0
    counts: SetCounts | None = None

    @property
    def limits(self) -> Doubles:
        """The quantiles, and what rounding may add to a score that meets one."""
        quantiles = np.array(self.quantiles)
        limits: Doubles = quantiles + ROUNDING * np.abs(quantiles)
        return limits

    @property
    def ranks(self) -> tuple[int, ...]:
        """The number of each quantile among the scores in rising order; above their count where they are too few."""
        return tuple(conformal_rank(samples, self.level) for samples in self.samples)

    def members(self, ops: Ops[V], probabilities: V, draw: V | None = None) -> V:
        """Which classes are in the set of each row: a mask ``[n, C]`` of calibrated probabilities ``[n, C]``.

        Args:
            ops: what computes or draws.
            probabilities: calibrated, float64.
            draw: ``[n, 1]`` random numbers, where the sets are randomised.
        """
        return ops.greater_equal(self.distances(ops, probabilities, draw), ops.constant(0.0))

    def distances(self, ops: Ops[V], probabilities: V, draw: V | None = None) -> V:
        """By how much the quantile exceeds the score of each class, ``[n, C]``: members have 0 or more."""
        if self.randomised and draw is None:
            raise ValueError("randomised prediction sets need a random number for each sample: fit them without")
        scores = set_scores(ops, self.method, probabilities, self.penalty, self.free_ranks, draw)
        limits = self.limits
        return ops.sub(ops.constant(limits if len(limits) > 1 else limits[0]), scores)

    @property
    def spread(self) -> Interval | None:
        """The coverage of this fit: its mean over calibration sets, and between what it lies in 95% of them.

        With n scores that do not tie and a quantile of rank k the coverage has the distribution Beta(k, n + 1 - k)
        [Vovk2012]. None where quantiles are several or infinite.
        """
        rank, samples = self.ranks[0], self.samples[0]
        if len(self.quantiles) > 1 or rank > samples:
            return None
        low, high = betaincinv(rank, samples + 1 - rank, [0.025, 0.975])
        return Interval(rank / (samples + 1), float(low), float(high))

    def p_value(self, counts: SetCounts) -> float:
        """How likely it is that so few sets, or fewer, hold the true class, where new samples are like those fitted on.

        With a quantile for each class, the smallest of theirs, times their number.
        """
        if len(self.quantiles) == 1:
            parts = [(int(counts.class_covered.sum()), counts.samples)]
        else:
            parts = list(zip(counts.class_covered.tolist(), counts.class_samples.tolist(), strict=True))
        values = [
            coverage_p_value(covered, total, rank, samples)
            for (covered, total), rank, samples in zip(parts, self.ranks, self.samples, strict=True)
            if total and rank <= samples
        ]
        return min(1.0, min(values, default=1.0) * len(values))

    @property
    def title(self) -> str:
        """The method in words."""
        title = _TITLES[self.method]
        if self.method == "raps":
            title += f" (penalty {self.penalty:g} after rank {self.free_ranks})"
        return f"randomised {title}" if self.randomised else title

    def sentences(self, class_names: tuple[str, ...] | None) -> list[str]:
        """What the sets promise, and what the promise rests on."""
        level, needed = round_percent(self.level), fewest_samples(self.level)
        if math.isinf(min(self.quantiles)):
            few = f"{count(max(self.samples))} samples" + (" or fewer of each class" if len(self.samples) > 1 else "")
            every = "every set holds all classes"
            return [f"Prediction sets at {level}: {few} are too few, so {every}; {count(needed)} would do."]
        conditional = len(self.quantiles) > 1
        whom = "a new sample of any class" if conditional else "a new sample"
        text = [
            f"Prediction sets by {self.title}: {whom} has its true class in the set with probability {level} at least, "
            "on average over calibration sets."
        ]
        if self.spread is not None:
            text.append(
                f"The quantile is score {count(self.ranks[0])} of {count(self.samples[0])} in rising order; of fits on "
                f"as many samples, 95% cover {percent(self.spread.low)} to {percent(self.spread.high)}."
            )
        if self.method == "lac":
            text.append(f"A set holds the classes with a probability of {number(-self.quantiles[0])} or more.")
        rare = [class_name(k, class_names) for k, quantile in enumerate(self.quantiles) if math.isinf(quantile)]
        if rare:
            text.append(
                f"Fewer than {count(needed)} samples of {listing(rare, 5)}: "
                f"{'this class is' if len(rare) == 1 else 'these classes are'} in every set."
            )
        return text
