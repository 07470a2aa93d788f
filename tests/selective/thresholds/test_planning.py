"""Tests of planning."""

import numpy as np
import pytest

from calibrant.selective.bounds import allowed_errors
from calibrant.selective.thresholds.planning import EDGES, _drawn_rates, best_start, plan_tests, reached_from
from calibrant.selective.thresholds.search import curve_of


def test_many_rows_outweigh_the_curve():
    """Rates that no logistic curve has are found where there are rows enough: 1%, then 30%, then 5%."""
    rng = np.random.default_rng(0)
    share = (np.arange(40_000) + 0.5) / 40_000
    true = np.select([share < 0.4, share < 0.7], [0.01, 0.3], 0.05)
    drawn = _drawn_rates(rng.random(40_000) < true, 0.05, np.random.default_rng(1)).mean(0)
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
    start = best_start(wrong, counts, limit, 1000, 0.08)
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
