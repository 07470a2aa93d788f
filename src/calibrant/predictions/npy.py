"""``.npy``: one array per file. ``x_logits.npy`` goes with ``x_labels.npy``, ``x_ids.npy``, ``x_group.site.npy``, ...

Facts that are not the default are arrays too: ``x_class_names.npy``, ``x_kind.npy``, ``x_ignore_index.npy``,
``x_split.npy``.
"""

from __future__ import annotations

import ast
import bisect
import math
import os
import re
from pathlib import Path
from typing import IO, Any

import numpy as np

from calibrant._files import written_aside
from calibrant.predictions.checks import DATA, GROUP
from calibrant.predictions.columns import SINGLE, Request
from calibrant.predictions.members import (
    FACTS,
    ArraySource,
    Stored,
    as_bytes,
    column_blocks,
    facts_of,
    open_members,
    stated,
)
from calibrant.predictions.shards import array_name, reading
from calibrant.predictions.store import Store

HEADER = 10_000  # bytes: NumPy's own limit


def endings(asked: Request) -> dict[str, str]:
    """What the name of a data file may end in, with what it then holds."""
    chosen = {str(asked.columns[name]): name for name in DATA if name in asked.columns}
    return chosen or {name: name for name in DATA}


def open_file(path: Path, asked: Request) -> ArraySource:
    """Open the file of the data, and the files that go with it."""
    names = endings(asked)
    ending = array_name(path, names)
    if ending is None:
        raise ValueError(f"{path}: the name of a .npy file must say what it holds: end it in {' or '.join(names)}")
    if not path.exists():
        raise ValueError(f"{path}: no such file")
    start = path.stem.removesuffix(ending)
    held = _beside(path, start, asked.listings)

    def member(name: str) -> Stored:
        return _stored(path.with_name(f"{start}{name}.npy"))

    return open_members(str(path), held, member, asked, stated(held, member), data=names[ending])


def _beside(path: Path, start: str, listings: dict[str, list[str]]) -> list[str]:
    """The ends of the names of all ``.npy`` files that start alike; a folder of many shards is listed once."""
    folder = str(path.parent)
    if folder not in listings:
        listings[folder] = sorted(entry for entry in os.listdir(folder) if entry.endswith(".npy"))
    entries, found = listings[folder], []
    for entry in entries[bisect.bisect_left(entries, start) :]:
        if not entry.startswith(start):
            break
        found.append(entry[len(start) : -len(".npy")])
    return found


def _stored(path: Path) -> Stored:
    with reading(str(path)), path.open("rb") as file:
        if not path.stat().st_size:
            raise ValueError(f"{path}: the file is empty")
        dtype, shape, fortran = parse_header(file)
        check_size(dtype, shape, path.stat().st_size - file.tell())
        return Stored(str(path), file.tell(), dtype, shape, fortran)


def save(store: Store, path: Path) -> None:
    """Write one file per column, the data last, so that what is named by ``path`` is complete once it is there."""
    holds = store.about.holds
    if array_name(path, (holds,)) is None:
        raise ValueError(f"{path}: predictions that hold {holds} are written as NAME_{holds}.npy, got {path.name}")
    start = path.stem.removesuffix(holds)
    facts = facts_of(store.about)
    slash = next((name for name in store.names if "/" in name or os.sep in name), None)
    if slash is not None:
        raise ValueError(f"{path}: {slash!r} cannot be part of the name of a file")
    _refuse_leftovers(path, start, {*store.names, *facts})
    for name, value in facts.items():
        with written_aside(path.with_name(f"{start}{name}.npy")) as aside, aside.open("wb") as file:
            write_header(file, value.dtype, value.shape)
            file.write(as_bytes(value))
    for name in sorted(store.names, key=lambda name: name == holds):
        with written_aside(path.with_name(f"{start}{name}.npy")) as aside, aside.open("wb") as file:
            write_column(file, store, name)


def _refuse_leftovers(path: Path, start: str, written: set[str]) -> None:
    """A file of an earlier set would be read as part of this one."""
    known = {alias for aliases in SINGLE.values() for alias in aliases} | set(FACTS)
    for entry in sorted(os.listdir(path.parent)) if path.parent.is_dir() else ():
        name = entry.removesuffix(".npy").removeprefix(start)
        if entry == f"{start}{name}.npy" and name not in written and (name in known or name.startswith(GROUP)):
            raise ValueError(f"{path}: {entry} is there already and would be read as part of it: remove it first")


def parse_header(file: IO[bytes]) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    """Type, shape and order of a ``.npy`` array, without allocating anything.

    Read here rather than by NumPy, whose reader makes a type of whatever the header names; these are numbers and text.
    """
    magic = file.read(8)
    if magic[:6] != b"\x93NUMPY" or len(magic) < 8 or magic[6] not in (1, 2, 3):
        raise ValueError("not a .npy array")
    length = int.from_bytes(file.read(2 if magic[6] == 1 else 4), "little")
    if length > HEADER:
        raise ValueError(f"the header of a .npy array is at most {HEADER} bytes, got {length}")
    try:
        fields = ast.literal_eval(file.read(length).decode().strip())
        descr, fortran, shape = fields["descr"], fields["fortran_order"], fields["shape"]
    except (ValueError, SyntaxError, LookupError, TypeError) as error:
        raise ValueError("the header of the .npy array is damaged") from error
    if not isinstance(descr, str) or not re.fullmatch("[<>=|]?[biufUSc][1-9][0-9]{0,5}", descr):
        raise ValueError(f"arrays of numbers or text are read and nothing is unpickled, got {str(descr)[:60]!r}")
    if not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(f"the header of the .npy array has no shape: {str(shape)[:60]}")
    return np.dtype(descr), shape, bool(fortran)


def check_size(dtype: np.dtype[Any], shape: tuple[int, ...], held: int) -> None:
    """Refuse a header that claims other data than the file holds, before anything is allocated."""
    claimed = math.prod(shape) * dtype.itemsize
    if claimed != held:
        raise ValueError(f"the header claims {dtype} {list(shape)}, {claimed} bytes, but the file holds {held}")


def write_column(file: IO[bytes], store: Store, name: str) -> None:
    """Write a column in the ``.npy`` format, block by block."""
    dtype, blocks = column_blocks(store, name)
    write_header(file, dtype, (len(store), *store.about.shape_of(name)))
    for block in blocks:
        file.write(as_bytes(block))


def write_header(file: IO[bytes], dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    """Write a ``.npy`` header."""
    fields = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, fields)
