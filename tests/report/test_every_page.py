"""What holds for every page that is written: whole, readable by a machine, closed to the outside, names as text."""

import base64
import hashlib
import json
import re
from itertools import pairwise

import pytest

from calibrant.report import write_activation_page, write_audit, write_comparison
from tests.helpers import page_documents
from tests.helpers.audit_document import HOSTILE, document
from tests.helpers.errors import facts
from tests.helpers.pages import ICON, WRITERS, Tree, page_of

#: Where a page may lead: into itself, to files beside it, to pictures inside it.
INSIDE = re.compile(r"#|\./[\w%./~-]*$|[\w.]+$|data:image/(?:png|jpeg|svg\+xml);base64,")
#: Of whom a hostile page must have the elements, and no other.
TWINS = {"hostile": "two", "hostile comparison": "comparison", "hostile data": "data"}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    return {kind: page_of(write, folder) for kind, write in WRITERS.items()}


@pytest.fixture(scope="module", params=WRITERS)
def tree(request, pages):
    return Tree(pages[request.param])


def test_parts_refer_to_parts(tree):
    ids = [e["attrs"]["id"] for e in tree.elements if "id" in e["attrs"]]
    assert len(ids) == len(set(ids))
    for element in tree.elements:
        for key in ("aria-labelledby", "aria-describedby", "aria-controls", "for"):
            assert set((element["attrs"].get(key) or "").split()) <= set(ids)
        link = element["attrs"].get("href") or ""
        assert not link.startswith("#") or link[1:] in ids
    for field in tree.all("input") + tree.all("select"):
        assert field["attrs"]["id"] in {e["attrs"].get("for") for e in tree.all("label")}


def test_headings_tables_and_pictures_are_announced(tree):
    levels = [int(e["tag"][1]) for e in tree.elements if re.fullmatch("h[1-6]", e["tag"])]
    assert (levels[0], levels.count(1)) == (1, 1)
    assert all(b <= a + 1 for a, b in pairwise(levels))
    for table in tree.all("table"):
        given = any("results" in (p["attrs"].get("class") or "") for p in table["parents"])
        assert given or tree.inside(table, "caption") or not tree.all("table", of_class="metrics")
        assert all(e["attrs"].get("scope") for e in tree.inside(table, "th"))
        assert sum("scroll" in (p["attrs"].get("class") or "") for p in table["parents"]) == 1
    for image in tree.all("svg"):
        kind = (image["attrs"].get("class") or "").split()
        if "chart" in kind:
            title, text = tree.children(image)[:2]
            assert (title["tag"], text["tag"]) == ("title", "desc")
            assert title["text"].strip()
            assert text["text"].strip()
            assert any(p["tag"] == "figure" for p in image["parents"])
        elif image["attrs"].get("role") == "img":
            assert image["attrs"].get("aria-label") or tree.inside(image, "title")
    assert all(tree.inside(figure, "figcaption") for figure in tree.all("figure") if tree.inside(figure, "svg"))


def test_nothing_refers_to_the_outside_and_only_our_script_may_run(tree):
    for element in tree.elements:
        attributes = element["attrs"]
        assert not {"srcset", "action", "data", "poster", "xlink:href"} & set(attributes)
        assert not any(key.startswith("on") for key in attributes)
        assert element["tag"] not in {"iframe", "object", "embed", "base", "form"}
        assert element["tag"] != "link" or attributes == ICON
        assert (attributes.get("src") or "data:image/png;base64,").startswith("data:image/png;base64,")
        assert re.fullmatch(r"(background:[\w-]+\([\w#,]+\)|--columns:\d+)?", attributes.get("style") or "")
        if attributes.get("href") and attributes != ICON:
            assert INSIDE.match(attributes["href"])
    styles = "".join(e["text"] for e in tree.all("style"))
    assert not re.search(r"@import|url\((?!#)", styles)
    policy = tree.elements[[e["attrs"].get("http-equiv") for e in tree.elements].index("Content-Security-Policy")]
    (script,) = (e for e in tree.all("script") if e["attrs"].get("type") != "application/json")
    digest = base64.b64encode(hashlib.sha256(script["text"].encode()).digest()).decode()
    for part in ("default-src 'none'", "base-uri 'none'", "form-action 'none'", f"script-src 'sha256-{digest}'"):
        assert part in policy["attrs"]["content"]
    assert tree.elements.index(policy) < tree.elements.index(tree.all("title")[0])


def test_no_number_is_printed_that_is_none(tree):
    words = tree.one("main")["text"]
    for script in tree.all("script"):
        words = words.replace(script["text"], "")
    assert not re.search(r"\b(nan|None|null|inf)\b", words)


def sentences(value):
    """Every text of a document that is more than a word, but for HTML."""
    if isinstance(value, str):
        return {" ".join(value.split())} if " " in value and not value.startswith("<") else set()
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return set().union(*map(sentences, inner))


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        ("one", document),
        ("comparison", page_documents.comparison),
        ("demonstration", page_documents.demonstration),
        ("data", page_documents.data_set),
        ("activation", page_documents.activations),
        ("watch", page_documents.watch),
    ],
)
def test_every_sentence_of_the_document_is_shown(pages, kind, make):
    made, body = make(), " ".join(Tree(pages[kind]).one("body")["text"].split())
    # A caption of no figure, a score that was tried, and the description of a metric that this audit has not.
    unused = {"deployed caption", "msp of calibrated logits"}
    unused |= {text for pair in made.get("conventions", ()) if pair[0] == "Objectness deviation" for text in pair}
    assert {words for words in sentences(made) if words not in body} <= unused


@pytest.mark.slow
@pytest.mark.parametrize("kind", TWINS)
def test_hostile_names_are_text(pages, kind):
    tree, plain = Tree(pages[kind]), Tree(pages[TWINS[kind]])
    assert {e["tag"] for e in tree.elements} <= {e["tag"] for e in plain.elements}
    names = {key for e in plain.elements for key in e["attrs"]}
    assert {key for e in tree.elements for key in e["attrs"]} <= names
    assert len(tree.all("script")) == len(plain.all("script"))
    body = re.sub(r"\s+", " ", tree.one("body")["text"])
    for words in HOSTILE if kind != "hostile data" else HOSTILE[1:2]:
        assert re.sub(r"\s+", " ", words) in body
    # Links to files stay beside the page, whatever the names are.
    assert not [e for e in tree.all("a") if re.search(r"x\.test/a|/etc|javascript:", e["attrs"]["href"])]


@pytest.mark.parametrize("kind", ["minimal", "short comparison"])
def test_half_characters_and_controls_in_names_do_not_stop_the_page(tmp_path, kind):
    name = b"caf\xe9\x00".decode("utf-8", "surrogateescape")
    if kind == "minimal":
        made, write = document("minimal"), write_audit
        made["models"][0]["name"] = name
    else:
        made, write = page_documents.comparison([name, "b"], 2), write_comparison
        made["files"] = [["half", f"runs/{name}.html"]]
    assert "caf\ufffd" in page_of(write, tmp_path, made)


@pytest.mark.parametrize("kind", ["one", "hostile", "comparison", "watch"])
def test_the_same_document_gives_the_same_bytes(pages, tmp_path, kind):
    assert page_of(WRITERS[kind], tmp_path) == pages[kind]
    if kind == "one":
        made = document("one")
        assert page_of(write_audit, tmp_path, json.loads(json.dumps(made))) == pages[kind]
        assert made == document("one")


def test_sizes_of_pages(pages):
    assert len(pages["minimal"].encode()) < 80_000, "what a page weighs without data"
    assert all(len(page.encode()) < 2_000_000 for page in pages.values())


def spoilt(make, *where, value=None):
    """A document with one entry that is another, or gone."""
    made = inner = make()
    for key in where[:-1]:
        inner = inner[key]
    if value is None:
        del inner[where[-1]]
    else:
        inner[where[-1]] = value(inner[where[-1]]) if callable(value) else value
    return made


def shorter(series):
    return series[:-1]


AUDIT = [
    (("format",), "other", "other"),
    (("version",), 2, "2"),
    (("models",), [], "file"),
    (("verdict",), None, "verdict"),
    (("models", 0, "reliability", "accuracy"), shorter, "accuracy"),
    (("models", 0, "histogram", "edges"), shorter, "edge"),
    (("models", 0, "curves", 0, "threshold"), shorter, "msp"),
    (("models", 0, "logits", "right_mean"), shorter, "right_mean"),
]
COMPARISON = [
    (("format",), "calibrant.audit", "calibrant.audit"),
    (("version",), 2, "2"),
    (("curves", 0, "risk"), None, "risk"),
    (("curves", 0, "risk"), [0.1], "curve"),
    (("training", 0, "low"), [0.1], "training"),
    (("scatter", 0, "points"), [[0.9, 0.1, 0.2]], "scatter"),
    (("ablation", 0, "points"), [[1, 2]], "ablation"),
    (("reliability", 0, "bins"), {"low": [0]}, "reliability"),
    (("effects", 0, "claim"), None, "claim"),
]


@pytest.mark.parametrize(
    ("write", "where", "value", "fact"),
    [(write_audit, *row) for row in AUDIT]
    + [(write_comparison, *row) for row in COMPARISON]
    + [(write_activation_page, ("format",), "calibrant.audit", "calibrant.audit")],
)
def test_what_cannot_be_drawn_is_said_and_nothing_is_written(tmp_path, write, where, value, fact):
    path = tmp_path / "report.html"
    path.write_text("before", encoding="utf-8")
    makes = {write_audit: document, write_activation_page: page_documents.activations}
    made = spoilt(makes.get(write, lambda: page_documents.comparison(["ce", "ls", "acls"], 2)), *where, value=value)
    with pytest.raises(ValueError, match=facts(fact)):
        write(path, made, *([[]] if write is write_activation_page else []))
    assert path.read_text(encoding="utf-8") == "before"
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]
