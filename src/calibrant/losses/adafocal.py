r"""AdaFocal [Ghosh2022]: focal loss whose gamma follows the calibration of the validation data, bin by bin.

Formula: :math:`L = -(1-p_y)^{\gamma_b} \log p_y` for :math:`\gamma_b \ge 0`, and the inverse focal loss
:math:`L = -(1+p_y)^{|\gamma_b|} \log p_y` for :math:`\gamma_b < 0`, with b the bin of :math:`p_y`.

After an epoch, with :math:`E_b` the mean confidence minus the accuracy of the validation samples in bin b:

1. Bins of equal counts are cut anew through the confidences :math:`p_{\hat y}` of the validation samples. Training
   samples are looked up by :math:`p_y`.
2. :math:`\gamma_b \leftarrow \gamma_b e^{\lambda E_b}`, or :math:`\gamma_b e^{-\lambda E_b}` if it is negative: gamma
   rises where the model is too sure.
3. Where :math:`|\gamma_b|` is now below S, it becomes -S if it was positive, S otherwise: the other loss begins at the
   opposite end of the gap.
4. gamma is cut to :math:`[\gamma_{min}, \gamma_{max}]`.

======================  ==============================================  ==========================================
                        ``variant="paper"``                             ``variant="released"`` (default)
======================  ==============================================  ==========================================
the least confident     counts in the first bin                         counts in no bin
======================  ==============================================  ==========================================

===========================  ===========================================
paper letter                 variable
===========================  ===========================================
lambda                       rate
S_th                         switch
gamma_min, gamma_max         gamma_min, gamma_max
M, number of bins            bins
===========================  ===========================================

Departures: the released code sums over the batch (``reduction="sum"``), and clips the gradient at norm 2
(``optimiser.clip``). Its 1e-20 under the power is not needed: :math:`1-p_y` comes from the other classes' log-sum-exp.
Before the first update bins are equally wide. Equal confidences can leave a bin empty; its gap is then 0. gamma is a
constant to the gradient. Values: the defaults are those of the released commands; the paper's first gamma is 1.

In a training loop call ``rows.append(loss.observe(logits, labels))`` for the batches of the validation data after each
epoch, then ``loss.end_epoch(torch.cat(rows))``. The confidences of all validation samples are then sorted, so for
segmentation give it some pixels of each image.

The lens: that of focal loss with the gamma of the bin; a negative gamma raises the label at y above 1.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from calibrant.base.checks import check_choice, check_integer, check_number
from calibrant.losses.base import Loss, Terms, register
from calibrant.losses.numerics import Target, label_log_odds, set_at, softmax

#: Bins that may be asked for.
MOST_BINS = 10**6


@register(
    "adafocal",
    "Adaptive focal loss",
    short="AdaFocal",
    paper="Ghosh2022",
    equation="Sec. 4; released code",
    summary="focal loss with a gamma for each range of confidence, learned on validation data",
    use=(
        "Focal loss helps, but no gamma suits all samples: it rises where the validation data are predicted too "
        "surely, and turns to the inverse where they are not sure enough."
    ),
    avoid="There are few validation data, or none to spare; or labels are soft, which it does not take.",
    hyper={
        "gamma": "larger: focal loss is stronger at first",
        "rate": "larger: gamma follows the validation data faster",
        "bins": "larger: finer ranges of confidence, from fewer samples each",
        "gamma_min": "larger, nearer to 0: inverse focal loss is weaker",
        "gamma_max": "larger: focal loss may become stronger",
        "switch": "larger: earlier switch between focal and inverse focal loss",
        "variant": "'released': the least confident validation sample is in no bin; 'paper': in the first",
    },
    soft=False,
)
class AdaFocal(Loss):
    """Focal and inverse focal loss by bins of the label's probability.

    Args:
        gamma: exponent of every bin before the first update, not 0.
        rate: how strongly a gap of confidence and accuracy moves gamma.
        bins: number of bins.
        gamma_min: lower bound of gamma, at most 0.
        gamma_max: upper bound of gamma, at least 0.
        switch: size of gamma below which it changes its sign.
        variant: ``"released"`` or ``"paper"``, see above.
        **common: see `Loss`.

    Example:
        >>> import torch
        >>> from calibrant.losses import AdaFocal
        >>> loss = AdaFocal(bins=1, rate=2.0)
        >>> logits, labels = torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.5, 0.0, 0.0]]), torch.tensor([1, 1, 0])
        >>> loss(logits, labels)
        tensor(0.8901)
        >>> loss.end_epoch(loss.observe(logits, labels))  # two in the bin: 0.68 sure, 0.5 right
        >>> loss.gammas
        tensor([1.4378], dtype=torch.float64)
    """

    gammas: Tensor
    edges: Tensor

    def __init__(
        self,
        gamma: float = 1.0,
        *,
        rate: float = 1.0,
        bins: int = 15,
        gamma_min: float = -2.0,
        gamma_max: float = 20.0,
        switch: float = 0.2,
        variant: Literal["released", "paper"] = "released",
        **common: Any,
    ):
        super().__init__(**common)
        self.gamma = check_number("gamma", gamma, -100.0, 100.0)
        if self.gamma == 0:
            raise ValueError("gamma must not be 0, which stays 0 whatever the validation data say")
        self.rate = check_number("rate", rate, 0.0)
        self.bins = check_integer("bins", bins, 1, MOST_BINS)
        self.gamma_min = check_number("gamma_min", gamma_min, -100.0, 0.0)
        self.gamma_max = check_number("gamma_max", gamma_max, 0.0, 100.0)
        self.switch = check_number("switch", switch, 0.0)
        self.variant = check_choice("variant", variant, ("released", "paper"))
        self.register_buffer("gammas", torch.full((self.bins,), self.gamma, dtype=torch.float64))
        self.register_buffer("edges", torch.arange(self.bins + 1, dtype=torch.float64) / self.bins)

    def formula(self, z: Tensor, t: Target) -> Terms:
        """Ghosh2022 Sec. 4."""
        log_p, log_rest = label_log_odds(z, t)
        gamma = self._gamma_of(log_p)
        log_base = torch.where(gamma >= 0, log_rest, torch.log1p(log_p.exp()))
        return Terms(self._weighted(-(gamma.abs() * log_base).exp() * log_p, t))

    def closed_form(self, z: Tensor, t: Target) -> tuple[Tensor, Tensor]:
        r"""The slope at the label; the others share its opposite in proportion to their probabilities.

        With :math:`u = 1-p_y` it is that of focal loss, :math:`u^\gamma (\gamma p_y \log p_y - u)`; with
        :math:`v = 1+p_y` and :math:`g = |\gamma|` that of the inverse,
        :math:`-u v^g (1 + g p_y \log p_y / v)`.
        """
        s, index = softmax(z), t.at_label()
        log_p = z.gather(1, index) - s.top - s.log_sum
        p, gamma = log_p.exp(), self._gamma_of(log_p)
        others = set_at(s.probs, index, 0.0)
        rest = others.sum(1, keepdim=True)
        strength, is_focal = gamma.abs(), gamma >= 0
        power = torch.xlogy(strength, torch.where(is_focal, rest, 1 + p)).exp()
        inverse = -rest * (1 + strength * p * log_p / (1 + p))
        slope = power * torch.where(is_focal, strength * p * log_p - rest, inverse)
        gradient = others.mul_(torch.where(rest > 0, -slope / rest, 0.0))
        return (-power * log_p).squeeze(1), set_at(gradient, index, slope)

    def observe(self, logits: Tensor, target: Tensor) -> Tensor:
        """A row for each sample that counts: how sure the model was, and 1 if it was right."""
        with torch.no_grad():
            z, t = self._prepare(logits, target)
            assert t.labels is not None  # soft targets are refused
            confidence, predicted = z.softmax(1).max(1)
            rows = torch.stack([confidence.double(), (predicted == t.labels).double()], dim=-1)
            return rows.flatten(0, -2) if t.valid is None else rows[t.valid]

    def end_epoch(self, observed: Tensor | None = None) -> None:
        """With what was observed of validation data, cut the bins anew and move their gammas."""
        if observed is None or not len(observed):
            return
        confidence, order = observed[:, 0].sort()
        self.edges, gaps = self._gaps(confidence, observed[order, 1])
        gammas = self.gammas * torch.exp(self.rate * gaps * self.gammas.sign())
        switched = torch.where(gammas > 0, -1, 1) * torch.full_like(gammas, self.switch)
        gammas = torch.where(gammas.abs() < self.switch, switched, gammas)
        self.gammas = gammas.clamp(self.gamma_min, self.gamma_max)

    def _gaps(self, confidence: Tensor, correct: Tensor) -> tuple[Tensor, Tensor]:
        """Edges of bins with equal counts ``[bins + 1]``, and mean confidence minus accuracy of each bin (lo, hi].

        The edges are the sorted confidences at the positions b N / bins, interpolated, and the last one from N - 1 on.
        """
        count = len(confidence)
        positions = (
            torch.linspace(0, count, self.bins + 1, dtype=torch.float64).clamp(max=count - 1).to(confidence.device)
        )
        below = positions.floor().long()
        above = (below + 1).clamp(max=count - 1)
        edges = torch.lerp(confidence[below], confidence[above], (positions - below).to(confidence))
        first = torch.searchsorted(confidence, edges, right=True)  # the first sample beyond each edge
        if self.variant == "paper":
            first[0] = 0
        sums = torch.cat([confidence.new_zeros(1), (confidence - correct).cumsum(0)])[first].diff()
        return edges, sums / first.diff().clamp(min=1)

    def _gamma_of(self, log_p: Tensor) -> Tensor:
        """The gamma of the bin [lo, hi) that the probability of the label lies in; the ends are open."""
        p = log_p.detach().exp().contiguous()
        position = torch.searchsorted(self.edges[1:-1].to(p.dtype), p, right=True)
        return self.gammas.to(p.dtype)[position]
