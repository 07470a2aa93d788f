"""Prediction sets: scores and quantiles by hand and by other code, and what sets promise."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from calibrant.policy.prediction_sets import SetCounts
from calibrant.posthoc import NumpyOps, TorchOps
from calibrant.promises.sets import (
    PredictionSets,
    Sets,
    choose_penalty,
    conformal_quantile,
    conformal_rank,
    fewest_samples,
    set_scores,
)


def probabilities(n=30, classes=7, seed=0):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(classes, 0.4), n)
    p[: n // 3] = np.round(p[: n // 3], 1)  # ties
    return p


def aps_reference(p, u=1.0, penalty=0.0, free=0):
    """One class at a time: what lies before it in a stable falling order, and a part of its own."""
    scores = np.empty_like(p)
    for i, row in enumerate(p):
        before = 0.0
        for rank, k in enumerate(sorted(range(len(row)), key=lambda k: -row[k]), start=1):
            scores[i, k] = before + u * row[k] + penalty * max(0, rank - free)
            before += row[k]
    return scores


def test_lac_is_the_probability_with_its_sign_changed():
    p = probabilities()
    np.testing.assert_array_equal(set_scores(NumpyOps(), "lac", p), -p)


@pytest.mark.parametrize(("penalty", "free"), [(0.0, 0), (0.01, 2), (0.5, 1)])
@pytest.mark.parametrize("u", [1.0, 0.3])
def test_aps_and_raps_as_the_papers_have_them(u, penalty, free):
    p = probabilities()
    draw = None if u == 1.0 else np.full((len(p), 1), u)
    method = "raps" if penalty else "aps"
    expected = aps_reference(p, u, penalty, free)
    np.testing.assert_allclose(set_scores(NumpyOps(), method, p, penalty, free, draw), expected, rtol=0, atol=1e-14)
    tensor = None if draw is None else torch.from_numpy(draw)
    scores = set_scores(TorchOps(), method, torch.from_numpy(p), penalty, free, tensor)
    np.testing.assert_allclose(scores.numpy(), expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95])
@pytest.mark.parametrize("n", [1, 9, 18, 19, 20, 199, 1000])
def test_the_quantile_is_that_of_numpy_with_the_correction(n, level):
    scores = np.random.default_rng(n).random(n)
    corrected = math.ceil(round((n + 1) * level, 9)) / n
    expected = np.inf if corrected > 1 else np.quantile(scores, corrected, method="inverted_cdf")
    assert conformal_quantile(scores, level) == expected


def test_ranks_are_exact_where_binary_fractions_are_not():
    assert 100 * 0.07 > 7  # which a plain ceil would make 8
    assert conformal_rank(99, 0.07) == 7
    assert [conformal_rank(n, 0.95) for n in (18, 19, 39, 40)] == [19, 19, 38, 39]
    for level in (0.5, 0.9, 0.95, 0.99, 0.999):
        n = fewest_samples(level)
        assert conformal_rank(n, level) <= n < conformal_rank(n - 1, level) + 1
        assert conformal_rank(n - 1, level) > n - 1


@pytest.mark.parametrize("method", ["lac", "aps", "raps"])
def test_coverage_over_calibration_sets_is_the_rank_over_n_plus_one(method):
    """10,000 calibration sets with a new sample each; scores do not tie, so that the coverage is k / (n + 1)."""
    rng, n, repeats, classes, level = np.random.default_rng(0), 30, 10_000, 4, 0.9
    p = rng.dirichlet(np.full(classes, 0.5), (n + 1) * repeats)
    labels = (p.cumsum(1) < rng.random((len(p), 1))).sum(1).clip(max=classes - 1)
    draw = None if method == "lac" else rng.random((len(p), 1))
    scores = set_scores(NumpyOps(), method, p, 0.1, 1, draw)[np.arange(len(p)), labels].reshape(repeats, n + 1)
    rank = conformal_rank(n, level)
    covered = scores[:, n] <= np.sort(scores[:, :n], axis=1)[:, rank - 1]
    expected = rank / (n + 1)
    assert abs(covered.mean() - expected) < 3.5 * math.sqrt(expected * (1 - expected) / repeats)
    assert expected >= level


def test_the_penalty_with_the_smallest_sets_is_chosen():
    """Long tails without the truth in them, for which RAPS was made: of all candidates none has smaller sets."""
    rng = np.random.default_rng(2)
    p = probabilities(400, 40, seed=1)
    labels = np.argsort(-p, axis=1)[np.arange(len(p)), rng.choice(3, len(p), p=(0.7, 0.2, 0.1))]

    def size(penalty, free):
        scores = aps_reference(p, 1.0, penalty, free)
        return (scores <= conformal_quantile(scores[np.arange(len(p)), labels], 0.9)).sum()

    penalty, free = choose_penalty(p, labels, 0.9)
    assert size(penalty, free) <= min(size(lam, k) for lam in (0.001, 0.1, 0.5) for k in (1, 2, 5))
    assert size(penalty, free) < size(0.0, 0)
    assert choose_penalty(p, labels, 0.9, penalty=0.2)[0] == 0.2
    assert choose_penalty(p, labels, 0.9, free_ranks=3)[1] == 3


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
    assert Sets(0.9, "raps").has_choice
    assert Sets(0.9, "raps", penalty=0.1).has_choice
    assert not Sets(0.9, "raps", penalty=0.1, free_ranks=2).has_choice
    assert not Sets(0.9, "aps").has_choice
