"""The adversary: its populations against counts, its verdict against a threshold without a promise."""

import numpy as np
import pytest

from benchmarks.adversary import Population, broken, planned, random_population, words, worst_of
from calibrant.selective.thresholds.search import curve_of

TWO = Population(
    ((0.5, 0.2, 0.3), (0.25, 0.5, 0.25)), ((0.1, 0.4, 0.2), (0.05, 0.3, 0.9)),
    ((True, False, True), (False, True, False)), 200, 0.1, 0.9,
)  # fmt: skip


@pytest.mark.parametrize("group", [0, 1])
def test_the_risk_of_a_threshold_by_counting(group):
    score, correct = TWO.draw(group, 300_000, np.random.default_rng(1))
    for threshold in (2.6, 2.2, 1.7, 1.4, 0.3, -1.0):
        accepted = score >= threshold
        counted = float((~correct[accepted]).mean()) if accepted.any() else 0.0
        assert TWO.risk_at(group, threshold) == pytest.approx(counted, abs=0.006)


def test_a_threshold_without_a_promise_is_caught():
    def empirical(score, correct, risk, delta):
        curve = curve_of(score, correct)
        fits = np.flatnonzero((curve.errors <= risk * curve.accepted) & (curve.accepted > 0))
        return float(curve.threshold[fits[-1]]) if len(fits) else np.inf

    flat = Population(((1.0,),), ((0.101,),), ((False,),), 200, 0.1, 0.9)
    assert broken(flat, empirical, 60, 3) > 50
    assert broken(flat, planned, 60, 3) < 20
    assert broken(flat, lambda *_: np.inf, 20, 3) == 0  # nothing is promised of nothing
    assert broken(flat, lambda *_: -np.inf, 20, 3) == 20


def test_the_search_is_repeatable_and_its_populations_are_whole(monkeypatch):
    monkeypatch.setattr("benchmarks.adversary.FEW", 4)
    first, again = (worst_of(planned, 3, 5)[0] for _ in range(2))
    assert first == again
    for seed in range(20):
        population = random_population(np.random.default_rng(seed))
        assert np.sum(population.share, axis=1) == pytest.approx(1.0)
        assert 0 < np.min(population.wrong) <= np.max(population.wrong) < 1
    assert words({"share": [[1.0]], "wrong": [[0.05]], "tied": [[True]]}) == "100% at 0.05 (tied)"
