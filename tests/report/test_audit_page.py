"""The page of an audit: its numbers and words are those of the document, in an order that helps, however it is read."""

import json
from decimal import ROUND_HALF_UP, Decimal

import numpy as np
import pytest

from calibrant.report import write_audit
from calibrant.report.html.audit_tables import prediction_sets
from tests.helpers.audit_document import document, typed
from tests.helpers.pages import Tree, page_of

KINDS = ("one", "two", "three", "many", "confidence", "segmentation", "probabilities", "minimal")


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    return {name: Tree(page_of(write_audit, folder, document(name))) for name in KINDS}


def drawn(folder, made):
    return Tree(page_of(write_audit, folder, made))


def rows_of(tree, table):
    return [[typed(cell["text"]) for cell in tree.children(row)] for row in tree.inside(table, "tr")]


def heads_of(tree, ident, scope="col"):
    return [e["text"] for e in tree.inside(tree.one("table", id=ident), "th") if e["attrs"]["scope"] == scope]


def percent(share):
    return f"{(100 * Decimal(repr(share))).quantize(Decimal('0.01'), ROUND_HALF_UP)}%"


def test_sections_come_in_order_and_only_if_they_hold_something(pages):
    whole = [
        "findings", "fixes", "numbers", "comparisons", "reliability", "histogram", "risk", "logits", "classes",
        "groups", "errors", "method", "reproduce",
    ]  # fmt: skip
    shown = {name: [section for section in tree.sections() if section in whole] for name, tree in pages.items()}
    assert shown["three"] == whole
    assert shown["one"] == [section for section in whole if section != "comparisons"]
    assert not {"fixes", "comparisons", "logits", "classes", "groups", "errors"} & set(shown["minimal"])
    tree = pages["one"]
    assert tree.elements.index(tree.one("section", of_class="verdict")) < tree.elements.index(
        tree.one("section", id="findings")
    )


@pytest.mark.parametrize("level", ["good", "fair", "poor", "unknown", "nonsense"])
def test_the_verdict_has_a_word_beside_its_colour(tmp_path, level):
    made = document("minimal")
    made["verdict"]["level"] = level
    verdict = drawn(tmp_path, made).one("section", of_class="verdict")
    shown = level if level != "nonsense" else "unknown"
    assert shown in verdict["attrs"]["class"]
    assert shown.capitalize() in verdict["text"]
    assert made["verdict"]["headline"] in verdict["text"]


def test_each_of_several_files_has_its_verdict(pages):
    shown = [e["text"] for e in pages["three"].all("div", of_class="own")]
    headlines = [m["verdict"]["headline"] for m in document("three")["models"]]
    assert [headline in words for headline, words in zip(headlines, shown, strict=True)] == [True] * 3
    assert not pages["one"].all("div", of_class="own")


@pytest.mark.parametrize("name", ["one", "three"])
def test_metrics_are_those_given(pages, name):
    made, tree = document(name), pages[name]
    rows = rows_of(tree, tree.one("table", of_class="metrics"))
    for m, model in enumerate(made["models"]):
        for metric in model["metrics"]:
            named = [cells for cells in rows if len(cells) > 1 and cells[0].startswith(metric["label"])]
            row = min(named, key=lambda cells: len(cells[0]))
            values = [metric[key] for key in ("value", "low", "high")]
            if metric["unit"] == "share" and all(0.01 <= v < 0.999 for v in values):
                value, low, high = map(percent, values)
                assert f"{value} [{low}, {high}]" in row[1 + m]
            elif metric["unit"] == "number":
                assert f"{values[0]:.4f}" in row[1 + m]
            assert ("lower" in row[0], "higher" in row[0]) == (metric["better"] == "low", metric["better"] == "high")


def test_what_is_not_known_is_left_out(pages):
    """A file of confidences has no classes; the NLL says why it has a floor; one sample has no interval."""
    assert heads_of(pages["confidence"], "errors-0") == ["Sample", "Confidence"]
    terms = [{e["text"] for e in pages[name].all("dt")} for name in ("confidence", "one")]
    assert [{"By class", "Class-wise ECE"} & own for own in terms] == [set(), {"By class", "Class-wise ECE"}]
    note = document("probabilities")["models"][0]["metrics"][1]["note"]
    tree = pages["probabilities"]
    (row,) = (r for r in rows_of(tree, tree.one("table", of_class="metrics")) if r[0].startswith("NLL"))
    assert note in row[1]
    tree = pages["minimal"]
    (row,) = (r for r in rows_of(tree, tree.one("table", of_class="metrics")) if r[0].startswith("ECE (15"))
    assert "[" not in row[1]


def test_pixels_are_called_pixels(pages, tmp_path):
    made = document("segmentation")
    made["models"][0]["errors"][0]["place"] = "row 2, column 7"
    tree = drawn(tmp_path, made)
    assert "Pixels" in heads_of(tree, "classes-0")
    assert "row 2, column 7" in tree.one("table", id="errors-0")["text"]
    assert "4,000 pixels" in tree.all("header")[0]["text"]
    words = " ".join(e["text"] for e in tree.all("text"))
    assert "pixels" in words
    assert "sample" not in words


@pytest.mark.parametrize("total", [1223, 50, None])
def test_errors_say_how_many_there_are_in_all(tmp_path, total):
    made = document("one")
    made["models"][0]["errors_in_all"] = total
    tree = drawn(tmp_path, made)
    table = tree.one("table", id="errors-0")
    totals = {e["attrs"]["data-total"] for e in tree.elements if "data-total" in e["attrs"]}
    assert ("1,223" in table["text"]) == ("1223" in totals) == (total == 1223)
    assert ("50" in table["text"].partition("Sample")[0]) == (total is not None)


@pytest.mark.slow
def test_fixes_and_comparisons_say_which_way_they_point(tmp_path):
    made = document("three")
    numbers = {"ece_15": (-0.0309, -0.035, -0.025), "accuracy": (-0.0038, -0.0091, 0.0012),
               "nll": (0.0431, 0.0312, 0.0549)}  # fmt: skip
    for row in made["comparisons"][0]["rows"]:
        if row["name"] in numbers:
            row.update(zip(("difference", "low", "high"), numbers[row["name"]], strict=True))
    fix = made["models"][0]["fixes"][0]
    fix.update(metric="AECE", name="aece", difference=0.0011, low=-0.0004, high=0.0026)
    rows = {typed(e["text"]) for e in drawn(tmp_path, made).all("tr")}
    for numbers_shown, word in (
        ("-3.09 pp [-3.50, -2.50]", "better"), ("-0.38 pp [-0.91, +0.12]", "no clear change"),
        ("+0.0431 [+0.0312, +0.0549]", "worse"), ("+0.11 pp [-0.04, +0.26]", "no clear change"),
    ):  # fmt: skip
        assert any(numbers_shown in row and row.endswith(word) for row in rows), numbers_shown


def test_class_rows_are_flagged_first_then_by_how_surely_they_are_off(pages):
    rows = document("one")["models"][0]["classes_table"]
    # Above 0 where the interval leaves 0 out: how far. Below 0 where it does not: how far it reaches beyond.
    off = {r["name"]: (r["flag"], max(r["gap_low"], -r["gap_high"])) for r in rows}
    shown = [text.rpartition(": ")[2] for text in heads_of(pages["one"], "classes-0", "row")]
    assert shown == sorted(off, key=off.get, reverse=True)
    assert {flag for flag, _ in off.values()} == {True, False}


def test_risks_at_coverages_are_those_of_the_numbers(pages):
    model, tree = document("one")["models"][0], pages["one"]
    table = tree.one("table", of_class="risks")
    rows = [[typed(e["text"]) for e in tree.inside(row, "td")] for row in tree.inside(table, "tr")][1:]
    values = {m["name"]: m["value"] for m in model["metrics"]}
    assert rows[0][:3] == [percent(values[f"risk_at_coverage_{c}"]) for c in ("0.8", "0.9", "0.95")]
    # The other score: the error rate of so many of the most confident, which the curve holds.
    curve = model["curves"][1]
    assert rows[1] == [percent(curve["risk"][curve["accepted"].index(n)]) for n in (2400, 2700, 2850, 3000)]


@pytest.mark.parametrize("name", ["one", "three"])
def test_bars_have_one_scale_however_many_files(pages, name):
    """In every row of the numbers some interval reaches the end of the track."""
    tree = pages[name]
    for row in tree.inside(tree.one("table", of_class="metrics"), "tr"):
        paths = [e["attrs"]["d"] for e in tree.inside(row, "path") if "class" not in e["attrs"]]
        assert not paths or max(float(d.rsplit("H", 1)[1]) for d in paths) == 84


def test_bars_of_the_reliability_diagram_are_as_tall_as_the_accuracy(pages):
    part, tree = document("one")["models"][0]["reliability"], pages["one"]
    chart = tree.one("svg", id="reliability-0")
    (diagonal,) = (e["attrs"] for e in tree.inside(chart, "line") if e["attrs"]["class"] == "diagonal")
    whole = float(diagonal["y1"]) - float(diagonal["y2"])
    heights = [float(e["attrs"]["height"]) for e in tree.inside(chart, "rect") if e["attrs"]["class"] == "bar"]
    np.testing.assert_allclose(heights, [whole * a for a in part["accuracy"] if a is not None], atol=0.1)


def test_documents_without_the_newer_fields_are_drawn(tmp_path):
    made = document("two")
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
    tree = drawn(tmp_path, made)
    assert "900 samples" in tree.all("header")[0]["text"]
    assert any(e["text"].startswith("Temperature scaling") for e in tree.all("th"))
    data = json.loads(tree.one("script", type="application/json")["text"])
    assert not any(c["all"] for c in data["curves"]), "what is not known to be whole is not called so"


def test_shares_of_sets_are_listed_with_the_lowest_classes_first():
    rows = [
        {"label": "Sets with the true class", "value": 0.942, "low": 0.93, "high": 0.95, "unit": "share", "note": ""}
    ]
    classes = [{"name": f"<b>{k}", "samples": 1200, "value": k / 50, "low": 0.0, "high": k / 50} for k in range(50)]
    page = prediction_sets({"rows": rows, "classes": classes[::-1]})
    assert "94.20%" in page
    assert "<b>" not in page
    shown = [page.find(f"&lt;b&gt;{k}<") for k in range(31)]
    assert shown[:30] == sorted(shown[:30])
    assert shown[0] > 0 > shown[30], "thirty of fifty"
