r"""Class adaptive label smoothing by an augmented Lagrangian [Liu2023] (CALS-ALM), the successor of MbLS.

Formula: :math:`L = L_{CE} + \sum_k P(h_k, \rho_k, \lambda_k)` with the constraint
:math:`h_k = (\max_j z_j - z_k)/m - 1 \le 0` of every class, and
:math:`P(h, \rho, \lambda) = \frac{1}{2\rho} [\max(0, \lambda + \rho h)^2 - \lambda^2]`, the penalty of Powell, Hestenes
and Rockafellar, whose derivative by h is :math:`P' = \max(0, \lambda + \rho h)`. MbLS punishes each logit beyond the
margin alike; here each class has a multiplier :math:`\lambda_k`, learned from the validation data after each epoch.

After an epoch, with means over the validation samples:

1. :math:`\lambda_k \leftarrow` the mean of :math:`P'(h_k, \rho_k, \lambda_k)`, cut to :math:`[\lambda_{min},
   \lambda_{max}]`: by the old :math:`\rho_k`.
2. Every ``rho_step`` epochs :math:`\rho_k \leftarrow \min(\gamma\rho_k, \rho_{max})` where the mean of :math:`h_k` is
   larger than :math:`\tau \max(0, h'_k)`, with :math:`h'_k` its mean after the epoch before.

=======================  =======================================  =================================================
                         ``variant="paper"``                      ``variant="released"`` (default)
=======================  =======================================  =================================================
over classes             sum                                      mean
cut of the multipliers   the mean                                 each sample's :math:`P'`, then the mean
=======================  =======================================  =================================================

=========================================  =========================================
paper letter                               variable
=========================================  =========================================
m                                          margin
lambda_k, their bounds                     multipliers, lambda_min and lambda_max
rho_k, first value and bound               penalties, rho and rho_max
gamma, tau                                 gamma, tau
=========================================  =========================================

Departures: ignored positions count neither in the penalty nor in the multipliers; the released code counts them in
both. Of tied maxima the first is the predicted class. The released code has two other penalties (P2, P3), which its
configuration does not use. Values: margin 10 is that of the released commands, the others are those of the released
configuration.

In a training loop call ``rows.append(loss.observe(logits, labels))`` for the batches of the validation data after each
epoch, then ``loss.end_epoch(torch.cat(rows))``. Without it the multipliers stay :math:`\lambda_{min}`, and
the penalty is about :math:`\frac\rho2 h_k^2` beyond the margin.

The lens: with :math:`P'_k` of class k, the label of k is raised by :math:`P'_k/m` and that of yhat is lowered by their
sum (in the released variant divided by K).
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from calibrant.base.checks import check_choice, check_integer, check_number
from calibrant.losses.base import Loss, SizedByData, Terms, register
from calibrant.losses.numerics import Target, cross_entropy, first_maximum, nll, per_class, softmax, subtract_at


@register(
    "calsalm",
    "Class adaptive label smoothing",
    short="CALS-ALM",
    paper="Liu2023",
    equation="Sec. 4; released code",
    summary="penalises logits beyond a margin, by a multiplier per class learned on validation data",
    use=(
        "Classes differ in difficulty or frequency, so that one strength does not suit all: no strength has to be "
        "searched, as the multipliers follow the validation data."
    ),
    avoid="There are no validation data to spare; or logits stay within the margin, where it is cross-entropy.",
    hyper={
        "margin": "larger: fewer logits are penalised, higher confidence",
        "lambda_min": "larger: stronger pull from the first epoch on, and wherever nothing is beyond the margin",
        "lambda_max": "larger: multipliers may grow further",
        "rho": "larger: steeper penalty from the start",
        "rho_max": "larger: the penalty may become steeper",
        "rho_step": "larger: rarer steepening, once in this many epochs",
        "gamma": "larger: more steepening at once",
        "tau": "larger: less steepening, of classes whose logits hardly come closer",
        "variant": "'released': mean over classes; 'paper': sum",
    },
    search={"margin": (6.0, 10.0, 20.0)},  # of the released commands and configurations, and MbLS
)
class CALS(SizedByData, Loss):
    """Cross-entropy plus an augmented Lagrangian of the margins of the logits.

    Args:
        margin: allowed distance of a logit from the largest, above 0.
        lambda_min: first value of the multipliers, and their lower bound.
        lambda_max: their upper bound.
        rho: first value of the penalty parameters.
        rho_max: their upper bound.
        rho_step: epochs between their updates; 0 leaves them as they are.
        gamma: factor by which they grow, at least 1.
        tau: growth where the mean constraint is above this share of the one before.
        variant: ``"released"`` or ``"paper"``, see above.
        **common: see `Loss`.

    Example:
        >>> import torch
        >>> from calibrant.losses import CALS
        >>> loss, logits = CALS(margin=5.0), torch.tensor([[15.0, 3.0, 6.0]])
        >>> loss.terms(logits, torch.tensor([0]))["regulariser"]
        tensor(0.4333)
        >>> loss.end_epoch(loss.observe(logits, torch.tensor([0])))
        >>> loss.multipliers
        tensor([1.0000e-06, 1.4000e+00, 8.0000e-01], dtype=torch.float64)
    """

    sized = ("multipliers", "penalties", "constraints")
    multipliers: Tensor
    penalties: Tensor
    constraints: Tensor
    epochs: Tensor

    def __init__(
        self,
        margin: float = 10.0,
        *,
        lambda_min: float = 1e-6,
        lambda_max: float = 1e6,
        rho: float = 1.0,
        rho_max: float = 10.0,
        rho_step: int = 10,
        gamma: float = 1.2,
        tau: float = 0.9,
        variant: Literal["released", "paper"] = "released",
        **common: Any,
    ):
        super().__init__(**common)
        self.margin = check_number("margin", margin, 1e-6)
        self.lambda_min = check_number("lambda_min", lambda_min, 0.0)
        self.lambda_max = check_number("lambda_max", lambda_max, self.lambda_min)
        self.rho = check_number("rho", rho, 1e-6)
        self.rho_max = check_number("rho_max", rho_max, self.rho)
        self.rho_step = check_integer("rho_step", rho_step, 0, 10**9)
        self.gamma = check_number("gamma", gamma, 1.0)
        self.tau = check_number("tau", tau, 0.0)
        self.variant = check_choice("variant", variant, ("released", "paper"))
        for name in self.sized:  # a number per class, none before the first epoch has ended
            self.register_buffer(name, torch.zeros(0, dtype=torch.float64))
        self.register_buffer("epochs", torch.zeros((), dtype=torch.int64))

    def formula(self, z: Tensor, t: Target) -> Terms:
        """Liu2023 Sec. 4, of one sample."""
        multiplier, rho = self._learned(z)
        slope = torch.relu(multiplier + rho * self._constraints(z.max(1, keepdim=True).values, z))
        penalty = (slope.square() - multiplier**2) / (2 * rho)
        return Terms(nll(z, t, self.weight), self._scale(z) * penalty.sum(1))

    def closed_form(self, z: Tensor, t: Target) -> tuple[Tensor, Tensor]:
        """The slope of each class pulls its logit up, and the largest logit down by their sum."""
        multiplier, rho = self._learned(z)
        top, predicted, gap = first_maximum(z)
        slope = gap.mul_(1 / self.margin).sub_(1).mul_(rho).add_(multiplier).relu_()
        penalty = slope.square().sub_(multiplier**2).div_(2 * rho).sum(1)
        value, gradient = cross_entropy(z, softmax(z, top), t)
        scale = self._scale(z) / self.margin
        gradient.sub_(slope, alpha=scale)
        subtract_at(gradient, predicted, -scale * slope.sum(1, keepdim=True))
        return value + self._scale(z) * penalty, gradient

    def observe(self, logits: Tensor, target: Tensor) -> Tensor:
        """One row ``[1, 2 K + 1]``: sums of P' and of h by class, and the number of samples."""
        with torch.no_grad():
            z, t = self._prepare(logits, target)
            h = self._constraints(z.amax(1, keepdim=True), z).double()
            multiplier, rho = self._learned(h)
            slope = torch.relu(multiplier + rho * h)
            if self.variant == "released":
                slope = slope.clamp(self.lambda_min, self.lambda_max)
            counted = torch.ones_like(h[:, :1]) if t.valid is None else t.valid.unsqueeze(1).to(h)
            positions = [d for d in range(h.dim()) if d != 1]
            sums = [(x.double() * counted).sum(positions) for x in (slope, h)]
            return torch.cat([*sums, counted.sum().view(1)]).unsqueeze(0)

    def end_epoch(self, observed: Tensor | None = None) -> None:
        """Count a finished epoch; with what was observed of validation data, renew multipliers and penalties."""
        self.epochs += 1
        if observed is None:
            return
        slopes, constraints, count = observed.sum(0).tensor_split([observed.shape[1] // 2, observed.shape[1] - 1])
        if not count:
            return
        slopes, constraints = slopes / count, constraints / count
        self.multipliers = slopes.clamp(self.lambda_min, self.lambda_max)
        if not len(self.penalties):
            self.penalties = torch.full_like(slopes, self.rho)
        if self.rho_step and int(self.epochs) % self.rho_step == 0 and len(self.constraints):
            stuck = constraints > self.tau * self.constraints.clamp(min=0)
            self.penalties = torch.where(stuck, self.gamma * self.penalties, self.penalties).clamp(max=self.rho_max)
        self.constraints = constraints

    def _constraints(self, top: Tensor, z: Tensor) -> Tensor:
        return (top - z) / self.margin - 1

    def _learned(self, z: Tensor) -> tuple[Tensor | float, Tensor | float]:
        """Multiplier and penalty parameter of each class, as they are broadcast over ``z``."""
        classes = len(self.multipliers)
        if not classes:
            return self.lambda_min, self.rho
        if classes != z.shape[1]:
            raise ValueError(f"CALS has multipliers for {classes} classes, the logits have {z.shape[1]}")
        return per_class(self.multipliers, z), per_class(self.penalties, z)

    def _scale(self, z: Tensor) -> float:
        return 1.0 if self.variant == "paper" else 1 / z.shape[1]
