"""The target as formulas take it, the checks of tensors, and the numerical building blocks that formulas share."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from calibrant.base.checks import short

#: Samples that a memory of the training set may be made for; a hundred million take 800 MB.
MOST_SAMPLES = 10**8


class Target(NamedTuple):
    """A validated target: class labels or soft labels, and which positions count.

    Attributes:
        labels: ``[N, ...]`` int64 with ignored positions set to 0, or None when the target is soft.
        soft: ``[N, C, ...]`` target distribution, or None when the target is hard.
        valid: ``[N, ...]`` bool, or None when every position counts.
        correctness: what a method with a memory has stored for each position, ``[N, ...]``.
        alpha: per-sample smoothing for methods that take one, broadcastable to ``[N, ...]``.
        running: the target that a method with a memory has stored for each position, ``[N, C, ...]``.
    """

    labels: Tensor | None
    soft: Tensor | None = None
    valid: Tensor | None = None
    correctness: Tensor | None = None
    alpha: Tensor | None = None
    running: Tensor | None = None

    def size(self, z: Tensor) -> Tensor | int:
        """The number of positions that count, at least 1."""
        return z.numel() // z.shape[1] if self.valid is None else self.valid.sum().clamp(min=1)

    def at_label(self) -> Tensor:
        """The labels as an index for gather and scatter over the classes, ``[N, 1, ...]``."""
        assert self.labels is not None
        return self.labels.unsqueeze(1)

    def distribution(self, z: Tensor) -> Tensor:
        """The target distribution q, ``[N, C, ...]``: the soft labels, or one-hot rows."""
        if self.soft is not None:
            return self.soft
        return torch.zeros_like(z).scatter(1, self.at_label(), 1.0)  # not in place, for vmap


def check_class_weights(value: object) -> Tensor:
    """One finite, non-negative number per class as a tensor."""
    try:
        weight = torch.as_tensor(value)
        fits = weight.dim() == 1 and bool(((weight >= 0) & weight.isfinite()).all())
    except (TypeError, ValueError, RuntimeError, OverflowError):  # whatever is not an array of real numbers
        fits = False
    if not fits:
        raise ValueError(f"weight must be one finite, non-negative number per class, got {short(value)}")
    return weight


def check_ignore_index(value: object) -> int:
    """A whole number that a label can have."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"ignore_index must be a whole number, got {short(value)}")
    if not -(2**63) <= value < 2**63:
        raise ValueError(f"ignore_index must be a whole number of 64 bits, got {short(value)}")
    return value


def is_transforming() -> bool:
    """Whether a torch.func transform (vmap, grad, ...) is active; torch has no public function for this."""
    return bool(torch._C._are_functorch_transforms_active())


def can_read_values(x: Tensor) -> bool:
    """Whether reading values is possible and cheap: in eager mode on the CPU (elsewhere it stalls the device)."""
    plain = type(x) in (Tensor, torch.nn.Parameter) and x.device.type == "cpu"
    return plain and not torch.compiler.is_compiling() and not is_transforming()


def check_all_finite(name: str, argument: str, x: Tensor) -> None:
    """Raise if a value is NaN or infinite, naming the first."""
    # One sum is ten times cheaper than isfinite().all(), and is finite only if every entry is; a finite array whose
    # sum overflows is cleared by the second look.
    if math.isfinite(float(x.detach().sum())):
        return
    bad = ~torch.isfinite(x)
    if bad.any():
        position = bad.nonzero()[0].tolist()
        raise ValueError(f"{name} takes finite {argument}, got {x[tuple(position)].item()} at position {position}")


def check_distributions(name: str, soft: Tensor) -> None:
    """Raise unless soft targets ``[N, C, ...]`` are finite, not negative, and sum to 1 over the classes."""
    q = soft.detach()
    half = q.dtype in (torch.float16, torch.bfloat16)
    errors = (q.sum(1, dtype=torch.float32 if half else q.dtype) - 1).abs_()
    low, worst = float(q.min()), float(errors.max())
    if low >= 0 and worst <= (1e-2 if half else 1e-3):  # false for NaN
        return
    check_all_finite(name, "soft targets", q)
    takes = f"{name} takes soft targets that are not negative and sum to 1 over the classes (dimension 1)"
    if low < 0:
        raise ValueError(f"{takes}, got {low:g}")
    position = [int(i) for i in torch.unravel_index(errors.argmax(), errors.shape)]
    total = float(q.select(0, position[0]).sum(0, dtype=errors.dtype)[tuple(position[1:])])
    hint = " (several classes at once are not supported)" if total > 1 and bool(((q == 0) | (q == 1)).all()) else ""
    raise ValueError(f"{takes}, got a sum of {total:g} at position {position}{hint}")


def soft_target(name: str, z: Tensor, y: Tensor) -> Target:
    """Check the soft targets of a loss called ``name`` for logits ``[N, C, ...]``."""
    if y.shape != z.shape:
        raise ValueError(f"{name} takes soft targets of the logits' shape {list(z.shape)}, got {list(y.shape)}")
    if can_read_values(z):
        check_distributions(name, y)
    return Target(None, soft=y.to(z.dtype))


def hard_target(name: str, z: Tensor, y: Tensor, ignore_index: int, classes: int) -> Target:
    """Check the labels, of so many classes, of a loss called ``name`` for logits ``[N, C, ...]``."""
    expected = [z.shape[0], *z.shape[2:]]
    if list(y.shape) != expected:
        has_classes_last = z.dim() == y.dim() + 1 and y.shape == z.shape[:-1]  # as language models have them
        turned = f"logits.transpose(1, {z.dim() - 1})" if z.dim() == 3 else "logits.movedim(-1, 1)"
        hint = f": the classes must be in dimension 1, pass {turned}" if has_classes_last else ""
        raise ValueError(f"{name} takes labels {expected} for logits {list(z.shape)}, got {list(y.shape)}{hint}")
    y = y.long()
    if not can_read_values(z):
        valid = y != ignore_index
        return Target(torch.where(valid, y, 0), valid=valid)
    low, high = (int(v) for v in torch.aminmax(y))
    if low >= 0 and high < classes and not low <= ignore_index <= high:
        return Target(y)
    valid = y != ignore_index
    labels = torch.where(valid, y, 0)
    bad = (labels < 0) | (labels >= classes)
    if bad.any():
        raise ValueError(
            f"{name} takes labels from 0 to {classes - 1} or ignore_index={ignore_index}, "
            f"got {int(labels[bad][0])} at position {bad.nonzero()[0].tolist()}"
        )
    return Target(labels, valid=valid)


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


def type_words(x: object) -> str:
    """What an argument is, for a message."""
    return f"a {x.dtype} tensor {list(x.shape)}" if isinstance(x, Tensor) else type(x).__name__


class Softmax(NamedTuple):
    """Softmax probabilities ``[N, C, ...]``, the largest logit and log-sum-exp minus largest logit ``[N, 1, ...]``.

    Everything is kept relative to the largest logit, so that a large common offset costs no digits.
    """

    probs: Tensor
    top: Tensor
    log_sum: Tensor


def softmax(z: Tensor, top: Tensor | None = None) -> Softmax:
    """Probabilities and log-sum-exp with one exponential per entry; ``top`` is the maximum, where it is known.

    The largest probability is exp(0) / sum, so its logarithm gives the sum, with no second pass of exponentials.
    """
    probs = z.softmax(1)
    top = z.amax(1, keepdim=True) if top is None else top
    return Softmax(probs, top, -probs.amax(1, keepdim=True).log())


class Maximum(NamedTuple):
    """The largest logit, the first class that has it (both ``[N, 1, ...]``), and its distance to every logit."""

    top: Tensor
    position: Tensor
    gap: Tensor


def first_maximum(z: Tensor) -> Maximum:
    """The index of ``z.max(1)`` from vectorised passes only, which torch's own reduction with indices is not."""
    top = z.amax(1, keepdim=True)
    gap = top - z
    return Maximum(top, first_zero(gap.clone()), gap)


def first_zero(x: Tensor) -> Tensor:
    """The first class with value 0, ``[N, 1, ...]``; all others must be positive. Overwrites ``x``."""
    classes = x.shape[1]
    position = per_class(torch.arange(classes, device=x.device), x)
    # A zero becomes its class k, any other value at least C, so the smallest is the first zero.
    return x.sign_().mul_(classes).add_(position).amin(1, keepdim=True).long()


def cross_entropy(z: Tensor, s: Softmax, t: Target, damp: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Cross-entropy per position ``[N, ...]`` and its gradient p - q, which overwrites ``s.probs``.

    Regularisers often add a multiple of p to the gradient: with ``damp`` ``[N, 1, ...]`` it is (1 - damp) p - q.
    """
    if t.soft is None:
        value = s.log_sum + (s.top - z.gather(1, t.at_label()))
        probs = s.probs if damp is None else s.probs.mul_(1 - damp)
        return value.squeeze(1), subtract_at(probs, t.at_label(), 1.0)
    mass = t.soft.sum(1, keepdim=True)
    value = s.log_sum * mass + (s.top - z).mul_(t.soft).sum(1, keepdim=True)
    return value.squeeze(1), s.probs.mul_(mass if damp is None else mass - damp).sub_(t.soft)


def subtract_at(x: Tensor, index: Tensor, amount: Tensor | float) -> Tensor:
    """In place ``x[n, index[n]] -= amount[n]`` over the class dimension."""
    if torch.compiler.is_compiling():
        return x.sub_(is_at(x, index).to(x.dtype) * amount)
    source = -amount if isinstance(amount, Tensor) else x.new_full((), -amount)
    return x.scatter_add_(1, index, source.expand(index.shape))


def set_at(x: Tensor, index: Tensor, value: Tensor | float) -> Tensor:
    """In place ``x[n, index[n]] = value[n]`` over the class dimension."""
    if torch.compiler.is_compiling():
        return x.copy_(torch.where(is_at(x, index), value, x))
    return x.scatter_(1, index, value)


def is_at(x: Tensor, index: Tensor) -> Tensor:
    """One-hot mask of the index: the compiler fuses a comparison, but writes out what is scattered."""
    return per_class(torch.arange(x.shape[1], device=x.device), index) == index


def nll(z: Tensor, t: Target, weight: Tensor | None = None) -> Tensor:
    """Plain cross-entropy per position, class-weighted as torch does it: ``[N, ...]``."""
    log_probs = z.log_softmax(1)
    if t.soft is not None:
        weighted = t.soft if weight is None else t.soft * per_class(weight, z)
        return -(weighted * log_probs).sum(1)
    value = -log_probs.gather(1, t.at_label()).squeeze(1)
    return value if weight is None else value * weight.to(z.dtype)[t.labels]


def label_log_odds(z: Tensor, t: Target) -> tuple[Tensor, Tensor]:
    """log p_y and log(1 - p_y) per position, both from logits, so that neither end loses digits.

    1 - p_y is the probability of the other classes, whose log-sum-exp needs no subtraction from 1.
    """
    index = t.at_label()
    z = z - z.detach().amax(1, keepdim=True)
    lse = z.logsumexp(1)
    others = z.scatter(1, index, -torch.inf).logsumexp(1)
    return z.gather(1, index).squeeze(1) - lse, others - lse


def per_class(weight: Tensor, z: Tensor) -> Tensor:
    """``[C]`` reshaped to broadcast over ``[N, C, ...]``, in the type of ``z``."""
    return weight.to(z.dtype).view(1, -1, *[1] * (z.dim() - 2))


def cross_entropy_with_confidence(
    z: Tensor, s: Softmax, t: Target, predicted: Tensor, slope: Tensor
) -> tuple[Tensor, Tensor]:
    """Cross-entropy plus a function of the confidence r = p_yhat whose derivative with respect to r is ``slope``.

    dr/dz_j = r (1[j = yhat] - p_j), so the sum of both gradients is p (1 - slope r) - q, plus slope r at yhat.

    Returns:
        The cross-entropy per position and the gradient of both, which overwrites ``s.probs``.
    """
    pull = slope * s.probs.gather(1, predicted)
    value, gradient = cross_entropy(z, s, t, damp=pull)
    return value, subtract_at(gradient, predicted, -pull)
