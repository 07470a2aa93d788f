"""Logits or probabilities with labels, checked and handed out in blocks of float64, so that memory stays bounded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from calibrant._arrays import Array, ArrayLike, Doubles, Precision, is_half
from calibrant._validation import Bools, Ints, as_host_array, check_choice, position

Kind: TypeAlias = Literal["logits", "probabilities"]

ENTRIES = 1 << 20  # of a block: 8 MB in float64


class Block(NamedTuple):
    """A part of the data as float64, classes along dimension 1: ``[n, C]`` or ``[n, C, s]``.

    ``labels`` is ``[n]`` or ``[n, s]``, with 0 at positions that do not count; ``counted`` is None if all do.
    """

    scores: Doubles
    labels: Ints | None
    counted: Bools | None
    rows: slice
    inner: slice


@dataclass(frozen=True, eq=False)
class Scored:
    """Checked scores ``[N, C, ...]`` of every class and, where given, labels ``[N, ...]``."""

    scores: Array
    labels: Ints | None
    counted: Bools | None
    kind: Kind
    precision: Precision

    @property
    def classes(self) -> int:
        """C, the number of classes."""
        return int(self.scores.shape[1])

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the labels, ``(N, ...)``."""
        return (*self.scores.shape[:1], *self.scores.shape[2:])

    @property
    def size(self) -> int:
        """The number of positions that count."""
        return int(np.prod(self.shape)) if self.counted is None else int(np.count_nonzero(self.counted))

    def blocks(self) -> Iterator[Block]:
        """The data in parts of bounded size, each one checked: finite, and probabilities sum to 1."""
        flat = len(self.scores.shape) == 2
        spots = 1 if flat else int(np.prod(self.scores.shape[2:]))
        step = max(1, ENTRIES // (self.classes * spots))
        wide = spots if step > 1 else max(1, ENTRIES // self.classes)
        for start in range(0, len(self.scores), step):
            rows = slice(start, start + step)
            for left in range(0, spots, wide):
                inner = slice(left, min(left + wide, spots))
                part = self.scores[rows]
                z = (part if flat else part.reshape(*part.shape[:2], -1)[:, :, inner]).astype(np.float64)
                _check(z, self, rows, inner)
                yield Block(z, self._part(self.labels, rows, inner), self._part(self.counted, rows, inner), rows, inner)

    def _part(self, x: Array | None, rows: slice, inner: slice) -> Array | None:
        if x is None:
            return None
        return x[rows] if x.ndim == 1 else x.reshape(len(x), -1)[rows, inner]


def as_scored(
    scores: ArrayLike, labels: ArrayLike | None, *, kind: Kind = "logits", ignore_index: int | None = None
) -> Scored:
    """Check shapes, types and labels; ``kind`` also names the argument in errors."""
    check_choice("kind", kind, ("logits", "probabilities"))
    z, precision = as_host_array(kind, scores)
    if z.dtype.kind not in "fiu" or len(z.shape) < 2 or z.shape[1] < 2 or 0 in z.shape:
        requirement = "real numbers [N, C] or [N, C, ...] with N at least 1 and C at least 2"
        raise ValueError(f"{kind} must be {requirement}, got {z.dtype} {list(z.shape)}")
    if labels is None:
        return Scored(z, None, None, kind, precision)
    shape = (z.shape[0], *z.shape[2:])
    y, counted = label_array(labels, shape, int(z.shape[1]), ignore_index)
    return Scored(z, y, counted, kind, precision)


def label_array(
    labels: ArrayLike, shape: tuple[int, ...], classes: int, ignore_index: int | None
) -> tuple[Ints, Bools | None]:
    """Labels as int64 with 0 at ignored positions, and the mask of the others (None if all count)."""
    y, _ = as_host_array("labels", labels)
    check_labels(y, shape, classes, ignore_index)
    counted = None if ignore_index is None else y != ignore_index
    if counted is None or counted.all():
        return y.astype(np.int64), None
    if not counted.any():
        raise ValueError(f"labels must have a position that counts, got {ignore_index} everywhere")
    return np.where(counted, y, 0).astype(np.int64), counted


def check_labels(labels: Array, shape: tuple[int, ...], classes: int, ignore_index: int | None) -> None:
    """Raise unless labels are whole numbers of classes, or to be ignored, in an array of this shape."""
    if labels.dtype.kind not in "iu" or labels.shape != shape:
        raise ValueError(f"labels must be whole numbers {list(shape)}, got {labels.dtype} {list(labels.shape)}")
    outside = (labels < 0) | (labels >= classes)
    if ignore_index is not None:
        outside &= labels != ignore_index
    if outside.any():
        index = int(np.argmax(outside))
        allowed = f"in 0..{classes - 1}" + ("" if ignore_index is None else f" or {ignore_index}")
        raise ValueError(f"labels must be {allowed}, got {labels.reshape(-1)[index]} {position(index, labels.shape)}")


def probabilities(block: Block, kind: Kind) -> Doubles:
    """The probabilities of a block."""
    if kind == "probabilities":
        return block.scores
    exps = np.exp(block.scores - block.scores.max(1, keepdims=True))
    return exps / exps.sum(1, keepdims=True)


def _check(z: Doubles, data: Scored, rows: slice, inner: slice) -> None:
    if not np.isfinite(z.sum()):
        _refuse(~np.isfinite(z), z, "finite", data, rows, inner)
    if data.kind == "probabilities":
        slack = 1e-2 if is_half(data.precision) else 1e-3
        if z.min() < 0 or z.max() > 1 + slack:
            _refuse((z < 0) | (z > 1 + slack), z, "between 0 and 1", data, rows, inner)
        total = z.sum(1, keepdims=True)
        if np.abs(total - 1).max() > slack:
            _refuse(np.abs(total - 1) > slack, total, f"rows that sum to 1 within {slack:g}", data, rows, inner)


def _refuse(bad: Bools, z: Doubles, requirement: str, data: Scored, rows: slice, inner: slice) -> None:
    """Name the first sample (and position) with a value that is not as asked; a finite sum may also just overflow."""
    if not bad.any():
        return
    first = np.argwhere(bad)[0].tolist()
    spot = inner.start + first[2] if len(first) == 3 else 0
    index = (rows.start + first[0]) * int(np.prod(data.shape[1:])) + spot
    raise ValueError(f"{data.kind} must be {requirement}, got {z[tuple(first)]:g} {position(index, data.shape)}")
