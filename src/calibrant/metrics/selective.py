r"""Selective classification: how good a score is at telling which predictions to trust.

A higher score means more confident. With the predictions sorted by falling score, E_i is the number of errors among the
i most confident, the selective risk is :math:`r_i = E_i / i` at coverage i/N [Geifman2017], and the generalised risk is
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

Only ``"order"`` lets the value depend on the order of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from calibrant._arrays import ArrayLike
from calibrant._validation import check_choice, check_scores
from calibrant.metrics.ties import TIES, Convention, Groups, Ties, group_by_score


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
        score: ``[N]``, higher is more confident.
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
    (values, _), correct = check_scores(score, correct)
    return curve_of_groups(group_by_score(values, correct))


def curve_of_groups(groups: Groups) -> RiskCoverage:
    """The curve of predictions that are grouped by score."""
    accepted = np.cumsum(groups.count)
    return RiskCoverage(accepted / accepted[-1], np.cumsum(groups.errors) / accepted, groups.score)


def aurc(score: ArrayLike, correct: ArrayLike, *, convention: Convention = "mean", ties: Ties = "expected") -> float:
    r"""Area under the risk-coverage curve: :math:`\frac1N \sum_i r_i`.

    Args:
        score: ``[N]``, higher is more confident.
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
    return _groups(score, correct, ties).aurc(convention)


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
        score: ``[N]``, higher is more confident.
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
    return _groups(score, correct, ties).e_aurc(convention, optimum)


def augrc(score: ArrayLike, correct: ArrayLike, *, convention: Convention = "mean", ties: Ties = "expected") -> float:
    r"""Area under the generalised risk-coverage curve: :math:`\frac1N \sum_i E_i / N`.

    The generalised risk is the share of all predictions that are accepted and wrong. Arguments and the range of the
    value are those of `aurc`.

    Example:
        >>> from calibrant.metrics import augrc
        >>> augrc([0.9, 0.8, 0.7, 0.6], [1, 0, 1, 1])  # accepted errors 0, 1, 1, 1 of 4
        0.1875

    Reference:
        [Traub2024].
    """
    return _groups(score, correct, ties).augrc(convention)


def coverage_at_risk(score: ArrayLike, correct: ArrayLike, risk: float, *, ties: Ties = "together") -> float:
    """The largest coverage whose selective risk is at most ``risk``; 0.0 if there is none.

    By default only whole ties count, because a threshold cannot split them.

    Args:
        score: ``[N]``, higher is more confident.
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
    return _groups(score, correct, ties).coverage_at_risk(risk)


def risk_at_coverage(score: ArrayLike, correct: ArrayLike, coverage: float, *, ties: Ties = "expected") -> float:
    """The error rate of the ``ceil(coverage * N)`` most confident predictions.

    Args:
        score: ``[N]``, higher is more confident.
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
    return _groups(score, correct, ties).risk_at_coverage(coverage)


def _groups(score: ArrayLike, correct: ArrayLike, ties: Ties) -> Groups:
    """The groups of equal score as the rule for ties sees them; in the order of the rows each row is one."""
    check_choice("ties", ties, TIES)
    (values, _), correct = check_scores(score, correct)
    if ties != "order":
        return group_by_score(values, correct).with_ties(ties)
    order = np.argsort(-values, kind="stable")
    errors = (~correct[order]).astype(np.int64)
    return Groups(values[order].astype(np.float64), np.ones_like(errors), errors)
