"""Policies: what is chosen and why, decisions against plain formulas, streaming, groups, masks, files."""

import numpy as np
import pytest

from calibrant import Policy, Predictions
from calibrant.metrics import ece
from tests.helpers.policies import drawn


@pytest.fixture(scope="module")
def policy():
    return Policy.fit(Predictions.from_logits(*drawn(4000)), target_risk=0.1)


def test_an_overconfident_model_is_calibrated_and_keeps_its_target(policy):
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


def test_probabilities_are_taken_as_such():
    z, y = drawn(2500)
    p = np.exp(z - z.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    by_logits = Policy.fit(Predictions.from_logits(z, y), 0.1, score="msp")
    found = Policy.fit(Predictions.from_probabilities(p, y), 0.1, score="msp")
    assert found.takes == "probabilities"
    assert found.calibrator.temperature_ == pytest.approx(by_logits.calibrator.temperature_, rel=1e-6)
    assert (found.decide(p).accept == by_logits.decide(z).accept).mean() > 0.999
    with pytest.raises(ValueError, match="takes probabilities"):
        found.decide(z)
    with pytest.raises(ValueError, match="takes probabilities, got logits"):
        found.decide(Predictions.from_logits(z, y))


def test_numbers_of_numpy_are_numbers(tmp_path):
    data = Predictions.from_logits(*drawn(400))
    found = Policy.fit(data, np.float32(0.2), np.float32(0.9), seed=np.int64(3))
    found.save(tmp_path / "p.json")
    assert Policy.load(tmp_path / "p.json").target_risk == pytest.approx(0.2)
    with pytest.raises(ValueError, match="seed must be a whole number"):
        Policy.fit(data, 0.2, seed=1.5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target_risk": 0.0}, "target_risk"), ({"target_risk": 0.1, "target_coverage": 0.5}, "not both"),
        ({"target_coverage": 0}, "target_coverage"), ({"confidence": 1.0}, "confidence"), ({"method": "x"}, "method"),
        ({"calibrator": "magic"}, "calibrator must be"), ({"score": "magic"}, "score must be"),
        ({"group": "site"}, "no group column 'site'; there are"), ({"target_coverage": 0.5, "group": "g"}, "by group"),
    ],
)  # fmt: skip
def test_bad_arguments_are_refused(change, message):
    data = Predictions.from_logits(*drawn(300), groups={"g": np.arange(300) % 2})
    with pytest.raises(ValueError, match=message):
        Policy.fit(data, **change)
