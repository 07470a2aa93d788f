r"""Adaptive and conditional label smoothing: ACLS Eq. 10-14.

Formula, per sample, with the predicted class :math:`\hat y` and margin M:

.. math:: L = L_{CE} + \lambda_1 \mathrm{relu}(z_{\hat y} - \min_k z_k - M)^2
              + \lambda_2 \sum_{j\neq\hat y} \mathrm{relu}(z_{\hat y} - z_j - M)^2 .

===============  ==========================================  ==========================================================
                 ``variant="paper"`` (Eq. 13)                ``variant="released"`` (default)
===============  ==========================================  ==========================================================
at yhat          :math:`z_{\hat y} - \min_k z_k - M`         :math:`z_{\hat y} - M`: no minimum
others           sum over j                                  mean over the K-1 others
gradient         ``gradient="eq13"``: of the formula;        the maximum is a constant in the terms of the others
                 ``"eq12"``: Eq. 12, half of it, with
                 maximum and minimum constant
tied maxima      the first is yhat                           all count as maximum: the first term once for each
===============  ==========================================  ==========================================================

======================  ==================
paper letter            variable
======================  ==================
lambda_1, lambda_2      lambda1, lambda2
M                       margin
======================  ==================

Recommended: lambda1 0.1, lambda2 0.01, margin 10 (6 on CIFAR-10), ACLS Sec. 4.1.

Ablations (ACLS Tables 5 and 6): ``indicator="none"`` keeps the smoothing function alone (adaptive only: the squares
without relu), ``smoothing="constant"`` keeps the indicator alone (conditional only: relu without the square),
``indicator="ranking"`` uses the condition of CRL on neighbours (i, i+1 mod N) in the place of the margin (squares
without relu where the pair is out of order); it needs ``ids`` as CRL does.

Departures: exactly on the margin the slope is 0, which is also its limit. The released form is not invariant to adding
a constant to all logits, because it has no minimum. In the lens, f is twice Eq. 10 unless ``gradient="eq12"``, and with
``gradient="eq13"`` the terms of the others also pull at yhat and the minimum is raised (ACLS Table 2 prints Eq. 10).
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from calibrant.base.checks import check_choice, check_number
from calibrant.losses.base import Terms, register
from calibrant.losses.crl import RankingLoss, out_of_order
from calibrant.losses.numerics import Target, cross_entropy, first_maximum, first_zero, nll, softmax, subtract_at


@register(
    "acls",
    "Adaptive and conditional label smoothing",
    paper="ACLS",
    equation="Eq. 13",
    summary="smooths each logit by how far it lies beyond a margin",
    use=(
        "The first to try beyond label smoothing: it acts beyond a margin as MbLS does, and harder the further a "
        "logit lies beyond it. The lowest mean ECE of ACLS Table 3."
    ),
    avoid=(
        "Logits stay within the margin: it is cross-entropy then. The paper has 10, and 6 on CIFAR-10; `calibrant "
        "lens --predictions` tells on how many samples it acts."
    ),
    hyper={
        "margin": "larger: fewer logits are smoothed, higher confidence",
        "lambda1": "larger: the largest logit is pulled down harder",
        "lambda2": "larger: small logits are pulled up harder",
        "variant": "'released': no minimum, mean over the others; 'paper': as printed",
        "gradient": "'eq13': of the printed loss; 'eq12': the printed gradient (variant='paper')",
        "smoothing": "'adaptive': proportional to the distance; 'constant': ablation without it",
        "indicator": "'margin'; 'none' and 'ranking' are the ablations",
        "num_samples": "size of the training set, if known beforehand (indicator='ranking')",
    },
    # ACLS, Table A and section 4.1
    search={"margin": (6.0, 10.0), "lambda1": (0.05, 0.1, 0.15), "lambda2": (0.005, 0.01, 0.015)},
)
class ACLS(RankingLoss):
    """Cross-entropy plus adaptive and conditional label smoothing.

    Args:
        margin: distance beyond which logits are smoothed, at least 0.
        lambda1: strength at the predicted class.
        lambda2: strength at the other classes.
        variant: ``"released"`` or ``"paper"``, see above.
        gradient: ``"eq13"`` or ``"eq12"``, for the paper variant.
        smoothing: ``"adaptive"``, or ``"constant"`` for the ablation.
        indicator: ``"margin"``, or ``"none"`` or ``"ranking"`` for the ablations.
        num_samples: for ``indicator="ranking"``: size of the training set, 0 to let the history grow.
        **common: see `Loss`.

    Example:
        >>> import torch
        >>> from calibrant.losses import ACLS
        >>> ACLS(margin=10.0).terms(torch.tensor([[15.0, 3.0, 6.0]]), torch.tensor([0]))["regulariser"]
        tensor(2.5200)
    """

    def __init__(
        self,
        margin: float = 10.0,
        lambda1: float = 0.1,
        lambda2: float = 0.01,
        variant: Literal["released", "paper"] = "released",
        gradient: Literal["eq13", "eq12"] = "eq13",
        smoothing: Literal["adaptive", "constant"] = "adaptive",
        indicator: Literal["margin", "none", "ranking"] = "margin",
        num_samples: int = 0,
        **common: Any,
    ):
        super().__init__(indicator, num_samples, **common)
        self.margin = check_number("margin", margin, 0.0)
        self.lambda1 = check_number("lambda1", lambda1, 0.0)
        self.lambda2 = check_number("lambda2", lambda2, 0.0)
        self.variant = check_choice("variant", variant, ("released", "paper"))
        self.gradient = check_choice("gradient", gradient, ("eq13", "eq12"))
        if gradient == "eq12" and variant == "released":
            raise ValueError("gradient='eq12' is the printed gradient: it goes with variant='paper'")
        self.smoothing = check_choice("smoothing", smoothing, ("adaptive", "constant"))
        self.indicator = check_choice("indicator", indicator, ("margin", "none", "ranking"))

    def formula(self, z: Tensor, t: Target) -> Terms:
        """ACLS Eq. 14, or what the released code computes."""
        fidelity = nll(z, t, self.weight)
        return Terms(fidelity, self._released(z, t) if self.variant == "released" else self._paper(z, t))

    def _paper(self, z: Tensor, t: Target) -> Tensor:
        """ACLS Eq. 13; with ``gradient="eq12"`` its value carries the gradient of Eq. 12."""
        printed = self._paper_terms(z, t, z.max(1, keepdim=True).values, z.min(1, keepdim=True).values)
        if self.gradient == "eq13":
            return printed
        constant = z.detach()
        terms = self._paper_terms(z, t, constant.max(1, keepdim=True).values, constant.min(1, keepdim=True).values)
        # Eq. 13 is twice the integral of Eq. 12; without the square there is no factor to take back.
        sloped = terms if self.smoothing == "constant" else terms / 2
        return sloped + (printed - sloped).detach()

    def _paper_terms(self, z: Tensor, t: Target, top: Tensor, bottom: Tensor) -> Tensor:
        predicted = z.argmax(1, keepdim=True)
        at_top = self._shape(z.gather(1, predicted) - bottom - self.margin, z, t)
        others = self._shape(top - z - self.margin, z, t).scatter(1, predicted, 0.0)
        return (self.lambda1 * at_top + self.lambda2 * others.sum(1, keepdim=True)).squeeze(1)

    def _released(self, z: Tensor, t: Target) -> Tensor:
        top = z.max(1, keepdim=True).values
        tied = z.detach() == top.detach()
        at_top = tied.sum(1, keepdim=True) * self._shape(top - self.margin, z, t)
        others = torch.where(tied, 0.0, self._shape(top.detach() - z - self.margin, z, t))
        return (self.lambda1 * at_top + self.lambda2 / (z.shape[1] - 1) * others.sum(1, keepdim=True)).squeeze(1)

    def _shape(self, distance: Tensor, z: Tensor, t: Target) -> Tensor:
        """Indicator and smoothing function applied to the distance beyond the margin."""
        if self.indicator == "margin":
            distance = torch.relu(distance)
        elif self.indicator == "ranking":
            distance = distance * self._ranking(z.detach().softmax(1).amax(1), t)
        return distance.square() if self.smoothing == "adaptive" else distance

    def _ranking(self, confidence: Tensor, t: Target) -> Tensor:
        """1 where a sample and its follower are out of order, ``[N, 1, ...]``."""
        if t.correctness is None:
            return torch.zeros_like(confidence).unsqueeze(1)
        active = out_of_order(confidence.flatten(), t.correctness, t)
        return active.view_as(confidence).unsqueeze(1).to(confidence.dtype)

    def closed_form(self, z: Tensor, t: Target) -> tuple[Tensor, Tensor] | None:
        """ACLS Eq. 12 or the gradient of Eq. 13; the ablations are left to autograd."""
        if self.smoothing != "adaptive" or self.indicator != "margin":
            return None
        released, classes = self.variant == "released", z.shape[1]
        top, predicted, gap = first_maximum(z)
        tied = classes - gap.sign().sum(1, keepdim=True) if released else 1.0
        bottom = 0.0 if released else z.amin(1, keepdim=True)
        strength1 = self.lambda1 * tied
        strength2 = self.lambda2 / (classes - 1) if released else self.lambda2
        value, gradient = cross_entropy(z, softmax(z, top), t)
        at_top, others = torch.relu(top - bottom - self.margin), gap.sub_(self.margin).relu_()
        value = value + (strength1 * at_top.square()).squeeze(1) + strength2 * others.square().sum(1)
        factor = 1.0 if self.gradient == "eq12" else 2.0
        slope, pull = others.mul_(factor), strength1 * factor * at_top
        gradient.sub_(slope, alpha=strength2)
        if released or self.gradient == "eq12":
            return value, subtract_at(gradient, predicted, -pull)
        subtract_at(gradient, predicted, -pull - strength2 * slope.sum(1, keepdim=True))
        return value, subtract_at(gradient, first_zero(z - bottom), pull)
