r"""Cross-entropy.

Formula (ACLS Eq. 1, SC Eq. 2): :math:`L = -\sum_k q_k \log p_k`, gradient :math:`p - q` (ACLS Eq. 3).

=============  ========
paper letter   variable
=============  ========
z (ACLS)       logits
q              target
=============  ========

Departures from the papers: none.
"""

from __future__ import annotations

from torch import Tensor

from calibrant.losses.base import Loss, Terms, register
from calibrant.losses.numerics import Target, cross_entropy, nll, softmax


@register(
    "ce",
    "Cross-entropy",
    paper="ACLS",
    equation="Eq. 1",
    summary="plain cross-entropy",
    use="As the baseline of every comparison, and where the confidence will be repaired afterwards anyway.",
    avoid="The confidence is used as it comes: modern networks trained with it are overconfident as a rule [Guo2017].",
)
class CrossEntropy(Loss):
    """Cross-entropy.

    Example:
        >>> import torch
        >>> from calibrant.losses import CrossEntropy
        >>> CrossEntropy()(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0]))
        tensor(0.2395)
    """

    def formula(self, z: Tensor, t: Target) -> Terms:
        """ACLS Eq. 1."""
        return Terms(nll(z, t, self.weight))

    def closed_form(self, z: Tensor, t: Target) -> tuple[Tensor, Tensor]:
        """ACLS Eq. 3: p - q."""
        return cross_entropy(z, softmax(z), t)
