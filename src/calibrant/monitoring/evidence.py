r"""Evidence that may be looked at after every batch: mixtures of likelihood ratios that start again with every batch.

For one alternative, the product of likelihood ratios against the null hypothesis is a process whose mean never grows
while the hypothesis holds; so is any mixture of such processes. The mixture here is over alternatives and over the
batch :math:`j` from which on the ratios are multiplied, so that a change after a long good time is found soon:

.. math:: E_t = \sum_{j \le t} w_j \frac1A \sum_a \prod_{i=j}^t L_a(\text{batch}_i) + \sum_{j > t} w_j,
          \qquad w_j = \frac1{\log_2(j+1)} - \frac1{\log_2(j+2)}

By Ville's inequality [Ville1939], E exceeds 1/alpha at any time with probability alpha at most: looking often costs
nothing.

**Wrong answers.** With the promised rate r and an alternative rate theta > r, a batch of n answers of which k are wrong
has the ratio :math:`(\theta/r)^k ((1-\theta)/(1-r))^{n-k}`. One answer's ratio has mean
:math:`1 + (p-r)(\theta-r)/(r(1-r)) \le 1` for every true rate p <= r, whatever it was before.

**Changes.** Are new samples like those that a policy's threshold was set on? A conformal test martingale on binned
values tells. A new sample is ranked among all earlier ones, those of the fit included, ties broken at random:

.. math:: u = (\#\{\text{earlier below}\} + U (\#\{\text{earlier equal}\} + 1)) / (\#\{\text{earlier}\} + 1)

While nothing changes, all samples are exchangeable, and the ranks u are independent and uniform [Vovk2003]: exactly,
however few samples the fit had, whatever the distribution is and however coarse the bins are. So bets on the ranks,
whose mean gain is 1, are evidence of a change, combined by `EvidenceProcess`. A bet is a density on (0, 1): a tilt
towards small or large ranks, or a share of the ranks moved into or out of an interval.

Only the counts of a batch are kept. Its samples are put into a random order, seeded by the batch, so that the same
batches in the same order give the same evidence on every machine; of a large batch, a random part is ranked.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import betaln, logsumexp

from calibrant.base.checks import Ints
from calibrant.metrics import Doubles, Interval

#: By how much the log-odds of an alternative exceed those of the promised rate.
EXCESS = np.geomspace(0.05, 4.0, 24)
CELLS = 16  # of (0, 1), on which every bet is constant
MOST_RANKED = 5000  # samples of a batch
MOST_DRAWN = 10**9  # that NumPy draws from without putting back
REPLICATES = 2000  # of the bootstrap of a total variation


def start_weight(j: int) -> float:
    """The weight of the j-th start, j from 1 on; all of them sum to 1."""
    return 1 / math.log2(j + 1) - 1 / math.log2(j + 2)


def restart_share(k: int) -> float:
    r"""The share of its alpha that a test has from its k-th start to the next, :math:`6 / (\pi k)^2`; all sum to 1."""
    return 6 / (math.pi * k) ** 2


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
        return np.logaddexp(started, -math.log(math.log2(self.looks + 2)))

    @classmethod
    def restore(cls, log_sums: Sequence[float], looks: int) -> EvidenceProcess:
        """The process of one stream as it was after some looks."""
        process = cls(len(log_sums))
        process._log_sums, process.looks = np.array(log_sums, np.float64), looks
        return process

    @property
    def log_sums(self) -> list[float]:
        """What `restore` takes."""
        sums: list[float] = self._log_sums.tolist()
        return sums


def alternative_rates(rate: float) -> Doubles:
    """Rates above ``rate`` that are tested against it."""
    odds = math.log(rate) - math.log1p(-rate) + EXCESS
    return 1 / (1 + np.exp(-odds))


def rate_ratios(errors: npt.ArrayLike, answers: npt.ArrayLike, rate: float) -> Doubles:
    """Log likelihood ratios ``[..., alternatives]`` of errors among answers, against ``rate``."""
    theta = alternative_rates(rate)
    k, n = (np.asarray(counts, dtype=np.float64)[..., None] for counts in (errors, answers))
    return k * np.log(theta / rate) + (n - k) * (np.log1p(-theta) - math.log1p(-rate))


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

    def refutation(p: float) -> float:
        likelihood = (k * math.log(p) if k else 0.0) + ((n - k) * math.log1p(-p) if n > k else 0.0)
        return mixture - likelihood

    rate, highest = k / n, 1 - 1e-16
    if refutation(rate) >= 0:  # by rounding, of counts beyond all use
        return Interval(rate, rate, rate)
    low = float(brentq(refutation, 1e-300, rate)) if k else 0.0
    high = float(brentq(refutation, rate, highest)) if k < n and refutation(highest) > 0 else 1.0
    return Interval(rate, low, high)


def _bets() -> Doubles:
    """Densities ``[bets, CELLS]``."""
    middle = (np.arange(CELLS) + 0.5) / CELLS
    bets = [1 + slope * (middle - 0.5) for slope in (-1.8, -1.0, -0.5, -0.25, 0.25, 0.5, 1.0, 1.8)]
    for width in (8, 4, 2, 1):
        share = width / CELLS
        for start in range(0, CELLS, width):
            inside = (np.arange(CELLS) // width) * width == start
            bets += [np.where(inside, 1 - moved + moved / share, 1 - moved) for moved in (0.05, 0.2)]
            bets += [np.where(inside, 1 - lost, (1 - share * (1 - lost)) / (1 - share)) for lost in (0.3, 0.8)]
    return np.stack(bets)


BETS: Doubles = _bets()
LOG_BETS: Doubles = np.log(BETS)


def seeded_generator(*names: str) -> np.random.Generator:
    """Random numbers that are the same for the same names."""
    digest = hashlib.sha256("\0".join(names).encode("utf-8", "surrogatepass")).digest()
    return np.random.default_rng(int.from_bytes(digest[:16], "big"))


def rank_cells(pool: Ints, counts: Ints, random: np.random.Generator) -> tuple[Ints, Ints]:
    """How many ranks of a batch lie in each cell, and the pool with the samples that were ranked.

    The pool counts all earlier samples, ``counts`` those of the batch, ``[bins]`` each; its order and ties are random.
    """
    if counts.sum() >= MOST_DRAWN:  # so many that drawing with replacement makes no difference
        counts = random.multinomial(MOST_RANKED, counts / counts.sum())
    elif counts.sum() > MOST_RANKED:
        counts = random.multivariate_hypergeometric(counts, MOST_RANKED, method="marginals").astype(np.int64)
    samples = random.permutation(np.repeat(np.arange(len(counts)), counts))
    rows = np.arange(len(samples))
    present = pool + np.cumsum(samples[:, None] == np.arange(len(counts)), axis=0)  # the sample itself included
    equal = present[rows, samples]
    below = np.cumsum(present, axis=1)[rows, samples] - equal
    ranks = (below + random.random(len(samples)) * equal) / (pool.sum() + rows + 1)
    cells = np.bincount(np.minimum((ranks * CELLS).astype(np.int64), CELLS - 1), minlength=CELLS)
    return cells, pool + counts


def total_variation(reference: Ints, counts: Ints) -> Interval:
    """Half the sum of differences between two sets of shares, with limits of the basic bootstrap at 95%.

    The largest change of any event's probability. Of few samples it is above 0 by chance; the limits take that off.
    """
    random = np.random.default_rng(0)
    p, q = reference / reference.sum(), counts / counts.sum()
    value = 0.5 * float(np.abs(p - q).sum())
    a, b = (random.multinomial(int(c.sum()), s, REPLICATES) / c.sum() for c, s in ((reference, p), (counts, q)))
    low, high = np.quantile(0.5 * np.abs(a - b).sum(1), [0.025, 0.975])
    return Interval(value, max(0.0, 2 * value - float(high)), min(1.0, max(value, 2 * value - float(low))))
