"""Arrow columns as NumPy arrays, without a Python object per value; what Parquet and CSV share."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from calibrant.predictions.arrays import Array
from calibrant.predictions.checks import About, Where, agreed, named_labels
from calibrant.predictions.columns import Layout
from calibrant.predictions.members import FACTS, facts_of
from calibrant.predictions.store import Store, dtypes

FLOATS = {pa.float16(): np.float16, pa.float32(): np.float32, pa.float64(): np.float64}


def storage(kind: Any) -> Any:
    """The plain type below extension types such as tensors, and below dictionaries."""
    while isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def plain(column: Any) -> Any:
    """A column without extension types and dictionaries; runs put together."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    while isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def is_text(kind: Any) -> bool:
    """Whether a type is text."""
    kind = storage(kind)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_list(kind: Any) -> bool:
    """Whether a type is a list of any kind that is read."""
    kind = storage(kind)
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def float_type(kind: Any, title: str, path: str) -> np.dtype[Any]:
    """The NumPy type of a column of numbers or of lists of numbers."""
    kind = storage(kind)
    inner = storage(kind.value_type) if is_list(kind) else kind
    if inner not in FLOATS:
        raise ValueError(f"{path}: column {title!r} must be floating point, got {kind}")
    return np.dtype(FLOATS[inner])


def converted(batch: Any, plan: Layout, names: Sequence[str], known: About, where: Where) -> dict[str, Array]:
    """The columns of a record batch that are ours."""
    out = {}
    for name in names:
        theirs = plan.columns[name]
        if name == "correct" and not isinstance(theirs, str):
            predicted, labels = (_values(_filled(batch, column, where), column, where) for column in theirs)
            out[name] = agreed(predicted, labels, where)
            continue
        if not isinstance(theirs, str):
            stacked = np.empty((batch.num_rows, len(theirs)), known.dtype)
            for j, column in enumerate(theirs):
                stacked[:, j] = _numbers(_filled(batch, column, where), column, where)
            out[name] = stacked
            continue
        column = _filled(batch, theirs, where)
        shape = known.shape_of(name)
        if shape:
            out[name] = _lists(column, theirs, shape, where)
        elif is_text(column.type):
            out[name] = _text(column, name, plan.title(name), known, where)
        else:
            out[name] = _numbers(column, theirs, where)
    return out


def _values(column: Any, title: str, where: Where) -> Array:
    """Numbers, or text without spaces around it."""
    if not is_text(column.type):
        return _numbers(column, title, where)
    encoded = column.dictionary_encode()
    levels = np.array([text.strip() for text in encoded.dictionary.to_pylist()], dtype=np.str_)
    return levels[encoded.indices.to_numpy()]


def first_labels(batch: Any, column: str) -> set[str]:
    """The different labels in a record batch, if they are text."""
    found = plain(batch.column(batch.schema.get_field_index(column)))
    return {value for value in found.unique().to_pylist() if value is not None} if is_text(found.type) else set()


def _filled(batch: Any, name: str, where: Where) -> Any:
    """A column in which every row has a value."""
    column = plain(batch.column(batch.schema.get_field_index(name)))
    if column.null_count:
        row = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
        raise ValueError(f"{where.head}column {name!r} has no value in {where.at(row)}")
    return column


def _numbers(column: Any, title: str, where: Where) -> Array:
    kind = column.type
    if pa.types.is_boolean(kind):
        return column.cast(pa.uint8()).to_numpy().view(np.bool_)
    if kind in FLOATS or pa.types.is_integer(kind):
        return column.to_numpy()
    first = str(column[0].as_py())[:60]
    raise ValueError(f"{where.head}column {title!r} must be numbers, got {kind}: {first!r} in {where.at(0)}")


def _lists(column: Any, title: str, shape: tuple[int, ...], where: Where) -> Array:
    """Lists of one length as an array: their values lie one after the other already."""
    if not is_list(column.type):
        first = str(column[0].as_py())[:60]
        raise ValueError(f"{where.head}column {title!r} must be lists, got {column.type}: {first!r} in {where.at(0)}")
    size = math.prod(shape)
    if pa.types.is_fixed_size_list(column.type):
        lengths = np.array([column.type.list_size])
    else:
        lengths = np.diff(column.offsets.to_numpy())
    if (lengths != size).any():
        row = int(np.argmax(lengths != size))
        raise ValueError(
            f"{where.head}column {title!r} must be lists of {size} numbers, got {lengths[row]} in {where.at(row)}"
        )
    values = plain(column.flatten())
    if values.null_count:
        row = int(np.argmax(values.is_null().to_numpy(zero_copy_only=False))) // size
        raise ValueError(f"{where.head}column {title!r} has no value in the list of {where.at(row)}")
    return _numbers(values, title, where).reshape(len(column), *shape)


def _text(column: Any, name: str, title: str, known: About, where: Where) -> Array:
    """Text, decoded once per different value."""
    encoded = column.dictionary_encode()
    levels = np.array(encoded.dictionary.to_pylist(), dtype=np.str_)
    codes = encoded.indices.to_numpy()
    if name == "labels" and known.class_names is not None and set(levels.tolist()) <= set(known.class_names):
        return named_labels(title, levels, known, where)[codes]
    return levels[codes]


def facts_in(metadata: dict[bytes, bytes] | None, path: str) -> dict[str, Any]:
    """What a file's metadata says under ``calibrant``: facts, and for images the ``shape`` of a sample."""
    found = json.loads((metadata or {}).get(b"calibrant", b"{}"))
    shape = found.get("shape", []) if isinstance(found, dict) else None
    if not isinstance(shape, list) or not all(isinstance(n, int) and n > 0 for n in shape):
        raise ValueError(f"{path}: its metadata 'calibrant' is not what was written there")
    return {name: value for name, value in found.items() if name in (*FACTS, "shape") and value is not None}


def facts_json(known: About) -> bytes:
    """The facts, to be kept under ``calibrant``."""
    facts = {name: value.tolist() for name, value in facts_of(known).items()}
    if known.kind == "segmentation":
        facts["shape"] = list(known.shape)
    return json.dumps(facts).encode()


def arrow_types(store: Store) -> dict[str, Any]:
    """The Arrow type of every column that has one value per sample."""
    small = [name for name in store.names if name not in (store.about.holds, "labels")]
    return {name: pa.from_numpy_dtype(dtype) for name, dtype in dtypes(store, small).items()} if small else {}
