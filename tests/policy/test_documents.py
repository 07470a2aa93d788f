"""Entries of a policy's file: what is fitted is read back as it was, and what is wrong is refused by its name."""

import functools
import json
import re

import numpy as np
import pytest

from calibrant import Policy, Predictions
from tests.helpers.errors import facts
from tests.helpers.policies import drawn

KINDS = {
    "plain": {"target_risk": 0.2, "score": "msp"},
    "sites": {"target_risk": 0.2, "group": "site"},
    "class": {"target_risk": 0.2, "by_class": True},
    "site and class": {"target_risk": 0.3, "by_class": True, "group": "site"},
    "precision": {"promise": "precision=b:0.7"},
    "recall": {"promise": "recall=b:0.8"},
    "expected": {"promise": "expected-risk:0.1"},
    "cost": {"costs": 4 * (1 - np.eye(3)), "target_cost": 1.5, "abstain_cost": 2.0},
    "lac": {"target_risk": 0.3, "sets": 0.9},
    "aps": {"target_risk": 0.3, "sets": 0.9, "set_method": "aps", "set_randomised": True, "seed": 3},
    "raps": {"target_risk": 0.3, "sets": 0.9, "set_method": "raps"},
    "sets by class": {"target_risk": 0.3, "sets": 0.99, "set_method": "class-conditional"},
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
    for name in ("promise", "classes", "groups", "group", "summary"):
        assert getattr(again, name) == getattr(policy, name)
    assert again.summary == json.loads(path.read_text())["summary"]
    logits = drawn(200, 3, seed=1)[0]
    groups = ["x"] * 200 if policy.group else None
    for first, second in zip(policy.decide(logits, groups), again.decide(logits, groups), strict=True):
        np.testing.assert_array_equal(first, second)
    if policy.sets is not None:
        np.testing.assert_array_equal(again.predict_sets(logits), policy.predict_sets(logits))
        assert again.sets.counts.to_dict(None) == policy.sets.counts.to_dict(None)
    again.save(tmp_path / "again.json")
    assert path.read_bytes() == (tmp_path / "again.json").read_bytes()


HUGE = 10**400
NORM = {"name": "normalised_max_logit", "of": "logits", "p": 2}
# A kind, the place of an entry, what stands there instead, and what its user must be told beside the name of the entry.
WRONG = [
    ("plain", "format", "other", "calibrant.policy"),
    ("plain", "version", 2, "1 2"),
    ("plain", "version", True, "true"),
    ("plain", "classes", 5, "class_names 5"),
    ("plain", "classes", 10**9, "1,000,000"),
    ("plain", "classes", 4.0, "4.0"),
    ("plain", "classes", True, "true"),
    ("plain", "takes", "vibes", "logits"),
    ("plain", "takes", ["logits"], "probabilities"),
    ("plain", "calibrator", [], "object"),
    ("plain", "calibrator.name", "pickle", "temperature"),
    ("plain", "calibrator.temperature", "2", "numbers"),
    ("plain", "calibrator.temperature", None, "None"),
    ("plain", "calibrator.temperature", [2.0], "finite"),
    ("plain", "calibrator.temperature", 5e-324, "1e-50"),
    ("plain", "calibrator.temperature", 1e308, "1e+50"),
    ("plain", "calibrator.temperature", HUGE, "1e+50"),
    ("plain", "calibrator.extra", 1, "calibrator.extra"),
    ("plain", "score", {"name": "msp"}, "score.of missing"),
    ("plain", "score.name", "os.system", "'msp'"),
    ("plain", "calibrator, score.of", (None, "calibrated"), "calibrator"),
    ("plain", "score.p", 3, "normalised_max_logit 3"),
    ("plain", "threshold.accept_from", "some", "some"),
    ("plain", "threshold.accept_from", None, "nothing"),
    ("plain", "threshold.accept_from", HUGE, "2e+100"),
    ("plain", "threshold.accept_from", 1.5, "msp 1.5"),
    ("plain", "threshold.accept_from", -0.5, "msp -0.5"),
    ("plain", "threshold.accept_from, score.name", (0.5, "negative_entropy"), "-1.09861 0.5"),
    ("plain", "threshold.accept_from, score.name", (-1.4, "negative_entropy"), "-1.09861 -1.4"),
    ("plain", "threshold.accept_from, score.name", (-1e150, "energy"), "-2e+100"),
    ("plain", "threshold.accept_from, score", (1.1, NORM), "1.1"),
    ("plain", "threshold.samples", -4, "threshold.samples -4"),
    ("plain", "threshold.samples", 0, "fall 0"),
    ("plain", "threshold.errors", 10**9, "fall 1000000000"),
    ("plain", "threshold.confidence", 0.5, "threshold.confidence 0.95"),
    ("plain", "threshold.coverage", 0.5, "threshold.coverage object"),
    ("plain", "threshold.coverage.low", 7, "threshold.coverage.low 7"),
    ("plain", "threshold.risk.low", 0.199, "threshold.risk limits"),
    ("plain", "threshold.coverage.value", 0.9999, "threshold.coverage.value 0.9999"),
    ("plain", "threshold.risk.value", None, "threshold.risk.value nan"),
    ("plain", "threshold.risk.high", 0.9, "threshold.risk.high 0.2 0.9"),
    ("plain", "threshold.hook", 1, "threshold.hook"),
    ("plain", "groups", {}, "{}"),
    ("plain", "groups", {"a": 1}, "groups.a"),
    ("plain", "group", "site", "groups"),
    ("plain", "target_risk", 0.01, "threshold.target_risk 0.01"),
    ("plain", "target_risk", 0, "between 0 1"),
    ("plain", "confidence", "high", "high"),
    ("plain", "confidence", 1, "between 0 1"),
    ("plain", "confidence", 1.5, "between 1.5"),
    ("plain", "__class__", "x", "__class__"),
    ("plain", "class_names", ["a", "b", 4], "3"),
    ("plain", "class_names", ["a", "b", "a"], '"a" 2'),
    ("plain", "class_names", ["a", "b", "\ud800"], "3"),
    ("plain", "kind", 7, "segmentation"),
    ("sites", "kind", "segmentation", "groups segmentation"),
    ("plain", "evidence", [1], "evidence"),
    ("plain", "evidence.ignore_index", 2**70, "evidence.ignore_index"),
    ("plain", "evidence.fingerprint", [1], "evidence.fingerprint"),
    ("plain", "evidence.reference.score.counts", [1], "evidence.reference.score"),
    ("plain", "evidence.reference.predicted.classes", [0, 99], "reference.predicted.classes"),
    ("plain", "evidence.reference.labels", [1, 2], "reference.labels 3"),
    ("plain", "evidence.reference.rows", -1, "evidence.reference.rows"),
    ("class", "promise.of", "luck", "promise.of luck"),
    ("class", "promise.by_class", 1, "promise.by_class true"),
    ("class", "promise.by_class", False, "class_thresholds class"),
    ("class", "promise.extra", 1, "promise.extra"),
    ("class", "promise", None, "class_thresholds class"),
    ("class", "class_thresholds", None, "class_thresholds class"),
    ("class", "class_thresholds", [], "empty"),
    ("class", "class_thresholds", 3, "3"),
    ("class", "class_thresholds.0.class", 1, "class_thresholds 1 2"),
    ("class", "class_thresholds.0.class", 3, "class_thresholds 3"),
    ("class", "class_thresholds.0.class", -1, "class_thresholds.0.class -1"),
    ("class", "class_thresholds.0.group", "x", "class_thresholds group"),
    ("class", "class_thresholds.0.threshold.target_risk", 0.1, "class_thresholds.0.target_risk 0.2"),
    ("class", "class_thresholds.0.threshold.accept_from", 3.0, "class_thresholds.0.accept_from 3"),
    ("class", "class_thresholds.0.threshold.confidence", 0.5, "class_thresholds.0.confidence 0.95"),
    ("class", "class_thresholds.0.threshold.errors", 10**6, "class_thresholds.0 1000000"),
    ("class", "target_risk", None, "target_risk number"),
    ("site and class", "class_thresholds.0.group", None, "class_thresholds group"),
    ("precision", "promise.shares.0.share", 1.0, "promise.shares.0.share 1.0"),
    ("precision", "promise.shares.0.share", 0.9, "target_risk 0.1"),
    ("precision", "promise.shares.0.class", 2, "class_thresholds 1 precision"),
    ("precision", "promise.shares", [], "promise.shares precision"),
    ("precision", "target_risk", 0.1, "target_risk null precision"),
    ("recall", "promise.shares.0.class", 7, "promise.shares 3"),
    ("recall", "promise.shares.0.share", 0.99, "promise.seen 0.01"),
    ("recall", "promise.seen", None, "promise.seen recall"),
    ("recall", "promise.seen.loss", 1e9, "promise.seen.loss 1e+09"),
    ("recall", "promise.of", "expected-risk", "promise.shares expected-risk"),
    ("recall", "score.name", "msp", "score.name class_probability"),
    ("recall", "threshold.accept_from", 1.5, "threshold.accept_from class_probability"),
    ("expected", "promise.target", 0.0, "promise.target 0.0"),
    ("expected", "promise.target", 0.01, "promise.seen 0.01"),
    ("expected", "promise.target", None, "promise.target expected-risk"),
    ("expected", "score.name", "expected_cost", "score.name expected_cost"),
    ("cost", "promise.costs.0", [0, 1], "costs [3, 3]"),
    ("cost", "promise.costs.0.1", -1.0, "promise.costs.0 -1.0"),
    ("cost", "promise.costs", None, "promise.costs cost"),
    ("cost", "promise.target", 4.0, "promise.target 4.0"),
    ("cost", "promise.abstain_cost", 0.01, "threshold.accept_from abstain"),
    ("cost", "threshold.accept_from", 1.0, "threshold.accept_from expected_cost"),
    ("cost", "kind", "segmentation", "promise segmentation"),
    ("raps", "sets.level", 1.0, "sets.level 1.0"),
    ("raps", "sets.method", "best", "sets.method lac best"),
    ("raps", "sets.method", "class-conditional", "sets.quantiles 3 1"),
    ("raps", "sets.method", "aps", "sets.penalty sets.free_ranks aps"),
    ("raps", "sets.quantiles", [], "sets.quantiles []"),
    ("raps", "sets.quantiles", 0.5, "sets.quantiles 0.5"),
    ("raps", "sets.quantiles", ["all"], "sets.quantiles samples"),
    ("raps", "sets.quantiles", [1e300], "sets.quantiles 1e+300"),
    ("raps", "sets.samples", [3], "sets.quantiles all 3"),
    ("raps", "sets.samples", [2**70], "sets.samples 1,000,000,000,000"),
    ("raps", "sets.penalty", -1.0, "sets.penalty -1.0"),
    ("raps", "sets.free_ranks", 7, "sets.free_ranks 3 7"),
    ("raps", "sets.randomised", 1, "sets.randomised 1"),
    ("raps", "sets.colour", "red", "sets.colour"),
    ("raps", "sets.counts.class_samples", [1], "sets.counts class_samples"),
    ("raps", "sets.counts.sizes", [0] * 9, "sets.counts.sizes 4 9"),
    ("raps", "sets.counts.abstained_covered", 10**9, "sets.counts"),
    ("raps", "kind", "segmentation", "sets segmentation"),
]


def change(fields, places, value):
    """An entry by its dotted place, or several of them, of fields whose checksum goes."""
    fields = json.loads(json.dumps(fields))
    del fields["checksum"]
    for place, new in zip(places.split(", "), value if ", " in places else [value], strict=True):
        *outer, last = [int(key) if key.isdecimal() else key for key in place.split(".")]
        functools.reduce(lambda part, key: part[key], outer, fields)[last] = new
    return fields


@pytest.mark.parametrize(("kind", "place", "value", "told"), WRONG, ids=lambda value: str(value)[:40])
def test_what_is_wrong_is_refused(kind, place, value, told, tmp_path):
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(change(fitted(kind).document, place, value)), encoding="utf-8")
    with pytest.raises(ValueError, match=facts(str(path))) as error:
        Policy.load(path)
    sentence = str(error.value).removeprefix(str(path))
    assert re.search(facts(*told.split()), sentence)
    assert re.split("[.,]", place)[0] in sentence or told.split()[0] in sentence
    assert "\n" not in sentence
    assert len(sentence) < 300


def test_entries_may_say_something_else_that_is_true():
    entries = fitted("plain").document
    assert np.isinf(Policy.from_document(change(entries, "threshold.accept_from", "nothing")).threshold.value)
    assert Policy.from_document(change(entries, "score.of", "calibrated")).score.of == "calibrated"
    assert Policy.from_document(change(entries, "target_risk, threshold.target_risk", (0.3, 0.3))).target_risk == 0.3
    before_sets = {name: value for name, value in fitted("raps").document.items() if name not in ("sets", "checksum")}
    assert Policy.from_document(before_sets).sets is None


@pytest.mark.parametrize("key", ["classes", "calibrator", "score", "threshold", "groups", "evidence", "takes"])
def test_nothing_may_be_missing(key):
    with pytest.raises(ValueError, match=facts(key, "missing")):
        Policy.from_document({name: value for name, value in fitted("plain").document.items() if name != key})


def test_groups_and_classes_whose_names_run_together_are_refused():
    logits, labels = drawn(600, 2)
    groups = {"site": np.where(np.arange(600) % 2, "x", "x: a")}
    data = Predictions.from_logits(logits, labels, class_names=["b", "a: b"], groups=groups)
    with pytest.raises(ValueError, match=facts("group", "class", "alike")):
        Policy.fit(data, 0.4, by_class=True, group="site", calibrator="none")
