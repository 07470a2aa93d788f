"""Metrics of calibration and selective classification: exact functions on arrays, one sketch for any amount of data."""

from calibrant.metrics.bins import bin_edges
from calibrant.metrics.bootstrap.images import Clusters
from calibrant.metrics.bootstrap.intervals import (
    NEAREST,
    Interval,
    check_level,
    ece_by_chance,
    interval_of_error,
    intervals,
    normal_interval,
    wilson,
    z_value,
)
from calibrant.metrics.bootstrap.paired import Judged, paired_differences
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
from calibrant.metrics.catalogue import METRICS, Metric, base_name, describe
from calibrant.metrics.classwise import classwise_ece
from calibrant.metrics.context import ContextReliance, context_reliance
from calibrant.metrics.objectness import objectness_deviation
from calibrant.metrics.proper import brier, nll, top_label
from calibrant.metrics.segmentation import mean_iou, pixels
from calibrant.metrics.selective import (
    RiskCoverage,
    augrc,
    aurc,
    aurc_of_groups,
    coverage_at_risk,
    coverage_at_risk_of_groups,
    e_aurc,
    e_aurc_of_groups,
    risk_at_coverage,
    risk_at_coverage_of_groups,
    risk_coverage_curve,
    smallest_count,
)
from calibrant.metrics.sketch.exact import Confidences
from calibrant.metrics.sketch.grid import BASE, base_bins, cells_of_confidence
from calibrant.metrics.sketch.kernel import SATURATED, Reduced, compiled_passes, finish_rows, is_large
from calibrant.metrics.sketch.samples import BLOCK, TopLabel, combine_rows, top_label_blocks
from calibrant.metrics.sketch.sketch import STATE, ConfidenceSketch, check_labels
from calibrant.metrics.sketch.summary import COVERAGES, MEASURED, RISKS, Approximate, Summary
from calibrant.metrics.smooth import smooth_ece
from calibrant.metrics.ties import Doubles, group_by_score

__all__ = [
    "MEASURED",
    "METRICS",
    "Approximate",
    "ConfidenceSketch",
    "ContextReliance",
    "Interval",
    "Judged",
    "Metric",
    "Reliability",
    "RiskCoverage",
    "Summary",
    "accuracy",
    "aece",
    "augrc",
    "aurc",
    "base_name",
    "brier",
    "classwise_ece",
    "context_reliance",
    "coverage_at_risk",
    "describe",
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
