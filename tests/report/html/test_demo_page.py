"""The page of the demonstration, drawn from a document that was written by hand."""

from html.parser import HTMLParser

import pytest

from calibrant.report import write_demonstration

RELIABILITY = {
    "low": [0.0, 0.5], "high": [0.5, 1.0], "count": [0, 10], "confidence": [None, 0.9], "accuracy": [None, 0.7],
    "accuracy_low": [None, 0.4], "accuracy_high": [None, 0.9],
}  # fmt: skip
DOT = "iVBORw0KGgo="


def card(name):
    words = {"value": f"{name} value", "aside": f"{name} aside", "text": f"{name} text", "caption": f"{name} caption"}
    return words | {"reliability": RELIABILITY}


def picture(**changes):
    return {"png": DOT, "label": "cat", "truth": "<dog>", "right": False, "confidence": 0.876} | changes


def document():
    return {name: card(name) for name in ("before", "repaired", "deployed")} | {
        "title": "One network", "created": "2026-01-01", "level": "good", "outcome": "The policy keeps its promise",
        "headline": "It claims 90% & is right 70%.", "lead": "Promised.",
        "commands": ("calibrant fit a", "calibrant apply b"),
        "answered": [picture(label="tree", truth="tree", right=True)], "declined": [picture()],
        "facts": [("Seed", 3)], "files": [("The audit", "audit.html")], "reproduce": "calibrant demo --seed 3",
    }  # fmt: skip


@pytest.fixture
def page(tmp_path):
    write_demonstration(tmp_path / "index.html", document())
    return (tmp_path / "index.html").read_text(encoding="utf-8")


def test_every_part_of_the_document_is_shown(page):
    for name in ("before", "repaired", "deployed"):
        assert all(f"{name} {part}" in page for part in ("value", "aside", "text"))
    assert "before caption" in page
    assert "repaired caption" in page
    assert "It claims 90% &amp; is right 70%." in page
    assert "calibrant fit a\ncalibrant apply b" in page
    assert '<a href="audit.html">The audit</a>' in page


def test_pictures_say_what_is_true_where_the_network_is_wrong(page):
    assert 'tree 87.60%</span><span class="truth">right' in page
    assert 'cat 87.60%</span><span class="truth">wrong: &lt;dog&gt;' in page
    assert page.count(f'src="data:image/png;base64,{DOT}"') == 2


def test_every_element_is_closed_and_nothing_is_fetched(page):
    class Balance(HTMLParser):
        def __init__(self):
            super().__init__()
            self.open = []

        def handle_starttag(self, tag, attributes):
            values = dict(attributes)
            for name in ("src", "href"):
                assert not (values.get(name) or "").startswith(("http", "//"))
            if tag not in ("meta", "link", "img"):
                self.open.append(tag)

        def handle_endtag(self, tag):
            assert self.open.pop() == tag

        def handle_startendtag(self, tag, attributes):
            pass

    balance = Balance()
    balance.feed(page)
    assert balance.open == []
