r"""Multi-class difference of confidence and accuracy [Hebbalaguppe2022], ACLS supplement Eq. 9.

Formula: :math:`L = L_{base} + \lambda \sum_k |\bar p_k - \bar q_k|`, bars are means over the batch.

=============  =====================================  =================================
               ``variant="paper"``                    ``variant="released"`` (default)
=============  =====================================  =================================
over classes   sum                                    mean, so :math:`\lambda/K`
=============  =====================================  =================================

=============  =========
paper letter   variable
=============  =========
lambda         strength
=============  =========

Values: strength 1 is the default.

The lens: with :math:`a_k = \mathrm{sgn}(\bar p_k - \bar q_k)` the exact f is
:math:`\lambda p_j (a_j - \sum_k a_k p_k)`, sign turned off the predicted class. ACLS Table 2 sets
:math:`a = 1` at the predicted class and -1 elsewhere and drops :math:`\sum_{k\neq\hat y} a_k p_k`:
for those signs the terms dropped are :math:`\lambda p_j (1 - p_{\hat y})`, which vanishes for confident
predictions only. The sign itself is a property of the batch and often not the assumed one.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from calibrant.base.checks import check_choice, check_number
from calibrant.losses.base import Loss, Terms, register
from calibrant.losses.cross_entropy import CrossEntropy
from calibrant.losses.focal import Focal
from calibrant.losses.label_smoothing import LabelSmoothing
from calibrant.losses.numerics import Target, cross_entropy, is_at, is_transforming, per_class, softmax


@register(
    "mdca",
    "Multi-class difference in confidence and accuracy",
    paper="Hebbalaguppe2022",
    equation="ACLS supplement Eq. 9",
    summary="matches each class's mean probability in the batch to its frequency",
    use=(
        "Every class should be right on average, not only the predicted one: it compares each class's mean "
        "probability with its share of the batch."
    ),
    avoid="There are many more classes than samples in a batch: most shares are then 0, and the rest is noise.",
    hyper={
        "strength": "larger: more weight on class-wise calibration within the batch",
        "base": "fidelity term: 'ce', 'focal' or 'ls'",
        "gamma": "exponent of a focal base",
        "alpha": "smoothing of a label-smoothing base",
        "variant": "'released': mean over classes; 'paper': sum",
    },
    per_sample=False,
)
class MDCA(Loss):
    """A base loss plus the class-wise gap of mean probability and frequency.

    Args:
        strength: weight of the penalty.
        base: ``"ce"``, ``"focal"`` or ``"ls"``.
        gamma: for the focal base.
        alpha: for the label-smoothing base.
        variant: ``"released"`` or ``"paper"``, see above.
        **common: see `Loss`.

    Example:
        >>> import torch
        >>> from calibrant.losses import MDCA
        >>> logits = torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
        >>> MDCA(variant="paper").terms(logits, torch.tensor([0, 1]))["regulariser"]
        tensor(0.3185)
    """

    def __init__(
        self,
        strength: float = 1.0,
        base: Literal["ce", "focal", "ls"] = "ce",
        gamma: float = 3.0,
        alpha: float = 0.05,
        variant: Literal["released", "paper"] = "released",
        **common: Any,
    ):
        super().__init__(**common)
        self.strength = check_number("strength", strength, 0.0)
        self.base = check_choice("base", base, ("ce", "focal", "ls"))
        self.gamma = check_number("gamma", gamma, 0.0)
        self.alpha = check_number("alpha", alpha, 0.0, 1.0)
        self.variant = check_choice("variant", variant, ("released", "paper"))
        self.fidelity: Loss
        if base == "focal":
            self.fidelity = Focal(gamma, **common)
        else:
            self.fidelity = LabelSmoothing(alpha, **common) if base == "ls" else CrossEntropy(**common)

    def formula(self, z: Tensor, t: Target) -> Terms:
        """ACLS supplement Eq. 9."""
        base = self.fidelity.formula(z, t)
        fidelity = base.fidelity if base.regulariser is None else base.fidelity + base.regulariser
        penalty = self._scale(z) * self._gap(z.softmax(1), t).abs().sum()
        return Terms(fidelity, penalty.expand_as(fidelity))

    def closed_form(self, z: Tensor, t: Target) -> tuple[Tensor, Tensor] | None:
        """ACLS supplement Eq. 10."""
        s, scale = softmax(z), self._scale(z)
        gap = self._gap(s.probs, t)
        signed = s.probs * per_class(gap.sign() * scale, z)
        total = signed.sum(1, keepdim=True)
        if self.base == "ce":
            value, gradient = cross_entropy(z, s, t, damp=total)
        else:
            closed = self.fidelity.closed_form(z, t)
            if closed is None:
                return None
            value, gradient = closed
            gradient.sub_(s.probs.mul_(total))
        return value + scale * gap.abs().sum(), gradient.add_(signed)

    def _scale(self, z: Tensor) -> float:
        return self.strength if self.variant == "paper" else self.strength / z.shape[1]

    @staticmethod
    def _gap(probs: Tensor, t: Target) -> Tensor:
        """Mean probability minus frequency of each class over the positions that count, ``[C]``."""
        positions = [d for d in range(probs.dim()) if d != 1]
        if t.valid is not None:
            probs = probs * t.valid.unsqueeze(1)
        if t.soft is not None:
            frequency = t.soft.sum(positions)
        elif torch.compiler.is_compiling() or is_transforming():
            one_hot = is_at(probs, t.at_label())
            frequency = (one_hot if t.valid is None else one_hot & t.valid.unsqueeze(1)).sum(positions)
        else:
            assert t.labels is not None
            labels = t.labels.flatten() if t.valid is None else t.labels[t.valid]
            frequency = torch.bincount(labels, minlength=probs.shape[1]).to(probs)
        return (probs.sum(positions) - frequency) / t.size(probs)
