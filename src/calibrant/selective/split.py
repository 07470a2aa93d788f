"""One reading of the predictions for the choice, one for the threshold: which sample is for what, and what is kept."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant._arrays import Array, class_rows
from calibrant.predictions import Predictions

SHARE = 1 / 3  # of the samples, for the choice
FEWEST = 150  # samples, below which nothing is chosen and all are for the threshold
ROWS_KEPT = 50_000
NUMBERS_KEPT = 2**25  # logits, for the choice
PIXELS = 250  # of an image at most, for the choice
_BLOCK = 2**16

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Kept:
    """Rows for the choice.

    Attributes:
        values: ``[n, C]``, logits or probabilities as the predictions hold them; half precision as float32.
        labels: ``[n]``.
        unit: ``[n]`` number of the sample that a row belongs to; for segmentation that of the image.
        places: how many rows an image would have if none were left out.
        groups: ``[n]`` text, or None.
    """

    values: Array
    labels: npt.NDArray[np.int64]
    unit: npt.NDArray[np.int64]
    groups: npt.NDArray[np.str_] | None
    places: int = 1


def draws(seed: int, start: int, count: int) -> Doubles:
    """Uniform random numbers of samples ``start`` to ``start + count``, the same whatever the batches are."""
    first, last = start // _BLOCK, (start + count - 1) // _BLOCK
    blocks = [np.random.default_rng([seed, number]).random(_BLOCK) for number in range(first, last + 1)]
    return np.concatenate(blocks)[start - first * _BLOCK :][:count]


def number_above(seed: int, count: int, share: float) -> int:
    """How many of the first ``count`` samples have a random number of at least ``share``."""
    return sum(int((draws(seed, s, min(_BLOCK, count - s)) >= share).sum()) for s in range(0, count, _BLOCK))


class Fingerprint:
    """A checksum by which the same predictions are known again: of all labels, and of the first batch's values."""

    def __init__(self) -> None:
        self.sum, self.rows = 0, 0

    def add(self, batch: Predictions) -> None:
        """Take in a batch."""
        if not self.rows:
            values = batch.logits if batch.holds == "logits" else batch.probabilities
            self.sum = zlib.crc32(np.ascontiguousarray(values[:1024]).tobytes())
        if batch.labels is not None:
            self.sum = zlib.crc32(np.ascontiguousarray(batch.labels).tobytes(), self.sum)
        self.rows += len(batch)

    def __str__(self) -> str:
        return f"{self.rows}:{self.sum:08x}"


def values_of(batch: Predictions) -> Array:
    """What a batch holds."""
    values: Array = batch.logits if batch.holds == "logits" else batch.probabilities
    return values


def for_choice(batches: Iterator[Predictions], seed: int, share: float, group: str | None) -> Kept:
    """The rows for the choice; of very many, a part."""
    parts: list[tuple[Any, ...]] = []
    start, kept, limit, places = 0, 0, share, 1
    most = ROWS_KEPT
    for batch in batches:
        u = draws(seed, start, len(batch))
        rows = np.flatnonzero(u < limit)
        if len(rows):
            values, labels = values_of(batch)[rows], batch.labels[rows]
            names = None if group is None else np.asarray(batch.groups[group]).astype(str)[rows]
            part = _positions(values, labels, rows + start, batch.ignore_index, names)
            parts.append((*part, u[part[2] - start]))
            kept += len(parts[-1][1])
            most = min(ROWS_KEPT, max(1000, NUMBERS_KEPT // values.shape[1]))
            places = labels[0].size
        start += len(batch)
        if kept > 2 * most:
            parts, limit = _thinned(parts, most)
            kept = len(parts[0][1])
    if not kept:
        raise ValueError(f"no sample that counts is among those for the choice: {start} are too few")
    values, labels, unit, names, _ = _joined(parts)
    step = _step(places)
    return Kept(values, labels, unit, names, -(-places // step))


def _step(places: int) -> int:
    """Every which position of an image is kept."""
    return -(-places // PIXELS)


def _positions(
    values: Array, labels: npt.NDArray[np.int64], units: npt.NDArray[np.int64], ignore_index: int | None, names: Any
) -> tuple[Any, ...]:
    """Rows ``[n, C]`` of the samples; of an image at most `PIXELS`, evenly spread over those that count."""
    unit = units
    if values.ndim > 2:
        places = labels[0].size
        z, y = class_rows(values), labels.reshape(-1)
        # Each image from its own first position on, so that all keep the same number.
        chosen = np.arange(len(y)).reshape(-1, places)[:, :: _step(places)].reshape(-1)
        z, y, unit = z[chosen], y[chosen], np.repeat(units, places)[chosen]
        names = None if names is None else np.repeat(names, places)[chosen]
    else:
        z, y = values, labels
    if ignore_index is not None:
        counted = y != ignore_index
        z, y, unit = z[counted], y[counted], unit[counted]
        names = None if names is None else names[counted]
    return z.astype(np.float64 if z.itemsize == 8 else np.float32, copy=False), y.astype(np.int64), unit, names


def _joined(parts: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    values, labels, unit, names, u = zip(*parts, strict=True)
    joined = None if names[0] is None else np.concatenate(names)
    return np.concatenate(values), np.concatenate(labels), np.concatenate(unit), joined, np.concatenate(u)


def _thinned(parts: list[tuple[Any, ...]], most: int) -> tuple[list[tuple[Any, ...]], float]:
    """Keep the samples with the smallest random numbers, and no others from here on."""
    values, labels, unit, names, u = _joined(parts)
    limit = float(np.partition(u, most)[most])  # rows of one image share theirs, and go together
    stay = np.flatnonzero(u < limit)
    kept = values[stay], labels[stay], unit[stay], None if names is None else names[stay], u[stay]
    return [kept], limit
