"""Tests of search."""

import math
from itertools import combinations

import numpy as np
from scipy.stats import binom, multinomial

from calibrant.selective import threshold_for_risk
from calibrant.selective.bounds import binomial_tail
from calibrant.selective.thresholds.search import FixedSequence, critical_ranks, curve_of, search


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


def test_critical_ranks_are_where_an_error_more_is_allowed():
    ranks = critical_ranks(300, 0.1, 0.1)
    for rank in ranks[:-1].tolist():
        errors = max(k for k in range(rank) if binom.cdf(k, rank, 0.1) <= 0.1)
        assert binom.cdf(errors, rank - 1, 0.1) > 0.1
    assert ranks[0] == 22  # 0.9^22 < 0.1
    assert ranks[-1] == 300
    assert not len(critical_ranks(21, 0.1, 0.1))


def _violation(share, wrong, samples, ranks, risk, delta):
    """The exact chance that a sequence of ranks accepts too high a risk: a sum over all counts of tied scores."""
    values = np.repeat(np.arange(len(share), 0.0, -1), 2)
    chance = np.stack([share * wrong, share * (1 - wrong)], axis=1).reshape(-1)
    true = np.cumsum(share * wrong) / np.cumsum(share)
    kinds, total, broken = len(chance), 0.0, 0.0
    for bars in combinations(range(samples + kinds - 1), kinds - 1):  # stars and bars
        ends = np.array([-1, *bars, samples + kinds - 1])
        counts = np.diff(ends) - 1
        weight = multinomial.pmf(counts, samples, chance)
        curve = curve_of(np.repeat(values, counts), np.repeat(np.arange(kinds) % 2 == 1, counts))
        result = search(curve, "fixed-sequence", risk, delta, FixedSequence(ranks=ranks))
        total += weight
        if result.at:
            accepted = np.flatnonzero(np.arange(len(share), 0.0, -1) >= curve.threshold[result.at])
            broken += weight * bool(true[accepted[-1]] > risk)
    assert math.isclose(total, 1.0, rel_tol=1e-9)
    return broken


def test_a_sequence_of_ranks_keeps_its_level_whatever_the_ties():
    """Three tied scores, the risk jumping up and down across the target: enumerated, not drawn."""
    risk, delta = 0.5, 0.35
    populations = [
        ([0.6, 0.3, 0.1], [0.3, 0.85, 1.0]),  # good, good, bad
        ([0.05, 0.55, 0.4], [0.9, 0.4, 0.64]),  # bad, good across a jump, bad
        ([0.3, 0.3, 0.4], [0.6, 0.3, 0.62]),
        ([0.5, 0.1, 0.4], [0.49, 0.7, 0.5]),  # good, bad across a jump, bad
    ]
    broken = [
        _violation(np.array(share), np.array(wrong), 6, np.array(ranks), risk, delta)
        for share, wrong in populations
        for ranks in ([5, 6], [2, 3, 5, 6])
    ]
    assert 0.15 < max(broken) <= delta
