r"""Metrics of every class's probability: proper scores, class-wise ECE, and the top label that other metrics take.

With the probabilities p_k of C classes (softmax of the logits, in float64) and the label y:

.. math:: \mathrm{NLL} = \frac1N \sum_n -\log p_{n y_n}, \qquad
          \mathrm{Brier} = \frac1N \sum_n \sum_k (p_{nk} - [k = y_n])^2 .

Nothing guesses whether numbers are logits or probabilities: ``kind`` says so. They are checked and handed out in blocks
of float64 (`Scored`), so that memory stays bounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from calibrant.base.arrays import Array, ArrayLike, Doubles, Precision, is_half
from calibrant.base.checks import Bools, Ints, as_host_array, check_choice, position
from calibrant.metrics.calibration import bin_edges

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
        raise ValueError(f"labels must not all be ignored, got {ignore_index} everywhere")
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


def nll(logits: ArrayLike, labels: ArrayLike, *, kind: Kind = "logits", ignore_index: int | None = None) -> float:
    """Mean negative log-likelihood of the labels, in nats.

    Args:
        logits: ``[N, C]`` or ``[N, C, ...]``.
        labels: ``[N]`` or ``[N, ...]``, from 0 to C - 1.
        kind: ``"logits"``, or ``"probabilities"``: rows must sum to 1 within 1e-3 (1e-2 in half precision) and are
            taken as they are.
        ignore_index: a label whose positions are left out.

    Returns:
        The mean, 0 or more (infinite if a label has probability 0); lower is better.

    Example:
        >>> from calibrant.metrics import nll
        >>> nll([[0.5, 0.5], [0.25, 0.75]], [0, 1], kind="probabilities")  # (log 2 + log 4/3) / 2
        0.4904146265058631

    Reference:
        [Guo2017] Eq. 6.
    """
    data = as_scored(logits, labels, kind=kind, ignore_index=ignore_index)
    return _mean(data, _label_nll)


def brier(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    scale: Literal["sum", "half", "mean"] = "sum",
    kind: Kind = "logits",
    ignore_index: int | None = None,
) -> float:
    """Brier score: the mean squared distance of the probabilities from the one-hot label.

    Args:
        logits: ``[N, C]`` or ``[N, C, ...]``.
        labels: ``[N]`` or ``[N, ...]``, from 0 to C - 1.
        scale: ``"sum"`` over the classes (0 to 2), ``"half"`` of it (0 to 1), or ``"mean"`` over the classes.
        kind: ``"logits"`` or ``"probabilities"``, as for `nll`.
        ignore_index: a label whose positions are left out.

    Returns:
        The score; lower is better.

    Example:
        >>> from calibrant.metrics import brier
        >>> brier([[0.5, 0.5], [0.25, 0.75]], [0, 1], kind="probabilities")  # (1/2 + 1/8) / 2
        0.3125

    Reference:
        [Brier1950] Eq. 2.
    """
    check_choice("scale", scale, ("sum", "half", "mean"))
    data = as_scored(logits, labels, kind=kind, ignore_index=ignore_index)
    share = {"sum": 1, "half": 2, "mean": data.classes}[scale]
    return _mean(data, _label_brier) / share


@overload
def top_label(logits: ArrayLike, labels: None = None, *, kind: Kind = "logits") -> tuple[Doubles, Ints]: ...


@overload
def top_label(logits: ArrayLike, labels: ArrayLike, *, kind: Kind = "logits") -> tuple[Doubles, Ints, Bools]: ...


def top_label(
    logits: ArrayLike, labels: ArrayLike | None = None, *, kind: Kind = "logits"
) -> tuple[npt.NDArray[np.generic], ...]:
    """The largest probability and its class, which the calibration and selective metrics take.

    Args:
        logits: ``[N, C]`` or ``[N, C, ...]``.
        labels: ``[N]`` or ``[N, ...]``, optional.
        kind: ``"logits"`` or ``"probabilities"``, as for `nll`.

    Returns:
        Confidence (float64, never above 1) and predicted class (int64, of equal maxima the first), and with labels
        whether it is right (bool), each ``[N]`` or ``[N, ...]``.

    Example:
        >>> from calibrant.metrics import ece, top_label
        >>> confidence, predicted, correct = top_label([[0.0, 0.0], [0.0, 800.0]], [0, 1])
        >>> confidence.tolist(), predicted.tolist(), correct.tolist()
        ([0.5, 1.0], [0, 1], [True, True])
        >>> ece(confidence, correct)
        0.25
    """
    data = as_scored(logits, labels, kind=kind)
    shape = (data.shape[0], -1)
    confidence, predicted = np.empty(data.shape), np.empty(data.shape, dtype=np.int64)
    for block in data.blocks():
        top = block.scores.max(1)
        if kind == "logits":
            top = 1 / np.exp(block.scores - top[:, None]).sum(1)
        best = block.scores.argmax(1)
        for whole, part in ((confidence, np.minimum(top, 1.0)), (predicted, best)):
            whole.reshape(shape)[block.rows, block.inner] = part.reshape(len(part), -1)
    if data.labels is None:
        return confidence, predicted
    return confidence, predicted, predicted == data.labels


def _mean(data: Scored, value: Callable[[Block, Kind], Doubles]) -> float:
    """The mean over the positions that count of a value per position."""
    sums = []
    for block in data.blocks():
        values = value(block, data.kind)
        sums.append(float((values if block.counted is None else values[block.counted]).sum()))
    return math.fsum(sums) / data.size


def _label_nll(block: Block, kind: Kind) -> Doubles:
    assert block.labels is not None
    z, at = block.scores, block.labels[:, None]
    if kind == "probabilities":
        with np.errstate(divide="ignore"):  # a label of probability 0
            return -np.log(np.take_along_axis(z, at, 1)[:, 0])
    # Relative to the largest logit, a large common offset costs no digits; log1p keeps a sum that is almost 1.
    best = z.argmax(1)[:, None]
    top = np.take_along_axis(z, best, 1)
    exps = np.exp(z - top)
    np.put_along_axis(exps, best, 0.0, 1)
    return (top - np.take_along_axis(z, at, 1))[:, 0] + np.log1p(exps.sum(1))


def _label_brier(block: Block, kind: Kind) -> Doubles:
    assert block.labels is not None
    p, at = probabilities(block, kind).copy(), block.labels[:, None]
    np.put_along_axis(p, at, np.take_along_axis(p, at, 1) - 1, 1)
    return np.square(p).sum(1)


@overload
def classwise_ece(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    bins: int = 15,
    kind: Kind = "logits",
    average: Literal["mean"] = "mean",
    ignore_index: int | None = None,
) -> float: ...


@overload
def classwise_ece(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    bins: int = 15,
    kind: Kind = "logits",
    average: None,
    ignore_index: int | None = None,
) -> npt.NDArray[np.float64]: ...


def classwise_ece(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    bins: int = 15,
    kind: Kind = "logits",
    average: Literal["mean"] | None = "mean",
    ignore_index: int | None = None,
) -> float | npt.NDArray[np.float64]:
    r"""ECE of each class's probability against how often the class occurs, over all samples.

    .. math:: \frac1C \sum_k \sum_b \frac{|B_{kb}|}{N} \bigl| \overline{p_k}(B_{kb}) - \overline{[y = k]}(B_{kb}) \bigr|

    with the bins of `ece`, on p_k.

    Args:
        logits: ``[N, C]`` or ``[N, C, ...]``.
        labels: ``[N]`` or ``[N, ...]``, from 0 to C - 1.
        bins: how many, of equal width.
        kind: ``"logits"`` or ``"probabilities"``, as for `nll`.
        average: ``"mean"`` over the C classes, absent ones too, or None for each class's own error.
        ignore_index: a label whose positions are left out.

    Returns:
        The mean, or an array ``[C]``; lower is better.

    Example:
        >>> from calibrant.metrics import classwise_ece
        >>> classwise_ece([[0.8, 0.2], [0.6, 0.4]], [0, 1], kind="probabilities")
        0.4
        >>> classwise_ece([[0.8, 0.2], [0.6, 0.4]], [0, 1], kind="probabilities", average=None).tolist()
        [0.4, 0.4]

    Reference:
        [Kull2019] Sec. 2; [Nixon2019] (static calibration error).
    """
    if average is not None:
        check_choice("average", average, ("mean",))
    data = as_scored(logits, labels, kind=kind, ignore_index=ignore_index)
    edges = bin_edges(bins, data.precision if kind == "probabilities" else "float64")
    errors: npt.NDArray[np.float64] = np.abs(_gaps(data, edges)).sum(axis=1) / data.size
    return errors if average is None else float(errors.mean())


def _gaps(data: Scored, edges: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Sum of probabilities minus occurrences for each class and bin, ``[C, bins]``."""
    bins, inner = len(edges) - 1, edges[1:-1]
    gaps = np.zeros(data.classes * bins)
    for block in data.blocks():
        assert block.labels is not None
        p, labels = probabilities(block, data.kind), block.labels
        if p.ndim == 3:
            p, labels = np.moveaxis(p, 1, 2).reshape(-1, data.classes), labels.reshape(-1)
        if block.counted is not None:
            counted = block.counted.reshape(-1)
            p, labels = p[counted], labels[counted]
        cell = np.searchsorted(inner, p) + np.arange(data.classes) * bins
        gaps += np.bincount(cell.reshape(-1), weights=p.reshape(-1), minlength=len(gaps))
        gaps -= np.bincount(cell[np.arange(len(labels)), labels], minlength=len(gaps))
    return gaps.reshape(data.classes, bins)
