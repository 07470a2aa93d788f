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

Only ``"order"`` lets the value depend on the order of the rows. With weights, counts are sums of weights of mean 1.

Told as detection, a right prediction is a positive that the score should place above the wrong ones: `auroc` and
`fpr_at_tpr` are of right predictions, `aupr_errors` of wrong ones, found from the lowest score up. A tie is one point
of each curve.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from calibrant.base.arrays import ArrayLike
from calibrant.base.checks import check_choice, check_number
from calibrant.metrics.tables import Groups, Ties, as_groups, measured, result

Convention: TypeAlias = Literal["mean", "trapezoid", "trapezoid-first"]

ROUNDED = 1e-9  # relatively: what rounding may add to sums of many weights, and no more than a limit of risk allows


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


def risk_coverage_curve(
    score: ArrayLike | Groups, correct: ArrayLike | None = None, *, weight: ArrayLike | None = None
) -> RiskCoverage:
    """What each threshold on the score gives: accept where score >= threshold.

    Args:
        score: ``[N]``, higher is more confident.
        correct: ``[N]``, whether each prediction is right.
        weight: ``[N]`` importance of each prediction, at least 0; None if all count alike.

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
    groups = as_groups(score, correct, weight)
    accepted, _ = groups.running
    return RiskCoverage(accepted / accepted[-1], groups.risks, groups.score)


@measured
def aurc(
    score: ArrayLike | Groups,
    correct: ArrayLike | None = None,
    *,
    weight: ArrayLike | None = None,
    convention: Convention = "mean",
    ties: Ties = "expected",
) -> float:
    r"""Area under the risk-coverage curve: :math:`\frac1N \sum_i r_i`.

    Args:
        score: ``[N]``, higher is more confident.
        correct: ``[N]``, whether each prediction is right.
        weight: ``[N]`` importance of each prediction, at least 0; None if all count alike.
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
    groups = as_groups(score, correct, weight, ties=ties)
    size = groups.size
    return result(_area(groups.total_risk, _first_risk(groups), groups.errors.sum(-1) / size, size, convention))


@measured
def e_aurc(
    score: ArrayLike | Groups,
    correct: ArrayLike | None = None,
    *,
    weight: ArrayLike | None = None,
    convention: Convention = "mean",
    ties: Ties = "expected",
    optimum: Literal["exact", "asymptotic"] = "exact",
) -> float:
    r"""Excess AURC: the area minus that of the best ordering, which has every error last.

    Args:
        score: ``[N]``, higher is more confident.
        correct: ``[N]``, whether each prediction is right.
        weight: ``[N]`` importance of each prediction, at least 0; None if all count alike.
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
    check_choice("optimum", optimum, ("exact", "asymptotic"))
    groups = as_groups(score, correct, weight, ties=ties)
    size, errors = groups.size, groups.errors.sum(-1)
    area = aurc(groups, convention=convention)
    if optimum == "asymptotic":
        rate = errors / size
        with np.errstate(divide="ignore", invalid="ignore"):  # of errors alone the limit is 1
            return result(area - np.where(rate < 1, rate + (1 - rate) * np.log1p(-rate), 1.0))
    best = Groups(np.array([1.0, 0.0]), np.stack([size - errors, errors], -1), np.stack([0 * errors, errors], -1))
    return result(np.maximum(0.0, area - aurc(best if best.is_replicated else best.filled(), convention=convention)))


@measured
def augrc(
    score: ArrayLike | Groups,
    correct: ArrayLike | None = None,
    *,
    weight: ArrayLike | None = None,
    convention: Convention = "mean",
    ties: Ties = "expected",
) -> float:
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
    groups = as_groups(score, correct, weight, ties=ties)
    count, errors, size = groups.count, groups.errors, groups.size
    running = groups.running[1].astype(np.float64)  # the product of two counts may not fit in int64
    if groups.together:
        total, first = (count * running).sum(-1), running[..., 0]
    else:
        total = (count * (running - errors) + errors * ((count + 1) / 2)).sum(-1)
        first = _first_risk(groups)
    return result(_area(total / size, first / size, running[..., -1] / size, size, convention))


@measured
def coverage_at_risk(
    score: ArrayLike | Groups,
    correct: ArrayLike | None = None,
    risk: float = 0.05,
    *,
    weight: ArrayLike | None = None,
    ties: Ties = "together",
) -> float:
    """The largest coverage whose selective risk is at most ``risk``; 0.0 if there is none.

    By default only whole ties count, because a threshold cannot split them.

    Args:
        score: ``[N]``, higher is more confident.
        correct: ``[N]``, whether each prediction is right.
        risk: the error rate that is allowed, from 0 to 1.
        weight: ``[N]`` importance of each prediction, at least 0; None if all count alike.
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
    risk = check_number("risk", risk, 0.0, 1.0)
    groups = as_groups(score, correct, weight, ties=ties)
    accepted, _ = groups.running
    # A quotient of counts is rounded as the literal is: 1 error in 20 is at most 0.05. Sums of weights are less exact.
    fits = groups.risks <= (risk if groups.is_whole else risk * (1 + ROUNDED))
    if not groups.together and not groups.is_replicated:
        return _coverage_within_ties(groups, fits, risk)
    last = fits.shape[-1] - 1 - np.argmax(fits[..., ::-1], axis=-1)
    reached = np.take_along_axis(accepted, np.expand_dims(last, -1), -1)[..., 0] / groups.size
    return result(np.where(fits.any(-1), reached, 0.0))


@measured
def risk_at_coverage(
    score: ArrayLike | Groups,
    correct: ArrayLike | None = None,
    coverage: float = 0.9,
    *,
    weight: ArrayLike | None = None,
    ties: Ties = "expected",
) -> float:
    """The error rate of the ``ceil(coverage * N)`` most confident predictions.

    Args:
        score: ``[N]``, higher is more confident.
        correct: ``[N]``, whether each prediction is right.
        coverage: the share that is accepted, above 0 and at most 1.
        weight: ``[N]`` importance of each prediction, at least 0; None if all count alike.
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
    coverage = check_number("coverage", coverage, 0.0, 1.0, open_low=True)
    groups = as_groups(score, correct, weight, ties=ties)
    accepted, errors = groups.running
    size = smallest_count(coverage, int(groups.size)) if groups.is_whole else coverage * groups.size
    at = np.minimum((accepted < np.expand_dims(size * (1 - 1e-12), -1)).sum(-1, keepdims=True), accepted.shape[-1] - 1)
    end, wrong, tied, tied_wrong = (
        np.take_along_axis(part, at, -1)[..., 0].astype(np.float64)  # the product of two counts may not fit in int64
        for part in (accepted, errors, groups.count, groups.errors)
    )
    if groups.together:
        return result(wrong / end)
    return result(((wrong - tied_wrong) * tied + (size - (end - tied)) * tied_wrong) / (tied * size))


@measured
def auroc(score: ArrayLike | Groups, correct: ArrayLike | None = None, *, weight: ArrayLike | None = None) -> float:
    """The chance that a right prediction has a higher score than a wrong one; a tie counts one half.

    Args:
        score: ``[N]``, higher is more confident.
        correct: ``[N]``, whether each prediction is right.
        weight: ``[N]`` importance of each prediction, at least 0; None if all count alike.

    Returns:
        The area under the ROC curve, one half for a score that knows nothing, NaN if all or none are right; higher is
        better.

    Example:
        >>> from calibrant.metrics import auroc
        >>> auroc([0.9, 0.8, 0.7, 0.6], [1, 0, 1, 1])  # above the wrong one: one of three
        0.3333333333333333

    Reference:
        [Hendrycks2017] Sec. 2.
    """
    groups = as_groups(score, correct, weight)
    errors = groups.errors.astype(np.float64)
    right, all_errors = groups.count - errors, errors.sum(-1)
    below = np.expand_dims(all_errors, -1) - groups.running[1]
    with np.errstate(invalid="ignore", divide="ignore"):
        return result((right * (below + errors / 2)).sum(-1) / (right.sum(-1) * all_errors))


@measured
def fpr_at_tpr(
    score: ArrayLike | Groups, correct: ArrayLike | None = None, tpr: float = 0.95, *, weight: ArrayLike | None = None
) -> float:
    """The share of wrong predictions that are accepted where at least the share ``tpr`` of the right ones is.

    It is the least among the thresholds on the score, without interpolation between them.

    Args:
        score: ``[N]``, higher is more confident.
        correct: ``[N]``, whether each prediction is right.
        tpr: the share of the right predictions, above 0 and at most 1.
        weight: ``[N]`` importance of each prediction, at least 0; None if all count alike.

    Returns:
        A share, NaN if all or none are right; lower is better.

    Example:
        >>> from calibrant.metrics import fpr_at_tpr
        >>> fpr_at_tpr([0.9, 0.8, 0.7, 0.6], [1, 0, 1, 0], 0.5), fpr_at_tpr([0.9, 0.8, 0.7, 0.6], [1, 0, 1, 0])
        (0.0, 0.5)

    Reference:
        [Liang2018] Sec. 4.2.
    """
    tpr = check_number("tpr", tpr, 0.0, 1.0, open_low=True)
    groups = as_groups(score, correct, weight)
    accepted, errors = groups.running
    right = accepted - errors
    with np.errstate(invalid="ignore", divide="ignore"):
        enough = right / right[..., -1:] >= tpr * (1 - 1e-12)
        first = np.argmax(enough, axis=-1)
        share = np.take_along_axis(errors, np.expand_dims(first, -1), -1)[..., 0] / errors[..., -1]
    return result(np.where(right[..., -1] > 0, share, math.nan))


@measured
def aupr_errors(
    score: ArrayLike | Groups, correct: ArrayLike | None = None, *, weight: ArrayLike | None = None
) -> float:
    """How well a low score finds errors: the average precision of the wrong predictions, the lowest score first.

    Args:
        score: ``[N]``, higher is more confident.
        correct: ``[N]``, whether each prediction is right.
        weight: ``[N]`` importance of each prediction, at least 0; None if all count alike.

    Returns:
        The mean over the errors of the share of errors among the predictions that are trusted no more; the error rate
        for a score that knows nothing, NaN if there are no errors; higher is better.

    Example:
        >>> from calibrant.metrics import aupr_errors
        >>> aupr_errors([0.9, 0.8, 0.7, 0.6], [1, 0, 1, 0])  # precision 1 at the first error, 2 of 3 at the second
        0.8333333333333333

    Reference:
        [Hendrycks2017] Sec. 2.
    """
    groups = as_groups(score, correct, weight)
    count, errors = groups.count[..., ::-1], groups.errors[..., ::-1]
    with np.errstate(invalid="ignore", divide="ignore"):  # before the first group that holds something
        precision = errors.cumsum(-1) / count.cumsum(-1)
        return result(np.where(errors > 0, errors * precision, 0.0).sum(-1) / errors.sum(-1))


def _first_risk(groups: Groups) -> Any:
    with np.errstate(invalid="ignore"):  # of an empty group; only the areas from the first one on need it
        return groups.errors[..., 0] / groups.count[..., 0]


def _area(total: Any, first: Any, last: Any, size: Any, convention: Convention) -> Any:
    """An area from the sum of all risks, the first and the last."""
    check_choice("convention", convention, ("mean", "trapezoid", "trapezoid-first"))
    if convention == "mean":
        return total / size
    if convention == "trapezoid":
        return (total - last / 2) / size
    return np.where(size > 1, (total - first / 2 - last / 2) / np.maximum(size - 1, 1e-300), total)


def _coverage_within_ties(groups: Groups, fits: Any, risk: float) -> float:
    """`coverage_at_risk` where some of a tie may be accepted: its errors are spread evenly over it."""
    count, errors = groups.count, groups.errors
    accepted, accepted_errors = groups.running
    if not groups.is_whole:
        return _share_within_ties(groups, risk)
    # Within a tie the risk rises or falls steadily, so if any member fits, the first or the last one does. The first
    # one's risk is rounded more than once here, and looked at again below.
    fits = fits | ((accepted_errors - errors + errors / count) / (accepted - count + 1) <= risk * (1 + 1e-12))
    for i in np.flatnonzero(fits)[::-1]:
        before, errors_before = int(accepted[i] - count[i]), int(accepted_errors[i] - errors[i])
        members = _members_within(risk, before, errors_before, int(count[i]), int(errors[i]))
        if members:
            return (before + members) / int(accepted[-1])
    return 0.0


def _share_within_ties(groups: Groups, risk: float) -> float:
    """The same of weights, of which any part of a tie may be accepted."""
    count, errors = groups.count, groups.errors
    accepted, accepted_errors = groups.running
    before, errors_before = accepted - count, accepted_errors - errors
    slack = risk * before - errors_before  # of errors that are allowed before each tie
    need = errors - risk * count  # what the whole tie uses up of it
    with np.errstate(invalid="ignore", divide="ignore"):
        fits = slack >= need - ROUNDED * risk * accepted
        part = np.where(need <= 0, np.where(fits, 1.0, 0.0), np.clip(slack / need, 0.0, 1.0))
    at = np.flatnonzero(part > 0)
    return float((before[at[-1]] + part[at[-1]] * count[at[-1]]) / accepted[-1]) if len(at) else 0.0


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
