"""From views to pixels: one image at a time, or a batch of images in one array.

A batch rendered at once, without a Python call per sample, is bit for bit what `transforms.draw_view` and `render` give
for each sample: the random numbers are those of `sample_generator`, computed for all samples together. Only steps that
move whole pixels are done this way; steps that resample (a crop of random size, a resize) go sample by sample.

NumPy's Philox [Salmon2011] passes a counter of four words through ten rounds of two multiplications under a key; a
sample's counter is (n, 0, epoch, index) with n from 1 on. Of each 64-bit word, `Generator.integers` takes the lower
half and then the upper one, and multiplies it by the size of the range (Lemire's method). Once in about 10^8 draws a
number must be drawn again, and then the batch goes sample by sample. `Generator.random` takes a whole word.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from calibrant.data.boxes import Boxes, Floats, Reading, objectness
from calibrant.data.transforms import CentreCrop, Edge, Pad, RandomCrop, RandomFlip, Rectangle, Resize, Step, View

Words = NDArray[np.uint64]

#: A JPEG is decoded at 1/2, 1/4 or 1/8 of its size if this many of its pixels per side remain for each of the view.
_SPARE = 2.0
_WORD = 2**64 - 1
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_MULTIPLIERS = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)
_STEPS = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)  # added to the key after each round


def decode_smaller(image: Image.Image, view: View) -> None:
    """Ask for the decoding of a JPEG at a fraction of its size, if `_SPARE` allows it."""
    scale = max(view.width / (view.x2 - view.x1), view.height / (view.y2 - view.y1)) * _SPARE
    if scale < 1.0 and image.format == "JPEG":
        image.draft(None, (math.ceil(image.width * scale), math.ceil(image.height * scale)))


def render(
    image: Image.Image,
    view: View,
    fill: int | tuple[int, ...] | Edge = 0,
    resample: Image.Resampling = Image.Resampling.BILINEAR,
) -> NDArray[np.uint8]:
    """The pixels of a view, uint8 [height, width] or [height, width, channels].

    The image was decoded at the view's image size or smaller (`decode_smaller`). ``fill`` is the colour of padding,
    or ``"edge"`` to repeat the nearest visible pixel.
    """
    sx, sy = image.width / view.image_width, image.height / view.image_height
    x1, y1, x2, y2 = box = (view.x1 * sx, view.y1 * sy, view.x2 * sx, view.y2 * sy)
    left, top, right, bottom = view.window
    left, top, right, bottom = window = (left * sx, top * sy, right * sx, bottom * sy)
    size = (view.width, view.height)
    if x1 >= left and y1 >= top and x2 <= right and y2 <= bottom:
        pixels = np.asarray(_cut(image, box, size, resample))
    elif fill == "edge":
        pixels = _pad_by_edge(image, box, window, size, resample)
    else:
        pixels = np.asarray(_pad_by_colour(image, box, window, size, fill, resample))
    return pixels[:, ::-1] if view.flipped else pixels


def _cut(image: Image.Image, box: Rectangle, size: tuple[int, int], resample: Image.Resampling) -> Image.Image:
    if box == (0, 0, *size) and image.size == size:
        return image
    if (box[2] - box[0], box[3] - box[1]) == size and all(float(edge).is_integer() for edge in box):
        return image.crop((int(box[0]), int(box[1]), int(box[2]), int(box[3])))
    return image.resize(size, resample, box=box)


def _pad_by_colour(
    image: Image.Image,
    box: Rectangle,
    window: Rectangle,
    size: tuple[int, int],
    fill: int | tuple[int, ...],
    resample: Image.Resampling,
) -> Image.Image:
    """The visible part of the view, pasted at its position (to the nearest pixel) on the fill colour."""
    bands = len(image.getbands())
    canvas = Image.new(image.mode, size, (fill,) * bands if isinstance(fill, int) and bands > 1 else fill)
    if image.mode == "P" and (palette := image.getpalette()) is not None:
        canvas.putpalette(palette)
    x1, x2, left, right = _overlap(box[0], box[2], window[0], window[2], size[0])
    y1, y2, top, bottom = _overlap(box[1], box[3], window[1], window[3], size[1])
    if right > left and bottom > top:
        canvas.paste(_cut(image, (x1, y1, x2, y2), (right - left, bottom - top), resample), (left, top))
    return canvas


def _pad_by_edge(
    image: Image.Image, box: Rectangle, window: Rectangle, size: tuple[int, int], resample: Image.Resampling
) -> NDArray[np.uint8]:
    """The visible part of the view at its position (to the nearest pixel), with its borders repeated around it."""
    x1, x2, left, right = _overlap_or_nearest(box[0], box[2], window[0], window[2], size[0], image.width)
    y1, y2, top, bottom = _overlap_or_nearest(box[1], box[3], window[1], window[3], size[1], image.height)
    inner = np.asarray(_cut(image, (x1, y1, x2, y2), (right - left, bottom - top), resample))
    around = ((top, size[1] - bottom), (left, size[0] - right), (0, 0))
    return np.pad(inner, around[: inner.ndim], mode="edge")


def _overlap(start: float, end: float, low: float, high: float, pixels: int) -> tuple[float, float, int, int]:
    """Along one side, the part of a view (start..end) in the window (low..high), and its pixels of the view."""
    low_edge, high_edge = max(start, low), min(end, high)
    scale = pixels / (end - start)
    return low_edge, high_edge, round((low_edge - start) * scale), round((high_edge - start) * scale)


def _overlap_or_nearest(
    start: float, end: float, low: float, high: float, pixels: int, extent: int
) -> tuple[float, float, int, int]:
    """As `_overlap`; if the view shows nothing of the window, the nearest pixel of it, which is then repeated."""
    overlap = _overlap(start, end, low, high, pixels)
    if overlap[2] < overlap[3]:
        return overlap
    pixel = (end - start) / pixels
    if high <= low:  # an empty window: `View.window`
        low, high = high, min(high + pixel, extent)
    edge = max(low, min(start, high - pixel))
    return edge, min(edge + pixel, high), 0, 1


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
    if isinstance(views, Views):
        crops, windows, sizes = views.box, views.window, np.tile(np.array(views.image_size, float), (len(views), 1))
    else:
        table = np.array([(*view.crop, *view.window, *view.image_size) for view in views])
        crops, windows, sizes = table[:, :4], table[:, 4:8], table[:, 8:]
    low, high = np.tile(windows[boxes.owners, :2], 2), np.tile(windows[boxes.owners, 2:], 2)
    corners = np.clip(boxes.corners, low, np.maximum(high, low))
    visible = Boxes(corners, boxes.offsets, boxes.labels, boxes.crowd)
    shares: Floats = objectness(visible, crops, sizes, reading=reading, names=names)
    return shares


def boxes_in_view(boxes: Floats, view: View) -> Floats:
    """The boxes [B, 4] of an image that a view shows, in its pixels, clipped to the visible part.

    Example:
        >>> from calibrant.data import draw_view
        >>> view = draw_view([Resize((4, 4))], (8, 8), np.random.default_rng(0))
        >>> boxes_in_view(np.array([[2.0, 4.0, 6.0, 20.0]]), view).tolist()
        [[1.0, 2.0, 3.0, 4.0]]
    """
    low, high = np.maximum(view.crop[:2], view.window[:2]), np.minimum(view.crop[2:], view.window[2:])
    corners = np.clip(boxes, np.tile(low, 2), np.tile(np.maximum(high, low), 2))
    return image_to_view(corners[(corners[:, 2:] > corners[:, :2]).all(1)], view)


def image_to_view(corners: Floats, view: View) -> Floats:
    """Boxes [B, 4] of an image in the pixels of a view, clipped to what it shows.

    Example:
        >>> view = View.whole(20, 10)._replace(width=40, height=20, flipped=True)
        >>> image_to_view(np.array([[1.0, 2.0, 5.0, 6.0]]), view).tolist()
        [[30.0, 4.0, 38.0, 12.0]]
    """
    offset, scale = _geometry(view)
    points = (np.asarray(corners, dtype=np.float64).reshape(-1, 2, 2) - offset) * scale
    if view.flipped:
        points[:, :, 0] = view.width - points[:, ::-1, 0]
    return np.clip(points, 0, (view.width, view.height)).reshape(-1, 4)


def view_to_image(corners: Floats, view: View) -> Floats:
    """Boxes [B, 4] of a view in the pixels of its image, clipped to the image.

    Example:
        >>> view = View.whole(20, 10)._replace(width=40, height=20, flipped=True)
        >>> view_to_image(np.array([[30.0, 4.0, 38.0, 12.0]]), view).tolist()
        [[1.0, 2.0, 5.0, 6.0]]
    """
    offset, scale = _geometry(view)
    points = np.array(corners, dtype=np.float64).reshape(-1, 2, 2)
    if view.flipped:
        points[:, :, 0] = view.width - points[:, ::-1, 0]
    return np.clip(points / scale + offset, 0, view.image_size).reshape(-1, 4)


def _geometry(view: View) -> tuple[Floats, Floats]:
    """The corner of the image at which a view begins, and the scale from image to view."""
    x1, y1, x2, y2 = view.crop
    return np.array([x1, y1]), np.array([view.width / (x2 - x1), view.height / (y2 - y1)])


def sample_generator(seed: int, epoch: int, index: int) -> np.random.Generator:
    """The random stream of one sample in one epoch: counter-based, and cheap to create."""
    counter = np.array([0, 0, epoch & _WORD, index & _WORD], dtype=np.uint64)
    key = np.array([seed & _WORD, (seed >> 64) & _WORD], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


class OneByOneError(Exception):
    """A batch cannot be rendered at once: its samples have to be rendered one by one."""


class Randomness:
    """The random streams of several samples, read together."""

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
            raise OneByOneError
        return (product >> _HALF).astype(np.int64)

    def _word(self) -> Words:
        block, word = divmod(self.used, 4)
        if block == len(self.blocks):
            self.blocks.append(philox(self.key, block + 1, self.epochs, self.indices))
        self.used += 1
        return self.blocks[block][word]


def philox(seed: int, number: int, epochs: Words, indices: Words) -> Words:
    """The words ``[4, n]`` of block ``number`` of each sample's stream."""
    key = [np.uint64(seed & _WORD), np.uint64((seed >> 64) & _WORD)]
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
    """The views of several images of one size, as columns; an item is the `View` of one image."""

    box: Floats  # [n, 4]: x1, y1, x2, y2
    size: tuple[int, int]  # width and height of the output, the same for all
    flipped: NDArray[np.bool_]  # [n]
    image_size: tuple[int, int]
    window: Floats  # [n, 4]

    @classmethod
    def whole(cls, number: int, width: int, height: int) -> Views:
        """The unchanged images."""
        box = np.tile(np.array([0.0, 0.0, width, height]), (number, 1))
        return cls(box, (width, height), np.zeros(number, dtype=bool), (width, height), box)

    def __len__(self) -> int:
        return len(self.box)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        x1, y1, x2, y2 = self.box[index].tolist()
        left, top, right, bottom = self.window[index].tolist()
        return View(x1, y1, x2, y2, *self.size, bool(self.flipped[index]), *self.image_size, (left, top, right, bottom))

    def part(self, left: Any, top: Any, size: tuple[int, int]) -> Views:
        """A part of each view, at the same scale: `View.part` with corners in output pixels."""
        w, h = size
        left = np.where(self.flipped, self.size[0] - left - w, left)
        low, high = self.window[:, :2], self.window[:, 2:]
        start, end = self.box[:, :2], self.box[:, 2:]
        if ((high <= low) | (end <= low) | (start >= high)).any():
            raise OneByOneError  # nothing is visible along a side, a case that `View.part` handles
        window = np.concatenate([np.maximum(low, start), np.minimum(high, end)], axis=1)
        x, y = self.box[:, 0] + left, self.box[:, 1] + top
        return replace(self, box=np.stack([x, y, x + w, y + h], axis=1), size=size, window=window)

    def slack(self, size: tuple[int, int]) -> tuple[int, int]:
        """By how much a part of this size is narrower and lower than the views."""
        width, height = self.size[0] - size[0], self.size[1] - size[1]
        if min(width, height) < 0:
            raise OneByOneError  # a larger crop is padded, which `CentreCrop` and `RandomCrop` do
        return width, height

    def padded(self, pixels: int) -> Views:
        """Pad every side by this many pixels."""
        return self.part(-pixels, -pixels, (self.size[0] + 2 * pixels, self.size[1] + 2 * pixels))


def draw_views(steps: Sequence[Step], number: int, size: tuple[int, int], random: Randomness) -> Views:
    """`draw_view` for several images of one size; an `OneByOneError` if a step does more than move whole pixels."""
    views = Views.whole(number, *size)
    for step in steps:
        if isinstance(step, RandomFlip):
            views = replace(views, flipped=views.flipped ^ (random.random() < step.probability))
        elif isinstance(step, Pad):
            views = views.padded(step.pixels)
        elif isinstance(step, RandomCrop):
            views = views.padded(step.padding)
            x, y = (random.integers(slack) for slack in views.slack(step.pair))
            views = views.part(x, y, step.pair)
        elif isinstance(step, CentreCrop):
            left, top = (round(slack / 2) for slack in views.slack(step.pair))
            views = views.part(left, top, step.pair)
        elif not isinstance(step, Resize) or step(View.whole(*views.size), np.random.default_rng(0))[4:6] != views.size:
            raise OneByOneError
    return views


def render_views(
    pixels: NDArray[np.uint8], rows: NDArray[np.int64], views: Views, fill: int | tuple[int, ...] | Edge
) -> NDArray[np.uint8]:
    """`render` for several images of an array [N, H, W] or [N, H, W, 3]: uint8 [n, height, width] or with 3."""
    (width, height), (image_width, image_height) = views.size, views.image_size
    if views.size == views.image_size and not views.flipped.any() and not views.box[:, :2].any():
        return pixels[rows]
    x = views.box[:, :1].astype(np.int64) + np.arange(width)
    y = views.box[:, 1:2].astype(np.int64) + np.arange(height)
    x = np.where(views.flipped[:, None], x[:, ::-1], x)
    left, top, right, bottom = views.window.astype(np.int64).T[:, :, None]
    visible_x, visible_y = np.clip(x, left, right - 1), np.clip(y, top, bottom - 1)
    indices = (rows[:, None] * image_height + visible_y)[:, :, None] * image_width + visible_x[:, None, :]
    out = pixels.reshape(-1, *pixels.shape[3:])[indices]
    if fill != "edge":
        outside = (visible_y != y)[:, :, None] | (visible_x != x)[:, None, :]
        if outside.any():
            out[outside] = fill
    return out


def grey(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """RGB images [..., 3] as grey [...]: PIL's ``"L"``."""
    wide = pixels.astype(np.uint32)
    return ((wide[..., 0] * 19595 + wide[..., 1] * 38470 + wide[..., 2] * 7471 + 0x8000) >> 16).astype(np.uint8)
