"""`export_onnx`: its arguments, its file, its extra; a wrong graph is noticed, rounding is excused and counted."""

import importlib

import numpy as np
import pytest
import torch
from torch import nn

from calibrant.export import export_onnx, onnx_model
from calibrant.export.graph import OnnxOps
from calibrant.export.verify import Verification
from calibrant.posthoc.scores import Score
from tests.helpers.errors import facts
from tests.helpers.exports import C, make_policy

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def test_the_file_is_written_aside_and_replaces_the_old_one(tmp_path):
    (tmp_path / "p.onnx").write_text("old")
    done = export_onnx(make_policy(), tmp_path / "p.onnx")
    assert done.path == tmp_path / "p.onnx"
    assert [p.name for p in tmp_path.iterdir()] == ["p.onnx"]
    onnx.checker.check_model(str(tmp_path / "p.onnx"), full_check=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        export_onnx(make_policy(), tmp_path / "file" / "p.onnx")


def test_without_the_extra_the_pip_line_is_named(tmp_path, monkeypatch):
    there = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "onnxruntime" else there(name))
    with pytest.raises(ValueError, match=facts("export_onnx", "onnxruntime", "calibrant[export]")):
        export_onnx(make_policy(), tmp_path / "p.onnx")


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"opset": 12}, "opset 13 12"),
        ({"opset": True}, "opset True"),
        ({"output": "x"}, "output"),
        ({"inputs": np.ones((2, 3))}, "inputs"),
        ({"model": nn.Linear(4, C), "onnx_model": "x.onnx"}, "model"),
        ({"model": nn.Linear(4, C), "input_shape": (0,)}, "input_shape"),
        ({"onnx_model": "x.onnx", "opset": 17}, "opset"),
    ],
)
def test_arguments_that_do_not_go_together(more, told, tmp_path):
    with pytest.raises(ValueError, match=facts(*told.split())):
        export_onnx(make_policy(), tmp_path / "p.onnx", **more)


def test_the_path_and_the_policy_are_checked(tmp_path):
    with pytest.raises(ValueError, match=facts(".onnx", ".pt")):
        export_onnx(make_policy(), tmp_path / "p.pt")
    with pytest.raises(ValueError, match=facts("Policy", "dict")):
        export_onnx({}, tmp_path / "p.onnx")
    assert onnx_model.LARGEST < 2**31


@pytest.mark.parametrize(
    ("wrong", "score"),
    [
        ({"exp": lambda ops, a: ops.node("Exp", ops.mul(a, ops.constant(1.001)))}, Score("max_logit")),
        ({"greater_equal": lambda ops, a, b: ops.node("Greater", a, b)}, Score("max_logit")),
        ({"argmax": lambda ops, a: ops.node("ArgMax", a, axis=1, select_last_index=1)}, Score("msp")),
        ({"constant": lambda ops, v: ops.store(np.asarray(v) * (1 + 1e-6))}, Score("negative_entropy")),
    ],
    ids=lambda one: next(iter(one)) if isinstance(one, dict) else "",
)
def test_a_wrong_graph_is_noticed_and_not_written(wrong, score, tmp_path, monkeypatch):
    limit = -0.1 if score.name == "negative_entropy" else 0.5
    groups = {"a": 0.5, "b": 0.6} if "greater_equal" in wrong else None
    policy = make_policy(score, limit, calibrator="temperature" if "exp" in wrong else None, groups=groups)
    for name, method in wrong.items():
        monkeypatch.setattr(OnnxOps, name, method)
    with pytest.raises(ValueError, match=facts("rows", "row", "label")):
        export_onnx(policy, tmp_path / "w.onnx")
    assert not list(tmp_path.iterdir())


def test_rounding_of_logits_is_counted_and_other_differences_are_not_excused():
    policy = make_policy(Score("max_logit"), 1.0, calibrator=None)
    z = np.array([[1.0, 0, 0, 0, 0], [2.0, 0, 0, 0, 0], [0.5, 0.5, 0, 0, 0]], np.float32)

    def verify(ours, theirs):
        verification = Verification(policy)
        graph = [x.numpy() for x in policy.module()(torch.from_numpy(ours))]
        verification.add(graph, torch.from_numpy(theirs), None, lambda: ours.astype(np.float64))
        verification.agreement()
        return verification

    nearly = z + np.array([[-1e-6, 0, 0, 0, 0], [1e-6, 0, 0, 0, 0], [0, 1e-6, 0, 0, 0]], np.float32)
    found = verify(z, nearly)  # the first is accepted by one only, the last has another label
    assert (found.rows, found.undecided) == (3, 2)
    assert 0 < found.difference < 1e-5
    far = z + np.array([[-1e-3, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]], np.float32)
    with pytest.raises(ValueError, match=facts("1 of 3 rows", "row 0", "True", "False")):
        verify(z, far)
