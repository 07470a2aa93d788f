import numpy as np

from calibrant.report import Mark, draw_simplex, new_figure
from calibrant.report.figures.simplex import at


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
