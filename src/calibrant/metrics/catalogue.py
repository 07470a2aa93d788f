"""What is known of every metric: label, unit, family, which end is better, bounds, one line of description.

Tables, pages, recipes, papers' columns and the command line read it here and nowhere else. A name may carry a setting:
``ece_10`` is the ECE with 10 bins, ``coverage_at_risk_0.05`` the coverage at 5% risk; `describe` reads those too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

Family = Literal["Accuracy", "Calibration", "Selective", "Objects"]


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
    """

    name: str
    label: str
    unit: Literal["share", "number"]
    family: Family
    better: Literal["low", "high", "none"]
    bounds: tuple[float, float]
    description: str

    @property
    def sign(self) -> int:
        """1 if low values are better, -1 if high ones are: the best value is the smallest of ``sign * value``."""
        return -1 if self.better == "high" else 1


_METRICS = (
    Metric("accuracy", "Accuracy", "share", "Accuracy", "high", (0, 1), "share of predictions that are right"),
    Metric("nll", "NLL", "number", "Accuracy", "low", (0, math.inf),
           "mean negative log-likelihood of the labels, in nats"),
    Metric("brier", "Brier score", "number", "Accuracy", "low", (0, 2),
           "mean squared distance of the probabilities from the one-hot labels"),
    Metric("mean_iou", "Mean IoU", "share", "Accuracy", "high", (0, 1),
           "intersection over union of labelled and predicted pixels, mean over the classes"),
    Metric("ece", "ECE", "share", "Calibration", "low", (0, 1),
           "mean gap of confidence and accuracy over bins of equal width"),
    Metric("aece", "AECE", "share", "Calibration", "low", (0, 1),
           "mean gap of confidence and accuracy over bins of equal count"),
    Metric("mce", "MCE", "share", "Calibration", "low", (0, 1), "largest gap of confidence and accuracy of a bin"),
    Metric("classwise_ece", "Class-wise ECE", "share", "Calibration", "low", (0, 1),
           "ECE of each class's probability, mean over the classes"),
    Metric("smooth_ece", "Smooth ECE", "share", "Calibration", "low", (0, 1),
           "gap of confidence and accuracy smoothed by a kernel, without bins"),
    Metric("mean_confidence", "Mean confidence", "share", "Calibration", "none", (0, 1),
           "mean confidence; should equal the accuracy"),
    Metric("overconfidence", "Overconfidence", "share", "Calibration", "low", (0, 1),
           "mean confidence of the wrong predictions"),
    Metric("underconfidence", "Underconfidence", "share", "Calibration", "low", (0, 1),
           "mean of 1 - confidence of the right predictions"),
    Metric("aurc", "AURC", "number", "Selective", "low", (0, 1),
           "area under the risk-coverage curve: mean error rate of the most confident predictions"),
    Metric("e_aurc", "E-AURC", "number", "Selective", "low", (0, 1),
           "AURC beyond that of the best ordering with the same errors"),
    Metric("augrc", "AUGRC", "number", "Selective", "low", (0, 1),
           "area under the generalised risk-coverage curve: mean share accepted and wrong"),
    Metric("coverage_at_risk", "Coverage at risk", "share", "Selective", "high", (0, 1),
           "largest share that can be accepted at the error rate allowed"),
    Metric("risk_at_coverage", "Risk at coverage", "share", "Selective", "low", (0, 1),
           "error rate of the most confident predictions of a share"),
    Metric("objectness_deviation", "Objectness deviation", "share", "Objects", "low", (0, 1),
           "mean distance of the confidence from the share the object covers"),
)  # fmt: skip

#: Every metric by the name of its function.
METRICS: dict[str, Metric] = {metric.name: metric for metric in _METRICS}


def base_name(name: str) -> str:
    """The metric that a name with a setting belongs to.

    Example:
        >>> base_name("ece_15"), base_name("coverage_at_risk_0.05"), base_name("e_aurc")
        ('ece', 'coverage_at_risk', 'e_aurc')
    """
    head, _, setting = name.rpartition("_")
    return head if head and setting.replace(".", "").isdigit() else name


def describe(name: str) -> Metric:
    """What is known of a metric, by its name with or without a setting.

    Raises:
        ValueError: if there is no such metric.

    Example:
        >>> [describe(name).label for name in ("ece", "ece_10", "coverage_at_risk_0.05", "risk_at_coverage_0.9")]
        ['ECE', 'ECE (10 bins)', 'Coverage at 5% risk', 'Risk at 90% coverage']
        >>> describe("ece_10").better, describe("ece_10").unit
        ('low', 'share')
    """
    base = base_name(name)
    if base not in METRICS:
        raise ValueError(f"no metric is called {name!r}; known are {', '.join(METRICS)}")
    metric, setting = METRICS[base], name[len(base) + 1 :]
    if not setting:
        return metric
    if base in ("coverage_at_risk", "risk_at_coverage"):
        kept, _, at = base.partition("_at_")
        return replace(metric, name=name, label=f"{kept.capitalize()} at {100 * float(setting):g}% {at}")
    return replace(metric, name=name, label=f"{metric.label} ({setting} bins)")
