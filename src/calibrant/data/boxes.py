"""Boxes of objects, and how much of a crop they fill [ALS].

    objectness = area(union of the boxes, inside the image and the crop) / area(crop)

in closed form: the crop's rectangle is carried through the augmentation (`calibrant.data.transforms`) instead of a
mask, so that ALS's targets cost a few additions per image. A box is x1, y1, x2, y2 in continuous pixels, of width
x2 - x1.

    paper: w, h = the object's width and height; W, H = those of the crop; alpha = 1 - objectness

Rules: boxes are clipped to the image, then to the crop; a box without area counts 0; a crop may extend beyond the image
(that is padding, which shows no object); an inverted box (x2 < x1 or y2 < y1), NaN or an empty crop is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from calibrant.base.arrays import row_slices
from calibrant.base.checks import check_choice

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
        crowd: [M] bool: boxes around many objects (COCO's ``iscrowd``): they cover pixels, but are not single objects.
        object_areas: [M] float64: pixels of each object where annotated (COCO's ``area``, of a mask), else NaN; None if
            no annotation has it.

    Example:
        >>> boxes = Boxes.of([[[0, 0, 4, 4], [2, 2, 6, 6]], []], labels=[[1, 0], []])
        >>> len(boxes), boxes[0].tolist(), boxes[1].shape
        (2, [[0.0, 0.0, 4.0, 4.0], [2.0, 2.0, 6.0, 6.0]], (0, 4))
    """

    corners: Floats
    offsets: Integers
    labels: Integers
    crowd: NDArray[np.bool_]
    object_areas: Floats | None = None

    def __post_init__(self) -> None:
        total = len(self.corners)
        if self.object_areas is not None and self.object_areas.shape != (total,):
            raise ValueError(f"Boxes takes object_areas [M], got {self.object_areas.shape} for {total} boxes")
        if self.corners.shape != (total, 4) or self.labels.shape != (total,) or self.crowd.shape != (total,):
            shapes = f"{self.corners.shape}, {self.labels.shape} and {self.crowd.shape}"
            raise ValueError(f"Boxes takes corners [M, 4], labels [M] and crowd [M], got {shapes}")
        ends = self.offsets[[0, -1]].tolist() if len(self.offsets) else []
        if ends != [0, total] or (np.diff(self.offsets) < 0).any():
            raise ValueError(f"Boxes takes offsets that rise from 0 to the number of boxes, {total}")
        _check_corners(self.corners, self.offsets, "image {}".format)

    @classmethod
    def of(
        cls,
        boxes: Sequence[ArrayLike],
        labels: Sequence[ArrayLike] | None = None,
        crowd: Sequence[ArrayLike] | None = None,
    ) -> Boxes:
        """Boxes from one array-like [B, 4] per image (and one [B] of labels and crowd flags)."""
        arrays = [_as_corners(b) for b in boxes]
        counts = [len(a) for a in arrays]
        corners = np.concatenate(arrays) if arrays else np.zeros((0, 4))
        classes = _concatenate("labels", [np.full(n, -1) for n in counts] if labels is None else labels, counts)
        crowds = _concatenate("crowd", [np.zeros(n) for n in counts] if crowd is None else crowd, counts)
        return cls(corners, _offsets(counts), classes, crowds.astype(bool))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> Floats:
        return self.corners[self.span(index)]

    def span(self, index: int) -> slice:
        """The rows of one image's boxes in ``corners``, ``labels`` and ``crowd``."""
        index = range(len(self))[index]  # allows negative indices
        return slice(int(self.offsets[index]), int(self.offsets[index + 1]))

    @property
    def counts(self) -> Integers:
        """Number of boxes of each image, [N]."""
        return np.diff(self.offsets)

    @property
    def owners(self) -> Integers:
        """The image that each box belongs to, [M]."""
        return np.repeat(np.arange(len(self)), self.counts)

    @property
    def areas(self) -> Floats:
        """Area of each box, [M]."""
        return np.prod(self.corners[:, 2:] - self.corners[:, :2], axis=1)

    def take(self, indices: Integers) -> Boxes:
        """The boxes of some of the images, in the order of ``indices``."""
        indices = as_indices(indices, len(self))
        counts = self.counts[indices]
        offsets = _offsets(counts)
        # Row j of the result is its image's first row plus its position among that image's boxes.
        rows = np.arange(offsets[-1]) - np.repeat(offsets[:-1] - self.offsets[indices], counts)
        return self._rows(rows, offsets)

    def only(self, chosen: NDArray[np.bool_]) -> Boxes:
        """Some of the boxes, [M] bool, of the same images."""
        counts = np.bincount(self.owners[chosen], minlength=len(self))
        return self._rows(chosen, _offsets(counts))

    def _rows(self, rows: NDArray[Any], offsets: Integers) -> Boxes:
        areas = None if self.object_areas is None else self.object_areas[rows]
        return Boxes(self.corners[rows], offsets, self.labels[rows], self.crowd[rows], areas)

    def __add__(self, other: Boxes) -> Boxes:
        offsets = np.concatenate([self.offsets, other.offsets[1:] + self.offsets[-1]])
        columns = ((getattr(self, name), getattr(other, name)) for name in ("corners", "labels", "crowd"))
        corners, labels, crowd = map(np.concatenate, columns)
        areas = None
        if self.object_areas is not None or other.object_areas is not None:
            columns_of_areas = ((b.object_areas, len(b.corners)) for b in (self, other))
            areas = np.concatenate([np.full(n, np.nan) if column is None else column for column, n in columns_of_areas])
        return Boxes(corners, offsets, labels, crowd, areas)


def as_indices(values: Any, number: int) -> Integers:
    """Positions in 0..number-1 from positions (negative ones count from the end) or from a mask [number]."""
    array = np.asarray(values)
    if array.dtype == bool:
        if array.shape != (number,):
            raise ValueError(f"a mask must have the shape [{number}], one value per sample, got {list(array.shape)}")
        return np.flatnonzero(array)
    if array.size == 0:
        return np.zeros(0, dtype=np.int64)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"positions must be whole numbers [N], got {array.dtype} of shape {list(array.shape)}")
    array = array.astype(np.int64)
    array = np.where(array < 0, array + number, array)
    if array.min() < 0 or array.max() >= number:
        raise IndexError(f"a position is outside the {number} samples")
    return array


def _offsets(counts: ArrayLike) -> Integers:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def _concatenate(name: str, parts: Sequence[ArrayLike], counts: Sequence[int]) -> Integers:
    arrays = [np.asarray(p, dtype=np.int64).reshape(-1) for p in parts]
    if [len(a) for a in arrays] != list(counts):
        raise ValueError(f"Boxes takes one entry of {name} per box, got a different number")
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype=np.int64)


def objectness(
    boxes: Any, crop: Any, image_size: Any, *, reading: Reading = "union", names: Sequence[str] | str | None = None
) -> Any:
    """Share of a crop that the boxes cover, for one image or a mini-batch.

    Args:
        boxes: Boxes of one image [B, 4], as x1, y1, x2, y2 in pixels of the image; of a batch: `Boxes`, a list of [B_i,
            4], or [N, B, 4] in which boxes without area count 0.
        crop: x1, y1, x2, y2 in pixels of the image, [4] or [N, 4]; it may extend beyond the image. None is the whole
            image. One image and N crops give N values.
        image_size: Width and height, [2] or [N, 2]; boxes are clipped to it.
        reading: ``"union"`` is the area of the union of the boxes, as ALS counts mask pixels (its Fig. 4); ``"single"``
            is ALS's wh/WH in the text: the box with the largest visible area alone.
        names: Names of the images for errors; their positions if left out.

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
    device = next((v.device for v in _items(boxes, crop) if isinstance(v, Tensor)), None)
    corners, counts, one_image = _flatten_boxes(boxes)
    sizes, one_size = _as_rows("image_size", image_size, 2)
    if not (np.isfinite(sizes).all() and (sizes > 0).all()):
        raise ValueError(f"objectness takes image sizes (width, height) above 0, got {sizes.tolist()[:4]}")
    full = np.concatenate([np.zeros_like(sizes), sizes], axis=1)
    crops, one_crop = (full, one_size) if crop is None else _as_rows("crop", crop, 4)
    number = _common_length({"boxes": counts, "crop": crops, "image_size": sizes})
    _check_geometry(corners, counts, crops, names)
    if len(counts) != number:  # one image, seen through many crops
        corners, counts = np.tile(corners, (number, 1)), np.tile(counts, number)
    crops, sizes = np.broadcast_to(crops, (number, 4)), np.broadcast_to(sizes, (number, 2))
    shares = np.clip(_covered_area(corners, counts, crops, sizes, reading) / _area(crops), 0.0, 1.0)
    single = one_image and one_crop and one_size
    if device is None:
        return float(shares[0]) if single else shares
    result = torch.from_numpy(shares).to(device)
    return result[0] if single else result


def _covered_area(corners: Floats, counts: Integers, crops: Floats, sizes: Floats, reading: Reading) -> Floats:
    check_choice("reading", reading, ("union", "single"))
    low = np.maximum(crops[:, :2], 0.0)
    high = np.maximum(np.minimum(crops[:, 2:], sizes), low)  # a crop beside the image shows nothing of it
    owners = np.repeat(np.arange(len(counts)), counts)
    clipped = np.clip(corners, np.tile(low, 2)[owners], np.tile(high, 2)[owners])
    if reading == "single":
        largest = np.zeros(len(counts))
        np.maximum.at(largest, owners, _area(clipped))
        return largest
    visible = _area(clipped) > 0
    return _union_areas(clipped[visible], np.bincount(owners[visible], minlength=len(counts)))


def union_area(boxes: Floats) -> Floats:
    """Area of the union of each image's boxes: [N, B, 4] -> [N]; boxes without area do not count.

    Between two neighbouring x-edges the union is a fixed set of y-intervals; with the boxes sorted by y1, its length is
    the sum of what each box adds to the furthest y2 so far. B^2 operations per image, exact for integer corners.

    Example:
        >>> union_area(np.array([[[0.0, 0, 4, 4], [2, 2, 6, 6], [3, 3, 3, 9]]])).tolist()
        [28.0]
    """
    visible = _area(boxes) > 0
    return _union_areas(boxes[visible], visible.sum(axis=1))


def _union_areas(corners: Floats, counts: Integers) -> Floats:
    """Areas of the unions of the boxes of each image; images with the same number of boxes are processed together."""
    result = np.zeros(len(counts))
    starts = np.cumsum(counts) - counts
    for count in np.unique(counts[counts > 0]):
        images = np.flatnonzero(counts == count)
        boxes = corners[starts[images][:, None] + np.arange(count)]
        if count == 1:
            result[images] = _area(boxes[:, 0])
            continue
        for part in row_slices(len(images), 2 * count * count, _ELEMENTS):
            result[images[part]] = _union_areas_by_slabs(boxes[part])
    return result


def _union_areas_by_slabs(boxes: Floats) -> Floats:
    """Areas of the unions of [N, B, 4], slab by slab."""
    boxes = np.take_along_axis(boxes, np.argsort(boxes[:, :, 1], axis=1)[:, :, None], axis=1)
    x1, y1, x2, y2 = np.moveaxis(boxes, 2, 0)
    edges = np.sort(np.concatenate([x1, x2], axis=1), axis=1)
    area = np.zeros(len(boxes))
    for slabs in row_slices(edges.shape[1] - 1, x1.size, _ELEMENTS):
        left, right = edges[:, :-1][:, slabs], edges[:, 1:][:, slabs]
        inside = (x1[:, None] <= left[:, :, None]) & (right[:, :, None] <= x2[:, None])  # [n, slab, box]
        furthest = np.maximum.accumulate(np.where(inside, y2[:, None], -np.inf), axis=2)
        before = np.concatenate([np.full_like(furthest[:, :, :1], -np.inf), furthest[:, :, :-1]], axis=2)
        added = np.where(inside, furthest - np.maximum(y1[:, None], before), 0.0)
        area += (added.sum(axis=2) * (right - left)).sum(axis=1)
    return area


def _area(boxes: Floats) -> Floats:
    return (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])


def _items(*values: Any) -> Iterator[Any]:
    for value in values:
        yield value
        if isinstance(value, (list, tuple)):
            yield from value


def _flatten_boxes(boxes: Any) -> tuple[Floats, Integers, bool]:
    """Corners of all images [M, 4], the boxes per image [N], and whether a single image was given."""
    if isinstance(boxes, Boxes):
        return boxes.corners, boxes.counts, False
    if isinstance(boxes, (list, tuple)) and len(boxes):
        boxes = [_to_numpy(b) for b in boxes]
        if all(np.ndim(b) == 2 or not np.size(b) for b in boxes):
            arrays = [_as_corners(b) for b in boxes]
            return np.concatenate(arrays), np.array([len(a) for a in arrays], dtype=np.int64), False
    array = _as_corners(boxes, (1, 2, 3))
    if array.ndim == 3:
        return array.reshape(-1, 4), np.full(len(array), array.shape[1], dtype=np.int64), False
    return array, np.array([len(array)], dtype=np.int64), True


def _as_corners(boxes: Any, dimensions: tuple[int, ...] = (1, 2)) -> Floats:
    """Boxes as float64 [B, 4] (or [N, B, 4])."""
    requirement = "boxes must be [B, 4] as x1, y1, x2, y2" + (", or [N, B, 4]" if 3 in dimensions else "")
    try:
        array = np.asarray(_to_numpy(boxes), dtype=np.float64)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{requirement}, got something else ({' '.join(str(error).split())})") from error
    if array.size == 0 and array.ndim < 3:
        return np.zeros((0, 4))
    if array.ndim == 1 and len(array) == 4:
        array = array[None]
    if array.ndim not in dimensions or array.ndim == 1 or array.shape[-1] != 4:
        raise ValueError(f"{requirement}, got shape {list(array.shape)}")
    return array


def _as_rows(name: str, values: Any, width: int) -> tuple[Floats, bool]:
    """Values as [N, width], and whether a single row was given."""
    if isinstance(values, (list, tuple)):
        values = [_to_numpy(value) for value in values]
    try:
        array = np.asarray(_to_numpy(values), dtype=np.float64)
    except (ValueError, TypeError) as error:
        raise ValueError(f"objectness takes {name} of numbers ({' '.join(str(error).split())})") from error
    if array.ndim not in (1, 2) or array.shape[-1] != width:
        raise ValueError(f"objectness takes {name} of shape [{width}] or [N, {width}], got {list(array.shape)}")
    return array.reshape(-1, width), array.ndim == 1


def _common_length(columns: dict[str, NDArray[Any]]) -> int:
    """The number of images; a length of 1 is broadcast."""
    number = next((len(values) for values in columns.values() if len(values) != 1), 1)
    for name, values in columns.items():
        if len(values) not in (1, number):
            raise ValueError(f"objectness got {len(values)} of {name} for {number} images")
    return number


def _to_numpy(values: Any) -> Any:
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        return (values.float() if values.dtype == torch.bfloat16 else values).numpy()
    return values


def _check_corners(corners: Floats, offsets: Integers, name: Callable[[int], str]) -> None:
    broken = ~np.isfinite(corners).all(axis=1) | (corners[:, 2:] < corners[:, :2]).any(axis=1)
    if broken.any():
        row = int(broken.argmax())
        image = int(np.searchsorted(offsets, row, side="right")) - 1
        box = row - int(offsets[image])
        raise ValueError(
            f"{name(image)}: box {box} is inverted or not finite (x1, y1, x2, y2 = {corners[row].tolist()})"
        )


def _check_geometry(corners: Floats, counts: Integers, crops: Floats, names: Sequence[str] | str | None) -> None:
    titles = [names] if isinstance(names, str) else names or []

    def name(index: int) -> str:
        return str(titles[index]) if index < len(titles) else f"image {index}"

    _check_corners(corners, _offsets(counts), name)
    empty = ~(np.isfinite(crops).all(axis=1) & (crops[:, 2:] > crops[:, :2]).all(axis=1))
    if empty.any():
        index = int(empty.argmax())
        raise ValueError(f"{name(index)}: the crop {crops[index].tolist()} has no area (x1, y1, x2, y2 are expected)")
