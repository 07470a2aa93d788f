"""Prediction sets as a policy holds them: limits, the spread of coverage, the test of a promise."""

import numpy as np
import pytest
from scipy import stats

from calibrant.posthoc import NumpyOps
from calibrant.selective.sets.counts import SetCounts
from calibrant.selective.sets.prediction_sets import PredictionSets, SetTarget


def test_a_score_that_meets_the_quantile_but_for_rounding_is_a_member():
    sets = PredictionSets(0.9, "lac", (-0.3,), (99,))
    p = np.array([[0.3, np.nextafter(0.3, 0), 0.3 - 1e-9]])
    assert sets.members(NumpyOps(), p).tolist() == [[True, True, False]]


def test_the_spread_is_the_beta_distribution():
    spread = PredictionSets(0.9, "lac", (-0.3,), (99,)).spread
    beta = stats.beta(90, 10)
    assert (spread.value, spread.low, spread.high) == pytest.approx((beta.mean(), *beta.ppf([0.025, 0.975])))
    assert PredictionSets(0.9, "lac", (np.inf,), (5,)).spread is None


def test_a_broken_promise_is_seldom_called_so_by_chance_and_often_when_true():
    """Fits of 200 samples and 300 new ones each, whose coverage is drawn as it is distributed, or 10% lower."""
    sets = PredictionSets(0.9, "lac", (-0.3,), (200,))
    rank, rng = sets.ranks[0], np.random.default_rng(0)
    called = {0.0: 0, 0.1: 0}
    for shift in called:
        for share in rng.beta(rank, 201 - rank, 400) - shift:
            covered = int(rng.binomial(300, share))
            called[shift] += sets.p_value(SetCounts(1, [0, 300], class_samples=[300], class_covered=[covered])) < 0.05
    assert called[0.0] / 400 < 0.05 + 3 * np.sqrt(0.0475 / 400)
    assert called[0.1] / 400 > 0.8


def test_classes_share_the_level_of_the_test():
    sets = PredictionSets(0.9, "class-conditional", (-0.3, -0.2), (99, 99))
    counts = SetCounts(2, [0, 200], class_samples=[100, 100], class_covered=[90, 70])
    alone = stats.betabinom(100, 90, 10).cdf(70)
    assert sets.p_value(counts) == pytest.approx(2 * alone, rel=1e-8)


def test_randomised_sets_need_their_random_numbers():
    sets = PredictionSets(0.9, "aps", (0.9,), (99,), randomised=True)
    with pytest.raises(ValueError, match="need a random number for each sample"):
        sets.members(NumpyOps(), np.full((1, 4), 0.25))


def test_only_an_open_raps_needs_samples_for_a_choice():
    assert SetTarget(0.9, "raps").has_choice
    assert SetTarget(0.9, "raps", penalty=0.1).has_choice
    assert not SetTarget(0.9, "raps", penalty=0.1, free_ranks=2).has_choice
    assert not SetTarget(0.9, "aps").has_choice
