"""Checks of parameters and inputs: each error says what was asked, what came, and what is wrong."""

from __future__ import annotations

import math
import numbers

import torch
from torch import Tensor


def choice(parameter: str, value: str, options: tuple[str, ...]) -> str:
    """Return ``value`` if it is one of ``options``, else raise."""
    if value not in options:
        raise ValueError(f"{parameter} must be one of {', '.join(map(repr, options))}, got {value!r}")
    return value


def flag(parameter: str, value: bool) -> bool:
    """Return ``value`` if it is True or False, else raise."""
    if not isinstance(value, bool):
        raise ValueError(f"{parameter} must be True or False, got {value!r}")
    return value


def at_least(parameter: str, value: float, low: float, at_most: float = math.inf) -> float:
    """Return ``value`` if it is a finite number from ``low`` to ``at_most``, else raise."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ValueError(f"{parameter} must be a number, got {value!r}")
    if not low <= value <= at_most or math.isinf(value):
        bounds = f"finite and at least {low:g}" if at_most == math.inf else f"between {low:g} and {at_most:g}"
        raise ValueError(f"{parameter} must be {bounds}, got {value!r}")
    return float(value)


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


def kind(x: object) -> str:
    """What an argument is, for a message."""
    return f"a {x.dtype} tensor {list(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
