"""Logits and labels to fit on, from arrays, segmentation masks or predictions on disk: checked, a chunk at a time."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calibrant.predictions import Predictions

CHUNK = 2**20  # numbers per chunk: small enough for the cache, large enough to hide the calls
FLOOR = 1e-30  # of probabilities, whose logarithms are taken for logits
LARGEST = 1e100  # of logits: the squares of larger ones are no float64 any more
WIDE = 1e18  # of float32 logits: those beyond are computed with in float64, as their squares are no float32

Pair = tuple[Tensor, Tensor]


def as_tensor(values: Any) -> Tensor:
    """An array as a tensor that shares its memory; nobody here writes to it."""
    if isinstance(values, Tensor):
        return values.detach()
    array = np.asarray(values)
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        array = array.astype(np.float64)
    if not array.dtype.isnative or any(stride < 0 for stride in array.strides):
        array = array.astype(array.dtype.newbyteorder("="))  # what torch cannot share is copied
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.as_tensor(array)


def as_logits(logits: Any) -> Tensor:
    """Check that logits are ``[N, C]`` or ``[N, C, ...]`` and floating point; half precision becomes float32."""
    z = as_tensor(logits)
    if not z.is_floating_point() or z.dim() < 2 or not z.numel() or z.shape[1] < 2:
        asked = "floating point [N, C] or [N, C, ...] with N >= 1 and C >= 2"
        raise ValueError(f"logits must be {asked}, got {z.dtype} {list(z.shape)}")
    return z if z.dtype in (torch.float32, torch.float64) else z.float()


def logits_of(batch: Predictions) -> Tensor:
    """The logits of predictions; of probabilities, their logarithms in float64."""
    if batch.holds == "confidence":
        raise ValueError("logits or probabilities of every class are needed, got confidences alone")
    if batch.holds == "logits":
        return as_logits(batch.logits)
    return as_logits(batch.probabilities).double().clamp(min=FLOOR).log()


def rows_of(z: Tensor) -> Tensor:
    """Logits ``[N, C, ...]`` as one row per position, ``[n, C]``."""
    return z if z.dim() == 2 else z.flatten(2).movedim(1, 2).reshape(-1, z.shape[1])


def check_finite(z: Tensor) -> float:
    """Raise if a logit is NaN, infinite or beyond `LARGEST`; gives the largest absolute value."""
    low, high = (float(end) for end in z.aminmax())  # NaN survives both
    if not math.isfinite(low) or not math.isfinite(high):
        raise ValueError("logits must be finite, got NaN or infinity")
    size = max(-low, high)
    if size > LARGEST:
        raise ValueError(f"logits must lie between -{LARGEST:g} and {LARGEST:g}, got one of size {size:g}")
    return size


def chunks_of(z: Tensor) -> Iterator[Tensor]:
    """Parts of ``[N, C, ...]`` along its first dimension, of about `CHUNK` numbers."""
    yield from z.split(max(1, CHUNK // z[0].numel()))


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
        z, y = as_logits(logits), as_tensor(labels)
        shape = [z.shape[0], *z.shape[2:]]
        if list(y.shape) != shape or y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
            raise ValueError(f"labels must be whole numbers {shape}, got {y.dtype} {list(y.shape)}")
        self._source, self.num_classes, self.ignore_index = (z, y), z.shape[1], ignore_index

    def __iter__(self) -> Iterator[Pair]:
        counted = 0
        for z, y in self._parts():
            z, y = rows_of(z), y.reshape(-1).long()
            if self.ignore_index is not None:
                keep = y != self.ignore_index
                if not bool(keep.all()):
                    z, y = z[keep], y[keep]
            if not len(y):
                continue
            if not self._checked:
                self._check(z, y)
            z = z.double() if self._wide else z
            counted += len(y)
            yield z, y
        if not counted:
            raise ValueError(f"labels must have one that counts, got {self.ignore_index} everywhere")
        self._checked = True
        self.passes += 1

    def _parts(self) -> Iterator[Pair]:
        if not isinstance(self._source, Predictions):
            z, y = self._source
            size = max(1, CHUNK // z[0].numel())
            yield from zip(z.split(size), y.to(z.device).split(size), strict=True)
            return
        for batch in self._source.batches():
            y = as_tensor(batch.labels)
            z = logits_of(batch)
            size = max(1, CHUNK // z[0].numel())
            yield from zip(z.split(size), y.split(size), strict=True)

    def _check(self, z: Tensor, y: Tensor) -> None:
        self._wide |= check_finite(z) > WIDE
        low, high = int(y.min()), int(y.max())
        if low < 0 or high >= self.num_classes:
            allowed = f"0..{self.num_classes - 1}" + ("" if self.ignore_index is None else f" or {self.ignore_index}")
            raise ValueError(f"labels must lie in {allowed}, got {low if low < 0 else high}")

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
