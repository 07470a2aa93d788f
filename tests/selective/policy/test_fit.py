"""Tests of the fit: what is asked for, what is read, in which passes, and what is tried."""

import numpy as np
import pytest

from calibrant import Policy, Predictions
from calibrant.selective import msp, threshold_for_risk
from calibrant.selective.policy.fit import check_compatible, read_promise, read_set_target
from calibrant.selective.promise import Promise
from calibrant.selective.thresholds.samples import draw_uniform
from tests.helpers.policies import drawn, masks


def test_a_target_coverage():
    found = Policy.fit(Predictions.from_logits(*drawn(3000)), target_coverage=0.4)
    assert found.threshold.coverage.value == pytest.approx(0.4, abs=1e-3)
    assert found.target_risk is None
    assert "at most" in found.summary


@pytest.mark.parametrize("suffix", [".npz", ".parquet", ".csv"])
def test_files_are_read_a_batch_at_a_time(tmp_path, suffix):
    z, y = drawn(900)
    data = Predictions.from_logits(z, y)
    data.save(tmp_path / f"val{suffix}")
    opened = Predictions.open(tmp_path / f"val{suffix}")
    whole, parts = Policy.fit(data, 0.1), Policy.fit(opened, 0.1)
    assert parts.threshold.accepted == whole.threshold.accepted
    assert parts.threshold.value == pytest.approx(whole.threshold.value, rel=1e-12)


def test_energy_needs_logits():
    z, y = drawn(600)
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    data = Predictions.from_probabilities(p, y)
    with pytest.raises(ValueError, match="energy needs logits"):
        Policy.fit(data, 0.2, score="energy")
    assert "energy" not in {row["name"] for row in Policy.fit(data, 0.2).evidence["scores"]}


def test_progress_is_told_and_changes_nothing():
    told = []
    data = Predictions.from_logits(*drawn(900))
    policy = Policy.fit(data, 0.1, progress=lambda what, done, total: told.append((what, done, total)))
    stages = dict.fromkeys(what for what, _, _ in told)
    assert list(stages) == ["reading for the choice", "reading for the threshold"]
    for stage in stages:
        counts = [done for what, done, total in told if what == stage and total == 900]
        assert counts[0] == 0
        assert counts[-1] == 900
    assert policy.limits == Policy.fit(data, 0.1).limits


def test_the_threshold_is_set_on_samples_that_the_choice_did_not_see():
    """Whatever the labels of the choice's fifth are, the threshold's samples count as they are."""
    z, y = drawn(1500)
    mine = draw_uniform(0, 0, 1500) < 0.2
    assert 250 < mine.sum() < 350
    found = Policy.fit(Predictions.from_logits(z, y), 0.1)
    assert found.evidence["for_choice"] == mine.sum()
    assert found.evidence["for_threshold"] == found.threshold.samples == (~mine).sum()
    labels, _, accept = found.decide(z[~mine])
    assert found.threshold.accepted == accept.sum()
    assert found.threshold.errors == (labels != y[~mine])[accept].sum()


def test_of_very_many_samples_a_part_chooses(monkeypatch):
    monkeypatch.setattr("calibrant.selective.policy.selection.MOST_ROWS", 1000)
    found = Policy.fit(Predictions.from_logits(*drawn(9000)), 0.1)
    assert found.evidence["for_choice"] <= 2000
    assert found.threshold.samples == (draw_uniform(0, 0, 9000) >= 0.2).sum()


@pytest.mark.parametrize(("samples", "share"), [(1000, 0.1), (450, 0.1), (390, 0.0), (140, 0.0)])
def test_where_nothing_is_chosen_a_part_plans(samples, share):
    policy = Policy.fit(Predictions.from_logits(*drawn(samples)), 0.2, calibrator="none", score="margin")
    assert policy.evidence["for_choice"] == (draw_uniform(0, 0, samples) < share).sum()
    assert policy.threshold.samples == samples - policy.evidence["for_choice"]


def test_few_samples_all_set_the_threshold_of_answers_that_the_choice_does_not_change():
    z, y = drawn(300, scale=4.0)
    chose = draw_uniform(0, 0, 300) < 0.2
    policy = Policy.fit(Predictions.from_logits(z, y), 0.2)
    assert policy.evidence["for_choice"] == chose.sum()
    assert policy.evidence["for_threshold"] == policy.threshold.samples == 300
    assert policy.evidence["calibration"]["samples"] == (~chose).sum()
    assert policy.calibrator.keeps_order
    assert str(policy.score) == "msp"
    plain = Policy.fit(Predictions.from_logits(z, y), 0.2, calibrator="none", score="msp")
    assert policy.threshold == plain.threshold
    found = threshold_for_risk(msp(z), z.argmax(1) == y, 0.2)
    assert (policy.threshold.value, policy.threshold.accepted) == (found.value, found.accepted)


@pytest.mark.parametrize(
    "asked", [{"calibrator": "vector"}, {"score": "normalised_max_logit"}, {"promise": "recall=0:0.9"}], ids=str
)
def test_what_depends_on_the_choice_is_tested_on_others(asked):
    """Vector scaling changes answers, the norm and the probability of a class change what ranks them."""
    risk = {} if "promise" in asked else {"target_risk": 0.2}
    policy = Policy.fit(Predictions.from_logits(*drawn(300)), **risk, **asked)
    assert policy.evidence["for_choice"] + policy.evidence["for_threshold"] == 300
    assert policy.threshold.samples < 300


def test_sets_of_few_samples_have_their_quantile_from_those_that_chose_nothing():
    policy = Policy.fit(Predictions.from_logits(*drawn(300)), 0.2, sets=0.9)
    assert policy.threshold.samples == 300
    assert sum(policy.sets.samples) == 300 - policy.evidence["for_choice"]


def test_ignored_samples_count_nowhere():
    z, y = drawn(3000)
    y = y.copy()
    y[::3] = -1
    found = Policy.fit(Predictions.from_logits(z, y, ignore_index=-1), 0.1)
    held = (draw_uniform(0, 0, 3000) >= 0.2) & (y != -1)
    assert found.threshold.samples == held.sum()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"promise": "recall=cat:0.9", "by_class": True}, "different promises"),
        ({"target_cost": 1.0}, "target_cost goes with a cost matrix"),
        ({"costs": [[0, 1], [1, 0]]}, "costs need target_cost"),
        ({"costs": [[0, 1], [1, 0]], "target_cost": 1.0}, "below 1"),
        ({"costs": [[0, 1], [1, 0]], "target_cost": 0.5, "abstain_cost": -1}, "abstain_cost must be"),
        ({"by_class": 1}, "by_class must be True or False"),
    ],
)
def test_requests_that_are_refused(arguments, message):
    data = Predictions.from_logits(np.zeros((3, 2)), [0, 1, 1], class_names=["cat", "dog"])
    with pytest.raises(ValueError, match=message):
        read_promise(data, **arguments)


def test_masks_have_the_risk_of_all_pixels():
    data = Predictions.from_logits(np.zeros((2, 2, 3, 3)), np.zeros((2, 3, 3), int), kind="segmentation")
    with pytest.raises(ValueError, match="for segmentation the risk of all pixels"):
        read_promise(data, by_class=True)


@pytest.mark.parametrize(
    ("promise", "change", "message"),
    [
        (Promise(by_class=True), {"target_coverage": 0.5}, "target_coverage does not go with thresholds by class"),
        (Promise(by_class=True), {"method": "sgr"}, "has a test of its own"),
        (Promise("recall", shares=((0, 0.9),)), {"target_risk": 0.1}, "target_risk does not go with"),
        (Promise("recall", shares=((0, 0.9),)), {"score": "margin"}, "ranks answers by the probability of the class"),
        (Promise("expected-risk", target=0.1), {"group": "site"}, "thresholds by group are for"),
        (Promise("expected-risk", target=0.1), {"method": "fixed-sequence"}, "has a test of its own"),
    ],
)
def test_what_does_not_go_together(promise, change, message):
    others = {"target_risk": None, "target_coverage": None, "method": "best", "score": "auto", "group": None}
    check_compatible(promise, **others)
    with pytest.raises(ValueError, match=message):
        check_compatible(promise, **(others | change))


def test_what_cannot_be_fitted_on_is_refused():
    z, y = drawn(200)
    with pytest.raises(ValueError, match="marked split='test'"):
        Policy.fit(Predictions.from_logits(z, y, split="test"))
    with pytest.raises(ValueError, match="confidences alone"):
        Policy.fit(Predictions.from_confidence(np.full(200, 0.5), y == 0))
    with pytest.raises(ValueError, match="fitted on Predictions, got ndarray"):
        Policy.fit(z)


def test_repeated_ids_are_refused_or_left_out(tmp_path):
    """The policy of a file that has every sample twice is that of the file that has it once, or there is none."""
    z, y = drawn(900)
    ids = [f"question {i}" for i in range(900)]
    once = Policy.fit(Predictions.from_logits(z, y, ids=ids), 0.1)
    twice = Predictions.from_logits(np.r_[z, z], np.r_[y, y], ids=ids * 2)
    twice.save(tmp_path / "twice.csv")
    for predictions in (twice, Predictions.open(tmp_path / "twice.csv")):
        with pytest.raises(ValueError, match=r"900 of 1,800 samples.*repeats"):
            Policy.fit(predictions, 0.1)
        first = Policy.fit(predictions, 0.1, repeats="first")
        assert (first.evidence["samples"], first.threshold.accepted) == (900, once.threshold.accepted)
        assert first.threshold.value == pytest.approx(once.threshold.value, rel=1e-12)
    with pytest.raises(ValueError, match=r"1,790 of 1,800 samples.*180 per id"):
        Policy.fit(Predictions.from_logits(twice.logits, twice.labels, ids=np.arange(1800) % 10), 0.1)
    with pytest.raises(ValueError, match="'last'"):
        Policy.fit(twice, 0.1, repeats="last")


def test_images_may_repeat_too():
    z, y = masks(60)
    data = Predictions.from_logits(z, y, ids=np.arange(60) % 50, kind="segmentation", ignore_index=255)
    with pytest.raises(ValueError, match="10 of 60 images"):
        Policy.fit(data, 0.3)
    assert Policy.fit(data, 0.3, repeats="first").evidence["samples"] == 50


def test_sets_are_asked_for_by_their_level():
    data = Predictions.from_logits(*drawn(20))
    assert read_set_target(data, None, "lac", None, None, False, 0) is None
    assert read_set_target(data, 0.9, "aps", None, None, True, 3).seed == 3
    with pytest.raises(ValueError, match="go with a level"):
        read_set_target(data, None, "aps", None, None, False, 0)
    pixels = Predictions.from_logits(*masks(3), kind="segmentation", ignore_index=255)
    with pytest.raises(ValueError, match="prediction sets are for classification"):
        read_set_target(pixels, 0.9, "lac", None, None, False, 0)
