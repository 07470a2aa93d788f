"""Logits and labels to fit on, from arrays, segmentation masks or predictions on disk: checked, a chunk at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant._arrays import Array, as_numpy, class_rows, row_slices
from calibrant._validation import as_logits, check_finite
from calibrant.metrics import is_large
from calibrant.predictions import Predictions

FLOOR = 1e-30  # of probabilities, whose logarithms are taken for logits
WIDE = 1e18  # of float32 logits: those beyond are computed with in float64, as their squares are no float32

Pair = tuple[Array, npt.NDArray[np.int64]]


def logits_of(batch: Predictions) -> Array:
    """The logits of predictions; of probabilities, their logarithms in float64."""
    if batch.holds == "confidence":
        raise ValueError("logits or probabilities of every class are needed, got confidences alone")
    if batch.holds == "logits":
        return as_logits(batch.logits)
    return np.log(np.maximum(as_logits(batch.probabilities).astype(np.float64), FLOOR))


class Stream:
    """Logits ``[n, C]`` and labels ``[n]`` in chunks, as often as they are asked for.

    Args:
        logits: ``[N, C]`` or ``[N, C, ...]``, or predictions, which bring their labels along and may be on disk.
        labels: ``[N]`` or ``[N, ...]`` whole numbers.
        ignore_index: a label that counts nowhere.

    Attributes:
        num_classes: C.
        passes: how often all chunks have been read.
    """

    def __init__(self, logits: Any, labels: Any = None, *, ignore_index: int | None = None) -> None:
        self.passes = 0
        self._checked = self._wide = False
        if isinstance(logits, Predictions):
            self._source: Predictions | Pair = _fittable(logits, labels)
            self.num_classes = int(logits.num_classes)
            self.ignore_index = logits.ignore_index if ignore_index is None else ignore_index
            return
        if labels is None:
            raise ValueError("labels are needed to fit: give logits and labels, or Predictions, which hold both")
        z, (y, _) = as_logits(logits), as_numpy("labels", labels)
        shape = [z.shape[0], *z.shape[2:]]
        if list(y.shape) != shape or y.dtype.kind not in "iu":
            raise ValueError(f"labels must be whole numbers {shape}, got {y.dtype} {list(y.shape)}")
        self._source, self.num_classes, self.ignore_index = (z, y), z.shape[1], ignore_index

    def __iter__(self) -> Iterator[Pair]:
        counted = 0
        for z, y in self._parts():
            z, y = class_rows(z), y.reshape(-1).astype(np.int64, copy=False)
            if self.ignore_index is not None:
                keep = y != self.ignore_index
                if not keep.all():
                    z, y = z[keep], y[keep]
            if not len(y):
                continue
            if not self._checked:
                self._check(z, y)
            z = z.astype(np.float64) if self._wide else z
            counted += len(y)
            yield z, y
        if not counted:
            raise ValueError(f"labels must have one that counts, got {self.ignore_index} everywhere")
        self._checked = True
        self.passes += 1

    def _parts(self) -> Iterator[Pair]:
        if isinstance(self._source, Predictions):
            pairs: Any = ((logits_of(batch), batch.labels) for batch in self._source.batches())
        else:
            pairs = [self._source]
        for z, y in pairs:
            for rows in row_slices(len(z), math.prod(z.shape[1:])):
                yield z[rows], y[rows]

    def _check(self, z: Array, y: Array) -> None:
        self._wide |= check_finite(z) > WIDE
        low, high = int(y.min()), int(y.max())
        if low < 0 or high >= self.num_classes:
            allowed = f"0..{self.num_classes - 1}" + ("" if self.ignore_index is None else f" or {self.ignore_index}")
            raise ValueError(f"labels must lie in {allowed}, got {low if low < 0 else high}")

    @property
    def large(self) -> bool:
        """Whether there are so many logits that compiled passes pay."""
        if isinstance(self._source, Predictions):
            return is_large(len(self._source) * self.num_classes)
        return is_large(self._source[0].size)

    def sample(self, rows: int) -> Pair:
        """About ``rows`` rows spread over the first chunk's, for a first look."""
        z, y = next(iter(self))
        step = max(1, len(y) // rows)
        return z[::step], y[::step]


def _fittable(predictions: Predictions, labels: Any) -> Predictions:
    if labels is not None:
        raise ValueError("labels are part of the predictions: give one or the other")
    if predictions.split == "test":
        raise ValueError("nothing is fitted on test data: these predictions are marked split='test'")
    if not predictions.labelled:
        raise ValueError("a fit needs labels, and these predictions have none")
    if predictions.holds == "confidence":
        raise ValueError("a fit needs logits or probabilities of every class, got confidences alone")
    return predictions
