"""The rule behind a policy: what it consists of, and the formula by which it answers or abstains.

The formula is written once, in `Ops`: NumPy and PyTorch compute it, ONNX draws it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from calibrant.base.arrays import Array, as_kind_of, as_numpy, cache_chunks, class_rows
from calibrant.base.checks import FARTHEST_SUM, Ints, as_logits, check_finite, listing
from calibrant.metrics import Doubles
from calibrant.posthoc import Calibrator, NumpyOps, Ops, softmax
from calibrant.posthoc.scores import Score
from calibrant.predictions import FLOOR, class_name, is_one_column, widen
from calibrant.promises.promise import Promise
from calibrant.promises.sets import PredictionSets
from calibrant.promises.thresholds import ClassThreshold, Threshold

A = TypeVar("A")
V = TypeVar("V")


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
        names = [self.group, None if self.classes is None else "predicted class"]
        return " and ".join(name for name in names if name is not None) or None

    @property
    def group_names(self) -> tuple[str, ...] | None:
        """The groups with thresholds of their own."""
        if self.classes is not None and self.group is not None:
            return tuple(dict.fromkeys(str(part.group) for part in self.classes))
        return None if self.groups is None else tuple(self.groups)

    @property
    def limit_table(self) -> Doubles:
        """The thresholds by group, of which there may be one, and class ``[groups, C]``, or ``[groups, 1]`` for all."""
        return self.limits[:, None] if self.classes is None else np.append(self.limits, np.inf)[self._class_parts]

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
        rows = np.zeros(len(predicted), np.int64)
        if groups is not None and self.group_names is not None:
            rows = self.group_numbers(groups)
        if self.classes is None:
            return rows
        return np.append(self._class_parts, np.full((1, self.num_classes), -1), axis=0)[rows, predicted]

    def limits_of(self, groups: Array, predicted: Ints) -> Doubles:
        """The threshold of each sample, by the name of its group and the class that it is predicted to have."""
        return np.append(self.limits, np.inf)[self.part_numbers(groups, predicted)]

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


def decision_formula(rule: Rule, ops: Ops[V], values: V, group: V | None = None) -> Decision[V]:
    """The formula of a policy, by which it answers or abstains.

    Args:
        rule: the policy.
        ops: what computes or draws.
        values: ``[n, C]`` float64, logits or probabilities as the policy takes them.
        group: ``[n, 1]`` float64, the number of each row's group, where there is a threshold for each; a number that
            no group has is never accepted.
    """
    z, calibrated = logits_formula(rule, ops, values)
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
    if rule.promise.of == "recall":  # whatever reaches the threshold is answered as the class, likelier ones or not
        answer = np.arange(rule.num_classes)[None] == rule.promise.label
        ranked = ops.where(accept, ops.constant(answer), ranked)
        confidence = ops.total(ops.where(ops.predicted(ranked), probabilities, zero))
    return Decision(ops.argmax(ranked), confidence, accept, probabilities, score, limit)


def logits_formula(rule: Rule, ops: Ops[V], values: V) -> tuple[V, V]:
    """The logits ``[n, C]`` of what a policy takes, as they come and calibrated."""
    z = values if rule.takes == "logits" else ops.log(ops.maximum(values, ops.constant(rule.floor)))
    return z, z if rule.calibrator is None else rule.calibrator.apply(ops, z)


def _limit(rule: Rule, ops: Ops[V], ranked: V, group: V | None) -> V:
    """The threshold of each row, ``[n, 1]`` or ``[1]``."""
    if rule.classes is None and group is None:
        return ops.constant(rule.limits[0])
    # A row per group; a number that belongs to no group falls on the infinite thresholds at either end.
    table = rule.limit_table
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
    z = check_input(rule, logits)
    parts = [answer[:3] for _, answer in decision_chunks(rule, z, _group_numbers(rule, groups, len(z)))]
    columns = (np.concatenate(column).reshape(len(z), *z.shape[2:]) for column in zip(*parts, strict=True))
    return Decisions(*(as_kind_of(logits, column, keep_precision=True) for column in columns))


def decision_chunks(rule: Rule, values: Array, groups: Ints | None = None) -> Iterator[tuple[slice, Decision[Any]]]:
    """The formula on an array ``[N, C]`` or ``[N, C, ...]``, some samples at a time, each time with which they are.

    Values that are not finite are a ValueError; ``groups`` is the number of each sample's group, ``[N]``.
    """
    start = 0
    for part in cache_chunks(values):
        check_finite(part)
        rows, samples = class_rows(part).astype(np.float64), slice(start, start + len(part))
        group = None
        if groups is not None:
            group = np.repeat(groups[samples].astype(np.float64), len(rows) // len(part))[:, None]
        yield samples, decision_formula(rule, NumpyOps(), rows, group)
        start += len(part)


def check_input(rule: Rule, values: Any) -> Array:
    """An array of what the policy takes, checked; one column of two classes is widened."""
    array, _ = as_numpy(rule.takes, values)
    if rule.num_classes == 2 and is_one_column(rule.takes, array.shape):
        if rule.positive is None:
            classes = listing(rule.class_names or (), 2)
            raise ValueError(
                f"the policy is for two classes, {classes}, and does not say which one a single column is of: give both"
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
            span = f"values from {low:.4g} to {high:.4g} with sums off by up to {off:.4g}"
            actual = "NaN" if math.isnan(low) else span
            raise ValueError(f"the policy takes probabilities, in 0..1 and summing to 1 over the classes, got {actual}")
    return z


def _group_numbers(rule: Rule, groups: Any, rows: int) -> Ints | None:
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
    return rule.group_numbers(names)
