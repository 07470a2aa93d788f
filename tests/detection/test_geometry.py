"""Boxes of images in views and back. Oracle: where the pixels of a drawn rectangle are after rendering."""

import numpy as np
import pytest

from calibrant.data import Boxes, Dataset, ImageArray, Pipeline, RandomFlip, Resize
from calibrant.data.transforms import CentreCrop, draw_view
from calibrant.detection.geometry import is_object, is_single, to_image, to_view


def drawn(box, size=(60, 40)):
    pixels = np.zeros((1, size[1], size[0], 3), dtype=np.uint8)
    x1, y1, x2, y2 = box
    pixels[0, y1:y2, x1:x2] = 255
    boxes = Boxes.of([[list(map(float, box))]], labels=[[0]])
    return Dataset("drawn", "test", ("white",), ("a",), [0], ImageArray(pixels), boxes)


@pytest.mark.parametrize(
    "steps",
    [[Resize(20)], [Resize(80, most=100), RandomFlip(1.0)], [CentreCrop((30, 24)), Resize((60, 72)), RandomFlip(1.0)]],
    ids=["smaller", "mirrored", "cropped"],
)
def test_a_box_is_where_its_pixels_are(steps):
    data = drawn((20, 10, 32, 30))
    batch = Pipeline(data, steps, filled_up=True).batch([0])
    (view,) = batch.views
    rows, columns = np.nonzero(batch.inputs[0, 0].numpy() > 127)
    seen = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
    np.testing.assert_allclose(to_view(data.boxes.corners, view)[0], seen, atol=1.0)


def test_back_in_the_image_a_box_is_as_it_was():
    random = np.random.default_rng(3)
    for _ in range(20):
        size = tuple(int(side) for side in random.integers(30, 90, 2))
        view = draw_view([Resize(47, most=70), RandomFlip()], size, random)
        low = random.uniform(0, 0.5, (7, 2)) * size
        corners = np.concatenate([low, low + random.uniform(0, 0.5, (7, 2)) * size], axis=1)
        np.testing.assert_allclose(to_image(to_view(corners, view), view), corners, atol=1e-9)


def test_crowds_and_boxes_without_class_or_area_are_not_trained_on():
    boxes = Boxes.of(
        [[[0, 0, 4, 4], [0, 0, 4, 4], [1, 1, 1, 9], [2, 2, 5, 5]]], labels=[[0, -1, 0, 1]], crowd=[[0, 0, 0, 1]]
    )
    assert is_object(boxes).tolist() == [True, False, False, True]
    assert is_single(boxes).tolist() == [True, False, False, False]
