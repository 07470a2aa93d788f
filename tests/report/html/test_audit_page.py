"""The audit page without a browser: structure, escaping, size, and the numbers it was given."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import re
from decimal import ROUND_HALF_UP, Decimal
from html.parser import HTMLParser
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrant.report import write_audit
from tests.helpers import audit_document as documents
from tests.helpers.audit_document import typed

VOID = {"meta", "input", "br", "hr", "img", "link"}
#: The one address of a page: of nothing, so that no browser asks for an icon.
ICON = {"rel": "icon", "href": "data:,"}
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


class Tree(HTMLParser):
    """What a page consists of: every element with its attributes and its text, and whether all of them were closed."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[dict[str, Any]] = []
        self.open: list[dict[str, Any]] = []
        self.feed(page)
        self.close()
        assert not self.open, [e["tag"] for e in self.open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        parents = list(self.open)
        element = {"tag": tag, "attrs": dict(attrs), "text": "", "parents": parents}
        assert len(dict(attrs)) == len(attrs), f"an attribute twice: {tag} {attrs}"
        self.elements.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop()["tag"] == tag, f"{tag} closed out of turn"

    def handle_data(self, data: str) -> None:
        for element in self.open:
            element["text"] += data

    def all(self, tag: str) -> list[dict[str, Any]]:
        return [e for e in self.elements if e["tag"] == tag]

    def inside(self, parent: dict[str, Any], tag: str) -> list[dict[str, Any]]:
        return [e for e in self.elements if e["tag"] == tag and any(p is parent for p in e["parents"])]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("pages")
    for name, make in MADE.items():
        write_audit(folder / f"{name}.html", make())
    return {name: (folder / f"{name}.html").read_text(encoding="utf-8") for name in MADE}


# ---------------------------------------------------------------------- the page's structure


@pytest.mark.parametrize("name", MADE)
def test_structure(pages: dict[str, str], name: str) -> None:
    tree = Tree(pages[name])
    ids = [e["attrs"]["id"] for e in tree.elements if "id" in e["attrs"]]
    assert len(ids) == len(set(ids))
    for element in tree.elements:
        for key in ("aria-labelledby", "aria-describedby", "aria-controls", "for"):
            for target in (element["attrs"].get(key) or "").split():
                assert target in ids, (key, target)
        if (link := element["attrs"].get("href")) is not None and element["attrs"] != ICON:
            assert link.startswith("#")
            assert link[1:] in ids
    levels = [int(e["tag"][1]) for e in tree.elements if re.fullmatch("h[1-6]", e["tag"])]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b <= a + 1 for a, b in pairwise(levels))
    for table in tree.all("table"):
        assert tree.inside(table, "caption")
        assert all(e["attrs"].get("scope") for e in tree.inside(table, "th"))
        assert any("scroll" in p["attrs"].get("class", "") for p in table["parents"]), (
            "wide tables scroll by themselves"
        )
    for image in tree.all("svg"):
        if image["attrs"].get("role") == "img":
            assert [e["tag"] for e in tree.elements if e["parents"] and e["parents"][-1] is image][:2] == [
                "title",
                "desc",
            ]
            assert any(p["tag"] == "figure" for p in image["parents"])
    for figure in tree.all("figure"):
        assert tree.inside(figure, "figcaption")
    for field in tree.all("input") + tree.all("select"):
        assert field["attrs"]["id"] in {e["attrs"].get("for") for e in tree.all("label")}


@pytest.mark.parametrize("name", MADE)
def test_nothing_refers_to_the_outside(pages: dict[str, str], name: str) -> None:
    page = pages[name]
    shown = page if name != "hostile" else re.sub("&lt;img src=x|javascript:alert", "", page)
    for words in ("http:", "https:", "@import", "javascript:"):
        assert words not in shown
    tree = Tree(page)
    for element in tree.elements:
        assert not {"src", "srcset", "action", "data", "poster", "xlink:href", "style"} & set(element["attrs"])
        assert not any(key.startswith("on") for key in element["attrs"])
        assert element["tag"] != "link" or element["attrs"] == ICON
        assert element["tag"] not in {"iframe", "object", "embed", "base", "img", "form"}
    assert set(re.findall(r"url\(([^)]*)\)", page)) <= {"#hatch-over", "#hatch-under"}


@pytest.mark.parametrize("name", MADE)
def test_the_policy_allows_this_script_alone(pages: dict[str, str], name: str) -> None:
    tree = Tree(pages[name])
    (policy,) = (e["attrs"]["content"] for e in tree.all("meta") if "http-equiv" in e["attrs"])
    scripts = [e for e in tree.all("script") if e["attrs"].get("type") != "application/json"]
    assert len(scripts) == 1
    digest = base64.b64encode(hashlib.sha256(scripts[0]["text"].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in policy
    assert "default-src 'none';" in policy
    assert scripts[0]["text"] == resources.files("calibrant.report").joinpath("html", "assets", "report.js").read_text(
        encoding="utf-8"
    )


def test_sections_come_in_order_and_only_if_they_hold_something(pages: dict[str, str]) -> None:
    def order(name: str) -> list[str]:
        tree = Tree(pages[name])
        return [e["attrs"]["id"] for e in tree.all("section") if "id" in e["attrs"]]

    assert order("three") == [
        "findings", "fixes", "numbers", "comparisons", "reliability", "histogram", "risk", "logits", "classes",
        "groups", "errors", "method", "reproduce",
    ]  # fmt: skip
    assert "comparisons" not in order("one")
    assert order("minimal") == ["findings", "numbers", "reliability", "histogram", "risk", "reproduce"]
    page = pages["one"]
    assert page.index('class="verdict poor"') < page.index('id="findings"')


@pytest.mark.parametrize("level", ["good", "fair", "poor", "unknown", "nonsense"])
def test_the_verdict_has_a_word_beside_its_colour(tmp_path: Path, level: str) -> None:
    made = documents.minimal()
    made["verdict"]["level"] = level
    write_audit(tmp_path / "x.html", made)
    tree = Tree((tmp_path / "x.html").read_text(encoding="utf-8"))
    (verdict,) = (e for e in tree.all("section") if "verdict" in e["attrs"].get("class", ""))
    shown = level if level != "nonsense" else "unknown"
    assert verdict["attrs"]["class"] == f"verdict {shown}"
    assert shown.capitalize() in verdict["text"]
    assert "One sample says nothing." in verdict["text"]


def test_without_a_script_all_rows_are_there_and_no_control_is(pages: dict[str, str]) -> None:
    tree = Tree(pages["many"])
    (table,) = (e for e in tree.all("table") if e["attrs"].get("id") == "classes-0")
    assert len(tree.inside(table, "tr")) == 1 + len(documents.many_classes()["models"][0]["classes_table"])
    for control in tree.all("input") + tree.all("select") + tree.all("button"):
        assert "hidden" in control["attrs"] or any("hidden" in p["attrs"] for p in control["parents"])


# ---------------------------------------------------------------------- what it shows


def two_decimals(share: float) -> str:
    return str((100 * Decimal(repr(share))).quantize(Decimal("0.01"), ROUND_HALF_UP))


@pytest.mark.parametrize("name", ["one", "three"])
def test_metrics_are_those_given(pages: dict[str, str], name: str) -> None:
    made, tree = MADE[name](), Tree(pages[name])
    (table,) = (e for e in tree.all("table") if "metrics" in e["attrs"].get("class", ""))
    rows = [
        [typed(e["text"]) for e in tree.elements if e["parents"] and e["parents"][-1] is row]
        for row in tree.inside(table, "tr")
    ]
    labels = [metric["label"] for metric in made["models"][0]["metrics"]]
    by_label = {label: cells for label in labels for cells in rows if cells[0].startswith(label)}
    for m, model in enumerate(made["models"]):
        for metric in model["metrics"]:
            cell = by_label[metric["label"]][1 + m]
            value, low, high = metric["value"], metric["low"], metric["high"]
            if metric["unit"] == "share" and 0.01 <= value < 0.999:
                assert f"{two_decimals(value)}% [{two_decimals(low)}%, {two_decimals(high)}%]" in cell
            elif metric["unit"] == "number":
                assert f"{value:.4f}" in cell
    assert "lower is better" in by_label["ECE (15 bins)"][0]
    assert "higher is better" in by_label["Accuracy"][0]
    assert "is better" not in by_label["Mean confidence"][0]


def test_errors_say_how_many_there_are_in_all(tmp_path: Path) -> None:
    made = copy.deepcopy(MADE["one"]())
    model = made["models"][0]
    model["errors"] = [{"id": k, "label": "a", "predicted": "b", "confidence": 1 - k / 1000} for k in range(50)]
    for total, caption, button in (
        (1223, "The 50 most confident of 1,223 errors: the most confident first", "Show the first 50"),
        (50, "All errors, 50: the most confident first", "Show all 50"),
        (None, "Wrong predictions, the most confident first", "Show all 50"),
    ):
        model |= {"errors_in_all": total}
        write_audit(tmp_path / "page.html", made)
        page = (tmp_path / "page.html").read_text(encoding="utf-8")
        assert f"<caption>{caption}</caption>" in page
        assert f">{button}</button>" in page
        assert ('data-total="1223"' in page) == (total == 1223)


def test_every_sentence_of_the_document_is_shown(pages: dict[str, str]) -> None:
    made, body = MADE["one"](), Tree(pages["one"]).all("body")[0]["text"]
    model = made["models"][0]
    words = [made["title"], made["reproduce"], made["verdict"]["headline"], made["verdict"]["text"], *model["notes"]]
    words += [f[k] for f in model["findings"] for k in ("title", "text", "evidence")]
    words += [w for pair in made["conventions"] for w in pair] + [
        f[k] for f in model["fixes"] for k in ("repair", "fitted")
    ]
    words += [e["id"] for e in model["errors"]] + [made["created"], made["calibrant"], "1,000"]
    for word in words:
        assert word in body


def test_fixes_and_comparisons_say_which_way_they_point(pages: dict[str, str]) -> None:
    tree = Tree(pages["three"])
    rows = {typed(e["text"]) for e in tree.all("tr")}
    assert any("-3.09 pp [-3.50, -2.50]" in r and r.endswith("better") for r in rows), (
        "lower is better, and it is lower"
    )
    assert any("-0.38 pp [-0.91, +0.12]" in r and r.endswith("no clear change") for r in rows)
    assert any("+0.0431 [+0.0312, +0.0549]" in r and r.endswith("worse") for r in rows)
    assert any(r.startswith("AURC3.91%4.02%+0.11 pp [-0.04, +0.26]no clear change") for r in rows)


def test_class_rows_are_flagged_first_then_by_how_surely_they_are_off(pages: dict[str, str]) -> None:
    rows = MADE["many"]()["models"][0]["classes_table"]
    expected = [r["name"] for r in rows if r["flag"]], [r["name"] for r in rows if not r["flag"]]
    # Above 0 where the interval leaves 0 out: how far. Below 0 where it does not: how far it reaches beyond.
    off = {r["name"]: r["gap_low"] if abs(r["gap_low"]) < abs(r["gap_high"]) else -r["gap_high"] for r in rows}
    tree = Tree(pages["many"])
    (table,) = (e for e in tree.all("table") if e["attrs"].get("id") == "classes-0")
    shown = [e["text"].removeprefix("flagged: ") for e in tree.inside(table, "th") if e["attrs"]["scope"] == "row"]
    n = len(expected[0])
    assert set(shown[:n]) == set(expected[0])
    assert set(shown[n:]) == set(expected[1])
    for part in (shown[:n], shown[n:]):
        assert [off[x] for x in part] == sorted((off[x] for x in part), reverse=True)


def table_of(tree: Tree, ident: str) -> dict[str, Any]:
    (table,) = (e for e in tree.all("table") if e["attrs"].get("id") == ident)
    return table


def heads_of(tree: Tree, ident: str) -> list[str]:
    return [e["text"] for e in tree.inside(table_of(tree, ident), "th") if e["attrs"]["scope"] == "col"]


def test_classes_are_those_predicted(pages: dict[str, str]) -> None:
    tree = Tree(pages["one"])
    assert heads_of(tree, "classes-0") == [
        "Predicted class", "Gap", "Samples", "Right", "Confidence", "ECE", "Class-wise ECE"
    ]  # fmt: skip
    assert heads_of(tree, "groups-0-0") == ["site", "Gap", "Samples", "Accuracy", "Confidence", "ECE"]
    assert "By predicted class" in {e["text"] for e in tree.all("h2")}
    (caption,) = tree.inside(table_of(tree, "classes-0"), "caption")
    assert caption["text"].startswith("Flagged first")
    unflagged = Tree(pages["segmentation"])
    assert "lagged" not in table_of(unflagged, "classes-0")["text"]


def test_what_a_file_of_confidences_cannot_have_is_left_out(pages: dict[str, str]) -> None:
    tree = Tree(pages["confidence"])
    assert heads_of(tree, "errors-0") == ["Sample", "Confidence"]
    terms = [e["text"] for e in tree.all("dt")]
    assert "ECE" in terms
    assert not {"By class", "Class-wise ECE"} & set(terms)
    assert {"By class", "Class-wise ECE"} < {e["text"] for e in Tree(pages["one"]).all("dt")}
    assert "None" not in tree.all("main")[0]["text"]


def test_pixels_are_called_pixels(pages: dict[str, str]) -> None:
    tree = Tree(pages["segmentation"])
    assert heads_of(tree, "classes-0")[2] == "Pixels"
    assert heads_of(tree, "errors-0") == ["Image", "Place", "Label", "Predicted", "Confidence"]
    assert "row 2, column 7" in table_of(tree, "errors-0")["text"]
    assert "4,000 pixels" in tree.all("header")[0]["text"]
    words = [e["text"] for e in tree.all("text") if e["text"]]
    assert {"pixels per bin", "pixels", "coverage: share of pixels answered"} <= set(words)
    assert not [w for w in words if "sample" in w]


def test_a_number_without_an_interval_says_why(pages: dict[str, str]) -> None:
    rows = [typed(e["text"]) for e in Tree(pages["segmentation"]).all("tr")]
    (nll,) = (r for r in rows if r.startswith("NLL") and "infinite" in r)
    assert nll.endswith("noneinfinite: 3 labels have probability 0")
    assert "[" not in nll


def test_each_of_several_files_has_its_verdict(pages: dict[str, str], tmp_path: Path) -> None:
    made, tree = MADE["three"](), Tree(pages["three"])
    shown = [e["text"] for e in tree.all("div") if e["attrs"].get("class", "").startswith("own ")]
    assert [m["verdict"]["headline"] in words for m, words in zip(made["models"], shown, strict=True)] == [True] * 3
    (top,) = (e for e in tree.all("section") if "verdict" in e["attrs"].get("class", ""))
    assert made["models"][0]["name"] in top["text"]
    made["verdict"]["headline"] = f"{made['models'][0]['name']}: overconfident."
    write_audit(tmp_path / "x.html", made)
    named = Tree((tmp_path / "x.html").read_text(encoding="utf-8"))
    (top,) = (e for e in named.all("section") if "verdict" in e["attrs"].get("class", ""))
    assert top["text"].count(made["models"][0]["name"]) == 1, "once is enough"
    assert not [e for e in Tree(pages["one"]).all("div") if e["attrs"].get("class", "").startswith("own ")]


def test_risks_at_coverages_are_those_of_the_numbers(pages: dict[str, str]) -> None:
    model, tree = MADE["one"]()["models"][0], Tree(pages["one"])
    (table,) = (e for e in tree.all("table") if "risks" in e["attrs"].get("class", "").split())
    rows = [[typed(e["text"]) for e in tree.inside(row, "td")] for row in tree.inside(table, "tr")][1:]
    values = {m["name"]: m["value"] for m in model["metrics"]}
    stated = [values[f"risk_at_coverage_{c}"] for c in ("0.8", "0.9", "0.95")]
    assert rows[0][:3] == [f"{two_decimals(v)}%" for v in stated]
    # The other scores: the error rate of so many of the most confident, which the curve holds.
    curve = model["curves"][1]
    found = [curve["risk"][curve["accepted"].index(n)] for n in (8_000, 9_000, 9_500, 10_000)]
    assert rows[1] == [f"{two_decimals(v)}%" for v in found]
    heads = [e["text"] for e in tree.inside(table, "th") if e["attrs"]["scope"] == "row"]
    assert ["read off the curve" in h for h in heads] == [False, True, True]


@pytest.mark.parametrize("name", ["one", "three"])
def test_bars_have_one_scale_however_many_files(pages: dict[str, str], name: str) -> None:
    """In every row of the numbers some interval reaches the end of the track."""
    tree = Tree(pages[name])
    (table,) = (e for e in tree.all("table") if "metrics" in e["attrs"].get("class", ""))
    for row in tree.inside(table, "tr"):
        paths = [e["attrs"]["d"] for e in tree.inside(row, "path") if "class" not in e["attrs"]]
        assert not paths or max(float(d.rsplit("H", 1)[1]) for d in paths) == 84
    legends = [e["text"] for e in tree.all("p") if e["attrs"].get("class") == "barkey"]
    assert any("tick 0; the full width spans 0 and the largest value or limit of the row" in t for t in legends)


def test_documents_without_the_newer_fields_are_drawn(tmp_path: Path) -> None:
    made = documents.two_files()
    for m in made["models"]:
        for key in ("unit", "verdict"):
            del m[key]
        for fix in m["fixes"]:
            fix["name"] = fix.pop("repair")
        for part in (*m["fixes"], *m["curves"]):
            part.pop("better", None)
            part.pop("points_all", None)
    for row in made["comparisons"][0]["rows"]:
        del row["name"]
    write_audit(tmp_path / "x.html", made)
    tree = Tree((tmp_path / "x.html").read_text(encoding="utf-8"))
    assert "10,000 samples" in tree.all("header")[0]["text"]
    assert any(e["text"].startswith("Temperature scaling") for e in tree.all("th"))
    (data,) = (json.loads(e["text"]) for e in tree.all("script") if e["attrs"].get("type") == "application/json")
    assert not any(c["all"] for c in data["curves"]), "what is not known to be whole is not called so"


def test_curves_are_embedded_as_given(pages: dict[str, str]) -> None:
    made, tree = MADE["three"](), Tree(pages["three"])
    (data,) = (json.loads(e["text"]) for e in tree.all("script") if e["attrs"].get("type") == "application/json")
    given = [c for m in made["models"] for c in m["curves"]]
    assert len(data["curves"]) == len(given) == 9
    names = {"coverage": "coverage", "risk": "risk", "low": "risk_low", "high": "risk_high"}
    for shown, curve in zip(data["curves"], given, strict=True):
        for key, source in names.items():
            np.testing.assert_allclose(shown[key], curve[source], rtol=1e-8)
        for key in ("coverage", "risk", "threshold", "accepted", "errors"):
            assert shown[key] == curve[key], "searched in, so whole"
        assert shown["all"] is curve["points_all"] is False


def test_bars_of_the_reliability_diagram_are_as_tall_as_the_accuracy(pages: dict[str, str]) -> None:
    part, tree = MADE["one"]()["models"][0]["reliability"], Tree(pages["one"])
    (chart,) = (e for e in tree.all("svg") if e["attrs"].get("id") == "reliability-0")
    (diagonal,) = (e["attrs"] for e in tree.inside(chart, "line") if e["attrs"]["class"] == "diagonal")
    whole = float(diagonal["y1"]) - float(diagonal["y2"])
    bars = [e["attrs"] for e in tree.inside(chart, "rect") if e["attrs"]["class"] == "bar"]
    heights = [float(b["height"]) / whole for b in bars]
    np.testing.assert_allclose(heights, [a for a in part["accuracy"] if a is not None], atol=0.1 / whole)


def test_unknown_values_are_dashes(pages: dict[str, str]) -> None:
    tree = Tree(pages["minimal"])
    words = tree.all("main")[0]["text"]
    for script in tree.all("script"):
        words = words.replace(script["text"], "")
    assert not re.search(r"\b(nan|none|null|inf)\b", words, re.IGNORECASE)
    rows = {typed(e["text"]) for e in tree.all("tr")}
    assert any(r.startswith("NLL") and r.endswith("none") for r in rows)
    assert any(r.startswith("Mean confidence") and r.endswith("none") for r in rows)


# ---------------------------------------------------------------------- hostile names


def test_hostile_names_are_text(pages: dict[str, str]) -> None:
    tree, plain = Tree(pages["hostile"]), Tree(pages["three"])
    assert {e["tag"] for e in tree.elements} <= {e["tag"] for e in plain.elements}
    names = {key for e in plain.elements for key in e["attrs"]}
    assert {key for e in tree.elements for key in e["attrs"]} <= names
    body = tree.all("body")[0]["text"]
    for words in documents.HOSTILE:
        assert words in body
    (table,) = (e for e in tree.all("table") if e["attrs"].get("id") == "classes-0")
    shown = {e["text"].removeprefix("flagged: ") for e in tree.inside(table, "th") if e["attrs"]["scope"] == "row"}
    assert shown == {r["name"] for r in documents.hostile()["models"][0]["classes_table"]}


def test_half_characters_in_names_do_not_stop_the_page(tmp_path: Path) -> None:
    made = documents.minimal()
    made["models"][0]["name"] = b"caf\xe9.npz".decode("utf-8", "surrogateescape")
    write_audit(tmp_path / "x.html", made)
    assert "caf\ufffd.npz" in (tmp_path / "x.html").read_text(encoding="utf-8")


# ---------------------------------------------------------------------- the file


def test_sizes(pages: dict[str, str]) -> None:
    assert len(pages["one"].encode()) < 330_000
    assert len(pages["minimal"].encode()) < 60_000, "what a page weighs without data"
    assert all(len(page.encode()) < 2_000_000 for page in pages.values())


@pytest.mark.parametrize("name", ["one", "hostile"])
def test_the_same_document_gives_the_same_bytes(tmp_path: Path, name: str) -> None:
    made = MADE[name]()
    before = copy.deepcopy(made)
    for file in ("a.html", "b.html"):
        write_audit(tmp_path / file, made)
    write_audit(tmp_path / "c.html", json.loads(json.dumps(made)))
    assert made == before
    contents = {(tmp_path / file).read_bytes() for file in ("a.html", "b.html", "c.html")}
    assert len(contents) == 1


def break_series(made: dict[str, Any], part: str, key: str) -> dict[str, Any]:
    where = made["models"][0][part]
    where = where[0] if part == "curves" else where
    where[key] = where[key][:-1]
    return made


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda d: d | {"format": "other"}, "calibrant.audit document of version 1, got 'other', 1"),
        (lambda d: d | {"version": 2}, "version 1, got 'calibrant.audit', 2"),
        (lambda d: d | {"models": []}, "at least one file"),
        (lambda d: {k: v for k, v in d.items() if k != "verdict"}, "opens with the verdict"),
        (lambda d: break_series(d, "reliability", "accuracy"), "got 15 for 'low' and 14 for 'accuracy'"),
        (lambda d: break_series(d, "histogram", "edges"), "one edge more than bins, got 40 edges for 40 bins"),
        (lambda d: break_series(d, "curves", "threshold"), "'test.npz', curve 'msp', needs series of one length"),
        (lambda d: break_series(d, "logits", "right_mean"), "got 12 for 'msp' and 11 for 'right_mean'"),
    ],
)
def test_what_cannot_be_drawn_is_said_and_nothing_is_written(tmp_path: Path, spoil: Any, words: str) -> None:
    path = tmp_path / "report.html"
    path.write_text("before", encoding="utf-8")
    with pytest.raises(ValueError, match=re.escape(words)):
        write_audit(path, spoil(documents.document()))
    assert path.read_text(encoding="utf-8") == "before"
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


# ---------------------------------------------------------------------- drawing
