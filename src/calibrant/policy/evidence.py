"""What a fit notes about its samples: which they were, their labels, how calibrated they are, how they look.

The calibration is that of the samples that set the threshold. The calibrator was fitted on others, so that these
numbers are those of new samples.

The reference is how score, confidence and predicted class are distributed there, for monitoring later. A random part of
the samples decides where bins begin and which classes share a cell, and is counted nowhere. Given the bins, the counts
of the others are those of independent draws, as the counts of new samples are while nothing changes: a test may compare
the two, whatever the distribution is and however often values are tied.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, model_validator

from calibrant.base.arrays import join_rows, take_rows
from calibrant.base.checks import Bools, Ints
from calibrant.base.entries import ClassNumber, Count, Label, Limit, Share, Text, excerpt, refusal
from calibrant.metrics import LARGE_ERROR, ConfidenceSketch, Doubles, Interval, intervals
from calibrant.predictions import Piece, Predictions

REPLICATES = 400  # of the bootstrap of an ECE
ROUNDING = 1e-5  # of scores and confidences, relative to large ones
BINS = 16  # of scores and confidences, and cells of classes
APART, MOST_APART = 0.2, 2000  # of the samples, for the bins
FEWEST_ROWS = 50  # below which nothing is kept
MOST_KEPT = 100_000
MOST_LISTED = 1000  # classes, above which their labels are not counted
MOST_APART_CLASSES = 100  # above which how the samples of each class look is not counted


class Fingerprint:
    """A checksum that recognises the same predictions, in whatever order, batches and precision they come.

    It is the sum of a hash of each row, made of the first class's value as float32 and of the label.
    """

    def __init__(self) -> None:
        self.sum, self.rows = 0, 0

    def add(self, batch: Predictions) -> None:
        """Take in a batch."""
        values = batch.data.values
        first = np.ascontiguousarray(values[:, 0] if values.ndim > 1 else values, dtype=np.float32)
        rows = first.view(np.uint32).reshape(-1).astype(np.uint64)
        if batch.labels is not None:
            rows = rows << np.uint64(24) ^ batch.labels.reshape(-1).astype(np.uint64)
        # A multiplicative hash, of which the upper half depends on all bits.
        rows = (rows ^ rows >> np.uint64(29)) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(32)
        self.sum = (self.sum + int(rows.sum(dtype=np.uint64))) % 2**32
        self.rows += len(batch)

    def absorb(self, other: Fingerprint) -> None:
        """Take in what another one has."""
        self.sum, self.rows = (self.sum + other.sum) % 2**32, self.rows + other.rows

    def __str__(self) -> str:
        return f"{self.rows}:{self.sum:08x}"


def fingerprint_of(piece: Piece) -> Iterator[Fingerprint]:
    """That of a piece of some predictions."""
    fingerprint = Fingerprint()
    for _, batch in piece.batches():
        fingerprint.add(batch)
    yield fingerprint


def describe_majority(counts: Ints) -> dict[str, Any]:
    """The most frequent class by its position, and how often always answering it is wrong."""
    total = int(counts.sum())
    return {"class": int(np.argmax(counts)), "error": (total - int(counts.max())) / total if total else None}


def find_idle_promises(
    groups: npt.NDArray[np.str_], labels: Ints, risks: Mapping[int, float] | float
) -> list[dict[str, Any]]:
    """The groups in which one and the same answer keeps the promise: which answer, and how often it is wrong there.

    ``risks`` is what is promised at most of the answers of each class, or of all answers; then the answer is a group's
    most frequent class.

    Example:
        >>> find_idle_promises(np.array(["a", "a", "b", "b"]), np.array([1, 1, 0, 1]), 0.1)
        [{'group': 'a', 'class': 1, 'error': 0.0}]
    """
    idle = []
    for name in np.unique(groups).tolist():
        counts = np.bincount(labels[groups == name])
        for label in risks if isinstance(risks, Mapping) else [int(np.argmax(counts))]:
            error = 1 - float(counts[label]) / int(counts.sum()) if label < len(counts) else 1.0
            if error <= (risks[label] if isinstance(risks, Mapping) else risks):
                idle.append({"group": name, "class": label, "error": error})
    return idle


class CalibrationCheck:
    """Confidences before and after a calibrator, added up."""

    def __init__(self) -> None:
        self.before, self.after, self.samples = ConfidenceSketch(), ConfidenceSketch(), 0

    def add(self, before: tuple[Doubles, Bools], after: tuple[Doubles, Bools]) -> None:
        """Count the confidence and correctness of some samples, without the calibrator and with it."""
        if len(before[0]):
            self.before.update_confidence(*before)
            self.after.update_confidence(*after)
            self.samples += len(before[0])

    def absorb(self, other: CalibrationCheck) -> None:
        """Add the samples of another part."""
        self.before, self.after = self.before + other.before, self.after + other.after
        self.samples += other.samples

    def evidence(self, *, independent: bool) -> dict[str, Any]:
        """The ECE before and after, with limits where samples are independent, as an audit computes them."""
        if not self.samples:
            return {}
        ends = {"before": self.before.summary(), "after": self.after.summary()}
        if independent:
            values = {name: intervals(end, replicates=REPLICATES, only=("ece",))["ece"] for name, end in ends.items()}
        else:
            values = {name: Interval(float(end.measure("ece")), math.nan, math.nan) for name, end in ends.items()}
        return {"samples": self.samples, **{name: vars(value) for name, value in values.items()}}


def is_poor(evidence: Mapping[str, Any]) -> bool:
    """Whether the ECE after the repair is large, and not by chance alone."""
    after = evidence.get("after") or {}
    value, low = after.get("value"), after.get("low")
    return value is not None and value >= LARGE_ERROR and not (low is not None and low <= 0)


class ReferenceRows(NamedTuple):
    """Samples, ``[n]`` each: random number, score, confidence, predicted class, group and label, -1 if unknown."""

    draw: Doubles
    score: Doubles
    confidence: Doubles
    predicted: Ints
    group: npt.NDArray[np.str_]
    label: Ints


class Reference:
    """A random choice of samples, collected some at a time: all of them, or about a hundred thousand of more.

    The random numbers of samples that have ``start`` others before them are those of one pass over all.
    """

    def __init__(self, seed: int, start: int = 0) -> None:
        bits = np.random.PCG64(np.random.SeedSequence([seed, 0x5EED]))
        self._random = np.random.Generator(bits.advance(start))
        self._parts: list[ReferenceRows] = []
        self._limit, self._size = 1.0, 0

    def add(
        self,
        score: Doubles,
        confidence: Doubles,
        predicted: Ints,
        group: npt.NDArray[np.str_],
        label: Ints | None = None,
    ) -> None:
        """Add some samples."""
        draw = self._random.random(len(score))
        label = np.full(len(score), -1) if label is None else label
        part = ReferenceRows(
            draw, score, confidence, np.asarray(predicted, np.int64), group, np.asarray(label, np.int64)
        )
        self._parts.append(take_rows(part, draw < self._limit))
        self._size += len(self._parts[-1].draw)
        self._limit_size()

    def absorb(self, other: Reference) -> None:
        """Add the samples of a later part."""
        limit = min(self._limit, other._limit)
        is_cut = self._limit != other._limit
        self._limit, self._parts = limit, self._parts + other._parts
        if is_cut:
            self._parts = [take_rows(part, part.draw < limit) for part in self._parts]
        self._size = sum(len(part.draw) for part in self._parts)
        self._limit_size()

    def _limit_size(self) -> None:
        while self._size > 2 * MOST_KEPT:
            self._limit /= 2
            rows = join_rows(self._parts)
            self._parts = [take_rows(rows, rows.draw < self._limit)]
            self._size = len(self._parts[0].draw)

    def evidence(
        self, limits: Callable[[npt.NDArray[np.str_], Ints], Doubles] | float, labels: Ints, answer: int | None = None
    ) -> dict[str, Any] | None:
        """The reference as plain data; None for too few samples.

        Args:
            limits: the threshold, or a function that gives it for the groups and predicted classes of samples.
            labels: ``[C]`` how often each label occurs.
            answer: the class that all accepted samples are answered as, if there is one; its probability is the score.
        """
        if self._size < FEWEST_ROWS:
            return None
        rows = join_rows(self._parts)
        accepted = rows.score >= (limits(rows.group, rows.predicted) if callable(limits) else limits)
        if answer is not None:
            rows = rows._replace(
                confidence=np.where(accepted, rows.score, rows.confidence),
                predicted=np.where(accepted, answer, rows.predicted),
            )
        # The smallest draws: random, and the same share of few samples as of many.
        apart = rows.draw <= np.partition(rows.draw, count := min(int(APART * self._size), MOST_APART))[count - 1]
        for_bins, counted = take_rows(rows, apart), take_rows(rows, ~apart)
        classes = frequent_classes(np.bincount(for_bins.predicted, minlength=len(labels)))
        doubt = 1 - counted.confidence[accepted[~apart]]
        score, confidence = (
            _bin_values(getattr(for_bins, name), getattr(counted, name)) for name in ("score", "confidence")
        )
        by_class = None
        if len(labels) <= MOST_APART_CLASSES and (counted.label >= 0).all():
            inside = [take_rows(counted, counted.label == k) for k in range(len(labels))]
            by_class = {
                "score": [bin_counts(part.score, score["edges"]).tolist() for part in inside],
                "confidence": [bin_counts(part.confidence, confidence["edges"]).tolist() for part in inside],
                "predicted": [class_counts(part.predicted, classes).tolist() for part in inside],
            }
        return {
            "rows": len(counted.draw),
            "score": score,
            "confidence": confidence,
            "predicted": {"classes": classes.tolist(), "counts": class_counts(counted.predicted, classes).tolist()},
            "by_class": by_class,
            "labels": labels.tolist() if len(labels) <= MOST_LISTED else None,
            "implied_risk": float(doubt.mean()) if len(doubt) else None,
        }


def frequent_classes(counts: Ints) -> Ints:
    """The most frequent classes, which have a cell each; all others share the last."""
    return np.argsort(-counts, kind="stable")[: min(len(counts), BINS) - 1]


def class_counts(predicted: Ints, classes: npt.ArrayLike) -> Ints:
    """How often each class is predicted, and how often any other."""
    counts = (predicted[:, None] == np.asarray(classes, dtype=np.int64)).sum(0)
    return np.append(counts, len(predicted) - counts.sum()).astype(np.int64)


def bin_counts(values: Doubles, edges: npt.ArrayLike) -> Ints:
    """How many values lie in each bin; an edge belongs to the bin above it."""
    bins = np.asarray(edges, dtype=np.float64)
    return np.bincount(np.searchsorted(bins, values, side="right"), minlength=len(bins) + 1).astype(np.int64)


def _bin_values(apart: Doubles, values: Doubles) -> dict[str, Any]:
    """Bins of about as many values each, whose edges lie midway between values.

    A tree ensemble gives few values: an edge on one of them would part those that differ by rounding to float32 alone.
    """
    rising = np.sort(apart)
    edges = np.unique(np.quantile(rising, np.arange(1, BINS) / BINS, method="inverted_cdf"))
    below = np.searchsorted(rising, edges - ROUNDING * np.maximum(1.0, np.abs(edges)))
    edges = np.unique((rising[below - 1] + edges)[below > 0] / 2)  # nothing lies below the others
    return {"edges": edges.tolist(), "counts": bin_counts(values, edges).tolist()}


class FitNotes:
    """What is added up while samples are read.

    `fingerprint`, `labels` (``[C]``, how often each occurs) and `zero_class` are of all predictions, `calibration` and
    `reference` of the samples for the threshold, of which ``start`` come before.
    """

    def __init__(self, num_classes: int, seed: int, start: int = 0) -> None:
        self._is_zero = np.full(num_classes, num_classes == 2)
        self.fingerprint, self.labels = Fingerprint(), np.zeros(num_classes, np.int64)
        self.calibration, self.reference = CalibrationCheck(), Reference(seed, start)

    def absorb(self, other: FitNotes) -> None:
        """Add the notes of a later part."""
        self._is_zero &= other._is_zero
        self.fingerprint.absorb(other.fingerprint)
        self.labels += other.labels
        self.calibration.absorb(other.calibration)
        self.reference.absorb(other.reference)

    def add_batch(self, batch: Predictions) -> None:
        """Take in a whole batch, whatever its samples are for."""
        self.fingerprint.add(batch)
        if self._is_zero.any():
            values = np.asarray(batch.data.values)
            self._is_zero &= ~values.any((0, *range(2, values.ndim)))
        labels = batch.labels.reshape(-1)
        if batch.ignore_index is not None:
            labels = labels[labels != batch.ignore_index]
        self.labels += np.bincount(labels, minlength=len(self.labels))

    @property
    def zero_class(self) -> int | None:
        """The class of two whose logits are all 0, because there was one column; None where there were two."""
        return int(np.argmax(self._is_zero)) if self._is_zero.sum() == 1 else None


class _Entries(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Bins(_Entries):
    edges: list[Limit]
    counts: list[Count]

    @model_validator(mode="after")
    def _check_bins(self) -> Self:
        if len(self.counts) != len(self.edges) + 1 or any(a >= b for a, b in pairwise(self.edges)):
            raise refusal("must have edges that rise, and one count more than edges")
        return self


class _Cells(_Entries):
    classes: list[Count]
    counts: list[Count]

    @model_validator(mode="after")
    def _check_cells(self) -> Self:
        if not self.classes or len(self.counts) != len(self.classes) + 1:
            raise refusal("must have a count for every class, and one for all others")
        return self


class _ByClass(_Entries):
    score: list[list[Count]]
    confidence: list[list[Count]]
    predicted: list[list[Count]]


class _Reference(_Entries):
    rows: Count
    score: _Bins
    confidence: _Bins
    predicted: _Cells
    by_class: _ByClass | None = None
    labels: list[Count] | None
    implied_risk: Share | None

    @model_validator(mode="after")
    def _check_sums(self) -> Self:
        totals = {sum(part.counts) for part in (self.score, self.confidence, self.predicted)}
        if not self.rows or totals != {self.rows}:
            raise refusal("must count the same rows, at least one, in score, confidence and predicted")
        for name, rows in () if self.by_class is None else self.by_class:
            whole = getattr(self, name).counts
            if not rows or any(len(row) != len(whole) for row in rows) or [*map(sum, zip(*rows, strict=True))] != whole:
                raise refusal("must count the same rows by class")
        return self


class _IdlePromise(_Entries):
    group: Text
    label: ClassNumber = Field(alias="class")
    error: Share


class _Evidence(_Entries):
    model_config = ConfigDict(extra="allow")
    idle: list[_IdlePromise] = Field(default_factory=list)
    ignore_index: Label | None = None
    fingerprint: Text | None = None
    reference: _Reference | None = None


def check_evidence(evidence: Any) -> Any:
    """Evidence as it is, if what policies and watches read of it is what they expect."""
    if not isinstance(evidence, Mapping):
        raise refusal(f"must be an object, got {excerpt(evidence)}")
    _Evidence.model_validate(dict(evidence))
    return evidence
