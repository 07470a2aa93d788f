r"""Maximum mean calibration error [Kumar2018], a kernel measure of the gap of confidence and correctness.

Formula, with confidence :math:`r = p_{\hat y}`, correctness c and kernel :math:`k(r_i, r_j) = e^{-|r_i-r_j|/w}`:

* weighted, m correct and n wrong: :math:`M^2 = \sum_{cc} \frac{(1-r_i)(1-r_j)k}{m^2} + \sum_{ww} \frac{r_i r_j k}{n^2}
  - 2\sum_{cw} \frac{(1-r_i) r_j k}{m n}`
* unweighted: :math:`M^2 = \frac{1}{N^2} \sum_{ij} (c_i-r_i)(c_j-r_j) k`

=============  ==========================================  =====================================================
               ``variant="paper"``                         ``variant="released"`` (default)
=============  ==========================================  =====================================================
weighted       root of :math:`M^2`; an empty group adds 0  each sum divided once more by :math:`m^2, n^2, mn`
                                                           (+1e-5); root of (. + 1e-10); 0 if a group is empty
unweighted     root of :math:`M^2`                         :math:`M^2`, no root
=============  ==========================================  =====================================================

=============  =============
paper letter   variable
=============  =============
lambda         strength
w (2 x 0.2)    kernel_width
=============  =============

Cost: the kernel is a Laplacian on one dimension, so its products follow from a sort and two running sums:
O(N log N) time and O(N) memory, exact, where the pairwise form takes N^2 of both.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from calibrant.base.checks import check_choice, check_flag, check_number
from calibrant.losses.base import Loss, Terms, register
from calibrant.losses.numerics import Target, cross_entropy_with_confidence, first_maximum, nll, softmax


@register(
    "mmce",
    "Maximum mean calibration error",
    paper="Kumar2018",
    equation="Sec. 4",
    summary="penalises a kernel measure of the batch's miscalibration",
    use="Calibration itself should be in the loss: it compares confidence and correctness over the batch.",
    avoid=(
        "Batches are small, or split over many processes: each sees its own batch only. Labels are soft, which it "
        "does not take."
    ),
    hyper={
        "strength": "larger: more weight on calibration within the batch",
        "kernel_width": "larger: confidences further apart are compared",
        "weighted": "True: right and wrong predictions count equally, whatever their numbers",
        "variant": "'released': normalised twice; 'paper': once",
    },
    soft=False,
    per_sample=False,
    cost="N C + N log N",
)
class MMCE(Loss):
    """Cross-entropy plus MMCE over the batch.

    Args:
        strength: weight of the penalty.
        kernel_width: width w of the kernel, at least 0.01.
        weighted: the class-balanced form of the paper.
        variant: ``"released"`` or ``"paper"``, see above.
        **common: see `Loss`.

    Example:
        >>> import torch
        >>> from calibrant.losses import MMCE
        >>> logits = torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
        >>> MMCE(variant="paper").terms(logits, torch.tensor([0, 2]))["regulariser"]
        tensor(0.4821)
    """

    def __init__(
        self,
        strength: float = 1.0,
        kernel_width: float = 0.4,
        weighted: bool = True,
        variant: Literal["released", "paper"] = "released",
        **common: Any,
    ):
        super().__init__(**common)
        self.strength = check_number("strength", strength, 0.0)
        self.kernel_width = check_number("kernel_width", kernel_width, 0.01)
        self.weighted = check_flag("weighted", weighted)
        self.variant = check_choice("variant", variant, ("released", "paper"))

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

        Both forms of the module's head are :math:`Q = \mathrm{tr}(W C^T K C)`, with a column of C for each group of
        samples and K the kernel matrix; then :math:`\partial Q/\partial r = 2 (CW \circ K'C + C'W \circ KC) 1`.

        Args:
            confidence: largest probability, any shape.
            correct: bool, same shape.
            valid: bool, which positions count; None for all.

        Returns:
            A scalar, and a tensor like ``confidence``.
        """
        r, c = confidence.flatten().double(), correct.flatten()
        counted = torch.ones_like(r) if valid is None else valid.flatten().to(r)
        columns, slopes, weights = self._groups(r, c.to(r) * counted, counted)
        product, kernel_slope = laplacian(r, columns, self.kernel_width)
        mixed = columns @ weights
        square = (mixed * product).sum()
        slope = 2 * (mixed * kernel_slope + (slopes @ weights) * product).sum(1)
        if self.weighted and self.variant == "released":
            # The released code adds 1e-10 under the root, and skips a batch with only right or only wrong ones.
            square = torch.where(weights[0, 1] != 0, square + 1e-10, 0.0)
        if self.weighted or self.variant == "paper":
            root = torch.where(square > 0, square, 1.0).sqrt()
            square, slope = torch.where(square > 0, root, 0.0), torch.where(square > 0, slope / (2 * root), 0.0)
        value = self.strength * square.to(confidence.dtype)
        return value, self.strength * slope.to(confidence.dtype).view_as(confidence)

    def _groups(self, r: Tensor, c: Tensor, counted: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """C ``[N, G]``, its derivative by r, and W ``[G, G]``."""
        if not self.weighted:
            return (c - r * counted)[:, None], -counted[:, None], (1 / counted.sum().clamp(min=1) ** 2).view(1, 1)
        errors = counted - c
        m, n = c.sum(), errors.sum()
        has_both = (m > 0) & (n > 0)
        sizes = torch.stack([m, n]).clamp(min=1)
        pairs = torch.outer(sizes, sizes)
        signs = pairs.new_tensor([[1.0, -1.0], [-1.0, 1.0]])
        weights = signs / pairs
        if self.variant == "released":
            weights = torch.where(has_both, weights / (pairs + 1e-5), 0.0)
        columns = torch.stack([(1 - r) * c, r * errors], 1)
        return columns, torch.stack([-c, errors], 1), weights


def laplacian(r: Tensor, columns: Tensor, width: float) -> tuple[Tensor, Tensor]:
    """Products of the matrix exp(-|r_i - r_j| / width) with columns ``[N, G]``, and of its derivative by r_i.

    After sorting, the sum over smaller r and the sum over larger r are running sums of weighted columns. Entries of
    equal r have slope 0, as |x| has at 0.
    """
    x, order = (r / width).sort()
    sorted_columns, grow = columns[order], x.exp().unsqueeze(1)
    shrink = 1 / grow
    below = torch.nn.functional.pad((sorted_columns * grow).cumsum(0), (0, 0, 1, 0))
    above = torch.nn.functional.pad((sorted_columns * shrink).flip(0).cumsum(0).flip(0), (0, 0, 0, 1))
    first, last = torch.searchsorted(x, x), torch.searchsorted(x, x, right=True)
    left, right = shrink * below[first], grow * above[last]
    product, slope = shrink * below[last] + right, (right - left) / width
    back = torch.empty_like(order).scatter(0, order, torch.arange(len(order), device=order.device))
    return product[back], slope[back]
