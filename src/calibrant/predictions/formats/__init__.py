"""The formats of predictions, one module each: ``open_file(path, options)`` and ``save(store, path)``.

`arrays` has what ``.npz``, ``.npy`` and ``.safetensors`` share, `tables` what CSV, Parquet and frames share; here is
what all of them check in files that are damaged or hostile.
"""

from __future__ import annotations

from calibrant.predictions.paths import FileError

RATIO = 100  # predictions are numbers, which compress by a factor of a few
LEAST = 1 << 28  # bytes that any file may become


def check_expansion(name: str, size: int, compressed: int) -> None:
    """Refuse what becomes far larger than numbers do, ``size`` bytes out of ``compressed``."""
    if size > max(LEAST, RATIO * compressed):
        limit = f"at most {RATIO} times as large as its {compressed:,} bytes"
        raise ValueError(f"{name} must become {limit} when it is decompressed, got at least {size:,} bytes")


def check_crc(crc: int, expected: int, path: str, meaning: str = "the file is damaged") -> None:
    """Refuse bytes that are not those that were written; ``meaning`` is what another checksum says."""
    if crc != expected:
        raise FileError(f"{path}: {meaning}: a checksum is {crc:08x}, expected {expected:08x}; get or write it again")
