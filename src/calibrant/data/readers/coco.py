"""COCO's object detection, and data sets in the same format.

    annotations/instances_<split>.json
    <split>/*.jpg, or images/<split>/*.jpg, or images/*.jpg

Labels follow the categories sorted by id (COCO's 1..90 with gaps become 0..79). Images that the file does not list are
left out, and counted if their folder belongs to one split only. torchvision's CocoDetection needs pycocotools, which
checks nothing and keeps every polygon.
"""

from __future__ import annotations

import math
import os
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from calibrant.data.dataset import Dataset, unique_names
from calibrant.data.files import UnreadableError, path_inside, read_json, short_repr
from calibrant.data.readers._boxes import (
    NO_NUMBERS,
    Box,
    BoxSamples,
    SampleError,
    class_labels,
    parse_box,
    parse_number,
    parse_side,
)
from calibrant.data.readers._folder import DataFolder, join_path, reader

_PREFIX, _SUFFIX = "instances_", ".json"
Row = dict[str, Any]


def _splits(root: Path) -> tuple[str, ...]:
    files = os.listdir(root / "annotations")
    names = sorted(f[len(_PREFIX) : -len(_SUFFIX)] for f in files if f.startswith(_PREFIX) and f.endswith(_SUFFIX))
    return tuple(split for split in names if split and _image_folder(root, split) is not None)


def _image_folder(root: Path, split: str) -> str | None:
    return next((name for name in (split, f"images/{split}", "images") if os.path.isdir(root / name)), None)


@reader("coco", summary="annotations/instances_<split>.json and the images in <split> or images", splits=_splits)
def coco(
    folder: DataFolder, *, classes: Sequence[str] | None = None, rename: Mapping[str, str] | None = None
) -> Dataset:
    """Read a data set in COCO's format; an image's class is that of its largest box that is not a crowd.

    Args:
        folder: With annotations; a split is what follows ``instances_`` in a file's name: ``"train2017"``.
        classes: The classes, in the order of the labels; boxes of others are kept without a class.
        rename: New names by old ones, which merges classes; an empty new name drops a class's boxes.
    """
    root, findings, samples = folder.root, folder.findings, BoxSamples(folder)
    source = f"annotations/{_PREFIX}{folder.split}{_SUFFIX}"
    content = read_json(path_inside(root, source), drop="segmentation")
    images, annotations, categories = (
        _rows(content, key, root / source) for key in ("images", "annotations", "categories")
    )
    names = _category_names(categories, root / source)
    classes, labels = class_labels(names.values(), classes, rename, root)
    label_of = {key: labels[name] for key, name in names.items()}
    home = _image_folder(root, folder.split) or ""
    objects = _by_image(annotations, _image_names(images, home), label_of, source, folder)
    listed = set()
    for i, row in enumerate(images):
        key, name = row.get("id"), row.get("file_name")
        if not _is_key(key) or not isinstance(name, str):
            title = name if isinstance(name, str) else f"image {i}"
            findings.skip(f"{source}, {title}", "image without an id or a file name")
            continue
        rows = objects.pop(key, None)
        if rows is None:
            findings.skip(join_path(home, name), "image with the id of another", f"{short_repr(key)}, in {source}")
            continue
        path = samples.find(home, name, source)
        if path is not None:
            listed.add(path)
            labelled = [(label_of[row["category_id"]], row) for row in rows]
            size = parse_side(row.get("width")), parse_side(row.get("height"))
            samples.add_labelled(path, labelled, _box, size=size, source=source)
    other_splits = [split for split in _splits(root) if split != folder.split]
    if not any(f"{_image_folder(root, split)}/".startswith(f"{home}/") for split in other_splits):
        samples.leave_out_unannotated(home, listed)
    return samples.dataset(folder.name, classes)


def _rows(content: Any, key: str, path: Path) -> list[Row]:
    rows = content.get(key) if isinstance(content, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UnreadableError(f"{path}: the file has no list {key!r} of objects")
    return rows


def _is_key(value: Any) -> bool:
    return isinstance(value, (int, str)) and not isinstance(value, bool)


def _category_names(rows: list[Row], path: Path) -> dict[int, str]:
    """Names by id, sorted by id."""
    names: dict[int, str] = {}
    for row in rows:
        key, name = row.get("id"), row.get("name")
        if not isinstance(key, int) or isinstance(key, bool) or not isinstance(name, str) or not name or key in names:
            raise UnreadableError(f"{path}: a category has no id, no name, or an id that occurs twice")
        if any(unicodedata.category(c) in ("Cc", "Cs") for c in name):
            raise UnreadableError(f"{path}: the category {name[:100]!a} has control codes or half characters in it")
        names[key] = name
    keys = sorted(names)
    return dict(zip(keys, unique_names([names[key] for key in keys], keys), strict=True))


def _image_names(images: list[Row], home: str) -> dict[Any, str]:
    """The name of each image in findings, by its id."""
    names = {}
    for row in images:
        key, name = row.get("id"), row.get("file_name")
        if _is_key(key):
            names[key] = join_path(home, name) if isinstance(name, str) else f"image {short_repr(key)}"
    return names


def _by_image(
    rows: list[Row], names: Mapping[Any, str], label_of: Mapping[int, int | None], source: str, folder: DataFolder
) -> dict[Any, list[Row]]:
    """The annotations of each image; those of unknown images or categories are skipped."""
    result: dict[Any, list[Row]] = {key: [] for key in names}
    earlier_keys: set[Any] = set()
    for i, row in enumerate(rows):
        image, category, key = row.get("image_id"), row.get("category_id"), row.get("id")
        if not _is_key(image) or image not in result:
            finding = "annotation of an image that is not listed"
            folder.findings.skip(f"{source}, annotation {i}", finding, short_repr(image))
            continue
        if not _is_key(category) or category not in label_of:
            detail = f"{short_repr(category)}, annotation {i} in {source}"
            folder.findings.skip(names[image], "annotation of a category that is not listed", detail)
            continue
        if _is_key(key):
            if key in earlier_keys:
                folder.findings.odd(names[image], "annotation with the id of another")
            earlier_keys.add(key)
        result[image].append(row)
    return result


def _box(row: Row, label: int) -> Box:
    sides, crowd = row.get("bbox"), row.get("iscrowd", 0)
    if not isinstance(sides, list):
        raise SampleError(NO_NUMBERS, "an annotation has no list 'bbox'")
    if crowd not in (0, 1):
        raise SampleError("box with an 'iscrowd' that is neither 0 nor 1", short_repr(crowd))
    return parse_box(sides, label, bool(crowd), sides=True)._replace(pixels=_pixels(row))


def _pixels(row: Row) -> float:
    """The area of the object's mask; NaN if it is missing or not positive."""
    try:
        pixels = parse_number(row.get("area"))
    except ValueError:
        return math.nan
    return pixels if pixels > 0 else math.nan
