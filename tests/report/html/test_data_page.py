"""Every page that is written: a policy in its head, and names of any kind as text in its body."""

import html.parser
import re

import pytest

from calibrant.report import Section, write_audit, write_page
from calibrant.report.html.data_page import is_page
from calibrant.report.html.layout import head, policy
from calibrant.report.text import escape, plain
from tests.helpers import audit_document

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


def test_pages_have_the_policy_of_all_reports(pages):
    for page in pages.values():
        assert f'<meta http-equiv="Content-Security-Policy" content="{policy()}">' in page
        assert page.index("Content-Security-Policy") < page.index("<title>")
        assert "script-src 'none'" in page
        assert "<script" not in page
        assert re.findall(r"""(?:src|href)=['"]([a-z]*:)""", page) == ["data:", "data:"]


def test_the_policy_names_the_script():
    assert policy() != policy("") != policy("x")
    # By openssl: printf x | openssl dgst -sha256 -binary | base64
    assert "script-src 'sha256-LXEWQrcmsEQBYnyp+6wy9chTD7GQPMTbAiWHF5IaSIE='" in policy("x")
    for part in ("default-src 'none'", "base-uri 'none'", "form-action 'none'", "img-src data:"):
        assert part in policy()
    assert escape('<"') in head('<"')


def test_audits_have_the_same_policy(tmp_path):
    write_audit(tmp_path / "audit.html", audit_document.three_files())
    page = (tmp_path / "audit.html").read_text(encoding="utf-8")
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert len(scripts) == 1
    assert f'content="{policy(scripts[0])}"' in page
    assert page.index("Content-Security-Policy") < page.index("<script")
    assert not re.findall(r"<[^>]+ on[a-z]+=", page)


def test_pages_of_ours_are_known(tmp_path):
    write_page(tmp_path / "a.html", title="x", intro="", sections=[])
    assert is_page(tmp_path / "a.html")
    (tmp_path / "b.html").write_text("<html>calibrant data inspect</html>")
    (tmp_path / "c.html").mkdir()
    assert not any(is_page(tmp_path / name) for name in ("b.html", "c.html", "d.html"))


TURN = {"\u202e": "\u202c", "\u202d": "\u202c", "\u202a": "\u202c", "\u202b": "\u202c", "\u2067": "\u2069"}


@pytest.mark.parametrize("mark", TURN)
def test_marks_of_direction_end_where_the_text_ends(mark):
    end = TURN[mark]
    assert plain(f"a{mark}b{end}c") == f"a{mark}b{end}c"  # turns what is in it, and nothing else
    assert plain(f"a{mark}b") == "a\ufffdb"
    assert plain(f"a{end}b") == "a\ufffdb"
    assert plain(f"{mark}a{mark}b{end}") == f"\ufffda{mark}b{end}"
    assert plain(f"\u2067a{mark}b\u2069") in ("\u2067a\ufffdb\ufffd", "\ufffda\u2067b\u2069", "\ufffda\ufffdb\ufffd")
