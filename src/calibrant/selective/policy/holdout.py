"""The samples of the choice and those of the threshold: one pass over the predictions for each."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from calibrant._arrays import Array, cache_chunks, class_rows, row_slices
from calibrant._validation import Bools, Ints, check_finite
from calibrant.metrics import Doubles
from calibrant.posthoc import NumpyOps, msp_formula
from calibrant.predictions import Digits, Predictions, log_probabilities
from calibrant.selective.policy.decision import decision
from calibrant.selective.policy.evidence import CalibrationCheck
from calibrant.selective.policy.reference import Reference
from calibrant.selective.policy.rule import Rule
from calibrant.selective.split import BLOCK, FEWEST_FOR_CHOICE, draws, share_for_choice
from calibrant.selective.thresholds.samples import ScoredSamples

MOST_ROWS = 50_000  # for the choice
MOST_NUMBERS = 2**25  # logits, for the choice
MOST_PIXELS = 250  # of an image, for the choice


class ChoiceRows(NamedTuple):
    """Rows for the choice.

    Attributes:
        values: ``[n, C]``, logits or probabilities as the predictions hold them; half precision as float32.
        labels: ``[n]``.
        unit: ``[n]`` number of the sample that a row belongs to; for segmentation that of the image.
        draw: ``[n]`` the random number of that sample.
        groups: ``[n]`` the name of its group, empty where there are none.
    """

    values: Array
    labels: Ints
    unit: Ints
    draw: Doubles
    groups: npt.NDArray[np.str_]

    def take(self, rows: Ints | Bools) -> ChoiceRows:
        """Some of the rows."""
        columns: tuple[Any, ...] = self
        return ChoiceRows(*(column[rows] for column in columns))


@dataclass(frozen=True, eq=False)
class ForChoice:
    """The samples for the choice; ``image_size`` is how many rows an image would have if none were left out."""

    rows: ChoiceRows
    image_size: int

    @property
    def samples(self) -> int:
        """How many samples, or images, the rows belong to."""
        return len(np.unique(self.rows.unit))


class Fingerprint:
    """A checksum that recognises the same predictions: of all labels, and of the first batch's values."""

    def __init__(self) -> None:
        self.sum, self.rows = 0, 0

    def add(self, batch: Predictions) -> None:
        """Take in a batch."""
        if not self.rows:
            self.sum = zlib.crc32(np.ascontiguousarray(getattr(batch, batch.holds)[:1024]).tobytes())
        if batch.labels is not None:
            self.sum = zlib.crc32(np.ascontiguousarray(batch.labels).tobytes(), self.sum)
        self.rows += len(batch)

    def __str__(self) -> str:
        return f"{self.rows}:{self.sum:08x}"


def _group_names(batch: Predictions, group: str | None, rows: Ints) -> npt.NDArray[np.str_]:
    return np.zeros(len(rows), np.str_) if group is None else np.asarray(batch.groups[group]).astype(str)[rows]


def for_choice(batches: Iterable[Predictions], seed: int, share: float, group: str | None, digits: Digits) -> ForChoice:
    """The samples for the choice; of very many, a part. ``digits`` sees all probabilities."""
    parts: list[ChoiceRows] = []
    start, size, limit, image_size = 0, 0, share, 1
    most = MOST_ROWS
    for batch in batches:
        draw = draws(seed, start, len(batch))
        if batch.holds == "probabilities":
            digits.add(batch.probabilities)
        rows = np.flatnonzero(draw < limit)
        if len(rows):
            values, labels = getattr(batch, batch.holds)[rows], batch.labels[rows]
            samples = ChoiceRows(values, labels, rows + start, draw[rows], _group_names(batch, group, rows))
            parts.append(_counted_positions(samples, batch.ignore_index))
            size += len(parts[-1].labels)
            most = min(MOST_ROWS, max(1000, MOST_NUMBERS // values.shape[1]))
            image_size = labels[0].size
        start += len(batch)
        if size > 2 * most:
            joined = _joined(parts)
            limit = float(np.partition(joined.draw, most)[most])  # rows of one image share theirs, and go together
            parts = [joined.take(joined.draw < limit)]
            size = len(parts[0].labels)
    if not size:
        raise ValueError(f"no sample that counts is among those for the choice: {start} are too few")
    return ForChoice(_joined(parts), -(-image_size // _stride(image_size)))


def _stride(image_size: int) -> int:
    """The stride between kept positions of an image."""
    return -(-image_size // MOST_PIXELS)


def _counted_positions(samples: ChoiceRows, ignore_index: int | None) -> ChoiceRows:
    """Rows ``[n, C]`` of the samples; of an image at most `MOST_PIXELS`, evenly spread over those that count."""
    rows = samples
    if samples.values.ndim > 2:
        image_size = samples.labels[0].size
        # Each image from its own first position on, so that all keep the same number.
        pixels = np.arange(samples.labels.size).reshape(-1, image_size)[:, :: _stride(image_size)].reshape(-1)
        image, values = pixels // image_size, class_rows(samples.values)[pixels]
        rows = ChoiceRows(
            values, samples.labels.reshape(-1)[pixels], samples.unit[image], samples.draw[image], samples.groups[image]
        )
    counted = rows.labels != ignore_index
    if not counted.all():
        rows = rows.take(counted)
    precision = np.float64 if rows.values.itemsize == 8 else np.float32
    return rows._replace(values=rows.values.astype(precision, copy=False), labels=rows.labels.astype(np.int64))


def _joined(parts: list[ChoiceRows]) -> ChoiceRows:
    columns: Iterable[Any] = zip(*parts, strict=True)
    return ChoiceRows(*(np.concatenate(column) for column in columns))


def score_choice(rule: Rule, choice: ForChoice) -> ScoredSamples:
    """The scores of the samples for the choice, by which the order of the tests is planned."""
    values, labels, unit, _, groups = choice.rows
    parts = [_judge(rule, values[rows], labels[rows]) for rows in row_slices(len(values), values.shape[1])]
    score, correct, predicted = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("score", "correct", "predicted")
    )
    distinct, image = np.unique(unit, return_inverse=True)
    return ScoredSamples(score, correct, groups, image, len(distinct), choice.image_size, predicted, labels)


def score_for_threshold(
    rule: Rule,
    batches: Iterable[Predictions],
    seed: int,
    share: float,
    group: str | None,
    fingerprint: Fingerprint,
    check: CalibrationCheck,
    reference: Reference,
) -> Iterator[ScoredSamples]:
    """The scores of the samples for the threshold, some at a time.

    Every batch is added to the fingerprint; these samples are added to the check and to the reference.
    """
    start = 0
    for batch in batches:
        fingerprint.add(batch)
        rows = np.flatnonzero(draws(seed, start, len(batch)) >= share)
        values, labels, names = getattr(batch, batch.holds)[rows], batch.labels[rows], _group_names(batch, group, rows)
        first = 0
        for part in cache_chunks(values) if len(rows) else ():
            check_finite(part)
            y = labels[first : first + len(part)].reshape(-1)
            image_size = len(y) // len(part)
            counted = np.ones(len(y), dtype=bool) if batch.ignore_index is None else y != batch.ignore_index
            judged = _judge(rule, class_rows(part), y).take(counted)
            check.add(judged.uncalibrated, (judged.confidence, judged.correct))
            image = np.repeat(np.arange(len(part)), image_size)[counted]
            groups = names[first : first + len(part)][image]
            if rule.kind == "classification":
                reference.add(judged.score, judged.confidence, judged.predicted, groups)
            classes = () if rule.promise.is_plain else (judged.predicted, y[counted])
            yield ScoredSamples(judged.score, judged.correct, groups, image, len(part), image_size, *classes)
            first += len(part)
        start += len(batch)


class _JudgedRows(NamedTuple):
    """Rows ``[n]`` as the policy judges them, and confidence and correctness without its calibrator."""

    score: Doubles
    correct: Bools
    confidence: Doubles
    predicted: Ints
    uncalibrated: tuple[Doubles, Bools]

    def take(self, rows: Bools) -> _JudgedRows:
        confidence, correct = self.uncalibrated
        columns = (self.score[rows], self.correct[rows], self.confidence[rows], self.predicted[rows])
        return _JudgedRows(*columns, (confidence[rows], correct[rows]))


def _judge(rule: Rule, values: Array, labels: Array) -> _JudgedRows:
    rows = values.astype(np.float64)
    answer = decision(rule, NumpyOps(), rows)
    confidence, correct = np.clip(answer.confidence[:, 0], 0.0, 1.0), answer.label[:, 0] == labels
    uncalibrated = confidence, correct
    if rule.calibrator is not None:
        z = rows if rule.takes == "logits" else log_probabilities(rows, rule.floor)
        uncalibrated = np.clip(msp_formula(NumpyOps(), z)[:, 0], 0.0, 1.0), rows.argmax(1) == labels
    return _JudgedRows(answer.score[:, 0], correct, confidence, answer.label[:, 0], uncalibrated)


def take_for_choice(values: Array, labels: Ints, unit: Ints, samples: int, seed: int = 0) -> ForChoice | None:
    """Those rows of numbered samples that `for_choice` would take; None where they would be too few.

    ``samples`` is how many there were, of which some may not have been kept.
    """
    if not len(unit) or len(np.unique(unit)) < FEWEST_FOR_CHOICE:
        return None
    draw = np.empty(len(unit))
    for block in np.unique(unit // BLOCK).tolist():
        inside = unit // BLOCK == block
        draw[inside] = draws(seed, block * BLOCK, BLOCK)[unit[inside] - block * BLOCK]
    rows = ChoiceRows(values, labels, unit, draw, np.zeros(len(unit), np.str_)).take(draw < share_for_choice(samples))
    precision = np.float64 if values.itemsize == 8 else np.float32
    return ForChoice(rows._replace(values=rows.values.astype(precision, copy=False)), 1)
