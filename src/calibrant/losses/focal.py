r"""Focal loss [Lin2017].

Formula: :math:`L = -(1-p_y)^\gamma \log p_y`; for soft labels its expectation
:math:`-\sum_k q_k (1-p_k)^\gamma \log p_k`.

=============  ========
paper letter   variable
=============  ========
gamma          gamma
p_t            p_y
=============  ========

Departures: none. Values: 3 is the default; LR searches 0.1-5.

Numerics: :math:`1-p_y` is the probability of the other classes, taken from their own log-sum-exp. The power is then
finite and so is its gradient, for gamma below 1 and for saturated predictions too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from calibrant.base.checks import check_number
from calibrant.losses.base import Loss, Terms, register
from calibrant.losses.numerics import Target, label_log_odds, per_class, set_at, softmax

#: A number, or a rule that gives it for each position from p_y and the largest probability.
Gamma = float | Callable[[Tensor, Tensor], Tensor]


def focal_formula(z: Tensor, t: Target, gamma: Gamma) -> Tensor:
    """The focal loss per position for class labels."""
    log_p, log_rest = label_log_odds(z, t)
    exponent: Tensor | float
    if callable(gamma):
        probs = z.detach().softmax(1)
        exponent = gamma(probs.gather(1, t.at_label()).squeeze(1), probs.amax(1))
    else:
        exponent = gamma
    return -(exponent * log_rest).exp() * log_p


def focal_closed_form(z: Tensor, t: Target, gamma: Gamma) -> tuple[Tensor, Tensor]:
    r"""The focal loss per position and its gradient.

    With :math:`u = 1-p_y`, :math:`\partial L/\partial z_y = D` and :math:`\partial L/\partial z_j = -D p_j/u`, where
    :math:`D = -u^{\gamma+1} + \gamma u^\gamma p_y \log p_y`. The ratio :math:`p_j/u`
    is at most 1, so nothing overflows.
    """
    s, index = softmax(z), t.at_label()
    log_p = z.gather(1, index) - s.top - s.log_sum
    exponent = gamma(s.probs.gather(1, index), s.probs.amax(1, keepdim=True)) if callable(gamma) else gamma
    others = set_at(s.probs, index, 0.0)
    rest = others.sum(1, keepdim=True)
    power = torch.xlogy(exponent, rest).exp()
    slope = power * (exponent * log_p.exp() * log_p - rest)
    gradient = set_at(others.mul_(torch.where(rest > 0, -slope / rest, 0.0)), index, slope)
    return (-power * log_p).squeeze(1), gradient


@register(
    "focal",
    "Focal loss",
    short="FL",
    paper="Lin2017",
    equation="Eq. 4",
    summary="turns down samples that are already predicted well",
    use="Many easy samples drown the hard ones, or classes are imbalanced: what is already predicted well counts less.",
    avoid="The model is not overconfident to begin with: a large gamma can end underconfident.",
    hyper={"gamma": "larger: less pull on easy samples, lower confidence; 0 is cross-entropy"},
    search={"gamma": (0.1, 0.2, 0.5, 1.0, 2.0, 3.5, 5.0)},  # LR, section 4
)
class Focal(Loss):
    """Focal loss.

    Args:
        gamma: focusing exponent, at least 0.
        **common: see `Loss`.

    Example:
        >>> import torch
        >>> from calibrant.losses import Focal
        >>> Focal(gamma=3.0)(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0]))
        tensor(0.0023)
    """

    def __init__(self, gamma: float = 3.0, **common: Any):
        super().__init__(**common)
        self.gamma = check_number("gamma", gamma, 0.0)

    def formula(self, z: Tensor, t: Target) -> Terms:
        """Lin2017 Eq. 4."""
        if t.soft is None:
            value = focal_formula(z, t, self.gamma)
            return Terms(self._weighted(value, t))
        log_probs = z.log_softmax(1)
        rest = (-torch.expm1(log_probs)).clamp(min=torch.finfo(z.dtype).tiny)
        weighted = t.soft if self.weight is None else t.soft * per_class(self.weight, z)
        return Terms(-(weighted * (self.gamma * rest.log()).exp() * log_probs).sum(1))

    def closed_form(self, z: Tensor, t: Target) -> tuple[Tensor, Tensor] | None:
        """The gradient of `focal_closed_form`."""
        return None if t.soft is not None else focal_closed_form(z, t, self.gamma)
