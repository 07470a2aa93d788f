"""The exact selective metrics against the slow ones of tests/reference, exact fractions, and values worked by hand."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrant import metrics as M
from calibrant.metrics import bins, selective
from calibrant.metrics import ties as groups
from tests.helpers.metric_data import CASES, close
from tests.reference import metrics as R

TIES = ["expected", "optimistic", "pessimistic", "together", "order"]
AREAS = ["mean", "trapezoid", "trapezoid-first"]
case = pytest.mark.parametrize("data", CASES.values(), ids=CASES.keys())


@case
@pytest.mark.parametrize("ties", TIES)
def test_areas(data, ties):
    for convention in AREAS:
        settings = {"convention": convention, "ties": ties}
        assert M.aurc(*data, **settings) == close(R.aurc(*data, **settings))
        assert M.augrc(*data, **settings) == close(R.augrc(*data, **settings))
        for optimum in ("exact", "asymptotic"):
            expected = R.e_aurc(*data, **settings, optimum=optimum)
            assert M.e_aurc(*data, **settings, optimum=optimum) == close(expected, abs=1e-15)


@case
@pytest.mark.parametrize("ties", TIES)
def test_operating_points(data, ties):
    for risk in (0, 0.05, 0.1, 0.2, 0.25, 0.3, 1 / 3, 0.5, 0.8, 1):
        assert M.coverage_at_risk(*data, risk, ties=ties) == R.coverage_at_risk(*data, risk, ties=ties)
    for coverage in (1e-9, 0.1, 0.2, 0.3, 0.5, 0.6, 0.7, 0.9, 0.95, 1):
        assert M.risk_at_coverage(*data, coverage, ties=ties) == close(R.risk_at_coverage(*data, coverage, ties=ties))


@case
def test_every_risk_on_the_curve_is_met_exactly(data):
    """At a risk that some coverage has, that coverage counts: no rounding on the way."""
    for ties in TIES:
        risks = [float(r) for r in R.risks(*data, ties)]
        for risk in set(risks):
            assert M.coverage_at_risk(*data, risk, ties=ties) == R.coverage_at_risk(*data, risk, ties=ties)


@case
def test_risk_coverage_curve(data):
    seen, expected = M.risk_coverage_curve(*data), R.risk_coverage_curve(*data)
    for name in ("coverage", "risk", "threshold"):
        np.testing.assert_array_equal(getattr(seen, name), getattr(expected, name))


def test_coverage_is_the_whole_number_it_stands_for():
    score = -np.arange(10.0)
    for k in range(1, 11):
        correct = np.arange(10) != k - 1  # the only error is the k-th
        assert M.risk_at_coverage(score, correct, k / 10) == 1 / k
        assert M.risk_at_coverage(score, correct, k / 10 - 1e-12) == 1 / k
        if k < 10:
            assert M.risk_at_coverage(score, correct, k / 10 + 1e-12) == 1 / (k + 1)


@pytest.mark.parametrize("ties", TIES)
def test_scores_are_any_finite_numbers(ties):
    rng = np.random.default_rng(10)
    score = np.concatenate([rng.normal(0, 1e3, 20), [0.0, -0.0, -0.0, 1e300, -1e300, 5e-324, -5e-324], [-3.0] * 4])
    correct = rng.random(len(score)) < 0.6
    for hidden in (score, score[score < 0], score[score > 0], score.clip(-1e30, 1e30).astype(np.float32)):
        held = correct[: len(hidden)]
        assert M.aurc(hidden, held, ties=ties) == close(R.aurc(hidden, held, ties=ties))
        assert M.augrc(hidden, held, ties=ties) == close(R.augrc(hidden, held, ties=ties))
    np.testing.assert_array_equal(
        M.risk_coverage_curve(score, correct).threshold, R.risk_coverage_curve(score, correct).threshold
    )


def test_areas_by_hand():
    """Scores 4 to 1, right, wrong, right, wrong: E = 0, 1, 1, 2 and r = 0, 1/2, 1/3, 1/2."""
    data = [4, 3, 2, 1], [1, 0, 1, 0]
    assert M.aurc(*data) == close((1 / 2 + 1 / 3 + 1 / 2) / 4)
    assert M.aurc(*data, convention="trapezoid") == close((1 / 4 + 5 / 12 + 5 / 12) / 4)
    assert M.aurc(*data, convention="trapezoid-first") == close((1 / 4 + 5 / 12 + 5 / 12) / 3)
    assert M.augrc(*data) == close((1 + 1 + 2) / 16)
    assert M.e_aurc(*data) == close((4 / 3 - 1 / 3 - 1 / 2) / 4)
    assert M.e_aurc(*data, optimum="asymptotic") == close(1 / 3 - (0.5 + 0.5 * math.log(0.5)))
    assert M.coverage_at_risk(*data, 0.4) == 0.75
    assert M.coverage_at_risk([1, 1], [1, 0], 0.4) == 0
    assert M.coverage_at_risk([1, 1], [1, 0], 0.4, ties="optimistic") == 0.5


@given(
    st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=1, max_size=25), st.sampled_from(AREAS), st.data()
)
def test_properties_of_the_areas(rows, convention, data):
    score, correct = map(np.array, zip(*rows, strict=True))
    values = {ties: M.aurc(score, correct, convention=convention, ties=ties) for ties in TIES}
    assert values["expected"] == close(R.aurc(score, correct, convention=convention))
    slack = 1e-15
    assert values["optimistic"] <= min(values["expected"], values["order"]) + slack
    assert max(values["expected"], values["order"]) <= values["pessimistic"] + slack
    assert M.e_aurc(score, correct, convention=convention) >= 0
    shuffle = np.array(data.draw(st.permutations(range(len(score)))))
    for ties in ("expected", "optimistic", "pessimistic", "together"):
        again = M.aurc(score[shuffle], correct[shuffle], convention=convention, ties=ties)
        assert again == values[ties]
        assert M.aurc(3 * score + 5, correct, convention=convention, ties=ties) == values[ties]


@pytest.mark.parametrize("ties", ["expected", "optimistic", "pessimistic", "together"])
def test_groups_may_be_empty(ties):
    count, errors = np.array([0, 3, 0, 0, 2, 1, 0]), np.array([0, 1, 0, 0, 2, 0, 0])
    score = np.repeat(-np.arange(7), count)
    correct = np.concatenate([np.arange(n) >= e for n, e in zip(count, errors, strict=True)])
    assert selective.aurc_of_groups(count, errors, ties=ties) == close(R.aurc(score, correct, ties=ties))
    assert selective.augrc_of_groups(count, errors, ties=ties) == close(R.augrc(score, correct, ties=ties))
    assert selective.e_aurc_of_groups(count, errors, ties=ties) == close(R.e_aurc(score, correct, ties=ties))
    for share in (0.2, 0.5, 0.9):
        at = selective.coverage_at_risk_of_groups(count, errors, share, ties=ties)
        assert at == R.coverage_at_risk(score, correct, share, ties=ties)
        at = selective.risk_at_coverage_of_groups(count, errors, share, ties=ties)
        assert at == close(R.risk_at_coverage(score, correct, share, ties=ties))
    rising = count[::-1], errors[::-1], (count * np.linspace(0.9, 0.3, 7))[::-1]
    assert bins.aece_of_groups(*rising, bins=4) == close(
        R.aece(np.repeat(np.linspace(0.9, 0.3, 7), count), correct, bins=4)
    )


def test_no_predictions_at_all_is_an_error():
    with pytest.raises(ValueError, match="count must have at least one group with predictions, got none"):
        selective.aurc_of_groups(np.zeros(3, dtype=np.int64), np.zeros(3, dtype=np.int64))


# ---------------------------------------------------------------------- ties of any size


@pytest.mark.parametrize("before", [0, 1, 5, 30, 31, 32, 33, 100, 1000, 10**5, 10**8, 10**12])
def test_sums_over_a_tie_have_every_digit(before):
    """D = sum 1/(n_0 + j) and J = sum j/(n_0 + j), against exact fractions."""
    for count in (1, 2, 3, 8, 9, 25, 31, 32, 33, 200):
        terms = [Fraction(1, before + j) for j in range(1, count + 1)]
        exact = sum(terms), sum(j * t for j, t in enumerate(terms, start=1))
        seen = groups.harmonic(np.array([before]), np.array([count]))
        for value, expected in zip(seen, exact, strict=True):
            assert abs(Fraction(float(value[0])) / expected - 1) < 1e-15


@pytest.mark.parametrize(("before", "count"), [(0, 10**8), (7, 10**7), (10**6, 10**8), (10**8, 10**3), (10**8, 10**10)])
def test_sums_over_a_large_tie(before, count):
    with mpmath.workdps(50):
        inverse = mpmath.harmonic(before + count) - mpmath.harmonic(before)
        ramp = count - before * inverse
        seen = groups.harmonic(np.array([before]), np.array([count]))
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
        assert selective.aurc_of_groups(count, errors) == pytest.approx(float(total / n), rel=1e-14)


def test_counts_whose_product_overflows():
    count, errors = np.array([5 * 10**9, 4 * 10**9]), np.array([10**9, 2 * 10**9])
    (a, b), (v, w) = count.tolist(), errors.tolist()
    expected = Fraction(v * (a + 1) + 2 * b * v + w * (b + 1), 2 * (a + b) ** 2)
    assert selective.augrc_of_groups(count, errors) == close(float(expected))
    together = Fraction(a * v + b * (v + w), (a + b) ** 2)
    assert selective.augrc_of_groups(count, errors, ties="together") == close(float(together))
