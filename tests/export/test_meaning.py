"""A policy fitted on logits meets no probabilities, and the other way round: by the graph, or by the values."""

import numpy as np
import pytest
import torch
from torch import nn

from calibrant.export import export_onnx
from tests.test_export import C, make_policy
from tests.test_export_models import build, sklearn_model

onnx = pytest.importorskip("onnx")
helper, T = onnx.helper, onnx.TensorProto

LOGITS = helper.make_node("MatMul", ["x", "w"], ["z"])
SOFTMAX = helper.make_node("Softmax", ["z"], ["p"], axis=1)
OUTPUT = [("out", T.FLOAT, ["N", C])]


def behind(*nodes, domain=None):
    """A model whose output comes from the last of some nodes after a matrix product ``z`` and its softmax ``p``."""
    made = build([LOGITS, SOFTMAX, *nodes], OUTPUT)
    made.opset_import.append(helper.make_opsetid(domain or "ai.onnx.ml", 1))
    return made


GRAPHS = {
    "softmax": ([helper.make_node("Softmax", ["z"], ["out"], axis=1)], "name the tensor before it, 'z', or fit"),
    "sigmoid": ([helper.make_node("Sigmoid", ["z"], ["out"])], "name the tensor before it, 'z', or fit"),
    "identity": ([helper.make_node("Identity", ["p"], ["out"])], "name the tensor before it, 'z', or fit"),
    "cast": (
        [helper.make_node("Cast", ["p"], ["q"], to=T.DOUBLE), helper.make_node("Cast", ["q"], ["out"], to=T.FLOAT)],
        "name the tensor before it, 'z', or fit",
    ),
    "normaliser": (
        [helper.make_node("Normalizer", ["p"], ["out"], domain="ai.onnx.ml", norm="L1")],
        "comes from Normalizer, which gives probabilities, .* name the tensor before it, 'z', or fit",
    ),
    # What stands before the second softmax are probabilities as well.
    "twice": ([helper.make_node("Softmax", ["p"], ["out"], axis=1)], "fitted on logits: fit the policy on"),
    "classifier": (
        [
            helper.make_node(
                "LinearClassifier", ["x"], ["label", "scores"], domain="ai.onnx.ml", post_transform="SOFTMAX",
                coefficients=np.arange(4.0 * C).tolist(), intercepts=[0.0] * C, classlabels_ints=list(range(C)),
            ),
            helper.make_node("Normalizer", ["scores"], ["out"], domain="ai.onnx.ml", norm="L1"),
        ],
        "comes from Normalizer, .* fitted on logits: fit the policy on probabilities$",
    ),
    # Nothing in these says what they give: their values do.
    "by hand": (
        [
            helper.make_node("Exp", ["z"], ["e"]),
            helper.make_node("ReduceL1", ["e"], ["t"], axes=[1], keepdims=1),
            helper.make_node("Div", ["e", "t"], ["out"]),
        ],
        "out holds probabilities: its values lie in 0..1 and sum to 1 in all 34 rows of the check",
    ),
    "mixture": (
        [
            helper.make_node("Softmax", ["x2"], ["q"], axis=1),
            helper.make_node("Mean", ["p", "q"], ["out"]),
        ],
        "out holds probabilities",
    ),
}  # fmt: skip


def model_of(name):
    nodes, _ = GRAPHS[name]
    extra = [helper.make_node("Neg", ["z"], ["x2"])] if name == "mixture" else []
    return behind(*extra, *nodes)


@pytest.mark.parametrize("named", [None, "out"])
@pytest.mark.parametrize("name", GRAPHS)
def test_a_policy_on_logits_is_not_put_behind_probabilities(tmp_path, name, named):
    with pytest.raises(ValueError, match=GRAPHS[name][1]):
        export_onnx(make_policy(), tmp_path / "m.onnx", onnx_model=model_of(name), output=named)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [name for name in GRAPHS if name not in ("sigmoid",)])
def test_a_policy_on_probabilities_is(tmp_path, name):
    done = export_onnx(make_policy(takes="probabilities"), tmp_path / "m.onnx", onnx_model=model_of(name))
    assert done.rows == 34
    assert not any("logits" in text for text in done.remarks)


@pytest.mark.parametrize("name", ["softmax", "identity", "normaliser"])
def test_the_tensor_that_the_message_names_is_accepted(tmp_path, name):
    with pytest.raises(ValueError, match="name the tensor before it, 'z'"):
        export_onnx(make_policy(), tmp_path / "m.onnx", onnx_model=model_of(name))
    done = export_onnx(make_policy(), tmp_path / "m.onnx", onnx_model=model_of(name), output="z")
    assert done.remarks == ()


@pytest.mark.parametrize(
    "node",
    [
        helper.make_node("Identity", ["z"], ["out"]),
        helper.make_node("LogSoftmax", ["z"], ["out"], axis=1),
        helper.make_node("Sigmoid", ["z"], ["out"]),
        helper.make_node("Mul", ["p", "p"], ["out"]),
        helper.make_node("Add", ["p", "p"], ["out"]),
    ],
    ids=lambda node: node.op_type,
)
def test_a_policy_on_probabilities_is_not_put_behind_other_numbers(tmp_path, node):
    with pytest.raises(ValueError, match=r"the policy takes probabilities, in 0\.\.1 and summing to 1"):
        export_onnx(make_policy(takes="probabilities"), tmp_path / "m.onnx", onnx_model=behind(node))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("operation", ["LogSoftmax", "Identity", "Relu"])
def test_logits_are_what_they_were(tmp_path, operation):
    node = helper.make_node(operation, ["z"], ["out"])
    assert export_onnx(make_policy(), tmp_path / "m.onnx", onnx_model=behind(node)).remarks == ()


def test_forests_are_judged_by_their_values(tmp_path):
    skl2onnx = pytest.importorskip("skl2onnx")
    model, x = sklearn_model("forest")
    options = {id(model): {"zipmap": False}}
    proto = skl2onnx.to_onnx(model, x[:1], options=options, target_opset={"": 17, "ai.onnx.ml": 3})
    with pytest.raises(ValueError, match="comes from TreeEnsembleClassifier, which gives probabilities") as refusal:
        export_onnx(make_policy(classes=3), tmp_path / "m.onnx", onnx_model=proto)
    assert "before it" not in str(refusal.value)  # that is the features
    with pytest.raises(ValueError, match="holds probabilities: its values"):
        export_onnx(make_policy(classes=3), tmp_path / "m.onnx", onnx_model=proto, output="probabilities", inputs=x)


def test_operations_of_other_domains_mean_nothing(tmp_path):
    """A custom operation may be called Softmax, have no input at all, and must not be looked into."""
    for name, inputs in (("Softmax", ["z"]), ("ZipMap", []), ("Identity", [])):
        node = helper.make_node(name, inputs, ["out"], domain="com.example")
        with pytest.raises(ValueError, match="onnxruntime cannot load the model"):
            export_onnx(make_policy(), tmp_path / "m.onnx", onnx_model=behind(node, domain="com.example"))


class Net(nn.Module):
    def __init__(self, last):
        super().__init__()
        self.linear, self.last = nn.Linear(4, C), last

    def forward(self, x):
        return self.last(self.linear(x))


def test_pytorch_models_too(tmp_path):
    torch.manual_seed(0)
    for last in (nn.Softmax(1), nn.Sigmoid()):
        with pytest.raises(ValueError, match=r"gives probabilities, .*: give a model that ends before it, or fit the"):
            export_onnx(make_policy(), tmp_path / "m.onnx", model=Net(last), input_shape=[4])
    with pytest.raises(ValueError, match="the policy takes probabilities"):
        export_onnx(make_policy(takes="probabilities"), tmp_path / "m.onnx", model=Net(nn.Identity()), input_shape=[4])
    assert list(tmp_path.iterdir()) == []
