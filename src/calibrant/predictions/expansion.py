"""Compressed files that become far larger than predictions do: refused before their contents fill memory or time."""

from __future__ import annotations

import zlib
from typing import IO

RATIO = 100  # predictions are numbers, which compress by a factor of a few
LEAST = 1 << 28  # bytes that any file may become
LEAST_SAMPLE = 1 << 26
_SAMPLE = 1 << 23
_CHUNK = 1 << 20


def check_expansion(name: str, size: int, compressed: int) -> None:
    """Refuse what becomes larger than numbers do, ``size`` bytes out of ``compressed``."""
    if size > max(LEAST, RATIO * compressed):
        limit = f"at most {RATIO} times as large as its {compressed:,} bytes"
        raise ValueError(f"{name} must become {limit} when it is decompressed, got at least {size:,} bytes")


def check_sample(path: str, size: int, compressed: int) -> None:
    """Refuse a file in which one sample alone, which is read at once, becomes larger than numbers do."""
    if size > max(LEAST_SAMPLE, RATIO * compressed):
        limit = f"{RATIO} times as large as the file of {compressed:,} bytes"
        raise ValueError(f"{path}: a sample must be at most {limit}, got {size:,} bytes")


def check_start(handle: IO[bytes], name: str, size: int) -> None:
    """Refuse a gzip file of ``size`` bytes whose first megabytes become far too large."""
    if size * 1032 <= LEAST:
        return
    handle.seek(0)
    data, count = handle.read(_SAMPLE), 0
    engine = zlib.decompressobj(31)
    while data:
        count += len(engine.decompress(data, _CHUNK))
        data = engine.unconsumed_tail
        if engine.eof:  # a file may have several parts, one after the other
            data, engine = engine.unused_data, zlib.decompressobj(31)
        check_expansion(name, count, min(size, _SAMPLE))
