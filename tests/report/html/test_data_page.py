"""Every page that is written: a policy in its head, and names of any kind as text in its body."""

import html.parser
import re

import pytest

from calibrant.report import Section, write_page
from calibrant.report.html.data_page import is_page
from calibrant.report.html.layout import policy
from calibrant.report.text import plain

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


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    figure = folder / "figure.svg"
    figure.write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")

    def page(words):
        table = (("split", words), [(words, words)])
        section = Section(words, words, figure=figure, table=table, words=True)
        write_page(folder / "page.html", title=words, intro=words, sections=[section])
        return (folder / "page.html").read_text(encoding="utf-8")

    return {words: page(words) for words in ["plain", *HOSTILE]}


@pytest.mark.parametrize("words", HOSTILE)
def test_hostile_words_are_text(pages, words):
    page, usual = Tags(pages[words]), Tags(pages["plain"])
    assert page.tags == usual.tags
    assert [(tag, name) for tag, name, _ in page.attributes] == [(tag, name) for tag, name, _ in usual.attributes]
    assert page.words.count(plain(words)) >= 6
    assert not [c for c in pages[words] if not c.isprintable() and c != "\n"]


def test_pages_have_their_style(pages):
    assert "max-width:66rem" in pages["plain"]


def test_pages_have_the_policy_of_all_reports(pages):
    for page in pages.values():
        assert f'<meta http-equiv="Content-Security-Policy" content="{policy()}">' in page
        assert page.index("Content-Security-Policy") < page.index("<title>")
        assert "script-src 'none'" in page
        assert "<script" not in page
        assert re.findall(r"""(?:src|href)=['"]([a-z]*:)""", page) == ["data:", "data:"]


def test_pages_of_ours_are_known(tmp_path):
    write_page(tmp_path / "a.html", title="x", intro="", sections=[])
    assert is_page(tmp_path / "a.html")
    (tmp_path / "b.html").write_text("<html>calibrant data inspect</html>")
    (tmp_path / "c.html").mkdir()
    assert not any(is_page(tmp_path / name) for name in ("b.html", "c.html", "d.html"))
