r"""Deep Gamblers [Ziyin2019]: one logit more than classes, for abstaining, and a payoff for the classes.

Formula: with K + 1 logits, the last that of abstaining, and p their softmax,
:math:`L = -\log(p_y + p_{K+1}/o)`: a bet on the label pays o, and what is reserved is kept.

=====================  ===========================================  ============================================
                       ``variant="paper"``                          ``variant="released"`` (default)
=====================  ===========================================  ============================================
value                  :math:`-\log(o\, p_y + p_{K+1})`             :math:`-\log(p_y + p_{K+1}/o)`
smallest value         :math:`-\log o`                              0
=====================  ===========================================  ============================================

The two differ by the constant :math:`\log o`, and have one gradient.

=============  =====================================
paper letter   variable
=============  =====================================
o              payoff
m              K, the number of classes
=============  =====================================

Departures: none; it is computed in logarithms, where the released code takes the logarithm of a sum of probabilities.
During the first ``pretraining`` epochs the loss is cross-entropy of the K class logits, and that of abstaining has no
gradient. Predictions are those of the class logits alone; the less probability is reserved, the more a prediction is
to be trusted. Values: payoffs lie between 1, where nothing is bet, and K, where nothing is reserved; the released
commands take 2.2, and on CIFAR-10 pretrain 100 of 300 epochs for payoffs below 6.1.

The lens: q' is :math:`a = o\,p_y/(o\,p_y + p_{K+1})` at y and 1 - a at the logit of abstaining, over all K + 1 logits.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor

from calibrant.base.checks import check_choice, check_integer, check_number
from calibrant.losses.base import CountsEpochs, Loss, Terms, register
from calibrant.losses.numerics import Target, cross_entropy, nll, softmax, subtract_at


@register(
    "deep_gamblers",
    "Deep gamblers",
    short="DG",
    paper="Ziyin2019",
    equation="Sec. 3; released code",
    summary="lets the model reserve probability instead of betting on a class",
    use="The model is to abstain: it learns itself, by one logit more, what it would rather not answer.",
    avoid=(
        "Probabilities are needed, or networks with one logit for each class; or many classes are hard to tell apart "
        "at first: it may then reserve everything, which pretraining prevents. Labels are soft or mixed, which it does "
        "not take."
    ),
    hyper={
        "payoff": "larger: a bet pays more, so that less is reserved; between 1 and the number of classes",
        "pretraining": "larger: more epochs of cross-entropy before the first with the payoff",
        "variant": "'released': payoff divides what is reserved; 'paper': multiplies the bet, log payoff lower",
    },
    search={"payoff": (2.2, 6.0)},
    soft=False,
)
class DeepGamblers(CountsEpochs, Loss):
    """The gambler's loss, over the classes and abstaining.

    Args:
        payoff: what a right bet pays, above 1.
        pretraining: epochs of cross-entropy at the beginning, as counted by `end_epoch`.
        variant: ``"released"`` or ``"paper"``, see above.
        **common: see `Loss`. Labels and class weights are those of the classes; logits have one column more.

    Example:
        >>> import torch
        >>> from calibrant.losses import DeepGamblers
        >>> DeepGamblers(payoff=2.0)(torch.tensor([[0.0, 0.0, 0.0, 0.0]]), torch.tensor([0]))  # 3 classes
        tensor(0.9808)
    """

    extra_logits = 1

    def __init__(
        self,
        payoff: float = 2.2,
        pretraining: int = 0,
        variant: Literal["released", "paper"] = "released",
        **common: Any,
    ):
        super().__init__(**common)
        self.payoff = check_number("payoff", payoff, 1.0)
        self.pretraining = check_integer("pretraining", pretraining, 0, 10**9)
        self.variant = check_choice("variant", variant, ("released", "paper"))

    def formula(self, z: Tensor, t: Target) -> Terms:
        """Ziyin2019 Sec. 3, in logarithms."""
        if self.finished < self.pretraining:
            return Terms(nll(z[:, :-1], t, self.weight))
        log_p = z.log_softmax(1)
        bet, reserved = log_p.gather(1, t.at_label()).squeeze(1), log_p[:, -1]
        value = -torch.logaddexp(bet, reserved - math.log(self.payoff)) - self._offset()
        return Terms(self._weighted(value, t))

    def closed_form(self, z: Tensor, t: Target) -> tuple[Tensor, Tensor]:
        """The gradient p - q', with q' as the lens has it."""
        index = t.at_label()
        if self.finished < self.pretraining:
            value, gradient = cross_entropy(z[:, :-1], softmax(z[:, :-1]), t)
            return value, torch.cat([gradient, torch.zeros_like(gradient[:, :1])], 1)
        s = softmax(z)
        bet, reserved = z.gather(1, index) - s.top, z[:, -1:] - s.top - math.log(self.payoff)
        share = torch.sigmoid(bet - reserved)
        value = s.log_sum - torch.logaddexp(bet, reserved) - self._offset()
        gradient = subtract_at(s.probs, index, share)
        return value.squeeze(1), subtract_at(gradient, torch.full_like(index, z.shape[1] - 1), 1 - share)

    def _offset(self) -> float:
        return math.log(self.payoff) if self.variant == "paper" else 0.0
