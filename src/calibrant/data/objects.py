"""Where the objects are: boxes, and how much of a crop they fill [ALS].

    objectness = area(union of the boxes, inside the image and the crop) / area(crop)

in closed form: the crop's rectangle is carried through the augmentation instead of a mask (`calibrant.data.views`), so
that ALS's targets cost a few additions per image. A box is x1, y1, x2, y2 in pixels, continuous: its width is x2 - x1.

    paper: w, h = the object's width and height; W, H = those of the crop; alpha = 1 - objectness

Rules: boxes are clipped to the image, then to the crop; a box without area counts 0; a crop may leave the image (that
is padding, and holds no object); an inverted box (x2 < x1 or y2 < y1), NaN or an empty crop is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, overload

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Reading = Literal["union", "single"]

#: Elements of the largest buffer of `union_area`.
_ELEMENTS = 2**21


@dataclass(frozen=True, eq=False)
class Boxes:
    """The boxes of N images, one after the other: those of image i are ``corners[offsets[i]:offsets[i + 1]]``.

    Attributes:
        corners: [M, 4] float64: x1, y1, x2, y2 in pixels.
        offsets: [N + 1] int64.
        labels: [M] int64: the class of each box; -1 where it has none.
        crowd: [M] bool: boxes around many objects (COCO's ``iscrowd``): object pixels, but no single object.

    Example:
        >>> boxes = Boxes.of([[[0, 0, 4, 4], [2, 2, 6, 6]], []], labels=[[1, 0], []])
        >>> len(boxes), boxes[0].tolist(), boxes[1].shape
        (2, [[0.0, 0.0, 4.0, 4.0], [2.0, 2.0, 6.0, 6.0]], (0, 4))
    """

    corners: Floats
    offsets: Integers
    labels: Integers
    crowd: NDArray[np.bool_]

    def __post_init__(self) -> None:
        total = len(self.corners)
        if self.corners.shape != (total, 4) or self.labels.shape != (total,) or self.crowd.shape != (total,):
            raise ValueError(
                f"Boxes takes corners [M, 4], labels [M] and crowd [M], got {self.corners.shape}, "
                f"{self.labels.shape} and {self.crowd.shape}."
            )
        if (
            len(self.offsets) < 1
            or self.offsets[0] != 0
            or self.offsets[-1] != total
            or (np.diff(self.offsets) < 0).any()
        ):
            raise ValueError(f"Boxes takes offsets that rise from 0 to the number of boxes, {total}.")

    @classmethod
    def of(
        cls,
        boxes: Sequence[ArrayLike],
        labels: Sequence[ArrayLike] | None = None,
        crowd: Sequence[ArrayLike] | None = None,
    ) -> Boxes:
        """Boxes from one array-like [B, 4] per image (and one [B] of labels and crowd flags)."""
        arrays = [np.asarray(b, dtype=np.float64).reshape(-1, 4) for b in boxes]
        offsets = np.concatenate([[0], np.cumsum([len(a) for a in arrays], dtype=np.int64)]).astype(np.int64)
        corners = np.concatenate(arrays) if arrays else np.zeros((0, 4))
        return cls(
            corners,
            offsets,
            _joined(labels, np.int64) if labels is not None else np.full(len(corners), -1, dtype=np.int64),
            _joined(crowd, np.bool_) if crowd is not None else np.zeros(len(corners), dtype=bool),
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> Floats:
        return self.corners[self.span(index)]

    def span(self, index: int) -> slice:
        """Where the boxes of one image lie in ``corners``, ``labels`` and ``crowd``."""
        return slice(int(self.offsets[index]), int(self.offsets[index + 1]))

    @property
    def counts(self) -> Integers:
        """Number of boxes of each image, [N]."""
        return np.diff(self.offsets)

    @property
    def owners(self) -> Integers:
        """Which image each box belongs to, [M]."""
        return np.repeat(np.arange(len(self)), self.counts)

    @property
    def areas(self) -> Floats:
        """Area of each box, [M]."""
        return np.prod(self.corners[:, 2:] - self.corners[:, :2], axis=1)

    def take(self, indices: Integers) -> Boxes:
        """The boxes of some of the images, in the order of ``indices``."""
        counts = self.counts[indices]
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        # Row j of the result comes from its image's start plus its place among that image's boxes.
        rows = np.arange(offsets[-1]) - np.repeat(offsets[:-1] - self.offsets[indices], counts)
        return Boxes(self.corners[rows], offsets, self.labels[rows], self.crowd[rows])

    def padded(self) -> Floats:
        """[N, B, 4] with B the largest count; the places left over hold boxes without area."""
        counts = self.counts
        result = np.zeros((len(self), int(counts.max(initial=0)), 4))
        result[np.arange(result.shape[1]) < counts[:, None]] = self.corners
        return result


def _joined(parts: Sequence[ArrayLike], dtype: Any) -> NDArray[Any]:
    arrays = [np.asarray(p, dtype=dtype).reshape(-1) for p in parts]
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype=dtype)


@overload
def objectness(
    boxes: Tensor, crop: Any, image_size: Any, *, reading: Reading = ..., names: Sequence[str] | None = ...
) -> Tensor: ...
@overload
def objectness(
    boxes: Any, crop: Any, image_size: Any, *, reading: Reading = ..., names: Sequence[str] | None = ...
) -> Any: ...
def objectness(
    boxes: Any,
    crop: Any,
    image_size: Any,
    *,
    reading: Reading = "union",
    names: Sequence[str] | None = None,
) -> Any:
    """Share of a crop that the boxes cover, for one image or a mini-batch.

    Args:
        boxes: Of one image [B, 4], as x1, y1, x2, y2 in pixels of the image; of a batch: `Boxes`, a list of [B_i, 4],
            or [N, B, 4] in which boxes without area count 0.
        crop: x1, y1, x2, y2 in pixels of the image, [4] or [N, 4]; it may leave the image. None is the whole image. One
            image and N crops give N values.
        image_size: Width and height, [2] or [N, 2]; boxes are clipped to it.
        reading: ``"union"`` is the area of the union of the boxes, as ALS counts mask pixels (its Fig. 4); ``"single"``
            is ALS's wh/WH in the text: the box that shows most in the crop, alone.
        names: What to call the images in errors; their position otherwise.

    Returns:
        float64, between 0 and 1: a number for one image and one crop, else [N]; a tensor if ``boxes`` or ``crop`` is.

    Raises:
        ValueError: Inverted boxes, NaN, an empty crop, shapes that do not fit.

    Example:
        >>> objectness([[0, 0, 4, 4], [2, 2, 6, 6]], crop=[0, 0, 8, 8], image_size=[8, 8])  # 16 + 16 - 4 of 64
        0.4375
        >>> objectness([[[0, 0, 4, 4]], []], crop=[2, 0, 6, 4], image_size=[8, 8]).tolist()
        [0.5, 0.0]

    Reference:
        [ALS], section 3 and Fig. 4.
    """
    as_tensor = isinstance(boxes, Tensor) or isinstance(crop, Tensor)
    corners, one = _corners(boxes)
    sizes = _rows("image_size", image_size, 2)
    if not (np.isfinite(sizes).all() and (sizes > 0).all()):
        raise ValueError(
            f"objectness takes image sizes (width, height) above 0, got {sizes[(sizes <= 0).any(1)][:1].tolist()}."
        )
    crops = np.concatenate([np.zeros_like(sizes), sizes], axis=1) if crop is None else _rows("crop", crop, 4)
    single = one and np.ndim(crop if crop is not None else image_size) < 2
    number = max(len(corners), len(crops), len(sizes))
    for name, given in (("boxes", corners), ("crop", crops), ("image_size", sizes)):
        if len(given) not in (1, number):
            raise ValueError(f"objectness got {len(given)} of {name} for {number} images.")
    _refuse_broken(corners, crops, names)
    shares = np.clip(_covered(corners, crops, sizes, reading) / _area(crops), 0.0, 1.0)
    shares = np.broadcast_to(shares, (number,))
    if as_tensor:
        result = torch.from_numpy(shares.copy())
        return result[0] if single else result
    return float(shares[0]) if single else shares.copy()


def _covered(corners: Floats, crops: Floats, sizes: Floats, reading: Reading) -> Floats:
    if reading not in ("union", "single"):
        raise ValueError(f"objectness knows the readings 'union' and 'single', got {reading!r}.")
    low = np.maximum(crops[:, :2], 0.0)
    high = np.maximum(np.minimum(crops[:, 2:], sizes), low)  # a crop beside the image sees nothing of it
    low, high = np.tile(low, 2)[:, None], np.tile(high, 2)[:, None]
    seen = np.clip(corners, low, high)
    return union_area(seen) if reading == "union" else _area(seen).max(axis=1, initial=0.0)


def union_area(boxes: Floats) -> Floats:
    """Area of the union of each image's boxes: [N, B, 4] -> [N].

    Between two neighbouring x-edges the union is a fixed set of y-intervals; with the boxes sorted by y1, its length is
    the sum of what each box adds to the furthest y2 so far. B^2 operations per image, exact for integer corners.

    Example:
        >>> union_area(np.array([[[0.0, 0, 4, 4], [2, 2, 6, 6], [3, 3, 3, 9]]])).tolist()
        [28.0]
    """
    number, count = boxes.shape[:2]
    if count == 0:
        return np.zeros(number)
    if count == 1:
        return _area(boxes[:, 0])
    result = np.empty(number)
    rows = max(1, _ELEMENTS // (2 * count * count))
    for start in range(0, number, rows):
        part = boxes[start : start + rows]
        part = np.take_along_axis(part, np.argsort(part[:, :, 1], axis=1)[:, :, None], axis=1)
        x1, y1, x2, y2 = np.moveaxis(part, 2, 0)
        edges = np.sort(np.concatenate([x1, x2], axis=1), axis=1)
        inside = (x1[:, None] <= edges[:, :-1, None]) & (edges[:, 1:, None] <= x2[:, None])  # [n, slab, box]
        furthest = np.maximum.accumulate(np.where(inside, y2[:, None], -np.inf), axis=2)
        before = np.concatenate([np.full_like(furthest[:, :, :1], -np.inf), furthest[:, :, :-1]], axis=2)
        added = np.where(inside, furthest - np.maximum(y1[:, None], before), 0.0)
        result[start : start + rows] = (added.sum(axis=2) * np.diff(edges, axis=1)).sum(axis=1)
    return result


def _area(boxes: Floats) -> Floats:
    return (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])


def _corners(boxes: Any) -> tuple[Floats, bool]:
    """[N, B, 4], and whether it was one image's [B, 4]."""
    if isinstance(boxes, Boxes):
        return boxes.padded(), False
    if (
        isinstance(boxes, (list, tuple))
        and len(boxes)
        and all(np.ndim(_plain(b)) == 2 or np.size(_plain(b)) == 0 for b in boxes)
    ):
        return Boxes.of([_four(b) for b in boxes]).padded(), False
    array = np.asarray(_plain(boxes), dtype=np.float64)
    if array.ndim == 3:
        return _four(array, 3), False
    return _four(array)[None], True


def _four(boxes: Any, dimensions: int = 2) -> Floats:
    array = np.asarray(_plain(boxes), dtype=np.float64)
    if array.size == 0 and dimensions == 2:
        return np.zeros((0, 4))
    if array.ndim == 1 and len(array) == 4:
        array = array[None]
    if array.ndim != dimensions or array.shape[-1] != 4:
        raise ValueError(
            f"objectness takes boxes [B, 4] or [N, B, 4] as x1, y1, x2, y2, got shape {list(array.shape)}."
        )
    return array


def _rows(name: str, values: Any, width: int) -> Floats:
    array = np.asarray(_plain(values), dtype=np.float64)
    if array.ndim not in (1, 2) or array.shape[-1] != width:
        raise ValueError(f"objectness takes {name} of shape [{width}] or [N, {width}], got {list(array.shape)}.")
    return array.reshape(-1, width)


def _plain(values: Any) -> Any:
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else values


def _refuse_broken(corners: Floats, crops: Floats, names: Sequence[str] | None) -> None:
    def called(index: int) -> str:
        return str(names[index]) if names is not None else f"image {index}"

    broken = ~np.isfinite(corners).all(axis=2) | (corners[..., 2:] < corners[..., :2]).any(axis=2)
    if broken.any():
        image, box = (int(i[0]) for i in np.nonzero(broken))
        raise ValueError(
            f"{called(image)}: box {box} is inverted or not finite (x1, y1, x2, y2 = {corners[image, box].tolist()})."
        )
    empty = ~(np.isfinite(crops).all(axis=1) & (crops[:, 2:] > crops[:, :2]).all(axis=1))
    if empty.any():
        index = int(np.flatnonzero(empty)[0])
        raise ValueError(
            f"{called(index)}: the crop {crops[index].tolist()} has no area (x1, y1, x2, y2 are expected)."
        )
