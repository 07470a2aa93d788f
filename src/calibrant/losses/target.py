"""A checked target, and the checks of a loss's arguments."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from calibrant._validation import short


class Target(NamedTuple):
    """A validated target: class labels or soft labels, and which positions count.

    Attributes:
        labels: ``[N, ...]`` int64 with ignored positions set to 0, or None when the target is soft.
        soft: ``[N, C, ...]`` target distribution, or None when the target is hard.
        valid: ``[N, ...]`` bool, or None when every position counts.
        correctness: what a method with a memory has stored for each position, ``[N, ...]``.
        alpha: per-sample smoothing for methods that take one, broadcastable to ``[N, ...]``.
    """

    labels: Tensor | None
    soft: Tensor | None = None
    valid: Tensor | None = None
    correctness: Tensor | None = None
    alpha: Tensor | None = None

    def size(self, z: Tensor) -> Tensor | int:
        """The number of positions that count, at least 1."""
        return z.numel() // z.shape[1] if self.valid is None else self.valid.sum().clamp(min=1)

    def at_label(self) -> Tensor:
        """The labels as an index for gather and scatter over the classes, ``[N, 1, ...]``."""
        assert self.labels is not None
        return self.labels.unsqueeze(1)

    def distribution(self, z: Tensor) -> Tensor:
        """The target distribution q, ``[N, C, ...]``: the soft labels, or one-hot rows."""
        if self.soft is not None:
            return self.soft
        return torch.zeros_like(z).scatter(1, self.at_label(), 1.0)  # not in place, for vmap


def check_class_weights(value: object) -> Tensor:
    """One finite, non-negative number per class as a tensor."""
    try:
        weight = torch.as_tensor(value)
        fits = weight.dim() == 1 and bool(((weight >= 0) & weight.isfinite()).all())
    except (TypeError, ValueError, RuntimeError, OverflowError):  # whatever is not an array of real numbers
        fits = False
    if not fits:
        raise ValueError(f"weight must be one finite, non-negative number per class, got {short(value)}")
    return weight


def check_ignore_index(value: object) -> int:
    """A whole number that a label can have."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"ignore_index must be a whole number, got {short(value)}")
    if not -(2**63) <= value < 2**63:
        raise ValueError(f"ignore_index must be a whole number of 64 bits, got {short(value)}")
    return value


def is_transforming() -> bool:
    """Whether a torch.func transform (vmap, grad, ...) is active; torch has no public function for this."""
    return bool(torch._C._are_functorch_transforms_active())


def can_read_values(x: Tensor) -> bool:
    """Whether reading values is possible and cheap: in eager mode on the CPU (elsewhere it stalls the device)."""
    plain = type(x) in (Tensor, torch.nn.Parameter) and x.device.type == "cpu"
    return plain and not torch.compiler.is_compiling() and not is_transforming()


def check_all_finite(name: str, argument: str, x: Tensor) -> None:
    """Raise if a value is NaN or infinite, naming the first."""
    # One sum is ten times cheaper than isfinite().all(), and is finite only if every entry is; a finite array whose
    # sum overflows is cleared by the second look.
    if math.isfinite(float(x.detach().sum())):
        return
    bad = ~torch.isfinite(x)
    if bad.any():
        position = bad.nonzero()[0].tolist()
        raise ValueError(f"{name} takes finite {argument}, got {x[tuple(position)].item()} at position {position}")


def check_distributions(name: str, soft: Tensor) -> None:
    """Raise unless soft targets ``[N, C, ...]`` are finite, not negative, and sum to 1 over the classes."""
    q = soft.detach()
    half = q.dtype in (torch.float16, torch.bfloat16)
    errors = (q.sum(1, dtype=torch.float32 if half else q.dtype) - 1).abs_()
    low, worst = float(q.min()), float(errors.max())
    if low >= 0 and worst <= (1e-2 if half else 1e-3):  # false for NaN
        return
    check_all_finite(name, "soft targets", q)
    takes = f"{name} takes soft targets that are not negative and sum to 1 over the classes (dimension 1)"
    if low < 0:
        raise ValueError(f"{takes}, got {low:g}")
    position = [int(i) for i in torch.unravel_index(errors.argmax(), errors.shape)]
    total = float(q.select(0, position[0]).sum(0, dtype=errors.dtype)[tuple(position[1:])])
    hint = " (several classes at once are not supported)" if total > 1 and bool(((q == 0) | (q == 1)).all()) else ""
    raise ValueError(f"{takes}, got a sum of {total:g} at position {position}{hint}")


def type_words(x: object) -> str:
    """What an argument is, for a message."""
    return f"a {x.dtype} tensor {list(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
