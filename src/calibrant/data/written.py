"""Writing a data set of images as a folder that `calibrant.data.read` takes, and others can take as an image folder.

    dataset.json              name, classes, what the folder was made from, and a fingerprint of each split
    SPLIT.parquet             one row per sample: id, file, label, boxes and their labels, context, soft label
    SPLIT/CLASS/NAME.png      the images

Every image is written aside and renamed, the table comes last; a run that was interrupted goes on where it stopped. A
folder that holds something else is refused.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from calibrant._files import written_aside
from calibrant.data.dataset import Dataset

FORMAT = "calibrant-dataset"
VERSION = 1

ImageFormat = Literal["png", "jpg"]
#: Passes items through and shows how far it has come.
Watch = Callable[[Iterable[int], int], Iterable[int]]


def write_dataset(
    dataset: Dataset,
    folder: str | Path,
    *,
    image_format: ImageFormat = "png",
    made_from: dict[str, Any] | None = None,
    watch: Watch | None = None,
) -> Path:
    """Write a split of images with its labels and boxes.

    Args:
        dataset: Of images.
        folder: Where; other splits may be there already, if they were made the same way.
        image_format: ``"png"`` keeps the pixels, ``"jpg"`` (quality 95) is smaller.
        made_from: Kept in dataset.json; a folder made from something else is not touched.
        watch: Shows progress.

    Returns:
        The table that was written.
    """
    if dataset.kind != "image":
        raise ValueError(f"{dataset.title}: only images are written as a data set, and these are {dataset.kind}s.")
    if image_format not in ("png", "jpg"):
        raise ValueError(f"images are written as 'png' or 'jpg', got {image_format!r}.")
    if dataset.masks is not None:
        raise ValueError(f"{dataset.title}: label masks cannot be written, only labels and boxes.")
    if not re.fullmatch(r"\w[\w.+-]*", dataset.split):
        raise ValueError(f"{dataset.title}: the split's name {dataset.split!r} cannot be a file's.")
    folder = Path(folder)
    _describe(dataset, folder, (made_from or {}) | {"image_format": image_format})
    files = [_file_name(dataset, i, image_format) for i in range(len(dataset))]
    places: Iterable[int] = range(len(dataset))
    for i in watch(places, len(dataset)) if watch else places:
        if not (folder / files[i]).exists():
            image = dataset.inputs[i]
            with written_aside(folder / files[i]) as aside:
                image.save(aside, **({"quality": 95, "subsampling": 0} if image_format == "jpg" else {}))
    table = folder / f"{dataset.split}.parquet"
    with written_aside(table) as aside:
        pq.write_table(_table(dataset, files), aside)
    return table


def _describe(dataset: Dataset, folder: Path, made_from: dict[str, Any]) -> None:
    """Write dataset.json, or see that the one there describes the same."""
    description: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "name": dataset.name,
        "classes": list(dataset.classes),
        "made_from": made_from,
    }
    splits = {dataset.split: _fingerprint(dataset)}
    file = folder / "dataset.json"
    if file.exists():
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
            others = dict(found.pop("splits"))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{file}: not a description of a data set ({error}).") from error
        if found != description or others.get(dataset.split, splits[dataset.split]) != splits[dataset.split]:
            raise ValueError(f"{folder} holds another data set, or one made in another way; name a new folder.")
        splits = others | splits
    elif folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{folder} is not empty and holds no data set of Calibrant's; name a new folder.")
    with written_aside(file) as aside:
        # ASCII: a class named after a folder need not be UTF-8, and must read back as it was.
        aside.write_text(json.dumps(description | {"splits": splits}, indent=1) + "\n", encoding="utf-8")


def _fingerprint(dataset: Dataset, looked_at: int = 8) -> str:
    """Tells data sets apart: ids, labels, boxes, where the images come from, and the pixels of a few of them."""
    digest = hashlib.blake2b(digest_size=16)
    places = [dataset.inputs.where(i) for i in range(len(dataset))]
    digest.update(json.dumps([dataset.ids, places]).encode())
    digest.update(dataset.labels.tobytes())
    for array in (dataset.boxes.corners, dataset.boxes.offsets) if dataset.boxes is not None else ():
        digest.update(array.tobytes())
    for i in np.unique(np.linspace(0, len(dataset) - 1, looked_at).astype(int)) if len(dataset) else ():
        digest.update(np.asarray(dataset.inputs[i]).tobytes())
    return digest.hexdigest()


def _file_name(dataset: Dataset, index: int, suffix: str) -> str:
    """A path that a person can read and that no two samples share: part of it is a hash of the id."""
    label = int(dataset.labels[index])
    name = dataset.ids[index]
    short = _plain(re.sub(r"\.\w{3,4}(?=#|$)", "", name.rsplit("/", 1)[-1]))[:60]
    digest = hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=6).hexdigest()
    of_class = f"{label:04}-{_plain(dataset.classes[label])[:60]}" if label >= 0 else "none"
    return f"{_plain(dataset.split)}/{of_class}/{short}-{digest}.{suffix}"


def _plain(text: str) -> str:
    return re.sub(r"[^\w-]+", "_", text).strip("_") or "_"


def _text(name: str) -> str:
    """A name that a table can hold: file names need not be UTF-8."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _table(dataset: Dataset, files: list[str]) -> pa.Table:
    columns: dict[str, Any] = {
        "id": pa.array([_text(name) for name in dataset.ids], pa.string()),
        "file": pa.array(files, pa.string()),
        "label": pa.array(dataset.labels, pa.int64()),
    }
    if (boxes := dataset.boxes) is not None:
        corners = pa.FixedSizeListArray.from_arrays(pa.array(boxes.corners.reshape(-1)), 4)
        offsets = pa.array(boxes.offsets.astype(np.int32))
        columns["boxes"] = pa.ListArray.from_arrays(offsets, corners)
        columns["box_labels"] = pa.ListArray.from_arrays(offsets, pa.array(boxes.labels))
        columns["crowd"] = pa.ListArray.from_arrays(offsets, pa.array(boxes.crowd))
    if dataset.context is not None:
        columns["context"] = pa.array(dataset.context)
    if dataset.groups is not None:
        columns["group"] = pa.array(dataset.groups, pa.string())
    if dataset.soft is not None:
        columns["soft"] = pa.FixedSizeListArray.from_arrays(pa.array(dataset.soft.reshape(-1)), dataset.soft.shape[1])
    return pa.table(columns)
