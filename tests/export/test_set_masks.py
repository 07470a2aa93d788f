"""Prediction sets in a graph: the mask that onnxruntime gives is NumPy's in every class of every sample."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from calibrant.export import export_onnx
from calibrant.export.graph import OUTPUTS, SET, OnnxOps
from calibrant.posthoc.scores import Score
from calibrant.promises.sets import PredictionSets
from tests.helpers.errors import facts
from tests.helpers.exports import C, build, calibrators, data, make_policy, trial_logits

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

SETS = {
    "lac": PredictionSets(0.9, "lac", (-0.1,), (400,)),
    "aps": PredictionSets(0.9, "aps", (0.93,), (400,)),
    "raps": PredictionSets(0.9, "raps", (0.95,), (400,), penalty=0.02, free_ranks=1),
    "class-conditional": PredictionSets(
        0.9, "class-conditional", (-0.05, -0.2, math.inf, -0.4, -0.1), (40, 40, 3, 40, 40)
    ),
    "all": PredictionSets(0.9, "aps", (math.inf,), (4,)),
}


def with_sets(name, **options):
    return make_policy(Score("msp"), 0.7, **options).model_copy(update={"sets": SETS[name]})


def masks(path, logits, **feeds):
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    outputs = [(output.name, output.type) for output in session.get_outputs()]
    assert outputs[-1] == (SET, "tensor(bool)")
    assert [name for name, _ in outputs[:-1]] == list(OUTPUTS)
    return session.run([SET], {"logits": logits, **feeds})[0]


def mask_reference(sets, p):
    """A class at a time."""
    inside = np.zeros(p.shape, bool)
    for i, row in enumerate(p):
        before = 0.0
        for rank, k in enumerate(sorted(range(len(row)), key=lambda k: -row[k]), start=1):
            before += row[k]
            score = -row[k] if sets.method in ("lac", "class-conditional") else before
            score += sets.penalty * max(0, rank - sets.free_ranks) if sets.method == "raps" else 0.0
            inside[i, k] = score <= sets.quantiles[k if len(sets.quantiles) > 1 else 0]
    return inside


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
def test_masks_of_every_method_and_calibrator(name, tmp_path):
    z, y = data(400)
    trial = trial_logits()
    for calibrator in calibrators() if name == "raps" else ["temperature"]:
        if not isinstance(calibrator, str | None):
            calibrator.fit(z, y)
        policy = with_sets(name, calibrator=calibrator)
        done = export_onnx(policy, tmp_path / "p.onnx")
        assert done.outputs[-1].name == SET
        for part in (z, trial, trial[:1]):
            mask = masks(tmp_path / "p.onnx", part)
            np.testing.assert_array_equal(mask, policy.predict_sets(part))
            with torch.no_grad():
                np.testing.assert_array_equal(mask, policy.module()(torch.from_numpy(part)).prediction_set.numpy())
        mask = masks(tmp_path / "p.onnx", z)
        if calibrator == "temperature":
            scaled = z.astype(np.float64) / policy.calibrator.temperature_
            p = np.exp(scaled - scaled.max(1, keepdims=True))
            np.testing.assert_array_equal(mask, mask_reference(policy.sets, p / p.sum(1, keepdims=True)))
    assert mask.all() == (name == "all")
    assert mask.any()


@pytest.mark.parametrize("opset", [13, 18])
def test_many_classes_in_old_and_new_graphs(opset, tmp_path):
    z = (3 * np.random.default_rng(0).standard_normal((50, 300))).astype(np.float32)
    policy = make_policy(Score("msp"), 0.7, calibrator=None, classes=300).model_copy(update={"sets": SETS["raps"]})
    export_onnx(policy, tmp_path / "p.onnx", opset=opset)
    mask = masks(tmp_path / "p.onnx", z)
    np.testing.assert_array_equal(mask, policy.predict_sets(z))
    assert 1 < mask.sum(1).mean() < 200


def test_rows_that_are_not_numbers_have_empty_sets(tmp_path):
    policy = with_sets("all")
    export_onnx(policy, tmp_path / "p.onnx")
    mask = masks(
        tmp_path / "p.onnx", np.array([[np.nan, 0, 0, 0, 0], [np.inf, 0, 0, 0, 0], [1, 0, 0, 0, 0]], np.float32)
    )
    assert mask.any(1).tolist() == [False, False, True]


def test_groups_leave_the_sets_as_they_are(tmp_path):
    policy = with_sets("aps", groups={"a": 0.5, "b": 0.9})
    export_onnx(policy, tmp_path / "p.onnx")
    z = data(40)[0]
    mask = masks(tmp_path / "p.onnx", z, group=np.arange(40) % 3)
    np.testing.assert_array_equal(mask, policy.predict_sets(z))


def test_a_wrong_mask_is_noticed_and_not_written(tmp_path, monkeypatch):
    right = OnnxOps.falling_totals

    def wrong(ops, a):
        position, totals = right(ops, a)
        return position, ops.mul(totals, ops.constant(1 - 1e-6))

    monkeypatch.setattr(OnnxOps, "falling_totals", wrong)
    with pytest.raises(ValueError, match=facts("prediction_set")):
        export_onnx(with_sets("aps"), tmp_path / "w.onnx")
    assert not list(tmp_path.iterdir())


def test_randomised_sets_and_a_taken_name_are_refused(tmp_path):
    policy = with_sets("aps").model_copy(update={"sets": dataclasses.replace(SETS["aps"], randomised=True)})
    with pytest.raises(ValueError, match=facts("randomised")):
        export_onnx(policy, tmp_path / "p.onnx")
    node = onnx.helper.make_node("Identity", [SET], ["z"])
    model = build([node], [("z", onnx.TensorProto.FLOAT, ["N", C])], inputs=[(SET, onnx.TensorProto.FLOAT, ["N", C])])
    with pytest.raises(ValueError, match=facts("'prediction_set'")):
        export_onnx(with_sets("aps"), tmp_path / "p.onnx", onnx_model=model)
