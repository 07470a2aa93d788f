"""The folders that `calibrant data make-variant` writes (`calibrant.data.written` says what is where)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from calibrant.data.dataset import Dataset
from calibrant.data.findings import Findings, OnError
from calibrant.data.layouts import layout
from calibrant.data.objects import Boxes
from calibrant.data.sources import ImageFiles, inside, read_bytes
from calibrant.data.written import FORMAT, VERSION


def _splits(root: Path) -> tuple[str, ...]:
    if not (root / "dataset.json").is_file():
        return ()
    return tuple(sorted(path.stem for path in root.glob("*.parquet")))


@layout("calibrant", summary="dataset.json, SPLIT.parquet and images, as make-variant writes them", splits=_splits)
def calibrant_folder(root: str | Path, split: str, *, on_error: OnError = "raise") -> Dataset:
    """Read a split that `write_dataset` wrote."""
    root = Path(root)
    description = _description(root / "dataset.json")
    path = root / f"{split}.parquet"
    try:
        table = pq.read_table(path)
        columns = {name: table.column(name).combine_chunks() for name in table.column_names}
        ids, files = columns["id"].to_pylist(), columns["file"].to_pylist()
        labels = np.asarray(columns["label"].to_numpy(zero_copy_only=False), dtype=np.int64)
        boxes = _boxes(columns) if "boxes" in columns else None
    except (pa.ArrowException, KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{path}: not a table of samples ({' '.join(str(error).split())}).") from error
    findings, kept = Findings(on_error), []
    for i, file in enumerate(files):
        try:
            if not inside(root, str(file)).is_file():
                findings.skip(str(root / str(file)), "the image is missing")
                continue
        except ValueError:
            findings.skip(str(path), "a file name that leads out of the data folder", str(file))
            continue
        kept.append(i)
    dataset = Dataset(
        description["name"],
        split,
        tuple(description["classes"]),
        tuple(ids),
        labels,
        ImageFiles(root, tuple(map(str, files))),
        boxes,
        groups=tuple(columns["group"].to_pylist()) if "group" in columns else None,
        context=columns["context"].to_numpy(zero_copy_only=False) if "context" in columns else None,
    )
    return dataset.take(np.array(kept, dtype=np.int64), report=findings.report())


def _description(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(read_bytes(path))
    except ValueError as error:
        raise ValueError(f"{path}: not a description of a data set ({error}).") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT or found.get("version") != VERSION:
        raise ValueError(f"{path}: not a description of a data set of Calibrant's, version {VERSION}.")
    classes = found.get("classes")
    if not isinstance(found.get("name"), str) or not isinstance(classes, list) or not all(map(_is_text, classes)):
        raise ValueError(f"{path}: the name or the classes are missing.")
    return found


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _boxes(columns: dict[str, Any]) -> Boxes:
    corners, names, crowd = columns["boxes"], columns["box_labels"], columns["crowd"]
    offsets = corners.offsets.to_numpy().astype(np.int64)
    flat = corners.values.flatten().to_numpy(zero_copy_only=False)
    return Boxes(
        np.asarray(flat, dtype=np.float64).reshape(-1, 4),
        offsets,
        np.asarray(names.values.to_numpy(zero_copy_only=False), dtype=np.int64),
        np.asarray(crowd.values.to_numpy(zero_copy_only=False), dtype=bool),
    )
