"""COCO's metrics. Oracles: pycocotools as its own example calls it, on files; and values worked out by hand."""

import json
import math

import numpy as np
import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from calibrant.data import Boxes, Dataset, ImageArray, read
from calibrant.detection import Detected, coco_metrics
from calibrant.metrics import DETECTION
from tests.helpers import box_files
from tests.helpers.errors import facts


def dataset(boxes, images, classes=("cat", "dog", "eel")):
    pixels = np.zeros((images, 4, 4, 3), dtype=np.uint8)
    ids = tuple(f"i{k}" for k in range(images))
    return Dataset("hand", "test", classes, ids, np.zeros(images, int), ImageArray(pixels), boxes)


def detected(corners, labels, scores):
    return Detected(np.array(corners, float).reshape(-1, 4), np.array(labels, int), np.array(scores, float))


def test_pycocotools_gives_the_same_from_files(tmp_path, capsys):
    random = np.random.default_rng(0)
    images, truth, found, corners, labels, crowd, areas, guesses = 5, [], [], [], [], [], [], []
    for image in range(images):
        low = random.uniform(0, 200, (6, 2))
        boxes = np.concatenate([low, low + random.uniform(5, 180, (6, 2))], axis=1)
        classes, crowds = random.integers(0, 3, 6), random.random(6) < 0.15
        sizes = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1) * random.uniform(0.3, 1.0, 6)
        for box, label, many, area in zip(boxes, classes, crowds, sizes, strict=True):
            x1, y1, x2, y2 = box
            truth.append({"id": len(truth) + 1, "image_id": image + 7, "category_id": int(label) + 3, "area": area,
                          "bbox": [x1, y1, x2 - x1, y2 - y1], "iscrowd": int(many)})  # fmt: skip
        near = np.concatenate([boxes + random.normal(0, 4, boxes.shape), boxes[:3] + 40])
        near[:, 2:] = np.maximum(near[:, 2:], near[:, :2] + 1)
        guess = np.concatenate([np.where(random.random(6) < 0.8, classes, 0), classes[:3]])
        scores = random.uniform(0, 1, 9)
        guesses.append(detected(near, guess, scores))
        for (x1, y1, x2, y2), label, score in zip(near, guess, scores, strict=True):
            found.append({"image_id": image + 7, "category_id": int(label) + 3, "bbox": [x1, y1, x2 - x1, y2 - y1],
                          "score": score})  # fmt: skip
        for column, values in ((corners, boxes), (labels, classes), (crowd, crowds), (areas, sizes)):
            column.append(values)
    boxes = Boxes.of(corners, labels, crowd)
    boxes = Boxes(boxes.corners, boxes.offsets, boxes.labels, boxes.crowd, np.concatenate(areas))
    document = {"images": [{"id": k + 7} for k in range(images)], "annotations": truth,
                "categories": [{"id": k + 3} for k in range(3)]}  # fmt: skip
    (tmp_path / "truth.json").write_text(json.dumps(document))
    (tmp_path / "found.json").write_text(json.dumps(found))
    index = COCO(tmp_path / "truth.json")
    evaluation = COCOeval(index, index.loadRes(str(tmp_path / "found.json")), "bbox")
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    capsys.readouterr()
    metrics = coco_metrics(dataset(boxes, images), guesses)
    assert capsys.readouterr().out == ""
    assert list(metrics) == list(DETECTION)
    np.testing.assert_allclose(list(metrics.values()), evaluation.stats, atol=1e-12)
    assert 0.1 < metrics["ap"] < 0.9


def test_values_by_hand():
    """Of two objects one is detected, at an overlap of 0.81, and a weaker detection is wrong.

    Precision is 1 up to a recall of one half: 51 of the 101 points of the curve, at the 7 overlaps from 0.5 to 0.8.
    """
    boxes = Boxes.of([[[0, 0, 100, 100]], [[0, 0, 40, 40]]], labels=[[0], [0]])
    guesses = [detected([[0, 0, 90, 90], [200, 200, 250, 250]], [0, 0], [0.9, 0.4]), detected([], [], [])]
    metrics = coco_metrics(dataset(boxes, 2), guesses)
    half = 51 / 101
    assert metrics["ap50"] == metrics["ap75"] == pytest.approx(half)
    assert metrics["ap"] == pytest.approx(half * 7 / 10)
    assert metrics["ar1"] == metrics["ar100"] == pytest.approx(0.5 * 7 / 10)
    assert metrics["ap_large"] == pytest.approx(0.7)  # 100 x 100, of the box, for no annotation says an area
    assert metrics["ap_medium"] == 0.0  # 40 x 40
    assert math.isnan(metrics["ap_small"])


@pytest.mark.parametrize(
    ("given", "size"),
    [({"area": 1000.0}, "small"), ({"area": 1200.0}, "medium"), ({}, "medium"), ({"area": 0}, "medium")],
)
def test_the_size_of_an_object_is_what_its_annotation_says(tmp_path, given, size):
    """A box of 40 x 40 is medium, of more than 32 x 32 pixels; a mask that fills 1,000 of them is small."""
    box_files.image(tmp_path / "val2017/x.jpg", (64, 48))
    annotation = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [4, 4, 40, 40], "iscrowd": 0} | given
    content = {"images": [{"id": 1, "file_name": "x.jpg", "width": 64, "height": 48}], "annotations": [annotation],
               "categories": [{"id": 1, "name": "cat"}]}  # fmt: skip
    box_files.write(tmp_path / "annotations/instances_val2017.json", json.dumps(content))
    metrics = coco_metrics(read(tmp_path, layout="coco"), [detected([[4, 4, 44, 44]], [0], [0.9])])
    assert metrics[f"ap_{size}"] == pytest.approx(1.0)
    assert math.isnan(metrics["ap_medium" if size == "small" else "ap_small"])


def test_what_is_no_object_is_not_missed_and_nothing_detected_is_zero():
    boxes = Boxes.of([[[0, 0, 40, 40], [5, 5, 5, 30], [1, 1, 9, 9]]], labels=[[2, 2, -1]])
    assert coco_metrics(dataset(boxes, 1), [detected([[0, 0, 40, 40]], [2], [0.3])])["ar100"] == 1.0
    assert coco_metrics(dataset(boxes, 1), [detected([], [], [])])["ap"] == 0.0
    with pytest.raises(ValueError, match=facts("1")):
        coco_metrics(dataset(boxes, 1), [])  # detections of every image are needed
