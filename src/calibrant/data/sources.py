"""Where a data set's inputs come from: image files, arrays, text files. Nothing is read before it is asked for.

Files are not trusted: an image is opened only in the formats photographs are kept in, only up to a size, and a broken
one is an `UnreadableError` that names it. No name written in an annotation file leads out of the data folder.
"""

from __future__ import annotations

import os
import struct
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from calibrant.data.objects import Integers

Kind = Literal["image", "text", "array"]

#: Formats that are opened. PIL knows many more, and one of them (EPS) starts another program.
FORMATS = ("JPEG", "PNG", "PPM", "BMP", "GIF", "WEBP", "TIFF")
SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".ppm", ".pgm", ".bmp", ".gif", ".webp", ".tif", ".tiff"})

#: Largest image that is decoded, in pixels: 89 million, a third of a gigabyte.
MAX_PIXELS = 89_478_485
#: Largest text or annotation file that is read, in bytes.
MAX_TEXT = 2**26

_BROKEN = (OSError, SyntaxError, ValueError, EOFError, struct.error, zlib.error, IndexError, TypeError, KeyError)


class UnreadableError(ValueError):
    """An input file cannot be read; the message names it."""


class Source(Protocol):
    """The inputs (or the masks) of N samples."""

    @property
    def kind(self) -> Kind:
        """What a sample is."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> Any: ...

    def take(self, indices: Integers) -> Source:
        """Some of the samples, in the order of ``indices``."""

    def where(self, index: int) -> str:
        """What to call a sample in a message: its path, or its place."""


class Images(Source, Protocol):
    """A source of images."""

    def header(self, index: int) -> tuple[tuple[int, int], str]:
        """Width and height, and PIL's mode, without decoding."""

    def open(self, index: int, draft: Callable[[Image.Image], object] | None = None) -> Image.Image:
        """The image, in RGB; ``draft`` may look at its header first and ask for a smaller decoding."""


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """Images in files, decoded when asked for: RGB, or as stored with ``mode=None`` (label masks)."""

    root: Path
    names: tuple[str, ...]
    mode: str | None = "RGB"
    max_pixels: int = MAX_PIXELS

    kind: ClassVar[Kind] = "image"

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> Image.Image:
        return self.open(index)

    def take(self, indices: Integers) -> ImageFiles:
        """Some of the samples, in the order of ``indices``."""
        return ImageFiles(self.root, tuple(self.names[i] for i in indices), self.mode, self.max_pixels)

    def where(self, index: int) -> str:
        """The path."""
        return str(self.path(index))

    def path(self, index: int) -> Path:
        """The path."""
        return self.root / self.names[index]

    def header(self, index: int) -> tuple[tuple[int, int], str]:
        """Width and height, and PIL's mode, without decoding."""
        with opened_image(self.path(index), self.max_pixels) as image:
            return image.size, image.mode

    def open(self, index: int, draft: Callable[[Image.Image], object] | None = None) -> Image.Image:
        """The image; ``draft`` may look at its header first and ask for a smaller decoding."""
        with opened_image(self.path(index), self.max_pixels) as image:
            if draft is not None:
                draft(image)
            image.load()
            return image if self.mode is None or image.mode == self.mode else image.convert(self.mode)


@dataclass(frozen=True, eq=False)
class ImageArray:
    """Images in one array: uint8 [N, H, W] or [N, H, W, 3]."""

    pixels: NDArray[np.uint8]
    name: str = "array"

    kind: ClassVar[Kind] = "image"

    def __post_init__(self) -> None:
        shape = self.pixels.shape
        if self.pixels.dtype != np.uint8 or len(shape) not in (3, 4) or (len(shape) == 4 and shape[3] != 3):
            raise ValueError(
                f"ImageArray takes uint8 images [N, H, W] or [N, H, W, 3], got {self.pixels.dtype} {list(shape)}."
            )

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int) -> Image.Image:
        return self.open(index)

    def take(self, indices: Integers) -> ImageArray:
        """Some of the samples, in the order of ``indices``."""
        return ImageArray(self.pixels[indices], self.name)

    def where(self, index: int) -> str:
        """The array's name and the row."""
        return f"{self.name}[{index}]"

    def header(self, index: int) -> tuple[tuple[int, int], str]:
        """Width and height, and PIL's mode."""
        height, width = self.pixels.shape[1:3]
        return (width, height), "L" if self.pixels.ndim == 3 else "RGB"

    def open(self, index: int, draft: Callable[[Image.Image], object] | None = None) -> Image.Image:
        """The image, in RGB."""
        image = Image.fromarray(self.pixels[index])
        return image if image.mode == "RGB" else image.convert("RGB")


@dataclass(frozen=True, eq=False)
class TextFiles:
    """Texts in files: UTF-8, and latin-1 where they are not."""

    root: Path
    names: tuple[str, ...]

    kind: ClassVar[Kind] = "text"

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> str:
        return decoded(read_bytes(self.root / self.names[index]))[0]

    def take(self, indices: Integers) -> TextFiles:
        """Some of the samples, in the order of ``indices``."""
        return TextFiles(self.root, tuple(self.names[i] for i in indices))

    def where(self, index: int) -> str:
        """The path."""
        return str(self.root / self.names[index])


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
class Joined:
    """Two sources of the same kind, one after the other."""

    parts: tuple[Any, ...]
    place: Integers  # [N, 2]: which part, which sample of it

    @property
    def kind(self) -> Kind:
        """That of the parts."""
        return self.parts[0].kind

    @classmethod
    def of(cls, *parts: Source) -> Joined:
        """All samples of all parts."""
        if len({part.kind for part in parts}) != 1:
            raise ValueError(f"cannot join sources of different kinds: {', '.join(part.kind for part in parts)}.")
        rows = [np.stack([np.full(len(p), i), np.arange(len(p))], axis=1) for i, p in enumerate(parts)]
        return cls(parts, np.concatenate(rows).astype(np.int64))

    def __len__(self) -> int:
        return len(self.place)

    def __getitem__(self, index: int) -> Any:
        part, row = self.place[index]
        return self.parts[part][int(row)]

    def take(self, indices: Integers) -> Joined:
        """Some of the samples, in the order of ``indices``."""
        return Joined(self.parts, self.place[indices])

    def where(self, index: int) -> str:
        """As its part calls it."""
        part, row = self.place[index]
        return self.parts[part].where(int(row))

    def header(self, index: int) -> tuple[tuple[int, int], str]:
        """Width and height, and PIL's mode, without decoding."""
        part, row = self.place[index]
        return self.parts[part].header(int(row))

    def open(self, index: int, draft: Callable[[Image.Image], object] | None = None) -> Image.Image:
        """The image, in RGB."""
        part, row = self.place[index]
        return self.parts[part].open(int(row), draft)


@contextmanager
def opened_image(path: Path, max_pixels: int = MAX_PIXELS) -> Iterator[Image.Image]:
    """Open an image file of a known format and a bearable size; what breaks is an `UnreadableError` naming it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # our own limit speaks below
            warnings.filterwarnings("ignore", module="PIL")  # odd metadata is not the reader's business
            with Image.open(path, formats=FORMATS) as image:
                if image.width * image.height > max_pixels:
                    raise UnreadableError(
                        f"{path}: the image has {image.width} x {image.height} pixels; at most {max_pixels} are read."
                    )
                yield image
    except UnreadableError:
        raise
    except (FileNotFoundError, PermissionError, IsADirectoryError):
        raise
    except Image.DecompressionBombError as error:
        raise UnreadableError(f"{path}: the image is too large; at most {max_pixels} pixels are read.") from error
    except _BROKEN as error:
        raise UnreadableError(f"{path}: the image is truncated or broken ({' '.join(str(error).split())}).") from error


def read_bytes(path: Path, limit: int = MAX_TEXT) -> bytes:
    """A small file, whole; larger ones than ``limit`` are refused before they are read."""
    size = path.stat().st_size
    if size > limit:
        raise UnreadableError(f"{path}: the file has {size} bytes; at most {limit} are read.")
    return path.read_bytes()


def decoded(data: bytes) -> tuple[str, bool]:
    """Text from UTF-8, else from latin-1 (which takes anything); and whether it was UTF-8."""
    try:
        return data.decode("utf-8"), True
    except UnicodeDecodeError:
        return data.decode("latin-1"), False


def read_lines(path: Path) -> list[str]:
    """The lines of a small text file, without their ends; a byte order mark is dropped."""
    return decoded(read_bytes(path))[0].removeprefix("\ufeff").splitlines()


def inside(root: Path, name: str) -> Path:
    """The path of a name that a file gives, or an error if it leads out of the data folder."""
    pure, windows = PurePosixPath(name), PureWindowsPath(name)
    if (
        not name
        or "\0" in name
        or pure.is_absolute()
        or windows.is_absolute()
        or windows.drive
        or ".." in windows.parts
    ):
        raise ValueError(f"{name!r} is not a name inside the data folder {root}.")
    path = root / name
    if not path.resolve().is_relative_to(root.resolve()):
        raise ValueError(f"{name!r} leads out of the data folder {root} through a link.")
    return path


def files_below(folder: Path, suffixes: frozenset[str] | None = SUFFIXES) -> Iterator[str]:
    """Names of the files under a folder, sorted, relative to it, with forward slashes; links out of it are errors."""
    home = folder.resolve()

    def walk(path: str, prefix: str) -> Iterator[str]:
        for entry in sorted(os.scandir(path), key=lambda e: e.name):
            if entry.is_symlink() and not Path(entry.path).resolve().is_relative_to(home):
                raise ValueError(
                    f"{entry.path}: the link leads out of the data folder {folder}; copy what it points to."
                )
            if entry.is_dir():
                if entry.is_symlink():
                    continue  # it leads to files of this folder, which are listed already
                yield from walk(entry.path, f"{prefix}{entry.name}/")
            elif entry.is_file() and (suffixes is None or os.path.splitext(entry.name)[1].lower() in suffixes):
                yield f"{prefix}{entry.name}"

    yield from walk(str(folder), "")


def folders_in(folder: Path) -> list[str]:
    """Names of the folders in a folder, sorted; hidden ones are left out."""
    return sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith("."))


def as_indices(values: Sequence[int] | NDArray[Any]) -> Integers:
    """Indices from positions or from a mask."""
    array = np.asarray(values)
    return np.flatnonzero(array) if array.dtype == bool else array.astype(np.int64).reshape(-1)
