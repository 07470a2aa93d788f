"""Arrays of any framework as NumPy arrays and back, the floating-point type they came in, and the one way to cut them.

NumPy arrays, lists, PyTorch tensors (any device, with or without a gradient), JAX, TensorFlow, pandas and polars are
converted by what they can do (``__array__``, ``numpy()``, DLPack), whatever their class, without a copy where possible.
Nothing here imports a framework.
"""

from __future__ import annotations

import functools
import math
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Doubles = npt.NDArray[np.float64]
T = TypeVar("T")
R = TypeVar("R")
C = TypeVar("C", bound=tuple[Any, ...])

#: What users may give: whatever NumPy takes, and arrays of other frameworks.
ArrayLike: TypeAlias = Any

#: The floating-point type that numbers came in; whole numbers count as float64.
Precision: TypeAlias = Literal["float16", "bfloat16", "float32", "float64"]

POOL = "calibrant-pool"  # what the names of the threads begin with
CHUNK = 1 << 20  # numbers: small enough for the cache, large enough to hide the calls

#: What whole numbers of 64 bits look like in text, for Arrow's expressions and for Python's.
WHOLE = "^(0|-?[1-9][0-9]{0,17})$"
is_whole = re.compile(WHOLE.removesuffix("$") + r"\Z").match
TEXT_BYTES = 1 << 28  # that a column of text may take, in which every value is as wide as the widest,
TEXT_WIDTH = 64  # unless the widest has no more characters than this
_BLOCK = 1 << 20


def as_numpy(name: str, values: Any) -> tuple[Array, bool]:
    """The values as a NumPy array, and whether its memory is ours alone.

    bfloat16 and the 8-bit floats, which NumPy does not have, become float32.
    """
    if isinstance(values, np.ndarray) and not isinstance(values, np.ma.MaskedArray):
        return (values.astype(np.float32), True) if _is_foreign(values) else (values, False)
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise ValueError(f"{name} must have a value everywhere, got a masked array with masked values")
    ours = isinstance(values, list | tuple)
    try:
        if hasattr(values, "detach"):
            values = _from_torch(values)
        elif not hasattr(values, "__array__"):
            if hasattr(values, "numpy"):
                values = values.numpy()
            elif hasattr(values, "__dlpack__"):
                values = np.from_dlpack(values)
        if _is_foreign(values):
            values, ours = values.astype(np.float32), True
        array = np.asarray(values)
        if _is_foreign(array):
            array, ours = array.astype(np.float32), True
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{name} must be an array, got {type(values).__name__}: {reason}") from error
    return array, ours


def precision_of(values: Any) -> Precision:
    """The floating-point type that numbers came in."""
    dtype = getattr(values, "dtype", None)
    name = str(getattr(dtype, "name", dtype)).removeprefix("torch.").lstrip("<>=|")
    if name.startswith("float8"):
        return "bfloat16"
    return name if name in ("float16", "bfloat16", "float32") else "float64"  # type: ignore[return-value]


def is_half(precision: Precision) -> bool:
    """Whether a type has 16 bits."""
    return precision in ("float16", "bfloat16")


def round_to(values: npt.NDArray[np.float64], precision: Precision) -> npt.NDArray[np.float64]:
    """Numbers rounded to a floating-point type, as float64."""
    if precision == "float64":
        return values
    if precision == "bfloat16":
        bits = values.astype(np.float32).view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32).astype(np.float64)
    return values.astype(precision).astype(np.float64)


def as_kind_of(template: Any, array: Array, *, keep_precision: bool = False) -> Any:
    """A result as the kind of array that was given: a tensor on the device of ``template``, or NumPy's array.

    Floating-point tensors have the precision of the template, too, unless ``keep_precision``.
    """
    if not hasattr(template, "detach"):
        return array
    import torch

    tensor = torch.from_numpy(np.ascontiguousarray(array)).to(template.device)
    is_narrowed = not keep_precision and array.dtype.kind == "f" and template.is_floating_point()
    return tensor.to(template.dtype) if is_narrowed else tensor


def row_slices(rows: int, numbers: int, limit: int | None = None) -> Iterator[slice]:
    """Consecutive runs of rows of about ``limit`` numbers (`CHUNK`), where a row has ``numbers`` of them."""
    step = max(1, (CHUNK if limit is None else limit) // max(1, numbers))
    for start in range(0, rows, step):
        yield slice(start, min(rows, start + step))


def cache_chunks(z: Array) -> Iterator[Array]:
    """Parts of ``[N, C, ...]`` along its first dimension that fit the cache."""
    for rows in row_slices(len(z), math.prod(z.shape[1:])):
        yield z[rows]


def class_rows(z: Array) -> Array:
    """Logits ``[N, C, ...]`` as one row per position, ``[n, C]``."""
    return z if z.ndim == 2 else np.moveaxis(z.reshape(*z.shape[:2], -1), 1, 2).reshape(-1, z.shape[1])


def sum_along(values: Array, axis: int) -> Array:
    """Sums along an axis of an array of two dimensions, in its own type; NumPy's sum takes twice as long for rows."""
    if axis == 0 and values.shape[1] == 1:
        return sum_along(_beside_itself(values), 0)[:1]
    sums: Array = np.einsum("ij->j" if axis == 0 else "ij->i", values)
    return sums


def sum_products(first: Array, second: Array, axis: int) -> Array:
    """Sums of products along an axis of two arrays of two dimensions, by the call that is faster for the axis."""
    if axis == 0 and first.shape[1] == 1:
        return sum_products(_beside_itself(first), _beside_itself(second), 0)[:1]
    sums: Array = np.einsum("ij,ij->j", first, second) if axis == 0 else np.vecdot(first, second)
    return sums


def _beside_itself(column: Array) -> Array:
    """A column twice: NumPy adds up one alone in another order than one of several, so that its sum is another."""
    return np.repeat(column, 2, 1)


def take_rows(columns: C, rows: Any) -> C:
    """Some rows of a named tuple of columns, arrays of one length."""
    make: Any = type(columns)
    selected: C = make(*(column[rows] for column in columns))
    return selected


def join_rows(parts: Sequence[C]) -> C:
    """Named tuples of columns put together, one after the other."""
    make: Any = type(parts[0])
    joined: C = make(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    return joined


def map_levels(values: Array, convert: Callable[[Any], Any], dtype: type) -> Array:
    """An array of the same shape in which every value is converted, each different one only once."""
    levels, codes = np.unique(values, return_inverse=True)
    return np.array([convert(level) for level in levels.tolist()], dtype)[codes].reshape(values.shape)


def as_text(name: str, array: Array) -> Array:
    """Text of any NumPy kind (fixed width, variable width, objects that are all ``str``) as fixed-width text.

    Other arrays stay as they are.
    """
    if array.dtype.kind not in "UTO":
        return array
    if array.dtype.kind == "O" and not all(isinstance(value, str) for value in array.flat):
        odd = next(value for value in array.flat if not isinstance(value, str))
        raise ValueError(f"{name} must be text or whole numbers, got an object array with {type(odd).__name__}")
    if array.dtype.kind in "OT":
        check_width(name, array.size, max(map(len, array.flat), default=1))
        array = array.astype(np.str_)
    check_characters(name, array)
    return array


def check_characters(name: str, array: Array) -> None:
    """Refuse fixed-width text with code points that are no characters: Python fails on them, or cannot write them."""
    flat = array.reshape(-1)
    rows = max(1, _BLOCK // max(1, array.itemsize))
    for start in range(0, len(flat), rows):
        block = np.ascontiguousarray(flat[start : start + rows])
        points = block.view(np.dtype(np.uint32).newbyteorder(array.dtype.byteorder))
        if len(points) and points.max() > 0xD7FF:
            odd = points[(points > 0x10FFFF) | ((points >= 0xD800) & (points <= 0xDFFF))]
            if len(odd):
                raise ValueError(f"{name} must be text, got a character that does not exist, {int(odd[0]):#x}")


def check_texts(name: str, texts: Iterable[str]) -> None:
    """Refuse texts that NumPy or UTF-8 cannot store: with characters that do not exist, or with null characters."""
    for text in texts:
        if "\0" in text or (not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)):
            raise ValueError(f"{name} must be text, got {text[:60]!r} with a character that cannot be kept")


def check_width(name: str, rows: int, width: int) -> None:
    """Refuse a column of text whose longest value would make all others too wide."""
    size = 4 * rows * width
    if width > TEXT_WIDTH and size > TEXT_BYTES:
        raise ValueError(
            f"{name} must be short text, got a value of {width:,} characters among {rows:,}: "
            f"{size:,} bytes in memory, at most {TEXT_BYTES:,} are allowed"
        )


def as_numbers(texts: Array) -> Array | None:
    """Whole numbers that are written as text, or None if a text is something else."""
    levels, codes = np.unique(texts, return_inverse=True)
    if not all(map(is_whole, levels.tolist())):
        return None
    numbers: Array = np.array([int(level) for level in levels.tolist()], np.int64)[codes].reshape(texts.shape)
    return numbers


def threads() -> int:
    """How many threads a pass uses: the cores this process may use, or what OMP_NUM_THREADS says."""
    setting = os.environ.get("OMP_NUM_THREADS", "")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, int(setting)) if setting.isdecimal() else cores


def in_threads(work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """The result of ``work``, which should release the interpreter's lock, for each item in order.

    A single item is worked on here, and so are all that are asked for inside of such work. The threads are kept for the
    next call; a forked process starts its own.
    """
    items = list(items)
    if len(items) == 1 or threads() == 1 or threading.current_thread().name.startswith(POOL):
        return map(work, items)
    return _pool(os.getpid(), threads()).map(work, items)


@functools.lru_cache(maxsize=1)
def _pool(process: int, size: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(size, thread_name_prefix=POOL)


def _from_torch(tensor: Any) -> Any:
    tensor = tensor.detach().cpu()
    if str(tensor.dtype).removeprefix("torch.").startswith(("bfloat16", "float8")):
        tensor = tensor.float()
    return tensor.numpy()


def _is_foreign(values: Any) -> bool:
    """Whether these are floats of a type that NumPy does not have, and can be converted."""
    dtype = getattr(values, "dtype", None)
    return str(getattr(dtype, "name", dtype)).startswith(("bfloat16", "float8")) and hasattr(values, "astype")
