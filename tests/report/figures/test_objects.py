import numpy as np

from calibrant.report import draw_confidence_by_objectness, draw_peaks, new_figure


def test_empty_bins_are_left_out_and_names_are_literal():
    axis = new_figure((3, 3)).subplots()
    part = {"count": [3, 0, 2], "objectness": [0.1, np.nan, 0.8], "confidence": [0.4, np.nan, 0.6]}
    draw_confidence_by_objectness(axis, {"a $model$": part})
    line, diagonal = axis.get_lines()
    assert list(line.get_xdata()) == [0.1, 0.8]
    assert list(line.get_ydata()) == [0.4, 0.6]
    assert line.get_label() == "a \\$model\\$"
    assert list(diagonal.get_xdata()) == list(diagonal.get_ydata()) == [0, 1]


def test_peaks_are_the_probabilities():
    axes = new_figure((3, 1)).subplots(1, 2)
    draw_peaks(axes, np.zeros((4, 4, 3)), {"m": [0.25, 0.75]}, "object: 20%")
    assert [bar.get_height() for bar in axes[1].patches] == [0.25, 0.75]
    assert axes[1].get_title(loc="left") == "m: 0.75"


def test_long_names_above_neighbouring_axes_do_not_meet():
    figure = new_figure((5.25, 1.5))
    axes = figure.subplots(1, 3)
    names = ["A. L.S. (mask) (beta = 0.75)", "Label Smoothing (mask)"]
    draw_peaks(axes, np.zeros((4, 4, 3)), {name: [0.25, 0.75] for name in names}, "object: 20%")
    figure.draw_without_rendering()
    first, second = (axis.title if axis.get_title() else axis._left_title for axis in axes[1:])
    assert first.get_window_extent().x1 < second.get_window_extent().x0
