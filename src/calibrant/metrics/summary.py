r"""Every top-label metric from the state of a sketch, with a bound on what the cells make approximate.

Binned metrics are sums of :math:`|H_{j+1} - H_j|`, where H is the running sum of confidence minus correctness at the
edges of the bins. At an edge of a base bin H is exact; inside one it is known up to some :math:`\epsilon`. Between two
bins whose gaps have the same sign whatever the uncertainty, :math:`\epsilon` moves the same amount out of one and into
the other, and cancels; elsewhere it counts twice. Ranked metrics are uncertain only by the order inside a cell, and the
bound compares with the worst order.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Container
from dataclasses import dataclass

import numpy as np

from calibrant._arrays import Doubles
from calibrant._validation import MOST_BINS, Bools, Ints, check_integer, check_number
from calibrant.metrics.calibration import Reliability, running_sums, smooth_ece_of_residuals
from calibrant.metrics.catalogue import MEASURED, split_name
from calibrant.metrics.grid import BASE, CELLS, HALF, PER_HIGH, PER_LOW, base_begins, centres, shortfall_edges, unsquash
from calibrant.metrics.selective import RiskCoverage
from calibrant.metrics.ties import best_aurc, smallest_count, sum_of_risks


class Approximate(float):
    """A float that knows how far it can lie from the exact definition's value: ``.bound``, 0 if it is exact."""

    bound: float

    def __new__(cls, value: float, bound: float = 0.0) -> Approximate:  # noqa: D102  (described by the class)
        self = super().__new__(cls, value)
        # Every metric that is approximate lies in 0..1, so that it cannot be off by more.
        self.bound = min(float(bound), 1.0)
        return self


@dataclass(frozen=True, eq=False)
class Summary:
    """The state of a `ConfidenceSketch`, and every metric at any setting.

    Attributes:
        index: int64, the cells of the score that hold something, from low to high.
        right: right predictions of each of them.
        wrong: wrong ones.
        base_counts: int64 ``[600]``, the same over 300 bins of the confidence.
        base_sums: float64 ``[600]``, sums of confidence over them.
        moments: sums of NLL, its square, Brier score, its square, and the number of samples that have them.
        by_confidence: whether the score is the confidence.
    """

    index: Ints
    right: Ints
    wrong: Ints
    base_counts: Ints
    base_sums: Doubles
    moments: Doubles
    by_confidence: bool = True

    @classmethod
    def of(
        cls, cells: Ints, base_counts: Ints, base_sums: Doubles, moments: Doubles, *, by_confidence: bool
    ) -> Summary:
        """Of the states of a sketch, which may go on: what is needed is copied."""
        if not base_counts.any():
            raise ValueError("the sketch is empty: update it with at least one sample first")
        right, wrong = cells[:CELLS], cells[CELLS:]
        index = np.flatnonzero(right + wrong)
        sums = base_counts.copy(), base_sums.copy(), moments.copy()
        return cls(index, right[index], wrong[index], *sums, by_confidence=by_confidence)

    @functools.cached_property
    def samples(self) -> int:
        """How many samples were counted."""
        return int(self.base_counts.sum())

    @functools.cached_property
    def errors(self) -> int:
        """How many of them are wrong."""
        return int(self.base_counts[1::2].sum())

    def metrics(self, only: Container[str] = MEASURED) -> dict[str, Approximate]:
        """Every metric this state can give, by name: no NLL without logits, no AECE of another score.

        Of ``only`` some names, the others are not computed.
        """
        unknown = [] if self.moments[4] == self.samples else ["nll", "brier"]
        unknown += [] if self.by_confidence else ["aece", "smooth_ece"]
        names = [name for name in MEASURED if name in only and name not in unknown]
        return {name: self._compute(name) for name in names}

    def _compute(self, name: str) -> Approximate:
        """The metric of a name, computed once."""
        if name not in self._values:
            base, setting = split_name(name)
            self._values[name] = getattr(self, base)(*([] if setting is None else [setting]))
        return self._values[name]

    @functools.cached_property
    def _values(self) -> dict[str, Approximate]:
        return {}

    # Exact ones

    def accuracy(self) -> Approximate:
        """Share of right predictions."""
        return Approximate(1 - self.errors / self.samples)

    def mean_confidence(self) -> Approximate:
        """Mean confidence."""
        return Approximate(self.base_sums.sum() / self.samples)

    def overconfidence(self) -> Approximate:
        """Mean confidence of wrong predictions; NaN if there are none."""
        return Approximate(self.base_sums[1::2].sum() / self.errors if self.errors else math.nan)

    def underconfidence(self) -> Approximate:
        """Mean of 1 - confidence of right predictions; NaN if there are none."""
        right = self.samples - self.errors
        return Approximate(1 - self.base_sums[::2].sum() / right if right else math.nan)

    def nll(self) -> Approximate:
        """Mean negative log-likelihood."""
        return self._moment(0)

    def brier(self) -> Approximate:
        """Mean Brier score, summed over classes."""
        return self._moment(2)

    def _moment(self, index: int) -> Approximate:
        if self.moments[4] != self.samples:
            raise ValueError("NLL and Brier score need logits or probabilities; some samples came without")
        return Approximate(self.moments[index] / self.samples)

    # Binned ones

    def reliability(self, bins: int = 15) -> Reliability:
        """Counts, mean confidence and accuracy of equal-width bins; ``bins`` must divide 300."""
        if bins < 1 or BASE % bins:
            raise ValueError(f"a reliability diagram from a sketch takes a number of bins that divides 300, got {bins}")
        counts = self.base_counts.reshape(bins, -1, 2).sum(1)
        sums = self.base_sums.reshape(bins, -1).sum(1)
        total = counts.sum(1)
        with np.errstate(invalid="ignore"):
            edges = np.arange(bins + 1) / bins
            return Reliability(edges[:-1], edges[1:], total, sums / total, counts[:, 0] / total)

    def ece(self, bins: int = 15) -> Approximate:
        """Expected calibration error, equal-width bins (lo, hi]; exact if ``bins`` divides 300."""
        gaps, uncertain, _, _ = self._equal_width(bins)
        return self._sum_of_gaps(gaps, uncertain)

    def mce(self, bins: int = 15) -> Approximate:
        """Largest gap over non-empty bins; exact if ``bins`` divides 300."""
        gaps, uncertain, counts, unsure = self._equal_width(bins)
        sure = np.abs(np.diff(gaps))[counts > 0] / counts[counts > 0]
        spread = (uncertain[:-1] + uncertain[1:])[counts > 0]
        least = np.maximum(counts - unsure, 0)[counts > 0]
        with np.errstate(divide="ignore", invalid="ignore"):
            off = np.where(spread > 0, np.minimum(1.0, (spread + sure * unsure[counts > 0]) / least), 0.0)
        value = float(sure.max()) if len(sure) else 0.0
        if (unsure > counts).any():  # a bin that may be empty or may not
            return Approximate(value, 1.0)
        return Approximate(value, max(0.0, float((sure + off).max()) - value, value - float((sure - off).max())))

    def _equal_width(self, bins: int) -> tuple[Doubles, Doubles, Ints, Ints]:
        """Running gap H at the edges, its uncertainty, counts of the bins and how many may belong next door."""
        bins = check_integer("bins", bins, 1, MOST_BINS)
        if BASE % bins == 0:
            counts = self.base_counts.reshape(bins, -1, 2).sum(1)
            gaps = self.base_sums.reshape(bins, -1).sum(1) - counts[:, 0]
            return running_sums(gaps), np.zeros(bins + 1), counts.sum(1), np.zeros(bins, np.int64)
        self._check_by_confidence(f"ECE with {bins} bins")
        edge, u = np.arange(bins + 1) / bins, shortfall_edges()
        # The cell that each edge cuts, or begins; all before it lie below the edge.
        cell = np.clip(np.searchsorted(-u, -(1 - edge), side="left") - 1, 0, CELLS - 1)
        cell[0], cell[-1] = 0, CELLS
        below = np.searchsorted(self.index, cell)
        at = np.minimum(below, len(self.index) - 1)
        cut = (self.index[at] == cell) & (cell > 0)
        gaps, uncertain = self._running_gap(below)
        right, wrong = self.right[at] * cut, self.wrong[at] * cut
        # Which of a cut cell's samples lie below the edge is unknown: half of what they could carry over goes.
        most, least = wrong * (1 - u[self.index[at] + 1]), -right * u[self.index[at]]
        gaps, uncertain = gaps + 0.5 * (most + least), uncertain + 0.5 * (most - least)
        doubt = right + wrong
        return gaps, uncertain, np.diff(self._ends[below] + doubt // 2), doubt[:-1] + doubt[1:]

    def aece(self, bins: int = 15) -> Approximate:
        """Calibration error over bins of equal counts, every sample used."""
        bins = check_integer("bins", bins, 1, MOST_BINS)
        self._check_by_confidence("AECE")
        total, ends, u = self.samples, self._ends, shortfall_edges()
        sizes = np.full(bins, total // bins) + (np.arange(bins) < total % bins)
        rank = np.concatenate([[0], np.cumsum(sizes)])
        below = np.searchsorted(ends, rank, side="right") - 1
        gaps, uncertain = self._running_gap(below)
        at = np.minimum(below, len(self.index) - 1)
        cell, right, wrong = self.index[at], self.right[at], self.wrong[at]
        count = rank - ends[below]
        expected = count * right / (right + wrong)
        spread = np.maximum(np.minimum(count, right) - expected, expected - np.maximum(0, count - wrong))
        gaps = gaps + count * centres()[cell] - expected
        inside = np.where(cell == CELLS - 1, 0.0, spread) + count * (u[cell] - u[cell + 1])
        return self._sum_of_gaps(gaps, uncertain + np.where(count == 0, 0.0, inside))

    def smooth_ece(self) -> Approximate:
        """Smooth ECE at its own bandwidth."""
        self._check_by_confidence("smooth ECE")
        centre = centres()[self.index]
        value = smooth_ece_of_residuals(centre, self.right - self._count * centre, self.samples)
        # A residual moved by half a cell moves the smoothed curve by at most sqrt(2/pi)/bandwidth times as much.
        sure_right, sure_wrong = self.base_sums[::2], self.base_sums[1::2]
        shift = 0.5 * np.where(np.arange(BASE) < HALF, 1 / (BASE * PER_LOW), 1 / (BASE * PER_HIGH))
        moved = float((self.base_counts[::2] - sure_right + sure_wrong) @ shift) * math.sqrt(2 / math.pi)
        rounded = float(self.base_counts.reshape(BASE, 2).sum(1) @ shift)
        return Approximate(value, (moved / max(value, 1e-4) + rounded) / self.samples)

    def _running_gap(self, ends: Ints) -> tuple[Doubles, Doubles]:
        """Sum of confidence minus correctness over the first ``ends`` filled cells, and how uncertain it is."""
        begins = np.searchsorted(self.index, np.append(base_begins(), CELLS))
        sums = self.base_sums.reshape(BASE, 2).sum(1)
        before = running_sums(sums - self.base_counts[::2])
        middle, uncertain = np.empty(len(ends)), np.empty(len(ends))
        for i, (k, base) in enumerate(zip(ends, np.searchsorted(begins, ends, side="right") - 1, strict=True)):
            base = min(int(base), BASE - 1)
            inside, inside_error = self._span(begins[base], k)
            beyond, beyond_error = self._span(k, begins[base + 1])
            # The base bin's own sum is exact, so the sum over the cells before this end is known from both sides.
            low = max(inside - inside_error, sums[base] - beyond - beyond_error)
            high = min(inside + inside_error, sums[base] - beyond + beyond_error)
            middle[i] = before[base] + 0.5 * (low + high) - self.right[begins[base] : k].sum()
            # A confidence put back on an edge may lie outside its cell by its rounding; then low is above high.
            uncertain[i] = 0.5 * abs(high - low)
        return middle, uncertain

    def _span(self, first: int, stop: int) -> tuple[float, float]:
        """Sum of confidence of filled cells by their middles, and how far it can be off."""
        cell, count = self.index[first:stop], self._count[first:stop]
        u = shortfall_edges()
        return float(count @ centres()[cell]), 0.5 * float(count @ (u[cell] - u[cell + 1]))

    def _sum_of_gaps(self, running_gap: Doubles, uncertain: Doubles) -> Approximate:
        gaps = np.diff(running_gap)
        fixed = np.where(np.abs(gaps) >= uncertain[:-1] + uncertain[1:], np.sign(gaps), 0.0)
        cancels = (fixed[:-1] == fixed[1:]) & (fixed[1:] != 0)
        bound = 2 * uncertain[1:-1][~cancels].sum() + uncertain[0] + uncertain[-1]
        return Approximate(np.abs(gaps).sum() / self.samples, bound / self.samples)

    def _check_by_confidence(self, metric: str) -> None:
        if not self.by_confidence:
            raise ValueError(f"{metric} needs a sketch by confidence; this one ranks by another score")

    # Ranked ones

    def risk_coverage_curve(self) -> RiskCoverage:
        """Coverage, selective risk and threshold at every filled cell, highest score first."""
        ranked = self._ranked
        return RiskCoverage(ranked.accepted / self.samples, ranked.risk, self._thresholds())

    def aurc(self) -> Approximate:
        """Mean selective risk over all coverages."""
        return self._aurc

    @functools.cached_property
    def _aurc(self) -> Approximate:
        ranked = self._ranked
        # Errors first or last inside a cell: e (n - e) / 2 more or fewer, each worth at most 1 / (before + 1), and
        # never more than e (1 + log(n / e)), which is what errors are worth at the very top.
        at = np.flatnonzero((ranked.wrong > 0) & (ranked.wrong < ranked.count))
        at = at[ranked.is_doubtful(at)]
        e, n, before = ranked.wrong[at], ranked.count[at], ranked.accepted[at] - ranked.count[at]
        worst = np.minimum(e * (n - e) / (2.0 * (before + 1)), e * (1 + np.log(n / e)))
        total = sum_of_risks(ranked.count, ranked.wrong, ranked.accepted, ranked.errors)
        return Approximate(total / self.samples, worst.sum() / self.samples)

    def e_aurc(self) -> Approximate:
        """AURC beyond that of the best order of the same predictions."""
        return Approximate(max(0.0, self._aurc - best_aurc(self.samples, self.errors)), self._aurc.bound)

    def augrc(self) -> Approximate:
        """Mean share of all samples that are accepted and wrong."""
        ranked = self._ranked
        count, wrong = ranked.count.astype(np.float64), ranked.wrong.astype(np.float64)
        pairs = float(count @ wrong)
        # The errors before each sample, then those of its own cell: half of them, and the sample itself.
        total = float(count @ ranked.errors) - pairs + 0.5 * (pairs + self.errors)
        swaps = pairs - float(wrong @ wrong)
        if self.index[-1] == CELLS - 1:  # a true tie
            swaps -= float(self.right[-1]) * float(self.wrong[-1])
        return Approximate(total / self.samples**2, 0.5 * swaps / self.samples**2)

    def coverage_at_risk(self, risk: float) -> Approximate:
        """Largest coverage whose selective risk is at most ``risk``, 0 if none; the exact one is no smaller."""
        risk = check_number("risk", risk, 0.0, 1.0)
        ranked = self._ranked
        fits = np.flatnonzero(ranked.risk <= risk)
        value = int(ranked.accepted[fits[-1]]) if len(fits) else 0
        # Later cells do not fit as a whole. With their right ones first, some of their samples may.
        first = int(fits[-1]) + 1 if len(fits) else 0
        at = np.flatnonzero(ranked.least_risk[first:] <= risk * (1 + 1e-12)) + first
        at = at[ranked.is_doubtful(at)]
        most = float(value)
        if len(at):
            wrong, missed = ranked.wrong[at], ranked.errors[at] - ranked.wrong[at]
            reach = ranked.accepted[at] - wrong
            extra = np.floor((risk * reach - missed) / max(1 - risk, 1e-12) + 1e-9)
            most = max(most, float((reach + np.clip(extra, 0, wrong)).max()))
        return Approximate(value / self.samples, (most - value) / self.samples)

    def risk_at_coverage(self, coverage: float) -> Approximate:
        """Error rate of the most confident share ``coverage`` of the samples."""
        coverage = check_number("coverage", coverage, 0.0, 1.0, open_low=True)
        ranked, i = self._ranked, smallest_count(coverage, self.samples)
        at = int(np.searchsorted(ranked.accepted, i))
        count, wrong = int(ranked.count[at]), int(ranked.wrong[at])
        number, missed = i - (int(ranked.accepted[at]) - count), int(ranked.errors[at]) - wrong
        expected = number * wrong / count
        spread = max(min(number, wrong) - expected, expected - max(0, number - (count - wrong)))
        return Approximate((missed + expected) / i, spread / i if ranked.is_doubtful(np.array([at]))[0] else 0.0)

    # The filled cells

    def _thresholds(self) -> Doubles:
        """The least score of each filled cell, highest first: what is accepted is no smaller."""
        low = 1 - shortfall_edges()[self.index[::-1]]
        return np.nextafter(low, 2.0) if self.by_confidence else unsquash(low)

    def placed_cells(self) -> tuple[Ints, Ints, Doubles, Ints]:
        """Filled cells from low to high: right and wrong predictions, middle of the cell, base bin (0 for a score)."""
        base = np.zeros_like(self.index)
        if self.by_confidence:
            base = np.searchsorted(base_begins(), self.index, side="right") - 1
        return self.right, self.wrong, centres()[self.index], base

    @functools.cached_property
    def _count(self) -> Ints:
        """Samples of each filled cell."""
        return self.right + self.wrong

    @functools.cached_property
    def _ends(self) -> Ints:
        """Samples before each filled cell, and all of them at the end."""
        return running_sums(self._count)

    @functools.cached_property
    def _ranked(self) -> _Ranked:
        return _Ranked.of(self)


@dataclass(frozen=True, eq=False)
class _Ranked:
    """The filled cells from the highest score down, with running sums."""

    count: Ints  # samples of each cell
    wrong: Ints  # errors among them
    tied: bool  # whether the first cell is that of exactly 1
    accepted: Ints  # samples of this cell and all before it
    errors: Ints  # errors among those
    risk: Doubles  # their share
    least_risk: Doubles  # the same if only the right ones of this cell are accepted

    @classmethod
    def of(cls, summary: Summary) -> _Ranked:
        count, wrong = summary._count[::-1], summary.wrong[::-1]
        accepted, errors = summary.samples - summary._ends[:-1][::-1], np.cumsum(wrong)
        with np.errstate(invalid="ignore"):  # a first cell of errors alone: 0 / 0, which no risk is below
            least = (errors - wrong) / (accepted - wrong)
        return cls(count, wrong, bool(summary.index[-1] == CELLS - 1), accepted, errors, errors / accepted, least)

    def is_doubtful(self, cells: Ints) -> Bools:
        """Whether the order inside these cells is unknown; that of the cell of exactly 1 is not, they are tied."""
        return (cells > 0) | (not self.tied)
