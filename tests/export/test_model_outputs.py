"""Logits and label of a model are known by type and shape, or asked for; logits are told from probabilities."""

import numpy as np
import pytest
import torch
from torch import nn

from calibrant import Policy, Predictions
from calibrant.export import export_onnx
from calibrant.export.model_outputs import one_column_hint
from calibrant.posthoc import TemperatureScaling
from calibrant.posthoc.scores import Score
from tests.helpers.errors import facts
from tests.helpers.exports import RNG, C, X, agree, alone, build, linear, make_policy, run, sklearn_model

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
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
    "softmax": ([helper.make_node("Softmax", ["z"], ["out"], axis=1)], "'z'"),
    "sigmoid": ([helper.make_node("Sigmoid", ["z"], ["out"])], "'z'"),
    "identity": ([helper.make_node("Identity", ["p"], ["out"])], "'z'"),
    "cast": (
        [helper.make_node("Cast", ["p"], ["q"], to=T.DOUBLE), helper.make_node("Cast", ["q"], ["out"], to=T.FLOAT)],
        "'z'",
    ),
    "normaliser": (
        [helper.make_node("Normalizer", ["p"], ["out"], domain="ai.onnx.ml", norm="L1")],
        "Normalizer 'z'",
    ),
    # What stands before the second softmax are probabilities as well.
    "twice": ([helper.make_node("Softmax", ["p"], ["out"], axis=1)], "logits"),
    "classifier": (
        [
            helper.make_node(
                "LinearClassifier", ["x"], ["label", "scores"], domain="ai.onnx.ml", post_transform="SOFTMAX",
                coefficients=np.arange(4.0 * C).tolist(), intercepts=[0.0] * C, classlabels_ints=list(range(C)),
            ),
            helper.make_node("Normalizer", ["scores"], ["out"], domain="ai.onnx.ml", norm="L1"),
        ],
        "Normalizer logits",
    ),
    # Nothing in these says what they give: their values do.
    "by hand": (
        [
            helper.make_node("Exp", ["z"], ["e"]),
            helper.make_node("ReduceL1", ["e"], ["t"], axes=[1], keepdims=1),
            helper.make_node("Div", ["e", "t"], ["out"]),
        ],
        "out probabilities 34",
    ),
    "mixture": (
        [
            helper.make_node("Softmax", ["x2"], ["q"], axis=1),
            helper.make_node("Mean", ["p", "q"], ["out"]),
        ],
        "out probabilities",
    ),
}  # fmt: skip


def model_of(name):
    nodes, _ = GRAPHS[name]
    extra = [helper.make_node("Neg", ["z"], ["x2"])] if name == "mixture" else []
    return behind(*extra, *nodes)


@pytest.mark.parametrize("named", [None, "out"])
@pytest.mark.parametrize("name", GRAPHS)
def test_a_policy_on_logits_is_not_put_behind_probabilities(tmp_path, name, named):
    with pytest.raises(ValueError, match=facts(*GRAPHS[name][1].split())):
        export_onnx(make_policy(), tmp_path / "m.onnx", onnx_model=model_of(name), output=named)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [name for name in GRAPHS if name not in ("sigmoid",)])
def test_a_policy_on_probabilities_is(tmp_path, name):
    done = export_onnx(make_policy(takes="probabilities"), tmp_path / "m.onnx", onnx_model=model_of(name))
    assert done.rows == 34
    assert not any("logits" in text for text in done.remarks)


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
    with pytest.raises(ValueError, match=facts("probabilities", "out")):
        export_onnx(make_policy(takes="probabilities"), tmp_path / "m.onnx", onnx_model=behind(node))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("operation", ["LogSoftmax", "Identity", "Relu"])
def test_logits_are_what_they_were(tmp_path, operation):
    node = helper.make_node(operation, ["z"], ["out"])
    assert export_onnx(make_policy(), tmp_path / "m.onnx", onnx_model=behind(node)).remarks == ()
    assert export_onnx(make_policy(), tmp_path / "m.onnx", onnx_model=behind(node), output="z").remarks == ()


def test_forests_are_judged_by_their_values_and_others_by_their_graph(tmp_path):
    skl2onnx = pytest.importorskip("skl2onnx")
    for kind, zipmap, more in (
        ("forest", False, {}),
        ("forest", False, {"output": "probabilities"}),
        ("logistic", True, {}),
    ):
        model, x = sklearn_model(kind)
        options = {id(model): {"zipmap": zipmap}}
        proto = skl2onnx.to_onnx(model, x[:1], options=options, target_opset={"": 17, "ai.onnx.ml": 3})
        with pytest.raises(ValueError, match=facts("probabilities")):
            export_onnx(make_policy(classes=3), tmp_path / "m.onnx", onnx_model=proto, inputs=x, **more)
    assert not list(tmp_path.iterdir())


def test_operations_of_other_domains_mean_nothing(tmp_path):
    """A custom operation may be called Softmax, have no input at all, and must not be looked into."""
    for name, inputs in (("Softmax", ["z"]), ("ZipMap", []), ("Identity", [])):
        node = helper.make_node(name, inputs, ["out"], domain="com.example")
        with pytest.raises(ValueError, match=facts("onnxruntime", "com.example")):
            export_onnx(make_policy(), tmp_path / "m.onnx", onnx_model=behind(node, domain="com.example"))


@pytest.mark.parametrize("zipmap", [True, False])
@pytest.mark.parametrize("kind", ["logistic", "forest"])
@pytest.mark.parametrize("opset", [17, 11])
def test_scikit_learn_models_are_extended(kind, zipmap, opset, tmp_path):
    skl2onnx = pytest.importorskip("skl2onnx")
    model, x = sklearn_model(kind)
    opsets = {"": opset, "ai.onnx.ml": 3 if opset == 17 else 1}
    proto = skl2onnx.to_onnx(model, x[:1], options={id(model): {"zipmap": zipmap}}, target_opset=opsets)
    calibrator = TemperatureScaling().fit(np.log(model.predict_proba(x) + 1e-6), model.predict(x))
    policy = make_policy(Score("margin"), 0.3, calibrator=calibrator, classes=3, takes="probabilities")
    done = export_onnx(policy, tmp_path / "m.onnx", onnx_model=proto, inputs=x)
    assert done.rows == 46
    found = run(tmp_path / "m.onnx", X=x)
    agree(found, policy, model.predict_proba(x).astype(np.float32))
    assert 0 < found["accept"].mean() < 1
    written = onnx.load(tmp_path / "m.onnx")
    assert {one.domain for one in written.opset_import} == {"", "ai.onnx.ml"}
    assert "ZipMap" not in {node.op_type for node in written.graph.node}
    assert done.opset == max(13, opset)
    assert [str(opset) in remark and "13" in remark for remark in done.remarks] == [True] * (opset < 13)


def test_class_names_of_a_zipmap_must_be_the_policys(tmp_path):
    def model(names):
        nodes = [
            helper.make_node("MatMul", ["x", "w"], ["z"]),
            helper.make_node("ZipMap", ["z"], ["p"], domain="ai.onnx.ml", classlabels_strings=names),
        ]
        made = build(nodes, [("z", T.FLOAT, ["N", C])])
        del made.graph.output[:]
        kind = helper.make_sequence_type_proto(
            helper.make_map_type_proto(T.STRING, helper.make_tensor_type_proto(T.FLOAT, []))
        )
        made.graph.output.append(helper.make_value_info("p", kind))
        made.opset_import.append(helper.make_opsetid("ai.onnx.ml", 1))
        return made

    policy = make_policy(class_names=tuple("abcde"))
    export_onnx(policy, tmp_path / "m.onnx", onnx_model=model(list("abcde")))
    agree(run(tmp_path / "m.onnx", x=X), policy, alone(linear(), {"x": X}))
    with pytest.raises(ValueError, match=facts("b, a, c, d, e", "a, b, c, d, e")):
        export_onnx(policy, tmp_path / "n.onnx", onnx_model=model(list("bacde")))


def tensorflow_like(batch):
    nodes = [
        helper.make_node("Transpose", ["serving_default_x:0"], ["net/transpose:0"], perm=[0, 3, 1, 2]),
        helper.make_node("Reshape", ["net/transpose:0", "net/shape:0"], ["net/flat:0"]),
        helper.make_node("MatMul", ["net/flat:0", "net/w:0"], ["net/dense/BiasAdd:0"]),
        helper.make_node("Softmax", ["net/dense/BiasAdd:0"], ["net/softmax:0"], axis=-1),
        helper.make_node("Identity", ["net/softmax:0"], ["StatefulPartitionedCall/Identity:0"]),
    ]
    weights = {"net/w:0": RNG.standard_normal((2 * 3 * 2, C)).astype(np.float32), "net/shape:0": np.array([-1, 12])}
    outputs = [("StatefulPartitionedCall/Identity:0", T.FLOAT, [batch, C])]
    inputs = [("serving_default_x:0", T.FLOAT, [batch, 2, 3, 2])]
    return build(nodes, outputs, inputs=inputs, weights=weights, opset=15)


@pytest.mark.parametrize("batch", ["unk__12", -1, 1, 6])
def test_tensorflow_names_and_batches(batch, tmp_path):
    model, policy = tensorflow_like(batch), make_policy(takes="probabilities", limit=0.5)
    done = export_onnx(policy, tmp_path / "m.onnx", onnx_model=model)
    fixed = isinstance(batch, int) and batch > 0
    assert [f"fixed at {batch}" in remark for remark in done.remarks] == [True] * fixed
    assert done.rows == {1: 33, 6: 30}.get(batch, 34)
    x = RNG.standard_normal((batch if fixed else 9, 2, 3, 2)).astype(np.float32)
    agree(run(tmp_path / "m.onnx", **{"serving_default_x:0": x}), policy, alone(model, {"serving_default_x:0": x}))


def test_the_tensor_before_the_softmax_can_be_taken(tmp_path):
    model, policy = tensorflow_like("N"), make_policy(limit=0.5)
    for output in (None, model.graph.output[0].name):
        with pytest.raises(ValueError, match=facts("Softmax", "'net/dense/BiasAdd:0'")):
            export_onnx(policy, tmp_path / "m.onnx", onnx_model=model, output=output)
    done = export_onnx(policy, tmp_path / "m.onnx", onnx_model=model, output="net/dense/BiasAdd:0")
    assert not done.remarks
    x = RNG.standard_normal((9, 2, 3, 2)).astype(np.float32)
    model.graph.output.append(helper.make_tensor_value_info("net/dense/BiasAdd:0", T.FLOAT, None))
    logits = alone(model, {"serving_default_x:0": x}, "net/dense/BiasAdd:0")
    agree(run(tmp_path / "m.onnx", **{"serving_default_x:0": x}), policy, logits)
    with pytest.raises(ValueError, match=facts("probabilities", "net/dense/BiasAdd:0")):
        export_onnx(
            make_policy(takes="probabilities"), tmp_path / "n.onnx", onnx_model=model, output="net/dense/BiasAdd:0"
        )


@pytest.mark.parametrize(("kind", "dtype"), [(T.FLOAT16, np.float16), (T.DOUBLE, np.float64)])
def test_outputs_of_other_precision(kind, dtype, tmp_path):
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Cast", ["y"], ["z"], to=kind)]
    model, policy = build(nodes, [("z", kind, ["N", C])]), make_policy()
    export_onnx(policy, tmp_path / "m.onnx", onnx_model=model)
    logits = alone(model, {"x": X})
    assert logits.dtype == dtype
    agree(run(tmp_path / "m.onnx", x=X), policy, logits)


@pytest.mark.parametrize("opset", [13, 16, 18, 21])
def test_a_model_keeps_its_opset(opset, tmp_path):
    policy = make_policy(Score("normalised_max_logit", p=2), 0.5)
    done = export_onnx(policy, tmp_path / "m.onnx", onnx_model=linear(opset=opset))
    assert done.opset == opset
    assert {one.domain: one.version for one in onnx.load(tmp_path / "m.onnx").opset_import} == {"": opset}
    agree(run(tmp_path / "m.onnx", x=X), policy, alone(linear(), {"x": X}))


def test_an_old_model_is_raised(tmp_path):
    # Opset 11 and IR version 3, in which weights are inputs too and axes are attributes.
    nodes = [
        helper.make_node("Unsqueeze", ["x"], ["u"], axes=[0]),
        helper.make_node("Squeeze", ["u"], ["s"], axes=[0]),
        helper.make_node("MatMul", ["s", "w"], ["z"]),
    ]
    inputs = [("x", T.FLOAT, ["N", 4]), ("w", T.FLOAT, [4, C])]
    policy = make_policy()
    done = export_onnx(
        policy, tmp_path / "m.onnx", onnx_model=build(nodes, [("z", T.FLOAT, ["N", C])], inputs=inputs, opset=11, ir=3)
    )
    assert done.opset == 13
    (remark,) = done.remarks
    assert "11" in remark
    assert "13" in remark
    assert [one.name for one in done.inputs] == ["x"]
    agree(run(tmp_path / "m.onnx", x=X), policy, alone(linear(), {"x": X}))


def test_a_model_that_cannot_be_raised(tmp_path, monkeypatch):
    def refuse(model, version):
        raise RuntimeError("no adapter\nfor it")

    monkeypatch.setattr(onnx.version_converter, "convert_version", refuse)
    with pytest.raises(ValueError, match=facts("12", "13", "no adapter for")):
        export_onnx(make_policy(), tmp_path / "m.onnx", onnx_model=linear(opset=12))


def test_the_output_is_named_where_several_could_be(tmp_path):
    nodes = [helper.make_node("MatMul", ["x", "w"], ["first"]), helper.make_node("Neg", ["first"], ["second"])]
    model = build(nodes, [("first", T.FLOAT, ["N", C]), ("second", T.FLOAT, ["N", C])])
    policy = make_policy()
    with pytest.raises(ValueError, match=facts("first (FLOAT [N, 5])", "second (FLOAT [N, 5])", "--tensor")):
        export_onnx(policy, tmp_path / "m.onnx", onnx_model=model)
    with pytest.raises(ValueError, match=facts("'secnd'", "'second'")):
        export_onnx(policy, tmp_path / "m.onnx", onnx_model=model, output="secnd")
    assert not list(tmp_path.iterdir())
    export_onnx(policy, tmp_path / "m.onnx", onnx_model=model, output="second")
    agree(run(tmp_path / "m.onnx", x=X), policy, -alone(linear(), {"x": X}))


def with_whole_numbers(**more):
    """Logits in reverse beside outputs of whole numbers ``[N]``: the position of the smallest, and others."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["right"]),
        helper.make_node("Neg", ["right"], ["z"]),
        helper.make_node("ArgMax", ["z"], ["length"], axis=1, keepdims=0),
        helper.make_node("ArgMin", ["z"], ["label"], axis=1, keepdims=0),
        helper.make_node("Shape", ["x"], ["shape"]),
    ]
    outputs = [("z", T.FLOAT, ["N", C]), *((name, T.INT64, dims) for name, dims in more.items())]
    return build(nodes, outputs)


def test_the_only_output_of_whole_numbers_is_the_label_whatever_it_is_called(tmp_path):
    done = export_onnx(make_policy(), tmp_path / "m.onnx", onnx_model=with_whole_numbers(length=["N"], shape=[2, 3]))
    assert [(check.against, check.differing) for check in done.checks[1:]] == [("label output", 0)]
    wrong = with_whole_numbers(label=["N", 1])
    wrong.graph.node[3].attribute[1].i = 1
    with pytest.raises(ValueError, match=facts("34 of 34 rows", "(label)")):
        export_onnx(make_policy(), tmp_path / "n.onnx", onnx_model=wrong)
    done = export_onnx(make_policy(), tmp_path / "n.onnx", onnx_model=wrong, labels="none")
    assert [check.against for check in done.checks] == ["policy"]
    assert any("order of the classes" in text for text in done.not_checked)


def test_the_label_is_asked_for_where_several_outputs_could_be(tmp_path):
    model = with_whole_numbers(label=["N"], length=["N"])
    with pytest.raises(ValueError, match=facts("label (INT64 [N])", "length (INT64 [N])", "--labels", "none")):
        export_onnx(make_policy(), tmp_path / "m.onnx", onnx_model=model)
    with pytest.raises(ValueError, match=facts("'lenght'", "'length'")):
        export_onnx(make_policy(), tmp_path / "m.onnx", onnx_model=model, labels="lenght")
    with pytest.raises(ValueError, match=facts("34 of 34 rows", "(label)")):
        export_onnx(make_policy(), tmp_path / "m.onnx", onnx_model=model, labels="label")
    assert not list(tmp_path.iterdir())
    done = export_onnx(make_policy(), tmp_path / "m.onnx", onnx_model=model, labels="length")
    assert [check.against for check in done.checks] == ["policy", "label output"]
    done = export_onnx(make_policy(), tmp_path / "m.onnx", onnx_model=model, labels="none")
    assert [check.against for check in done.checks] == ["policy"]


def test_outputs_that_do_not_fit_are_refused(tmp_path):
    for policy, output, told in (
        (make_policy(classes=7), None, "[N, 7]|z (FLOAT [N, 5])"),
        (make_policy(classes=7), "z", "[N, 7]|z (FLOAT [N, 5])"),
        (make_policy(kind="segmentation"), None, "[N, 5, H, W]"),
        (make_policy(takes="probabilities"), None, "probabilities|z"),
    ):
        with pytest.raises(ValueError, match=facts(*told.split("|"))):
            export_onnx(policy, tmp_path / "m.onnx", onnx_model=linear(), output=output)
    hidden = build([helper.make_node("MatMul", ["x", "w"], ["z"])], [("z", T.FLOAT, None)])
    with pytest.raises(ValueError, match=facts("[N, 7]", "z")):
        export_onnx(make_policy(classes=7), tmp_path / "m.onnx", onnx_model=hidden, output="z")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("shape", "takes", "positive", "how"),
    [
        ((None, 1), "logits", 1, "torch.cat([torch.zeros_like(z), z], 1)"),
        ((7,), "probabilities", 1, "torch.cat([1 - p[:, None], p[:, None]], 1)"),
        ((None, 1), "probabilities", 0, "torch.cat([p, 1 - p], 1)"),
        ((None, 2), "logits", 1, ""),
    ],
)
def test_a_model_with_one_column_is_told_how_to_give_both(shape, takes, positive, how):
    rng = np.random.default_rng(0)
    p = rng.uniform(0.01, 0.99, 300)
    labels = (rng.random(300) < p).astype(int)
    values = p if takes == "probabilities" else np.log(p / (1 - p))
    make = Predictions.from_probabilities if takes == "probabilities" else Predictions.from_logits
    policy = Policy.fit(make(values, labels, positive=positive), target_risk=0.3)
    hint = one_column_hint(policy, shape)
    assert how in hint
    assert bool(how) == bool(hint)


@pytest.mark.slow
def test_a_module_with_one_column_is_refused_with_the_remedy_which_works(tmp_path):
    torch.manual_seed(0)
    z = torch.randn(400, 1).numpy()
    labels = (np.random.default_rng(0).random(400) < 1 / (1 + np.exp(-2 * z[:, 0]))).astype(int)
    policy = Policy.fit(Predictions.from_logits(2 * z, labels), target_risk=0.3)

    class Both(nn.Linear):
        def forward(self, x):
            z = super().forward(x)
            return torch.cat([torch.zeros_like(z), z], 1)

    with pytest.raises(ValueError, match=facts("[2, 1]", "torch.cat(")):
        export_onnx(policy, tmp_path / "a.onnx", model=nn.Linear(4, 1), input_shape=[4])
    assert export_onnx(policy, tmp_path / "a.onnx", model=Both(4, 1), input_shape=[4]).difference < 1e-5
