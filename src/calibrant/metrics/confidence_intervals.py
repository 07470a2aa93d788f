r"""Confidence intervals of a sketch's metrics, and of the differences between two models on the same samples.

Shares (accuracy, risk at a coverage) have Wilson's interval, NLL and Brier score that of a mean. The others come from
the bootstrap. MCE is the largest gap of any bin, however few samples are in it: its interval tells its spread, hardly
its truth.

Of two models a replicate draws samples, and both models are seen on the same ones, so that what makes a sample hard for
both cancels. Samples that no metric can tell apart are drawn together: those in the same bins of both models, right or
wrong alike. 60 bins for calibration make a table of at most 14400 counts, 64 groups of equal mass for rankings one of
16384, whatever the number of samples.
"""

from __future__ import annotations

import math
from collections.abc import Container
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from calibrant.base.arrays import Doubles
from calibrant.base.checks import Bools, Ints
from calibrant.metrics.bootstrap import (
    BATCH,
    FEWEST,
    GROUPS,
    Interval,
    bootstrap_interval,
    by_chance,
    check_level,
    draw_hits,
    merge_cells,
    normal_interval,
    replicate_differences,
    values_of,
    wilson,
)
from calibrant.metrics.calibration import Bins, Reliability, ece, reliability
from calibrant.metrics.catalogue import BINS, MEASURED, describe, split_name
from calibrant.metrics.confidence import accuracy
from calibrant.metrics.kernel import without_weightless
from calibrant.metrics.selective import augrc, aurc
from calibrant.metrics.summary import Summary
from calibrant.metrics.tables import Groups, check_weight

FEWEST_BY_CHANCE = 250  # draws of a perfectly calibrated model
FINE, RANKS = 60, 64  # bins and groups of a paired comparison
RANKED = ("aurc", "augrc")  # metrics of the score alone
EVERYWHERE = (-math.inf, math.inf)  # where a difference can lie


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
        fewer than ten samples, or weights as uncertain as these, and for rankings when all or none are right.

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
    values = {name: float(value) for name, value in summary.metrics(only).items()}
    limits = {name: _interval_of_counts(summary, name, value, level) for name, value in values.items()}
    drawn = [name for name, interval in limits.items() if interval is None]
    rankings = [name for name in drawn if describe(name).family == "Selective"]
    others = [name for name in drawn if name not in rankings]
    groups = merge_cells(summary)
    if summary.by_confidence:
        differences = replicate_differences(groups, rng, replicates, drawn)
    else:
        # Cells of another score know nothing of calibration; the bins of the confidence do.
        differences = replicate_differences(groups, rng, replicates, rankings)
        groups = summary.bins
        differences |= replicate_differences(groups, rng, replicates, others)
    nulls = by_chance(groups, rng, max(FEWEST_BY_CHANCE, replicates // 4), [name for name in others if name != "mce"])
    return {
        name: interval or bootstrap_interval(name, values[name], differences[name], level, null=nulls.get(name))
        for name, interval in limits.items()
    }


def interval_at(summary: Summary, name: str, level: float) -> Interval:
    """A risk at any coverage, or a coverage at any risk, with its interval: ``risk_at_coverage_0.85``."""
    base, setting = split_name(name)
    if base not in ("risk_at_coverage", "coverage_at_risk") or setting is None:
        raise ValueError(f"expected risk_at_coverage or coverage_at_risk with a share, got {name!r}")
    value = float(summary.measure(name))
    return _interval_of_counts(summary, name, value, level) or Interval(value, math.nan, math.nan)


def _interval_of_counts(summary: Summary, name: str, value: float, level: float) -> Interval | None:
    """An interval that needs no bootstrap, or that it cannot give; None for the others."""
    base, setting = split_name(name)
    if summary.is_weighted and summary.effective < FEWEST:
        return Interval(value, math.nan, math.nan)
    if base == "accuracy" and not summary.is_weighted:
        return _share_interval(value, summary.samples, level)
    if base == "risk_at_coverage" and setting is not None and not summary.is_weighted:
        return _share_interval(value, math.ceil(setting * summary.samples - 1e-9), level)
    if base in ("nll", "brier"):
        # The sum of squared weights times squared distances from the mean, of weights of mean 1.
        mean, square = summary.moments[6:8] if base == "nll" else summary.moments[8:]
        spread = square - 2 * value * mean + value**2 * summary.samples**2 / summary.effective
        error = math.sqrt(max(0.0, spread)) / summary.samples if math.isfinite(spread) else math.nan
        return normal_interval(value, error, level, *describe(base).bounds)
    if base == "coverage_at_risk" and setting is not None:
        return _coverage_interval(summary, setting, value, level)
    # Replicates of a handful, or of predictions that are all right or all wrong, know nothing of what was not drawn.
    is_one_sided = describe(base).family == "Selective" and summary.errors in (0, summary.bins.size)
    return Interval(value, math.nan, math.nan) if summary.samples < FEWEST or is_one_sided else None


def _coverage_interval(summary: Summary, risk: float, value: float, level: float) -> Interval:
    """Coverage at risk, where Wilson's limits of the risk stand for the risk itself.

    The bootstrap fails here: the least confident errors among the first few samples decide, and are drawn or not.
    """
    curve = summary.risk_coverage_curve()
    accepted = curve.coverage * summary.effective
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
    whole = reliability.effective[filled]
    hits = draw_hits(np.random.default_rng(seed), whole, confidence, draws) * (size / whole)
    return Bins(np.broadcast_to(size, hits.shape), size * confidence, hits).mean_gap()


@dataclass(frozen=True, eq=False)
class Judged:
    """What comparing two models on the same samples takes: a row per sample, ``[N]``.

    Attributes:
        confidence: of the predicted class.
        correct: bool.
        score: what ranks the samples; the confidence if None.
        nll: negative log-likelihoods, or None.
        brier: Brier scores, or None.
        weight: importance of each sample, or None; of two models it is the first's that counts.
    """

    confidence: Doubles
    correct: Bools
    score: Doubles | None = None
    nll: Doubles | None = None
    brier: Doubles | None = None
    weight: Doubles | None = None


def paired_differences(
    first: Judged, second: Judged, *, level: float = 0.95, replicates: int = 1000, seed: int = 0, ranked: bool = True
) -> dict[str, Interval]:
    """Second minus first, with intervals, for two models (or one before and after a fix) on the same samples.

    Args:
        first: what one model says of the samples.
        second: what the other does.
        level: confidence level.
        replicates: how many bootstrap replicates.
        seed: of the random numbers.
        ranked: whether AURC and AUGRC are wanted, which take more than half of the time; the others are the same.

    Returns:
        Differences of accuracy, mean confidence, ECE, AURC, AUGRC, and of NLL and Brier score where both have them.

    Example:
        >>> import numpy as np
        >>> from calibrant.metrics import Judged, paired_differences
        >>> rng = np.random.default_rng(0)
        >>> sure = rng.uniform(0.5, 1.0, 2000)
        >>> right = rng.random(2000) < sure
        >>> change = paired_differences(Judged(sure**0.2, right), Judged(sure, right))["ece"]
        >>> bool(change.high < 0)
        True
    """
    check_level(level, replicates, seed)
    if len(first.correct) != len(second.correct) or not len(first.correct):
        raise ValueError(
            f"paired models are compared on the same samples, got {len(first.correct)} and {len(second.correct)}"
        )
    weight = check_weight(first.weight, len(first.correct))
    first, second = replace(first, weight=weight), replace(second, weight=weight)
    rng = np.random.default_rng(seed)
    replicate_changes = _replicate_binned(first, second, rng, replicates)
    if ranked:
        replicate_changes |= _replicate_ranked(first, second, rng, replicates)
    before, after = _values(first, ranked), _values(second, ranked)
    changes = {
        name: bootstrap_interval(name, after[name] - before[name], differences, level, bounds=EVERYWHERE)
        for name, differences in replicate_changes.items()
    }
    changes["ece"] = _extend_to_zero(changes["ece"], before["ece"], after["ece"], first, second, level)
    for name, column in (("mean_confidence", "confidence"), ("nll", "nll"), ("brier", "brier")):
        columns: Any = getattr(first, column), getattr(second, column)
        if columns[0] is not None and columns[1] is not None:
            columns = columns if weight is None else tuple(without_weightless(part, weight) for part in columns)
            change, w = columns[1] - columns[0], np.ones(len(first.correct)) if weight is None else weight
            with np.errstate(over="ignore", invalid="ignore"):  # of losses beyond 1e150 there is no limit
                mean = float((w * change).mean())
                error = float(np.sqrt((np.square(w * (change - mean))).sum())) / len(change)
            changes[name] = normal_interval(mean, error, level, *EVERYWHERE)
    return changes


class AurcChanges:
    """Other scores of the same predictions against one: the AURC of `paired_differences`, and nothing besides.

    Args:
        first: the predictions, and the score that the others are compared with.
        level: confidence level.
        replicates: how many bootstrap replicates.
        seed: of the random numbers.

    Example:
        >>> import numpy as np
        >>> from calibrant.metrics import AurcChanges, Judged, paired_differences
        >>> rng = np.random.default_rng(0)
        >>> sure, other = rng.random((2, 500))
        >>> first = Judged(sure, rng.random(500) < sure)
        >>> second = Judged(sure, first.correct, score=other)
        >>> AurcChanges(first).to(other) == paired_differences(first, second)["aurc"]
        True
    """

    def __init__(self, first: Judged, *, level: float = 0.95, replicates: int = 1000, seed: int = 0) -> None:
        check_level(level, replicates, seed)
        first = replace(first, weight=check_weight(first.weight, len(first.correct)))
        self.first, self.level, self.replicates = first, level, replicates
        self.value = _values(first, ranked=True)["aurc"]
        self.rng = np.random.default_rng(seed)
        # What comes first in `paired_differences`, and is the same for every score.
        _, counts, units, _ = _count(_codes_of_bins(first), first.weight)
        _draw(self.rng, counts, units, replicates)
        self.state = self.rng.bit_generator.state

    def to(self, score: Doubles) -> Interval:
        """The AURC of the score minus that of the first, with its interval."""
        second = replace(self.first, score=score)
        self.rng.bit_generator.state = self.state
        differences = _replicate_ranked(self.first, second, self.rng, self.replicates)["aurc"]
        change = aurc(score, second.correct, weight=second.weight) - self.value
        return bootstrap_interval("aurc", change, differences, self.level, bounds=EVERYWHERE)


def _extend_to_zero(
    change: Interval, before: float, after: float, first: Judged, second: Judged, level: float
) -> Interval:
    """Where one of the two errors could be all chance, the difference reaches as far as if it were 0."""
    low, high = change.low, change.high
    if after <= _largest_by_chance(second, level):
        low = min(low, -before)
    if before <= _largest_by_chance(first, level):
        high = max(high, after)
    return Interval(change.value, low, high)


def _largest_by_chance(model: Judged, level: float) -> float:
    """The ECE that a perfectly calibrated model with these confidences exceeds in 1 - level of the cases."""
    diagram = reliability(model.confidence, model.correct, weight=model.weight, bins=BINS)
    return float(np.quantile(ece_by_chance(diagram), level))


def _values(model: Judged, ranked: bool) -> dict[str, float]:
    weight, correct = model.weight, model.correct
    values = {"accuracy": accuracy(correct, weight=weight), "ece": ece(model.confidence, correct, weight=weight)}
    if not ranked:
        return values
    score = model.confidence if model.score is None else model.score
    return values | {name: metric(score, correct, weight=weight) for name, metric in (("aurc", aurc), ("augrc", augrc))}


def _replicate_binned(first: Judged, second: Judged, rng: np.random.Generator, replicates: int) -> dict[str, Doubles]:
    """Replicates of the differences of calibration metrics, about their own centre."""
    codes = [_codes_of_bins(model) for model in (first, second)]
    pairs, counts, units, inverse = _count(codes[0] * 2 * FINE + codes[1], first.weight)
    draws = _draw(rng, counts, units, replicates)
    total = draws.sum(1)
    values: list[dict[str, Doubles]] = []
    for model, code in ((first, pairs // (2 * FINE)), (second, pairs % (2 * FINE))):
        hits = draws * (code % 2 == 0)
        confidence = model.confidence if model.weight is None else model.weight * model.confidence
        sure = draws * (np.bincount(inverse, confidence) / np.where(counts > 0, counts, 1.0))
        is_in_bin = code[:, None] // (2 * FINE // BINS) == np.arange(BINS)
        bins = Bins(*(part @ is_in_bin for part in (draws, sure, hits)))
        values.append({"accuracy": hits.sum(1) / total, "ece": bins.mean_gap()})
    return {name: _subtract_centre(values[1][name] - values[0][name]) for name in values[0]}


def _replicate_ranked(first: Judged, second: Judged, rng: np.random.Generator, replicates: int) -> dict[str, Doubles]:
    """Replicates of the differences of ranking metrics, about their own centre."""
    codes = [_codes_of_ranks(model) for model in (first, second)]
    pairs, counts, units, _ = _count(codes[0] * 2 * RANKS + codes[1], first.weight)
    parts: dict[str, list[Doubles]] = {name: [] for name in RANKED}
    batch = BATCH * max(1, GROUPS // max(RANKS, len(pairs)))  # as much at a time as of single models
    for start in range(0, replicates, batch):
        draws = _draw(rng, counts, units, min(batch, replicates - start))
        before = _ranking_values(draws, pairs // (2 * RANKS))
        after = _ranking_values(draws, pairs % (2 * RANKS))
        for name, values in parts.items():
            values.append(_subtract_centre(after[name] - before[name]))
    return {name: np.concatenate(values) for name, values in parts.items()}


def _ranking_values(draws: Doubles, code: Ints) -> dict[str, Doubles]:
    """Ranking metrics of each row of counts, whose columns have the given codes."""
    order = np.argsort(code, kind="stable")
    begin = np.flatnonzero(np.diff(code[order], prepend=-1))
    table = np.zeros((len(draws), 2 * RANKS))
    table[:, code[order][begin]] = np.add.reduceat(draws[:, order], begin, axis=1)
    errors = table[:, 1::2]
    groups = Groups(np.arange(RANKS, 0.0, -1.0), (table[:, ::2] + errors)[:, ::-1], errors[:, ::-1])
    return values_of(groups, RANKED)


def _count(codes: Ints, weight: Doubles | None) -> tuple[Ints, Doubles, Doubles | None, Ints]:
    """The different codes, their counts or sums of weights, the unit in which the latter are drawn, and an inverse."""
    different, inverse, counts = np.unique(codes, return_inverse=True, return_counts=True)
    if weight is None:
        return different, counts.astype(np.float64), None, inverse
    sums: Any = np.bincount(inverse, weight)
    return different, sums, np.bincount(inverse, np.square(weight)) / np.where(sums > 0, sums, 1.0), inverse


def _draw(rng: np.random.Generator, counts: Doubles, units: Doubles | None, replicates: int) -> Doubles:
    """The counts themselves, then one row for each replicate."""
    if units is not None:
        numbers = np.divide(counts, units, out=np.zeros(len(counts)), where=units > 0)
        return np.concatenate([counts[None], rng.poisson(numbers, size=(replicates, len(counts))) * units])
    total = counts.sum()
    return np.concatenate([counts[None], rng.multinomial(int(total), counts / total, size=replicates)])


def _subtract_centre(values: Doubles) -> Doubles:
    return values[1:] - values[0]


def _codes_of_bins(model: Judged) -> Ints:
    """Twice the bin of the confidence, plus 1 if wrong."""
    bins = np.ceil(model.confidence * FINE * (1 - 2.0**-50)).astype(np.int64) - 1
    return 2 * np.clip(bins, 0, FINE - 1) + ~model.correct


def _codes_of_ranks(model: Judged) -> Ints:
    """Twice the group of the score by equal mass, plus 1 if wrong; tied scores share a group."""
    score = model.confidence if model.score is None else model.score
    edges = np.quantile(score, np.arange(1, RANKS) / RANKS)
    return 2 * np.searchsorted(edges, score, side="left").astype(np.int64) + ~model.correct
