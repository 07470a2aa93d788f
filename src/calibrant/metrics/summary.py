r"""Every top-label metric from the state of a sketch, with a bound on what the cells make approximate.

The cells of the score are one table, the 300 base bins of the confidence another, with exact sums: accuracy, mean
confidence and every ECE whose bins are made of base bins are exact. Rankings are uncertain only by the order inside a
cell, and their bound is the same metric with the right ones first, and with the wrong ones first. Calibration errors of
other bins are uncertain by the width of the cells, and by the members of a cell that an edge cuts.

A summary of samples that are few enough to be kept (`Confidences`) has a group for each different confidence instead of
cells: every metric is by its definition, and every bound 0.

Weights are scaled to mean 1 first; where all are the same, counts are whole numbers again.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Container
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from calibrant.base.arrays import Array, Doubles, Precision, in_threads
from calibrant.base.checks import LIGHTEST, Bools
from calibrant.metrics.calibration import Reliability, bin_edges, ends_of_runs, gaps_of_runs, merge_bins, reliability
from calibrant.metrics.catalogue import MEASURED, METRICS, describe, split_name
from calibrant.metrics.grid import BASE, CELLS, base_bins, centres, shortfall_edges, unsquash
from calibrant.metrics.kernel import TopLabel
from calibrant.metrics.selective import RiskCoverage, risk_coverage_curve
from calibrant.metrics.tables import FUNCTIONS, Groups, check_weight, group_by_score

MOST = 2**22  # samples of which confidence and correctness are kept: 38 MB
MOMENTS = {"nll": 0, "brier": 2}  # metrics that are means of samples, and where their sums stand in the moments


class Approximate(float):
    """A float that knows how far it can lie from the exact definition's value: ``.bound``, 0 if it is exact."""

    _bound: Callable[[], float] | float

    def __new__(cls, value: float, bound: Callable[[], float] | float = 0.0) -> Approximate:  # noqa: D102  (described by the class)
        self = super().__new__(cls, value)
        self._bound = bound
        return self

    @property
    def bound(self) -> float:
        """Computed when it is asked for; every metric that is approximate lies in 0..1 and cannot be off by more."""
        if callable(self._bound):
            self._bound = min(float(self._bound()), 1.0)
        return self._bound


@dataclass(frozen=True, eq=False)
class Summary:
    """The state of a `ConfidenceSketch`, and every metric at any setting.

    Attributes:
        cells: the cells of the score that hold something.
        bins: the 300 base bins of the confidence, with exact sums.
        moments: as `calibrant.metrics.kernel.MOMENTS` says, of weights of mean 1.
        by_confidence: whether the score is the confidence.
        scores: the different confidences themselves, where all samples were kept.
    """

    cells: Groups
    bins: Groups
    moments: Doubles
    by_confidence: bool = True
    scores: Groups | None = None

    @classmethod
    def of(
        cls,
        cells: Doubles,
        base_counts: Doubles,
        base_sums: Doubles,
        base_squares: Doubles,
        moments: Doubles,
        *,
        by_confidence: bool,
    ) -> Summary:
        """Of the states of a sketch, which may go on: what is needed is copied."""
        if not base_counts.any():
            raise ValueError("the sketch is empty: update it with at least one sample first")
        if base_counts.sum() < LIGHTEST * moments[5]:
            mean = base_counts.sum() / moments[5]
            raise ValueError(f"weight must be {LIGHTEST:g} on average at least, got {mean:g}: multiply all by a number")
        scale = moments[5] / base_counts.sum()
        weighted = has_weights(base_counts, base_squares, moments)

        def scaled(counts: Doubles) -> Array:
            return counts * scale if weighted else np.rint(counts * scale).astype(np.int64)

        numbers = np.arange(BASE)[::-1]
        counts, sums = scaled(base_counts).reshape(BASE, 2)[numbers], scale * base_sums.reshape(BASE, 2)[numbers]
        bins = Groups((numbers + 0.5) / BASE, counts.sum(1), counts[:, 1], sums.sum(1), sums[:, 1], base=numbers)
        right, wrong = cells[:CELLS], cells[CELLS:]
        index = np.flatnonzero(right + wrong)[::-1]
        columns: list[Callable[[], Any]] = [
            lambda: centres()[index],
            lambda: 1 - shortfall_edges()[index],
            lambda: base_bins(index).astype(np.int64),
            lambda: scaled(wrong[index]),
            lambda: scaled(right[index]),
        ]
        middle, low, base, errors, hits = in_threads(lambda column: column(), columns)
        if not by_confidence:
            middle, low = unsquash(middle), unsquash(low)
        units: list[dict[str, Any]] = [{}, {}]
        if weighted:
            unit = scale * _ratio(base_squares, base_counts).reshape(BASE, 2)
            overall = scale * _ratio(base_squares.reshape(BASE, 2).sum(0), base_counts.reshape(BASE, 2).sum(0))
            of_cells = unit[base] if by_confidence else np.broadcast_to(overall, (len(index), 2))
            units = [{"unit": part[:, 0], "error_unit": part[:, 1]} for part in (of_cells, unit[numbers])]
        ranked = Groups(middle, hits + errors, errors, base=base if by_confidence else None, low=low, **units[0])
        scales = np.array([scale] * 5 + [1.0] + [scale**2] * 4)
        return cls(ranked, replace(bins, **units[1]), moments * scales, by_confidence)

    @property
    def samples(self) -> int:
        """How many samples were counted."""
        return int(self.moments[5])

    @functools.cached_property
    def errors(self) -> Any:
        """How many of them are wrong; with weights, the sum of theirs."""
        return self.bins.errors.sum()

    @property
    def is_weighted(self) -> bool:
        """Whether samples have different weights."""
        return self.bins.unit is not None

    @functools.cached_property
    def effective(self) -> float:
        """How many samples of equal weight would be as certain as these."""
        squares = self.bins.squares
        return self.samples if squares is None else float(self.bins.size**2 / squares.sum())

    @property
    def ranked(self) -> Groups:
        """The finest groups of the score that are known."""
        return self.cells if self.scores is None else self.scores

    def metrics(self, only: Container[str] = MEASURED) -> dict[str, Approximate]:
        """Every metric this state can give, by name: no NLL without logits, no AECE of another score.

        Of ``only`` some names, the others are not computed.
        """
        unknown = set() if self.has_losses else set(MOMENTS)
        unknown |= set() if self.by_confidence else {"aece", "smooth_ece"}
        names = [name for name in MEASURED if name in only and name not in unknown]
        # What several metrics need is computed once, before they are computed side by side.
        if any(METRICS[split_name(name)[0]].table == "ranked" for name in names):
            _ = self.ranked.risks, self.ranked.size
        return dict(zip(names, in_threads(self.measure, names), strict=True))

    @property
    def has_losses(self) -> bool:
        """Whether every sample came with its NLL and Brier score."""
        return bool(np.isclose(self.moments[4], self.samples, rtol=1e-9, atol=0))

    def measure(self, name: str) -> Approximate:
        """A metric by its name, with any setting (``"ece_20"``, ``"risk_at_coverage_0.85"``); computed once."""
        if name not in self._values:
            describe(name)  # refuses what no metric is called
            self._values[name] = self._compute(*split_name(name))
        return self._values[name]

    @functools.cached_property
    def _values(self) -> dict[str, Approximate]:
        return {}

    def _compute(self, name: str, setting: float | None) -> Approximate:
        if name in MOMENTS:
            if not self.has_losses:
                raise ValueError("NLL and Brier score need logits or probabilities; some samples came without")
            return Approximate(self.moments[MOMENTS[name]] / self.samples)
        metric, function = METRICS[name], FUNCTIONS[name]
        settings = {} if setting is None else {metric.setting: setting}
        is_ranking = metric.family == "Selective"
        if metric.table == "bins" and BASE % settings.get("bins", 1) == 0:
            return Approximate(function(self.bins, **settings))
        if not is_ranking and not self.by_confidence:
            raise ValueError(f"{metric.label} needs a sketch by confidence; this one ranks by another score")
        value = function(self.ranked, **settings)
        if self.scores is not None:
            return Approximate(value)
        bound = _bound_of_order if is_ranking else _bound_of_place
        return Approximate(value, functools.partial(bound, name, self.cells, value, settings))

    def reliability(self, bins: int = 15) -> Reliability:
        """Counts, mean confidence and accuracy of equal-width bins; ``bins`` must divide 300."""
        if bins < 1 or BASE % bins:
            raise ValueError(f"a reliability diagram from a sketch takes a number of bins that divides 300, got {bins}")
        return reliability(self.bins, bins=bins)

    def risk_coverage_curve(self) -> RiskCoverage:
        """Coverage, selective risk and threshold at every group, highest score first.

        The threshold of a cell is the least score in it: what is accepted is no smaller.
        """
        curve = risk_coverage_curve(self.ranked)
        if self.ranked.low is None:
            return curve
        return replace(curve, threshold=np.nextafter(self.ranked.low, 2.0) if self.by_confidence else self.ranked.low)


def has_weights(base_counts: Doubles, base_squares: Doubles, moments: Doubles) -> bool:
    """Whether the samples of a sketch have different weights, so that their squares have another mean."""
    size, samples = base_counts.sum(), moments[5]
    return bool(abs(base_squares.sum() * samples - size**2) > 1e-9 * size**2)


def _ratio(sums: Doubles, counts: Doubles) -> Doubles:
    return np.divide(sums, counts, out=np.zeros(sums.shape), where=counts > 0)


def _bound_of_order(name: str, groups: Groups, value: float, settings: dict[str, Any]) -> float:
    """What the unknown order inside the cells can make of a ranking metric: right ones first, or wrong ones first."""
    assert groups.low is not None
    is_doubtful = groups.low < groups.score  # members of the cell of exactly 1 are tied
    # A threshold may lie inside a cell, so that some of its members are accepted.
    loose = {"ties": "expected"} if name == "coverage_at_risk" else {}
    if math.isnan(value):  # whatever the order
        return 0.0
    orders = [groups.split(is_doubtful, right_first=right_first).filled() for right_first in (True, False)]
    return max(abs(FUNCTIONS[name](order, **settings, **loose) - value) for order in orders)


def _bound_of_place(name: str, groups: Groups, value: float, settings: dict[str, Any]) -> float:
    """What the unknown place inside the cells can make of a calibration error."""
    assert groups.low is not None
    if name not in ("ece", "mce", "aece", "smooth_ece"):
        return 1.0  # nothing is known of how it moves with the confidences
    half = groups.score - groups.low  # no confidence is further from the middle of its cell
    right = groups.count - groups.errors
    off = groups.count * half
    if name == "smooth_ece":
        # A residual moved by half a cell moves the smoothed curve by at most sqrt(2/pi)/bandwidth times as much.
        moved = float((right * (1 - groups.score) + groups.errors * groups.score) @ half) * np.sqrt(2 / np.pi)
        return float(moved / max(value, 1e-4) + off.sum()) / float(groups.size)
    if name == "aece":
        bins = settings.get("bins", 15)
        gaps = gaps_of_runs(groups.count[::-1], (groups.sure - right)[::-1], bins)
        # Of a cell that the end of a run cuts, right or wrong members may come first. What leaves one run enters the
        # next: between two runs that surely lie on the same side nothing changes.
        cut = np.searchsorted(groups.count[::-1].cumsum(), ends_of_runs(groups.size, bins)[1:-1])
        spread = np.minimum(right, groups.errors)[::-1][np.minimum(cut, len(right) - 1)]
        doubt = np.append(spread, 0) + np.append(0, spread) + off.sum() / bins
        side = np.where(np.abs(gaps) > doubt, np.sign(gaps), 0)
        is_open = (side[1:] != side[:-1]) | (side[1:] == 0)
        return float(off.sum() + 2 * spread[is_open].sum()) / float(groups.size)
    edges = bin_edges(settings["bins"])[1:-1]
    cut = np.searchsorted(edges, groups.low, side="right") != np.searchsorted(edges, groups.score + half, side="left")
    if name == "ece":
        return float(off.sum() + 2 * groups.count[cut].sum()) / float(groups.size)
    table = merge_bins(replace(groups, base=None, confidence=off + 2 * groups.count * cut), settings["bins"])
    sure = merge_bins(replace(groups, base=None, count=groups.count * ~cut), settings["bins"]).count
    neighbours = np.convolve(table.sure, [1, 1, 1], "same")  # what an edge cuts may belong next door
    if (sure[table.count > 0] == 0).any():
        return 1.0  # a bin that may be empty or may not
    return float((2 * neighbours[sure > 0] / sure[sure > 0]).max())


class Confidences:
    """Confidence and correctness of every sample, kept as long as there are at most ``most`` of them."""

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self.confidence: list[Doubles] = []
        self.correct: list[Bools] = []
        self.weight: list[Doubles] = []
        self.samples = 0
        self.precision: Precision | None = None

    def add(self, top: TopLabel) -> None:
        """Keep the samples of a block, or drop all of them if there are too many."""
        # Copied, because a column holds on to the memory of all columns of its block.
        part = Confidences(self.most)
        part.confidence, part.correct, part.samples = [top.confidence.copy()], [top.correct.copy()], len(top.labels)
        part.weight = [] if top.weight is None else [top.weight]
        part.precision = top.precision
        self.absorb(part)

    def absorb(self, other: Confidences) -> None:
        """Keep the samples of another part as well."""
        self.samples += other.samples
        self.precision = other.precision
        fits = self.samples <= self.most
        for name in ("confidence", "correct", "weight"):
            setattr(self, name, getattr(self, name) + getattr(other, name) if fits else [])

    def exact(self, summary: Summary) -> Summary:
        """The summary of the same samples with exact metrics, if they were kept; else as it is."""
        if self.samples > self.most:
            return summary
        weight = check_weight(np.concatenate(self.weight), self.samples) if self.weight else None
        scores = group_by_score(np.concatenate(self.confidence), np.concatenate(self.correct), weight)
        # Where an edge was rounded with the confidences as they were given, they lie on it.
        return replace(summary, scores=replace(scores, precision=self.precision or "float64"))
