"""How well calibrated a policy is, before and after its calibrator, on the samples that set its threshold.

The calibrator was fitted on others, so that these numbers are those of new samples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from calibrant._numbers import count, percent, round_percent, span
from calibrant._validation import Bools
from calibrant.metrics import LARGE_ERROR, ConfidenceSketch, Doubles, Interval, intervals
from calibrant.posthoc import CALIBRATORS

REPLICATES = 400


class CalibrationCheck:
    """Confidences before and after a calibrator, added up."""

    def __init__(self) -> None:
        self.before, self.after, self.samples = ConfidenceSketch(), ConfidenceSketch(), 0

    def add(self, before: tuple[Doubles, Bools], after: tuple[Doubles, Bools]) -> None:
        """Take in confidence and correctness of some samples, without the calibrator and with it."""
        if len(before[0]):
            self.before.update_confidence(*before)
            self.after.update_confidence(*after)
            self.samples += len(before[0])

    def evidence(self, *, independent: bool) -> dict[str, Any]:
        """The ECE before and after, with limits where samples are independent, as an audit computes them."""
        if not self.samples:
            return {}
        ends = {"before": self.before.summary(), "after": self.after.summary()}
        if independent:
            values = {name: intervals(end, replicates=REPLICATES, only=("ece",))["ece"] for name, end in ends.items()}
        else:
            values = {name: Interval(float(end.ece()), math.nan, math.nan) for name, end in ends.items()}
        return {"samples": self.samples, **{name: vars(value) for name, value in values.items()}}


def is_poor(evidence: Mapping[str, Any]) -> bool:
    """Whether the ECE after the repair is large, and not by chance alone."""
    after = evidence.get("after") or {}
    value, low = after.get("value"), after.get("low")
    return value is not None and value >= LARGE_ERROR and not (low is not None and low <= 0)


def calibration_words(evidence: Mapping[str, Any], *, unit: str, repaired: bool) -> str:
    """What the calibrator changes, in a sentence; nothing where nothing is known."""
    if not evidence:
        return ""
    number = f"{count(evidence['samples'])} {unit}"
    before, after = (_ece_text(evidence[name]) for name in ("before", "after"))
    if repaired:
        unseen = f"{number} that the calibrator was not fitted on"
        return f"Calibration error (ECE) on {unseen}: {before} before, {after} after."
    return f"Calibration error (ECE) on {number}: {after}; no calibrator is used."


def calibration_warning(evidence: Mapping[str, Any], *, repaired: bool) -> str:
    """That the model is still poor, and what would be better, if anything; nothing where it is not."""
    if not is_poor(evidence):
        return ""
    poor = f"Warning: {'still ' * repaired}poorly calibrated, with an ECE above {round_percent(LARGE_ERROR)};"
    better = evidence.get("better")
    if better:
        title = CALIBRATORS[better["name"]].title.lower()
        reached = f"{title} reaches {percent(better['ece'])} against {percent(better['chosen_ece'])}"
        return (
            f"{poor} {reached} by cross-fitting on the samples of the choice, at a higher NLL: "
            f"--calibrator {better['name']} asks for it."
        )
    if evidence.get("compared"):
        return f"{poor} none of the other calibrators is better beyond chance. More held-out samples may help."
    return f"{poor} --calibrator auto compares all calibrators."


def _ece_text(value: Mapping[str, float | None]) -> str:
    low, high = value.get("low"), value.get("high")
    has_limits = low is not None and high is not None and math.isfinite(low) and math.isfinite(high)
    limits = f" {span(low, high, 'share', value['value'])}" if has_limits else ""
    return f"{percent(value['value'])}{limits}"
