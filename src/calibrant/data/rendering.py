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

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from calibrant.data.boxes import Boxes, Floats, Reading, objectness
from calibrant.data.transforms import CentreCrop, Edge, Pad, RandomCrop, RandomFlip, Resize, Step, View

#: A JPEG is decoded at 1/2, 1/4 or 1/8 of its size only while this many of its pixels remain for one of the view's.
_KEPT = 2.0

Words = NDArray[np.uint64]

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
            views = _pad_views(views, step.pixels)
        elif isinstance(step, RandomCrop):
            views = _pad_views(views, step.padding)
            w, h = _pair(step.size)
            left = random.integers(views.size[0] - w).astype(np.float64)
            views = views.part(left, random.integers(views.size[1] - h).astype(np.float64), (w, h))
        elif isinstance(step, CentreCrop):
            w, h = _pair(step.size)
            views = views.part(_same(views, round((width - w) / 2)), _same(views, round((height - h) / 2)), (w, h))
    return views


def _pad_views(views: Views, pixels: int) -> Views:
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


def smaller_decoding(view: View) -> Callable[[Image.Image], object]:
    """For `Images.open`: let a JPEG be decoded at a fraction of its size if the view keeps `_KEPT` pixels per pixel."""

    def draft(image: Image.Image) -> None:
        wanted = max(view.width / (view.x2 - view.x1), view.height / (view.y2 - view.y1)) * _KEPT
        if wanted < 1.0 and image.format == "JPEG":
            image.draft(None, (math.ceil(image.width * wanted), math.ceil(image.height * wanted)))

    return draft


def render(
    image: Image.Image,
    view: View,
    fill: int | tuple[int, ...] | Edge = 0,
    resample: Image.Resampling = Image.Resampling.BILINEAR,
) -> NDArray[np.uint8]:
    """The pixels of a view, uint8 [height, width] or [height, width, channels].

    Args:
        image: Decoded, at the size the view was drawn for or smaller (`smaller_decoding`).
        view: What to show.
        fill: The colour of padding, or ``"edge"``: the nearest visible pixel again.
        resample: NEAREST for label masks.
    """
    sx, sy = image.width / view.image_width, image.height / view.image_height
    x1, y1, x2, y2 = view.x1 * sx, view.y1 * sy, view.x2 * sx, view.y2 * sy
    left, top, right, bottom = view.window
    window = (left * sx, top * sy, right * sx, bottom * sy)
    size = (view.width, view.height)
    if x1 >= window[0] and y1 >= window[1] and x2 <= window[2] and y2 <= window[3]:
        pixels = np.asarray(_cut(image, (x1, y1, x2, y2), size, resample))
    elif fill == "edge":
        pixels = _continued(image, (x1, y1, x2, y2), window, size, resample)
    else:
        pixels = np.asarray(_padded(image, (x1, y1, x2, y2), window, size, fill, resample))
    return pixels[:, ::-1] if view.flipped else pixels


def _cut(
    image: Image.Image, box: tuple[float, float, float, float], size: tuple[int, int], resample: Image.Resampling
) -> Image.Image:
    if box == (0, 0, *size) and image.size == size:
        return image
    if (box[2] - box[0], box[3] - box[1]) == size and all(float(edge).is_integer() for edge in box):
        return image.crop((int(box[0]), int(box[1]), int(box[2]), int(box[3])))
    return image.resize(size, resample, box=box)


def _padded(
    image: Image.Image,
    box: tuple[float, float, float, float],
    window: tuple[float, float, float, float],
    size: tuple[int, int],
    fill: int | tuple[int, ...],
    resample: Image.Resampling,
) -> Image.Image:
    """The part of the view inside the window, pasted at its place (to the nearest pixel) on the fill colour."""
    bands = len(image.getbands())
    canvas = Image.new(image.mode, size, (fill,) * bands if isinstance(fill, int) and bands > 1 else fill)
    if image.mode == "P" and (palette := image.getpalette()) is not None:
        canvas.putpalette(palette)
    x1, x2, left, right = _placed(box[0], box[2], window[0], window[2], size[0])
    y1, y2, top, bottom = _placed(box[1], box[3], window[1], window[3], size[1])
    if right > left and bottom > top:
        canvas.paste(_cut(image, (x1, y1, x2, y2), (right - left, bottom - top), resample), (left, top))
    return canvas


def _continued(
    image: Image.Image,
    box: tuple[float, float, float, float],
    window: tuple[float, float, float, float],
    size: tuple[int, int],
    resample: Image.Resampling,
) -> NDArray[np.uint8]:
    """The part of the view inside the window, at its place (to the nearest pixel), its borders repeated around it."""
    x1, x2, left, right = _nearest(box[0], box[2], window[0], window[2], size[0], image.width)
    y1, y2, top, bottom = _nearest(box[1], box[3], window[1], window[3], size[1], image.height)
    inner = np.asarray(_cut(image, (x1, y1, x2, y2), (right - left, bottom - top), resample))
    around = ((top, size[1] - bottom), (left, size[0] - right), (0, 0))
    return np.pad(inner, around[: inner.ndim], mode="edge")


def _placed(start: float, end: float, low: float, high: float, pixels: int) -> tuple[float, float, int, int]:
    """Along one side, what of a view (start..end) lies in the window (low..high), and on which of the view's pixels."""
    first, last = max(start, low), min(end, high)
    scale = pixels / (end - start)
    return first, last, round((first - start) * scale), round((last - start) * scale)


def _nearest(
    start: float, end: float, low: float, high: float, pixels: int, extent: int
) -> tuple[float, float, int, int]:
    """As `_placed`; where the view shows nothing of the window, the nearest pixel of it, which is then repeated."""
    placed = _placed(start, end, low, high, pixels)
    if placed[2] < placed[3]:
        return placed
    pixel = (end - start) / pixels
    if high <= low:  # an empty window: `View.window`
        low, high = high, min(high + pixel, extent)
    first = max(low, min(start, high - pixel))
    return first, min(first + pixel, high), 0, 1


def objectness_of(
    boxes: Boxes, views: Sequence[View], *, reading: Reading = "union", names: Sequence[str] | None = None
) -> Floats:
    """How much of each view the boxes of its image fill, [N].

    Example:
        >>> from calibrant.data import draw_view
        >>> view = draw_view([CentreCrop(4), Pad(2)], (8, 8), np.random.default_rng(0))
        >>> objectness_of(Boxes.of([[[0, 0, 8, 8]]]), [view]).tolist()  # 4 x 4 of 8 x 8: the padding shows no object
        [0.25]
    """
    if not len(views):
        return np.zeros(0)
    table = _table(views)
    owners = boxes.owners
    low, high = np.tile(table[owners, 6:8], 2), np.tile(table[owners, 8:10], 2)
    corners = np.clip(boxes.corners, low, np.maximum(high, low))
    visible = Boxes(corners, boxes.offsets, boxes.labels, boxes.crowd)
    return objectness(visible, table[:, :4], table[:, 4:6], reading=reading, names=names)


def _table(views: Sequence[View]) -> Floats:
    """Box, size of the image and window of each view, [N, 10]; `batchwise.Views` have it as they are."""
    if hasattr(views, "table"):
        made: Floats = views.table()
        return made
    return np.array([(*view.crop, *view.image_size, *view.window) for view in views])
