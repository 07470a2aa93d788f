r"""Focal loss with a sample-dependent gamma [Mukhoti2020], ACLS supplement Eq. 1.

=============  =============================================  =================================
               ``variant="paper"`` (ACLS supplement Eq. 1)    ``variant="released"`` (default)
=============  =============================================  =================================
gamma from     :math:`p_{\hat y}`                             :math:`p_y`
p < 0.2        5                                              5
0.2 <= p < .5  ``gamma``                                      3
p >= 0.5       ``gamma``                                      ``gamma``
=============  =============================================  =================================

With the default ``gamma=3`` the last two ranges coincide ("FLSD-53"). gamma is a constant to the gradient.

The lens: ACLS Table 2 puts constants for f, by way of the approximation of focal loss as cross-entropy minus an
entropy. That is not a small step: f depends on all of p; the page "Table 2 against autograd" shows how far from
constant it is.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from calibrant.base.checks import check_choice, check_number
from calibrant.losses.base import Loss, Terms, register
from calibrant.losses.focal import focal_closed_form, focal_formula
from calibrant.losses.numerics import Target


@register(
    "flsd",
    "Sample-dependent focal loss",
    paper="Mukhoti2020",
    equation="ACLS supplement Eq. 1",
    summary="focal loss with a larger gamma for samples of low probability",
    use=(
        "Focal loss helps, but one gamma does not suit all samples: those of low probability get a larger one "
        "[Mukhoti2020]."
    ),
    avoid="Labels are soft or mixed, which it does not take; or the model is not overconfident to begin with.",
    hyper={
        "gamma": "larger: less pull on easy samples, lower confidence",
        "variant": "'released': gamma from p_y; 'paper': from the largest probability",
    },
    soft=False,
)
class FLSD(Loss):
    """Focal loss with sample-dependent gamma.

    Args:
        gamma: exponent where the probability is at least 0.5.
        variant: ``"released"`` or ``"paper"``, see above.
        **common: see `Loss`.

    Example:
        >>> import torch
        >>> from calibrant.losses import FLSD
        >>> FLSD()(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([1]))
        tensor(1.2753)
    """

    def __init__(self, gamma: float = 3.0, variant: Literal["released", "paper"] = "released", **common: Any):
        super().__init__(**common)
        self.gamma = check_number("gamma", gamma, 0.0)
        self.variant = check_choice("variant", variant, ("released", "paper"))

    def formula(self, z: Tensor, t: Target) -> Terms:
        """Focal loss with `gamma_of`."""
        value = focal_formula(z, t, self.gamma_of)
        return Terms(self._weighted(value, t))

    def closed_form(self, z: Tensor, t: Target) -> tuple[Tensor, Tensor]:
        """The gradient of focal loss; gamma is constant."""
        return focal_closed_form(z, t, self.gamma_of)

    def gamma_of(self, p_label: Tensor, p_top: Tensor) -> Tensor:
        """The exponent of each position by the probabilities of its label and of the prediction: the table above."""
        released = self.variant == "released"
        p = p_label if released else p_top
        gamma = torch.full_like(p, self.gamma)
        return torch.where(p < 0.2, 5.0, torch.where(p < 0.5, 3.0, gamma) if released else gamma)
