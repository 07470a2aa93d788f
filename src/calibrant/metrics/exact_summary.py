"""A summary of samples that are few enough to be kept: every metric by its definition, none with a bound above 0."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant._arrays import Doubles, Precision
from calibrant._validation import Bools
from calibrant.metrics.calibration import aece, ece, mce, smooth_ece
from calibrant.metrics.grid import BASE
from calibrant.metrics.kernel import TopLabel
from calibrant.metrics.selective import RiskCoverage, curve_of_groups
from calibrant.metrics.summary import Approximate, Summary
from calibrant.metrics.ties import Groups, group_by_score

MOST = 2**22  # samples of which confidence and correctness are kept: 38 MB


class Confidences:
    """Confidence and correctness of every sample, kept as long as there are at most ``most`` of them."""

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self.confidence: list[Doubles] = []
        self.correct: list[Bools] = []
        self.samples = 0
        self.precision: Precision | None = None

    def add(self, top: TopLabel) -> None:
        """Keep the samples of a block, or drop all of them if there are too many."""
        # Copied, because a column holds on to the memory of all columns of its block.
        self._extend([top.confidence.copy()], [top.correct.copy()], len(top.labels), top.precision)

    def absorb(self, other: Confidences) -> None:
        """Keep the samples of another part as well."""
        self._extend(other.confidence, other.correct, other.samples, other.precision)

    def _extend(self, confidence: list[Any], correct: list[Any], samples: int, precision: Precision | None) -> None:
        self.samples += samples
        self.precision = precision
        fits = self.samples <= self.most
        self.confidence = self.confidence + confidence if fits else []
        self.correct = self.correct + correct if fits else []

    def exact(self, summary: Summary) -> Summary:
        """The summary of the same samples with exact metrics, if they were kept; else as it is."""
        if self.samples > self.most:
            return summary
        confidence = np.concatenate(self.confidence)
        if self.precision in ("float16", "float32"):  # as given: where an edge was rounded with them, they lie on it
            confidence = confidence.astype(self.precision)
        state = {part.name: getattr(summary, part.name) for part in fields(Summary)}
        return ExactSummary(**state, confidence=confidence, correct=np.concatenate(self.correct))


@dataclass(frozen=True, eq=False)
class ExactSummary(Summary):
    """A `Summary` by confidence that has the samples themselves."""

    confidence: npt.NDArray[Any] = field(kw_only=True)  # ``[N]``
    correct: Bools = field(kw_only=True)  # ``[N]``, bool

    def ece(self, bins: int = 15) -> Approximate:
        """Expected calibration error, equal-width bins (lo, hi]."""
        return super().ece(bins) if BASE % bins == 0 else Approximate(ece(self.confidence, self.correct, bins=bins))

    def mce(self, bins: int = 15) -> Approximate:
        """Largest gap over non-empty bins."""
        return super().mce(bins) if BASE % bins == 0 else Approximate(mce(self.confidence, self.correct, bins=bins))

    def aece(self, bins: int = 15) -> Approximate:
        """Calibration error over bins of equal counts, every sample used."""
        return Approximate(aece(self.confidence, self.correct, bins=bins))

    def smooth_ece(self) -> Approximate:
        """Smooth ECE at its own bandwidth."""
        return Approximate(smooth_ece(self.confidence, self.correct))

    @functools.cached_property
    def _groups(self) -> Groups:
        return group_by_score(self.confidence.astype(np.float64, copy=False), self.correct)

    def risk_coverage_curve(self) -> RiskCoverage:
        """Coverage, selective risk and threshold at every different confidence, the highest first."""
        return curve_of_groups(self._groups)

    def aurc(self) -> Approximate:
        """Mean selective risk over all coverages."""
        return Approximate(self._groups.aurc())

    def e_aurc(self) -> Approximate:
        """AURC beyond that of the best order of the same predictions."""
        return Approximate(self._groups.e_aurc())

    def augrc(self) -> Approximate:
        """Mean share of all samples that are accepted and wrong."""
        return Approximate(self._groups.augrc())

    def coverage_at_risk(self, risk: float) -> Approximate:
        """Largest coverage whose selective risk is at most ``risk``, 0 if none."""
        return Approximate(self._groups.with_ties("together").coverage_at_risk(risk))

    def risk_at_coverage(self, coverage: float) -> Approximate:
        """Error rate of the most confident share ``coverage`` of the samples."""
        return Approximate(self._groups.risk_at_coverage(coverage))
