"""Images that lie in one array, cut, padded and flipped a batch at a time, without a Python call per sample.

What comes out is bit for bit what `views.draw_view` and `views.render` give sample by sample: the random numbers of
each sample are those of `loading.sample_generator`, computed for all of them at once, and the steps are those that move
whole pixels. Steps that resample (a crop of random size, a resize) go sample by sample.

NumPy's Philox [Salmon2011] is four words of a counter through ten rounds of two multiplications under a key; a sample's
counter is (n, 0, epoch, index) with n from 1 on. Of each 64-bit word, `Generator.integers` takes the lower half and
then the upper one, and multiplies it by the size of the range (Lemire's method); in one of some 10^8 draws a number
must be drawn again, and such a batch goes sample by sample. `Generator.random` takes a whole word.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from calibrant.data.views import CentreCrop, Edge, Pad, RandomCrop, RandomFlip, Resize, Step, View

Words = NDArray[np.uint64]
Floats = NDArray[np.float64]

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_MULTIPLIERS = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)
_STEPS = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)  # what is added to the key after each round


class AgainError(Exception):
    """A random number of a sample must be drawn again, which depends on the sample."""


class Randomness:
    """The random numbers of several samples, as many at a time."""

    def __init__(self, seed: int, epochs: Words, indices: Words) -> None:
        self.key, self.epochs, self.indices = seed, epochs, indices
        self.blocks: list[Words] = []
        self.used = 0  # words
        self.upper: Words | None = None  # of a word whose lower half was taken

    def random(self) -> Floats:
        """A number in [0, 1) for each sample: `Generator.random`."""
        return (self._word() >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def integers(self, most: int) -> NDArray[np.int64]:
        """A whole number from 0 to ``most`` for each sample: `Generator.integers` with its endpoint."""
        if most == 0:
            return np.zeros(len(self.indices), dtype=np.int64)
        if self.upper is None:
            word = self._word()
            half, self.upper = word & _LOW, word >> _HALF
        else:
            half, self.upper = self.upper, None
        size = most + 1
        product = half * np.uint64(size)
        if ((product & _LOW) < np.uint64((2**32 - size) % size)).any():
            raise AgainError
        return (product >> _HALF).astype(np.int64)

    def _word(self) -> Words:
        block, place = divmod(self.used, 4)
        if block == len(self.blocks):
            self.blocks.append(philox(self.key, block + 1, self.epochs, self.indices))
        self.used += 1
        return self.blocks[block][place]


def philox(seed: int, number: int, epochs: Words, indices: Words) -> Words:
    """The words ``[4, n]`` of block ``number`` of each sample's stream."""
    words = 2**64 - 1
    key = [np.uint64(seed & words), np.uint64((seed >> 64) & words)]
    a, b = np.full_like(indices, number), np.zeros_like(indices)
    c, d = epochs, indices
    with np.errstate(over="ignore"):
        for _ in range(10):
            high_a, low_a = _product(_MULTIPLIERS[0], a)
            high_c, low_c = _product(_MULTIPLIERS[1], c)
            a, b, c, d = high_c ^ b ^ key[0], low_c, high_a ^ d ^ key[1], low_a
            key = [key[0] + _STEPS[0], key[1] + _STEPS[1]]
    return np.stack([a, b, c, d])


def _product(factor: np.uint64, values: Words) -> tuple[Words, Words]:
    """The upper and the lower 64 bits of a product."""
    f1, f0 = factor >> _HALF, factor & _LOW
    v1, v0 = values >> _HALF, values & _LOW
    cross = f1 * v0 + (f0 * v0 >> _HALF)
    middle = f0 * v1 + (cross & _LOW)
    return f1 * v1 + (cross >> _HALF) + (middle >> _HALF), factor * values


@dataclass(frozen=True, eq=False)
class Views(Sequence[View]):
    """`View` of several images, column by column; those of single images are made when they are asked for.

    Attributes:
        box: [n, 4]: x1, y1, x2, y2.
        size: Width and height of the output, the same for all.
        flipped: [n].
        image_size: Of the images.
        window: [n, 4].
    """

    box: Floats
    size: tuple[int, int]
    flipped: NDArray[np.bool_]
    image_size: tuple[int, int]
    window: Floats

    @classmethod
    def whole(cls, number: int, width: int, height: int) -> Views:
        """The images as they are."""
        box = np.tile(np.array([0.0, 0.0, width, height]), (number, 1))
        return cls(box, (width, height), np.zeros(number, dtype=bool), (width, height), box)

    def __len__(self) -> int:
        return len(self.box)

    def __bool__(self) -> bool:
        return len(self.box) > 0

    @overload
    def __getitem__(self, index: int) -> View: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[View]: ...

    def __getitem__(self, index: int | slice) -> View | Sequence[View]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        x1, y1, x2, y2 = self.box[index].tolist()
        left, top, right, bottom = self.window[index].tolist()
        return View(x1, y1, x2, y2, *self.size, bool(self.flipped[index]), *self.image_size, (left, top, right, bottom))

    def __iter__(self) -> Iterator[View]:
        return (self[i] for i in range(len(self)))

    def table(self) -> Floats:
        """Box, size of the image and window, [n, 10]: what `objectness_of` needs of each view."""
        sizes = np.broadcast_to(np.array(self.image_size, dtype=np.float64), (len(self), 2))
        return np.concatenate([self.box, sizes, self.window], axis=1)

    def part(self, left: Floats, top: Floats, size: tuple[int, int]) -> Views:
        """A part of each, whose corners are given in output pixels: `View.part`, at the same scale."""
        w, h = size
        left = np.where(self.flipped, self.size[0] - left - w, left)
        x1, x2 = _visible(self.window[:, 0], self.window[:, 2], self.box[:, 0], self.box[:, 2])
        y1, y2 = _visible(self.window[:, 1], self.window[:, 3], self.box[:, 1], self.box[:, 3])
        x, y = self.box[:, 0] + left, self.box[:, 1] + top
        return replace(self, box=np.stack([x, y, x + w, y + h], 1), size=size, window=np.stack([x1, y1, x2, y2], 1))


def _visible(low: Floats, high: Floats, start: Floats, end: Floats) -> tuple[Floats, Floats]:
    if ((high <= low) | (end <= low) | (start >= high)).any():
        raise AgainError  # nothing can be seen along a side: `views` knows what is repeated then
    return np.maximum(low, start), np.minimum(high, end)


def moves_whole_pixels(steps: Sequence[Step], width: int, height: int) -> bool:
    """Whether a chain of steps does nothing to images of a size but cut, pad and flip them."""
    for step in steps:
        if isinstance(step, RandomCrop):
            pad = 2 * step.padding
            if not _fits(step.size, width + pad, height + pad):
                return False
            width, height = _pair(step.size)
        elif isinstance(step, CentreCrop):
            if not _fits(step.size, width, height):
                return False
            width, height = _pair(step.size)
        elif isinstance(step, Pad):
            width, height = width + 2 * step.pixels, height + 2 * step.pixels
        elif isinstance(step, Resize):
            if step(View.whole(width, height), np.random.default_rng(0))[4:6] != (width, height):
                return False
        elif not isinstance(step, RandomFlip):
            return False
    return True


def _pair(size: Any) -> tuple[int, int]:
    """The size of a crop, which is a pair once the step is made."""
    width, height = size
    return width, height


def _fits(size: Any, width: int, height: int) -> bool:
    w, h = _pair(size)
    return w <= width and h <= height


def draw_views(steps: Sequence[Step], number: int, size: tuple[int, int], random: Randomness) -> Views:
    """`views.draw_view` for several images of one size, by steps that move whole pixels."""
    views = Views.whole(number, *size)
    for step in steps:
        width, height = views.size
        if isinstance(step, RandomFlip):
            views = replace(views, flipped=views.flipped ^ (random.random() < step.probability))
        elif isinstance(step, Pad):
            views = _padded(views, step.pixels)
        elif isinstance(step, RandomCrop):
            views = _padded(views, step.padding)
            w, h = _pair(step.size)
            left = random.integers(views.size[0] - w).astype(np.float64)
            views = views.part(left, random.integers(views.size[1] - h).astype(np.float64), (w, h))
        elif isinstance(step, CentreCrop):
            w, h = _pair(step.size)
            views = views.part(_same(views, round((width - w) / 2)), _same(views, round((height - h) / 2)), (w, h))
    return views


def _padded(views: Views, pixels: int) -> Views:
    corner = _same(views, -pixels)
    return views.part(corner, corner, (views.size[0] + 2 * pixels, views.size[1] + 2 * pixels))


def _same(views: Views, value: float) -> Floats:
    return np.full(len(views), float(value))


def render_views(
    pixels: NDArray[np.uint8], rows: NDArray[np.int64], views: Views, fill: int | tuple[int, ...] | Edge
) -> NDArray[np.uint8]:
    """`views.render` for several images of an array [N, H, W] or [N, H, W, 3]: uint8 [n, height, width] or with 3."""
    (width, height), (image_width, image_height) = views.size, views.image_size
    if views.size == views.image_size and not views.flipped.any() and not views.box[:, :2].any():
        return pixels[rows]
    x = views.box[:, :1].astype(np.int64) + np.arange(width)
    y = views.box[:, 1:2].astype(np.int64) + np.arange(height)
    x = np.where(views.flipped[:, None], x[:, ::-1], x)
    left, top, right, bottom = views.window.astype(np.int64).T[:, :, None]
    seen_x, seen_y = np.clip(x, left, right - 1), np.clip(y, top, bottom - 1)
    places = (rows[:, None] * image_height + seen_y)[:, :, None] * image_width + seen_x[:, None, :]
    out = pixels.reshape(-1, *pixels.shape[3:])[places]
    if fill != "edge":
        outside = (seen_y != y)[:, :, None] | (seen_x != x)[:, None, :]
        if outside.any():
            out[outside] = fill
    return out


def grey(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """RGB images [..., 3] in grey [...]: PIL's ``"L"``."""
    wide = pixels.astype(np.uint32)
    return ((wide[..., 0] * 19595 + wide[..., 1] * 38470 + wide[..., 2] * 7471 + 0x8000) >> 16).astype(np.uint8)
