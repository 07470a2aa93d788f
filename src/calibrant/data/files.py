"""Opening the files of a data set, which are not trusted, and resolving the names in them.

Images are opened only in common formats and up to a size; a broken one is an `UnreadableError` that names it. Pipes,
devices and sockets are refused. Neither names in annotation files nor links may lead out of the data folder.

Pixels are taken as stored: an EXIF rotation is not applied, since boxes and masks refer to the stored pixels. (In TIFF
the orientation belongs to the format, and PIL applies it.) 16-bit grey images become 8-bit: the upper byte of mode
I;16, a 257th of mode I; if no value exceeds 255, the values are kept. Floating-point images have no known white, and
are refused.

Values in JSON, CSV and text are checked as well: a key that is repeated, and a number of another kind, is an error.
"""

from __future__ import annotations

import csv
import errno
import json
import logging
import os
import re
import struct
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from calibrant.base.files import open_regular

#: Formats that are opened; PIL knows many more, of which one (EPS) starts another program.
FORMATS = ("JPEG", "PNG", "PPM", "BMP", "GIF", "WEBP", "TIFF")
SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".ppm", ".pgm", ".bmp", ".gif", ".webp", ".tif", ".tiff"})

#: Largest image that is decoded, in pixels: 89 million, a third of a gigabyte.
MAX_PIXELS = 89_478_485
#: Largest image file that is opened, in bytes: some formats are read whole first.
MAX_IMAGE = 300_000_000
#: Largest text or annotation file that is read, in bytes.
MAX_TEXT = 2**26
#: Largest JSON file, in bytes: COCO's train2017 has 448 MB.
MAX_JSON = 2**29
#: Compressed data may grow to this many bytes, or by this factor, which real data reach.
MAX_UNPACKED, MAX_GROWTH = 2**29, 200
#: The most bytes that one deflated byte can become.
DEFLATE_RATIO = 1032
#: Levels of folders that are searched.
MAX_DEPTH = 64

LINK_OUT = "link that leads out of the data folder"
LINK_NOWHERE = "link that leads nowhere"
NO_FILE = "pipe, device or socket, which is not read"
TOO_DEEP = f"folder below more than {MAX_DEPTH} others, which is not searched"

# PIL logs odd files, and Python prints log messages to the terminal where no handler is set up.
logging.getLogger("PIL").addHandler(logging.NullHandler())

_HEADER = 2**12  # bytes in which a text header must have width and height

_BROKEN = (
    *(OSError, SyntaxError, ValueError, EOFError, struct.error, zlib.error, IndexError, TypeError, KeyError),
    *(OverflowError, AttributeError, RuntimeError, AssertionError, ZeroDivisionError),
)


class UnreadableError(ValueError):
    """An input file cannot be read; the message names it."""


@contextmanager
def open_image(path: Path, max_pixels: int = MAX_PIXELS) -> Iterator[Image.Image]:
    """Open an image file of an allowed format and size; any failure is an `UnreadableError` that names it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # our own limit is checked below
            warnings.filterwarnings("ignore", module="PIL")  # odd metadata do not matter here
            with open_file(path, MAX_IMAGE) as file, Image.open(_check_header(file, path), formats=FORMATS) as image:
                if image.width * image.height > max_pixels:
                    size = f"{image.width} x {image.height}"
                    raise UnreadableError(f"{path}: the image has {size} pixels; at most {max_pixels} are read")
                yield image
    except (UnreadableError, FileNotFoundError, PermissionError):
        raise
    except UnidentifiedImageError as error:
        raise UnreadableError(f"{path}: the image is truncated or broken (it is not of a known format)") from error
    except Image.DecompressionBombError as error:
        raise UnreadableError(f"{path}: the image is too large; at most {max_pixels} pixels are read") from error
    except MemoryError as error:  # usually a chunk that claims gigabytes
        raise UnreadableError(f"{path}: the image is truncated or broken, or too large for the memory") from error
    except _BROKEN as error:
        raise UnreadableError(f"{path}: the image is truncated or broken ({' '.join(str(error).split())})") from error


def _check_header(file: IO[bytes], path: Path) -> IO[bytes]:
    """The file; refuse one of PPM's family with an endless header, which PIL would read byte by byte."""
    start = file.read(_HEADER)
    file.seek(0)
    if start[:1] == b"P" and len(re.sub(rb"#[^\r\n]*", b"", start).split(maxsplit=3)) < 3:
        raise UnreadableError(f"{path}: the image is truncated or broken (no width and height in its header)")
    return file


def to_eight_bit(image: Image.Image, path: Path) -> Image.Image:
    """Convert a grey image of more than 8 bits to 8; others are returned unchanged."""
    if image.mode != "I" and not image.mode.startswith("I;16"):
        if image.mode == "F":
            raise UnreadableError(f"{path}: the image holds floating-point numbers, which are not read")
        return image
    values = np.asarray(image)
    lowest, highest = int(values.min()), int(values.max())
    if lowest < 0 or highest > 0xFFFF:
        raise UnreadableError(f"{path}: the image holds values from {lowest} to {highest}; 0 to 65535 are read")
    if highest > 0xFF:
        values = values // 257 if image.mode == "I" else values >> 8
    return Image.fromarray(values.astype(np.uint8))


def open_file(path: Path, limit: int | None = None) -> IO[bytes]:
    """Open a regular file; anything else, and a file larger than ``limit``, is an `UnreadableError`."""
    try:
        file = open_regular(path)
    except ValueError as error:
        raise UnreadableError(str(error)) from error
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise UnreadableError(f"{path}: expected a file, got a socket") from error
        raise
    size = os.fstat(file.fileno()).st_size
    if limit is not None and size > limit:
        file.close()
        raise UnreadableError(f"{path}: the file has {size} bytes; at most {limit} are read")
    return file


def read_bytes(path: Path, limit: int = MAX_TEXT) -> bytes:
    """Read a whole file; one larger than ``limit`` is refused before it is read."""
    with open_file(path, limit) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise UnreadableError(f"{path}: the file grew while it was read; at most {limit} bytes are")
    return data


def check_growth(subject: str, packed: int, size: int) -> None:
    """Refuse to unpack ``packed`` bytes that would grow to too large a ``size``."""
    if size > max(MAX_UNPACKED, MAX_GROWTH * packed):
        raise UnreadableError(
            f"{subject} would grow from {packed:,} to {size:,} bytes in memory; compressed data of more than "
            f"{MAX_UNPACKED:,} may grow at most {MAX_GROWTH} times, so write it without compression"
        )


def decode(data: bytes) -> tuple[str, bool]:
    """Decode UTF-8, or else latin-1 (which takes any bytes); and whether it was UTF-8."""
    try:
        return data.decode("utf-8"), True
    except UnicodeDecodeError:
        return data.decode("latin-1"), False


def read_lines(path: Path) -> list[str]:
    """The lines of a small text file, without their ends; a byte order mark is dropped."""
    return decode(read_bytes(path))[0].removeprefix("\ufeff").splitlines()


def read_json(path: Path, drop: str | None = None) -> Any:
    """Read a JSON file without the key ``drop``, which is discarded while reading to save memory.

    A repeated key in an object is an error: only one of its values would be used.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        row = dict(pairs)
        if len(row) != len(pairs):
            repeated, _ = Counter(key for key, _ in pairs).most_common(1)[0]
            raise UnreadableError(f"{path}: the key {short_repr(repeated)} occurs twice in one object")
        row.pop(drop or "", None)
        return row

    data = read_bytes(path, MAX_JSON)
    try:
        return json.loads(data, object_pairs_hook=unique)
    except UnreadableError:
        raise
    except RecursionError as error:
        raise UnreadableError(f"{path}: the file is not JSON of a data set: it is nested too deeply") from error
    except ValueError as error:
        cause = "a number has too many digits" if "digits" in str(error) else " ".join(str(error).split())[:200]
        raise UnreadableError(f"{path}: the file is not JSON ({cause})") from error


def csv_rows(path: Path, lines: Iterator[str]) -> Iterator[list[str]]:
    """The fields of each line of a CSV file; invalid CSV is an `UnreadableError`."""
    try:
        yield from csv.reader(lines)
    except csv.Error as error:
        raise UnreadableError(f"{path}: the file is not CSV ({error})") from error


def parse_count(text: str) -> int:
    """A whole number from 0 on from text; a ValueError if it is anything else, or too long."""
    digits = text.strip()
    if len(digits) > 18 or not (digits.isascii() and digits.isdecimal()):
        raise ValueError(f"{short_repr(text)} is not a whole number from 0 on")
    return int(digits)


def short_repr(value: object) -> str:
    """A value from a file, shortened for a message."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # integers of more than 4300 digits, lists in lists in lists
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."


def check_name(root: Path, name: str) -> None:
    """Raise if a name from a file leads out of the data folder; the disk is not accessed."""
    pure, windows = PurePosixPath(name), PureWindowsPath(name)
    absolute = pure.is_absolute() or windows.is_absolute() or windows.drive
    if not name or "\0" in name or absolute or ".." in windows.parts:
        raise ValueError(f"{name[:200]!r} is not a name inside the data folder {root}")


def path_inside(root: Path, name: str) -> Path:
    """The path of a name from a file; an error if it leads out of the data folder, also through a link."""
    check_name(root, name)
    path = root / name
    try:
        real = path.resolve()
    except (OSError, RuntimeError) as error:  # RuntimeError: a link that leads to itself
        raise ValueError(f"{name[:200]!r} leads nowhere in the data folder {root}") from error
    if not real.is_relative_to(root.resolve()):
        raise ValueError(f"{name[:200]!r} leads out of the data folder {root} through a link")
    return path


def link_problem(path: str | Path, home: Path) -> str:
    """The problem of a link, or an empty text; it must stay in ``home``, which is resolved already."""
    try:
        target = Path(path).resolve(strict=True)
    except (OSError, RuntimeError):  # RuntimeError: it leads to itself
        return LINK_NOWHERE
    return "" if target.is_relative_to(home) else LINK_OUT


def files_below(
    folder: Path,
    suffixes: frozenset[str] | None = SUFFIXES,
    home: Path | None = None,
    on_problem: Callable[[str, str], object] | None = None,
) -> Iterator[str]:
    """Names of the files under a folder, sorted, relative to it, with forward slashes.

    Links are followed inside the data folder; each folder is searched once, so that cyclic links end.

    Args:
        folder: Where to look.
        suffixes: Suffixes of the wanted files, in lower case; None means all files.
        home: The data folder, which no link may leave; ``folder`` itself if left out.
        on_problem: Called with a path inside ``home`` and what is wrong with it: a link that leads out or nowhere, a
            folder too deep, a pipe. An error if left out.
    """
    home = folder if home is None else home
    inner = os.path.relpath(folder, home)
    start = "" if inner == "." else f"{Path(inner).as_posix()}/"

    def report(name: str, problem: str) -> None:
        if on_problem is None:
            raise ValueError(f"{home / (start + name)}: {problem}")
        on_problem((start + name).rstrip("/"), problem)

    real_home, real = home.resolve(), folder.resolve()
    if os.path.exists(real) and not real.is_relative_to(real_home):
        report("", LINK_OUT)
        return
    visited = {str(real)}
    stack = [("", str(real), _sorted_entries(real))]
    while stack:
        prefix, path, entries = stack[-1]
        entry = next(entries, None)
        if entry is None:
            stack.pop()
            continue
        name, target = f"{prefix}{entry.name}", f"{path}/{entry.name}"
        is_wanted = suffixes is None or os.path.splitext(name)[1].lower() in suffixes
        if entry.is_symlink():
            problem = link_problem(entry.path, real_home)
            if problem:
                # A link that leads nowhere may have led to a folder: its name decides.
                is_folder = "." not in entry.name if problem == LINK_NOWHERE else entry.is_dir()
                if is_wanted or is_folder:
                    report(name, problem)
                continue
            resolved = Path(entry.path).resolve()
            if entry.is_dir() and (resolved.is_relative_to(real) or real.is_relative_to(resolved)):
                continue  # its files are listed under their own names
            target = str(resolved)
        if entry.is_dir():
            if len(stack) > MAX_DEPTH:
                report(name, TOO_DEEP)
            elif target not in visited:
                visited.add(target)
                stack.append((f"{name}/", target, _sorted_entries(target)))
        elif is_wanted and entry.is_file():
            yield name
        elif is_wanted:
            report(name, NO_FILE)


def _sorted_entries(path: str | Path) -> Iterator[os.DirEntry[str]]:
    with os.scandir(path) as entries:
        return iter(sorted(entries, key=lambda e: e.name))


def folders_in(folder: Path) -> list[str]:
    """Names of the folders in a folder, sorted; hidden ones are left out."""
    with os.scandir(folder) as entries:
        # os.path.isdir says no to a link that leads to itself, where the entry would raise.
        return sorted(e.name for e in entries if not e.name.startswith(".") and os.path.isdir(e.path))
