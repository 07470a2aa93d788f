"""One pass over a set of predictions: everything an audit needs, in memory that does not grow with the data."""

from __future__ import annotations

import contextlib
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from calibrant.auditing.breakdown import MOST_LEVELS, Breakdown, Columns, HashSample, Levels, ObjectSizes
from calibrant.auditing.shards import (
    ERRORS_KEPT,
    NOTHING_COUNTS,
    Offsets,
    OtherSizeError,
    Part,
    check_none_ignored,
    drop_predicted,
    find_offsets,
    merge,
    offsets_by_group,
    sizes_in_headers,
)
from calibrant.base.arrays import Array, Doubles, in_threads, precision_of
from calibrant.base.checks import Bools, Ints, check_finite
from calibrant.base.numbers import count, significant
from calibrant.base.progress import Progress, silent
from calibrant.metrics import (
    BINS,
    BLOCK,
    ClassOverlaps,
    ClasswiseSums,
    Clusters,
    Confidences,
    ConfidenceSketch,
    Judged,
    Summary,
    TopLabel,
    base_bins,
    cells_of_confidence,
    check_weight,
    top_label_blocks,
)
from calibrant.policy import Outcome, Policy
from calibrant.posthoc import logits_of
from calibrant.predictions import (
    BATCH,
    FLOOR,
    LOCAL,
    WEIGHT,
    Digits,
    PassEngine,
    Piece,
    Predictions,
    RepeatCount,
    check_group,
    describe_weights,
    find_oddities,
    replace_data,
)

JUDGED_KEPT = 2**18
LOGITS_KEPT = 50_000
LOGIT_NUMBERS_KEPT = 2**23


@dataclass(frozen=True)
class WorstError:
    """A confident error; ``position`` is the row and column of a pixel in its image, or a token's in its sequence."""

    id: str | int
    position: tuple[int, ...] | None
    label: int | str | None
    predicted: int | str | None
    confidence: float
    shortfall: float


@dataclass
class Collected:
    """What one pass over the predictions gives.

    The checksums tell whether two files have the same samples, or are the same file. ``label_crc`` is 0 without
    labels, ``named_label_crc`` (of the labels' class names) and ``id_crc`` are None without names or ids,
    ``value_crc`` is of the first batch. ``ignored`` counts labels that are left out, ``impossible`` labels of
    probability 0, for which the NLL takes `floor`. ``errors`` counts the wrong predictions, of which the most confident
    are in ``worst``. ``repeats`` counts the rows whose id came before.
    """

    sketch: ConfidenceSketch
    holds: str
    kind: str
    num_classes: int | None
    class_names: tuple[str, ...] | None
    positive: int | None
    by_class: Breakdown | None
    classwise: ClasswiseSums | None
    groups: dict[str, tuple[Levels, Breakdown]] = field(default_factory=dict)
    without_class: Breakdown = field(default_factory=lambda: Breakdown(1))
    worst: list[WorstError] = field(default_factory=list)
    confidences: Confidences = field(default_factory=Confidences)
    judged: HashSample = field(default_factory=lambda: HashSample(JUDGED_KEPT))
    logits: HashSample = field(default_factory=lambda: HashSample(LOGITS_KEPT))
    rows: int = 0
    samples: int = 0
    errors: int = 0
    impossible: int = 0
    impossible_weights: Doubles = field(default_factory=lambda: np.zeros(2))  # sums of theirs and of their squares
    label_crc: int = 0
    named_label_crc: int | None = None
    ignore_index: int | None = None
    ignored: int = 0
    id_crc: int | None = None
    repeats: RepeatCount = field(default_factory=RepeatCount)
    value_crc: int = 0
    clusters: Clusters | None = None
    overlaps: ClassOverlaps | None = None
    object_sizes: ObjectSizes | None = None
    oddities: list[str] = field(default_factory=list)  # what looks odd about the values, of the first batch
    weight_title: str = ""  # the column of weights, if there is one, and between which numbers they lie
    weight_range: tuple[float, float] = (math.inf, -math.inf)
    remarks: list[str] = field(default_factory=list)
    digits: Digits | None = None
    class_levels: Levels | None = None

    @property
    def warnings(self) -> list[str]:
        """What looks odd about the values, and what was taken for weights, one sentence each."""
        weights = [describe_weights(self.weight_title, *self.weight_range)] if self.weight_title else []
        return self.oddities + weights

    @property
    def floor(self) -> float:
        """The value that logarithms take instead of smaller probabilities."""
        return FLOOR if self.digits is None else self.digits.floor

    @property
    def rounded(self) -> bool:
        """Whether probabilities were rounded, or some are 0."""
        return self.digits is not None and self.digits.matter

    @property
    def nll_note(self) -> str | None:
        """A note on labels of probability 0 in the NLL, if there are any."""
        if not self.impossible:
            return None
        samples = "1 sample gives its" if self.impossible == 1 else f"{count(self.impossible)} samples give their"
        return f"{samples} label probability 0, counted as {significant(self.floor)}; infinite without this floor"

    def summary(self) -> Summary:
        """Every metric: exact if all samples were kept, otherwise of the sketch, with bounds."""
        summary = self.confidences.exact(self.sketch.summary())
        if not self.impossible:
            return summary
        worst, (weight, squares) = -math.log(self.floor), self.impossible_weights
        # Weights of mean 1, as those of the summary are.
        scale = self.samples / self.sketch.base_counts.sum()
        moments = summary.moments.copy()
        moments[:2] += scale * weight * np.array([worst, worst**2])
        moments[6:8] += scale**2 * squares * np.array([worst, worst**2])
        return replace(summary, moments=moments)

    def pairs(self) -> Judged:
        """The kept samples, for comparing models on the same ones."""
        confidence, correct, nll, brier, _, *weight = self.judged.columns()
        nll = np.where(np.isinf(nll), -math.log(self.floor), nll)
        losses = {"nll": nll, "brier": brier} if self.holds != "confidence" else {}
        return Judged(confidence, correct, weight=weight[0] if weight else None, **losses)

    @property
    def is_heavy(self) -> bool:
        """Whether some sample has a weight above 0."""
        return bool(self.sketch.base_counts.any())

    def weighs_like(self, other: Collected) -> bool:
        """Whether another set of as many samples has the same weights, up to a factor, where they were kept."""
        ours, theirs = (check_weight(part.pairs().weight, part.judged.count) for part in (self, other))
        if ours is None or theirs is None:
            return ours is theirs
        return len(ours) == len(theirs) and bool(np.allclose(ours, theirs, rtol=1e-6, atol=0))

    @property
    def overall(self) -> Breakdown:
        """The table of all samples, whose only key is 0."""
        total = self.without_class
        return self.by_class.total() if self.by_class is not None and not total.samples.any() else total

    @property
    def classes(self) -> list[str]:
        """The names of the classes, as far as they are known; for confidences, those of the predicted ones."""
        if self.class_levels is not None:
            return self.class_levels.names()
        return [str(self.class_name(k)) for k in range(self.num_classes or 0)]

    def class_name(self, index: int | str | None) -> str | None:
        """The name of a class."""
        if index is None or isinstance(index, str):
            return index
        return self.class_names[index] if self.class_names else str(index)


def check_groups(predictions: Predictions, groups: Iterable[str] | None) -> list[str]:
    """The requested group columns, or all of them if None; an error if one does not exist."""
    names = list(predictions.group_names if groups is None else groups)
    for name in names:
        check_group(predictions, name)
    return names


def begin(predictions: Predictions, groups: Iterable[str]) -> Collected:
    """An empty collection, for a pass over these predictions."""
    holds, classes = predictions.holds, predictions.num_classes
    detailed = holds != "confidence"
    precision: Any = predictions._store.schema.dtype.name
    collected = Collected(
        sketch=ConfidenceSketch(kind="probabilities" if holds == "probabilities" else "logits"),
        holds=holds,
        kind=predictions.kind,
        num_classes=classes,
        class_names=predictions.class_names,
        positive=predictions.positive,
        ignore_index=predictions.ignore_index,
        by_class=Breakdown(classes) if detailed else None,
        classwise=ClasswiseSums(classes, BINS, "float64" if holds == "logits" else precision) if detailed else None,
        groups={name: (Levels(name), Breakdown()) for name in groups},
        clusters=None if predictions.kind == "classification" else Clusters(),
        overlaps=ClassOverlaps(classes) if predictions.kind == "segmentation" and classes and detailed else None,
        digits=Digits(classes) if holds == "probabilities" else None,
    )
    if "objectness" in predictions._store.names and predictions.kind == "classification":
        collected.object_sizes = ObjectSizes()
    if "predicted" in predictions._store.names:
        collected.by_class, collected.class_levels = Breakdown(), Levels("predicted")
    if classes:
        collected.logits.size = min(LOGITS_KEPT, max(1, LOGIT_NUMBERS_KEPT // classes))
    return collected


def collect(
    predictions: Predictions,
    *,
    groups: Iterable[str] | None = None,
    outcome: Outcome | None = None,
    calibrated_by: Policy | None = None,
    stage: str = "reading",
    progress: Progress = silent,
    engine: PassEngine = LOCAL,
) -> Collected:
    """Go through the predictions once.

    Args:
        predictions: labelled predictions, or confidences.
        groups: group columns to break the numbers down by; all of them if None.
        outcome: counts what its policy decides about every batch.
        calibrated_by: a policy whose calibrator is applied to every batch before it is counted.
        stage: name of the stage in the progress bar.
        progress: called with the number of rows read.
        engine: what goes through them.
    """
    work = partial(
        collect_part,
        groups=check_groups(predictions, groups),
        policy=None if outcome is None else outcome.policy,
        calibrated_by=calibrated_by,
    )

    def read(offsets: Sequence[Offsets]) -> Iterator[Part]:
        return engine.run(partial(work, offsets=offsets), predictions, stage, progress)

    part = _read_pieces(read, predictions, engine)
    if not part.collected.samples:
        raise ValueError(NOTHING_COUNTS)
    if outcome is not None and part.outcome is not None:
        outcome.absorb(part.outcome)
    return part.collected


def _read_pieces(
    read: Callable[[Sequence[Offsets]], Iterator[Part]], predictions: Predictions, engine: PassEngine
) -> Part:
    """What was collected of all pieces, each of which must know where it begins."""
    pieces = engine.pieces(predictions)
    if len(pieces) == 1:
        return merge(read([Offsets(total=_count_ahead(predictions))]))
    sizes = sizes_in_headers(pieces)
    if sizes is not None:
        with contextlib.suppress(OtherSizeError):
            return merge(map(check_none_ignored, read(find_offsets(sizes))))
    return merge(read([offsets[""] for offsets in offsets_by_group(predictions, None, engine)]))


def collect_part(
    piece: Piece,
    groups: Sequence[str],
    offsets: Sequence[Offsets],
    policy: Policy | None = None,
    calibrated_by: Policy | None = None,
) -> Iterator[Part]:
    """What a pass over a piece collects, whose place among all is given by ``offsets``."""
    predictions, own = piece.predictions, offsets[piece.number]
    collected = begin(predictions, groups)
    expect(collected, own)
    outcome = None if policy is None else Outcome(policy, start=own.rows)
    part = Part(collected, own, outcome)
    first_rows = min(1024, predictions._store.schema.rows(BATCH))  # of the checksum of values
    for _, batch in piece.batches():
        if outcome is not None:
            outcome.add(batch, outcome.policy.decide(batch))
        if calibrated_by is not None:
            batch = _calibrate(batch, calibrated_by)
        if collected.rows < first_rows:
            values = np.ascontiguousarray(batch.data.values[: first_rows - collected.rows])
            collected.value_crc = zlib.crc32(values.tobytes(), collected.value_crc)
            part.value_bytes += values.nbytes
        add_batch(collected, batch)
        part.label_bytes += 0 if batch.labels is None else batch.labels.nbytes
        if batch.ids is not None:
            part.id_bytes += len(id_bytes(batch.ids))
        columns = batch.groups | ({} if batch.ids is None else {"ids": batch.ids})
        for name, column in columns.items():
            part.types[name] = "text" if column.dtype.kind == "U" else str(column.dtype)
    yield part


def expect(collected: Collected, offsets: Offsets) -> None:
    """Say where in the whole a pass begins, and how many samples there will be."""
    collected.rows, collected.samples = offsets.rows, offsets.samples
    if offsets.total is not None:
        if offsets.total > collected.confidences.most:
            collected.confidences.most = 0  # the whole will not keep them either
        for sample in (collected.judged, collected.logits):
            sample.expect(offsets.total)


def _count_ahead(predictions: Predictions) -> int | None:
    """How many samples will count, of predictions in memory."""
    if predictions.files:
        return None
    labels = predictions.labels
    return len(predictions) if labels is None else int(np.count_nonzero(labels != predictions.ignore_index))


def _calibrate(batch: Predictions, policy: Policy) -> Predictions:
    """The batch with the policy's calibrator applied, holding what it held."""
    if policy.calibrator is None:
        return batch
    if batch.holds == "logits":
        calibrated: Predictions = policy.calibrator.transform(batch)
        return calibrated
    z = policy.calibrator.transform(logits_of(batch, policy.floor))
    exps = np.exp(z - z.max(1, keepdims=True))
    return replace_data(batch, "probabilities", exps / exps.sum(1, keepdims=True))


def add_batch(collected: Collected, batch: Predictions) -> None:
    """Count a batch."""
    if collected.rows == 0:
        collected.oddities += find_oddities(batch._store)
    if batch.weight is not None:
        collected.weight_title = batch._store.title(WEIGHT)
        low, high = collected.weight_range
        collected.weight_range = min(low, float(batch.weight.min())), max(high, float(batch.weight.max()))
    for top, values in _judged_blocks(batch, collected):
        _observe(collected, batch, top, values)
    _add_to_checksums(collected, batch)
    collected.rows += len(batch)


def _add_to_checksums(collected: Collected, batch: Predictions) -> None:
    labels = batch.labels
    if labels is not None:
        collected.label_crc = zlib.crc32(np.ascontiguousarray(labels).tobytes(), collected.label_crc)
        counted = np.ones(labels.shape, bool) if batch.ignore_index is None else labels != batch.ignore_index
        collected.ignored += int(counted.size - counted.sum())
        if batch.class_names is not None:
            collected.named_label_crc = zlib.crc32(_named_labels(batch, counted), collected.named_label_crc or 0)
    if batch.ids is not None:
        collected.id_crc = zlib.crc32(id_bytes(batch.ids), collected.id_crc or 0)
        collected.repeats.add(batch.ids)


def _named_labels(batch: Predictions, counted: Bools) -> bytes:
    """The bytes behind `named_label_crc`: four per label, whatever the order of the classes."""
    names = [zlib.crc32(name.encode("utf-8", "surrogatepass")) for name in batch.class_names or ()]
    return np.where(counted, np.array(names, np.uint32)[np.where(counted, batch.labels, 0)], np.uint32(0)).tobytes()


def id_bytes(ids: Array) -> bytes:
    """The bytes behind `id_crc`: one line per id, so that it does not matter where batches end."""
    return "".join(f"{name}\n" for name in ids.tolist()).encode("utf-8", "surrogatepass")


def _judged_blocks(batch: Predictions, collected: Collected) -> Iterable[tuple[TopLabel, Array | None]]:
    """The samples of a batch that count, a block at a time, with the values of the batch."""
    if batch.holds == "confidence":
        for start in range(0, len(batch), BLOCK):
            rows = slice(start, start + BLOCK)
            weight = None if batch.weight is None else batch.weight[rows]
            yield _top_label_of(batch.confidence[rows], batch.correct[rows], start, weight), None
        return
    values, labels = getattr(batch, batch.holds), batch.labels
    if batch.holds == "logits" and values.itemsize >= 8:  # float32 reaches no further than a logit may
        check_finite(values)
    if collected.digits is not None:
        collected.digits.add(values)
    options: dict[str, Any] = {"ignore_index": batch.ignore_index, "by_class": collected.classwise}
    for top in top_label_blocks(values, labels, kind=batch.holds, weight=batch.weight, **options):
        yield top, values


def _top_label_of(confidence: Array, correct: Bools, start: int, weight: Doubles | None) -> TopLabel:
    sure = confidence.astype(np.float64)
    zeros = np.zeros_like(sure)
    return TopLabel(
        confidence=sure,
        shortfall=1 - sure,
        correct=correct,
        labels=np.zeros(len(sure), np.int64),  # unknown, and not used
        predicted=None,
        max_logit=sure,
        nll=zeros,
        brier=zeros,
        cells=cells_of_confidence(sure, precision_of(confidence)),
        precision=precision_of(confidence),
        first=start,
        weight=weight,
    )


def _observe(collected: Collected, batch: Predictions, top: TopLabel, values: Array | None) -> None:
    """Add a block of a batch."""
    if not len(top.labels):
        return
    bins, counted = base_bins(top.cells), top
    if values is not None and (impossible := np.isinf(top.nll)).any():
        weight = np.ones(len(impossible)) if top.weight is None else top.weight
        collected.impossible += int(impossible.sum())
        collected.impossible_weights += weight[impossible].sum(), np.square(weight[impossible]).sum()
        counted = replace(top, nll=np.where(impossible, 0.0, top.nll))  # added once the floor is known
    # Each fills a table of its own, so that they may run side by side.
    tables: list[Callable[[], None]] = [
        lambda: collected.sketch.observe(counted, bins),
        lambda: _add_groups(collected, batch, top, bins),
        lambda: _keep_sample(collected, top, values),
        lambda: _keep_worst(collected, batch, top),
        lambda: collected.confidences.add(top),
    ]
    if collected.clusters is not None:
        clusters = collected.clusters
        tables.append(lambda: clusters.add(counted, bins, collected.rows))
    if collected.overlaps is not None:
        overlaps = collected.overlaps
        tables.append(lambda: overlaps.add(top, collected.rows))
    for _ in in_threads(lambda fill: fill(), tables):
        pass
    if collected.class_levels is not None and collected.by_class is not None:
        _count_predicted(collected.class_levels, collected.by_class, collected, batch, top)
    if collected.object_sizes is not None and batch.objectness is not None:
        objectness = np.asarray(batch.objectness)[top.rows()]
        collected.object_sizes.add(objectness, top.confidence, top.correct, top.weight)
    collected.samples += len(top.labels)


def _add_groups(collected: Collected, batch: Predictions, top: TopLabel, bins: Ints) -> None:
    """Count the samples of a block by predicted class and by the values of every group column."""
    if collected.by_class is not None and top.predicted is not None and collected.num_classes:
        collected.by_class.add(top.predicted, top, bins, collected.num_classes)
    else:
        collected.without_class.add(np.zeros_like(top.labels), top, bins, 1)
    for name, (levels, breakdown) in collected.groups.items():
        codes = levels.encode(np.asarray(batch.groups[name])[top.rows()])
        breakdown.add(codes, top, bins, len(levels.codes))


def _count_predicted(
    levels: Levels, by_class: Breakdown, collected: Collected, batch: Predictions, top: TopLabel
) -> None:
    """Add a block of confidences to the table of predicted classes, unless these are too many."""
    codes = levels.encode(batch.predicted[top.rows()], most=math.inf)
    if len(levels.codes) > MOST_LEVELS:
        drop_predicted(collected)
        return
    by_class.add(codes, top, base_bins(top.cells), len(levels.codes))


def _keep_worst(collected: Collected, batch: Predictions, top: TopLabel) -> None:
    errors = np.flatnonzero(~top.correct)
    collected.errors += len(errors)
    if not len(errors):
        return
    largest = collected.worst[-1].shortfall if len(collected.worst) == ERRORS_KEPT else np.inf
    shortfall = top.shortfall[errors]
    shortfall, errors = shortfall[shortfall < largest], errors[shortfall < largest]
    rows = top.rows()
    # Of equally confident errors the first ones stay, whatever the size of the batches.
    for index in errors[np.argsort(shortfall, kind="stable")[:ERRORS_KEPT]].tolist():
        row = int(rows[index])
        name = collected.rows + row if batch.ids is None else batch.ids[row].item()
        label: int | str | None = None if top.predicted is None else int(top.labels[index])
        predicted: int | str | None = None if top.predicted is None else int(top.predicted[index])
        if batch.predicted is not None:
            predicted = str(batch.predicted[row])
            label = None if batch.actual is None else str(batch.actual[row])
        position = _position_of(batch, top, index)
        error = WorstError(name, position, label, predicted, float(top.confidence[index]), float(top.shortfall[index]))
        collected.worst.append(error)
    collected.worst.sort(key=lambda error: error.shortfall)
    del collected.worst[ERRORS_KEPT:]


def _position_of(batch: Predictions, top: TopLabel, index: int) -> tuple[int, ...] | None:
    """Row and column of a pixel inside its image, or the number of a token in its sequence."""
    if batch.kind == "classification" or top.counted is None:
        return None
    position = int(np.nonzero(top.counted)[1][index])
    return tuple(int(i) for i in np.unravel_index(position, batch.labels.shape[1:]))


def _keep_sample(collected: Collected, top: TopLabel, values: Array | None) -> None:
    numbers = np.arange(collected.samples, collected.samples + len(top.labels))
    weight = () if top.weight is None else (top.weight,)
    columns = (top.confidence, top.correct, top.nll, top.brier, top.max_logit, *weight)
    collected.judged.add(numbers, lambda chosen_rows: tuple(column[chosen_rows] for column in columns))
    if values is not None:
        rows = values

        def take(chosen_rows: Ints) -> Columns:
            of_labels = top.labels[chosen_rows], top.rows()[chosen_rows] + collected.rows
            return top.take(rows)[chosen_rows], *of_labels, *(part[chosen_rows] for part in weight)

        collected.logits.add(numbers, take)
