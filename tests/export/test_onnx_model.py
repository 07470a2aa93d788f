"""ONNX files of strangers: nothing outside of their folder is read, and what they claim is not believed."""

import os
import time

import numpy as np
import pytest

from calibrant.export import export_onnx, onnx_model
from tests.helpers.errors import facts
from tests.helpers.exports import C, X, agree, alone, build, linear, make_policy, run, saved

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
helper, numpy_helper, T = onnx.helper, onnx.numpy_helper, onnx.TensorProto


def refused(path, *told, **more):
    """Export must fail with these facts, within a second or two, and write nothing."""
    before, start = sorted(path.parent.iterdir()), time.monotonic()
    with pytest.raises(ValueError, match=facts(*told)) as error:
        export_onnx(make_policy(), path.parent / "out.onnx", onnx_model=path, **more)
    assert time.monotonic() - start < 5
    assert "\n" not in str(error.value)
    assert sorted(path.parent.iterdir()) == before


def pointing(path, **entries):
    """The model of `saved` with its weights said to be elsewhere."""
    saved(path)
    model = onnx.load(path, load_external_data=False)
    tensor = model.graph.initializer[0]
    known = {entry.key: entry.value for entry in tensor.external_data} | entries
    del tensor.external_data[:]
    for key, value in known.items():
        if value is not None:
            tensor.external_data.add(key=key, value=value)
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize(
    ("entries", "told"),
    [
        *(({"location": place}, "w folder") for place in ("../../etc/passwd", "/dev/zero", "sub/../../x", "", None)),
        ({"location": "."}, "'.'"),
        ({"location": "pipe"}, "'pipe'"),
        ({"location": "round"}, "round"),
        ({"location": "x" * 5000}, "xxx"),
        ({"location": "a\x00b"}, "w"),
        *(({"length": length}, "w offset length") for length in ("-1", "1e3", "9" * 4000)),
        ({"offset": "-100"}, "w offset length"),
        ({"offset": "79"}, "w w.bin 80"),
        ({"length": str(2**62)}, "w w.bin"),
        ({"length": "8"}, "ONNX"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_weights_elsewhere(tmp_path, entries, told):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "round").symlink_to(tmp_path / "round")
    refused(pointing(tmp_path / "m.onnx", **entries), *told.split())


def test_weights_without_offset_and_length_are_the_whole_file(tmp_path):
    path = pointing(tmp_path / "m.onnx", offset=None, length=None)
    assert export_onnx(make_policy(), tmp_path / "out.onnx", onnx_model=path).rows == 34


def test_what_is_no_file(tmp_path):
    for make, kind in ((os.mkfifo, "pipe"), (os.mkdir, "folder")):
        path = tmp_path / f"{make.__name__}.onnx"
        make(path)
        refused(path, path.name, kind)
    zeros = tmp_path / "zeros.onnx"
    with open(zeros, "wb") as file:
        file.truncate(2**31)
    refused(zeros, "2 GB", "2.0 GB")


@pytest.mark.parametrize("dims", [[10**6, 10**6], [4, 2**62], [-4, C], [2**62, 2**62, 2**62], [4, C, 0, 2**40]])
@pytest.mark.parametrize("place", ["initializer", "constant"])
def test_claimed_sizes(tmp_path, dims, place):
    model, tensor = linear(), T(name="w", data_type=T.FLOAT, raw_data=bytes(16))
    tensor.dims.extend(dims)
    del model.graph.initializer[:]
    if place == "initializer":
        model.graph.initializer.append(tensor)
    else:
        model.graph.node.insert(0, helper.make_node("Constant", [], ["w"], value=tensor))
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    refused(tmp_path / "m.onnx", "m.onnx")


def test_sparse_weights_are_not_filled_beyond_the_limit(tmp_path):
    model = linear()
    del model.graph.initializer[:]
    values = helper.make_tensor("w", T.FLOAT, [1], [1.0])
    indices = helper.make_tensor("i", T.INT64, [1], [0])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [2**30, 2**30]))
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    refused(tmp_path / "m.onnx", "w", "[1073741824, 1073741824]", "2 GB")


def nested(depth):
    """Branches in branches."""
    output = [helper.make_tensor_value_info("z", T.FLOAT, None)]
    inner = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["z"])], "g", [], output)
    for i in range(depth):
        node = helper.make_node("If", ["yes"], [f"z{i}"], then_branch=inner, else_branch=inner)
        output = [helper.make_tensor_value_info(f"z{i}", T.FLOAT, None)]
        inner = helper.make_graph([node], "g", [], output)
    model = linear()
    del model.graph.node[:], model.graph.output[:]
    model.graph.node.extend(inner.node)
    model.graph.output.extend(inner.output)
    model.graph.initializer.append(numpy_helper.from_array(np.array(True), "yes"))
    return model


def one_branch(depth):
    """As `nested`, with one branch that goes on: its size grows with the depth, and not as 2 to its power."""
    bodies = b""
    for _ in range(depth):  # an attribute of a node of a graph of an attribute: tags 1, 5 and 6
        for tag in (0x0A, 0x2A, 0x32):
            bodies = bytes([tag]) + length_of(bodies) + bodies
    return b"\x08\x08" + b"\x3a" + length_of(bodies) + bodies


def length_of(data):
    size, found = len(data), bytearray()
    while True:
        found.append(size & 0x7F | (0x80 if size > 0x7F else 0))
        size >>= 7
        if not size:
            return bytes(found)


def test_branches_in_branches(tmp_path):
    (tmp_path / "m.onnx").write_bytes(nested(3).SerializeToString())
    assert export_onnx(make_policy(), tmp_path / "out.onnx", onnx_model=tmp_path / "m.onnx").rows == 34
    for depth in (20, 31, 40, 1000, 30_000):
        (tmp_path / "deep.onnx").write_bytes(one_branch(depth))
        refused(tmp_path / "deep.onnx", "deep.onnx", "ONNX")


def test_functions_that_call_themselves(tmp_path):
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    body = [helper.make_node("F", ["a"], ["b"], domain="own")]
    model = build([helper.make_node("F", ["x"], ["z"], domain="own")], [("z", T.FLOAT, ["N", C])], ir=8)
    model.functions.append(helper.make_function("own", "F", ["a"], ["b"], body, opsets))
    model.opset_import.append(opsets[1])
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    refused(tmp_path / "m.onnx", "m.onnx")


def test_names_of_classes_that_are_no_text(tmp_path):
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["z"]),
        helper.make_node("ZipMap", ["z"], ["p"], domain="ai.onnx.ml", classlabels_strings=[b"\xff\xfe"] * C),
    ]
    model = build(nodes, [("z", T.FLOAT, ["N", C])])
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 1))
    del model.graph.output[:]
    inner = helper.make_map_type_proto(T.STRING, helper.make_tensor_type_proto(T.FLOAT, []))
    model.graph.output.append(helper.make_value_info("p", helper.make_sequence_type_proto(inner)))
    with pytest.raises(ValueError, match=facts("a, b, c, d, e")):
        export_onnx(make_policy(class_names=tuple("abcde")), tmp_path / "out.onnx", onnx_model=model)


# ---- time and memory -------------------------------------------------------------------------------------------------
def test_a_loop_without_end_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_model, "LONGEST", 0.2)
    infos = [("i", T.INT64, []), ("on", T.BOOL, []), ("v", T.FLOAT, None)]
    outputs = [("go", T.BOOL, []), ("out", T.FLOAT, None)]
    nodes = [helper.make_node("Identity", ["on"], ["go"]), helper.make_node("Identity", ["v"], ["out"])]
    tensors = [[helper.make_tensor_value_info(*info) for info in side] for side in (infos, outputs)]
    body = helper.make_graph(nodes, "body", *tensors)
    steps = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    steps.append(helper.make_node("Loop", ["times", "yes", "y"], ["z"], body=body))
    weights = {"w": np.zeros((4, C), np.float32), "times": np.array(2**62), "yes": np.array(True)}
    model = build(steps, [("z", T.FLOAT, ["N", C])], weights=weights)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    refused(tmp_path / "m.onnx", "0.2 seconds")


def test_a_model_gets_half_of_the_memory(tmp_path):
    many = np.array([onnx_model.most_memory() // 2**20, 2**19])  # float32: twice as much as it may have
    steps = [
        helper.make_node("ConstantOfShape", ["size"], ["big"]),
        helper.make_node("ReduceMax", ["big"], ["most"], keepdims=0),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("Add", ["y", "most"], ["z"]),
    ]
    model = build(steps, [("z", T.FLOAT, ["N", C])], weights={"w": np.zeros((4, C), np.float32), "size": many})
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    refused(tmp_path / "m.onnx", "memory", "GB")


@pytest.mark.parametrize("shape", [[2**25], [4096, 4097], [2**31, 2**31], [1] * 17])
def test_random_inputs_are_bounded(tmp_path, shape):
    nodes = [
        helper.make_node("Flatten", ["x"], ["f"]),
        helper.make_node("ReduceMean", ["f"], ["mean"], axes=[1]),
        helper.make_node("MatMul", ["mean", "w"], ["z"]),
    ]
    infos, weights = [("x", T.FLOAT, ["N", *shape])], {"w": np.ones((1, C), np.float32)}
    model = build(nodes, [("z", T.FLOAT, ["N", C])], inputs=infos, weights=weights)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    refused(tmp_path / "m.onnx", "16", "16,777,216")
    with pytest.raises(ValueError, match=facts("input_shape", "16", "16,777,216")):
        export_onnx(make_policy(), tmp_path / "out.onnx", onnx_model=linear(), input_shape=shape)


@pytest.mark.parametrize("name", ["node", "input", "tensor", "output", "inside"])
def test_names_that_are_no_text(tmp_path, name):
    model = nested(1)
    inner = model.graph.node[0].attribute[0].g.node[0]
    places = {
        "node": (model.graph.node[0], "name"), "input": (model.graph.input[0], "name"),
        "tensor": (model.graph.initializer[0], "name"), "output": (model.graph.output[0], "name"),
        "inside": (inner, "name"),
    }  # fmt: skip
    setattr(*places[name], "PLACEHOLDER")
    data = model.SerializeToString().replace(b"PLACEHOLDER", b"\xff\xfeCEHOLDER")
    (tmp_path / "m.onnx").write_bytes(data)
    refused(tmp_path / "m.onnx", "m.onnx")


def test_weights_beside_the_model_are_taken_in(tmp_path):
    policy = make_policy()
    (tmp_path / "in").mkdir()
    export_onnx(policy, tmp_path / "out" / "m.onnx", onnx_model=saved(tmp_path / "in" / "m.onnx"))
    agree(run(tmp_path / "out" / "m.onnx", x=X), policy, alone(linear(), {"x": X}))
    (tmp_path / "in" / "w.bin").unlink()
    with pytest.raises(ValueError, match=facts("'w.bin'")):
        export_onnx(policy, tmp_path / "n.onnx", onnx_model=tmp_path / "in" / "m.onnx")
    unloaded = onnx.load(tmp_path / "in" / "m.onnx", load_external_data=False)
    with pytest.raises(ValueError, match=facts("weights", "path")):
        export_onnx(policy, tmp_path / "n.onnx", onnx_model=unloaded)


def test_weights_outside_the_folder_are_not_read_through_a_link(tmp_path):
    (tmp_path / "in").mkdir()
    path = saved(tmp_path / "in" / "m.onnx")
    (tmp_path / "in" / "w.bin").rename(tmp_path / "secret.bin")
    (tmp_path / "in" / "w.bin").symlink_to(tmp_path / "secret.bin")
    refused(path, "w", "folder")


def test_models_that_are_too_large_are_refused_before_they_are_read(tmp_path, monkeypatch):
    path = saved(tmp_path / "m.onnx")
    monkeypatch.setattr("calibrant.export.onnx_model.LARGEST", path.stat().st_size + 10)
    with pytest.raises(ValueError, match=facts("2 GB")):
        export_onnx(make_policy(), tmp_path / "n.onnx", onnx_model=path)
    monkeypatch.setattr("calibrant.export.onnx_model.LARGEST", path.stat().st_size - 10)
    with pytest.raises(ValueError, match=facts("2 GB")):
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
        with pytest.raises(ValueError, match=facts(path.name, "ONNX")) as caught:
            export_onnx(make_policy(), tmp_path / "out.onnx", onnx_model=path)
        assert "\n" not in str(caught.value), name
        assert len(str(caught.value)) < 400, name
    with pytest.raises(ValueError, match=facts("missing.onnx")):
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
