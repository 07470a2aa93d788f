"""SC's analyses of a ranking: what label smoothing does to it.

============================  ===============================================  ===========================
`risk_coverage_by_method`     risk against coverage, several scores or models  SC Fig. 1, 4, 8 left, 9 left
`errors_by_source`            which set the accepted errors come from          SC Fig. 8 right
============================  ===============================================  ===========================

The functions take arrays and give arrays; `calibrant.report` draws them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from calibrant.base.arrays import ArrayLike, Doubles
from calibrant.base.checks import (
    Bools,
    Floats,
    Ints,
    as_host_array,
    check_correct,
    check_integer,
    check_number,
    check_scores,
)
from calibrant.metrics import (
    aurc,
    coverage_at_risk,
    e_aurc,
    group_by_score,
    risk_at_coverage,
    risk_coverage_curve,
    smallest_count,
)

Scalar = TypeVar("Scalar", bound=np.generic)


@dataclass(frozen=True, eq=False)
class MethodCurve:
    """The risk-coverage curve of one score, highest threshold first, and what is read off it.

    Attributes:
        coverage: ``[P]`` share of predictions with a score of at least the threshold.
        risk: ``[P]`` error rate among them.
        threshold: ``[P]`` the score.
        aurc: area under the curve, of all predictions.
        e_aurc: the area beyond that of the best ordering.
        coverage_at_risk: the largest coverage for each risk asked for.
        error_rate: the risk at full coverage.
    """

    coverage: Doubles
    risk: Doubles
    threshold: Doubles
    aurc: float
    e_aurc: float
    coverage_at_risk: Mapping[float, float]
    error_rate: float


def risk_coverage_by_method(
    scores: Mapping[str, ArrayLike],
    correct: ArrayLike | Mapping[str, ArrayLike],
    *,
    risks: float | ArrayLike = (0.01, 0.05),
    points: int = 2000,
) -> dict[str, MethodCurve]:
    """Risk-coverage curves of several scores, or of several models.

    A curve has one point per distinct score. Where these are more than ``points``, the coverage is cut into slices
    narrower than a pixel, and each keeps its lowest and its highest risk; the first and the last point always stay.
    The numbers are those of all predictions: ties in expected order for the areas, whole for the coverages.

    Args:
        scores: ``[N]`` by name, higher is more confident.
        correct: ``[N]``, whether each prediction is right; by name where the models differ.
        risks: error rates from 0 to 1 at which the coverage is wanted.
        points: how many points a curve has at most, at least 4.

    Returns:
        A curve for each name, in the order given.

    Example:
        >>> from calibrant.papers import risk_coverage_by_method
        >>> curves = risk_coverage_by_method(
        ...     {"msp": [0.9, 0.8, 0.7, 0.6], "margin": [0.5, 0.1, 0.3, 0.2]}, [1, 0, 1, 1], risks=[0.25]
        ... )
        >>> {name: (curve.aurc, curve.coverage_at_risk[0.25]) for name, curve in curves.items()}
        {'msp': (0.2708333333333333, 1.0), 'margin': (0.0625, 1.0)}

    Reference:
        SC, Fig. 1, 4 and 9 (left).
    """
    points = check_integer("points", points, 4)
    targets = [check_number("risks", risk, 0.0, 1.0) for risk in _as_list("risks", risks)]
    if not isinstance(scores, Mapping) or not scores:
        kind = "none" if isinstance(scores, Mapping) else type(scores).__name__
        raise ValueError(f"scores must be a mapping of at least one name to scores, got {kind}")
    if isinstance(correct, Mapping) and set(correct) != set(scores):
        expected, actual = (", ".join(map(repr, methods)) or "none" for methods in (scores, correct))
        raise ValueError(f"correct must have the names of scores {expected}, got {actual}")
    curves = {}
    for name, score in scores.items():
        truth = correct[name] if isinstance(correct, Mapping) else correct
        (values, _), is_correct = check_scores(score, truth, name=f"scores[{name!r}]")
        curves[name] = _curve(values, is_correct, targets, points)
    return curves


def _curve(score: Floats, correct: Bools, risks: list[float], points: int) -> MethodCurve:
    groups = group_by_score(score, correct)
    curve = risk_coverage_curve(groups)
    rows = _thin(curve.coverage, curve.risk, points)
    return MethodCurve(
        curve.coverage[rows],
        curve.risk[rows],
        curve.threshold[rows],
        aurc(groups),
        e_aurc(groups),
        {r: coverage_at_risk(groups, risk=r) for r in risks},
        float(curve.risk[-1]),
    )


def _thin(coverage: Doubles, risk: Doubles, points: int) -> Ints:
    """Which points to keep: the ends, and of each slice of the coverage the lowest and the highest risk."""
    size = len(coverage)
    if size <= points:
        return np.arange(size)
    slices = (points - 2) // 2
    number = np.minimum((coverage * slices).astype(np.int64), slices - 1)
    start = np.flatnonzero(np.diff(number, prepend=-1))
    part = np.repeat(np.arange(len(start)), np.diff(start, append=size))
    rows = [np.array([0, size - 1])]
    for extreme in (np.minimum, np.maximum):
        at = np.flatnonzero(risk == extreme.reduceat(risk, start)[part])
        rows.append(at[np.unique(part[at], return_index=True)[1]])
    return np.unique(np.concatenate(rows))


@dataclass(frozen=True, eq=False)
class ErrorsBySource:
    """The errors among the most confident predictions of two pooled sets, one entry per coverage asked for.

    Where a tie lies across the border, errors are expected numbers and need not be whole.

    Attributes:
        coverage: ``[C]`` as asked for.
        accepted: ``[C]`` how many predictions are accepted.
        risk: ``[C]`` error rate among them.
        errors: ``[C]`` how many of them are wrong.
        original_errors: ``[C]`` how many of these errors come from the original set.
        shifted_errors: ``[C]`` how many come from the shifted set.
        shifted_share: ``[C]`` share of the errors that come from the shifted set, NaN without errors.
    """

    coverage: Doubles
    accepted: Ints
    risk: Doubles
    errors: Doubles
    original_errors: Doubles
    shifted_errors: Doubles
    shifted_share: Doubles


def errors_by_source(
    scores: ArrayLike, correct: ArrayLike, shifted: ArrayLike, coverage: float | ArrayLike = 0.1
) -> ErrorsBySource:
    """How many errors are accepted when two sets are pooled, and how many of them come from the shifted one.

    Accepted are the ``ceil(coverage * N)`` most confident of all N predictions, as in `risk_at_coverage`: a tie across
    the border is spread evenly, so that nothing depends on the order of the rows.

    Args:
        scores: ``[N]``, higher is more confident.
        correct: ``[N]``, whether each prediction is right.
        shifted: ``[N]``, whether each row comes from the shifted set.
        coverage: a share above 0 and at most 1, or several.

    Returns:
        One entry per coverage.

    Example:
        >>> from calibrant.papers import errors_by_source
        >>> sources = errors_by_source([0.9, 0.8, 0.8, 0.7], [0, 0, 1, 0], [False, True, True, True], [0.5, 1.0])
        >>> sources.accepted.tolist(), sources.errors.tolist(), sources.shifted_errors.tolist()
        ([2, 4], [1.5, 3.0], [0.5, 2.0])

    Reference:
        SC, Fig. 8 (right).
    """
    (values, _), correct = check_scores(scores, correct, name="scores")
    is_shifted = flatten_like("shifted", check_correct(shifted, name="shifted"), "scores", scores)
    coverages = [check_number("coverage", c, 0.0, 1.0, open_low=True) for c in _as_list("coverage", coverage)]
    if not coverages:
        raise ValueError("coverage must be at least one share, got none")
    groups, of_shifted = group_by_score(values, correct), group_by_score(values, correct | ~is_shifted)
    accepted = np.array([smallest_count(c, len(values)) for c in coverages])
    risk = np.array([risk_at_coverage(groups, coverage=c) for c in coverages])
    errors = _expected_count(groups.count, groups.errors, accepted)
    shifted_errors = _expected_count(groups.count, of_shifted.errors, accepted)
    share = np.divide(shifted_errors, errors, out=np.full(len(coverages), np.nan), where=errors > 0)
    return ErrorsBySource(np.array(coverages), accepted, risk, errors, errors - shifted_errors, shifted_errors, share)


def _expected_count(count: Ints, marked: Ints, accepted: Ints) -> Doubles:
    """How many of the first ``accepted`` predictions are marked; a tie at the border is spread evenly."""
    total, total_marked = np.cumsum(count), np.cumsum(marked)
    at = np.searchsorted(total, accepted)
    inside = accepted - (total[at] - count[at])
    return total_marked[at] - marked[at] + inside * marked[at] / count[at]


def flatten_like(name: str, array: npt.NDArray[Scalar], template_name: str, template: ArrayLike) -> npt.NDArray[Scalar]:
    """The array flattened to ``[N]``, if it has the shape of another argument."""
    shape = as_host_array(template_name, template)[0].shape
    if array.shape != shape:
        raise ValueError(f"{name} must have the shape of {template_name} {list(shape)}, got {list(array.shape)}")
    return array.reshape(-1)


def _as_list(name: str, x: float | ArrayLike) -> list[float]:
    """One number, or several, as a list."""
    return list(as_host_array(name, x)[0].reshape(-1).tolist())
