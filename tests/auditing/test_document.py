"""Tests of document."""

import math
import re

import numpy as np
import pytest

from calibrant import Predictions, audit
from calibrant.metrics import MEASURED, classwise_ece, coverage_at_risk, ece, nll
from tests.helpers.audits import drawn
from tests.helpers.errors import facts


@pytest.fixture(scope="module")
def overconfident():
    z, y = drawn(4000, 7, 2.5, 1)
    return z, y, audit(Predictions.from_logits(z, y), replicates=100)


def test_numbers_are_those_of_the_exact_functions(overconfident):
    z, y, found = overconfident
    p = np.exp(z - z.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    confidence, correct = p.max(1), p.argmax(1) == y
    assert found.metrics["ece_15"] == pytest.approx(ece(confidence, correct), abs=1e-9)
    assert found.metrics["ece_100"] == pytest.approx(ece(confidence, correct, bins=100), abs=1e-9)
    assert found.metrics["nll"] == pytest.approx(nll(z, y))
    assert found.metrics["classwise_ece"] == pytest.approx(classwise_ece(z, y), abs=1e-9)
    bound = found.bounds["coverage_at_risk_0.1"]
    assert abs(found.metrics["coverage_at_risk_0.1"] - coverage_at_risk(confidence, correct, 0.1)) <= bound + 1e-12
    by_class = {row["name"]: row for row in found.models[0]["classes_table"]}
    predicted = p.argmax(1) == 3
    assert by_class["3"]["count"] == predicted.sum()
    assert by_class["3"]["accuracy"] == pytest.approx(correct[predicted].mean())
    assert by_class["3"]["confidence"] == pytest.approx(confidence[predicted].mean())
    assert by_class["3"]["ece"] == pytest.approx(ece(confidence[predicted], correct[predicted]))
    assert by_class["3"]["classwise_ece"] == pytest.approx(classwise_ece(z, y, average=None)[3], abs=1e-9)
    errors = found.models[0]["errors"]
    order = np.argsort(-np.where(correct, -1, confidence), kind="stable")[:50]
    assert [row["id"] for row in errors] == order.tolist()
    assert errors[0]["label"] == str(y[order[0]])
    assert errors[0]["predicted"] == str(p.argmax(1)[order[0]])


def test_every_number_has_an_interval_around_it(overconfident):
    *_, found = overconfident
    assert set(found.intervals) == set(found.metrics)
    for name, (low, high) in found.intervals.items():
        assert low <= found.metrics[name] <= high, name
    assert set(found.metrics) == {*MEASURED, "classwise_ece"}


def test_a_label_of_probability_zero_is_said():
    p = np.array([[1.0, 0.0], [0.5, 0.5]] * 60)
    found = audit(Predictions.from_probabilities(p, np.array([1, 0] * 60)), replicates=50)
    row = next(one for one in found.models[0]["metrics"] if one["name"] == "nll")
    # One decimal place, two classes: a floor of 0.05; half of the labels have probability 0, half 0.5.
    assert row["value"] == pytest.approx(-(math.log(0.05) + math.log(0.5)) / 2)
    spread = (math.log(0.5) - math.log(0.05)) / 2 / math.sqrt(120)  # of as many of either
    assert (row["high"] - row["low"]) / 2 == pytest.approx(1.959964 * spread, rel=1e-2)
    assert re.search(facts("60 samples", "0.05"), row["note"])
