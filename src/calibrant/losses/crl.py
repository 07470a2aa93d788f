r"""Correctness ranking loss [Moon2020], ACLS supplement Eq. 18.

Formula: :math:`L = L_{CE} + \lambda \sum_{n,m} \max(0, -\mathrm{sgn}(c_n - c_m)(\kappa_n - \kappa_m))`, with
:math:`\kappa` the confidence and c how often a sample was right so far (`CorrectnessHistory`).

=============  ===========================================  =========================================================
               ``variant="paper"``                          ``variant="released"`` (default)
=============  ===========================================  =========================================================
pairs          all of the batch; a sample's share is its    (i, i+1 mod N)
               sum over m
margin         none                                         :math:`+|c_i - c_j|`; 0 where :math:`c_i = c_j`
=============  ===========================================  =========================================================

======================  ==============================
paper letter            variable
======================  ==============================
lambda                  strength
h, H(n, m) (ACLS)       counts, differences of c
kappa                   score: msp, entropy or margin
======================  ==============================

``score="msp"`` is the largest probability, ``"entropy"`` is :math:`-H(p)/\log K`, ``"margin"`` the gap of the two
largest probabilities. ``indicator="margin"`` is the ablation of ACLS Table 6: CRL's smoothing function
:math:`\lambda\,\partial\kappa/\partial z` with the indicator of ACLS Eq. 11 in the place of the ranking.

While nothing is recorded the penalty is 0 and this is cross-entropy. In a training loop call
``loss(logits, labels, ids=ids)``, then ``loss.update(logits, labels, ids=ids)``, and ``loss.end_epoch()``.

The lens: for one violated pair f is :math:`\lambda p_j(1-p_j)` at yhat and :math:`\lambda p_{\hat y} p_j` elsewhere
(ACLS Table 2). A sample stands in several pairs and the released margin makes pairs count that are in order,
so the exact f is that times the net number of pairs that pull it down: it is negative where they
pull it up.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor

from calibrant.base.checks import check_choice, check_number
from calibrant.losses.base import Loss, SizedByData, Terms, register
from calibrant.losses.numerics import (
    MOST_SAMPLES,
    Softmax,
    Target,
    check_ids,
    cross_entropy,
    cross_entropy_with_confidence,
    first_maximum,
    nll,
    set_at,
    softmax,
    subtract_at,
)


class CorrectnessHistory(SizedByData):
    r"""Counts of correct predictions by sample id; grows as ids appear.

    The correctness of sample n is :math:`c_n = (h_n - \min h) / (E - \min h)`, with :math:`h_n` its count of correct
    predictions, the minimum over the data set, and E the number of finished epochs (at least 1), as in the released
    code of [Moon2020]. The counts live in the loss's state_dict, so a resumed run ranks as the uninterrupted one.

    Args:
        num_samples: size of the training set, if known; otherwise the largest id seen plus one.
    """

    sized = ("counts",)
    counts: Tensor
    epochs: Tensor

    def __init__(self, num_samples: int = 0):
        super().__init__()
        self.register_buffer("counts", torch.zeros(num_samples, dtype=torch.int64))
        self.register_buffer("epochs", torch.zeros((), dtype=torch.int64))

    def record(self, ids: Tensor, correct: Tensor) -> None:
        """Add one count for every correctly classified sample."""
        ids = ids.flatten().to(self.counts.device)
        if ids.numel() == 0:
            return
        added = int(ids.max()) + 1 - len(self.counts)
        if added > 0:
            self.counts = torch.cat([self.counts, self.counts.new_zeros(added)])
        self.counts.index_add_(0, ids.long(), correct.flatten().to(self.counts))

    def correctness(self, ids: Tensor) -> Tensor:
        """Normalised correctness in float64, same shape as ``ids``; 0 for samples never recorded."""
        ids = ids.long()
        if not len(self.counts):
            return torch.zeros_like(ids, dtype=torch.float64)
        counts = self.counts.to(ids.device)
        low = counts.min()
        counts_of_ids = torch.where(ids < len(counts), counts[ids.clamp(max=len(counts) - 1)], low)
        return (counts_of_ids - low).double() / (self.epochs.to(ids.device).clamp(min=1) - low).clamp(min=1)


class RankingLoss(Loss):
    """Base of the losses that can condition on the order of two samples' correctness: ``indicator="ranking"``."""

    def __init__(self, indicator: str, num_samples: int, **common: Any):
        super().__init__(**common)
        self.num_samples = int(check_number("num_samples", num_samples, 0, MOST_SAMPLES))
        self.history = CorrectnessHistory(self.num_samples) if indicator == "ranking" else None

    def update(self, logits: Tensor, target: Tensor, *, ids: Tensor | None = None) -> None:
        """Record which of these samples the model classified correctly; call once per training step."""
        if self.history is None:
            return
        name = type(self).__name__
        if ids is None:
            raise ValueError(f"{name} remembers samples by id: call update(logits, target, ids=...)")
        with torch.no_grad():
            z, t = super()._prepare(logits, target)
            if t.labels is None:
                raise ValueError(f"{name} records correct predictions: it needs class labels, not soft")
            correct = z.argmax(1) == t.labels
            ids = check_ids(name, ids, t.labels)
            self.history.record(ids, correct if t.valid is None else correct & t.valid)

    def end_epoch(self, observed: Tensor | None = None) -> None:
        """Count a finished epoch."""
        if self.history is not None:
            self.history.epochs += 1

    def _prepare(self, logits: Tensor, target: Tensor, ids: Tensor | None = None) -> tuple[Tensor, Target]:
        """As in `Loss`, with the correctness of each position as it is now, or None while nothing is recorded."""
        z, t = super()._prepare(logits, target)
        if self.history is None or len(self.history.counts) == 0:
            return z, t
        if ids is None:
            raise ValueError(f"{type(self).__name__} ranks samples by id: call it with ids=...")
        like = t.labels if t.labels is not None else z[:, 0].detach()
        ids = check_ids(type(self).__name__, ids, like)
        return z, t._replace(correctness=self.history.correctness(ids).flatten().to(z.dtype))


@register(
    "crl",
    "Correctness ranking",
    paper="Moon2020",
    equation="ACLS supplement Eq. 18",
    summary="orders confidences as the samples' past correctness is ordered",
    use=(
        "The model will abstain on what it is least sure of: confidences are put in the order of how often each "
        "sample was right during training."
    ),
    avoid=(
        "Samples have no ids, or are seen once: without a memory it is cross-entropy. Labels are soft, which it "
        "does not take."
    ),
    hyper={
        "strength": "larger: more weight on the order of confidences",
        "score": "confidence that is ranked: 'msp', 'entropy' or 'margin'",
        "indicator": "'ranking': pairs out of order; 'margin': logits further apart than margin (ACLS Table 6)",
        "margin": "larger: fewer logits count (indicator='margin' only)",
        "num_samples": "size of the training set, if known beforehand",
        "variant": "'released': neighbours with a margin; 'paper': all pairs without",
    },
    soft=False,
    per_sample=False,
    cost="N C; paper: + N^2",
)
class CRL(RankingLoss):
    """Cross-entropy plus a ranking penalty on confidences.

    Args:
        strength: weight of the penalty.
        score: the confidence to rank.
        indicator: what switches the penalty on.
        margin: for ``indicator="margin"``.
        num_samples: size of the training set; the history grows by itself when it is 0.
        variant: ``"released"`` or ``"paper"``, see above.
        **common: see `Loss`.

    Example:
        >>> import torch
        >>> from calibrant.losses import CRL
        >>> loss, ids = CRL(), torch.tensor([0, 1])
        >>> logits, labels = torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0]]), torch.tensor([1, 1])
        >>> loss.update(logits, labels, ids=ids)  # sample 0 wrong, sample 1 right
        >>> loss.terms(logits, labels, ids=ids)["regulariser"]
        tensor(1.2109)
    """

    def __init__(
        self,
        strength: float = 1.0,
        score: Literal["msp", "entropy", "margin"] = "msp",
        indicator: Literal["ranking", "margin"] = "ranking",
        margin: float = 10.0,
        num_samples: int = 0,
        variant: Literal["released", "paper"] = "released",
        **common: Any,
    ):
        super().__init__(indicator, num_samples, **common)
        self.strength = check_number("strength", strength, 0.0)
        self.score = check_choice("score", score, ("msp", "entropy", "margin"))
        self.indicator = check_choice("indicator", indicator, ("ranking", "margin"))
        self.margin = check_number("margin", margin, 0.0)
        self.variant = check_choice("variant", variant, ("released", "paper"))

    def formula(self, z: Tensor, t: Target) -> Terms:
        """ACLS supplement Eq. 18."""
        fidelity = nll(z, t, self.weight)
        if self.indicator == "margin":
            return Terms(fidelity, self.strength * self._margin_penalty(z))
        correctness = t.correctness
        if correctness is None:
            return Terms(fidelity, torch.zeros_like(fidelity))
        penalty = self._rank(confidence_score(z, self.score).flatten(), correctness, t)[0]
        return Terms(fidelity, self.strength * penalty.view_as(fidelity))

    def closed_form(self, z: Tensor, t: Target) -> tuple[Tensor, Tensor]:
        """The penalty acts through N scores, each with a slope; the indicator of ACLS Eq. 11 also picks classes."""
        top, predicted, gap = first_maximum(z)
        s = softmax(z, top)
        if self.indicator == "margin":
            # Beyond the margin as 0 and 1; the class yhat counts where any other does, as then the smallest logit does.
            active = gap.sub_(self.margin).relu_().sign_()
            row = active.amax(1, keepdim=True)
            score, pull = score_and_slopes(z, s, predicted, self.score)
            value, gradient = cross_entropy(z, s, t)
            gradient.add_(pull.mul_(set_at(active, predicted, row)), alpha=self.strength)
            return value + self.strength * score * row.squeeze(1), gradient
        slopes: Tensor | None = None
        if self.score == "msp":
            score = s.probs.gather(1, predicted).squeeze(1)
        else:
            score, slopes = score_and_slopes(z, s, predicted, self.score)
        correctness = t.correctness
        if correctness is None:
            return cross_entropy(z, s, t)
        penalty, slope = self._rank(score.flatten(), correctness, t)
        penalty, pull = self.strength * penalty.view_as(score), self.strength * slope.view_as(score).unsqueeze(1)
        if slopes is None:
            value, gradient = cross_entropy_with_confidence(z, s, t, predicted, pull)
        else:
            value, gradient = cross_entropy(z, s, t)
            gradient.add_(slopes.mul_(pull))
        return value + penalty, gradient

    def _rank(self, score: Tensor, correctness: Tensor, t: Target) -> tuple[Tensor, Tensor]:
        """Penalty per sample (differentiable) and the derivative of its sum by each score."""
        valid = None if t.valid is None else t.valid.flatten()
        if self.variant == "paper":
            return _all_pairs(score, correctness, valid)
        difference = correctness - following(correctness, valid)
        sign = difference.sign()
        penalty = torch.relu(difference.abs() - sign * (score - following(score, valid))) * sign.abs()
        active = torch.where(penalty > 0, sign, 0.0)
        return penalty, _preceding(active, valid) - active

    def _margin_indicator(self, z: Tensor) -> Tensor:
        """ACLS Eq. 11 (strictly beyond the margin): per class, and at yhat by the distance to the smallest logit."""
        top, predicted = z.max(1, keepdim=True)
        beyond = top - z > self.margin
        return beyond.scatter(1, predicted, top - z.amin(1, keepdim=True) > self.margin)

    def _margin_penalty(self, z: Tensor) -> Tensor:
        """The score where logits are too far apart; its gradient reaches only the classes of the indicator."""
        active = self._margin_indicator(z.detach())
        penalty = confidence_score(torch.where(active, z, z.detach()), self.score)
        return torch.where(active.any(1), penalty, 0.0)


def confidence_score(z: Tensor, kind: str) -> Tensor:
    """Confidence per position: ``"msp"``, ``"entropy"`` (-H / log K) or ``"margin"`` (gap of the two largest)."""
    if kind == "entropy":
        log_probs = z.log_softmax(1)
        return (log_probs.exp() * log_probs).sum(1) / math.log(z.shape[1])
    probs, predicted = z.softmax(1), z.argmax(1, keepdim=True)
    largest = probs.gather(1, predicted).squeeze(1)
    return largest if kind == "msp" else largest - probs.scatter(1, predicted, 0.0).max(1).values


def score_and_slopes(z: Tensor, s: Softmax, predicted: Tensor, kind: str) -> tuple[Tensor, Tensor]:
    """`confidence_score` ``[N, ...]`` and its gradient by the logits ``[N, C, ...]``, as a new array."""
    if kind == "entropy":
        scale = 1 / math.log(z.shape[1])
        weighted = (z - s.top).mul_(s.probs)
        mean = weighted.sum(1, keepdim=True)
        score = scale * (mean - s.log_sum).squeeze(1)
        return score, weighted.sub_(s.probs * mean).mul_(scale)
    largest = s.probs.gather(1, predicted)
    if kind == "msp":
        return largest.squeeze(1), subtract_at(s.probs * -largest, predicted, -largest)
    runner_up = first_maximum(z.scatter(1, predicted, -torch.inf)).position
    second = s.probs.gather(1, runner_up)
    slopes = subtract_at(s.probs * (second - largest), predicted, -largest)
    return (largest - second).squeeze(1), subtract_at(slopes, runner_up, second)


def out_of_order(score: Tensor, correctness: Tensor, t: Target) -> Tensor:
    """Whether a sample and its follower are ranked against their correctness: the indicator of ACLS Eq. 21."""
    valid = None if t.valid is None else t.valid.flatten()
    return (correctness - following(correctness, valid)) * (score - following(score, valid)) < 0


def following(x: Tensor, valid: Tensor | None) -> Tensor:
    """For each entry of ``x`` the next one that counts, the last followed by the first: x[(i + 1) mod N]."""
    if valid is None:
        return x.roll(-1)
    order = torch.argsort(~valid, stable=True)
    position = torch.arange(len(x), device=x.device)
    after = torch.where(position + 1 < valid.sum(), position + 1, 0)
    return x[torch.zeros_like(order).scatter(0, order, order[after])]


def _preceding(x: Tensor, valid: Tensor | None) -> Tensor:
    """The entry of the sample that ``x[i]`` follows."""
    if valid is None:
        return x.roll(1)
    followers = following(torch.arange(len(x), device=x.device), valid)
    return torch.zeros_like(x).scatter_add(0, followers, torch.where(valid, x, 0.0))


def _all_pairs(score: Tensor, correctness: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor]:
    """Penalty of each sample summed over all others, in blocks of rows, and the slope of the total."""
    counted = torch.ones_like(score) if valid is None else valid.to(score.dtype)
    step = max(1, (1 << 20) // len(score))
    penalties, slopes = [], []
    for start in range(0, len(score), step):
        rows = slice(start, start + step)
        sign = torch.sign(correctness[rows, None] - correctness) * counted[rows, None] * counted
        pair = torch.relu(-sign * (score[rows, None] - score))
        penalties.append(pair.sum(1))
        # Each unordered pair stands in the sum twice, once from either side, with the same slope.
        slopes.append(-2 * torch.where(pair > 0, sign, 0.0).sum(1))
    return torch.cat(penalties), torch.cat(slopes)
