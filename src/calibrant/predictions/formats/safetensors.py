"""``.safetensors``: arrays by name, read where they lie; text as codes, whose levels are in the metadata.

The metadata has entries of ours: ``calibrant``, JSON with the facts (class names, kind, ignore index, split) and the
levels; ``calibrant_crc32``, JSON with the checksum of every array; and ``calibrant_header_crc32``, that of the header
itself with this one entry set to zeros. The format has no checksums of its own.
"""

from __future__ import annotations

import functools
import json
import math
import re
import struct
import zlib
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from calibrant.base.arrays import Array, check_texts, check_width
from calibrant.base.checks import shorten
from calibrant.base.files import parse_json, written_aside
from calibrant.predictions.columns import FILE_FACTS, OpenOptions, facts_of
from calibrant.predictions.files import DataFile, check_crc, open_first
from calibrant.predictions.formats.arrays import (
    MOST_ARRAYS,
    ArrayReader,
    StoredArray,
    as_bytes,
    column_blocks,
    open_arrays,
)
from calibrant.predictions.stores import Store

TYPES = {"F16": "<f2", "F32": "<f4", "F64": "<f8", "BOOL": "|b1"} | {
    f"{kind}{8 * size}": f"<{kind.lower()}{size}" for kind in "IU" for size in (1, 2, 4, 8)
}
MOST_HEADER = 1 << 24  # bytes; the format allows six times as much, which no predictions need
MOST_NUMBERS = 1 << 21  # bytes of JSON that are neither text nor between two texts
_TEXT = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_OURS, _SUMS, _OWN_SUM = "calibrant", "calibrant_crc32", "calibrant_header_crc32"
_OWN = re.compile(rb'("calibrant_header_crc32": ")([0-9a-f]{8})"')
_ZEROS = "00000000"


def open_file(path: Path, options: OpenOptions) -> ArrayReader:
    """Open a file whose header was checked: arrays in order without gaps, from its end to the end of the file."""
    with open_first(path) as (file, handle):
        header = _header(handle, file)
        entries = parse_json(header, "the header of a safetensors file")
        metadata = entries.pop("__metadata__", {}) if isinstance(entries, dict) else None
        if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
            raise ValueError(f"{path}: not a whole safetensors file: the metadata are not texts by name")
        data = 8 + len(header)
        _check_entries(entries, file.stamp.size - data, file)
        _check_header(header, metadata, file)
        text = metadata.get(_OURS, "{}")
        if _is_dense(text.encode(errors="replace")):
            raise ValueError(f"{path}: its metadata {_OURS!r} have more numbers than were written there")
        ours = parse_json(text, f"what was written as {_OURS!r}")
        levels: Any = ours.get("levels", {}) if isinstance(ours, dict) else None
        sums = parse_json(metadata.get(_SUMS, "{}"), f"what was written as {_SUMS!r}")
        if not _are_levels(levels) or not _are_sums(sums):
            raise ValueError(f"{path}: its metadata 'calibrant' is not what was written there")

        def array_of(name: str) -> StoredArray:
            crc = int(sums[name], 16) if name in sums else None
            return _array(file, name, entries[name], data, levels.get(name), crc)

        facts = {name: ours[name] for name in FILE_FACTS if ours.get(name) is not None}
        return open_arrays(str(path), list(entries), array_of, options, facts)


def _header(handle: IO[bytes], file: DataFile) -> bytes:
    """The bytes of the header, of which there are not too many."""
    start = handle.read(8)
    length = int.from_bytes(start, "little")
    if len(start) < 8 or length > file.stamp.size - 8:
        raise ValueError(f"{file.path}: not a whole safetensors file: the header would end after the file does")
    if length > MOST_HEADER:
        raise ValueError(
            f"{file.path}: the header of a safetensors file must be at most {MOST_HEADER:,} bytes, got {length:,}"
        )
    header = handle.read(length)
    if _is_dense(header) or header.count(b'"data_offsets"') > MOST_ARRAYS:
        raise ValueError(f"{file.path}: a safetensors file may hold at most {MOST_ARRAYS:,} arrays, got more")
    return header


def _is_dense(text: bytes) -> bool:
    """Whether JSON has more numbers and brackets than ours has, which would take long to read."""
    return len(_TEXT.sub(b"", text).translate(None, b", \n")) > MOST_NUMBERS


def _check_entries(entries: Any, size: int, file: DataFile) -> None:
    """Refuse entries that are none, and arrays with gaps between them, with overlaps, or beyond the end."""
    prefix = f"{file.path}: not a whole safetensors file:"
    for name, entry in entries.items():
        fields = entry if isinstance(entry, dict) else {}
        shape, offsets = fields.get("shape"), fields.get("data_offsets", [])
        fine = isinstance(fields.get("dtype"), str)
        if not fine or not _are_counts(shape) or not _are_counts(offsets) or len(offsets) != 2:
            raise ValueError(f"{prefix} the entry {shorten(name)!r} has no type, shape or place")
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1]["data_offsets"]):
        start, stop = entry["data_offsets"]
        if start != end or stop < start:
            raise ValueError(f"{prefix} {shorten(name)!r} starts at {start}, expected {end}")
        kind = TYPES.get(entry["dtype"], "<u2" if entry["dtype"] == "BF16" else None)
        if kind is not None and math.prod(entry["shape"]) * np.dtype(kind).itemsize != stop - start:
            raise ValueError(
                f"{prefix} {shorten(name)!r} has {stop - start} bytes, which {entry['shape']} does not fit"
            )
        end = stop
    if end != size:
        raise ValueError(f"{prefix} its arrays have {end} bytes, the file holds {size}")


def _are_counts(values: Any) -> bool:
    return isinstance(values, list) and all(type(n) is int and 0 <= n < 2**63 for n in values) and len(values) <= 64


def _are_levels(levels: Any) -> bool:
    return isinstance(levels, dict) and all(
        isinstance(names, list) and all(isinstance(name, str) for name in names) for names in levels.values()
    )


def _are_sums(sums: Any) -> bool:
    return isinstance(sums, dict) and all(
        isinstance(crc, str) and re.fullmatch("[0-9a-f]{8}", crc) for crc in sums.values()
    )


def _check_header(header: bytes, metadata: dict[str, str], file: DataFile) -> None:
    """Compare the header with its checksum, if it has one."""
    if _OWN_SUM not in metadata:
        return
    match = _OWN.search(header)
    if match is None:
        raise ValueError(
            f"{file.path}: the file is damaged: the checksum of its header is {shorten(metadata[_OWN_SUM])!r}"
        )
    blank = header[: match.start(2)] + _ZEROS.encode() + header[match.end(2) :]
    check_crc(zlib.crc32(blank), int(match[2], 16), file.path)


def _array(
    file: DataFile, name: str, entry: dict[str, Any], data: int, levels: list[str] | None, crc: int | None
) -> StoredArray:
    kind, shape = entry["dtype"], tuple(entry["shape"])
    if kind not in TYPES and kind != "BF16":
        expected = "numbers that NumPy has, or bfloat16"
        raise ValueError(f"{file.path}: {shorten(name)} must be {expected}, got {shorten(kind)}")
    start = data + entry["data_offsets"][0]
    stored = StoredArray(file, start, 0, np.dtype(TYPES.get(kind, "<u2")), shape, crc=crc)
    if kind == "BF16":
        return replace(stored, dtype=np.dtype(np.float32), stored_dtype=stored.dtype, convert=_widen)
    if levels is None:
        return stored
    check_texts(f"{file.path}: {shorten(name)}", levels)
    check_width(f"{file.path}: text", len(levels), max(map(len, levels), default=1))
    texts = np.array(levels, dtype=np.str_)
    decode = functools.partial(_look_up, texts)
    return replace(stored, dtype=texts.dtype, stored_dtype=stored.dtype, convert=decode)


def _widen(bits: Array, prefix: str) -> Array:
    """bfloat16, which NumPy does not have, as float32: its bits are the upper half."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _look_up(levels: Array, codes: Array, prefix: str) -> Array:
    """Text that is stored as numbers of levels."""
    if codes.dtype.kind not in "iu" or not 0 <= codes.min() <= codes.max() < len(levels):
        raise ValueError(f"{prefix}codes of text must be whole numbers in 0..{len(levels) - 1}")
    check_width(f"{prefix}text", codes.size, levels.itemsize // 4)
    return levels[codes]


def save(store: Store, path: Path) -> None:
    """Write the header, one column after the other, and then the header once more with the checksums."""
    codes: dict[str, Array] = {}
    levels: dict[str, list[str]] = {}
    entries: dict[str, Any] = {}
    end = 0
    # Wide types first, as the format's own writer has it: every array then starts at a multiple of its type's size.
    types = {name: _type(store, name, codes, levels) for name in store.names}
    names = sorted(store.names, key=lambda name: -types[name].itemsize)
    for name in names:
        shape = (len(store), *store.schema.stored_shape_of(name))
        size = math.prod(shape) * types[name].itemsize
        kind = next(kind for kind, dtype in TYPES.items() if np.dtype(dtype) == types[name])
        entries[name] = {"dtype": kind, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    ours = json.dumps(facts_of(store.schema) | ({"levels": levels} if levels else {}))
    sums = dict.fromkeys(names, _ZEROS)
    header = _make_header(ours, sums, entries)
    if len(header) > MOST_HEADER or len(names) > MOST_ARRAYS:
        raise ValueError(f"{path}: too much text for the header of a safetensors file: write .npz or .parquet")
    with written_aside(path) as aside, aside.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        for name in names:
            crc = 0
            for block in iter([codes[name]]) if name in codes else column_blocks(store, name)[1]:
                data = as_bytes(block)
                crc = zlib.crc32(data, crc)
                file.write(data)
            sums[name] = f"{crc:08x}"
        file.seek(8)
        file.write(_make_header(ours, sums, entries))


def _make_header(ours: str, sums: dict[str, str], entries: dict[str, Any]) -> bytes:
    """The header, whose length does not depend on the checksums."""
    metadata = {_OURS: ours, _SUMS: json.dumps(sums), _OWN_SUM: _ZEROS}
    header = json.dumps({"__metadata__": metadata} | entries).encode()
    header += b" " * (-len(header) % 8)
    match = _OWN.search(header)
    assert match is not None
    return header[: match.start(2)] + f"{zlib.crc32(header):08x}".encode() + header[match.end(2) :]


def _type(store: Store, name: str, codes: dict[str, Array], levels: dict[str, list[str]]) -> np.dtype[Any]:
    """The type a column is written as; text is replaced by codes on the way."""
    dtype, _ = column_blocks(store, name)
    if dtype.kind != "U":
        return dtype
    different, codes[name] = np.unique(store.column(name), return_inverse=True)
    codes[name] = codes[name].astype(np.int64)
    levels[name] = different.tolist()
    return codes[name].dtype
