"""What a report needs to know about each metric: which direction is better, its bounds, and words for it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Fact:
    """Facts about a metric.

    Attributes:
        better: ``"low"``, ``"high"``, or ``"none"`` if neither is better as such.
        bounds: the smallest and the largest value it can have, with default arguments.
        words: one line on what it says.
    """

    better: Literal["low", "high", "none"]
    bounds: tuple[float, float]
    words: str


#: Every metric of the package by its function's name.
METRICS: dict[str, Fact] = {
    "accuracy": Fact("high", (0, 1), "share of predictions that are right"),
    "mean_confidence": Fact("none", (0, 1), "mean confidence; should equal the accuracy"),
    "ece": Fact("low", (0, 1), "mean gap of confidence and accuracy over bins of equal width"),
    "aece": Fact("low", (0, 1), "mean gap of confidence and accuracy over bins of equal count"),
    "mce": Fact("low", (0, 1), "largest gap of confidence and accuracy of a bin"),
    "smooth_ece": Fact("low", (0, 1), "gap of confidence and accuracy smoothed by a kernel, without bins"),
    "classwise_ece": Fact("low", (0, 1), "ECE of each class's probability, mean over the classes"),
    "overconfidence": Fact("low", (0, 1), "mean confidence of the wrong predictions"),
    "underconfidence": Fact("low", (0, 1), "mean of 1 - confidence of the right predictions"),
    "nll": Fact("low", (0, math.inf), "mean negative log-likelihood of the labels, in nats"),
    "brier": Fact("low", (0, 2), "mean squared distance of the probabilities from the one-hot labels"),
    "aurc": Fact("low", (0, 1), "area under the risk-coverage curve: mean error rate of the surest predictions"),
    "e_aurc": Fact("low", (0, 1), "AURC beyond that of the best ordering with the same errors"),
    "augrc": Fact("low", (0, 1), "area under the generalised risk-coverage curve: mean share accepted and wrong"),
    "coverage_at_risk": Fact("high", (0, 1), "largest share that can be accepted at an error rate that is allowed"),
    "risk_at_coverage": Fact("low", (0, 1), "error rate of the surest predictions of a share"),
    "mean_iou": Fact("high", (0, 1), "intersection over union of labelled and predicted pixels, mean over the classes"),
    "objectness_deviation": Fact("low", (0, 1), "mean distance of the confidence from the share the object covers"),
}
