"""A policy drawn as an ONNX graph, and attached to the graph of a model.

`OnnxOps` are `Ops` that draw: the formula of a policy becomes nodes, in float64 from opset 13 on. What each operation
means is documented in `calibrant.posthoc.Ops`.
"""
# ruff: noqa: D102

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from calibrant.base.arrays import Doubles
from calibrant.export.model_outputs import LogitsModel
from calibrant.export.onnx_model import LARGEST, MARK, TensorInfo, brief, check, named_values, prune, subgraphs
from calibrant.policy import Policy, decision_formula

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto


OUTPUTS = ("label", "confidence", "accept", "probabilities")
SET = "prediction_set"
GROUP = "group"
PREFIX = "policy/"
_DESCRIPTIONS = {
    "label": "the predicted class",
    "confidence": "the calibrated probability of the predicted class",
    "accept": "whether to answer; false abstains",
    "probabilities": "the calibrated probabilities",
    SET: "which classes are in the prediction set",
    GROUP: "the position of the sample's group in calibrant.group_names; any other number if it is not listed",
}


def _draws(kind: str) -> Callable[..., str]:
    """An operation that is one node of this kind."""

    def draw_node(ops: OnnxOps, *values: str) -> str:
        return ops.node(kind, *values)

    return draw_node


class OnnxOps:
    """`Ops` whose values are names of tensors; nodes and constants gather here, in the order they are needed.

    What is asked for twice is drawn once.
    """

    def __init__(self, opset: int, num_classes: int) -> None:
        self.opset, self.num_classes = opset, num_classes
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []
        self._names: dict[Any, str] = {}

    def node(self, kind: str, *inputs: str, output: str | None = None, outputs: int = 1, **attributes: Any) -> str:
        """Draw a node and give the name of its first output."""
        from onnx import helper

        key = (kind, inputs, tuple(sorted((k, str(v)) for k, v in attributes.items())))
        if output is None and key in self._names:
            return self._names[key]
        name = f"{PREFIX}{kind}_{len(self.nodes)}"
        result = output or name
        names = [result, *(f"{name}_{i}" for i in range(1, outputs))]
        self.nodes.append(helper.make_node(kind, inputs, names, name=name, **attributes))
        self._names[key] = result
        return result

    def store(self, values: npt.NDArray[Any]) -> str:
        """A constant of the type it comes in."""
        from onnx import numpy_helper

        values = np.ascontiguousarray(values).reshape(values.shape)
        key = (values.dtype.str, values.shape, values.tobytes())
        if key not in self._names:
            self._names[key] = f"{PREFIX}constant_{len(self.constants)}"
            self.constants.append(numpy_helper.from_array(values, self._names[key]))
        return self._names[key]

    def store_integers(self, *numbers: int) -> str:
        """Whole numbers ``[len(numbers)]``."""
        return self.store(np.array(numbers, dtype=np.int64))

    def cast(self, a: str, to: str, *, output: str | None = None) -> str:
        """Another type, by its name in ONNX."""
        from onnx import TensorProto

        return self.node("Cast", a, output=output, to=TensorProto.DataType.Value(to))

    def constant(self, values: npt.ArrayLike) -> str:
        return self.store(np.asarray(values, dtype=np.float64))

    add = _draws("Add")
    sub = _draws("Sub")
    mul = _draws("Mul")
    div = _draws("Div")
    power = _draws("Pow")
    maximum = _draws("Max")
    greater_equal = _draws("GreaterOrEqual")
    absolute = _draws("Abs")
    exp = _draws("Exp")
    log = _draws("Log")
    where = _draws("Where")

    def largest(self, a: str) -> str:
        return self._reduce("ReduceMax", a, since=18)

    def top(self, a: str, k: int) -> str:
        return self.node("TopK", a, self.store_integers(k), outputs=2, axis=1)

    def total(self, a: str) -> str:
        return self._reduce("ReduceSum", a, since=13)

    def mean(self, a: str) -> str:
        return self._reduce("ReduceMean", a, since=18)

    def _reduce(self, kind: str, a: str, *, since: int) -> str:
        """A reduction over the classes, whose axes are an input ``since`` that opset."""
        if self.opset >= since:
            return self.node(kind, a, self.store_integers(1), keepdims=1)
        return self.node(kind, a, axes=[1], keepdims=1)

    def columns(self, a: str, start: int, stop: int) -> str:
        return self.node("Slice", a, self.store_integers(start), self.store_integers(stop), self.store_integers(1))

    def matmul(self, a: str, weight: Doubles) -> str:
        return self.node("MatMul", a, self.constant(weight))

    def lookup(self, a: str, knots: Doubles, values: Doubles) -> str:
        # By bisection, so that the cost is log2(M) numbers for each a and not M: tables are padded to 2^steps entries
        # and laid one after the other, and cell is the place in them.
        tables, length = knots.shape
        steps = length.bit_length()
        size = 2**steps
        padded = np.full((tables, size), np.inf)
        padded[:, :length] = knots
        answers = np.concatenate([values, np.repeat(values[:, -1:], size - length - 1, axis=1)], axis=1)
        flat = self.constant(padded.reshape(-1))
        cell = self.store(np.arange(tables, dtype=np.int64) * size)
        if not steps:  # one value for all, but in the shape of a
            cell = self.where(self.greater_equal(a, a), cell, cell)
        for step in (2**k for k in reversed(range(steps))):
            probe = self.node("Gather", flat, self.node("Add", cell, self.store_integers(step - 1)))
            cell = self.where(self.greater_equal(a, probe), self.node("Add", cell, self.store_integers(step)), cell)
        return self.node("Gather", self.constant(answers.reshape(-1)), cell)

    def falling_totals(self, a: str) -> tuple[str, str]:
        falling = self.top(a, self.num_classes)  # equal values by rising index, as ONNX has it
        order, empty = f"{falling}_1", self.mul(a, self.constant(0.0))
        numbers = self.node("Expand", self.constant(np.arange(1.0, self.num_classes + 1)), self.node("Shape", a))
        totals = self.node("CumSum", falling, self.store(np.array(1, dtype=np.int64)))
        return (
            self.node("ScatterElements", empty, order, numbers, axis=1),
            self.node("ScatterElements", empty, order, totals, axis=1),
        )

    def predicted(self, a: str) -> str:
        return self.node("Equal", self.store_integers(*range(self.num_classes)), self.argmax(a))

    def argmax(self, a: str) -> str:
        return self.node("ArgMax", a, axis=1, keepdims=1)


def draw(policy: Policy, logits: str, rank: int, opset: int) -> OnnxOps:
    """Draw a policy behind the floating-point tensor ``logits`` of that rank, up to tensors named as in `OUTPUTS`.

    A policy with prediction sets has them as one more, `SET`.
    """
    ops = OnnxOps(opset, policy.num_classes)
    values = ops.cast(logits, "DOUBLE")
    rows, shape = values, ""
    if rank > 2:
        classes_last = ops.node("Transpose", values, perm=[0, *range(2, rank), 1])
        full = ops.node("Shape", classes_last)
        shape = ops.node("Slice", full, ops.store_integers(0), ops.store_integers(rank - 1), ops.store_integers(0))
        rows = ops.node("Reshape", classes_last, ops.store_integers(-1, policy.num_classes))
    group = None
    if policy.group_names is not None:
        group = ops.node("Unsqueeze", ops.cast(GROUP, "DOUBLE"), ops.store_integers(*range(1, max(2, rank - 1))))
        if rank > 2:
            group = ops.node("Reshape", ops.node("Expand", group, shape), ops.store_integers(-1, 1))
    answers = decision_formula(policy, ops, rows, group)

    def flatten(column: str, output: str | None = None) -> str:
        if rank > 2:
            return ops.node("Reshape", column, shape, output=output)
        return ops.node("Squeeze", column, ops.store_integers(1), output=output)

    flatten(answers.label, "label")
    ops.cast(flatten(answers.confidence), "FLOAT", output="confidence")
    flatten(answers.accept, "accept")
    spread = answers.probabilities
    if rank > 2:
        spread = ops.node("Reshape", spread, full)
        spread = ops.node("Transpose", spread, perm=[0, rank - 1, *range(1, rank - 1)])
    ops.cast(spread, "FLOAT", output="probabilities")
    if policy.sets is not None:  # which are for classification: rows are samples
        ops.node("Identity", policy.sets.members(ops, answers.probabilities), output=SET)
    return ops


def make_logits_graph(policy: Policy, opset: int) -> LogitsModel:
    """A graph of nothing but its input."""
    from onnx import TensorProto, helper

    # An output is called probabilities already.
    name = "logits" if policy.takes == "logits" else "model_probabilities"
    dims = ("N", policy.num_classes, *(("H", "W") if policy.kind == "segmentation" else ()))
    info = helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
    opsets = [helper.make_opsetid("", opset)]
    graph = helper.make_graph([], "policy", [info], [])
    model = helper.make_model(graph, opset_imports=opsets, ir_version=helper.find_min_ir_version_for(opsets))
    logits = TensorInfo(name, "FLOAT", dims)
    return LogitsModel(model, logits, (logits,), opset)


def interface(policy: Policy, source: LogitsModel, rank: int) -> tuple[tuple[TensorInfo, ...], tuple[TensorInfo, ...]]:
    """The inputs and outputs of the graph, with the dimensions that are known of the logits."""
    dims = source.logits.dims or (None,) * rank
    batch = dims[0] if dims[0] is not None else "N"
    flat, full = (batch, *dims[2:]), (batch, policy.num_classes, *dims[2:])
    kinds = (("INT64", flat), ("FLOAT", flat), ("BOOL", flat), ("FLOAT", full))
    outputs = (TensorInfo(name, *kind) for name, kind in zip(OUTPUTS, kinds, strict=True))
    group = () if policy.group_names is None else (TensorInfo(GROUP, "INT64", (batch,)),)
    sets = () if policy.sets is None else (TensorInfo(SET, "BOOL", full),)
    return (*source.inputs, *group), (*outputs, *sets)


def attach(policy: Policy, source: LogitsModel, rank: int) -> ModelProto:
    """The model's graph with the policy drawn behind its logits of that rank."""
    import onnx
    from onnx import helper

    from calibrant import __version__

    names = frozenset(value.name for value in source.inputs)
    inputs, outputs = interface(policy, source, rank)
    added = inputs[len(source.inputs) :]
    if reserved := names & {value.name for value in (*added, *outputs)}:
        raise ValueError(f"the model has an input {min(reserved)!r}, a name that the graph needs: rename the input")
    model = onnx.ModelProto()
    model.CopyFrom(source.model)
    _prefix(model.graph, "model/", names)
    logits = source.logits.name if source.logits.name in names else f"model/{source.logits.name}"
    ops = draw(policy, logits, rank, source.opset)
    model.graph.node.extend(ops.nodes)
    model.graph.initializer.extend(ops.constants)
    del model.graph.output[:]
    for values, side in ((added, model.graph.input), (outputs, model.graph.output)):
        for value in values:
            kind = onnx.TensorProto.DataType.Value(str(value.kind))
            side.append(helper.make_tensor_value_info(value.name, kind, value.dims, _DESCRIPTIONS[value.name]))
    prune(model.graph)  # of what gave the model's own label
    facts = {MARK: policy.summary, "calibrant.version": __version__, "calibrant.takes": policy.takes}
    if policy.sets is not None:
        facts["calibrant.sets"] = " ".join(policy.sets.sentences(policy.class_names))
    for key, texts in (("class_names", policy.class_names), ("group_names", policy.group_names)):
        if texts is not None:
            facts[f"calibrant.{key}"] = json.dumps(texts, ensure_ascii=False)
    helper.set_model_props(model, {**{entry.key: entry.value for entry in model.metadata_props}, **facts})
    if model.ByteSize() > LARGEST:
        raise ValueError("models over 2 GB cannot be extended: with the policy this one would be")
    try:
        check(model)
    except Exception as error:
        raise ValueError(f"the extended graph is not valid ONNX: {brief(error, 300)}") from None
    return model


def add_logits_output(model: ModelProto) -> ModelProto:
    """A graph with its policy that also gives its own logits, in float64, as its last output."""
    import onnx

    extended = onnx.ModelProto()
    extended.CopyFrom(model)
    cast = next(node for node in extended.graph.node if node.name.startswith(PREFIX))  # the policy's first node
    extended.graph.output.append(onnx.helper.make_tensor_value_info(cast.output[0], onnx.TensorProto.DOUBLE, None))
    return extended


def _prefix(graph: GraphProto, prefix: str, exceptions: frozenset[str]) -> None:
    """Put a prefix before every name but the exceptions, inside branches and loops too."""

    def rename(name: str) -> str:
        return name if not name or name in exceptions else prefix + name

    for node in graph.node:
        node.name = prefix + node.name if node.name else ""
        node.input[:] = [rename(name) for name in node.input]
        node.output[:] = [rename(name) for name in node.output]
        for inner in subgraphs(node):
            _prefix(inner, prefix, exceptions)
    for value in named_values(graph):
        value.name = rename(value.name)
    for note in graph.quantization_annotation:
        note.tensor_name = rename(note.tensor_name)
        for parameter in note.quant_parameter_tensor_names:
            parameter.value = rename(parameter.value)
