"""A fitted rule: its parts, and its decisions about arrays."""

import json
import math

import numpy as np
import pytest
import torch

from calibrant import Policy, Predictions
from calibrant.promises import Risk
from calibrant.promises.thresholds import ClassThreshold
from tests.helpers.errors import facts
from tests.helpers.exports import at, make_policy
from tests.helpers.policies import drawn


def test_an_honest_abstention():
    found = Policy.fit(Predictions.from_logits(*drawn(300)), 0.01)
    assert found.abstains
    assert found.summary.startswith("Always abstains")
    assert not found.decide(drawn(50)[0]).accept.any()
    json.loads(json.dumps(found.evidence))
    assert math.isinf(found.threshold.value)


@pytest.mark.slow
def test_an_empirical_threshold_promises_nothing():
    z, y = drawn(900)
    data = Predictions.from_logits(z, y, groups={"s": np.arange(900) % 2})
    for found in (Policy.fit(data, 0.2, method="empirical"), Policy.fit(data, 0.2, group="s", method="empirical")):
        assert "confidence" not in found.summary
        assert found.threshold.confidence is None


def test_the_part_of_a_sample():
    parts = tuple(ClassThreshold(label, group, at(0.5)) for group, label in (("a", 1), ("b", 0), ("b", 1)))
    policy = make_policy(classes=3).model_copy(
        update={"group": "site", "class_thresholds": parts, "promise": Risk(0.1, by_class=True)}
    )
    numbers = policy.part_numbers(np.array(["a", "a", "b", "b", "c", "b"]), np.array([1, 0, 0, 1, 1, 2]))
    assert numbers.tolist() == [0, -1, 1, 2, -1, -1]
    limits = policy.limits_of(np.array(["a", "a", "c"]), np.array([1, 0, 1]))
    assert limits.tolist() == [0.5, np.inf, np.inf]


@pytest.fixture(scope="module")
def policy():
    return Policy.fit(Predictions.from_logits(*drawn(4000)), target_risk=0.1)


def test_decisions_follow_the_formula(policy):
    z, _ = drawn(500, seed=2)
    exps = np.exp(z / policy.calibrator.temperature_ - (z / policy.calibrator.temperature_).max(1, keepdims=True))
    raw = np.exp(z - z.max(1, keepdims=True))
    score = {"logits": 1 / raw.sum(1), "calibrated": 1 / exps.sum(1)}[policy.score.of]
    _, confidence, accept = policy.decide(z)
    assert np.allclose(confidence, (exps / exps.sum(1, keepdims=True)).max(1), rtol=1e-12)
    assert (accept == (score >= policy.threshold.value)).all()


def test_decisions_keep_the_kind_that_came(policy):
    z, _ = drawn(300, seed=3)
    arrays, tensors = policy.decide(z), policy.decide(torch.from_numpy(z))
    predicted = policy.decide(Predictions.from_logits(z, np.zeros(300, dtype=int)))
    for a, b, c in zip(arrays, tensors, predicted, strict=True):
        assert isinstance(b, torch.Tensor)
        assert (a == b.numpy()).all()
        assert (a == c).all()
    half = policy.decide(z.astype(np.float16))
    assert (half.labels == z.astype(np.float16).argmax(1)).all()


def test_what_cannot_be_decided_about_is_refused(policy):
    z, y = drawn(20)
    named = Policy.fit(Predictions.from_logits(*drawn(300), class_names=list("abcdef")), 0.2)
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    shares = Policy.fit(Predictions.from_probabilities(p, y), 0.2)
    for rule, values, told in (
        (policy, (z[:, :5],), "6"),
        (policy, (z[0],), "logits"),
        (policy, (np.where(z > 1, np.nan, z),), "finite"),
        (policy, (z[:, :, None],), "classification"),
        (policy, (z.astype(int),), "logits floating"),
        (policy, (z, ["a"] * 20), "threshold"),
        (named, (Predictions.from_logits(z, y, class_names=list("abcdfe")),), "e, f"),
        (shares, (np.array([0.2, 0.3, 0.5]),), "probabilities"),
        (shares, (np.array("text"),), "probabilities"),
        (shares, (np.array([[1, 0, 0]]),), "probabilities floating"),
        (shares, (z,), "probabilities -"),
    ):
        with pytest.raises(ValueError, match=facts(*told.split())):
            rule.decide(*values)


def test_rounding_of_a_calibrator_makes_no_ties():
    """Two logits an ulp apart stay in order, whatever the temperature."""
    z = np.array([[1.0, np.nextafter(1.0, 2.0)]])
    policy = Policy.fit(Predictions.from_logits(*drawn(400, classes=2)), 0.4, calibrator="temperature")
    policy.calibrator.temperature_ = 3.0
    assert policy.decide(z).labels.tolist() == [1]


def test_a_module_never_answers_what_is_not_finite():
    policy = Policy.fit(Predictions.from_logits(*drawn(400, classes=3)), target_coverage=1.0, score="max_logit")
    assert policy.limits.tolist() == [-math.inf]
    odd = torch.tensor([[1.0, 2.0, 3.0], [math.nan, 0.0, 1.0], [math.inf, 0.0, 1.0]])
    assert policy.module()(odd).accept.tolist() == [True, False, False]


@pytest.fixture(scope="module")
def one_column():
    rng = np.random.default_rng(0)
    z = 3 * rng.standard_normal(1200)
    return z, np.where(rng.random(1200) < 1 / (1 + np.exp(-z)), "yes", "no")


@pytest.mark.parametrize("kind", ["logits", "probabilities"])
def test_a_policy_on_one_column_decides_as_on_two(kind, one_column):
    z, truth = one_column
    values = z if kind == "logits" else 1 / (1 + np.exp(-z))
    both = np.stack([0 * z if kind == "logits" else 1 - values, values], 1)
    make = getattr(Predictions, f"from_{kind}")
    policy = Policy.fit(make(values, truth, positive="yes"), target_risk=0.1, calibrator="none", score="msp")
    assert (policy.positive, policy.positive_name) == (1, "yes")
    for one in (values, values[:, None]):
        for column, expected in zip(policy.decide(one), policy.decide(both), strict=True):
            assert np.array_equal(column, expected)
    assert Policy.from_document(policy.document).positive == 1
    entries = policy.document
    del entries["positive"], entries["checksum"]  # as files had it before: custom does not know yes and no
    assert Policy.from_document(entries).positive is None
    two = Policy.fit(make(both, truth, class_names=["no", "yes"]), target_risk=0.1, calibrator="none", score="msp")
    with pytest.raises(ValueError, match=facts("column", "both")):
        two.decide(values)
