r"""Metrics of every class's probability: proper scores, class-wise ECE, and the top label that other metrics take.

With the probabilities p_k of C classes (softmax of the logits, in float64) and the label y:

.. math:: \mathrm{NLL} = \frac1N \sum_n -\log p_{n y_n}, \qquad
          \mathrm{Brier} = \frac1N \sum_n \sum_k (p_{nk} - [k = y_n])^2 .

Nothing guesses whether numbers are logits or probabilities: ``kind`` says so. All come from the pass of `kernel`, whose
memory is bounded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from calibrant.base.arrays import Array, ArrayLike, Doubles, Precision, class_rows, in_threads, is_half, row_slices
from calibrant.base.checks import Bools, Ints, as_host_array, check_choice, position
from calibrant.metrics.classwise import ClasswiseSums
from calibrant.metrics.kernel import ByClass, TopLabel, counted_rows, reduce_rows, top_label_blocks, without_weightless
from calibrant.metrics.tables import check_weight

Kind: TypeAlias = Literal["logits", "probabilities"]


@dataclass(frozen=True, eq=False)
class Scored:
    """Checked scores ``[N, C, ...]`` of every class, and where given labels and weights ``[N, ...]``."""

    scores: Array
    labels: Array
    ignore_index: int | None
    kind: Kind
    precision: Precision
    weight: Doubles | None = None

    @property
    def classes(self) -> int:
        """C, the number of classes."""
        return int(self.scores.shape[1])

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the labels, ``(N, ...)``."""
        return (*self.scores.shape[:1], *self.scores.shape[2:])

    def tops(self, by_class: ByClass | None = None) -> Iterator[TopLabel]:
        """What each sample contributes, a block at a time; the first value that is not finite is named."""
        with np.errstate(over="ignore"):
            blocks = top_label_blocks(
                self.scores, self.labels, kind=self.kind, ignore_index=self.ignore_index, by_class=by_class,
                weight=self.weight,
            )  # fmt: skip
            try:
                yield from blocks
            except ValueError:
                self.check_values()
                raise

    def check_values(self) -> None:
        """Raise if a value is not finite, or not a probability, and say where the first one is."""
        spots = math.prod(self.scores.shape[2:])
        is_probability, slack = self.kind == "probabilities", 1e-2 if is_half(self.precision) else 1e-3

        def check(rows: slice) -> None:
            part, first = class_rows(self.scores[rows]), rows.start * spots
            if not is_probability:
                self._refuse(~np.isfinite(part), part, "finite", first)
                return
            self._refuse(~((part >= 0) & (part <= 1 + slack)), part, "between 0 and 1", first)
            total = part.sum(1, keepdims=True, dtype=np.float64)
            self._refuse(np.abs(total - 1) > slack, total, f"rows that sum to 1 within {slack:g}", first)

        for _ in in_threads(check, row_slices(len(self.scores), self.classes * spots)):
            pass

    def _refuse(self, bad: Bools, values: Array, requirement: str, first: int) -> None:
        if bad.any():
            row, column = np.argwhere(bad)[0].tolist()
            where = position(first + row, self.shape)
            raise ValueError(f"{self.kind} must be {requirement}, got {float(values[row, column]):g} {where}")


def as_scored(
    scores: ArrayLike,
    labels: ArrayLike | None,
    *,
    kind: Kind = "logits",
    ignore_index: int | None = None,
    weight: ArrayLike | None = None,
) -> Scored:
    """Check shapes, types, labels and probabilities; ``kind`` also names the argument in errors.

    Without labels all are 0. Weights are those of rows ``[N]`` or of labels ``[N, ...]``.
    """
    check_choice("kind", kind, ("logits", "probabilities"))
    z, precision = as_host_array(kind, scores)
    if z.dtype.kind not in "fiu" or len(z.shape) < 2 or z.shape[1] < 2 or 0 in z.shape:
        requirement = "real numbers [N, C] or [N, C, ...] with N at least 1 and C at least 2"
        raise ValueError(f"{kind} must be {requirement}, got {z.dtype} {list(z.shape)}")
    shape = (z.shape[0], *z.shape[2:])
    if labels is None:
        y: Array = np.zeros(shape, np.int64)
    else:
        y, _ = as_host_array("labels", labels)
        check_labels(y, shape, int(z.shape[1]), ignore_index)
        if ignore_index is not None and (y == ignore_index).all():
            raise ValueError(f"labels must not all be ignored, got {ignore_index} everywhere")
    weights = None if weight is None else _weight_of(weight, y, ignore_index)
    data = Scored(z if z.dtype.kind == "f" else z.astype(np.float64), y, ignore_index, kind, precision, weights)
    if kind == "probabilities":
        data.check_values()
    return data


def _weight_of(weight: ArrayLike, labels: Array, ignore_index: int | None) -> Doubles | None:
    """Weights of rows or of labels as those of all labels, of mean 1 where labels count; None if all are the same."""
    values, _ = as_host_array("weight", weight)
    if values.shape not in (labels.shape, labels.shape[:1]):
        raise ValueError(f"weight must be {list(labels.shape[:1])} or {list(labels.shape)}, got {list(values.shape)}")
    whole = np.broadcast_to(values.reshape(values.shape + (1,) * (labels.ndim - values.ndim)), labels.shape)
    counted = np.ones(labels.shape, np.bool_) if ignore_index is None else labels != ignore_index
    weights = check_weight(whole[counted], int(np.count_nonzero(counted)))
    if weights is None:
        return None
    scaled = np.zeros(labels.shape)
    scaled[counted] = weights
    return scaled


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


def nll(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    weight: ArrayLike | None = None,
    kind: Kind = "logits",
    ignore_index: int | None = None,
) -> float:
    """Mean negative log-likelihood of the labels, in nats.

    Args:
        logits: ``[N, C]`` or ``[N, C, ...]``.
        labels: ``[N]`` or ``[N, ...]``, from 0 to C - 1.
        weight: importance of each row ``[N]`` or each label, at least 0; None if all count alike.
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
    data = as_scored(logits, labels, kind=kind, ignore_index=ignore_index, weight=weight)
    return _mean((top.nll, top.weight) for top in data.tops())


def brier(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    weight: ArrayLike | None = None,
    scale: Literal["sum", "half", "mean"] = "sum",
    kind: Kind = "logits",
    ignore_index: int | None = None,
) -> float:
    """Brier score: the mean squared distance of the probabilities from the one-hot label.

    Args:
        logits: ``[N, C]`` or ``[N, C, ...]``.
        labels: ``[N]`` or ``[N, ...]``, from 0 to C - 1.
        weight: importance of each row ``[N]`` or each label, at least 0; None if all count alike.
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
    data = as_scored(logits, labels, kind=kind, ignore_index=ignore_index, weight=weight)
    share = {"sum": 1, "half": 2, "mean": data.classes}[scale]
    return _mean((top.brier, top.weight) for top in data.tops()) / share


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
    confidence, predicted = np.empty(data.shape), np.empty(data.shape, dtype=np.int64)
    for z, truth, first, _ in counted_rows(data.scores, data.labels, None):
        try:
            reduced = reduce_rows(z, truth, kind, np.float64)
        except ValueError:
            data.check_values()
            raise
        top = np.minimum(reduced.top, 1.0) if kind == "probabilities" else 1 / (1 + reduced.others)
        for whole, part in ((confidence, top), (predicted, reduced.predicted)):
            rows = part.reshape(-1, *data.shape[1:])
            whole[first : first + len(rows)] = rows
    return (confidence, predicted) if labels is None else (confidence, predicted, predicted == data.labels)


def _mean(blocks: Iterator[tuple[Doubles, Doubles | None]]) -> float:
    """The mean of values, with weights of mean 1 or without."""
    parts = [
        (float(values.sum() if weight is None else without_weightless(values, weight) @ weight), len(values))
        for values, weight in blocks
    ]
    sums, sizes = zip(*parts, strict=True)
    return math.fsum(sums) / sum(sizes)


@overload
def classwise_ece(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    bins: int = 15,
    weight: ArrayLike | None = None,
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
    weight: ArrayLike | None = None,
    kind: Kind = "logits",
    average: None,
    ignore_index: int | None = None,
) -> npt.NDArray[np.float64]: ...


def classwise_ece(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    bins: int = 15,
    weight: ArrayLike | None = None,
    kind: Kind = "logits",
    average: Literal["mean"] | None = "mean",
    ignore_index: int | None = None,
) -> float | npt.NDArray[np.float64]:
    r"""ECE of each class's probability against how often the class occurs, over all samples; see `classwise`.

    Args:
        logits: ``[N, C]`` or ``[N, C, ...]``.
        labels: ``[N]`` or ``[N, ...]``, from 0 to C - 1.
        bins: how many, of equal width.
        weight: importance of each row ``[N]`` or each label, at least 0; None if all count alike.
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
    data = as_scored(logits, labels, kind=kind, ignore_index=ignore_index, weight=weight)
    sums = ClasswiseSums(data.classes, bins, data.precision if kind == "probabilities" else "float64")
    for _ in data.tops(sums):
        pass
    errors = sums.by_class()
    return errors if average is None else float(errors.mean())
