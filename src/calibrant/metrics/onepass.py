r"""One pass over logits or probabilities: what each sample contributes to every top-label metric.

With m the largest logit of a sample and :math:`t = \sum_{j \ne \hat y} e^{z_j - m}`, confidence is :math:`1/(1+t)`. The
largest term of the sum of exponentials is exactly 1, and where the rest is small the sum is taken in float64, so that
predictions are ranked as finely as float64 confidences can be, down to 2e-16 from 1, whatever the type of the logits.

Two stages: reductions over the classes on chunks that fit the cache, then arithmetic on the samples of many chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from calibrant.metrics.cells import cells_of, snapped

CHUNK = 2**20  # numbers per chunk of the first stage: small enough for the cache, large enough to hide the calls
BLOCK = 2**17  # samples per block of the second

#: Called on each chunk with unnormalised probabilities [n, C, ...], their sums [n, ...], labels and a mask or None.
Visitor = Callable[[Tensor, Tensor, Tensor, Tensor | None], None]


@dataclass(frozen=True)
class TopLabel:
    """Statistics of n samples, each ``[n]``, float64 but where said.

    Attributes:
        confidence: of the predicted class.
        shortfall: 1 - confidence; for logits without the rounding of that subtraction.
        correct: bool; of tied maxima the first is the prediction.
        labels: int64.
        predicted: int64, or None where it was not asked for.
        max_logit: the largest value of the sample: its largest logit or probability.
        nll: negative log-likelihood of the label.
        brier: sum over classes of squared differences.
        given: the type in which the confidence was given, as a probability or itself; None if it is ours, of logits.
        first: the row of the input where the block begins.
        counted: bool, which positions of the block's rows count, ``[rows, ...]``; None if all do and each row is one.
    """

    confidence: Tensor
    shortfall: Tensor
    correct: Tensor
    labels: Tensor
    predicted: Tensor | None
    max_logit: Tensor
    nll: Tensor
    brier: Tensor
    given: torch.dtype | None
    first: int
    counted: Tensor | None

    def cells(self) -> Tensor:
        """The cell of each sample's confidence; one that was rounded to an edge lies on it."""
        if self.given is None or self.given == torch.float64:
            return cells_of(self.confidence, self.shortfall)
        placed = snapped(self.confidence, self.given)
        return cells_of(placed, 1 - placed)

    def rows(self) -> Tensor:
        """The row of the input that each sample came from, int64."""
        if self.counted is None:
            return torch.arange(self.first, self.first + len(self.labels), device=self.labels.device)
        return self.counted.nonzero()[:, 0] + self.first

    def take(self, values: Tensor) -> Tensor:
        """The values ``[n, C]`` of these samples, out of the whole input ``[N, C, ...]``."""
        if self.counted is None:
            return values[self.first : self.first + len(self.labels)]
        part = values[self.first : self.first + len(self.counted)]
        return part.flatten(2).movedim(1, -1)[self.counted] if values.dim() > 2 else part[self.counted]


def blocks(
    values: Tensor,
    labels: Tensor,
    *,
    kind: str,
    ignore_index: int | None = None,
    predict: bool = False,
    visit: Visitor | None = None,
) -> Iterator[TopLabel]:
    """Go through ``[N, C]`` or ``[N, C, ...]`` with labels ``[N]`` or ``[N, ...]``, a block of samples at a time.

    Args:
        values: logits or probabilities.
        labels: whole numbers.
        kind: what the values are.
        ignore_index: label that counts nowhere.
        predict: whether the predicted class is wanted too.
        visit: called on every chunk of unnormalised probabilities on the way.
    """
    values, labels = values.detach(), labels.detach()
    if values.dim() > 2:
        values, labels = values.flatten(2), labels.flatten(1)
    places = labels[0].numel()
    size = max(1, CHUNK // values[0].numel())
    per_block = size * max(1, BLOCK // (size * places))
    buffer = torch.empty(0)
    for start in range(0, len(values), per_block):
        parts = []
        for first in range(start, min(start + per_block, len(values)), size):
            stop = min(first + size, start + per_block)
            z, y = values[first:stop], labels[first:stop].long()
            if z.dtype not in (torch.float32, torch.float64):
                z = z.float()
            if buffer.dtype != z.dtype or buffer.shape[1:] != z.shape[1:] or buffer.device != z.device:
                buffer = torch.empty((size, *z.shape[1:]), dtype=z.dtype, device=z.device)
            parts.append(_reduce(z, y, buffer[: len(z)], kind, ignore_index, predict, visit))
        columns = [torch.cat(column) if len(column) > 1 else column[0] for column in zip(*parts, strict=True)]
        yield _combine(columns, kind, values.dtype, ignore_index, start)


def _reduce(
    z: Tensor, y: Tensor, out: Tensor, kind: str, ignore_index: int | None, predict: bool, visit: Visitor | None
) -> list[Tensor]:
    """Reductions over the classes: largest value, value at the label, sum, sum of squares, prediction; labels.

    For the prediction stands whether it is right, unless it was asked for itself.
    """
    if not bool(torch.isfinite(z.sum())):
        _refuse(z, kind)
    valid = None if ignore_index is None else y != ignore_index
    index = (y if valid is None else torch.where(valid, y, 0)).unsqueeze(1)
    top = z.amax(1, keepdim=True)
    if kind == "logits":
        exps = torch.sub(z, top, out=out)
        at_label = exps.gather(1, index).squeeze(1)
        correct = at_label == 0
        exps = exps.exp_()
    else:
        exps = out.copy_(z)
        at_label = exps.gather(1, index).squeeze(1)
        correct = at_label == top.squeeze(1)
    total, squares = _sums(exps)
    if kind == "probabilities" and bool(((total - 1).abs_() > 1e-2).any()):
        worst = float(total.flatten()[(total - 1).abs_().argmax()])
        raise ValueError(f"probabilities must sum to 1, got a row that sums to {worst:g}")
    # The label is predicted where it holds the maximum and no other class can: the rest cannot be larger than it.
    unsure = correct & (total > 1.999 * (1 if kind == "logits" else top.squeeze(1)))
    predicted = index.squeeze(1).clone() if predict else None
    where = (unsure | ~correct if predict else unsure).nonzero(as_tuple=True)
    if len(where[0]):
        first = z.movedim(1, -1)[where].argmax(-1)
        correct[where] = first == index.movedim(1, -1)[where].squeeze(-1)
        if predicted is not None:
            predicted[where] = first
    if visit is not None:
        visit(exps, total if kind == "logits" else torch.ones_like(total), index.squeeze(1), valid)
    return [top.squeeze(1), at_label, total, squares, correct if predicted is None else predicted, y]


def _refuse(z: Tensor, kind: str) -> None:
    """Say that a value is not finite, unless it is only the sum of large ones that is not."""
    if not bool(torch.isfinite(z).all()):
        raise ValueError(f"{kind} must be finite, got NaN or infinity")


def _sums(exps: Tensor) -> tuple[Tensor, Tensor]:
    """Sum and sum of squares over the classes, in float64 where one class holds nearly everything."""
    total = exps.sum(1).double()
    squares = torch.linalg.vector_norm(exps, dim=1).double().square_()
    if exps.dtype == torch.float64:
        return total, squares
    saturated = total < 1.0 + 2.0**-7
    if bool(saturated.any()):
        where = saturated.nonzero(as_tuple=True)
        rows = exps.movedim(1, -1)[where].double()
        total[where], squares[where] = rows.sum(-1), rows.square_().sum(-1)
    return total, squares


def _combine(columns: list[Tensor], kind: str, dtype: torch.dtype, ignore_index: int | None, start: int) -> TopLabel:
    """Arithmetic on the samples of a block."""
    counted, labels = None, columns[-1]
    if ignore_index is not None or labels.dim() > 1:
        counted = torch.ones_like(labels, dtype=torch.bool) if ignore_index is None else labels != ignore_index
        columns = [column[counted] for column in columns]
    top, at_label, total, squares, found, labels = columns
    predicted = None if found.dtype == torch.bool else found
    correct = found if predicted is None else predicted == labels
    if kind == "logits":
        nll = torch.log(total).sub_(at_label)
        share = torch.exp(-nll)
        confidence = total.reciprocal()
        shortfall = (total - 1).mul_(confidence)
        squares = squares * confidence.square()
    else:
        share = at_label.double()
        nll = -torch.log(share)
        confidence = top.double().clamp_(max=1)
        shortfall = 1 - confidence
        nll = nll.clamp_(min=0)
    given = None if kind == "logits" else dtype
    brier = squares.sub_(share, alpha=2).add_(1).clamp_(min=0)
    return TopLabel(confidence, shortfall, correct, labels, predicted, top, nll, brier, given, start, counted)
