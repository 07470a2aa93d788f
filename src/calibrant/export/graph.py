"""`Ops` that draw: the formula of a policy as nodes of an ONNX graph, in float64 from opset 13 on."""

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
        self._drawn: dict[Any, str] = {}

    def node(self, kind: str, *inputs: str, output: str | None = None, outputs: int = 1, **attributes: Any) -> str:
        """Draw a node and give the name of its first output."""
        from onnx import helper

        key = (kind, inputs, tuple(sorted((k, str(v)) for k, v in attributes.items())))
        if output is None and key in self._drawn:
            return self._drawn[key]
        name = f"{PREFIX}{kind}_{len(self.nodes)}"
        first = output or name
        names = [first, *(f"{name}_{i}" for i in range(1, outputs))]
        self.nodes.append(helper.make_node(kind, inputs, names, name=name, **attributes))
        self._drawn[key] = first
        return first

    def held(self, values: npt.NDArray[Any]) -> str:
        """A constant of the type it comes in."""
        from onnx import numpy_helper

        values = np.ascontiguousarray(values).reshape(values.shape)
        key = (values.dtype.str, values.shape, values.tobytes())
        if key not in self._drawn:
            self._drawn[key] = f"{PREFIX}constant_{len(self.constants)}"
            self.constants.append(numpy_helper.from_array(values, self._drawn[key]))
        return self._drawn[key]

    def whole(self, *numbers: int) -> str:
        """Whole numbers ``[len(numbers)]``."""
        return self.held(np.array(numbers, dtype=np.int64))

    def cast(self, a: str, to: str, *, output: str | None = None) -> str:
        """Another type, by its name in ONNX."""
        from onnx import TensorProto

        return self.node("Cast", a, output=output, to=TensorProto.DataType.Value(to))

    # ------------------------------------------------------------------ Ops

    def constant(self, values: npt.ArrayLike) -> str:
        """A float64 constant."""
        return self.held(np.asarray(values, dtype=np.float64))

    def add(self, a: str, b: str) -> str:
        """a + b."""
        return self.node("Add", a, b)

    def sub(self, a: str, b: str) -> str:
        """a - b."""
        return self.node("Sub", a, b)

    def mul(self, a: str, b: str) -> str:
        """a b."""
        return self.node("Mul", a, b)

    def div(self, a: str, b: str) -> str:
        """a / b."""
        return self.node("Div", a, b)

    def power(self, a: str, b: str) -> str:
        """a to the b."""
        return self.node("Pow", a, b)

    def maximum(self, a: str, b: str) -> str:
        """The larger of two."""
        return self.node("Max", a, b)

    def absolute(self, a: str) -> str:
        """|a|."""
        return self.node("Abs", a)

    def exp(self, a: str) -> str:
        """The exponential."""
        return self.node("Exp", a)

    def log(self, a: str) -> str:
        """The natural logarithm."""
        return self.node("Log", a)

    def where(self, condition: str, a: str, b: str) -> str:
        """a where the condition holds, else b."""
        return self.node("Where", condition, a, b)

    def greater_equal(self, a: str, b: str) -> str:
        """Whether a >= b."""
        return self.node("GreaterOrEqual", a, b)

    def largest(self, a: str) -> str:
        """The largest over the classes."""
        return self._reduced("ReduceMax", a, since=18)

    def top(self, a: str, k: int) -> str:
        """The k largest over the classes, falling."""
        return self.node("TopK", a, self.whole(k), outputs=2, axis=1)

    def total(self, a: str) -> str:
        """The sum over the classes."""
        return self._reduced("ReduceSum", a, since=13)

    def mean(self, a: str) -> str:
        """The mean over the classes."""
        return self._reduced("ReduceMean", a, since=18)

    def _reduced(self, kind: str, a: str, *, since: int) -> str:
        if self.opset >= since:
            return self.node(kind, a, self.whole(1), keepdims=1)
        return self.node(kind, a, axes=[1], keepdims=1)

    def columns(self, a: str, start: int, stop: int) -> str:
        """Some of the columns."""
        return self.node("Slice", a, self.whole(start), self.whole(stop), self.whole(1))

    def matmul(self, a: str, weight: Doubles) -> str:
        """a times a matrix."""
        return self.node("MatMul", a, self.constant(weight))

    def lookup(self, a: str, knots: Doubles, values: Doubles) -> str:
        """The value after as many knots as are at most a, of each column's own table.

        By bisection, so that the cost is log2(M) numbers for each a and not M: tables are padded to 2^steps entries,
        laid one after the other, and ``at`` is the place in them.
        """
        tables, length = knots.shape
        steps = length.bit_length()
        size = 2**steps
        padded = np.full((tables, size), np.inf)
        padded[:, :length] = knots
        answers = np.concatenate([values, np.repeat(values[:, -1:], size - length - 1, axis=1)], axis=1)
        flat = self.constant(padded.reshape(-1))
        at = self.held(np.arange(tables, dtype=np.int64) * size)
        if not steps:  # one value for all, but in the shape of a
            at = self.where(self.greater_equal(a, a), at, at)
        for step in (2**k for k in reversed(range(steps))):
            probe = self.node("Gather", flat, self.node("Add", at, self.whole(step - 1)))
            at = self.where(self.greater_equal(a, probe), self.node("Add", at, self.whole(step)), at)
        return self.node("Gather", self.constant(answers.reshape(-1)), at)

    def predicted(self, a: str) -> str:
        """Whether a class is the first of the largest."""
        return self.node("Equal", self.whole(*range(self.num_classes)), self.argmax(a))

    def argmax(self, a: str) -> str:
        """The first of the largest classes."""
        return self.node("ArgMax", a, axis=1, keepdims=1)


def draw(policy: Policy, logits: str, rank: int, opset: int) -> OnnxOps:
    """Draw a policy behind the tensor ``logits``, up to tensors with the names of `OUTPUTS`.

    Args:
        policy: what to draw.
        logits: ``[N, C]`` or, for segmentation, ``[N, C, ...]``, of any floating-point type.
        rank: how many dimensions they have.
        opset: of the graph.
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
    found = decision(policy, ops, rows, group)

    columns = {"label": found.label, "confidence": found.confidence, "accept": found.accept}
    for name, column in columns.items():
        wanted = name if name != "confidence" else None
        flat = (
            ops.node("Reshape", column, shape, output=wanted)
            if rank > 2
            else ops.node("Squeeze", column, ops.whole(1), output=wanted)
        )
        if name == "confidence":
            ops.cast(flat, "FLOAT", output=name)
    spread = found.probabilities
    if rank > 2:
        spread = ops.node("Reshape", spread, full)
        spread = ops.node("Transpose", spread, perm=[0, rank - 1, *range(1, rank - 1)])
    ops.cast(spread, "FLOAT", output="probabilities")
    return ops
