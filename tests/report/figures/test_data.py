"""Figures of a data set: contact sheets and summaries are the same each time, whatever names they show."""

import numpy as np
import pytest

from calibrant.report import Cell, draw_contact_sheet, draw_data_summary

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
