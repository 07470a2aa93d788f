r"""Differences between two models on the same samples, with bootstrap intervals.

A replicate draws samples, and both models are seen on the same ones, so that what makes a sample hard for both cancels.
Samples that no metric can tell apart are drawn together: those in the same bins of both models, right or wrong alike.
60 bins for calibration make a table of at most 14400 counts, 64 groups of equal mass for rankings one of 16384,
whatever the number of samples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calibrant.metrics.bootstrap.intervals import (
    ABSOLUTE,
    BATCH,
    Interval,
    check_level,
    ece_by_chance,
    interval,
    interval_of_error,
    normal_interval,
    selective_values,
)
from calibrant.metrics.calibration import ece, reliability
from calibrant.metrics.selective import augrc, aurc

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

BINS, FINE, RANKS = 15, 60, 64
_RANKED = ("aurc", "augrc")


@dataclass(frozen=True, eq=False)
class Judged:
    """What comparing two models on the same samples takes: a row per sample, ``[N]``.

    Attributes:
        confidence: of the predicted class.
        correct: bool.
        score: what ranks the samples; the confidence if None.
        nll: negative log-likelihoods, or None.
        brier: Brier scores, or None.
    """

    confidence: Floats
    correct: npt.NDArray[np.bool_]
    score: Floats | None = None
    nll: Floats | None = None
    brier: Floats | None = None


def paired_differences(
    first: Judged, second: Judged, *, level: float = 0.95, replicates: int = 1000, seed: int = 0
) -> dict[str, Interval]:
    """Second minus first, with intervals, for two models (or one before and after a fix) on the same samples.

    Returns:
        Differences of accuracy, mean confidence, ECE, AURC, AUGRC, and of NLL and Brier score where both have them.

    Example:
        >>> import numpy as np
        >>> from calibrant.metrics import Judged, paired_differences
        >>> rng = np.random.default_rng(0)
        >>> sure = rng.uniform(0.5, 1.0, 2000)
        >>> right = rng.random(2000) < sure
        >>> found = paired_differences(Judged(sure**0.2, right), Judged(sure, right))["ece"]
        >>> bool(found.high < 0)
        True
    """
    check_level(level, replicates, seed)
    if len(first.correct) != len(second.correct) or not len(first.correct):
        raise ValueError(
            f"paired models are compared on the same samples, got {len(first.correct)} and {len(second.correct)}"
        )
    rng = np.random.default_rng(seed)
    drawn = _binned(first, second, rng, replicates) | _ranked(first, second, rng, replicates)
    values = [_values(one) for one in (first, second)]
    found = {}
    for name, differences in drawn.items():
        change = values[1][name] - values[0][name]
        if name in ABSOLUTE:
            found[name] = interval_of_error(change, differences, level, highest=math.inf)
        else:
            found[name] = interval(change, differences, level)
    found["ece"] = _down_to_zero(found["ece"], values[0]["ece"], values[1]["ece"], first, second, level)
    for name, column in (("mean_confidence", "confidence"), ("nll", "nll"), ("brier", "brier")):
        before, after = getattr(first, column), getattr(second, column)
        if before is not None and after is not None:
            change = after - before
            with np.errstate(over="ignore", invalid="ignore"):  # of losses beyond 1e150 there is no limit
                error = float(change.std()) / math.sqrt(len(change))
            found[name] = normal_interval(float(change.mean()), error, level, -math.inf, math.inf)
    return found


def _down_to_zero(
    change: Interval, before: float, after: float, first: Judged, second: Judged, level: float
) -> Interval:
    """Where one of the two errors could be all chance, the difference reaches as far as if it were 0."""
    low, high = change.low, change.high
    if after <= _largest_by_chance(second, level):
        low = min(low, -before)
    if before <= _largest_by_chance(first, level):
        high = max(high, after)
    return Interval(change.value, low, high)


def _largest_by_chance(one: Judged, level: float) -> float:
    """The ECE that a perfectly calibrated model with these confidences exceeds in 1 - level of the cases."""
    return float(np.quantile(ece_by_chance(reliability(one.confidence, one.correct, bins=BINS)), level))


def _values(one: Judged) -> dict[str, float]:
    score = one.confidence if one.score is None else one.score
    return {
        "accuracy": float(one.correct.mean()),
        "mean_confidence": float(one.confidence.mean()),
        "ece": ece(one.confidence, one.correct),
        "aurc": aurc(score, one.correct),
        "augrc": augrc(score, one.correct),
    }


def _binned(first: Judged, second: Judged, rng: np.random.Generator, replicates: int) -> dict[str, Floats]:
    """Replicates of the differences of calibration metrics, about their own centre."""
    codes = [_codes_of_bins(one) for one in (first, second)]
    pairs, where, counts = np.unique(codes[0] * 2 * FINE + codes[1], return_inverse=True, return_counts=True)
    drawn = _draw(rng, counts, replicates)
    total = drawn.sum(1)
    found: list[dict[str, Floats]] = []
    for one, code in ((first, pairs // (2 * FINE)), (second, pairs % (2 * FINE))):
        right = drawn * (code % 2 == 0)
        sure = drawn * (np.bincount(where, one.confidence) / counts)
        gaps = (sure - right) @ (code[:, None] // (2 * FINE // BINS) == np.arange(BINS))
        found.append({"accuracy": right.sum(1) / total, "ece": np.abs(gaps).sum(1) / total})
    return {name: _about_centre(found[1][name] - found[0][name]) for name in found[0]}


def _ranked(first: Judged, second: Judged, rng: np.random.Generator, replicates: int) -> dict[str, Floats]:
    """Replicates of the differences of ranking metrics, about their own centre."""
    codes = [_codes_of_ranks(one) for one in (first, second)]
    pairs, counts = np.unique(codes[0] * 2 * RANKS + codes[1], return_counts=True)
    parts: dict[str, list[Floats]] = {name: [] for name in _RANKED}
    for start in range(0, replicates, BATCH):
        drawn = _draw(rng, counts, min(BATCH, replicates - start))
        before = _of_table(drawn, pairs // (2 * RANKS))
        after = _of_table(drawn, pairs % (2 * RANKS))
        for name in _RANKED:
            parts[name].append(_about_centre(after[name] - before[name]))
    return {name: np.concatenate(values) for name, values in parts.items()}


def _of_table(drawn: Ints, code: Ints) -> dict[str, Floats]:
    """Ranking metrics of each row of counts, whose columns have the given codes."""
    order = np.argsort(code, kind="stable")
    begin = np.flatnonzero(np.diff(code[order], prepend=-1))
    table = np.zeros((len(drawn), 2 * RANKS))
    table[:, code[order][begin]] = np.add.reduceat(drawn[:, order], begin, axis=1)
    wrong = table[:, 1::2]
    return selective_values((table[:, ::2] + wrong)[:, ::-1], wrong[:, ::-1], table.sum(1))


def _draw(rng: np.random.Generator, counts: Ints, replicates: int) -> Ints:
    """The counts themselves, then one row for each replicate."""
    total = int(counts.sum())
    return np.concatenate([counts[None], rng.multinomial(total, counts / total, size=replicates)])


def _about_centre(values: Floats) -> Floats:
    return values[1:] - values[0]


def _codes_of_bins(one: Judged) -> Ints:
    """Twice the bin of the confidence, plus 1 if wrong."""
    place = np.ceil(one.confidence * FINE * (1 - 2.0**-50)).astype(np.int64) - 1
    return 2 * np.clip(place, 0, FINE - 1) + ~one.correct


def _codes_of_ranks(one: Judged) -> Ints:
    """Twice the group of the score by equal mass, plus 1 if wrong; tied scores share a group."""
    score = one.confidence if one.score is None else one.score
    edges = np.quantile(score, np.arange(1, RANKS) / RANKS)
    return 2 * np.searchsorted(edges, score, side="left").astype(np.int64) + ~one.correct
