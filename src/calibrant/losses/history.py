r"""How often each training sample was classified correctly: the memory behind the ranking condition of CRL.

The correctness of sample n is :math:`c_n = (h_n - \min h) / (E - \min h)`, with :math:`h_n` its count of correct
predictions, the minimum over the data set, and E the number of finished epochs (at least 1), as in the released code
of [Moon2020]. The counts live in the loss's state_dict, so a resumed run ranks as the uninterrupted one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from calibrant.losses.base import Loss
from calibrant.losses.target import Target, can_read_values, type_words

#: Samples that a history may be made for; a hundred million take 800 MB.
MOST_SAMPLES = 10**8


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
        added = int(ids.max()) + 1 - len(self.counts)
        if added > 0:
            self.counts = torch.cat([self.counts, self.counts.new_zeros(added)])
        self.counts.index_add_(0, ids.long(), correct.flatten().to(self.counts))

    def correctness(self, ids: Tensor) -> Tensor:
        """Normalised correctness in float64, same shape as ``ids``; 0 for samples never recorded."""
        ids = ids.long()
        if not len(self.counts):
            return torch.zeros_like(ids, dtype=torch.float64)
        counts = self.counts.to(ids.device)
        low = counts.min()
        counts_of_ids = torch.where(ids < len(counts), counts[ids.clamp(max=len(counts) - 1)], low)
        return (counts_of_ids - low).double() / (self.epochs.to(ids.device).clamp(min=1) - low).clamp(min=1)

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
        name = type(self).__name__
        if ids is None:
            raise ValueError(f"{name} remembers samples by id: call update(logits, target, ids=...)")
        with torch.no_grad():
            z, t = super()._prepare(logits, target)
            if t.labels is None:
                raise ValueError(f"{name} records correct predictions: it needs class labels, not soft")
            correct = z.argmax(1) == t.labels
            ids = check_ids(name, ids, t.labels)
            self.history.record(ids, correct if t.valid is None else correct & t.valid)

    def end_epoch(self) -> None:
        """Count a finished epoch."""
        if self.history is not None:
            self.history.epochs += 1

    def _prepare(
        self, logits: Tensor, target: Tensor, ids: Tensor | None = None, alpha: Tensor | None = None
    ) -> tuple[Tensor, Target]:
        """As in `Loss`, with the correctness of each position as it is now, or None while nothing is recorded."""
        z, t = super()._prepare(logits, target, ids, alpha)
        if self.history is None or len(self.history.counts) == 0:
            return z, t
        if ids is None:
            raise ValueError(f"{type(self).__name__} ranks samples by id: call it with ids=...")
        like = t.labels if t.labels is not None else z[:, 0].detach()
        ids = check_ids(type(self).__name__, ids, like)
        return z, t._replace(correctness=self.history.correctness(ids).flatten().to(z.dtype))


def check_ids(name: str, ids: Tensor, like: Tensor) -> Tensor:
    """Ids as whole numbers from 0, one per position of ``like`` (a single one for unbatched logits)."""
    if not isinstance(ids, Tensor) or ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise ValueError(f"{name} takes sample ids as whole numbers from 0, got {type_words(ids)}")
    if ids.dim() == 0 and like.numel() == 1:
        ids = ids.view_as(like)
    if ids.shape != like.shape:
        raise ValueError(f"{name} takes ids, one per position {list(like.shape)}, got {list(ids.shape)}")
    if can_read_values(ids) and int(ids.min()) < 0:
        raise ValueError(f"{name} takes sample ids as whole numbers from 0, got {int(ids.min())}")
    return ids


def following(x: Tensor, valid: Tensor | None) -> Tensor:
    """For each entry of ``x`` the next one that counts, the last followed by the first: x[(i + 1) mod N]."""
    if valid is None:
        return x.roll(-1)
    order = torch.argsort(~valid, stable=True)
    position = torch.arange(len(x), device=x.device)
    after = torch.where(position + 1 < valid.sum(), position + 1, 0)
    return x[torch.zeros_like(order).scatter(0, order, order[after])]
