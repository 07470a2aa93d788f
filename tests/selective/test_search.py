"""Tests of search."""

import numpy as np

from calibrant.selective import threshold_for_risk
from calibrant.selective.bounds import binomial_tail
from calibrant.selective.search import curve_of


def test_sgr_by_hand():
    """Eight samples, the two lowest wrong, at 60%: ranks 5, 7, 6, each at delta / 3."""
    score, correct = np.arange(8, 0, -1.0), np.array([1, 1, 1, 1, 1, 1, 0, 0], dtype=bool)
    # 0.4^5 = 0.0102, then P(Bin(7, 0.6) <= 1) = 0.0188, then 0.4^6 = 0.0041.
    assert threshold_for_risk(score, correct, 0.6, confidence=1 - 3 * 0.02, method="sgr").accepted == 7
    assert threshold_for_risk(score, correct, 0.6, confidence=1 - 3 * 0.011, method="sgr").accepted == 6
    assert threshold_for_risk(score, correct, 0.6, confidence=1 - 3 * 0.005, method="sgr").accepted == 0


def test_sequence_stops_at_the_first_candidate_that_fails():
    """Of 400 samples the most confident 100 and 300 hold, the most confident 200 do not: it must stop before those."""
    score, correct = -np.arange(400.0), np.ones(400, dtype=bool)
    correct[100:130] = False
    order = [-99.5, -199.5, -299.5]
    tail = binomial_tail([0, 30, 30], [100, 200, 300], 0.14)
    assert tail[0] < 0.05 < tail[1]
    assert tail[2] < 0.05
    found = threshold_for_risk(score, correct, 0.14, method="fixed-sequence", candidates=order)
    assert (found.value, found.accepted) == (-99.5, 100)
    # In another order, fixed beforehand just as well, it starts with those and then fails.
    found = threshold_for_risk(score, correct, 0.14, method="fixed-sequence", candidates=order[::-1])
    assert (found.value, found.accepted) == (-299.5, 300)


def test_a_threshold_lies_inside_the_gap():
    """Rounding elsewhere must not move a tie across it."""
    score = np.repeat([0.9, 0.5, 0.1], 200)
    correct = np.repeat([True, True, False], 200)
    found = threshold_for_risk(score, correct, 0.05)
    assert found.accepted == 400
    assert 0.1 + 1e-6 < found.value < 0.5 - 1e-6


def test_scores_that_rounding_could_exchange_are_tied():
    """Permutations of one row of logits, summed in another order, differ in the last digit."""
    score = np.repeat([0.9, 0.9 + 1e-16, 0.9 - 1.2e-16, 0.5], 50)
    curve = curve_of(score, np.ones(200, dtype=bool))
    assert curve.accepted.tolist() == [0, 150, 200]
    assert 0.5 < curve.threshold[1] < 0.9 - 1e-6


def test_curve_by_hand():
    curve = curve_of([3.0, 1.0, 3.0, 2.0], [1, 0, 0, 1])
    assert curve.accepted.tolist() == [0, 2, 3, 4]
    assert curve.errors.tolist() == [0, 1, 1, 2]
    assert curve.at_rank([0, 1, 2, 3, 4]).tolist() == [0, 0, 1, 2, 3]
    assert curve.at_threshold([4.0, 3.0, 2.5, 2.0, 1.0, -9]).tolist() == [0, 1, 1, 2, 3, 3]
