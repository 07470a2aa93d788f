"""COCO's object detection, and sets in its form.

    annotations/instances_<split>.json
    <split>/*.jpg, or images/<split>/*.jpg, or images/*.jpg

Labels follow the categories sorted by id (COCO's 1..90 with gaps become 0..79). Images that the file does not list are
left out; they are counted where a folder belongs to one split, since in others they may be another's. torchvision's
CocoDetection needs pycocotools, which checks nothing and keeps every polygon.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from calibrant.data.dataset import NO_CLASS, Dataset, Findings, OnError
from calibrant.data.files import UnreadableError, inside
from calibrant.data.layouts import layout
from calibrant.data.readers import _phrases as say
from calibrant.data.readers._boxes import Box, BoxError, BoxSamples, Size, box, class_labels
from calibrant.data.readers._checks import check_split, number, read_json, shown, unique_names
from calibrant.data.readers._shared import joined, never_raising, set_name

_PREFIX, _SUFFIX = "instances_", ".json"
_KEYS = ("images", "annotations", "categories")


def _splits(root: Path) -> tuple[str, ...]:
    files = os.listdir(root / "annotations")
    found = sorted(f[len(_PREFIX) : -len(_SUFFIX)] for f in files if f.startswith(_PREFIX) and f.endswith(_SUFFIX))
    return tuple(split for split in found if split and _folder(root, split) is not None)


def _folder(root: Path, split: str) -> str | None:
    return next((name for name in (split, f"images/{split}", "images") if os.path.isdir(root / name)), None)


@layout(
    "coco",
    summary="annotations/instances_<split>.json and the images in <split> or images",
    splits=never_raising(_splits),
)
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
    splits = _splits(root)
    check_split(root, split, splits)
    folder, source = _folder(root, split) or "", f"annotations/{_PREFIX}{split}{_SUFFIX}"
    content = read_json(inside(root, source), drop="segmentation")
    images, annotations, categories = (_rows(content, key, root / source) for key in _KEYS)
    names = _category_names(categories, root / source)
    classes, labels = class_labels(names.values(), classes, rename, root)
    findings = Findings(on_error)
    samples = BoxSamples(root, findings)
    label_of = {key: labels[name] for key, name in names.items()}
    objects = _by_image(annotations, _places(images, folder), label_of, source, findings)
    found = set()
    for i, row in enumerate(images):
        key, name = row.get("id"), row.get("file_name")
        if not _is_key(key) or not isinstance(name, str):
            called = name if isinstance(name, str) else f"image {i}"
            findings.skip(f"{source}, {called}", "image without an id or a file name")
            continue
        rows = objects.pop(key, None)
        if rows is None:
            findings.skip(joined(folder, name), "image with the id of another", f"{shown(key)}, in {source}")
            continue
        path = samples.find(folder, name, source)
        if path is not None:
            found.add(path)
            _add(samples, path, rows, label_of, _size(row), source)
    if not any(f"{_folder(root, other)}/".startswith(f"{folder}/") for other in splits if other != split):
        samples.leave_out_others(folder, found)
    return samples.dataset(set_name(root), split, classes)


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
        if any(unicodedata.category(c) in ("Cc", "Cs") for c in name):
            raise UnreadableError(f"{path}: the category {name[:100]!a} has control codes or half characters in it.")
        names[key] = name
    keys = sorted(names)
    return dict(zip(keys, unique_names([names[key] for key in keys], keys), strict=True))


def _places(images: list[dict[str, Any]], folder: str) -> dict[Any, str]:
    """What to call each image in a finding, by its id."""
    return {
        row["id"]: joined(folder, name)
        if isinstance(name := row.get("file_name"), str)
        else f"image {shown(row['id'])}"
        for row in images
        if _is_key(row.get("id"))
    }


def _by_image(
    rows: list[dict[str, Any]],
    places: Mapping[Any, str],
    label_of: Mapping[int, int | None],
    source: str,
    findings: Findings,
) -> dict[Any, list[dict[str, Any]]]:
    """The annotations of each image; those that belong nowhere are skipped."""
    result: dict[Any, list[dict[str, Any]]] = {key: [] for key in places}
    seen: set[Any] = set()
    for i, row in enumerate(rows):
        image, category, key = row.get("image_id"), row.get("category_id"), row.get("id")
        if not _is_key(image) or image not in result:
            findings.skip(f"{source}, annotation {i}", "annotation of an image that is not listed", shown(image))
            continue
        if not _is_key(category) or category not in label_of:
            detail = f"{shown(category)}, annotation {i} in {source}"
            findings.skip(places[image], "annotation of a category that is not listed", detail)
            continue
        if _is_key(key):
            if key in seen:
                findings.odd(places[image], "annotation with the id of another")
            seen.add(key)
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
        samples.findings.leave_out(path, say.NOT_ASKED_FOR)
        return

    def boxes() -> Iterator[Box]:
        for row, label in kept:
            sides, crowd = row.get("bbox"), row.get("iscrowd", 0)
            if not isinstance(sides, list):
                raise BoxError(say.NO_NUMBERS, "an annotation has no list 'bbox'")
            if crowd not in (0, 1):
                raise BoxError("box with an 'iscrowd' that is neither 0 nor 1", shown(crowd))
            yield box(sides, label, bool(crowd), sides=True)

    if samples.add(path, boxes(), size=size, source=source):
        for _, label in kept:
            if label == NO_CLASS:
                samples.findings.odd(path, say.OTHER_CLASS)
