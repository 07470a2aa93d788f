"""A summary of samples that are few enough to be kept: every metric by its definition, none with a bound above 0."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant._arrays import Precision
from calibrant.metrics import calibration, selective, smooth
from calibrant.metrics.selective import RiskCoverage
from calibrant.metrics.sketch.grid import BASE
from calibrant.metrics.sketch.samples import TopLabel
from calibrant.metrics.sketch.summary import Approximate, Summary
from calibrant.metrics.ties import Groups, group_by_score

MOST = 2**22  # samples of which confidence and correctness are kept: 38 MB


class Confidences:
    """Confidence and correctness of every sample, kept as long as there are at most ``most`` of them."""

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self.confidence: list[npt.NDArray[np.float64]] = []
        self.correct: list[npt.NDArray[np.bool_]] = []
        self.samples = 0
        self.given: Precision | None = None

    def add(self, top: TopLabel) -> None:
        """Keep the samples of a block, or let go of all if there are too many."""
        # Copied, because a column holds on to the memory of all columns of its block.
        self._extend([top.confidence.copy()], [top.correct.copy()], len(top.labels), top.given)

    def absorb(self, other: Confidences) -> None:
        """Keep the samples that follow, too."""
        self._extend(other.confidence, other.correct, other.samples, other.given)

    def _extend(self, confidence: list[Any], correct: list[Any], samples: int, given: Precision | None) -> None:
        self.samples += samples
        self.given = given
        self.confidence += confidence
        self.correct += correct
        if self.samples > self.most:
            self.confidence, self.correct = [], []

    def exact(self, summary: Summary) -> Summary:
        """The summary of the same samples with exact metrics, if they were kept; else as it is."""
        if self.samples > self.most:
            return summary
        sure, right = np.concatenate(self.confidence), np.concatenate(self.correct)
        if self.given in ("float16", "float32"):  # as they came: where an edge was rounded with them, they lie on it
            sure = sure.astype(self.given)
        known = {one.name: getattr(summary, one.name) for one in fields(Summary)}
        return ExactSummary(**known, confidence=sure, correct=right)


@dataclass(frozen=True, eq=False)
class ExactSummary(Summary):
    """A `Summary` by confidence that has the samples themselves.

    Attributes:
        confidence: ``[N]``.
        correct: ``[N]``, bool.
    """

    confidence: npt.NDArray[Any] = field(kw_only=True)
    correct: npt.NDArray[np.bool_] = field(kw_only=True)

    def ece(self, bins: int = 15) -> Approximate:
        """Expected calibration error, equal-width bins (lo, hi]."""
        if BASE % bins == 0:
            return super().ece(bins)
        return Approximate(calibration.ece(self.confidence, self.correct, bins=bins))

    def mce(self, bins: int = 15) -> Approximate:
        """Largest gap over non-empty bins."""
        if BASE % bins == 0:
            return super().mce(bins)
        return Approximate(calibration.mce(self.confidence, self.correct, bins=bins))

    def aece(self, bins: int = 15) -> Approximate:
        """Calibration error over bins of equal counts, every sample used."""
        return Approximate(calibration.aece(self.confidence, self.correct, bins=bins))

    def smooth_ece(self) -> Approximate:
        """Smooth ECE at its own bandwidth."""
        return Approximate(smooth.smooth_ece(self.confidence, self.correct))

    @functools.cached_property
    def _groups(self) -> Groups:
        return group_by_score(self.confidence.astype(np.float64, copy=False), self.correct)

    def risk_coverage_curve(self) -> RiskCoverage:
        """Coverage, selective risk and threshold at every different confidence, the highest first."""
        accepted, errors = np.cumsum(self._groups.count), np.cumsum(self._groups.errors)
        return RiskCoverage(accepted / self.samples, errors / accepted, self._groups.score)

    def aurc(self) -> Approximate:
        """Mean selective risk over all coverages."""
        return Approximate(selective.aurc_of_groups(self._groups.count, self._groups.errors))

    def e_aurc(self) -> Approximate:
        """AURC beyond that of the best order of the same predictions."""
        return Approximate(selective.e_aurc_of_groups(self._groups.count, self._groups.errors))

    def augrc(self) -> Approximate:
        """Mean share of all samples that are accepted and wrong."""
        return Approximate(selective.augrc_of_groups(self._groups.count, self._groups.errors))

    def coverage_at_risk(self, risk: float) -> Approximate:
        """Largest coverage whose selective risk is at most ``risk``, 0 if none."""
        return Approximate(selective.coverage_at_risk_of_groups(self._groups.count, self._groups.errors, risk))

    def risk_at_coverage(self, coverage: float) -> Approximate:
        """Error rate of the most confident share ``coverage`` of the samples."""
        return Approximate(selective.risk_at_coverage_of_groups(self._groups.count, self._groups.errors, coverage))
