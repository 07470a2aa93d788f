"""What the calibrators share: checked logits and labels."""

from __future__ import annotations

import torch
from torch import Tensor


def as_logits(logits: Tensor) -> Tensor:
    """Check that logits are ``[N, C]`` and finite; at least float32."""
    z = torch.as_tensor(logits).detach()
    if not z.is_floating_point() or z.dim() != 2 or not len(z) or z.shape[1] < 2:
        raise ValueError(f"logits must be floating point [N, C] with N >= 1 and C >= 2, got {z.dtype} {list(z.shape)}")
    z = z if z.dtype in (torch.float32, torch.float64) else z.float()
    low, high = (float(v) for v in z.aminmax())
    if not (abs(low) < float("inf") and abs(high) < float("inf")):
        raise ValueError("logits must be finite, got NaN or infinity")
    return z


def as_pair(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Check logits ``[N, C]`` and labels ``[N]``."""
    z, y = as_logits(logits), torch.as_tensor(labels).detach()
    if y.shape != z.shape[:1] or y.is_floating_point() or y.dtype == torch.bool:
        raise ValueError(f"labels must be whole numbers [{len(z)}], got {y.dtype} {list(y.shape)}")
    y = y.long()
    if int(y.min()) < 0 or int(y.max()) >= z.shape[1]:
        raise ValueError(f"labels must lie in 0..{z.shape[1] - 1}, got {int(y.min())}..{int(y.max())}")
    return z, y
