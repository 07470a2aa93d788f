"""Sources of a data set's inputs: image files, arrays, text files. Inputs are read on demand."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from calibrant.data.boxes import Integers
from calibrant.data.files import MAX_PIXELS, decode, open_image, read_bytes, to_eight_bit

Kind = Literal["image", "text", "array"]
#: Called with an image before it is decoded; may ask for a smaller decoding.
Draft = Callable[[Image.Image], object]
#: Width and height of an image, and PIL's mode.
Header = tuple[tuple[int, int], str]


class Inputs(Protocol):
    """The inputs or masks of N samples; those of kind ``"image"`` also have ``header`` and ``open``."""

    @property
    def kind(self) -> Kind:
        """The kind of a sample."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> Any: ...

    def take(self, indices: Integers) -> Inputs:
        """Some of the samples, in the order of ``indices``."""

    def where(self, index: int) -> str:
        """Names a sample in messages: its path, or its position."""


@dataclass(frozen=True, eq=False)
class _Files:
    """Samples that are files of a folder."""

    root: Path
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.names)

    def take(self, indices: Integers) -> Self:
        """Some of the samples, in the order of ``indices``."""
        return dataclasses.replace(self, names=tuple(self.names[i] for i in indices))

    def path(self, index: int) -> Path:
        """The path of a sample's file."""
        return self.root / self.names[index]

    def where(self, index: int) -> str:
        """The path."""
        return str(self.path(index))


@dataclass(frozen=True, eq=False)
class ImageFiles(_Files):
    """Images in files, decoded on demand: RGB, or as stored with ``mode=None`` (label masks)."""

    mode: str | None = "RGB"
    max_pixels: int = MAX_PIXELS

    kind: ClassVar[Kind] = "image"

    def __getitem__(self, index: int) -> Image.Image:
        return self.open(index)

    def header(self, index: int) -> Header:
        """Width and height, and PIL's mode, without decoding."""
        with open_image(self.path(index), self.max_pixels) as image:
            return image.size, image.mode

    def open(self, index: int, draft: Draft | None = None) -> Image.Image:
        """Decode the image; ``draft`` is called before."""
        with open_image(self.path(index), self.max_pixels) as image:
            try:
                if draft is not None:
                    draft(image)
            except Exception as error:
                draft_error = error  # not raised here, where it would count as a broken image
            else:
                image.load()
                if self.mode is None or image.mode == self.mode:
                    return image
                return to_eight_bit(image, self.path(index)).convert(self.mode)
        raise draft_error


@dataclass(frozen=True, eq=False)
class TextFiles(_Files):
    """Texts in files: UTF-8, or else latin-1."""

    kind: ClassVar[Kind] = "text"

    def __getitem__(self, index: int) -> str:
        return decode(read_bytes(self.path(index)))[0]


@dataclass(frozen=True, eq=False)
class ImageArray:
    """Images in one array: uint8 [N, H, W] or [N, H, W, 3]."""

    pixels: NDArray[np.uint8]
    name: str = "array"

    kind: ClassVar[Kind] = "image"

    def __post_init__(self) -> None:
        shape = self.pixels.shape
        if self.pixels.dtype != np.uint8 or len(shape) not in (3, 4) or (len(shape) == 4 and shape[3] != 3):
            actual = f"{self.pixels.dtype} {list(shape)}"
            raise ValueError(f"ImageArray takes uint8 images [N, H, W] or [N, H, W, 3], got {actual}")

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int) -> Image.Image:
        return self.open(index)

    def take(self, indices: Integers) -> Self:
        """Some of the samples, in the order of ``indices``."""
        return dataclasses.replace(self, pixels=self.pixels[indices])

    def where(self, index: int) -> str:
        """The array's name and the row."""
        return f"{self.name}[{index}]"

    def header(self, index: int) -> Header:
        """Width and height, and PIL's mode."""
        height, width = self.pixels.shape[1:3]
        return (width, height), "L" if self.pixels.ndim == 3 else "RGB"

    def open(self, index: int, draft: Draft | None = None) -> Image.Image:
        """The image, in RGB."""
        image = Image.fromarray(self.pixels[index])
        return image if image.mode == "RGB" else image.convert("RGB")


@dataclass(frozen=True, eq=False)
class MaskArray(ImageArray):
    """Label masks in one array: uint8 [N, H, W], opened as images of mode L whose values are the labels."""

    def open(self, index: int, draft: Draft | None = None) -> Image.Image:
        """The mask."""
        return Image.fromarray(self.pixels[index])


@dataclass(frozen=True, eq=False)
class Rows:
    """Samples that are rows of an array: features, embeddings, token ids."""

    values: NDArray[Any]
    name: str = "array"

    kind: ClassVar[Kind] = "array"

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> NDArray[Any]:
        return self.values[index]

    def take(self, indices: Integers) -> Rows:
        """Some of the samples, in the order of ``indices``."""
        return Rows(self.values[indices], self.name)

    def where(self, index: int) -> str:
        """The array's name and the row."""
        return f"{self.name}[{index}]"


@dataclass(frozen=True, eq=False)
class JoinedInputs:
    """Sources of the same kind, one after the other."""

    parts: tuple[Any, ...]
    positions: Integers  # [N, 2]: which part, which sample of it

    @property
    def kind(self) -> Kind:
        """The kind of the parts."""
        return self.parts[0].kind

    @classmethod
    def of(cls, *parts: Inputs) -> JoinedInputs:
        """All samples of all parts."""
        if len({part.kind for part in parts}) != 1:
            raise ValueError(f"cannot join sources of different kinds: {', '.join(part.kind for part in parts)}")
        rows = [np.stack([np.full(len(p), i), np.arange(len(p))], axis=1) for i, p in enumerate(parts)]
        return cls(parts, np.concatenate(rows).astype(np.int64))

    def _locate(self, index: int) -> tuple[Any, int]:
        part, row = self.positions[index]
        return self.parts[part], int(row)

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, index: int) -> Any:
        source, row = self._locate(index)
        return source[row]

    def take(self, indices: Integers) -> JoinedInputs:
        """Some of the samples, in the order of ``indices``."""
        return JoinedInputs(self.parts, self.positions[indices])

    def where(self, index: int) -> str:
        """The name of the sample in its part."""
        source, row = self._locate(index)
        return source.where(row)

    def header(self, index: int) -> Header:
        """Width and height, and PIL's mode, without decoding."""
        source, row = self._locate(index)
        return source.header(row)

    def open(self, index: int, draft: Draft | None = None) -> Image.Image:
        """The image, in RGB."""
        source, row = self._locate(index)
        return source.open(row, draft)


def join(first: Inputs, second: Inputs) -> Inputs:
    """The samples of both; image arrays of one size stay one array, which is read without a call per image."""
    if type(first) is ImageArray and type(second) is ImageArray and first.pixels.shape[1:] == second.pixels.shape[1:]:
        name = "+".join(dict.fromkeys((first.name, second.name)))
        return ImageArray(np.concatenate([first.pixels, second.pixels]), name)
    return JoinedInputs.of(first, second)
