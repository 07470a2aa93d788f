"""``calibrant export`` as a user types it: output, errors, exit codes."""

import json

import numpy as np
import pytest
import torch
import typer
from safetensors.torch import save_file
from torch import nn

from calibrant import Predictions
from calibrant.cli import main
from calibrant.cli.export import export_command
from calibrant.selective import apply_policy
from tests.helpers.exports import C, build, linear, make_policy, run

onnx = pytest.importorskip("onnx")

FACTORY = f"""
import torch
from torch import nn

calls = []

class Net(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.first, self.last = nn.Linear(4, width), nn.Linear(width, {C})

    def forward(self, x):
        return self.last(nn.functional.dropout(self.first(x).relu(), 0.5, self.training))

def fails():
    raise RuntimeError("no such\\nbackbone")

def number():
    return 3

value = 3
"""


@pytest.fixture
def call(capsys, tmp_path, monkeypatch):
    """Run the command in a folder with a policy and a factory; give exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)
    app = typer.Typer()
    app.callback()(lambda: None)
    app.command("export")(export_command)
    monkeypatch.setattr("calibrant.cli.app", app)
    make_policy(limit=0.3).save("policy.json")
    (tmp_path / "nets_of_mine.py").write_text(FACTORY)
    onnx.save_model(linear(), "model-in.onnx")

    def run_command(*arguments):
        with pytest.raises(SystemExit) as stop:
            main(["export", *map(str, arguments)])
        captured = capsys.readouterr()
        return stop.value.code, captured.out, captured.err

    return run_command


def test_logits_only(call, tmp_path):
    code, out, err = call("--policy", "policy.json", "--logits-only", "-o", "p.onnx")
    assert code == 0
    assert "onnxruntime answers as the policy does in" in out
    assert [line.split()[-2:] for line in out.splitlines() if line.startswith("prob")] == [["[N,", f"{C}]"]]
    assert err == "wrote p.onnx\n"
    z = np.eye(C, dtype=np.float32) * 9
    assert run(tmp_path / "p.onnx", logits=z)["label"].tolist() == list(range(C))


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
        assert err == "wrote model.onnx\n"
    assert call("--policy", "policy.json", "--onnx", "model-in.onnx", "--quiet") == (0, "", "")


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
        assert (code, err) == (0, f"wrote {name}.onnx\n"), err
        np.testing.assert_array_equal(run(tmp_path / f"{name}.onnx", input=x.numpy())["label"], expected)
        assert "34 rows" in out


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("", "one of --model, --run, --onnx, --logits-only is needed, got none"),
        ("--logits-only --onnx model-in.onnx", "is needed, got --onnx and --logits-only"),
        ("--logits-only --weights w.pt", "--weights goes with --model"),
        ("--logits-only --policy none.json", "--policy none.json: there is no such file"),
        ("--logits-only --policy nets_of_mine.py", "nets_of_mine.py"),
        ("--logits-only -o p.pt", "p.pt: a graph is written as .onnx"),
        ("--logits-only -o nets_of_mine.py/p.onnx", "nets_of_mine.py"),
        ("--onnx none.onnx", "none.onnx: there is no such file"),
        ("--onnx policy.json", "policy.json: not an ONNX file"),
        ("--onnx model-in.onnx --logits-output y", "no output and no tensor 'y', its outputs are z (FLOAT [N, 5])"),
        ("--onnx model-in.onnx --input-shape 3,x", "--input-shape must be whole numbers above 0 like 3,224,224"),
        ("--onnx model-in.onnx --input-shape 3", "--input-shape must fit x (FLOAT [N, 4]), without the batch, got [3]"),
        ("--onnx model-in.onnx --inputs none.npy", "--inputs none.npy: there is no such file"),
        ("--onnx model-in.onnx --inputs policy.json", "--inputs policy.json: not a .npy or .npz file"),
        ("--onnx model-in.onnx -o model-in.onnx", "would be overwritten"),
        ("--model nets_of_mine", "named as package.module:factory, got 'nets_of_mine'"),
        ("--model no_such_module:Net", "cannot import no_such_module (ModuleNotFoundError"),
        ("--model nets_of_mine:Nut", "nets_of_mine has no 'Nut'"),
        ("--model nets_of_mine:fails", "the call failed (RuntimeError: no such backbone)"),
        ("--model nets_of_mine:number", "must give a torch.nn.Module, got int"),
        ("--model nets_of_mine:value", "a function or class that gives a module is needed"),
        ("--model nets_of_mine:Net", "give --input-shape"),
        ("--model nets_of_mine:Net --input-shape 3", "the model does not take inputs [N, 3]"),
        ("--model nets_of_mine:Net --model-args [1]", "--model-args must be keywords"),
        ("--model nets_of_mine:Net --model-args {", "--model-args must be JSON"),
        ('--model nets_of_mine:Net --model-args {"depth":2}', "the call failed (TypeError"),
        ("--model nets_of_mine:Net --weights none.pt", "none.pt: there is no such file"),
        ("--model nets_of_mine:Net --weights policy.json", "policy.json: not a"),
    ],
)
def test_bad_input_is_one_line(call, tmp_path, given, text):
    before = sorted(path.name for path in tmp_path.iterdir())
    policy = [] if "--policy" in given else ["--policy", "policy.json"]
    code, out, err = call(*policy, *given.split())
    assert (code, out) == (2, "")
    last = err.strip().splitlines()[-1]
    assert last.startswith("calibrant: ")
    assert text in last
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "__pycache__") == before


def test_weights_that_do_not_fit_are_named(call, tmp_path):
    wide, good = nn.Linear(4, 9), nn.Linear(6, C)
    states = {
        "few": ({"first.weight": torch.zeros(6, 4)}, "few.pt: lacks first.bias, last.bias, last.weight"),
        "more": (
            {**{f"first.{k}": v for k, v in nn.Linear(4, 6).state_dict().items()}, "last.weight": good.weight.data,
             "last.bias": good.bias.data, "extra": torch.zeros(1)},
            "more.pt: has extra, which the model does not have",
        ),
        "wide": (
            {**{f"first.{k}": v for k, v in wide.state_dict().items()}, "last.weight": good.weight.data,
             "last.bias": good.bias.data},
            "2 weights have other shapes than the model's: first.weight is [9, 4], the model's [6, 4]",
        ),
        "both": ({"a": torch.zeros(1)}, "both.pt: lacks first.bias, first.weight, last.bias and 1 more, and has a"),
        "object": (nn.Linear(2, 2), "object.pt: not a state dict"),
        "list": ([1, 2], "list.pt: not a state dict, which maps names to tensors"),
    }  # fmt: skip
    for name, (state, text) in states.items():
        torch.save(state, f"{name}.pt")
        code, _, err = call(
            "--policy", "policy.json", "--model", "nets_of_mine:Net", "--weights", f"{name}.pt", "--input-shape", 4
        )
        assert code == 2, name
        assert text in err, (name, err)
        assert len(err.splitlines()) == 1, name


def test_remarks_are_on_standard_error(call):
    code, _, err = call("--policy", "policy.json", "--model", "torch.nn:Linear", "--model-args",
                        '{"in_features": 3, "out_features": 5}', "--input-shape", 3, "-o", "l.onnx")  # fmt: skip
    assert code == 0
    assert err == "no --weights: the model is exported as the factory made it\nwrote l.onnx\n"
    model = linear()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    onnx.save_model(model, "fixed.onnx")
    code, out, err = call("--policy", "policy.json", "--onnx", "fixed.onnx")
    assert err.startswith("note: ")
    assert err.endswith("wrote model.onnx\n")
    assert "fixed at 1" in err
    code, out, err = call("--policy", "policy.json", "--onnx", "fixed.onnx", "--json", "--quiet")
    (fixed,) = json.loads(out)["remarks"]
    assert "fixed at 1" in fixed
    assert err == ""


def two_classes(folder):
    """A policy of two classes, a model whose outputs are in reverse beside its right label, and files of its rows."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 4)).astype(np.float32)
    weight = rng.standard_normal((4, 2)).astype(np.float32)
    policy = make_policy(classes=2, calibrator=None, class_names=("no", "yes"))
    policy.save("two.json")
    np.save("x.npy", x)
    p = Predictions.from_logits(x @ weight, np.zeros(200, int), class_names=["no", "yes"])
    p.save("val.csv")
    apply_policy(policy, p, folder / "decisions.csv")
    z = x @ weight
    (folder / "one.csv").write_text("score\n" + "\n".join(f"{value:.6f}" for value in z[:, 1] - z[:, 0]))
    for name, order in (("right", [0, 1]), ("reversed", [1, 0])):
        nodes = [
            onnx.helper.make_node("MatMul", ["x", "w"], ["y"]),
            onnx.helper.make_node("Gather", ["y", "order"], ["z"], axis=1),
            onnx.helper.make_node("ArgMax", ["y"], ["label"], axis=1, keepdims=0),
        ]
        outputs = [("z", onnx.TensorProto.FLOAT, ["N", 2]), ("label", onnx.TensorProto.INT64, ["N"])]
        onnx.save_model(build(nodes, outputs, weights={"w": weight, "order": np.array(order)}), f"{name}.onnx")
        del outputs[1], nodes[2]
        onnx.save_model(build(nodes, outputs, weights={"w": weight, "order": np.array(order)}), f"{name}-bare.onnx")


def test_what_was_checked_and_what_was_not_is_said(call, tmp_path):
    two_classes(tmp_path)
    given = ["--policy", "two.json", "--inputs", "x.npy", "-o", "served.onnx"]
    code, out, _ = call(*given, "--onnx", "right.onnx")
    assert code == 0
    checked = [line for line in out.splitlines() if line.startswith("Checked")]
    assert ["label" in line for line in checked] == [False, True]
    assert out.count("Not checked:") == 1
    code, out, _ = call(*given, "--onnx", "right-bare.onnx", "--json")
    document = json.loads(out)
    assert [check["against"] for check in document["checks"]] == ["policy"]
    assert any("no, yes" in text for text in document["not_checked"])
    assert any("--expected" in text for text in document["not_checked"])
    for file in ("val.csv", "decisions.csv"):
        code, out, _ = call(*given, "--onnx", "right-bare.onnx", "--expected", file, "--json")
        document = json.loads(out)
        assert [check["against"] for check in document["checks"]] == ["policy", "expected"]
        assert document["not_checked"] == []
        assert document["checks"][1]["rows"] == 200
        assert file in document["checks"][1]["text"]


def test_a_contradiction_is_not_written(call, tmp_path):
    two_classes(tmp_path)
    given = ["--policy", "two.json", "--inputs", "x.npy", "-o", "served.onnx"]
    cases = [["reversed.onnx"], *([f"reversed{bare}.onnx", "--expected", file] for bare in ("", "-bare") for file in
                                  ("val.csv", "decisions.csv"))]  # fmt: skip
    for arguments in cases:
        code, out, err = call(*given, "--onnx", *arguments)
        assert (code, out) == (2, "")
        assert "200 of 200 rows" in err
        assert "swapped" in err
        assert len(err.splitlines()) == 1 or err.count("calibrant: ") == 1
    assert not (tmp_path / "served.onnx").exists()
    column = ["--column", "logits=score"]
    make_policy(classes=2, calibrator=None, class_names=("no", "yes"), positive=1).save("two.json")
    code, _, err = call(*given, "--onnx", "right-bare.onnx", "--expected", "one.csv", *column)
    assert code == 0, err
    for more, text in ((["--expected", "none.npz"], "none.npz"), (column, "--expected")):
        code, _, err = call(*given, "--onnx", "right.onnx", *more)
        assert code == 2
        assert text in err
