"""Colour changes of training images, drawn from the sample's own generator; the arithmetic is torchvision's."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from torch import Tensor

from calibrant import _torchvision


class ColourJitter:
    """Brightness, contrast, saturation and hue changed at random, in random order, as torchvision.transforms does.

    Args:
        brightness: The factor is drawn from 1 - brightness to 1 + brightness.
        contrast: Likewise.
        saturation: Likewise.
        hue: The shift is drawn from -hue to hue, at most 0.5.

    Example:
        >>> import torch
        >>> image = torch.full((3, 4, 4), 100, dtype=torch.uint8)
        >>> bright = ColourJitter(brightness=0.5)(image, np.random.default_rng(0))
        >>> bright.shape, bright.dtype, bool((bright != 100).all())
        (torch.Size([3, 4, 4]), torch.uint8, True)
    """

    def __init__(self, brightness: float = 0.0, contrast: float = 0.0, saturation: float = 0.0, hue: float = 0.0):
        for name, value in (("brightness", brightness), ("contrast", contrast), ("saturation", saturation)):
            if not 0.0 <= value <= 1.0:
                raise ValueError(f"ColourJitter takes {name} in 0..1, got {value}.")
        if not 0.0 <= hue <= 0.5:
            raise ValueError(f"ColourJitter takes hue in 0..0.5, got {hue}.")
        self.amounts = {"brightness": brightness, "contrast": contrast, "saturation": saturation, "hue": hue}

    def __call__(self, image: Tensor, random: np.random.Generator) -> Tensor:
        """Change one uint8 image [C, H, W]."""
        names = [name for name, amount in self.amounts.items() if amount > 0]
        for place in random.permutation(len(names)):
            name = names[place]
            amount, middle = self.amounts[name], 0.0 if name == "hue" else 1.0
            change = getattr(_functional(), f"adjust_{name}")
            image = change(image, float(random.uniform(middle - amount, middle + amount)))
        return image


@functools.cache
def _functional() -> Any:
    _torchvision.ensure()
    from torchvision.transforms.v2 import functional

    return functional
