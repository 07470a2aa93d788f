"""Inputs for a check from a file: ``.npy``, or ``.npz`` with arrays by name; sizes are checked before any is read."""

from __future__ import annotations

import io
import math
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from calibrant._files import read_regular

LARGEST = 2**31  # bytes of a file, and of all arrays in it
_MAGIC = b"\x93NUMPY"


def read_inputs(path: str | Path) -> npt.NDArray[Any] | dict[str, npt.NDArray[Any]]:
    """The array of a ``.npy`` file, or those of a ``.npz`` file by name; nothing is unpickled."""
    data = read_regular(path, LARGEST)
    try:
        return _array(data, "the file") if data.startswith(_MAGIC) else _arrays(io.BytesIO(data))
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError) as error:
        raise ValueError(f"{path}: not a .npy or .npz file of numbers ({error})") from None
    except Exception as error:  # zlib and NumPy's parser of headers have their own classes
        raise ValueError(f"{path}: {' '.join(str(error).split())[:200] or type(error).__name__}") from None


def _arrays(file: IO[bytes]) -> dict[str, npt.NDArray[Any]]:
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        size = sum(member.file_size for member in members)
        if size > LARGEST:
            raise ValueError(f"the arrays must have at most {LARGEST:,} bytes, got {size:,}")
        names = [member.filename.removesuffix(".npy") for member in members]
        if not names or len(set(names)) < len(names):
            raise ValueError("arrays must have names that differ" if names else "there is no array in it")
        # Read to the end, where the checksum is compared.
        return {name: _array(archive.read(member), name) for name, member in zip(names, members, strict=True)}


def _array(data: bytes, what: str) -> npt.NDArray[Any]:
    """One array out of the bytes of a ``.npy`` file."""
    file = io.BytesIO(data)
    if not data.startswith(_MAGIC):
        raise ValueError(f"{what} is not an array of NumPy's")
    version = np.lib.format.read_magic(file)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"{what} has version {version[0]}.{version[1]} of the format, 1.0 and 2.0 are read")
    try:
        shape, _, dtype = readers[version](file)
    except Exception:  # of the parsers of Python's literals
        raise ValueError(f"{what} has a header that cannot be read") from None
    if dtype.kind not in "fiub":
        raise ValueError(f"{what} must be numbers, got {dtype}")
    held, asked = len(data) - file.tell(), math.prod(shape) * dtype.itemsize
    if held != asked or any(length < 0 for length in shape):
        raise ValueError(f"{what} must have {asked:,} bytes of {dtype} {list(shape)}, got {held:,}")
    file.seek(0)
    return np.lib.format.read_array(file, allow_pickle=False)
