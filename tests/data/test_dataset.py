"""Data sets: columns that fit, positions, and merging."""

import numpy as np
import pytest

from calibrant.data import Boxes, CentreCrop, Pipeline
from tests.helpers.errors import facts
from tests.helpers.toy_images import BOX_LABELS, BOXES, objects


def test_merged_sets_keep_boxes_with_their_images():
    first = objects(boxes=Boxes.of(BOXES, BOX_LABELS, [[True, False, False], [False, True], []]))
    second = objects().replace(ids=("d", "e", "f"))
    both = first.merged(second)
    assert both.boxes.labels.tolist() == [1, 0, -1, 1, 0] * 2
    assert both.boxes.crowd.tolist() == [True, False, False, False, True] + [False] * 5
    assert both.boxes[4].tolist() == BOXES[1]
    assert np.array_equal(np.asarray(both[4].input), second.inputs.pixels[1])
    with pytest.raises(ValueError, match=facts("ignore_index")):
        first.merged(second.replace(ignore_index=255))


def test_positions_count_from_the_end_and_are_checked():
    data = objects()
    assert data.take([-1, -2]).ids == ("c", "b")
    assert data.take([-2]).boxes[0].tolist() == BOXES[1]
    assert data.boxes[-2].tolist() == BOXES[1]
    assert Pipeline(data, [CentreCrop(20)]).batch([-2]).ids == ("b",)
    assert data.take([True, False, True]).ids == ("a", "c")
    with pytest.raises(IndexError, match="outside the 3 samples"):
        data.take([3])
    with pytest.raises(ValueError, match=facts("[1]")):
        data.take([True])
    with pytest.raises(ValueError, match="whole numbers"):
        data.take([0.5])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ids": ("a", "a", "c")}, facts("'a'")),
        ({"labels": [0, 2, 0]}, "the label 2 is outside 0..1"),
        ({"labels": [0, 1]}, "2 labels for 3 samples"),
        ({"classes": ("cat", "cat")}, facts("cat")),
        ({"soft": np.ones((3, 5))}, "soft labels of shape"),
        ({"boxes": Boxes.of([[]])}, "1 boxes for 3 samples"),
    ],
)
def test_data_sets_refuse_nonsense(changes, message):
    with pytest.raises(ValueError, match=message):
        objects().replace(**changes)
