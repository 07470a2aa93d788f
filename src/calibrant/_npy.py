"""Arrays in NumPy's ``.npy`` format from files that are not trusted.

The header is a dictionary in Python's spelling. Its parts are matched and nothing is evaluated, no type is made of what
it names unless that is a number, a text or a date, and nothing is allocated before the caller has checked the size.
"""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

import numpy as np

from calibrant._arrays import Array
from calibrant._validation import shorten

MAGIC = b"\x93NUMPY"
LONGEST_HEADER = 10_000  # bytes: NumPy's own limit
CHUNK = 1 << 18  # bytes that are read at a time
_DESCR = re.compile(r"""['"]descr['"]\s*:\s*(?:['"]([^'"]*)['"]|(.{1,40}))""")
_ORDER = re.compile(r"""['"]fortran_order['"]\s*:\s*(True|False)\b""")
_SHAPE = re.compile(r"""['"]shape['"]\s*:\s*\(((?:\s*[0-9]{1,19}L?\s*,)*(?:\s*[0-9]{1,19}L?\s*)?)\)""")
_TYPE = re.compile(r"[<>=|]?(?:([biufUSc])[1-9][0-9]{0,5}|([mM])8(?:\[[0-9]{0,9}[a-zA-Z]{1,2}\])?)")


class ArrayHeader(NamedTuple):
    """What the header of a ``.npy`` array says.

    Attributes:
        code: the type as NumPy spells it, ``"<f4"``, or the beginning of whatever is there.
        shape: the lengths, none below 0.
        fortran: whether the array lies column by column.
        size: the number of bytes before those of the array.
    """

    code: str
    shape: tuple[int, ...]
    fortran: bool
    size: int

    @property
    def kind(self) -> str:
        """The kind of the type as `numpy.dtype.kind` has it; ``"V"`` if it is no number, text or date."""
        match = _TYPE.fullmatch(self.code)
        return "V" if match is None else match[1] or match[2]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type; an error if it is no number, text or date."""
        if self.kind == "V":
            hint = " (objects: save text as labels.astype(str), numbers as .astype(float))" if "O" in self.code else ""
            actual = f"{shorten(self.code)!r}{hint}"
            raise ValueError(f"arrays of numbers or text are read and nothing is unpickled, got {actual}")
        try:
            return np.dtype(self.code)
        except TypeError:
            reason = f"names a type that NumPy does not have, {self.code!r}"
            raise ValueError(f"the header of the .npy array {reason}") from None

    @property
    def data_size(self) -> int:
        """How many bytes the array has by its type and shape."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_header(file: Any) -> ArrayHeader:
    """Read the header of a ``.npy`` array from where a file stands."""
    magic = file.read(8)
    if magic[:6] != MAGIC or len(magic) < 8:
        raise ValueError("not a .npy array")
    if magic[6] not in (1, 2, 3):
        raise ValueError(f"not a .npy array of version 1, 2 or 3, got version {magic[6]}.{magic[7]}")
    width = 2 if magic[6] == 1 else 4
    length = int.from_bytes(file.read(width), "little")
    if length > LONGEST_HEADER:
        raise ValueError(f"the header of a .npy array is at most {LONGEST_HEADER} bytes, got {length}")
    header = file.read(length)
    if len(header) < length:
        raise ValueError("the header of the .npy array is cut off")
    text = header.decode("latin-1").strip()
    descr, order, lengths = (pattern.search(text) for pattern in (_DESCR, _ORDER, _SHAPE))
    if descr is None or order is None or not text.startswith("{") or not text.endswith("}"):
        raise ValueError("the header of the .npy array is damaged")
    if lengths is None:
        raise ValueError("the header of the .npy array has no shape of whole numbers")
    shape = tuple(int(part.strip().rstrip("L")) for part in lengths[1].split(",") if part.strip())
    code = descr[2] if descr[1] is None else descr[1]
    return ArrayHeader(code, shape, order[1] == "True", 8 + width + length)


def read_values(file: Any, header: ArrayHeader) -> Array:
    """Read the array from where a file stands after its header, whose size the caller has checked."""
    values = np.empty(math.prod(header.shape), header.dtype)
    read_into(file, values.view(np.uint8).data)
    return values.reshape(header.shape, order="F" if header.fortran else "C")


def read_into(file: Any, space: memoryview) -> None:
    """Fill a buffer from where a file stands."""
    while space:
        count = file.readinto(space[:CHUNK])
        if not count:
            raise ValueError("the file ends before its array does")
        space = space[count:]
