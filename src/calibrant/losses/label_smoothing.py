r"""Label smoothing [Szegedy2016]: SC Eq. 7, ACLS Eq. 4-5; with ``spread="others"`` ALS Eq. 4.

Formula: cross-entropy towards :math:`q' = (1-\alpha) q + \alpha/K` (all classes), or
:math:`q' = (1-\alpha) q + \alpha (1-q)/(K-1)` (the other classes). The second is the first with
:math:`\alpha K/(K-1)` instead of :math:`\alpha`, and is computed so.

=================  ========
paper letter       variable
=================  ========
alpha (SC, ALS)    alpha
epsilon (ACLS)     alpha
=================  ========

Departures: none. Values: 0.05 is the default; LR searches 0.01-0.4; SC shows 0.2 among others.

The lens: ACLS Table 2 gives :math:`f = \epsilon(1-1/K)` at the predicted class and :math:`\epsilon/K` elsewhere, for
a correct prediction.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from calibrant.base.checks import check_choice, check_number
from calibrant.losses.base import Loss, Terms, register
from calibrant.losses.numerics import Target, can_read_values, cross_entropy, per_class, softmax, subtract_at


@register(
    "ls",
    "Label smoothing",
    paper="Szegedy2016",
    equation="SC Eq. 7",
    summary="mixes the target with the uniform distribution",
    use=(
        "A safe start: one parameter, and in every column of ACLS Table 3 a lower ECE than plain cross-entropy, "
        "though not in its table of segmentation."
    ),
    avoid=(
        "The model may abstain: label smoothing makes the confidence rank right and wrong predictions worse (SC). "
        "It also lowers the confidence of predictions that were not too sure, by as much as of those that were."
    ),
    hyper={
        "alpha": "larger: flatter targets, lower confidence",
        "spread": "'all': alpha/K to every class; 'others': alpha/(K-1) to the classes other than the label",
    },
    search={"alpha": (0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.4)},  # LR, section 4
)
class LabelSmoothing(Loss):
    """Label smoothing.

    Args:
        alpha: mass taken from the target, in [0, 1]: a number, or one per sample (here or in the call).
        spread: ``"all"`` gives alpha/K to every class as torch does, ``"others"`` alpha/(K-1) to the other classes.
        **common: see `Loss`.

    Example:
        >>> import torch
        >>> from calibrant.losses import LabelSmoothing
        >>> logits, label = torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0]]), torch.tensor([0, 1])
        >>> LabelSmoothing(alpha=0.1)(logits, label)
        tensor(0.4955)
        >>> LabelSmoothing()(logits, label, alpha=torch.tensor([0.0, 0.2]))
        tensor(0.4621)
    """

    weighted_regulariser = True

    def __init__(self, alpha: float | Tensor = 0.05, spread: Literal["all", "others"] = "all", **common: Any):
        super().__init__(**common)
        self.alpha = alpha if isinstance(alpha, Tensor) else check_number("alpha", alpha, 0.0, 1.0)
        self.spread = check_choice("spread", spread, ("all", "others"))

    def forward(
        self, logits: Tensor, target: Tensor, *, ids: Tensor | None = None, alpha: Tensor | float | None = None
    ) -> Tensor:
        """The reduced loss; ``alpha`` ``[N]`` or ``[N, ...]`` overrides the smoothing per sample."""
        return self._evaluate(logits, target, ids=ids, alpha=alpha)

    def terms(
        self, logits: Tensor, target: Tensor, *, ids: Tensor | None = None, alpha: Tensor | float | None = None
    ) -> dict[str, Tensor]:
        """``{"fidelity": (1 - alpha) CE, "regulariser": alpha H(u, p)}``, u uniform over the classes of ``spread``."""
        return self._evaluate_terms(logits, target, ids=ids, alpha=alpha)

    def _prepare(
        self, logits: Tensor, target: Tensor, ids: Tensor | None = None, alpha: Tensor | float | None = None
    ) -> tuple[Tensor, Target]:
        """As in `Loss`, with the alpha of this call, or a per-sample one of the constructor."""
        z, t = super()._prepare(logits, target)
        if alpha is None and isinstance(self.alpha, Tensor):
            alpha = self.alpha
        return z, t if alpha is None else t._replace(alpha=torch.as_tensor(alpha))

    def formula(self, z: Tensor, t: Target) -> Terms:
        """SC Eq. 7."""
        log_probs, alpha = z.log_softmax(1), self._alpha(z, t)
        weighted = log_probs if self.weight is None else log_probs * per_class(self.weight, z)
        on_target = weighted.gather(1, t.at_label()) if t.soft is None else (t.soft * weighted).sum(1, keepdim=True)
        spread = weighted.mean(1, keepdim=True)
        if self.spread == "others":
            spread = (weighted.sum(1, keepdim=True) - on_target) / (z.shape[1] - 1)
        return Terms((-(1 - alpha) * on_target).squeeze(1), (-alpha * spread).squeeze(1))

    def closed_form(self, z: Tensor, t: Target) -> tuple[Tensor, Tensor]:
        """ACLS Eq. 5: p - q'."""
        s, a, classes = softmax(z), self._mass(z, t), z.shape[1]
        if t.soft is not None:
            return cross_entropy(z, s, t._replace(soft=(1 - a) * t.soft + a / classes))
        below = (s.top - z).sum(1, keepdim=True)
        value = s.log_sum + (1 - a) * (s.top - z.gather(1, t.at_label())) + (a / classes) * below
        return value.squeeze(1), subtract_at(s.probs.sub_(a / classes), t.at_label(), 1 - a)

    def _mass(self, z: Tensor, t: Target) -> Tensor | float:
        """The alpha with which the all-classes form gives the same target."""
        return self._alpha(z, t) * (1.0 if self.spread == "all" else z.shape[1] / (z.shape[1] - 1))

    def _alpha(self, z: Tensor, t: Target) -> Tensor | float:
        """Alpha: a number, or one per sample, shaped to broadcast over ``[N, C, ...]``."""
        if t.alpha is None:
            return float(self.alpha)
        alpha = t.alpha.to(z)
        if can_read_values(alpha) and not bool(((alpha >= 0) & (alpha <= 1)).all()):
            raise ValueError(f"alpha must be between 0 and 1, got {alpha.detach().min():g} to {alpha.detach().max():g}")
        if alpha.dim():
            positions = (z.shape[0], *z.shape[2:])
            if alpha.shape not in (positions, positions[:1]):
                raise ValueError(f"alpha must be one number per sample {list(positions)}, got {list(alpha.shape)}")
            alpha = alpha.reshape(z.shape[0], 1, *(positions[1:] if alpha.dim() > 1 else [1] * (z.dim() - 2)))
        return alpha
