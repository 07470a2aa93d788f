"""Masks of scenes, held against the objects that were drawn."""

import numpy as np
import pytest

from calibrant.data.scene_masks import scene_masks
from calibrant.data.scenes import draw


def test_masks_have_the_class_of_the_object_below_them():
    options = {"samples": 30, "ambiguous": 0.4, "size": 24, "seed": 3}
    data, pictures = scene_masks("val", families=4, **options), draw("val", masks=True, **options)
    assert data.classes[0] == "background"
    assert len(data.classes) == 5
    for k in range(30):
        mask = np.asarray(data.masks[k])
        expected = np.zeros_like(mask)
        for number in range(pictures.offsets[k], pictures.offsets[k + 1]):
            between = pictures.ambiguous[k] and number == pictures.offsets[k]
            expected[pictures.masks[number]] = 255 if between else pictures.box_labels[number] // 4 + 1
        assert np.array_equal(mask, expected)
        assert np.array_equal(np.asarray(data.inputs[k]), pictures.images[k])
    assert {255} < set(np.unique(data.masks.pixels))
    assert np.array_equal(data.take(np.array([4])).masks[0], data.masks[4])
    with pytest.raises(ValueError, match="families must be one of"):
        scene_masks("val", families=3)
