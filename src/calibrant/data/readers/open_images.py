"""Open Images (V4 to V7): 600 classes with boxes, in CSV files of up to 14 million lines.

    train/*.jpg  validation/*.jpg  test/*.jpg                  <ImageID>.jpg
    [oidv6-]<split>-annotations-bbox.csv                       corners in units of the image's width and height
    [oidv7-]class-descriptions[-boxable].csv                   lines "MID,name"
    bbox_labels_600_hierarchy.json                             the tree of classes

The tables lie beside the folders, or in annotations, csv_folder or metadata. Labels follow the class descriptions.
Departures from other layouts: images without a box of the requested classes are left out, since most images of Open
Images were never annotated, and so are boxes of absent images, since most users have only a part. torchvision has no
reader for it.

[ALS] A.2 takes the leaf classes, merges confusing ones and caps the objects per class.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import itertools
import os
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from calibrant.base.checks import check_integer
from calibrant.data.dataset import NO_CLASS, Dataset, Findings, unique_names
from calibrant.data.files import UnreadableError, csv_rows, open_file, path_inside, read_json
from calibrant.data.readers._boxes import Box, BoxSamples, SampleError, class_labels, parse_box
from calibrant.data.readers._folder import ONE_STEM, DataFolder, join_path, reader, stem

_SPLITS = ("train", "validation", "test")
_FOLDERS = ("", "annotations", "csv_folder", "metadata")
_COLUMNS = ("ImageID", "LabelName", "XMin", "YMin", "XMax", "YMax")
_MAX_LINE = 2**16
#: Boxes may leave the image by a part of it; coordinates beyond are pixels.
_BEYOND = 1.5


def _splits(root: Path) -> tuple[str, ...]:
    return tuple(s for s in _SPLITS if os.path.isdir(root / s) and _table(root, f"{s}-annotations-bbox.csv"))


def _table(root: Path, *endings: str) -> str | None:
    """The first file with one of the endings, in the folders that may hold tables, relative to the root."""
    for ending in endings:
        for folder in _FOLDERS:
            path = root / folder
            names = sorted(f for f in os.listdir(path) if f.endswith(ending)) if os.path.isdir(path) else []
            if names:
                return join_path(folder, names[0])
    return None


@reader(
    "open-images",
    summary="train, validation, test with <split>-annotations-bbox.csv and class-descriptions-boxable.csv",
    splits=_splits,
)
def open_images(
    folder: DataFolder,
    *,
    leaf_only: bool = True,
    merge: Mapping[str, str] | None = None,
    cap: int | None = None,
    cap_objects: int | None = None,
    seed: int = 0,
) -> Dataset:
    """Read Open Images; an image's class is that of its largest box that is not a group.

    Args:
        folder: With train, validation, test, which are the splits.
        leaf_only: Drop the boxes of classes that have classes below them (needs the hierarchy file).
        merge: New class names by old ones; an empty new name drops a class's boxes.
        cap: The largest number of images per class; which ones follows from a hash of ``seed`` and the id, not from the
            rest of the set.
        cap_objects: The largest number of objects per class, for samples of one object each ([ALS] A.2): the boxes
            beyond, by a hash of ``seed``, the id and the number of the box, lose their class, so that `single_object`
            covers them and makes no sample of them. Boxes of groups do not count.
        seed: Seed of the choice under ``cap`` and ``cap_objects``.
    """
    root, split, findings, samples = folder.root, folder.split, folder.findings, BoxSamples(folder)
    for name, count in (("cap", cap), ("cap_objects", cap_objects)):
        if count is not None:
            check_integer(name, count, 1)
    names = _class_names(root)
    parents = _parents(root) if leaf_only else set()
    leaves = {key: name for key, name in names.items() if key not in parents}
    classes, labels = class_labels(leaves.values(), None, merge, root)
    # Boxes of a class in `names` but not here are dropped; None is what class_labels says of dropped ones.
    label_of = {key: labels[name] for key, name in leaves.items()} | dict.fromkeys(parents & set(names))
    table = path_inside(root, _table(root, f"{split}-annotations-bbox.csv") or "")  # _splits found it
    images = tuple(samples.listing(split))
    rows = _read_table(table, _by_stem(split, images, findings), label_of, findings)
    ends = np.cumsum(np.bincount(np.asarray(rows.images, dtype=np.int64), minlength=len(images)))
    order = np.argsort(np.asarray(rows.images), kind="stable")
    for i, name in enumerate(images):
        path, indices = f"{split}/{name}", order[ends[i - 1] if i else 0 : ends[i]]
        if i in rows.broken:
            findings.skip(path, rows.broken[i].finding, f"{rows.broken[i]}, in {table.name}")
        elif len(indices):
            samples.add(path, rows.boxes(indices), normalised=True, source=table.name)
        else:
            findings.leave_out(path, "image without a box of the classes asked for")
    data = samples.dataset("open-images", classes)
    data = data if cap is None else _cap_images(data, cap, seed, findings)
    return data if cap_objects is None else _cap_objects(data, cap_objects, seed)


class _BoxColumns:
    """Columns of the boxes, lean: 14 million Python objects would take gigabytes."""

    def __init__(self) -> None:
        self.images, self.labels, self.crowd = array("i"), array("i"), array("b")
        self.corners = array("d")
        self.broken: dict[int, SampleError] = {}

    def boxes(self, indices: Any) -> Iterator[Box]:
        for j in indices:
            x1, y1, x2, y2 = self.corners[4 * j : 4 * j + 4]
            yield Box(x1, y1, x2, y2, self.labels[j], bool(self.crowd[j]))


def _read_table(
    path: Path, images: Mapping[str, int], label_of: Mapping[str, int | None], findings: Findings
) -> _BoxColumns:
    rows = _BoxColumns()
    table = _csv(path)
    header = next(table, [])
    absent = [name for name in _COLUMNS if name not in header]
    if absent:
        raise UnreadableError(f"{path}: the file's first line has no column {absent[0]}")
    image_at, label_at, *corners_at = (header.index(name) for name in _COLUMNS)
    group_at = header.index("IsGroupOf") if "IsGroupOf" in header else None
    for row in table:
        if len(row) != len(header):
            findings.skip(path.name, "line with another number of columns", ",".join(row))
            continue
        image, key = images.get(row[image_at]), row[label_at]
        if image is None:
            findings.leave_out(row[image_at], "box of an image that is not there")
        elif key not in label_of:
            findings.skip(row[image_at], "box of a class that has no description", f"{key[:200]!r}, in {path.name}")
        elif (label := label_of[key]) is None:
            findings.leave_out(row[image_at], "box of a class above others, or of a dropped class")
        else:
            try:
                corners = parse_box([row[i] for i in corners_at])[:4]
                if max(corners) > _BEYOND:
                    detail = f"{max(corners):g} is beyond 1, the full width or height"
                    raise SampleError("box that is not normalised", detail)
            except SampleError as error:
                rows.broken.setdefault(image, error)
                continue
            rows.images.append(image)
            rows.corners.extend(corners)
            rows.labels.append(label)
            rows.crowd.append(group_at is not None and row[group_at] == "1")
    return rows


def _csv(path: Path) -> Iterator[list[str]]:
    """The lines of a CSV file, one at a time; empty ones are left out."""

    def lines() -> Iterator[str]:
        with io.TextIOWrapper(open_file(path), encoding="utf-8-sig", errors="replace", newline="") as file:
            while line := file.readline(_MAX_LINE):
                if len(line) == _MAX_LINE:
                    raise UnreadableError(f"{path}: a line has {_MAX_LINE} characters or more")
                yield line

    return filter(None, csv_rows(path, lines()))


def _class_names(root: Path) -> dict[str, str]:
    """Names by MID, in the order of the file, which may have a header."""
    name = _table(root, "class-descriptions-boxable.csv", "class-descriptions.csv")
    if name is None:
        raise ValueError(f"{root}: there is no class-descriptions-boxable.csv, which names the classes")
    path = path_inside(root, name)
    names: dict[str, str] = {}
    for row in _csv(path):
        if row[0] == "LabelName":
            continue
        if len(row) < 2 or not row[0] or not row[1].strip() or row[0] in names:
            raise UnreadableError(f"{path}: a line has no MID, no name, or a MID that was there before")
        names[row[0]] = row[1].strip()
    return dict(zip(names, unique_names(list(names.values()), list(names)), strict=True))


def _parents(root: Path) -> set[str]:
    """The classes that have classes below them; a part of a thing (Part) is not a kind of it."""
    name = _table(root, "bbox_labels_600_hierarchy.json", "hierarchy.json")
    if name is None:
        raise ValueError(
            f"{root}: leaf_only needs bbox_labels_600_hierarchy.json, which is not there; leaf_only=False reads all"
        )
    path = path_inside(root, name)
    parents, nodes = set(), [read_json(path)]
    while nodes:
        node = nodes.pop()
        kinds, parts = (node.get(key, []) if isinstance(node, dict) else None for key in ("Subcategory", "Part"))
        if not (isinstance(kinds, list) and isinstance(parts, list) and isinstance(node.get("LabelName"), str)):
            raise UnreadableError(f"{path}: the tree has a node without a LabelName, or with no list of nodes below")
        if kinds:
            parents.add(node["LabelName"])
        nodes += kinds + parts
    return parents


def _by_stem(split: str, images: tuple[str, ...], findings: Findings) -> dict[str, int]:
    """The index of each image by its id in the tables, its file's stem; folders do not count."""
    indices: dict[str, int] = {}
    for i, name in enumerate(images):
        index = indices.setdefault(stem(name.rpartition("/")[2]), i)
        if index != i:
            findings.odd(f"{split}/{images[index]}, {split}/{name}", ONE_STEM)
    return indices


def _cap_images(data: Dataset, cap: int, seed: int, findings: Findings) -> Dataset:
    """At most ``cap`` images of each class: those whose ids hash lowest."""
    hashes = [_hash(seed, name) for name in data.ids]
    counts: Counter[int] = Counter()
    is_kept = np.zeros(len(data), dtype=bool)
    for i in sorted(range(len(data)), key=hashes.__getitem__):
        label = int(data.labels[i])
        counts[label] += 1
        is_kept[i] = label == NO_CLASS or counts[label] <= cap
    for name in itertools.compress(data.ids, ~is_kept):
        findings.leave_out(name, "image beyond the cap of its class")
    return data.take(is_kept, report=findings.report())


def _cap_objects(data: Dataset, cap: int, seed: int) -> Dataset:
    """At most ``cap`` boxes of each class keep it: those whose ids hash lowest."""
    boxes = data.boxes
    if boxes is None:
        return data
    number = np.arange(len(boxes.labels)) - boxes.offsets[boxes.owners]  # of the box among those of its image
    counted = np.flatnonzero((boxes.labels >= 0) & ~boxes.crowd & (boxes.areas > 0))
    ranks = np.array([_hash(seed, f"{data.ids[boxes.owners[j]]}#{number[j]}") for j in counted], dtype="S8")
    order = counted[np.lexsort((ranks, boxes.labels[counted]))]  # by class, and by hash within
    class_start = np.searchsorted(boxes.labels[order], boxes.labels[order])  # where the class of each begins
    labels = boxes.labels.copy()
    labels[order[np.arange(len(order)) - class_start >= cap]] = NO_CLASS
    return data.replace(boxes=dataclasses.replace(boxes, labels=labels))


def _hash(seed: int, name: str) -> bytes:
    return hashlib.blake2b(f"{seed}:{name}".encode(errors="surrogateescape")).digest()
