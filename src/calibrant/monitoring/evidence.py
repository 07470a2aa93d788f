r"""Evidence that may be looked at after every batch: mixtures of likelihood ratios that start again with every batch.

For one alternative, the product of likelihood ratios against the null hypothesis is a process whose mean never grows
while the hypothesis holds; so is any mixture of such processes. The mixture here is over alternatives and over the
batch :math:`j` from which on the ratios are multiplied, so that a change after a long good time is found soon:

.. math:: E_t = \sum_{j \le t} w_j \frac1A \sum_a \prod_{i=j}^t L_a(\text{batch}_i) + \sum_{j > t} w_j,
          \qquad w_j = \frac1{\log_2(j+1)} - \frac1{\log_2(j+2)}

By Ville's inequality [Ville1939], E exceeds 1/alpha at any time with probability alpha at most: looking often costs
nothing.

Wrong answers: with the promised rate r and an alternative rate theta > r, a batch of n answers of which k are wrong has
the ratio :math:`(\theta/r)^k ((1-\theta)/(1-r))^{n-k}`. One answer's ratio has mean
:math:`1 + (p-r)(\theta-r)/(r(1-r)) \le 1` for every true rate p <= r, whatever it was before.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import betaln, logsumexp

from calibrant.metrics import Doubles, Interval

#: By how much the log-odds of an alternative exceed those of the promised rate.
EXCESS = np.geomspace(0.05, 4.0, 24)


def start_weight(j: int) -> float:
    """The weight of the j-th start, j from 1 on; all of them sum to 1."""
    return 1 / math.log2(j + 1) - 1 / math.log2(j + 2)


class EvidenceProcess:
    """The process E of the module, of one stream or of an array of streams.

    Example:
        >>> evidence = EvidenceProcess(1)
        >>> evidence.update(np.log([4.0]))  # weight 0.369 is on 4, the rest still on 1
        >>> round(float(np.exp(evidence.log_value)), 3)
        2.107
    """

    def __init__(self, alternatives: int, streams: tuple[int, ...] = ()) -> None:
        self._log_sums: Doubles = np.full((*streams, alternatives), -np.inf)
        self.looks = 0

    def update(self, log_ratios: Doubles) -> None:
        """Take in a batch: the log likelihood ratio of each alternative, ``[..., alternatives]``."""
        self.looks += 1
        self._log_sums = np.logaddexp(self._log_sums, math.log(start_weight(self.looks))) + log_ratios

    @property
    def log_value(self) -> Doubles:
        """The logarithm of E."""
        started = logsumexp(self._log_sums, axis=-1) - math.log(self._log_sums.shape[-1])
        values: Doubles = np.logaddexp(started, -math.log(math.log2(self.looks + 2)))
        return values


def alternative_rates(rate: float) -> Doubles:
    """Rates above ``rate`` that are tested against it."""
    odds = math.log(rate) - math.log1p(-rate) + EXCESS
    rates: Doubles = 1 / (1 + np.exp(-odds))
    return rates


def rate_ratios(errors: npt.ArrayLike, answers: npt.ArrayLike, rate: float) -> Doubles:
    """Log likelihood ratios ``[..., alternatives]`` of so many errors among so many answers against ``rate``."""
    theta = alternative_rates(rate)
    k, n = (np.asarray(counts, dtype=np.float64)[..., None] for counts in (errors, answers))
    ratios: Doubles = k * np.log(theta / rate) + (n - k) * (np.log1p(-theta) - math.log1p(-rate))
    return ratios


def confidence_sequence(errors: int, answers: int, alpha: float) -> Interval:
    r"""The rate, with limits that hold at all times together with probability 1 - alpha while the rate is constant.

    The rates p that are not refuted by the mixture of likelihood ratios over Beta(1/2, 1/2) [Robbins1970]:
    :math:`B(k + 1/2, n - k + 1/2) / (B(1/2, 1/2) p^k (1-p)^{n-k}) < 1/\alpha`.

    Example:
        >>> limits = confidence_sequence(5, 100, 0.05)
        >>> round(limits.low, 3), round(limits.high, 3)
        (0.007, 0.156)
    """
    if not answers:
        return Interval(math.nan, 0.0, 1.0)
    k, n = errors, answers
    mixture = float(betaln(k + 0.5, n - k + 0.5) - betaln(0.5, 0.5)) + math.log(alpha)

    def refuted(p: float) -> float:
        likelihood = (k * math.log(p) if k else 0.0) + ((n - k) * math.log1p(-p) if n > k else 0.0)
        return mixture - likelihood

    rate, last = k / n, 1 - 1e-16
    if refuted(rate) >= 0:  # by rounding, of counts beyond all use
        return Interval(rate, rate, rate)
    low = float(brentq(refuted, 1e-300, rate)) if k else 0.0
    high = float(brentq(refuted, rate, last)) if k < n and refuted(last) > 0 else 1.0
    return Interval(rate, low, high)
