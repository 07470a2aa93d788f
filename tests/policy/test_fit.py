"""Tests of the fit: what is asked for, what is read, in which passes, and what is tried."""

import numpy as np
import pytest

from calibrant import Policy, Predictions
from calibrant.metrics import ece
from calibrant.posthoc import msp
from calibrant.promises import Cost, Recall, Risk, Sets, threshold_for_risk
from calibrant.promises.split import draw_uniform
from tests.helpers.errors import facts
from tests.helpers.policies import drawn, masks


@pytest.mark.slow
def test_a_target_coverage():
    found = Policy.fit(Predictions.from_logits(*drawn(3000)), target_coverage=0.4)
    assert found.threshold.coverage.value == pytest.approx(0.4, abs=1e-3)
    assert found.target_risk is None
    assert "at most" in found.summary


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_of_very_many_samples_a_part_chooses(monkeypatch):
    monkeypatch.setattr("calibrant.policy.selection.MOST_ROWS", 1000)
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


@pytest.mark.slow
def test_ignored_samples_count_nowhere():
    z, y = drawn(3000)
    y = y.copy()
    y[::3] = -1
    found = Policy.fit(Predictions.from_logits(z, y, ignore_index=-1), 0.1)
    held = (draw_uniform(0, 0, 3000) >= 0.2) & (y != -1)
    assert found.threshold.samples == held.sum()


@pytest.mark.slow
def test_an_overconfident_model_is_calibrated_and_keeps_its_target():
    policy = Policy.fit(Predictions.from_logits(*drawn(4000)), target_risk=0.1)
    assert policy.calibrator.name == "temperature"
    assert policy.calibrator.temperature_ == pytest.approx(2, rel=0.1)
    assert policy.threshold.risk.high <= 0.1
    z, y = drawn(20_000, seed=1)
    labels, confidence, accept = policy.decide(z)
    assert (labels == z.argmax(1)).all()
    assert (labels != y)[accept].mean() <= 0.1
    assert accept.mean() == pytest.approx(policy.threshold.coverage.value, abs=0.05)
    assert ece(confidence, labels == y) < 0.02
    assert (confidence.dtype, accept.dtype, labels.dtype) == (np.float64, np.bool_, np.int64)


@pytest.mark.slow
def test_probabilities_are_taken_as_such():
    z, y = drawn(2500)
    p = np.exp(z - z.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    by_logits = Policy.fit(Predictions.from_logits(z, y), 0.1, score="msp")
    found = Policy.fit(Predictions.from_probabilities(p, y), 0.1, score="msp")
    assert found.takes == "probabilities"
    assert found.calibrator.temperature_ == pytest.approx(by_logits.calibrator.temperature_, rel=1e-6)
    assert (found.decide(p).accept == by_logits.decide(z).accept).mean() > 0.999
    for values in (z, Predictions.from_logits(z, y)):
        with pytest.raises(ValueError, match=facts("probabilities")):
            found.decide(values)


def test_numbers_of_numpy_are_numbers(tmp_path):
    data = Predictions.from_logits(*drawn(400))
    found = Policy.fit(data, np.float32(0.2), np.float32(0.9), seed=np.int64(3))
    found.save(tmp_path / "p.json")
    assert Policy.load(tmp_path / "p.json").target_risk == pytest.approx(0.2)


COSTS = [[0, 1], [1, 0]]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"target_risk": 0.2, "seed": 1.5}, "seed 1.5"),
        ({"target_coverage": 0.5, "group": "site"}, "group"),
        ({"target_coverage": 0.5, "method": "empirical"}, "method"),
        ({"target_cost": 1.0}, "target_cost cost"),
        ({"costs": COSTS}, "costs target_cost"),
        ({"costs": COSTS, "target_cost": 1.0}, "below 1"),
        ({"costs": COSTS, "target_cost": 0.5, "abstain_cost": -1}, "abstain_cost"),
        ({"by_class": 1}, "by_class True False 1"),
        ({"by_class": True, "target_coverage": 0.5}, "target_coverage class"),
        ({"by_class": True, "target_risk": 0.1, "method": "sgr"}, "method sgr"),
        ({"promise": "recall=cat:0.9", "by_class": True}, "promise"),
        ({"promise": "recall=cat:0.9", "target_risk": 0.1}, "target_risk recall"),
        ({"promise": "recall=cat:0.9", "score": "margin"}, "margin"),
        ({"promise": "expected-risk:0.1", "group": "site"}, "group"),
        ({"promise": "expected-risk:0.1", "method": "fixed-sequence"}, "method fixed-sequence"),
        ({"sets": 1.0}, "sets 1.0"),
        ({"sets": True}, "sets True"),
        ({"sets": 0.9, "set_method": "best"}, "set_method 'lac' 'aps' 'raps' 'class-conditional'"),
        ({"sets": 0.9, "set_penalty": 0.1}, "set_penalty 'raps' 'lac'"),
        ({"sets": 0.9, "set_randomised": True}, "set_randomised 'aps' 'raps' 'lac'"),
        ({"set_method": "aps"}, "sets 0.95"),
        ({"sets": Sets(0.9), "set_method": "aps"}, "sets 0.95"),
        ({"sets": "many"}, "sets many"),
        ({"promise": 0.1, "target_risk": 0.2}, "0.1 0.2"),
        ({"promise": Risk(0.1), "target_risk": 0.2}, "target_risk risk"),
        ({"promise": Risk(0.1), "target_coverage": 0.5}, "coverage"),
        ({"promise": Risk(None)}, "risk target"),
        ({"promise": Recall("cat", 0.9), "costs": COSTS}, "promise costs"),
        ({"promise": "recall[cat] >= 0.9", "costs": COSTS}, "costs recall"),
        ({"promise": "cost <= 0.5", "costs": COSTS, "target_cost": 0.5}, "promise costs"),
        ({"promise": 0.1, "by": "site", "group": "site"}, "by group"),
    ],
)
def test_what_does_not_go_together(asked, told):
    logits, labels = drawn(200, 2)
    groups = {"site": np.arange(200) % 2}
    data = Predictions.from_logits(logits, labels, class_names=["cat", "dog"], groups=groups)
    with pytest.raises(ValueError, match=facts(*told.split())):
        Policy.fit(data, **asked)


def test_words_of_their_own_ask_for_the_same():
    """Shortcuts, written promises and promises as objects are one request."""
    logits, labels = drawn(700, 2)
    groups = {"site": np.arange(700) % 2}
    data = Predictions.from_logits(logits, labels, class_names=["cat", "dog"], groups=groups)
    cost = {"costs": np.array(COSTS), "abstain_cost": 0.7}
    for first, second in (
        ({"promise": Risk(0.2), "by": "site"}, {"target_risk": 0.2, "group": "site"}),
        ({"promise": Risk(0.2, by_class=True)}, {"target_risk": 0.2, "by_class": True}),
        ({"promise": "risk <= 20%"}, {"promise": 0.2}),
        ({"promise": Recall("cat", 0.8)}, {"promise": "recall[cat] >= 80%"}),
        ({"promise": Cost(0.3, COSTS, abstain_cost=0.7)}, {"target_cost": 0.3, **cost}),
        ({"promise": "cost <= 0.3", **cost}, {"target_cost": 0.3, **cost}),
        (
            {"promise": Risk(0.2), "sets": Sets(0.9, method="raps", penalty=0.1)},
            {"promise": 0.2, "sets": 0.9, "set_method": "raps", "set_penalty": 0.1},
        ),
    ):
        assert Policy.fit(data, **first).document == Policy.fit(data, **second).document
    with pytest.raises(TypeError, match="colour"):
        Policy.fit(data, colour="red")


def test_what_cannot_be_fitted_on_is_refused():
    z, y = drawn(200)
    pixels = Predictions.from_logits(*masks(20), kind="segmentation", ignore_index=255)
    tokens = Predictions.from_logits(z[None], y[None], kind="tokens")
    for data, asked, told in (
        (Predictions.from_logits(z, y, split="test"), {}, "split='test'"),
        (Predictions.from_confidence(np.full(200, 0.5), y == 0), {}, "confidence"),
        (z, {}, "Predictions ndarray"),
        (tokens, {}, "tokens"),
        (pixels, {"by_class": True}, "segmentation pixels"),
        (pixels, {"sets": 0.9}, "sets pixels"),
        (pixels, {"method": "sgr"}, "sgr"),
        (Predictions.from_logits(z[:3], y[:3]), {"calibrator": "temperature"}, "few"),
        (Predictions.from_logits(z, np.full(200, -1), ignore_index=-1), {}, "counts"),
    ):
        with pytest.raises(ValueError, match=facts(*told.split())):
            Policy.fit(data, **{"target_risk": 0.2} | asked)


@pytest.mark.slow
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
