"""Targets of training: hard, uniform and objectness-adaptive soft labels; mixed labels.

Adaptive label smoothing [ALS], Eq. 5 and the text after it, for a sample of class y of which the object fills the
share o:

    target_y = beta o + (1 - beta)        target_k = beta (1 - o) / (K - 1)  for k != y

    paper: alpha = 1 - o; pi(k|x) = hard label; beta = beta

Departures: none. (Eq. 6, the loss, has a wrong sign in print; the targets above are right.) An image from which all
objects were removed gets 1/K for every class, whatever beta (ALS, section 4.1).
"""

from __future__ import annotations

from calibrant.base.extras import needs_torch  # noqa: F401

# isort: split

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from calibrant.base.checks import check_integer, check_number
from calibrant.data import Boxes, Mixed, View, objectness

__all__ = ["adaptive_targets", "hard_targets", "mixed_adaptive_targets", "objectness", "uniform_targets"]


def hard_targets(labels: Any, num_classes: int) -> Tensor:
    """One-hot targets; a label of -1 (none of the classes) gives 1/K for every class.

    Example:
        >>> hard_targets([1, -1], 4).tolist()
        [[0.0, 1.0, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25]]
    """
    return adaptive_targets(labels, 1.0, num_classes)


def uniform_targets(number: int, num_classes: int, *, device: torch.device | None = None) -> Tensor:
    """1/K for every class: the target of images without objects.

    Example:
        >>> uniform_targets(2, 4).tolist()
        [[0.25, 0.25, 0.25, 0.25], [0.25, 0.25, 0.25, 0.25]]
    """
    check_integer("number", number, 0)
    return torch.full((number, check_integer("num_classes", num_classes, 1)), 1.0 / num_classes, device=device)


def adaptive_targets(
    labels: Any,
    objectness: Any,
    num_classes: int,
    beta: float = 1.0,
    *,
    context: Any = None,
    unknown: Literal["refuse", "hard"] = "refuse",
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Targets smoothed by how much of each crop the object fills.

    Args:
        labels: [N] ints in 0..K-1; -1 for samples of none of the classes, whose target is uniform.
        objectness: [N] in 0..1, or one number for all.
        num_classes: K, at least 2.
        beta: 1 smooths by objectness alone, 0 gives hard labels.
        context: [N] bool: samples from which all objects were removed; their target is uniform.
        unknown: How NaN objectness (a sample without annotation) is treated: as an error, or with a hard label.
        dtype: Of the result; that of ``objectness`` if it is a floating tensor, else float32.

    Returns:
        [N, K], each row sums to 1, on the device of ``labels``.

    Example:
        >>> adaptive_targets([2, 0], [0.7, 0.1], 4).tolist()
        [[0.1, 0.1, 0.7, 0.1], [0.1, 0.3, 0.3, 0.3]]
        >>> adaptive_targets([2, 0], [0.7, 0.1], 4, beta=0.5, context=[False, True]).tolist()
        [[0.05, 0.05, 0.85, 0.05], [0.25, 0.25, 0.25, 0.25]]

    Reference:
        [ALS], Eq. 5.
    """
    y = _labels(labels, num_classes)
    check_number("beta", beta, 0, 1)
    if dtype is None:
        floating = isinstance(objectness, Tensor) and objectness.is_floating_point()
        dtype = objectness.dtype if floating else torch.float32
    if not dtype.is_floating_point:
        raise ValueError(f"dtype must be a floating-point type, got {dtype}")
    share = _shares(objectness, y, hard=unknown == "hard")
    label_share = (beta * share + (1.0 - beta)).expand(y.shape)
    targets = ((1.0 - label_share) / (num_classes - 1))[:, None].repeat(1, num_classes)
    targets.scatter_(1, y.clamp(min=0)[:, None], label_share[:, None])
    empty = y < 0
    if context is not None:
        flags = torch.as_tensor(context, device=y.device)
        if flags.shape != y.shape or flags.dtype != torch.bool:
            raise ValueError(f"context must be bool [{len(y)}], got {flags.dtype} {list(flags.shape)}")
        empty = empty | flags
    targets[empty] = 1.0 / num_classes
    return targets.to(dtype)


def _labels(labels: Any, num_classes: int) -> Tensor:
    y = torch.as_tensor(labels)
    if y.ndim != 1 or (y.numel() and (y.is_floating_point() or y.dtype == torch.bool)):
        raise ValueError(f"labels must be integers [N], got {y.dtype} of shape {list(y.shape)}")
    check_integer("num_classes", num_classes, 2)
    if y.numel() and not (y.min() >= -1 and y.max() < num_classes):
        raise ValueError(f"labels must be in 0..{num_classes - 1} (or -1), got {y.min()}..{y.max()}")
    return y.long()


def _shares(objectness: Any, y: Tensor, hard: bool) -> Tensor:
    """Objectness in double precision (where the device has it), checked."""
    precision = torch.float32 if y.device.type == "mps" else torch.float64
    share = torch.as_tensor(objectness, dtype=precision, device=y.device)
    if share.shape not in (y.shape, torch.Size([])):
        raise ValueError(f"objectness must be one number or [{len(y)}], as there are labels, got {list(share.shape)}")
    if hard:
        share = torch.where(share.isnan(), 1.0, share)
    # A share in single precision may pass 1 by a rounding error.
    if not bool(((share >= 0) & (share <= 1 + 1e-6)).all()):
        raise ValueError("objectness must be between 0 and 1, got a value outside or NaN")
    return share.clamp(max=1.0)


def mixed_adaptive_targets(
    mixed: Mixed,
    labels: Any,
    boxes: Boxes,
    views: Sequence[View],
    num_classes: int,
    beta: float = 1.0,
    *,
    context: Any = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """ALS with CutMix, RICAP or Mixup: each part is smoothed by how much of *it* an object fills.

    A mixed image consists of parts p with shares s_p of its area. Part p shows a rectangle of another sample's view
    (with CutMix, or all but a rectangle), in which that sample's objects fill o_p. Its target is

        sum over p of s_p adaptive_targets(y_p, o_p)

    so that an object that was pasted over does not count, and a single part gives Eq. 5. Objectness is that of the
    union of the boxes. ``mixed.targets(adaptive_targets(...))`` instead mixes the targets of whole images by area.

    Args:
        mixed: From `calibrant.data.mixing`.
        labels: [N], of the samples before mixing.
        boxes: The boxes of these samples, in pixels of their images.
        views: The view of each sample.
        num_classes: K.
        beta: As for `adaptive_targets`.
        context: As for `adaptive_targets`.
        dtype: Of the result, float32 if None.

    Example:
        >>> import numpy as np
        >>> from calibrant.data import Boxes, Mixup, View
        >>> mixed = Mixup()(torch.zeros(2, 3, 8, 8), np.random.default_rng(0))
        >>> boxes = Boxes.of([[[0, 0, 8, 4]], [[0, 0, 8, 8]]])  # half and all of the image
        >>> targets = mixed_adaptive_targets(mixed, [0, 1], boxes, [View.whole(8, 8)] * 2, 3)
        >>> targets.sum(1).tolist()
        [1.0, 1.0]
    """
    y = torch.as_tensor(labels)
    flags = None if context is None else torch.as_tensor(context)
    height, width = mixed.images.shape[2:]
    if any((view.width, view.height) != (width, height) for view in views):
        raise ValueError(f"views must be those of the images, {width} x {height} pixels, got others")
    total = torch.zeros(len(y), num_classes, dtype=torch.float64)
    for part in mixed.parts:
        rows = part.samples.cpu()
        covered = None if flags is None else flags.cpu()[rows]
        shares = part.objectness(boxes, views)
        total += part.share * adaptive_targets(y.cpu()[rows], shares, num_classes, beta, context=covered)
    return total.to(y.device, dtype or torch.float32)
