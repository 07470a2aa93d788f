"""Arrow columns as NumPy arrays, without a Python object per value; what Parquet and CSV share."""

from __future__ import annotations

import contextlib
import json
import math
import re
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from calibrant._arrays import Array
from calibrant._files import parse_json
from calibrant.predictions.about import About
from calibrant.predictions.arrayfile import FACTS, LABELS_ARE, facts_of
from calibrant.predictions.columns import Layout
from calibrant.predictions.hints import short
from calibrant.predictions.labels import LabelCode, agreed, class_numbers
from calibrant.predictions.store import Store, dtypes
from calibrant.predictions.streams import check_sum
from calibrant.predictions.text import check_names, check_width
from calibrant.predictions.where import Where

CHECKSUM = b"calibrant_crc32"
NUMBERS_OR_TEXT = "whole numbers or text"
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
        raise ValueError(f"{path}: column {short(title)!r} must be floating point, got {short(str(kind))}")
    return np.dtype(FLOATS[inner])


def converted(
    batch: Any, plan: Layout, names: Sequence[str], known: About, code: LabelCode, where: Where
) -> dict[str, Array]:
    """The columns of a record batch that are ours; labels are positions, or names of classes."""
    out: dict[str, Array] = {}
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
        if name == "labels":
            out[name] = _labels(column, plan, known, code, where)
        else:
            expected = "numbers" if name in (known.holds, "correct", "objectness") else NUMBERS_OR_TEXT
            out[name] = _lists(column, theirs, shape, where) if shape else _values(column, theirs, where, expected)
    return out


def _labels(column: Any, plan: Layout, known: About, code: LabelCode, where: Where) -> Array:
    """Labels as positions, or as text that is no name of a class, for an error."""
    theirs, title, shape = plan.source("labels")[0], plan.title("labels"), known.shape_of("labels")
    if is_text(column.type) and not code.numeric and known.class_names is not None:
        levels, codes = _encoded(column, theirs, where)
        if set(levels.tolist()) <= set(known.class_names):
            return class_numbers(title, levels, known, where)[codes]
        return levels[codes]
    values = _lists(column, theirs, shape, where) if shape else _values(column, theirs, where)
    return code.positions(title, values, known.ignore_index, where)


def _values(column: Any, title: str, where: Where, expected: str = NUMBERS_OR_TEXT) -> Array:
    """Numbers or text."""
    if not is_text(column.type):
        return _numbers(column, title, where, expected)
    levels, codes = _encoded(column, title, where)
    return levels[codes]


def _encoded(column: Any, title: str, where: Where) -> tuple[Array, Array]:
    """Text as its different values, decoded once each, and their numbers."""
    encoded = column.dictionary_encode()
    texts = encoded.dictionary.to_pylist()
    check_names(f"{where.head}column {short(title)!r}", texts)
    check_width(f"{where.head}column {short(title)!r}", len(column), max(map(len, texts), default=1))
    return np.array(texts, dtype=np.str_), as_array(encoded.indices)


def different(batch: Any, column: str, head: str) -> list[Any]:
    """The different values of a column of a record batch, if they are whole numbers or text."""
    values = plain(batch.column(batch.schema.get_field_index(column)))
    if not is_text(values.type) and not pa.types.is_integer(values.type):
        return []
    texts = [value for value in values.unique().to_pylist() if value is not None]
    if is_text(values.type):
        check_names(f"{head}column {short(column)!r}", texts)
    return texts


def _filled(batch: Any, name: str, where: Where) -> Any:
    """A column in which every row has a value."""
    column = plain(batch.column(batch.schema.get_field_index(name)))
    if column.null_count:
        row = int(np.argmax(as_array(column.is_null())))
        raise ValueError(f"{where.head}column {short(name)!r} has no value in {where.at(row)}")
    return column


def as_array(column: Any) -> Array:
    """An Arrow array of numbers or truth values, all there, as NumPy's; pyarrow's own way imports pandas for it."""
    if pa.types.is_boolean(column.type):
        return np.from_dlpack(column.cast(pa.uint8())).view(np.bool_)
    return np.from_dlpack(column)


def _numbers(column: Any, title: str, where: Where, expected: str = "numbers") -> Array:
    kind = column.type
    if pa.types.is_boolean(kind) or kind in FLOATS or pa.types.is_integer(kind):
        return as_array(column)
    raise _other(column, title, expected, where)


def _other(column: Any, title: str, expected: str, where: Where) -> ValueError:
    kind = short(str(column.type))
    with contextlib.suppress(ValueError, ArithmeticError, pa.ArrowException):  # dates beyond Python's, for example
        kind += f": {short(str(column[0].as_py()))!r} in {where.at(0)}"
    return ValueError(f"{where.head}column {short(title)!r} must be {expected}, got {kind}")


def _lists(column: Any, title: str, shape: tuple[int, ...], where: Where) -> Array:
    """Lists of one length as an array: their values lie one after the other already."""
    if not is_list(column.type):
        raise _other(column, title, "lists", where)
    size = math.prod(shape)
    if pa.types.is_fixed_size_list(column.type):
        lengths = np.array([column.type.list_size])
    else:
        lengths = np.diff(as_array(column.offsets))
    if (lengths != size).any():
        row = int(np.argmax(lengths != size))
        got = f"{lengths[row]} in {where.at(row)}"
        raise ValueError(f"{where.head}column {short(title)!r} must be lists of {size} numbers, got {got}")
    values = plain(column.flatten())
    if values.null_count:
        row = int(np.argmax(as_array(values.is_null()))) // size
        raise ValueError(f"{where.head}column {short(title)!r} has no value in the list of {where.at(row)}")
    return _numbers(values, title, where).reshape(len(column), *shape)


def facts_in(metadata: dict[bytes, bytes] | None, path: str) -> dict[str, Any]:
    """What a file's metadata says under ``calibrant``: facts, and for images the ``shape`` of a sample."""
    metadata = metadata or {}
    text, crc = metadata.get(b"calibrant"), metadata.get(CHECKSUM)
    if crc is not None:
        if text is None or not re.fullmatch(b"[0-9a-f]{8}", crc):
            raise ValueError(f"{path}: the file is damaged: its metadata 'calibrant' is not what was written there")
        check_sum(zlib.crc32(text), int(crc, 16), path)
    facts = parse_json(text or b"{}", "what was written as 'calibrant'")
    shape = facts.get("shape", []) if isinstance(facts, dict) else None
    if not isinstance(shape, list) or not all(type(n) is int and 0 < n < 2**63 for n in shape) or len(shape) > 32:
        raise ValueError(f"{path}: its metadata 'calibrant' is not what was written there")
    return {name: value for name, value in facts.items() if name in (*FACTS, LABELS_ARE, "shape") and value is not None}


def metadata_of(known: About) -> dict[bytes, bytes]:
    """The facts, to be kept under ``calibrant``, and their checksum."""
    facts = {name: value.tolist() for name, value in facts_of(known).items()}
    if known.kind == "segmentation":
        facts["shape"] = list(known.shape)
    text = json.dumps(facts).encode()
    return {b"calibrant": text, CHECKSUM: f"{zlib.crc32(text):08x}".encode()}


def arrow_types(store: Store) -> dict[str, Any]:
    """The Arrow type of every column that has one value per sample."""
    small = [name for name in store.names if name not in (store.about.holds, "labels")]
    return {name: pa.from_numpy_dtype(dtype) for name, dtype in dtypes(store, small).items()} if small else {}
