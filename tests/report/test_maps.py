"""What pages and figures are given of an image."""

import numpy as np

from calibrant.report import paint_labels
from tests.helpers.image_maps import image_maps


def test_maps_of_a_method_are_painted_from_its_arrays():
    maps = image_maps()
    painted = maps.maps_of(maps.methods[0])
    assert list(painted) == ["prediction", "confidence", "rank", "normalised_rank"]
    assert np.array_equal(painted["prediction"], paint_labels(maps.methods[0].predicted, 3))
    right = ~maps.methods[0].wrong
    assert np.array_equal(painted["rank"][right], painted["normalised_rank"][right])
    assert maps.shown_classes == [0, 1, 2]
