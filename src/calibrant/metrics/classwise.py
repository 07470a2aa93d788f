"""Calibration of every class, not of the predicted one alone."""

from __future__ import annotations

from typing import Literal, overload

import numpy as np
import numpy.typing as npt

from calibrant._arrays import ArrayLike
from calibrant._validation import choice
from calibrant.metrics.calibration import bin_edges
from calibrant.metrics.logits import Kind, Scored, probabilities, scored


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
        choice("average", average, ("mean",))
    data = scored(logits, labels, kind=kind, ignore_index=ignore_index)
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
