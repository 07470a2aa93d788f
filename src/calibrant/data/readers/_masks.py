"""Label masks in files: what each stored value means, checked when a mask is read."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from calibrant.data.findings import Findings
from calibrant.data.objects import Integers
from calibrant.data.readers._shared import is_sound
from calibrant.data.sources import ImageFiles, UnreadableError, inside, opened_image


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
            if image.mode not in ("L", "P"):
                raise UnreadableError(f"{path}: a mask of 8-bit labels (mode L or P) is expected, got {image.mode}.")
            image.load()
            stored = np.asarray(image)
        labels = self.meaning[stored]
        if (wrong := labels < 0).any():
            raise UnreadableError(f"{path}: the mask holds the value {stored[wrong][0]}, which is no label.")
        return Image.fromarray(labels.astype(np.uint8))


def pairs(
    root: Path, listed: Iterable[tuple[str, str]], meaning: NDArray[np.int16], findings: Findings
) -> tuple[ImageFiles, Mapped]:
    """Images and masks from pairs of names inside ``root``; what is missing or broken goes to ``findings``."""
    kept: dict[str, str] = {}
    for name, mask in listed:
        try:
            files = inside(root, name), inside(root, mask)
        except ValueError as error:
            findings.skip(name, "a name leads out of the data folder", str(error))
            continue
        if name in kept:
            findings.skip(name, "the image is listed twice")
        elif not files[0].is_file():
            findings.skip(name, "the image is missing")
        elif not files[1].is_file():
            findings.skip(name, "the mask is missing", mask)
        elif is_sound(files[0], name, findings) and _fits(root, name, mask, meaning, findings):
            kept[name] = mask
    return ImageFiles(root, tuple(kept)), Mapped(root, tuple(kept.values()), meaning=meaning)


def _fits(root: Path, name: str, mask: str, meaning: NDArray[np.int16], findings: Findings) -> bool:
    """Whether a mask can be read and has the size of its image; looked at only with ``on_error="skip"``."""
    if findings.on_error == "raise":
        return True
    try:
        size = Mapped(root, (mask,), meaning=meaning)[0].size
    except (ValueError, OSError) as error:
        findings.skip(name, "the mask cannot be read", str(error))
        return False
    if size != ImageFiles(root, (name,)).header(0)[0]:
        findings.skip(name, "image and mask differ in size")
        return False
    return True
