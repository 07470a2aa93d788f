"""The page of a data set: its sections, findings said once, a policy in its head, names of any kind as text.

Lengths of bars and places of frames are worked out by hand.
"""

import base64
import html.parser
import io
import re

import numpy as np
import pytest
from PIL import Image

from calibrant.report import Cell, ContactSheet, write_data_page
from calibrant.report.html import asset, policy
from calibrant.report.html.data_page import (
    NAMED_CLASSES,
    captioned_picture,
    colours_of,
    draw_balance,
    draw_boxes_per_image,
    draw_histograms,
    is_page,
)
from calibrant.report.text import escape, plain

HOSTILE = [
    "<script>alert(1)</script>",
    "'\"><img src=x onerror=alert(1)>",
    "' onmouseover='alert(1)",
    "</title><script>alert(1)</script>",
    "</style><script>alert(1)</script>",
    "]]><svg onload=alert(1)>",
    "BODY TITLE {body} %s",
    "\x1b[2J\x00\x9b",
    "caf\udce9",
    "javascript:alert(1)",
    "&lt;b&gt;",
]


class Tags(html.parser.HTMLParser):
    """Elements and their attributes, and the text between them."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes, self.words = [], [], ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attrs]

    def handle_data(self, data):
        self.words += data


def issue(what, times, *where):
    return {"what": what, "times": times, "where": list(where)}


def facts(counts, **changes):
    boxes = {
        "number": 5, "crowds": 1, "without_area": 0, "images_by_number": {"0": 1, "2": 2, "14": 1},
        "images_with_several": 2, "images_with_several_classes": 1, "by_class": dict.fromkeys(counts, 2),
        "edges": [0.0, 0.5, 1.0], "area_histogram": [4, 1], "objectness_histogram": [3, 1], "mean_objectness": 0.25,
    }  # fmt: skip
    sizes = {"width_min": 40, "height_min": 30, "width_max": 400, "height_max": 300}
    made = {"samples": sum(counts.values()), "class_counts": counts, "boxes": boxes, "pixels": {}, "sizes": sizes}
    return made | {"skipped": [], "odd": []} | changes


def document(name="cup", **changes):
    odd = issue("grayscale image", 12, *(f"{name}{k}" for k in range(12)))
    splits = {
        "train": facts({name: 7, "spoon": 3}, odd=[odd], skipped=[issue("inverted box", 1, "a.jpg")]),
        "val": facts({name: 2, "spoon": 0}, odd=[odd]),
    }
    return {
        "level": "fair", "headline": "12 samples", "text": "Few.", "layout": "voc", "root": f"/{name}", "name": name,
        "samples": 12, "splits": splits, "across_splits": [issue("identical samples", 1, "a = b")],
        "calibrant": "0.1.0", "created": "2026-01-01", "reproduce": f"calibrant data inspect {name}",
    } | changes  # fmt: skip


def sheet(name="cup"):
    small, large = np.zeros((4, 6, 3), np.uint8), np.zeros((90, 120, 3), np.uint8)
    boxes = np.array([[1.0, 1.0, 3.0, 3.0]])
    cells = [Cell(small, f"{name}\nobjectness 0.5", boxes, [name], (0.0, 0.0, 4.0, 4.0)), Cell(large, "spoon")]
    return ContactSheet(cells, "2 samples.", {name: (1.0, 0.0, 0.5)})


def written(folder, made, sheets):
    write_data_page(folder, made, sheets)
    return (folder / "index.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    def page(words):
        return written(tmp_path_factory.mktemp("data"), document(words), {words: sheet(words)})

    return {words: page(words) for words in ["plain", *HOSTILE]}


@pytest.mark.parametrize("words", HOSTILE)
def test_hostile_words_are_text(pages, words):
    page, usual = Tags(pages[words]), Tags(pages["plain"])
    assert page.tags == usual.tags
    assert [(tag, name) for tag, name, _ in page.attributes] == [(tag, name) for tag, name, _ in usual.attributes]
    assert page.words.count(plain(words)) >= 6
    assert not [c for c in pages[words] if not c.isprintable() and c not in "\n\xa0\u2068\u2069"]


def test_pages_have_the_design_and_the_policy_of_all_reports(pages):
    for page in pages.values():
        assert asset("report.css") in page
        assert f'<meta http-equiv="Content-Security-Policy" content="{policy(asset("report.js"))}">' in page
        assert page.index("Content-Security-Policy") < page.index("<title>")
        assert page.count("<script") == 1
        assert set(re.findall(r"""(?:src|href)=['"]([a-z]*:)""", page)) == {"data:"}


def test_the_summary_comes_first_and_the_command_last(pages):
    page = pages["plain"]
    sections = re.findall(r'<section id="([a-z0-9-]+)"', page)
    assert sections == ["findings", "splits", "classes", "boxes", "pictures-0", "reproduce"]
    assert page.index('<h2 id="verdict-h">12 samples</h2>') < page.index('id="findings"')
    assert "<code>calibrant data inspect plain</code>" in page


def test_findings_of_several_splits_are_said_once(pages):
    page = pages["plain"]
    assert page.count("grayscale image") == 1
    assert "grayscale image: 12</p><p><bdi>train</bdi>, <bdi>val</bdi></p>" in page
    assert "<bdi>plain9</bdi>, ...</p>" in page, "ten places, and that there are more"
    assert "plain10" not in page
    assert page.index("inverted box") < page.index("grayscale image") < page.index("identical samples")


def test_numbers_are_those_of_the_document(pages):
    page = pages["plain"]
    cells = dict(re.findall(r'<td class="num" data-label="([^"]+)">([^<]+)</td>', page.partition('id="classes"')[0]))
    assert cells == {
        "Samples": "2", "Classes": "2", "Per class": "0 to 2", "Size": "40 × 30 to 400 × 300",  # noqa: RUF001
        "Boxes": "5", "Mean objectness": "25.00%",
    }  # fmt: skip
    flagged = re.findall(r"<tr class=flag>.*?<bdi>(\w+)</bdi>", page)
    assert flagged == ["spoon"], "it is missing from val"


def test_a_set_without_boxes_classes_or_pictures(tmp_path):
    empty = facts({}, boxes={}, sizes={}, samples=3)
    page = written(tmp_path / "a", document(splits={"all": empty}, across_splits=[], level="good"), {})
    assert re.findall(r'<section id="([a-z0-9-]+)"', page) == ["findings", "splits", "reproduce"]
    assert "Nothing stands out." in page
    assert escape("Nothing skipped, nothing odd") in page


def test_pages_of_ours_are_known(tmp_path):
    written(tmp_path / "page", document(), {})
    assert is_page(tmp_path / "page" / "index.html")
    (tmp_path / "b.html").write_text("<html>calibrant data inspect</html>")
    (tmp_path / "c.html").mkdir()
    assert not any(is_page(tmp_path / name) for name in ("b.html", "c.html", "d.html"))


def boxes_of(svg, kind):
    return [
        tuple(map(float, numbers))
        for numbers in re.findall(rf'<rect class="{kind}" x="(\S+)" y="(\S+)" width="(\S+)" height="(\S+)"', svg)
    ]


def test_bars_are_as_long_as_their_counts():
    svg = draw_balance("b", {"train": {"cup": 40, "spoon": 10}, "val": {"cup": 20}}, is_share=False)
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
    numbers = {f"class {k}": k for k in range(NAMED_CLASSES + 1)}
    svg = draw_balance("b", {"train": numbers}, is_share=False)
    assert boxes_of(svg, "filled s0") == []
    assert svg.count('class="curve') == 1


def test_shares_of_images_by_their_boxes():
    svg = draw_boxes_per_image("b", {"all": {"images_by_number": {"1": 3, "12": 1}}})
    (_, _, _, three), (_, _, _, one) = boxes_of(svg, "filled s0")
    assert three == pytest.approx(3 * one, abs=0.3)
    assert "10+ boxes: 25.00%" in svg


def test_an_outline_goes_from_the_ground_to_the_ground():
    part = {"edges": [0.0, 0.5, 1.0], "area_histogram": [1, 3]}
    svg = draw_histograms("h", {"all": part}, "area_histogram", "share of boxes")
    points = re.findall(r"[ML](\S+) ([^\s\"ML]+)", re.search(r'class="curve[^>]* d="([^"]+)"', svg)[1])
    heights = [float(y) for _, y in points]
    ground = 300 - 44  # the height of the chart without the room below the axis
    assert heights[0] == heights[-1] == ground
    assert ground - min(heights) == pytest.approx(3 * (ground - heights[1]), rel=0.02)


@pytest.mark.parametrize(("side", "kind"), [(8, "png"), (300, "jpeg")])
def test_pictures_are_in_the_page(side, kind):
    pixels = np.full((side, side, 3), 200, np.uint8)
    cell = Cell(pixels, "cup\nobjectness 0.5", np.array([[1.0, 2.0, 3.0, 6.0]]), ["cup"], (0.0, 0.0, 4.0, 5.0))
    html = captioned_picture(cell, colours_of([cell]))
    address = re.search(r'href="data:image/(\w+);base64,([^"]+)"', html)
    assert address[1] == kind
    shown = np.asarray(Image.open(io.BytesIO(base64.b64decode(address[2]))))
    assert shown.shape == pixels.shape
    assert np.abs(shown.astype(int) - 200).max() <= 2
    assert boxes_of(html, "box-frame s0") == [(1, 2, 2, 4)]
    assert boxes_of(html, "crop") == [(0, 0, 4, 5)]
    assert '<span class="says">cup</span><span>objectness 0.5</span>' in html
