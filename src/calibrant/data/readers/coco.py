"""COCO's object detection, and sets in its form.

    annotations/instances_<split>.json
    <split>/*.jpg, or images/<split>/*.jpg, or images/*.jpg

Labels follow the categories sorted by id (COCO's 1..90 with gaps become 0..79). torchvision's CocoDetection needs
pycocotools, which checks nothing and keeps every polygon.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from calibrant.data.dataset import NO_CLASS, Dataset
from calibrant.data.findings import Findings, OnError
from calibrant.data.layouts import layout
from calibrant.data.readers._boxes import Box, BoxError, BoxSamples, Size, box, class_labels
from calibrant.data.readers._checks import check_split, number, unique_names
from calibrant.data.sources import UnreadableError, read_bytes

#: Largest annotation file that is read: COCO's own train2017 has 448 MB.
MAX_JSON = 2**29
_PREFIX, _SUFFIX = "instances_", ".json"
_KEYS = ("images", "annotations", "categories")


def _splits(root: Path) -> tuple[str, ...]:
    try:
        files = os.listdir(root / "annotations")
    except OSError:
        return ()
    found = sorted(f[len(_PREFIX) : -len(_SUFFIX)] for f in files if f.startswith(_PREFIX) and f.endswith(_SUFFIX))
    return tuple(split for split in found if split and _folder(root, split) is not None)


def _folder(root: Path, split: str) -> str | None:
    return next((name for name in (split, f"images/{split}", "images") if os.path.isdir(root / name)), None)


@layout("coco", summary="annotations/instances_<split>.json and the images in <split> or images", splits=_splits)
def coco(
    root: str | Path,
    split: str,
    *,
    on_error: OnError = "raise",
    classes: Sequence[str] | None = None,
    rename: Mapping[str, str] | None = None,
) -> Dataset:
    """Read a set in COCO's form; an image's class is that of its largest box that is not a crowd.

    Args:
        root: The folder with annotations.
        split: What follows ``instances_`` in a file's name: ``"train2017"``, ``"val2017"``.
        on_error: See `calibrant.data.read`.
        classes: The classes, in the order of the labels; boxes of others are kept without a class.
        rename: New names by old ones, which merges classes; an empty new name drops a class's boxes.
    """
    root = Path(root)
    check_split(root, split, _splits(root))
    folder, source = _folder(root, split) or "", f"annotations/{_PREFIX}{split}{_SUFFIX}"
    content = read_json(root / source, drop="segmentation")
    images, annotations, categories = (_rows(content, key, root / source) for key in _KEYS)
    names = _category_names(categories, root / source)
    classes, labels = class_labels(names.values(), classes, rename, root)
    findings = Findings(on_error)
    samples = BoxSamples(root, findings)
    label_of = {key: labels[name] for key, name in names.items()}
    objects = _by_image(annotations, images, label_of, source, findings)
    for i, row in enumerate(images):
        key, name = row.get("id"), row.get("file_name")
        if not _is_key(key) or not isinstance(name, str):
            findings.skip(f"{source}, image {i}", "image without an id or a file name")
            continue
        rows = objects.pop(key, None)
        if rows is None:
            findings.skip(f"{source}, image {i}", "image with the id of another")
            continue
        path = samples.find(folder, name, source)
        if path is not None:
            _add(samples, path, rows, label_of, _size(row), source)
    return samples.dataset("coco", split, classes)


def read_json(path: Path, drop: str | None = None) -> Any:
    """What a JSON file holds; ``drop`` is a key that is thrown away while reading, so that memory is spared."""

    def without(row: dict[str, Any]) -> dict[str, Any]:
        row.pop(drop or "", None)
        return row

    data = read_bytes(path, MAX_JSON)
    try:
        return json.loads(data, object_hook=None if drop is None else without)
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"{path}: the file is not JSON ({' '.join(str(error).split())[:200]}).") from error


def _rows(content: Any, key: str, path: Path) -> list[dict[str, Any]]:
    rows = content.get(key) if isinstance(content, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UnreadableError(f"{path}: the file has no list {key!r} of objects.")
    return rows


def _is_key(value: Any) -> bool:
    return isinstance(value, (int, str)) and not isinstance(value, bool)


def _category_names(rows: list[dict[str, Any]], path: Path) -> dict[int, str]:
    """Names by id, sorted by id."""
    names: dict[int, str] = {}
    for row in rows:
        key, name = row.get("id"), row.get("name")
        if not isinstance(key, int) or isinstance(key, bool) or not isinstance(name, str) or not name or key in names:
            raise UnreadableError(f"{path}: a category has no id, no name, or an id that was there before.")
        names[key] = name
    keys = sorted(names)
    return dict(zip(keys, unique_names([names[key] for key in keys], keys), strict=True))


def _by_image(
    rows: list[dict[str, Any]],
    images: list[dict[str, Any]],
    label_of: Mapping[int, int | None],
    source: str,
    findings: Findings,
) -> dict[Any, list[dict[str, Any]]]:
    """The annotations of each image; those that belong nowhere are skipped."""
    result: dict[Any, list[dict[str, Any]]] = {row["id"]: [] for row in images if _is_key(row.get("id"))}
    for i, row in enumerate(rows):
        image, category = row.get("image_id"), row.get("category_id")
        if not _is_key(image) or image not in result:
            findings.skip(f"{source}, annotation {i}", "annotation of an image that is not listed")
        elif not _is_key(category) or category not in label_of:
            findings.skip(f"{source}, annotation {i}", "annotation of a category that is not listed")
        else:
            result[image].append(row)
    return result


def _size(row: dict[str, Any]) -> Size:
    try:
        return max(0, int(number(row.get("width")))), max(0, int(number(row.get("height"))))
    except ValueError:
        return 0, 0


def _add(
    samples: BoxSamples,
    path: str,
    rows: list[dict[str, Any]],
    label_of: Mapping[int, int | None],
    size: Size,
    source: str,
) -> None:
    kept = [(row, label) for row in rows if (label := label_of[row["category_id"]]) is not None]
    if rows and not kept:
        samples.findings.leave_out(path, "image without an object of the classes asked for")
        return

    def boxes() -> Iterator[Box]:
        for row, label in kept:
            sides, crowd = row.get("bbox"), row.get("iscrowd", 0)
            if not isinstance(sides, list) or crowd not in (0, 1):
                raise BoxError("an annotation has no list 'bbox', or an 'iscrowd' that is neither 0 nor 1")
            yield box(sides, label, bool(crowd), sides=True)

    if samples.add(path, boxes(), size=size, source=source):
        for _, label in kept:
            if label == NO_CLASS:
                samples.findings.odd(path, "box of a class that was not asked for")
