r"""Predictions grouped by score, and exact sums over the members of a tie.

Every ranking metric depends on the scores through the groups of equal score alone: how many predictions a group has
and how many of them are wrong. A group of n predictions with e errors that follows n_0 predictions with E_0 errors adds

.. math:: \sum_{j=1}^{n} \frac{E_0 + j e/n}{n_0 + j} = E_0 D + \frac{e}{n} J, \qquad
          D = \sum_{j=1}^{n} \frac{1}{n_0 + j}, \quad J = \sum_{j=1}^{n} \frac{j}{n_0 + j} = n - n_0 D

to the sum of the risks when its members come in random order: that is the expected value. D is a difference of harmonic
numbers. Neither D nor J is computed as a difference of large numbers, so that a small tie after 1e8 predictions is
as exact as the first one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calibrant._arrays import import_compiled
from calibrant._validation import Bools, Floats, Ints

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Groups:
    """The distinct scores, highest first, how many predictions have each, and how many of those are wrong."""

    score: Doubles
    count: Ints
    errors: Ints


def group_by_score(score: Floats, right: Bools) -> Groups:
    """Group predictions by equal score."""
    if score.min() >= 0:
        held = _rising(score, right)
        return Groups(held.score[::-1], held.count[::-1], held.errors[::-1])
    low = score < 0
    below = _rising(-score[low], right[low])
    if low.all():
        return Groups(-below.score, below.count, below.errors)
    above = _rising(score[~low], right[~low])
    return Groups(
        np.concatenate([above.score[::-1], -below.score]),
        np.concatenate([above.count[::-1], below.count]),
        np.concatenate([above.errors[::-1], below.errors]),
    )


def _rising(score: Floats, right: Bools) -> Groups:
    """The groups of scores that are not negative, the lowest first.

    The bits of such float64 order as whole numbers do, and leave the highest bit free. Moved up by one, they make room
    for the error at the other end, so that one plain sort, much faster than one with an index, does everything.
    """
    keys = np.add(score, 0.0, dtype=np.float64).view(np.uint64)  # adding 0 makes -0.0 the same score as 0.0
    keys <<= 1
    np.bitwise_or(keys, ~right, out=keys)
    keys.sort()
    first = np.empty(len(keys), dtype=np.bool_)
    first[0] = True
    np.greater(keys[1:] ^ keys[:-1], 1, out=first[1:])
    errors = (keys & 1).view(np.int64)
    if first.all():  # the usual case of many samples, which saves three large arrays
        keys >>= 1
        return Groups(keys.view(np.float64), np.ones(len(keys), dtype=np.int64), errors)
    start = np.flatnonzero(first)
    count = np.diff(start, append=len(keys))
    return Groups((keys[start] >> 1).view(np.float64), count, np.add.reduceat(errors, start))


def risk_sums(before: Ints, count: Ints, errors_before: Ints, errors: Ints) -> Doubles:
    """The sum of the risks over the members of each tie, in expected order: the formula above."""
    inverse, ramp = harmonic(before, count)
    return errors_before * inverse + errors / count * ramp


def sum_of_risks(count: Ints, errors: Ints, accepted: Ints, wrong: Ints) -> float:
    """The sum of the risks over all members of all groups, ties in expected order.

    Args:
        count: predictions of each group, highest score first.
        errors: errors among them.
        accepted: running sum of ``count``.
        wrong: running sum of ``errors``.
    """
    if len(count) >= MANY:
        at = np.flatnonzero(count > FEW)
        total = float(import_compiled("calibrant.metrics.sketch.compiled").risks_of_small(count, errors, FEW))
    else:
        at = np.flatnonzero(count > 1)
        total = float((wrong / accepted)[count == 1].sum())
    m, w = count[at], errors[at]
    return total + float(risk_sums(accepted[at] - m, m, wrong[at] - w, w).sum())


#: Groups from which on the small ones, most of them, are added up by a compiled pass, member by member.
MANY, FEW = 1 << 18, 8

#: From here on the asymptotic series of the harmonic numbers has every digit of float64.
NEAR = 32


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
