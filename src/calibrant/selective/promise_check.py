"""Was a promise kept, by the losses of samples that the policy was not fitted on."""

from __future__ import annotations

import math

import numpy as np

from calibrant._validation import Ints
from calibrant.selective.bounds import binomial_tail, mean_tail, upper_limit
from calibrant.selective.promise import LossTally, Promise
from calibrant.selective.rule import Rule
from calibrant.selective.set_counts import coverage_p_value

LEVEL = 0.05  # of a verdict, shared by all parts


def break_p_value(promise: Promise, tally: LossTally, target: float) -> float:
    """The chance of so large a loss, or a larger one, where the mean loss is the target; 1 of no samples.

    Example:
        >>> from calibrant.selective.promise import Promise, LossTally
        >>> break_p_value(Promise(), LossTally(2, 2.0), 0.1)  # 0.1 ** 2
        0.01
    """
    if not tally.rows:
        return 1.0
    if promise.of == "cost":
        return mean_tail(tally.rows - tally.loss, tally.rows, 1 - target)
    without_loss = tally.rows - round(tally.loss)
    if promise.of == "expected-risk":
        # The share that a fit answers wrongly has the distribution Beta(m + 1, n - m), or a smaller one [Vovk2012].
        samples = 0 if promise.tally is None else promise.tally.rows
        rank = samples + 1 - math.floor(target * (samples + 1) * (1 + 1e-12))
        return coverage_p_value(without_loss, tally.rows, rank, samples) if 0 < rank <= samples else 1.0
    return float(binomial_tail(without_loss, tally.rows, 1 - target))


def is_shown(promise: Promise, tally: LossTally, target: float, level: float) -> bool:
    """Whether these samples alone show the promise at a level; an average over fits is shown by none."""
    if promise.of == "expected-risk" or not tally.rows:
        return False
    if promise.of == "cost":
        return mean_tail(tally.loss, tally.rows, target) <= level
    return upper_limit(round(tally.loss), tally.rows, level) <= target


def part_numbers(rule: Rule, groups: np.ndarray | None, predicted: Ints) -> Ints:
    """The place of each sample among the thresholds of classes, -1 where there is none for it."""
    names = {name: number for number, name in enumerate(rule.group_names or ())}
    table = np.full((max(1, len(names)) + 1, rule.num_classes), -1, np.int64)
    for number, part in enumerate(rule.classes or ()):
        table[0 if part.group is None else names[part.group], part.label] = number
    if groups is None or not names:
        return table[0, predicted]
    distinct, inverse = np.unique(np.asarray(groups).astype(str), return_inverse=True)
    rows = np.array([names.get(name, -1) for name in distinct.tolist()], dtype=np.int64)[inverse]
    return table[rows, predicted]
