"""Was a promise kept: p-values against SciPy's distributions, and which part a sample belongs to."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import betabinom, binom

from calibrant.selective.promise import ClassThreshold, LossTally, Promise
from calibrant.selective.promise_check import break_p_value, is_shown, part_numbers
from tests.helpers.exports import at, make_policy


@pytest.mark.parametrize("promise", [Promise(), Promise(by_class=True), Promise("recall", shares=((0, 0.9),))])
def test_shares_are_binomial(promise):
    for rows, loss in ((30, 3), (200, 35), (1, 1)):
        assert break_p_value(promise, LossTally(rows, float(loss)), 0.1) == pytest.approx(binom.sf(loss - 1, rows, 0.1))
    for rows, loss in ((30, 1), (200, 12)):
        level = binom.cdf(loss, rows, 0.1)
        assert is_shown(promise, LossTally(rows, float(loss)), 0.1, level * 1.001)
        assert not is_shown(promise, LossTally(rows, float(loss)), 0.1, level * 0.999)
    assert break_p_value(promise, LossTally(), 0.1) == 1.0


def test_an_expected_risk_is_beta_binomial():
    # Of 199 samples 19 errors may be answered: the share of a fit is Beta(20, 180), with mean 0.1.
    promise = Promise("expected-risk", target=0.1, tally=LossTally(199, 19))
    for loss in (10, 20, 30):
        assert break_p_value(promise, LossTally(150, loss), 0.1) == pytest.approx(betabinom.sf(loss - 1, 150, 20, 180))
    assert not is_shown(promise, LossTally(10**6, 0.0), 0.1, 0.05)


def test_a_cost_that_is_kept_is_seldom_called_broken():
    rng = np.random.default_rng(0)
    promise = Promise("cost", target=0.5, costs=((0.0, 1.0), (5.0, 0.0)))
    paid = rng.choice([0.0, 0.2, 1.0], size=(2000, 60), p=[0.8, 0.125, 0.075])  # a mean of 0.1
    p = np.array([break_p_value(promise, LossTally(60, float(row.sum())), 0.1) for row in paid])
    assert (p < 0.05).mean() <= 0.05
    assert (p < 0.3).any()
    assert break_p_value(promise, LossTally(60, 20.0), 0.1) < 1e-4


def test_the_part_of_a_sample():
    parts = tuple(ClassThreshold(label, group, at(0.5)) for group, label in (("a", 1), ("b", 0), ("b", 1)))
    policy = replace(make_policy(classes=3), group="site", classes=parts, promise=Promise(by_class=True))
    numbers = part_numbers(policy, np.array(["a", "a", "b", "b", "c", "b"]), np.array([1, 0, 0, 1, 1, 2]))
    assert numbers.tolist() == [0, -1, 1, 2, -1, -1]
    limits = policy.limits_of(np.array(["a", "a", "c"]), np.array([1, 0, 1]))
    assert limits.tolist() == [0.5, np.inf, np.inf]
