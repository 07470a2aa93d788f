"""Metrics of calibration and selective classification: exact functions on arrays, one sketch for any amount of data."""

from calibrant.metrics.calibration import (
    Reliability,
    accuracy,
    aece,
    ece,
    mce,
    mean_confidence,
    overconfidence,
    reliability,
    underconfidence,
)
from calibrant.metrics.classwise import classwise_ece
from calibrant.metrics.context import ContextReliance, context_reliance
from calibrant.metrics.facts import METRICS, Fact
from calibrant.metrics.intervals import Interval, intervals
from calibrant.metrics.objectness import objectness_deviation
from calibrant.metrics.paired import Judged, paired_differences
from calibrant.metrics.proper import brier, nll, top_label
from calibrant.metrics.segmentation import mean_iou, pixels
from calibrant.metrics.selective import (
    RiskCoverage,
    augrc,
    aurc,
    coverage_at_risk,
    e_aurc,
    risk_at_coverage,
    risk_coverage_curve,
)
from calibrant.metrics.sketch import ConfidenceSketch
from calibrant.metrics.smooth import smooth_ece
from calibrant.metrics.summary import Approximate, Summary

__all__ = [
    "METRICS",
    "Approximate",
    "ConfidenceSketch",
    "ContextReliance",
    "Fact",
    "Interval",
    "Judged",
    "Reliability",
    "RiskCoverage",
    "Summary",
    "accuracy",
    "aece",
    "augrc",
    "aurc",
    "brier",
    "classwise_ece",
    "context_reliance",
    "coverage_at_risk",
    "e_aurc",
    "ece",
    "intervals",
    "mce",
    "mean_confidence",
    "mean_iou",
    "nll",
    "objectness_deviation",
    "overconfidence",
    "paired_differences",
    "pixels",
    "reliability",
    "risk_at_coverage",
    "risk_coverage_curve",
    "smooth_ece",
    "top_label",
    "underconfidence",
]
