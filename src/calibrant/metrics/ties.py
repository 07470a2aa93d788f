r"""Predictions grouped by equal score: all that ranking metrics depend on, and exact sums over the members of a tie.

A ranking metric needs only how many predictions each group has and how many of them are wrong. A group of n predictions
with e errors that follows n_0 predictions with E_0 errors adds

.. math:: \sum_{j=1}^{n} \frac{E_0 + j e/n}{n_0 + j} = E_0 D + \frac{e}{n} J, \qquad
          D = \sum_{j=1}^{n} \frac{1}{n_0 + j}, \quad J = \sum_{j=1}^{n} \frac{j}{n_0 + j} = n - n_0 D

to the sum of the risks when its members come in random order: that is the expected value. D is a difference of harmonic
numbers. Neither D nor J is computed as a difference of large numbers, so that a small tie after 1e8 predictions is
as exact as the first one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from calibrant._arrays import Doubles, in_threads, row_slices
from calibrant._validation import Bools, Floats, Ints, check_choice, check_number

Convention: TypeAlias = Literal["mean", "trapezoid", "trapezoid-first"]
Ties: TypeAlias = Literal["expected", "optimistic", "pessimistic", "together", "order"]
TIES = ("expected", "optimistic", "pessimistic", "together", "order")

ROWS = 1 << 13  # groups at a time: what is computed of them stays in the cache
#: From here on the asymptotic series of the harmonic numbers has every digit of float64.
NEAR = 32


@dataclass(frozen=True, eq=False)
class Groups:
    """The distinct scores, highest first, how many predictions have each, and how many of those are wrong.

    Members of a group come in expected order, or all at once if ``together``. What conventions and rules for ties mean
    is in `calibrant.metrics.selective`.
    """

    score: Doubles
    count: Ints
    errors: Ints
    together: bool = False

    def with_ties(self, ties: Ties) -> Groups:
        """The groups, without empty ones, as a rule for ties sees them: right or wrong first makes a tie two groups."""
        score, count, errors = self.score, self.count, self.errors
        if ties in ("optimistic", "pessimistic"):
            parts = np.stack([count - errors, errors], axis=1), np.stack([np.zeros_like(errors), errors], axis=1)
            order = slice(None, None, 1 if ties == "optimistic" else -1)
            count, errors = (part[:, order].reshape(-1) for part in parts)
            score = np.repeat(score, 2)
        if not count.all():
            filled = np.flatnonzero(count)
            score, count, errors = score[filled], count[filled], errors[filled]
        if not len(count):
            raise ValueError("count must have at least one group with predictions, got none")
        return Groups(score, count, errors, ties == "together")

    def aurc(self, convention: Convention = "mean") -> float:
        """Area under the risk-coverage curve."""
        accepted, accepted_errors = np.cumsum(self.count), np.cumsum(self.errors)
        if self.together:
            total = float((self.count * (accepted_errors / accepted)).sum())
        else:
            total = sum_of_risks(self.count, self.errors, accepted, accepted_errors)
        first_risk, last_risk = self.errors[0] / self.count[0], accepted_errors[-1] / accepted[-1]
        return _area(total, first_risk, last_risk, int(accepted[-1]), convention)

    def augrc(self, convention: Convention = "mean") -> float:
        """Area under the generalised risk-coverage curve."""
        size, accepted_errors = int(self.count.sum()), np.cumsum(self.errors)
        # Counts become float64 before they are multiplied: the product of two may not fit in int64.
        if self.together:
            total, first = float((self.count * accepted_errors.astype(np.float64)).sum()), self.errors[0]
        else:
            before = (accepted_errors - self.errors).astype(np.float64)
            total = float((self.count * before + self.errors * ((self.count + 1) / 2)).sum())
            first = self.errors[0] / self.count[0]
        return _area(total / size, first / size, accepted_errors[-1] / size, size, convention)

    def e_aurc(self, convention: Convention = "mean", optimum: Literal["exact", "asymptotic"] = "exact") -> float:
        """AURC beyond that of the best ordering."""
        check_choice("optimum", optimum, ("exact", "asymptotic"))
        area, size, errors = self.aurc(convention), int(self.count.sum()), int(self.errors.sum())
        if optimum == "asymptotic":
            rate = errors / size
            return area - (rate + (1 - rate) * math.log1p(-rate) if errors < size else 1.0)
        return max(0.0, area - best_aurc(size, errors, convention))

    def coverage_at_risk(self, risk: float) -> float:
        """The largest coverage whose selective risk is at most ``risk``, 0 if none."""
        risk = check_number("risk", risk, 0.0, 1.0)
        count, errors = self.count, self.errors
        accepted, accepted_errors = np.cumsum(count), np.cumsum(errors)
        # A quotient is rounded as the literal is: 1 error in 20 is at most 0.05.
        fits = accepted_errors / accepted <= risk
        if not self.together:
            # Within a tie the risk rises or falls steadily, so if any member fits, the first or the last one does. The
            # first one's risk is rounded more than once here, and looked at again below.
            fits |= (accepted_errors - errors + errors / count) / (accepted - count + 1) <= risk * (1 + 1e-12)
        for i in np.flatnonzero(fits)[::-1]:
            before, errors_before = int(accepted[i] - count[i]), int(accepted_errors[i] - errors[i])
            members = _members_within(risk, before, errors_before, int(count[i]), int(errors[i]))
            if members:
                return (before + members) / int(accepted[-1])
        return 0.0

    def risk_at_coverage(self, coverage: float) -> float:
        """The error rate of the most confident share ``coverage`` of the predictions."""
        coverage = check_number("coverage", coverage, 0.0, 1.0, open_low=True)
        accepted, accepted_errors = np.cumsum(self.count), np.cumsum(self.errors)
        size = smallest_count(coverage, int(accepted[-1]))
        at = int(np.searchsorted(accepted, size))
        end, errors, tied, tied_errors = (int(x[at]) for x in (accepted, accepted_errors, self.count, self.errors))
        if self.together:
            return errors / end
        return ((errors - tied_errors) * tied + (size - (end - tied)) * tied_errors) / (tied * size)


def group_by_score(score: Floats, correct: Bools) -> Groups:
    """Group predictions by equal score."""
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


def _group_rising(score: Floats, correct: Bools) -> tuple[Doubles, Ints, Ints]:
    """Scores that are not negative, the lowest first, their counts and their errors.

    The bits of such float64 order as whole numbers do, and leave the highest bit free. Moved up by one, they make room
    for the error at the other end, so that one plain sort, much faster than one with an index, does everything.
    """
    keys = np.add(score, 0.0, dtype=np.float64).view(np.uint64)  # adding 0 makes -0.0 the same score as 0.0
    keys <<= 1
    np.bitwise_or(keys, ~correct, out=keys)
    keys.sort()
    is_first = np.empty(len(keys), dtype=np.bool_)
    is_first[0] = True
    np.greater(keys[1:] ^ keys[:-1], 1, out=is_first[1:])
    errors = (keys & 1).view(np.int64)
    if is_first.all():  # the usual case of many samples, which saves three large arrays
        keys >>= 1
        return keys.view(np.float64), np.ones(len(keys), dtype=np.int64), errors
    start = np.flatnonzero(is_first)
    count = np.diff(start, append=len(keys))
    return (keys[start] >> 1).view(np.float64), count, np.add.reduceat(errors, start)


def sum_of_risks(count: Ints, errors: Ints, accepted: Ints, accepted_errors: Ints) -> float:
    """The sum of the risks over all members of all groups; the last two arguments are running sums of the first two."""
    is_single = count == 1
    total = float((accepted_errors / accepted).sum(where=is_single))
    at = np.flatnonzero(~is_single)

    def sum_ties(rows: slice) -> float:
        tied, wrong = count[at[rows]], errors[at[rows]]
        inverse, ramp = harmonic(accepted[at[rows]] - tied, tied)
        return float(((accepted_errors[at[rows]] - wrong) * inverse + wrong / tied * ramp).sum())

    return total + sum(in_threads(sum_ties, row_slices(len(at), 1, ROWS)))


def harmonic(before: Ints, count: Ints) -> tuple[Doubles, Doubles]:
    """D and J above, to a few units in the last place, for arrays of n_0 and n."""
    base = np.maximum(before, NEAR)
    inverse, ramp = _far(base.astype(np.float64), np.maximum(before + count - base, 0).astype(np.float64))
    for i in np.flatnonzero(before < NEAR):  # of consecutive groups, NEAR at most
        start, end = int(before[i]), min(int(before[i] + count[i]), NEAR)
        ramp[i] += (NEAR - start) * inverse[i] + math.fsum((j - start) / j for j in range(start + 1, end + 1))
        inverse[i] += math.fsum(1 / j for j in range(start + 1, end + 1))
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


def best_aurc(size: int, errors: int, convention: Convention = "mean") -> float:
    """`Groups.aurc` of the best ordering: every error last."""
    best = Groups(np.array([1.0, 0.0]), np.array([size - errors, errors]), np.array([0, errors]))
    return best.with_ties("expected").aurc(convention)


def _area(total: float, first: float, last: float, size: int, convention: Convention) -> float:
    """An area from the sum of all risks, the first and the last."""
    check_choice("convention", convention, ("mean", "trapezoid", "trapezoid-first"))
    if convention == "mean":
        return total / size
    if convention == "trapezoid":
        return (total - float(last) / 2) / size
    return (total - float(first) / 2 - float(last) / 2) / (size - 1) if size > 1 else total


def _members_within(risk: float, before: int, errors_before: int, count: int, errors: int) -> int:
    """The most members of a tie that can follow ``before`` predictions with ``errors_before`` errors within a risk.

    Whole numbers up to one division, so that nothing is rounded twice.
    """

    def fits(members: int) -> bool:
        return (errors_before * count + members * errors) / (count * (before + members)) <= risk

    if fits(count):
        return count
    low, high = 0, count
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def smallest_count(coverage: float, size: int) -> int:
    """The smallest i with i / size >= coverage: the ceiling of the product, where 0.7 * 10 is 7.000000000000001."""
    i = min(max(math.ceil(coverage * size), 1), size)
    return i - 1 if i > 1 and (i - 1) / size >= coverage else i
