r"""Groups of equal score: the one table that every metric of (score, correct) is a function of.

A group is a score, the number of predictions that have it, how many of those are wrong, and the sums of their
confidences. Exact values have one group for each distinct score, a sketch has one for each cell; a weight makes counts
real numbers, and bootstrap replicates are further rows of counts, ``[R, G]``. So each metric is one function of a
table, and its value, its bound, its replicates and its weighted value are calls of it.

Within a group of n predictions with e errors that follows n_0 predictions with E_0 errors, the risks of its members in
random order add up to

.. math:: \sum_{j=1}^{n} \frac{E_0 + j e/n}{n_0 + j} = E_0 D + \frac{e}{n} J, \qquad
          D = \sum_{j=1}^{n} \frac{1}{n_0 + j}, \quad J = \sum_{j=1}^{n} \frac{j}{n_0 + j} = n - n_0 D

in expectation. D is a difference of harmonic numbers, psi(n_0 + n + 1) - psi(n_0 + 1), which real numbers have as well.
Neither D nor J is computed as a difference of large numbers, so that a small tie after 1e8 predictions is as exact as
the first one.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from calibrant.base.arrays import Array, ArrayLike, Doubles, Precision, in_threads, row_slices
from calibrant.base.checks import Bools, Floats, Ints, check_choice, check_numbers, check_scores, check_within

Ties: TypeAlias = Literal["expected", "optimistic", "pessimistic", "together", "order"]
TIES = ("expected", "optimistic", "pessimistic", "together", "order")

ROWS = 1 << 13  # groups at a time: what is computed of them stays in the cache
#: From here on the asymptotic series of the harmonic numbers has every digit of float64.
NEAR = 32

Scalar = TypeVar("Scalar", bound=np.number[Any])
F = TypeVar("F", bound=Callable[..., Any])

#: Every metric that is a function of a table, by name; `measured` fills it.
FUNCTIONS: dict[str, Callable[..., Any]] = {}


def measured(function: F) -> F:
    """Register a metric that takes `Groups` in place of its first argument: sketches and intervals then have it."""
    FUNCTIONS[function.__name__] = function
    return function


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups of equal score, from the most to the least trusted; counts ``[G]``, or ``[R, G]`` of replicates.

    Attributes:
        score: ``[G]``; of cells, the middle.
        count: predictions of each group, or the sum of their weights.
        errors: the same of the wrong ones.
        confidence: sums of the confidences; None where they are score times count.
        error_confidence: the same of the wrong ones.
        base: ``[G]`` the base bin of `grid` that each group lies in, where it is known.
        low: ``[G]`` the least score that a member of a group may have; None if the members of each are equal.
        precision: the type that the scores came in, to which the edges of bins are rounded.
        together: whether members of a group are accepted all at once, instead of in expected order.
        unit: ``[G]`` of right predictions with weights, the sum of their squares over their sum: as many predictions of
            one weight each would be as certain. None if all count as 1.
        error_unit: the same of wrong ones.
    """

    score: Doubles
    count: Array
    errors: Array
    confidence: Doubles | None = None
    error_confidence: Doubles | None = None
    base: Ints | None = None
    low: Doubles | None = None
    precision: Precision = "float64"
    together: bool = False
    unit: Doubles | None = None
    error_unit: Doubles | None = None

    @functools.cached_property
    def size(self) -> Any:
        """How many predictions there are, ``[]`` or ``[R]``."""
        return self.count.sum(-1)

    @property
    def is_replicated(self) -> bool:
        """Whether there is a row of counts for each of several replicates."""
        return self.count.ndim > 1

    @property
    def is_whole(self) -> bool:
        """Whether predictions are counted one by one, without weights or replicates."""
        return self.count.dtype.kind == "i" and not self.is_replicated

    @property
    def whole(self) -> Ints:
        """Counts, or how many predictions of equal weight would be as certain as those of each group."""
        squares = self.squares
        return self.count if squares is None else np.rint(_ratio(np.square(self.count), squares)).astype(np.int64)

    @property
    def squares(self) -> Doubles | None:
        """Sums of squared weights; None where all count as 1."""
        if self.unit is None or self.error_unit is None:
            return None
        squares: Doubles = self.unit * (self.count - self.errors) + self.error_unit * self.errors
        return squares

    @property
    def sure(self) -> Doubles:
        """Sums of the confidences."""
        return self.score * self.count if self.confidence is None else self.confidence

    @property
    def sure_errors(self) -> Doubles:
        """Sums of the confidences of the wrong predictions."""
        return self.score * self.errors if self.error_confidence is None else self.error_confidence

    def with_ties(self, ties: Ties) -> Groups:
        """The groups, without empty ones, as a rule for ties sees them: right or wrong first makes a tie two groups."""
        if ties in ("optimistic", "pessimistic"):
            return self.split(np.ones(len(self.score), np.bool_), right_first=ties == "optimistic").filled()
        return replace(self.filled(), together=ties == "together")

    def split(self, which: Bools, *, right_first: bool) -> Groups:
        """Some of the groups as two each, of right and of wrong predictions; their order is all that is kept."""
        errors_alone = np.where(which, self.errors, 0)
        first = self.count - errors_alone if right_first else np.where(which, self.errors, self.count)
        wrong_of_first = self.errors - errors_alone if right_first else self.errors
        count = np.stack([first, self.count - first], -1).reshape(*self.count.shape[:-1], -1)
        errors = np.stack([wrong_of_first, self.errors - wrong_of_first], -1).reshape(count.shape)
        return Groups(np.repeat(self.score, 2), count, errors)

    def filled(self) -> Groups:
        """The groups, ``[G]``, that hold something."""
        if self.count.all():
            return self
        at = np.flatnonzero(self.count)
        if not len(at):
            raise ValueError("count must have at least one group with predictions, got none")
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        rows: dict[str, Any] = {name: part[at] for name, part in columns.items() if isinstance(part, np.ndarray)}
        return replace(self, **rows)

    @functools.cached_property
    def running(self) -> tuple[Array, Array]:
        """Predictions and errors of each group and all before it."""
        return self.count.cumsum(-1), self.errors.cumsum(-1)

    @functools.cached_property
    def risks(self) -> Doubles:
        """The error rate of each group and all before it together; NaN before the first one that holds something."""
        accepted, errors = self.running
        with np.errstate(invalid="ignore", divide="ignore"):
            risks: Doubles = errors / accepted
        return risks

    @functools.cached_property
    def total_risk(self) -> Any:
        """The sum of the selective risks over all members of all groups."""
        return _sum_of_risks(self)

    def merged(self, begin: Ints) -> Groups:
        """Consecutive groups put together, of which each run begins at one of these indices."""
        count, errors, sure, sure_errors = (
            np.add.reduceat(part, begin, -1) for part in (self.count, self.errors, self.sure, self.sure_errors)
        )
        score = np.divide(sure, count, out=self.score[begin].copy(), where=count > 0)
        base = None if self.base is None else self.base[begin]
        units: dict[str, Any] = {}
        if self.unit is not None and self.error_unit is not None:
            right = np.add.reduceat(self.unit * (self.count - self.errors), begin, -1)
            wrong = np.add.reduceat(self.error_unit * self.errors, begin, -1)
            units = {"unit": _ratio(right, count - errors), "error_unit": _ratio(wrong, errors)}
        return Groups(score, count, errors, sure, sure_errors, base, precision=self.precision, **units)

    def with_counts(self, right: Array, wrong: Array) -> Groups:
        """Replicates ``[R, G]``: the same groups with other numbers of right and wrong predictions of the same kind."""
        of_right = _ratio(self.sure - self.sure_errors, self.count - self.errors)
        of_wrong = _ratio(self.sure_errors, self.errors)
        right, wrong = right.astype(np.float64), wrong.astype(np.float64)
        sure_errors = wrong * of_wrong
        return replace(
            self, count=right + wrong, errors=wrong, confidence=right * of_right + sure_errors,
            error_confidence=sure_errors,
        )  # fmt: skip


def _ratio(sums: Doubles, counts: Array) -> Doubles:
    return np.divide(sums, counts, out=np.zeros(sums.shape), where=counts > 0)


def as_groups(
    score: Any,
    correct: ArrayLike | None,
    weight: ArrayLike | None = None,
    *,
    name: str = "score",
    ties: Ties = "expected",
) -> Groups:
    """The table that a metric is called with, or that of its arrays, as the rule for ties sees it."""
    check_choice("ties", ties, TIES)
    if isinstance(score, Groups):
        return score if ties == "expected" or score.is_replicated else score.with_ties(ties)
    (values, precision), correct = check_scores(score, correct, name=name)
    weights = check_weight(weight, len(values))
    if ties == "order":
        order = np.argsort(-values, kind="stable")
        count = np.ones(len(values), np.int64) if weights is None else weights[order]
        return Groups(values[order].astype(np.float64), count, count * ~correct[order]).filled()
    groups = replace(group_by_score(values, correct, weights), precision=precision)
    return groups if ties == "expected" else groups.with_ties(ties)


def check_weight(weight: ArrayLike | None, size: int) -> Doubles | None:
    """Weights ``[N]`` scaled to mean 1; None if there are none, or all are the same, which changes nothing."""
    if weight is None:
        return None
    values = check_numbers("weight", weight).values.reshape(-1).astype(np.float64)
    if len(values) != size:
        raise ValueError(f"weight must have a number for each of {size} samples, got {len(values)}")
    check_within("weight", values, 0.0, np.inf, "finite and at least 0")
    largest = values.max()
    if not largest > 0:
        raise ValueError("weight must be above 0 for some samples, got 0 everywhere")
    if values.min() == largest:
        return None
    values /= largest  # so that their sum is finite
    return values / values.mean()


def result(values: Any) -> Any:
    """A metric of one table as a float, of replicates as an array ``[R]``."""
    return values if np.ndim(values) else float(values)


def group_by_score(score: Floats, correct: Bools, weight: Doubles | None = None) -> Groups:
    """Group predictions by equal score."""
    if weight is not None:
        return _group_weighted(score.astype(np.float64), correct, weight)
    if score.min() >= 0:
        above = _group_rising(score, correct)
        return Groups(above[0][::-1], above[1][::-1], above[2][::-1])
    negative = score < 0
    below = _group_rising(-score[negative], correct[negative])
    if negative.all():
        return Groups(-below[0], *below[1:])
    above = _group_rising(score[~negative], correct[~negative])
    count, errors = (np.concatenate([above[i][::-1], below[i]]) for i in (1, 2))
    return Groups(np.concatenate([above[0][::-1], -below[0]]), count, errors)


def _group_weighted(score: Doubles, correct: Bools, weight: Doubles) -> Groups:
    order = np.argsort(-score)
    score, weight, wrong = score[order], weight[order], ~correct[order]
    begin = np.flatnonzero(np.diff(score, prepend=np.inf) != 0)
    return Groups(score[begin], np.add.reduceat(weight, begin), np.add.reduceat(weight * wrong, begin)).filled()


def _group_rising(score: Floats, correct: Bools) -> tuple[Doubles, Ints, Ints]:
    """Scores that are not negative, the lowest first, their counts and their errors.

    The bits of such floats order as whole numbers do, and leave the highest bit free. Moved up by one, they make room
    for the error at the other end, so that one plain sort, much faster than one with an index, does everything; and one
    of float32 takes half the time.
    """
    keys: Any = np.add(score, 0, dtype=score.dtype)  # adding 0 makes -0.0 the same score as 0.0
    keys = keys.view(np.uint32 if score.itemsize == 4 else np.uint64)
    keys <<= 1
    np.bitwise_or(keys, ~correct, out=keys)
    keys.sort()
    is_first = np.empty(len(keys), dtype=np.bool_)
    is_first[0] = True

    def compare(rows: slice) -> None:
        np.not_equal(keys[1:][rows], keys[:-1][rows], out=is_first[1:][rows])

    for _ in in_threads(compare, row_slices(len(keys) - 1, 1)):
        pass
    if is_first.all():  # the usual case of many samples, which saves two large arrays
        number = np.ones(len(keys), dtype=np.int64)
    else:
        start = np.flatnonzero(is_first)
        number = np.diff(start, append=len(keys))
        keys = keys[start]
    is_wrong = (keys & 1).astype(np.int64)
    keys >>= 1
    values, errors = keys.view(score.dtype).astype(np.float64), number * is_wrong
    # A score that has right and wrong predictions has two keys, of which the second is added to the first.
    is_second = np.append(False, keys[1:] == keys[:-1])
    second = np.flatnonzero(is_second)
    if not len(second):
        return values, number, errors
    group, begin = second - 1 - np.arange(len(second)), ~is_second
    values, added, added_errors = values[begin], number[second], errors[second]
    number, errors = number[begin], errors[begin]
    number[group] += added
    errors[group] += added_errors
    return values, number, errors


def _sum_of_risks(groups: Groups) -> Any:
    count, errors, risk = groups.count, groups.errors, groups.risks
    accepted, accepted_errors = groups.running
    with np.errstate(invalid="ignore", divide="ignore"):  # of groups that hold nothing, which are left out
        if groups.together:
            return np.where(count > 0, count * risk, 0.0).sum(-1)
    if groups.is_replicated:
        # Replicates only scatter about a value: the leading term of the series will do.
        before = accepted - count
        inverse = np.log((accepted + 0.5) / (before + 0.5))
        rate = np.divide(errors, count, out=np.zeros(count.shape), where=count > 0)
        return (inverse * (accepted_errors - errors - before * rate) + errors).sum(-1)
    is_single = (count == 1) & groups.is_whole
    total = float(risk.sum(where=is_single))
    at = np.flatnonzero(~is_single & (count > 0))

    def sum_ties(rows: slice) -> float:
        tied, wrong = count[at[rows]], errors[at[rows]]
        inverse, ramp = harmonic(accepted[at[rows]] - tied, tied)
        return float(((accepted_errors[at[rows]] - wrong) * inverse + wrong / tied * ramp).sum())

    return total + sum(in_threads(sum_ties, row_slices(len(at), 1, ROWS)))


def harmonic(before: Array, count: Array) -> tuple[Doubles, Doubles]:
    """D and J above, to a few units in the last place, for arrays of n_0 and n."""
    if count.dtype.kind == "f":
        return _harmonic_of_weights(before, count)
    base = np.maximum(before, NEAR)
    inverse, ramp = _far(base.astype(np.float64), np.maximum(before + count - base, 0).astype(np.float64))
    for i in np.flatnonzero(before < NEAR):  # of consecutive groups, NEAR at most
        start, end = int(before[i]), min(int(before[i] + count[i]), NEAR)
        ramp[i] += (NEAR - start) * inverse[i] + math.fsum((j - start) / j for j in range(start + 1, end + 1))
        inverse[i] += math.fsum(1 / j for j in range(start + 1, end + 1))
    return inverse, ramp


def _harmonic_of_weights(before: Doubles, count: Doubles) -> tuple[Doubles, Doubles]:
    """The same of real numbers, to some 1e-13."""
    from scipy.special import digamma  # here, because it takes long to import

    inverse, ramp = _far(np.maximum(before, NEAR), count)
    near = np.flatnonzero(before < NEAR)
    start, number = before[near], count[near]
    inverse[near] = digamma(start + number + 1) - digamma(start + 1)
    ramp[near] = number - start * inverse[near]
    return inverse, ramp


def _far(before: Doubles, count: Doubles) -> tuple[Doubles, Doubles]:
    """D and J for n_0 >= NEAR, from H(m) = gamma + log x + c(x) with x = m + 1/2 and c(x) = 1/(24 x^2) - ...

    With u = n / x: D = log1p(u) + c(x + n) - c(x) and J = x (u - log1p(u)) + x (c(x) - c(x + n)) + D / 2, all three
    terms positive.
    """
    x = before + 0.5
    u = count / x
    step = _correction(x) - _correction(x + count)
    log = np.log1p(u)
    inverse = log - step
    # u - log1p(u) by its series in v = u / (2 + u), where log1p(u) = 2 artanh(v) and u - 2 v = u v.
    v = u / (2 + u)
    p = v * v
    odd = p * (1 / 3 + p * (1 / 5 + p * (1 / 7 + p * (1 / 9 + p * (1 / 11 + p * (1 / 13 + p / 15))))))
    excess = v * (u - 2 * odd)
    wide = np.flatnonzero(u > 0.25)
    excess[wide] = u[wide] - log[wide]
    return inverse, x * (excess + step) + inverse / 2


def _correction(x: Doubles) -> Doubles:
    """The asymptotic series of digamma(x + 1/2) - log(x); its next term is below 1e-19 for x > NEAR."""
    y = 1 / (x * x)
    return y * (1 / 24 - y * (7 / 960 - y * (31 / 8064 - y * (127 / 30720 - y * (511 / 67584)))))


def running_sums(values: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    """Sums over the first 0, 1, ..., G entries along the last axis, ``[..., G + 1]``."""
    sums = np.zeros((*values.shape[:-1], values.shape[-1] + 1), dtype=values.dtype)
    np.cumsum(values, axis=-1, out=sums[..., 1:])
    return sums
