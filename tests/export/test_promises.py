"""Promises in a graph: onnxruntime's answers are those of a few lines of NumPy."""

import numpy as np
import pytest
from scipy.special import softmax

from calibrant.export import export_onnx
from calibrant.posthoc.scores import Score
from calibrant.promises import Cost, Recall, Risk
from calibrant.promises.thresholds import ClassThreshold
from tests.helpers.exports import C, agree, at, make_policy, run, trial_logits

pytest.importorskip("onnxruntime")

LIMITS = {("a", 0): 0.9, ("a", 1): 0.5, ("a", 3): -np.inf, ("b", 0): np.inf, ("b", 4): 0.4}
COSTS = np.random.default_rng(0).integers(0, 9, (C, C)) * (1.0 - np.eye(C))


def promising(promise, score="msp", limit=0.7, **more):
    return make_policy(Score(score), limit, calibrator=None).model_copy(update={"promise": promise, **more})


def test_a_threshold_for_every_class(tmp_path):
    parts = tuple(ClassThreshold(label, None, at(0.3 + 0.1 * label)) for label in (0, 2, 4))
    policy = promising(Risk(0.1, by_class=True), class_thresholds=parts)
    export_onnx(policy, tmp_path / "p.onnx")
    z = trial_logits()
    found = run(tmp_path / "p.onnx", logits=z)
    p = softmax(z.astype(float), axis=1)
    limit = np.array([0.3, np.inf, 0.5, np.inf, 0.7])[z.argmax(1)]
    assert (found["accept"] == (p.max(1) >= limit)).all()
    agree(found, policy, z)


@pytest.mark.parametrize("opset", [13, 18])
def test_a_threshold_for_every_class_in_every_group(opset, tmp_path):
    parts = tuple(ClassThreshold(label, group, at(value)) for (group, label), value in LIMITS.items())
    policy = promising(Risk(0.1, by_class=True), class_thresholds=parts, group="site")
    export_onnx(policy, tmp_path / "p.onnx", opset=opset)
    z = trial_logits(200)
    group = np.random.default_rng(1).integers(-1, 3, len(z))
    found = run(tmp_path / "p.onnx", logits=z, group=group)
    p = softmax(z.astype(float), axis=1)
    names = {0: "a", 1: "b"}
    limit = [LIMITS.get((names.get(g), k), np.inf) for g, k in zip(group.tolist(), z.argmax(1).tolist(), strict=True)]
    assert (found["accept"] == (p.max(1) >= np.array(limit))).all()
    assert found["accept"].any()


def test_recall_answers_the_class_wherever_it_is_likely_enough(tmp_path):
    policy = promising(Recall(3, 0.9), "class_probability", 0.2)
    export_onnx(policy, tmp_path / "p.onnx")
    z = trial_logits(200)
    found = run(tmp_path / "p.onnx", logits=z)
    p = softmax(z.astype(float), axis=1)
    accept = p[:, 3] >= 0.2
    assert (found["accept"] == accept).all()
    assert (found["label"] == np.where(accept, 3, z.argmax(1))).all()
    assert (accept & (z.argmax(1) != 3)).any()
    np.testing.assert_allclose(found["confidence"], np.where(accept, p[:, 3], p.max(1)), atol=1e-6)


def test_the_answer_of_the_least_expected_cost(tmp_path):
    policy = promising(Cost(1.0, COSTS), "expected_cost", -1.2)
    export_onnx(policy, tmp_path / "p.onnx")
    z = np.random.default_rng(3).standard_normal((300, C)).astype(np.float32) * 3
    found = run(tmp_path / "p.onnx", logits=z)
    expected = softmax(z.astype(float), axis=1) @ COSTS
    assert (found["label"] == expected.argmin(1)).all()
    assert (found["label"] != z.argmax(1)).any()
    assert (found["accept"] == (expected.min(1) <= 1.2)).all()
    agree(found, policy, z)
