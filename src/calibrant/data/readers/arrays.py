"""A data set in one file of arrays: ``.npz`` or Parquet.

An npz archive holds the features or images (``x``, ``X``, ``features``, ``embeddings`` or ``images``), the labels
(``y``, ``labels`` or ``label``) and, if there are any, ``ids``, ``groups``, ``soft``, ``classes`` and ``split``. A
Parquet file has the same as columns: its features are one column of lists, or all numeric columns without another part.
uint8 arrays [N, H, W] or [N, H, W, 3] are images; all else becomes rows of float32.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.base.arrays import row_slices
from calibrant.base.checks import listing
from calibrant.data.boxes import Floats, Integers
from calibrant.data.dataset import Dataset, Findings, OnError
from calibrant.data.files import UnreadableError
from calibrant.data.layouts import layout
from calibrant.data.readers._array_files import Npz, Parquet, open_arrays
from calibrant.data.readers._folder import NO_PROBABILITIES, SOFT_TOLERANCE, DataFolder, check_split, suppress_errors
from calibrant.data.sources import ImageArray, Inputs, Rows

ArrayFile = Npz | Parquet

INPUTS = ("x", "X", "features", "embeddings", "images")
LABELS = ("y", "labels", "label")
OTHERS = ("ids", "groups", "soft", "classes", "split")
#: Each split is read on its own; a column of ids called "split" must not become a million of them.
MAX_SPLITS = 1000

_INVALID = -1
_BLOCK = 2**14  # rows checked together


def _splits(path: Path) -> tuple[str, ...]:
    if not path.is_file():
        return ()
    with open_arrays(path) as file:
        # Parquet files name their label column as they like; an archive of arrays might be anything.
        if path.suffix == ".npz" and not (set(INPUTS) & set(file.names) and set(LABELS) & set(file.names)):
            return ()
        return _split_names(path, file)


def _split_names(path: Path, file: ArrayFile) -> tuple[str, ...]:
    if "split" not in file.names:
        return ("all",)
    names = tuple(dict.fromkeys(_texts(path, file.read("split"))))
    if len(names) > MAX_SPLITS:
        raise UnreadableError(f"{path}: 'split' has {len(names)} different values; at most {MAX_SPLITS} are read")
    return names


@layout("arrays", summary="one .npz (x, y, ...) or Parquet file (features, label)", splits=suppress_errors(_splits))
def arrays(
    root: str | Path,
    split: str,
    *,
    on_error: OnError = "raise",
    label: str | None = None,
    features: str | Sequence[str] | None = None,
    classes: Sequence[str] | None = None,
) -> Dataset:
    """Read a data set from one file of arrays.

    Args:
        root: The file.
        split: ``"all"``, or one of the values in ``split`` if the file has that.
        on_error: What to do with rows that hold NaN or infinite values, or no valid label.
        label: Name of the labels; if left out, ``y``, ``labels`` or ``label``.
        features: The array, or the columns, to take as inputs; if left out, the one that has a usual name, else every
            numeric column that has no other part.
        classes: Names, in the order of integer labels; if left out, those in the file, else the sorted labels.
    """
    path = Path(root)
    with open_arrays(path) as file:
        check_split(path, split, _split_names(path, file))
        target = _find_name(path, file, "label", (label,) if label is not None else LABELS)
        inputs = _inputs(path, file, features, target)
        columns = {name: file.read(name) for name in (target, *OTHERS) if name in file.names}
    number = len(inputs)
    for name, values in columns.items():
        if name != "classes" and (values.ndim < 1 or len(values) != number):
            raise ValueError(f"{path}: {name!r} has the shape {list(values.shape)} for {number} samples")
    soft = columns.get("soft")
    if soft is not None:
        if soft.ndim != 2 or soft.dtype.kind not in "iuf":
            raise ValueError(f"{path}: soft labels [N, K] are expected, got {soft.dtype} {list(soft.shape)}")
        soft = soft.astype(np.float64)
    if classes is None and "classes" in columns and path.suffix == ".npz":
        classes = _texts(path, columns["classes"])
    if classes is None and soft is not None:
        classes = [str(i) for i in range(soft.shape[1])]
    labels, names = _labels(path, columns[target], classes)
    digits = len(str(max(number - 1, 0)))
    ids = [f"{path.stem}/{row:0{digits}d}" for row in range(number)]
    ids = _texts(path, columns["ids"]) if "ids" in columns else ids
    groups = _texts(path, columns["groups"]) if "groups" in columns else None

    folder = DataFolder(path, split, Findings(on_error))
    in_split = np.ones(number, dtype=bool)
    if "split" in columns:
        in_split = np.array(_texts(path, columns["split"])) == split
    rows = _sound_rows(path, np.flatnonzero(in_split), inputs, labels, soft, ids, folder.findings)
    values = inputs if len(rows) == number else inputs[rows]
    source: Inputs = ImageArray(values, path.name) if _are_images(values) else Rows(values, path.name)
    folder.check_any(len(rows), "row")
    return folder.dataset(
        path.stem,
        names,
        (ids[i] for i in rows),
        labels[rows],
        source,
        soft=None if soft is None else soft[rows],
        groups=None if groups is None else tuple(groups[i] for i in rows),
    )


def _find_name(path: Path, file: ArrayFile, part: str, names: Sequence[str]) -> str:
    for name in names:
        if name in file.names:
            return name
    raise ValueError(f"{path}: no {part} called {' or '.join(names)}; the file has {listing(list(file.names))}")


def _inputs(path: Path, file: ArrayFile, features: str | Sequence[str] | None, target: str) -> NDArray[Any]:
    """Images as they are, all else as float32 [N, ...]."""
    if features is None:
        usual = [name for name in INPUTS if name in file.names]
        features = usual[:1] or [n for n, numeric in file.names.items() if numeric and n not in (target, *OTHERS)]
    columns = [features] if isinstance(features, str) else list(features)
    if not columns:
        raise ValueError(f"{path}: no numeric column besides {target!r}; the file has {listing(list(file.names))}")
    parts = []
    for name in columns:
        _find_name(path, file, "feature", (name,))
        if not file.names[name]:
            raise ValueError(f"{path}: the feature {name!r} does not hold numbers")
        values = file.read(name)
        if values.ndim == 0:
            raise ValueError(f"{path}: the feature {name!r} is a single number")
        if len(values) and not values.size:
            raise ValueError(f"{path}: the feature {name!r} has no numbers in its rows")
        if len(columns) == 1 and _are_images(values):
            return values
        with np.errstate(over="ignore", invalid="ignore"):  # what float32 cannot hold becomes infinite, and is found
            values = np.asarray(values, dtype=np.float32)
        parts.append(values[:, None] if values.ndim == 1 else values)
    if len({part.shape[:1] + part.shape[2:] for part in parts}) != 1:
        raise ValueError(f"{path}: the features {', '.join(columns)} do not have the same number of rows")
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def _are_images(values: NDArray[Any]) -> bool:
    return values.dtype == np.uint8 and (values.ndim == 3 or (values.ndim == 4 and values.shape[3] == 3))


def _texts(path: Path, values: NDArray[Any]) -> list[str]:
    """Strings from an array of strings, bytes or numbers."""
    if values.dtype.kind == "V":
        raise UnreadableError(f"{path}: texts or numbers are expected, got {values.dtype}")
    values = np.atleast_1d(values)
    plain = values.tolist() if values.ndim == 1 else [str(row) for row in values.reshape(len(values), -1).tolist()]
    return [value.decode("latin-1") if isinstance(value, bytes) else str(value) for value in plain]


def _labels(path: Path, values: NDArray[Any], classes: Iterable[str] | None) -> tuple[Integers, list[str]]:
    """Labels as indices of a list of classes, -1 where there is none; the sorted labels if no list is given."""
    if values.ndim != 1:
        raise ValueError(f"{path}: labels [N] are expected, got the shape {list(values.shape)}")
    if values.dtype.kind not in "biufOUS":
        raise ValueError(f"{path}: labels are integers or strings, got {values.dtype}")
    numbers = values.dtype.kind in "iuf"
    is_given = (
        np.isfinite(values) if numbers else np.array([value is not None for value in values.tolist()], dtype=bool)
    )
    present = values[is_given]
    if numbers:
        if (present != np.floor(present)).any() or (np.abs(present.astype(np.float64)) > 2**53).any():
            raise ValueError(f"{path}: integer labels are expected, got numbers such as {present[0]}")
        integers = present.astype(np.int64)
        if classes is not None:  # integers are indices of the list already
            names = list(classes)
            indices = np.where((integers >= 0) & (integers < len(names)), integers, _INVALID)
        else:
            distinct, indices = np.unique(integers, return_inverse=True)
            names = [str(value) for value in distinct.tolist()]
    else:
        texts = _texts(path, present)
        names = sorted(set(texts)) if classes is None else list(classes)
        index = {name: i for i, name in enumerate(names)}
        indices = np.array([index.get(text, _INVALID) for text in texts], dtype=np.int64)
    labels = np.full(len(values), _INVALID, dtype=np.int64)
    labels[is_given] = indices
    return labels, names


def _sound_rows(
    path: Path,
    rows: Integers,
    inputs: NDArray[Any],
    labels: Integers,
    soft: Floats | None,
    ids: Sequence[str],
    findings: Findings,
) -> Integers:
    """The rows to keep."""
    is_finite = np.ones(len(inputs), dtype=bool)
    if inputs.dtype.kind == "f":
        for block in row_slices(len(inputs), 1, _BLOCK):
            is_finite[block] = np.isfinite(inputs[block]).all(axis=tuple(range(1, inputs.ndim)))
    earlier_ids: set[str] = set()
    sound = []
    for row in rows.tolist():
        location = f"{path.name}[{row}]"
        if not is_finite[row]:
            findings.skip(location, "features that are not finite")
        elif labels[row] == _INVALID:
            findings.skip(location, "no label, or one outside the classes")
        elif soft is not None and not ((soft[row] >= 0).all() and abs(soft[row].sum() - 1) <= SOFT_TOLERANCE):
            findings.skip(location, NO_PROBABILITIES)
        elif ids[row] in earlier_ids:
            findings.skip(location, "id that occurs twice", ids[row])
        else:
            earlier_ids.add(ids[row])
            sound.append(row)
    return np.array(sound, dtype=np.int64)
