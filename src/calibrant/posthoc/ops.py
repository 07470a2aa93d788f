"""The few operations that calibrators and scores are written in, so that each formula is typed once.

A formula takes `Ops` and values ``[n, C]`` and says what is done to them. Run with `NumpyOps` it computes, in float64;
with `torch_ops.TorchOps` it is part of a PyTorch module; with the export's own `Ops` it is drawn into an ONNX graph.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

V = TypeVar("V")
Array = npt.NDArray[Any]
Doubles = npt.NDArray[np.float64]


class Ops(Protocol[V]):
    """Operations on values of shape ``[n, C]`` or, after a reduction over the classes, ``[n, 1]``; both broadcast."""

    def constant(self, values: npt.ArrayLike) -> V:
        """A float64 constant; ``[C]`` and ``[]`` broadcast over the rows."""

    def add(self, a: V, b: V) -> V:
        """a + b."""

    def sub(self, a: V, b: V) -> V:
        """a - b."""

    def mul(self, a: V, b: V) -> V:
        """a b."""

    def div(self, a: V, b: V) -> V:
        """a / b."""

    def power(self, a: V, b: V) -> V:
        """a to the b, of numbers that are not negative."""

    def maximum(self, a: V, b: V) -> V:
        """The larger of two."""

    def absolute(self, a: V) -> V:
        """|a|."""

    def exp(self, a: V) -> V:
        """The exponential."""

    def log(self, a: V) -> V:
        """The natural logarithm."""

    def where(self, condition: V, a: V, b: V) -> V:
        """a where the condition holds, else b."""

    def greater_equal(self, a: V, b: V) -> V:
        """Whether a >= b."""

    def largest(self, a: V) -> V:
        """The largest over the classes, ``[n, 1]``."""

    def top(self, a: V, k: int) -> V:
        """The k largest over the classes, falling, ``[n, k]``."""

    def total(self, a: V) -> V:
        """The sum over the classes, ``[n, 1]``."""

    def mean(self, a: V) -> V:
        """The mean over the classes, ``[n, 1]``."""

    def columns(self, a: V, start: int, stop: int) -> V:
        """Some of the columns."""

    def matmul(self, a: V, weight: Doubles) -> V:
        """a times a matrix ``[C, D]``."""

    def lookup(self, a: V, knots: Doubles, values: Doubles) -> V:
        """For each column its own table: ``values[d, i]`` where i of the ``knots[d]`` are at most a, ``[n, D]``.

        Knots ``[D, M]`` rise, with infinity at the end of shorter tables; values are ``[D, M + 1]``.
        """

    def predicted(self, a: V) -> V:
        """Whether a class is the first of the largest: a mask ``[n, C]``."""

    def argmax(self, a: V) -> V:
        """The first of the largest classes, ``[n, 1]`` int64."""


class NumpyOps:
    """`Ops` computed by NumPy in float64."""

    def constant(self, values: npt.ArrayLike) -> Doubles:
        """A float64 array."""
        return np.asarray(values, dtype=np.float64)

    def add(self, a: Doubles, b: Doubles) -> Doubles:
        """a + b."""
        return a + b

    def sub(self, a: Doubles, b: Doubles) -> Doubles:
        """a - b."""
        return a - b

    def mul(self, a: Doubles, b: Doubles) -> Doubles:
        """a b."""
        return a * b

    def div(self, a: Doubles, b: Doubles) -> Doubles:
        """a / b."""
        return a / b

    def power(self, a: Doubles, b: Doubles) -> Doubles:
        """a to the b."""
        return np.power(a, b)

    def maximum(self, a: Doubles, b: Doubles) -> Doubles:
        """The larger of two."""
        return np.maximum(a, b)

    def absolute(self, a: Doubles) -> Doubles:
        """|a|."""
        return np.abs(a)

    def exp(self, a: Doubles) -> Doubles:
        """The exponential."""
        return np.exp(a)

    def log(self, a: Doubles) -> Doubles:
        """The natural logarithm."""
        with np.errstate(divide="ignore"):
            return np.log(a)

    def where(self, condition: Array, a: Doubles, b: Doubles) -> Doubles:
        """a where the condition holds, else b."""
        return np.where(condition, a, b)

    def greater_equal(self, a: Doubles, b: Doubles) -> Array:
        """Whether a >= b."""
        return a >= b

    def largest(self, a: Doubles) -> Doubles:
        """The largest over the classes."""
        return a.max(1, keepdims=True)

    def top(self, a: Doubles, k: int) -> Doubles:
        """The k largest over the classes, falling."""
        return -np.sort(np.partition(-a, k - 1, axis=1)[:, :k], axis=1)

    def total(self, a: Doubles) -> Doubles:
        """The sum over the classes."""
        return a.sum(1, keepdims=True)

    def mean(self, a: Doubles) -> Doubles:
        """The mean over the classes."""
        return a.mean(1, keepdims=True)

    def columns(self, a: Doubles, start: int, stop: int) -> Doubles:
        """Some of the columns."""
        return a[:, start:stop]

    def matmul(self, a: Doubles, weight: Doubles) -> Doubles:
        """a times a matrix."""
        return a @ weight

    def lookup(self, a: Doubles, knots: Doubles, values: Doubles) -> Doubles:
        """The value after as many knots as are at most a, of each column's own table."""
        columns = [
            row[np.searchsorted(steps, x, side="right")] for x, steps, row in zip(a.T, knots, values, strict=True)
        ]
        return np.stack(columns, 1)

    def predicted(self, a: Doubles) -> Array:
        """Whether a class is the first of the largest."""
        return np.arange(a.shape[1]) == a.argmax(1, keepdims=True)

    def argmax(self, a: Doubles) -> Array:
        """The first of the largest classes."""
        return a.argmax(1, keepdims=True)


def softmax(ops: Ops[V], z: V) -> V:
    """Probabilities of logits."""
    exps = ops.exp(ops.sub(z, ops.largest(z)))
    return ops.div(exps, ops.total(exps))


def log_softmax(ops: Ops[V], z: V) -> V:
    """Logarithms of the probabilities of logits."""
    shifted = ops.sub(z, ops.largest(z))
    return ops.sub(shifted, ops.log(ops.total(ops.exp(shifted))))
