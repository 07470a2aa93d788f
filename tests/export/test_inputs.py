"""Inputs for the check of an export: numbers, of the size they say, and nothing that is run."""

import io
import os
import zipfile

import numpy as np
import pytest
import torch

from calibrant.export import export_onnx
from calibrant.export.inputs import read_inputs
from calibrant.posthoc.scores import Score
from tests.helpers.errors import facts
from tests.helpers.exports import RNG, WEIGHT, C, X, agree, alone, build, linear, make_policy, run

onnx = pytest.importorskip("onnx")
helper, T = onnx.helper, onnx.TensorProto

TABLE = np.arange(12.0).reshape(4, 3)


def npy(array, **more):
    file = io.BytesIO()
    np.save(file, array, **more)
    return file.getvalue()


def header(text):
    """A ``.npy`` file with a header of one's own."""
    body = text.encode().ljust(118) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(body).to_bytes(2, "little") + body


def archive(members, **more):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", **more) as made:
        for name, data in members.items():
            made.writestr(name, data)
    return file.getvalue()


def test_what_numpy_writes_is_read(tmp_path):
    for array in (TABLE, TABLE.T, TABLE > 2, np.array(3.0)):
        np.save(tmp_path / "x.npy", array)
        np.testing.assert_array_equal(read_inputs(tmp_path / "x.npy"), array)
        for save in (np.savez, np.savez_compressed):
            save(tmp_path / "x.npz", a=array, b=TABLE)
            found = read_inputs(tmp_path / "x.npz")
            assert sorted(found) == ["a", "b"]
            np.testing.assert_array_equal(found["a"], array)


BAD = {
    "empty": (b"", ".npy .npz"),
    "pickle": (b"\x80\x04cos\nsystem\n(S'touch x'\ntR.", ".npy .npz"),
    "objects": (npy(np.array([print, {}], dtype=object), allow_pickle=True), "|O"),
    "words": (npy(np.array(["a"])), "<U1"),
    "records": (npy(np.zeros(2, dtype=[("a", "f4")])), "numbers"),
    "cut": (npy(TABLE)[:-1], "96 float64 95"),
    "more": (npy(TABLE) + b"x", "97"),
    "claim": (header("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,)}"), "8,000,000,000,000"),
    "code": (header("{'descr': __import__('os').system('x'), 'fortran_order': False, 'shape': ()}"), "__import__"),
    "empty archive": (archive({}), "array"),
    "other member": (archive({"a.txt": b"hello"}), "a.txt"),
    "object member": (archive({"a.npy": npy(np.array([{}]), allow_pickle=True)}), "numbers"),
    "same names": (archive({"a.npy": npy(TABLE), "a": npy(TABLE)}), "names"),
    "bomb": (archive({"a.npy": bytes(2**22)}, compression=zipfile.ZIP_DEFLATED), "a NumPy"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_is_refused(tmp_path, name):
    data, told = BAD[name]
    path = tmp_path / "x.npy"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=facts(str(path), *told.split())) as error:
        read_inputs(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_wrong_checksum_is_noticed(tmp_path, compression):
    data = bytearray(archive({"a.npy": npy(TABLE)}, compression=compression))
    at = data.index(b"NUMPY") + 150 if compression == zipfile.ZIP_STORED else 60
    data[at] ^= 4
    (tmp_path / "x.npz").write_bytes(data)
    with pytest.raises(ValueError, match=facts("x.npz")):
        read_inputs(tmp_path / "x.npz")


def test_sizes_are_checked_before_memory_is_taken(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "x.npz", a=np.zeros(10**5), b=np.zeros(10**5))
    monkeypatch.setattr("calibrant.export.inputs.LARGEST_FILE", 10**6)
    with pytest.raises(ValueError, match=facts("1,000,000", "1,600,")):
        read_inputs(tmp_path / "x.npz")
    np.save(tmp_path / "x.npy", np.zeros(10**6))
    with pytest.raises(ValueError, match=facts("1,000,000", "8,000,")):
        read_inputs(tmp_path / "x.npy")
    os.mkfifo(tmp_path / "pipe.npy")
    with pytest.raises(ValueError, match=facts("pipe.npy", "pipe")):
        read_inputs(tmp_path / "pipe.npy")


@pytest.mark.slow
def test_a_model_without_a_finite_output_is_refused(tmp_path):
    broken = torch.nn.Linear(4, C)
    torch.nn.init.constant_(broken.weight, float("nan"))
    with pytest.raises(ValueError, match=facts("finite")):
        export_onnx(make_policy(), tmp_path / "m.onnx", model=broken, input_shape=[4])
    assert not (tmp_path / "m.onnx").exists()


def test_a_segmentation_model_of_unknown_shape(tmp_path):
    nodes = [helper.make_node("Conv", ["x", "k"], ["z"])]
    kernel = RNG.standard_normal((C, 2, 1, 1)).astype(np.float32)
    model = build(nodes, [("z", T.FLOAT, None)], inputs=[("x", T.FLOAT, None)], weights={"k": kernel})
    policy = make_policy(kind="segmentation")
    with pytest.raises(ValueError, match=facts("x (FLOAT)", "input_shape")):
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
        assert "finite" in done.remarks[0]
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
    with pytest.raises(ValueError, match=facts("x (FLOAT [N, 4])", "word (INT64 [N])")):
        export_onnx(policy, tmp_path / "n.onnx", onnx_model=model, inputs={"x": X})
    with pytest.raises(ValueError, match=facts("x (FLOAT [N, 4])", "[30, 3]")):
        export_onnx(policy, tmp_path / "n.onnx", onnx_model=model, inputs=feeds | {"x": X[:, :3]})


@pytest.mark.parametrize("rows", [3, 70])
def test_an_input_of_a_fixed_length_is_no_batch_whatever_its_length(rows, tmp_path):
    nodes = [
        helper.make_node("ReduceSum", ["shift", "first"], ["s"], keepdims=1),
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Add", ["m", "s"], ["z"]),
    ]
    inputs = [("x", T.FLOAT, ["N", 4]), ("shift", T.FLOAT, [rows, C])]
    weights = {"w": WEIGHT, "first": np.array([0])}
    model = build(nodes, [("z", T.FLOAT, ["N", C])], inputs=inputs, weights=weights)
    feeds = {"x": np.resize(X, (rows, 4)), "shift": RNG.standard_normal((rows, C)).astype(np.float32)}
    policy = make_policy()
    assert export_onnx(policy, tmp_path / "m.onnx", onnx_model=model, inputs=feeds).rows == rows + 1
    agree(run(tmp_path / "m.onnx", **feeds), policy, alone(model, feeds))


def test_logits_of_torch_and_numpy_are_inputs_too(tmp_path):
    done = export_onnx(make_policy(), tmp_path / "m.onnx", onnx_model=linear(), inputs=torch.from_numpy(X).double())
    assert done.rows == 31
    assert [str(one) for one in done.inputs] == ["x (FLOAT [N, 4])"]
    for wrong in (X[:0], X.astype(np.int64), X[0]):
        with pytest.raises(ValueError, match=facts("inputs")):
            export_onnx(make_policy(), tmp_path / "m.onnx", onnx_model=linear(), inputs=wrong)
