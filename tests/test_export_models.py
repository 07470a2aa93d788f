"""Policies behind existing ONNX models: scikit-learn's, TensorFlow's manner, old ones, large ones, broken ones."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from calibrant.export import export_onnx
from calibrant.posthoc import TemperatureScaling
from calibrant.selective.scores import Score
from tests.test_export import C, agree, data, make_policy, run

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
helper, numpy_helper, T = onnx.helper, onnx.numpy_helper, onnx.TensorProto

RNG = np.random.default_rng(5)
WEIGHT = (3 * RNG.standard_normal((4, C))).astype(np.float32)
X = RNG.standard_normal((30, 4)).astype(np.float32)
Z = X @ WEIGHT


def build(nodes, outputs, *, opset=17, inputs=None, weights=None, ir=None, **more):
    """A model of nodes; x [N, 4] goes in unless told otherwise."""
    infos = [helper.make_tensor_value_info(*one) for one in inputs or [("x", T.FLOAT, ["N", 4])]]
    held = [numpy_helper.from_array(value, name) for name, value in (weights or {"w": WEIGHT}).items()]
    graph = helper.make_graph(nodes, "g", infos, [helper.make_tensor_value_info(*one) for one in outputs], held)
    opsets = [helper.make_opsetid("", opset)]
    ir = ir or helper.find_min_ir_version_for(opsets)
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir, **more)


def linear(**more):
    """A matrix and nothing else."""
    return build([helper.make_node("MatMul", ["x", "w"], ["z"])], [("z", T.FLOAT, ["N", C])], **more)


def alone(model, feeds, name=None):
    """What a model gives without a policy."""
    return ort.InferenceSession(model.SerializeToString()).run(None if name is None else [name], feeds)[0]


# ---------------------------------------------------------------------- scikit-learn


def sklearn_model(kind):
    ensemble, linear_model = pytest.importorskip("sklearn.ensemble"), pytest.importorskip("sklearn.linear_model")
    y = data(200, 3)[1]
    x = np.random.default_rng(2).standard_normal((200, 4)).astype(np.float32) + y[:, None]
    made = {
        "logistic": linear_model.LogisticRegression(),
        "forest": ensemble.RandomForestClassifier(7, max_depth=4, random_state=0),
    }
    return made[kind].fit(x, y), x[:45]


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
    raised = [f"The model's opset was raised from {opset} to 13."] if opset < 13 else []
    assert list(done.remarks) == raised


def test_a_policy_on_logits_behind_probabilities_is_refused(tmp_path):
    skl2onnx = pytest.importorskip("skl2onnx")
    for kind, makers in (("logistic", ("Softmax", "Normalizer")), ("forest", ("TreeEnsembleClassifier",))):
        model, x = sklearn_model(kind)
        proto = skl2onnx.to_onnx(model, x[:1], target_opset={"": 17, "ai.onnx.ml": 3})
        with pytest.raises(ValueError, match="which gives probabilities") as refusal:
            export_onnx(make_policy(classes=3), tmp_path / "m.onnx", onnx_model=proto)
        assert str(refusal.value).split(", which gives probabilities")[0].endswith(makers)
        assert not (tmp_path / "m.onnx").exists()


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
    with pytest.raises(ValueError, match=r"the model's classes are b, a, c, d, e, the policy's a, b, c, d, e"):
        export_onnx(policy, tmp_path / "n.onnx", onnx_model=model(list("bacde")))


# ---------------------------------------------------------------------- TensorFlow's manner


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
    assert list(done.remarks) == ([f"The model's batch is fixed at {batch}: so is the graph's."] if fixed else [])
    assert done.rows == {1: 33, 6: 30}.get(batch, 34)
    x = RNG.standard_normal((batch if fixed else 9, 2, 3, 2)).astype(np.float32)
    agree(run(tmp_path / "m.onnx", **{"serving_default_x:0": x}), policy, alone(model, {"serving_default_x:0": x}))


def test_the_tensor_before_the_softmax_can_be_taken(tmp_path):
    model, policy = tensorflow_like("N"), make_policy(limit=0.5)
    with pytest.raises(ValueError, match=r"comes from Softmax.*before it, 'net/dense/BiasAdd:0'"):
        export_onnx(policy, tmp_path / "m.onnx", onnx_model=model)
    last = model.graph.output[0].name
    with pytest.raises(ValueError, match=r"comes from Softmax.*before it, 'net/dense/BiasAdd:0'"):
        export_onnx(policy, tmp_path / "m.onnx", onnx_model=model, output=last)
    assert not (tmp_path / "m.onnx").exists()
    done = export_onnx(policy, tmp_path / "m.onnx", onnx_model=model, output="net/dense/BiasAdd:0")
    assert not done.remarks
    x = RNG.standard_normal((9, 2, 3, 2)).astype(np.float32)
    model.graph.output.append(helper.make_tensor_value_info("net/dense/BiasAdd:0", T.FLOAT, None))
    logits = alone(model, {"serving_default_x:0": x}, "net/dense/BiasAdd:0")
    agree(run(tmp_path / "m.onnx", **{"serving_default_x:0": x}), policy, logits)
    other = make_policy(takes="probabilities")
    with pytest.raises(ValueError, match=r"takes probabilities.*net/dense/BiasAdd:0 has values from -"):
        export_onnx(other, tmp_path / "n.onnx", onnx_model=model, output="net/dense/BiasAdd:0")


def test_classes_in_another_order_are_refused_without_a_zipmap_too(tmp_path):
    skl2onnx = pytest.importorskip("skl2onnx")
    rng = np.random.default_rng(0)
    x = rng.standard_normal((90, 2)).astype(np.float32)
    y = np.array(["healthy", "benign", "malign"])[rng.integers(0, 3, 90)]
    model = LogisticRegression().fit(x, y)  # its classes are sorted: benign, healthy, malign
    proto = skl2onnx.to_onnx(model, x[:1], options={"zipmap": False}, target_opset={"": 17, "ai.onnx.ml": 3})
    for names in (("healthy", "benign", "malign"), ("benign", "healthy", "malign")):
        policy = make_policy(classes=3, takes="probabilities", class_names=names)
        if names == tuple(model.classes_):
            export_onnx(policy, tmp_path / "m.onnx", onnx_model=proto)
        else:
            with pytest.raises(ValueError, match="must be in the same order"):
                export_onnx(policy, tmp_path / "m.onnx", onnx_model=proto)


def test_a_model_without_a_finite_output_is_refused(tmp_path):
    broken = torch.nn.Linear(4, C)
    torch.nn.init.constant_(broken.weight, float("nan"))
    with pytest.raises(ValueError, match="no finite number"):
        export_onnx(make_policy(), tmp_path / "m.onnx", model=broken, input_shape=[4])
    assert not (tmp_path / "m.onnx").exists()


# ---------------------------------------------------------------------- names, types, opsets


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
    with pytest.raises(ValueError, match="the model has an input 'label', a name that the graph needs"):
        export_onnx(make_policy(), tmp_path / "m.onnx", onnx_model=model)


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
    assert done.remarks == ("The model's opset was raised from 11 to 13.",)
    assert [one.name for one in done.inputs] == ["x"]
    agree(run(tmp_path / "m.onnx", x=X), policy, alone(linear(), {"x": X}))


def test_a_model_that_cannot_be_raised(tmp_path, monkeypatch):
    def refuse(model, version):
        raise RuntimeError("no adapter\nfor it")

    monkeypatch.setattr(onnx.version_converter, "convert_version", refuse)
    with pytest.raises(ValueError, match=r"has opset 12, a policy needs opset 13 .* cannot be raised \(no adapter for"):
        export_onnx(make_policy(), tmp_path / "m.onnx", onnx_model=linear(opset=12))


def test_a_segmentation_model_of_unknown_shape(tmp_path):
    nodes = [helper.make_node("Conv", ["x", "k"], ["z"])]
    kernel = RNG.standard_normal((C, 2, 1, 1)).astype(np.float32)
    model = build(nodes, [("z", T.FLOAT, None)], inputs=[("x", T.FLOAT, None)], weights={"k": kernel})
    policy = make_policy(kind="segmentation")
    with pytest.raises(ValueError, match=r"shape of x \(FLOAT\) is not known: give input_shape"):
        export_onnx(policy, tmp_path / "m.onnx", onnx_model=model)
    done = export_onnx(policy, tmp_path / "m.onnx", onnx_model=model, input_shape=(2, 3, 4))
    assert done.rows == 34 * 12
    x = RNG.standard_normal((2, 2, 5, 3)).astype(np.float32)
    agree(run(tmp_path / "m.onnx", x=x), policy, alone(model, {"x": x}))


def test_outputs_that_are_not_finite_are_remarked_upon_and_never_accepted(tmp_path):
    nodes = [helper.make_node("Log", ["x"], ["l"]), helper.make_node("MatMul", ["l", "w"], ["z"])]
    model = build(nodes, [("z", T.FLOAT, ["N", C])])
    for name in ("max_logit", "negative_entropy"):
        done = export_onnx(make_policy(Score(name), -1e9), tmp_path / "m.onnx", onnx_model=model)
        assert "not finite" in done.remarks[0]
        x = np.abs(X)
        x[::3, 1], x[1::3, 0] = -1, 0
        found = run(tmp_path / "m.onnx", x=x)
        np.testing.assert_array_equal(found["accept"], np.isfinite(np.log(np.maximum(x, 1e-30)) @ WEIGHT).all(1)
                                      & (x > 0).all(1))  # fmt: skip


def test_several_inputs_of_several_types(tmp_path):
    nodes = [
        helper.make_node("Gather", ["table", "word"], ["e"]),
        helper.make_node("Add", ["e", "x"], ["s"]),
        helper.make_node("MatMul", ["s", "w"], ["z"]),
    ]
    weights = {"w": WEIGHT, "table": RNG.standard_normal((6, 4)).astype(np.float32)}
    inputs = [("x", T.FLOAT, ["N", 4]), ("word", T.INT64, ["N"])]
    model, policy = build(nodes, [("z", T.FLOAT, ["N", C])], inputs=inputs, weights=weights), make_policy()
    assert export_onnx(policy, tmp_path / "m.onnx", onnx_model=model).rows == 34
    feeds = {"x": X, "word": np.arange(30) % 6}
    assert export_onnx(policy, tmp_path / "m.onnx", onnx_model=model, inputs=feeds).rows == 31
    agree(run(tmp_path / "m.onnx", **feeds), policy, alone(model, feeds))
    with pytest.raises(ValueError, match=r"inputs must be x \(FLOAT \[N, 4\]\), word \(INT64 \[N\]\), got x"):
        export_onnx(policy, tmp_path / "n.onnx", onnx_model=model, inputs={"x": X})
    with pytest.raises(ValueError, match=r"inputs must fit x \(FLOAT \[N, 4\]\), got \[30, 3\]"):
        export_onnx(policy, tmp_path / "n.onnx", onnx_model=model, inputs=feeds | {"x": X[:, :3]})


# ---------------------------------------------------------------------- which output


def test_the_output_is_named_where_several_could_be(tmp_path):
    nodes = [helper.make_node("MatMul", ["x", "w"], ["first"]), helper.make_node("Neg", ["first"], ["second"])]
    model = build(nodes, [("first", T.FLOAT, ["N", C]), ("second", T.FLOAT, ["N", C])])
    policy = make_policy()
    with pytest.raises(ValueError, match=r"several outputs.*name one of first, second; .* first \(FLOAT \[N, 5\]\)"):
        export_onnx(policy, tmp_path / "m.onnx", onnx_model=model)
    with pytest.raises(ValueError, match=r"no tensor 'secnd', its outputs are first .*names like it: second"):
        export_onnx(policy, tmp_path / "m.onnx", onnx_model=model, output="secnd")
    assert not list(tmp_path.iterdir())
    export_onnx(policy, tmp_path / "m.onnx", onnx_model=model, output="second")
    agree(run(tmp_path / "m.onnx", x=X), policy, -alone(linear(), {"x": X}))


def test_outputs_that_do_not_fit_are_refused(tmp_path):
    for policy, output, text in (
        (make_policy(classes=7), None, r"no output .* can be logits \[N, 7\].*the outputs are z \(FLOAT \[N, 5\]\)"),
        (make_policy(classes=7), "z", r"takes logits \[N, 7\], got z \(FLOAT \[N, 5\]\)"),
        (make_policy(kind="segmentation"), None, r"can be logits \[N, 5, H, W\]"),
        (make_policy(takes="probabilities"), None, r"takes probabilities.*but z has values from -"),
    ):
        with pytest.raises(ValueError, match=text):
            export_onnx(policy, tmp_path / "m.onnx", onnx_model=linear(), output=output)
    hidden = build([helper.make_node("MatMul", ["x", "w"], ["z"])], [("z", T.FLOAT, None)])
    with pytest.raises(ValueError, match=r"\[N, 7\], (the model gives|got z)"):
        export_onnx(make_policy(classes=7), tmp_path / "m.onnx", onnx_model=hidden, output="z")
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------------- files


def saved(path, location="w.bin"):
    """A model with its weights in another file."""
    onnx.save_model(linear(), path, save_as_external_data=True, location=location, size_threshold=0)
    return path


def test_weights_beside_the_model_are_taken_in(tmp_path):
    policy = make_policy()
    (tmp_path / "in").mkdir()
    export_onnx(policy, tmp_path / "out" / "m.onnx", onnx_model=saved(tmp_path / "in" / "m.onnx"))
    agree(run(tmp_path / "out" / "m.onnx", x=X), policy, alone(linear(), {"x": X}))
    (tmp_path / "in" / "w.bin").unlink()
    with pytest.raises(ValueError, match=r"'w\.bin', which holds its weights, is not beside it"):
        export_onnx(policy, tmp_path / "n.onnx", onnx_model=tmp_path / "in" / "m.onnx")
    unloaded = onnx.load(tmp_path / "in" / "m.onnx", load_external_data=False)
    with pytest.raises(ValueError, match=r"keeps weights in another file: give the path"):
        export_onnx(policy, tmp_path / "n.onnx", onnx_model=unloaded)


@pytest.mark.parametrize("how", ["parent", "absolute", "link"])
def test_weights_outside_the_folder_are_not_read(how, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    path = saved(folder / "m.onnx")
    (folder / "w.bin").rename(tmp_path / "secret.bin")
    if how == "link":
        (folder / "w.bin").symlink_to(tmp_path / "secret.bin")
    else:
        model = onnx.load(path, load_external_data=False)
        for entry in model.graph.initializer[0].external_data:
            if entry.key == "location":
                entry.value = "../secret.bin" if how == "parent" else str(tmp_path / "secret.bin")
        path.write_bytes(model.SerializeToString())
    with pytest.raises(ValueError, match="weights must lie in the model's folder, w is in"):
        export_onnx(make_policy(), tmp_path / "n.onnx", onnx_model=path)


def test_models_that_are_too_large_are_refused_before_they_are_read(tmp_path, monkeypatch):
    path = saved(tmp_path / "m.onnx")
    monkeypatch.setattr("calibrant.export.model_file.LARGEST", path.stat().st_size + 10)
    with pytest.raises(ValueError, match=r"over 2 GB cannot be extended, .* with its weights"):
        export_onnx(make_policy(), tmp_path / "n.onnx", onnx_model=path)
    monkeypatch.setattr("calibrant.export.model_file.LARGEST", path.stat().st_size - 10)
    with pytest.raises(ValueError, match="over 2 GB cannot be extended, this one has"):
        export_onnx(make_policy(), tmp_path / "n.onnx", onnx_model=path)


def test_broken_files_are_one_sentence(tmp_path):
    whole = linear().SerializeToString()
    nonsense = linear()
    nonsense.graph.node[0].op_type = "NoSuchOperation"
    dangling = linear()
    dangling.graph.node[0].input[1] = "nowhere"
    cases = {
        "cut": whole[: len(whole) // 2],
        "text": b"this is no model",
        "empty": b"",
        "image": b"\x89PNG\r\n\x1a\n" + bytes(60),
        "nonsense": nonsense.SerializeToString(),
        "dangling": dangling.SerializeToString(),
    }
    for name, content in cases.items():
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"not (an ONNX file|a valid ONNX model)") as caught:
            export_onnx(make_policy(), tmp_path / "out.onnx", onnx_model=path)
        assert "\n" not in str(caught.value), name
        assert len(str(caught.value)) < 400, name
    with pytest.raises(ValueError, match=r"missing\.onnx: there is no such file"):
        export_onnx(make_policy(), tmp_path / "out.onnx", onnx_model=tmp_path / "missing.onnx")
    assert not (tmp_path / "out.onnx").exists()


def test_bytes_changed_at_random_give_a_sentence_or_a_model(tmp_path):
    whole = np.frombuffer(linear().SerializeToString(), np.uint8)
    rng = np.random.default_rng(0)
    said = []
    for _ in range(60):
        changed = whole.copy()
        changed[rng.integers(0, len(whole), 3)] = rng.integers(0, 256, 3)
        path = tmp_path / "r.onnx"
        path.write_bytes(changed.tobytes())
        try:
            export_onnx(make_policy(), tmp_path / "out.onnx", onnx_model=path)
        except ValueError as error:
            said.append(str(error))
    assert len(said) > 10
    assert not any("\n" in text for text in said)


def test_a_custom_operation_is_refused_by_onnxruntime_in_one_sentence(tmp_path):
    model = linear()
    model.graph.node[0].domain = "com.example"
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    with pytest.raises(ValueError, match=r"onnxruntime cannot load the model \(.*com\.example"):
        export_onnx(make_policy(), tmp_path / "m.onnx", onnx_model=model)


def test_a_policy_is_put_behind_a_model_once(tmp_path):
    onnx.save_model(linear(), tmp_path / "a.onnx")
    export_onnx(make_policy(), tmp_path / "b.onnx", onnx_model=tmp_path / "a.onnx")
    with pytest.raises(ValueError, match="has a policy already"):
        export_onnx(make_policy(), tmp_path / "c.onnx", onnx_model=tmp_path / "b.onnx")
    with pytest.raises(ValueError, match="would be overwritten"):
        export_onnx(make_policy(), tmp_path / "a.onnx", onnx_model=tmp_path / "a.onnx")


def test_logits_of_torch_and_numpy_are_inputs_too(tmp_path):
    done = export_onnx(make_policy(), tmp_path / "m.onnx", onnx_model=linear(), inputs=torch.from_numpy(X).double())
    assert done.rows == 31
    assert [str(one) for one in done.inputs] == ["x (FLOAT [N, 4])"]
    for wrong in (X[:0], X.astype(np.int64), X[0]):
        with pytest.raises(ValueError, match="inputs must"):
            export_onnx(make_policy(), tmp_path / "m.onnx", onnx_model=linear(), inputs=wrong)
