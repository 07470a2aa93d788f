"""Masked data sets [ALS, section 4.1, A.2, Fig. 4]: one object per sample, or none.

Both are made when a sample is read; `calibrant data make-variant` writes them as a data set. Objects are covered by the
data set's mean pixel; a box covers every pixel that it touches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from calibrant.data.boxes import Boxes, Floats, Integers
from calibrant.data.dataset import Dataset
from calibrant.data.sources import Draft, Header, Kind

Colour = tuple[int, int, int]

#: Images that `pixel_mean` reads by default: enough for the nearest of 256 levels on any photographs.
MEAN_OF = 5000


def pixel_mean(dataset: Dataset, limit: int | None = MEAN_OF) -> Colour:
    """Mean pixel of a data set's images, rounded: every pixel of every image counts the same.

    Args:
        dataset: A data set of images.
        limit: The largest number of images to read, evenly spread over the data set; all if None.

    Example:
        >>> from calibrant.data import ImageArray
        >>> pixels = np.full((2, 4, 4, 3), (10, 20, 30), dtype=np.uint8)
        >>> pixel_mean(Dataset("tiny", "train", ("cat",), ("a", "b"), [0, 0], ImageArray(pixels)))
        (10, 20, 30)
    """
    _need_images(dataset)
    if len(dataset) == 0:
        raise ValueError(f"{dataset.title}: no images, hence no mean pixel")
    number = len(dataset) if limit is None else min(limit, len(dataset))
    total, count = np.zeros(3), 0
    for index in np.linspace(0, len(dataset) - 1, number).astype(int):
        pixels = np.asarray(dataset.inputs[index])
        total += pixels.reshape(-1, 3).sum(axis=0, dtype=np.float64)
        count += pixels.shape[0] * pixels.shape[1]
    red, green, blue = (round(value) for value in total / count)
    return red, green, blue


def single_object(dataset: Dataset, fill: Colour | None = None) -> Dataset:
    """One sample per annotated object, all others covered ("mask" in ALS's tables).

    The object's own box stays visible even where another box overlaps it, so that its objectness is that of its box.
    Boxes without area or without a class, and crowds, are covered but give no sample.

    Args:
        dataset: A data set with boxes.
        fill: Colour of covered objects; the mean pixel if None.

    Returns:
        A data set whose ids are ``<id>#<number of the box>`` and whose labels are the objects'.
    """
    boxes = need_boxes(dataset)
    rows = np.flatnonzero(_is_visible(boxes) & (boxes.labels >= 0) & ~boxes.crowd)
    owner = boxes.owners[rows]
    number = rows - boxes.offsets[owner]  # of the box among those of its image
    covered = CoveredImages(dataset.inputs.take(owner), boxes.take(owner), fill or pixel_mean(dataset), number)
    alone = Boxes(boxes.corners[rows], np.arange(len(rows) + 1), boxes.labels[rows], np.zeros(len(rows), dtype=bool))
    return dataset.take(
        owner,
        name=f"{dataset.name} (single object)",
        ids=tuple(f"{dataset.ids[i]}#{n}" for i, n in zip(owner, number, strict=True)),
        labels=boxes.labels[rows],
        inputs=covered,
        boxes=alone,
        masks=None,
        soft=None,
    )


def context_only(dataset: Dataset, fill: Colour | None = None) -> Dataset:
    """Cover every object: only the context is left.

    Images without boxes, or with a box without area, are left out: an object may be visible there. Labels are kept, to
    measure how much a classifier reads from context (ALS, Table 1); for training, ``context`` marks the samples and
    `adaptive_targets` gives them 1/K.

    Args:
        dataset: A data set with boxes.
        fill: Colour of covered objects; the mean pixel if None.
    """
    boxes = need_boxes(dataset)
    rows = np.flatnonzero(can_be_covered(boxes) & (dataset.labels >= 0))
    return dataset.take(
        rows,
        name=f"{dataset.name} (context only)",
        inputs=CoveredImages(dataset.inputs.take(rows), boxes.take(rows), fill or pixel_mean(dataset)),
        boxes=Boxes.of([[]] * len(rows)),
        masks=None,
        soft=None,
        context=np.ones(len(rows), dtype=bool),
    )


def can_be_covered(boxes: Boxes) -> NDArray[np.bool_]:
    """Which images [N] have boxes, each with an area inside the image."""
    hidden = np.zeros(len(boxes), dtype=bool)
    np.logical_or.at(hidden, boxes.owners, ~_is_visible(boxes))
    return (boxes.counts > 0) & ~hidden


def _is_visible(boxes: Boxes) -> NDArray[np.bool_]:
    return (boxes.areas > 0) & (boxes.corners[:, 2:] > 0).all(axis=1)


@dataclass(frozen=True, eq=False)
class CoveredImages:
    """Images whose boxes are covered, except the one per image that ``visible`` names."""

    images: Any  # a source of images
    boxes: Boxes
    fill: Colour
    visible: Integers | None = None

    kind: ClassVar[Kind] = "image"

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Image.Image:
        return self.open(index)

    def take(self, indices: Integers) -> CoveredImages:
        """Some of the samples, in the order of ``indices``."""
        visible = None if self.visible is None else self.visible[indices]
        return CoveredImages(self.images.take(indices), self.boxes.take(indices), self.fill, visible)

    def where(self, index: int) -> str:
        """The name that the images' source gives to a sample."""
        return self.images.where(index)

    def header(self, index: int) -> Header:
        """Width and height, and PIL's mode, without decoding."""
        return self.images.header(index)[0], "RGB"

    def open(self, index: int, draft: Draft | None = None) -> Image.Image:
        """The image with its objects covered."""
        visible = None if self.visible is None else self.boxes[index][self.visible[index]]
        return open_covered(self.images, index, self.boxes[index], self.fill, visible, draft)


def open_covered(
    images: Any, index: int, boxes: Floats, fill: Colour, visible: Floats | None = None, draft: Draft | None = None
) -> Image.Image:
    """Read an image and cover its boxes; the box ``visible`` stays."""
    sizes: list[tuple[int, int]] = []

    def look(image: Image.Image) -> None:
        sizes.append(image.size)  # before a smaller decoding changes it: the boxes are in these pixels
        if draft is not None:
            draft(image)

    image = images.open(index, look)
    width, height = sizes[0] if sizes else image.size
    scale = np.tile([image.width / width, image.height / height], 2)
    return cover(image, boxes * scale, fill, None if visible is None else visible * scale)


def cover(image: Image.Image, boxes: Floats, fill: Colour, visible: Floats | None = None) -> Image.Image:
    """A copy of an RGB image with every pixel that a box touches painted, except those in ``visible``.

    Example:
        >>> grey = cover(Image.new("RGB", (4, 4)), np.array([[1.0, 1.0, 3.0, 3.0]]), (9, 9, 9))
        >>> np.asarray(grey)[:, :, 0].tolist()
        [[0, 0, 0, 0], [0, 9, 9, 0], [0, 9, 9, 0], [0, 0, 0, 0]]
    """
    result = image.copy()
    for box in boxes:
        if (pixels := _touched_pixels(box, image.size)) is not None:
            result.paste(fill, pixels)
    if visible is not None and (pixels := _touched_pixels(visible, image.size)) is not None:
        result.paste(image.crop(pixels), pixels)
    return result


def _touched_pixels(box: Floats, size: tuple[int, int]) -> tuple[int, int, int, int] | None:
    """The pixels that a box touches, None if it has no area inside the image."""
    x1, y1 = max(math.floor(box[0]), 0), max(math.floor(box[1]), 0)
    x2, y2 = min(math.ceil(box[2]), size[0]), min(math.ceil(box[3]), size[1])
    return (x1, y1, x2, y2) if x2 > x1 and y2 > y1 and box[2] > box[0] and box[3] > box[1] else None


def _need_images(dataset: Dataset) -> None:
    if dataset.kind != "image":
        raise ValueError(f"{dataset.title}: images are needed, and its samples are of kind {dataset.kind!r}")


def need_boxes(dataset: Dataset) -> Boxes:
    """The boxes of a data set of images; an error if it has none."""
    _need_images(dataset)
    if dataset.boxes is None:
        raise ValueError(f"{dataset.title}: boxes are needed, and it has none")
    return dataset.boxes
