"""What every threshold accepts, and the tests that are planned on other samples and made in order."""

import math
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import binom, multinomial

from calibrant.promises import threshold_for_risk
from calibrant.promises.bounds import allowed_errors, binomial_tail
from calibrant.promises.thresholds import (
    EDGES,
    FixedSequence,
    _critical_counts,
    _draw_counts,
    _draw_rates,
    best_start,
    critical_ranks,
    curve_of,
    plan_tests,
    reached_from,
    search,
)


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
    """The exact chance that a sequence accepts too high a risk: a sum over all counts of tied scores.

    Without ranks the sequence is that which nobody planned.
    """
    values = np.repeat(np.arange(len(share), 0.0, -1), 2)
    chance = np.stack([share * wrong, share * (1 - wrong)], axis=1).reshape(-1)
    true = np.cumsum(share * wrong) / np.cumsum(share)
    kinds, total, broken = len(chance), 0.0, 0.0
    for bars in combinations(range(samples + kinds - 1), kinds - 1):  # stars and bars
        ends = np.array([-1, *bars, samples + kinds - 1])
        counts = np.diff(ends) - 1
        weight = multinomial.pmf(counts, samples, chance)
        curve = curve_of(np.repeat(values, counts), np.repeat(np.arange(kinds) % 2 == 1, counts))
        result = search(curve, "fixed-sequence", risk, delta, None if ranks is None else FixedSequence(ranks=ranks))
        total += weight
        if result.at:
            accepted = np.flatnonzero(np.arange(len(share), 0.0, -1) >= curve.threshold[result.at])
            broken += weight * bool(true[accepted[-1]] > risk)
    assert math.isclose(total, 1.0, rel_tol=1e-9)
    return broken


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_rank_inside_a_tie_stands_for_all_of_it_and_keeps_the_level():
    """Of tests that nobody planned: enumerated as above, with risks that only a tie or its inner part has."""
    populations = [
        ([0.4, 0.6], [0.8, 0.34]),  # bad above, and just bad with the tie
        ([0.6, 0.3, 0.1], [0.3, 0.85, 1.0]),
        ([0.3, 0.3, 0.4], [0.55, 0.5, 0.48]),
        ([0.5, 0.2, 0.3], [0.52, 0.46, 0.51]),
    ]
    broken = [
        _violation(np.array(share), np.array(wrong), samples, None, 0.5, delta)
        for share, wrong in populations
        for samples, delta in ((5, 0.35), (7, 0.25))
    ]
    assert max(broken) > 0.05
    assert all(value <= delta for value, delta in zip(broken, [0.35, 0.25] * 4, strict=True))


def test_ties_are_answered_whole_where_nothing_was_planned():
    """93 samples with one error show 5%, and the 59 that are tested first lie inside the tie of the 93."""
    score, correct = np.repeat([2.0, 1.0], [93, 107]), np.ones(200, dtype=bool)
    correct[[0, *range(93, 200)]] = False
    assert threshold_for_risk(score, correct, 0.05).accepted == 93


def test_many_rows_outweigh_the_curve():
    """Rates that no logistic curve has are found where there are rows enough: 1%, then 30%, then 5%."""
    rng = np.random.default_rng(0)
    share = (np.arange(40_000) + 0.5) / 40_000
    true = np.select([share < 0.4, share < 0.7], [0.01, 0.3], 0.05)
    drawn = _draw_rates(rng.random(40_000) < true, 0.05, np.random.default_rng(1)).mean(0)
    middle = (EDGES[1:] + EDGES[:-1]) / 2
    expected = np.select([middle < 0.4, middle < 0.7], [0.01, 0.3], 0.05)
    assert drawn == pytest.approx(expected, abs=0.025)


def test_a_start_is_worth_what_a_slow_loop_says():
    """Of every start, the mean coverage over fresh data sets with the rates that many rows have; the plan's is best."""
    rng = np.random.default_rng(3)
    share = (np.arange(20_000) + 0.5) / 20_000
    wrong = rng.random(20_000) < 0.03 + 0.3 * share**3
    counts = np.array([60, 120, 250, 400, 600, 800])
    limit = allowed_errors(counts, 0.08, 0.1)
    worth = np.zeros(len(counts))
    for _ in range(1500):
        errors = np.cumsum(rng.random(1000) < 0.03 + 0.3 * ((np.arange(1000) + 0.5) / 1000) ** 3)
        holds = errors[counts - 1] <= limit
        for start in range(len(counts)):
            reached = 0
            for at in range(start, len(counts)):
                if not holds[at]:
                    break
                reached = counts[at]
            worth[start] += reached / 1500
    start = best_start(wrong, counts, limit, 1000, 0.08, np.random.default_rng(0))
    assert worth[start] > 0.95 * worth.max()
    assert worth.min() < 0.8 * worth.max()  # a start can be a bad one


def test_ties_are_planned_as_thresholds():
    score, correct = np.repeat([0.9, 0.5, 0.1], 40), np.arange(120) < 100
    tests = plan_tests(score, correct, 500, 0.1, 0.1)
    assert tests.ranks is None
    assert set(tests.thresholds) <= {0.7, 0.3, -np.inf}
    assert plan_tests(np.arange(120.0), correct, 500, 0.1, 0.1).thresholds is None


def test_too_few_samples_leave_nothing_to_test():
    assert len(plan_tests(np.arange(60.0), np.ones(60, dtype=bool), 58, 0.05, 0.05).ranks) == 0
    assert plan_tests(np.arange(60.0), np.ones(60, dtype=bool), 59, 0.05, 0.05).ranks.tolist() == [59]


def test_no_threshold_lies_where_other_samples_may_be_one_chain_of_ties():
    """Confidences close to 1 that more samples fill up: a threshold among them would accept nothing, and end it all."""
    rng = np.random.default_rng(0)
    doubt = 10.0 ** rng.uniform(-16, -0.3, 5000)
    score, correct = 1 - doubt, rng.random(5000) > 0.2 * doubt
    plan = plan_tests(score[:1000], correct[:1000], 4000, 0.05, 0.05)
    curve = curve_of(score[1000:], correct[1000:])
    assert plan.thresholds is not None
    assert curve.accepted[curve.at_threshold(plan.thresholds)].min() > 500


def test_a_plan_starts_where_the_number_of_accepted_samples_is_no_matter_of_luck():
    """Hardly an error and some ties: a threshold that accepts about 59 of the samples may accept 58, and end it all."""
    rng = np.random.default_rng(7)
    for _ in range(20):
        score, correct = rng.random(12_500), rng.random(12_500) > 2e-4
        score[::40] = score[1::40][: len(score[::40])]
        tests = plan_tests(score[:2500], correct[:2500], 10_000, 0.05, 0.05)
        assert tests.thresholds is not None
        assert tests.thresholds[0] < 0.95  # accepts 500 or so, of which 14 may be wrong
        assert search(curve_of(score[2500:], correct[2500:]), "best", 0.05, 0.05, tests).at > 9000


def test_accepted_samples_are_drawn_around_what_the_plan_accepts():
    """The mean is that of the plan; the variance of a beta-binomial, m s (1 - s) (m + n) / (n + 1), by hand."""
    draws = np.concatenate(
        [_draw_counts(np.array([20.0, 50.0, 100.0]), 100, 400, np.random.default_rng(seed)) for seed in range(50)]
    )
    assert np.diff(draws, axis=1).min() >= 0
    assert (draws[:, -1] == 400).all()
    for column, share in enumerate([0.2, 0.5]):
        variance = 400 * share * (1 - share) * 500 / 101
        assert draws[:, column].mean() == pytest.approx(400 * share, abs=4 * math.sqrt(variance / len(draws)))
        assert draws[:, column].var() == pytest.approx(variance, rel=0.06)


def test_critical_counts_allow_what_the_exact_bound_allows():
    errors, critical = _critical_counts(20_000, 0.05, 0.05)
    counts = np.arange(0, 15_000, 7)
    allowed = np.floor(np.interp(counts, critical, errors, left=-1.0))
    np.testing.assert_array_equal(allowed, allowed_errors(counts, 0.05, 0.05))
    errors, critical = _critical_counts(2_000_000, 0.05, 0.05)  # not every number of errors: off by one at the most
    counts = np.arange(100, 2_000_000, 9973)
    allowed = np.floor(np.interp(counts, critical, errors, left=-1.0))
    assert np.abs(allowed - allowed_errors(counts, 0.05, 0.05)).max() <= 1


def test_of_starts_that_reach_as_much_the_middle_one_is_taken():
    counts = np.array([60, 120, 250, 400, 600, 800, 1000])
    limit = allowed_errors(counts, 0.3, 0.05)
    assert best_start(np.zeros(20_000, bool), counts, limit, 1000, 0.3, np.random.default_rng(0)) == 3


def test_what_is_reached_by_a_slow_loop():
    rng = np.random.default_rng(4)
    counts = np.cumsum(rng.integers(0, 3, 12))  # of which some are equal
    for passed in rng.random((60, 12)) < 0.7:
        reached = []
        for start in range(12):
            end = start
            while end < 12 and passed[end]:
                end += 1
            reached.append(counts[end - 1] if end > start else 0)
        assert reached_from(passed, counts).tolist() == reached
    together = rng.random((5, 12)) < 0.7
    assert reached_from(together, counts).tolist() == [reached_from(row, counts).tolist() for row in together]
