import numpy as np

from calibrant.report import draw_regulariser, draw_sweep, new_figure


def test_a_histogram_has_shares_and_says_how_many_are_zero():
    axis = new_figure((3, 2)).subplots()
    draw_regulariser(axis, np.array([6, 0, 2]), np.array([0.0, 0.1, 0.2, 0.3]), 0.5, title="left")
    assert [bar.get_height() for bar in axis.patches] == [0.75, 0.0, 0.25]
    assert axis.texts[0].get_text() == "0 for 50.0%"


def test_a_sweep_is_in_percent_with_whiskers_where_there_is_a_spread():
    axis = new_figure((3, 2)).subplots()
    draw_sweep(axis, {"LS": ([0.1, 0.2], [0.5, 0.25], [0.01, np.nan])}, label="alpha", metric="ECE", log=True)
    assert list(axis.lines[0].get_ydata()) == [50.0, 25.0]
    (_, _, bars) = axis.containers[0]
    ends = [segment[:, 1].tolist() for segment in bars[0].get_segments()]
    assert ends == [[49.0, 51.0], [25.0, 25.0]]
    assert axis.get_xscale() == "log"
    assert axis.get_legend() is None
