"""Charts of a data set: lengths of bars and places of frames, worked out by hand."""

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image

from calibrant.report import Cell
from calibrant.report.html import data_charts as charts


def boxes_of(svg, kind):
    return [
        tuple(map(float, numbers))
        for numbers in re.findall(rf'<rect class="{kind}" x="(\S+)" y="(\S+)" width="(\S+)" height="(\S+)"', svg)
    ]


def test_bars_are_as_long_as_their_counts():
    svg = charts.balance("b", {"train": {"cup": 40, "spoon": 10}, "val": {"cup": 20}}, is_share=False)
    first, second = boxes_of(svg, "filled s0"), boxes_of(svg, "filled s1")
    lengths = {y: width for _, y, width, _ in [*first, *second]}
    # The class that is named first is at the top, and below each bar of train is that of val.
    cup_train, cup_val, spoon_train, spoon_val = (lengths[y] for y in sorted(lengths))
    assert cup_train == pytest.approx(2 * cup_val, abs=0.2)
    assert cup_train == pytest.approx(4 * spoon_train, abs=0.3)
    assert spoon_val == 0
    heights = {word: float(y) for y, word in re.findall(r'y="(\S+)">\u2068(\w+)\u2069</text>', svg)}
    assert heights["cup"] < heights["spoon"]


def test_many_classes_become_a_line():
    numbers = {f"class {k}": k for k in range(charts.NAMED_CLASSES + 1)}
    svg = charts.balance("b", {"train": numbers}, is_share=False)
    assert boxes_of(svg, "filled s0") == []
    assert svg.count('class="curve') == 1


def test_shares_of_images_by_their_boxes():
    svg = charts.boxes_per_image("b", {"all": {"images_by_number": {"1": 3, "12": 1}}})
    (_, _, _, three), (_, _, _, one) = boxes_of(svg, "filled s0")
    assert three == pytest.approx(3 * one, abs=0.3)
    assert "10+ boxes: 25.00%" in svg


def test_an_outline_goes_from_the_ground_to_the_ground():
    part = {"edges": [0.0, 0.5, 1.0], "area_histogram": [1, 3]}
    svg = charts.histograms("h", {"all": part}, "area_histogram", "share of boxes")
    points = re.findall(r"[ML](\S+) ([^\s\"ML]+)", re.search(r'class="curve[^>]* d="([^"]+)"', svg)[1])
    heights = [float(y) for _, y in points]
    ground = 300 - 44  # the height of the chart without the room below the axis
    assert heights[0] == heights[-1] == ground
    assert ground - min(heights) == pytest.approx(3 * (ground - heights[1]), rel=0.02)


@pytest.mark.parametrize(("side", "kind"), [(8, "png"), (300, "jpeg")])
def test_pictures_are_in_the_page(side, kind):
    pixels = np.full((side, side, 3), 200, np.uint8)
    cell = Cell(pixels, "cup\nobjectness 0.5", np.array([[1.0, 2.0, 3.0, 6.0]]), ["cup"], (0.0, 0.0, 4.0, 5.0))
    html = charts.picture(cell, charts.colours_of([cell]))
    address = re.search(r'href="data:image/(\w+);base64,([^"]+)"', html)
    assert address[1] == kind
    shown = np.asarray(Image.open(io.BytesIO(base64.b64decode(address[2]))))
    assert shown.shape == pixels.shape
    assert np.abs(shown.astype(int) - 200).max() <= 2
    assert boxes_of(html, "box-frame s0") == [(1, 2, 2, 4)]
    assert boxes_of(html, "crop") == [(0, 0, 4, 5)]
    assert '<span class="says">cup</span><span>objectness 0.5</span>' in html
