"""The few operations that calibrators and scores are written in, so that each formula is typed once.

A formula takes `Ops` and values ``[n, C]`` and says what is done to them. Run with `NumpyOps` it computes in float64,
with `TorchOps` it is part of a PyTorch module, and with the export's own `Ops` it becomes nodes of an ONNX graph.
`Ops` documents every operation once, for all three.
"""
# ruff: noqa: D102

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from calibrant.base.arrays import Array, Doubles

if TYPE_CHECKING:
    import torch
    from torch import Tensor

V = TypeVar("V")


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

    def falling_totals(self, a: V) -> tuple[V, V]:
        """The position of each class when they fall, from 1, and the total of all down to it, ``[n, C]`` both.

        Equal classes keep the order of their columns.
        """

    def predicted(self, a: V) -> V:
        """Whether a class is the first of the largest: a mask ``[n, C]``."""

    def argmax(self, a: V) -> V:
        """The first of the largest classes, ``[n, 1]`` int64."""


class _ArrayOps:
    """What NumPy and PyTorch, the module ``xp``, write alike."""

    xp: Any

    def add(self, a: Any, b: Any) -> Any:
        return a + b

    def sub(self, a: Any, b: Any) -> Any:
        return a - b

    def mul(self, a: Any, b: Any) -> Any:
        return a * b

    def div(self, a: Any, b: Any) -> Any:
        return a / b

    def maximum(self, a: Any, b: Any) -> Any:
        return self.xp.maximum(a, b)

    def absolute(self, a: Any) -> Any:
        return abs(a)

    def exp(self, a: Any) -> Any:
        return self.xp.exp(a)

    def where(self, condition: Any, a: Any, b: Any) -> Any:
        return self.xp.where(condition, a, b)

    def greater_equal(self, a: Any, b: Any) -> Any:
        return a >= b

    def largest(self, a: Any) -> Any:
        return self.xp.amax(a, 1, keepdims=True)

    def total(self, a: Any) -> Any:
        return a.sum(1, keepdims=True)

    def mean(self, a: Any) -> Any:
        return a.mean(1, keepdims=True)

    def columns(self, a: Any, start: int, stop: int) -> Any:
        return a[:, start:stop]

    def argmax(self, a: Any) -> Any:
        return a.argmax(1, keepdims=True)


class NumpyOps(_ArrayOps):
    """`Ops` computed by NumPy in float64."""

    xp = np

    def constant(self, values: npt.ArrayLike) -> Doubles:
        return np.asarray(values, dtype=np.float64)

    def power(self, a: Doubles, b: Doubles) -> Doubles:
        return np.power(a, b)

    def log(self, a: Doubles) -> Doubles:
        with np.errstate(divide="ignore"):
            return np.log(a)

    def top(self, a: Doubles, k: int) -> Doubles:
        return -np.sort(np.partition(-a, k - 1, axis=1)[:, :k], axis=1)

    def matmul(self, a: Doubles, weight: Doubles) -> Doubles:
        return a @ weight

    def lookup(self, a: Doubles, knots: Doubles, values: Doubles) -> Doubles:
        tables = zip(a.T, knots, values, strict=True)
        return np.stack([row[np.searchsorted(steps, x, side="right")] for x, steps, row in tables], 1)

    def falling_totals(self, a: Doubles) -> tuple[Doubles, Doubles]:
        order = np.argsort(-a, axis=1, kind="stable")
        position, totals = np.empty_like(a), np.empty_like(a)
        np.put_along_axis(position, order, np.arange(1.0, a.shape[1] + 1)[None], 1)
        np.put_along_axis(totals, order, np.take_along_axis(a, order, 1).cumsum(1), 1)
        return position, totals

    def predicted(self, a: Doubles) -> Array:
        return np.arange(a.shape[1]) == self.argmax(a)


class TorchOps(_ArrayOps):
    """`Ops` computed by PyTorch in float64 on one device."""

    def __init__(self, device: torch.device | None = None) -> None:
        import torch

        self.xp, self.device = torch, device

    def constant(self, values: npt.ArrayLike) -> Tensor:
        return self.xp.tensor(np.asarray(values, dtype=np.float64), device=self.device)

    def power(self, a: Tensor, b: Tensor) -> Tensor:
        return a.pow(b)

    def log(self, a: Tensor) -> Tensor:
        return a.log()

    def top(self, a: Tensor, k: int) -> Tensor:
        return a.topk(k, dim=1).values

    def matmul(self, a: Tensor, weight: Doubles) -> Tensor:
        return a @ self.constant(weight)

    def lookup(self, a: Tensor, knots: Doubles, values: Doubles) -> Tensor:
        index = self.xp.searchsorted(self.constant(knots), a.mT.contiguous(), right=True)
        return self.constant(values).gather(1, index).mT

    def falling_totals(self, a: Tensor) -> tuple[Tensor, Tensor]:
        falling, order = a.sort(dim=1, descending=True, stable=True)
        numbers = self.xp.arange(1, a.shape[1] + 1, device=a.device, dtype=a.dtype).expand_as(a)
        empty = self.xp.zeros_like(a)
        return empty.scatter(1, order, numbers), empty.scatter(1, order, falling.cumsum(1))

    def predicted(self, a: Tensor) -> Tensor:
        return self.xp.arange(a.shape[1], device=a.device) == self.argmax(a)


def softmax(ops: Ops[V], z: V) -> V:
    """Probabilities of logits."""
    exps = ops.exp(ops.sub(z, ops.largest(z)))
    return ops.div(exps, ops.total(exps))


def log_softmax(ops: Ops[V], z: V) -> V:
    """Logarithms of the probabilities of logits."""
    shifted = ops.sub(z, ops.largest(z))
    return ops.sub(shifted, ops.log(ops.total(ops.exp(shifted))))
