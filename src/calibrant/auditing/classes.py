"""Every class on its own: its probability against what happened, precision and recall, and the majority class.

The calibration of the top label says little about a rare class: on data with 1% positives a model may be right as often
as it claims, while its P(positive) is wrong wherever it is not near 0. Here the probability of each class is compared
with what happened, in the 15 bins of class-wise ECE. In a calibrated model the hits of a bin spread at most like a
binomial number around the sum of the probabilities ([Hoeffding1956]). Exact limits of their share, at a level that is
divided by the number of tested bins and classes, therefore hold together. What lies beyond them is the least
probability that is surely misplaced; divided by the probability of the class, it compares rare and frequent classes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import betaincinv

from calibrant.auditing.breakdown import FEWEST_TESTED, two_sided
from calibrant.auditing.collect import Collected
from calibrant.base.numbers import count, number, percent
from calibrant.metrics import BINS, ClasswiseSums, Doubles, Interval, wilson

#: From these shares of surely misplaced probability on, a verdict is at most fair, or poor.
FAIR_FROM, POOR_FROM = 0.1, 0.25


@dataclass(frozen=True)
class ClassBin:
    """The bin in which a class's probability is furthest off beyond chance."""

    count: int
    claimed: float
    happened: Interval


@dataclass(frozen=True)
class ClassRow:
    """One class; numbers of samples are whole unless there are weights, as in `Majority` and `Classes`."""

    name: str
    labels: float  # samples of the class
    predicted: float  # predictions of the class
    correct: float  # correct predictions of the class
    claimed: float  # its mean probability
    misplaced: float  # the share of its probability that is surely misplaced; 0 if nothing is off beyond chance
    worst: ClassBin | None  # the bin that is furthest off beyond chance, if any


@dataclass(frozen=True)
class Majority:
    """Always answering the class that most samples have."""

    name: str
    error: Interval  # how often that is wrong
    model_errors: float  # of the model
    errors: float  # of the constant answer
    p_value: float  # of the two numbers of errors, on the same samples (McNemar's exact test)


@dataclass(frozen=True)
class Classes:
    """All classes, and the majority class; ``positive`` is the one of two classes that a report is about."""

    rows: Sequence[ClassRow]
    majority: Majority
    samples: float
    tested: int
    positive: int | None
    why_positive: str

    @property
    def worst(self) -> ClassRow | None:
        """The class with most misplaced probability beyond chance, if there is one."""
        row = max(self.rows, key=lambda row: row.misplaced)
        return row if row.misplaced > 0 else None


def check_classes(collected: Collected, level: float) -> Classes | None:
    """Check the probabilities of every class; None if classes are unknown or samples are not independent."""
    if collected.classwise is None or collected.by_class is None or collected.kind != "classification":
        return None
    sums, counts, hits, samples = _effective_tables(collected.classwise)
    labels = hits.sum(1)
    scale = samples / collected.classwise.size
    by_class = collected.by_class.counts.sum(1) * scale
    predicted, correct = by_class.sum(1), by_class[:, 0]
    names = [str(collected.class_name(k)) for k in range(len(labels))]
    positive, why = _positive_of_two(collected.positive, labels)
    is_tested = counts >= FEWEST_TESTED
    if len(labels) == 2:  # the other class's probability is the complement
        is_tested[1 - int(np.argmin(labels))] = False
    tested = int(is_tested.sum())
    low, high = _limits(hits, counts, is_tested, (1 - level) / max(1, tested))
    with np.errstate(invalid="ignore", divide="ignore"):
        claimed = np.where(counts > 0, sums / counts, 0.0)
    beyond = np.where(is_tested, np.maximum(np.maximum(claimed - high, low - claimed), 0.0), 0.0)
    misplaced = np.minimum((beyond * counts).sum(1) / np.maximum(np.maximum(sums.sum(1), labels), 1.0), 1.0)
    rows = []
    for k, name in enumerate(names):
        worst = None
        if beyond[k].any():
            b = int(np.argmax(beyond[k]))
            happened = _wilson_interval(float(hits[k, b]), float(counts[k, b]), level)
            worst = ClassBin(round(counts[k, b]), float(claimed[k, b]), happened)
        share = float(sums[k].sum() / samples)
        numbers = (float(labels[k]), float(predicted[k]), float(correct[k]))
        rows.append(ClassRow(name, *numbers, share, float(misplaced[k]), worst))
    return Classes(rows, _majority(names, labels, correct, level), samples, tested, positive, why)


def _effective_tables(classwise: ClasswiseSums) -> tuple[Doubles, Doubles, Doubles, float]:
    """Sums of probability, counts and hits of every class and bin, and the number of samples.

    With weights all are those of as many samples of equal weight as would be as certain.
    """
    sums, counts, hits = (table * classwise.effective for table in classwise.tables())
    return sums, counts, hits, classwise.samples * classwise.effective


def _positive_of_two(positive: int | None, labels: Doubles) -> tuple[int | None, str]:
    """The class of two that a report is about, and why: the positive one, or the rarer if none is known."""
    if len(labels) != 2:
        return None, ""
    if positive is not None:
        return positive, "the positive class"
    return int(np.argmin(labels)), "the rarer class; --positive NAME chooses the other"


def _limits(hits: Doubles, counts: Doubles, is_tested: Any, level: float) -> tuple[Doubles, Doubles]:
    """Exact limits of the share of hits ([ClopperPearson1934]), which fail with probability ``level`` at most."""
    h, n = (np.where(is_tested, part, 1.0) for part in (hits, np.maximum(counts, 1)))
    low = np.where(h > 0, betaincinv(np.maximum(h, 1e-9), n - h + 1, level / 2), 0.0)
    high = np.where(h < n, betaincinv(h + 1, np.maximum(n - h, 1e-9), 1 - level / 2), 1.0)
    return low, high


def _wilson_interval(part: float, total: float, level: float) -> Interval:
    """A share with Wilson's limits."""
    low, high = wilson(part, total, level)
    return Interval(part / total, float(low), float(high))


def _majority(names: Sequence[str], labels: Doubles, correct: Doubles, level: float) -> Majority:
    """The constant answer against the model, by McNemar's exact test."""
    k, samples = int(np.argmax(labels)), float(labels.sum())
    errors, model_errors = samples - float(labels[k]), samples - float(correct.sum())
    gained, lost = round(correct.sum() - correct[k]), round(labels[k] - correct[k])
    p_value = two_sided(gained, gained + lost, 0.5) if gained + lost else 1.0
    return Majority(names[k], _wilson_interval(errors, samples, level), model_errors, errors, p_value)


def describe_classes(
    collected: Collected, classes: Classes | None, numbers: dict[str, Interval], level: float
) -> dict[str, Any]:
    """The parts of a model's document about classes: the positive one, the majority, and a table, the rarest first."""
    if classes is None:
        return {"positive": None, "majority": None, "labels_table": []}
    majority = classes.majority
    rows = sorted((row for row in classes.rows if row.labels or row.predicted), key=lambda row: row.labels)
    return {
        "positive": _describe_positive(collected, classes, numbers, level),
        "majority": {
            "name": majority.name, "error": vars(majority.error),
            "model_error": majority.model_errors / classes.samples, "p_value": majority.p_value,
        },
        "labels_table": [
            {
                "name": row.name, "labels": round(row.labels), "predicted": round(row.predicted),
                "claimed": row.claimed,
                "happened": row.labels / classes.samples, "precision": _share(row.correct, row.predicted, level),
                "recall": _share(row.correct, row.labels, level), "misplaced": row.misplaced,
                "flag": row.misplaced > 0,
            }
            for row in rows
        ],
    }  # fmt: skip


def _share(part: float, total: float, level: float) -> dict[str, float | int | None]:
    """A share with Wilson's limits, and its counts."""
    share: dict[str, float | None] = {"value": None, "low": None, "high": None}
    if total:
        share = vars(_wilson_interval(part, total, level))
    return {**share, "part": round(part), "of": round(total)}


def _describe_positive(
    collected: Collected, classes: Classes, numbers: dict[str, Interval], level: float
) -> dict[str, Any] | None:
    """P(positive) over its whole range: reliability, proper scores with those of the base rate, precision, recall."""
    k = classes.positive
    if k is None or collected.classwise is None:
        return None
    row, n = classes.rows[k], classes.samples
    rate = row.labels / n
    sums, counts, hits = (table[k] for table in _effective_tables(collected.classwise)[:3])
    low, high = wilson(hits, counts, level)
    edges = np.arange(BINS + 1) / BINS
    with np.errstate(invalid="ignore", divide="ignore"):
        claimed, happened = sums / counts, hits / counts
    brier, nll = numbers["brier"], numbers["nll"]
    floored = collected.nll_note
    entropy = -sum(p * math.log(p) for p in (rate, 1 - rate) if p > 0)
    scores = [
        {"label": "Brier score of P", "value": brier.value / 2, "low": brier.low / 2, "high": brier.high / 2,
         "unit": "number",
         "note": f"mean of (P - y)^2; always predicting the base rate gives {number(rate * (1 - rate))}"},
        {"label": "Log loss", **vars(nll), "unit": "number",
         "note": f"{f'{floored}; ' if floored else ''}always predicting the base rate gives {number(entropy)}"},
    ]  # fmt: skip
    shares = [
        ("Happens", row.labels, n,
         f"{count(round(row.labels))} of {count(round(n))} samples; the mean probability is {percent(row.claimed)}"),
        ("Precision", row.correct, row.predicted,
         f"{count(round(row.correct))} of {count(round(row.predicted))} predictions of {row.name} are right"),
        ("Recall", row.correct, row.labels,
         f"{count(round(row.correct))} of {count(round(row.labels))} samples of {row.name} are found"),
    ]  # fmt: skip
    parts = [
        {"label": label, **_share(part, total, level), "unit": "share", "note": note}
        for label, part, total, note in shares
    ]
    return {
        "name": row.name,
        "why": classes.why_positive,
        "metrics": [parts[0], *scores, *parts[1:]],
        "reliability": {
            "low": edges[:-1], "high": edges[1:], "count": np.rint(counts).astype(np.int64), "confidence": claimed,
            "accuracy": happened, "accuracy_low": low, "accuracy_high": high,
        },
    }  # fmt: skip
