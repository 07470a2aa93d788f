"""The page of a comparison: its parts, the numbers and places of its marks, and the looks of its methods."""

import itertools
import math
import re
from importlib import resources

import numpy as np
import pytest

from calibrant.report import write_comparison
from calibrant.report.html.comparison_charts import Look, ceiling, is_cut_off, limits, looks, scatter
from tests.helpers.audit_document import typed
from tests.helpers.page_documents import METHODS, comparison, minimal_comparison
from tests.helpers.pages import Tree, page_of

PARTS = ["effects", "results", "reliability", "risk", "scatter", "ablation", "training", "failures", "files",
         "reproduce"]  # fmt: skip
LISTS = ["effects", "tables", "reliability", "curves", "scatter", "ablation", "training", "failures", "files",
         "commands"]  # fmt: skip


def written(folder, made):
    return page_of(write_comparison, folder, made)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return Tree(written(tmp_path_factory.mktemp("pages"), comparison()))


@pytest.mark.slow
def test_sections_come_in_order_and_only_if_they_hold_something(whole, tmp_path):
    assert whole.sections() == PARTS
    made = comparison(["ce", "ls", "acls"], 2)
    for key, part in zip(LISTS, PARTS, strict=True):
        without = {name: value for name, value in made.items() if name != key}
        for document in (without, made | {key: []}):
            page = written(tmp_path, document)
            assert Tree(page).sections() == [p for p in PARTS if p != part]
            assert f'href="#{part}"' not in page


@pytest.mark.slow
def test_a_verdict_comes_first_and_may_be_missing(tmp_path):
    shown = {}
    for level in ("good", "info", "unknown", "odd"):
        verdict = {"level": level, "headline": "ls has <the> lowest ECE.", "text": "It is so."}
        tree = Tree(written(tmp_path, comparison() | {"verdict": verdict}))
        part = tree.one("section", of_class="verdict")
        assert "ls has <the> lowest ECE." in part["text"]
        assert tree.elements.index(part) < tree.elements.index(tree.one("section", id="effects"))
        shown[level] = part["text"]
    assert len(set(shown.values())) == 3, "an unknown level is not tested"
    page = written(tmp_path, comparison() | {"verdict": None})
    assert not Tree(page).all("section", of_class="verdict")


def test_nothing_but_numbers_that_cannot_be_drawn_is_nothing(tmp_path):
    made = minimal_comparison() | {
        "curves": [{"name": "a", "coverage": [0.5], "risk": [math.nan]}],
        "scatter": [{"name": "a", "points": [[None, 0.1]]}],
        "ablation": [{"name": "a", "parameter": "p", "metric": "ece", "points": [[1, None, None, 0]]}],
        "training": [{"name": "a", "metric": "loss", "epochs": [1], "mean": [None]}],
    }
    assert Tree(written(tmp_path, made)).sections() == []


def test_single_numbers_are_drawn(tmp_path):
    """One epoch, one value, one seed, equal values: ranges of no width."""
    made = minimal_comparison() | {
        "effects": [{"claim": "a", "values": [0.0], "mean": 0.0, "low": None, "high": None, "verdict": "within noise"}],
        "curves": [{"name": "a", "coverage": [1.0], "risk": [0.0]}],
        "scatter": [{"name": "a", "points": [[1.0, 0.0]]}, {"name": "b", "points": [[1.0, 0.0]]}],
        "ablation": [{"name": "a", "parameter": "p", "metric": "accuracy", "points": [[1, 1.0, math.nan, 1]]}],
        "training": [{"name": "a", "metric": "loss", "epochs": [1], "mean": [0.0], "low": [], "high": []}],
    }
    page = written(tmp_path, made)
    assert Tree(page).sections() == ["effects", "risk", "scatter", "ablation", "training"]
    assert not re.search(r'[\s"](nan|inf)\b', re.sub("<style>.*?</style>|<script>.*?</script>", "", page, flags=re.S))


def test_numbers_are_those_given(tmp_path):
    made = comparison(["ce", "ls"], 1)
    tree = Tree(written(tmp_path, made))
    rows = [typed(row["text"]) for row in tree.inside(tree.one("table", of_class="effects"), "tr")[1:]]
    numbers = ("-2.73 pp [-4.30, -1.12]", "+0.2600 [+0.1200, +0.4000]", "")
    for row, shown, effect in zip(rows, numbers, made["effects"], strict=True):
        assert shown in row
        assert row.endswith(effect["verdict"])
    strips = [typed(e["attrs"]["aria-label"]) for e in tree.all("svg", of_class="strip")]
    assert re.findall(r"-[\d.]+", strips[0]) == ["-2.10", "-3.40", "-2.70"]
    for group in made["scatter"]:
        for accuracy, ece in group["points"]:
            shown = f"{group['name']}{100 * accuracy:.2f}%{100 * ece:.2f}%"
            assert shown in tree.one("section", id="scatter")["text"]
    assert "crl" in tree.one("section", id="failures")["text"]
    links = [e["attrs"]["href"] for e in tree.all("a") if not e["attrs"]["href"].startswith("#")]
    assert links == ["./results.csv", "./runs/a%20b%231.html"]


def test_marks_lie_where_their_numbers_say(tmp_path):
    """The corners of a scatter's range, worked out by hand: 7% of the range is room on every side."""
    points = [[0.5, 0.1], [0.6, 0.3]]
    page = written(tmp_path, minimal_comparison() | {"scatter": [{"name": "a", "points": points}]})
    chart = page[page.index('id="scatter-chart"') :]
    starts = [(float(x) + 5, float(y)) for x, y in re.findall(r'class="mark drawn s0" d="M([\d.]+) ([\d.]+)a', chart)]
    wide, tall = 640 - 66 - 20, 420 - 14 - 50
    assert starts == [
        (pytest.approx(66 + wide * 0.07 / 1.14, abs=0.1), pytest.approx(420 - 50 - tall * 0.07 / 1.14, abs=0.1)),
        (pytest.approx(66 + wide * 1.07 / 1.14, abs=0.1), pytest.approx(420 - 50 - tall * 1.07 / 1.14, abs=0.1)),
    ]


def test_a_method_looks_the_same_in_every_section(whole):
    tree = whole
    found = {}
    for item in tree.all("li"):
        if re.fullmatch(r"s\d+", item["attrs"].get("class") or ""):
            found.setdefault(item["text"], set()).add(item["attrs"]["class"])
    for head in tree.all("h3"):
        if head["attrs"].get("class") == "named":
            (key,) = (e for e in tree.inside(head, "span") if e["attrs"]["class"].startswith("key"))
            found[head["text"]].add(key["attrs"]["class"].removeprefix("key "))
    assert found == {method: {f"s{k}"} for k, method in enumerate(METHODS)}


def test_a_method_has_its_colour_where_a_setting_is_varied(tmp_path):
    rows = [
        {"name": n, "method": n.partition(",")[0], "points": [[0.9 - k / 50, 0.1]]}
        for k, n in enumerate(("ce", "ls, tuned for ece and nll"))
    ]
    points = [[0.1, 0.2, None, 1], [0.2, 0.3, None, 1]]
    curve = {"name": "ls", "method": "ls", "parameter": "alpha", "metric": "val_ece", "points": points}
    page = written(tmp_path, minimal_comparison() | {"scatter": rows, "ablation": [curve]})
    chart = page[page.index('id="ablation-0"') :]
    assert set(re.findall(r'class="mark ([^"]*)"', chart)) == {"drawn s1"}
    assert "ECE (validation)" in Tree(page).one("section", id="ablation")["text"]


@pytest.mark.parametrize(
    ("risks", "top", "cut"),
    [
        ([0.0, 0.02, 0.098], 10, False),  # ticks of 2%
        ([0.5, 0.02, 0.101], 12.5, True),  # of 2.5%, and the first sample is wrong
        ([0.11, 0.02, 0.101], 12.5, False),
        ([0.0, 0.0, 0.0], 0.4, False),
        ([1.0, 0.7, 0.97], 100, False),
    ],
)
def test_the_chart_of_risks_ends_at_a_tick(risks, top, cut):
    curves = [{"name": "a", "coverage": [0.01, 0.5, 1.0], "risk": risks}]
    assert 100 * ceiling(curves) == pytest.approx(top)
    assert is_cut_off(curves) == cut


# ---------------------------------------------------------------------- looks of methods


def colours(dark):
    """The colours of the style by their number, as the browser would read them."""
    style = "".join(
        resources.files("calibrant.report").joinpath("html", "assets", f).read_text(encoding="utf-8")
        for f in ("report.css", "comparison.css")
    )
    blocks = re.findall(r"(prefers-color-scheme:dark\)\{)?:root\{(.*?)\}", style, flags=re.S)
    own = "".join(body for scheme, body in blocks if bool(scheme) == dark)
    found = dict(re.findall(r"--s(\d+):(#[0-9a-f]{6})", own))
    return [found[str(k)] for k in range(14)]


def linear(colour):
    shares = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in shares]


def lab(colour):
    """CIE L*a*b* of an sRGB colour under D65."""
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    t = to_xyz @ linear(colour) / np.array([0.9505, 1.0, 1.089])
    x, y, z = np.where(t > 0.008856, np.cbrt(t), 7.787 * t + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize(("dark", "ground"), [(False, "#fcfcfb"), (True, "#14181c")])
def test_fourteen_colours_can_be_told_apart(dark, ground):
    """At least 15 apart in CIE 1976, seven times what can just be seen; nearer than 30 only with other dashes."""
    found = colours(dark)
    assert len(set(found)) == 14
    for (j, a), (k, b) in itertools.combinations(enumerate(found), 2):
        apart = float(np.linalg.norm(lab(a) - lab(b)))
        assert apart > 15, (a, b)
        assert apart > 30 or Look(j).line.split()[1] != Look(k).line.split()[1], (a, b)
    for colour in found:  # WCAG's contrast of graphics
        light, dim = sorted((np.dot([0.2126, 0.7152, 0.0722], linear(c)) for c in (colour, ground)), reverse=True)
        assert (light + 0.05) / (dim + 0.05) >= 3, colour


def test_looks_of_more_methods_than_colours_still_differ():
    found = list(looks([f"m{k}" for k in range(40)] * 2).values())
    assert len(found) == 40
    assert len({look.line for look in found[:14]}) == 14
    assert len({(look.line, look.mark(0, 0)) for look in found}) == 40
    assert len({re.sub(r" s\d+", "", look.mark(0, 0)) for look in found[:14]}) == 14


def test_variants_of_a_method_share_its_colour_and_look_different():
    names = ["ce", *(f"{m}, tuned for {t}" for m in ("ls", "lr") for t in ("ece", "nll", "aurc", "accuracy")), "ls"]
    found = looks(names, {name: name.partition(",")[0] for name in names})
    assert [found[n].colour for n in names] == ["s0", *["s1"] * 4, *["s2"] * 4, "s1"]
    assert found["ls"] == found["ls, tuned for ece"]
    assert len({found[n].line for n in names}) == len({found[n].mark(0, 0) for n in names}) == 9


NEAR = {"a": [[0.80, 0.10], [0.81, 0.11]], "b": [[0.82, 0.12]], "c": [[0.84, 0.20]]}


def drawn(points):
    groups = [{"name": name, "points": own} for name, own in points.items()]
    return scatter("chart", groups, looks(list(points)))


@pytest.mark.parametrize(
    ("groups", "ends"),
    [
        ([[0.1, 0.11], [0.12], [0.2]], (0.093, 0.207)),  # 7% of 0.1 on either side
        ([[0.1, 0.11], [0.12], [0.2], [0.9]], (0.093, 0.207)),  # 0.1 is less than a quarter of 0.8: the last is out
        ([[0.1], [0.12], [0.2], [0.3]], (0.086, 0.314)),  # 0.1 is half of 0.2: nobody is
        ([[0.1], [0.1], [0.9]], (0.044, 0.956)),  # of three methods none is the odd one
        ([[0.1], [0.12], [0.88], [0.9]], (0.044, 0.956)),  # nor of two pairs
        ([[0.5], [0.5], [0.5], [0.9]], (0.475, 0.525)),  # a range of nothing: a twentieth of the value
    ],
)
def test_one_method_does_not_squeeze_the_others(groups, ends):
    assert limits(groups) == pytest.approx(ends)


def test_an_arrow_names_what_lies_outside():
    chart = drawn(NEAR | {"far": [[0.83, 0.90], [0.82, 0.95]]})
    assert re.findall(r">(↑[^<]*)<", chart) == ["↑ far: ECE 90.00% to 95.00%"]
    assert "far: accuracy 83.00%, ECE 90.00%" in chart  # the tip keeps the true value


def test_two_outside_have_labels_of_their_own():
    chart = drawn(NEAR | {"c": [[0.84, 0.12]], "far": [[0.83, 0.20]], "further": [[0.83, 0.99]]})
    rows = re.findall(r'y="([\d.]+)">↑', chart)
    assert len(set(rows)) == 2
