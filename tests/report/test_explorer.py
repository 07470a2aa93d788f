"""The point on the risk-coverage curve in a real browser: what it says is what the document says."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.metrics import top_label
from calibrant.report import text
from tests.helpers.audit_document import drawn
from tests.helpers.browser import Open, browser, curves, folder, opened, value_of

#: One browser.
pytestmark = pytest.mark.slow
# Fixtures: a test that asks for one by name finds it here.
FIXTURES = (browser, folder, opened)


READ = """places => places.map((at) => {
  const slider = document.getElementById("rc-slider");
  slider.value = at;
  slider.dispatchEvent(new Event("input", { bubbles: true }));
  const items = [...document.querySelectorAll("#rc-out [data-o]")];
  return Object.fromEntries(items.map((e) => [e.dataset.o, e.textContent]));
})"""


def test_slider_and_document_agree(opened: Open) -> None:
    page = opened("three")
    for k, curve in enumerate(curves(page.document)):
        page.page.select_option("#rc-curve", str(k))
        places = [*range(0, len(curve["coverage"]), 7), len(curve["coverage"]) - 1]
        for at, reading in zip(places, page.run(READ, places), strict=True):
            risk, low, high = (curve[key][at] for key in ("risk", "risk_low", "risk_high"))
            # Half a unit of the last digit shown: two decimals, one more below 0.1%.
            for key, given in (("coverage", curve["coverage"][at]), ("risk", risk)):
                assert value_of(reading[key]) == pytest.approx(100 * given, abs=0.0051 if given >= 0.001 else 0.00051)
            assert value_of(reading["accepted"]) == curve["accepted"][at]
            assert value_of(reading["errors"]) == curve["errors"][at]
            assert float(reading["exact"].removeprefix("exactly ")) == curve["threshold"][at]
            assert reading["threshold"] == text.threshold(curve["threshold"][at])
            assert reading["risk"] == f"{text.percent(risk)} {text.span(low, high, 'share', risk)}"
            assert curve["label"] in reading["score"]


def test_first_reading_is_the_same_with_and_without_script(opened: Open) -> None:
    with_, without = opened("three"), opened("three", java_script_enabled=False)
    assert with_.page.locator("#rc-out").text_content() == without.page.locator("#rc-out").text_content()


AXES = """() => {
  const chart = document.getElementById("risk-chart");
  const ticks = [...chart.querySelectorAll("text.tick")].map((t) =>
    [t.classList.contains("end"), parseFloat(t.textContent) / 100, +t.getAttribute("x"), +t.getAttribute("y")]);
  const dot = chart.querySelector(".marker circle");
  return { ticks, dot: [+dot.getAttribute("cx"), +dot.getAttribute("cy")] };
}"""


def test_marker_lies_where_the_axes_say(opened: Open) -> None:
    page = opened("one")
    curve = curves(page.document)[0]
    for at in (len(curve["coverage"]) // 3, len(curve["coverage"]) - 1):
        page.slide(at)
        seen = page.run(AXES)
        xs = [(v, x) for is_y, v, x, _ in seen["ticks"] if not is_y]
        ys = [(v, y - 4) for is_y, v, _, y in seen["ticks"] if is_y]  # words sit 4 below their line
        across, down = np.polyfit(*zip(*xs, strict=True), 1), np.polyfit(*zip(*ys, strict=True), 1)
        assert seen["dot"][0] == pytest.approx(np.polyval(across, curve["coverage"][at]), abs=0.3)
        assert seen["dot"][1] == pytest.approx(np.polyval(down, curve["risk"][at]), abs=0.3)


def test_tab_reaches_the_slider_and_focus_is_seen(opened: Open) -> None:
    page = opened("one")
    for _ in range(60):
        page.page.keyboard.press("Tab")
        outline = page.run("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none", page.run("document.activeElement.outerHTML.slice(0, 90)")
        if page.run("document.activeElement.id") == "rc-slider":
            break
    else:
        pytest.fail("60 tabs did not reach the slider")
    order = []
    for _ in range(3):
        page.page.keyboard.press("Tab")
        order.append(page.run("document.activeElement.id"))
    assert order == ["rc-curve", "rc-by", "rc-number"]


def test_what_is_typed_is_searched_among_the_points(opened: Open) -> None:
    """The nearest coverage; the largest coverage of a risk, or of scores of at least a threshold."""
    page = opened("one")
    curve = curves(page.document)[0]
    coverage, risk, threshold, accepted = (np.array(curve[k]) for k in ("coverage", "risk", "threshold", "accepted"))
    searches = {
        "coverage": [(v, accepted[np.abs(coverage - v / 100).argmin()]) for v in (73.0, 12.5, 100.0, 0.0)],
        "risk": [(v, accepted[risk <= v / 100].max()) for v in (30.0, 15.0, 100.0)],
        "threshold": [(v, accepted[threshold >= v].max()) for v in (0.5, 0.95, curve["threshold"][100])],
    }
    for by, pairs in searches.items():
        page.page.select_option("#rc-by", by)
        for typed, expected in pairs:
            page.page.fill("#rc-number", repr(typed))
            assert value_of(page.shown("accepted")) == expected, (by, typed)
            assert page.page.input_value("#rc-number") == repr(typed), "what somebody types is left alone"
            assert page.status()
        before = page.shown("accepted")
        for typed in ("", *(("101", "-1") if by != "threshold" else ())):
            page.page.fill("#rc-number", typed)
            assert page.shown("accepted") == before
            assert not typed or {"0%", "100%."} <= set(page.status().split()), "what no share can be"
    page.page.fill("#rc-number", "2")  # a threshold that no score reaches
    assert value_of(page.shown("accepted")) == curve["accepted"][0]


def test_a_search_says_whether_it_is_exact(opened: Open) -> None:
    """A thinned curve has kept some points; the risks of the numbers are among them, counted here over all samples."""
    thinned, whole = opened("one"), opened("confidence")
    for page, is_whole in ((thinned, False), (whole, True)):
        assert page.document["models"][0]["curves"][0]["points_all"] is is_whole
        assert ("kept" not in page.page.locator("#explorer figcaption").text_content()) or not is_whole
        for by, typed in (("coverage", "73"), ("threshold", "0.61"), ("risk", "20")):
            page.page.select_option("#rc-by", by)
            page.page.fill("#rc-number", typed)
            assert ("kept" in page.status()) is not is_whole
    sample = drawn(3000, 10, 2.0)
    confidence, _, correct = top_label(sample.logits, sample.labels)
    errors = np.cumsum(~correct[np.argsort(-confidence, kind="stable")])
    ranks = np.arange(1, len(errors) + 1)
    thinned.page.select_option("#rc-by", "risk")
    for typed in (2, 5, 10):
        thinned.page.fill("#rc-number", str(typed))
        assert value_of(thinned.shown("accepted")) == ranks[errors * 100 <= typed * ranks].max()


def test_the_number_follows_the_slider(opened: Open) -> None:
    page = opened("one")
    curve = curves(page.document)[0]
    for by, scale in (("coverage", 100), ("risk", 100), ("threshold", 1)):
        page.page.select_option("#rc-by", by)
        page.slide(400)
        assert float(page.page.input_value("#rc-number")) == pytest.approx(scale * curve[by][400], rel=1e-3)


def test_choosing_a_curve_shows_its_interval_and_keeps_the_coverage(opened: Open) -> None:
    page = opened("three")
    page.slide(300)
    before = value_of(page.shown("coverage"))
    page.page.select_option("#rc-curve", "5")
    assert page.run("[...document.querySelectorAll('#risk-chart .on')].map(e => e.dataset.k)") == ["5", "5"]
    assert page.page.locator('#risk-chart .band[data-k="5"]').evaluate("e => getComputedStyle(e).display") != "none"
    assert page.page.locator('#risk-chart .band[data-k="0"]').evaluate("e => getComputedStyle(e).display") == "none"
    assert value_of(page.shown("coverage")) == pytest.approx(before, abs=0.2)
    assert "vit-b16.npz" in page.shown("score")


def test_pointing_at_the_chart_moves_the_point(opened: Open) -> None:
    page = opened("one")
    page.page.locator("#risk-chart").scroll_into_view_if_needed()
    box = page.page.locator("#risk-chart").bounding_box()
    page.page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + box["height"] * 0.5)
    page.page.mouse.down()
    first = value_of(page.shown("coverage"))
    page.page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + box["height"] * 0.5)
    second = value_of(page.shown("coverage"))
    page.page.mouse.up()
    page.page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + box["height"] * 0.5)
    assert 15 < first < 35
    assert 50 < second < 65
    assert value_of(page.shown("coverage")) == second


def test_a_curve_of_one_point(opened: Open) -> None:
    page = opened("minimal")
    assert value_of(page.shown("risk")) == 0
    page.page.locator("#rc-slider").press("ArrowLeft")
    assert page.shown("accepted") == "1"
    assert page.page.locator("#rc-curve").count() == 0
