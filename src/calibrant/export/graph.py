"""`Ops` that draw: the formula of a policy as nodes of an ONNX graph, in float64 from opset 13 on.

What each operation means is documented in `calibrant.posthoc.Ops`.
"""
# ruff: noqa: D102

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from calibrant.selective import Policy, decision

if TYPE_CHECKING:
    from onnx import NodeProto, TensorProto

Doubles = npt.NDArray[np.float64]

OLDEST = 13
OUTPUTS = ("label", "confidence", "accept", "probabilities")
SET = "prediction_set"
GROUP = "group"
PREFIX = "policy/"


class OnnxOps:
    """`Ops` whose values are names of tensors; nodes and constants gather here, in the order they are needed.

    What is asked for twice is drawn once.

    Args:
        opset: of the graph; the axes of a reduction became an input in opset 18.
        num_classes: C.
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
        first = output or name
        names = [first, *(f"{name}_{i}" for i in range(1, outputs))]
        self.nodes.append(helper.make_node(kind, inputs, names, name=name, **attributes))
        self._names[key] = first
        return first

    def stored(self, values: npt.NDArray[Any]) -> str:
        """A constant of the type it comes in."""
        from onnx import numpy_helper

        values = np.ascontiguousarray(values).reshape(values.shape)
        key = (values.dtype.str, values.shape, values.tobytes())
        if key not in self._names:
            self._names[key] = f"{PREFIX}constant_{len(self.constants)}"
            self.constants.append(numpy_helper.from_array(values, self._names[key]))
        return self._names[key]

    def whole(self, *numbers: int) -> str:
        """Whole numbers ``[len(numbers)]``."""
        return self.stored(np.array(numbers, dtype=np.int64))

    def cast(self, a: str, to: str, *, output: str | None = None) -> str:
        """Another type, by its name in ONNX."""
        from onnx import TensorProto

        return self.node("Cast", a, output=output, to=TensorProto.DataType.Value(to))

    def constant(self, values: npt.ArrayLike) -> str:
        return self.stored(np.asarray(values, dtype=np.float64))

    def add(self, a: str, b: str) -> str:
        return self.node("Add", a, b)

    def sub(self, a: str, b: str) -> str:
        return self.node("Sub", a, b)

    def mul(self, a: str, b: str) -> str:
        return self.node("Mul", a, b)

    def div(self, a: str, b: str) -> str:
        return self.node("Div", a, b)

    def power(self, a: str, b: str) -> str:
        return self.node("Pow", a, b)

    def maximum(self, a: str, b: str) -> str:
        return self.node("Max", a, b)

    def absolute(self, a: str) -> str:
        return self.node("Abs", a)

    def exp(self, a: str) -> str:
        return self.node("Exp", a)

    def log(self, a: str) -> str:
        return self.node("Log", a)

    def where(self, condition: str, a: str, b: str) -> str:
        return self.node("Where", condition, a, b)

    def greater_equal(self, a: str, b: str) -> str:
        return self.node("GreaterOrEqual", a, b)

    def largest(self, a: str) -> str:
        return self._reduced("ReduceMax", a, since=18)

    def top(self, a: str, k: int) -> str:
        return self.node("TopK", a, self.whole(k), outputs=2, axis=1)

    def total(self, a: str) -> str:
        return self._reduced("ReduceSum", a, since=13)

    def mean(self, a: str) -> str:
        return self._reduced("ReduceMean", a, since=18)

    def _reduced(self, kind: str, a: str, *, since: int) -> str:
        if self.opset >= since:
            return self.node(kind, a, self.whole(1), keepdims=1)
        return self.node(kind, a, axes=[1], keepdims=1)

    def columns(self, a: str, start: int, stop: int) -> str:
        return self.node("Slice", a, self.whole(start), self.whole(stop), self.whole(1))

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
        cell = self.stored(np.arange(tables, dtype=np.int64) * size)
        if not steps:  # one value for all, but in the shape of a
            cell = self.where(self.greater_equal(a, a), cell, cell)
        for step in (2**k for k in reversed(range(steps))):
            probe = self.node("Gather", flat, self.node("Add", cell, self.whole(step - 1)))
            cell = self.where(self.greater_equal(a, probe), self.node("Add", cell, self.whole(step)), cell)
        return self.node("Gather", self.constant(answers.reshape(-1)), cell)

    def falling_totals(self, a: str) -> tuple[str, str]:
        falling = self.top(a, self.num_classes)  # equal values by rising index, as ONNX has it
        order, empty = f"{falling}_1", self.mul(a, self.constant(0.0))
        numbers = self.node("Expand", self.constant(np.arange(1.0, self.num_classes + 1)), self.node("Shape", a))
        totals = self.node("CumSum", falling, self.stored(np.array(1, dtype=np.int64)))
        return (
            self.node("ScatterElements", empty, order, numbers, axis=1),
            self.node("ScatterElements", empty, order, totals, axis=1),
        )

    def predicted(self, a: str) -> str:
        return self.node("Equal", self.whole(*range(self.num_classes)), self.argmax(a))

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
        last = ops.node("Transpose", values, perm=[0, *range(2, rank), 1])
        full = ops.node("Shape", last)
        shape = ops.node("Slice", full, ops.whole(0), ops.whole(rank - 1), ops.whole(0))
        rows = ops.node("Reshape", last, ops.whole(-1, policy.num_classes))
    group = None
    if policy.group_names is not None:
        group = ops.node("Unsqueeze", ops.cast(GROUP, "DOUBLE"), ops.whole(*range(1, max(2, rank - 1))))
        if rank > 2:
            group = ops.node("Reshape", ops.node("Expand", group, shape), ops.whole(-1, 1))
    answers = decision(policy, ops, rows, group)

    def flatten(column: str, output: str | None = None) -> str:
        if rank > 2:
            return ops.node("Reshape", column, shape, output=output)
        return ops.node("Squeeze", column, ops.whole(1), output=output)

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
