"""Prediction sets counted: their sizes, and how often the true class is among them, in all and by class."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from calibrant._arrays import Array
from calibrant._files import json_value
from calibrant._numbers import count, fixed, percent, span_words
from calibrant._validation import Bools, Ints
from calibrant.metrics import Interval, z_value
from calibrant.predictions import class_name
from calibrant.selective.bounds import UNKNOWN, risk_interval

LEVEL = 0.95  # of the intervals


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
        for name, length in (
            ("sizes", self.num_classes + 1),
            ("abstained", self.num_classes + 1),
            ("class_samples", self.num_classes),
            ("class_covered", self.num_classes),
        ):
            counts = np.zeros(length, np.int64)
            values = np.asarray(getattr(self, name), np.int64)
            counts[: len(values)] = values
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

    def to_dict(self, class_names: Sequence[str] | None) -> dict[str, Any]:
        """For JSON: shares with their intervals, in all, by class, and where the policy abstains."""
        silent = int(self.abstained.sum())
        classes = range(self.num_classes) if self.labelled else ()
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
                for k in classes
            ],
        }
        plain: dict[str, Any] = json_value(entries)
        return plain

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
            worst = self._lowest()
            if worst is not None:
                text[-1] += (
                    f" The lowest share is that of {class_name(worst, class_names)}: "
                    f"{_words(self.class_coverage(worst))} of {count(self.class_samples[worst])}."
                )
        silent = int(self.abstained.sum())
        if silent and silent < self.samples:
            few = percent(self.abstained[1:3].sum() / silent)
            covered = f"; {percent(self.abstained_covered / silent)} hold the true class" if self.labelled else ""
            mean = fixed(mean_of_sizes(self.abstained).value, 2)
            text.append(
                f"Where the policy abstains ({count(silent)} samples), {few} of the sets name one or two classes, "
                f"{mean} on average{covered}."
            )
        return text

    def _lowest(self) -> int | None:
        """The class whose coverage is lowest by its upper limit, among several."""
        present = np.flatnonzero(self.class_samples).tolist()
        return min(present, key=lambda k: self.class_coverage(k).high) if len(present) > 1 else None


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
