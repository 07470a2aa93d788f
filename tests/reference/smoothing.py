"""Smoothing function f and indicator C of ACLS Eq. 8, in closed form, for the losses of ACLS Table 2.

``exact(loss, logits, target)`` is what the gradient really gives, with every constant; ``printed(loss, ...)`` is what
Table 2 prints. Both return f and C, ``[N, C]``; the tests and the page on Table 2 hold them against `calibrant.lens`,
which reads the gradient. A loss trains towards q - f C at the predicted class yhat and q + f C elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from calibrant.losses import ACLS, CPC, CRL, FLSD, MDCA, LabelSmoothing, Loss, MbLS


class Smoothing(NamedTuple):
    """f and C, both ``[N, C]``."""

    f: Tensor
    indicator: Tensor


Form = Callable[..., Smoothing]
EXACT: dict[type[Loss], Form] = {}
PRINTED: dict[type[Loss], Form] = {}


def enter(table: dict[type[Loss], Form], loss: type[Loss]) -> Callable[[Form], Form]:
    """Decorator: enter a closed form into a table."""

    def add(form: Form) -> Form:
        table[loss] = form
        return form

    return add


def exact(loss: Loss, logits: Tensor, target: Tensor, ids: Tensor | None = None) -> Smoothing:
    """F and C as the gradient has them."""
    return EXACT[type(loss)](loss, *loss._prepare(logits, target, ids=ids))


def printed(loss: Loss, logits: Tensor, target: Tensor, ids: Tensor | None = None) -> Smoothing:
    """F and C as ACLS Table 2 prints them."""
    return PRINTED[type(loss)](loss, *loss._prepare(logits, target, ids=ids))


def of_shift(shift: Tensor, z: Tensor) -> Smoothing:
    """From the shift q' - q of the target, active everywhere: the sign is turned at the predicted class."""
    predicted = z.argmax(1, keepdim=True)
    return Smoothing(shift.scatter(1, predicted, -shift.gather(1, predicted)), torch.ones_like(z))


@enter(EXACT, LabelSmoothing)
def label_smoothing(loss: Any, z: Tensor, t: Any) -> Smoothing:
    """Table 2, row LS: alpha (1/K - q), and alpha K/(K-1) of it when the mass goes to the others alone."""
    classes = z.shape[1]
    mass = loss.alpha if loss.spread == "all" else loss.alpha * classes / (classes - 1)
    return of_shift(mass * (1 / classes - t.distribution(z)), z)


@enter(EXACT, FLSD)
def flsd(loss: Any, z: Tensor, t: Any) -> Smoothing:
    """Whatever the focal gradient is beyond p - q; Table 2 prints constants without values."""
    return of_shift(z.softmax(1) - loss.closed_form(z, t)[1] - t.distribution(z), z)


@enter(EXACT, MbLS)
def mbls(loss: Any, z: Tensor, t: Any) -> Smoothing:
    """Table 2, row MbLS; the released code adds the entry at yhat."""
    released, (top, predicted) = loss.variant == "released", z.max(1, keepdim=True)
    active = (top - z > loss.margin).to(z.dtype)
    f = torch.full_like(z, loss.strength / (z.shape[1] if released else 1))
    if released:
        count = active.sum(1, keepdim=True)
        f, active = f.scatter(1, predicted, f[:, :1] * count), active.scatter(1, predicted, (count > 0).to(z.dtype))
    return Smoothing(f, active)


def _mdca_scale(loss: Any, z: Tensor) -> float:
    return loss.strength if loss.variant == "paper" else loss.strength / z.shape[1]


@enter(EXACT, MDCA)
def mdca(loss: Any, z: Tensor, t: Any) -> Smoothing:
    """ACLS supplement Eq. 10 on a cross-entropy base, no approximation."""
    assert loss.base == "ce"
    probs, frequency = z.softmax(1), t.distribution(z).mean(0)
    sign = (probs.mean(0) - frequency).sign()
    return of_shift(-_mdca_scale(loss, z) * probs * (sign - (sign * probs).sum(1, keepdim=True)), z)


@enter(PRINTED, MDCA)
def mdca_printed(loss: Any, z: Tensor, t: Any) -> Smoothing:
    """Lambda p_j (1 - p_j) at yhat, and lambda p_j (1 + p_yhat) elsewhere."""
    probs, predicted = z.softmax(1), z.argmax(1, keepdim=True)
    top = probs.gather(1, predicted)
    f = _mdca_scale(loss, z) * (probs * (1 + top)).scatter(1, predicted, top * (1 - top))
    return Smoothing(f, torch.ones_like(z))


def _cpc_terms(loss: Any, z: Tensor, t: Any) -> tuple[Tensor, Tensor]:
    """Gradient of 1v1 (supplement Eq. 5), and the pairs of other classes (Eq. 6), with the variant's divisors."""
    probs, label, others = z.softmax(1), t.at_label(), z.shape[1] - 1
    scale1, scale2 = loss.lambda1, loss.lambda2
    if loss.variant == "released":
        scale1, scale2 = scale1 / others, 0.5 * scale2 / (others * (others - 1))
    push = (probs / (probs + probs.gather(1, label))).scatter(1, label, 0.0)
    one_v_one = push.scatter(1, label, -push.sum(1, keepdim=True))
    j, k = probs.unsqueeze(2), probs.unsqueeze(1)
    is_other = torch.ones_like(z).scatter(1, label, 0.0)
    pairs = ((j - k) / (j + k) * is_other.unsqueeze(1)).sum(2) * is_other
    return scale1 * one_v_one, scale2 * pairs


@enter(EXACT, CPC)
def cpc(loss: Any, z: Tensor, t: Any) -> Smoothing:
    """ACLS supplement Eq. 5-6, with every constant."""
    one_v_one, pairs = _cpc_terms(loss, z, t)
    return of_shift(-one_v_one - pairs, z)


@enter(PRINTED, CPC)
def cpc_printed(loss: Any, z: Tensor, t: Any) -> Smoothing:
    """The 1v1 term has the sign of its gradient; it assumes yhat = y."""
    one_v_one, pairs = _cpc_terms(loss, z, t)
    return Smoothing(one_v_one - pairs, torch.ones_like(z))


def _one_pair(loss: Any, z: Tensor) -> tuple[Tensor, Tensor]:
    """The confidence, and f of one violated pair (ACLS supplement Eq. 20)."""
    assert loss.score == "msp"
    probs, predicted = z.softmax(1), z.argmax(1, keepdim=True)
    top = probs.gather(1, predicted)
    return top, (loss.strength * top * probs).scatter(1, predicted, loss.strength * top * (1 - top))


def _out_of_order(confidence: Tensor, correctness: Tensor | None) -> Tensor:
    """Whether samples i and i + 1 mod N are ranked against their correctness (ACLS Eq. 21), ``[N, 1]``."""
    if correctness is None:
        return torch.zeros_like(confidence)
    c, k = correctness.view_as(confidence), confidence
    return ((c - c.roll(-1, 0)) * (k - k.roll(-1, 0)) < 0).to(confidence.dtype)


@enter(EXACT, CRL)
def crl(loss: Any, z: Tensor, t: Any) -> Smoothing:
    """ACLS supplement Eq. 19, every pair counted: f of one pair times the net number of pairs that pull it down."""
    top, shape = _one_pair(loss, z)
    if loss.indicator == "margin":
        gap, predicted = z.amax(1, keepdim=True) - z, z.argmax(1, keepdim=True)
        active = (gap > loss.margin).scatter(1, predicted, gap.amax(1, keepdim=True) > loss.margin)
        return Smoothing(shape, active.to(z.dtype))
    k, c = top.squeeze(1), t.correctness
    if c is None:
        return Smoothing(shape, torch.zeros_like(z))
    slope = torch.zeros_like(k)
    for i in range(len(k)):
        for j in range(len(k)) if loss.variant == "paper" else [(i + 1) % len(k)]:
            sign = torch.sign(c[i] - c[j])
            margin = 0.0 if loss.variant == "paper" else (c[i] - c[j]).abs()
            if sign != 0 and margin - sign * (k[i] - k[j]) > 0:
                slope[i] -= sign
                slope[j] += sign
    return Smoothing(shape * slope[:, None], (slope != 0).to(z.dtype)[:, None].expand_as(z))


@enter(PRINTED, CRL)
def crl_printed(loss: Any, z: Tensor, t: Any) -> Smoothing:
    """F of one pair where sample and follower are out of order."""
    top, f = _one_pair(loss, z)
    return Smoothing(f, _out_of_order(top, t.correctness).expand_as(z))


@enter(PRINTED, ACLS)
def acls_printed(loss: Any, z: Tensor, t: Any) -> Smoothing:
    """ACLS Eq. 10-11 (released: no minimum, lambda2/(K-1))."""
    released, (top, predicted) = loss.variant == "released", z.max(1, keepdim=True)
    floor = 0.0 if released else z.amin(1, keepdim=True)
    distance = (top - z - loss.margin).scatter(1, predicted, top - floor - loss.margin)
    lambda2 = loss.lambda2 / (z.shape[1] - 1) if released else loss.lambda2
    strength = torch.full_like(z, lambda2).scatter(1, predicted, loss.lambda1)
    f = strength * distance if loss.smoothing == "adaptive" else strength
    if loss.indicator == "margin":
        return Smoothing(f, (distance > 0).to(z.dtype))
    indicator = torch.ones_like(z)
    if loss.indicator == "ranking":
        indicator = _out_of_order(z.softmax(1).amax(1, keepdim=True), t.correctness).expand_as(z)
    if released:  # tied maxima are none of "the others"
        indicator = torch.where((z == top).scatter(1, predicted, False), 0.0, indicator)
    return Smoothing(f, indicator)


@enter(EXACT, ACLS)
def acls(loss: Any, z: Tensor, t: Any) -> Smoothing:
    """Eq. 10-11 with the factor 2 of the square and all that the gradient of Eq. 13 adds."""
    predicted = z.argmax(1, keepdim=True)
    f, indicator = acls_printed(loss, z, t)
    if loss.smoothing == "adaptive" and loss.gradient == "eq13":
        f = 2 * f
    if loss.variant == "released":
        tied = (z == z.amax(1, keepdim=True)).sum(1, keepdim=True)
        return Smoothing(f.scatter(1, predicted, tied * f.gather(1, predicted)), indicator)
    if loss.gradient == "eq12":
        return Smoothing(f, indicator)
    # yhat also answers for the terms of the others, the smallest logit for the term of yhat.
    f = f * indicator
    at_top = f.gather(1, predicted)
    f = f.scatter(1, predicted, f.sum(1, keepdim=True))
    f = f.scatter_add(1, z.argmin(1, keepdim=True), at_top)
    return Smoothing(f, (f != 0).to(z.dtype))
