"""The audit page in a real browser: what moves, sorts, prints, and what hostile names can do (nothing).

Without a browser (chromium, google-chrome, or the one CALIBRANT_BROWSER names) or without playwright these tests skip;
with CALIBRANT_REQUIRE_BROWSER set they fail instead.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrant.report import text, write_audit
from tests import audit_document as documents

ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
MADE = {
    "one": documents.document,
    "three": documents.three_files,
    "two": documents.two_files,
    "many": documents.many_classes,
    "confidence": documents.confidence_only,
    "segmentation": documents.segmentation,
    "hostile": documents.hostile,
    "minimal": documents.minimal,
}


def absent(words: str) -> None:
    if os.environ.get("CALIBRANT_REQUIRE_BROWSER"):
        pytest.fail(f"{words}, and CALIBRANT_REQUIRE_BROWSER is set")
    pytest.skip(words)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    names = ("chromium", "chromium-browser", "google-chrome")
    path = os.environ.get("CALIBRANT_BROWSER") or next(filter(None, map(shutil.which, names)), None)
    if path is None:
        absent(f"no browser: none of {', '.join(names)} is installed and CALIBRANT_BROWSER names none")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        absent("no browser: playwright is not installed")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield running
        running.close()


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


class Opened:
    """A page, its document, and everything it did that it should not."""

    def __init__(self, page: Any, path: Path, document: documents.Document) -> None:
        self.page, self.document = page, document
        self.noise: list[str] = []
        page.on("console", lambda m: self.noise.append(f"console: {m.text}"))
        page.on("pageerror", lambda e: self.noise.append(f"error: {e}"))
        page.on("dialog", lambda d: (self.noise.append(f"dialog: {d.message}"), d.dismiss()))
        page.on("request", lambda r: r.url == path.as_uri() or self.noise.append(f"request: {r.url}"))
        page.goto(path.as_uri())

    def run(self, script: str, *arguments: Any) -> Any:
        return self.page.evaluate(script, *arguments)

    def shown(self, key: str) -> str:
        return self.page.locator(f'#rc-out [data-o="{key}"]').text_content()

    def status(self) -> str:
        return self.page.locator("#rc-status").text_content()

    def visible(self, selector: str) -> list[str]:
        return self.run(
            "s => [...document.querySelectorAll(s)].filter(e => e.checkVisibility()).map(e => e.outerHTML)",
            selector,
        )

    def slide(self, to: int) -> None:
        self.run(
            "to => { const s = document.getElementById('rc-slider'); s.value = to;"
            " s.dispatchEvent(new Event('input', { bubbles: true })); }",
            to,
        )

    def column(self, table: str, column: int) -> list[str]:
        """The texts of a column's visible cells, from top to bottom."""
        return self.run(
            "([id, k]) => [...document.querySelectorAll(`#${id} tbody tr:not([hidden])`)].map("
            "r => (r.cells[k].querySelector('bdi') || r.cells[k]).textContent)",
            [table, column],
        )


Open = Callable[..., Opened]


@pytest.fixture
def opened(browser: Any, folder: Path) -> Iterator[Open]:
    """Open a page; what it logged, asked for or popped up by the end of the test is an error."""
    contexts, pages = [], []

    def open_(
        name: str, *, document: documents.Document | None = None, width: int = 1280, height: int = 900, **settings: Any
    ) -> Opened:
        made = document or MADE[name]()
        path = folder / f"{name}.html"
        if document is not None or not path.exists():
            path = folder / (f"{name}.html" if document is None else f"{name}-own.html")
            write_audit(path, made)
        contexts.append(browser.new_context(viewport={"width": width, "height": height}, **settings))
        pages.append(Opened(contexts[-1].new_page(), path, made))
        return pages[-1]

    yield open_
    noise = [line for page in pages for line in page.noise]
    for context in contexts:
        context.close()
    assert not noise, noise


def curves(document: documents.Document) -> list[documents.Document]:
    return [c for m in document["models"] for c in m["curves"]]


def value_of(shown: str) -> float:
    """The number a text begins with, read as a person would."""
    match = re.match(r"(\u2212?)([\d,]*\.?\d+)(?:\xa0\xd7\xa010([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+))?", shown)
    assert match, shown
    power = (match[3] or "⁰").translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789"))
    return (-1 if match[1] else 1) * float(match[2].replace(",", "")) * 10.0 ** int(power)


# ---------------------------------------------------------------------- peace and quiet


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_open_without_a_word_or_a_request(opened: Open, name: str, scheme: str) -> None:
    page = opened(name, color_scheme=scheme)
    page.page.wait_for_load_state("networkidle")
    assert page.noise == []
    assert page.page.locator("h1").count() == 1


@pytest.mark.parametrize("name", MADE)
def test_no_page_is_wider_than_its_window(opened: Open, name: str) -> None:
    page = opened(name)
    for width in (320, 360, 768, 1280, 1920):
        page.page.set_viewport_size({"width": width, "height": 800})
        assert page.run("Math.max(document.documentElement.scrollWidth, document.body.scrollWidth)") <= width


@pytest.mark.parametrize("name", ["two", "three"])
def test_tables_of_files_fit_a_phone(opened: Open, name: str) -> None:
    """No table of differences scrolls sideways, and every cell says whose it is."""
    page = opened(name, width=360, height=740)
    assert page.run(
        "[...document.querySelectorAll('table.stack')].every(t => t.parentNode.scrollWidth <= t.parentNode.clientWidth)"
    )
    labels = page.run(
        "[...document.querySelectorAll('#comparisons td')].map(t => getComputedStyle(t, '::before').content.slice(1, -1))"
    )
    pair = page.document["comparisons"][0]
    assert labels[:4] == [pair["first"], pair["second"], "Difference", "Change"]


def test_two_charts_share_the_row(opened: Open) -> None:
    page = opened("two")
    widths = page.run("[...document.querySelectorAll('#reliability figure')].map(e => e.getBoundingClientRect().width)")
    row = page.run("document.querySelector('#reliability .multiples').getBoundingClientRect().width")
    assert len(widths) == 2
    assert sum(widths) > 0.94 * row


def test_long_names_are_cut_and_shown_whole_on_a_click(opened: Open) -> None:
    page = opened("segmentation")
    name = page.page.locator("#classes-0 .clip").filter(has_text="goes on").first
    height = name.bounding_box()["height"]
    assert name.get_attribute("title") == name.text_content()
    name.click()
    assert name.bounding_box()["height"] > height


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


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read_on_its_ground(opened: Open, scheme: str) -> None:
    """WCAG 2.1, 1.4.3: a contrast of at least 4.5 to 1."""
    page = opened("three", color_scheme=scheme)
    for level in ("good", "fair", "poor", "unknown"):
        page.run("level => { document.querySelector('.verdict').className = `verdict ${level}`; }", level)
        assert page.run(CONTRAST) == {}


def test_dark_scheme_changes_the_ground(opened: Open) -> None:
    grounds = [
        opened("one", color_scheme=scheme).run("getComputedStyle(document.body).backgroundColor")
        for scheme in ("light", "dark")
    ]
    brightness = [sum(map(int, re.findall(r"\d+", g)[:3])) / 3 for g in grounds]
    assert brightness[0] > 230
    assert brightness[1] < 50


@pytest.mark.parametrize("name", ["one", "three", "many"])
def test_print_has_no_controls_and_light_colours(opened: Open, name: str) -> None:
    page = opened(name, color_scheme="dark", width=690)
    page.page.emulate_media(media="print", color_scheme="dark")
    assert page.visible("input, select, .tools button, .copy, .contents, summary") == []
    assert page.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.page.locator("#rc-out").is_visible()
    assert page.page.locator("#classes-0 tbody tr").first.is_visible()
    assert page.run("document.documentElement.scrollWidth") <= 690, "the width of A4 between its margins"
    assert page.page.pdf(format="A4").startswith(b"%PDF")


def test_without_scripts_all_is_there(opened: Open) -> None:
    page = opened("many", java_script_enabled=False)
    assert page.page.locator("#classes-0 tbody tr").count() > 900
    assert page.page.locator("#classes-0 tbody tr").last.is_visible()
    assert [c for c in page.page.locator("input, select, button").all() if c.is_visible()] == []
    assert page.page.locator("#rc-out").is_visible()
    curve = curves(page.document)[0]
    at = int(np.abs(np.array(curve["coverage"]) - 0.9).argmin())
    assert value_of(page.shown("accepted")) == curve["accepted"][at]


# ---------------------------------------------------------------------- the point on the curve


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


def test_slider_by_keyboard(opened: Open) -> None:
    page = opened("one")
    curve = curves(page.document)[0]
    slider = page.page.locator("#rc-slider")
    slider.focus()
    for key, at in (
        ("Home", 0),
        ("ArrowRight", 1),
        ("ArrowUp", 2),
        ("ArrowLeft", 1),
        ("End", len(curve["coverage"]) - 1),
    ):
        slider.press(key)
        assert value_of(page.shown("accepted")) == curve["accepted"][at]
    assert slider.get_attribute("aria-valuetext").startswith("coverage 100.00%, risk ")


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


def test_typing_a_coverage(opened: Open) -> None:
    page = opened("one")
    curve = curves(page.document)[0]
    coverage = np.array(curve["coverage"])
    for typed in (73.0, 12.5, 100.0, 0.0):
        page.page.fill("#rc-number", str(typed))
        assert value_of(page.shown("accepted")) == curve["accepted"][int(np.abs(coverage - typed / 100).argmin())]
        assert page.page.input_value("#rc-number") == str(typed), "what somebody types is left alone"
        assert page.status().startswith("Nearest kept point: coverage")
    before = page.shown("accepted")
    page.page.fill("#rc-number", "")
    assert page.shown("accepted") == before


@pytest.mark.parametrize("by", ["coverage", "risk"])
def test_typing_what_no_share_can_be(opened: Open, by: str) -> None:
    page = opened("one")
    page.page.select_option("#rc-by", by)
    before = page.shown("accepted")
    for typed in ("101", "150", "-1"):
        page.page.fill("#rc-number", typed)
        assert page.status() == f"A {by} lies between 0% and 100%."
        assert page.shown("accepted") == before
    page.page.fill("#rc-number", "100")
    assert "lies between" not in page.status()


def test_a_search_says_whether_it_is_exact(opened: Open) -> None:
    thinned, whole = opened("one"), opened("confidence")
    words = {
        "coverage": ("73", "Nearest kept point: ", "Nearest point: "),
        "threshold": ("0.61", "Nearest kept point with a threshold of at least 0.61: ", "Scores of at least 0.61: "),
        "risk": (
            "7",
            "Largest coverage among the points kept with a risk of at most 7%: ",
            "Largest coverage with a risk of at most 7%: ",
        ),
    }
    for page, k in ((thinned, 1), (whole, 2)):
        assert page.document["models"][0]["curves"][0]["points_all"] is (page is whole)
        for by, said in words.items():
            page.page.select_option("#rc-by", by)
            page.page.fill("#rc-number", said[0])
            assert page.status().startswith(said[k])
    caption = "#explorer figcaption"
    assert "keeps some points" in thinned.page.locator(caption).text_content()
    assert "keeps some points" not in whole.page.locator(caption).text_content()


def test_the_risks_of_the_numbers_are_found_exactly(opened: Open) -> None:
    """A thinned curve holds the points of round risks: counted over all the samples by hand."""
    page = opened("one")
    sample = documents.Sample(0, 10_000, 10, 2.0)
    errors = np.cumsum(~sample.right[np.argsort(-sample.confidence, kind="stable")])
    ranks = np.arange(1, len(errors) + 1)
    page.page.select_option("#rc-by", "risk")
    for typed in (1, 2, 5, 10):
        page.page.fill("#rc-number", str(typed))
        assert value_of(page.shown("accepted")) == ranks[errors * 100 <= typed * ranks].max()


def test_typing_a_threshold(opened: Open) -> None:
    page = opened("one")
    curve = curves(page.document)[0]
    page.page.select_option("#rc-by", "threshold")
    threshold = np.array(curve["threshold"])
    for typed in (0.5, 0.95, curve["threshold"][100]):
        page.page.fill("#rc-number", repr(typed))
        # Accepted are the scores of at least the threshold: of the points that say so, the one that covers most.
        assert value_of(page.shown("accepted")) == np.array(curve["accepted"])[threshold >= typed].max()
    page.page.fill("#rc-number", "2")
    assert value_of(page.shown("accepted")) == curve["accepted"][0]
    assert "No kept point has a threshold that high" in page.status()


def test_typing_a_risk(opened: Open) -> None:
    page = opened("one")
    page.page.select_option("#rc-curve", "1")
    curve = curves(page.document)[1]
    page.page.select_option("#rc-by", "risk")
    risk, accepted = np.array(curve["risk"]), np.array(curve["accepted"])
    for typed in (5.0, 1.0, 100.0):
        page.page.fill("#rc-number", str(typed))
        assert value_of(page.shown("accepted")) == accepted[risk <= typed / 100].max()
    page.slide(400)
    page.page.fill("#rc-number", "0")
    assert value_of(page.shown("risk")) == pytest.approx(100 * risk.min(), abs=0.005)
    assert ("No kept point has a risk that low" in page.status()) == (risk.min() > 0)


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
    assert "resnet50-acls.npz" in page.shown("score")


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
    assert page.shown("risk").strip() == "0.00%"
    page.page.locator("#rc-slider").press("ArrowLeft")
    assert page.shown("accepted") == "1"
    assert page.page.locator("#rc-curve").count() == 0


# ---------------------------------------------------------------------- tables


def surely_off(row: documents.Document) -> tuple[bool, float]:
    """The order of a table: flagged, then how far the interval of the gap is from 0, below 0 if 0 is inside."""
    low, high = row["gap_low"], row["gap_high"]
    return row["flag"], low if low + high > 0 else -high


def with_unknowns() -> documents.Document:
    """The worst class, shown first, has no ECE; another one has next to nothing."""
    made = documents.document()
    rows = made["models"][0]["classes_table"]
    max(rows, key=surely_off)["ece"] = None
    for key in ("ece", "gap", "gap_low", "gap_high", "accuracy"):
        rows[3][key] = None
    return made


def test_sorting_by_mouse(opened: Open) -> None:
    page = opened("one", document=with_unknowns())
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


def test_sorting_by_keyboard(opened: Open) -> None:
    page = opened("one")
    rows = page.document["models"][0]["classes_table"]
    by_count = [r["count"] for r in sorted(rows, key=lambda r: r["count"])]
    button = page.page.locator("#classes-0 thead th").nth(1).locator("button")
    button.focus()
    page.page.keyboard.press("Enter")
    assert [value_of(c) for c in page.column("classes-0", 1)] == by_count[::-1]
    page.page.keyboard.press("Space")
    assert [value_of(c) for c in page.column("classes-0", 1)] == by_count
    page.page.keyboard.press("Tab")
    assert page.run("document.activeElement.textContent") == "Accuracy"


def test_errors_sort_by_words_and_numbers(opened: Open) -> None:
    page = opened("three")  # the sample ids of these files are numbers
    page.page.locator('.tools[data-table="errors-0"] button').click()
    page.page.locator("#errors-0 thead button").first.click()
    ids = [int(i) for i in page.column("errors-0", 0)]
    assert ids == sorted(e["id"] for e in page.document["models"][0]["errors"])


def test_a_thousand_classes_show_the_worst_thirty_first(opened: Open) -> None:
    page = opened("many")
    rows = page.document["models"][0]["classes_table"]
    tools = page.page.locator('.tools[data-table="classes-0"]')
    worst = sorted(rows, key=surely_off, reverse=True)[:30]
    assert page.column("classes-0", 0) == [r["name"] for r in worst]
    assert f"30 of {len(rows):,} classes" in tools.locator(".status").text_content()

    page.page.locator("#classes-0 thead button").nth(1).click()
    largest = sorted((r["count"] for r in rows), reverse=True)[:30]
    assert [value_of(c) for c in page.column("classes-0", 1)] == largest, "all rows are sorted, not only those shown"

    find = tools.locator("input")
    find.fill("CLASS 012")
    assert sorted(page.column("classes-0", 0)) == [r["name"] for r in rows if r["name"].startswith("class 012")]
    find.fill("no such class")
    assert page.column("classes-0", 0) == []
    assert tools.locator(".status").text_content() == "No class matches"
    find.fill("")
    tools.locator("button").click()
    assert len(page.column("classes-0", 0)) == len(rows)
    tools.locator("button").click()
    assert len(page.column("classes-0", 0)) == 30


def test_numbers_behind_a_figure_unfold_by_keyboard(opened: Open) -> None:
    page = opened("one")
    details = page.page.locator("#reliability details")
    assert not details.locator("table").is_visible()
    details.locator("summary").focus()
    page.page.keyboard.press("Enter")
    assert details.locator("table").is_visible()
    part = page.document["models"][0]["reliability"]
    shown = [value_of(c.text_content()) for c in details.locator("tbody tr td:nth-child(2)").all()]
    assert shown == part["count"]


def test_copying_the_command(opened: Open) -> None:
    page = opened("one")
    page.page.locator("button.copy").click()
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
    assert page.run("document.title") == documents.HOSTILE[1]
    assert page.run("document.querySelectorAll('img, b').length") == 0
