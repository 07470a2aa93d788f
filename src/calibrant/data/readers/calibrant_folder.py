"""Calibrant's own folders of images: written by `write_dataset`, and by other tools read as image folders.

    dataset.json              name, classes, what the folder was made from, and a fingerprint of each split
    SPLIT.parquet             one row per sample: id, file, label, boxes and their labels, context, soft label
    SPLIT/CLASS/NAME.png      the images

Every image is written aside and renamed, and the table comes last; writing continues after an interruption, and removes
incomplete files. A folder that holds something else, or that another process is writing to, is refused.

A folder may have been edited since: when it is read, a table with wrong types is an error, and a row with an invalid
value is skipped.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Container, Iterator
from pathlib import Path
from typing import Any, Final, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, ValidationError

from calibrant.base.checks import check_choice, printable
from calibrant.base.files import PART, check_output, read_json, remove_leftovers, write_json, written_aside
from calibrant.base.parquet import column_chunks
from calibrant.base.progress import Progress, silent, track
from calibrant.data.boxes import Boxes
from calibrant.data.dataset import NO_CLASS, Dataset
from calibrant.data.files import MAX_TEXT, UnreadableError, check_growth, open_file, path_inside, short_repr
from calibrant.data.readers._array_files import MAX_BYTES, is_list, wrap_errors
from calibrant.data.readers._boxes import MAX_BOXES, TOO_MANY, Box, SampleError, parse_box
from calibrant.data.readers._folder import BAD_LABEL, NO_PROBABILITIES, SOFT_TOLERANCE, DataFolder, check_image, reader
from calibrant.data.sources import ImageFiles

FORMAT: Final = "calibrant-dataset"
VERSION: Final = 1
DESCRIPTION: Final = "dataset.json"

ImageFormat = Literal["png", "jpg"]


class Description(BaseModel):
    """The contents of ``dataset.json``: the data set of a folder, how it was made, and its splits."""

    model_config = ConfigDict(strict=True, extra="allow")

    format: Literal["calibrant-dataset"]
    version: Literal[1]
    name: str
    classes: list[str]
    made_from: dict[str, Any] = {}
    splits: dict[str, str] = {}


def read_description(path: Path) -> Description:
    """Read a ``dataset.json``; an invalid one is an `UnreadableError` that names the file."""
    try:
        description = Description.model_validate(read_json(path, MAX_TEXT, "a description of a data set"))
    except ValidationError as error:
        field = ".".join(map(str, error.errors()[0]["loc"]))
        problem = f"{printable(field, 60)!r} is missing, or of another kind" if field else "it is not an object"
        raise UnreadableError(
            f"{path}: not a description of a data set of Calibrant's, version {VERSION}: {problem}"
        ) from error
    except ValueError as error:
        raise UnreadableError(str(error)) from error
    if not description.classes or len(set(description.classes)) != len(description.classes):
        raise UnreadableError(f"{path}: there is no class, or one that occurs more than once")
    return description


def write_dataset(
    dataset: Dataset,
    folder: str | Path,
    *,
    image_format: ImageFormat = "png",
    made_from: dict[str, Any] | None = None,
    progress: Progress = silent,
) -> Path:
    """Write a split of images with its labels and boxes.

    Args:
        dataset: A data set of images.
        folder: The folder; it may hold other splits that were made the same way.
        image_format: ``"png"`` keeps the pixels, ``"jpg"`` (quality 95) is smaller.
        made_from: Stored in dataset.json; a folder made from something else is refused.
        progress: Called after every image.

    Returns:
        The table that was written.
    """
    folder = Path(folder)
    check_writable(dataset, folder, image_format=image_format, made_from=made_from)
    files = [_file_name(dataset, i, image_format) for i in range(len(dataset))]
    with _lock(folder):
        # Again, as another process may have been faster to the lock.
        description = check_writable(dataset, folder, image_format=image_format, made_from=made_from)
        remove_leftovers(folder)
        for home in {name.rpartition("/")[0] for name in files}:
            if path_inside(folder, home).is_dir():  # and no link that leads elsewhere
                remove_leftovers(folder / home)
        write_json(folder / DESCRIPTION, description.model_dump())
        for i in track(range(len(dataset)), f"images of {dataset.split}", len(dataset), progress):
            if not (folder / files[i]).exists():
                image = dataset.inputs[i]
                with written_aside(folder / files[i]) as aside:
                    image.save(aside, **({"quality": 95, "subsampling": 0} if image_format == "jpg" else {}))
        table = folder / f"{dataset.split}.parquet"
        with written_aside(table) as aside:
            pq.write_table(_table(dataset, files), aside, write_page_checksum=True)
    return table


def check_writable(
    dataset: Dataset, folder: Path, *, image_format: str = "png", made_from: dict[str, Any] | None = None
) -> Description:
    """The description that the folder will have; refuse what `write_dataset` cannot write, and other folders."""
    if dataset.kind != "image":
        raise ValueError(f"{dataset.title}: only images are written as a data set, and these are {dataset.kind}s")
    if dataset.masks is not None:
        raise ValueError(f"{dataset.title}: label masks cannot be written, only labels and boxes")
    if not re.fullmatch(r"\w[\w.+-]{0,100}", dataset.split):
        raise ValueError(f"{dataset.title}: the split's name {dataset.split!r:.120} cannot be a file name")
    if not len(dataset):
        raise ValueError(f"{dataset.title}: there is no sample to write")
    existing, fingerprint = check_folder(folder, image_format), _fingerprint(dataset)
    description = Description(
        format=FORMAT,
        version=VERSION,
        name=dataset.name,
        classes=list(dataset.classes),
        made_from=(made_from or {}) | {"image_format": image_format},
        splits={dataset.split: fingerprint},
    )
    if existing is not None:
        is_same = description.model_dump(exclude={"splits"}) == existing.model_dump(exclude={"splits"})
        if not is_same or existing.splits.get(dataset.split, fingerprint) != fingerprint:
            raise ValueError(f"{folder} holds another data set, or one made in another way; name a new folder")
        description.splits = existing.splits | description.splits
    return description


def check_folder(folder: Path, image_format: str = "png") -> Description | None:
    """The description of the data set in a folder, if there is one; refuse a folder that none can be written to."""
    check_choice("image_format", image_format, get_args(ImageFormat))
    check_output(folder, folder=True)
    path = folder / DESCRIPTION
    if path.exists():
        return read_description(path)
    if folder.exists() and not all(name.startswith(PART) for name in os.listdir(folder)):
        raise ValueError(f"{folder} is not empty and holds no data set of Calibrant's; name a new folder")
    return None


def check_images(dataset: Dataset, progress: Progress = silent) -> None:
    """Check the header and the end of every image file, to find broken ones before anything is written."""
    source = dataset.inputs
    if isinstance(source, ImageFiles):
        for i in track(range(len(source)), f"headers of {dataset.split}", len(source), progress):
            check_image(source.path(i))


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Lock a folder, created if missing; a lock on the folder itself leaves no file behind."""
    created = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise ValueError(f"{folder}: another process is writing to the folder; wait for it to end") from error
        yield
    except BaseException:
        with contextlib.suppress(OSError):  # not empty: it can be continued
            for path in created:
                path.rmdir()
        raise
    finally:
        os.close(handle)


def _fingerprint(dataset: Dataset) -> str:
    """A hash of the ids, labels and boxes, of where the images come from, and of the pixels of eight of them."""
    digest = hashlib.blake2b(digest_size=16)
    sources = [dataset.inputs.where(i) for i in range(len(dataset))]
    digest.update(json.dumps([dataset.ids, sources]).encode())
    digest.update(dataset.labels.tobytes())
    for array in (dataset.boxes.corners, dataset.boxes.offsets) if dataset.boxes is not None else ():
        digest.update(array.tobytes())
    for i in np.unique(np.linspace(0, len(dataset) - 1, 8).astype(int)) if len(dataset) else ():
        digest.update(np.asarray(dataset.inputs[i]).tobytes())
    return digest.hexdigest()


def _file_name(dataset: Dataset, index: int, suffix: str) -> str:
    """A readable and unique path: part of it is a hash of the id."""
    label = int(dataset.labels[index])
    name = dataset.ids[index]
    short = _plain(re.sub(r"\.\w{3,4}(?=#|$)", "", name.rsplit("/", 1)[-1]))[:60]
    digest = hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=6).hexdigest()
    of_class = f"{label:04}-{_plain(dataset.classes[label])[:60]}" if label >= 0 else "none"
    return f"{_plain(dataset.split)}/{of_class}/{short}-{digest}.{suffix}"


def _plain(text: str) -> str:
    return re.sub(r"[^\w-]+", "_", text).strip("_") or "_"


def _text(name: str) -> str:
    """A name as UTF-8, which file names need not be."""
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
        columns["group"] = pa.array([_text(name) for name in dataset.groups], pa.string())
    if dataset.soft is not None:
        columns["soft"] = pa.FixedSizeListArray.from_arrays(pa.array(dataset.soft.reshape(-1)), dataset.soft.shape[1])
    return pa.table(columns)


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
