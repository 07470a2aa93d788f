"""The thresholds of a policy over independent samples: one for all, or one for each group or class."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import binom

from calibrant import Policy, Predictions
from calibrant.promises import parts
from calibrant.promises.parts import (
    ScoredSamples,
    ThresholdData,
    ThresholdTarget,
    find_testable_parts,
    plan_search,
    recycle,
    thresholds_by_class,
)
from calibrant.promises.split import draw_uniform, share_for_choice
from calibrant.promises.thresholds import RISK, RISKS, FixedSequence, abstaining_threshold, curve_of, threshold_on
from tests.helpers.policies import drawn


def test_an_unlucky_choice_does_not_silence_a_policy():
    """The rows that plan the tests hold none of the errors but one; where the others have theirs, the least sure."""
    plan = ScoredSamples(np.linspace(1, 0, 84), np.arange(84) < 83)
    others = ScoredSamples(np.linspace(1, 0, 216), np.arange(216) < 206)
    found = plan_search(others, plan, 0.95)(0.05)
    assert found.accepted >= 200
    assert found.risk.high <= 0.05


@pytest.mark.slow
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


@pytest.mark.slow
def test_what_is_needed_is_more_than_there_was():
    for seed in range(30):
        rng = np.random.default_rng(seed)
        n = int(rng.choice([40, 200, 500]))
        found = Policy.fit(Predictions.from_logits(*drawn(n, seed=seed)), float(rng.choice([0.01, 0.05, 0.2])))
        assert found.threshold.needed is None or found.threshold.needed > n


def test_planning_is_on_other_samples(monkeypatch):
    """The order of the tests must not depend on the samples that are tested."""
    seen = []
    real = parts.plan_tests
    watch = lambda score, *rest: seen.append(len(score)) or real(score, *rest)  # noqa: E731
    monkeypatch.setattr(parts, "plan_tests", watch)
    found = Policy.fit(Predictions.from_logits(*drawn(1200)), 0.1)
    assert set(seen) == {found.evidence["for_choice"]}


@pytest.mark.slow
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
    assert f"{100 * menu[0].risk:.4g}%" in policy.summary
    policy.save(tmp_path / "p.json")
    again = Policy.load(tmp_path / "p.json")
    assert (again.threshold.menu, again.summary) == (menu, policy.summary)
    answers = Policy.fit(Predictions.from_logits(*drawn(1200)), 0.1)
    assert answers.threshold.menu
    assert "estimate" not in answers.summary


@pytest.mark.slow
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


def answered(rates, samples, rng, risk=0.1, confidence=0.9):
    """The thresholds of classes that are wrong at these rates, whatever the score is."""
    predicted = np.repeat(np.arange(len(rates)), samples)
    correct = rng.random(len(predicted)) >= np.asarray(rates)[predicted]
    scored = ScoredSamples(rng.random(len(predicted)), correct, predicted=predicted, labels=predicted)
    target = ThresholdTarget(risk, None, confidence)
    return thresholds_by_class(ThresholdData(scored, None, target), risk, lambda part: RISK)[1]


@pytest.mark.slow
def test_all_promises_hold_at_once_and_shares_are_needed_for_it():
    rng = np.random.default_rng(0)
    draws, rates = 300, (0.0, 0.1002, 0.1002, 0.1002)  # one class that passes, and hands on its share
    broken = sum(any(not part.threshold.abstains for part in answered(rates, 120, rng)[1:]) for _ in range(draws))
    assert broken / draws <= 0.1 + 3 * math.sqrt(0.09 / draws)
    assert broken / draws > 0.03  # a third of it for each, with steps of whole errors: most of it is used
    alone = sum(not answered((0.1002,), 120, rng)[0].threshold.abstains for _ in range(draws))
    assert 1 - (1 - alone / draws) ** 3 > 0.15  # without sharing, the promise would be broken


def test_no_outcome_of_two_small_classes_breaks_a_promise_more_often():
    # Two classes of equal scores each: every number of errors, at rates on either side of the target.
    samples, risk, delta = 6, 0.5, 0.2
    for rates in itertools.product((0.3, 0.501, 0.7), repeat=2):
        broken = 0.0
        for errors in itertools.product(range(samples + 1), repeat=2):
            chance = math.prod(binom.pmf(k, samples, rate) for k, rate in zip(errors, rates, strict=True))
            curves = [curve_of(np.ones(samples), np.arange(samples) >= k) for k in errors]
            searches = {
                number: lambda level, curve=curve: threshold_on(
                    curve, risk, 1 - level, "best", FixedSequence(ranks=np.array([samples]))
                )
                for number, curve in enumerate(curves)
            }
            thresholds = recycle(searches, delta)
            broken += chance * any(rate > risk and not thresholds[number].abstains for number, rate in enumerate(rates))
        assert broken <= delta + 1e-12


def test_a_class_that_answers_everything_hands_on_its_share():
    asked = []

    def search(number):
        def at_level(level):
            asked.append((number, round(level, 12)))
            passes = number == 0 or (number == 1 and level >= 0.05)
            return replace(abstaining_threshold("best", 0.1, 1 - level), value=-math.inf if passes else math.inf)

        return at_level

    thresholds = recycle({number: search(number) for number in range(3)}, 0.12)
    assert [thresholds[number].abstains for number in range(3)] == [False, False, True]
    assert asked == [(0, 0.04), (1, 0.04), (2, 0.04), (1, 0.06), (2, 0.06), (2, 0.12)]


@pytest.mark.parametrize("sizes", [(500, 70, 10), (72, 72), (72, 71), (59, 0), (58,), (90, 90, 90, 88)])
def test_classes_that_no_test_could_pass_have_no_share(sizes):
    chosen = find_testable_parts([(size, 0.05) for size in sizes], 0.05)
    for count in range(len(sizes), 0, -1):  # the most of the largest that all could show 5% without an error
        largest = sorted(range(len(sizes)), key=lambda number: -sizes[number])[:count]
        if all(0.95 ** sizes[number] <= 0.05 / count for number in largest):
            assert sorted(sizes[number] for number in chosen) == sorted(sizes[number] for number in largest)
            return
    assert chosen == []


def confused(n, seed=0):
    """Logits whose class 3 is half the time something else."""
    logits, labels = drawn(n, 4, seed=seed)
    labels[(logits.argmax(1) == 3) & (np.arange(n) % 2 == 0)] = 0
    return logits, labels


@pytest.mark.slow
def test_every_class_of_a_policy_keeps_its_risk_and_others_abstain():
    data = Predictions.from_logits(*confused(4000), class_names=["a", "b", "c", "d"])
    policy = Policy.fit(data, target_risk=0.1, by_class=True, calibrator="temperature")
    assert [part.threshold.abstains for part in policy.classes] == [False, False, False, True]
    assert policy.summary.endswith("It never answers d.")
    new, truth = confused(20000, seed=1)
    answers, _, accept = policy.decide(new)
    assert not accept[answers == 3].any()
    for part in policy.classes[:3]:
        own = accept & (answers == part.label)
        assert (truth != answers)[own].mean() <= 0.1
        assert part.threshold.risk.high <= 0.1


@pytest.mark.slow
def test_precision_of_two_classes_each_with_its_own_share():
    logits, labels = drawn(4000, 4, spread=6.0)
    policy = Policy.fit(Predictions.from_logits(logits, labels), promise=["precision=2:0.95", "precision=0:0.8"])
    answers, _, accept = policy.decide(logits)
    assert set(answers[accept].tolist()) == {0, 2}
    assert [(part.label, part.threshold.target_risk) for part in policy.classes] == [(2, 0.05), (0, 0.2)]
    assert policy.limits[0] > policy.limits[1]
    assert policy.promised == 0.2


@pytest.mark.slow
def test_classes_in_groups_have_thresholds_of_their_own():
    logits, labels = drawn(4000, 2)
    site = np.where(np.arange(4000) % 3 == 0, "b", "a")
    labels[site == "b"] = np.random.default_rng(0).integers(0, 2, (site == "b").sum())
    data = Predictions.from_logits(logits, labels, groups={"site": site})
    policy = Policy.fit(data, target_risk=0.1, by_class=True, group="site")
    assert policy.group_names == ("a", "b")
    accept = policy.decide(data).accept
    assert accept[site == "a"].mean() > 0.3
    assert not accept[site == "b"].any()
    assert not policy.decide(logits, np.full(4000, "c")).accept.any()


def test_a_class_that_is_never_predicted():
    logits, labels = drawn(400, 3)
    logits[:, 2] = -1e3
    policy = Policy.fit(Predictions.from_logits(logits, labels), promise="precision=2:0.9", calibrator="none")
    assert policy.abstains
    assert "no samples predicted to be 2" in policy.classes[0].threshold.reason
    assert policy.classes[0].threshold.reason in policy.summary


def test_of_few_samples_a_third_chooses_and_of_no_number_fewer_than_of_a_smaller_one():
    count = [share_for_choice(samples) * samples for samples in range(150, 2000)]
    assert count[0] == pytest.approx(50)
    assert (np.diff(count) >= -1e-9).all()


def test_draws_do_not_depend_on_batches():
    whole = draw_uniform(3, 0, 200_000)
    assert (draw_uniform(3, 65_000, 1500) == whole[65_000:66_500]).all()
    assert (draw_uniform(4, 0, 10) != whole[:10]).all()


def test_draws_are_not_those_that_made_the_samples():
    for seed in (0, 1, 7):
        users = np.random.default_rng(seed).random(5000)
        assert abs(np.corrcoef(draw_uniform(seed, 0, 5000), users)[0, 1]) < 0.06
