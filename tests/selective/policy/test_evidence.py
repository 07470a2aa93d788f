"""Calibration before and after a policy's calibrator, out of sample; and words about the majority class."""

import numpy as np
import pytest

from calibrant import Policy, Predictions
from calibrant.metrics import Judged, ece
from calibrant.selective.policy.evidence import calibration_warning, describe_majority, is_poor, majority_words
from calibrant.selective.policy.selection import Candidate, Selection
from calibrant.selective.scores import Score
from calibrant.selective.split import draws, share_for_choice
from tests.helpers.policies import drawn


def test_the_error_is_that_of_the_samples_that_the_calibrator_did_not_see():
    z, y = drawn(4000)
    policy = Policy.fit(Predictions.from_logits(z, y), 0.1)
    rest = draws(0, 0, len(y)) >= share_for_choice(len(y))
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
    assert policy.calibration_warning.startswith("Warning: poorly calibrated")
    assert "--calibrator auto compares all" in policy.calibration_warning
    better = dict(policy.evidence["calibration"], better={"name": "isotonic", "ece": 0.031, "chosen_ece": 0.09})
    assert "isotonic regression reaches 3.10% against 9.00%" in calibration_warning(better, repaired=True)
    assert "--calibrator isotonic asks for it" in calibration_warning(better, repaired=True)
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
    majority = describe_majority(np.array([97, 3]))
    assert majority == {"class": 0, "error": pytest.approx(0.03)}
    names = ("no", "yes")
    said = "Always answering no would be wrong in 3.00% of all samples."
    assert majority_words(majority, names, 0.01, 0.005) == said
    assert majority_words(majority, names, 0.05, 0.005).startswith(f"Warning: {said} The promise of at most 5%")
    assert majority_words(majority, names, None, 0.03).endswith("answers are wrong no less often, 3.00%.")
    assert majority_words(describe_majority(np.array([2, 2, 2])), None, 0.7, 0.7) == ""
    assert majority_words({"error": "x"}, None, 0.7, 0.7) == ""
