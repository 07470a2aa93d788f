r"""Logit normalisation [Cattelan2024; SC Eq. 17]: rank by the largest logit over the p-norm of the logits.

.. math:: s = \max_k v_k / \|v\|_p

Softmax does not see a common offset, but a p-norm does: by default the logits are centred first, v = z - mean(z).
``centre=False`` takes them as they are, as SC prints it (with :math:`|v_k|^p`, which an odd p needs).

p is chosen from 1 to 10 by AURC on held-out data; when no p beats the softmax's own confidence (MSP), that is used and
``fell_back_`` says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from calibrant.metrics.selective import aurc
from calibrant.posthoc.base import as_logits, as_pair

_CHUNK = 2**20


class LogitNorm:
    """A score for selective classification that undoes what label smoothing does to the ranking.

    Args:
        powers: values of p to choose from.
        centre: whether to subtract each row's mean first.

    Attributes:
        p_: the chosen p, None after falling back.
        fell_back_: whether no p beat the MSP.
        aurc_: AURC on the data it was fitted on, of every p, and of the MSP under None.

    Example:
        >>> import torch
        >>> from calibrant.posthoc import LogitNorm
        >>> z = torch.tensor([[4.0, 0.0, 0.0], [3.0, 1.0, 0.0], [9.0, 5.1, 5.1]])
        >>> norm = LogitNorm().fit(z, torch.tensor([0, 0, 1]))
        >>> norm.score(z).shape
        torch.Size([3])
    """

    p_: int | None
    fell_back_: bool
    aurc_: dict[int | None, float]

    def __init__(self, powers: Sequence[int] = tuple(range(1, 11)), *, centre: bool = True) -> None:
        self.powers = powers
        self.centre = centre

    def fit(self, logits: Tensor, labels: Tensor) -> LogitNorm:
        """Choose p by AURC on held-out logits ``[N, C]`` and labels ``[N]``; returns self."""
        z, y = as_pair(logits, labels)
        if not self.powers or any(not isinstance(p, int) or p < 1 for p in self.powers):
            raise ValueError(f"powers must be whole numbers from 1 on, got {self.powers!r}")
        correct = (z.argmax(1) == y).numpy()
        return self.choose(msp(z).numpy(), {p: v.numpy() for p, v in self.scores(z).items()}, correct)

    def choose(
        self,
        plain: npt.NDArray[np.float64],
        scores: Mapping[int, npt.NDArray[np.float64]],
        correct: npt.NDArray[np.bool_],
    ) -> LogitNorm:
        """Choose p from the scores of every p and the plain softmax's, all ``[N]``; returns self."""
        self.aurc_ = {None: aurc(plain, correct), **{p: aurc(score, correct) for p, score in scores.items()}}
        best = min(scores, key=lambda p: self.aurc_[p])
        # A difference within rounding is none: with two classes, say, the score is the same for every row.
        self.fell_back_ = self.aurc_[best] >= self.aurc_[None] - 1e-9 or bool(np.ptp(scores[best]) < 1e-9)
        self.p_ = None if self.fell_back_ else best
        return self

    def score(self, logits: Tensor) -> Tensor:
        """The score of each row ``[N]``, float64, higher for surer."""
        if not hasattr(self, "p_"):
            raise ValueError("LogitNorm is not fitted: call fit with held-out logits and labels first")
        z = as_logits(logits)
        return msp(z) if self.p_ is None else self.scores(z, [self.p_])[self.p_]

    def scores(self, logits: Tensor, powers: Sequence[int] | None = None) -> dict[int, Tensor]:
        """The score of each row for every p, ``[N]`` float64, all in one pass."""
        wanted = self.powers if powers is None else powers
        parts: dict[int, list[Tensor]] = {p: [] for p in wanted}
        for part in as_logits(logits).split(max(1, _CHUNK // logits.shape[1])):
            v = part.double()
            v = v - v.mean(1, keepdim=True) if self.centre else v
            top, size = v.amax(1), v.abs().amax(1, keepdim=True)
            # Relative to the largest, so that no power overflows or vanishes.
            share = (v / size.clamp(min=torch.finfo(torch.float64).tiny)).abs_()
            power = torch.ones_like(share)
            for p in range(1, max(wanted) + 1):
                power.mul_(share)
                if p in parts:
                    norm = size.squeeze(1) * power.sum(1).pow_(1 / p)
                    # A row of equal logits has no direction: its score is the lowest, 0.
                    parts[p].append(torch.where(norm > 0, top / norm.clamp(min=torch.finfo(torch.float64).tiny), 0.0))
        return {p: torch.cat(part) for p, part in parts.items()}


def msp(logits: Tensor) -> Tensor:
    """The largest softmax probability of each row, float64."""
    return torch.cat([part.double().softmax(1).amax(1) for part in logits.split(max(1, _CHUNK // logits.shape[1]))])
