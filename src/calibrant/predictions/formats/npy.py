"""``.npy``: one array per file. ``x_logits.npy`` goes with ``x_labels.npy``, ``x_ids.npy``, ``x_group.site.npy``, ...

Facts that are not the default are arrays too: ``x_class_names.npy``, ``x_kind.npy``, ``x_ignore_index.npy``,
``x_split.npy``. A set that is written here has ``x_checksums.npy`` as well, which holds it together: files of two sets,
such as those of a set that is being replaced, are noticed, and damaged ones.
"""

from __future__ import annotations

import bisect
import contextlib
import fcntl
import os
import re
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from calibrant.base.arrays import check_characters
from calibrant.base.checks import shorten
from calibrant.base.files import sync, written_aside
from calibrant.predictions.columns import FILE_FACTS, OpenOptions, facts_of
from calibrant.predictions.files import array_name, file_errors, open_first
from calibrant.predictions.formats.arrays import (
    ArrayReader,
    StoredArray,
    open_arrays,
    parse_header,
    read_facts,
    write_column,
)
from calibrant.predictions.schema import DATA, GROUP, SINGLE
from calibrant.predictions.stores import Store

CHECKSUMS = "checksums"
MISMATCH = "the file is damaged, or of another set than the checksums beside it, which may be about to be replaced"
MOST_FILES = 500  # of a set: each is open until all are written
LOCK_SECONDS = 10  # to wait for the renames of another process


def open_file(path: Path, options: OpenOptions) -> ArrayReader:
    """Open the file of the data, and the files that go with it."""
    mapped = {str(options.columns[name]): name for name in DATA if name in options.columns}
    data_of = mapped or {name: name for name in DATA}
    ending = array_name(path, data_of)
    if ending is None:
        raise ValueError(f"{path}: the name of a .npy file must say what it holds: end it in {' or '.join(data_of)}")
    if not path.exists():
        raise ValueError(f"{path}: no such file")
    start = path.stem.removesuffix(ending)
    names = _list_set(path, start, options.listings)
    sums = _read_checksums(path, start) if CHECKSUMS in names else {}
    absent = next((name for name in sums if name not in names), None)
    if absent is not None:
        raise ValueError(f"{path}: {shorten(start + absent)}.npy is missing, which was written with it")

    def array_of(name: str) -> StoredArray:
        return _stored_array(path.with_name(f"{start}{name}.npy"), sums.get(name))

    names = [name for name in names if name != CHECKSUMS]
    return open_arrays(str(path), names, array_of, options, read_facts(names, array_of), data=data_of[ending])


def _list_set(path: Path, start: str, listings: dict[str, list[str]]) -> list[str]:
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


def _stored_array(path: Path, crc: int | None) -> StoredArray:
    with file_errors(str(path)), open_first(path) as (file, handle):
        header = parse_header(handle, file.stamp.size)
        return StoredArray(file, 0, header.size, header.dtype, header.shape, header.fortran, crc, mismatch=MISMATCH)


def _read_checksums(path: Path, start: str) -> dict[str, int]:
    """The checksum of every file of the set, by what its name ends in."""
    sums = _stored_array(path.with_name(f"{start}{CHECKSUMS}.npy"), None)
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
    holds = store.schema.holds
    if array_name(path, (holds,)) is None:
        raise ValueError(f"{path}: predictions that hold {holds} are written as NAME_{holds}.npy, got {path.name}")
    start = path.stem.removesuffix(holds)
    facts = facts_of(store.schema)
    slash = next((name for name in store.names if "/" in name or os.sep in name), None)
    if slash is not None:
        raise ValueError(f"{path}: {shorten(slash)!r} cannot be part of the name of a file")
    names = [*sorted(store.names, key=lambda name: name != holds), *facts]
    if len(names) > MOST_FILES:
        raise ValueError(f"{path}: a set of .npy files has at most {MOST_FILES}, got {len(names)}: write .npz")
    _refuse_leftovers(path, start, {*names, CHECKSUMS})
    lines = []
    with contextlib.ExitStack() as asides:  # closed in the opposite order: the data last
        for name in names:
            aside = asides.enter_context(written_aside(path.with_name(f"{start}{name}.npy")))
            with aside.open("wb") as handle:
                file = _SummedFile(handle)
                if name in facts:
                    np.lib.format.write_array(file, np.array(facts[name]))
                else:
                    write_column(file, store, name)
            lines.append(f"{file.crc:08x} {name}")
            sync(aside)
        aside = asides.enter_context(written_aside(path.with_name(f"{start}{CHECKSUMS}.npy")))
        with aside.open("wb") as handle:
            np.save(handle, np.array(lines))
        with _lock(path.parent):
            asides.close()


class _SummedFile:
    """A file to write to that keeps the checksum of what was written."""

    def __init__(self, handle: IO[bytes]):
        self.handle, self.crc = handle, 0

    def write(self, data: Any) -> int:
        self.crc = zlib.crc32(data, self.crc)
        return self.handle.write(data)


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Keep other processes from renaming a set of files here meanwhile, if the file system has locks."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        until = time.monotonic() + LOCK_SECONDS
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


def _refuse_leftovers(path: Path, start: str, names: set[str]) -> None:
    """A file of an earlier set would be read as part of this one."""
    reserved = {alias for aliases in SINGLE.values() for alias in aliases} | set(FILE_FACTS)
    for entry in sorted(os.listdir(path.parent)) if path.parent.is_dir() else ():
        name = entry.removesuffix(".npy").removeprefix(start)
        if entry == f"{start}{name}.npy" and name not in names and (name in reserved or name.startswith(GROUP)):
            raise ValueError(f"{path}: {entry} is there already and would be read as part of it: remove it first")
