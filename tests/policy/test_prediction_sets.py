"""Prediction sets of a policy: which samples they rest on, their coverage over many fits, what is refused."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from calibrant import Policy, Predictions
from calibrant.promises.sets import SetCounts, mean_of_sizes
from calibrant.promises.split import draw_uniform
from tests.helpers.errors import facts
from tests.helpers.policies import drawn

METHODS = ["lac", "aps", "raps", "class-conditional"]


def fit(n=900, seed=0, **options):
    options = {"target_risk": 0.2, "sets": 0.9, **options}
    return Policy.fit(Predictions.from_logits(*drawn(n, seed=seed)), **options)


def softmax(z):
    exps = np.exp(z - z.max(1, keepdims=True))
    return exps / exps.sum(1, keepdims=True)


def test_the_quantile_is_of_the_samples_that_the_calibrator_did_not_see():
    policy = fit(calibrator="temperature")
    z, y = drawn(900)
    others = draw_uniform(0, 0, 900) >= 0.2
    p = softmax(z / policy.calibrator.temperature_)[np.arange(900), y][others]
    n = len(p)
    assert policy.sets.samples == (n,)
    rank = math.ceil(round((n + 1) * 0.9, 9))
    assert policy.sets.quantiles[0] == pytest.approx(np.sort(-p)[rank - 1], rel=1e-12)
    assert int(policy.sets.counts.class_covered.sum()) == rank


@pytest.mark.parametrize("method", METHODS)
def test_torch_and_numpy_give_the_same_sets(method):
    policy = fit(set_method=method)
    z, y = drawn(50, seed=3)
    members = policy.predict_sets(z)
    assert members.shape == z.shape
    assert members.dtype == bool
    tensor = policy.predict_sets(torch.from_numpy(z))
    assert isinstance(tensor, torch.Tensor)
    np.testing.assert_array_equal(tensor.numpy(), members)
    np.testing.assert_array_equal(policy.predict_sets(Predictions.from_logits(z, y)), members)


def test_too_few_samples_give_all_classes_and_say_so():
    policy = fit(15, sets=0.95)
    assert policy.sets.quantiles == (math.inf,)
    assert policy.predict_sets(drawn(4, seed=2)[0]).all()
    (sentence,) = policy.sets.sentences(None)
    assert re.search(facts("95%", "15", "19"), sentence)
    with pytest.raises(ValueError, match=facts("sets")):
        fit(100, sets=None).predict_sets(drawn(3)[0])


def test_a_rare_class_is_in_every_set():
    z, y = drawn(600)
    y = np.where((y == 2) & (np.arange(600) % 8 > 0), 1, y)
    policy = Policy.fit(Predictions.from_logits(z, y), 0.4, sets=0.95, set_method="class-conditional")
    rare = np.isinf(policy.sets.quantiles)
    assert rare[2]
    assert policy.predict_sets(z)[:, rare].all()
    assert "in every set" in policy.sets.sentences(None)[-1]


@pytest.mark.slow
def test_randomised_sets_are_seeded_and_independent_of_batches():
    policy, again = (fit(set_method="aps", set_randomised=True, seed=5) for _ in range(2))
    z, y = drawn(3000, seed=4)
    members = policy.predict_sets(z)
    np.testing.assert_array_equal(members, again.predict_sets(z))
    parts = [policy.predict_sets(z[:700]), policy.predict_sets(z[700:], start=700)]
    np.testing.assert_array_equal(np.concatenate(parts), members)
    plain = fit(set_method="aps", seed=5).predict_sets(z)
    assert members.sum() < plain.sum()  # what randomisation is for
    assert abs(members[np.arange(3000), y].mean() - 0.9) < 0.04


def test_one_column_of_two_classes_works():
    rng = np.random.default_rng(0)
    p = rng.random(800)
    policy = Policy.fit(Predictions.from_probabilities(p, (rng.random(800) < p).astype(int)), 0.3, sets=0.9)
    members = policy.predict_sets(np.array([0.01, 0.5, 0.99]))
    assert members.tolist() == [[True, False], [True, True], [False, True]]


@pytest.mark.slow
def test_sets_beside_thresholds_by_class_in_every_group():
    """Sets come from probabilities alone: whatever thresholds there are, they are those of a policy without groups."""
    z, y = drawn(1500, 3)
    data = Predictions.from_logits(z, y, groups={"site": np.where(np.arange(1500) % 2, "x", "y")})
    fits = [
        Policy.fit(data, 0.3, calibrator="temperature", sets=0.9, **options)
        for options in ({}, {"by_class": True, "group": "site"})
    ]
    assert [policy.group_names for policy in fits] == [None, ("x", "y")]
    plain, grouped = (policy.predict_sets(data) for policy in fits)
    np.testing.assert_array_equal(grouped, plain)


def counts():
    members = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 0], [1, 1, 1], [0, 1, 0]], dtype=bool)
    accept = np.array([True, False, True, False, True])
    total = SetCounts(3)
    total.add(members[:2], accept[:2], np.array([0, 2]))
    total.add(members[2:], accept[2:], np.array([1, 1, 0]))
    return total


def test_sizes_and_coverage_by_hand():
    total = counts()
    assert total.samples == 5
    assert total.sizes.tolist() == [1, 2, 1, 1]
    assert total.abstained.tolist() == [0, 0, 1, 1]
    assert total.coverage.value == pytest.approx(2 / 5)
    assert [total.class_coverage(k).value for k in range(3)] == [1 / 2, 1 / 2, 0.0]
    assert total.abstained_covered == 1
    assert total.empty.value == 1 / 5
    facts = total.to_dict(["a", "b", "c"])
    assert facts["where_abstained"]["one_or_two"]["value"] == 1 / 2
    assert [row["class"] for row in facts["classes"]] == ["a", "b", "c"]


def test_the_intervals_are_those_of_scipy():
    total = counts()
    exact = stats.binomtest(2, 5).proportion_ci(0.95)
    assert (total.coverage.low, total.coverage.high) == pytest.approx((exact.low, exact.high))
    values = np.repeat(np.arange(4), [10, 20, 30, 5])
    size = mean_of_sizes(np.array([10, 20, 30, 5]))
    assert size.value == pytest.approx(values.mean())
    assert size.high - size.value == pytest.approx(1.959964 * stats.sem(values), rel=1e-6)


def test_a_constant_set_that_is_as_small_is_said():
    sets = Policy.fit(Predictions.from_logits(*drawn(600, 3)), 0.3, sets=0.9).sets
    labels = np.repeat([0, 1, 2], [95, 3, 2])

    def words(sizes, sets=sets):
        total = SetCounts(3)
        total.add(np.arange(3) < np.resize(sizes, 100)[:, None], np.ones(100, dtype=bool), labels)
        return total.compare_with_constant(sets, ("x", "y", "z"))

    assert "95.00%" in words([1])
    assert words([0, 1]).startswith("Warning")  # fewer classes, but every sample could have one
    assert words([1], replace(sets, level=0.96)) == ""  # one class does not do, two have 98%
    assert words([2], replace(sets, level=0.96)).startswith("Warning")
    assert words([1], replace(sets, method="class-conditional")) == ""  # which one set keeps only if it has all


def test_without_labels_only_sizes_are_known():
    total = SetCounts(2)
    total.add(np.array([[True, False]]), np.array([True]), None)
    assert np.isnan(total.coverage.value)
    assert total.to_dict(None)["classes"] == []
    assert len(total.sentences(None)) == 1


def test_ignored_labels_do_not_count():
    total = SetCounts(2)
    total.add(np.ones((3, 2), bool), np.ones(3, bool), np.array([0, 255, 1]), 255)
    assert total.samples == 2
