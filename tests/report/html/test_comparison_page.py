"""The comparison page: structure, escaping, parts that are missing, the looks of methods, and a real browser."""

from __future__ import annotations

import copy
import itertools
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrant.report import PrintedNumber, render_comparison_table, write_comparison
from calibrant.report.html.comparison_charts import ceiling, is_cut_off
from tests.helpers import audit_document as audits
from tests.helpers.browser import browser  # noqa: F401
from tests.report.html.test_audit_page import ICON, Tree

Document = dict[str, Any]
METHODS = ["ce", "ls", "focal", "flsd", "ecp", "mmce", "mdca", "cpc", "mbls", "crl", "acls", "lr", "als", "mixup"]
PARTS = ["effects", "results", "reliability", "risk", "scatter", "ablation", "training", "failures", "files",
         "reproduce"]  # fmt: skip
LISTS = ["effects", "tables", "reliability", "curves", "scatter", "ablation", "training", "failures", "files",
         "commands"]  # fmt: skip


def test_a_verdict_comes_first_and_may_be_missing(tmp_path: Path) -> None:
    for level, word in (
        ("good", "Beyond chance"),
        ("info", "Tested"),
        ("unknown", "Not tested"),
        ("odd", "Not tested"),
    ):
        verdict = {"level": level, "headline": "ls has <the> lowest ECE.", "text": "It is so."}
        write_comparison(tmp_path / "page.html", document() | {"verdict": verdict})
        page = (tmp_path / "page.html").read_text(encoding="utf-8")
        assert f"<span>{word}</span>" in page
        plain = re.sub("</?abbr[^>]*>", "", page)
        assert plain.index("ls has &lt;the&gt; lowest ECE.") < plain.index("Smoothing the labels makes")
    write_comparison(tmp_path / "page.html", document() | {"verdict": None})
    assert "verdict-h" not in (tmp_path / "page.html").read_text(encoding="utf-8").replace("#verdict-h", "")


def document(methods: list[str] = METHODS, seeds: int = 5) -> Document:
    """A comparison whose numbers hang together about as those of a real one do."""
    rng = np.random.default_rng(7)
    made: Document = {
        "format": "calibrant.comparison", "version": 1, "title": "Fourteen losses on scenes",
        "lead": ["Smoothing the labels makes the model less sure of itself.", "Five seeds, tuned for ECE."],
        "facts": [["Data", "scenes"], ["Model", "small CNN"], ["Runs", 70]],
        "tables": [{"title": "Test set", "note": "Mean and standard deviation over 5 seeds.", "html": table(methods)}],
        "effects": [
            {"claim": "LS has a lower ECE than CE", "values": [-0.021, -0.034, -0.027], "mean": -0.0273, "low": -0.043,
             "high": -0.0112, "verdict": "holds", "unit": "share"},
            {"claim": "Focal has a lower NLL than CE", "values": [0.2, 0.31, 0.27], "mean": 0.26, "low": 0.12,
             "high": 0.4, "verdict": "does not hold"},
            {"claim": "MbLS is more accurate than LS", "values": [0.004, -0.006, 0.003], "mean": 0.0003, "low": -0.013,
             "high": 0.0136, "verdict": "within noise", "unit": "share"},
        ],
        "reliability": [], "curves": [], "scatter": [], "ablation": [], "training": [],
        "failures": [{"run": "0123456789abcdef", "name": "crl", "seed": 3, "error": "the loss is not a number"}],
        "files": [["All numbers", "results.csv"], ["Runs", "runs/a b#1.html"]],
        "commands": ["calibrant compare recipe.toml --seeds 5 -o results/scenes", "calibrant compare --help"],
    }  # fmt: skip
    for k, method in enumerate(methods):
        s = audits.Sample(k, 900 + k, 7, 1 + 0.15 * k)
        accuracy, confidence = float(s.right.mean()), float(s.confidence.mean())
        made["reliability"].append({"name": method, "accuracy": accuracy, "confidence": confidence,
                                    "ece": abs(accuracy - confidence), "bins": audits.reliability(s)})  # fmt: skip
        risk = audits.curve(s, "msp", "MSP", s.confidence)
        made["curves"].append({"name": method, "coverage": risk["coverage"], "risk": risk["risk"]})
        points = [[accuracy + x / 150, abs(accuracy - confidence) + y / 300] for x, y in rng.random((seeds, 2))]
        made["scatter"].append({"name": method, "points": points})
        epochs = list(range(1, 21))
        for metric, top in (("val_accuracy", accuracy), ("val_nll", 1.9)):
            mean = [top * (1 - 0.6 * math.exp(-e / (4 + k / 3))) for e in epochs]
            made["training"].append({"name": method, "metric": metric, "epochs": epochs, "mean": mean,
                                     "low": [m - 0.02 for m in mean], "high": [m + 0.03 for m in mean]})  # fmt: skip
    margins = [[m, 0.03 + 0.002 * (m - 6) ** 2 / 10, 0.004, 5] for m in (0, 2, 4, 6, 8, 10)]
    alphas = [[a, 0.9 + a / 20, 0.002, 3] for a in (0.001, 0.01, 0.05, 0.1, 0.4)]
    made["ablation"] = [
        {"name": methods[-1], "parameter": "margin", "metric": "ece", "points": margins},
        {"name": methods[1], "parameter": "alpha", "metric": "accuracy", "points": alphas},
        {"name": methods[0], "parameter": "kind", "metric": "nll", "points": [["a", 0.31, None, 1], ["b", 0.3, 0, 1]]},
    ]
    return made


def table(methods: list[str]) -> str:
    """A fragment as `calibrant.experiments.tables.html` makes them: in a box that scrolls, without a caption."""
    heads = ("Accuracy ↑", "ECE ↓", "NLL ↓", "AURC ↓")
    rows = [
        [
            m, "ece", PrintedNumber(f"93.{k:02} ± 0.12", is_best=True),
            PrintedNumber(f"3.{k:02} ± 0.20", "(3 runs)", is_second=True), PrintedNumber(f"0.2{k:03}"),
            PrintedNumber(""),
        ]
        for k, m in enumerate(methods)
    ]  # fmt: skip
    columns = [("Method", False), ("Tuned for", False), *((head, True) for head in heads)]
    return render_comparison_table("Test set", columns, rows)


def hostile() -> Document:
    made = document(audits.HOSTILE)
    words = audits.HOSTILE[0]
    made |= {"title": words, "lead": audits.HOSTILE, "facts": [[w, w] for w in audits.HOSTILE], "commands": [words]}
    made["tables"] = [{"title": words, "note": words, "html": "<table><caption>x</caption></table>"}]
    for part in made["effects"]:
        part |= {"claim": words, "verdict": words}
    for part in made["ablation"]:
        part |= {"parameter": words, "metric": words}
    for part in made["training"]:
        part["metric"] = words + part["metric"]
    made["failures"] = [{"run": w, "name": w, "seed": w, "error": w} for w in audits.HOSTILE]
    made["files"] = [[w, w] for w in [*audits.HOSTILE, "https://x.test/", "//x.test/a", "/etc/hosts", "\\\\x\\y"]]
    return made


def minimal() -> Document:
    return {"format": "calibrant.comparison", "version": 1, "title": "Nothing yet"}


MADE = {"full": document, "two": lambda: document(["ce", "ls"], 1), "hostile": hostile, "minimal": minimal}


def written(folder: Path, made: Document) -> str:
    write_comparison(folder / "x.html", made)
    return (folder / "x.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return {name: written(tmp_path_factory.mktemp(name[:4]), make()) for name, make in MADE.items()}


def sections(page: str) -> list[str]:
    return [e["attrs"]["id"] for e in Tree(page).all("section") if "id" in e["attrs"]]


# ---------------------------------------------------------------------- structure


@pytest.mark.parametrize("name", MADE)
def test_structure(pages: dict[str, str], name: str) -> None:
    tree = Tree(pages[name])
    ids = [e["attrs"]["id"] for e in tree.elements if "id" in e["attrs"]]
    assert len(ids) == len(set(ids))
    for element in tree.elements:
        for target in (element["attrs"].get("aria-labelledby") or "").split():
            assert target in ids
        link = element["attrs"].get("href")
        if element["tag"] in ("a", "use"):
            assert link.startswith("./") or link[1:] in ids
        assert not {"src", "srcset", "action", "data", "style"} & set(element["attrs"])
        assert not any(key.startswith("on") for key in element["attrs"])
        assert element["tag"] not in {"iframe", "object", "embed", "base", "img", "form"}
        assert element["tag"] != "link" or element["attrs"] == ICON
    levels = [int(e["tag"][1]) for e in tree.elements if re.fullmatch("h[1-6]", e["tag"])]
    assert levels.count(1) == 1
    assert all(b <= a + 1 for a, b in itertools.pairwise(levels))
    for found in tree.all("table"):
        trusted = any(p["attrs"].get("class") == "results" for p in found["parents"])
        assert trusted or tree.inside(found, "caption")
        assert all(e["attrs"].get("scope") for e in tree.inside(found, "th"))
        assert sum("scroll" in p["attrs"].get("class", "") for p in found["parents"]) == 1
    for image in tree.all("svg"):
        kind = image["attrs"].get("class", "")
        if kind.startswith("chart"):
            first = [e for e in tree.elements if e["parents"] and e["parents"][-1] is image][:2]
            assert [e["tag"] for e in first] == ["title", "desc"]
            assert all(e["text"].strip() for e in first)
            figure = next(p for p in image["parents"] if p["tag"] == "figure")
            assert tree.inside(figure, "figcaption")
        elif kind == "strip":
            assert image["attrs"]["aria-label"]
        elif not any("chart" in p["attrs"].get("class", "") for p in image["parents"]):
            assert image["attrs"]["aria-hidden"] == "true"


def test_all_sections_in_order(pages: dict[str, str]) -> None:
    assert sections(pages["full"]) == PARTS
    assert sections(pages["minimal"]) == []
    assert "Nothing yet" in pages["minimal"]


@pytest.mark.parametrize("missing", [True, False])
@pytest.mark.parametrize(("key", "part"), list(zip(LISTS, PARTS, strict=True)))
def test_what_is_missing_or_empty_has_no_section(tmp_path: Path, key: str, part: str, missing: bool) -> None:
    made = document(["ce", "ls", "acls"], 2)
    if missing:
        del made[key]
    else:
        made[key] = []
    page = written(tmp_path, made)
    assert sections(page) == [p for p in PARTS if p != part]
    assert f'href="#{part}"' not in page


def test_nothing_but_numbers_that_cannot_be_drawn_is_nothing(tmp_path: Path) -> None:
    made = minimal() | {
        "curves": [{"name": "a", "coverage": [0.5], "risk": [math.nan]}],
        "scatter": [{"name": "a", "points": [[None, 0.1]]}],
        "ablation": [{"name": "a", "parameter": "p", "metric": "ece", "points": [[1, None, None, 0]]}],
        "training": [{"name": "a", "metric": "loss", "epochs": [1], "mean": [None]}],
    }
    assert sections(written(tmp_path, made)) == []


def test_single_numbers_are_drawn(tmp_path: Path) -> None:
    """One epoch, one value, one seed, equal values: ranges of no width."""
    made = minimal() | {
        "effects": [{"claim": "a", "values": [0.0], "mean": 0.0, "low": None, "high": None, "verdict": "within noise"}],
        "curves": [{"name": "a", "coverage": [1.0], "risk": [0.0]}],
        "scatter": [{"name": "a", "points": [[1.0, 0.0]]}, {"name": "b", "points": [[1.0, 0.0]]}],
        "ablation": [{"name": "a", "parameter": "p", "metric": "accuracy", "points": [[1, 1.0, math.nan, 1]]}],
        "training": [{"name": "a", "metric": "loss", "epochs": [1], "mean": [0.0], "low": [], "high": []}],
    }
    page = written(tmp_path, made)
    assert sections(page) == ["effects", "risk", "scatter", "ablation", "training"]
    assert not re.search(r'[\s"](nan|inf)\b', re.sub("<style>.*?</style>|<script>.*?</script>", "", page, flags=re.S))


def test_numbers_are_those_given(pages: dict[str, str]) -> None:
    tree = Tree(pages["two"])
    (effects,) = (e for e in tree.all("table") if "effects" in e["attrs"].get("class", ""))
    rows = [audits.typed(row["text"]) for row in tree.inside(effects, "tr")[1:]]
    assert "-2.73 pp [-4.30, -1.12]" in rows[0]
    assert rows[0].endswith("holds")
    assert "+0.2600 [+0.1200, +0.4000]" in rows[1]
    assert rows[1].endswith("does not hold")
    assert rows[2].endswith("within noise")
    strips = [audits.typed(e["attrs"]["aria-label"]) for e in tree.all("svg") if e["attrs"].get("class") == "strip"]
    assert strips[0] == "differences of 3 seeds: -2.10 pp, -3.40 pp, -2.70 pp"
    (scatter,) = (e for e in tree.all("section") if e["attrs"].get("id") == "scatter")
    for group in MADE["two"]()["scatter"]:
        for accuracy, ece in group["points"]:
            assert f"{group['name']}{100 * accuracy:.2f}%{100 * ece:.2f}%" in scatter["text"]
    assert "1 run failed, and is missing here." in pages["two"]


def test_marks_lie_where_their_numbers_say(tmp_path: Path) -> None:
    """The corners of a scatter's range, worked out by hand: 7% of the range is room on every side."""
    points = [[0.5, 0.1], [0.6, 0.3]]
    page = written(tmp_path, minimal() | {"scatter": [{"name": "a", "points": points}]})
    chart = page[page.index('id="scatter-chart"') :]
    starts = [(float(x) + 5, float(y)) for x, y in re.findall(r'class="mark drawn s0" d="M([\d.]+) ([\d.]+)a', chart)]
    wide, tall = 640 - 66 - 20, 420 - 14 - 50
    assert starts == [
        (pytest.approx(66 + wide * 0.07 / 1.14, abs=0.1), pytest.approx(420 - 50 - tall * 0.07 / 1.14, abs=0.1)),
        (pytest.approx(66 + wide * 1.07 / 1.14, abs=0.1), pytest.approx(420 - 50 - tall * 1.07 / 1.14, abs=0.1)),
    ]


def test_a_method_looks_the_same_in_every_section(pages: dict[str, str]) -> None:
    tree = Tree(pages["full"])
    found: dict[str, set[str]] = {}
    for item in tree.all("li"):
        if re.fullmatch(r"s\d+", item["attrs"].get("class") or ""):
            found.setdefault(item["text"], set()).add(item["attrs"]["class"])
    for head in tree.all("h3"):
        if head["attrs"].get("class") == "named":
            (key,) = (e for e in tree.inside(head, "span") if e["attrs"]["class"].startswith("key"))
            found[head["text"]].add(key["attrs"]["class"].removeprefix("key "))
    assert found == {method: {f"s{k}"} for k, method in enumerate(METHODS)}


def test_a_method_has_its_colour_and_mark_where_a_setting_is_varied(tmp_path: Path) -> None:
    rows = [
        {"name": n, "method": n.partition(",")[0], "points": [[0.9 - k / 50, 0.1]]}
        for k, n in enumerate(("ce", "ls, tuned for ece and nll"))
    ]
    curve = {"name": "ls", "method": "ls", "parameter": "alpha", "metric": "val_ece"}
    one = [[0.1, 0.2, None, 1], [0.2, 0.3, None, 1]]
    page = written(tmp_path, minimal() | {"scatter": rows, "ablation": [curve | {"points": one}]})
    chart = page[page.index('id="ablation-0"') :]
    assert set(re.findall(r'class="mark ([^"]*)"', chart)) == {"drawn s1"}
    assert "held-out data" in page
    assert "ECE (validation)" in page
    assert "standard deviation to either side" not in page
    several = [[0.1, 0.2, 0.01, 3], [0.2, 0.3, 0.02, 3]]
    page = written(tmp_path, minimal() | {"ablation": [curve | {"metric": "ece", "points": several}]})
    assert "standard deviation to either side" in page
    assert "held-out data" not in page


@pytest.mark.parametrize(
    ("risks", "top", "cut"),
    [
        ([0.0, 0.02, 0.098], 0.1, False),  # ticks of 2%
        ([0.5, 0.02, 0.101], 0.125, True),  # of 2.5%, and the first sample is wrong
        ([0.11, 0.02, 0.101], 0.125, False),
        ([0.0, 0.0, 0.0], 0.004, False),
        ([1.0, 0.7, 0.97], 1.0, False),
    ],
)
def test_the_chart_of_risks_ends_at_a_tick(tmp_path: Path, risks: list[float], top: float, cut: bool) -> None:
    curves = [{"name": "a", "coverage": [0.01, 0.5, 1.0], "risk": risks}]
    assert ceiling(curves) == pytest.approx(top)
    assert is_cut_off(curves) == cut
    assert ("leave the frame" in written(tmp_path, minimal() | {"curves": curves})) == cut


# ---------------------------------------------------------------------- escaping and refusals


def test_hostile_names_are_text(pages: dict[str, str]) -> None:
    page, tree = pages["hostile"], Tree(pages["hostile"])
    assert len(tree.all("script")) == 1
    assert not tree.all("b")
    for word in audits.HOSTILE[:4]:
        assert word not in page
        assert any(e["text"] == word for e in tree.all("bdi"))
    links = [e["attrs"]["href"] for e in tree.all("a") if not e["attrs"]["href"].startswith("#")]
    assert all(re.fullmatch(r"\./[\w%./~-]*", link) for link in links)
    assert not any("x.test/a" in link or "hosts" in link for link in links)


def test_links_name_files_beside_the_page(pages: dict[str, str]) -> None:
    links = [e["attrs"]["href"] for e in Tree(pages["full"]).all("a") if not e["attrs"]["href"].startswith("#")]
    assert links == ["./results.csv", "./runs/a%20b%231.html"]


def test_half_characters_in_names_do_not_stop_the_page(tmp_path: Path) -> None:
    made = document(["a\udcff", "b\x00", "c"], 2)
    made["files"] = [["half", "runs/\udcff.html"]]
    assert "a\ufffd" in written(tmp_path, made)


def test_the_same_document_gives_the_same_bytes(tmp_path: Path) -> None:
    made = document()
    before = copy.deepcopy(made)
    assert written(tmp_path, made) == written(tmp_path, json.loads(json.dumps(made)))
    assert made == before


def spoilt(key: str, field: str | None, value: Any = None) -> Document:
    made = document(["ce", "ls", "acls"], 2)
    if field is None:
        made[key] = value
    elif value is None:
        del made[key][0][field]
    else:
        made[key][0][field] = value
    return made


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (
            spoilt("format", None, "calibrant.audit"),
            "calibrant.comparison document of version 1, got 'calibrant.audit'",
        ),
        (spoilt("version", None, 2), "version 1, got 'calibrant.comparison', 2"),
        (spoilt("curves", "risk"), "entry 1 of 'curves' needs name, coverage, risk, and 'risk' is missing"),
        (spoilt("curves", "risk", [0.1]), "curve of 'ce', needs series of one length"),
        (spoilt("training", "low", [0.1]), "training of 'ce', needs series of one length"),
        (spoilt("scatter", "points", [[0.9, 0.1, 0.2]]), "scatter of 'ce', needs points of 2 numbers, got 3"),
        (spoilt("ablation", "points", [[1, 2]]), "ablation of 'acls', needs points of 4 numbers, got 2"),
        (spoilt("reliability", "bins", {"low": [0]}), "reliability of 'ce', needs the series low, high"),
        (spoilt("effects", "claim"), "entry 1 of 'effects' needs claim, mean, and 'claim' is missing"),
    ],
)
def test_what_cannot_be_drawn_is_said_and_nothing_is_written(tmp_path: Path, made: Document, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        write_comparison(tmp_path / "x.html", made)
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------------- in a browser


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", MADE)
def test_pages_open_quietly_and_fit_the_window(browser: Any, tmp_path: Path, name: str, width: int) -> None:  # noqa: F811
    written(tmp_path, MADE[name]())
    address, noise = (tmp_path / "x.html").as_uri(), []
    context = browser.new_context(viewport={"width": width, "height": 900})
    page = context.new_page()
    page.on("console", lambda m: noise.append(m.text))
    page.on("pageerror", lambda e: noise.append(str(e)))
    page.on("request", lambda r: r.url == address or noise.append(r.url))
    page.goto(address)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    context.close()
    assert not noise


def test_pointing_at_a_method_fades_the_others(browser: Any, tmp_path: Path) -> None:  # noqa: F811
    written(tmp_path, document())
    context = browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    page = context.new_page()
    page.goto((tmp_path / "x.html").as_uri())
    page.hover("#risk .legend li.s3")
    shown = "k => getComputedStyle(document.querySelector(`#risk-chart .drawn.s${k}`)).opacity"
    assert [float(page.evaluate(shown, k)) for k in (3, 4, 13)] == [1, 0.12, 0.12]
    context.close()
