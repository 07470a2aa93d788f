"""Paired differences: how often they cover a known truth, and how narrow they are."""

import numpy as np
import pytest

from calibrant.metrics import AurcChanges, Judged, aurc, ece, intervals, paired_differences
from tests.helpers.confidences import draw, sketch_of


def test_paired_differences_cover_the_truth():
    """The same model before and after halving the log-odds; truth from a large sample."""

    def after(c):
        return 1 / (1 + ((1 - c) / c) ** 0.5)

    c, correct = draw(np.random.default_rng(98), 1_000_000)
    known = ece(after(c), correct) - ece(c, correct)
    hits = 0
    for seed in range(120):
        c, correct = draw(np.random.default_rng(seed), 600)
        found = paired_differences(Judged(c, correct), Judged(after(c), correct), level=0.9, replicates=200)
        hits += found["ece"].low <= known <= found["ece"].high
        assert found["accuracy"].low == found["accuracy"].high == 0
        assert found["aurc"].value == pytest.approx(0, abs=1e-12)
    assert hits / 120 > 0.82


def test_paired_is_narrower_than_two_separate_intervals():
    rng = np.random.default_rng(4)
    c, correct = draw(rng, 3000)
    other = np.clip(c + 0.02 * rng.standard_normal(3000), 0.01, 0.99)
    found = paired_differences(Judged(c, correct), Judged(other, correct))["aurc"]
    assert found.value == pytest.approx(aurc(other, correct) - aurc(c, correct))
    alone = intervals(sketch_of(c, correct))["aurc"]
    assert found.high - found.low < 0.5 * (alone.high - alone.low)


def test_paired_takes_a_score_and_the_proper_scores():
    rng = np.random.default_rng(5)
    c, correct = draw(rng, 500)
    nll = rng.random(500)
    first = Judged(c, correct, nll=nll, brier=nll)
    second = Judged(c, correct, score=rng.random(500), nll=nll + 0.5, brier=nll)
    found = paired_differences(first, second)
    assert found["nll"].value == pytest.approx(0.5)
    assert found["nll"].low == pytest.approx(0.5)
    assert found["brier"].value == 0
    assert found["aurc"].low > 0  # a random ranking is worse


def test_without_rankings_the_others_are_the_same():
    rng = np.random.default_rng(6)
    c, correct = draw(rng, 400)
    pair = Judged(c, correct, nll=rng.random(400)), Judged(np.sqrt(c), correct, nll=rng.random(400))
    changes = paired_differences(*pair, replicates=100)
    assert set(changes) - {"aurc", "augrc"} == set(paired_differences(*pair, replicates=100, ranked=False))
    for name, change in paired_differences(*pair, replicates=100, ranked=False).items():
        assert change == changes[name]


@pytest.mark.parametrize("samples", [30, 500])
def test_aurc_changes_are_those_of_the_whole_comparison(samples):
    rng = np.random.default_rng(7)
    c, correct = draw(rng, samples)
    first = Judged(c, correct, score=np.round(c, 1))
    changes = AurcChanges(first, level=0.7, replicates=300, seed=5)
    for score in (rng.random(samples), c, np.round(c, 2)):  # each as if it were the only one
        second = Judged(c, correct, score=score)
        assert changes.to(score) == paired_differences(first, second, level=0.7, replicates=300, seed=5)["aurc"]
