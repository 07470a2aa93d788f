r"""The label that a loss effectively trains towards: ACLS Eq. 8, for any loss, by its gradient.

The gradient of cross-entropy is :math:`p - q`. Whatever a loss is, its gradient by the logits of one sample can be read
as :math:`p - q'`: the loss trains towards the *effective label* :math:`q' = p - \partial L/\partial z`. With the
predicted class :math:`\hat y` (of tied maxima the first),

.. math:: q'_j = q_j - f_j C_j \;(j = \hat y), \qquad q'_j = q_j + f_j C_j \;(j \neq \hat y)

splits it into a smoothing function f and an indicator C. q' need not be a distribution: a regulariser may ask for
labels below 0 or above 1.

For losses that couple the samples of a batch, L is the sum over the batch, so that the cross-entropy part of a sample's
gradient is p - q, as in the paper. Class weights scale that part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from calibrant.losses import Loss, type_words


@dataclass(frozen=True)
class Lens:
    """A loss seen as label smoothing; every tensor is float64 ``[N, C, ...]``.

    Attributes:
        probs: softmax probabilities p.
        target: the given label q, as a distribution.
        effective: the label q' that the loss effectively trains towards.
        smoothing: f C: how much the label is lowered at the predicted class, and raised elsewhere.
        active: bool, where C is 1: where the loss moves the label at all.
    """

    probs: Tensor
    target: Tensor
    effective: Tensor
    smoothing: Tensor
    active: Tensor


def lens(
    loss: Loss | Callable[[Tensor, Tensor], Tensor], logits: Tensor, target: Tensor, *, ids: Tensor | None = None
) -> Lens:
    """Look at a loss through its gradient.

    Args:
        loss: a calibrant loss, or any callable ``(logits, target) -> mean loss``.
        logits: ``[N, C]`` or ``[N, C, ...]``.
        target: labels or soft labels, as the loss takes them. Positions with the loss's ignore_index have a label of
            zeros and are not smoothed.
        ids: sample ids, for losses with a memory.

    Returns:
        The effective label and its decomposition.

    Example:
        >>> import torch
        >>> from calibrant import lens
        >>> from calibrant.losses import LabelSmoothing
        >>> view = lens(LabelSmoothing(alpha=0.2), torch.tensor([[2.0, 1.0, 0.0, 0.0]]), torch.tensor([0]))
        >>> view.effective
        tensor([[0.8500, 0.0500, 0.0500, 0.0500]], dtype=torch.float64)
        >>> view.smoothing
        tensor([[0.1500, 0.0500, 0.0500, 0.0500]], dtype=torch.float64)
    """
    if not isinstance(logits, Tensor) or not isinstance(target, Tensor):
        raise ValueError(f"lens takes logits and target as tensors, got {type_words(logits)} and {type_words(target)}")
    # The lens needs gradients even if the caller has switched them off.
    with torch.inference_mode(False), torch.enable_grad():
        z = logits.detach().double().clone().requires_grad_()
        target = target.clone()
        parts = _split_terms(loss, z, target, ids) if isinstance(loss, Loss) else _split_callable(loss, z, target)
    probs, q, shift = parts
    predicted = z.detach().view_as(probs).argmax(1, keepdim=True)
    active = shift != 0
    smoothing = torch.where(active, (-shift).scatter(1, predicted, shift.gather(1, predicted)), 0.0)
    return Lens(probs, q, q - shift, smoothing, active)


def _split_terms(loss: Loss, z: Tensor, target: Tensor, ids: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Softmax, target and the gradient beyond p - q, exactly 0 where the regulariser is inactive."""
    z, t = loss._prepare(z, target, ids=ids)
    terms = loss.formula(z, t)
    counts = torch.ones_like(terms.fidelity) if t.valid is None else t.valid.to(z.dtype)
    if counts.sum() < loss.least_samples:
        raise ValueError(
            f"{type(loss).__name__} is not defined for fewer than {loss.least_samples} samples of a batch, got "
            f"{int(counts.sum())}"
        )
    probs, q = z.detach().softmax(1), t.distribution(z.detach())
    shift = _snap(_gradient((terms.fidelity * counts).sum(), z) - (probs - q), probs)
    if terms.regulariser is not None:
        shift = shift + _gradient((terms.regulariser * counts).sum(), z)
    return probs, q * counts.unsqueeze(1), shift * counts.unsqueeze(1)


def _split_callable(
    loss: Callable[[Tensor, Tensor], Tensor], z: Tensor, target: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    value = loss(z, target)
    if not isinstance(value, Tensor):
        raise ValueError(f"lens takes a loss that returns a tensor, got {type_words(value)}")
    if value.dim():
        raise ValueError(f"lens takes a loss that returns a mean, got a value of shape {list(value.shape)}")
    probs = z.detach().softmax(1)
    if target.is_floating_point():
        q, counts = target.double(), torch.ones_like(probs[:, :1])
    else:
        valid = (target != getattr(loss, "ignore_index", -100)).unsqueeze(1)
        labels = torch.where(valid, target.long().unsqueeze(1), 0)
        q, counts = torch.zeros_like(probs).scatter(1, labels, 1.0), valid.double()
    slope = _gradient(value * counts.sum(), z)
    return probs, q * counts, _snap(slope - (probs - q), probs) * counts


def _gradient(value: Tensor, z: Tensor) -> Tensor:
    if not value.requires_grad:
        return torch.zeros_like(z)
    (gradient,) = torch.autograd.grad(value, z, retain_graph=True, allow_unused=True)
    return torch.zeros_like(z) if gradient is None else gradient


def _snap(shift: Tensor, probs: Tensor) -> Tensor:
    """Set differences of two gradients of order 1 to 0 if they are within rounding error."""
    return torch.where(shift.abs() <= 64 * torch.finfo(probs.dtype).eps, 0.0, shift)


@dataclass(frozen=True)
class Activity:
    """How a loss acts on a set of predictions.

    Attributes:
        samples: number of predictions.
        active: share of samples whose label is moved at all (ACLS Fig. 3 counts the others).
        flipped: share of samples whose predicted class a gradient step on the logits would change.
        flipped_correct: share of samples that are predicted correctly now and would not be after the step
            (ACLS Sec. 4.3, "Limitation").
        lowered: mean amount by which the label of the predicted class is lowered.
    """

    samples: int
    active: float
    flipped: float
    flipped_correct: float
    lowered: float


def activity(
    losses: Mapping[str, Loss], batches: Iterable[Sequence[Tensor]], *, step: float = 1.0
) -> dict[str, Activity]:
    """How often each loss's regulariser acts, over batches of predictions, and what a step would do.

    Args:
        losses: losses by the name to report.
        batches: logits ``[N, C]`` and labels ``[N]``, and sample ids ``[N]`` for losses with a memory; batch-level
            losses see each batch as one batch. Samples whose label is none of the classes (ignored ones) are left out.
        step: size of the gradient step on the logits, z - step dL/dz per sample.

    Returns:
        One `Activity` per loss.

    Example:
        >>> import torch
        >>> from calibrant import activity
        >>> from calibrant.losses import MbLS
        >>> logits, labels = torch.tensor([[9.0, 0.0, 1.0], [2.0, 1.0, 0.0]]), torch.tensor([0, 0])
        >>> activity({"mbls": MbLS(margin=6.0)}, [(logits, labels)])["mbls"].active
        0.5
    """
    if not 0 < step < math.inf:
        raise ValueError(f"step must be positive and finite, got {step}")
    samples, sums = 0, {name: torch.zeros(4, dtype=torch.float64) for name in losses}
    for logits, labels, *ids in batches:
        if logits.dim() != 2 or labels.is_floating_point():
            raise ValueError(
                f"activity takes logits [N, C] and labels [N], got {type_words(logits)} and {type_words(labels)}"
            )
        counted = (labels >= 0) & (labels < logits.shape[1])
        logits, labels, *ids = (x[counted] for x in (logits, labels, *ids))
        if not len(logits):
            continue
        samples += len(logits)
        predicted = logits.argmax(1)
        for name, loss in losses.items():
            result = lens(loss, logits, labels, ids=ids[0] if ids else None)
            after = (logits.double() - step * (result.probs - result.effective)).argmax(1)
            flipped = after != predicted
            lowered = result.smoothing.gather(1, predicted.unsqueeze(1)).squeeze(1)
            sums[name] += torch.stack(
                [x.double().sum() for x in (result.active.any(1), flipped, flipped & (predicted == labels), lowered)]
            )
    if not samples:
        raise ValueError("activity takes at least one prediction, got none")
    return {name: Activity(samples, *(total / samples).tolist()) for name, total in sums.items()}
