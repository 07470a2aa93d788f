r"""Logit normalisation [Cattelan2024; SC Eq. 17]: rank by the largest logit over the p-norm of the logits.

.. math:: s = \max_k v_k / \|v\|_p

Softmax does not see a common offset, but a p-norm does: by default the logits are centred first, v = z - mean(z).
``centre=False`` takes them as they are, as SC prints it (with :math:`|v_k|^p`, which an odd p needs).

p is chosen from 1 to 10 by AURC on held-out data; when no p beats the softmax's own confidence (MSP), that is used and
``fell_back_`` says so.
"""

from __future__ import annotations

from collections.abc import Sequence

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
        correct = (z.argmax(1) == y).numpy()
        self.aurc_ = {None: aurc(_msp(z).numpy(), correct)}
        for p in self.powers:
            self.aurc_[p] = aurc(self._normalised(z, p).numpy(), correct)
        best = min(self.powers, key=lambda p: self.aurc_[p])
        self.fell_back_ = self.aurc_[best] >= self.aurc_[None]
        self.p_ = None if self.fell_back_ else best
        return self

    def score(self, logits: Tensor) -> Tensor:
        """The score of each row ``[N]``, float64, higher for surer."""
        if not hasattr(self, "p_"):
            raise ValueError("LogitNorm is not fitted: call fit with held-out logits and labels first")
        z = as_logits(logits)
        return _msp(z) if self.p_ is None else self._normalised(z, self.p_)

    def _normalised(self, z: Tensor, p: int) -> Tensor:
        parts = []
        for part in z.split(max(1, _CHUNK // z.shape[1])):
            v = part.double()
            v = v - v.mean(1, keepdim=True) if self.centre else v
            # A row of equal logits has no direction: its score is the lowest, 0.
            norm = torch.linalg.vector_norm(v, ord=float(p), dim=1)
            parts.append(torch.where(norm > 0, v.amax(1) / norm.clamp(min=torch.finfo(torch.float64).tiny), 0.0))
        return torch.cat(parts)


def _msp(z: Tensor) -> Tensor:
    parts = [part.double().softmax(1).amax(1) for part in z.split(max(1, _CHUNK // z.shape[1]))]
    return torch.cat(parts)
