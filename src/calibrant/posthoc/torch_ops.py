"""`Ops` in PyTorch: the formulas of calibrators and scores as a part of a module."""

from __future__ import annotations

from calibrant._imports import needs_torch  # noqa: F401

# isort: split

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from calibrant.posthoc.ops import Doubles


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
