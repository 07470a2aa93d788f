r"""Margin-based label smoothing: MbLS, ACLS supplement Eq. 14.

Formula: :math:`L = L_{CE} + \lambda \sum_k \max(0, \max_j z_j - z_k - m)`.

===============  =========================================  ========================================
                 ``variant="paper"`` (supplement)           ``variant="released"`` (default)
===============  =========================================  ========================================
over classes     sum                                        mean, so :math:`\lambda/K`
gradient at yhat none                                       flows through the maximum
===============  =========================================  ========================================

=====================  =========
paper letter           variable
=====================  =========
m (MbLS), M (ACLS)     margin
lambda                 strength
=====================  =========

Values: margin 10, and 6 on CIFAR-10 (ACLS Sec. 4.1, following MbLS); strength 0.1 is the default. With margin 0 the
penalty is the logit distance that MbLS Proposition 1 bounds by KL(u || p) on both sides.

Departures: where a logit lies exactly on the margin the slope is 0 (ACLS Eq. 9 writes >=). Of tied maxima the first is
the predicted class. The lens: f = lambda, C = 1[gap > M], 0 at yhat; the released code also lowers the label at yhat,
by :math:`\lambda/K` times the number of active classes, which ACLS Table 2 leaves out.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from calibrant.base.checks import check_choice, check_number
from calibrant.losses.base import Loss, Terms, register
from calibrant.losses.numerics import Target, cross_entropy, first_maximum, nll, softmax, subtract_at


@register(
    "mbls",
    "Margin-based label smoothing",
    short="MbLS",
    paper="MbLS",
    equation="ACLS supplement Eq. 14",
    summary="penalises logits further than a margin below the largest",
    use=(
        "Confidence should stay where it is deserved: only logits further than a margin below the largest are "
        "pulled up. In the mean ECE of ACLS Table 3 it is second to ACLS."
    ),
    avoid=(
        "Logits stay within the margin: it is cross-entropy then. `calibrant lens --predictions` tells on how many "
        "samples it acts."
    ),
    hyper={
        "margin": "larger: fewer logits are penalised, higher confidence",
        "strength": "larger: stronger pull on logits beyond the margin",
        "variant": "'released': mean over classes, gradient through the maximum; 'paper': sum, none at yhat",
    },
    search={"margin": (6.0, 10.0), "strength": (0.05, 0.1, 0.2)},  # MbLS, Figure 1 (it prints no values)
)
class MbLS(Loss):
    """Cross-entropy plus a linear penalty on logit distances beyond a margin.

    Args:
        margin: allowed distance of a logit from the largest, at least 0.
        strength: weight of the penalty.
        variant: ``"released"`` or ``"paper"``, see above.
        **common: see `Loss`.

    Example:
        >>> import torch
        >>> from calibrant.losses import MbLS
        >>> MbLS(margin=10.0).terms(torch.tensor([[15.0, 3.0, 6.0]]), torch.tensor([0]))["regulariser"]
        tensor(0.0667)
    """

    def __init__(
        self,
        margin: float = 10.0,
        strength: float = 0.1,
        variant: Literal["released", "paper"] = "released",
        **common: Any,
    ):
        super().__init__(**common)
        self.margin = check_number("margin", margin, 0.0)
        self.strength = check_number("strength", strength, 0.0)
        self.variant = check_choice("variant", variant, ("released", "paper"))

    def formula(self, z: Tensor, t: Target) -> Terms:
        """ACLS supplement Eq. 14."""
        top = z.max(1, keepdim=True).values
        excess = torch.relu((top if self.variant == "released" else top.detach()) - z - self.margin)
        return Terms(nll(z, t, self.weight), self._scale(z) * excess.sum(1))

    def closed_form(self, z: Tensor, t: Target) -> tuple[Tensor, Tensor]:
        """ACLS supplement Eq. 15; in the released code the maximum receives what the others give."""
        scale = self._scale(z)
        top, predicted, gap = first_maximum(z)
        value, gradient = cross_entropy(z, softmax(z, top), t)
        excess = gap.sub_(self.margin).relu_()
        value = value + scale * excess.sum(1)
        active = excess.sign_()
        gradient.sub_(active, alpha=scale)
        if self.variant == "released":
            subtract_at(gradient, predicted, -scale * active.sum(1, keepdim=True))
        return value, gradient

    def _scale(self, z: Tensor) -> float:
        return self.strength if self.variant == "paper" else self.strength / z.shape[1]
