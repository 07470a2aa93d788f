r"""Selective classification: how good a score is at telling which predictions to trust.

A higher score means surer. With the predictions sorted by falling score, E_i is the number of errors among the i
surest, the selective risk is :math:`r_i = E_i / i` at coverage i/N [Geifman2017], and the generalised risk is
:math:`E_i / N` [Traub2024]. Areas under both, over i = 1..N with :math:`r_0 = 0`:

=====================  =============================================================================================
``"mean"`` (default)   the mean of r_i
``"trapezoid"``        the trapezoid rule over coverage i/N, from the point (0, 0)
``"trapezoid-first"``  the trapezoid rule from i = 1 on, divided by 1 - 1/N (r_1 when N is 1)
=====================  =============================================================================================

Equal scores leave the order open. ``ties`` says what is done:

=====================  =============================================================================================
``"expected"``         the mean over all orders: the errors of a tie are spread evenly over it (default of the areas)
``"optimistic"``       right predictions first
``"pessimistic"``      wrong predictions first
``"together"``         a tie is accepted whole, as by a threshold: each member has the risk after the tie
``"order"``            as the rows come
=====================  =============================================================================================

Only ``"order"`` lets the value depend on the order of the rows. The functions that end in ``_of_groups`` take counts
and errors of groups of equal score, highest score first; groups may be empty.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from calibrant._arrays import ArrayLike
from calibrant._validation import Ints, choice, judged, number_in
from calibrant.metrics.ties import group_by_score, sum_of_risks

Convention: TypeAlias = Literal["mean", "trapezoid", "trapezoid-first"]
GroupTies: TypeAlias = Literal["expected", "optimistic", "pessimistic", "together"]
Ties: TypeAlias = GroupTies | Literal["order"]

CONVENTIONS = ("mean", "trapezoid", "trapezoid-first")
GROUP_TIES = ("expected", "optimistic", "pessimistic", "together")
TIES = (*GROUP_TIES, "order")


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """The risk-coverage curve, one point for each distinct score, the highest first.

    Attributes:
        coverage: ``[G]`` share of predictions with a score of at least the threshold.
        risk: ``[G]`` error rate among them.
        threshold: ``[G]`` the score.
    """

    coverage: npt.NDArray[np.float64]
    risk: npt.NDArray[np.float64]
    threshold: npt.NDArray[np.float64]


def risk_coverage_curve(score: ArrayLike, correct: ArrayLike) -> RiskCoverage:
    """What each threshold on the score gives: accept where score >= threshold.

    Args:
        score: ``[N]``, higher is surer.
        correct: ``[N]``, whether each prediction is right.

    Returns:
        Coverage, risk and threshold, one point per distinct score.

    Example:
        >>> from calibrant.metrics import risk_coverage_curve
        >>> curve = risk_coverage_curve([0.9, 0.8, 0.8, 0.6], [1, 1, 0, 0])
        >>> curve.coverage.tolist(), curve.risk.tolist(), curve.threshold.tolist()
        ([0.25, 0.75, 1.0], [0.0, 0.3333333333333333, 0.5], [0.9, 0.8, 0.6])

    Reference:
        [Geifman2017] Sec. 2; SC, Eq. 12.
    """
    (values, _), right = judged(score, correct)
    groups = group_by_score(values, right)
    accepted = np.cumsum(groups.count)
    risk = np.cumsum(groups.errors) / accepted
    return RiskCoverage(accepted / accepted[-1], risk, groups.score)


def aurc(score: ArrayLike, correct: ArrayLike, *, convention: Convention = "mean", ties: Ties = "expected") -> float:
    r"""Area under the risk-coverage curve: :math:`\frac1N \sum_i r_i`.

    Args:
        score: ``[N]``, higher is surer.
        correct: ``[N]``, whether each prediction is right.
        convention: how the area is taken, see the table of the module.
        ties: what equal scores mean, see the table of the module.

    Returns:
        The area, between 0 and 1; lower is better.

    Example:
        >>> from calibrant.metrics import aurc
        >>> aurc([0.9, 0.8, 0.7, 0.6], [1, 0, 1, 1])  # risks 0, 1/2, 1/3, 1/4
        0.2708333333333333

    Reference:
        [Geifman2019]; SC, Sec. 2.2.
    """
    count, errors, rule = _grouped(score, correct, ties)
    return aurc_of_groups(count, errors, convention=convention, ties=rule)


def e_aurc(
    score: ArrayLike,
    correct: ArrayLike,
    *,
    convention: Convention = "mean",
    ties: Ties = "expected",
    optimum: Literal["exact", "asymptotic"] = "exact",
) -> float:
    r"""Excess AURC: the area minus that of the best ordering, which has every error last.

    Args:
        score: ``[N]``, higher is surer.
        correct: ``[N]``, whether each prediction is right.
        convention: how both areas are taken, see the table of the module.
        ties: what equal scores mean, see the table of the module.
        optimum: ``"exact"``: the best ordering of these N predictions; ``"asymptotic"``: its limit for large N,
            :math:`r + (1 - r) \log(1 - r)` with the error rate r, as published.

    Returns:
        The excess; lower is better. Not below 0 when the optimum is exact.

    Example:
        >>> from calibrant.metrics import e_aurc
        >>> e_aurc([0.9, 0.8, 0.7, 0.6], [1, 0, 1, 1])  # the best order has risks 0, 0, 0, 1/4
        0.2083333333333333

    Reference:
        [Geifman2019].
    """
    count, errors, rule = _grouped(score, correct, ties)
    return e_aurc_of_groups(count, errors, convention=convention, ties=rule, optimum=optimum)


def augrc(score: ArrayLike, correct: ArrayLike, *, convention: Convention = "mean", ties: Ties = "expected") -> float:
    r"""Area under the generalised risk-coverage curve: :math:`\frac1N \sum_i E_i / N`.

    The generalised risk is the share of all predictions that are accepted and wrong.

    Args:
        score: ``[N]``, higher is surer.
        correct: ``[N]``, whether each prediction is right.
        convention: how the area is taken, see the table of the module.
        ties: what equal scores mean, see the table of the module.

    Returns:
        The area, between 0 and 1; lower is better.

    Example:
        >>> from calibrant.metrics import augrc
        >>> augrc([0.9, 0.8, 0.7, 0.6], [1, 0, 1, 1])  # accepted errors 0, 1, 1, 1 of 4
        0.1875

    Reference:
        [Traub2024].
    """
    count, errors, rule = _grouped(score, correct, ties)
    return augrc_of_groups(count, errors, convention=convention, ties=rule)


def coverage_at_risk(score: ArrayLike, correct: ArrayLike, risk: float, *, ties: Ties = "together") -> float:
    """The largest coverage whose selective risk is at most ``risk``; 0.0 if there is none.

    By default only whole ties count, because a threshold cannot split them.

    Args:
        score: ``[N]``, higher is surer.
        correct: ``[N]``, whether each prediction is right.
        risk: the error rate that is allowed, from 0 to 1.
        ties: what equal scores mean, see the table of the module.

    Returns:
        A share of the N predictions; higher is better.

    Example:
        >>> from calibrant.metrics import coverage_at_risk
        >>> coverage_at_risk([0.9, 0.8, 0.7, 0.6], [1, 1, 0, 1], 0.25)
        1.0
        >>> coverage_at_risk([0.9, 0.8, 0.7, 0.6], [1, 1, 0, 1], 0.2)
        0.5

    Reference:
        SC, Sec. 2.2 (Cov@5).
    """
    count, errors, rule = _grouped(score, correct, ties)
    return coverage_at_risk_of_groups(count, errors, risk, ties=rule)


def risk_at_coverage(score: ArrayLike, correct: ArrayLike, coverage: float, *, ties: Ties = "expected") -> float:
    """The error rate of the ``ceil(coverage * N)`` surest predictions.

    Args:
        score: ``[N]``, higher is surer.
        correct: ``[N]``, whether each prediction is right.
        coverage: the share that is accepted, above 0 and at most 1.
        ties: what equal scores mean, see the table of the module.

    Returns:
        The selective risk; lower is better.

    Example:
        >>> from calibrant.metrics import risk_at_coverage
        >>> risk_at_coverage([0.9, 0.8, 0.7, 0.6], [1, 0, 1, 1], 0.5)
        0.5

    Reference:
        [Geifman2017] Sec. 2; SC, Eq. 12.
    """
    count, errors, rule = _grouped(score, correct, ties)
    return risk_at_coverage_of_groups(count, errors, coverage, ties=rule)


# ---------------------------------------------------------------------- the same from groups


def aurc_of_groups(
    count: Ints, errors: Ints, *, convention: Convention = "mean", ties: GroupTies = "expected"
) -> float:
    """`aurc` of groups of equal score, highest first: predictions ``[G]`` and errors ``[G]``, int64."""
    choice("convention", convention, CONVENTIONS)
    count, errors = _arranged(count, errors, ties)
    n, e = np.cumsum(count), np.cumsum(errors)
    total = float((count * (e / n)).sum()) if ties == "together" else sum_of_risks(count, errors, n, e)
    return _area(total, errors[0] / count[0], e[-1] / n[-1], int(n[-1]), convention)


def augrc_of_groups(
    count: Ints, errors: Ints, *, convention: Convention = "mean", ties: GroupTies = "expected"
) -> float:
    """`augrc` of groups of equal score, highest first: predictions ``[G]`` and errors ``[G]``, int64."""
    choice("convention", convention, CONVENTIONS)
    count, errors = _arranged(count, errors, ties)
    size, e = int(count.sum()), np.cumsum(errors)
    if ties == "together":
        # Counts become float64 before they are multiplied: the product of two may not fit in int64.
        total, first = float((count * e.astype(np.float64)).sum()), errors[0]
    else:
        before = (e - errors).astype(np.float64)
        total, first = float((count * before + errors * ((count + 1) / 2)).sum()), errors[0] / count[0]
    return _area(total / size, first / size, e[-1] / size, size, convention)


def e_aurc_of_groups(
    count: Ints,
    errors: Ints,
    *,
    convention: Convention = "mean",
    ties: GroupTies = "expected",
    optimum: Literal["exact", "asymptotic"] = "exact",
) -> float:
    """`e_aurc` of groups of equal score, highest first: predictions ``[G]`` and errors ``[G]``, int64."""
    choice("optimum", optimum, ("exact", "asymptotic"))
    area = aurc_of_groups(count, errors, convention=convention, ties=ties)
    size, wrong = int(count.sum()), int(errors.sum())
    if optimum == "asymptotic":
        rate = wrong / size
        return area - (rate + (1 - rate) * math.log1p(-rate) if wrong < size else 1.0)
    best = np.array([size - wrong, wrong]), np.array([0, wrong])
    return max(0.0, area - aurc_of_groups(*best, convention=convention))


def coverage_at_risk_of_groups(count: Ints, errors: Ints, risk: float, *, ties: GroupTies = "together") -> float:
    """`coverage_at_risk` of groups of equal score, highest first: predictions ``[G]`` and errors ``[G]``, int64."""
    risk = number_in("risk", risk, 0.0, 1.0)
    count, errors = _arranged(count, errors, ties)
    n, e = np.cumsum(count), np.cumsum(errors)
    # A quotient is rounded as the literal is: 1 error in 20 is at most 0.05.
    fits = e / n <= risk
    if ties != "together":
        # Within a tie the risk rises or falls steadily, so if any member fits, the first or the last one does. The
        # first one's risk is rounded more than once here, and looked at again below.
        fits |= (e - errors + errors / count) / (n - count + 1) <= risk * (1 + 1e-12)
    for last in np.flatnonzero(fits)[::-1]:
        held = _members_within(risk, *(int(x[last]) for x in (n - count, e - errors, count, errors)))
        if held:
            return (int(n[last] - count[last]) + held) / int(n[-1])
    return 0.0


def risk_at_coverage_of_groups(count: Ints, errors: Ints, coverage: float, *, ties: GroupTies = "expected") -> float:
    """`risk_at_coverage` of groups of equal score, highest first: predictions ``[G]`` and errors ``[G]``, int64."""
    coverage = number_in("coverage", coverage, 0.0, 1.0, open_low=True)
    count, errors = _arranged(count, errors, ties)
    n, e = np.cumsum(count), np.cumsum(errors)
    i = smallest_count(coverage, int(n[-1]))
    at = int(np.searchsorted(n, i))
    end, wrong, m, w = (int(x[at]) for x in (n, e, count, errors))
    if ties == "together":
        return wrong / end
    j = i - (end - m)
    return ((wrong - w) * m + j * w) / (m * i)


# ---------------------------------------------------------------------- parts


def _grouped(score: ArrayLike, correct: ArrayLike, ties: Ties) -> tuple[Ints, Ints, GroupTies]:
    """Counts and errors, highest score first, and the rule for ties that remains; in order of rows none do."""
    choice("ties", ties, TIES)
    (values, _), right = judged(score, correct)
    if ties == "order":
        wrong = ~right[np.argsort(-values, kind="stable")]
        return np.ones(len(wrong), dtype=np.int64), wrong.astype(np.int64), "expected"
    groups = group_by_score(values, right)
    return groups.count, groups.errors, ties


def _arranged(count: Ints, errors: Ints, ties: GroupTies) -> tuple[Ints, Ints]:
    """Groups without empty ones; where right or wrong comes first within a tie, it becomes two groups."""
    choice("ties", ties, GROUP_TIES)
    if ties in ("optimistic", "pessimistic"):
        right, zero = count - errors, np.zeros_like(errors)
        parts, wrongs = (right, errors), (zero, errors)
        if ties == "pessimistic":
            parts, wrongs = parts[::-1], wrongs[::-1]
        count, errors = np.stack(parts, axis=1).reshape(-1), np.stack(wrongs, axis=1).reshape(-1)
    if not count.all():
        held = np.flatnonzero(count)
        count, errors = count[held], errors[held]
    if not len(count):
        raise ValueError("count must have at least one group with predictions, got none")
    return count, errors


def _area(total: float, first: float, last: float, size: int, convention: Convention) -> float:
    """An area from the sum of all risks, the first and the last."""
    if convention == "mean":
        return total / size
    if convention == "trapezoid":
        return (total - float(last) / 2) / size
    return (total - float(first) / 2 - float(last) / 2) / (size - 1) if size > 1 else total


def _members_within(risk: float, before: int, wrong: int, count: int, errors: int) -> int:
    """The most members of a tie that can follow ``before`` predictions, ``wrong`` of them errors, within a risk.

    Whole numbers up to one division, so that nothing is rounded twice.
    """

    def fits(members: int) -> bool:
        return (wrong * count + members * errors) / (count * (before + members)) <= risk

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
