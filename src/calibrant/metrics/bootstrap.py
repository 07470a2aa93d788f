"""Bootstrap replicates of every metric, and the intervals that they and counts give.

A bootstrap replicate draws as many samples as there are, with replacement. To the metrics it is a table of counts: how
often each cell's right and wrong predictions came up. So the counts are drawn themselves, multinomially, over the cells
of a sketch merged to about a thousand groups of equal mass, never across the edge of a base bin: the cost does not
depend on the number of samples. Merging blurs a metric a little, the same way in every replicate, so intervals are
built from the differences to the merged value.

Calibration errors are sums of absolute values, which noise inflates, and a replicate inflates them once more. Their
interval reaches as far as the mirrored differences do (the basic interval, which takes that bias off) and as the
centred ones do; and it reaches down to 0 when a perfectly calibrated model, right as often as each confidence says,
would show as much by chance. An interval always contains its value.
"""

from __future__ import annotations

import math
from collections.abc import Container
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from calibrant._arrays import Doubles
from calibrant._validation import LARGEST_SEED, Ints, check_integer
from calibrant.metrics.catalogue import COVERAGES, ECE_BINS, MEASURED, RISKS, describe
from calibrant.metrics.grid import BASE
from calibrant.metrics.summary import Summary

FEWEST = 10  # samples, below which no bootstrap is tried
NEAREST = 1e-9  # to 0 or 1 of a confidence level, or of a risk that is asked for
MOST_REPLICATES = 10_000  # a paired comparison may hold a hundred kilobytes of each
AREAS = ("aurc", "e_aurc", "augrc")  # what `area_values` gives
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


@dataclass(frozen=True, eq=False)
class ScoreGroups:
    """Groups of samples from the lowest score up: right predictions of each, then wrong ones, ``[2 G]``."""

    counts: Ints
    confidence: Doubles
    base: Ints

    @classmethod
    def of_cells(cls, summary: Summary) -> ScoreGroups:
        """The cells of the score, merged to about `GROUPS` groups of equal mass."""
        right, wrong, centre, base = summary.placed_cells()
        total = np.cumsum(right + wrong)
        mass = (total - 1) * GROUPS // int(total[-1])
        begin = np.flatnonzero((np.diff(mass, prepend=-1) != 0) | (np.diff(base, prepend=-1) != 0))
        counts = [np.add.reduceat(part, begin) for part in (right, wrong)]
        sums = [np.add.reduceat(part * centre, begin) for part in (right, wrong)]
        return cls(np.concatenate(counts), _ratio(np.concatenate(sums), np.concatenate(counts)), base[begin])

    @classmethod
    def of_bins(cls, summary: Summary) -> ScoreGroups:
        """The base bins of the confidence."""
        counts = summary.base_counts.reshape(BASE, 2).T.ravel()
        sums = summary.base_sums.reshape(BASE, 2).T.ravel()
        return cls(counts, _ratio(sums, counts), np.arange(BASE))

    def differences(
        self, rng: np.random.Generator, replicates: int, only: Container[str] = MEASURED
    ) -> dict[str, Doubles]:
        """For every metric that is wanted, the replicates' values minus the value of these groups themselves."""
        total, centre = int(self.counts.sum()), self.metrics(self.counts[None], only)
        parts: dict[str, list[Doubles]] = {name: [] for name in centre}
        for start in range(0, replicates, BATCH):
            size = min(BATCH, replicates - start)
            counts = rng.multinomial(total, self.counts / total, size=size)
            for name, values in self.metrics(counts, only).items():
                parts[name].append(values - centre[name])
        return {name: np.concatenate(values) for name, values in parts.items()}

    def by_chance(self, rng: np.random.Generator, number: int, only: Container[str] = MEASURED) -> dict[str, Doubles]:
        """Calibration errors as they would come about if predictions were right as often as their confidence says."""
        right, wrong = np.split(self.counts, 2)
        size = right + wrong
        sure = np.clip(_ratio(np.add(*np.split(self.counts * self.confidence, 2)), size), 0, 1)
        hits = draw_hits(rng, size, sure, number).astype(np.float64)
        misses = size - hits
        return _calibration_values(hits, hits + misses, hits * sure + misses * sure, self.base, only)

    def metrics(self, counts: Ints, only: Container[str] = MEASURED) -> dict[str, Doubles]:
        """What `bin_values` gives of each replicate ``[R]``, from its counts ``[R, 2 G]``."""
        right, wrong = np.split(counts.astype(np.float64), 2, axis=1)
        sure_right, sure_wrong = np.split(self.confidence, 2)
        return bin_values(right, wrong, right * sure_right, wrong * sure_wrong, self.base, only)


def draw_hits(rng: np.random.Generator, size: Ints, confidence: Doubles, number: int) -> Ints:
    """How many of each group's predictions would be right if their confidence were true, ``[number, G]``."""
    return rng.binomial(size, confidence, size=(number, len(size)))


def bin_values(
    right: Doubles,
    wrong: Doubles,
    sure_right: Doubles,
    sure_wrong: Doubles,
    base: Ints,
    only: Container[str] = MEASURED,
) -> dict[str, Doubles]:
    """Every metric of each replicate ``[R]`` but `point_values`, from groups ``[R, G]`` in order of rising score.

    ``right`` and ``wrong`` count the predictions of each group, ``sure_right`` and ``sure_wrong`` are the sums of their
    confidences, ``base`` is the base bin of each group ``[G]``. Costly ones that ``only`` leaves out are not computed.
    """
    number, sure = right + wrong, sure_right + sure_wrong
    total = number.sum(1)
    values = {"accuracy": right.sum(1) / total, "mean_confidence": sure.sum(1) / total}
    with np.errstate(invalid="ignore", divide="ignore"):
        values["overconfidence"] = sure_wrong.sum(1) / wrong.sum(1)
        values["underconfidence"] = 1 - sure_right.sum(1) / right.sum(1)
    values |= _calibration_values(right, number, sure, base, only)
    if any(name in only for name in AREAS):
        values |= area_values(number[:, ::-1], wrong[:, ::-1], total)
    return values


def _calibration_values(
    right: Doubles, number: Doubles, sure: Doubles, group_base: Ints, only: Container[str]
) -> dict[str, Doubles]:
    total = number.sum(1)
    begin = np.flatnonzero(np.diff(group_base, prepend=-1))
    base = group_base[begin]
    difference = sure - right
    gap, size = (np.add.reduceat(part, begin, axis=1) for part in (difference, number))
    values = {}
    for bins in ECE_BINS:
        edge = np.flatnonzero(np.diff(base * bins // BASE, prepend=-1))
        gaps = np.abs(np.add.reduceat(gap, edge, axis=1))
        values[f"ece_{bins}"] = gaps.sum(1) / total
        if bins == 15:
            sizes = np.add.reduceat(size, edge, axis=1)
            with np.errstate(invalid="ignore", divide="ignore"):
                values["mce"] = np.nanmax(np.where(sizes > 0, gaps / sizes, np.nan), axis=1)
    values["ece"] = values["ece_15"]
    if "aece" in only:
        values["aece"] = _aece_values(number, difference, total)
    if "smooth_ece" in only:
        values["smooth_ece"] = _smooth_ece_values(gap, base, total)
    return values


def _ratio(sums: Doubles, counts: Ints) -> Doubles:
    return np.divide(sums, counts, out=np.zeros(len(sums)), where=counts > 0)


def _aece_values(number: Doubles, gap: Doubles, total: Doubles, bins: int = 15) -> Doubles:
    """AECE of each replicate: the running gap at ranks i N / bins, interpolated inside groups."""
    ranks, running = np.cumsum(number, axis=1), np.cumsum(gap, axis=1)
    at = np.zeros((len(total), bins + 1))
    edges = np.arange(1, bins) * (total / bins)[:, None]
    for i in range(len(total)):
        at[i, 1:-1] = np.interp(edges[i], ranks[i], running[i])
    at[:, -1] = running[:, -1]
    return np.abs(np.diff(at)).sum(1) / total


def _smooth_ece_values(gap: Doubles, base: Ints, total: Doubles, terms: int = 64, points: int = 129) -> Doubles:
    """Smooth ECE of each replicate at base-bin resolution: its cosine series, damped until width and value agree."""
    k = np.arange(terms)
    middle = (base + 0.5) / BASE
    weights = np.where(k == 0, 1.0, 2.0)[:, None]
    series = (gap / total[:, None]) @ np.cos(np.pi * np.outer(middle, k))
    grid = weights * np.cos(np.pi * np.outer(k, (np.arange(points - 1) + 0.5) / (points - 1)))
    low, high = np.zeros(len(total)), np.ones(len(total))
    for _ in range(12):
        width = 0.5 * (low + high)
        smoothed = np.abs((series * np.exp(-0.5 * (np.pi * np.outer(width, k)) ** 2)) @ grid).mean(1)
        low, high = np.where(smoothed > width, width, low), np.where(smoothed > width, high, width)
    return 0.5 * (low + high)


def area_values(number: Doubles, wrong: Doubles, total: Doubles) -> dict[str, Doubles]:
    """Areas under the curves of each replicate from groups ``[R, G]``, highest score first, ties in expected order."""
    number, wrong = np.ascontiguousarray(number), np.ascontiguousarray(wrong)
    accepted, errors = np.cumsum(number, axis=1), np.cumsum(wrong, axis=1)
    miss = errors[:, -1] / total
    before, wrong_before = accepted - number, np.subtract(errors, wrong, out=errors)
    rate = wrong / np.maximum(number, 1.0)  # an empty group has no errors either
    # Sum of 1 / (before + j) over the group's members, as the difference of two logarithms.
    inverse = np.add(accepted, 0.5, out=accepted)
    inverse /= before + 0.5
    np.log(inverse, out=inverse)
    inverse *= wrong_before - np.multiply(before, rate, out=before)
    inverse += np.multiply(rate, number, out=rate)
    values = {"aurc": inverse.sum(1) / total}
    with np.errstate(divide="ignore", invalid="ignore"):
        best = np.where(miss < 1, miss + (1 - miss) * np.log1p(-miss), 1.0)
    values["e_aurc"] = values["aurc"] - best
    wrong_before *= number
    wrong_before += wrong * (number + 1) / 2
    values["augrc"] = wrong_before.sum(1) / total**2
    return values


def point_values(number: Doubles, wrong: Doubles, total: Doubles) -> dict[str, Doubles]:
    """Coverages at risks and risks at coverages of each replicate, from groups as `area_values` takes them."""
    accepted, errors = np.cumsum(number, axis=1), np.cumsum(wrong, axis=1)
    before, wrong_before = accepted - number, errors - wrong
    with np.errstate(invalid="ignore", divide="ignore"):
        risk = errors / accepted
        rate = np.where(number > 0, wrong / number, 0.0)
    values, rows = {}, np.arange(len(total))
    for target in RISKS:
        fits = risk <= target
        last = fits.shape[1] - 1 - np.argmax(fits[:, ::-1], axis=1)
        reached = accepted[rows, last] / total
        values[f"coverage_at_risk_{target:g}"] = np.where(fits.any(1), reached, 0.0)
    for coverage in COVERAGES:
        at = np.minimum((accepted < (coverage * total)[:, None] - 1e-9).sum(1), accepted.shape[1] - 1)
        inside = coverage * total - before[rows, at]
        errors_at = wrong_before[rows, at] + inside * rate[rows, at]
        values[f"risk_at_coverage_{coverage:g}"] = errors_at / (coverage * total)
    return values
