"""The formula by which a policy answers or abstains, and the decisions that it makes of arrays.

The formula is written once, in `Ops`: NumPy and PyTorch compute it, ONNX draws it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np

from calibrant.base.arrays import Array, as_kind_of, as_numpy, cache_chunks, class_rows
from calibrant.base.checks import FARTHEST_SUM, Ints, as_logits, check_finite, listing
from calibrant.posthoc import NumpyOps, Ops, softmax
from calibrant.predictions import is_one_column, widen

if TYPE_CHECKING:
    from calibrant.policy.policy import Policy

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


def decision_formula(policy: Policy, ops: Ops[V], values: V, group: V | None = None) -> Decision[V]:
    """The formula of a policy, by which it answers or abstains.

    Args:
        policy: what decides.
        ops: what computes or draws.
        values: ``[n, C]`` float64, logits or probabilities as the policy takes them.
        group: ``[n, 1]`` float64, the number of each row's group, where there is a threshold for each; a number that
            no group has is never accepted.
    """
    z, calibrated = logits_formula(policy, ops, values)
    # Where a calibrator keeps the order, its rounding must not make ties.
    ranked = z if policy.calibrator is None or policy.calibrator.keeps_order else calibrated
    probabilities = softmax(ops, calibrated)
    zero = ops.constant(0.0)
    ranked, score = policy.promise.rank(ops, ranked, probabilities)
    confidence = ops.total(ops.where(ops.predicted(ranked), probabilities, zero))
    # Logits that are not finite have no confidence, and are not accepted by any threshold, not even by "everything".
    score = ops.where(
        ops.greater_equal(confidence, zero),
        policy.score.apply(ops, z, calibrated) if score is None else score,
        ops.constant(float("nan")),
    )
    limit = _limit(policy, ops, ranked, group)
    accept = ops.greater_equal(score, limit)
    if policy.promise.answer is not None:  # whatever reaches the threshold gets it, likelier ones or not
        answer = np.arange(policy.num_classes)[None] == policy.promise.answer
        ranked = ops.where(accept, ops.constant(answer), ranked)
        confidence = ops.total(ops.where(ops.predicted(ranked), probabilities, zero))
    return Decision(ops.argmax(ranked), confidence, accept, probabilities, score, limit)


def logits_formula(policy: Policy, ops: Ops[V], values: V) -> tuple[V, V]:
    """The logits ``[n, C]`` of what a policy takes, as they come and calibrated."""
    z = values if policy.takes == "logits" else ops.log(ops.maximum(values, ops.constant(policy.floor)))
    return z, z if policy.calibrator is None else policy.calibrator.apply(ops, z)


def _limit(policy: Policy, ops: Ops[V], ranked: V, group: V | None) -> V:
    """The threshold of each row, ``[n, 1]`` or ``[1]``."""
    if policy.classes is None and group is None:
        return ops.constant(policy.limits[0])
    # A row per group; a number that belongs to no group falls on the infinite thresholds at either end.
    table = policy.limit_table
    if group is None:
        limits = ops.constant(table)
    else:
        groups, columns = table.shape
        knots = np.repeat(np.arange(groups + 1, dtype=np.float64)[None], columns, axis=0)
        ends = np.full((columns, 1), np.inf)
        numbers = group if columns == 1 else ops.add(group, ops.constant(np.zeros((1, columns))))
        limits = ops.lookup(numbers, knots, np.concatenate([ends, table.T, ends], axis=1))
    return limits if policy.classes is None else ops.total(ops.where(ops.predicted(ranked), limits, ops.constant(0.0)))


def decide(policy: Policy, logits: Any, groups: Any = None) -> Decisions[Any]:
    """The decisions about an array ``[N, C]`` or ``[N, C, ...]``, as `Policy.decide` gives them."""
    z = check_input(policy, logits)
    parts = [answer[:3] for _, answer in decision_chunks(policy, z, _group_numbers(policy, groups, len(z)))]
    columns = (np.concatenate(column).reshape(len(z), *z.shape[2:]) for column in zip(*parts, strict=True))
    return Decisions(*(as_kind_of(logits, column, keep_precision=True) for column in columns))


def decision_chunks(policy: Policy, values: Array, groups: Ints | None = None) -> Iterator[tuple[slice, Decision[Any]]]:
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
        yield samples, decision_formula(policy, NumpyOps(), rows, group)
        start += len(part)


def check_input(policy: Policy, values: Any) -> Array:
    """An array of what the policy takes, checked; one column of two classes is widened."""
    array, _ = as_numpy(policy.takes, values)
    if policy.num_classes == 2 and is_one_column(policy.takes, array.shape):
        if policy.positive is None:
            classes = listing(policy.class_names or (), 2)
            raise ValueError(
                f"the policy is for two classes, {classes}, and does not say which one a single column is of: give both"
            )
        values = widen(policy.takes, array, policy.positive)
    z = as_logits(values, policy.takes)
    if z.shape[1] != policy.num_classes:
        raise ValueError(f"the policy is for {policy.num_classes} classes, got {policy.takes} of {z.shape[1]}")
    if (z.ndim > 2) != (policy.kind == "segmentation"):
        raise ValueError(f"the policy is for {policy.kind}, got {policy.takes} {list(z.shape)}")
    if policy.takes == "probabilities":
        off = np.abs(z.sum(1, dtype=np.float64) - 1).max()
        if float(z.min()) < 0 or not float(off) <= FARTHEST_SUM:
            low, high = float(z.min()), float(z.max())
            span = f"values from {low:.4g} to {high:.4g} with sums off by up to {off:.4g}"
            actual = "NaN" if math.isnan(low) else span
            raise ValueError(f"the policy takes probabilities, in 0..1 and summing to 1 over the classes, got {actual}")
    return z


def _group_numbers(policy: Policy, groups: Any, rows: int) -> Ints | None:
    """Each row's group by its position in the list, -1 for an unknown group."""
    if policy.group_names is None:
        if groups is not None:
            raise ValueError("groups are given, but the policy has one threshold for all")
        return None
    if groups is None:
        raise ValueError(f"groups are needed: the policy has a threshold for every {policy.group}")
    names = np.asarray(groups)
    if names.dtype.kind == "f":
        raise ValueError("groups must be whole numbers or text, got floating point")
    if names.shape != (rows,):
        raise ValueError(f"groups must be [{rows}], one for each sample, got {list(names.shape)}")
    return policy.group_numbers(names)
