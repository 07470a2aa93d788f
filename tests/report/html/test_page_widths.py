"""One page of every kind in a real browser, on a phone and on a desk, in light and dark: nothing sticks out, no word is
broken, no column head is cut, and every text can be read on its ground."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrant import Policy, Predictions, audit
from calibrant.report import (
    PaperPart,
    write_activation_page,
    write_comparison,
    write_data_page,
    write_demonstration,
    write_maps_page,
    write_paper_page,
    write_watch,
)
from tests.helpers.browser import browser  # noqa: F401
from tests.helpers.image_maps import image_maps
from tests.report.html import (
    test_activation_page,
    test_comparison_page,
    test_data_page,
    test_demo_page,
    test_watch_page,
)
from tests.report.html.test_browser import CONTRAST

KINDS = ("one", "two", "policy", "binary", "comparison", "demo", "data", "paper", "activation", "maps", "watch")
WIDTHS = (390, 1280)

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


def write_pages(folder: Path) -> dict[str, Path]:
    """A page of every kind, of few samples."""
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 5, 400)
    logits = rng.normal(size=(400, 5)) * 2
    logits[np.arange(400), labels] += 2
    names = ["cat", "dog", "bird", "recreational vehicle", "wardrobe"]
    files = {
        name: Predictions.from_logits(logits * scale, labels, class_names=names)
        for name, scale in (("resnet50-baseline.npz", 3.0), ("resnet50-with-label-smoothing.npz", 1.0))
    }
    first = next(iter(files))
    policy = Policy.fit(files[first], target_risk=0.3)
    happens = rng.random(600) < 0.2
    claimed = np.clip(0.15 + 0.5 * happens + 0.2 * rng.normal(size=600), 0.001, 0.999)
    rare = Predictions.from_probabilities(claimed, happens.astype(int))
    pages = {kind: folder / f"{kind}.html" for kind in KINDS if kind != "data"}
    settings = {"replicates": 50, "reproduce": f"calibrant audit {first} -o report.html"}
    audit({first: files[first]}, **settings).to_html(pages["one"])
    audit(files, **settings).to_html(pages["two"])
    audit({first: files[first]}, policy=policy, **settings).to_html(pages["policy"])
    audit({"loans.csv": rare}, **settings).to_html(pages["binary"])
    methods = {"ce": "Cross-entropy", "acls": "Adaptive and conditional label smoothing", "mbls": "Margin-based"}
    write_comparison(pages["comparison"], test_comparison_page.document() | {"methods": methods})
    outcome = "More answers are wrong than promised, which may be chance"
    write_demonstration(pages["demo"], test_demo_page.document() | {"outcome": outcome})
    write_watch(pages["watch"], test_watch_page.document())
    write_data_page(folder / "data", test_data_page.document("cup"), {"train": test_data_page.sheet("cup")})
    table = PaperPart("Table 1", text="One run each.", table=test_comparison_page.table(["ce", "ls"]))
    write_paper_page(
        pages["paper"], title="Table 1", lead="Made again.", parts=[table], notes=["A note."], files=["t.csv"],
        command="calibrant paper acls --table 1 --output a/folder/with/a/name/of/some/length",
    )  # fmt: skip
    write_maps_page(pages["maps"], image_maps(), created="today", command="calibrant maps runs/ce runs/ls --image a")
    write_activation_page(pages["activation"], test_activation_page.document(), test_activation_page.pictures())
    return pages | {"data": folder / "data" / "index.html"}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_pages(tmp_path_factory.mktemp("kinds"))


@pytest.fixture(scope="module", params=[(width, scheme) for width in WIDTHS for scheme in ("light", "dark")], ids=str)
def window(browser: Any, request: pytest.FixtureRequest) -> Iterator[Any]:  # noqa: F811
    width, scheme = request.param
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    yield context.new_page()
    context.close()


@pytest.mark.parametrize("kind", KINDS)
def test_pages_fit_their_window(window: Any, pages: dict[str, Path], kind: str) -> None:
    window.goto(pages[kind].as_uri())
    look = window.evaluate(LOOK)
    assert look["width"] <= window.viewport_size["width"]
    assert look["outside"] == []
    assert look["broken"] == []
    assert look["scrolled"] == [], "a table that scrolls hides its last columns"
    assert window.evaluate(CONTRAST) == {}, "WCAG 2.1, 1.4.3"
