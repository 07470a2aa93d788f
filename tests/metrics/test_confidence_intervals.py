"""Intervals of metrics and of paired differences: how often they cover a known truth, how narrow they are."""

import math

import numpy as np
import pytest
import torch

from calibrant.metrics import (
    AurcChanges,
    ConfidenceSketch,
    Judged,
    aurc,
    describe,
    ece,
    ece_by_chance,
    intervals,
    paired_differences,
    reliability,
)
from tests.helpers.confidences import draw, sketch_of
from tests.helpers.errors import facts


def truth():
    c, correct = draw(np.random.default_rng(99), 2_000_000)
    summary = sketch_of(c, correct)
    return {name: float(value) for name, value in summary.metrics().items()}


@pytest.mark.slow
def test_intervals_cover_the_truth_as_often_as_they_say():
    """Truth from 2 million samples; 120 data sets of 700. At 90%, three standard errors below are 82%."""
    known = truth()
    names = ("accuracy", "mean_confidence", "ece", "aece", "smooth_ece", "overconfidence", "underconfidence", "aurc",
             "e_aurc", "augrc", "risk_at_coverage_0.8", "risk_at_coverage_0.95", "coverage_at_risk_0.1")  # fmt: skip
    hits = dict.fromkeys(names, 0)
    trials = 120
    for seed in range(trials):
        found = intervals(sketch_of(*draw(np.random.default_rng(seed), 700)), level=0.9, replicates=200, seed=seed)
        for name in names:
            hits[name] += found[name].low <= known[name] <= found[name].high
    share = {name: count / trials for name, count in hits.items()}
    assert min(share.values()) > 0.82, share
    # Not by being wide: the mean's interval is as wide as theory says.
    c, correct = draw(np.random.default_rng(0), 700)
    found = intervals(sketch_of(c, correct), level=0.9)["accuracy"]
    expected = 2 * 1.645 * math.sqrt(correct.mean() * (1 - correct.mean()) / 700)
    assert found.high - found.low == pytest.approx(expected, rel=0.15)


@pytest.mark.slow
@pytest.mark.parametrize("size", [200, 1500])
def test_a_gap_is_told_from_chance_and_calibration_is_not(size):
    """An interval that always reaches 0 always covers: it must not, where confidences are 20 points too high."""
    above = level = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        c = rng.uniform(0.5, 1, size)
        low = [intervals(sketch_of(c, rng.random(size) < right), replicates=100, only=("ece",))["ece"].low
               for right in (c - 0.2, c)]  # fmt: skip
        above += low[0] > 0
        level += low[1] == 0
    assert above == 40
    assert level >= 33  # 95% of 40, and three standard errors


def test_what_chance_shows_is_what_chance_shows():
    rng = np.random.default_rng(8)
    c = rng.beta(5, 1.5, 400)
    drawn = [ece(c, rng.random(400) < c) for _ in range(400)]
    expected = ece_by_chance(reliability(c, rng.random(400) < c))
    assert expected.mean() == pytest.approx(np.mean(drawn), rel=0.06)
    assert np.quantile(expected, 0.95) == pytest.approx(np.quantile(drawn, 0.95), rel=0.08)


def test_moments_give_the_interval_of_a_mean():
    generator = torch.Generator().manual_seed(0)
    z, y = torch.randn(400, 5, generator=generator, dtype=torch.float64), torch.arange(400) % 5
    sketch = ConfidenceSketch()
    sketch.update(z, y)
    found = intervals(sketch.summary(), replicates=20)["nll"]
    each = torch.nn.functional.cross_entropy(z, y, reduction="none").numpy()
    assert found.value == pytest.approx(each.mean())
    assert (found.high - found.low) / 2 == pytest.approx(1.959964 * each.std() / 20)


def test_an_interval_contains_its_value_and_stays_in_range():
    rng = np.random.default_rng(1)
    for size in (1, 2, 5, 40):
        c, correct = draw(rng, size)
        for name, one in intervals(sketch_of(c, correct), replicates=50).items():
            if math.isnan(one.low):
                assert math.isnan(one.high), name
                assert math.isnan(one.value) or size < 10, name
            else:
                lowest, highest = describe(name).bounds
                assert lowest <= one.low <= one.value <= one.high <= highest, (name, one)


def test_the_same_seed_gives_the_same_intervals_and_another_one_others():
    summary = sketch_of(*draw(np.random.default_rng(2), 300))
    first, again, other = (intervals(summary, replicates=60, seed=seed)["ece"] for seed in (3, 3, 4))
    assert first == again
    assert first != other


@pytest.mark.slow
def test_cost_and_answer_do_not_depend_on_how_the_counts_came_about():
    """A sketch merged with itself 2^10 times: intervals 2^5 times narrower."""
    c, correct = draw(np.random.default_rng(3), 500)
    sketch = ConfidenceSketch()
    sketch.update_confidence(torch.from_numpy(c), torch.from_numpy(correct))
    narrow = sketch
    for _ in range(10):
        narrow = narrow + narrow
    wide, tight = (intervals(one.summary())["accuracy"] for one in (sketch, narrow))
    assert (wide.high - wide.low) / (tight.high - tight.low) == pytest.approx(32, rel=0.15)


def test_intervals_of_a_sketch_by_another_score():
    z = 4 * torch.randn(600, 4, generator=torch.Generator().manual_seed(5))
    y = torch.arange(600) % 4
    sketch = ConfidenceSketch(score=lambda v: v.amax(1))
    sketch.update(z, y)
    found = intervals(sketch.summary(), replicates=100)
    assert set(found) == set(sketch.compute())
    assert found["ece"].low < found["ece"].value < found["ece"].high
    assert found["aurc"].low < found["aurc"].value < found["aurc"].high


def test_bad_arguments():
    c, correct = draw(np.random.default_rng(6), 20)
    with pytest.raises(ValueError, match="level"):
        intervals(sketch_of(c, correct), level=1.0)
    with pytest.raises(ValueError, match="replicates"):
        intervals(sketch_of(c, correct), replicates=3)
    with pytest.raises(ValueError, match=facts("samples")):
        paired_differences(Judged(c, correct), Judged(c[:-1], correct[:-1]))


@pytest.mark.parametrize("name", ["ece", "smooth_ece", "augrc", "risk_at_coverage_0.9"])
def test_one_metric_has_the_interval_that_it_has_among_all(name):
    c, correct = draw(np.random.default_rng(8), 700)
    alone = intervals(sketch_of(c, correct), replicates=60, only=(name,))
    assert alone == {name: intervals(sketch_of(c, correct), replicates=60)[name]}


@pytest.mark.slow
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


@pytest.mark.slow
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


def test_losses_are_compared_where_both_models_have_them():
    score, correct = np.linspace(0.1, 0.9, 50), np.arange(50) % 3 > 0
    with_nll, without = Judged(score, correct, nll=1 - score), Judged(score, correct)
    assert "nll" in paired_differences(with_nll, with_nll, replicates=20)
    for pair in ((with_nll, without), (without, with_nll)):
        assert "nll" not in paired_differences(*pair, replicates=20)
