"""`export_onnx`: its arguments, its file, its extra."""

import importlib

import numpy as np
import pytest
from torch import nn

from calibrant.export import export_onnx, onnx_model
from tests.helpers.errors import facts
from tests.helpers.exports import C, make_policy

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
helper, numpy_helper, T, FLOAT = onnx.helper, onnx.numpy_helper, onnx.TensorProto, onnx.TensorProto.FLOAT


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(4, C)

    def forward(self, x):
        return self.last(x) if x.sum() > 0 else -self.last(x)


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
        ({"model": Branching(), "onnx_model": "x.onnx"}, "model"),
        ({"model": Branching(), "input_shape": (0,)}, "input_shape"),
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
