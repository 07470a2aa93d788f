import numpy as np

from calibrant.report import draw_reliability_zoom, new_figure


def test_the_part_is_the_same_enlarged():
    axes = new_figure((3, 5)).subplots(2, 1)
    bins = {"low": [0, 0.5], "high": [0.5, 1], "count": [0, 9], "confidence": [np.nan, 0.8], "accuracy": [np.nan, 0.6]}
    draw_reliability_zoom(tuple(axes), bins, zoom=(0.5, 0.9), title="CE")
    for axis in axes:
        assert axis.patches[0].get_height() == 0.6
        assert [(x, y) for line in axis.get_lines()[1:] for x, y in line.get_xydata().tolist()] == [(0.8, 0.6)]
    assert axes[0].get_xlim() == (0, 1)
    assert axes[1].get_xlim() == axes[1].get_ylim() == (0.5, 0.9)
    assert axes[0].patches[1].get_bbox().extents.tolist() == [0.5, 0.5, 0.9, 0.9]
