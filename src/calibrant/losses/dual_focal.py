r"""Dual focal loss [Tao2023]: focal loss that also looks at the strongest class below the label's.

Formula: :math:`L = -(1 - p_y + p_j)^\gamma \log p_y`, with :math:`p_j = \max\{p_k : p_k < p_y\}`, 0 if there is none.

=============  =======================================================
paper letter   variable
=============  =======================================================
gamma          gamma
q_gt, q_j      p_y, and its competitor: strictly less probable
=============  =======================================================

Departures: the competitor is found by the logits, :math:`z_k < z_y`, so that rounding probabilities makes no ties.
Gradients flow through :math:`p_y` and :math:`p_j`. A class as probable as the label is no competitor, so that the loss
jumps where two logits pass each other. Values: the released commands train ResNet-50 with gamma 5 on CIFAR-10, the
default; the released class itself has gamma 0, which is cross-entropy, and sums over the batch
(``reduction="sum"``).

Numerics: :math:`1-p_y` is the probability of the other classes, taken from their own log-sum-exp, as in focal loss.

The lens: where the label is the prediction, :math:`p_j` is the runner-up, and the label is lowered more than by focal
loss; where the label has the smallest probability of all, it is focal loss.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from calibrant.base.checks import check_number
from calibrant.losses.base import Loss, Terms, register
from calibrant.losses.numerics import Target, first_zero, label_log_odds, set_at, softmax, subtract_at


@register(
    "dual_focal",
    "Dual focal loss",
    short="DFL",
    paper="Tao2023",
    equation="Eq. 4",
    summary="focal loss that also widens the gap to the class below the label's",
    use="Focal loss ends underconfident: the competitor keeps the pull on easy samples up.",
    avoid="Labels are soft or mixed, which it does not take; or the model is not overconfident to begin with.",
    hyper={"gamma": "larger: less pull on samples whose label leads clearly; 0 is cross-entropy"},
    soft=False,
)
class DualFocal(Loss):
    """Focal loss with the competitor of the label.

    Args:
        gamma: focusing exponent, at least 0.
        **common: see `Loss`.

    Example:
        >>> import torch
        >>> from calibrant.losses import DualFocal
        >>> DualFocal(gamma=3.0)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
        tensor(0.0793)
    """

    def __init__(self, gamma: float = 5.0, **common: Any):
        super().__init__(**common)
        self.gamma = check_number("gamma", gamma, 0.0)

    def formula(self, z: Tensor, t: Target) -> Terms:
        """Tao2023 Eq. 4."""
        log_p, log_rest = label_log_odds(z, t)
        fixed = z.detach()
        below = fixed < fixed.gather(1, t.at_label())
        index = torch.where(below, fixed, -torch.inf).argmax(1, keepdim=True)
        log_competitor = z.log_softmax(1).gather(1, index).squeeze(1)
        log_base = torch.where(below.any(1), torch.logaddexp(log_rest, log_competitor), log_rest)
        return Terms(self._weighted(-(self.gamma * log_base).exp() * log_p, t))

    def closed_form(self, z: Tensor, t: Target) -> tuple[Tensor, Tensor]:
        r"""The gradient of the loss.

        With :math:`u = 1 - p_y + p_j` it is :math:`u^\gamma (\gamma p_y \log p_y - (1 - p_y))` at y, and elsewhere
        :math:`u^\gamma p_k [1 - \gamma \log p_y (p_y - p_j)/u]`, at j plus :math:`-u^\gamma \gamma \log p_y\,p_j/u`.
        The ratios to u are at most 1, so nothing overflows.
        """
        s, index = softmax(z), t.at_label()
        label = z.gather(1, index)
        log_p, p = label - s.top - s.log_sum, s.probs.gather(1, index)
        below = (label - z).sign_().relu_().mul_(s.probs)  # 0 if not less probable than the label; masks are slow
        p_rival = below.amax(1, keepdim=True)
        rival = first_zero(below.sub_(p_rival).neg_())
        others = set_at(s.probs, index, 0.0)
        rest = others.sum(1, keepdim=True)
        base = rest + p_rival
        power = torch.xlogy(self.gamma, base).exp()
        ratio = torch.where(base > 0, -self.gamma * log_p / base, 0.0)
        gradient = others.mul_(power * (1 + ratio * (p - p_rival)))
        subtract_at(gradient, rival, -power * ratio * p_rival)
        return (-power * log_p).squeeze(1), set_at(gradient, index, power * (self.gamma * p * log_p - rest))
