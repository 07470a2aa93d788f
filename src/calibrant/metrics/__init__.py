"""Metrics of calibration and selective classification: exact functions on arrays, one sketch for any amount of data.

==================  ====================================================================================================
`catalogue`         what is known of every metric: label, unit, family, which end is better, bounds
`calibration`       ECE, AECE, MCE, smooth ECE and reliability
`confidence`        accuracy, mean confidence, over- and underconfidence
`proper`            NLL, Brier score and class-wise ECE, of logits that are checked and cut into blocks
`selective`         risk and coverage, AURC and its relatives, with `ties` in expected order
`segmentation`      mean IoU, pixels drawn from images, and intervals over whole images
`sketch`            all of these in one pass, in memory that does not grow: counts over the cells of `grid`
`kernel`            what each row contributes to any metric, in one pass
`summary`           every metric of a sketch, with a bound; `exact_summary` where the samples are kept
`bootstrap`         replicates and their intervals; `confidence_intervals` of a sketch and of paired differences
==================  ====================================================================================================
"""

from calibrant._arrays import Doubles
from calibrant.metrics.bootstrap import (
    NEAREST,
    Interval,
    bootstrap_interval,
    check_level,
    mean_interval,
    normal_interval,
    wilson,
    z_value,
)
from calibrant.metrics.calibration import Reliability, aece, bin_edges, ece, mce, reliability, smooth_ece
from calibrant.metrics.catalogue import (
    BINS,
    COMPARED,
    COVERAGES,
    DETECTION,
    LARGE_ERROR,
    MEASURED,
    METRICS,
    PYCALIB,
    RISKS,
    SHOWN,
    SMALL_ERROR,
    Metric,
    base_name,
    describe,
    split_name,
)
from calibrant.metrics.confidence import (
    ContextReliance,
    accuracy,
    context_reliance,
    mean_confidence,
    objectness_deviation,
    overconfidence,
    underconfidence,
)
from calibrant.metrics.confidence_intervals import (
    AurcChanges,
    Judged,
    ece_by_chance,
    interval_at,
    intervals,
    paired_differences,
)
from calibrant.metrics.exact_summary import Confidences
from calibrant.metrics.grid import BASE, base_bins, cells_of_confidence
from calibrant.metrics.kernel import BLOCK, Reduced, TopLabel, finish_rows, top_label_blocks
from calibrant.metrics.proper import brier, check_labels, classwise_ece, nll, top_label
from calibrant.metrics.segmentation import ClassOverlaps, Clusters, mean_iou, pixels
from calibrant.metrics.selective import (
    RiskCoverage,
    augrc,
    aurc,
    coverage_at_risk,
    curve_of_groups,
    e_aurc,
    risk_at_coverage,
    risk_coverage_curve,
)
from calibrant.metrics.sketch import STATE, ConfidenceSketch
from calibrant.metrics.summary import Approximate, Summary
from calibrant.metrics.ties import group_by_score, smallest_count

__all__ = [
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
