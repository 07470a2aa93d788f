"""Tests of thresholds over independent samples."""

import numpy as np
import pytest
import torch

from calibrant import Policy, Predictions
from calibrant.selective.thresholds import samples
from calibrant.selective.thresholds.menu import RISKS
from calibrant.selective.thresholds.samples import ScoredSamples, threshold_planned
from tests.helpers.policies import drawn


def test_an_unlucky_choice_does_not_silence_a_policy():
    """The rows that plan the tests hold none of the errors but one; where the others have theirs, the least sure."""
    plan = ScoredSamples(np.linspace(1, 0, 84), np.arange(84) < 83)
    others = ScoredSamples(np.linspace(1, 0, 216), np.arange(216) < 206)
    found = threshold_planned(others, plan, 0.05, 0.95, "best")
    assert found.accepted >= 200
    assert found.risk.high <= 0.05


def test_groups_have_thresholds_of_their_own(tmp_path):
    z, y = drawn(6000)
    rng = np.random.default_rng(7)
    site = rng.choice(["good", "bad"], 6000)
    y = np.where((site == "bad") & (rng.random(6000) < 0.06), (y + 1) % 6, y)
    found = Policy.fit(Predictions.from_logits(z, y, groups={"site": site}), 0.15, group="site")
    assert found.group_names == ("bad", "good")
    assert found.groups["bad"].value > found.groups["good"].value
    found.save(tmp_path / "p.json")
    found = Policy.load(tmp_path / "p.json")
    _, _, good = found.decide(z, ["good"] * 6000)
    _, _, bad = found.decide(z, ["bad"] * 6000)
    _, _, unknown = found.decide(z, ["elsewhere"] * 6000)
    assert good.mean() > bad.mean() > 0 == unknown.sum()
    for one, wrong in ((None, "groups are needed"), (["good"], "one for each sample")):
        with pytest.raises(ValueError, match=wrong):
            found.decide(z, one)
    module = found.module()(torch.from_numpy(z), torch.zeros(6000, dtype=torch.int64))
    assert (module.accept.numpy() == bad).all()
    with pytest.raises(ValueError, match="group is needed"):
        found.module()(torch.from_numpy(z))
    with pytest.raises(ValueError, match="do not hold"):
        found.decide(Predictions.from_logits(z, y))


def test_what_is_needed_is_more_than_there_was():
    for seed in range(30):
        rng = np.random.default_rng(seed)
        n = int(rng.choice([40, 200, 500]))
        found = Policy.fit(Predictions.from_logits(*drawn(n, seed=seed)), float(rng.choice([0.01, 0.05, 0.2])))
        assert found.threshold.needed is None or found.threshold.needed > n


def test_planning_is_on_other_samples(monkeypatch):
    """The order of the tests must not depend on the samples that are tested."""
    seen = []
    real = samples.plan_tests
    watch = lambda score, *rest: seen.append(len(score)) or real(score, *rest)  # noqa: E731
    monkeypatch.setattr(samples, "plan_tests", watch)
    found = Policy.fit(Predictions.from_logits(*drawn(1200)), 0.1)
    assert set(seen) == {found.evidence["for_choice"]}


def test_a_policy_that_abstains_offers_what_could_be_promised(tmp_path):
    """On one file 5% answers nothing and 6% two thirds: the rate of errors is 4.5% over most of the scores."""
    rng = np.random.default_rng(2)
    n = 6000
    top = rng.uniform(0.5, 1.0, n)
    right = rng.random(n) >= np.where(top > 0.65, 0.045, 0.4)
    z = np.log(np.stack([top, (1 - top) * 0.6, (1 - top) * 0.4], axis=1))
    data = Predictions.from_logits(z, np.where(right, 0, 1))
    policy = Policy.fit(data, 0.03, calibrator="none", score="msp")
    assert policy.abstains
    menu = policy.threshold.menu
    assert menu[0].risk == min(offer.risk for offer in menu) > 0.03
    for offer in menu:
        again = Policy.fit(data, offer.risk, calibrator="none", score="msp")
        assert again.threshold.coverage.value == offer.coverage > 0
    below = RISKS[RISKS.index(menu[0].risk) - 1]
    assert Policy.fit(data, below, calibrator="none", score="msp").abstains
    words = "The lowest risk that could be promised on those samples is about "
    assert f"{words}{100 * menu[0].risk:.4g}%" in policy.summary
    assert "less than 95% confidence, so fit again on fresh samples" in policy.summary
    policy.save(tmp_path / "p.json")
    again = Policy.load(tmp_path / "p.json")
    assert again.threshold.menu == menu
    assert again.summary == policy.summary


def test_a_policy_that_answers_has_a_menu_that_says_nothing_of_its_own(tmp_path):
    policy = Policy.fit(Predictions.from_logits(*drawn(1200)), 0.1)
    assert not policy.abstains
    assert policy.threshold.menu
    assert "estimate" not in policy.summary


def test_groups_that_all_abstain_share_a_menu():
    z, y = drawn(900)
    site = np.arange(900) % 3
    data = Predictions.from_logits(z, y, groups={"site": site})
    policy = Policy.fit(data, 0.01, group="site")
    assert policy.abstains
    risk, coverage = policy.threshold.menu[-1]
    again = Policy.fit(data, risk, group="site")
    assert again.threshold.coverage.value == coverage > 0
    assert f"is about {100 * policy.threshold.menu[0].risk:.4g}%" in policy.summary
