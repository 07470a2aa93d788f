"""Tests of rule."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from calibrant import Policy, Predictions
from calibrant.selective import Promise
from calibrant.selective.thresholds.risk import ClassThreshold
from tests.helpers.exports import at, make_policy
from tests.helpers.policies import drawn


def test_an_honest_abstention():
    found = Policy.fit(Predictions.from_logits(*drawn(300)), 0.01)
    assert found.abstains
    assert found.summary.startswith("Abstain always")
    assert not found.decide(drawn(50)[0]).accept.any()
    json.loads(json.dumps(found.evidence))
    assert math.isinf(found.threshold.value)


def test_an_empirical_threshold_promises_nothing():
    z, y = drawn(900)
    data = Predictions.from_logits(z, y, groups={"s": np.arange(900) % 2})
    for found in (Policy.fit(data, 0.2, method="empirical"), Policy.fit(data, 0.2, group="s", method="empirical")):
        assert "nothing is promised" in found.summary
        assert "confidence" not in found.summary
        assert found.threshold.confidence is None
    with pytest.raises(ValueError, match="method is for a target risk"):
        Policy.fit(data, target_coverage=0.5, method="empirical")


def test_the_part_of_a_sample():
    parts = tuple(ClassThreshold(label, group, at(0.5)) for group, label in (("a", 1), ("b", 0), ("b", 1)))
    policy = replace(make_policy(classes=3), group="site", classes=parts, promise=Promise(by_class=True))
    numbers = policy.part_numbers(np.array(["a", "a", "b", "b", "c", "b"]), np.array([1, 0, 0, 1, 1, 2]))
    assert numbers.tolist() == [0, -1, 1, 2, -1, -1]
    limits = policy.limits_of(np.array(["a", "a", "c"]), np.array([1, 0, 1]))
    assert limits.tolist() == [0.5, np.inf, np.inf]
