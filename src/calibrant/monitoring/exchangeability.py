r"""Are new samples like those that a policy's threshold was set on? A conformal test martingale on binned values.

A new sample is ranked among all earlier ones, those of the fit included, ties broken at random:

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

import numpy as np

from calibrant._validation import Ints
from calibrant.metrics import Doubles, Interval

CELLS = 16  # of (0, 1), on which every bet is constant
MOST_RANKED = 5000  # samples of a batch
MOST_DRAWN = 10**9  # that NumPy draws from without putting back


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


def generator(*names: str) -> np.random.Generator:
    """Random numbers that are the same for the same names."""
    digest = hashlib.sha256("\0".join(names).encode("utf-8", "surrogatepass")).digest()
    return np.random.default_rng(int.from_bytes(digest[:16], "big"))


def rank_cells(pool: Ints, counts: Ints, random: np.random.Generator) -> tuple[Ints, Ints]:
    """How many ranks of a batch lie in each cell, and the pool with the samples that were ranked.

    Args:
        pool: ``[bins]`` counts of all earlier samples.
        counts: ``[bins]`` of the batch.
        random: for the order of the batch and for ties.
    """
    if counts.sum() >= MOST_DRAWN:  # so many that to put back makes no difference
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


def total_variation(reference: Ints, counts: Ints, alpha: float = 0.05, replicates: int = 2000) -> Interval:
    """Half the sum of differences between two sets of shares, with limits of the basic bootstrap.

    The largest change of any event's probability. Of few samples it is above 0 by chance; the limits take that off.
    """
    random = np.random.default_rng(0)
    p, q = reference / reference.sum(), counts / counts.sum()
    value = 0.5 * float(np.abs(p - q).sum())
    a, b = (random.multinomial(int(c.sum()), s, replicates) / c.sum() for c, s in ((reference, p), (counts, q)))
    low, high = np.quantile(0.5 * np.abs(a - b).sum(1), [alpha / 2, 1 - alpha / 2])
    return Interval(value, max(0.0, 2 * value - float(high)), min(1.0, max(value, 2 * value - float(low))))
