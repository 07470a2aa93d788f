"""Tests of module."""

import math

import pytest
import torch

from calibrant import Policy, Predictions
from tests.helpers.policies import drawn


@pytest.fixture(scope="module")
def policy():
    return Policy.fit(Predictions.from_logits(*drawn(4000)), target_risk=0.1)


def test_a_module_never_answers_what_is_not_finite():
    policy = Policy.fit(Predictions.from_logits(*drawn(400, classes=3)), target_coverage=1.0, score="max_logit")
    assert policy.limits.tolist() == [-math.inf]
    odd = torch.tensor([[1.0, 2.0, 3.0], [math.nan, 0.0, 1.0], [math.inf, 0.0, 1.0]])
    assert policy.module()(odd).accept.tolist() == [True, False, False]
