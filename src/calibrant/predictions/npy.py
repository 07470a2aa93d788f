"""``.npy``: one array per file. ``x_logits.npy`` goes with ``x_labels.npy``, ``x_ids.npy``, ``x_group.site.npy``, ...

Facts that are not the default are arrays too: ``x_class_names.npy``, ``x_kind.npy``, ``x_ignore_index.npy``,
``x_split.npy``. A set that is written here has ``x_checksums.npy`` as well, which holds it together: files of two sets,
such as those of a set that is being replaced, are noticed, and damaged ones.
"""

from __future__ import annotations

import bisect
import contextlib
import fcntl
import math
import os
import re
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from calibrant._files import sync, written_aside
from calibrant.predictions.about import DATA, GROUP
from calibrant.predictions.arrayfile import (
    FACTS,
    LABELS_ARE,
    ArraySource,
    as_bytes,
    column_blocks,
    facts_of,
    open_arrays,
    stated,
)
from calibrant.predictions.columns import SINGLE, Request
from calibrant.predictions.hints import short
from calibrant.predictions.members import Stored
from calibrant.predictions.shards import array_name, reading
from calibrant.predictions.stamps import pinned
from calibrant.predictions.store import Store
from calibrant.predictions.streams import Checksum
from calibrant.predictions.text import check_characters

HEADER = 10_000  # bytes: NumPy's own limit
CHECKSUMS = "checksums"
OTHER = "the file is damaged, or of another set than the checksums beside it, which may be about to be replaced"
MOST_FILES = 500  # of a set: each is open until all are written
PATIENCE = 10  # seconds to wait for somebody else's renames
# The parts of a header, which is a dictionary in Python's spelling; they are matched, and nothing is evaluated.
_DESCR = re.compile(r"""['"]descr['"]\s*:\s*['"]([^'"]*)['"]""")
_ORDER = re.compile(r"""['"]fortran_order['"]\s*:\s*(True|False)\b""")
_SHAPE = re.compile(r"""['"]shape['"]\s*:\s*\(((?:\s*[0-9]{1,19}\s*,)*(?:\s*[0-9]{1,19}\s*)?)\)""")


def endings(asked: Request) -> dict[str, str]:
    """What the name of a data file may end in, with what it then holds."""
    chosen = {str(asked.columns[name]): name for name in DATA if name in asked.columns}
    return chosen or {name: name for name in DATA}


def open_file(path: Path, asked: Request) -> ArraySource:
    """Open the file of the data, and the files that go with it."""
    endings_of = endings(asked)
    ending = array_name(path, endings_of)
    if ending is None:
        raise ValueError(f"{path}: the name of a .npy file must say what it holds: end it in {' or '.join(endings_of)}")
    if not path.exists():
        raise ValueError(f"{path}: no such file")
    start = path.stem.removesuffix(ending)
    names = _beside(path, start, asked.listings)
    sums = _read_checksums(path, start) if CHECKSUMS in names else {}
    lost = next((name for name in sums if name not in names), None)
    if lost is not None:
        raise ValueError(f"{path}: {short(start + lost)}.npy is missing, which was written with it")

    def member(name: str) -> Stored:
        return _stored(path.with_name(f"{start}{name}.npy"), sums.get(name))

    names = [name for name in names if name != CHECKSUMS]
    return open_arrays(str(path), names, member, asked, stated(names, member), data=endings_of[ending])


def _beside(path: Path, start: str, listings: dict[str, list[str]]) -> list[str]:
    """The ends of the names of all ``.npy`` files that start alike; a folder of many shards is listed once."""
    folder = str(path.parent)
    if folder not in listings:
        listings[folder] = sorted(entry for entry in os.listdir(folder) if entry.endswith(".npy"))
    entries, ends = listings[folder], []
    for entry in entries[bisect.bisect_left(entries, start) :]:
        if not entry.startswith(start):
            break
        ends.append(entry[len(start) : -len(".npy")])
    return ends


def _stored(path: Path, crc: int | None) -> Stored:
    with reading(str(path)), pinned(path) as (file, handle):
        dtype, shape, fortran = parse_header(handle)
        check_size(dtype, shape, file.stamp.size - handle.tell())
        checksum = None if crc is None else Checksum(0, crc, OTHER)
        return Stored(file, handle.tell(), dtype, shape, fortran, checksum)


def _read_checksums(path: Path, start: str) -> dict[str, int]:
    """The checksum of every file of the set, by what its name ends in."""
    sums = _stored(path.with_name(f"{start}{CHECKSUMS}.npy"), None)
    if len(sums.shape) != 1 or sums.dtype.kind != "U" or not 0 < sums.shape[0] <= MOST_FILES:
        raise ValueError(f"{sums.path}: expected the checksums of a set of files, got {sums.dtype} {list(sums.shape)}")
    (lines,) = sums.blocks(sums.shape[0])
    check_characters(sums.path, lines)
    pairs = [line.partition(" ") for line in lines.tolist()]
    if not all(name and re.fullmatch("[0-9a-f]{8}", crc) for crc, _, name in pairs):
        raise ValueError(f"{sums.path}: expected lines of a checksum and a name, got something else")
    return {name: int(crc, 16) for crc, _, name in pairs}


def save(store: Store, path: Path) -> None:
    """Write one file per column, all aside; then rename them, the one named by ``path`` last."""
    holds = store.about.holds
    if array_name(path, (holds,)) is None:
        raise ValueError(f"{path}: predictions that hold {holds} are written as NAME_{holds}.npy, got {path.name}")
    start = path.stem.removesuffix(holds)
    facts = facts_of(store.about)
    slash = next((name for name in store.names if "/" in name or os.sep in name), None)
    if slash is not None:
        raise ValueError(f"{path}: {short(slash)!r} cannot be part of the name of a file")
    names = [*sorted(store.names, key=lambda name: name != holds), *facts]
    if len(names) > MOST_FILES:
        raise ValueError(f"{path}: a set of .npy files has at most {MOST_FILES}, got {len(names)}: write .npz")
    _refuse_leftovers(path, start, {*names, CHECKSUMS})
    lines = []
    with contextlib.ExitStack() as asides:  # closed in the opposite order: the data last
        for name in names:
            aside = asides.enter_context(written_aside(path.with_name(f"{start}{name}.npy")))
            with aside.open("wb") as file:
                counted = _Summed(file)
                if name in facts:
                    _write_array(counted, facts[name])
                else:
                    write_column(counted, store, name)
            lines.append(f"{counted.crc:08x} {name}")
            sync(aside)
        aside = asides.enter_context(written_aside(path.with_name(f"{start}{CHECKSUMS}.npy")))
        with aside.open("wb") as file:
            _write_array(file, np.array(lines))
        with _alone_in(path.parent):
            asides.close()


class _Summed:
    """A file to write to that keeps the checksum of what was written."""

    def __init__(self, file: IO[bytes]):
        self.file, self.crc = file, 0

    def write(self, data: Any) -> int:
        self.crc = zlib.crc32(data, self.crc)
        return self.file.write(data)


def _write_array(file: Any, array: np.ndarray[Any, Any]) -> None:
    write_header(file, array.dtype, array.shape)
    file.write(as_bytes(array))


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Keep others who write a set of files here from renaming theirs meanwhile, where the file system has locks."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.01)
            except OSError:
                break
        yield
    finally:
        os.close(handle)


def _refuse_leftovers(path: Path, start: str, written: set[str]) -> None:
    """A file of an earlier set would be read as part of this one."""
    reserved = {alias for aliases in SINGLE.values() for alias in aliases} | {*FACTS, LABELS_ARE}
    for entry in sorted(os.listdir(path.parent)) if path.parent.is_dir() else ():
        name = entry.removesuffix(".npy").removeprefix(start)
        if entry == f"{start}{name}.npy" and name not in written and (name in reserved or name.startswith(GROUP)):
            raise ValueError(f"{path}: {entry} is there already and would be read as part of it: remove it first")


def parse_header(file: Any) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    """Type, shape and order of a ``.npy`` array, without allocating anything.

    Read here rather than by NumPy, whose reader makes a type of whatever the header names; these are numbers and text.
    """
    magic = file.read(8)
    if magic[:6] != b"\x93NUMPY" or len(magic) < 8 or magic[6] not in (1, 2, 3):
        raise ValueError("not a .npy array")
    length = int.from_bytes(file.read(2 if magic[6] == 1 else 4), "little")
    if length > HEADER:
        raise ValueError(f"the header of a .npy array is at most {HEADER} bytes, got {length}")
    header = file.read(length)
    if len(header) < length:
        raise ValueError("the header of the .npy array is cut off")
    text = header.decode("latin-1").strip()
    descr, order, shape = (pattern.search(text) for pattern in (_DESCR, _ORDER, _SHAPE))
    if descr is None or order is None or not text.startswith("{") or not text.endswith("}"):
        kind = re.search(r"descr['\"]\s*:\s*(.{1,40})", text)
        if kind is not None and descr is None:
            raise ValueError(f"arrays of numbers or text are read and nothing is unpickled, got {kind[1]!r}")
        raise ValueError("the header of the .npy array is damaged")
    if not re.fullmatch("[<>=|]?[biufUSc][1-9][0-9]{0,5}", descr[1]):
        raise ValueError(f"arrays of numbers or text are read and nothing is unpickled, got {short(descr[1])!r}")
    if shape is None:
        raise ValueError("the header of the .npy array has no shape of whole numbers")
    lengths = tuple(int(part) for part in shape[1].split(",") if part.strip())
    try:
        return np.dtype(descr[1]), lengths, order[1] == "True"
    except TypeError:
        raise ValueError(f"the header of the .npy array names a type that NumPy does not have, {descr[1]!r}") from None


def check_size(dtype: np.dtype[Any], shape: tuple[int, ...], held: int) -> None:
    """Refuse a header that claims other data than the file holds, before anything is allocated."""
    claimed = math.prod(shape) * dtype.itemsize
    if claimed != held:
        raise ValueError(f"the header claims {dtype} {list(shape)}, {claimed} bytes, but the file holds {held}")


def write_column(file: Any, store: Store, name: str) -> None:
    """Write a column in the ``.npy`` format, block by block."""
    dtype, blocks = column_blocks(store, name)
    write_header(file, dtype, (len(store), *store.about.shape_of(name)))
    for block in blocks:
        file.write(as_bytes(block))


def write_header(file: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    """Write a ``.npy`` header."""
    fields = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, fields)
