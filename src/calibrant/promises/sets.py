r"""Prediction sets: their scores and quantiles, what is asked of them, and what they promise.

A set holds the classes whose score is at most a quantile of the scores that the true labels of other samples had (split
conformal prediction, [Vovk2005; Papadopoulos2002]). With probabilities :math:`p` that fall in the order
:math:`\pi_1, \pi_2, \dots` and :math:`r(y)` the position of class :math:`y` in it, the scores,
which are high where a class would be strange as the label, are

=====================  ================================================================================================
``lac``                :math:`-p_y` [Sadinle2019]; the constant of the usual :math:`1 - p_y` is left out, so that small
                       probabilities keep their digits
``aps``                :math:`\sum_{i \le r(y)} p_{\pi_i}` [Romano2020]: the probability down to the class, with its own
``raps``               that of ``aps`` plus :math:`\lambda \max(0, r(y) - k)` [Angelopoulos2021b, Eq. 4]
``class-conditional``  that of ``lac``, with a quantile for each class [Vovk2005, Section 4.5; Sadinle2019]
=====================  ================================================================================================

The letters of the papers: :math:`\lambda` is ``penalty``, :math:`k` is ``free_ranks``, :math:`u` is ``draw``. With a
draw :math:`u`, uniform in 0..1, ``aps`` and ``raps`` count only :math:`u\,p_y` of the class itself. Classes of equal
probability keep the order of their columns. Departure from the papers: a class is a member where its score is at most
the quantile, so that sets can be empty; the class that crosses the quantile is not added.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

import numpy as np
from pydantic import AfterValidator, ConfigDict, Field, ValidatorFunctionWrapHandler, WrapValidator
from scipy.special import betaincinv

from calibrant.base.arrays import Array
from calibrant.base.checks import Bools, Ints, check_choice, check_flag, check_number, check_size, listing, short
from calibrant.base.entries import ENTRIES, MOST_COUNTED, NUMBER, Flag, OpenShare, Seed, SetCount, must_be
from calibrant.base.files import json_value
from calibrant.base.numbers import count, fixed, number, percent, round_percent, span_words
from calibrant.metrics import Doubles, Interval, z_value
from calibrant.posthoc import NumpyOps, Ops
from calibrant.predictions import class_name
from calibrant.promises.bounds import UNKNOWN, coverage_p_value, risk_interval

V = TypeVar("V")

EVERY_SET = "all"  # an infinite quantile, which JSON has no number for
_HIGHEST = 1e10  # quantile: more than any penalty times any rank

LEVEL = 0.95  # of the intervals of counts
METHODS = ("lac", "aps", "raps", "class-conditional")
RANKED = ("aps", "raps")  # methods whose scores need the order of the classes
ROUNDING = 1e-12  # of a quantile: engines that sum in another order meet it all the same
LARGEST_PENALTY = 1e3
Penalty = Annotated[float, *NUMBER, Field(ge=0, le=LARGEST_PENALTY), must_be(f"a number from 0 to {LARGEST_PENALTY:g}")]
PENALTIES = (0.001, 0.01, 0.1, 0.2, 0.5)  # tried for RAPS, as in the code of [Angelopoulos2021b]
FREE_RANKS = (1, 2, 5, 10, 20, 50)  # tried as well


def _every_set(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    return math.inf if value in (EVERY_SET, math.inf) else handler(value)


Quantile = Annotated[float, *NUMBER, Field(ge=-1 - 1e-9, le=_HIGHEST), WrapValidator(_every_set)]
Quantiles = Annotated[tuple[Quantile, ...], Field(min_length=1), must_be('a list of numbers, or "all" for one of them')]
Method = Annotated[str, Field(pattern=f"^({'|'.join(METHODS)})$"), must_be(f"one of {', '.join(METHODS)}")]
_COUNTS = f"a list of whole numbers from 0 to {MOST_COUNTED:,}"
Samples = Annotated[tuple[SetCount, ...], Field(min_length=1), must_be(_COUNTS)]
if TYPE_CHECKING:
    Counters: TypeAlias = Ints
else:
    Counters = Annotated[
        list[SetCount], Field(min_length=1), must_be(_COUNTS), AfterValidator(lambda counts: np.array(counts, np.int64))
    ]
_TITLES = {"lac": "LAC", "aps": "APS", "raps": "RAPS", "class-conditional": "class-conditional LAC"}


def set_scores(
    ops: Ops[V], method: str, probabilities: V, penalty: float = 0.0, free_ranks: int = 0, draw: V | None = None
) -> V:
    """The score of every class, ``[n, C]``, by calibrated probabilities ``[n, C]``; high where it would be strange.

    ``draw`` are uniform random numbers ``[n, 1]``, where ``aps`` and ``raps`` are randomised.
    """
    if method not in RANKED:
        return ops.sub(ops.constant(0.0), probabilities)
    position, scores = ops.falling_totals(probabilities)
    if draw is not None:
        scores = ops.sub(scores, ops.mul(ops.sub(ops.constant(1.0), draw), probabilities))
    if method == "raps":
        beyond = ops.maximum(ops.sub(position, ops.constant(float(free_ranks))), ops.constant(0.0))
        scores = ops.add(scores, ops.mul(ops.constant(penalty), beyond))
    return scores


def conformal_rank(samples: int, level: float) -> int:
    r"""The number :math:`\lceil (n + 1) (1 - \alpha) \rceil` of the score, in rising order, that is the quantile.

    The level is taken as the decimal fraction it is written as: 100 times 0.07 is 7, not a little more.

    Example:
        >>> conformal_rank(19, 0.95), conformal_rank(18, 0.95), conformal_rank(99, 0.07)
        (19, 19, 7)
    """
    return math.ceil((samples + 1) * Fraction(repr(float(level))))


def conformal_quantile(scores: Doubles, level: float) -> float:
    """The finite-sample quantile of scores; infinite where they are too few for the level.

    Example:
        >>> scores = np.arange(19.0)
        >>> conformal_quantile(scores, 0.9), conformal_quantile(scores, 0.95), conformal_quantile(scores, 0.96)
        (17.0, 18.0, inf)
    """
    rank = conformal_rank(len(scores), level)
    return math.inf if rank > len(scores) else float(np.partition(scores, rank - 1)[rank - 1])


def fewest_samples(level: float) -> int:
    """How many samples a finite quantile needs.

    Example:
        >>> fewest_samples(0.95), fewest_samples(0.99)
        (19, 99)
    """
    share = Fraction(repr(float(level)))
    return math.ceil(share / (1 - share))


def choose_penalty(
    probabilities: Doubles,
    labels: Ints,
    level: float,
    penalty: float | None = None,
    free_ranks: int | None = None,
    draw: Doubles | None = None,
) -> tuple[float, int]:
    """Penalty and free ranks of RAPS by the smallest mean size of sets, on samples that set no quantile.

    Among the free ranks is that of [Angelopoulos2021b], within which the true class lies at the level; larger ones are
    not tried. A penalty or free ranks that are given stay as they are; ``draw`` is as for `set_scores`.
    """
    ops, rows = NumpyOps(), np.arange(len(labels))
    position, _ = ops.falling_totals(probabilities)
    plain = set_scores(ops, "aps", probabilities, draw=draw)
    within = min(conformal_quantile(position[rows, labels], level), float(probabilities.shape[1]))
    ranks = {int(within), *(rank for rank in FREE_RANKS if rank < within)} if free_ranks is None else {free_ranks}
    sizes = {}
    for candidate in PENALTIES if penalty is None else (penalty,):
        for rank in sorted(ranks):
            scores = plain + candidate * np.maximum(position - rank, 0.0)
            sizes[candidate, rank] = int((scores <= conformal_quantile(scores[rows, labels], level)).sum())
    return min(sizes, key=lambda pair: sizes[pair])


@dataclass(frozen=True)
class Sets:
    """The prediction sets that are asked for.

    Attributes:
        level: the share of true classes that sets are to hold.
        method: ``"lac"``, ``"aps"``, ``"raps"`` or ``"class-conditional"``.
        penalty: of RAPS, for each class after the first `free_ranks`; chosen on the samples of the choice if left out.
        free_ranks: of RAPS, how many classes have no penalty; chosen likewise.
        randomised: whether APS and RAPS count a random part of the class itself.
    """

    level: float
    method: str = "lac"
    penalty: float | None = None
    free_ranks: int | None = None
    randomised: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.level, numbers.Real) or isinstance(self.level, bool) or not 0 < self.level < 1:
            raise ValueError(f"sets must be a share between 0 and 1, got {short(self.level)}")
        check_choice("set_method", self.method, METHODS)
        check_flag("set_randomised", self.randomised)
        if self.penalty is not None:
            check_number("set_penalty", self.penalty, 0.0, LARGEST_PENALTY)
        if self.free_ranks is not None:
            check_size("set_free_ranks", self.free_ranks, 0)
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
        method: ``"lac"``, ``"aps"``, ``"raps"`` or ``"class-conditional"``.
        quantiles: of all classes, or one for each where the method is class-conditional; infinite where samples are
            too few for the level, and the class is in every set.
        samples: how many scores each quantile is of.
        penalty: of RAPS, 0 otherwise.
        free_ranks: of RAPS, 0 otherwise.
        randomised: whether a random part of the class itself counts.
        seed: of the random numbers.
        counts: what the sets are on the samples of the quantile.
    """

    __pydantic_config__ = ENTRIES

    level: OpenShare
    method: Method
    quantiles: Quantiles
    samples: Samples
    penalty: Penalty = 0.0
    free_ranks: SetCount = 0
    randomised: Flag = False
    seed: Seed = 0
    counts: SetCounts | None = None

    @property
    def limits(self) -> Doubles:
        """The quantiles, and what rounding may add to a score that meets one."""
        return np.array(self.quantiles) + ROUNDING * np.abs(self.quantiles)

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
        return ops.sub(ops.constant(self.limits if len(self.quantiles) > 1 else self.limits[0]), scores)

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

    def to_entries(self, class_names: tuple[str, ...] | None) -> dict[str, Any]:
        """Its entries in a file; ``summary`` and ``seen`` are for readers and follow from the rest."""
        entries: dict[str, Any] = {"level": self.level, "method": self.method}
        entries["quantiles"] = [EVERY_SET if math.isinf(quantile) else quantile for quantile in self.quantiles]
        entries["samples"] = list(self.samples)
        if self.method == "raps":
            entries |= {"penalty": self.penalty, "free_ranks": self.free_ranks}
        if self.randomised:
            entries |= {"randomised": True, "seed": self.seed}
        entries["summary"] = " ".join(self.sentences(class_names))
        if self.counts is not None:
            entries |= {"seen": self.counts.to_dict(class_names), "counts": self.counts.to_entries()}
        return entries

    def check(self, num_classes: int) -> None:
        """Raise unless its parts agree with each other, and with so many classes."""
        expected = num_classes if self.method == "class-conditional" else 1
        for name in ("quantiles", "samples"):
            if len(getattr(self, name)) != expected:
                raise ValueError(f"sets.{name} must have {expected} entries, got {len(getattr(self, name))}")
        for quantile, rank, samples in zip(self.quantiles, self.ranks, self.samples, strict=True):
            if math.isinf(quantile) != (rank > samples):
                requirement = '"all"' if rank > samples else "a number"
                few = f"{samples} samples at the level {self.level}"
                raise ValueError(f"sets.quantiles must be {requirement} for {few}")
            if self.method not in RANKED and not math.isinf(quantile) and quantile > 0:
                raise ValueError(f"sets.quantiles must be from -1 to 0 for {self.method}, got {quantile:g}")
        if self.method != "raps" and (self.penalty or self.free_ranks):
            raise ValueError(f"sets.penalty and sets.free_ranks are for raps, got {self.method}")
        if self.free_ranks > num_classes:
            raise ValueError(f"sets.free_ranks must be at most {num_classes}, got {self.free_ranks}")
        if self.randomised and self.method not in RANKED:
            raise ValueError(f"sets.randomised is for {' and '.join(RANKED)}, got {self.method}")
        if self.counts is not None:
            self.counts.check()

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
        sample = "a new sample of any class" if len(self.quantiles) > 1 else "a new sample"
        text = [
            f"Prediction sets by {self.title}: {sample} has its true class in the set with probability {level} at "
            "least, on average over calibration sets."
        ]
        if self.spread is not None:
            text.append(
                f"The quantile is number {count(self.ranks[0])} of {count(self.samples[0])} scores in rising order. Of "
                f"all fits on so many samples, 95% hold the true class in {percent(self.spread.low)} to "
                f"{percent(self.spread.high)} of new samples."
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


def share_of(part: int, total: int) -> Interval:
    """A share with exact limits at 95%."""
    return risk_interval(part, total, (1 - LEVEL) / 2, (1 - LEVEL) / 2)


@dataclass
class SetCounts:
    """Sets of some samples, added up.

    Attributes:
        num_classes: C.
        sizes: ``[C + 1]`` how many sets have 0, 1, 2, ... members.
        abstained: likewise, of the samples that the policy does not answer.
        labelled: whether the true classes are known.
        class_samples: ``[C]`` samples of each class.
        class_covered: ``[C]`` how many of them have it in their set.
        abstained_covered: how many of the samples without an answer have their class in the set.
    """

    __pydantic_config__ = ConfigDict(extra="forbid", revalidate_instances="never")

    num_classes: int
    sizes: Counters = field(default_factory=lambda: np.zeros(0, np.int64))
    abstained: Counters = field(default_factory=lambda: np.zeros(0, np.int64))
    labelled: Flag = True
    class_samples: Counters = field(default_factory=lambda: np.zeros(0, np.int64))
    class_covered: Counters = field(default_factory=lambda: np.zeros(0, np.int64))
    abstained_covered: SetCount = 0

    def __post_init__(self) -> None:
        classes, sizes = self.num_classes, self.num_classes + 1
        lengths = {"sizes": sizes, "abstained": sizes, "class_samples": classes, "class_covered": classes}
        for name, length in lengths.items():
            given = getattr(self, name)
            if len(given) > length:
                raise ValueError(f"sets.counts.{name} must have {length} entries at most, got {len(given)}")
            counts = np.zeros(length, np.int64)
            counts[: len(given)] = given
            setattr(self, name, counts)

    def add(self, members: Bools, accept: Bools, labels: Array | None, ignore_index: int | None = None) -> None:
        """Count the sets ``[n, C]`` of some samples, of which the policy answers those that ``accept`` marks."""
        self.labelled = labels is not None
        if labels is not None and ignore_index is not None:
            counted = labels != ignore_index
            members, accept, labels = members[counted], accept[counted], labels[counted]
        size = members.sum(1)
        self.sizes += np.bincount(size, minlength=self.num_classes + 1)
        self.abstained += np.bincount(size[~accept], minlength=self.num_classes + 1)
        if labels is not None and len(labels):
            covered = members[np.arange(len(labels)), labels]
            self.class_samples += np.bincount(labels, minlength=self.num_classes)
            self.class_covered += np.bincount(labels[covered], minlength=self.num_classes)
            self.abstained_covered += int((covered & ~accept).sum())

    def absorb(self, other: SetCounts) -> None:
        """Add the counts of other samples."""
        self.labelled &= other.labelled
        self.abstained_covered += other.abstained_covered
        for name in ("sizes", "abstained", "class_samples", "class_covered"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def check(self) -> None:
        """Raise unless the counts can be true together."""
        if int(self.class_samples.sum()) != self.samples:
            raise ValueError(f"sets.counts: class_samples must add up to the {self.samples} of sizes")
        if (self.class_covered > self.class_samples).any():
            raise ValueError("sets.counts: class_covered must be at most class_samples")
        if (self.abstained > self.sizes).any() or self.abstained_covered > int(self.abstained.sum()):
            raise ValueError("sets.counts: what is abstained on must be at most all")

    def to_entries(self) -> dict[str, Any]:
        """Its entries in a file."""
        return {
            "sizes": np.trim_zeros(self.sizes, "b").tolist() or [0],
            "abstained": np.trim_zeros(self.abstained, "b").tolist() or [0],
            "class_samples": self.class_samples.tolist(),
            "class_covered": self.class_covered.tolist(),
            "abstained_covered": self.abstained_covered,
        }

    @property
    def samples(self) -> int:
        """How many sets there are."""
        return int(self.sizes.sum())

    @property
    def coverage(self) -> Interval:
        """The share of sets that hold the true class; NaN where that is not known."""
        return share_of(int(self.class_covered.sum()), self.samples) if self.labelled else UNKNOWN

    @property
    def empty(self) -> Interval:
        """The share of sets without a member."""
        return share_of(int(self.sizes[0]), self.samples)

    @property
    def mean_size(self) -> Interval:
        """How many members a set has on average, with normal limits."""
        return mean_of_sizes(self.sizes)

    def class_coverage(self, number: int) -> Interval:
        """The coverage of a class, by its position."""
        samples = int(self.class_samples[number])
        return share_of(int(self.class_covered[number]), samples) if self.labelled else UNKNOWN

    def compare_with_constant(self, sets: PredictionSets, class_names: Sequence[str] | None) -> str:
        """A warning where one and the same set for every sample would be as good; else empty."""
        if not self.labelled or not self.samples:
            return ""
        frequent = np.argsort(-self.class_samples, kind="stable")
        held = np.cumsum(self.class_samples[frequent]) / self.samples
        enough = int(np.searchsorted(held, sets.level - 1e-12)) + 1
        size = self.num_classes if sets.method == "class-conditional" else enough
        if size > max(1.0, self.mean_size.high):
            return ""
        names = listing([class_name(k, class_names) for k in frequent[:size].tolist()], 5)
        share, mean = percent(held[size - 1]), fixed(self.mean_size.value, 2)
        return (
            f"Warning: one and the same set for every sample, {names}, would hold the true class in {share}. These "
            f"sets, of {mean} classes on average, are no better."
        )

    def to_dict(self, class_names: Sequence[str] | None) -> dict[str, Any]:
        """For JSON: shares with their intervals, in all, by class, and where the policy abstains."""
        silent = int(self.abstained.sum())
        entries = {
            "samples": self.samples,
            "coverage": vars(self.coverage),
            "mean_size": vars(self.mean_size),
            "empty": vars(self.empty),
            "single": vars(share_of(int(self.sizes[1]), self.samples)),
            "where_abstained": {
                "samples": silent,
                "coverage": vars(share_of(self.abstained_covered, silent) if self.labelled else UNKNOWN),
                "mean_size": vars(mean_of_sizes(self.abstained)),
                "one_or_two": vars(share_of(int(self.abstained[1:3].sum()), silent)),
            },
            "classes": [
                {
                    "class": k if class_names is None else class_names[k],
                    "samples": int(self.class_samples[k]),
                    "coverage": vars(self.class_coverage(k)),
                }
                for k in (range(self.num_classes) if self.labelled else ())
            ],
        }
        return json_value(entries)

    def sentences(self, class_names: Sequence[str] | None) -> list[str]:
        """Sizes and coverage in plain sentences."""
        if not self.samples:
            return []
        size, empty = self.mean_size, self.empty
        text = [
            f"A set has {fixed(size.value, 2)} classes on average [{fixed(size.low, 2)}, {fixed(size.high, 2)}]; "
            f"{percent(self.sizes[1] / self.samples)} have one, {percent(empty.value)} none."
        ]
        if self.labelled:
            text.append(f"{_words(self.coverage)} of {count(self.samples)} sets hold the true class.")
            present = np.flatnonzero(self.class_samples).tolist()
            if len(present) > 1:
                worst = min(present, key=lambda k: self.class_coverage(k).high)
                share = f"{_words(self.class_coverage(worst))} of {count(self.class_samples[worst])}"
                text[-1] += f" The lowest share is that of {class_name(worst, class_names)}: {share}."
        silent = int(self.abstained.sum())
        if silent and silent < self.samples:
            few = f"{percent(self.abstained[1:3].sum() / silent)} of the sets name one or two classes"
            covered = f"; {percent(self.abstained_covered / silent)} hold the true class" if self.labelled else ""
            mean = f"{fixed(mean_of_sizes(self.abstained).value, 2)} on average{covered}"
            text.append(f"Where the policy abstains ({count(silent)} samples), {few}, {mean}.")
        return text


def mean_of_sizes(sizes: Ints) -> Interval:
    """The mean of a histogram of sizes, with normal limits."""
    total, values = int(sizes.sum()), np.arange(len(sizes))
    if not total:
        return UNKNOWN
    mean = float(values @ sizes) / total
    error = math.sqrt(float(np.square(values - mean) @ sizes) / max(1, total - 1) / total)
    reach = z_value(LEVEL) * error
    return Interval(mean, max(0.0, mean - reach), mean + reach)


def _words(share: Interval) -> str:
    return f"{percent(share.value)} ({span_words(share.low, share.high, 'share', share.value)})"
