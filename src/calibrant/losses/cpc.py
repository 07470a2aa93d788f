r"""Calibration by pairwise constraints [Cheng2022], ACLS supplement Eq. 2-4.

Formula: :math:`L = L_{CE} + \lambda_1 L_{1v1} + \lambda_2 L_{BE}` with

* :math:`L_{1v1} = -\sum_{k\neq y} \log\frac{p_y}{p_y+p_k}`: the label against each other class;
* :math:`L_{BE} = -\sum_{\{k,l\}, k,l\neq y} \left(\log\frac{p_k}{p_k+p_l} + \log\frac{p_l}{p_k+p_l}\right)`: the other
  classes against one another, which pulls their logits together.

=============  =====================================  ==========================================================
               ``variant="paper"``                    ``variant="released"`` (default)
=============  =====================================  ==========================================================
1v1            sum over k                             divided by K-1
BE             sum over unordered pairs, both logs    half the sum of one log over all ordered pairs, diagonal
                                                      included, divided by (K-1)(K-2)
=============  =====================================  ==========================================================

With two classes there is no pair of other classes and BE is 0 (the released code divides by 0 there).

=====================  ==================
paper letter           variable
=====================  ==================
lambda_1, lambda_2     lambda1, lambda2
=====================  ==================

The lens: f is :math:`-\lambda_1\sum_{k\neq y} p_k/(p_k+p_y)` at the label and
:math:`-\lambda_1 p_j/(p_y+p_j) - \lambda_2\sum_{k\neq y} (p_j-p_k)/(p_j+p_k)` elsewhere, before the released code's
divisors (the factor 2 of the supplement's Eq. 6 counts every pair twice). ACLS Table 2 prints the 1v1 term with the
sign of its gradient where Eq. 8 needs the opposite one, so off the label it is wrong by
:math:`2\lambda_1 p_j/(p_y+p_j)`; the supplement's Eq. 8 also turns the lambda_2 term of its Eq. 7.

Cost: BE compares all pairs, N C^2 of work. It is done in blocks of samples that fit the cache, so memory stays
proportional to N C.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from calibrant.base.checks import check_choice, check_number
from calibrant.losses.base import Loss, Terms, register
from calibrant.losses.numerics import Target, cross_entropy, is_transforming, nll, softmax, subtract_at

#: Entries of one block of pairs: 4 MB in float32, so that a block is still in the cache when it is read again.
BLOCK = 1 << 20


@register(
    "cpc",
    "Pairwise constraints",
    paper="Cheng2022",
    equation="ACLS supplement Eq. 2-4",
    summary="makes each pair of other classes equally likely",
    use="For comparison, with few classes.",
    avoid="There are many classes: its work grows with their square. Labels are soft, which it does not take.",
    hyper={
        "lambda1": "larger: the label is pushed harder away from every other class",
        "lambda2": "larger: the other classes are pulled harder towards one another",
        "variant": "'released': means over pairs; 'paper': sums",
    },
    soft=False,
    cost="N C^2",
)
class CPC(Loss):
    """Cross-entropy plus pairwise constraints.

    Args:
        lambda1: weight of the label against each other class.
        lambda2: weight of the other classes against one another.
        variant: ``"released"`` or ``"paper"``, see above.
        **common: see `Loss`.

    Example:
        >>> import torch
        >>> from calibrant.losses import CPC
        >>> CPC(variant="paper").terms(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0]))["regulariser"]
        tensor(1.4117)
    """

    def __init__(
        self,
        lambda1: float = 0.1,
        lambda2: float = 1.0,
        variant: Literal["released", "paper"] = "released",
        **common: Any,
    ):
        super().__init__(**common)
        self.lambda1 = check_number("lambda1", lambda1, 0.0)
        self.lambda2 = check_number("lambda2", lambda2, 0.0)
        self.variant = check_choice("variant", variant, ("released", "paper"))

    def formula(self, z: Tensor, t: Target) -> Terms:
        """ACLS supplement Eq. 2-4."""
        rivals = rival_logits(z, t)
        label = z.gather(1, t.at_label()).movedim(1, -1)
        one_v_one = -logsigmoid(label - rivals).sum(-1)
        scale1, scale2, diagonal = self._scales(z)
        return Terms(nll(z, t, self.weight), scale1 * one_v_one + scale2 * both_logs(rivals) + diagonal)

    def closed_form(self, z: Tensor, t: Target) -> tuple[Tensor, Tensor]:
        """ACLS supplement Eq. 5-6."""
        scale1, scale2, diagonal = self._scales(z)
        value, gradient = cross_entropy(z, softmax(z), t)
        rivals = rival_logits(z, t)
        margin = z.gather(1, t.at_label()).movedim(1, -1) - rivals
        pairs, pull = pair_entropy(rivals)
        value = value - scale1 * logsigmoid(margin).sum(-1) + scale2 * pairs + diagonal
        push = torch.sigmoid(-margin).mul_(scale1)
        gradient.scatter_add_(1, _rival_index(z, t), pull.mul_(scale2).add_(push).movedim(-1, 1))
        return value, subtract_at(gradient, t.at_label(), push.sum(-1).unsqueeze(1))

    def _scales(self, z: Tensor) -> tuple[float, float, float]:
        """Factors of 1v1 and of BE over unordered pairs with both logs, and BE's constant from the diagonal."""
        others = z.shape[1] - 1
        if self.variant == "paper":
            return self.lambda1, self.lambda2, 0.0
        if others < 2:
            return self.lambda1 / others, 0.0, 0.0
        half = 0.5 * self.lambda2 / (others * (others - 1))
        return self.lambda1 / others, half, half * others * math.log(2.0)


def _rival_index(z: Tensor, t: Target) -> Tensor:
    """Indices of the classes other than the label, ``[N, C-1, ...]``."""
    shape = [1, -1, *[1] * (z.dim() - 2)]
    k = torch.arange(z.shape[1] - 1, device=z.device).view(shape)
    return k + (k >= t.at_label())


def rival_logits(z: Tensor, t: Target) -> Tensor:
    """Logits of the classes other than the label, classes last: ``[N, ..., C-1]``."""
    return z.gather(1, _rival_index(z, t)).movedim(1, -1)


def both_logs(x: Tensor) -> Tensor:
    """Sum over unordered pairs of both logs of L_BE ``[...]`` for logits ``[..., M]``, differentiable.

    The plain expression holds all pairs at once; it serves inside torch.func transforms. Elsewhere `pair_entropy` gives
    the value and the slope block by block.
    """
    if torch.compiler.is_compiling():
        total, slope = pair_entropy(x.detach())
        return total + ((x - x.detach()) * slope).sum(-1)
    if is_transforming():
        difference = x.unsqueeze(-1) - x.unsqueeze(-2)
        # One log over ordered pairs is both logs over unordered ones, plus log 2 for each k = l.
        return -logsigmoid(difference).sum((-1, -2)) - x.shape[-1] * math.log(2.0)
    value: Tensor = _BothLogs.apply(x)
    return value


class _BothLogs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        value, slope = pair_entropy(x)
        ctx.save_for_backward(x, slope)
        return value

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Tensor:
        x, slope = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative is wanted
            slope = torch.tanh((x.unsqueeze(-1) - x.unsqueeze(-2)) / 2).sum(-1)
        return slope * upstream.unsqueeze(-1)


def pair_entropy(x: Tensor) -> tuple[Tensor, Tensor]:
    r"""Sum over unordered pairs of -log(s) - log(1-s), :math:`s = \sigma(x_k - x_l)`, and its gradient.

    Args:
        x: ``[..., M]``.

    Returns:
        ``[...]`` and ``[..., M]``; the gradient is :math:`\sum_l \tanh((x_k - x_l)/2)`.
    """
    value, gradient = (_opaque if torch.compiler.is_compiling() else _blockwise)(x.reshape(-1, x.shape[-1]))
    return value.view(x.shape[:-1]), gradient.view(x.shape)


def _blockwise(rows: Tensor) -> tuple[Tensor, Tensor]:
    value, gradient = rows.new_empty(len(rows)), torch.empty_like(rows)
    step = max(1, BLOCK // rows.shape[1] ** 2)
    for start in range(0, len(rows), step):
        block = slice(start, start + step)
        value[block], gradient[block] = _pair_block(rows[block])
    return value, gradient


@torch.library.custom_op("calibrant::pair_entropy", mutates_args=())
def _opaque(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The same as one step to the compiler, which would otherwise write out all pairs."""
    return _blockwise(rows)


@_opaque.register_fake
def _(rows: Tensor) -> tuple[Tensor, Tensor]:
    return rows.new_empty(rows.shape[0]), torch.empty_like(rows)


def _pair_block(x: Tensor) -> tuple[Tensor, Tensor]:
    classes = x.shape[-1]
    low, high = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
    spread, limit = float((high - low).max()), 150 if x.dtype == torch.float32 else 1400
    if spread > limit:
        difference = x.unsqueeze(-1) - x.unsqueeze(-2)
        value = -logsigmoid(difference).sum((-1, -2)) - classes * math.log(2.0)
        return value, torch.tanh_(difference.div_(2)).sum(-1)
    # The two logs of a pair are 2 log(e_k + e_l) - x_k - x_l: exponentials of M numbers, not of M^2. Centred in the
    # middle of their range, they neither overflow nor vanish.
    x = x - (low + high) / 2
    e = x.exp()
    sums = e.unsqueeze(-1) + e.unsqueeze(-2)
    logs = _sum_of_logs(sums.flatten(1), factors=4 if 4 * spread < limit else 1)
    total = x.sum(-1)
    value = logs - (total + classes * math.log(2.0)) - (classes - 1) * total
    share = sums.reciprocal_().mul_(e.unsqueeze(-2)).sum(-1)
    return value, classes - 2 * share


def _sum_of_logs(x: Tensor, factors: int) -> Tensor:
    """Sum over dimension 1 of log x, taking the logarithm of products of ``factors`` entries where they fit."""
    if factors == 1:
        return x.log().sum(1)
    quarter = x.shape[1] // 4
    a, b, c, d, rest = x.split([quarter, quarter, quarter, quarter, x.shape[1] - 4 * quarter], 1)
    return (a * b).mul_(c * d).log_().sum(1) + rest.log().sum(1)
