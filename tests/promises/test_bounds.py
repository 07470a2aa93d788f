"""Tests of bounds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta, betabinom, binom

from calibrant.promises.bounds import (
    allowed_errors,
    binomial_tail,
    bounded_mean_interval,
    coverage_p_value,
    fewest,
    fewest_with,
    lower_limit,
    mean_tail,
    upper_limit,
)


@given(n=st.integers(1, 400), k=st.integers(0, 400), risk=st.floats(0.001, 0.999))
def test_tail_is_the_binomial_distribution(n, k, risk):
    k = min(k, n)
    assert float(binomial_tail(k, n, risk)) == pytest.approx(binom.cdf(k, n, risk), rel=1e-9, abs=1e-300)


@given(n=st.integers(1, 300), k=st.integers(0, 300), delta=st.floats(0.001, 0.5))
def test_limits_are_those_of_clopper_and_pearson(n, k, delta):
    k = min(k, n)
    upper = 1.0 if k == n else beta.ppf(1 - delta, k + 1, n - k)
    lower = 0.0 if k == 0 else beta.ppf(delta, k, n - k + 1)
    assert upper_limit(k, n, delta) == pytest.approx(upper, rel=1e-9)
    assert lower_limit(k, n, delta) == pytest.approx(lower, rel=1e-9)
    if k < n:  # the limit is where the tail is delta
        assert binom.cdf(k, n, upper_limit(k, n, delta)) == pytest.approx(delta, rel=1e-6)


@pytest.mark.parametrize(("risk", "delta"), [(0.05, 0.05), (0.01, 0.1), (0.3, 0.001)])
def test_fewest_is_the_first_number_that_shows_it(risk, delta):
    for errors in range(5):
        n = fewest(risk, delta, errors)
        assert binom.cdf(errors, n, risk) <= delta < binom.cdf(errors, n - 1, risk)


@pytest.mark.parametrize(("risk", "delta"), [(0.05, 0.05), (0.3, 0.01), (0.001, 0.2)])
def test_allowed_errors_against_scipy(risk, delta):
    number = np.array([0, 1, 5, 59, 60, 200, 977])
    for accepted, errors in zip(number.tolist(), allowed_errors(number, risk, delta).tolist(), strict=True):
        assert errors == max([k for k in range(accepted) if binom.cdf(k, accepted, risk) <= delta], default=-1)


def test_fewest_of_many_errors_is_that_of_each():
    errors = np.arange(8)
    assert fewest_with(errors, np.full(8, 900), 0.05, 0.05).tolist() == [fewest(0.05, 0.05, k) for k in range(8)]


def test_the_tail_of_a_mean_is_valid_for_the_worst_numbers_and_not_far_from_exact():
    for samples, mean in ((30, 0.1), (200, 0.3), (1000, 0.02)):
        for total in range(int(samples * mean) + 1):
            exact = binom.cdf(total, samples, mean)  # numbers that are 0 or 1 have the heaviest tail
            assert exact * (1 - 1e-9) <= mean_tail(float(total), samples, mean) <= min(1.0, np.e * exact) * (1 + 1e-9)
        assert mean_tail(samples * mean, samples, mean) == 1.0


def test_limits_of_a_mean_are_where_the_tail_meets_the_level():
    interval = bounded_mean_interval(12.5, 100, 0.03, 0.04)
    assert interval.value == 0.125
    assert mean_tail(12.5, 100, interval.high) == pytest.approx(0.04, rel=0.01)
    assert mean_tail(87.5, 100, 1 - interval.low) == pytest.approx(0.03, rel=0.01)
    assert np.isnan(bounded_mean_interval(0.0, 0, 0.1, 0.1).value)
    assert bounded_mean_interval(0.0, 10, 0.1, 0.1).low == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(("covered", "samples"), [(0, 1), (180, 200), (189, 200), (200, 200)])
def test_the_p_value_is_that_of_the_beta_binomial(covered, samples):
    expected = betabinom(samples, 286, 15).cdf(covered)
    assert coverage_p_value(covered, samples, 286, 300) == pytest.approx(expected, rel=1e-8)
