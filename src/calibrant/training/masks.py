"""Masks beside logits: labels where the logits are, classes that are not measured, and logits before interpolation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from calibrant._validation import did_you_mean
from calibrant.data import Dataset


def labels_at(masks: Tensor, logits: Tensor) -> Tensor:
    """Labels [N, h, w] at the positions of logits [N, C, h, w]: those of the nearest pixels of the masks [N, H, W].

    Targets that are no masks come back as they are.

    Example:
        >>> import torch
        >>> masks = torch.arange(16).view(1, 4, 4)
        >>> labels_at(masks, torch.zeros(1, 3, 2, 2)).tolist()  # pixels 1 and 3 are nearest to centres 1 and 3
        [[[5, 7], [13, 15]]]
    """
    if logits.dim() != 4 or masks.dim() != 3 or masks.shape[1:] == logits.shape[2:]:
        return masks
    # Whole numbers below 2^24 are exact as floats, and labels are below 256.
    nearest = F.interpolate(masks[:, None].float(), size=logits.shape[2:], mode="nearest-exact")
    return nearest[:, 0].to(masks.dtype)


def excluded_label(dataset: Dataset, name: str | None) -> int | None:
    """The label of the class that is not measured; an error if the data set has no such class, or no masks."""
    if name is None:
        return None
    if dataset.masks is None or dataset.ignore_index is None:
        raise ValueError(f"data.exclude is for data sets with masks, and {dataset.title} has none")
    if name not in dataset.classes:
        hint = did_you_mean(name, dataset.classes)
        raise ValueError(f"data.exclude: {dataset.title} has no class {name!r}{hint}")
    return dataset.classes.index(name)


def without_class(labels: Tensor, excluded: int | None, ignore_index: int | None) -> Tensor:
    """Labels in which a class is ignored."""
    return labels if excluded is None or ignore_index is None else labels.masked_fill(labels == excluded, ignore_index)


@contextmanager
def without_interpolation(model: nn.Module) -> Iterator[None]:
    """A network whose logits come before its last interpolation; one that has no such switch is an error."""
    parts: list[Any] = [module for module in model.modules() if isinstance(getattr(module, "upsample", None), bool)]
    if not parts:
        raise ValueError(
            f"data.interpolate = false is for networks that interpolate their logits last (Calibrant's DeepLab v3 and "
            f"v3+), and {type(model).__name__} does not say that it does"
        )
    before = [part.upsample for part in parts]
    for part in parts:
        part.upsample = False
    try:
        yield
    finally:
        for part, value in zip(parts, before, strict=True):
            part.upsample = value
