r"""Self-adaptive training [Huang2020]: targets that follow the model's own predictions, sample by sample.

After ``start`` epochs of cross-entropy, in each step first
:math:`t_i \leftarrow \alpha t_i + (1 - \alpha) p_i`, from one-hot labels on, and then the loss:

========================  ===========================================================================================
form                      loss
========================  ===========================================================================================
``selective=False``       :math:`\frac{1}{\sum_i w_i} \sum_i w_i [-\sum_k t_{ik} \log p_{ik}]`, with the weights
                          :math:`w_i = \max_k t_{ik}` of the batch
``selective=True``        :math:`-\frac1N \sum_i [t_{iy} \log p_{iy} + (1 - t_{iy}) \log p_{i,K+1}]`; here t, and the
                          p that it follows, are over the K classes, and the p of the loss is over K + 1 logits, the
                          last that of abstaining
========================  ===========================================================================================

=============  ==========
paper letter   variable
=============  ==========
alpha          momentum
E_s            start
=============  ==========

Departures: the targets of a sample are found by its id. A call computes the new targets and uses them; `update` stores
them, so that the loss itself changes nothing. The loss of a position is N times its share of the weighted mean, so that
``reduction="sum"`` is N times the mean. During the first ``start`` epochs with ``selective=True`` the logit of
abstaining is left out, and has no gradient. t is a constant to the gradient. Values: the released commands take
momentum 0.9 and 60 epochs of 200 on CIFAR-10 with wrong labels; for abstaining 0.99 and 0. Runs shorter than ``start``
are cross-entropy.

Predictions of the selective form are those of the class logits alone; the less probability abstaining has, the more a
prediction is to be trusted.

In a training loop call ``loss(logits, labels, ids=ids)``, then ``loss.update(logits, labels, ids=ids)``, and
``loss.end_epoch()``. The memory has K numbers for each sample.

The lens: q' is :math:`w t + (1 - w) p`, with w the weight of the sample relative to the mean of its batch; of the
selective form t at y, and 1 - t for abstaining.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from calibrant.base.checks import check_flag, check_integer, check_number
from calibrant.losses.base import CountsEpochs, Loss, SizedByData, Terms, register
from calibrant.losses.numerics import Target, check_ids, cross_entropy, nll, softmax, subtract_at

#: Entries of a sample that was never recorded; checkpoints hold finite numbers only, so they cannot be NaN.
NEVER = -1.0


class TargetMemory(SizedByData):
    """The running target of each training sample by its id, ``[samples, classes]`` in single precision."""

    sized = ("targets",)
    targets: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("targets", torch.zeros(0, 0))

    def record(self, ids: Tensor, targets: Tensor) -> None:
        """Replace the targets ``[n, classes]`` of these samples ``[n]``."""
        if not len(ids):
            return
        ids = ids.long().to(self.targets.device)
        added = max(0, int(ids.max()) + 1 - len(self.targets))
        if added or not self.targets.numel():
            rows = self.targets.reshape(-1, targets.shape[1])
            self.targets = torch.cat([rows, rows.new_full((added, targets.shape[1]), NEVER)])
        self.targets[ids] = targets.to(self.targets)

    def of(self, ids: Tensor, first: Tensor) -> Tensor:
        """The targets ``[..., classes]`` of samples ``[...]``; ``first`` for those never recorded."""
        if not len(self.targets):
            return first
        rows = self.targets[ids.long().clamp(max=len(self.targets) - 1)].to(first)
        known = (ids < len(self.targets)) & (rows[..., 0] != NEVER)
        return torch.where(known.unsqueeze(-1), rows, first)


@register(
    "sat",
    "Self-adaptive training",
    paper="Huang2020",
    equation="Sec. 3; released code",
    summary="trains towards targets that follow the model's own predictions",
    use=(
        "Some labels are wrong: what the model does not believe after many epochs counts less. With selective=True, "
        "to abstain: a logit more learns what the model would rather not answer."
    ),
    avoid=(
        "Samples have no ids, or are seen a few times only: a run shorter than `start` is cross-entropy. Labels are "
        "soft or mixed, which it does not take."
    ),
    hyper={
        "momentum": "larger: targets follow the predictions more slowly",
        "start": "larger: more epochs of cross-entropy before targets move",
        "selective": "True: one logit more than classes, for abstaining",
    },
    search={"momentum": (0.9, 0.99)},
    soft=False,
    per_sample=False,
)
class SelfAdaptive(CountsEpochs, Loss):
    """Cross-entropy to running targets, weighted or with a logit for abstaining.

    Args:
        momentum: share of a target that each step keeps, from 0 to 1.
        start: epochs of cross-entropy at the beginning, as counted by `end_epoch`.
        selective: whether the logits have one for abstaining after those of the classes.
        **common: see `Loss`. Labels and class weights are those of the classes.

    Example:
        >>> import torch
        >>> from calibrant.losses import SelfAdaptive
        >>> loss, ids = SelfAdaptive(momentum=0.5, start=0), torch.tensor([0])
        >>> logits, labels = torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([1])
        >>> loss.update(logits, labels, ids=ids)  # half of the label goes to what is predicted
        >>> loss.memory.targets
        tensor([[0.3935, 0.5533, 0.0533]])
        >>> loss(logits, labels, ids=ids)
        tensor(1.0591)
    """

    def __init__(self, momentum: float = 0.9, start: int = 60, selective: bool = False, **common: Any):
        super().__init__(**common)
        self.momentum = check_number("momentum", momentum, 0.0, 1.0)
        self.start = check_integer("start", start, 0, 10**9)
        self.selective = check_flag("selective", selective)
        self.extra_logits = int(self.selective)
        self.memory = TargetMemory()

    def update(self, logits: Tensor, target: Tensor, *, ids: Tensor | None = None) -> None:
        """Store the new targets of these samples; call once per training step."""
        if self.finished < self.start:
            return
        with torch.no_grad():
            z, t = self._prepare(logits, target, ids)
            assert t.labels is not None
            assert ids is not None
            targets = self._targets(z, t).movedim(1, -1)
            counted = torch.ones_like(t.labels, dtype=torch.bool) if t.valid is None else t.valid
            self.memory.record(ids.view_as(t.labels)[counted], targets[counted])

    def _prepare(self, logits: Tensor, target: Tensor, ids: Tensor | None = None) -> tuple[Tensor, Target]:
        """As in `Loss`, with the stored target of each position, or None before targets move."""
        z, t = super()._prepare(logits, target)
        if self.finished < self.start:
            return z, t
        if ids is None:
            raise ValueError("SelfAdaptive finds targets by id: call it with ids=...")
        assert t.labels is not None  # soft targets are refused
        ids = check_ids("SelfAdaptive", ids, t.labels)
        one_hot = t.distribution(z[:, : z.shape[1] - self.extra_logits].detach()).movedim(1, -1)
        if len(self.memory.targets) and self.memory.targets.shape[1] != one_hot.shape[-1]:
            raise ValueError(
                f"SelfAdaptive has targets of {self.memory.targets.shape[1]} classes, got {one_hot.shape[-1]}"
            )
        return z, t._replace(running=self.memory.of(ids, one_hot).movedim(-1, 1))

    def formula(self, z: Tensor, t: Target) -> Terms:
        """Huang2020, Algorithm 1, or its form for selective classification."""
        if t.running is None:
            return Terms(nll(self._of_classes(z), t, self.weight))
        targets, log_p = self._targets(z, t), z.log_softmax(1)
        if self.selective:
            index = t.at_label()
            right = targets.gather(1, index).squeeze(1)
            value = -right * log_p.gather(1, index).squeeze(1) - (1 - right) * log_p[:, -1]
        else:
            value = -self._weights(targets, t) * (targets * log_p).sum(1)
        return Terms(self._weighted(value, t))

    def closed_form(self, z: Tensor, t: Target) -> tuple[Tensor, Tensor]:
        """The gradient p - q', times the weight of the sample."""
        classes = self._of_classes(z)
        if t.running is None:
            value, gradient = cross_entropy(classes, softmax(classes), t)
            return value, torch.cat([gradient, torch.zeros_like(z[:, classes.shape[1] :])], 1)
        targets = self._targets(z, t)
        if not self.selective:
            value, gradient = cross_entropy(z, softmax(z), Target(None, soft=targets))
            weights = self._weights(targets, t)
            return weights * value, gradient.mul_(weights.unsqueeze(1))
        s, index = softmax(z), t.at_label()
        right = targets.gather(1, index)
        value = s.log_sum + right * (s.top - z.gather(1, index)) + (1 - right) * (s.top - z[:, -1:])
        gradient = subtract_at(s.probs, index, right)
        return value.squeeze(1), subtract_at(gradient, torch.full_like(index, z.shape[1] - 1), 1 - right)

    def _of_classes(self, z: Tensor) -> Tensor:
        return z[:, :-1] if self.selective else z

    def _targets(self, z: Tensor, t: Target) -> Tensor:
        """The targets ``[N, K, ...]`` after this step: a constant to the gradient."""
        assert t.running is not None
        return self.momentum * t.running + (1 - self.momentum) * self._of_classes(z).detach().softmax(1)

    def _weights(self, targets: Tensor, t: Target) -> Tensor:
        """The weight of each position, with a mean of 1 over those that count."""
        weights = targets.amax(1)
        total = weights.sum() if t.valid is None else (weights * t.valid).sum()
        return weights * (t.size(targets) / torch.where(total > 0, total, 1.0))
