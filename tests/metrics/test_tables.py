"""Groups of equal score against the slow reference, exact fractions and many digits; ties of any size."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest

from calibrant import metrics as M
from calibrant.metrics.tables import Groups, harmonic
from tests.helpers.errors import facts
from tests.helpers.metric_data import close
from tests.reference import metrics as R


@pytest.mark.parametrize("rule", ["expected", "optimistic", "pessimistic", "together"])
def test_groups_may_be_empty(rule):
    count, errors = np.array([0, 3, 0, 0, 2, 1, 0]), np.array([0, 1, 0, 0, 2, 0, 0])
    score = np.repeat(-np.arange(7), count)
    correct = np.concatenate([np.arange(n) >= e for n, e in zip(count, errors, strict=True)])
    groups = Groups(-np.arange(7.0), count, errors).with_ties(rule)
    assert M.aurc(groups) == close(R.aurc(score, correct, ties=rule))
    assert M.augrc(groups) == close(R.augrc(score, correct, ties=rule))
    assert M.e_aurc(groups) == close(R.e_aurc(score, correct, ties=rule))
    for share in (0.2, 0.5, 0.9):
        at = M.coverage_at_risk(groups, risk=share, ties=rule)
        assert at == R.coverage_at_risk(score, correct, share, ties=rule)
        at = M.risk_at_coverage(groups, coverage=share, ties=rule)
        assert at == close(R.risk_at_coverage(score, correct, share, ties=rule))
    confidences = Groups(np.linspace(0.9, 0.3, 7), count, errors)
    assert M.aece(confidences, bins=4) == close(R.aece(np.repeat(confidences.score, count), correct, bins=4))


def test_no_predictions_at_all_is_an_error():
    with pytest.raises(ValueError, match=facts("count", "none")):
        Groups(np.arange(3.0), np.zeros(3, dtype=np.int64), np.zeros(3, dtype=np.int64)).with_ties("expected")


@pytest.mark.parametrize("before", [0, 1, 5, 30, 31, 32, 33, 100, 1000, 10**5, 10**8, 10**12])
def test_sums_over_a_tie_have_every_digit(before):
    """D = sum 1/(n_0 + j) and J = sum j/(n_0 + j), against exact fractions."""
    for count in (1, 2, 3, 8, 9, 25, 31, 32, 33, 200):
        terms = [Fraction(1, before + j) for j in range(1, count + 1)]
        exact = sum(terms), sum(j * t for j, t in enumerate(terms, start=1))
        seen = harmonic(np.array([before]), np.array([count]))
        for value, expected in zip(seen, exact, strict=True):
            assert abs(Fraction(float(value[0])) / expected - 1) < 1e-15


@pytest.mark.parametrize(("before", "count"), [(0, 10**8), (7, 10**7), (10**6, 10**8), (10**8, 10**3), (10**8, 10**10)])
def test_sums_over_a_large_tie(before, count):
    with mpmath.workdps(50):
        inverse = mpmath.harmonic(before + count) - mpmath.harmonic(before)
        ramp = count - before * inverse
        seen = harmonic(np.array([before]), np.array([count]))
        assert abs(seen[0][0] / inverse - 1) < 1e-15
        assert abs(seen[1][0] / ramp - 1) < 2e-15


def test_area_with_huge_groups():
    count, errors = np.array([10**8, 3, 10**6, 1]), np.array([10**6, 2, 3 * 10**5, 1])
    with mpmath.workdps(40):
        total, n, e = mpmath.mpf(0), 0, 0
        for m, w in zip(count.tolist(), errors.tolist(), strict=True):
            inverse = mpmath.harmonic(n + m) - mpmath.harmonic(n)
            total += w + (e - mpmath.mpf(n) * w / m) * inverse
            n, e = n + m, e + w
        assert M.aurc(Groups(-np.arange(4.0), count, errors)) == pytest.approx(float(total / n), rel=1e-14)


def test_counts_whose_product_overflows():
    count, errors = np.array([5 * 10**9, 4 * 10**9]), np.array([10**9, 2 * 10**9])
    (a, b), (v, w) = count.tolist(), errors.tolist()
    expected = Fraction(v * (a + 1) + 2 * b * v + w * (b + 1), 2 * (a + b) ** 2)
    groups = Groups(np.array([1.0, 0.0]), count, errors)
    assert M.augrc(groups) == close(float(expected))
    together = Fraction(a * v + b * (v + w), (a + b) ** 2)
    assert M.augrc(groups.with_ties("together")) == close(float(together))
