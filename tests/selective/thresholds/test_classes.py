"""Thresholds by class: all promises hold at once, alpha is shared and handed on, and no class is answered untested."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

from calibrant import Policy, Predictions
from calibrant.selective.promise import Promise
from calibrant.selective.thresholds.classes import parts_with_enough, recycle, thresholds_by_class
from calibrant.selective.thresholds.risk import abstaining, threshold_on
from calibrant.selective.thresholds.samples import ScoredSamples, ThresholdTarget
from calibrant.selective.thresholds.search import FixedSequence, curve_of
from tests.helpers.policies import drawn

BY_CLASS = Promise(by_class=True)


def answered(rates, samples, rng, promise=BY_CLASS, risk=0.1, confidence=0.9):
    """The thresholds of classes that are wrong at these rates, whatever the score is."""
    predicted = np.repeat(np.arange(len(rates)), samples)
    correct = rng.random(len(predicted)) >= np.asarray(rates)[predicted]
    scored = ScoredSamples(rng.random(len(predicted)), correct, predicted=predicted, labels=predicted)
    return thresholds_by_class(scored, None, promise, ThresholdTarget(risk, None, confidence), None, 0.0)[1]


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
            return replace(abstaining("best", 0.1, 1 - level), value=-math.inf if passes else math.inf)

        return at_level

    thresholds = recycle({number: search(number) for number in range(3)}, 0.12)
    assert [thresholds[number].abstains for number in range(3)] == [False, False, True]
    assert asked == [(0, 0.04), (1, 0.04), (2, 0.04), (1, 0.06), (2, 0.06), (2, 0.12)]


@pytest.mark.parametrize("sizes", [(500, 70, 10), (72, 72), (72, 71), (59, 0), (58,), (90, 90, 90, 88)])
def test_classes_that_no_test_could_pass_have_no_share(sizes):
    chosen = parts_with_enough([(size, 0.05) for size in sizes], 0.05)
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


def test_precision_of_two_classes_each_with_its_own_share():
    logits, labels = drawn(4000, 4, spread=6.0)
    policy = Policy.fit(Predictions.from_logits(logits, labels), promise=["precision=2:0.95", "precision=0:0.8"])
    answers, _, accept = policy.decide(logits)
    assert set(answers[accept].tolist()) == {0, 2}
    assert [(part.label, part.threshold.target_risk) for part in policy.classes] == [(2, 0.05), (0, 0.2)]
    assert policy.limits[0] > policy.limits[1]
    assert policy.promised == 0.2


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
    assert "no sample is predicted" in policy.classes[0].threshold.reason
