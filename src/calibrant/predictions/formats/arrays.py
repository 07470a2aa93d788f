"""What files of named arrays share: which arrays are ours, and what is made of them on the way."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from calibrant._arrays import Array
from calibrant.predictions.binary import two_columns, two_shape
from calibrant.predictions.column_matching import match_columns
from calibrant.predictions.columns import FILE_FACTS, ColumnMap, OpenOptions
from calibrant.predictions.files import Reader
from calibrant.predictions.formats.stored_array import StoredArray
from calibrant.predictions.labels import LabelDecoder, LabelValues, compare
from calibrant.predictions.memory import BATCH
from calibrant.predictions.paths import file_errors
from calibrant.predictions.schema import Schema, as_text, check_characters
from calibrant.predictions.values import Location, shape_hint

MOST_ARRAYS = 10_000
FACT_BYTES = 1 << 28
LOOKED_AT = 1 << 12  # rows of an array that is refused, to say why


@dataclass(frozen=True)
class ConvertedArray:
    """An array computed block by block: ``convert`` takes blocks of others and where they are."""

    arrays: tuple[FileArray, ...]
    dtype: np.dtype[Any]
    convert: Callable[..., Array]  # of a module, so that it can be pickled
    is_widened: bool = False  # whether one column becomes two

    @property
    def path(self) -> str:
        """The file of the first array."""
        return self.arrays[0].path

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the first array, or of the two columns that it becomes."""
        shape = self.arrays[0].shape
        return two_shape(shape) if self.is_widened else shape

    def blocks(self, rows: int) -> Iterator[Array]:
        """Its rows in order, in new arrays of ``rows``; the last one may be shorter."""
        row = 0
        for blocks in zip(*(array.blocks(rows) for array in self.arrays), strict=True):
            location = Location(f"{self.path}: ", row)
            yield self.convert(*blocks, location)
            row += len(blocks[0])

    def mapped(self) -> None:
        """Not possible."""


@dataclass(frozen=True)
class TurnedArray:
    """Tokens ``[B, T, V]`` of a file as ``[B, V, T]``."""

    array: FileArray

    @property
    def path(self) -> str:
        """The file of the array."""
        return self.array.path

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the array."""
        return self.array.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape, classes second."""
        rows, tokens, classes = self.array.shape
        return rows, classes, tokens

    def blocks(self, rows: int) -> Iterator[Array]:
        """Its rows in order, in new arrays of ``rows``; the last one may be shorter."""
        return (block.transpose(0, 2, 1) for block in self.array.blocks(rows))

    def mapped(self) -> Array | None:
        """A map of the file, if that is possible."""
        mapped = self.array.mapped()
        return None if mapped is None else mapped.transpose(0, 2, 1)


FileArray: TypeAlias = StoredArray | ConvertedArray | TurnedArray


def _compare(predicted: Array, labels: Array, location: Location) -> Array:
    name = f"{location.prefix}labels"
    return compare(as_text(name, predicted), as_text(name, labels), location)


def _decode(decoder: LabelDecoder, title: str, ignore_index: int | None, labels: Array, location: Location) -> Array:
    return decoder.decode(title, as_text(location.prefix + title, labels), ignore_index, location)


class ArrayReader(Reader):
    """A file of named arrays, or a set of files with one array each."""

    def __init__(self, path: str, arrays: dict[str, FileArray], columns: ColumnMap, schema: Schema):
        super().__init__(path, columns, schema, arrays[schema.holds].shape[0])
        self.arrays = arrays
        for name, array in arrays.items():
            expected = (self.rows(), *schema.shape_of(name))
            if array.shape != expected and not (columns.one_column and name == schema.holds):
                hint = ""
                if array.shape[:1] == expected[:1] and len(array.shape) == len(expected) + 1:
                    first = next(array.blocks(min(array.shape[0], LOOKED_AT)))
                    hint = shape_hint(first, (len(first), *expected[1:]))
                actual = f"{list(array.shape)}{hint}"
                raise ValueError(f"{path}: {columns.title(name)} must be {list(expected)}, got {actual}")

    def file_of(self, name: str) -> str:
        """The file that a column is in."""
        return self.arrays[name].path

    def pieces(self, names: Sequence[str], rows: int) -> Iterator[dict[str, Array]]:
        """Runs of some columns, as the file has them."""
        rows = min(rows, self.rows())
        with file_errors(self.path):
            for blocks in zip(*(self.arrays[name].blocks(rows) for name in names), strict=True):
                yield dict(zip(names, blocks, strict=True))

    def mapped(self, name: str) -> Array | None:
        """A whole column as a map of the file, if that is possible."""
        return self.arrays[name].mapped()

    def _has_text_labels(self) -> bool:
        return self.arrays["labels"].dtype.kind == "U"

    def label_values(self) -> LabelValues:
        """The different labels, in a pass over them."""
        return self._values(self.arrays["labels"])

    def compared_values(self) -> tuple[LabelValues, LabelValues] | None:
        """The different values of predicted and labels, if they are text that is compared."""
        correct = self.arrays.get("correct")
        if not isinstance(correct, ConvertedArray) or {array.dtype.kind for array in correct.arrays} != {"U"}:
            return None
        predicted, labels = map(self._values, correct.arrays)
        return predicted, labels

    def _values(self, array: FileArray) -> LabelValues:
        values = LabelValues()
        with file_errors(self.path):
            for block in array.blocks(min(self.rows(), self.schema.rows(BATCH // 16))):
                values.add_array(as_text(f"{array.path}: labels", block))
        return values

    def set_decoder(self, decoder: LabelDecoder) -> None:
        """Read labels like this from now on."""
        super().set_decoder(decoder)
        holds = self.schema.holds
        if self.columns.one_column:
            numbers = self.arrays[holds]
            assert decoder.positive is not None
            widen = functools.partial(two_columns, holds, self.columns.title(holds), decoder.positive)
            self.arrays[holds] = ConvertedArray((numbers,), numbers.dtype, widen, is_widened=True)
        is_decoded = decoder.codes or decoder.numeric or decoder.unclear or self.columns.one_column
        if "labels" in self.arrays and is_decoded:
            labels, title = self.arrays["labels"], self.columns.title("labels")
            decode = functools.partial(_decode, decoder, title, self.schema.ignore_index)
            self.arrays["labels"] = ConvertedArray((labels,), labels.dtype, decode)


def open_arrays(
    path: str,
    names: Sequence[str],
    array_of: Callable[[str], FileArray],
    options: OpenOptions,
    facts: dict[str, Any],
    data: str | None = None,
) -> ArrayReader:
    """Find our arrays among the ``names`` of a file, and open them by ``array_of``.

    ``facts`` are class names and the like, as the file states them; ``data`` is what it holds, where its name says so.
    """
    names = [name for name in names if name not in FILE_FACTS]
    columns = match_columns(names, options, path, table=False, data=data)
    arrays = {name: array_of(columns.sources(name)[0]) for name in columns.columns}
    if columns.compared:
        pair = tuple(map(array_of, columns.compared))
        arrays["correct"] = ConvertedArray(pair, np.dtype(np.bool_), _compare)
    numbers = arrays[columns.holds]
    columns, shape = columns.with_names(facts, options, path).widened(numbers.shape)
    facts = facts | options.facts
    if "kind" not in facts and "labels" in arrays and _are_tokens(shape, arrays["labels"].shape):
        facts["kind"] = "tokens"
    schema = columns.schema(numbers.dtype, shape, facts, path)
    labels = arrays.get("labels")
    if isinstance(labels, StoredArray) and labels.shape[1:] == (1,) and not schema.shape_of("labels"):
        arrays["labels"] = replace(labels, shape=labels.shape[:1])  # a column, as frames and networks have them
    if schema.is_turned(columns.holds):
        arrays[columns.holds] = TurnedArray(numbers)
    return ArrayReader(path, arrays, columns, schema)


def _are_tokens(shape: tuple[int, ...], labels: tuple[int, ...]) -> bool:
    """Whether data are tokens ``[B, T, V]`` beyond doubt: by their shape and the labels', which fit nothing else."""
    return len(shape) == 3 and labels == shape[:2] and shape[1] != shape[2]


def read_facts(names: Sequence[str], array_of: Callable[[str], StoredArray]) -> dict[str, Any]:
    """The facts among the arrays of a file: class names, kind, ignore index, split."""
    facts: dict[str, Any] = {}
    for name in (name for name in FILE_FACTS if name in names):
        array = array_of(name)
        is_list = name == "class_names"
        if array.shape not in ((), (1,)) if not is_list else len(array.shape) != 1 or not array.shape[0]:
            expected = "a list" if is_list else "one value"
            raise ValueError(f"{array.path}: {name} must be {expected}, got {list(array.shape)}")
        rows = max(1, *array.shape, 1)
        if array.dtype.itemsize * rows > FACT_BYTES:
            actual = f"{array.dtype} {array.shape}"
            raise ValueError(f"{array.path}: {name} must be at most {FACT_BYTES:,} bytes, got {actual}")
        (values,) = replace(array, shape=(rows,)).blocks(rows)
        if values.dtype.kind == "U":
            check_characters(f"{array.path}: {name}", values)
        facts[name] = values if is_list else values[0].item()
    return facts
