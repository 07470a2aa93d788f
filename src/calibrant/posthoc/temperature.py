r"""Temperature scaling [Guo2017, Sec. 4.2]: divide the logits by the one number that minimises the NLL.

With :math:`s = 1/T` the NLL is convex in s:

.. math:: f(s) = \frac1N \sum_n \Bigl( \log \sum_j e^{s z_{nj}} - s z_{n y_n} \Bigr), \qquad
          f'(s) = \frac1N \sum_n \bigl( \mathbb{E}_p[z_n] - z_{n y_n} \bigr), \qquad
          f''(s) = \frac1N \sum_n \mathrm{Var}_p[z_n]

so Newton's method, kept inside a bracket of the root of f', finds the minimiser to rounding. Each step is one pass over
the logits, in chunks.

Where there is no minimiser the search ends where the NLL no longer changes: T goes towards 0 (to 1e-6 at most) on data
that are all right, and to 1e6 where the logits point away from the labels. Logits that are constant in every row
leave T at 1. ``converged_`` says whether the gradient vanished at the answer.
"""

from __future__ import annotations

import torch
from torch import Tensor

from calibrant.posthoc.base import as_logits, as_pair

COLDEST, HOTTEST = 1e-6, 1e6
_CHUNK = 2**20


class TemperatureScaling:
    """One temperature for all logits, by exact minimisation of the NLL.

    Attributes:
        temperature_: the fitted T.
        gradient_: dNLL/dT where the search ended.
        converged_: whether |dNLL/dT| < 1e-8 there.
        passes_: how many passes over the logits it took.

    Example:
        >>> import torch
        >>> from calibrant.posthoc import TemperatureScaling
        >>> generator = torch.Generator().manual_seed(0)
        >>> honest = 2 * torch.randn(4000, 10, generator=generator)
        >>> labels = torch.multinomial(honest.softmax(1), 1, generator=generator).squeeze(1)
        >>> scaling = TemperatureScaling().fit(3 * honest, labels)
        >>> 2.8 < scaling.temperature_ < 3.2, abs(scaling.gradient_) < 1e-8
        (True, True)
    """

    temperature_: float
    gradient_: float
    converged_: bool
    passes_: int

    def fit(self, logits: Tensor, labels: Tensor) -> TemperatureScaling:
        """Fit on held-out logits ``[N, C]`` and labels ``[N]``; returns self."""
        z, y = as_pair(logits, labels)
        low, high = 1 / HOTTEST, 1 / COLDEST
        s = 1.0
        for passes in range(1, 100):
            slope, curvature = _derivatives(z, y, s)
            self.temperature_, self.gradient_, self.passes_ = 1 / s, -slope * s * s, passes
            self.converged_ = abs(self.gradient_) < 1e-8
            if abs(self.gradient_) < 1e-12 or slope == 0:
                break
            low, high = (s, high) if slope < 0 else (low, s)
            # Where every prediction is saturated the curvature vanishes before the slope does.
            step = s - slope / curvature if curvature > 0 else 0.0
            # Outside the bracket Newton's step is not to be trusted; halve the bracket's logarithm instead.
            following = step if low < step < high else (low * high) ** 0.5
            if abs(following - s) <= 1e-15 * s or high - low <= 1e-15 * high:
                break
            s = following
        return self

    def transform(self, logits: Tensor) -> Tensor:
        """The logits divided by the temperature."""
        if not hasattr(self, "temperature_"):
            raise ValueError("TemperatureScaling is not fitted: call fit with held-out logits and labels first")
        return as_logits(logits) / self.temperature_


def _derivatives(z: Tensor, y: Tensor, s: float) -> tuple[float, float]:
    """f' and f'' at s."""
    slope = curvature = 0.0
    rows = max(1, _CHUNK // z.shape[1])
    for part, label in zip(z.split(rows), y.split(rows), strict=True):
        shifted = part.double() - part.amax(1, keepdim=True)
        p = (s * shifted).softmax(1)
        mean = torch.linalg.vecdot(p, shifted)
        slope += float((mean - shifted.gather(1, label[:, None]).squeeze(1)).sum())
        curvature += float((torch.linalg.vecdot(p, shifted.square()) - mean.square()).clamp_(min=0).sum())
    return slope / len(z), curvature / len(z)
