"""One pass over a set of predictions: everything an audit needs, in memory that does not grow with the data."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant._arrays import precision_of
from calibrant._validation import check_finite
from calibrant.auditing.tables import Breakdown, ClasswiseSums, Levels
from calibrant.metrics import (
    BLOCK,
    Clusters,
    Confidences,
    ConfidenceSketch,
    Judged,
    Summary,
    TopLabel,
    base_bins,
    cells_of_confidence,
    is_large,
    top_label_blocks,
)
from calibrant.predictions import Predictions

Columns = tuple[npt.NDArray[Any], ...]

ERRORS_KEPT = 50
JUDGED_KEPT = 2**18
LOGITS_KEPT = 50_000
LOGIT_NUMBERS_KEPT = 2**23


@dataclass(frozen=True)
class WorstError:
    """A confident error; ``place`` is the row and column of a pixel."""

    id: str | int
    place: tuple[int, int] | None
    label: int | None
    predicted: int | None
    confidence: float
    shortfall: float


@dataclass
class Collected:
    """What one pass over the predictions found.

    Four checksums tell whether two files are about the same samples, or are the same: of the labels in their order (0
    where there are none), of the names of their classes (None where classes have no names, or there are no labels), of
    the ids (None likewise), and of the first batch's values. ``ignored`` counts labels that count nowhere.
    """

    sketch: ConfidenceSketch
    holds: str
    kind: str
    num_classes: int | None
    class_names: tuple[str, ...] | None
    by_class: Breakdown | None
    classwise: ClasswiseSums | None
    groups: dict[str, tuple[Levels, Breakdown]] = field(default_factory=dict)
    whole: Breakdown = field(default_factory=lambda: Breakdown(1))
    worst: list[WorstError] = field(default_factory=list)
    confidences: Confidences = field(default_factory=Confidences)
    judged: Kept = field(default_factory=lambda: Kept(JUDGED_KEPT))
    logits: Kept = field(default_factory=lambda: Kept(LOGITS_KEPT))
    rows: int = 0
    samples: int = 0
    impossible: int = 0
    numbers: int = 0
    of_labels: int = 0
    of_named_labels: int | None = None
    ignore_index: int | None = None
    ignored: int = 0
    of_ids: int | None = None
    of_values: int = 0
    clusters: Clusters | None = None
    remarks: list[str] = field(default_factory=list)

    def summary(self) -> Summary:
        """Every metric: exact where all samples were kept, else of the sketch, with bounds."""
        return self.confidences.exact(self.sketch.summary())

    def pairs(self) -> Judged:
        """The kept samples, for comparing models on the same ones."""
        confidence, correct, nll, brier, *_ = self.judged.columns()
        known = self.holds != "confidence"
        return Judged(confidence, correct, nll=nll if known else None, brier=brier if known else None)

    def class_name(self, index: int | None) -> str | None:
        """What to call a class."""
        if index is None:
            return None
        return self.class_names[index] if self.class_names else str(index)


class Kept:
    """At most ``size`` samples, each kept or not by a hash of its number, so that two files keep the same ones."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.parts: list[Columns] = []
        self.keys: list[npt.NDArray[np.uint64]] = []
        self.limit = np.iinfo(np.uint64).max
        self.held = 0

    def add(self, numbers: npt.NDArray[np.int64], take: Callable[[npt.NDArray[np.int64]], Columns]) -> None:
        """Offer samples by their numbers; ``take`` gives the columns of those that stay."""
        keys = _hash(numbers)
        stay = np.flatnonzero(keys <= self.limit)
        if not len(stay):
            return
        self.keys.append(keys[stay])
        self.parts.append(take(stay))
        self.held += len(stay)
        if self.held > 2 * self.size:
            self.prune()

    def prune(self) -> None:
        """Let go of what is more than ``size``."""
        keys, columns = np.concatenate(self.keys), self._joined()
        if len(keys) > self.size:
            self.limit = np.partition(keys, self.size - 1)[self.size - 1]
            stay = keys <= self.limit
            keys, columns = keys[stay], tuple(column[stay] for column in columns)
        self.keys, self.parts, self.held = [keys], [columns], len(keys)

    def _joined(self) -> Columns:
        return tuple(np.concatenate(column) for column in zip(*self.parts, strict=True))

    def columns(self) -> Columns:
        """The columns of the kept samples, in order of their numbers."""
        self.prune()
        return self.parts[0]


def _hash(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """Splitmix64: numbers that look random and depend on nothing else."""
    with np.errstate(over="ignore"):
        x = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def wanted_groups(predictions: Predictions, groups: Iterable[str] | None) -> list[str]:
    """The groups that were asked for, all of them if none were."""
    wanted = list(predictions.group_names if groups is None else groups)
    missing = [name for name in wanted if name not in predictions.group_names]
    if missing:
        held = ", ".join(predictions.group_names) or "none"
        raise ValueError(f"there is no group column {missing[0]!r}; the predictions have: {held}")
    return wanted


def started(predictions: Predictions, groups: Iterable[str]) -> Collected:
    """What a pass over predictions begins with: nothing seen."""
    holds, classes = predictions.holds, predictions.num_classes
    detailed = holds != "confidence"
    precision: Any = predictions._store.schema.dtype.name
    found = Collected(
        sketch=ConfidenceSketch(kind="probabilities" if holds == "probabilities" else "logits"),
        holds=holds,
        kind=predictions.kind,
        num_classes=classes,
        class_names=predictions.class_names,
        ignore_index=predictions.ignore_index,
        by_class=Breakdown(classes) if detailed else None,
        classwise=ClasswiseSums(classes, holds, precision) if detailed else None,
        groups={name: (Levels(name), Breakdown()) for name in groups},
    )
    if classes:
        found.logits.size = min(LOGITS_KEPT, max(1, LOGIT_NUMBERS_KEPT // classes))
    if predictions.kind == "segmentation":
        found.clusters = Clusters()
    return found


def collect(
    predictions: Predictions,
    *,
    groups: Iterable[str] | None = None,
    progress: Callable[[Iterable[Predictions]], Iterable[Predictions]] = lambda batches: batches,
) -> Collected:
    """Go through the predictions once."""
    found = started(predictions, wanted_groups(predictions, groups))
    for batch in progress(predictions.batches()):
        for top, values in judged_blocks(batch, found):
            observe(found, batch, top, values)
        mark(found, batch)
        found.rows += len(batch)
    if not found.samples:
        raise ValueError("every position is ignored: there is nothing to audit")
    return found


def mark(found: Collected, batch: Predictions) -> None:
    """Add the batch to the checksums."""
    if found.rows == 0:
        found.remarks += batch.remarks
        values = getattr(batch, batch.holds)[:1024]
        found.of_values = zlib.crc32(np.ascontiguousarray(values).tobytes())
    labels = batch.labels
    if labels is not None:
        found.of_labels = zlib.crc32(np.ascontiguousarray(labels).tobytes(), found.of_labels)
        counted = np.ones(labels.shape, bool) if batch.ignore_index is None else labels != batch.ignore_index
        found.ignored += int(counted.size - counted.sum())
        if batch.class_names is not None:
            found.of_named_labels = zlib.crc32(_named(batch, counted), found.of_named_labels or 0)
    if batch.ids is not None:
        found.of_ids = zlib.crc32(id_bytes(batch.ids), found.of_ids or 0)


def _named(batch: Predictions, counted: npt.NDArray[np.bool_]) -> bytes:
    """What the checksum of class names is of: four bytes a label, which do not depend on the order of the classes."""
    names = [zlib.crc32(name.encode("utf-8", "surrogatepass")) for name in batch.class_names or ()]
    return np.where(counted, np.array(names, np.uint32)[np.where(counted, batch.labels, 0)], np.uint32(0)).tobytes()


def id_bytes(ids: npt.NDArray[Any]) -> bytes:
    """What the checksum of ids is of: each with its own end, so that it does not matter where batches end."""
    return "".join(f"{one}\n" for one in ids.tolist()).encode("utf-8", "surrogatepass")


def judged_blocks(batch: Predictions, found: Collected) -> Iterable[tuple[TopLabel, npt.NDArray[Any] | None]]:
    """The samples of a batch that count, a block at a time, with the numbers they were judged by."""
    if batch.holds == "confidence":
        for start in range(0, len(batch), BLOCK):
            rows = slice(start, start + BLOCK)
            yield _of_confidence(batch.confidence[rows], batch.correct[rows], start), None
        return
    values, labels = getattr(batch, batch.holds), batch.labels
    if batch.holds == "logits":
        check_finite(values)
    visit = None if found.classwise is None else found.classwise.visit
    found.numbers += values.size
    large = is_large(found.numbers)
    for top in top_label_blocks(
        values, labels, kind=batch.holds, ignore_index=batch.ignore_index, visit=visit, large=large
    ):
        yield top, values


def _of_confidence(confidence: npt.NDArray[Any], correct: npt.NDArray[np.bool_], first: int) -> TopLabel:
    sure = confidence.astype(np.float64)
    nothing = np.zeros_like(sure)
    return TopLabel(
        confidence=sure,
        shortfall=1 - sure,
        correct=correct,
        labels=np.zeros(len(sure), np.int64),  # unknown; nothing looks at them
        predicted=None,
        max_logit=sure,
        nll=nothing,
        brier=nothing,
        cells=cells_of_confidence(sure, precision_of(confidence)),
        given=precision_of(confidence),
        first=first,
        counted=None,
    )


def observe(found: Collected, batch: Predictions, top: TopLabel, values: npt.NDArray[Any] | None) -> None:
    """Add a block of a batch."""
    if not len(top.labels):
        return
    bins = base_bins(top.cells)
    found.sketch.observe(top)
    if values is not None:
        found.impossible += int(np.isinf(top.nll).sum())
    found.confidences.add(top)
    if found.clusters is not None:
        found.clusters.add(top, bins, found.rows)
    found.whole.add(np.zeros_like(top.labels), top, bins, 1)
    if found.by_class is not None and top.predicted is not None and found.num_classes:
        found.by_class.add(top.predicted, top, bins, found.num_classes)
    if found.groups:
        rows_of = top.rows()
        for name, (levels, breakdown) in found.groups.items():
            codes = levels.encode(np.asarray(batch.groups[name])[rows_of])
            breakdown.add(codes, top, bins, len(levels.codes))
    _keep_worst(found, batch, top)
    _keep_sample(found, top, values)
    found.samples += len(top.labels)


def _keep_worst(found: Collected, batch: Predictions, top: TopLabel) -> None:
    wrong = np.flatnonzero(~top.correct)
    if not len(wrong):
        return
    worst = found.worst[-1].shortfall if len(found.worst) == ERRORS_KEPT else np.inf
    shortfall = top.shortfall[wrong]
    shortfall, wrong = shortfall[shortfall < worst], wrong[shortfall < worst]
    rows = top.rows()
    # Of equally confident errors the first ones stay, whatever the size of the batches.
    for at in wrong[np.argsort(shortfall, kind="stable")[:ERRORS_KEPT]].tolist():
        row = int(rows[at])
        name = found.rows + row if batch.ids is None else batch.ids[row].item()
        label = None if top.predicted is None else int(top.labels[at])
        predicted = None if top.predicted is None else int(top.predicted[at])
        place = _place(batch, top, at)
        error = WorstError(name, place, label, predicted, float(top.confidence[at]), float(top.shortfall[at]))
        found.worst.append(error)
    found.worst.sort(key=lambda error: error.shortfall)
    del found.worst[ERRORS_KEPT:]


def _place(batch: Predictions, top: TopLabel, at: int) -> tuple[int, int] | None:
    """Row and column of a pixel inside its image."""
    if batch.kind != "segmentation" or top.counted is None:
        return None
    position = int(np.nonzero(top.counted)[1][at])
    width = batch.labels.shape[-1]
    return position // width, position % width


def _keep_sample(found: Collected, top: TopLabel, values: npt.NDArray[Any] | None) -> None:
    numbers = np.arange(found.samples, found.samples + len(top.labels))
    columns = (top.confidence, top.correct, top.nll, top.brier, top.max_logit)
    found.judged.add(numbers, lambda stay: tuple(column[stay] for column in columns))
    if values is not None:
        rows = values

        def take(stay: npt.NDArray[np.int64]) -> Columns:
            return top.take(rows)[stay], top.labels[stay], top.rows()[stay] + found.rows

        found.logits.add(numbers, take)
