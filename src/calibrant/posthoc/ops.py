"""The few operations that calibrators and scores are written in, so that each formula is typed once.

A formula takes `Ops` and values ``[n, C]`` and says what is done to them. Run with `TorchOps` it computes, in float64;
run with the export's own `Ops` it draws the same formula into an ONNX graph.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

V = TypeVar("V")
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


class TorchOps:
    """`Ops` computed by PyTorch in float64 on one device."""

    def __init__(self, device: torch.device | None = None) -> None:
        self.device = device

    def constant(self, values: npt.ArrayLike) -> Tensor:
        """A float64 tensor."""
        return torch.tensor(np.asarray(values, dtype=np.float64), device=self.device)

    def add(self, a: Tensor, b: Tensor) -> Tensor:
        """a + b."""
        return a + b

    def sub(self, a: Tensor, b: Tensor) -> Tensor:
        """a - b."""
        return a - b

    def mul(self, a: Tensor, b: Tensor) -> Tensor:
        """a b."""
        return a * b

    def div(self, a: Tensor, b: Tensor) -> Tensor:
        """a / b."""
        return a / b

    def power(self, a: Tensor, b: Tensor) -> Tensor:
        """a to the b."""
        return a.pow(b)

    def maximum(self, a: Tensor, b: Tensor) -> Tensor:
        """The larger of two."""
        return torch.maximum(a, b)

    def absolute(self, a: Tensor) -> Tensor:
        """|a|."""
        return a.abs()

    def exp(self, a: Tensor) -> Tensor:
        """The exponential."""
        return a.exp()

    def log(self, a: Tensor) -> Tensor:
        """The natural logarithm."""
        return a.log()

    def where(self, condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
        """a where the condition holds, else b."""
        return torch.where(condition, a, b)

    def greater_equal(self, a: Tensor, b: Tensor) -> Tensor:
        """Whether a >= b."""
        return a >= b

    def largest(self, a: Tensor) -> Tensor:
        """The largest over the classes."""
        return a.amax(1, keepdim=True)

    def top(self, a: Tensor, k: int) -> Tensor:
        """The k largest over the classes, falling."""
        return a.topk(k, dim=1).values

    def total(self, a: Tensor) -> Tensor:
        """The sum over the classes."""
        return a.sum(1, keepdim=True)

    def mean(self, a: Tensor) -> Tensor:
        """The mean over the classes."""
        return a.mean(1, keepdim=True)

    def columns(self, a: Tensor, start: int, stop: int) -> Tensor:
        """Some of the columns."""
        return a[:, start:stop]

    def matmul(self, a: Tensor, weight: Doubles) -> Tensor:
        """a times a matrix."""
        return a @ self.constant(weight)

    def lookup(self, a: Tensor, knots: Doubles, values: Doubles) -> Tensor:
        """The value after as many knots as are at most a, of each column's own table."""
        index = torch.searchsorted(self.constant(knots), a.mT.contiguous(), right=True)
        return self.constant(values).gather(1, index).mT

    def predicted(self, a: Tensor) -> Tensor:
        """Whether a class is the first of the largest."""
        return torch.arange(a.shape[1], device=a.device) == a.argmax(1, keepdim=True)

    def argmax(self, a: Tensor) -> Tensor:
        """The first of the largest classes."""
        return a.argmax(1, keepdim=True)


def softmax(ops: Ops[V], z: V) -> V:
    """Probabilities of logits."""
    exps = ops.exp(ops.sub(z, ops.largest(z)))
    return ops.div(exps, ops.total(exps))


def log_softmax(ops: Ops[V], z: V) -> V:
    """Logarithms of the probabilities of logits."""
    shifted = ops.sub(z, ops.largest(z))
    return ops.sub(shifted, ops.log(ops.total(ops.exp(shifted))))
