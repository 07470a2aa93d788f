"""Every page in a real browser: it fits its window and can be read; tables sort; print and scripts that are off."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrant.metrics import top_label
from calibrant.report import text
from tests.helpers.audit_document import HOSTILE, Document, document, drawn
from tests.helpers.browser import Open, browser, curves, folder, opened, value_of
from tests.helpers.pages import WRITERS

#: One browser, and a page of every kind.
pytestmark = pytest.mark.slow
# Fixtures: a test that asks for one by name finds it here.
FIXTURES = (browser, folder, opened)

#: What is wider than the window, what leaves it outside of any box that scrolls, and which words fill two lines.
LOOK = r"""() => {
  for (const fold of document.querySelectorAll("details")) fold.open = true;
  const width = document.documentElement.clientWidth;
  const boxed = (e) => {
    for (let up = e.parentElement; up && up !== document.body; up = up.parentElement)
      if (getComputedStyle(up).overflowX !== "visible") return true;
    return false;
  };
  const name = (e) => e.tagName + "." + (e.getAttribute("class") || "") + ": " + e.textContent.trim().slice(0, 40);
  const seen = [...document.querySelectorAll("body *")].filter((e) => e.checkVisibility() &&
    !e.closest("script, style, defs, .skip, .unseen, .symbols") && e.getBoundingClientRect().width > 1);
  const outside = seen.filter((e) => {
    const { left, right } = e.getBoundingClientRect();
    return (left < -0.5 || right > width + 0.5) && !boxed(e);
  }).map(name);
  const broken = [], owners = new Set(seen);
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = texts.nextNode(); node; node = texts.nextNode()) {
    const owner = node.parentElement;
    if (!owners.has(owner) || owner.closest("bdi, code, pre, svg, .file, .clip, option")) continue;
    for (const word of node.data.matchAll(/\p{L}{2,}/gu)) {
      const range = document.createRange();
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      if (new Set([...range.getClientRects()].map((r) => Math.round(r.top))).size > 1) broken.push(word[0]);
    }
  }
  const scrolled = seen.filter((e) => e.matches(".scroll") && e.scrollWidth > e.clientWidth + 1)
    .map((e) => e.getAttribute("aria-label"));
  return { width: document.documentElement.scrollWidth, outside, broken, scrolled };
}"""


CONTRAST = """() => {
  const parse = (c) => c.match(/[\\d.]+/g).map(Number);
  const linear = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const found = {};
  for (const e of document.querySelectorAll("body *")) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.checkVisibility() || e.closest("script,style,title,desc,option,.unseen,.skip")) continue;
    let under = e, ground;
    do { ground = parse(getComputedStyle(under).backgroundColor); under = under.parentElement; }
    while (under && ground.length === 4 && ground[3] === 0);
    const style = getComputedStyle(e);
    const ink = parse(e.namespaceURI.endsWith("svg") ? style.fill : style.color);
    const [a, b] = [light(ink), light(ground)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) found[e.tagName + "." + (e.getAttribute("class") || "")] = ratio;
  }
  return found;
}"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {kind: tmp_path_factory.mktemp("kinds") / "page.html" for kind in WRITERS}
    for kind, path in made.items():
        WRITERS[kind](path)
    return made


@pytest.fixture(scope="module", params=[(390, "dark"), (1280, "light")], ids=str)
def window(browser: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    width, scheme = request.param
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    yield context.new_page()
    context.close()


@pytest.mark.parametrize("kind", WRITERS)
def test_pages_open_quietly_fit_their_window_and_can_be_read(window: Any, pages: dict[str, Path], kind: str) -> None:
    address, noise = pages[kind].as_uri(), []
    listeners = {
        "console": lambda message: noise.append(message.text),
        "pageerror": lambda error: noise.append(str(error)),
        "request": lambda request: request.url in (address, "data:,") or noise.append(request.url[:200]),
    }
    for event, listener in listeners.items():
        window.on(event, listener)
    window.goto(address)
    look = window.evaluate(LOOK)
    for event, listener in listeners.items():
        window.remove_listener(event, listener)
    assert [line for line in noise if not line.startswith("data:image/")] == []
    assert look["width"] <= window.viewport_size["width"]
    assert look["outside"] == []
    assert kind.startswith("hostile") or look["broken"] == []
    assert kind.startswith("hostile") or look["scrolled"] == [], "a table that scrolls hides its last columns"
    assert window.evaluate(CONTRAST) == {}, "WCAG 2.1, 1.4.3"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_verdict_can_be_read_on_its_ground(opened: Open, scheme: str) -> None:
    page = opened("minimal", color_scheme=scheme)
    for level in ("good", "fair", "poor", "unknown"):
        page.run("level => { document.querySelector('.verdict').className = `verdict ${level}`; }", level)
        assert page.run(CONTRAST) == {}
    ground = page.run("getComputedStyle(document.body).backgroundColor")
    brightness = sum(map(int, re.findall(r"\d+", ground)[:3])) / 3
    assert brightness > 230 if scheme == "light" else brightness < 50


def test_tables_of_files_fit_a_phone(opened: Open) -> None:
    """No table of differences scrolls sideways, and every cell says whose it is."""
    page = opened("two", width=360, height=740)
    assert page.run(
        "[...document.querySelectorAll('table.stack')].every(t => t.parentNode.scrollWidth <= t.parentNode.clientWidth)"
    )
    labels = page.run(
        "[...document.querySelectorAll('#comparisons td')]"
        ".map(t => getComputedStyle(t, '::before').content.slice(1, -1))"
    )
    pair = page.document["comparisons"][0]
    assert labels[:2] == [pair["first"], pair["second"]]
    page.page.set_viewport_size({"width": 1280, "height": 900})
    widths = page.run("[...document.querySelectorAll('#reliability figure')].map(e => e.getBoundingClientRect().width)")
    row = page.run("document.querySelector('#reliability .multiples').getBoundingClientRect().width")
    assert sum(widths) > 0.94 * row, "two charts share the row"


def test_long_names_are_cut_and_shown_whole_on_a_click(opened: Open) -> None:
    page = opened("segmentation")
    name = page.page.locator("#classes-0 .clip").filter(has_text="goes on").first
    height = name.bounding_box()["height"]
    assert name.get_attribute("title") == name.text_content()
    name.click()
    assert name.bounding_box()["height"] > height


def test_print_has_no_controls_and_light_colours(opened: Open) -> None:
    page = opened("three", color_scheme="dark", width=690)
    page.page.emulate_media(media="print", color_scheme="dark")
    assert page.visible("input, select, .tools button, .copy, .contents, summary") == []
    assert page.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.page.locator("#rc-out").is_visible()
    assert page.page.locator("#classes-0 tbody tr").first.is_visible()
    assert page.run("document.documentElement.scrollWidth") <= 690, "the width of A4 between its margins"
    assert page.page.pdf(format="A4").startswith(b"%PDF")


def test_without_scripts_all_is_there(opened: Open) -> None:
    page = opened("many", java_script_enabled=False)
    rows = page.document["models"][0]["classes_table"]
    assert page.page.locator("#classes-0 tbody tr").count() == len(rows)
    assert page.page.locator("#classes-0 tbody tr").last.is_visible()
    assert [c for c in page.page.locator("input, select, button").all() if c.is_visible()] == []
    curve = curves(page.document)[0]
    at = int(np.abs(np.array(curve["coverage"]) - 0.9).argmin())
    assert value_of(page.shown("accepted")) == curve["accepted"][at]


def test_pointing_at_a_method_fades_the_others(browser: Any, pages: dict[str, Path]) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    page = context.new_page()
    page.goto(pages["comparison"].as_uri())
    page.hover("#risk .legend li.s3")
    shown = "k => getComputedStyle(document.querySelector(`#risk-chart .drawn.s${k}`)).opacity"
    opacity = [float(page.evaluate(shown, k)) for k in (3, 4, 13)]
    assert opacity[0] == 1 > 0.5 > opacity[1] == opacity[2]
    context.close()


# ---------------------------------------------------------------------- tables


def surely_off(row: Document) -> tuple[bool, float]:
    """The order of a table: flagged, then how far the interval of the gap is from 0, below 0 if 0 is inside."""
    low, high = row["gap_low"], row["gap_high"]
    return row["flag"], low if low + high > 0 else -high


def with_unknowns() -> Document:
    """The worst class, shown first, has no ECE; another one has next to nothing."""
    made = document("one")
    rows = made["models"][0]["classes_table"]
    worst = max(rows, key=surely_off)
    worst["ece"] = None
    for key in ("ece", "gap", "gap_low", "gap_high", "accuracy"):
        rows[3 if rows[3] is not worst else 4][key] = None
    return made


def test_sorting_by_mouse(opened: Open) -> None:
    page = opened("one", changed=with_unknowns())
    rows = page.document["models"][0]["classes_table"]
    known = sorted((r for r in rows if r["ece"] is not None), key=lambda r: r["ece"])
    unknown = [r["name"] for r in sorted((r for r in rows if r["ece"] is None), key=lambda r: r["gap"] is None)]
    assert page.column("classes-0", 0)[:: len(rows) - 1] == unknown
    heads = page.page.locator("#classes-0 thead th")
    ece = heads.nth(5)
    assert ece.get_attribute("aria-sort") is None
    came = page.column("classes-0", 0)
    for direction, expected in (("descending", known[::-1]), ("ascending", known), (None, None)):
        ece.locator("button").click()
        assert ece.get_attribute("aria-sort") == direction
        # What is not known comes last, whichever way; a third click brings back what was there at first.
        shown = came if expected is None else [r["name"] for r in expected] + unknown
        assert page.column("classes-0", 0) == shown
    heads.nth(0).locator("button").click()
    assert [h.get_attribute("aria-sort") for h in heads.all()] == ["ascending", *[None] * 6]
    assert page.column("classes-0", 0) == sorted(r["name"] for r in rows)


def test_errors_sort_by_words_and_numbers(opened: Open) -> None:
    page = opened("three")  # the sample ids of these files are numbers
    page.page.locator('.tools[data-table="errors-0"] button').click()
    page.page.locator("#errors-0 thead button").first.click()
    ids = [int(i) for i in page.column("errors-0", 0)]
    assert ids == sorted(e["id"] for e in page.document["models"][0]["errors"])


def test_of_many_classes_come_the_worst_thirty_first(opened: Open) -> None:
    page = opened("many")
    rows = page.document["models"][0]["classes_table"]
    tools = page.page.locator('.tools[data-table="classes-0"]')
    worst = sorted(rows, key=surely_off, reverse=True)[:30]
    assert page.column("classes-0", 0) == [r["name"] for r in worst]
    assert {"30", f"{len(rows)}"} <= set(tools.locator(".status").text_content().split())

    page.page.locator("#classes-0 thead button").nth(2).click()
    largest = sorted((r["count"] for r in rows), reverse=True)[:30]
    assert [value_of(c) for c in page.column("classes-0", 2)] == largest, "all rows are sorted, not only those shown"

    find = tools.locator("input")
    find.fill("CLASS 012")
    assert sorted(page.column("classes-0", 0)) == [r["name"] for r in rows if r["name"].startswith("class 012")]
    find.fill("no such class")
    assert page.column("classes-0", 0) == []
    assert "30" not in tools.locator(".status").text_content()
    find.fill("")
    tools.locator("button").click()
    assert len(page.column("classes-0", 0)) == len(rows)
    tools.locator("button").click()
    assert len(page.column("classes-0", 0)) == 30


def test_copying_the_command(opened: Open) -> None:
    page = opened("one")
    page.page.locator("button.copy").first.click()
    # Where the browser forbids the clipboard, the command is selected instead.
    page.page.wait_for_function(
        "document.querySelector('button.copy').textContent === 'Copied' || String(getSelection()).trim().length > 0"
    )
    selected = page.run("String(getSelection()).trim()")
    assert selected in ("", page.document["reproduce"])


# ---------------------------------------------------------------------- hostile names


def test_hostile_names_do_nothing_and_are_shown(opened: Open) -> None:
    page = opened("hostile")
    page.page.wait_for_timeout(200)
    assert page.noise == []
    assert page.run("document.scripts.length") == 2
    assert page.run("document.querySelectorAll('img, b, iframe, object').length") == 0
    names = page.run("[...document.querySelectorAll('#classes-0 tbody th bdi')].map(e => e.textContent)")
    assert sorted(names) == sorted(r["name"] for r in page.document["models"][0]["classes_table"])
    page.page.locator("#classes-0 thead button").first.click()
    assert sorted(page.column("classes-0", 0)) == sorted(names)
    for k, curve in enumerate(curves(page.document)):
        page.page.select_option("#rc-curve", str(k))
        assert curve["label"] in page.shown("score")
    assert page.run("document.title") == HOSTILE[1]
    assert page.run("document.querySelectorAll('img, b').length") == 0


# ---------------------------------------------------------------------- the point on the risk-coverage curve

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
