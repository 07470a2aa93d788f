"""``calibrant export`` as a user types it: output, errors, exit codes."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from calibrant import Predictions
from calibrant.policy import apply_policy
from tests.cli.conftest import FACTORY
from tests.helpers.exports import C, build, linear, make_policy
from tests.helpers.exports import run as run_graph

onnx = pytest.importorskip("onnx")


@pytest.fixture
def call(run, tmp_path, monkeypatch):
    """Run the command in a folder with a policy and a factory; give exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)
    make_policy(limit=0.3).save("policy.json")
    (tmp_path / "nets_of_mine.py").write_text(FACTORY)
    onnx.save_model(linear(), "model-in.onnx")
    return lambda *arguments: run("export", *arguments)


def test_logits_only(call, tmp_path):
    code, out, err = call("--policy", "policy.json", "--logits-only", "-o", "p.onnx")
    assert code == 0
    assert [line.split()[-2:] for line in out.splitlines() if line.startswith("prob")] == [["[N,", f"{C}]"]]
    assert "p.onnx" in err
    z = np.eye(C, dtype=np.float32) * 9
    assert run_graph(tmp_path / "p.onnx", logits=z)["label"].tolist() == list(range(C))


def test_an_existing_model_with_inputs_of_ones_own(call, tmp_path):
    x = np.random.default_rng(0).standard_normal((17, 4))
    np.savez(tmp_path / "x.npz", x=x)
    np.save(tmp_path / "x.npy", x)
    for name in ("x.npz", "x.npy"):
        code, out, err = call("--policy", "policy.json", "--onnx", "model-in.onnx", "--inputs", name, "--json")
        assert code == 0
        found = json.loads(out)
        assert found["rows"] == 18
        assert found["path"] == "model.onnx"
        assert found["inputs"] == [{"name": "x", "type": "FLOAT", "shape": ["N", 4]}]
        assert [one["name"] for one in found["outputs"]] == ["label", "confidence", "accept", "probabilities"]
        assert found["largest_difference"] <= 1e-5
        assert "model.onnx" in err
    assert call("--policy", "policy.json", "--onnx", "model-in.onnx", "--quiet") == (0, "", "")


def test_the_tensors_are_named_where_several_could_be_meant(call):
    node, kind = onnx.helper.make_node, onnx.TensorProto
    nodes = [node("MatMul", ["x", "w"], ["z"]), node("Neg", ["z"], ["minus"])]
    nodes += [node("ArgMax", [name], [f"best_{name}"], axis=1, keepdims=0) for name in ("z", "minus")]
    outputs = [(name, kind.FLOAT, ["N", C]) for name in ("z", "minus")]
    outputs += [(f"best_{name}", kind.INT64, ["N"]) for name in ("z", "minus")]
    onnx.save_model(build(nodes, outputs), "several.onnx")
    given = ("--policy", "policy.json", "--onnx", "several.onnx")
    code, out, err = call(*given)
    assert (code, out) == (2, "")
    assert all(fact in err for fact in (f"z (FLOAT [N, {C}])", f"minus (FLOAT [N, {C}])", "--tensor"))
    for option in ("--tensor", "--logits-output"):
        code, out, err = call(*given, option, "minus")
        assert (code, out) == (2, "")
        assert all(fact in err for fact in ("best_z (INT64 [N])", "best_minus (INT64 [N])", "--labels"))
        document = json.loads(call(*given, option, "minus", "--labels", "best_minus", "--json")[1])
        assert [(check["against"], check["differing"]) for check in document["checks"][1:]] == [("label output", 0)]
    assert call(*given, "--tensor", "z", "--labels", "best_minus")[0] == 2
    assert call(*given, "--tensor", "z", "--labels", "none", "--quiet") == (0, "", "")


@pytest.mark.slow
def test_a_factory_with_weights(call, tmp_path, monkeypatch):
    torch.manual_seed(3)
    first, last = nn.Linear(4, 7), nn.Linear(7, C)
    state = {
        f"{name}.{k}": v for name, part in (("first", first), ("last", last)) for k, v in part.state_dict().items()
    }
    save_file(state, "w.safetensors")
    torch.save({"epoch": 3, "state_dict": {f"module.{k}": v for k, v in state.items()}}, "w.pt")
    x = torch.randn(9, 4)
    expected = last(first(x).relu()).argmax(1).numpy()
    given = ["--policy", "policy.json", "--model", "nets_of_mine:Net", "--model-args", '{"width": 7}']
    for name in ("w.safetensors", "w.pt"):
        code, out, err = call(*given, "--weights", name, "--input-shape", "4", "-o", f"{name}.onnx")
        assert (code, f"{name}.onnx" in err) == (0, True), err
        np.testing.assert_array_equal(run_graph(tmp_path / f"{name}.onnx", input=x.numpy())["label"], expected)
        assert "34 rows" in out


SHAPES = {"first.weight": (6, 4), "first.bias": (6,), "last.weight": (5, 6), "last.bias": (5,)}


@pytest.mark.parametrize(
    ("shapes", "told"),
    [
        ({"first.weight": (6, 4)}, "first.bias, last.bias, last.weight"),
        (SHAPES | {"extra": (1,)}, "extra"),
        (SHAPES | {"first.weight": (9, 4), "first.bias": (9,)}, "first.weight [9,4] [6,4]"),
        ({"a": (1,)}, "first.bias, first.weight, last.bias a"),
        (nn.Linear(2, 2), ""),
        ([1, 2], ""),
    ],
    ids=["few", "more", "wide", "other", "module", "list"],
)
def test_weights_that_do_not_fit_are_named(call, shapes, told):
    is_state = isinstance(shapes, dict)
    torch.save({name: torch.zeros(shape) for name, shape in shapes.items()} if is_state else shapes, "w.pt")
    given = ("--policy", "policy.json", "--model", "nets_of_mine:Net", "--weights", "w.pt", "--input-shape", 4)
    code, _, err = call(*given)
    assert (code, err.count("\n")) == (2, 1)
    assert all(fact in err.replace(", 4]", ",4]") for fact in ("w.pt", *told.split())), err


@pytest.mark.slow
def test_remarks_are_on_standard_error(call):
    code, _, err = call("--policy", "policy.json", "--model", "torch.nn:Linear", "--model-args",
                        '{"in_features": 3, "out_features": 5}', "--input-shape", 3, "-o", "l.onnx")  # fmt: skip
    assert code == 0
    assert ["--weights" in err, "l.onnx" in err] == [True, True]
    model = linear()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    onnx.save_model(model, "fixed.onnx")
    code, out, err = call("--policy", "policy.json", "--onnx", "fixed.onnx")
    assert len(err.splitlines()) == 2
    assert "fixed at 1" in err
    code, out, err = call("--policy", "policy.json", "--onnx", "fixed.onnx", "--json", "--quiet")
    (fixed,) = json.loads(out)["remarks"]
    assert "fixed at 1" in fixed
    assert err == ""


def test_expected_answers_confirm_a_model_or_keep_it_from_being_written(call, tmp_path):
    """A model of two classes whose outputs are in order, and in reverse."""
    rng = np.random.default_rng(0)
    x, weight = (rng.standard_normal(shape).astype(np.float32) for shape in ((200, 4), (4, 2)))
    policy = make_policy(classes=2, calibrator=None, class_names=("no", "yes"))
    policy.save("two.json")
    np.save("x.npy", x)
    predictions = Predictions.from_logits(x @ weight, np.zeros(200, int), class_names=["no", "yes"])
    apply_policy(policy, predictions, tmp_path / "decisions.csv")
    for name, columns in (("right", weight), ("reversed", weight[:, ::-1])):
        nodes, outputs = [onnx.helper.make_node("MatMul", ["x", "w"], ["z"])], [("z", onnx.TensorProto.FLOAT, ["N", 2])]
        onnx.save_model(build(nodes, outputs, weights={"w": columns.copy()}), f"{name}.onnx")
    given = ["--policy", "two.json", "--inputs", "x.npy", "-o", "served.onnx"]
    document = json.loads(call(*given, "--onnx", "right.onnx", "--json")[1])
    assert [check["against"] for check in document["checks"]] == ["policy"]
    assert any("--expected" in text for text in document["not_checked"])
    document = json.loads(call(*given, "--onnx", "right.onnx", "--expected", "decisions.csv", "--json")[1])
    assert [check["against"] for check in document["checks"]] == ["policy", "expected"]
    assert (document["checks"][1]["rows"], document["not_checked"]) == (200, [])
    (tmp_path / "served.onnx").unlink()
    code, out, err = call(*given, "--onnx", "reversed.onnx", "--expected", "decisions.csv")
    assert (code, out, "200 of 200" in err) == (2, "", True)
    assert not (tmp_path / "served.onnx").exists()
