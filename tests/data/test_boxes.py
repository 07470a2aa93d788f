"""Objectness against counted pixels, ALS's targets against its formula; boxes that stay with their images."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from calibrant.data import Boxes
from calibrant.targets import adaptive_targets, hard_targets, objectness, uniform_targets
from tests.helpers.errors import facts
from tests.reference import objects as reference


def scene(seed):
    random = np.random.default_rng(seed)
    size = random.integers(8, 15, 2)
    corners = random.integers(-3, 9, (random.integers(0, 6), 2))
    boxes = np.concatenate([corners, corners + random.integers(0, 10, corners.shape)], axis=1)
    low = random.integers(-4, 5, 2)
    return boxes.tolist(), [*low, *(low + random.integers(5, 15, 2))], tuple(size.tolist())


def test_objectness_counts_pixels():
    many = [scene(seed) for seed in range(600)]
    expected = [reference.objectness(*one) for one in many]
    assert np.mean(np.array(expected) > 0) > 0.6  # most scenes show something
    assert [objectness(*one) for one in many] == pytest.approx(expected, abs=1e-14)


def test_one_crowded_image_among_others():
    random = np.random.default_rng(0)
    corners = random.integers(0, 60, (300, 2))
    crowded = np.concatenate([corners, corners + random.integers(1, 20, corners.shape)], axis=1)
    values = objectness([crowded, *[[[0, 0, 4, 4], [2, 2, 8, 8]]] * 50], [0, 0, 80, 80], (80, 80))
    assert values[0] == reference.mask_of(crowded, 80, 80).sum() / 6400
    assert values[1:].tolist() == [(16 + 36 - 4) / 6400] * 50


@pytest.mark.parametrize(
    ("boxes", "crop", "size", "expected"),
    [
        ([[2, 2, 6, 6]], [0, 0, 8, 8], (8, 8), 16 / 64),
        ([[0, 0, 4, 4], [4, 0, 8, 4]], [0, 0, 8, 8], (8, 8), 32 / 64),  # touching
        ([[0, 0, 4, 4], [2, 2, 6, 6], [3, 3, 5, 5]], [0, 0, 8, 8], (8, 8), 28 / 64),  # overlapping, one inside
        ([[0, 0, 4, 4], [0, 0, 4, 4]], [0, 0, 8, 8], (8, 8), 16 / 64),  # twice the same
        ([[3, 0, 3, 8]], [0, 0, 8, 8], (8, 8), 0.0),  # without width
        ([[-5, -5, 4, 4]], [0, 0, 8, 8], (8, 8), 16 / 64),  # clipped to the image
        ([[20, 20, 30, 30]], [0, 0, 8, 8], (8, 8), 0.0),  # beside the image
        ([[6, 0, 20, 8]], [4, 0, 12, 8], (8, 8), 16 / 64),  # the crop's right half is padding
        ([[-5, -5, 4, 4]], [-3, -3, 5, 5], (8, 8), 16 / 64),  # and here its left and top
        ([[0.5, 0.25, 1.5, 0.75]], [0, 0, 2, 1], (2, 1), 0.25),  # parts of pixels
        ([[0, 0, 10, 20]], None, (40, 20), 0.25),  # width before height; None is the whole image
        ([], [0, 0, 8, 8], (8, 8), 0.0),
    ],
)
def test_objectness_by_hand(boxes, crop, size, expected):
    assert objectness(boxes, crop, size) == expected


def test_the_single_box_of_the_text():
    boxes = [[0, 0, 4, 4], [2, 2, 8, 8]]
    assert objectness(boxes, [0, 0, 8, 8], (8, 8), reading="single") == 36 / 64
    assert objectness(boxes, [0, 0, 4, 4], (8, 8), reading="single") == 1.0  # the one that shows most in the crop
    assert objectness([[0, 0, 4, 4]], [0, 0, 8, 8], (8, 8), reading="single") == 16 / 64
    assert objectness([], [0, 0, 8, 8], (8, 8), reading="single") == 0.0
    with pytest.raises(ValueError, match=facts("reading", "mask", "union")):
        objectness(boxes, [0, 0, 8, 8], (8, 8), reading="mask")


def test_forms_of_the_arguments():
    ragged = [[[0, 0, 4, 4]], [[0, 0, 8, 4], [0, 2, 8, 8]], []]
    expected = [0.25, 1.0, 0.0]
    whole = [0, 0, 8, 8]
    padded = np.zeros((3, 2, 4))
    padded[0, 0], padded[1] = ragged[0][0], ragged[1]
    assert objectness(ragged, whole, (8, 8)).tolist() == expected
    assert objectness(Boxes.of(ragged), [whole] * 3, [(8, 8)] * 3).tolist() == expected
    assert objectness(padded, whole, (8, 8)).tolist() == expected
    tensor = objectness(torch.tensor(padded, dtype=torch.float32), torch.tensor(whole), (8, 8))
    assert isinstance(tensor, torch.Tensor)
    assert tensor.tolist() == expected
    assert isinstance(objectness([torch.tensor([[0.0, 0, 4, 4]])], whole, (8, 8)), torch.Tensor)
    assert objectness(torch.zeros(0, 3, 4), whole, (8, 8)).shape == (0,)
    assert objectness(torch.tensor([[0, 0, 4, 4]], dtype=torch.bfloat16), whole, (8, 8)).item() == 0.25
    assert objectness([[0, 0, 4, 4]], whole, [(8, 8), (4, 4), (2, 2)]).tolist() == [0.25, 0.25, 0.0625]
    one_image_many_crops = objectness([[0, 0, 4, 8]], [[0, 0, 4, 8], [2, 0, 6, 8], whole], (8, 8))
    assert one_image_many_crops.tolist() == [1.0, 0.5, 0.5]
    assert isinstance(objectness([0, 0, 4, 4], whole, (8, 8)), float)


@pytest.mark.parametrize(
    ("boxes", "crop", "size", "message"),
    [
        ([[4, 0, 2, 4]], [0, 0, 8, 8], (8, 8), facts("img.jpg", "box 0")),
        ([[0, 0, 2, 2], [0, 5, 2, 4]], [0, 0, 8, 8], (8, 8), facts("img.jpg", "box 1")),
        ([[0, 0, float("nan"), 4]], [0, 0, 8, 8], (8, 8), facts("img.jpg")),
        ([[0, 0, 2, 2]], [4, 0, 4, 8], (8, 8), facts("img.jpg", "crop")),
        ([[0, 0, 2, 2]], [0, 0, 8, 8], (8, 0), facts("0")),
        ([[0, 0, 2]], [0, 0, 8, 8], (8, 8), facts("boxes")),
        ([[0, 0, 2, 2]], [0, 0, 8], (8, 8), facts("[4]")),
    ],
)
def test_broken_objects_are_refused(boxes, crop, size, message):
    with pytest.raises(ValueError, match=message):
        objectness(boxes, crop, size, names=["img.jpg"])
    with pytest.raises(ValueError, match=message):
        objectness(boxes, crop, size, names="img.jpg")


def test_numbers_that_do_not_go_together_are_refused():
    with pytest.raises(ValueError, match=facts("crop", "2", "3")):
        objectness([[[0, 0, 1, 1]]] * 3, [[0, 0, 8, 8]] * 2, (8, 8))
    with pytest.raises(ValueError, match=facts("boxes")):
        objectness([[0, 0, 4, 4], [1, 2]], [0, 0, 8, 8], (8, 8))
    with pytest.raises(ValueError, match=facts("image 1", "box 0")):
        objectness([[[0, 0, 1, 1]], [[3, 0, 1, 1]]], [0, 0, 8, 8], (8, 8))
    with pytest.raises(ValueError, match=facts("image 0", "box 1")):
        Boxes.of([[[0, 0, 1, 1], [3, 0, 1, 1]]])
    with pytest.raises(ValueError, match=facts("labels")):
        Boxes.of([[[0, 0, 1, 1]], []], labels=[[], [1]])


def test_boxes_keep_their_images():
    boxes = Boxes.of([[[0, 0, 1, 1]], [], [[1, 1, 2, 3], [4, 4, 9, 6]]], labels=[[3], [], [1, 2]])
    chosen = boxes.take(np.array([2, 1, 2, 0]))
    assert chosen.counts.tolist() == [2, 0, 2, 1]
    assert chosen[2].tolist() == [[1, 1, 2, 3], [4, 4, 9, 6]]
    assert chosen.labels.tolist() == [1, 2, 1, 2, 3]
    assert chosen.owners.tolist() == [0, 0, 2, 2, 3]
    assert boxes.areas.tolist() == [1, 2, 10]
    with pytest.raises(ValueError, match=facts("offsets")):
        Boxes(np.zeros((2, 4)), np.array([0, 1]), np.zeros(2, dtype=np.int64), np.zeros(2, dtype=bool))


def test_annotated_areas_stay_with_their_boxes():
    boxes = Boxes.of([[[0, 0, 4, 4], [1, 1, 3, 3]], [[2, 2, 9, 9]]])
    annotated = Boxes(boxes.corners, boxes.offsets, boxes.labels, boxes.crowd, np.array([10.0, np.nan, 30.0]))
    np.testing.assert_array_equal(annotated.take([1, 0]).object_areas, [30, 10, np.nan])
    np.testing.assert_array_equal(annotated.only(np.array([False, True, True])).object_areas, [np.nan, 30])
    np.testing.assert_array_equal((boxes + annotated).object_areas, [np.nan] * 3 + [10, np.nan, 30])
    assert (boxes + boxes).object_areas is None
    with pytest.raises(ValueError, match="object_areas"):
        Boxes(boxes.corners, boxes.offsets, boxes.labels, boxes.crowd, np.zeros(2))


@given(st.integers(2, 7), st.floats(0, 1), st.floats(0, 1), st.data())
def test_adaptive_targets_are_those_of_the_paper(classes, share, beta, data):
    label = data.draw(st.integers(0, classes - 1))
    target = adaptive_targets([label], [share], classes, beta, dtype=torch.float64)[0]
    assert target.tolist() == pytest.approx(reference.adaptive_target(label, share, classes, beta), abs=1e-15)
    assert target.sum().item() == pytest.approx(1.0, abs=1e-14)


def test_limits_of_adaptive_targets():
    labels = torch.tensor([2, 0, 1])
    assert torch.equal(adaptive_targets(labels, 1.0, 4), torch.eye(4)[labels])
    assert torch.equal(adaptive_targets(labels, [0.1, 0.2, 0.3], 4, beta=0.0), torch.eye(4)[labels])
    assert torch.equal(hard_targets(labels, 4), torch.eye(4)[labels])
    assert adaptive_targets([1], [0.0], 4)[0].tolist() == pytest.approx([1 / 3, 0, 1 / 3, 1 / 3])
    # Beta 0.75 leaves the class at least a quarter, as the paper says.
    assert adaptive_targets([1], [0.0], 4, beta=0.75)[0, 1] == 0.25
    context = adaptive_targets(labels, [0.5, 0.0, 0.9], 4, beta=0.5, context=[False, True, False])
    assert context[1].tolist() == [0.25] * 4
    assert context[0, 2] == pytest.approx(0.75)
    assert adaptive_targets([-1, 0], [0.0, 1.0], 4)[0].tolist() == [0.25] * 4  # none of the classes
    assert torch.equal(uniform_targets(3, 5), torch.full((3, 5), 0.2))
    assert adaptive_targets(labels, torch.rand(3, dtype=torch.float64), 4).dtype == torch.float64
    assert adaptive_targets(torch.zeros(0, dtype=torch.long), torch.zeros(0), 4).shape == (0, 4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0, 4], [0.5, 0.5], 4), facts("labels", "0")),
        (([0.5], [0.5], 4), facts("labels")),
        (([0], [1.5], 4), facts("objectness", "NaN")),
        (([0], [float("nan")], 4), facts("objectness", "NaN")),
        (([0, 1], [0.5], 4), facts("objectness", "[1]")),
        (([0], [0.5], 1), facts("num_classes", "1")),
        (([0], [0.5], 4, 1.5), facts("beta", "1.5")),
        (([0, 0], [float("nan"), 0.5], 4), facts("objectness", "NaN")),
    ],
)
def test_targets_refuse_nonsense(arguments, message):
    with pytest.raises(ValueError, match=message):
        adaptive_targets(*arguments)
