"""The figure of one image: what its axes show."""

import numpy as np

from calibrant.report import draw_maps
from tests.helpers.image_maps import image_maps


def test_a_column_for_every_method():
    maps = image_maps()
    figure = draw_maps(maps, ("confidence", "reliability"))
    axes = np.array(figure.axes).reshape(2, 3)
    assert np.array_equal(axes[0, 0].images[0].get_array(), maps.picture)
    assert np.array_equal(axes[1, 0].images[0].get_array(), maps.truth_map())
    painted = maps.maps_of(maps.methods[1])["confidence"]
    assert np.array_equal(axes[0, 2].images[0].get_array(), painted)
    heights = [bar.get_height() for bar in axes[1, 1].patches]
    assert heights == [v for v in maps.methods[0].reliability["accuracy"] if v is not None]
    assert axes[1, 1].lines[0].get_ydata().tolist() == heights  # a point on each bar, also on those without height
    assert "ECE 25.00%" in axes[1, 1].get_title(loc="left")
