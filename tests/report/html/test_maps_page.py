"""The page of one image: every picture in it decodes to what was painted, every number is the one given.

The ends of a ramp, classes that keep their colours, wrong pixels alone in colour.
"""

import base64
import io
import re

import numpy as np
from PIL import Image

from calibrant.report import label_colours, write_maps_page
from calibrant.report.html import maps_page
from calibrant.report.html.maps_page import CONFIDENCE, RANK, VOID, paint_labels, paint_ramp, paint_wrong
from tests.helpers.image_maps import image_maps


def pictures(page):
    for text in re.findall(r"data:image/png;base64,([A-Za-z0-9+/=]+)", page):
        yield np.asarray(Image.open(io.BytesIO(base64.b64decode(text))))


def written(path, maps):
    write_maps_page(path, maps, created="2026-11-17", command="calibrant maps runs --image x")
    return path.read_text(encoding="utf-8")


def test_the_page_shows_what_was_painted_and_said(tmp_path):
    maps = image_maps()
    page = written(tmp_path / "maps.html", maps)
    shown = list(pictures(page))
    expected = [maps.picture, maps.truth_map()]
    painted = [maps.maps_of(method) for method in maps.methods]
    for kind in ("prediction", "confidence", "rank", "normalised_rank"):
        expected += [part[kind] for part in painted]
    assert len(shown) == len(expected)
    assert all(np.array_equal(a, b) for a, b in zip(shown, expected, strict=True))
    for text in ("Cross-entropy", "calibrant maps runs --image x", "void: not counted", "25.00%", "p = 3: no better"):
        assert text in page


def test_large_maps_are_thinned(tmp_path, monkeypatch):
    monkeypatch.setattr(maps_page, "LARGEST", 10)
    first = next(pictures(written(tmp_path / "maps.html", image_maps())))
    assert first.shape == (6, 8, 3)


def test_maps_of_a_method_are_painted_from_its_arrays():
    maps = image_maps()
    painted = maps.maps_of(maps.methods[0])
    assert list(painted) == ["prediction", "confidence", "rank", "normalised_rank"]
    assert np.array_equal(painted["prediction"], paint_labels(maps.methods[0].predicted, 3))
    right = ~maps.methods[0].wrong
    assert np.array_equal(painted["rank"][right], painted["normalised_rank"][right])
    assert maps.shown_classes == [0, 1, 2]


def test_classes_have_their_colours_and_void_is_grey():
    painted = paint_labels(np.array([[0, 2], [255, -1]]), 3)
    assert painted[0, 1].tolist() == [round(255 * c) for c in label_colours(3)[2]]
    assert painted[0, 0].tolist() != painted[0, 1].tolist()
    assert painted[1].tolist() == [list(VOID), list(VOID)]


def test_ramps_reach_from_their_first_to_their_last_colour():
    for ramp in (CONFIDENCE, RANK):
        ends = paint_ramp(np.array([[0.0, 1.0]]), ramp)[0]
        assert ["#" + bytes(end.tolist()).hex() for end in ends] == [ramp[0], ramp[-1]]
    between = paint_ramp(np.array([[1 / 6]]), CONFIDENCE)[0, 0]  # half-way between the first two of four
    assert between.tolist() == [round((0xF7 + 0x9E) / 2), round((0xFB + 0xCA) / 2), round((0xFF + 0xE1) / 2)]


def test_only_wrong_pixels_have_a_colour():
    picture = np.zeros((1, 2, 3), np.uint8)
    painted = paint_wrong(picture, np.zeros((1, 2)), np.array([[True, False]]))
    assert "#" + bytes(painted[0, 0].tolist()).hex() == RANK[0]
    assert len(set(painted[0, 1].tolist())) == 1
