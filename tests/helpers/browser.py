"""A real browser for the tests of the audit page: opens it, and takes note of all it does that it should not.

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

import pytest

from calibrant.report import write_audit
from tests.helpers.audit_document import Document, document

ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


def absent(words: str) -> None:
    if os.environ.get("CALIBRANT_REQUIRE_BROWSER"):
        pytest.fail(f"{words}, and CALIBRANT_REQUIRE_BROWSER is set")
    pytest.skip(words)


@pytest.fixture(scope="module")
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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


class Opened:
    """A page, its document, and everything it did that it should not."""

    def __init__(self, page: Any, path: Path, document: Document) -> None:
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
            "s => [...document.querySelectorAll(s)].filter(e => e.checkVisibility()).map(e => e.outerHTML)", selector
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
        name: str, *, changed: Document | None = None, width: int = 1280, height: int = 900, **settings: Any
    ) -> Opened:
        made, path = changed or document(name), folder / (f"{name}.html" if changed is None else f"{name}-own.html")
        if changed is not None or not path.exists():
            write_audit(path, made)
        contexts.append(browser.new_context(viewport={"width": width, "height": height}, **settings))
        pages.append(Opened(contexts[-1].new_page(), path, made))
        return pages[-1]

    yield open_
    noise = [line for page in pages for line in page.noise]
    for context in contexts:
        context.close()
    assert not noise, noise


def curves(document: Document) -> list[Document]:
    return [c for m in document["models"] for c in m["curves"]]


def value_of(shown: str) -> float:
    """The number a text begins with, read as a person would."""
    match = re.match(r"(\u2212?)([\d,]*\.?\d+)(?:\xa0\xd7\xa010([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+))?", shown)
    assert match, shown
    power = (match[3] or "⁰").translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789"))
    return (-1 if match[1] else 1) * float(match[2].replace(",", "")) * 10.0 ** int(power)
