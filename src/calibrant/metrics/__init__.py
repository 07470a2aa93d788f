"""Metrics of calibration and selective classification: exact functions on arrays, one sketch for any amount of data.

==================  ====================================================================================================
`tables`            groups of equal score: what every metric of (score, correct) is a function of
`catalogue`         what is known of every metric: label, unit, family, which end is better, bounds
`calibration`       ECE, AECE, MCE, smooth ECE and reliability
`confidence`        accuracy, mean confidence, over- and underconfidence
`proper`            NLL, Brier score and class-wise ECE of logits or probabilities; `classwise` has the sums of the last
`selective`         risk and coverage, AURC and its relatives, detection of errors
`segmentation`      mean IoU, pixels drawn from images, and intervals over whole images
`sketch`            all of these in one pass, in memory that does not grow: counts over the cells of `grid`
`kernel`            what each row contributes to any metric, in one pass
`summary`           every metric of a sketch, with a bound; exact where the samples are kept
`bootstrap`         replicates and their intervals; `confidence_intervals` of a sketch and of paired differences
==================  ====================================================================================================
"""

from calibrant.base.arrays import Doubles
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
from calibrant.metrics.calibration import Bins, Reliability, aece, bin_edges, ece, mce, reliability, smooth_ece
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
from calibrant.metrics.classwise import ClasswiseSums
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
from calibrant.metrics.grid import BASE, base_bins, cells_of_confidence
from calibrant.metrics.kernel import BLOCK, Reduced, TopLabel, finish_rows, top_label_blocks
from calibrant.metrics.proper import brier, check_labels, classwise_ece, nll, top_label
from calibrant.metrics.segmentation import ClassOverlaps, Clusters, mean_iou, pixels
from calibrant.metrics.selective import (
    RiskCoverage,
    augrc,
    aupr_errors,
    aurc,
    auroc,
    coverage_at_risk,
    e_aurc,
    fpr_at_tpr,
    risk_at_coverage,
    risk_coverage_curve,
    smallest_count,
)
from calibrant.metrics.sketch import STATE, ConfidenceSketch
from calibrant.metrics.summary import Approximate, Confidences, Summary
from calibrant.metrics.tables import Groups, check_weight, group_by_score

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
    "aupr_errors",
    "aurc",
    "auroc",
    "brier",
    "classwise_ece",
    "context_reliance",
    "coverage_at_risk",
    "describe",
    "e_aurc",
    "ece",
    "fpr_at_tpr",
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
