"""The folders that `calibrant data make-variant` writes, in the layout of `calibrant.data.writing`.

They may have been edited since: a table with wrong types is an error, and a row with an invalid value is skipped.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Container
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from calibrant._parquet import column_chunks
from calibrant.data.boxes import Boxes
from calibrant.data.dataset import NO_CLASS, Dataset
from calibrant.data.files import UnreadableError, check_growth, open_file, path_inside
from calibrant.data.readers._annotations import short_repr
from calibrant.data.readers._array_files import MAX_BYTES, is_list, wrap_errors
from calibrant.data.readers._boxes import MAX_BOXES, TOO_MANY, Box, SampleError, parse_box
from calibrant.data.readers._folder import BAD_LABEL, NO_PROBABILITIES, SOFT_TOLERANCE, DataFolder, reader
from calibrant.data.sources import ImageFiles
from calibrant.data.writing import DESCRIPTION, read_description


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _list_of(holds: Callable[[pa.DataType], bool]) -> Callable[[pa.DataType], bool]:
    return lambda kind: is_list(kind) and holds(kind.value_type)


#: What the columns hold; `_NEEDED` must be there, and all or none of `_OF_BOXES`.
_COLUMNS: dict[str, Callable[[pa.DataType], bool]] = {
    "id": _is_text,
    "file": _is_text,
    "label": pa.types.is_integer,
    "boxes": _list_of(_list_of(pa.types.is_floating)),
    "box_labels": _list_of(pa.types.is_integer),
    "crowd": _list_of(pa.types.is_boolean),
    "context": pa.types.is_boolean,
    "group": _is_text,
    "soft": _list_of(pa.types.is_floating),
}
_OBJECT = 64  # bytes that a value takes in a list of Python's
_NEEDED, _OF_BOXES = ("id", "file", "label"), ("boxes", "box_labels", "crowd")


def _splits(root: Path) -> tuple[str, ...]:
    if not (root / DESCRIPTION).is_file():
        return ()
    return tuple(sorted(path.stem for path in root.glob("*.parquet")))


@reader("calibrant", summary="dataset.json, SPLIT.parquet and images, as make-variant writes them", splits=_splits)
def calibrant_folder(folder: DataFolder) -> Dataset:
    """Read a split that `write_dataset` wrote."""
    description = read_description(path_inside(folder.root, DESCRIPTION))
    path, classes = path_inside(folder.root, f"{folder.split}.parquet"), description.classes
    columns = _columns(path)
    rows: dict[str, dict[str, Any]] = {}
    boxes: list[list[Box]] = []
    for i, values in enumerate(zip(*columns.values(), strict=True)):
        row, location = dict(zip(columns, values, strict=True)), f"{path.name}, row {i}"
        try:
            _check(row, len(classes), rows)
            objects = _boxes(row, len(classes))
        except SampleError as error:
            folder.findings.skip(location, error.finding, str(error))
            continue
        if folder.has_image(row["file"], location):
            rows[row["id"]] = row
            boxes.append(objects)
    parts: dict[str, Any] = {name: [row[name] for row in rows.values()] for name in columns}
    return folder.dataset(
        description.name,
        classes,
        rows,
        np.array(parts["label"], dtype=np.int64),
        ImageFiles(folder.root, tuple(parts["file"])),
        boxes=_join_boxes(boxes) if "boxes" in columns else None,
        soft=np.array(parts["soft"], dtype=np.float64) if "soft" in columns else None,
        groups=tuple(parts["group"]) if "group" in columns else None,
        context=np.array(parts["context"], dtype=bool) if "context" in columns else None,
    )


def _columns(path: Path) -> dict[str, list[Any]]:
    """The known columns, with checked types."""
    with open_file(path) as stored, wrap_errors(path), pq.ParquetFile(stored, page_checksum_verification=True) as file:
        values = sum(max(chunk.values, chunk.unpacked // 8) for chunk in column_chunks(stored))
        schema = {f.name: f.type for f in file.schema_arrow if f.name in _COLUMNS}
        if _OBJECT * values > MAX_BYTES:
            raise UnreadableError(f"{path}: the table has {values} values; at most {MAX_BYTES // _OBJECT} are read")
        check_growth(f"{path}: the table", os.fstat(stored.fileno()).st_size, _OBJECT * values)
        for name in (*_NEEDED, *(_OF_BOXES if schema.keys() & set(_OF_BOXES) else ())):
            if name not in schema:
                raise UnreadableError(f"{path}: the table of samples has no column {name!r}")
        for name, kind in schema.items():
            if not _COLUMNS[name](kind):
                raise UnreadableError(f"{path}: the column {name!r} of the table of samples holds {kind}")
        table = file.read(columns=list(schema))
        return {name: table.column(name).to_pylist() for name in schema}


def _check(row: dict[str, Any], classes: int, ids: Container[str]) -> None:
    """Raise a `SampleError` for an invalid value in any column."""
    empty = next((n for n, value in row.items() if value is None or (value == "" and n in _NEEDED)), None)
    if empty is not None:
        raise SampleError("row without a value", empty)
    if row["id"] in ids:
        raise SampleError("id that occurs twice", row["id"])
    if not NO_CLASS <= row["label"] < classes:
        raise SampleError(BAD_LABEL, f"{row['label']} of {classes}")
    soft = [math.nan if share is None else share for share in row.get("soft", ())]
    if "soft" in row and not (len(soft) == classes and min(soft) >= 0 and abs(sum(soft) - 1) <= SOFT_TOLERANCE):
        raise SampleError(NO_PROBABILITIES, f"{short_repr(row['soft'])} for {classes} classes")


def _boxes(row: dict[str, Any], classes: int) -> list[Box]:
    corners, labels, crowd = (row.get(name) or [] for name in _OF_BOXES)
    if not len(corners) == len(labels) == len(crowd):
        lengths = f"{len(corners)}, {len(labels)}, {len(crowd)}"
        raise SampleError("boxes, box_labels and crowd of different lengths", lengths)
    if len(corners) > MAX_BOXES:
        raise SampleError(TOO_MANY, "")
    if any(label is None or not NO_CLASS <= label < classes for label in labels):
        raise SampleError(f"box with a {BAD_LABEL}", f"{short_repr(labels)} of {classes}")
    if None in crowd:
        raise SampleError("row without a value", "crowd")
    return [parse_box(c or (), label, is_crowd) for c, label, is_crowd in zip(corners, labels, crowd, strict=True)]


def _join_boxes(boxes: list[list[Box]]) -> Boxes:
    return Boxes.of(
        [[b[:4] for b in objects] for objects in boxes],
        [[b.label for b in objects] for objects in boxes],
        [[b.crowd for b in objects] for objects in boxes],
    )
