"""What is known of every metric: label, unit, family, which end is better, bounds, one line of description.

Tables, pages, recipes, papers' columns and the command line read it here and nowhere else. A name may carry a setting:
``ece_10`` is the ECE with 10 bins, ``coverage_at_risk_0.05`` the coverage at 5% risk, ``pycalib_ece_100`` the ECE with
100 bins in pycalib's convention, which is ALS's; `describe` reads those too.
"""

from __future__ import annotations

import functools
import math
import re
from dataclasses import dataclass, replace
from typing import Literal

Family = Literal["Accuracy", "Calibration", "Selective", "Objects", "Detection"]


@dataclass(frozen=True)
class Metric:
    """What is known of a metric.

    Attributes:
        name: of its function in `calibrant.metrics`, with a setting where it was asked for with one.
        label: as tables and pages print it.
        unit: ``"share"`` is printed in percent, ``"number"`` as it is.
        family: the group of metrics that a page shows it in.
        better: ``"low"``, ``"high"``, or ``"none"`` if neither is better as such.
        bounds: the smallest and the largest value it can have, with default arguments.
        description: one line on what it says.
        absolute: whether it adds up absolute gaps of bins, or takes the largest, so that noise makes it larger.
        title: what the label stands for, where it is an abbreviation.
        table: what its function takes in place of samples: ``"bins"`` of the confidence, groups ``"ranked"`` by score,
            or ``"samples"``, of which a sketch has the mean; empty if a sketch cannot give it.
        setting: the argument that a number in a name stands for.
    """

    name: str
    label: str
    unit: Literal["share", "number"]
    family: Family
    better: Literal["low", "high", "none"]
    bounds: tuple[float, float]
    description: str
    absolute: bool = False
    title: str = ""
    table: Literal["", "bins", "ranked", "samples"] = ""
    setting: str = ""

    @property
    def sign(self) -> int:
        """1 if low values are better, -1 if high ones are: the best value is the smallest of ``sign * value``."""
        return -1 if self.better == "high" else 1


_METRICS = (
    Metric("accuracy", "Accuracy", "share", "Accuracy", "high", (0, 1), "share of predictions that are right",
           table="bins"),
    Metric("mean_iou", "Mean IoU", "share", "Accuracy", "high", (0, 1),
           "intersection over union of labelled and predicted pixels, mean over the classes",
           title="mean intersection over union"),
    Metric("nll", "NLL", "number", "Accuracy", "low", (0, math.inf),
           "mean negative log-likelihood of the labels, in nats",
           title="negative log-likelihood", table="samples"),
    Metric("brier", "Brier score", "number", "Accuracy", "low", (0, 2),
           "mean squared distance of the probabilities from the one-hot labels", table="samples"),
    Metric("ece", "ECE", "share", "Calibration", "low", (0, 1),
           "mean gap of confidence and accuracy over bins of equal width", absolute=True,
           title="expected calibration error", table="bins", setting="bins"),
    Metric("aece", "AECE", "share", "Calibration", "low", (0, 1),
           "mean gap of confidence and accuracy over bins of equal count", absolute=True,
           title="adaptive expected calibration error", table="ranked", setting="bins"),
    Metric("mce", "MCE", "share", "Calibration", "low", (0, 1),
           "largest gap of confidence and accuracy of a bin", absolute=True,
           title="maximum calibration error", table="bins", setting="bins"),
    Metric("classwise_ece", "Class-wise ECE", "share", "Calibration", "low", (0, 1),
           "ECE of each class's probability, mean over the classes", absolute=True),
    Metric("smooth_ece", "Smooth ECE", "share", "Calibration", "low", (0, 1),
           "gap of confidence and accuracy smoothed by a kernel, without bins", absolute=True, table="ranked"),
    Metric("mean_confidence", "Mean confidence", "share", "Calibration", "none", (0, 1),
           "mean confidence; should equal the accuracy", table="bins"),
    Metric("overconfidence", "Overconfidence", "share", "Calibration", "low", (0, 1),
           "mean confidence of the wrong predictions", table="bins"),
    Metric("underconfidence", "Underconfidence", "share", "Calibration", "low", (0, 1),
           "mean of 1 - confidence of the right predictions", table="bins"),
    Metric("objectness_deviation", "Objectness deviation", "share", "Objects", "low", (0, 1),
           "mean distance of the confidence from the share the object covers"),
    Metric("aurc", "AURC", "number", "Selective", "low", (0, 1),
           "area under the risk-coverage curve: mean error rate of the most confident predictions",
           title="area under the risk-coverage curve", table="ranked"),
    Metric("e_aurc", "E-AURC", "number", "Selective", "low", (0, 1),
           "AURC beyond that of the best ordering with the same errors",
           title="excess area under the risk-coverage curve", table="ranked"),
    Metric("augrc", "AUGRC", "number", "Selective", "low", (0, 1),
           "area under the generalised risk-coverage curve: mean share accepted and wrong",
           title="area under the generalised risk-coverage curve", table="ranked"),
    Metric("coverage_at_risk", "Coverage at risk", "share", "Selective", "high", (0, 1),
           "largest share that can be accepted at the allowed error rate", table="ranked", setting="risk"),
    Metric("risk_at_coverage", "Risk at coverage", "share", "Selective", "low", (0, 1),
           "error rate of the most confident predictions of a share", table="ranked", setting="coverage"),
    Metric("auroc", "AUROC", "share", "Selective", "high", (0, 1),
           "chance that a right prediction is more confident than a wrong one",
           title="area under the receiver operating characteristic, right against wrong predictions", table="ranked"),
    Metric("fpr_at_tpr", "FPR at TPR", "share", "Selective", "low", (0, 1),
           "share of the wrong predictions accepted by the threshold that accepts this share of the right ones",
           title="false positive rate at a true positive rate, accepted predictions as positives", table="ranked",
           setting="tpr"),
    Metric("aupr_errors", "AUPR of errors", "share", "Selective", "high", (0, 1),
           "average precision of the wrong predictions, the least confident first",
           title="area under the precision-recall curve of finding errors", table="ranked"),
)  # fmt: skip

#: Every metric by the name of its function.
METRICS: dict[str, Metric] = {metric.name: metric for metric in _METRICS}


def _detection_metric(name: str, label: str, title: str) -> Metric:
    precision = name.startswith("ap")
    quantity = "area under the precision-recall curve" if precision else "share of the objects that are detected"
    return Metric(name, label, "share", "Detection", "high", (0, 1), f"{quantity}, mean over the classes; {title}",
                  title="average precision" if precision else "average recall")  # fmt: skip


_OVERLAPS = "over overlaps from 0.5 to 0.95"
_SIZES = {
    "small": "objects of less than 32 x 32 pixels",
    "medium": "objects of 32 x 32 to 96 x 96 pixels",
    "large": "objects of more than 96 x 96 pixels",
}
#: COCO's metrics of detections, by name, in the order in which pycocotools gives them.
DETECTION: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        _detection_metric("ap", "AP", _OVERLAPS),
        _detection_metric("ap50", "AP50", "at an overlap of 0.5"),
        _detection_metric("ap75", "AP75", "at an overlap of 0.75"),
        *(_detection_metric(f"ap_{size}", f"AP, {size}", f"{_OVERLAPS}, of {words}") for size, words in _SIZES.items()),
        *(_detection_metric(f"ar{n}", f"AR, {n}", f"{_OVERLAPS}, by {n} detections per image") for n in (1, 10, 100)),
        *(_detection_metric(f"ar_{size}", f"AR, {size}", f"{_OVERLAPS}, of {words}") for size, words in _SIZES.items()),
    )
}


#: What a sketch and an audit measure: numbers of bins of the ECE, risks that a coverage is asked at, and coverages.
ECE_BINS = (10, 15, 100)
BINS = 15  # those of the ECE where nothing else is said
SMALL_ERROR, LARGE_ERROR = 0.02, 0.05  # of ECE: what counts as well and as poorly calibrated
RISKS = (0.01, 0.02, 0.05, 0.10)
COVERAGES = (0.80, 0.90, 0.95)

#: The settings that a metric is shown at, the usual one first.
SETTINGS: dict[str, tuple[float, ...]] = {
    "ece": (BINS, *(bins for bins in ECE_BINS if bins != BINS)),
    "coverage_at_risk": RISKS,
    "risk_at_coverage": COVERAGES,
    "fpr_at_tpr": (0.95,),
}
#: What an audit shows, as far as it can be measured, in the order of the catalogue.
SHOWN = tuple(
    name if setting is None else f"{name}_{setting:g}" for name in METRICS for setting in SETTINGS.get(name, (None,))
)
#: Metrics of which two models are compared on the same samples.
COMPARED = ("accuracy", "nll", "brier", "ece", "mean_confidence", "aurc", "augrc")


def split_name(name: str) -> tuple[str, int | float | None]:
    """The metric that a name belongs to and the setting in it, None if it has none: ``("ece", 15)`` of ``"ece_15"``."""
    match = re.fullmatch(r"(.+)_([0-9]{1,9}(\.[0-9]{0,9})?)", name)
    if match is None:
        return name, None
    return match[1], float(match[2]) if match[3] else int(match[2])


def base_name(name: str) -> str:
    """The metric that a name with a setting belongs to.

    Example:
        >>> base_name("ece_15"), base_name("coverage_at_risk_0.05"), base_name("e_aurc")
        ('ece', 'coverage_at_risk', 'e_aurc')
    """
    return split_name(name)[0]


#: Every metric that a sketch can give, by name: as an audit shows them, and the ECE of the usual bins by its own name.
MEASURED = (*(name for name in SHOWN if METRICS[base_name(name)].table), "ece")

#: Before the name of an ECE or MCE: with ``convention="pycalib"``.
PYCALIB = "pycalib_"


def describe(name: str) -> Metric:
    """What is known of a metric, by its name with or without a setting.

    Raises:
        ValueError: if there is no such metric.

    Example:
        >>> [describe(name).label for name in ("ece", "ece_10", "coverage_at_risk_0.05", "risk_at_coverage_0.9")]
        ['ECE', 'ECE (10 bins)', 'Coverage at 5% risk', 'Risk at 90% coverage']
        >>> describe("ece_10").better, describe("ece_10").unit
        ('low', 'share')
        >>> describe("pycalib_ece_100").label
        'ECE (100 bins, pycalib)'
    """
    return _look_up(name)


@functools.lru_cache(maxsize=4096)  # every number of every run on disk is checked by it
def _look_up(name: str) -> Metric:
    if name in DETECTION:
        return DETECTION[name]
    base, setting = split_name(name.removeprefix(PYCALIB))
    if base not in METRICS or (name.startswith(PYCALIB) and base not in ("ece", "mce")):
        raise ValueError(f"no metric is called {name!r}; known are {', '.join(METRICS)}")
    metric = METRICS[base]
    if name.startswith(PYCALIB):
        bins = "pycalib" if setting is None else f"{setting} bins, pycalib"
        return replace(metric, name=name, label=f"{metric.label} ({bins})")
    if setting is None:
        return metric
    if "_at_" in base:
        quantity, _, at = metric.label.partition(" at ")
        return replace(metric, name=name, label=f"{quantity} at {100 * setting:g}% {at}")
    return replace(metric, name=name, label=f"{metric.label} ({setting} bins)")
