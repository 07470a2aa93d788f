"""Prediction sets fitted, given and counted: scores of true classes on samples that the calibrator did not see.

The calibrator, and the regularisation of RAPS, come from the samples of the choice; the quantile from the others. Given
the former, the latter and new samples are exchangeable, which is all that the coverage rests on. What a policy keeps of
it, `PredictionSets`, is in `calibrant.selective.sets`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from calibrant.base.arrays import Array, as_kind_of, cache_chunks, row_slices
from calibrant.base.checks import Bools, Ints, check_finite, listing
from calibrant.base.files import json_value
from calibrant.base.numbers import count, fixed, percent, span_words
from calibrant.metrics import Doubles, Interval, z_value
from calibrant.posthoc import NumpyOps, softmax
from calibrant.predictions import Predictions, class_name
from calibrant.selective.bounds import UNKNOWN, risk_interval
from calibrant.selective.policy.rule import Rule, check_input, decide, logits_formula
from calibrant.selective.policy.selection import ChoiceSamples
from calibrant.selective.sets import PredictionSets, SetTarget, choose_penalty, conformal_quantile, set_scores
from calibrant.selective.thresholds.samples import draw_uniform

LEVEL = 0.95  # of the intervals of counts
MOST_NUMBERS = 2**22  # probabilities that choose the regularisation of RAPS
_FITTING, _PREDICTING, _CHOOSING = 1, 2, 3  # streams of random numbers: new samples must have different ones


def _random(seed: int, stream: int, start: int, count: int) -> Doubles:
    stream_seed = int(np.random.SeedSequence([seed, stream]).generate_state(1, np.uint64)[0] >> np.uint64(1))
    return draw_uniform(stream_seed, start, count)[:, None]


def predict_sets(rule: Rule, values: Any, start: int = 0) -> Any:
    """The sets of an array ``[N, C]``: a mask of the same shape, as `Policy.predict_sets` gives it."""
    if rule.sets is None:
        raise ValueError("the policy has no prediction sets: fit it with sets, for example sets=0.95")
    z = check_input(rule, values)
    parts = []
    for part in cache_chunks(z):
        check_finite(part)
        draw = _random(rule.sets.seed, _PREDICTING, start, len(part)) if rule.sets.randomised else None
        parts.append(rule.sets.members(NumpyOps(), _probabilities(rule, part), draw))
        start += len(part)
    return as_kind_of(values, np.concatenate(parts), keep_precision=True)


def _probabilities(rule: Rule, values: Array) -> Doubles:
    """Calibrated, ``[n, C]``."""
    return softmax(NumpyOps(), logits_formula(rule, NumpyOps(), values.astype(np.float64))[1])


class SetFit:
    """The fit of prediction sets, beside that of the threshold, for a rule whose calibrator is chosen.

    The samples of the choice choose the regularisation of RAPS where it is not given.
    """

    def __init__(self, rule: Rule, target: SetTarget, choice: ChoiceSamples | None) -> None:
        self.rule, self.target = rule, target
        self.penalty, self.free_ranks = target.penalty or 0.0, target.free_ranks or 0
        if target.has_choice:
            assert choice is not None
            stride = -(-choice.rows.values.size // MOST_NUMBERS)
            values, labels = choice.rows.values[::stride], choice.rows.labels[::stride]
            slices = row_slices(len(values), values.shape[1])
            probabilities = np.concatenate([_probabilities(rule, values[rows]) for rows in slices])
            draw = _random(target.seed, _CHOOSING, 0, len(labels)) if target.randomised else None
            self.penalty, self.free_ranks = choose_penalty(
                probabilities, labels, target.level, target.penalty, target.free_ranks, draw
            )
        self._scores: list[Doubles] = []
        self._labels: list[Ints] = []

    def add(self, numbers: Ints, probabilities: Doubles, labels: Ints) -> None:
        """Take the scores of the true classes of samples that are not of the choice.

        They are given by their positions in the predictions, rising ``[n]``, calibrated probabilities and labels.
        """
        if not len(numbers):
            return
        draw, start = None, int(numbers[0])
        if self.target.randomised:
            draw = _random(self.target.seed, _FITTING, start, int(numbers[-1]) - start + 1)[numbers - start]
        scores = set_scores(NumpyOps(), self.target.method, probabilities, self.penalty, self.free_ranks, draw)
        self._scores.append(scores[np.arange(len(labels)), labels])
        self._labels.append(labels.astype(np.int64))

    def finish(self) -> PredictionSets:
        """The sets with their quantiles."""
        scores = np.concatenate([np.empty(0), *self._scores])
        labels = np.concatenate([np.empty(0, np.int64), *self._labels])
        target, groups = self.target, [scores]
        if target.method == "class-conditional":
            groups = [scores[labels == k] for k in range(self.rule.num_classes)]
        return PredictionSets(
            target.level,
            target.method,
            tuple(conformal_quantile(group, target.level) for group in groups),
            tuple(map(len, groups)),
            self.penalty,
            self.free_ranks,
            target.randomised,
            target.seed,
        )


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

    num_classes: int
    sizes: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    abstained: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    labelled: bool = True
    class_samples: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    class_covered: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    abstained_covered: int = 0

    def __post_init__(self) -> None:
        classes, sizes = self.num_classes, self.num_classes + 1
        lengths = {"sizes": sizes, "abstained": sizes, "class_samples": classes, "class_covered": classes}
        for name, length in lengths.items():
            counts = np.zeros(length, np.int64)
            counts[: len(getattr(self, name))] = getattr(self, name)
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


def count_sets(rule: Rule, batches: Iterable[Predictions], seed: int, share: float) -> PredictionSets:
    """The sets of a policy, with what they are on the samples of the quantile."""
    assert rule.sets is not None
    counts, start = SetCounts(rule.num_classes), 0
    for batch in batches:
        rows = np.flatnonzero(draw_uniform(seed, start, len(batch)) >= share)
        if len(rows):
            values, names = getattr(batch, batch.holds), None if rule.group is None else batch.groups[rule.group]
            members: Bools = predict_sets(rule, values, start)
            accept = decide(rule, values, names).accept
            counts.add(members[rows], accept[rows], batch.labels[rows], batch.ignore_index)
        start += len(batch)
    return replace(rule.sets, counts=counts)
