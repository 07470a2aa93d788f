r"""Proper scores: what a whole predicted distribution is worth, and its top label.

With the probabilities p_k of C classes (softmax of the logits, in float64) and the label y:

.. math:: \mathrm{NLL} = \frac1N \sum_n -\log p_{n y_n}, \qquad
          \mathrm{Brier} = \frac1N \sum_n \sum_k (p_{nk} - [k = y_n])^2 .

Nothing guesses whether numbers are logits or probabilities: ``kind`` says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, overload

import numpy as np
import numpy.typing as npt

from calibrant._arrays import ArrayLike, Doubles
from calibrant._validation import check_choice
from calibrant.metrics.logits import Block, Kind, Scored, as_scored, probabilities


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
def top_label(
    logits: ArrayLike, labels: None = None, *, kind: Kind = "logits"
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]: ...


@overload
def top_label(
    logits: ArrayLike, labels: ArrayLike, *, kind: Kind = "logits"
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64], npt.NDArray[np.bool_]]: ...


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
        confidence.reshape(shape)[block.rows, block.inner] = _columns(np.minimum(top, 1.0), block)
        predicted.reshape(shape)[block.rows, block.inner] = _columns(best, block)
    if data.labels is None:
        return confidence, predicted
    return confidence, predicted, predicted == data.labels


def _columns(x: npt.NDArray[Any], block: Block) -> npt.NDArray[Any]:
    return x.reshape(len(block.scores), -1)


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
