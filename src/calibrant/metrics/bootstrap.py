"""Bootstrap replicates of every metric, and the intervals that they and counts give.

A bootstrap replicate draws as many samples as there are, with replacement. To the metrics it is a table of counts: how
often each cell's right and wrong predictions came up. So the counts are drawn themselves, multinomially, over the cells
of a sketch merged to about a thousand groups of equal mass, never across the edge of a base bin: the cost does not
depend on the number of samples. Sums of weights are drawn as Poisson numbers of as many equal weights as would be as
uncertain, for which a sum of squared weights over each base bin is kept. Merging blurs a metric a little, the same way
in every replicate, so intervals are built from the differences to the merged value.

Calibration errors are sums of absolute values, which noise inflates, and a replicate inflates them once more. Their
interval reaches as far as the mirrored differences do (the basic interval, which takes that bias off) and as the
centred ones do; and it reaches down to 0 when a perfectly calibrated model, right as often as each confidence says,
would show as much by chance. An interval always contains its value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant.base.arrays import Doubles
from calibrant.base.checks import LARGEST_SEED, Ints, check_integer
from calibrant.metrics.catalogue import METRICS, describe, split_name
from calibrant.metrics.summary import Summary
from calibrant.metrics.tables import FUNCTIONS, Groups

FEWEST = 10  # samples, below which no bootstrap is tried
NEAREST = 1e-9  # to 0 or 1 of a confidence level, or of a risk that is asked for
MOST_REPLICATES = 10_000  # a paired comparison may hold a hundred kilobytes of each
GROUPS = 1024
BATCH = 64  # replicates at a time: what is computed of them stays in the cache


@dataclass(frozen=True)
class Interval:
    """A value and the limits between which it lies with the given confidence."""

    value: float
    low: float
    high: float


def check_level(level: float, replicates: int, seed: int = 0) -> None:
    """Refuse a confidence level outside (0, 1), too few replicates to have tails, too many to hold, and odd seeds."""
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level}")
    if not NEAREST <= level <= 1 - NEAREST:
        raise ValueError(f"level must lie at least {NEAREST:g} above 0 and below 1, got {level}")
    check_integer("replicates", replicates, 20, MOST_REPLICATES)
    check_integer("seed", seed, 0, LARGEST_SEED)


def bootstrap_interval(
    name: str,
    value: float,
    differences: Doubles,
    level: float,
    *,
    null: Doubles | None = None,
    bounds: tuple[float, float] | None = None,
) -> Interval:
    """The interval of a metric from what its replicates differ by from the value they scatter about.

    Args:
        name: of the metric.
        value: of the metric.
        differences: of the replicates.
        level: confidence level.
        null: of a calibration error, values that a perfectly calibrated model would show by chance.
        bounds: the smallest and largest value there can be; the metric's own if None.
    """
    metric, differences = describe(name), differences[np.isfinite(differences)]
    if not math.isfinite(value) or not len(differences):
        return Interval(value, math.nan, math.nan)
    below, above = np.quantile(differences, (0.5 * (1 - level), 0.5 * (1 + level)))
    low, high = value + below, value + above
    if metric.absolute:
        mean = differences.mean()
        low, high = value + min(-above, below - mean), value + max(-below, above - mean)
        if null is not None and value <= np.quantile(null, level):
            low = 0.0
    least, most = metric.bounds if bounds is None else bounds
    return Interval(value, float(min(value, max(least, low))), float(max(value, min(most, high))))


def mean_interval(values: Doubles, *, level: float = 0.95, replicates: int = 1000, seed: int = 0) -> Interval:
    """The mean of a column with its percentile bootstrap interval.

    Of two columns of the same samples the difference is a column too: its mean is a paired comparison.

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


def z_value(level: float) -> float:
    """How many standard errors an interval of this level reaches."""
    return NormalDist().inv_cdf(0.5 + 0.5 * level)


def normal_interval(value: float, error: float, level: float, low: float, high: float) -> Interval:
    """A mean and its standard error as an interval, cut to where the value can lie."""
    if not math.isfinite(value) or not math.isfinite(error):
        return Interval(value, math.nan, math.nan)
    width = z_value(level) * error
    return Interval(value, float(max(low, value - width)), float(min(high, value + width)))


def wilson(successes: npt.ArrayLike, number: npt.ArrayLike, level: float = 0.95) -> tuple[Doubles, Doubles]:
    """Wilson's interval for shares ([Wilson1927]); NaN where the number is 0.

    Example:
        >>> from calibrant.metrics import wilson
        >>> [round(float(limit), 4) for limit in wilson(8, 10)]
        [0.4902, 0.9433]
    """
    k, n = np.asarray(successes, dtype=np.float64), np.asarray(number, dtype=np.float64)
    z = z_value(level)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = k / n
        middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
        width = z / (1 + z**2 / n) * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
        return np.clip(middle - width, 0, 1), np.clip(middle + width, 0, 1)


def merge_cells(summary: Summary) -> Groups:
    """The cells of the score, merged to about `GROUPS` groups of equal mass, never across the edge of a base bin."""
    cells = summary.cells
    total = cells.count[::-1].cumsum()[::-1]
    mass = (total - 1) * GROUPS // int(total[0])
    is_first = np.diff(mass, prepend=-1) != 0
    if cells.base is not None:
        is_first |= np.diff(cells.base, prepend=-1) != 0
    return cells.merged(np.flatnonzero(is_first))


def replicate(groups: Groups, rng: np.random.Generator, replicates: int) -> Iterator[Groups]:
    """Bootstrap replicates ``[R, G]``, a batch at a time."""
    counts = _sides(groups.count - groups.errors, groups.errors)
    total = counts.sum()
    units = None if groups.unit is None or groups.error_unit is None else _sides(groups.unit, groups.error_unit)
    for start in range(0, replicates, BATCH):
        size = min(BATCH, replicates - start)
        if units is None:
            draws: Any = rng.multinomial(int(total), counts / total, size=size)
        else:
            numbers = np.divide(counts, units, out=np.zeros(len(counts)), where=units > 0)
            draws = rng.poisson(numbers, size=(size, len(counts))) * units
        yield groups.with_counts(*(side[:, ::-1] for side in np.split(draws, 2, axis=1)))


def _sides(right: Doubles, wrong: Doubles) -> Doubles:
    """Right predictions of each group from the lowest score up, then wrong ones: the order in which they are drawn."""
    return np.concatenate([right[::-1], wrong[::-1]])


def values_of(groups: Groups, names: Iterable[str]) -> dict[str, Any]:
    """Metrics by name, of a table or of replicates."""
    values = {}
    for name in names:
        base, setting = split_name(name)
        settings = {} if setting is None else {METRICS[base].setting: setting}
        values[name] = FUNCTIONS[base](groups, **settings)
    return values


def replicate_differences(
    groups: Groups, rng: np.random.Generator, replicates: int, names: Iterable[str]
) -> dict[str, Doubles]:
    """For every metric, the replicates' values minus the value of these groups themselves."""
    names = list(names)
    itself = groups.with_counts((groups.count - groups.errors)[None], groups.errors[None])
    centre = values_of(itself, names)
    parts = [values_of(batch, names) for batch in replicate(groups, rng, replicates)]
    return {name: np.concatenate([part[name] for part in parts]) - centre[name] for name in names}


def by_chance(groups: Groups, rng: np.random.Generator, number: int, names: Iterable[str]) -> dict[str, Doubles]:
    """Calibration errors as they would come about if predictions were right as often as their confidence says."""
    size, whole = groups.count, groups.whole
    sure = np.clip(np.divide(groups.sure, size, out=np.zeros(len(size)), where=size > 0), 0, 1)
    hits = draw_hits(rng, whole[::-1], sure[::-1], number)[:, ::-1].astype(np.float64)
    if groups.unit is not None:
        hits *= size / np.maximum(whole, 1)
    drawn = replace(groups, count=np.broadcast_to(size.astype(np.float64), hits.shape), errors=size - hits,
                    confidence=size * sure + 0 * hits, error_confidence=(size - hits) * sure)  # fmt: skip
    return values_of(drawn, [name for name in names if describe(name).absolute])


def draw_hits(rng: np.random.Generator, size: Ints, confidence: Doubles, number: int) -> Ints:
    """How many of each group's predictions would be right if their confidence were true, ``[number, G]``."""
    return rng.binomial(size, confidence, size=(number, len(size)))
