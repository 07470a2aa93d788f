"""The folders that `calibrant data make-variant` writes (`calibrant.data.writing` says what is where).

Anybody may have changed them since: a table of the wrong types is an error, and a row with a wrong value is skipped.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from calibrant._parquet import column_chunks
from calibrant.data.boxes import Boxes
from calibrant.data.dataset import NO_CLASS, Dataset, Findings, OnError
from calibrant.data.files import UnreadableError, check_growth, inside, open_file
from calibrant.data.layouts import layout
from calibrant.data.readers import _phrases as say
from calibrant.data.readers._array_files import MAX_BYTES, naming
from calibrant.data.readers._boxes import MAX_BOXES, Box, BoxError, box
from calibrant.data.readers._checks import SOFT_TOLERANCE, check_split, shown
from calibrant.data.readers._shared import check_any, is_there, never_raising
from calibrant.data.sources import ImageFiles
from calibrant.data.writing import DESCRIPTION, read_description


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _list_of(holds: Callable[[pa.DataType], bool]) -> Callable[[pa.DataType], bool]:
    def is_list(kind: pa.DataType) -> bool:
        lists = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
        return bool(lists and holds(kind.value_type))

    return is_list


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


@layout(
    "calibrant",
    summary="dataset.json, SPLIT.parquet and images, as make-variant writes them",
    splits=never_raising(_splits),
)
def calibrant_folder(root: str | Path, split: str, *, on_error: OnError = "raise") -> Dataset:
    """Read a split that `write_dataset` wrote."""
    root = Path(root)
    check_split(root, split, _splits(root))
    description = read_description(inside(root, DESCRIPTION))
    classes = tuple(description.classes)
    path = inside(root, f"{split}.parquet")
    columns = _columns(path)
    findings = Findings(on_error)
    kept: list[dict[str, Any]] = []
    boxes: list[list[Box]] = []
    seen: set[str] = set()
    for i, values in enumerate(zip(*columns.values(), strict=True)):
        row = dict(zip(columns, values, strict=True))
        try:
            _check(row, len(classes), seen)
            found = _boxes(row, len(classes))
        except BoxError as error:
            findings.skip(f"{path.name}, row {i}", error.what, str(error))
            continue
        if is_there(root, row["file"], f"{path.name}, row {i}", findings):
            seen.add(row["id"])
            kept.append(row)
            boxes.append(found)
    check_any(root, split, len(kept), findings)
    return Dataset(
        description.name,
        split,
        classes,
        tuple(row["id"] for row in kept),
        np.array([row["label"] for row in kept], dtype=np.int64),
        ImageFiles(root, tuple(row["file"] for row in kept)),
        _joined(boxes) if "boxes" in columns else None,
        soft=np.array([row["soft"] for row in kept], dtype=np.float64) if "soft" in columns else None,
        groups=tuple(row["group"] for row in kept) if "group" in columns else None,
        context=np.array([row["context"] for row in kept], dtype=bool) if "context" in columns else None,
        report=findings.report(),
    )


def _columns(path: Path) -> dict[str, list[Any]]:
    """The columns that are known, of the right types."""
    with open_file(path) as stored, naming(path), pq.ParquetFile(stored, page_checksum_verification=True) as file:
        values = sum(max(chunk.values, chunk.unpacked // 8) for chunk in column_chunks(stored))
        schema = {f.name: f.type for f in file.schema_arrow if f.name in _COLUMNS}
        if _OBJECT * values > MAX_BYTES:
            raise UnreadableError(f"{path}: the table has {values} values; at most {MAX_BYTES // _OBJECT} are read.")
        check_growth(f"{path}: the table", os.fstat(stored.fileno()).st_size, _OBJECT * values)
        for name in (*_NEEDED, *(_OF_BOXES if schema.keys() & set(_OF_BOXES) else ())):
            if name not in schema:
                raise UnreadableError(f"{path}: the table of samples has no column {name!r}.")
        for name, kind in schema.items():
            if not _COLUMNS[name](kind):
                raise UnreadableError(f"{path}: the column {name!r} of the table of samples holds {kind}.")
        table = file.read(columns=list(schema))
        return {name: table.column(name).to_pylist() for name in schema}


class _RowError(BoxError):
    """A row with a wrong value, of whatever column."""


def _check(row: dict[str, Any], classes: int, seen: set[str]) -> None:
    empty = next((n for n, value in row.items() if value is None or (value == "" and n in _NEEDED)), None)
    if empty is not None:
        raise _RowError("row without a value", empty)
    if row["id"] in seen:
        raise _RowError("id that occurs twice", row["id"])
    if not NO_CLASS <= row["label"] < classes:
        raise _RowError(say.BAD_LABEL, f"{row['label']} of {classes}")
    soft = [math.nan if share is None else share for share in row.get("soft", ())]
    if "soft" in row and not (len(soft) == classes and min(soft) >= 0 and abs(sum(soft) - 1) <= SOFT_TOLERANCE):
        raise _RowError(say.NO_PROBABILITIES, f"{shown(row['soft'])} for {classes} classes")


def _boxes(row: dict[str, Any], classes: int) -> list[Box]:
    corners, labels, crowd = (row.get(name) or [] for name in _OF_BOXES)
    if not len(corners) == len(labels) == len(crowd):
        lengths = f"{len(corners)}, {len(labels)}, {len(crowd)}"
        raise _RowError("boxes, box_labels and crowd of different lengths", lengths)
    if len(corners) > MAX_BOXES:
        raise _RowError(f"image with more than {MAX_BOXES} boxes", "")
    if any(label is None or not NO_CLASS <= label < classes for label in labels):
        raise _RowError(f"box with a {say.BAD_LABEL}", f"{shown(labels)} of {classes}")
    if None in crowd:
        raise _RowError("row without a value", "crowd")
    return [box(c or (), label, is_crowd) for c, label, is_crowd in zip(corners, labels, crowd, strict=True)]


def _joined(boxes: list[list[Box]]) -> Boxes:
    return Boxes.of(
        [[b[:4] for b in some] for some in boxes],
        [[b.label for b in some] for some in boxes],
        [[b.crowd for b in some] for some in boxes],
    )
