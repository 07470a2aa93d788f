r"""Label relaxation: LR Eq. 5-6.

Formula: the target is the set of distributions that leave at most :math:`\alpha` to the other classes. Inside the set
(:math:`p_y \geq 1-\alpha`) the loss is 0; outside it is the KL divergence from the nearest member of the set,

.. math:: L = (1-\alpha) \log\frac{1-\alpha}{p_y} + \alpha \log\frac{\alpha}{1-p_y} .

=================  ========
paper letter       variable
=================  ========
alpha              alpha
p-hat(y_i)         p_y
=================  ========

Departures: none; no clipping. With alpha 0 it is cross-entropy. Values: 0.1 is the default; LR searches
0.01-0.4.

Numerics: :math:`1-p_y` is the probability of the other classes (a sum, not a difference), and near the border of the
set, where the two logarithms cancel, both are taken by log1p of the distance :math:`\delta = (1-p_y) - \alpha`.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from calibrant.base.checks import check_number
from calibrant.losses.base import Loss, Terms, register
from calibrant.losses.numerics import Target, label_log_odds, set_at, softmax


@register(
    "lr",
    "Label relaxation",
    paper="LR",
    equation="Eq. 5-6",
    summary="asks nothing more once the label's probability reaches 1 - alpha",
    use="A prediction that is sure enough should be left alone: once the label has 1 - alpha, the loss is 0.",
    avoid="Labels are soft or mixed, which it does not take.",
    hyper={"alpha": "larger: training stops at a lower confidence"},
    search={"alpha": (0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.4)},  # LR, section 4
    soft=False,
)
class LabelRelaxation(Loss):
    """Label relaxation.

    Args:
        alpha: probability that may be left to the other classes, in [0, 1].
        **common: see `Loss`.

    Example:
        >>> import torch
        >>> from calibrant.losses import LabelRelaxation
        >>> LabelRelaxation(alpha=0.1)(torch.tensor([[0.0, 0.0], [4.0, 0.0]]), torch.tensor([0, 0]))
        tensor(0.1840)
    """

    def __init__(self, alpha: float = 0.1, **common: Any):
        super().__init__(**common)
        self.alpha = check_number("alpha", alpha, 0.0, 1.0)

    def formula(self, z: Tensor, t: Target) -> Terms:
        """LR Eq. 5 with the projection of Eq. 6 inserted."""
        log_p, log_rest = label_log_odds(z, t)
        value = self._divergence(log_p, log_rest, log_rest.exp())
        return Terms(self._weighted(value, t))

    def closed_form(self, z: Tensor, t: Target) -> tuple[Tensor, Tensor]:
        r"""Outside the set :math:`-\delta` at the label and :math:`\delta p_j/(1-p_y)` elsewhere."""
        s, index = softmax(z), t.at_label()
        log_p = z.gather(1, index) - s.top - s.log_sum
        others = set_at(s.probs, index, 0.0)
        rest = others.sum(1, keepdim=True)
        delta = (rest - self.alpha).clamp(min=0)
        value = self._divergence(log_p, rest.log(), rest)
        gradient = set_at(others.mul_(torch.where(rest > 0, delta / rest, 0.0)), index, -delta)
        return value.squeeze(1), gradient

    def _divergence(self, log_p: Tensor, log_rest: Tensor, rest: Tensor) -> Tensor:
        """KL between Bernoulli(1 - alpha) and Bernoulli(p_y), 0 inside the set."""
        a = self.alpha
        if a in (0.0, 1.0):
            return -log_p if a == 0.0 else 0.0 * log_p
        delta = rest - a
        outside, near = delta > 0, delta < min(a, 1 - a) / 2
        # Each branch sees harmless arguments where the other one is used, so that no gradient turns into 0 * inf.
        small = torch.where(outside & near, delta, 0.0)
        close = -(1 - a) * torch.log1p(-small / (1 - a)) - a * torch.log1p(small / a)
        far = (1 - a) * (math.log1p(-a) - log_p) + a * (math.log(a) - torch.where(outside, log_rest, 0.0))
        return torch.where(delta <= 0, 0.0, torch.where(near, close, far))
