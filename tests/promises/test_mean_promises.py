"""Thresholds of recall, of an expected risk and of a cost: exact, by SciPy and by counting every outcome."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import binom

from calibrant import Policy, Predictions
from calibrant.promises import Cost, threshold_for_cost
from calibrant.promises.cost import FRACTIONS
from calibrant.promises.expected_risk import expected_risk_threshold
from calibrant.promises.images import can_show_risk
from calibrant.promises.parts import ScoredSamples, ThresholdData, ThresholdTarget
from calibrant.promises.recall import recall_threshold
from tests.helpers.policies import drawn


@pytest.mark.parametrize(("samples", "share", "delta"), [(59, 0.95, 0.05), (300, 0.9, 0.1), (28, 0.9, 0.05)])
def test_as_many_are_missed_as_the_binomial_limit_allows(samples, share, delta):
    score = np.random.default_rng(0).permutation(np.linspace(0.1, 1, samples))
    value = recall_threshold(score, share, delta)
    missed = [misses for misses in range(samples) if binom.cdf(misses, samples, 1 - share) <= delta]
    assert (score < value).sum() == missed[-1] if missed else value == math.inf


def test_what_lies_far_below_the_lowest_sample_of_a_class_is_not_answered():
    assert 0.3 < recall_threshold(np.linspace(0.31, 1, 59), 0.95, 0.05) <= 0.31  # of 59 samples none may be missed


def test_no_outcome_of_a_small_sample_breaks_recall_more_often():
    # Scores 1, 2, 3 of a class with these shares; every outcome of n draws, by how many have each score.
    shares, samples = (0.2, 0.3, 0.5), 9
    for share, delta in itertools.product((0.45, 0.5, 0.75, 0.8), (0.05, 0.2)):
        broken = 0.0
        for low, middle in itertools.product(range(samples + 1), repeat=2):
            high = samples - low - middle
            if high < 0:
                continue
            chance = math.factorial(samples) / math.prod(map(math.factorial, (low, middle, high)))
            chance *= math.prod(p**k for p, k in zip(shares, (low, middle, high), strict=True))
            value = recall_threshold(np.repeat([1.0, 2.0, 3.0], (low, middle, high)), share, delta)
            recall = sum(p for score, p in zip((1, 2, 3), shares, strict=True) if score >= value)
            broken += chance * (math.isfinite(value) and recall < share)
        assert broken <= delta + 1e-12


def test_recall_is_broken_as_often_as_allowed_and_hardly_less():
    rng = np.random.default_rng(1)
    values = np.array([recall_threshold(rng.random(80), 0.9, 0.1) for _ in range(3000)])
    broken = (values > 0.1).mean()  # of uniform scores, the share below a value is the value
    exact = max(chance for misses in range(80) if (chance := binom.cdf(misses, 80, 0.1)) <= 0.1)
    assert abs(broken - exact) < 4 * math.sqrt(exact * (1 - exact) / 3000)
    assert exact > 0.08


@pytest.mark.parametrize("target", [0.15, 0.25, 0.4])
def test_an_expected_risk_holds_exactly_on_average(target):
    # Outcomes of a sample: scores 1, 2, 3, right or wrong; all samples of five, and then a sixth.
    kinds = list(itertools.product((1.0, 2.0, 3.0), (True, False)))
    shares = np.array([0.05, 0.2, 0.15, 0.15, 0.3, 0.15])

    def wrong_above(value):
        return sum(p for (score, right), p in zip(kinds, shares, strict=True) if score >= value and not right)

    mean, most = 0.0, 0.0
    for counts in itertools.product(range(6), repeat=len(kinds)):
        if sum(counts) != 5:
            continue
        chance = math.factorial(5) * math.prod(p**k / math.factorial(k) for p, k in zip(shares, counts, strict=True))
        score = np.repeat([kind[0] for kind in kinds], counts)
        right = np.repeat([kind[1] for kind in kinds], counts)
        risk = wrong_above(expected_risk_threshold(score, right, target))
        mean, most = mean + chance * risk, max(most, risk)
    assert mean <= target
    if target == 0.25:
        assert most > target  # a single fit may exceed it


def test_the_threshold_of_conformal_risk_control_is_the_loosest():
    rng = np.random.default_rng(2)
    score, right = rng.random(400), rng.random(400) < 0.8
    value = expected_risk_threshold(score, right, 0.1)
    at_most = math.floor(0.1 * 401) - 1
    assert ((score >= value) & ~right).sum() == at_most
    looser = score[(score < value)].max()
    assert not right[score == looser].any()  # the next one would be an error
    assert expected_risk_threshold(score, right, 0.002) == math.inf
    assert expected_risk_threshold(score, right, 0.5) == -math.inf


def test_no_answer_is_expected_to_cost_more_than_none():
    rng = np.random.default_rng(3)
    labels, score = rng.integers(0, 2, 600), -rng.random(600)
    predicted = np.where(rng.random(600) < 1 + 0.3 * score, labels, 1 - labels)
    part = ScoredSamples(score, labels == predicted, predicted=predicted, labels=labels)
    for abstain_cost, value in ((None, -math.inf), (0.25, -0.25)):
        asked = Cost(0.6, [[0.0, 1.0], [1.0, 0.0]], abstain_cost=abstain_cost)
        found = asked.find(ThresholdData(part, part, ThresholdTarget(None, None, 0.95)))
        assert found.threshold.value == value
        answers = score >= value
        assert found.promise.tally == (answers.sum(), (labels != predicted)[answers].sum())


def test_too_few_samples_abstain_and_say_so():
    logits, labels = drawn(300, 4)
    data = Predictions.from_logits(logits, labels)
    silent = Policy.fit(data, promise="recall=0:0.99")
    assert silent.abstains
    assert silent.threshold.needed == 299
    assert "299" in silent.summary
    assert not silent.decide(logits).accept.any()
    few = Predictions.from_logits(logits[:240], labels[:240])
    expected = Policy.fit(few, promise="expected-risk:0.004").threshold
    assert (expected.needed, "249" in expected.reason) == (249, True)


def drawn_costs(n, seed):
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
        threshold = threshold_for_cost(*drawn_costs(500, seed), 0.3, highest=5.0, confidence=0.8, seed=seed)
        broken += not threshold.abstains and mean_cost(threshold.value) > 0.3
        covered.append(threshold.coverage.value)
    assert broken / 150 <= 0.2 + 3 * math.sqrt(0.16 / 150)
    assert 0.1 < np.mean(covered) < 0.6  # whoever knows the costs accepts 0.6


def test_it_counts_what_it_says():
    score, cost = drawn_costs(4000, 1)
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
    fewest = next(
        n for n in range(1, 200) if can_show_risk(np.ones((n, 1)), np.zeros((n, 1)), 0.05, 0.05, FRACTIONS)[0]
    )
    assert 59 < fewest < 150
    threshold = threshold_for_cost(np.arange(200.0), np.zeros(200), 0.05, highest=1.0)
    assert threshold.value == -math.inf
    nothing = threshold_for_cost(np.arange(60.0), np.zeros(60), 0.05, highest=1.0)
    assert nothing.abstains
    assert nothing.reason.startswith("Always abstains")


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
