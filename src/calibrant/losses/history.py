r"""How often each training sample was classified correctly: the memory behind the ranking condition of CRL.

The correctness of sample n is :math:`c_n = (h_n - \min h) / (E - \min h)`, with :math:`h_n` its count of correct
predictions, the minimum over the data set, and E the number of finished epochs (at least 1), as in the released code
of [Moon2020]. The counts live in the loss's state_dict, so a resumed run ranks as the uninterrupted one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from calibrant.losses.base import Loss, Target


class CorrectnessHistory(nn.Module):
    """Counts of correct predictions by sample id; grows as ids appear.

    Args:
        num_samples: size of the training set, if known; otherwise the largest id seen plus one.
    """

    counts: Tensor
    epochs: Tensor

    def __init__(self, num_samples: int = 0):
        super().__init__()
        self.register_buffer("counts", torch.zeros(num_samples, dtype=torch.int64))
        self.register_buffer("epochs", torch.zeros((), dtype=torch.int64))

    def record(self, ids: Tensor, correct: Tensor) -> None:
        """Add one count for every correctly classified sample."""
        ids = ids.flatten().to(self.counts.device)
        if ids.numel() == 0:
            return
        if ids.is_floating_point() or int(ids.min()) < 0:
            raise ValueError(f"sample ids must be whole numbers from 0, got {ids.dtype} down to {ids.min().item()}")
        missing = int(ids.max()) + 1 - len(self.counts)
        if missing > 0:
            self.counts = torch.cat([self.counts, self.counts.new_zeros(missing)])
        self.counts.index_add_(0, ids.long(), correct.flatten().to(self.counts))

    def correctness(self, ids: Tensor) -> Tensor:
        """Normalised correctness in float64, same shape as ``ids``; 0 for samples never recorded."""
        ids = ids.long()
        if not len(self.counts):
            return torch.zeros_like(ids, dtype=torch.float64)
        counts = self.counts.to(ids.device)
        low = counts.min()
        known = torch.where(ids < len(counts), counts[ids.clamp(max=len(counts) - 1)], low)
        return (known - low).double() / (self.epochs.to(ids.device).clamp(min=1) - low).clamp(min=1)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        stored = state_dict.get(f"{prefix}counts")
        if stored is not None and stored.shape != self.counts.shape:
            self.counts = self.counts.new_zeros(stored.shape)
        super()._load_from_state_dict(state_dict, prefix, *args)


class RankingLoss(Loss):
    """Base of the losses that can condition on the order of two samples' correctness."""

    history: CorrectnessHistory | None

    def update(self, logits: Tensor, target: Tensor, *, ids: Tensor | None = None) -> None:
        """Record which of these samples the model classified correctly; call once per training step."""
        if self.history is None:
            return
        if ids is None:
            raise ValueError(f"{type(self).__name__} remembers samples by id: call update(logits, target, ids=...)")
        with torch.no_grad():
            z, t = self._prepare(logits, target, ids=ids)
            if t.labels is None:
                raise ValueError(
                    f"{type(self).__name__} records correct predictions: it takes class labels, not soft ones"
                )
            correct = z.argmax(1) == t.labels
            self.history.record(ids, correct if t.valid is None else correct & t.valid)

    def end_epoch(self) -> None:
        """Count a finished epoch."""
        if self.history is not None:
            self.history.epochs += 1

    def _correctness(self, t: Target, like: Tensor) -> Tensor | None:
        """Correctness per position of ``like``, flattened, or None while nothing is known about any sample."""
        history = self.history
        if history is None or len(history.counts) == 0:
            return None
        if t.ids is None:
            raise ValueError(f"{type(self).__name__} ranks samples by id: call it with ids=...")
        if t.ids.shape != like.shape:
            raise ValueError(f"ids must be one per position {list(like.shape)}, got {list(t.ids.shape)}")
        return history.correctness(t.ids).flatten().to(like.dtype)


def following(x: Tensor, valid: Tensor | None) -> Tensor:
    """For each entry of ``x`` the next one that counts, the last followed by the first: x[(i + 1) mod N]."""
    if valid is None:
        return x.roll(-1)
    order = torch.argsort(~valid, stable=True)
    place = torch.arange(len(x), device=x.device)
    after = torch.where(place + 1 < valid.sum(), place + 1, 0)
    return x[torch.zeros_like(order).scatter(0, order, order[after])]
