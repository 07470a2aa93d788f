r"""Confidence penalty [Pereyra2017] (ECP in the papers' tables).

Formula: :math:`L = L_{CE} - \beta H(p)`.

===============  ==============================  ======================================  ===========================
                 ``variant="paper"`` (default)   ``variant="released"``                  ``variant="lr"``
===============  ==============================  ======================================  ===========================
entropy          :math:`H(p)` per sample         mean over N and K, so :math:`\beta/K`   :math:`H(p)` per sample
sign             rewarded                        rewarded                                punished: a sign error
===============  ==============================  ======================================  ===========================

=============  ==========
paper letter   variable
=============  ==========
beta           strength
=============  ==========

LR prints this penalty with the entropy's sign flipped (LR Eq. 2), and so has the released code behind its rows "CP":
cross-entropy plus :math:`\beta H(p)` makes predictions surer, where the penalty is to make them less sure.
``variant="lr"`` is that sign error, to reproduce those rows and for nothing else. Values: 0.1 is the default; LR
searches 0.1-8.
"""

from __future__ import annotations

from typing import Any, Literal

from torch import Tensor

from calibrant.base.checks import check_choice, check_number
from calibrant.losses.base import Loss, Terms, register
from calibrant.losses.numerics import Target, cross_entropy, nll, softmax


@register(
    "ecp",
    "Confidence penalty",
    paper="Pereyra2017",
    equation="Sec. 2",
    summary="rewards the entropy of the prediction",
    use="As a baseline: it acts on the whole predicted distribution and leaves the label as it is.",
    avoid="Only some predictions are too sure: it rewards entropy everywhere, also where the confidence is deserved.",
    hyper={
        "strength": "larger: lower confidence",
        "variant": "'paper': entropy per sample; 'released': entropy divided by the number of classes; "
        "'lr': the sign error of LR's published baseline, which raises the confidence",
    },
    search={"strength": (0.1, 0.3, 0.5, 1.0, 2.0, 4.0, 8.0)},  # LR, section 4 (its beta)
)
class ConfidencePenalty(Loss):
    """Cross-entropy minus an entropy bonus.

    Args:
        strength: weight of the entropy, at least 0.
        variant: ``"paper"``, ``"released"`` or ``"lr"``, see above.
        **common: see `Loss`.

    Example:
        >>> import torch
        >>> from calibrant.losses import ConfidencePenalty
        >>> ConfidencePenalty(strength=0.1)(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0]))
        tensor(0.1730)
    """

    def __init__(self, strength: float = 0.1, variant: Literal["paper", "released", "lr"] = "paper", **common: Any):
        super().__init__(**common)
        self.strength = check_number("strength", strength, 0.0)
        self.variant = check_choice("variant", variant, ("paper", "released", "lr"))

    def formula(self, z: Tensor, t: Target) -> Terms:
        """Cross-entropy, and minus the weighted entropy."""
        log_probs = z.log_softmax(1)
        return Terms(nll(z, t, self.weight), self._beta(z) * (log_probs.exp() * log_probs).sum(1))

    def closed_form(self, z: Tensor, t: Target) -> tuple[Tensor, Tensor]:
        r"""With :math:`m = \sum_k p_k z_k`: :math:`H = lse - m`, :math:`-\partial H/\partial z_j = p_j (z_j - m)`."""
        s, beta = softmax(z), self._beta(z)
        # Logits relative to their maximum, so that large ones do not cost digits of the entropy.
        weighted = (z - s.top).mul_(s.probs)
        mean = weighted.sum(1, keepdim=True)
        penalty = beta * (mean - s.log_sum).squeeze(1)
        value, gradient = cross_entropy(z, s, t, damp=beta * mean)
        return value + penalty, gradient.add_(weighted, alpha=beta)

    def _beta(self, z: Tensor) -> float:
        return {"paper": 1.0, "released": 1.0 / z.shape[1], "lr": -1.0}[self.variant] * self.strength
