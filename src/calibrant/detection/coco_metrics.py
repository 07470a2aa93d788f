"""COCO's metrics of detections, by pycocotools: average precision and recall over overlaps, sizes and counts.

An object's size is the one in its annotation (COCO's ``area``, that of its mask), or else the area of its box, as for
VOC. Boxes without area or without a class are not objects. Detections on a crowd are ignored.
"""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.base.extras import need
from calibrant.data import Boxes, Dataset
from calibrant.metrics import DETECTION


@dataclass(frozen=True)
class Detected:
    """The detections in one image.

    Attributes:
        corners: [D, 4]: x1, y1, x2, y2 in pixels of the image.
        labels: [D]: classes of the data set.
        scores: [D]: from 0 to 1.
    """

    corners: NDArray[np.float64]
    labels: NDArray[np.int64]
    scores: NDArray[np.float64]


def coco_metrics(dataset: Dataset, detected: Sequence[Detected]) -> dict[str, float]:
    """The twelve metrics of COCO, by name.

    Args:
        dataset: Images with boxes.
        detected: The detections in each image.

    Returns:
        By the names of `calibrant.metrics.DETECTION`; NaN where there are no objects, for example of a size.

    Example:
        >>> from calibrant.data import ImageArray
        >>> pixels = np.zeros((1, 64, 64, 3), dtype=np.uint8)
        >>> boxes = Boxes.of([[[0, 0, 40, 40]]], labels=[[0]])
        >>> data = Dataset("tiny", "test", ("cat",), ("a",), [0], ImageArray(pixels), boxes)
        >>> perfect = Detected(np.array([[0.0, 0.0, 40.0, 40.0]]), np.array([0]), np.array([0.9]))
        >>> coco_metrics(data, [perfect])["ap"]
        1.0
    """
    need("the metrics of detection", "detection", "pycocotools")
    from pycocotools.cocoeval import COCOeval

    if dataset.boxes is None or len(detected) != len(dataset):
        raise ValueError(f"{dataset.title}: boxes, and detections of each of its {len(dataset)} images, are needed")
    with contextlib.redirect_stdout(io.StringIO()):  # it prints what it does
        truth = _index(dataset, _objects(dataset.boxes))
        evaluation = COCOeval(truth, _index(dataset, _detections(detected)), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    values = (float(value) for value in evaluation.stats)
    return {name: math.nan if value < 0 else value for name, value in zip(DETECTION, values, strict=True)}


def is_object(boxes: Boxes) -> NDArray[np.bool_]:
    """Which boxes [M] are objects: those with a class and an area."""
    return (boxes.labels >= 0) & (boxes.areas > 0)


def _index(dataset: Dataset, annotations: list[dict[str, Any]]) -> Any:
    """The index in which pycocotools looks up annotations."""
    from pycocotools.coco import COCO

    index = COCO()
    index.dataset = {
        "images": [{"id": number} for number in range(1, len(dataset) + 1)],
        "categories": [{"id": number} for number in range(1, len(dataset.classes) + 1)],
        "annotations": annotations,
    }
    index.createIndex()
    return index


def _objects(boxes: Boxes) -> list[dict[str, Any]]:
    areas = boxes.areas
    if boxes.object_areas is not None:
        areas = np.where(np.isnan(boxes.object_areas), areas, boxes.object_areas)
    rows = np.flatnonzero(is_object(boxes))
    return [
        _annotation(k, boxes.owners[row], boxes.labels[row], boxes.corners[row], areas[row])
        | {"iscrowd": int(boxes.crowd[row])}
        for k, row in enumerate(rows, start=1)
    ]


def _detections(detected: Sequence[Detected]) -> list[dict[str, Any]]:
    rows = [
        (image, label, corners, score)
        for image, part in enumerate(detected)
        for corners, label, score in zip(part.corners, part.labels, part.scores, strict=True)
    ]
    return [
        _annotation(k, image, label, corners, float(np.prod(corners[2:] - corners[:2])))
        | {"score": float(score), "iscrowd": 0}
        for k, (image, label, corners, score) in enumerate(rows, start=1)
    ]


def _annotation(number: int, image: int, label: int, corners: NDArray[Any], area: float) -> dict[str, Any]:
    """An annotation in COCO's format; ids start at 1, as pycocotools takes id 0 for no object."""
    (x1, y1, x2, y2) = map(float, corners)
    box = [x1, y1, x2 - x1, y2 - y1]
    return {"id": number, "image_id": int(image) + 1, "category_id": int(label) + 1, "bbox": box, "area": float(area)}
