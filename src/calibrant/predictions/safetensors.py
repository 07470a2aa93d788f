"""``.safetensors``: arrays by name, read where they lie; text as codes, whose levels are in the metadata.

The metadata has one entry, ``calibrant``: JSON with the facts (class names, kind, ignore index, split) and the levels.
"""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from calibrant._files import written_aside
from calibrant.predictions.arrays import Array
from calibrant.predictions.columns import Request
from calibrant.predictions.members import (
    FACTS,
    ArraySource,
    Levels,
    Member,
    Stored,
    Widened,
    as_bytes,
    column_blocks,
    facts_of,
    open_members,
)
from calibrant.predictions.store import Store

TYPES = {"F16": "<f2", "F32": "<f4", "F64": "<f8", "BOOL": "|b1"} | {
    f"{kind}{8 * size}": f"<{kind.lower()}{size}" for kind in "IU" for size in (1, 2, 4, 8)
}
HEADER = 100_000_000  # bytes: what the format allows


def open_file(path: Path, asked: Request) -> ArraySource:
    """Open a file whose header the library has checked: offsets in order, no gaps, nothing beyond the end."""
    try:
        with safe_open(path, framework="numpy") as file:
            about = json.loads((file.metadata() or {}).get("calibrant", "{}"))
    except SafetensorError as error:
        raise ValueError(f"{path}: not a whole safetensors file: {error}") from error
    with path.open("rb") as raw:
        (length,) = struct.unpack("<Q", raw.read(8))
        entries = json.loads(raw.read(length))
    entries.pop("__metadata__", None)
    levels = about.get("levels", {}) if isinstance(about, dict) else None
    if not isinstance(levels, dict) or not all(isinstance(names, list) for names in levels.values()):
        raise ValueError(f"{path}: its metadata 'calibrant' is not what was written there")

    def member(name: str) -> Member:
        return _member(path, name, entries[name], 8 + length, levels.get(name))

    facts = {name: about[name] for name in FACTS if about.get(name) is not None}
    return open_members(str(path), list(entries), member, asked, facts)


def _member(path: Path, name: str, entry: dict[str, Any], data: int, levels: list[str] | None) -> Member:
    kind, shape = entry["dtype"], tuple(entry["shape"])
    if kind not in TYPES and kind != "BF16":
        raise ValueError(f"{path}: {name} must be numbers that NumPy has, or bfloat16, got {kind}")
    stored = Stored(str(path), data + entry["data_offsets"][0], np.dtype(TYPES.get(kind, "<u2")), shape)
    if kind == "BF16":
        return Widened(stored)
    return stored if levels is None else Levels(stored, tuple(map(str, levels)))


def save(store: Store, path: Path) -> None:
    """Write the header, then one column after the other."""
    about: dict[str, Any] = {name: value.tolist() for name, value in facts_of(store.about).items()}
    codes: dict[str, Array] = {}
    levels: dict[str, list[str]] = {}
    entries: dict[str, Any] = {}
    end = 0
    # Wide types first, as the format's own writer has it: every array then starts at a multiple of its type's size.
    types = {name: _type(store, name, codes, levels) for name in store.names}
    names = sorted(store.names, key=lambda name: -types[name].itemsize)
    for name in names:
        shape = (len(store), *store.about.shape_of(name))
        size = math.prod(shape) * types[name].itemsize
        kind = next(kind for kind, dtype in TYPES.items() if np.dtype(dtype) == types[name])
        entries[name] = {"dtype": kind, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    if about or levels:
        about |= {"levels": levels} if levels else {}
        entries = {"__metadata__": {"calibrant": json.dumps(about)}} | entries
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    if len(header) > HEADER:
        raise ValueError(f"{path}: too much text for the header of a safetensors file: write .npz or .parquet")
    with written_aside(path) as aside, aside.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        for name in names:
            blocks = iter([codes[name]]) if name in codes else column_blocks(store, name)[1]
            for block in blocks:
                file.write(as_bytes(block))


def _type(store: Store, name: str, codes: dict[str, Array], levels: dict[str, list[str]]) -> np.dtype[Any]:
    """The type a column is written as; text is replaced by codes on the way."""
    dtype, _ = column_blocks(store, name)
    if dtype.kind != "U":
        return dtype
    found, codes[name] = np.unique(store.column(name), return_inverse=True)
    codes[name] = codes[name].astype(np.int64)
    levels[name] = found.tolist()
    return codes[name].dtype
