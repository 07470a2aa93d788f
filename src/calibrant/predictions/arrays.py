"""Arrays of any framework as NumPy arrays, by what they can do rather than by whose they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def as_numpy(name: str, values: Any) -> tuple[Array, bool]:
    """The values as a NumPy array, and whether its memory is ours alone.

    Takes NumPy arrays and lists, torch tensors (any device, with or without a gradient), and what has ``__array__``,
    ``numpy()`` or ``__dlpack__`` (JAX, TensorFlow). Nothing is copied that need not be. bfloat16 and the 8-bit floats,
    which NumPy does not have, become float32.
    """
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise ValueError(f"{name} must have a value everywhere, got a masked array with masked values")
    ours = isinstance(values, (list, tuple))
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


def _from_torch(tensor: Any) -> Any:
    tensor = tensor.detach().cpu()
    if str(tensor.dtype).removeprefix("torch.").startswith(("bfloat16", "float8")):
        tensor = tensor.float()
    return tensor.numpy()


def _is_foreign(values: Any) -> bool:
    """Whether these are floats that NumPy has no type of its own for, with a way out."""
    dtype = getattr(values, "dtype", None)
    return str(getattr(dtype, "name", dtype)).startswith(("bfloat16", "float8")) and hasattr(values, "astype")
