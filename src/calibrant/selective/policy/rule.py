"""The rule behind a policy: what it consists of, and what it says of itself; `decision` has its formula."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from calibrant._arrays import Array
from calibrant._numbers import allowed, count, percent, round_percent, span, span_words
from calibrant._validation import Ints, listing
from calibrant.metrics import LARGE_ERROR, Doubles
from calibrant.posthoc import CALIBRATORS, Calibrator
from calibrant.predictions import FLOOR, class_name
from calibrant.selective.policy.evidence import is_poor
from calibrant.selective.promise import Promise
from calibrant.selective.scores import Score
from calibrant.selective.sets import PredictionSets
from calibrant.selective.thresholds.risk import ClassThreshold, Threshold


@dataclass(frozen=True, eq=False)
class Rule:
    """The contents of a `Policy`, whose docstring describes them."""

    num_classes: int
    class_names: tuple[str, ...] | None
    takes: str
    kind: str
    calibrator: Calibrator | None
    score: Score
    threshold: Threshold
    groups: Mapping[str, Threshold] | None = None
    group: str | None = None
    target_risk: float | None = None
    confidence: float = 0.95
    evidence: Mapping[str, Any] = field(default_factory=dict)
    floor: float = FLOOR
    positive: int | None = None
    sets: PredictionSets | None = None
    promise: Promise = field(default_factory=Promise)
    classes: tuple[ClassThreshold, ...] | None = None

    @property
    def positive_name(self) -> str | None:
        """The name of the positive class of two; None if it is unknown."""
        return None if self.positive is None else class_name(self.positive, self.class_names)

    @property
    def unit(self) -> str:
        """What is answered, in words."""
        return "pixels" if self.kind == "segmentation" else "samples"

    @property
    def limits(self) -> Doubles:
        """The thresholds as numbers: one, one per group in the order of `group_names`, or one per class (and group)."""
        thresholds = self.parts.values() if self.classes is None else [part.threshold for part in self.classes]
        return np.array([threshold.value for threshold in thresholds])

    @property
    def parts(self) -> dict[str, Threshold]:
        """The thresholds by name: of all answers, whose name is empty, or of each group or class."""
        if self.classes is not None:
            return {part.name(self.class_names): part.threshold for part in self.classes}
        return {"": self.threshold} if self.groups is None else dict(self.groups)

    @property
    def part_column(self) -> str | None:
        """What the thresholds depend on: the group column, the predicted class, or both; None where there is one."""
        by_class = [] if self.classes is None else ["predicted class"]
        return " and ".join([*([] if self.group is None else [self.group]), *by_class]) or None

    @property
    def group_names(self) -> tuple[str, ...] | None:
        """The groups with thresholds of their own."""
        if self.classes is not None and self.group is not None:
            return tuple(dict.fromkeys(str(part.group) for part in self.classes))
        return None if self.groups is None else tuple(self.groups)

    @property
    def class_limits(self) -> Doubles:
        """The thresholds of classes as a table ``[groups, C]``, or ``[1, C]`` without groups; others are infinite."""
        limits: Doubles = np.append(self.limits, np.inf)[self._class_parts]
        return limits

    @property
    def _class_parts(self) -> Ints:
        """The position of each group's and class's threshold in `classes`, ``[groups, C]``; -1 where there is none."""
        numbers = {name: number for number, name in enumerate(self.group_names or ())}
        table = np.full((max(1, len(numbers)), self.num_classes), -1, np.int64)
        for number, part in enumerate(self.classes or ()):
            table[0 if part.group is None else numbers[part.group], part.label] = number
        return table

    def group_numbers(self, groups: Array) -> Ints:
        """The position of each sample's group in `group_names`, -1 for an unknown group."""
        numbers = {name: number for number, name in enumerate(self.group_names or ())}
        distinct, inverse = np.unique(np.asarray(groups).astype(str), return_inverse=True)
        return np.array([numbers.get(name, -1) for name in distinct.tolist()], dtype=np.int64)[inverse]

    def part_numbers(self, groups: Array | None, predicted: Ints) -> Ints:
        """The position of each sample's threshold among `limits`, by group and predicted class; -1 without one."""
        if groups is None or self.group_names is None:
            rows = np.zeros(len(predicted), np.int64)
        else:
            rows = self.group_numbers(groups)
        if self.classes is None:
            return rows
        parts: Ints = np.append(self._class_parts, np.full((1, self.num_classes), -1), axis=0)[rows, predicted]
        return parts

    def limits_of(self, groups: Array, predicted: Ints) -> Doubles:
        """The threshold of each sample, by the name of its group and the class that it is predicted to have."""
        limits: Doubles = np.append(self.limits, np.inf)[self.part_numbers(groups, predicted)]
        return limits

    @property
    def abstains(self) -> bool:
        """Whether it never answers."""
        return bool((self.limits == math.inf).all())

    @property
    def promised(self) -> float | None:
        """The risk that is promised: the target, or the limit that came with a coverage; None if there is none."""
        if self.promise.of not in ("risk", "precision"):
            return None
        limit = self.target_risk if self.target_risk is not None else self.threshold.risk.high
        if self.promise.of == "precision":  # over the answers of all these classes
            limit = max(part.threshold.target_risk or 0.0 for part in self.classes or ())
        return None if self.threshold.confidence is None or self.abstains or math.isnan(limit) else limit

    @property
    def summary(self) -> str:
        """What it does and promises, in a sentence or two."""
        threshold, unit = self.threshold, self.unit
        if self.abstains:
            return threshold.reason if "" in self.parts else f"Abstains always. {threshold.reason}"
        if threshold.accepted == threshold.samples:
            return f"Answers all {unit}. {self._promise()}"
        coverage = threshold.coverage
        limits = span_words(coverage.low, coverage.high, "share", coverage.value)
        answered = f"Answers {percent(coverage.value)} of {unit}" + (f" ({limits})" if limits else "")
        return f"{answered} and abstains on the rest. {self._promise()}"

    def _promise(self) -> str:
        """What holds for the answers, and with what confidence."""
        threshold = self.threshold
        if not self.promise.is_plain:
            return self.promise.words(
                self.classes or (), threshold, self.class_names, self.group, self.target_risk, self.confidence
            )
        observed = f"seen: {percent(threshold.risk.value)} of {count(threshold.accepted)}"
        limit = threshold.risk.high if self.target_risk is None else self.target_risk
        if math.isnan(limit):
            return f"No risk was asked for and none is promised ({observed} answers wrong)."
        if self.target_risk is not None and threshold.confidence is None:
            met = f"{allowed(limit)} was met on these samples ({observed})"
            return f"The threshold is empirical: {met} and nothing is promised."
        promise = f"With {round_percent(self.confidence)} confidence at most {allowed(limit)} of the answers are wrong"
        if self.groups is None or self.target_risk is None:
            return f"{promise} ({observed})."
        silent = [name for name, threshold in self.groups.items() if threshold.abstains]
        never = f" It never answers for {listing(silent, 5)}." if silent else ""
        return f"{promise} in every {self.group} ({observed} in all).{never}"

    @property
    def method_summary(self) -> str:
        """Calibrator and score, in a sentence."""
        calibrated = "not calibrated" if self.calibrator is None else f"calibrated by {self.calibrator.title.lower()}"
        return f"Confidence {calibrated}; answers ranked by the {self.score.words}."

    @property
    def calibration_summary(self) -> str:
        """The calibration error before and after the calibrator, out of sample; empty where it is not known."""
        evidence = self.evidence.get("calibration")
        if not evidence:
            return ""
        number = f"{count(evidence['samples'])} {self.unit}"
        before, after = (_ece_text(evidence[name]) for name in ("before", "after"))
        if self.calibrator is None:
            return f"Calibration error (ECE) on {number}: {after}; no calibrator is used."
        unseen = f"{number} that the calibrator was not fitted on"
        return f"Calibration error (ECE) on {unseen}: {before} before, {after} after."

    @property
    def calibration_warning(self) -> str:
        """That its confidence is still poorly calibrated, and what would be better; empty where it is not."""
        evidence = self.evidence.get("calibration") or {}
        if not is_poor(evidence):
            return ""
        still = "" if self.calibrator is None else "still "
        poor = f"Warning: {still}poorly calibrated, with an ECE above {round_percent(LARGE_ERROR)};"
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

    @property
    def majority_summary(self) -> str:
        """What always answering the majority class is worth, and a warning where the policy is worth no more.

        Empty where that is wrong in over half of the samples, and no rival to anything.
        """
        majority, risk = self.evidence.get("majority") or {}, self.threshold.risk.value
        error, label = majority.get("error"), majority.get("class")
        if self.abstains or self.promise.of != "risk":
            return ""
        if not isinstance(error, float) or not isinstance(label, int) or error > 0.5:
            return ""
        is_named = self.class_names is not None and label < len(self.class_names)
        name = class_name(label, self.class_names if is_named else None)
        if error == 0:
            return (
                f"Warning: all labels are {name}: nothing was learnt about other classes, and no promise is about them."
            )
        text = f"Always answering {name} would be wrong in {percent(error)} of all samples."
        if self.promised is not None and self.promised >= error:
            worth = f"The promise of at most {allowed(self.promised)} is no better"
            return f"Warning: {text} {worth}: ask for a target risk below that error."
        if risk >= error:
            return f"Warning: {text} The policy's answers are wrong no less often, {percent(risk)}."
        return text


def _ece_text(value: Mapping[str, float | None]) -> str:
    low, high = value.get("low"), value.get("high")
    has_limits = low is not None and high is not None and math.isfinite(low) and math.isfinite(high)
    limits = f" {span(low, high, 'share', value['value'])}" if has_limits else ""
    return f"{percent(value['value'])}{limits}"
