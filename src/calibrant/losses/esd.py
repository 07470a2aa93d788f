r"""Expected squared difference [Yoon2023]: a calibration error without bins or kernel, as a regulariser.

Formula: :math:`L = L_{CE} + \lambda\, E` with :math:`E = \frac1N \sum_i [\bar g_i^2 - S_i^2/(N-1)]`. With confidence
:math:`r_i = p_{\hat y}` and correctness :math:`c_i`, :math:`g_{ij} = (c_j - r_j) 1[r_j \le r_i]`, of which
:math:`\bar g_i` and :math:`S_i^2` are mean and unbiased variance over the N - 1 samples other than i.

E estimates the mean over r' of :math:`\mathbb{E}[(c - r) 1[r \le r']]^2` without bias: the sample itself is left out,
and what the square of a mean is too large by is taken off. So E may be negative, and has a gradient even so. It is the
sum

.. math:: E = \frac{1}{N (N-1) (N-2)} \sum_i [(\sum_{j \ne i} g_{ij})^2 - \sum_{j \ne i} g_{ij}^2]

over triples of different samples, which is how it is computed.

=============  ==========
paper letter   variable
=============  ==========
lambda         strength
=============  ==========

Departures: none; :math:`1[r_j \le r_i]` is a constant to the gradient, as in the released code. Fewer than three
samples that count have no triple: the penalty is 0 there, and the lens, which would show cross-entropy, refuses them.
Values: the paper tries strengths from 0.2 to 10; it has no other parameter.

Cost: after a sort, sums over smaller confidences are running sums: O(N log N) time and O(N) memory, exact, where the
released code makes several N x N arrays.

The lens: only the confidence is pushed, by the slope of E; the others share the opposite in proportion to their
probabilities. A batch of at least three samples is needed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from calibrant.base.checks import check_number
from calibrant.losses.base import Loss, Terms, register
from calibrant.losses.numerics import Target, cross_entropy_with_confidence, first_maximum, nll, softmax


@register(
    "esd",
    "Expected squared difference",
    paper="Yoon2023",
    equation="Sec. 3",
    summary="penalises the calibration error of the batch, without bins, kernel or bias",
    use="Calibration itself should be in the loss, and there is no time to search bins or a kernel: only its strength.",
    avoid=(
        "Batches are small, or split over many processes: each sees its own batch only, of at least three samples. "
        "Labels are soft, which it does not take."
    ),
    hyper={"strength": "larger: more weight on calibration within the batch"},
    search={"strength": (0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0)},
    soft=False,
    per_sample=False,
    cost="N C + N log N",
)
class ESD(Loss):
    """Cross-entropy plus the expected squared difference of the batch.

    Args:
        strength: weight of the penalty, which may be negative.
        **common: see `Loss`.

    Example:
        >>> import torch
        >>> from calibrant.losses import ESD
        >>> logits, labels = torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.5, 0.0, 0.0]]), torch.tensor([0, 2, 1])
        >>> ESD().terms(logits, labels)["regulariser"]
        tensor(0.0868)
    """

    least_samples = 3

    def __init__(self, strength: float = 1.0, **common: Any):
        super().__init__(**common)
        self.strength = check_number("strength", strength, 0.0)

    def formula(self, z: Tensor, t: Target) -> Terms:
        """Cross-entropy and the batch's penalty, the same for every position."""
        fidelity = nll(z, t, self.weight)
        predicted = z.argmax(1, keepdim=True)
        confidence = z.softmax(1).gather(1, predicted)
        value, _ = self.penalty(confidence, predicted == t.at_label(), t.valid)
        return Terms(fidelity, value.expand_as(fidelity))

    def closed_form(self, z: Tensor, t: Target) -> tuple[Tensor, Tensor]:
        """The penalty acts through N confidences, each with a slope."""
        top, predicted, _ = first_maximum(z)
        s = softmax(z, top)
        value, slope = self.penalty(s.probs.gather(1, predicted), predicted == t.at_label(), t.valid)
        fidelity, gradient = cross_entropy_with_confidence(z, s, t, predicted, slope * t.size(z))
        return fidelity + value, gradient

    def penalty(self, confidence: Tensor, correct: Tensor, valid: Tensor | None = None) -> tuple[Tensor, Tensor]:
        r"""The penalty of a batch and its derivative by each confidence.

        With :math:`T_i = \sum_{j \ne i} g_{ij}` the derivative of the double sum by :math:`r_j` is
        :math:`-2 \sum_{i \ne j,\, r_i \ge r_j} [T_i - (c_j - r_j)]`.

        Args:
            confidence: largest probability, any shape.
            correct: bool, same shape.
            valid: bool, which positions count; None for all.

        Returns:
            A scalar, and a tensor like ``confidence``.
        """
        r, c = confidence.flatten().double(), correct.flatten().double()
        counted = torch.ones_like(r) if valid is None else valid.flatten().to(r)
        n = counted.sum()
        ranked, order = r.detach().sort()
        last = torch.searchsorted(ranked, ranked, right=True)  # past the last sample that is not surer
        first = torch.searchsorted(ranked, ranked)
        error, weight = ((c - r) * counted)[order], counted[order]
        pad = torch.nn.functional.pad
        below = pad(torch.stack([error, error.square()]).cumsum(1), (1, 0))[:, last]
        total, squares = below[0] - error, below[1] - error.square()
        triples = torch.where(n > 2, n * (n - 1) * (n - 2), 1.0)
        scale = torch.where(n > 2, self.strength / triples, 0.0)
        value = scale * ((total.square() - squares) * weight).sum()
        above = torch.stack([total * weight, weight]).flip(1).cumsum(1).flip(1)[:, first]
        slope = -2 * scale * weight * (above[0] - total - (above[1] - 1) * error)
        back = torch.empty_like(order).scatter(0, order, torch.arange(len(order), device=order.device))
        return value.to(confidence.dtype), slope[back].to(confidence.dtype).view_as(confidence)
