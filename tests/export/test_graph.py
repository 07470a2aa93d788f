"""Policies drawn as ONNX graphs, alone and behind a model, answer as PyTorch and the policy itself do."""

import json

import numpy as np
import pytest
import torch

import calibrant
import calibrant.posthoc
from calibrant.export import Exported, export_onnx
from calibrant.export.graph import OnnxOps
from calibrant.posthoc import TorchOps
from calibrant.posthoc.scores import Score
from tests.helpers.errors import facts
from tests.helpers.exports import (
    SCORES,
    WEIGHT,
    C,
    X,
    agree,
    build,
    calibrators,
    data,
    limit_of,
    linear,
    make_policy,
    run,
    trial_logits,
)

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
helper, numpy_helper, T, FLOAT = onnx.helper, onnx.numpy_helper, onnx.TensorProto, onnx.TensorProto.FLOAT


@pytest.mark.parametrize("opset", [13, 17, 18, 21])
def test_every_operation_is_drawn_as_pytorch_computes_it(opset):
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((2, 7, C))
    weight, tables = rng.standard_normal((C, 3)), np.sort(rng.standard_normal((C, 6)), axis=1)
    values = rng.standard_normal((C, 7))

    def formulas(ops, x, y):
        one = ops.constant(1.0)
        largest = ops.where(ops.greater_equal(x, y), x, y)
        positive = ops.maximum(ops.absolute(x), ops.constant(np.full(C, 0.1)))
        return [
            ops.add(x, y), ops.sub(x, one), ops.mul(x, y), ops.div(x, positive), ops.power(positive, y), largest,
            ops.exp(x), ops.log(positive), ops.largest(x), ops.top(x, 3), ops.total(x), ops.mean(x),
            ops.columns(x, 1, 4), ops.matmul(x, weight), ops.lookup(x, tables, values), ops.predicted(x), ops.argmax(x),
        ]  # fmt: skip

    ops = OnnxOps(opset, C)
    names = formulas(ops, "a", "b")
    infos = [helper.make_tensor_value_info(name, onnx.TensorProto.DOUBLE, ["n", C]) for name in "ab"]
    graph = helper.make_graph(ops.nodes, "g", infos, [onnx.ValueInfoProto(name=n) for n in names], ops.constants)
    opsets = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=helper.find_min_ir_version_for(opsets))
    found = ort.InferenceSession(model.SerializeToString()).run(None, {"a": a, "b": b})
    expected = formulas(TorchOps(), torch.from_numpy(a), torch.from_numpy(b))
    for name, one, other in zip(names, found, expected, strict=True):
        np.testing.assert_allclose(one, other.numpy(), rtol=1e-13, err_msg=name)
        assert one.shape == tuple(other.shape), name


@pytest.mark.parametrize("tables", [1, 4])
@pytest.mark.parametrize("knots", [0, 1, 2, 3, 7, 8, 100])
def test_lookup_is_a_search_in_sorted_knots(tables, knots):
    rng = np.random.default_rng(knots)
    table = np.sort(rng.integers(-9, 9, (tables, knots)).astype(float), axis=1)
    if knots > 2:
        table[-1, -2:] = np.inf
    values = rng.standard_normal((tables, knots + 1))
    a = np.concatenate([rng.integers(-10, 10, (50, tables)), np.full((1, tables), -np.inf)]).astype(float)
    ops = OnnxOps(17, tables)
    name = ops.lookup("a", table, values)
    info = helper.make_tensor_value_info("a", onnx.TensorProto.DOUBLE, ["n", tables])
    graph = helper.make_graph(ops.nodes, "g", [info], [onnx.ValueInfoProto(name=name)], ops.constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    found = ort.InferenceSession(model.SerializeToString()).run(None, {"a": a})[0]
    places = [np.searchsorted(table[d], a[:, d], side="right") for d in range(tables)]
    np.testing.assert_array_equal(found, np.stack([values[d, place] for d, place in enumerate(places)], axis=1))


@pytest.mark.parametrize("score", SCORES, ids=str)
def test_every_score_and_calibrator_round_trips(score, tmp_path):
    z, y = data(400)
    trial = trial_logits()
    for calibrator in calibrators():
        if calibrator is not None:
            calibrator.fit(z, y)
        policy = make_policy(score, limit_of(score, calibrator, z), calibrator=calibrator)
        done = export_onnx(policy, tmp_path / "policy.onnx")
        assert isinstance(done, Exported)
        assert done.difference <= 1e-5
        for part in (trial, trial[:1], trial.astype(np.float16).clip(-6e4, 6e4).astype(np.float32)):
            found = run(tmp_path / "policy.onnx", logits=part)
            agree(found, policy, part)
        # The energy of logarithms of probabilities is 0 in every row.
        assert found["accept"].any()
        assert found["accept"].all() <= (score.name == "energy")


@pytest.mark.parametrize("opset", [13, 17, 18])
def test_segmentation_takes_images_of_any_size(opset, tmp_path):
    policy = make_policy(kind="segmentation", groups={"a": 0.5, "b": 0.9})
    export_onnx(policy, tmp_path / "s.onnx", opset=opset)
    rng = np.random.default_rng(0)
    for shape in ((1, C, 4, 6), (3, C, 7, 2)):
        z = (4 * rng.standard_normal(shape)).astype(np.float32)
        group = np.arange(shape[0]) % 3
        found = run(tmp_path / "s.onnx", logits=z, group=group)
        assert found["label"].shape == (shape[0], *shape[2:])
        assert found["probabilities"].shape == shape
        agree(found, policy, z, group)
        if shape[0] == 3:
            assert found["accept"][:2].any()
            assert not found["accept"][2].any()


def test_groups_have_thresholds_of_their_own(tmp_path):
    policy = make_policy(groups={"a": -np.inf, "b": 0.9, "c": np.inf}, class_names=("cat", "dog", "eel", "fox", "gnu"))
    done = export_onnx(policy, tmp_path / "g.onnx")
    assert [one.name for one in done.inputs] == ["logits", "group"]
    z = data(30, seed=2)[0]
    for group, name in ((0, "a"), (1, "b"), (2, "c"), (-1, "other"), (3, "other"), (10**12, "other")):
        found = run(tmp_path / "g.onnx", logits=z, group=np.full(30, group))
        np.testing.assert_array_equal(found["accept"], policy.decide(z, np.full(30, name)).accept)
    assert run(tmp_path / "g.onnx", logits=z, group=np.zeros(30, np.int64))["accept"].all()
    facts = {one.key: one.value for one in onnx.load(tmp_path / "g.onnx").metadata_props}
    assert facts["calibrant.policy"] == policy.summary
    assert facts["calibrant.version"] == calibrant.__version__
    assert json.loads(facts["calibrant.class_names"]) == ["cat", "dog", "eel", "fox", "gnu"]
    assert json.loads(facts["calibrant.group_names"]) == ["a", "b", "c"]


@pytest.mark.parametrize("name", ["max_logit", "msp", "energy"])
def test_rows_that_are_not_numbers_are_never_accepted(name, tmp_path):
    export_onnx(make_policy(Score(name), 0.1), tmp_path / "p.onnx")
    z = np.array([[3, 1, 0, 0, 0], [np.nan, 9, 0, 0, 0], [9, 0, 0, 0, np.nan], [np.inf, 0, 0, 0, 0]], np.float32)
    assert run(tmp_path / "p.onnx", logits=z)["accept"].tolist() == [True, False, False, False]


def test_probabilities_are_taken_where_the_policy_takes_them(tmp_path):
    policy = make_policy(takes="probabilities")
    done = export_onnx(policy, tmp_path / "p.onnx")
    assert [one.name for one in done.inputs] == ["model_probabilities"]
    p = torch.from_numpy(trial_logits()).double().softmax(1).float().numpy()
    agree(run(tmp_path / "p.onnx", model_probabilities=p), policy, p)


def test_names_of_the_model_do_not_clash_with_the_graphs(tmp_path):
    branch = [
        helper.make_graph(
            [helper.make_node("Mul", ["accept", f"scale_{i}"], [f"policy/Cast_{i}"])],
            f"branch_{i}",
            [],
            [helper.make_tensor_value_info(f"policy/Cast_{i}", T.FLOAT, None)],
        )
        for i in range(2)
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["accept"], name="policy/Cast_0"),
        helper.make_node("ReduceSum", ["x"], ["confidence"], keepdims=0),
        helper.make_node("Less", ["confidence", "zero"], ["group"]),
        helper.make_node("If", ["group"], ["probabilities"], then_branch=branch[0], else_branch=branch[1]),
        helper.make_node("ArgMax", ["probabilities"], ["label"], axis=1, keepdims=0),
    ]
    weights = {"w": WEIGHT, "zero": np.float32(0), "scale_0": np.float32(2), "scale_1": np.float32(0.5)}
    outputs = [("label", T.INT64, ["N"]), ("probabilities", T.FLOAT, ["N", C])]
    model = build(nodes, outputs, weights=weights)
    before = model.SerializeToString()
    policy = make_policy(groups={"a": 0.6, "b": 0.8})
    export_onnx(policy, tmp_path / "m.onnx", onnx_model=model)
    assert model.SerializeToString() == before
    group = np.arange(30) % 3
    for x in (X, -X):
        found = run(tmp_path / "m.onnx", x=x, group=group)
        agree(found, policy, x @ WEIGHT * np.float32(2 if x.sum() < 0 else 0.5), group)
    assert "ArgMax" not in [node.op_type for node in onnx.load(tmp_path / "m.onnx").graph.node if "model/" in node.name]


def test_an_input_with_a_name_the_graph_needs_is_refused(tmp_path):
    model = build(
        [helper.make_node("MatMul", ["label", "w"], ["z"])],
        [("z", T.FLOAT, ["N", C])],
        inputs=[("label", T.FLOAT, ["N", 4])],
    )
    with pytest.raises(ValueError, match=facts("'label'")):
        export_onnx(make_policy(), tmp_path / "m.onnx", onnx_model=model)


def test_a_policy_is_put_behind_a_model_once(tmp_path):
    onnx.save_model(linear(), tmp_path / "a.onnx")
    export_onnx(make_policy(), tmp_path / "b.onnx", onnx_model=tmp_path / "a.onnx")
    with pytest.raises(ValueError, match=facts("policy")):
        export_onnx(make_policy(), tmp_path / "c.onnx", onnx_model=tmp_path / "b.onnx")
    with pytest.raises(ValueError, match=facts("a.onnx")):
        export_onnx(make_policy(), tmp_path / "a.onnx", onnx_model=tmp_path / "a.onnx")
