"""What a fit notes: calibration out of sample, the majority class, and how the samples of the threshold look."""

import re
from dataclasses import replace

import numpy as np
import pytest

from calibrant import Policy, Predictions
from calibrant.metrics import Interval, Judged, ece
from calibrant.policy import evidence
from calibrant.policy.evidence import Reference, bin_counts, class_counts, describe_majority, frequent_classes, is_poor
from calibrant.policy.selection import Candidate, Selection
from calibrant.posthoc import TemperatureScaling
from calibrant.posthoc.scores import Score
from calibrant.promises import Risk
from calibrant.promises.split import draw_uniform, share_for_choice
from tests.helpers.errors import facts
from tests.helpers.exports import at, make_policy
from tests.helpers.policies import drawn


@pytest.mark.slow
def test_the_error_is_that_of_the_samples_that_the_calibrator_did_not_see():
    z, y = drawn(4000)
    policy = Policy.fit(Predictions.from_logits(z, y), 0.1)
    rest = draw_uniform(0, 0, len(y)) >= share_for_choice(len(y))
    calibration = policy.evidence["calibration"]
    softmax = np.exp(z - z.max(1, keepdims=True))
    plain = (softmax / softmax.sum(1, keepdims=True)).max(1)
    labels, confidence, _ = policy.decide(z)
    assert calibration["samples"] == rest.sum()
    assert calibration["before"]["value"] == pytest.approx(ece(plain[rest], (z.argmax(1) == y)[rest]), abs=1e-5)
    assert calibration["after"]["value"] == pytest.approx(ece(confidence[rest], (labels == y)[rest]), abs=1e-5)
    assert calibration["before"]["low"] < calibration["before"]["value"] < calibration["before"]["high"]
    assert f"{calibration['before']['value']:.2%}" in policy.calibration_summary
    assert policy.calibration_warning == ""


def test_a_model_that_no_scale_repairs_is_warned_of(tmp_path):
    """Confident and wrong in one half, honest in the other: a temperature helps, isotonic regression helps more."""
    rng = np.random.default_rng(0)
    n = 6000
    top = np.where(rng.random(n) < 0.5, 0.95, 0.6)
    right = rng.random(n) < np.where(top > 0.9, 0.55, 0.6)
    z = np.log(np.stack([top, *[(1 - top) / 3] * 3], axis=1)) + rng.normal(0, 0.01, (n, 4))
    data = Predictions.from_logits(z, np.where(right, 0, 1 + rng.integers(0, 3, n)))
    policy = Policy.fit(data, 0.5, calibrator="none", score="msp")
    assert is_poor(policy.evidence["calibration"])
    assert re.search(facts("Warning", "--calibrator auto"), policy.calibration_warning)
    better = dict(policy.evidence["calibration"], better={"name": "isotonic", "ece": 0.031, "chosen_ece": 0.09})
    warning = policy.model_copy(
        update={"evidence": {"calibration": better}, "calibrator": TemperatureScaling()}
    ).calibration_warning
    assert re.search(facts("Warning", "isotonic", "3.10%", "9.00%", "--calibrator isotonic"), warning)
    policy.save(tmp_path / "p.json")
    assert Policy.load(tmp_path / "p.json").calibration_warning == policy.calibration_warning


@pytest.mark.parametrize(("chosen", "name"), [("temperature", "isotonic"), ("isotonic", None)])
def test_what_is_better_is_so_beyond_chance(chosen, name):
    rng = np.random.default_rng(3)
    sure = rng.uniform(0.5, 1.0, 3000)
    right = rng.random(3000) < sure
    judged = {"temperature": Judged(sure**0.5, right), "isotonic": Judged(sure, right)}
    rows = [Candidate(key, 1.0, chosen=key == chosen, ece=ece(part.confidence, right)) for key, part in judged.items()]
    better = Selection(None, Score(), tuple(rows), (), judged).better_calibrated()
    assert (better and better["name"]) == name


def test_the_words_about_the_majority_by_hand():
    def words(counts, names, promised, seen):
        evidence = {"majority": describe_majority(np.array(counts))}
        threshold = replace(at(0.5), risk=Interval(seen, 0.0, promised), target_risk=promised)
        threshold = replace(threshold, samples=2000, accepted=1000, errors=round(1000 * seen))
        promise = Risk(promised if promised < 1 else None)
        changes = {"class_names": names, "evidence": evidence, "threshold": threshold, "promise": promise}
        return make_policy().model_copy(update=changes).majority_summary

    names = ("no", "yes")
    assert describe_majority(np.array([97, 3])) == {"class": 0, "error": pytest.approx(0.03)}
    text = "Always answering no would be wrong in 3.00% of all samples."
    assert words([97, 3], names, 0.01, 0.005) == text
    assert words([97, 3], names, 0.05, 0.005).startswith(f"Warning: {text} The promise of at most 5%")
    assert words([97, 3], names, np.nan, 0.03).startswith("Warning")
    assert words([97, 3], names, np.nan, 0.025).startswith("Warning")  # 25 of 1,000 may be 3% as well
    assert words([2, 2, 2], None, 0.7, 0.7) == ""
    assert make_policy(evidence={"majority": {"error": "x"}}).majority_summary == ""


@pytest.fixture(scope="module")
def policy():
    return Policy.fit(Predictions.from_logits(*drawn(1500)), 0.1)


def test_counts_are_of_four_fifths_of_the_samples_for_the_threshold(policy):
    sketch = policy.evidence["reference"]
    rows = sketch["rows"]
    assert rows == policy.threshold.samples - int(0.2 * policy.threshold.samples)
    assert all(sum(sketch[name]["counts"]) == rows for name in ("score", "confidence", "predicted"))
    assert sketch["labels"] == np.bincount(drawn(1500)[1], minlength=6).tolist()


def test_bins_hold_about_the_same_number(policy):
    counts = np.array(policy.evidence["reference"]["score"]["counts"])
    assert len(counts) == evidence.BINS
    assert 15 < counts.min() <= counts.max() < 110  # 50 each, of bins that 200 other samples set


def test_what_the_confidence_implies_is_near_what_was_wrong(policy):
    z, _ = drawn(1500)
    rows = draw_uniform(0, 0, 1500) >= 1 / 3
    _, confidence, accept = policy.decide(z[rows])
    # The sketch leaves out a fifth of the rows.
    assert policy.evidence["reference"]["implied_risk"] == pytest.approx(1 - confidence[accept].mean(), abs=0.01)


def test_values_at_an_edge_lie_above_it():
    assert bin_counts(np.array([0.0, 1.0, 1.5, 2.0, 9.0]), [1.0, 2.0]).tolist() == [1, 2, 2]


def test_all_but_the_most_frequent_classes_share_a_cell(monkeypatch):
    monkeypatch.setattr(evidence, "BINS", 3)
    classes = frequent_classes(np.array([1, 7, 0, 5, 2]))
    assert classes.tolist() == [1, 3]
    assert class_counts(np.array([1, 3, 3, 0, 4, 2]), classes).tolist() == [1, 2, 3]
    assert frequent_classes(np.array([3, 9])).tolist() == [1]


def test_few_values_lie_in_the_same_bins_when_they_are_rounded_to_float32():
    """As those of boosted trees do behind onnxruntime: an edge on a value would move half of them."""
    rng = np.random.default_rng(0)
    values = rng.random(9)
    score = np.repeat(values, 200)
    rows = Reference(0)
    rows.add(score, score, np.zeros(1800, int), np.zeros(1800, np.str_))
    edges = rows.evidence(0.5, np.array([1800, 0]))["score"]["edges"]
    assert bin_counts(score.astype(np.float32).astype(float), edges).tolist() == bin_counts(score, edges).tolist()
    assert len(edges) == 8


def test_saturated_scores_have_the_bins_that_they_fill():
    rows = Reference(0)
    score = np.repeat([0.5, 1.0], [100, 900])
    rows.add(score, score, np.zeros(1000, int), np.zeros(1000, np.str_))
    sketch = rows.evidence(0.7, np.array([1000, 0]))
    assert sketch["score"]["edges"] == [0.75]
    assert sum(sketch["score"]["counts"]) == 800
    assert sketch["implied_risk"] == 0.0


def test_of_very_many_samples_a_random_part_is_kept(monkeypatch):
    monkeypatch.setattr(evidence, "MOST_KEPT", 500)
    rows = Reference(0)
    for start in range(0, 9000, 100):
        values = np.arange(start, start + 100) / 9000
        rows.add(values, values, np.zeros(100, int), np.zeros(100, np.str_))
    sketch = rows.evidence(0.0, np.array([9000, 0]))
    assert 400 < sketch["rows"] <= 800
    assert abs(sketch["implied_risk"] - 0.5) < 0.05  # early and late ones alike


def test_too_few_samples_leave_no_sketch():
    policy = Policy.fit(Predictions.from_logits(*drawn(45)), 0.3)
    assert policy.evidence["reference"] is None
    Policy.from_document(policy.document)


def test_one_column_of_logits_is_noted():
    """An exported model with two columns must not be taken for one that gives 0 and z."""
    rng = np.random.default_rng(0)
    z = 3 * rng.standard_normal(300)
    y = (z + rng.logistic(size=300) > 0).astype(int)
    for positive, logits in ((1, z), (0, -z)):
        policy = Policy.fit(Predictions.from_logits(logits, y, positive=str(positive)), target_risk=0.3)
        assert policy.evidence["zero_class"] == 1 - positive
    both = Predictions.from_logits(np.stack([-z, z], 1), y)
    assert Policy.fit(both, target_risk=0.3).evidence["zero_class"] is None
    probabilities = Predictions.from_probabilities(1 / (1 + np.exp(-z)), y, positive="1")
    assert Policy.fit(probabilities, target_risk=0.3).evidence["zero_class"] is None
