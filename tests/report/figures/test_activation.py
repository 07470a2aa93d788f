import numpy as np

from calibrant.report import draw_activation_maps, overlay_map
from tests.report.html.test_activation_page import document, pictures


def test_a_map_is_dark_where_it_is_0_and_bright_where_it_is_1():
    pixels = np.full((2, 3, 3), 100, np.uint8)
    heat = np.array([[0.0, 0.5, 1.0], [0.0, 0.5, 1.0]])
    light = overlay_map(pixels, heat).sum(2)
    assert (np.diff(light[0].astype(int)) > 0).all()
    np.testing.assert_array_equal(light[0], light[1])


def test_a_figure_has_a_row_per_image_and_says_right_and_wrong_in_colour_and_by_a_mark():
    figure = draw_activation_maps(document(), pictures())
    assert len(figure.axes) == 2 * 3
    assert [axis.get_title() for axis in figure.axes[:3]] == ["Picture", "hard", "with label\nsmoothing"]
    said = [(text.get_text(), text.get_color()) for text in figure.axes[1].texts]
    assert [text for text, _ in said] == ["✓ cat 70.00%", "✗ dog 20.00%", "✗ owl 10.00%"]
    assert len({colour for _, colour in said}) == 2
    assert len(figure.axes[1].patches) == 1, "the box"
    assert "objects covered" in figure.axes[3].get_xlabel()
