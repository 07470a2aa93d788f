"""Numerical building blocks that closed forms and plain formulas share."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from calibrant.losses.target import Target


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
