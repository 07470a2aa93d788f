"""The operations of formulas, drawn into ONNX graphs, against PyTorch and NumPy."""

import numpy as np
import pytest
import torch

from calibrant.export.graph import OnnxOps
from calibrant.posthoc import TorchOps
from tests.helpers.exports import C

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
