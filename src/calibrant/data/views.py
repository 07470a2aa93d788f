"""Augmentation by carrying a rectangle: which part of an image is seen, at which size, mirrored or not.

A chain of crops, flips, resizes and paddings is drawn from the image's size alone and folds into one `View`. The image
is then rendered once (decoded no larger than needed, cut and resized in one go), and the share of the view that
objects fill follows from the same rectangle (`calibrant.data.objects.objectness`), without a mask.

The steps follow torchvision.transforms in meaning and defaults, but for sizes, which are (width, height) as everywhere
here. Each draws from the generator it is given, so that a sample's view depends on nothing but its seed. A resize
followed by a centre crop is rendered as one resize of the cropped part, which differs from the two in turn only in how
the filter meets the edge.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, get_args

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from calibrant.data.objects import Boxes, Floats, Reading, objectness

#: Which side a `Resize` to one number is about.
Side = Literal["shorter", "longer"]
#: How images are scaled.
Resampling = Literal["bilinear", "bicubic"]
#: Padding that repeats the nearest visible pixel.
Edge = Literal["edge"]

#: A JPEG is decoded at 1/2, 1/4 or 1/8 of its size only while this many of its pixels remain for one of the view's.
_KEPT = 2.0


class View(NamedTuple):
    """A rectangle of the image, the size at which it is seen, and whether it is mirrored.

    Attributes:
        x1, y1, x2, y2: In pixels of the image.
        width, height: Of the output, in pixels.
        flipped: Left and right exchanged.
        image_width, image_height: Of the image.
        window: The part of the image that can be seen, x1, y1, x2, y2; around it lies padding. It is the whole image
            until padding follows a crop. Where nothing can be seen along a side, its end is not above its start, and
            says where the pixel begins that was nearest: what padding by ``"edge"`` repeats.
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
    window: tuple[float, float, float, float]

    @classmethod
    def whole(cls, width: int, height: int) -> View:
        """The image as it is."""
        all_of_it = (0.0, 0.0, float(width), float(height))
        return cls(*all_of_it, width, height, False, width, height, all_of_it)

    @property
    def crop(self) -> tuple[float, float, float, float]:
        """The rectangle, as `objectness` takes it."""
        return self[:4]

    @property
    def image_size(self) -> tuple[int, int]:
        """Width and height of the image."""
        return self.image_width, self.image_height

    def part(self, left: float, top: float, right: float, bottom: float, width: int, height: int) -> View:
        """A part of this view, given in its own (output) pixels; ``width`` and ``height`` are the new output's."""
        if self.flipped:
            left, right = self.width - right, self.width - left
        across, down = (self.x2 - self.x1) / self.width, (self.y2 - self.y1) / self.height
        # What this view does not show, no part of it shows: a later padding meets this edge, not the image's.
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


class Step(Protocol):
    """One step of a chain: takes a view, gives the next."""

    def __call__(self, view: View, random: np.random.Generator) -> View:
        """Give the next view."""


@dataclass(frozen=True)
class Resize:
    """To a size: the shorter or the longer side if one number, else (width, height).

    The other side is rounded down, as torchvision does it (``size`` and ``max_size``), but never below one pixel;
    albumentations' LongestMaxSize takes the nearest, which is a pixel more at most.

    Example:
        >>> Resize(32)(View.whole(64, 128), np.random.default_rng(0))[4:6]
        (32, 64)
        >>> Resize(32, side="longer")(View.whole(64, 128), np.random.default_rng(0))[4:6]
        (16, 32)
    """

    size: int | tuple[int, int]
    side: Side = "shorter"

    def __post_init__(self) -> None:
        if self.side not in get_args(Side):
            raise ValueError(f"Resize takes the side 'shorter' or 'longer', got {self.side!r}.")
        if not isinstance(self.size, int):
            object.__setattr__(self, "size", _pair(self.size))
            if self.side != "shorter":
                raise ValueError(f"Resize takes a side with one number, got side={self.side!r} with {self.size}.")
        elif self.size < 1:
            raise ValueError(f"Resize takes a size of at least 1 pixel, got {self.size}.")

    def __call__(self, view: View, random: np.random.Generator) -> View:
        """Give the next view."""
        if isinstance(self.size, tuple):
            width, height = self.size
        else:
            short, long = sorted((view.width, view.height))
            if self.side == "shorter":
                shorter, longer = self.size, int(self.size * long / short)
            else:
                shorter, longer = max(1, int(self.size * short / long)), self.size
            width, height = (shorter, longer) if view.width <= view.height else (longer, shorter)
        return view._replace(width=width, height=height)


@dataclass(frozen=True)
class Pad:
    """So many pixels on every side."""

    pixels: int

    def __post_init__(self) -> None:
        if self.pixels < 0:
            raise ValueError(f"Pad takes a number of pixels, got {self.pixels}.")

    def __call__(self, view: View, random: np.random.Generator) -> View:
        """Give the next view."""
        n, width, height = self.pixels, view.width, view.height
        return view.part(-n, -n, width + n, height + n, width + 2 * n, height + 2 * n)


@dataclass(frozen=True)
class CentreCrop:
    """The middle, at a size; where the view is smaller, padding fills it up."""

    size: int | tuple[int, int]

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", _pair(self.size))

    def __call__(self, view: View, random: np.random.Generator) -> View:
        """Give the next view."""
        width, height = _pair(self.size)
        left, top = _middle(view.width, width), _middle(view.height, height)
        return view.part(left, top, left + width, top + height, width, height)


@dataclass(frozen=True)
class RandomCrop:
    """Anywhere, at a size, after padding every side."""

    size: int | tuple[int, int]
    padding: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", _pair(self.size))
        if self.padding < 0:
            raise ValueError(f"RandomCrop takes a padding of 0 or more pixels, got {self.padding}.")

    def __call__(self, view: View, random: np.random.Generator) -> View:
        """Give the next view."""
        width, height = _pair(self.size)
        view = Pad(self.padding)(view, random)
        left, top = _anywhere(view.width, width, random), _anywhere(view.height, height, random)
        return view.part(left, top, left + width, top + height, width, height)


@dataclass(frozen=True)
class RandomResizedCrop:
    """A random part (area by ``scale``, aspect by ``ratio``), at a size: the crop of ImageNet training.

    Ten tries, then the largest middle part whose aspect is allowed, as torchvision does it.
    """

    size: int | tuple[int, int]
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", _pair(self.size))
        if not (0.0 < self.scale[0] <= self.scale[1] <= 1.0):
            raise ValueError(f"RandomResizedCrop takes a rising scale in 0..1, got {self.scale}.")
        if not (0.0 < self.ratio[0] <= self.ratio[1]):
            raise ValueError(f"RandomResizedCrop takes a rising ratio above 0, got {self.ratio}.")

    def __call__(self, view: View, random: np.random.Generator) -> View:
        """Give the next view."""
        width, height = _pair(self.size)
        area = view.width * view.height
        low, high = math.log(self.ratio[0]), math.log(self.ratio[1])
        for _ in range(10):
            target = area * random.uniform(*self.scale)
            aspect = math.exp(random.uniform(low, high))
            w, h = round(math.sqrt(target * aspect)), round(math.sqrt(target / aspect))
            if 0 < w <= view.width and 0 < h <= view.height:
                left, top = _anywhere(view.width, w, random), _anywhere(view.height, h, random)
                return view.part(left, top, left + w, top + h, width, height)
        aspect = min(max(view.width / view.height, self.ratio[0]), self.ratio[1])
        w, h = min(view.width, round(view.height * aspect)), min(view.height, round(view.width / aspect))
        left, top = (view.width - w) // 2, (view.height - h) // 2
        return view.part(left, top, left + w, top + h, width, height)


@dataclass(frozen=True)
class RandomFlip:
    """Left and right exchanged, with a probability."""

    probability: float = 0.5

    def __post_init__(self) -> None:
        if not 0.0 <= self.probability <= 1.0:
            raise ValueError(f"RandomFlip takes a probability in 0..1, got {self.probability}.")

    def __call__(self, view: View, random: np.random.Generator) -> View:
        """Give the next view."""
        return view._replace(flipped=not view.flipped) if random.random() < self.probability else view


def draw_view(steps: Sequence[Step], size: tuple[int, int], random: np.random.Generator) -> View:
    """The view that a chain of steps gives of an image of a size (width, height).

    Example:
        >>> chain = [Resize(256), CentreCrop(224)]
        >>> draw_view(chain, (512, 1024), np.random.default_rng(0)).crop  # 224 of 256 in the middle, at scale 2
        (32.0, 288.0, 480.0, 736.0)
    """
    view = View.whole(*size)
    for step in steps:
        view = step(view, random)
    return view


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


def _visible(low: float, high: float, start: float, end: float, pixel: float) -> tuple[float, float]:
    """Along one side, what of a window (low..high) a view (start..end) shows; see `View.window` for nothing."""
    if high <= low:
        return low, high
    if end <= low:
        return low, low
    if start >= high:
        return high, max(low, high - pixel)
    return max(low, start), min(high, end)


def objectness_of(
    boxes: Boxes, views: Sequence[View], *, reading: Reading = "union", names: Sequence[str] | None = None
) -> Floats:
    """How much of each view the boxes of its image fill, [N].

    Example:
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


def _pair(size: int | Sequence[int]) -> tuple[int, int]:
    pair = (size, size) if isinstance(size, int) else tuple(size)
    if len(pair) != 2 or not all(isinstance(side, int) and side >= 1 for side in pair):
        raise ValueError(f"a size is one number of pixels, or width and height, got {size!r}.")
    return pair[0], pair[1]


def _middle(outer: int, inner: int) -> int:
    return round((outer - inner) / 2) if outer >= inner else -((inner - outer) // 2)


def _anywhere(outer: int, inner: int, random: np.random.Generator) -> int:
    return int(random.integers(0, outer - inner, endpoint=True)) if outer >= inner else _middle(outer, inner)
