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
``gradient="eq13"`` the terms of the others also pull at yhat and the minimum is raised (`ACLS.lens_form`; ACLS Table 2
prints Eq. 10).
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from calibrant._validation import at_least, choice
from calibrant.losses.base import Smoothing, Target, Terms
from calibrant.losses.crl import out_of_order
from calibrant.losses.history import MOST_SAMPLES, CorrectnessHistory, RankingLoss
from calibrant.losses.numerics import cross_entropy, first_maximum, first_zero, nll, softmax, subtract_at
from calibrant.losses.registry import register


@register(
    "acls",
    paper="ACLS",
    equation="Eq. 13",
    summary="smooths each logit by how far it lies beyond a margin",
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
        super().__init__(**common)
        self.margin = at_least("margin", margin, 0.0)
        self.lambda1 = at_least("lambda1", lambda1, 0.0)
        self.lambda2 = at_least("lambda2", lambda2, 0.0)
        self.variant = choice("variant", variant, ("released", "paper"))
        self.gradient = choice("gradient", gradient, ("eq13", "eq12"))
        if gradient == "eq12" and variant == "released":
            raise ValueError("gradient='eq12' is the printed gradient: it goes with variant='paper'")
        self.smoothing = choice("smoothing", smoothing, ("adaptive", "constant"))
        self.indicator = choice("indicator", indicator, ("margin", "none", "ranking"))
        self.num_samples = int(at_least("num_samples", num_samples, 0, MOST_SAMPLES))
        self.history = CorrectnessHistory(self.num_samples) if indicator == "ranking" else None

    def formula(self, z: Tensor, t: Target) -> Terms:
        """ACLS Eq. 14, or what the released code computes."""
        fidelity = nll(z, t, self.weight)
        return Terms(fidelity, self._released(z, t) if self.variant == "released" else self._paper(z, t))

    def _paper(self, z: Tensor, t: Target) -> Tensor:
        """ACLS Eq. 13; with ``gradient="eq12"`` its value carries the gradient of Eq. 12."""
        printed = self._paper_terms(z, t, z.max(1, keepdim=True).values, z.min(1, keepdim=True).values)
        if self.gradient == "eq13":
            return printed
        frozen = z.detach()
        held = self._paper_terms(z, t, frozen.max(1, keepdim=True).values, frozen.min(1, keepdim=True).values)
        # Eq. 13 is twice the integral of Eq. 12; without the square there is no factor to take back.
        slope = held if self.smoothing == "constant" else held / 2
        return slope + (printed - slope).detach()

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
        return (
            out_of_order(confidence.flatten(), t.correctness, t).view_as(confidence).unsqueeze(1).to(confidence.dtype)
        )

    def closed_form(self, z: Tensor, t: Target) -> tuple[Tensor, Tensor]:
        """ACLS Eq. 12 and its relatives: the slope of each term by its distance, and where that distance comes from."""
        released, classes = self.variant == "released", z.shape[1]
        top, predicted, gap = first_maximum(z)
        s = softmax(z, top)
        switch = self._ranking(s.probs.amax(1), t) if self.indicator == "ranking" else torch.ones_like(top)
        if self.indicator == "margin":
            others = None  # relu leaves out the maximum by itself
        elif released:
            others = gap.sign() * switch
        else:
            others = switch.expand_as(z).scatter(1, predicted, 0.0)
        tied = classes - gap.sign().sum(1, keepdim=True) if released else 1.0
        bottom = None if released else z.amin(1, keepdim=True)
        smallest = None if bottom is None else first_zero(z - bottom)
        value, gradient = cross_entropy(z, s, t)
        x = gap.sub_(self.margin)
        x = x.relu_() if others is None else x.mul_(others)
        at_top = top - self.margin if bottom is None else top - bottom - self.margin
        at_top = torch.relu(at_top) if others is None else at_top * switch
        lambda2 = self.lambda2 / (classes - 1) if released else self.lambda2
        if self.smoothing == "adaptive":
            value = value + (self.lambda1 * tied * at_top.square()).squeeze(1) + lambda2 * x.square().sum(1)
            factor = 1.0 if self.gradient == "eq12" else 2.0
            slope, slope_top = x.mul_(factor), factor * at_top
        else:
            value = value + (self.lambda1 * tied * at_top).squeeze(1) + lambda2 * x.sum(1)
            slope = x.sign_() if others is None else others
            slope_top = at_top.sign() if others is None else switch
        gradient.sub_(slope, alpha=lambda2)
        pull = self.lambda1 * tied * slope_top
        if smallest is None or self.gradient == "eq12":
            return value, subtract_at(gradient, predicted, -pull)
        subtract_at(gradient, predicted, -pull - lambda2 * slope.sum(1, keepdim=True))
        return value, subtract_at(gradient, smallest, pull)

    def lens_form(self, logits: Tensor, target: Tensor, *, ids: Tensor | None = None) -> Smoothing:
        """Closed form of f and C: Eq. 10-11 with the factor 2 of the square and all that Eq. 13's autograd adds."""
        z, t = self._prepare(logits, target, ids=ids)
        predicted = z.argmax(1, keepdim=True)
        f, indicator = self._printed(z, t)
        if self.smoothing == "adaptive" and self.gradient == "eq13":
            f = 2 * f
        if self.variant == "released":
            tied = (z == z.amax(1, keepdim=True)).sum(1, keepdim=True)
            return Smoothing(f.scatter(1, predicted, tied * f.gather(1, predicted)), indicator)
        if self.gradient == "eq12":
            return Smoothing(f, indicator)
        # Plain autograd: yhat also answers for the terms of the others, the smallest logit for the term of yhat.
        f = f * indicator
        at_top = f.gather(1, predicted)
        f = f.scatter(1, predicted, f.sum(1, keepdim=True))
        f = f.scatter_add(1, z.argmin(1, keepdim=True), at_top)
        return Smoothing(f, (f != 0).to(z.dtype))

    def table2(self, logits: Tensor, target: Tensor, *, ids: Tensor | None = None) -> Smoothing:
        """F and C as ACLS Eq. 10-11 and Table 2 print them (released: no minimum, lambda2/(K-1))."""
        return Smoothing(*self._printed(*self._prepare(logits, target, ids=ids)))

    def _printed(self, z: Tensor, t: Target) -> tuple[Tensor, Tensor]:
        released, (top, predicted) = self.variant == "released", z.max(1, keepdim=True)
        floor = 0.0 if released else z.amin(1, keepdim=True)
        distance = (top - z - self.margin).scatter(1, predicted, top - floor - self.margin)
        lambda2 = self.lambda2 / (z.shape[1] - 1) if released else self.lambda2
        strength = torch.full_like(z, lambda2).scatter(1, predicted, self.lambda1)
        f = strength * distance if self.smoothing == "adaptive" else strength
        if self.indicator == "margin":
            return f, (distance > 0).to(z.dtype)
        indicator = (
            torch.ones_like(z) if self.indicator == "none" else self._ranking(z.softmax(1).amax(1), t).expand_as(z)
        )
        if released:  # tied maxima are none of "the others"
            indicator = torch.where((z == top).scatter(1, predicted, False), 0.0, indicator)
        return f, indicator
