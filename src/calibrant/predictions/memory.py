"""Columns in memory: the arrays that a caller gives, checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from calibrant._arrays import Array, as_numpy
from calibrant.predictions.class_columns import read_two_classes, two_columns
from calibrant.predictions.labels import LabelValues, as_name, compare, find_positive
from calibrant.predictions.schema import GROUP, Schema, as_text, check_schema, is_one_column, two_shape
from calibrant.predictions.values import BLOCK, Location, check_column, sum_errors, sum_tolerance

if TYPE_CHECKING:
    from calibrant.predictions.files import Store

BATCH = 1 << 22  # numbers per batch where no size is given


class MemoryStore:
    """Columns that are arrays, checked."""

    files = ()

    def __init__(self, schema: Schema, columns: dict[str, Array]):
        self.schema, self.columns, self.names = schema, columns, tuple(columns)

    def __len__(self) -> int:
        return len(self.columns[self.schema.holds])

    def column(self, name: str) -> Array:
        """A whole column."""
        return self.columns[name]

    def blocks(self, size: int, names: Sequence[str]) -> Iterator[dict[str, Array]]:
        """Consecutive runs of ``size`` samples of some columns; the last one may be shorter."""
        for start in range(0, len(self), size):
            yield {name: self.columns[name][start : start + size] for name in names}

    def take(self, rows: slice | Array) -> MemoryStore:
        """Some of the samples: a slice, which gives views, or an array of row numbers."""
        columns = {name: array[rows] for name, array in self.columns.items()}
        return MemoryStore(self.schema, columns if isinstance(rows, slice) else freeze(columns))

    def load(self) -> MemoryStore:
        """Everything in memory: itself."""
        return self

    def describe(self) -> str:
        """The number of samples."""
        return f"{len(self)} samples"

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        freeze(self.columns)  # what comes out of a pickle is ours


def check_rows(index: Any, count: int) -> slice | Array:
    """A slice, or the numbers of rows in 0..count - 1, from a slice, row numbers or a bool mask; at least one."""
    if isinstance(index, slice):
        if not range(*index.indices(count)):
            raise ValueError(f"samples must be at least one, got none of {count} with {index}")
        return index
    rows, _ = as_numpy("index", index)
    if rows.dtype.kind == "b" and rows.shape == (count,):
        rows = np.flatnonzero(rows)
    if rows.ndim != 1 or rows.dtype.kind not in "iu":
        raise ValueError(f"samples takes a slice, row numbers or a mask [{count}], got {rows.dtype} {list(rows.shape)}")
    if not len(rows):
        raise ValueError(f"samples must be at least one, got none of {count}")
    outside = rows[(rows < -count) | (rows >= count)]
    if len(outside):
        raise ValueError(f"samples must lie in 0..{count - 1}, got {outside[0]}")
    rows = rows.astype(np.int64)
    return np.where(rows < 0, rows + count, rows)


def freeze(columns: dict[str, Array]) -> dict[str, Array]:
    """Mark arrays that are ours as read-only."""
    for array in columns.values():
        array.setflags(write=False)
    return columns


def store_arrays(
    data: dict[str, Any],
    further: dict[str, Any] | None = None,
    /,
    *,
    ids: Any = None,
    groups: Any = None,
    objectness: Any = None,
    **facts: Any,
) -> MemoryStore:
    """Check the arrays that a caller gives: the data with labels or correct, and optional columns."""
    absent = next((name for name, values in data.items() if values is None), None)
    if absent is not None:
        raise ValueError(f"{absent} must be an array, got None")
    holds = next(iter(data))
    values_of = data | (further or {}) | {"ids": ids, "objectness": objectness} | _group_columns(groups)
    arrays = {name: as_numpy(name, values) for name, values in values_of.items() if values is not None}
    if "labels" in arrays and arrays[holds][0].ndim <= 2 and arrays["labels"][0].shape[1:] == (1,):
        labels, is_ours = arrays["labels"]
        arrays["labels"] = labels[:, 0], is_ours
    positive = as_name(facts.pop("positive", None))
    if facts.get("class_names") is None:
        facts["class_names"] = _frame_names(holds, data[holds])
    if is_one_column(holds, arrays[holds][0].shape):
        schema = _widen(arrays, holds, positive, facts)
    else:
        numbers, is_ours = arrays[holds]
        schema = check_schema(holds, numbers.dtype, numbers.shape, **facts)
        if schema.is_turned(holds):
            arrays[holds] = numbers.transpose(0, 2, 1), is_ours
        schema = replace(schema, positive=find_positive(positive, schema.class_names, schema.num_classes, ""))
    columns = {}
    numbers = arrays[holds][0]
    for name, (array, is_ours) in arrays.items():
        columns[name] = check_column(name, array, len(numbers), schema, Location())
        if is_ours or columns[name] is not array:
            columns[name].setflags(write=False)
    return MemoryStore(schema, columns)


def _frame_names(holds: str, values: Any) -> tuple[str, ...] | None:
    """The names of the classes, where a frame's columns are named; numbers in order are no names."""
    names = getattr(values, "columns", None)
    if names is None or len(names) < 2 or not all(isinstance(name, str) for name in names):
        return None
    if not all(name.isdecimal() for name in names):
        return tuple(map(str, names))
    if list(names) != [str(k) for k in range(len(names))]:
        raise ValueError(
            f"{holds} has the columns {', '.join(names)}, expected them in the order of the classes, from 0 on: "
            "order them, or say their names with class_names=[...]"
        )
    return None


def compare_arrays(predicted: Any, labels: Any) -> Array:
    """Whether predictions are correct, from the arrays that a caller gives."""
    pair = {"predicted": predicted, "labels": labels}
    predicted, labels = (as_text(name, as_numpy(name, values)[0]) for name, values in pair.items())
    if predicted.shape != labels.shape:
        raise ValueError(f"labels must be {list(predicted.shape)} like predicted, got {list(labels.shape)}")
    return compare(predicted, labels, Location())


def _widen(arrays: dict[str, tuple[Array, bool]], holds: str, positive: str, facts: dict[str, Any]) -> Schema:
    """Put both classes in the place of one column, and the positions of the classes in that of labels."""
    numbers, labels = arrays[holds][0], as_text("labels", arrays["labels"][0])
    schema = check_schema(holds, numbers.dtype, two_shape(numbers.shape), **facts)
    values = LabelValues()
    values.add_array(labels)
    decoder = read_two_classes(values, positive, schema.class_names, "", schema.ignore_index, "")
    assert decoder.positive is not None
    arrays[holds] = two_columns(holds, holds, decoder.positive, numbers, Location()), True
    arrays["labels"] = decoder.decode("labels", labels, schema.ignore_index, Location()), True
    return replace(schema, class_names=decoder.names, positive=decoder.positive)


def _group_columns(groups: Any) -> dict[str, Any]:
    if groups is None:
        return {}
    if not hasattr(groups, "items"):
        raise ValueError(f"groups must be a dict of name to one value per sample, got {type(groups).__name__}")
    odd = [name for name in groups if not isinstance(name, str) or not name]
    if odd:
        raise ValueError(f"groups must have names that are text, got {odd[0]!r}")
    empty = next((name for name in groups if groups[name] is None), None)
    if empty is not None:
        raise ValueError(f"groups must have one value per sample, got None for {empty!r}")
    return {GROUP + name: values for name, values in groups.items()}


def find_remarks(store: Store) -> tuple[str, ...]:
    """What is odd about valid values, one sentence each."""
    holds = store.schema.holds
    if holds != "logits":
        return ()
    is_summing = is_single = True
    for block in store.blocks(store.schema.rows(BLOCK), [holds]):
        values = block[holds]
        if values.min() < 0 or values.max() > 1:
            return ()
        tolerance = sum_tolerance(values)
        is_summing = is_summing and not any((errors > tolerance).any() for _, _, errors in sum_errors(values))
        is_single = is_single and store.schema.positive is not None and not values[:, 1 - store.schema.positive].any()
        if not is_summing and not is_single:
            return ()
    description = "lie in 0..1 and sum to 1 in every row" if is_summing else "lie in 0..1 in every row"
    return (f"The logits {description}: if they are probabilities, name them probabilities.",)
