"""A picture of the top of a report, for the README; needs playwright and a chromium.

./dev run python -m docs_tools.picture calibrant-demo/index.html docs/demo.png
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

WIDTH = 1100
#: The picture ends below this section of the page.
LAST = "#reliability"


def take(page: Path, picture: Path) -> None:
    """Photograph the page from its top to the end of its reliability diagrams, without the list of contents."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": WIDTH, "height": 800}, color_scheme="light")
        tab.goto(page.resolve().as_uri())
        tab.add_style_tag(content=".contents,.lede,.legend,.made{display:none!important}main>section{margin-top:2rem}")
        bottom = tab.locator(LAST).evaluate("element => element.getBoundingClientRect().bottom")
        tab.screenshot(path=picture, clip={"x": 0, "y": 0, "width": WIDTH, "height": bottom + 24}, full_page=True)
        browser.close()


if __name__ == "__main__":
    take(Path(sys.argv[1]), Path(sys.argv[2]))
