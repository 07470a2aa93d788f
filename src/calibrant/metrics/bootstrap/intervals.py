r"""Confidence intervals by the bootstrap, at a cost that does not depend on the number of samples.

A bootstrap replicate draws as many samples as there are, with replacement. To the metrics it is a table of counts: how
often each cell's right and wrong predictions came up. So the counts are drawn themselves, multinomially, over the cells
of a sketch merged to about a thousand groups of equal mass, never across the edge of a base bin. Merging blurs a metric
a little, the same way in every replicate, so intervals are built from the differences to the merged value.

Shares (accuracy, risk at a coverage) have Wilson's interval, NLL and Brier score that of a mean. Which interval for the
others: percentiles of those differences. Calibration errors are sums of absolute values, which noise inflates,
and a replicate inflates them once more. For them the interval reaches as far as the mirrored differences do (the basic
interval, which takes that bias off) and as the centred ones do; and it reaches down to 0 when a perfectly calibrated
model, right as often as each confidence says, would by chance show as much. An interval always contains its value.
MCE is the largest gap of any bin, however few samples are in it: its interval tells its spread, hardly its truth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from calibrant._validation import LARGEST_SEED, whole
from calibrant.metrics.calibration import Reliability
from calibrant.metrics.catalogue import base_name, describe
from calibrant.metrics.sketch.grid import BASE
from calibrant.metrics.sketch.summary import COVERAGES, RISKS, Summary

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

GROUPS = 1024
BATCH = 250  # replicates at a time, to bound the memory
FEWEST = 10  # samples, below which no bootstrap is tried
NEAREST = 1e-9  # to 0 or 1 of a confidence level, or of a risk that is asked for
MOST_REPLICATES = 10_000  # a paired comparison may hold a hundred kilobytes of each
_RANKED = ("aurc", "e_aurc", "augrc", "coverage_at_risk", "risk_at_coverage")
ABSOLUTE = ("ece", "aece", "mce", "smooth_ece", "classwise_ece")


@dataclass(frozen=True)
class Interval:
    """A value and the limits between which it lies with the given confidence."""

    value: float
    low: float
    high: float


def intervals(summary: Summary, *, level: float = 0.95, replicates: int = 1000, seed: int = 0) -> dict[str, Interval]:
    """Confidence intervals of every metric of `Summary.metrics`.

    Args:
        summary: of a sketch.
        level: confidence level.
        replicates: how many bootstrap replicates.
        seed: of the random numbers.

    Returns:
        An interval for every metric, by name. Limits are NaN where the value is, and where no bootstrap can tell: with
        fewer than ten samples, and for rankings when all or none are right.

    Example:
        >>> import numpy as np
        >>> from calibrant.metrics import ConfidenceSketch, intervals
        >>> sketch = ConfidenceSketch()
        >>> sketch.update_confidence(np.full(1000, 0.9), np.arange(1000) < 800)
        >>> found = intervals(sketch.summary())["ece"]
        >>> round(found.value, 3), round(found.low, 2), round(found.high, 2)
        (0.1, 0.08, 0.13)
    """
    check_level(level, replicates, seed)
    rng = np.random.default_rng(seed)
    groups = _Groups.of_cells(summary)
    drawn = groups.differences(rng, replicates)
    if not summary.by_confidence:
        # Cells of another score know nothing of calibration; the bins of the confidence do.
        groups = _Groups.of_bins(summary)
        drawn |= {k: v for k, v in groups.differences(rng, replicates).items() if not k.startswith(_RANKED)}
    null = groups.by_chance(rng, max(BATCH, replicates // 4))
    found = {}
    for name, value in summary.metrics().items():
        known = _of_counts(summary, name, float(value), level)
        if known is not None:
            found[name] = known
        elif base_name(name) in ABSOLUTE:
            by_chance = None if name == "mce" else null[name]
            found[name] = interval_of_error(float(value), drawn[name], level, null=by_chance)
        else:
            found[name] = interval(float(value), drawn[name], level, bounds=describe(name).bounds)
    return found


def interval(
    value: float, differences: Floats, level: float, *, bounds: tuple[float, float] = (-math.inf, math.inf)
) -> Interval:
    """Percentiles of the replicates' differences to the value they scatter about, inside ``bounds``."""
    differences = differences[np.isfinite(differences)]
    if not math.isfinite(value) or not len(differences):
        return Interval(value, math.nan, math.nan)
    low, high = (value + np.quantile(differences, q) for q in _tails(level))
    return Interval(value, float(min(value, max(bounds[0], low))), float(max(value, min(bounds[1], high))))


def interval_of_error(
    value: float, differences: Floats, level: float, *, null: Floats | None = None, highest: float = 1.0
) -> Interval:
    """The interval of a calibration error, or of a difference of two if ``highest`` is infinite.

    Args:
        value: the error.
        differences: of the replicates to the value they scatter about.
        level: confidence level.
        null: errors that a perfectly calibrated model would show by chance.
        highest: the largest value there can be; the smallest is 0, or its negative for differences.
    """
    differences = differences[np.isfinite(differences)]
    if not math.isfinite(value) or not len(differences):
        return Interval(value, math.nan, math.nan)
    below, above = np.quantile(differences, _tails(level))
    mean = differences.mean()
    low, high = value + min(-above, below - mean), value + max(-below, above - mean)
    if null is not None and value <= np.quantile(null, level):
        low = 0.0
    least = 0.0 if math.isfinite(highest) else -math.inf
    return Interval(value, float(min(value, max(least, low))), float(max(value, min(highest, high))))


def _tails(level: float) -> tuple[float, float]:
    return 0.5 * (1 - level), 0.5 * (1 + level)


def check_level(level: float, replicates: int, seed: int = 0) -> None:
    """Refuse a confidence level outside (0, 1), too few replicates to have tails, too many to hold, and odd seeds."""
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level}")
    if not NEAREST <= level <= 1 - NEAREST:
        raise ValueError(f"level must lie at least {NEAREST:g} above 0 and below 1, got {level}")
    whole("replicates", replicates, 20, MOST_REPLICATES)
    whole("seed", seed, 0, LARGEST_SEED)


def z_value(level: float) -> float:
    """How many standard errors an interval of this level reaches."""
    return NormalDist().inv_cdf(0.5 + 0.5 * level)


def normal_interval(value: float, error: float, level: float, low: float, high: float) -> Interval:
    """A mean and its standard error as an interval, cut to where the value can lie."""
    if not math.isfinite(value) or not math.isfinite(error):
        return Interval(value, math.nan, math.nan)
    return Interval(value, max(low, value - z_value(level) * error), min(high, value + z_value(level) * error))


def wilson(successes: npt.ArrayLike, number: npt.ArrayLike, level: float = 0.95) -> tuple[Floats, Floats]:
    """Wilson's interval for shares ([Wilson1927]); NaN where the number is 0.

    Example:
        >>> from calibrant.metrics.bootstrap.intervals import wilson
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


def _of_counts(summary: Summary, name: str, value: float, level: float) -> Interval | None:
    """Intervals that need no bootstrap, or that it cannot give; None for the others."""
    if name == "accuracy":
        return _share(value, summary.samples, level)
    if base_name(name) == "risk_at_coverage":
        return _share(value, math.ceil(float(name.rpartition("_")[2]) * summary.samples - 1e-9), level)
    if name in ("nll", "brier"):
        first = {"nll": 0, "brier": 2}[name]
        square = summary.moments[first + 1] / summary.samples
        error = math.sqrt(max(0.0, square - value**2) / summary.samples) if math.isfinite(square) else math.nan
        return normal_interval(value, error, level, 0.0, math.inf if name == "nll" else 2.0)
    if base_name(name) == "coverage_at_risk":
        return _reachable(summary, float(name.rpartition("_")[2]), value, level)
    # Replicates of a handful, or of predictions that are all right or all wrong, know nothing of what was not drawn.
    alike = base_name(name) in _RANKED and summary.errors in (0, summary.samples)
    return Interval(value, math.nan, math.nan) if summary.samples < FEWEST or alike else None


def _reachable(summary: Summary, risk: float, value: float, level: float) -> Interval:
    """Coverage at risk, where Wilson's limits of the risk stand for the risk itself.

    The bootstrap fails here: the least confident errors among the first few samples decide, and are drawn or not.
    """
    curve = summary.risk_coverage_curve()
    accepted = curve.coverage * summary.samples
    low, high = (
        float(curve.coverage[limit <= risk][-1]) if (limit <= risk).any() else 0.0
        for limit in wilson(curve.risk * accepted, accepted, level)[::-1]
    )
    return Interval(value, min(value, low), max(value, high))


def _share(value: float, number: int, level: float) -> Interval:
    low, high = wilson(value * number, number, level)
    return Interval(value, min(value, float(low)), max(value, float(high)))


def right_by_chance(rng: np.random.Generator, size: Ints, confidence: Floats, number: int) -> Ints:
    """How many of each group's predictions would be right if their confidence were true, ``[number, G]``."""
    return rng.binomial(size, confidence, size=(number, len(size)))


def ece_by_chance(reliability: Reliability, *, draws: int = 400, seed: int = 0) -> Floats:
    """ECE values that a perfectly calibrated model with these bins would show, ``[draws]``.

    Example:
        >>> import numpy as np
        >>> from calibrant.metrics import reliability
        >>> from calibrant.metrics.bootstrap.intervals import ece_by_chance
        >>> sure = np.full(100, 0.8)
        >>> round(float(ece_by_chance(reliability(sure, np.arange(100) < 80)).mean()), 2)  # sqrt(2/pi) 0.4 / 10
        0.03
    """
    held = reliability.count > 0
    size, sure = reliability.count[held], np.clip(reliability.confidence[held], 0, 1)
    drawn = right_by_chance(np.random.default_rng(seed), size, sure, draws)
    return np.abs(size * sure - drawn).sum(1) / size.sum()


@dataclass(frozen=True, eq=False)
class _Groups:
    """Groups of samples from the lowest score up: right predictions of each, then wrong ones, ``[2 G]``."""

    counts: Ints
    confidence: Floats
    base: Ints

    @classmethod
    def of_cells(cls, summary: Summary) -> _Groups:
        """The cells of the score, merged to about `GROUPS` groups of equal mass."""
        right, wrong, centre, base = summary.placed_cells()
        total = np.cumsum(right + wrong)
        mass = (total - 1) * GROUPS // int(total[-1])
        begin = np.flatnonzero((np.diff(mass, prepend=-1) != 0) | (np.diff(base, prepend=-1) != 0))
        counts = [np.add.reduceat(part, begin) for part in (right, wrong)]
        sums = [np.add.reduceat(part * centre, begin) for part in (right, wrong)]
        return cls(np.concatenate(counts), _ratio(np.concatenate(sums), np.concatenate(counts)), base[begin])

    @classmethod
    def of_bins(cls, summary: Summary) -> _Groups:
        """The base bins of the confidence."""
        counts = summary.base_counts.reshape(BASE, 2).T.ravel()
        sums = summary.base_sums.reshape(BASE, 2).T.ravel()
        return cls(counts, _ratio(sums, counts), np.arange(BASE))

    def differences(self, rng: np.random.Generator, replicates: int) -> dict[str, Floats]:
        """For every metric, the replicates' values minus the value of these groups themselves."""
        total, centre = int(self.counts.sum()), self.metrics(self.counts[None])
        drawn: dict[str, list[Floats]] = {name: [] for name in centre}
        for start in range(0, replicates, BATCH):
            size = min(BATCH, replicates - start)
            for name, values in self.metrics(rng.multinomial(total, self.counts / total, size=size)).items():
                drawn[name].append(values - centre[name])
        return {name: np.concatenate(values) for name, values in drawn.items()}

    def by_chance(self, rng: np.random.Generator, number: int) -> dict[str, Floats]:
        """Every metric as it would come about if each prediction were right as often as its confidence says."""
        right, wrong = np.split(self.counts, 2)
        size = right + wrong
        sure = np.clip(_ratio(np.add(*np.split(self.counts * self.confidence, 2)), size), 0, 1)
        pooled = _Groups(self.counts, np.concatenate([sure, sure]), self.base)
        drawn = right_by_chance(rng, size, sure, number)
        return pooled.metrics(np.concatenate([drawn, size - drawn], axis=1))

    def metrics(self, counts: Ints) -> dict[str, Floats]:
        """Every metric of each replicate ``[R]``, from its counts ``[R, 2 G]``."""
        right, wrong = np.split(counts.astype(np.float64), 2, axis=1)
        sure_right, sure_wrong = np.split(self.confidence, 2)
        return bin_values(right, wrong, right * sure_right, wrong * sure_wrong, self.base)


def bin_values(right: Floats, wrong: Floats, sure_right: Floats, sure_wrong: Floats, base: Ints) -> dict[str, Floats]:
    """Every metric of each replicate ``[R]``, from groups ``[R, G]`` in order of rising score.

    Args:
        right: right predictions of each group.
        wrong: wrong ones.
        sure_right: sum of confidence of the right ones.
        sure_wrong: of the wrong ones.
        base: base bin of each group ``[G]``.
    """
    number, sure = right + wrong, sure_right + sure_wrong
    total = number.sum(1)
    values = {"accuracy": right.sum(1) / total, "mean_confidence": sure.sum(1) / total}
    with np.errstate(invalid="ignore", divide="ignore"):
        values["overconfidence"] = sure_wrong.sum(1) / wrong.sum(1)
        values["underconfidence"] = 1 - sure_right.sum(1) / right.sum(1)
    values |= _calibration(right, number, sure, base)
    values |= selective_values(number[:, ::-1], wrong[:, ::-1], total)
    return values


def _calibration(right: Floats, number: Floats, sure: Floats, group_base: Ints) -> dict[str, Floats]:
    total = number.sum(1)
    begin = np.flatnonzero(np.diff(group_base, prepend=-1))
    base = group_base[begin]
    gap, size = (np.add.reduceat(part, begin, axis=1) for part in (sure - right, number))
    values = {}
    for bins in (10, 15, 100):
        edge = np.flatnonzero(np.diff(base * bins // BASE, prepend=-1))
        gaps = np.abs(np.add.reduceat(gap, edge, axis=1))
        values[f"ece_{bins}"] = gaps.sum(1) / total
        if bins == 15:
            sizes = np.add.reduceat(size, edge, axis=1)
            with np.errstate(invalid="ignore", divide="ignore"):
                values["mce"] = np.nanmax(np.where(sizes > 0, gaps / sizes, np.nan), axis=1)
    values["ece"] = values["ece_15"]
    values["aece"] = _equal_counts(number, sure - right, total)
    values["smooth_ece"] = _smooth(gap, base, total)
    return values


def _ratio(sums: Floats, counts: Ints) -> Floats:
    return np.divide(sums, counts, out=np.zeros(len(sums)), where=counts > 0)


def _equal_counts(number: Floats, gap: Floats, total: Floats, bins: int = 15) -> Floats:
    """AECE of each replicate: the running gap at ranks i N / bins, interpolated inside groups."""
    ranks, running = np.cumsum(number, axis=1), np.cumsum(gap, axis=1)
    values = np.empty(len(total))
    for i, size in enumerate(total):
        at = np.interp(np.arange(1, bins) * (size / bins), ranks[i], running[i])
        values[i] = np.abs(np.diff(np.concatenate([[0.0], at, running[i, -1:]]))).sum() / size
    return values


def _smooth(gap: Floats, base: Ints, total: Floats, terms: int = 64, points: int = 129) -> Floats:
    """Smooth ECE of each replicate at base-bin resolution: its cosine series, damped until width and value agree."""
    k = np.arange(terms)
    place = (base + 0.5) / BASE
    weights = np.where(k == 0, 1.0, 2.0)[:, None]
    series = (gap / total[:, None]) @ np.cos(np.pi * np.outer(place, k))
    grid = weights * np.cos(np.pi * np.outer(k, (np.arange(points - 1) + 0.5) / (points - 1)))
    low, high = np.zeros(len(total)), np.ones(len(total))
    for _ in range(12):
        width = 0.5 * (low + high)
        smoothed = np.abs((series * np.exp(-0.5 * (np.pi * np.outer(width, k)) ** 2)) @ grid).mean(1)
        low, high = np.where(smoothed > width, width, low), np.where(smoothed > width, high, width)
    return 0.5 * (low + high)


def selective_values(number: Floats, wrong: Floats, total: Floats) -> dict[str, Floats]:
    """Ranked metrics of each replicate from groups ``[R, G]``, highest score first, ties in expected order."""
    accepted, errors = np.cumsum(number, axis=1), np.cumsum(wrong, axis=1)
    before, wrong_before = accepted - number, errors - wrong
    with np.errstate(invalid="ignore", divide="ignore"):
        risk = errors / accepted
        rate = np.where(number > 0, wrong / number, 0.0)
        # Sum of 1 / (before + j) over the group's members, as the difference of two logarithms.
        inverse = np.log((accepted + 0.5) / (before + 0.5))
    area = (rate * number + (wrong_before - before * rate) * inverse).sum(1)
    values = {"aurc": area / total}
    miss = errors[:, -1] / total
    with np.errstate(divide="ignore", invalid="ignore"):
        best = np.where(miss < 1, miss + (1 - miss) * np.log1p(-miss), 1.0)
    values["e_aurc"] = values["aurc"] - best
    values["augrc"] = (number * wrong_before + wrong * (number + 1) / 2).sum(1) / total**2
    for target in RISKS:
        fits = risk <= target
        last = fits.shape[1] - 1 - np.argmax(fits[:, ::-1], axis=1)
        reached = accepted[np.arange(len(total)), last] / total
        values[f"coverage_at_risk_{target:g}"] = np.where(fits.any(1), reached, 0.0)
    for coverage in COVERAGES:
        at = np.minimum((accepted < (coverage * total)[:, None] - 1e-9).sum(1), accepted.shape[1] - 1)
        rows = np.arange(len(total))
        inside = coverage * total - before[rows, at]
        values[f"risk_at_coverage_{coverage:g}"] = (wrong_before[rows, at] + inside * rate[rows, at]) / (
            coverage * total
        )
    return values
