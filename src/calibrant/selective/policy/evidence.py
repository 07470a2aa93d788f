"""What a fit notes about its samples, and what that says: the calibration before and after, and the majority class.

The calibration is that of the samples that set the threshold. The calibrator was fitted on others, so that these
numbers are those of new samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from calibrant._numbers import allowed, count, percent, round_percent, span
from calibrant._validation import Bools, Ints
from calibrant.metrics import LARGE_ERROR, ConfidenceSketch, Doubles, Interval, intervals
from calibrant.posthoc import CALIBRATORS
from calibrant.predictions import Predictions

REPLICATES = 400
RIVAL = 0.5  # an error of the constant answer above this is no rival to anything


class CalibrationCheck:
    """Confidences before and after a calibrator, added up."""

    def __init__(self) -> None:
        self.before, self.after, self.samples = ConfidenceSketch(), ConfidenceSketch(), 0

    def add(self, before: tuple[Doubles, Bools], after: tuple[Doubles, Bools]) -> None:
        """Count the confidence and correctness of some samples, without the calibrator and with it."""
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
    """What the calibrator changes, in a sentence; empty where nothing is known."""
    if not evidence:
        return ""
    number = f"{count(evidence['samples'])} {unit}"
    before, after = (_ece_text(evidence[name]) for name in ("before", "after"))
    if repaired:
        unseen = f"{number} that the calibrator was not fitted on"
        return f"Calibration error (ECE) on {unseen}: {before} before, {after} after."
    return f"Calibration error (ECE) on {number}: {after}; no calibrator is used."


def calibration_warning(evidence: Mapping[str, Any], *, repaired: bool) -> str:
    """A warning that the model is still poorly calibrated, and what would be better; empty where it is not."""
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


def count_labels(batches: Iterable[Predictions], counts: Ints) -> Iterator[Predictions]:
    """Pass batches on, and add to ``counts`` how many labels of each class they have."""
    for batch in batches:
        labels = batch.labels.reshape(-1)
        if batch.ignore_index is not None:
            labels = labels[labels != batch.ignore_index]
        counts += np.bincount(labels, minlength=len(counts))
        yield batch


def describe_majority(counts: Ints) -> dict[str, Any]:
    """The most frequent class by its position, and how often always answering it is wrong."""
    total = int(counts.sum())
    return {"class": int(np.argmax(counts)), "error": (total - int(counts.max())) / total if total else None}


def majority_words(
    majority: Mapping[str, Any], names: tuple[str, ...] | None, promised: float | None, seen: float
) -> str:
    """The error of the constant answer, and a warning where the policy is worth no more; empty where it is no rival.

    Args:
        majority: as `describe_majority` gives it.
        names: of the classes.
        promised: the risk that the policy promises, if it does.
        seen: the share of its answers that were wrong.
    """
    error, number = majority.get("error"), majority.get("class")
    if not isinstance(error, float) or not isinstance(number, int) or error > RIVAL:
        return ""
    name = names[number] if names is not None and number < len(names) else str(number)
    if error == 0:
        return f"Warning: all labels are {name}: nothing was learnt about other classes, and no promise is about them."
    text = f"Always answering {name} would be wrong in {percent(error)} of all samples."
    if promised is not None and promised >= error:
        worth = f"The promise of at most {allowed(promised)} is no better"
        return f"Warning: {text} {worth}: ask for a target risk below that error."
    if seen >= error:
        return f"Warning: {text} The policy's answers are wrong no less often, {percent(seen)}."
    return text
