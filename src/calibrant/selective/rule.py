"""The rule behind a policy: what it consists of, what it says of itself, and its formula.

The formula is written once, in `Ops`: NumPy and PyTorch compute it, ONNX draws it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from calibrant._arrays import Array, as_numpy, cache_chunks, class_rows, given_back
from calibrant._numbers import allowed, count, percent, round_percent, span_words
from calibrant._validation import FARTHEST_SUM, as_logits, check_finite, listing
from calibrant.metrics import Doubles
from calibrant.posthoc import Calibrator, NumpyOps, Ops, softmax
from calibrant.predictions import FLOOR, is_one_column, widen
from calibrant.selective.calibration_check import calibration_warning, calibration_words
from calibrant.selective.majority import majority_words
from calibrant.selective.prediction_sets import PredictionSets
from calibrant.selective.promise import ClassThreshold, Promise
from calibrant.selective.promise_words import promise_words
from calibrant.selective.scores import Score
from calibrant.selective.thresholds import Threshold

A = TypeVar("A")
V = TypeVar("V")


class Decisions(NamedTuple, Generic[A]):
    """What a policy says about each sample, ``[N]`` or ``[N, ...]`` each.

    Attributes:
        labels: the predicted class, int64.
        confidence: its calibrated probability, float64.
        accept: whether to answer; False abstains.
    """

    labels: A
    confidence: A
    accept: A


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
        """What the positive class of two is called; None if it is unknown."""
        if self.positive is None:
            return None
        return str(self.positive) if self.class_names is None else self.class_names[self.positive]

    @property
    def majority_summary(self) -> str:
        """What always answering the majority class is worth, and a warning where the policy is worth no more."""
        if self.abstains or self.promise.of != "risk":
            return ""
        majority = self.evidence.get("majority") or {}
        return majority_words(majority, self.class_names, self.promised, self.threshold.risk.value)

    @property
    def limits(self) -> Doubles:
        """The thresholds as numbers: one, one per group in the order of `group_names`, or one per class (and group)."""
        return np.array([threshold.value for threshold in self.parts.values()])

    @property
    def parts(self) -> dict[str, Threshold]:
        """The thresholds by what they are for: all answers, whose name is empty, or each group or class."""
        if self.classes is not None:
            return {part.name(self.class_names): part.threshold for part in self.classes}
        return {"": self.threshold} if self.groups is None else dict(self.groups)

    @property
    def part_column(self) -> str | None:
        """What the thresholds are by: the group column, the predicted class, or both; None where there is one."""
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
        numbers = {name: number for number, name in enumerate(self.group_names or ())}
        table = np.full((max(1, len(numbers)), self.num_classes), np.inf)
        for part in self.classes or ():
            table[0 if part.group is None else numbers[part.group], part.label] = part.threshold.value
        return table

    def limits_of(self, groups: Array, predicted: Array) -> Doubles:
        """The threshold of each sample, by the name of its group and the class that it is predicted to have."""
        if self.classes is None and self.groups is None:
            return np.full(len(predicted), self.threshold.value)
        numbers = {name: number for number, name in enumerate(self.group_names or ("",))}
        table = self.limits[:, None] if self.classes is None else self.class_limits
        table = np.append(table, np.full((1, table.shape[1]), np.inf), axis=0)
        names = groups if self.group_names is not None else [""] * len(predicted)
        rows = [numbers.get(str(name), -1) for name in names]
        limits: Doubles = table[rows, 0 if self.classes is None else predicted]
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
        threshold, unit = self.threshold, "pixels" if self.kind == "segmentation" else "samples"
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
            parts = () if self.classes is None else self.classes
            return promise_words(
                self.promise, parts, threshold, self.class_names, self.group, self.target_risk, self.confidence
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
        unit = "pixels" if self.kind == "segmentation" else "samples"
        calibration = self.evidence.get("calibration") or {}
        return calibration_words(calibration, unit=unit, repaired=self.calibrator is not None)

    @property
    def calibration_warning(self) -> str:
        """That its confidence is still poorly calibrated, and what would be better; empty where it is not."""
        return calibration_warning(self.evidence.get("calibration") or {}, repaired=self.calibrator is not None)


class Decision(NamedTuple, Generic[V]):
    """The outputs of the formula, ``[n, 1]`` each, the probabilities ``[n, C]``.

    ``accept`` tells whether the score reaches the threshold, ``limit``; confidence and probabilities are calibrated.
    """

    label: V
    confidence: V
    accept: V
    probabilities: V
    score: V
    limit: V


def decision(rule: Rule, ops: Ops[V], values: V, group: V | None = None) -> Decision[V]:
    """The formula of a policy.

    Args:
        rule: the policy.
        ops: what computes or draws.
        values: ``[n, C]`` float64, logits or probabilities as the policy takes them.
        group: ``[n, 1]`` float64, the number of each row's group, where there is a threshold for each; a number that
            no group has is never accepted.
    """
    z = values
    if rule.takes == "probabilities":
        z = ops.log(ops.maximum(values, ops.constant(rule.floor)))
    calibrated = z if rule.calibrator is None else rule.calibrator.apply(ops, z)
    # Where a calibrator keeps the order, its rounding must not make ties.
    ranked = z if rule.calibrator is None or rule.calibrator.keeps_order else calibrated
    probabilities = softmax(ops, calibrated)
    zero = ops.constant(0.0)
    ranked, score = rule.promise.rank(ops, ranked, probabilities)
    confidence = ops.total(ops.where(ops.predicted(ranked), probabilities, zero))
    # Logits that are not finite have no confidence, and are not accepted by any threshold, not even by "everything".
    score = ops.where(
        ops.greater_equal(confidence, zero),
        rule.score.apply(ops, z, calibrated) if score is None else score,
        ops.constant(float("nan")),
    )
    limit = _limit(rule, ops, ranked, group)
    accept = ops.greater_equal(score, limit)
    if rule.promise.of == "recall":  # whoever reaches the threshold is answered as the class, likelier ones or not
        answer = np.arange(rule.num_classes)[None] == rule.promise.label
        ranked = ops.where(accept, ops.constant(answer), ranked)
        confidence = ops.total(ops.where(ops.predicted(ranked), probabilities, zero))
    return Decision(ops.argmax(ranked), confidence, accept, probabilities, score, limit)


def _limit(rule: Rule, ops: Ops[V], ranked: V, group: V | None) -> V:
    """The threshold of each row, ``[n, 1]`` or ``[1]``."""
    if rule.classes is None and group is None:
        return ops.constant(rule.limits[0])
    # By column the thresholds of all groups; a number that is not of a group finds the infinite ones at either end.
    table = rule.limits[:, None] if rule.classes is None else rule.class_limits
    if group is None:
        limits = ops.constant(table)
    else:
        groups, columns = table.shape
        knots = np.repeat(np.arange(groups + 1, dtype=np.float64)[None], columns, axis=0)
        ends = np.full((columns, 1), np.inf)
        numbers = group if columns == 1 else ops.add(group, ops.constant(np.zeros((1, columns))))
        limits = ops.lookup(numbers, knots, np.concatenate([ends, table.T, ends], axis=1))
    return limits if rule.classes is None else ops.total(ops.where(ops.predicted(ranked), limits, ops.constant(0.0)))


def decide(rule: Rule, logits: Any, groups: Any = None) -> Decisions[Any]:
    """The decisions about an array ``[N, C]`` or ``[N, C, ...]``, as `Policy.decide` gives them."""
    z = checked_values(rule, logits)
    numbers = _group_numbers(rule, groups, len(z))
    parts, start = [], 0
    for part in cache_chunks(z):
        check_finite(part)
        rows = class_rows(part).astype(np.float64)
        group = None
        if numbers is not None:
            group = np.repeat(numbers[start : start + len(part)], len(rows) // len(part))[:, None]
        label, confidence, accept, *_ = decision(rule, NumpyOps(), rows, group)
        parts.append([column.reshape(len(part), *part.shape[2:]) for column in (label, confidence, accept)])
        start += len(part)
    columns = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Decisions(*(given_back(column, logits, np.float64) for column in columns))


def checked_values(rule: Rule, values: Any) -> Array:
    """An array of what the policy takes, checked; one column of two classes is widened."""
    array, _ = as_numpy(rule.takes, values)
    if rule.num_classes == 2 and is_one_column(rule.takes, array.shape):
        if rule.positive is None:
            classes = listing(rule.class_names or (), 2)
            raise ValueError(
                f"the policy is for two classes, {classes}, and does not say of which one column is: give both"
            )
        values = widen(rule.takes, array, rule.positive)
    z = as_logits(values, rule.takes)
    if z.shape[1] != rule.num_classes:
        raise ValueError(f"the policy is for {rule.num_classes} classes, got {rule.takes} of {z.shape[1]}")
    if (z.ndim > 2) != (rule.kind == "segmentation"):
        raise ValueError(f"the policy is for {rule.kind}, got {rule.takes} {list(z.shape)}")
    if rule.takes == "probabilities":
        off = np.abs(z.sum(1, dtype=np.float64) - 1).max()
        if float(z.min()) < 0 or not float(off) <= FARTHEST_SUM:
            low, high = float(z.min()), float(z.max())
            actual = (
                "NaN" if math.isnan(low) else f"values from {low:.4g} to {high:.4g} with sums off by up to {off:.4g}"
            )
            raise ValueError(f"the policy takes probabilities, in 0..1 and summing to 1 over the classes, got {actual}")
    return z


def _group_numbers(rule: Rule, groups: Any, rows: int) -> Doubles | None:
    """Each row's group by its position in the list, -1 for an unknown group."""
    if rule.group_names is None:
        if groups is not None:
            raise ValueError("groups are given, but the policy has one threshold for all")
        return None
    if groups is None:
        raise ValueError(f"groups are needed: the policy has a threshold for every {rule.group}")
    names = np.asarray(groups)
    if names.dtype.kind == "f":
        raise ValueError("groups must be whole numbers or text, got floating point")
    if names.shape != (rows,):
        raise ValueError(f"groups must be [{rows}], one for each sample, got {list(names.shape)}")
    numbers = {name: number for number, name in enumerate(rule.group_names)}
    distinct, inverse = np.unique(names.astype(str), return_inverse=True)
    return np.array([numbers.get(name, -1) for name in distinct.tolist()], dtype=np.float64)[inverse]
