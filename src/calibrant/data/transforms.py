"""Augmentation as one rectangle: which part of an image is shown, at which size, mirrored or not; and colours.

A chain of crops, flips, resizes and paddings is drawn from the image's size alone and folds into one `View`. The image
is then rendered once (`calibrant.data.rendering`), and the share of the view that objects fill follows from the same
rectangle (`calibrant.data.boxes.objectness`), without a mask.

The steps follow torchvision.transforms in meaning and defaults, except that sizes are (width, height). Each draws from
the given generator, so that a view depends on its seed alone. A resize followed by a centre crop is rendered as one
resize of the cropped part, which differs only in how the filter treats the edge.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, get_args

import numpy as np
from torch import Tensor

from calibrant.base import torchvision_operators
from calibrant.base.checks import check_choice, check_integer, check_number

#: The side that a `Resize` to one number sets.
Side = Literal["shorter", "longer"]
#: How images are scaled.
Resampling = Literal["bilinear", "bicubic"]
#: Padding that repeats the nearest visible pixel.
Edge = Literal["edge"]
#: x1, y1, x2, y2 in pixels.
Rectangle = tuple[float, float, float, float]


class View(NamedTuple):
    """A rectangle of the image, the size at which it is shown, and whether it is mirrored.

    Attributes:
        x1, y1, x2, y2: In pixels of the image.
        width, height: Size of the output, in pixels.
        flipped: Left and right exchanged.
        image_width, image_height: Size of the image.
        window: The visible part of the image, x1, y1, x2, y2, around which there is padding: the whole image, unless
            padding follows a crop. If nothing is visible along a side, its end is not above its start, and is where the
            nearest pixel begins, which padding by ``"edge"`` repeats.
    """

    x1: float
    y1: float
    x2: float
    y2: float
    width: int
    height: int
    flipped: bool
    image_width: int
    image_height: int
    window: Rectangle

    @classmethod
    def whole(cls, width: int, height: int) -> View:
        """The unchanged image."""
        image = (0.0, 0.0, float(width), float(height))
        return cls(*image, width, height, False, width, height, image)

    @property
    def crop(self) -> Rectangle:
        """The rectangle, as `objectness` takes it."""
        return self[:4]

    @property
    def image_size(self) -> tuple[int, int]:
        """Width and height of the image."""
        return self.image_width, self.image_height

    def part(self, left: float, top: float, right: float, bottom: float, width: int, height: int) -> View:
        """A part of this view, given in its output pixels; ``width`` and ``height`` are those of the new output."""
        if self.flipped:
            left, right = self.width - right, self.width - left
        across, down = (self.x2 - self.x1) / self.width, (self.y2 - self.y1) / self.height
        # No part shows more than this view: later padding begins at its edge, not at the image's.
        x1, x2 = _visible(self.window[0], self.window[2], self.x1, self.x2, across)
        y1, y2 = _visible(self.window[1], self.window[3], self.y1, self.y2, down)
        return self._replace(
            window=(x1, y1, x2, y2),
            x1=self.x1 + left * across,
            y1=self.y1 + top * down,
            x2=self.x1 + right * across,
            y2=self.y1 + bottom * down,
            width=width,
            height=height,
        )


def _visible(low: float, high: float, start: float, end: float, pixel: float) -> tuple[float, float]:
    """Along one side, the part of a window (low..high) that a view (start..end) shows; see `View.window` if empty."""
    if high <= low:
        return low, high
    if end <= low:
        return low, low
    if start >= high:
        return high, max(low, high - pixel)
    return max(low, start), min(high, end)


class Step(Protocol):
    """One step of a chain, from a view to the next."""

    def __call__(self, view: View, random: np.random.Generator) -> View:
        """Give the next view."""


def draw_view(steps: Sequence[Step], size: tuple[int, int], random: np.random.Generator) -> View:
    """Draw the view of an image of a size (width, height) by a chain of steps.

    Example:
        >>> chain = [Resize(256), CentreCrop(224)]
        >>> draw_view(chain, (512, 1024), np.random.default_rng(0)).crop  # 224 of 256 in the middle, at scale 2
        (32.0, 288.0, 480.0, 736.0)
    """
    view = View.whole(*size)
    for step in steps:
        view = step(view, random)
    return view


@dataclass(frozen=True)
class Resize:
    """Resize to a size: one number for the shorter or the longer side, or (width, height).

    The other side is rounded down, as in torchvision (``size`` and ``max_size``), but never below one pixel;
    albumentations' LongestMaxSize rounds to the nearest. ``most`` bounds the longer side if the shorter is given: the
    smaller of the two scales is used, as for detectors.

    Example:
        >>> Resize(32)(View.whole(64, 128), np.random.default_rng(0))[4:6]
        (32, 64)
        >>> Resize(32, side="longer")(View.whole(64, 128), np.random.default_rng(0))[4:6]
        (16, 32)
        >>> Resize(32, most=50)(View.whole(64, 128), np.random.default_rng(0))[4:6]
        (25, 50)
    """

    size: int | tuple[int, int]
    side: Side = "shorter"
    most: int | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_choice("side", self.side, get_args(Side))
        if self.most is not None and (not isinstance(self.size, int) or self.side != "shorter" or self.most < 1):
            raise ValueError(f"Resize takes most, at least 1, with the length of the shorter side, got {self.most}")
        if not isinstance(self.size, int):
            object.__setattr__(self, "size", _pair(self.size))
            if self.side != "shorter":
                raise ValueError(f"Resize takes a side with one number, got side={self.side!r} with {self.size}")
        elif self.size < 1:
            raise ValueError(f"Resize takes a size of at least 1 pixel, got {self.size}")

    def __call__(self, view: View, random: np.random.Generator) -> View:
        """Give the next view."""
        if isinstance(self.size, tuple):
            width, height = self.size
        else:
            short, long = sorted((view.width, view.height))
            if self.side == "shorter":
                shorter, longer = self.size, int(self.size * long / short)
                if self.most is not None and longer > self.most:
                    shorter, longer = max(1, int(self.most * short / long)), self.most
            else:
                shorter, longer = max(1, int(self.size * short / long)), self.size
            width, height = (shorter, longer) if view.width <= view.height else (longer, shorter)
        return view._replace(width=width, height=height)


@dataclass(frozen=True)
class Pad:
    """Pad every side by this many pixels."""

    pixels: int

    def __post_init__(self) -> None:
        check_integer("pixels", self.pixels, 0)

    def __call__(self, view: View, random: np.random.Generator) -> View:
        """Give the next view."""
        n, width, height = self.pixels, view.width, view.height
        return view.part(-n, -n, width + n, height + n, width + 2 * n, height + 2 * n)


@dataclass(frozen=True)
class _Sized:
    """A step to a size given as one number or as (width, height)."""

    size: int | tuple[int, int]

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", _pair(self.size))

    @property
    def pair(self) -> tuple[int, int]:
        """Width and height."""
        return self.size  # type: ignore[return-value]


@dataclass(frozen=True)
class CentreCrop(_Sized):
    """Crop the centre; a smaller view is padded."""

    def __call__(self, view: View, random: np.random.Generator) -> View:
        """Give the next view."""
        width, height = self.pair
        left, top = _middle(view.width, width), _middle(view.height, height)
        return view.part(left, top, left + width, top + height, width, height)


@dataclass(frozen=True)
class RandomCrop(_Sized):
    """Crop at a random position, after padding every side."""

    padding: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("padding", self.padding, 0)

    def __call__(self, view: View, random: np.random.Generator) -> View:
        """Give the next view."""
        width, height = self.pair
        view = Pad(self.padding)(view, random)
        left, top = _anywhere(view.width, width, random), _anywhere(view.height, height, random)
        return view.part(left, top, left + width, top + height, width, height)


@dataclass(frozen=True)
class RandomResizedCrop(_Sized):
    """Crop a random part (area by ``scale``, aspect by ``ratio``) and resize it, as in ImageNet training.

    Ten tries, then the largest central part with an allowed aspect, as in torchvision.
    """

    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (0.0 < self.scale[0] <= self.scale[1] <= 1.0):
            raise ValueError(f"RandomResizedCrop takes a rising scale in 0..1, got {self.scale}")
        if not (0.0 < self.ratio[0] <= self.ratio[1]):
            raise ValueError(f"RandomResizedCrop takes a rising ratio above 0, got {self.ratio}")

    def __call__(self, view: View, random: np.random.Generator) -> View:
        """Give the next view."""
        area = view.width * view.height
        low, high = math.log(self.ratio[0]), math.log(self.ratio[1])
        for _ in range(10):
            target = area * random.uniform(*self.scale)
            aspect = math.exp(random.uniform(low, high))
            w, h = round(math.sqrt(target * aspect)), round(math.sqrt(target / aspect))
            if 0 < w <= view.width and 0 < h <= view.height:
                left, top = _anywhere(view.width, w, random), _anywhere(view.height, h, random)
                return view.part(left, top, left + w, top + h, *self.pair)
        aspect = min(max(view.width / view.height, self.ratio[0]), self.ratio[1])
        w, h = min(view.width, round(view.height * aspect)), min(view.height, round(view.width / aspect))
        left, top = (view.width - w) // 2, (view.height - h) // 2
        return view.part(left, top, left + w, top + h, *self.pair)


@dataclass(frozen=True)
class RandomFlip:
    """Mirror left and right, with a probability."""

    probability: float = 0.5

    def __post_init__(self) -> None:
        check_number("probability", self.probability, 0, 1)

    def __call__(self, view: View, random: np.random.Generator) -> View:
        """Give the next view."""
        return view._replace(flipped=not view.flipped) if random.random() < self.probability else view


def _pair(size: int | Sequence[int]) -> tuple[int, int]:
    pair = (size, size) if isinstance(size, int) else tuple(size)
    if len(pair) != 2 or not all(isinstance(side, int) and side >= 1 for side in pair):
        raise ValueError(f"size must be one number of pixels, or width and height, got {size!r}")
    return pair[0], pair[1]


def _middle(outer: int, inner: int) -> int:
    return round((outer - inner) / 2) if outer >= inner else -((inner - outer) // 2)


def _anywhere(outer: int, inner: int, random: np.random.Generator) -> int:
    return int(random.integers(0, outer - inner, endpoint=True)) if outer >= inner else _middle(outer, inner)


class ColourJitter:
    """Change brightness, contrast, saturation and hue at random, in random order, as torchvision.transforms does.

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
        self.amounts = {"brightness": brightness, "contrast": contrast, "saturation": saturation, "hue": hue}
        for name, amount in self.amounts.items():
            check_number(name, amount, 0, 0.5 if name == "hue" else 1)

    def __call__(self, image: Tensor, random: np.random.Generator) -> Tensor:
        """Change one uint8 image [C, H, W]."""
        names = [name for name, amount in self.amounts.items() if amount > 0]
        for index in random.permutation(len(names)):
            name = names[index]
            amount, middle = self.amounts[name], 0.0 if name == "hue" else 1.0
            adjust = getattr(_functional(), f"adjust_{name}")
            image = adjust(image, float(random.uniform(middle - amount, middle + amount)))
        return image


@functools.cache
def _functional() -> Any:
    torchvision_operators.ensure()
    from torchvision.transforms.v2 import functional

    return functional
