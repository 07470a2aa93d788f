"""A `ConfidenceSketch` of tensors, wherever they lie, and of several processes: what `calibrant.torchmetrics` adds to.

Training counts with it directly: to import torchmetrics takes longer than to import torch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from calibrant.metrics import STATE, ConfidenceSketch, Reduced, TopLabel, check_labels, finish_rows
from calibrant.metrics.sketch import check_sample_weight


def count_tensors(sketch: ConfidenceSketch, logits: Tensor, labels: Tensor, weight: Tensor | None = None) -> None:
    """`ConfidenceSketch.update` with tensors; those on a GPU are reduced there, and only columns of ``[N]`` come back.

    Example:
        >>> import torch
        >>> from calibrant._tensor_sketch import count_tensors
        >>> from calibrant.metrics import ConfidenceSketch
        >>> sketch = ConfidenceSketch()
        >>> count_tensors(sketch, torch.tensor([[2.0, 0.0], [0.0, 1.0], [3.0, 0.0]]), torch.tensor([0, 1, 1]))
        >>> round(sketch.compute()["accuracy"], 4)
        0.6667
    """
    if not isinstance(logits, Tensor) or logits.device.type == "cpu" or sketch.score is not None:
        sketch.update(logits, labels, weight=weight)
        return
    values, truth = logits.detach(), labels.detach().to(logits.device)
    n, classes, *inner = values.shape
    check_labels(truth.cpu().numpy(), (n, *inner), classes, sketch.ignore_index)
    rows = values.flatten(2).movedim(1, 2).reshape(-1, values.shape[1]) if values.dim() > 2 else values
    weights = check_sample_weight(weight, (n, *inner))
    if weights is not None:
        weights = np.broadcast_to(
            weights.reshape(weights.shape + (1,) * (truth.dim() - weights.ndim)), truth.shape
        ).ravel()
    truth = truth.reshape(-1).long()
    if sketch.ignore_index is not None:
        is_counted = truth != sketch.ignore_index
        rows, truth = rows[is_counted], truth[is_counted]
        weights = None if weights is None else weights[is_counted.cpu().numpy()]
    precision: Any = None if sketch.kind == "logits" else str(values.dtype).removeprefix("torch.")
    if len(truth):
        reduced = reduce_on_device(rows, truth, sketch.kind)
        row_labels = truth.cpu().numpy()
        finished = finish_rows(reduced, row_labels, sketch.kind, precision)
        sketch.observe(TopLabel(*finished, row_labels, reduced.predicted, reduced.top, precision, weight=weights))


def sum_over_processes(sketch: ConfidenceSketch, device: torch.device | str) -> ConfidenceSketch:
    """The sketch of all processes together, if there are several, all of which must ask for it.

    ``device`` is where this process computes: what processes exchange goes through it.
    """
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return sketch
    total = ConfidenceSketch(score=sketch.score, ignore_index=sketch.ignore_index, kind=sketch.kind)
    for name in STATE:
        state = torch.from_numpy(getattr(sketch, name)).to(device, copy=True)
        torch.distributed.all_reduce(state)
        setattr(total, name, state.cpu().numpy())
    return total


def reduce_on_device(z: Tensor, labels: Tensor, kind: str) -> Reduced:
    """`calibrant.metrics.kernel.reduce_rows` on the device of the logits; only its columns leave it."""
    if not bool(torch.isfinite(z).all()):
        raise ValueError(f"{kind} must be finite, got NaN or infinity")
    if kind == "probabilities" and bool((z < 0).any()):
        raise ValueError("probabilities must lie in [0, 1], got a negative number")
    z = z if z.dtype in (torch.float32, torch.float64) else z.float()
    top = z.amax(1)
    predicted = (z == top[:, None]).int().argmax(1)  # of equal maxima the first
    at_label = z.gather(1, labels[:, None]).squeeze(1).double()
    if kind == "probabilities":
        others, squares = z.double().sum(1) - top.double(), z.double().square().sum(1)
    else:
        at_label = at_label - top.double()
        exps = (z - top[:, None]).exp().scatter(1, predicted[:, None], 0.0)
        others, squares = exps.sum(1, dtype=torch.float64), 1 + exps.square().sum(1, dtype=torch.float64)
    columns = (column.cpu().numpy() for column in (top.double(), at_label, others, squares, predicted.long()))
    return Reduced(*columns)
