"""The bootstrap of a mean over samples: each replicate draws as many samples as there are, with replacement.

Of two columns of the same samples the difference is a column too: its mean is a paired comparison.
"""

from __future__ import annotations

import math

import numpy as np

from calibrant._arrays import Doubles
from calibrant.metrics.bootstrap.intervals import FEWEST, Interval, check_level
from calibrant.metrics.bootstrap.replicates import BATCH


def mean_interval(values: Doubles, *, level: float = 0.95, replicates: int = 1000, seed: int = 0) -> Interval:
    """The mean of a column with its percentile bootstrap interval.

    Args:
        values: ``[N]`` finite numbers, one per sample.
        level: confidence level.
        replicates: how many bootstrap replicates.
        seed: of the random numbers.

    Returns:
        Limits are NaN with fewer than ten samples; the value is NaN without any.

    Example:
        >>> import numpy as np
        >>> from calibrant.metrics import mean_interval
        >>> change = mean_interval(np.arange(100) / 100)
        >>> round(change.value, 3), round(change.low, 1), round(change.high, 1)
        (0.495, 0.4, 0.6)
    """
    check_level(level, replicates, seed)
    number = len(values)
    if number < FEWEST:
        return Interval(float(np.mean(values)) if number else math.nan, math.nan, math.nan)
    rng, means = np.random.default_rng(seed), []
    for start in range(0, replicates, BATCH):
        size = min(BATCH, replicates - start)
        means.append(rng.multinomial(number, np.full(number, 1 / number), size=size) @ values / number)
    low, high = np.quantile(np.concatenate(means), (0.5 * (1 - level), 0.5 * (1 + level)))
    mean = float(np.mean(values))
    return Interval(mean, float(min(mean, low)), float(max(mean, high)))
