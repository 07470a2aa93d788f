"""Tests of findings."""

import json
import math

import pytest

from calibrant import Predictions, audit
from tests.helpers.audits import drawn, smoothed, titles


@pytest.fixture(scope="module")
def overconfident():
    z, y = drawn(4000, 7, 2.5, 1)
    return z, y, audit(Predictions.from_logits(z, y), replicates=100)


def test_overconfidence_is_found_and_temperature_scaling_advised(overconfident):
    *_, found = overconfident
    assert found.document["verdict"]["level"] == "poor"
    assert found.verdict.startswith("Overconfident")
    assert "Temperature scaling helps" in titles(found)
    fix = found.models[0]["fixes"][0]
    assert fix["high"] < 0
    assert "T from 2." in fix["fitted"] or "T = 2." in fix["fitted"]
    assert any("Temperature scaling" in line for line in found.advice)


def test_a_calibrated_model_is_trusted_and_left_alone():
    z, y = drawn(4000, 7, 1.0, 2)
    found = audit(Predictions.from_logits(z, y), replicates=100)
    assert found.document["verdict"]["level"] == "good"
    assert found.intervals["ece_15"][0] == 0
    assert "No bin is off beyond chance" in titles(found)
    assert "Temperature scaling helps" not in titles(found)


def test_underconfidence_is_found():
    z, y = drawn(3000, 7, 0.4, 3)
    found = audit(Predictions.from_logits(z, y), replicates=100)
    assert found.verdict.startswith("Underconfident")


def test_the_trace_of_label_smoothing_is_found():
    z, y = smoothed(6000, 4)
    found = audit(Predictions.from_logits(z, y), replicates=100)
    assert "The max logit knows of errors that the confidence does not" in titles(found)
    norm = found.models[0]["logits"]
    assert len(norm["msp"]) == len(norm["right_mean"]) == len(norm["wrong_mean"])


def test_too_little_data_is_said():
    z, y = drawn(30, 4, 3.0, 8)
    found = audit(Predictions.from_logits(z, y), replicates=50)
    assert found.document["verdict"]["level"] == "unknown"
    assert "Little data" in titles(found)
    one = audit(Predictions.from_logits(z[:1], y[:1]), replicates=50)
    assert one.document["verdict"]["level"] == "unknown"


@pytest.mark.parametrize("right", [True, False])
def test_all_right_and_all_wrong(right):
    z, _ = drawn(300, 4, 2.0, 9)
    y = z.argmax(1) if right else z.argmin(1)
    found = audit(Predictions.from_logits(z, y), replicates=50)
    json.loads(found.to_json())
    assert found.metrics["accuracy"] == float(right)
    assert math.isnan(found.metrics["overconfidence" if right else "underconfidence"])


@pytest.mark.parametrize("size", [200, 400, 1500])
def test_a_bad_model_is_not_trusted_for_lack_of_data(size):
    for seed in range(5):
        z, y = drawn(size, 6, 2.0, 40 + seed)
        found = audit(Predictions.from_logits(z, y), replicates=50)
        assert found.document["verdict"]["level"] == "poor", found.verdict
        assert found.verdict.startswith("Overconfident")


def test_a_calibrated_model_with_little_data_is_not_called_safe():
    z, y = drawn(150, 6, 1.0, 50)
    found = audit(Predictions.from_logits(z, y), replicates=50)
    assert found.document["verdict"]["level"] == "unknown"
    assert "could be up to" in found.verdict
