"""The headline answers what was asked: which model is better, whether a promise is kept."""

import numpy as np
import pytest

from calibrant import Policy, Predictions, audit
from tests.helpers.audits import drawn


@pytest.mark.parametrize("order", [("over", "honest"), ("honest", "over")])
def test_of_two_files_the_better_is_named(order):
    z, y = drawn(3000, 5, 1.0, 3)
    models = {"honest": Predictions.from_logits(z, y), "over": Predictions.from_logits(3 * z, y)}
    result = audit({name: models[name] for name in order}, replicates=100)
    assert result.verdict.startswith("honest is better than over (ECE ")
    assert "and its confidence can be trusted; the confidence of over cannot be trusted as it is." in result.verdict
    assert result.document["verdict"]["level"] == "good"


def test_two_files_that_cannot_be_told_apart_or_compared():
    z, y = drawn(2000, 5, 1.0, 4)
    rng = np.random.default_rng(0)
    alike = z + 0.01 * rng.standard_normal(z.shape)
    result = audit({"a": Predictions.from_logits(z, y), "b": Predictions.from_logits(alike, y)}, replicates=100)
    assert result.verdict.startswith("Neither is better")
    assert "the confidence of both can be trusted" in result.verdict
    result = audit({"a": Predictions.from_logits(z, y), "b": Predictions.from_logits(z[:900], y[:900])}, replicates=50)
    assert "not about the same samples" in result.verdict


def test_more_accurate_but_worse_calibrated_is_not_better():
    z, y = drawn(3000, 5, 1.0, 5)
    rng = np.random.default_rng(1)
    guess = np.where(rng.random(3000) < 0.3, y, z.argmax(1))  # right more often, and much too sure
    sure = 9.0 * np.eye(5)[guess]
    result = audit({"a": Predictions.from_logits(z, y), "b": Predictions.from_logits(sure, y)}, replicates=100)
    assert result.verdict.startswith("Neither is better")


def test_a_policy_is_the_headline_and_the_repaired_model_with_it():
    z, y = drawn(9000, 5, 3.0, 6)
    policy = Policy.fit(Predictions.from_logits(z, y), 0.3)
    result = audit(Predictions.from_logits(*drawn(4000, 5, 3.0, 7)), policy=policy, replicates=100)
    assert result.verdict.startswith(result.document["policy"]["title"])
    assert "promised: at most 30%" in result.verdict
    assert "Calibrated, its confidence can be trusted (ECE " in result.verdict


def test_the_headline_tells_what_is_promised_where_that_is_no_share_of_wrong_answers():
    val, test = (Predictions.from_logits(*drawn(4000, 5, 3.0, seed)) for seed in (6, 7))
    policy = Policy.fit(val, promise="recall=2:0.8")
    labels, _, accept = policy.decide(test.logits)
    assert (labels[accept] == 2).all()
    own = test.labels == 2
    verdict = audit(test, policy=policy, replicates=100).verdict
    assert f": {(own & accept).sum()} of {own.sum()} samples of 2 are answered as 2, " in verdict
    assert "; it answers " in verdict
