"""Tests of costs."""

import math

import numpy as np
import pytest

from calibrant.selective import threshold_for_cost
from calibrant.selective.thresholds.costs import FRACTIONS
from calibrant.selective.thresholds.images import shows


def drawn(n, seed):
    """Costs 0, 1 or 5; the mean cost of scores above u is 0.5 (1 + u) where all of 0 to 1 are."""
    rng = np.random.default_rng([seed, 99])
    score = rng.random(n)
    paid = rng.random(n) < (1 - score) / 3
    return score, np.where(paid, rng.choice([1.0, 5.0], n), 0.0)


def mean_cost(value):
    """The true mean cost of what scores at least ``value``: 3 (1 - s) / 3, averaged over [value, 1]."""
    return (1 - max(value, 0.0)) / 2


def test_the_promise_is_kept_as_often_as_promised():
    """The true mean cost of every threshold is known; 80% is asked for, of 150 draws."""
    broken, covered = 0, []
    for seed in range(150):
        threshold = threshold_for_cost(*drawn(500, seed), 0.3, highest=5.0, confidence=0.8, seed=seed)
        broken += not threshold.abstains and mean_cost(threshold.value) > 0.3
        covered.append(threshold.coverage.value)
    assert broken / 150 <= 0.2 + 3 * math.sqrt(0.16 / 150)
    assert 0.1 < np.mean(covered) < 0.6  # whoever knows the costs accepts 0.6


def test_it_counts_what_it_says():
    score, cost = drawn(4000, 1)
    threshold = threshold_for_cost(score, cost, 0.3, highest=5.0)
    rows = score >= threshold.value
    assert 0.3 < rows.mean() < 0.6
    assert threshold.accepted / threshold.samples == pytest.approx(rows.mean(), abs=0.03)
    assert threshold.cost == pytest.approx(cost[rows].mean(), abs=0.05)
    assert "at most 0.3" in threshold.reason
    # The unit of the costs is free.
    assert threshold_for_cost(score, 10 * cost, 3.0, highest=50.0).value == threshold.value


def test_costs_of_0_and_1_are_errors_by_a_test_for_every_distribution():
    """All right: the betting test needs more samples than the binomial one, 59 for 5% at 95%, but not many more."""
    fewest = next(n for n in range(1, 200) if shows(np.ones((n, 1)), np.zeros((n, 1)), 0.05, 0.05, FRACTIONS)[0])
    assert 59 < fewest < 150
    threshold = threshold_for_cost(np.arange(200.0), np.zeros(200), 0.05, highest=1.0)
    assert threshold.value == -math.inf
    nothing = threshold_for_cost(np.arange(60.0), np.zeros(60), 0.05, highest=1.0)
    assert nothing.abstains
    assert nothing.reason.startswith("Abstain always")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cost": [0.0, 6.0, 0.0]}, "from 0 to highest"), ({"cost": [0.0, -1.0, 0.0]}, "from 0 to highest"),
        ({"score": [0.1, math.nan, 0.2]}, "finite"), ({"cost": [0.0]}, r"\[N\] each"), ({"highest": 0.0}, "highest"),
        ({"target_cost": 5.0}, "target_cost"), ({"confidence": 1.0}, "confidence"),
        ({"score": [0.1], "cost": [0.0]}, "too few"),
    ],
)  # fmt: skip
def test_bad_arguments_are_refused(change, message):
    given = {"score": [0.1, 0.2, 0.3], "cost": [0.0, 1.0, 0.0], "target_cost": 1.0, "highest": 5.0} | change
    with pytest.raises(ValueError, match=message):
        threshold_for_cost(**given)
