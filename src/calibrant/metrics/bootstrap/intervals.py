r"""Confidence intervals by the bootstrap, at a cost that does not depend on the number of samples.

A bootstrap replicate draws as many samples as there are, with replacement. To the metrics it is a table of counts: how
often each cell's right and wrong predictions came up. So the counts are drawn themselves, multinomially, over the cells
of a sketch merged to about a thousand groups of equal mass, never across the edge of a base bin. Merging blurs a metric
a little, the same way in every replicate, so intervals are built from the differences to the merged value.

Shares (accuracy, risk at a coverage) have Wilson's interval, NLL and Brier score that of a mean. The others have
percentiles of those differences. Calibration errors are sums of absolute values, which noise inflates, and a replicate
inflates them once more. Their interval reaches as far as the mirrored differences do (the basic interval, which takes
that bias off) and as the centred ones do; and it reaches down to 0 when a perfectly calibrated model, right as often as
each confidence says, would show as much by chance. An interval always contains its value.
MCE is the largest gap of any bin, however few samples are in it: its interval tells its spread, hardly its truth.

The pixels of an image are alike, so whole images are drawn. Each has a table of counts and of sums of confidence over
the 300 base bins (`Clusters`); a replicate draws images with replacement and adds their tables up. Beyond `MOST_IMAGES`
several share a table. The mean intersection over union needs counts of each class in each image (`ClassOverlaps`). For
class k, :math:`\mathrm{IoU}_k = R_k / (L_k + P_k - R_k)` with R pixels that are labelled and predicted so, L that are
labelled, P that are predicted, over all images; the mean is over classes that occur [Long2015].
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
from calibrant.metrics.bootstrap.replicates import BATCH, ScoreGroups, bin_values, draw_hits, point_values
from calibrant.metrics.calibration import Reliability
from calibrant.metrics.catalogue import MEASURED, describe, split_name
from calibrant.metrics.sketch.grid import BASE
from calibrant.metrics.sketch.kernel import TopLabel
from calibrant.metrics.sketch.summary import Summary

FEWEST = 10  # samples, below which no bootstrap is tried
FEWEST_BY_CHANCE = 250  # draws of a perfectly calibrated model
NEAREST = 1e-9  # to 0 or 1 of a confidence level, or of a risk that is asked for
MOST_REPLICATES = 10_000  # a paired comparison may hold a hundred kilobytes of each
MOST_IMAGES = 256  # with a table of their own


@dataclass(frozen=True)
class Interval:
    """A value and the limits between which it lies with the given confidence."""

    value: float
    low: float
    high: float


def intervals(
    summary: Summary, *, level: float = 0.95, replicates: int = 1000, seed: int = 0, only: Container[str] = MEASURED
) -> dict[str, Interval]:
    """Confidence intervals of every metric of `Summary.metrics`.

    Args:
        summary: of a sketch.
        level: confidence level.
        replicates: how many bootstrap replicates.
        seed: of the random numbers.
        only: names of the metrics that are wanted; the others are not computed, which changes no number.

    Returns:
        An interval for every metric, by name. Limits are NaN where the value is, and where no bootstrap can tell: with
        fewer than ten samples, and for rankings when all or none are right.

    Example:
        >>> import numpy as np
        >>> from calibrant.metrics import ConfidenceSketch, intervals
        >>> sketch = ConfidenceSketch()
        >>> sketch.update_confidence(np.full(1000, 0.9), np.arange(1000) < 800)
        >>> ece = intervals(sketch.summary())["ece"]
        >>> round(ece.value, 3), round(ece.low, 2), round(ece.high, 2)
        (0.1, 0.08, 0.13)
    """
    check_level(level, replicates, seed)
    rng = np.random.default_rng(seed)
    groups = ScoreGroups.of_cells(summary)
    differences = groups.differences(rng, replicates, only)
    if not summary.by_confidence:
        # Cells of another score know nothing of calibration; the bins of the confidence do.
        groups = ScoreGroups.of_bins(summary)
        of_bins = groups.differences(rng, replicates, only)
        differences |= {name: part for name, part in of_bins.items() if describe(name).family != "Selective"}
    by_chance = groups.by_chance(rng, max(FEWEST_BY_CHANCE, replicates // 4), only)
    limits = {}
    for name, value in summary.metrics(only).items():
        null = None if name == "mce" else by_chance.get(name)
        limits[name] = _interval_of_counts(summary, name, float(value), level) or bootstrap_interval(
            name, float(value), differences[name], level, null=null
        )
    return limits


def interval_at(summary: Summary, name: str, level: float) -> Interval:
    """A risk at any coverage, or a coverage at any risk, with its interval: ``risk_at_coverage_0.85``."""
    base, setting = split_name(name)
    if base not in ("risk_at_coverage", "coverage_at_risk") or setting is None:
        raise ValueError(f"expected risk_at_coverage or coverage_at_risk with a share, got {name!r}")
    value = float(getattr(summary, base)(setting))
    return _interval_of_counts(summary, name, value, level) or Interval(value, math.nan, math.nan)


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


def check_level(level: float, replicates: int, seed: int = 0) -> None:
    """Refuse a confidence level outside (0, 1), too few replicates to have tails, too many to hold, and odd seeds."""
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level}")
    if not NEAREST <= level <= 1 - NEAREST:
        raise ValueError(f"level must lie at least {NEAREST:g} above 0 and below 1, got {level}")
    check_integer("replicates", replicates, 20, MOST_REPLICATES)
    check_integer("seed", seed, 0, LARGEST_SEED)


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


def _interval_of_counts(summary: Summary, name: str, value: float, level: float) -> Interval | None:
    """An interval that needs no bootstrap, or that it cannot give; None for the others."""
    base, setting = split_name(name)
    if base == "accuracy":
        return _share_interval(value, summary.samples, level)
    if base == "risk_at_coverage" and setting is not None:
        return _share_interval(value, math.ceil(setting * summary.samples - 1e-9), level)
    if base in ("nll", "brier"):
        square = summary.moments[1 if base == "nll" else 3] / summary.samples
        error = math.sqrt(max(0.0, square - value**2) / summary.samples) if math.isfinite(square) else math.nan
        return normal_interval(value, error, level, *describe(base).bounds)
    if base == "coverage_at_risk" and setting is not None:
        return _coverage_interval(summary, setting, value, level)
    # Replicates of a handful, or of predictions that are all right or all wrong, know nothing of what was not drawn.
    is_one_sided = describe(base).family == "Selective" and summary.errors in (0, summary.samples)
    return Interval(value, math.nan, math.nan) if summary.samples < FEWEST or is_one_sided else None


def _coverage_interval(summary: Summary, risk: float, value: float, level: float) -> Interval:
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


def _share_interval(value: float, number: int, level: float) -> Interval:
    low, high = wilson(value * number, number, level)
    return Interval(value, min(value, float(low)), max(value, float(high)))


def ece_by_chance(reliability: Reliability, *, draws: int = 400, seed: int = 0) -> Doubles:
    """ECE values that a perfectly calibrated model with these bins would show, ``[draws]``.

    Example:
        >>> import numpy as np
        >>> from calibrant.metrics import ece_by_chance, reliability
        >>> sure = np.full(100, 0.8)
        >>> round(float(ece_by_chance(reliability(sure, np.arange(100) < 80)).mean()), 2)  # sqrt(2/pi) 0.4 / 10
        0.03
    """
    filled = reliability.count > 0
    size, confidence = reliability.count[filled], np.clip(reliability.confidence[filled], 0, 1)
    hits = draw_hits(np.random.default_rng(seed), size, confidence, draws)
    return np.abs(size * confidence - hits).sum(1) / size.sum()


def _draw_images(rng: np.random.Generator, images: int, replicates: int) -> Ints:
    """How often each image is drawn in each replicate, ``[replicates, images]``."""
    return rng.multinomial(images, np.full(images, 1 / images), size=replicates)


class Clusters:
    """Counts, sums of confidence, of NLL and of Brier score for each image, filled block by block."""

    def __init__(self) -> None:
        self.counts = np.zeros((MOST_IMAGES, 2 * BASE), np.int64)
        self.sums = np.zeros((MOST_IMAGES, 2 * BASE))
        self.proper = np.zeros((MOST_IMAGES, 2))

    def add(self, top: TopLabel, bins: npt.NDArray[np.int32], first: int) -> None:
        """Add samples, with their base bins, whose rows are images: those of the batch count from ``first`` on."""
        image = (top.rows() + first) % MOST_IMAGES
        code = image * (2 * BASE) + 2 * bins + ~top.correct
        size = MOST_IMAGES * 2 * BASE
        self.counts += np.bincount(code, minlength=size).reshape(MOST_IMAGES, -1)
        self.sums += np.bincount(code, top.confidence, minlength=size).reshape(MOST_IMAGES, -1)
        for column, values in enumerate((top.nll, top.brier)):
            self.proper[:, column] += np.bincount(image, values, minlength=MOST_IMAGES)

    def intervals(self, summary: Summary, *, level: float, replicates: int, seed: int) -> dict[str, Interval]:
        """Intervals of every metric of the summary; limits are NaN with fewer than ten images."""
        images = np.flatnonzero(self.counts.any(1))
        values = {name: float(value) for name, value in summary.metrics().items()}
        if len(images) < FEWEST:
            return {name: Interval(value, math.nan, math.nan) for name, value in values.items()}
        rng = np.random.default_rng(seed)
        parts: dict[str, list[Doubles]] = {}
        centre = self._metrics(np.ones((1, len(images))), images)
        for start in range(0, replicates, BATCH):
            size = min(BATCH, replicates - start)
            weights = _draw_images(rng, len(images), size).astype(np.float64)
            for name, part in self._metrics(weights, images).items():
                with np.errstate(invalid="ignore"):  # of two infinite means there is no difference
                    parts.setdefault(name, []).append(part - centre[name])
        return {
            name: bootstrap_interval(name, value, np.concatenate(parts[name]), level) for name, value in values.items()
        }

    def _metrics(self, weights: Doubles, images: Ints) -> dict[str, Doubles]:
        counts, sums = weights @ self.counts[images], weights @ self.sums[images]
        right, wrong = counts[:, ::2], counts[:, 1::2]
        values = bin_values(right, wrong, sums[:, ::2], sums[:, 1::2], np.arange(BASE))
        values |= point_values((right + wrong)[:, ::-1], wrong[:, ::-1], (right + wrong).sum(1))
        with np.errstate(invalid="ignore"):  # a label of probability 0 has an infinite NLL, and its mean no limits
            proper = weights @ self.proper[images] / counts.sum(1, keepdims=True)
        return values | {"nll": proper[:, 0], "brier": proper[:, 1]}


class ClassOverlaps:
    """For each image and class how many pixels are labelled so, predicted so, and both; filled block by block.

    Example:
        >>> from calibrant.metrics import top_label_blocks
        >>> overlaps = ClassOverlaps(2)
        >>> logits = np.array([[2.0, 0.0], [2.0, 0.0], [0.0, 2.0], [0.0, 2.0]])
        >>> for block in top_label_blocks(logits, np.array([0, 1, 1, 1]), kind="logits"):
        ...     overlaps.add(block, 0)
        >>> overlaps.by_class().tolist()  # 1 of 2, 2 of 3
        [0.5, 0.6666666666666666]
    """

    def __init__(self, classes: int) -> None:
        self.right, self.labelled, self.predicted = (np.zeros((MOST_IMAGES, classes), np.int64) for _ in range(3))

    def add(self, top: TopLabel, first: int) -> None:
        """Add samples whose rows are images: those of the batch count from ``first`` on."""
        assert top.predicted is not None
        shape = self.right.shape
        row = (top.rows() + first) % MOST_IMAGES * shape[1]
        self.labelled += np.bincount(row + top.labels, minlength=self.right.size).reshape(shape)
        self.predicted += np.bincount(row + top.predicted, minlength=self.right.size).reshape(shape)
        self.right += np.bincount((row + top.labels)[top.correct], minlength=self.right.size).reshape(shape)

    def by_class(self) -> Doubles:
        """The IoU of every class over all images, ``[K]``; NaN for one that occurs nowhere."""
        return self._iou(np.ones((1, MOST_IMAGES)))[0]

    def mean_iou(self, *, level: float, replicates: int, seed: int) -> Interval:
        """The mean over the classes that occur; limits are NaN with fewer than ten images."""
        value = float(np.nanmean(self.by_class()))
        images = np.flatnonzero(self.labelled.any(1))
        if len(images) < FEWEST:
            return Interval(value, math.nan, math.nan)
        weights = np.zeros((replicates, MOST_IMAGES))
        weights[:, images] = _draw_images(np.random.default_rng(seed), len(images), replicates)
        means = np.nanmean(self._iou(weights), axis=1)  # of the classes that occur in the images drawn
        return bootstrap_interval("mean_iou", value, means - value, level)

    def _iou(self, weights: Doubles) -> Doubles:
        intersection, union = weights @ self.right, weights @ (self.labelled + self.predicted - self.right)
        return np.divide(intersection, union, out=np.full(union.shape, np.nan), where=union > 0)
