"""The pages of data sets, demonstrations, papers, activation maps, images and watches: they show what they are given.

Lengths of bars, places of marks and the colours of ramps are worked out by hand.
"""

import base64
import io
import re
from itertools import pairwise

import numpy as np
import pytest
from PIL import Image

from calibrant import report
from calibrant.metrics import METRICS
from calibrant.report.html import (
    collect_abbreviations,
    data_page,
    explain_abbreviations,
    maps_page,
    mark_abbreviations,
    watch_page,
)
from calibrant.report.html.svg import nice_ticks, thinned
from tests.helpers import page_documents as documents
from tests.helpers.image_maps import image_maps
from tests.helpers.page_documents import arrival, batch_row, watch, watch_test
from tests.helpers.pages import Tree, page_of

ECE = '<abbr title="expected calibration error">ECE</abbr>'
LS = '<abbr title="Label smoothing">ls</abbr>'
METHODS = {"ls": "Label smoothing", "als+context": "Adaptive & more", "same": "Same"}


def pictures_of(page):
    for text in re.findall(r"data:image/png;base64,([A-Za-z0-9+/=]+)", page):
        yield np.asarray(Image.open(io.BytesIO(base64.b64decode(text))))


# ---------------------------------------------------------------------- data sets


def of_data(folder, made, sheets):
    report.write_data_page(folder / "data", made, sheets)
    return (folder / "data" / "index.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_data_set_is_summed_up_and_its_findings_are_said_once(tmp_path):
    page = of_data(tmp_path, documents.data_set("plain"), {"plain": documents.sheet("plain")})
    tree = Tree(page)
    assert tree.sections() == ["findings", "splits", "classes", "boxes", "pictures-0", "reproduce"]
    assert page.index("12 samples") < page.index('id="findings"')
    assert "calibrant data inspect plain" in tree.one("section", id="reproduce")["text"]
    found = tree.one("section", id="findings")["text"]
    assert found.count("grayscale image") == 1, "of two splits"
    assert "plain9" in found
    assert "plain10" not in page, "ten places are named"
    order = [found.index(words) for words in ("inverted box", "grayscale image", "identical samples")]
    assert order == sorted(order)
    cells = dict(re.findall(r'<td class="num" data-label="([^"]+)">([^<]+)</td>', page.partition('id="classes"')[0]))
    assert cells == {
        "Samples": "2", "Classes": "2", "Per class": "0 to 2", "Size": "40 × 30 to 400 × 300",  # noqa: RUF001
        "Boxes": "5", "Mean objectness": "25.00%",
    }  # fmt: skip
    assert re.findall(r"<tr class=flag>.*?<bdi>(\w+)</bdi>", page) == ["spoon"], "it is missing from val"


def test_a_set_without_boxes_classes_or_pictures(tmp_path):
    made = documents.data_set()
    empty = made["splits"]["train"] | {"class_counts": {}, "boxes": {}, "sizes": {}, "samples": 3, "odd": [],
                                       "skipped": []}  # fmt: skip
    page = of_data(tmp_path, made | {"splits": {"all": empty}, "across_splits": [], "level": "good"}, {})
    assert Tree(page).sections() == ["findings", "splits", "reproduce"]


def boxes_of(svg, kind):
    return [
        tuple(map(float, numbers))
        for numbers in re.findall(rf'<rect class="{kind}" x="(\S+)" y="(\S+)" width="(\S+)" height="(\S+)"', svg)
    ]


def test_bars_are_as_long_as_their_counts():
    svg = data_page.draw_balance("b", {"train": {"cup": 40, "spoon": 10}, "val": {"cup": 20}}, is_share=False)
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
    numbers = {f"class {k}": k for k in range(data_page.NAMED_CLASSES + 1)}
    svg = data_page.draw_balance("b", {"train": numbers}, is_share=False)
    assert boxes_of(svg, "filled s0") == []
    assert svg.count('class="curve') == 1


def test_shares_of_images_by_their_boxes():
    svg = data_page.draw_boxes_per_image("b", {"all": {"images_by_number": {"1": 3, "12": 1}}})
    (_, _, _, three), (_, _, _, one) = boxes_of(svg, "filled s0")
    assert three == pytest.approx(3 * one, abs=0.3)
    assert "10+ boxes: 25.00%" in svg


def test_an_outline_goes_from_the_ground_to_the_ground():
    part = {"edges": [0.0, 0.5, 1.0], "area_histogram": [1, 3]}
    svg = data_page.draw_histograms("h", {"all": part}, "area_histogram", "share of boxes")
    points = re.findall(r"[ML](\S+) ([^\s\"ML]+)", re.search(r'class="curve[^>]* d="([^"]+)"', svg)[1])
    heights = [float(y) for _, y in points]
    ground = 300 - 44  # the height of the chart without the room below the axis
    assert heights[0] == heights[-1] == ground
    assert ground - min(heights) == pytest.approx(3 * (ground - heights[1]), rel=0.02)


@pytest.mark.parametrize(("side", "kind"), [(8, "png"), (300, "jpeg")])
def test_pictures_are_in_the_page(side, kind):
    pixels = np.full((side, side, 3), 200, np.uint8)
    cell = report.Cell(pixels, "cup\nobjectness 0.5", np.array([[1.0, 2.0, 3.0, 6.0]]), ["cup"], (0.0, 0.0, 4.0, 5.0))
    html = data_page.captioned_picture(cell, data_page.colours_of([cell]))
    address = re.search(r'href="data:image/(\w+);base64,([^"]+)"', html)
    assert address[1] == kind
    shown = np.asarray(Image.open(io.BytesIO(base64.b64decode(address[2]))))
    assert shown.shape == pixels.shape
    assert np.abs(shown.astype(int) - 200).max() <= 2
    assert boxes_of(html, "box-frame s0") == [(1, 2, 2, 4)]
    assert boxes_of(html, "crop") == [(0, 0, 4, 5)]
    assert '<span class="says">cup</span><span>objectness 0.5</span>' in html


# ---------------------------------------------------------------------- the demonstration, papers


def test_answers_of_the_demonstration_are_pictures_with_their_truth(tmp_path):
    page = page_of(report.write_demonstration, tmp_path, documents.demonstration())
    assert [e["text"] for e in Tree(page).all("span", of_class="truth")] == ["right", "wrong: <dog>"]
    assert page.count(f'src="data:image/png;base64,{documents.DOT}"') == 2


def test_the_page_of_a_paper_has_figure_table_notes_and_the_command(tmp_path):
    figure = tmp_path / "fig.svg"
    figure.write_text("<svg xmlns='http://www.w3.org/2000/svg'></svg>")
    parts = [
        report.PaperPart("fig1", figure=figure),
        report.PaperPart("Table 1", text="One run of ls.", table="<table></table>"),
    ]
    report.write_paper_page(
        tmp_path / "page.html", title="X <1>", lead="ECE of ls.", parts=parts, notes=["a < b"], files=["fig.svg"],
        command="calibrant paper x", methods={"ls": "Label smoothing", "ce": "Cross-entropy"},
    )  # fmt: skip
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    for words in ("data:image/svg+xml;base64,", "<table></table>", "One run of ", "a &lt; b", "calibrant paper x", LS):
        assert words in page
    assert "<1>" not in page
    assert "<dt>ls</dt><dd>Label smoothing</dd>" in page
    assert "Cross-entropy" not in page, "it is not named"
    tree = Tree(page)
    assert [e["tag"] for e in tree.children(tree.one("div", of_class="lead"))] == ["p"], (
        "a grid would put it on two lines"
    )


def marked(html, methods=None):
    return mark_abbreviations(html, collect_abbreviations(methods), in_names=bool(methods))


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<p>an ECE of 2%</p>", f"<p>an {ECE} of 2%</p>"),
        ("<p>tuned for ece.</p>", f"<p>tuned for {ECE}.</p>"),  # a function's name is written as its label
        ("<p>ECE, then ece</p>", f"<p>{ECE}, then ECE</p>"),  # prose: the first of a section
        ("<th>ECE (%)</th><th>ECE</th>", f"<th>{ECE} (%)</th><th>{ECE}</th>"),  # heads stand by themselves
        ("<p>E-AURC</p>", '<p><abbr title="excess area under the risk-coverage curve">E-AURC</abbr></p>'),
        ("<p>piece, ECEs, ranks-ece.md, --ece, a/ece, ece=3</p>",) * 2,
        ('<td data-label="ECE" title="ECE">1</td>',) * 2,
        ("<code>ece</code><pre>ece</pre><svg><text>ECE</text></svg><button>ECE</button>",) * 2,
        ("<bdi>ece</bdi>",) * 2,  # a class may be called so
        ("<p>ls</p>",) * 2,  # of no method of the page
    ],
)
def test_metrics(html, expected):
    assert marked(html) == expected


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<th><bdi>ls, tuned for ece</bdi></th>", f"<th><bdi>{LS}, tuned for {ECE}</bdi></th>"),
        ("<h3>LS + temperature</h3>", f"<h3>{LS.replace('ls', 'LS')} + temperature</h3>"),
        ("<li>als+context</li>", '<li><abbr title="Adaptive &amp; more">als+context</abbr></li>'),
        ("<li>als and mbls, same</li>",) * 2,
    ],
)
def test_methods(html, expected):
    assert marked(html, METHODS) == expected


def test_only_what_is_marked_is_explained():
    html = marked("<p>ls has a lower ECE</p>", METHODS)
    explained = explain_abbreviations(html, collect_abbreviations(METHODS))
    assert explained == [
        ("ls", "Label smoothing"),
        ("ECE", f"expected calibration error: {METRICS['ece'].description}"),
    ]


def test_every_label_in_capitals_has_a_title():
    """Two capitals in a row, or one after a small letter, make an abbreviation; those of a part are explained by it."""
    entries = collect_abbreviations()
    for metric in METRICS.values():
        for word in re.findall(r"[\w-]*(?:[A-Z]{2}|[a-z][A-Z])[\w-]*", metric.label):
            assert {word.lower(), metric.label.lower()} & set(entries), metric.label


# ---------------------------------------------------------------------- activation maps and maps of an image


def test_activation_maps_have_their_pictures_marks_and_numbers(tmp_path):
    page = page_of(report.write_activation_page, tmp_path, documents.activations(), documents.pictures())
    assert page.count('href="data:image/png;base64,') == page.count("box-frame dashed") == 2 * 3
    classes = re.findall(r'<li class="(right|wrong)"><span aria-hidden="true">(.)</span>', page)
    assert classes == [("right", "✓"), ("wrong", "✗"), ("wrong", "✗")] * 2 + [("wrong", "✗")] * 6
    text = re.sub(r"<[^>]+>", "", page)
    for number in ("42.13%", "[39.10%,\u00a045.20%]", "+1.58\u00a0pp", "[+0.86,\u00a0+2.24]", "30.00%", "499", "498"):
        assert number in text
    assert text.count("50.00% inside the boxes") == 2, "not below an image without objects"
    without = documents.activations(has_boxes=False, measured=0, area=None)
    assert 'id="shares"' not in page_of(report.write_activation_page, tmp_path, without, documents.pictures())


def of_maps(path, maps):
    report.write_maps_page(path, maps, created="2026-11-17", command="calibrant maps runs --image x")


def test_the_page_of_an_image_shows_what_was_painted_and_said(tmp_path, monkeypatch):
    maps = image_maps()
    page = page_of(of_maps, tmp_path, maps)
    shown = list(pictures_of(page))
    expected = [maps.picture, maps.truth_map()]
    painted = [maps.maps_of(method) for method in maps.methods]
    for kind in ("prediction", "confidence", "rank", "normalised_rank"):
        expected += [part[kind] for part in painted]
    assert all(np.array_equal(a, b) for a, b in zip(shown, expected, strict=True))
    for text in ("Cross-entropy", "calibrant maps runs --image x", "void", "25.00%", "p = 3"):
        assert text in page
    monkeypatch.setattr(maps_page, "LARGEST", 10)
    assert next(pictures_of(page_of(of_maps, tmp_path, maps))).shape == (6, 8, 3), "large maps are thinned"


def test_classes_have_their_colours_and_void_is_grey():
    painted = maps_page.paint_labels(np.array([[0, 2], [255, -1]]), 3)
    assert painted[0, 1].tolist() == [round(255 * c) for c in report.label_colours(3)[2]]
    assert painted[0, 0].tolist() != painted[0, 1].tolist()
    assert painted[1].tolist() == [list(maps_page.VOID), list(maps_page.VOID)]


def test_ramps_reach_from_their_first_to_their_last_colour():
    for ramp in (maps_page.CONFIDENCE, maps_page.RANK):
        ends = maps_page.paint_ramp(np.array([[0.0, 1.0]]), ramp)[0]
        assert ["#" + bytes(end.tolist()).hex() for end in ends] == [ramp[0], ramp[-1]]
    between = maps_page.paint_ramp(np.array([[1 / 6]]), maps_page.CONFIDENCE)[0, 0]  # of the first two
    assert between.tolist() == [round((0xF7 + 0x9E) / 2), round((0xFB + 0xCA) / 2), round((0xFF + 0xE1) / 2)]


def test_only_wrong_pixels_have_a_colour():
    picture = np.zeros((1, 2, 3), np.uint8)
    painted = maps_page.paint_wrong(picture, np.zeros((1, 2)), np.array([[True, False]]))
    assert "#" + bytes(painted[0, 0].tolist()).hex() == maps_page.RANK[0]
    assert len(set(painted[0, 1].tolist())) == 1


# ---------------------------------------------------------------------- watches


def test_names_of_batches_and_groups_are_escaped(tmp_path):
    page = page_of(report.write_watch, tmp_path, watch())
    assert all(text in page for text in ("7.00%", "north &amp; &lt;east&gt;", "&lt;week3&gt;"))
    assert "<week3>" not in page


def test_the_batches_that_broke_the_promise_come_first(tmp_path):
    content = watch()
    breaking = {"batches": ["week3.parquet"], "errors": 33, "answers": 300, "value": 0.11}
    content["alarms"][0] |= {"breaking": breaking, "next": "Label more answers."}
    content["acknowledged"] = [{"text": "mended <it>", "date": "2026-01-01", "batches": 2, "tests": []}]
    page = page_of(report.write_watch, tmp_path, content)
    assert page.index("11.00%") < page.index("7.00%")
    assert "Label more answers." in page
    assert "mended &lt;it&gt;" in page


def test_axes_carry_the_names_of_batches():
    rows = [batch_row(f"week{k}") for k in range(1, 4)]
    svg = watch_page.draw_coverage("c", rows, 0.5)
    assert all(f">week{k}</text>" in svg for k in (1, 2, 3))
    many = watch_page.draw_coverage("c", [batch_row(f"a-long-name-of-week{k}.parquet") for k in range(1000)], 0.5)
    shown = re.findall(r">week(\d+)</text>", many)  # without what all of them have in common
    assert len(shown) == len(set(shown)) >= 4
    assert len(marks_of(many)) <= 302


@pytest.mark.parametrize("missing", ["labels", "sketch", "everything"])
def test_parts_that_are_not_there_are_left_out(tmp_path, missing):
    content = watch()
    if missing in ("labels", "everything"):
        content["risk"] |= {"answers": 0, "value": None, "low": None, "high": None, "arrivals": []}
        content["groups"], content["alarms"] = [], []
        content["tests"] = content["tests"][1:]
    if missing in ("sketch", "everything"):
        content["tests"] = [test for test in content["tests"] if test["name"] in ("promise", "coverage")]
        content["total_variation"], content["label_shift"] = {}, None
    if missing == "everything":
        content |= {"batches": [], "tests": [], "implied_risk": None, "coverage": {"value": None}}
    page = page_of(report.write_watch, tmp_path, content)
    assert ('id="promise"' in page) == (missing == "sketch")
    assert ('id="labels"' in page) == (missing == "labels")


def marks_of(svg, kind="looked"):
    return [float(y) for y in re.findall(rf'class="{kind}[^"]*" cx="[\d.]+" cy="([\d.-]+)"', svg)]


def level(svg):
    return float(re.search(r'class="promised" x1="[\d.]+" y1="([\d.]+)"', svg)[1])


def test_a_rate_above_the_promise_lies_above_its_line():
    svg = watch_page.draw_rates("r", [arrival("a", 2, 100, 0.0, 0.1), arrival("b", 9, 100, 0.02, 0.1)], 0.05)
    low, high = marks_of(svg)
    assert high < level(svg) < low
    assert "9.00%" in svg


def test_coverage_lies_where_its_share_of_the_axis_is():
    svg = watch_page.draw_coverage("c", [batch_row("a", coverage=0.0), batch_row("b", coverage=1.0)], 0.5)
    low, high = marks_of(svg)
    assert level(svg) == (low + high) / 2


def test_evidence_beyond_all_doubt_stays_in_the_picture():
    svg = watch_page.draw_evidence(
        "e", [watch_test("promise", [0.0, 900.0], "week2.parquet"), watch_test("score", [-50.0, -60.0])]
    )
    assert min(marks_of(svg)) >= 0
    assert "The promise" in svg


# ---------------------------------------------------------------------- the canvas


def test_ticks_are_round_and_inside():
    assert nice_ticks(0, 1, 5) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert nice_ticks(-3.1, 12.4, 5) == pytest.approx([0, 5, 10])
    assert nice_ticks(0, 7, 7) == pytest.approx(range(8))


def test_thinned_lines_stay_where_they_were():
    rng = np.random.default_rng(0)
    line = [(float(x), float(y)) for x, y in zip(np.arange(400), rng.normal(size=400).cumsum(), strict=True)]
    fewer = thinned(line, 0.5)
    assert 2 < len(fewer) < len(line)
    xs, ys = zip(*fewer, strict=True)
    assert (fewer[0], fewer[-1]) == (line[0], line[-1])
    # Vertical distance is at least the perpendicular one: bound it through the steepest slope.
    steep = max(abs((b[1] - a[1]) / (b[0] - a[0])) for a, b in pairwise(fewer))
    assert np.abs(np.interp(np.arange(400), xs, ys) - [p[1] for p in line]).max() <= 0.5 * np.hypot(1, steep)
    assert thinned([], 1.0) == []
    assert thinned([(1.0, 2.0)], 1.0) == [(1.0, 2.0)]
