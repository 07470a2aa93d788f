"""Label masks in files: what each stored value means, checked when a mask is read."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from calibrant.data.boxes import Integers
from calibrant.data.dataset import NO_CLASS, Dataset, Findings
from calibrant.data.files import UnreadableError, inside, opened_image
from calibrant.data.readers._checks import reason
from calibrant.data.readers._phrases import MISSING, NAME_OUT, TWICE
from calibrant.data.readers._shared import check_any, is_sound
from calibrant.data.sources import ImageFiles

_PIXELS = 2**20  # of a mask, that are looked up together: a large image would take gigabytes


def table(meaning: Mapping[int, int]) -> NDArray[np.int16]:
    """[256] int16 from stored value to label; -1 marks values that no mask may hold."""
    values = np.full(256, -1, dtype=np.int16)
    values[list(meaning)] = list(meaning.values())
    return values


@dataclass(frozen=True, eq=False)
class Mapped(ImageFiles):
    """Masks in files, as images of mode L that hold labels; the indices of a palette image are its values.

    Attributes:
        meaning: [256] label of each stored value, -1 where it is an error.
    """

    mode: str | None = None
    meaning: NDArray[np.int16] = field(default_factory=lambda: np.arange(256, dtype=np.int16))

    def take(self, indices: Integers) -> Mapped:
        """Some of the samples, in the order of ``indices``."""
        return dataclasses.replace(self, names=tuple(self.names[i] for i in indices))

    def open(self, index: int, draft: Callable[[Image.Image], object] | None = None) -> Image.Image:
        """The mask; there is no smaller decoding of labels."""
        path = self.path(index)
        with opened_image(path, self.max_pixels) as image:
            image.load()
            return Image.fromarray(self.labels(image, path))

    def labels(self, image: Image.Image, path: Path) -> NDArray[np.uint8]:
        """The label of each pixel."""
        if image.mode not in ("L", "P"):
            raise UnreadableError(f"{path}: a mask of 8-bit labels (mode L or P) is expected, got {image.mode}.")
        stored = np.asarray(image)
        labels = self.meaning[stored]
        if (wrong := labels < 0).any():
            raise UnreadableError(f"{path}: the mask holds the value {stored[wrong][0]}, which is no label.")
        return labels.astype(np.uint8)


@dataclass(frozen=True, eq=False)
class Coloured(Mapped):
    """Masks in files whose colours are the labels.

    Attributes:
        colours: [K] colours as 65536 R + 256 G + B, sorted.
        meaning: [K] label of each colour.
    """

    colours: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def labels(self, image: Image.Image, path: Path) -> NDArray[np.uint8]:
        """The label of each pixel."""
        if image.mode not in ("RGB", "P"):
            raise UnreadableError(f"{path}: a mask of colours (mode RGB or P) is expected, got {image.mode}.")
        pixels = np.asarray(image.convert("RGB"))
        flat, labels = pixels.reshape(-1, 3), np.empty(pixels.shape[:2], dtype=np.uint8)
        for start in range(0, len(flat), _PIXELS):
            codes = flat[start : start + _PIXELS].astype(np.int64) @ np.array([65536, 256, 1])
            places = np.searchsorted(self.colours, codes).clip(max=len(self.colours) - 1)
            if (wrong := self.colours[places] != codes).any():
                colour = tuple(int(codes[wrong][0]).to_bytes(3, "big"))
                raise UnreadableError(f"{path}: the mask holds the colour {colour}, which is no label.")
            labels.reshape(-1)[start : start + _PIXELS] = self.meaning[places]
        return labels


def segmented(
    name: str,
    split: str,
    classes: tuple[str, ...],
    listed: Iterable[tuple[str, str]],
    masks: Mapped,
    findings: Findings,
    *,
    ignore_index: int,
    group: Callable[[str], str] | None = None,
) -> Dataset:
    """The data set of images and their masks.

    Args:
        name: Of the layout.
        split: As asked for.
        classes: In the order of the labels.
        listed: An image and its mask, by their paths inside the data folder.
        masks: Without names yet: the data folder, and what the values in its masks mean.
        findings: Takes what is skipped.
        ignore_index: The label of pixels that do not count.
        group: From an image's path to its group, if there are groups.
    """
    images, masks = _pairs(listed, masks, findings)
    check_any(masks.root, split, len(images), findings)
    return Dataset(
        name,
        split,
        classes,
        images.names,
        np.full(len(images), NO_CLASS),
        images,
        masks=masks,
        groups=None if group is None else tuple(map(group, images.names)),
        ignore_index=ignore_index,
        report=findings.report(),
    )


def _pairs(listed: Iterable[tuple[str, str]], masks: Mapped, findings: Findings) -> tuple[ImageFiles, Mapped]:
    """Images and masks from pairs of names; what is missing or broken goes to ``findings``."""
    root = masks.root
    kept: dict[str, str] = {}
    for name, mask in listed:
        try:
            files = inside(root, name), inside(root, mask)
        except ValueError as error:
            findings.skip(name, NAME_OUT, str(error).rstrip("."))
            continue
        if name in kept:
            findings.skip(name, TWICE)
        elif not os.path.isfile(files[0]):  # Path.is_file raises if the name is too long
            findings.skip(name, MISSING)
        elif not os.path.isfile(files[1]):
            findings.skip(name, "mask that is missing", mask)
        elif is_sound(files[0], name, findings) and _fits(name, mask, masks, findings):
            kept[name] = mask
    return ImageFiles(root, tuple(kept)), dataclasses.replace(masks, names=tuple(kept.values()))


def _fits(name: str, mask: str, masks: Mapped, findings: Findings) -> bool:
    """Whether a mask can be read and has the size of its image; looked at only with ``on_error="skip"``."""
    if findings.on_error == "raise":
        return True
    try:
        size = dataclasses.replace(masks, names=(mask,))[0].size
    except (ValueError, OSError) as error:
        findings.skip(name, "mask that cannot be read", reason(error, masks.root / mask))
        return False
    if size != ImageFiles(masks.root, (name,)).header(0)[0]:
        findings.skip(name, "image and mask of different sizes")
        return False
    return True
