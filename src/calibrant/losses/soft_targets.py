r"""Cross-entropy towards a distribution per sample: the loss of mixed (CutMix, Mixup) and object-aware labels.

Formula (ALS Eq. 2 with the soft label of Eq. 5): :math:`L = -\sum_k q_k \log p_k`, optionally minus :math:`H(q)`.

=================  ========
paper letter       variable
=================  ========
pi-tilde (ALS)     target
=================  ========

Departures: none from the text; ALS Eq. 6 prints the second term with the wrong sign.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from calibrant.base.checks import check_flag
from calibrant.losses.base import Terms, register
from calibrant.losses.cross_entropy import CrossEntropy
from calibrant.losses.numerics import Target, nll


@register(
    "soft",
    "Soft targets",
    paper="ALS",
    equation="Eq. 2, 5",
    summary="cross-entropy towards a given distribution per sample",
    use="Labels are distributions already: object-aware labels (ALS), CutMix, RICAP or Mixup, several annotators.",
    avoid="Labels are classes: `ce` is the same and takes them directly.",
    hyper={"subtract_entropy": "True: the KL divergence, 0 where the prediction equals the target"},
)
class SoftTargetCrossEntropy(CrossEntropy):
    """Cross-entropy towards soft labels.

    Class indices are taken as one-hot rows, so a loop may mix both kinds of batches.

    Args:
        subtract_entropy: report KL(q || p) instead of H(q, p); the gradient is the same.
        **common: see `Loss`.

    Example:
        >>> import torch
        >>> from calibrant.losses import SoftTargetCrossEntropy
        >>> q = torch.tensor([[0.5, 0.25, 0.25]])
        >>> SoftTargetCrossEntropy(subtract_entropy=True)(q.log(), q)
        tensor(0.)
    """

    def __init__(self, subtract_entropy: bool = False, **common: Any):
        super().__init__(**common)
        if subtract_entropy and self.weight is not None:
            raise ValueError("subtract_entropy=True is a divergence between distributions: it takes no class weights")
        self.subtract_entropy = check_flag("subtract_entropy", subtract_entropy)

    def formula(self, z: Tensor, t: Target) -> Terms:
        """H(q, p), or KL(q || p)."""
        return Terms(nll(z, t, self.weight) - self._subtracted_entropy(t))

    def closed_form(self, z: Tensor, t: Target) -> tuple[Tensor, Tensor]:
        """p - q."""
        value, gradient = super().closed_form(z, t)
        return value - self._subtracted_entropy(t), gradient

    def _subtracted_entropy(self, t: Target) -> Tensor | float:
        """H(q), or 0 where it is not to be subtracted."""
        if not self.subtract_entropy or t.soft is None:
            return 0.0
        # The logarithm of a clamped q is vectorised, xlogy is not; 0 log 0 comes out as 0 either way.
        return -(t.soft.clamp(min=torch.finfo(t.soft.dtype).tiny).log() * t.soft).sum(1)
