"""Which samples are for the choice and which for the threshold; one reading of the predictions for each."""

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
from calibrant.selective.calibration_check import CalibrationCheck
from calibrant.selective.policy_thresholds import ScoredSamples
from calibrant.selective.reference import Reference
from calibrant.selective.rule import Rule, decision

SHARE = 0.2  # of the samples, for the choice, where that is enough of them
PLAN_SHARE = 0.1  # where there is nothing to choose, and they only plan the tests
ENOUGH, PLAN_ENOUGH = 50, 20  # samples
MOST_SHARE = 1 / 3
FEWEST = 150  # samples, below which nothing is chosen and all are for the threshold
MOST_ROWS = 50_000  # for the choice
MOST_NUMBERS = 2**25  # logits, for the choice
MOST_PIXELS = 250  # of an image, for the choice
_STREAM = 0x5BA51C  # any number that no one takes for a seed
_BLOCK = 2**16


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
    """The samples for the choice; ``places`` is how many rows an image would have if none were left out."""

    rows: ChoiceRows
    places: int

    @property
    def samples(self) -> int:
        """How many samples, or images, the rows belong to."""
        return len(np.unique(self.rows.unit))


def share_for_choice(samples: int, *, plans_only: bool = False) -> float:
    """The share of the samples that calibrator, score and the order of the tests are chosen on.

    Example:
        >>> from calibrant.selective.holdout import share_for_choice
        >>> (
        ...     [round(share_for_choice(samples), 2) for samples in (150, 200, 1000)],
        ...     share_for_choice(1000, plans_only=True),
        ... )
        ([0.33, 0.25, 0.2], 0.1)
    """
    share, enough = (PLAN_SHARE, PLAN_ENOUGH) if plans_only else (SHARE, ENOUGH)
    return max(share, min(MOST_SHARE, enough / samples))


def draws(seed: int, start: int, count: int) -> Doubles:
    """Uniform random numbers of samples ``start`` to ``start + count``, the same whatever the batches are.

    They are of a stream of their own: ``default_rng(seed)`` may have made the samples, which the split must not follow.
    """
    first, last = start // _BLOCK, (start + count - 1) // _BLOCK
    blocks = [np.random.default_rng([_STREAM, seed, number]).random(_BLOCK) for number in range(first, last + 1)]
    return np.concatenate(blocks)[start - first * _BLOCK :][:count]


def count_for_threshold(seed: int, count: int, share: float) -> int:
    """How many of the first ``count`` samples are for the threshold, where a ``share`` is for the choice."""
    return sum(int((draws(seed, s, min(_BLOCK, count - s)) >= share).sum()) for s in range(0, count, _BLOCK))


class Fingerprint:
    """A checksum by which the same predictions are known again: of all labels, and of the first batch's values."""

    def __init__(self) -> None:
        self.sum, self.rows = 0, 0

    def add(self, batch: Predictions) -> None:
        """Take in a batch."""
        if not self.rows:
            self.sum = zlib.crc32(np.ascontiguousarray(_values(batch)[:1024]).tobytes())
        if batch.labels is not None:
            self.sum = zlib.crc32(np.ascontiguousarray(batch.labels).tobytes(), self.sum)
        self.rows += len(batch)

    def __str__(self) -> str:
        return f"{self.rows}:{self.sum:08x}"


def _values(batch: Predictions) -> Array:
    values: Array = batch.logits if batch.holds == "logits" else batch.probabilities
    return values


def _group_names(batch: Predictions, group: str | None, rows: Ints) -> npt.NDArray[np.str_]:
    return np.zeros(len(rows), np.str_) if group is None else np.asarray(batch.groups[group]).astype(str)[rows]


def for_choice(batches: Iterable[Predictions], seed: int, share: float, group: str | None, digits: Digits) -> ForChoice:
    """The samples for the choice; of very many, a part. ``digits`` sees all probabilities."""
    parts: list[ChoiceRows] = []
    start, size, limit, places = 0, 0, share, 1
    most = MOST_ROWS
    for batch in batches:
        draw = draws(seed, start, len(batch))
        if batch.holds == "probabilities":
            digits.add(batch.probabilities)
        rows = np.flatnonzero(draw < limit)
        if len(rows):
            values, labels = _values(batch)[rows], batch.labels[rows]
            samples = ChoiceRows(values, labels, rows + start, draw[rows], _group_names(batch, group, rows))
            parts.append(_counted_positions(samples, batch.ignore_index))
            size += len(parts[-1].labels)
            most = min(MOST_ROWS, max(1000, MOST_NUMBERS // values.shape[1]))
            places = labels[0].size
        start += len(batch)
        if size > 2 * most:
            joined = _joined(parts)
            limit = float(np.partition(joined.draw, most)[most])  # rows of one image share theirs, and go together
            parts = [joined.take(joined.draw < limit)]
            size = len(parts[0].labels)
    if not size:
        raise ValueError(f"no sample that counts is among those for the choice: {start} are too few")
    return ForChoice(_joined(parts), -(-places // _stride(places)))


def _stride(places: int) -> int:
    """The stride between kept positions of an image."""
    return -(-places // MOST_PIXELS)


def _counted_positions(samples: ChoiceRows, ignore_index: int | None) -> ChoiceRows:
    """Rows ``[n, C]`` of the samples; of an image at most `MOST_PIXELS`, evenly spread over those that count."""
    rows = samples
    if samples.values.ndim > 2:
        places = samples.labels[0].size
        # Each image from its own first position on, so that all keep the same number.
        pixels = np.arange(samples.labels.size).reshape(-1, places)[:, :: _stride(places)].reshape(-1)
        image, values = pixels // places, class_rows(samples.values)[pixels]
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
    judged = (_judge(rule, values[rows], labels[rows]) for rows in row_slices(len(values), values.shape[1]))
    parts = [(score, correct, predicted) for score, correct, _, _, predicted in judged]
    score, correct, predicted = (np.concatenate(column) for column in zip(*parts, strict=True))
    distinct, image = np.unique(unit, return_inverse=True)
    return ScoredSamples(score, correct, groups, image, len(distinct), choice.places, predicted, labels)


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

    The fingerprint takes in every batch, the check the confidences of these samples, the reference what they look like.
    """
    start = 0
    for batch in batches:
        fingerprint.add(batch)
        rows = np.flatnonzero(draws(seed, start, len(batch)) >= share)
        values, labels, names = _values(batch)[rows], batch.labels[rows], _group_names(batch, group, rows)
        first = 0
        for part in cache_chunks(values) if len(rows) else ():
            check_finite(part)
            y = labels[first : first + len(part)].reshape(-1)
            score, correct, sure, before, predicted = _judge(rule, class_rows(part), y)
            places = len(y) // len(part)
            counted = np.ones(len(y), dtype=bool) if batch.ignore_index is None else y != batch.ignore_index
            check.add((before[0][counted], before[1][counted]), (sure[counted], correct[counted]))
            image = np.repeat(np.arange(len(part)), places)[counted]
            own = names[first : first + len(part)][image]
            if rule.kind == "classification":
                reference.add(score[counted], sure[counted], predicted[counted], own)
            classes = () if rule.promise.is_plain else (predicted[counted], y[counted])
            yield ScoredSamples(score[counted], correct[counted], own, image, len(part), places, *classes)
            first += len(part)
        start += len(batch)


def _judge(rule: Rule, values: Array, labels: Array) -> tuple[Doubles, Bools, Doubles, tuple[Doubles, Bools], Ints]:
    """Of each row the score, whether it is right, its confidence, the latter two uncalibrated, and its class."""
    rows = values.astype(np.float64)
    answer = decision(rule, NumpyOps(), rows)
    sure, correct = np.clip(answer.confidence[:, 0], 0.0, 1.0), answer.label[:, 0] == labels
    if rule.calibrator is None:
        return answer.score[:, 0], correct, sure, (sure, correct), answer.label[:, 0]
    z = rows if rule.takes == "logits" else log_probabilities(rows, rule.floor)
    before = np.clip(msp_formula(NumpyOps(), z)[:, 0], 0.0, 1.0), rows.argmax(1) == labels
    return answer.score[:, 0], correct, sure, before, answer.label[:, 0]


def kept_for_choice(values: Array, labels: Ints, unit: Ints, samples: int, seed: int = 0) -> ForChoice | None:
    """Of rows of numbered samples, those that `for_choice` would take; None where it would be too few.

    ``samples`` is how many there were, of which some may not have been kept.
    """
    if not len(unit) or len(np.unique(unit)) < FEWEST:
        return None
    draw = np.empty(len(unit))
    for block in np.unique(unit // _BLOCK).tolist():
        inside = unit // _BLOCK == block
        draw[inside] = draws(seed, block * _BLOCK, _BLOCK)[unit[inside] - block * _BLOCK]
    rows = ChoiceRows(values, labels, unit, draw, np.zeros(len(unit), np.str_)).take(draw < share_for_choice(samples))
    precision = np.float64 if values.itemsize == 8 else np.float32
    return ForChoice(rows._replace(values=rows.values.astype(precision, copy=False)), 1)
