"""The exact selective metrics against the slow ones of tests/reference, exact fractions, and values worked by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrant import metrics as M
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
