"""Promises in a policy's file: what is written is read back, and what contradicts itself is refused."""

import functools
import json

import numpy as np
import pytest

from calibrant import Policy, Predictions
from tests.helpers.policies import drawn

KINDS = {
    "class": {"target_risk": 0.2, "by_class": True},
    "site": {"target_risk": 0.3, "by_class": True, "group": "site"},
    "precision": {"promise": "precision=b:0.7"},
    "recall": {"promise": "recall=b:0.8"},
    "expected": {"promise": "expected-risk:0.1"},
    "cost": {"costs": 4 * (1 - np.eye(3)), "target_cost": 1.5, "abstain_cost": 2.0},
}


@functools.cache
def fitted(kind):
    logits, labels = drawn(900, 3)
    groups = {"site": np.where(np.arange(900) % 2, "x", "y")}
    data = Predictions.from_logits(logits, labels, class_names=["a", "b", "c"], groups=groups)
    return Policy.fit(data, calibrator="temperature", **KINDS[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_is_fitted_is_read_back(kind, tmp_path):
    policy, path = fitted(kind), tmp_path / "policy.json"
    policy.save(path)
    again = Policy.load(path)
    assert not policy.abstains
    assert again.promise == policy.promise
    assert again.classes == policy.classes
    assert again.summary == policy.summary == json.loads(path.read_text())["summary"]
    logits = drawn(200, 3, seed=1)[0]
    groups = ["x"] * 200 if policy.group else None
    for first, second in zip(policy.decide(logits, groups), again.decide(logits, groups), strict=True):
        np.testing.assert_array_equal(first, second)
    again.save(tmp_path / "again.json")
    assert path.read_bytes() == (tmp_path / "again.json").read_bytes()


@pytest.mark.parametrize(
    ("kind", "place", "value", "message"),
    [
        ("class", "promise.of", "luck", "promise.of must be one of risk, precision"),
        ("class", "promise.by_class", 1, "promise.by_class must be true or false"),
        ("class", "promise.by_class", False, "class_thresholds go with a promise by class"),
        ("class", "promise.extra", 1, "promise.extra is not known"),
        ("class", "promise", None, "class_thresholds go with a promise by class"),
        ("class", "class_thresholds", None, "class_thresholds go with a promise by class"),
        ("class", "class_thresholds", [], "class_thresholds must not be empty"),
        ("class", "class_thresholds", 3, "class_thresholds must be"),
        ("class", "class_thresholds.0.class", 1, "have class 1 2 times"),
        ("class", "class_thresholds.0.class", 3, "have a class 3, of 3"),
        ("class", "class_thresholds.0.class", -1, "must be the number of a class"),
        ("class", "class_thresholds.0.group", "x", "class_thresholds have groups where"),
        ("class", "class_thresholds.0.threshold.target_risk", 0.1, "target_risk must be the policy's 0.2"),
        ("class", "class_thresholds.0.threshold.accept_from", 3.0, "accept_from must be a number from"),
        ("class", "class_thresholds.0.threshold.confidence", 0.5, "confidence must be the policy's"),
        ("class", "class_thresholds.0.threshold.errors", 10**6, "must not fall"),
        ("class", "target_risk", None, "target_risk must be a number"),
        ("site", "class_thresholds.0.group", None, "class_thresholds have groups where"),
        ("precision", "promise.shares.0.share", 1.0, "share must be a number between 0 and 1"),
        ("precision", "promise.shares.0.share", 0.9, "target_risk must be the policy's 0.1"),
        ("precision", "promise.shares.0.class", 2, "class 1, whose precision is not promised"),
        ("precision", "promise.shares", [], "promise.shares does not go with a promise of precision, or is missing"),
        ("precision", "target_risk", 0.1, "target_risk must be null"),
        ("recall", "promise.shares.0.class", 7, "different classes below 3"),
        ("recall", "promise.shares.0.share", 0.99, "promise.seen must have a mean loss of at most"),
        ("recall", "promise.seen", None, "promise.seen does not go with"),
        ("recall", "promise.seen.loss", 1e9, "promise.seen.loss must be at most its rows"),
        ("recall", "score.name", "msp", "score.name must be class_probability"),
        ("recall", "threshold.accept_from", 1.5, "accept_from must be a number from"),
        ("recall", "promise.of", "expected-risk", "promise.shares does not go with"),
        ("expected", "promise.target", 0.0, "promise.target must lie between"),
        ("expected", "promise.target", 0.01, "promise.seen must have a mean loss"),
        ("expected", "promise.target", None, "promise.target does not go with"),
        ("expected", "score.name", "expected_cost", "score.name must be one of a promise of risk"),
        ("cost", "promise.costs.0", [0, 1], "costs must be numbers"),
        ("cost", "promise.costs.0.1", -1.0, "must be"),
        ("cost", "promise.costs", None, "promise.costs does not go with"),
        ("cost", "promise.target", 4.0, "promise.target must lie between"),
        ("cost", "promise.abstain_cost", 0.01, "must not lie below the abstain cost"),
        ("cost", "threshold.accept_from", 1.0, "accept_from must be a number from"),
        ("cost", "kind", "segmentation", "for classification, but the policy is for segmentation"),
    ],
)
def test_what_is_refused(kind, place, value, message, tmp_path):
    path = tmp_path / "policy.json"
    fitted(kind).save(path)
    fields = json.loads(path.read_text())
    del fields["checksum"]
    *outer, last = [int(key) if key.isdecimal() else key for key in place.split(".")]
    inner = functools.reduce(lambda part, key: part[key], outer, fields)
    inner[last] = value
    path.write_text(json.dumps(fields))
    with pytest.raises(ValueError, match=message) as error:
        Policy.load(path)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 300


def test_groups_and_classes_whose_names_run_together_are_refused():
    logits, labels = drawn(600, 2)
    groups = {"site": np.where(np.arange(600) % 2, "x", "x: a")}
    data = Predictions.from_logits(logits, labels, class_names=["b", "a: b"], groups=groups)
    with pytest.raises(ValueError, match="a group and a class are called alike"):
        Policy.fit(data, 0.4, by_class=True, group="site", calibrator="none")
