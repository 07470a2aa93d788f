"""Figures of images: what their axes show; contact sheets and summaries are the same each time."""

import numpy as np
import pytest

from calibrant.report import (
    Cell,
    draw_activation_maps,
    draw_contact_sheet,
    draw_data_summary,
    draw_maps,
    draw_peaks,
    new_figure,
    overlay_map,
)
from tests.helpers.image_maps import image_maps
from tests.report.html.test_activation_page import document, pictures

PIXELS = np.random.default_rng(0).integers(0, 255, (12, 16, 3), dtype=np.uint8)
BOXES = {
    "number": 3,
    "images_by_number": {"0": 2, "3": 1, "15": 1},
    "area_histogram": [1, 2, 0, 3],
    "objectness_histogram": [0, 1, 1, 2],
    "edges": [0, 0.25, 0.5, 0.75, 1],
    "mean_objectness": 0.4,
}
SPLITS = {
    "train": {"boxes": BOXES, "pixels": {}, "class_counts": {"cat": 4, "_d$og\x07": 5}},
    "val": {"boxes": {}, "pixels": {}, "class_counts": {f"class {k}": k for k in range(40)}},
}


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


def written(path, draw):
    for name in ("a.svg", "b.svg"):
        draw(path / name)
    first, second = (path / name for name in ("a.svg", "b.svg"))
    assert first.read_bytes() == second.read_bytes()
    return first.read_text()


def test_contact_sheets_are_the_same_each_time(tmp_path):
    cells = [Cell(PIXELS, "$5\ntwo lines"), Cell(PIXELS, "boxes", np.array([[1.0, 2, 9, 8]]), ["cat"], (0.0, 0, 8, 8))]
    legend = {"_sky": (1.0, 0.0, 0.0)}
    assert "image/png" in written(tmp_path, lambda path: draw_contact_sheet(path, cells, title="a_b$", legend=legend))


def test_a_sheet_of_nothing_is_refused(tmp_path):
    with pytest.raises(ValueError, match="a contact sheet needs at least one picture"):
        draw_contact_sheet(tmp_path / "x.png", [])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("splits", [SPLITS, {"val": {"boxes": {}, "pixels": {"sky": 0.4}, "class_counts": {}}}])
def test_summaries_are_the_same_each_time(tmp_path, splits):
    assert "<svg" in written(tmp_path, lambda path: draw_data_summary(path, splits, title="a_b$"))
