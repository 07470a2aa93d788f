"""Mixing the images of a batch: CutMix [Yun2019], RICAP [Takahashi2018], Mixup [Zhang2018]; cutout and random erasing.

All work on batches on any device and draw from the given generator. The share of each label is counted in pixels after
clipping, so that it is exactly what the image shows. `calibrant.targets.mixed_adaptive_targets` follows the objects
into the parts (ALS with CutMix).

    paper: lambda = share of the first image; alpha, beta = parameters of the Beta distribution it is drawn from
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from calibrant.base.checks import check_integer, check_number
from calibrant.data.boxes import Boxes
from calibrant.data.rendering import objectness_of
from calibrant.data.transforms import View

Rectangle = tuple[int, int, int, int]


@dataclass(frozen=True)
class MixedPart:
    """One part of each mixed image."""

    samples: Tensor  # [N]: the sample of the batch that this part of image n comes from
    share: float  # of the image's area; with Mixup, of its intensity
    rectangle: Rectangle  # left, top, right, bottom in pixels of that sample: the piece that is taken
    outside: bool = False  # whether everything but the rectangle is taken

    def objectness(self, boxes: Boxes, views: Sequence[View]) -> Tensor:
        """How much of this part the union of the samples' boxes fills, [N]; 0 for a part without area."""
        rows = self.samples.cpu().numpy()
        boxes, views = boxes.take(rows), [views[row] for row in rows]
        left, top, right, bottom = self.rectangle
        shares = torch.zeros(len(rows), dtype=torch.float64)
        empty = right <= left or bottom <= top
        if not empty:
            pieces = [view.part(left, top, right, bottom, right - left, bottom - top) for view in views]
            shares = torch.from_numpy(objectness_of(boxes, pieces))
        if not self.outside:
            return shares
        whole_shares = torch.from_numpy(objectness_of(boxes, views))
        if empty or self.share == 0.0:
            return whole_shares if empty else torch.zeros_like(whole_shares)
        # The objects in the whole view, minus those in the rectangle.
        return ((whole_shares - (1.0 - self.share) * shares) / self.share).clamp(0.0, 1.0)


@dataclass(frozen=True)
class Mixed:
    """Mixed images [N, C, H, W], and the parts that each consists of, whose shares sum to 1."""

    images: Tensor
    parts: tuple[MixedPart, ...]

    def targets(self, targets: Tensor) -> Tensor:
        """Mix soft targets [N, K] by the parts' shares."""
        if targets.ndim != 2 or len(targets) != len(self.images):
            raise ValueError(f"targets must have the shape [{len(self.images)}, K], got {list(targets.shape)}")
        return torch.stack([part.share * targets[part.samples.to(targets.device)] for part in self.parts]).sum(0)


class _Settings:
    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value}' for name, value in vars(self).items())})"


class CutMix(_Settings):
    """Paste a rectangle of another image at the same position.

    Its area is 1 - lambda of the image before clipping, lambda from Beta(alpha, alpha); one draw per batch, as
    published.

    Example:
        >>> images = torch.arange(4.0).reshape(4, 1, 1, 1).expand(4, 3, 8, 8)
        >>> mixed = CutMix()(images, np.random.default_rng(3))
        >>> means = mixed.images[:, 0].mean((1, 2))  # image k is the constant k
        >>> torch.allclose(means, mixed.targets(torch.eye(4)) @ torch.arange(4.0))
        True

    Reference:
        [Yun2019], Eq. 1 and 2.
    """

    def __init__(self, alpha: float = 1.0, probability: float = 1.0):
        self.alpha, self.probability = _check_positive("alpha", alpha), check_number("probability", probability, 0, 1)

    def __call__(self, images: Tensor, random: np.random.Generator) -> Mixed:
        """Mix a batch [N, C, H, W]."""
        number, height, width = _batch_shape(images)
        indices = torch.arange(number, device=images.device)
        if random.random() >= self.probability:
            return Mixed(images, (MixedPart(indices, 1.0, (0, 0, width, height)),))
        cut = math.sqrt(1.0 - random.beta(self.alpha, self.alpha))
        w, h = int(width * cut), int(height * cut)
        x, y = int(random.integers(width)), int(random.integers(height))
        left, right = max(x - w // 2, 0), min(x + w // 2, width)
        top, bottom = max(y - h // 2, 0), min(y + h // 2, height)
        partner = _permutation(number, images.device, random)
        result = images.clone()
        result[:, :, top:bottom, left:right] = images[partner, :, top:bottom, left:right]
        pasted = (right - left) * (bottom - top) / (width * height)
        rectangle = (left, top, right, bottom)
        around = MixedPart(indices, 1.0 - pasted, rectangle, outside=True)
        return Mixed(result, (around, MixedPart(partner, pasted, rectangle)))


class RICAP(_Settings):
    """Four pieces of four images around one point, drawn from Beta(beta, beta) in both directions.

    Example:
        >>> mixed = RICAP()(torch.zeros(5, 3, 8, 8), np.random.default_rng(0))
        >>> len(mixed.parts), sum(part.share for part in mixed.parts)
        (4, 1.0)

    Reference:
        [Takahashi2018], section 3.
    """

    def __init__(self, beta: float = 0.3):
        self.beta = _check_positive("beta", beta)

    def __call__(self, images: Tensor, random: np.random.Generator) -> Mixed:
        """Mix a batch [N, C, H, W]."""
        number, height, width = _batch_shape(images)
        x, y = (round(side * random.beta(self.beta, self.beta)) for side in (width, height))
        result = torch.empty_like(images)
        parts = []
        for left, right in ((0, x), (x, width)):
            for top, bottom in ((0, y), (y, height)):
                w, h = right - left, bottom - top
                source = _permutation(number, images.device, random)
                u, v = int(random.integers(width - w + 1)), int(random.integers(height - h + 1))
                result[:, :, top:bottom, left:right] = images[source, :, v : v + h, u : u + w]
                parts.append(MixedPart(source, w * h / (width * height), (u, v, u + w, v + h)))
        return Mixed(result, tuple(parts))


class Mixup(_Settings):
    """Blend each image with another: lambda x + (1 - lambda) x', lambda from Beta(alpha, alpha).

    Images of whole numbers are blended in float32.

    Example:
        >>> images = torch.tensor([0.0, 1.0]).reshape(2, 1, 1, 1)
        >>> mixed = Mixup()(images, np.random.default_rng(1))
        >>> torch.equal(mixed.images.flatten(), mixed.targets(torch.eye(2))[:, 1])
        True

    Reference:
        [Zhang2018], section 2.
    """

    def __init__(self, alpha: float = 0.2):
        self.alpha = _check_positive("alpha", alpha)

    def __call__(self, images: Tensor, random: np.random.Generator) -> Mixed:
        """Mix a batch [N, C, H, W]."""
        number, height, width = _batch_shape(images)
        share = float(random.beta(self.alpha, self.alpha))
        partner = _permutation(number, images.device, random)
        floating = images if images.is_floating_point() else images.float()
        blended = share * floating + (1.0 - share) * floating[partner]
        image, indices = (0, 0, width, height), torch.arange(number, device=images.device)
        return Mixed(blended, (MixedPart(indices, share, image), MixedPart(partner, 1.0 - share, image)))


class Cutout(_Settings):
    """Blank a square at a random position of each image, clipped to the image.

    Example:
        >>> blanked = Cutout(4)(torch.ones(2, 3, 8, 8), np.random.default_rng(0)) == 0
        >>> int(blanked[0, 0].sum()) <= 16
        True

    Reference:
        [DeVries2017].
    """

    def __init__(self, size: int, value: float = 0.0):
        self.size, self.value = check_integer("size", size, 1), value

    def __call__(self, images: Tensor, random: np.random.Generator) -> Tensor:
        """Blank a batch [N, C, H, W]."""
        number, height, width = _batch_shape(images)
        left = random.integers(width, size=number) - self.size // 2
        top = random.integers(height, size=number) - self.size // 2
        return _blank(images, left, top, left + self.size, top + self.size, self.value)


class RandomErasing(_Settings):
    """Blank a rectangle (area by ``scale``, aspect by ``ratio``) of some images.

    Example:
        >>> erased = RandomErasing(probability=1.0)(torch.ones(2, 3, 32, 32), np.random.default_rng(0))
        >>> bool((erased == 0).any())
        True

    Reference:
        [Zhong2020], Algorithm 1.
    """

    def __init__(
        self,
        probability: float = 0.5,
        scale: tuple[float, float] = (0.02, 0.33),
        ratio: tuple[float, float] = (0.3, 3.3),
        value: float = 0.0,
    ):
        if not 0.0 < scale[0] <= scale[1] < 1.0:
            raise ValueError(f"RandomErasing takes a rising scale between 0 and 1, got {scale}")
        if not 0.0 < ratio[0] <= ratio[1]:
            raise ValueError(f"RandomErasing takes a rising ratio above 0, got {ratio}")
        self.probability = check_number("probability", probability, 0, 1)
        self.scale, self.ratio, self.value = scale, ratio, value

    def __call__(self, images: Tensor, random: np.random.Generator) -> Tensor:
        """Blank a batch [N, C, H, W]."""
        number, height, width = _batch_shape(images)
        area = random.uniform(*self.scale, size=(number, 10)) * height * width
        aspect = np.exp(random.uniform(math.log(self.ratio[0]), math.log(self.ratio[1]), size=(number, 10)))
        w, h = np.rint(np.sqrt(area / aspect)).astype(int), np.rint(np.sqrt(area * aspect)).astype(int)
        fits = (w >= 1) & (h >= 1) & (w < width) & (h < height)
        first_fit = fits.argmax(axis=1)[:, None]  # ten tries, the first that fits
        w, h = np.take_along_axis(w, first_fit, 1)[:, 0], np.take_along_axis(h, first_fit, 1)[:, 0]
        erased = fits.any(axis=1) & (random.random(number) < self.probability)
        w, h = np.where(erased, w, 0), np.where(erased, h, 0)
        left, top = random.integers(width - w + 1), random.integers(height - h + 1)
        return _blank(images, left, top, left + w, top + h, self.value)


def _blank(
    images: Tensor, left: np.ndarray, top: np.ndarray, right: np.ndarray, bottom: np.ndarray, value: float
) -> Tensor:
    def between(low: np.ndarray, high: np.ndarray, size: int) -> Tensor:
        positions = torch.arange(size, device=images.device)
        low_, high_ = (torch.as_tensor(edge, device=images.device)[:, None] for edge in (low, high))
        return (positions >= low_) & (positions < high_)

    rows, columns = between(top, bottom, images.shape[2]), between(left, right, images.shape[3])
    return images.masked_fill((rows[:, :, None] & columns[:, None, :])[:, None], value)


def _permutation(number: int, device: torch.device, random: np.random.Generator) -> Tensor:
    return torch.from_numpy(random.permutation(number)).to(device)


def _batch_shape(images: Tensor) -> tuple[int, int, int]:
    """Number of images, height and width."""
    if images.ndim != 4:
        raise ValueError(f"images must be a batch [N, C, H, W], got shape {list(images.shape)}")
    number, _, height, width = images.shape
    return number, height, width


def _check_positive(name: str, value: float) -> float:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a number above 0, got {value}")
    return float(value)
