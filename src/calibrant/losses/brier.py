r"""Brier score as a loss [Brier1950], a proper score: the squared error of the whole predicted distribution.

Formula: :math:`L = \frac1d \sum_k (p_k - q_k)^2`, with q the label as a distribution.

==================  =============  ==================================================================================
``scale``           d              where it is found
==================  =============  ==================================================================================
``"sum"``           1              [Brier1950]; from 0 to 2 (default)
``"half"``          2              from 0 to 1; with two classes the square of one probability's error
``"mean"``          K              a mean over all entries, as ``mse_loss`` of the probabilities
==================  =============  ==================================================================================

The names are those of `calibrant.metrics.brier`.

=============  ===========================================
paper letter   variable
=============  ===========================================
f, E           p, q: probabilities and label
r              K, the number of classes
=============  ===========================================

Departures: none. For soft labels it is the distance to q; the expected score of a label drawn from q is larger by
:math:`\frac1d (1 - \sum_k q_k^2)`, which has no gradient. Values: none to choose but the scale, which acts as a factor
of the learning rate. The gradient is bounded and vanishes where the model is sure, right or wrong: a sure error is
learned more slowly than by cross-entropy.

The lens: q' = p minus the gradient, :math:`\frac2d p_j [(p_j - q_j) - \sum_k p_k (p_k - q_k)]`.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from calibrant.base.checks import check_choice
from calibrant.losses.base import Loss, Terms, register
from calibrant.losses.numerics import Target, subtract_at


@register(
    "brier",
    "Brier score",
    short="Brier",
    paper="Brier1950",
    equation="Eq. 2",
    summary="minimises the squared error of the probabilities",
    use="A few wrong labels should not dominate: no sample costs more than 2, however surely it is missed.",
    avoid="There are many classes, or training is from scratch and short: sure errors have hardly a gradient.",
    hyper={"scale": "'sum': over the classes; 'half' and 'mean': divided by 2 or K, a smaller step"},
)
class BrierScore(Loss):
    """The squared error of the probabilities.

    Args:
        scale: ``"sum"`` over the classes, or divided by 2, ``"half"``, or by their number, ``"mean"``.
        **common: see `Loss`. Class weights multiply the score of a sample by the weight of its label, of a soft label
            by its mean weight.

    Example:
        >>> import torch
        >>> from calibrant.losses import BrierScore
        >>> BrierScore()(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0]))
        tensor(0.0680)
    """

    def __init__(self, scale: Literal["sum", "half", "mean"] = "sum", **common: Any):
        super().__init__(**common)
        self.scale = check_choice("scale", scale, ("sum", "half", "mean"))

    def formula(self, z: Tensor, t: Target) -> Terms:
        """Brier1950 Eq. 2, of one sample."""
        score = (z.softmax(1) - t.distribution(z)).square().sum(1) / self._divisor(z)
        return Terms(self._weighted(score, t))

    def closed_form(self, z: Tensor, t: Target) -> tuple[Tensor, Tensor]:
        """The gradient as the lens has it."""
        probs = z.softmax(1)
        error = probs - t.soft if t.soft is not None else subtract_at(probs.clone(), t.at_label(), 1.0)
        value = torch.linalg.vector_norm(error, dim=1).square() / self._divisor(z)  # without an array of squares
        gradient = error.mul_(probs)
        gradient.addcmul_(probs, gradient.sum(1, keepdim=True), value=-1)
        return value, gradient.mul_(2 / self._divisor(z))

    def _divisor(self, z: Tensor) -> int:
        return {"sum": 1, "half": 2, "mean": z.shape[1]}[self.scale]
