"""Entries that are right alone and contradict each other."""

from dataclasses import replace

import numpy as np
import pytest

from calibrant import Policy, Predictions
from calibrant.posthoc import VectorScaling
from calibrant.selective.policy_file.consistency import check_consistent
from calibrant.selective.policy_file.file import from_dict, to_dict


@pytest.fixture(scope="module")
def rule():
    rng = np.random.default_rng(0)
    logits = 3 * rng.standard_normal((300, 4))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(1)
    fitted = Policy.fit(Predictions.from_logits(logits, labels), 0.2, calibrator="temperature", score="msp")
    return from_dict(to_dict(fitted))


def test_a_fitted_policy_is_consistent(rule):
    check_consistent(rule)


def test_what_contradicts_is_named(rule):
    threshold = rule.threshold
    for changed, sentence in (
        (replace(rule, group="site"), "group and groups go together"),
        (replace(rule, score=replace(rule.score, of="calibrated"), calibrator=None), "there is no calibrator"),
        (replace(rule, threshold=replace(threshold, value=1.5)), "threshold.accept_from must be a number from"),
        (replace(rule, threshold=replace(threshold, errors=threshold.accepted + 1)), "must not fall"),
        (replace(rule, target_risk=0.1), "target_risk must be the policy's 0.1, got 0.2"),
        (replace(rule, confidence=0.99), "confidence must be the policy's 0.99 at least"),
        (replace(rule, threshold=replace(threshold, samples=2 * threshold.samples)), "coverage.value must be"),
    ):
        with pytest.raises(ValueError, match=sentence):
            check_consistent(changed)


def test_a_calibrator_without_finite_answers_is_refused(rule):
    endless = VectorScaling()
    endless.weight_, endless.bias_, endless.n_classes_ = np.full(4, 1e305), np.zeros(4), 4
    with pytest.raises(ValueError, match="not finite"), np.errstate(all="ignore"):
        check_consistent(replace(rule, calibrator=endless))
