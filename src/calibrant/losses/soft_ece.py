r"""Soft-binned calibration error as a regulariser [Karandikar2021]: an ECE of soft bins, which has gradients.

Formula: :math:`L = L_{CE} + \lambda\, E`. With confidence :math:`r_i = p_{\hat y}`, correctness :math:`c_i`, bin
centres :math:`\xi_b` and memberships :math:`g_{ib} = \mathrm{softmax}_b(-(r_i - \xi_b)^2/T)`, with sums :math:`S_b`:

======================  ===============================================================  ============================
``reading``             E                                                                centres
======================  ===============================================================  ============================
``"binned"`` (default)  :math:`\sqrt{\sum_b \frac{S_b}{N} (\bar r_b - \bar c_b)^2}`      :math:`(2b-1)/2M`
``"labels"``            :math:`\frac1N \sum_{ib} g_{ib} (\bar c_b - r_i)^2`, no root     as these, on :math:`[1/K,1]`
``"esd"``               :math:`\sqrt{\frac1N \sum_{ib} g_{ib} (\bar c_b - r_i)^2}`       :math:`(2b-1)/2M`
======================  ===============================================================  ============================

:math:`\bar r_b, \bar c_b` are means by membership. ``"binned"`` is Eq. 11, which the released code divides
by :math:`\max(S_b, 10^{-5})`; ``"labels"`` is the released code of Eq. 12, with memberships mixed with :math:`10^{-5}`
of the uniform one; ``"esd"`` is the baseline SB-ECE in the released code of [Yoon2023].

================  ============
paper letter      variable
================  ============
beta              strength
T                 temperature
M                 bins
================  ============

Departures: the root's gradient is 0 where the root is, as in a batch that is all right and saturated; the released code
gives NaN there. The released code can derive T from a decay factor d of neighbouring bins, :math:`T = 1/(M^2 \log d)`.
Values: 15 bins and temperature 0.01 are the released defaults; [Yoon2023] tries 15 to 30 bins and 0.0001 to 0.1.

Cost: the memberships are :math:`N \times M`, whatever the number of classes.

The lens: only the confidence is pushed, by the slope of E: the label of the predicted class moves, and the others share
the opposite in proportion to their probabilities.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from calibrant.base.checks import check_choice, check_integer, check_number
from calibrant.losses.base import Loss, Terms, register
from calibrant.losses.numerics import Target, cross_entropy_with_confidence, first_maximum, nll, softmax

#: What the released code keeps sums and memberships above.
EPSILON = 1e-5
#: Bins that may be asked for.
MOST_BINS = 10**4


@register(
    "soft_ece",
    "Soft-binned calibration error",
    short="SB-ECE",
    paper="Karandikar2021",
    equation="Eq. 11",
    summary="penalises the calibration error of the batch, by soft bins of confidence",
    use="Calibration itself should be in the loss, as the ECE measures it: confidence and accuracy meet in each bin.",
    avoid=(
        "Batches are small, or split over many processes: each sees its own batch only. The network fits its training "
        "set almost perfectly: it is then drawn to a confidence of 1. Labels are soft, which it does not take."
    ),
    hyper={
        "strength": "larger: more weight on calibration within the batch",
        "bins": "larger: finer bins",
        "temperature": "larger: softer bins, which share more samples",
        "reading": "'binned': Eq. 11; 'labels': Eq. 12, without root; 'esd': as [Yoon2023] compares with it",
    },
    search={"bins": (15, 30), "temperature": (0.0001, 0.01, 0.1)},  # the ends and the default, Yoon2023
    soft=False,
    per_sample=False,
    cost="N C + N bins",
)
class SoftECE(Loss):
    """Cross-entropy plus a soft-binned calibration error of the batch.

    Args:
        strength: weight of the error.
        bins: number of bins.
        temperature: width of the bins' ends, at least 1e-6.
        reading: ``"binned"``, ``"labels"`` or ``"esd"``, see above.
        **common: see `Loss`.

    Example:
        >>> import torch
        >>> from calibrant.losses import SoftECE
        >>> logits = torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
        >>> SoftECE().terms(logits, torch.tensor([0, 2]))["regulariser"]
        tensor(0.3968)
    """

    def __init__(
        self,
        strength: float = 1.0,
        bins: int = 15,
        temperature: float = 0.01,
        reading: Literal["binned", "labels", "esd"] = "binned",
        **common: Any,
    ):
        super().__init__(**common)
        self.strength = check_number("strength", strength, 0.0)
        self.bins = check_integer("bins", bins, 1, MOST_BINS)
        self.temperature = check_number("temperature", temperature, 1e-6)
        self.reading = check_choice("reading", reading, ("binned", "labels", "esd"))

    def formula(self, z: Tensor, t: Target) -> Terms:
        """Cross-entropy and the batch's error, the same for every position."""
        fidelity = nll(z, t, self.weight)
        predicted = z.argmax(1, keepdim=True)
        confidence = z.softmax(1).gather(1, predicted)
        value, _ = self.penalty(confidence, predicted == t.at_label(), t.valid, z.shape[1])
        return Terms(fidelity, value.expand_as(fidelity))

    def closed_form(self, z: Tensor, t: Target) -> tuple[Tensor, Tensor]:
        """The error acts through N confidences, each with a slope."""
        top, predicted, _ = first_maximum(z)
        s = softmax(z, top)
        value, slope = self.penalty(s.probs.gather(1, predicted), predicted == t.at_label(), t.valid, z.shape[1])
        fidelity, gradient = cross_entropy_with_confidence(z, s, t, predicted, slope * t.size(z))
        return fidelity + value, gradient

    def penalty(
        self, confidence: Tensor, correct: Tensor, valid: Tensor | None = None, classes: int = 2
    ) -> tuple[Tensor, Tensor]:
        r"""The penalty of a batch and its derivative by each confidence.

        A confidence acts directly and through its memberships: with :math:`a_{ib} = -2(r_i - \xi_b)/T` and the
        derivative :math:`D_{ib}` by :math:`g_{ib}`, the latter gives :math:`\sum_b D_{ib} g_{ib} (a_{ib} - \bar a_i)`.

        Args:
            confidence: largest probability, any shape.
            correct: bool, same shape.
            valid: bool, which positions count; None for all.
            classes: number of classes, which the centres of ``reading="labels"`` depend on.

        Returns:
            A scalar, and a tensor like ``confidence``.
        """
        r, c = confidence.double().reshape(-1, 1), correct.reshape(-1, 1).double()
        counted = torch.ones_like(r) if valid is None else valid.reshape(-1, 1).to(r)
        count = counted.sum().clamp(min=1)
        low = 1 / classes if self.reading == "labels" else 0.0
        steps = (torch.arange(self.bins, dtype=r.dtype, device=r.device) + 0.5) / self.bins
        centres = low + (1 - low) * steps
        plain = torch.softmax(-(r - centres).square() / self.temperature, 1)
        share = EPSILON if self.reading == "labels" else 0.0
        g = ((1 - share) * plain + share / self.bins) * counted
        mass = g.sum(0)
        if self.reading == "binned":
            divisor = mass.clamp(min=EPSILON)
            gap = (g * (r - c)).sum(0) / divisor
            square = (mass * gap.square()).sum() / count
            direct = 2 * (g * (mass * gap / divisor)).sum(1)
            # Below EPSILON the divisor is constant.
            by_member = gap.square() * (1 - 2 * (mass > EPSILON)) + 2 * (mass / divisor) * gap * (r - c)
        else:
            accuracy = (g * c).sum(0) / torch.where(mass > 0, mass, 1.0)
            gap = accuracy - r
            square = (g * gap.square()).sum() / count
            direct = -2 * (g * gap).sum(1)
            pull = 2 * (g * gap).sum(0) / torch.where(mass > 0, mass, 1.0)
            by_member = gap.square() + (c - accuracy) * pull
        turn = -2 * (r - centres) / self.temperature
        by_member = by_member * (1 - share) * plain * counted
        slope = direct + (by_member * (turn - (plain * turn).sum(1, keepdim=True))).sum(1)
        slope = slope / count
        if self.reading != "labels":
            root = torch.where(square > 0, square, 1.0).sqrt()
            square, slope = torch.where(square > 0, root, 0.0), torch.where(square > 0, slope / (2 * root), 0.0)
        value = self.strength * square.to(confidence.dtype)
        return value, self.strength * slope.to(confidence.dtype).view_as(confidence)
