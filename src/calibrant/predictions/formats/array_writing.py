"""Arrays written in the ``.npy`` format, block by block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from calibrant._arrays import Array
from calibrant.predictions.files import Store
from calibrant.predictions.formats.stored_array import as_bytes
from calibrant.predictions.memory import BATCH, first_dtypes


def write_array(file: Any, array: Array) -> None:
    """Write an array in the ``.npy`` format."""
    _write_header(file, array.dtype, array.shape)
    file.write(as_bytes(array))


def write_column(file: Any, store: Store, name: str) -> None:
    """Write a column in the ``.npy`` format, block by block."""
    dtype, blocks = column_blocks(store, name)
    _write_header(file, dtype, (len(store), *store.schema.stored_shape_of(name)))
    for block in blocks:
        file.write(as_bytes(block))


def _write_header(file: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    fields = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, fields)


def column_blocks(store: Store, name: str) -> tuple[np.dtype[Any], Iterator[Array]]:
    """A column to write: its type, and its rows block by block."""
    dtype = first_dtypes(store, [name])[name]
    if dtype.kind == "U":  # its width is known only at the end
        column = store.column(name)
        return column.dtype, iter([column])
    blocks = (block[name] for block in store.blocks(store.schema.rows(BATCH), [name]))
    return dtype, (block.transpose(0, 2, 1) for block in blocks) if store.schema.is_turned(name) else blocks
