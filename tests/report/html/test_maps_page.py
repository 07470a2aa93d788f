"""The page of one image: every picture in it decodes to what was painted, every number is the one given."""

import base64
import io
import re

import numpy as np
from PIL import Image

from calibrant.report import write_maps_page
from calibrant.report.html import maps_page
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
