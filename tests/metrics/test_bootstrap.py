"""Wilson's interval by hand, and the bootstrap of a mean against SciPy's."""

import math

import numpy as np
import pytest
from scipy import stats

from calibrant.metrics import mean_interval, wilson


@pytest.mark.parametrize(
    ("successes", "number", "expected"),
    [(8, 10, (0.4902, 0.9433)), (0, 10, (0.0, 0.2775)), (10, 10, (0.7225, 1.0))],  # Wilson 1927, worked by hand
)
def test_wilson(successes, number, expected):
    low, high = wilson(successes, number)
    assert (float(low), float(high)) == pytest.approx(expected, abs=1e-4)


def test_the_interval_of_a_mean_is_that_of_scipys_bootstrap():
    values = np.random.default_rng(0).exponential(size=237)
    interval = mean_interval(values, replicates=4000)
    expected = stats.bootstrap((values,), np.mean, n_resamples=4000, method="percentile", random_state=1)
    assert interval.value == pytest.approx(values.mean(), rel=1e-12)
    width = expected.confidence_interval.high - expected.confidence_interval.low
    assert interval.low == pytest.approx(expected.confidence_interval.low, abs=0.06 * width)
    assert interval.high == pytest.approx(expected.confidence_interval.high, abs=0.06 * width)


def test_the_level_of_a_mean_is_covered_as_often_as_it_says():
    rng = np.random.default_rng(3)
    intervals = [mean_interval(rng.uniform(size=80), level=0.8, replicates=200, seed=k) for k in range(300)]
    share = np.mean([interval.low <= 0.5 <= interval.high for interval in intervals])
    assert abs(share - 0.8) < 3 * math.sqrt(0.8 * 0.2 / 300) + 0.01


def test_the_mean_of_few_samples_has_no_interval():
    assert mean_interval(np.ones(3)).value == 1.0
    assert math.isnan(mean_interval(np.ones(3)).low)
    assert math.isnan(mean_interval(np.zeros(0)).value)


def test_the_mean_of_a_constant_has_an_interval_of_no_width():
    interval = mean_interval(np.full(30, 0.25))
    assert (interval.low, interval.value, interval.high) == pytest.approx((0.25, 0.25, 0.25))
