"""Checks of parameters and inputs: each error says what was asked, what came, and what is wrong."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from calibrant._validation import short


def class_weights(value: object) -> Tensor:
    """One finite, non-negative number per class as a tensor."""
    try:
        weight = torch.as_tensor(value)
        fits = weight.dim() == 1 and bool(((weight >= 0) & weight.isfinite()).all())
    except (TypeError, ValueError, RuntimeError, OverflowError):  # whatever is no array of real numbers
        fits = False
    if not fits:
        raise ValueError(f"weight must be one finite, non-negative number per class, got {short(value)}")
    return weight


def label_index(parameter: str, value: object) -> int:
    """A whole number that a label can have."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{parameter} must be a whole number, got {short(value)}")
    if not -(2**63) <= value < 2**63:
        raise ValueError(f"{parameter} must be a whole number of 64 bits, got {short(value)}")
    return value


def transforming() -> bool:
    """Whether a torch.func transform (vmap, grad, ...) is active; torch has no public question for that."""
    return bool(torch._C._are_functorch_transforms_active())


def values_visible(x: Tensor) -> bool:
    """Whether looking at values is cheap and possible: in eager mode on the CPU (elsewhere it stalls the device)."""
    plain = type(x) in (Tensor, torch.nn.Parameter) and x.device.type == "cpu"
    return plain and not torch.compiler.is_compiling() and not transforming()


def require_finite(name: str, what: str, x: Tensor) -> None:
    """Raise if a value is NaN or infinite, naming the first."""
    # One sum is ten times cheaper than isfinite().all(), and is finite only if every entry is; a finite array whose
    # sum overflows is cleared by the second look.
    if math.isfinite(float(x.detach().sum())):
        return
    bad = ~torch.isfinite(x)
    if bad.any():
        where = bad.nonzero()[0].tolist()
        raise ValueError(f"{name} takes finite {what}, got {x[tuple(where)].item()} at position {where}")


def type_words(x: object) -> str:
    """What an argument is, for a message."""
    return f"a {x.dtype} tensor {list(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
