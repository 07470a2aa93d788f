"""Figures of losses: the same each time, and of the labels and numbers they are given."""

import numpy as np
import pytest

from calibrant.report import (
    Mark,
    draw_lens,
    draw_regularisation,
    draw_regularisation_by_error,
    draw_regulariser,
    draw_simplex,
    draw_sweep,
    new_axes,
    new_figure,
)
from calibrant.report.figures.losses import at

PROBS, TARGET = np.array([0.9, 0.06, 0.04]), np.array([1.0, 0.0, 0.0])
EFFECTIVE = {"ls": np.array([0.9, 0.05, 0.05]), "acls $6": np.array([0.7, 0.4, -0.1])}

SOFTMAX, TRUTH = np.array([0.8, 0.15, 0.05]), np.array([0.3, 0.6, 0.1])
DRAWS = {
    "regularisation": lambda target: draw_regularisation(target, SOFTMAX, TRUTH, 0.2 * (TRUTH - 1 / 3)),
    "by error": lambda target: draw_regularisation_by_error(
        target, {"a": (np.array([0.0, 1.0]), np.array([0.1, 0.0]))}
    ),
}


@pytest.mark.parametrize("sweep", [None, (np.linspace(0.4, 0.9999, 20), {k: np.linspace(0, 1, 20) for k in EFFECTIVE})])
def test_the_lens_is_drawn_the_same_each_time(tmp_path, sweep):
    contents = set()
    for name in ("a.svg", "b.svg"):
        draw_lens(
            tmp_path / name, logits=[5, 2, 1], label=0, probs=PROBS, target=TARGET, effective=EFFECTIVE, sweep=sweep
        )
        contents.add((tmp_path / name).read_bytes())
    assert len(contents) == 1
    assert len(list(tmp_path.iterdir())) == 2


def test_other_formats_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"a figure is written as .png, .svg, .pdf, got '.gif'"):
        draw_lens(tmp_path / "x.gif", logits=[1, 0], label=0, probs=PROBS, target=TARGET, effective={})


def test_probabilities_are_distances_from_the_sides():
    height = np.sqrt(0.75)
    for p in ([0.2, 0.3, 0.5], [1 / 3, 1 / 3, 1 / 3]):
        x, y = at(p)
        assert np.isclose(y / height, p[0])  # above the side of the other two
        left = abs(height * x - 0.5 * y)  # from the line through (0, 0) and (0.5, height)
        assert np.isclose(left / height, p[2])
    np.testing.assert_allclose(at(np.eye(3)), [[0.5, height], [0, 0], [1, 0]])


def test_marks_regions_and_arrows_are_drawn():
    axis = new_figure((3, 3)).subplots()
    corners = [[0, 0, 1], [0.3, 0, 0.7], [0, 0.3, 0.7]]
    draw_simplex(
        axis,
        [Mark([0, 0, 1], "p"), Mark([0.1, 0.1, 0.8], "", filled=False)],
        region=corners,
        arrows=[([0.4, 0.3, 0.3], [0.2, 0.1, 0.7])],
        level={0.5: [[0.5, 0.0, 0.5], [0.0, 0.5, 0.5]]},
    )
    triangle, region = axis.patches[:2]
    np.testing.assert_allclose(region.get_xy()[:3], at(corners))
    assert len(triangle.get_xy()) == 4
    assert axis.lines[1].get_markerfacecolor() != axis.lines[2].get_markerfacecolor()
    assert {text.get_text() for text in axis.texts} >= {"p", "0.5"}


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


@pytest.mark.parametrize("name", DRAWS)
def test_figures_of_regularisation_are_the_same_each_time(tmp_path, name):
    for file in ("a.svg", "b.svg"):
        DRAWS[name](tmp_path / file)
    first, second = ((tmp_path / file).read_bytes() for file in ("a.svg", "b.svg"))
    assert first == second
    assert b"</svg>" in first


def test_arrows_follow_descent():
    _, (axis,) = new_axes((3, 3))
    DRAWS["regularisation"](axis)
    lengths = [note.xy[1] - note.xyann[1] for note in axis.texts]
    np.testing.assert_allclose(lengths, -3 * 0.2 * (TRUTH - 1 / 3), atol=1e-12)
