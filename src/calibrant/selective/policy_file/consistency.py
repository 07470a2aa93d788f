"""What no entry of a policy's file can say alone: that they agree with each other, and that the policy works."""

from __future__ import annotations

import math

import numpy as np

from calibrant._validation import LARGEST_LOGIT
from calibrant.metrics import Interval
from calibrant.posthoc import NumpyOps
from calibrant.selective.policy.decision import decision
from calibrant.selective.policy.rule import Rule
from calibrant.selective.scores import CLASS_PROBABILITY, EXPECTED_COST
from calibrant.selective.thresholds.risk import Threshold

EXTREME = 1e4  # logits that every policy has a finite answer to


def check_consistent(rule: Rule) -> None:
    """Raise a ValueError where entries contradict each other, or the policy gives no finite confidence."""
    if rule.classes is None and (rule.groups is None) != (rule.group is None):
        raise ValueError("group and groups go together: one is null and the other is not")
    if rule.score.of == "calibrated" and rule.calibrator is None and rule.promise.score is None:
        raise ValueError("score is of calibrated logits, but there is no calibrator")
    if rule.groups is not None and rule.kind == "segmentation":
        raise ValueError("groups are for classification, but this policy is for segmentation")
    _check_threshold("threshold", rule.threshold, rule, rule.target_risk)
    for name, threshold in (rule.groups or {}).items():
        _check_threshold(f"groups.{name[:40]}", threshold, rule, rule.target_risk)
    for number, part in enumerate(rule.classes or ()):
        risk = rule.target_risk if rule.promise.by_class else rule.promise.risk_of(part.label)
        _check_threshold(f"class_thresholds.{number}", part.threshold, rule, risk)
    extremes = np.zeros((3, rule.num_classes))
    extremes[0, 0], extremes[1], extremes[2, -1] = 1.0, 1 / rule.num_classes, 1.0
    if rule.takes == "logits":
        extremes[0, 0], extremes[2, -1] = EXTREME, -EXTREME
    group = None if rule.group_names is None else np.zeros((3, 1))
    if not np.isfinite(decision(rule, NumpyOps(), extremes, group).confidence).all():
        raise ValueError("calibrator gives probabilities that are not finite")


def _score_range(rule: Rule) -> tuple[float, float]:
    """Between what a score lies, and so a threshold, with room for rounding."""
    score, classes = rule.score, rule.num_classes
    ranges = {"msp": (0.0, 1.0), "margin": (0.0, 1.0), "negative_entropy": (-math.log(classes), 0.0)}
    ranges |= {"max_logit": (-LARGEST_LOGIT, LARGEST_LOGIT), "energy": (-LARGEST_LOGIT, LARGEST_LOGIT)}
    ranges |= {CLASS_PROBABILITY: (0.0, 1.0)}
    if rule.promise.costs is not None:
        ranges |= {EXPECTED_COST: (-rule.promise.highest, 0.0)}
    low, high = ranges.get(score.name, (-1.0, 1.0))
    return low - 1e-9, high + 1e-9


def _check_threshold(where: str, threshold: Threshold, rule: Rule, target_risk: float | None) -> None:
    low, high = _score_range(rule)
    is_unset = math.isnan(threshold.value) and ("" in rule.parts or where != "threshold")
    if is_unset or (math.isfinite(threshold.value) and not low <= threshold.value <= high):
        requirement = f"from {low:g} to {high:g}, as {rule.score.name} is"
        value = "nothing" if is_unset else f"{threshold.value:g}"
        raise ValueError(f"{where}.accept_from must be a number {requirement}, got {value}")
    if not threshold.errors <= threshold.accepted <= threshold.samples:
        counts = f"{threshold.errors}, {threshold.accepted} and {threshold.samples}"
        raise ValueError(f"{where}: errors, accepted and samples must not fall, got {counts}")
    if threshold.target_risk != target_risk:
        raise ValueError(f"{where}.target_risk must be the policy's {target_risk}, got {threshold.target_risk}")
    if threshold.confidence is not None and not rule.confidence <= threshold.confidence < 1:
        least = f"the policy's {rule.confidence} at least"
        raise ValueError(f"{where}.confidence must be {least}, got {threshold.confidence}")
    for name, part, total in (
        ("coverage", threshold.accepted, threshold.samples),
        ("risk", threshold.errors, threshold.accepted),
    ):
        share: Interval = getattr(threshold, name)
        if total and not math.isclose(share.value, part / total, rel_tol=1e-9, abs_tol=1e-12):
            raise ValueError(f"{where}.{name}.value must be {part} of {total}, got {share.value}")
        # A limit that is to hold in less than half of the cases may lie below what was seen.
        is_limited = name != "risk" or rule.confidence >= 0.5
        if is_limited and (share.low > share.value + 1e-12 or share.high < share.value - 1e-12):
            raise ValueError(f"{where}.{name} must lie between its limits, got {share}")
    if threshold.confidence is None or target_risk is None or not threshold.accepted:
        return
    if not math.isnan(threshold.value) and threshold.risk.high > target_risk + 1e-9:
        raise ValueError(f"{where}.risk.high must be at most the target {target_risk}, got {threshold.risk.high}")
