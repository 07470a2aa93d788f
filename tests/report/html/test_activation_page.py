import re

import numpy as np
import pytest

from calibrant.report import Cell, write_activation_page

METHODS = ("hard", "with label smoothing")


def said(name, right, inside):
    classes = [("cat", 0.7), ("dog", 0.2), ("owl", 0.1)]
    top = [{"class": k, "confidence": p, "right": right and k == "cat"} for k, p in classes]
    return {"name": name, "top": top, "inside": inside}


def document(**changes):
    interval = {"value": 0.4213, "low": 0.391, "high": 0.452}
    rows = [
        {"id": "images/0001.jpg", "label": "cat", "context": context,
         "methods": [said(name, not context, float("nan") if context else 0.5) for name in METHODS]}
        for context in (False, True)
    ]  # fmt: skip
    return {
        "format": "calibrant.cam", "version": 1, "set": "test", "explained": "predicted", "level": 0.95,
        "has_boxes": True, "measured": 500, "area": 0.3, "rows": rows,
        "methods": [
            {"name": name, "model": "resnet50", "layer": "layer4", "images": 499, "inside": interval}
            for name in METHODS
        ],
        "differences": [
            {"first": METHODS[0], "second": METHODS[1], "images": 498, "value": 0.0158, "low": 0.0086, "high": 0.0224}
        ],
        "created": "2026-01-01", "calibrant": "0.1.0", "reproduce": "calibrant cam runs/hard runs/ls -o cam.html",
    } | changes  # fmt: skip


def pictures():
    pixels = np.random.default_rng(0).integers(0, 256, (24, 24, 3), dtype=np.uint8)
    return [[Cell(pixels, "", np.array([[2.0, 3.0, 12.0, 20.0]])) for _ in range(3)] for _ in range(2)]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "cam.html"
    write_activation_page(path, document(), pictures())
    return path.read_text(encoding="utf-8")


def test_every_picture_is_in_the_page(page):
    assert len(re.findall(r'href="data:image/png;base64,', page)) == 2 * 3
    assert not re.findall(r'(?:src|href)="(?!data:|#)', page)
    assert page.count("box-frame dashed") == 2 * 3


def test_right_and_wrong_are_told_by_a_word_and_a_mark_too(page):
    classes = re.findall(
        r'<li class="(right|wrong)"><span aria-hidden="true">(.)</span><span class="unseen">(\w+):', page
    )
    assert classes[:3] == [("right", "✓", "right"), ("wrong", "✗", "wrong"), ("wrong", "✗", "wrong")]
    assert len(classes) == 2 * 2 * 3
    assert [kind for kind, _, _ in classes[6:]] == ["wrong"] * 6


def test_numbers_are_those_of_the_document(page):
    text = re.sub(r"<[^>]+>", "", page)
    for number in ("42.13%", "[39.10%,\u00a045.20%]", "+1.58\u00a0pp", "[+0.86,\u00a0+2.24]", "30.00%", "499", "498"):
        assert number in text
    assert text.count("50.00% inside the boxes") == 2, "not below an image without objects"


def test_without_boxes_the_number_is_not_there(tmp_path):
    path = tmp_path / "cam.html"
    write_activation_page(path, document(has_boxes=False, measured=0, area=None), pictures())
    text = path.read_text(encoding="utf-8")
    assert "No boxes of visible objects come with these images" in text
    assert 'id="shares"' not in text


def test_another_document_is_refused(tmp_path):
    with pytest.raises(
        ValueError, match=r"is written of a calibrant.cam document of version 1, got 'calibrant.audit', 1"
    ):
        write_activation_page(tmp_path / "cam.html", document(format="calibrant.audit"), [])
