"""Tables as Markdown, LaTeX, CSV, HTML and text; their digits, ties and directions."""

import csv as csv_files
import io
import math
import re
from html.parser import HTMLParser

import pytest

from calibrant.experiments.results import Results
from calibrant.experiments.tables import Column, csv, expected, heads, html, latex, markdown, summary, text
from calibrant.training.recipe import Expected, Recipe
from tests.helpers.result_rows import NAN, SMALL, of


def recipe(*entries):
    plain = {"data": {"layout": "digits"}, "model": {"name": "mlp"}, "paper": "LR", "table": "Table 1"}
    return Recipe.model_validate(plain | {"expected": [Expected(**entry) for entry in entries]})


NASTY = "50% of {a_b} & $x^2$ #1 ~\\n|<script>*[z]\"'"


def nasty_table():
    values = {NASTY: (0.02, 0.03), "[b]": (0.04, 0.05), "*c": (0.06,)}
    return summary(of(values) + of({NASTY: [0.1]}, "nll"), ["ece", Column("nll", title=NASTY)], title=NASTY)


def test_markdown():
    lines = markdown(summary(SMALL, ["ece"], methods=["ce", "ls"], title="ECE of two")).splitlines()
    assert lines[0] == "**ECE of two**"
    assert lines[3:6] == ["|:--|--:|", "| CE | <u>5.00 ± 1.00</u> |", "| LS | **2.67 ± 1.15** |"]
    for line in markdown(nasty_table()).splitlines():
        if line.startswith("| "):
            assert len(re.findall(r"(?<!\\)\|", line.replace("\\\\", ""))) == 4


def test_latex_is_escaped():
    needs, made = latex(nasty_table()).split("\n", 1)
    assert "booktabs" in needs
    assert "fontenc" in needs
    bare = re.sub(r"\\[\\{}$&#%_]", "", made)
    depth = 0
    for c in bare:
        depth += (c == "{") - (c == "}")
        assert depth >= 0
    assert depth == 0
    assert bare.count("$") % 2 == 0
    assert not set("#~^%") & set(bare)
    rows = made.split(r"\midrule")[1].split(r"\bottomrule")[0].strip().splitlines()
    assert [len(re.findall(r"(?<!\\)&", line)) for line in rows] == [2, 2, 2]
    assert all(line.endswith(r" \\") for line in rows)
    assert [line[:3] for line in rows[1:]] == ["{}[", "{}*"]
    assert r"\textbf{2.50 $\pm$ 0.71}" in made
    assert r"\underline{4.50 $\pm$ 0.71}" in made


def test_csv_is_unrounded():
    table = summary(SMALL, ["ece"], title="t")
    lines = list(csv_files.reader(io.StringIO(csv(table))))
    assert lines[0] == ["Method", "ECE", "ECE std", "ECE runs"]
    assert [float(x) for x in lines[2][1:]] == list(table.rows[1].cells[0][:3])
    one = list(csv_files.DictReader(io.StringIO(csv(nasty_table()))))
    assert one[0]["Method"] == NASTY
    assert one[0][f"{NASTY} std"] == ""
    assert one[1][NASTY] == ""
    paper = expected(of({"ce": [0.05]}), recipe({"method": "ce", "values": {"ece": 0.04}}))
    assert csv(paper).splitlines()[0] == "Method,Set,Measure,Paper,Ours,Ours std,Ours runs,Difference"
    assert csv(paper).splitlines()[1].startswith("ce,test,ece,0.04,0.05,,1,0.01")


class Cells(HTMLParser):
    def __init__(self):
        super().__init__()
        self.rows, self.open, self.scripts = [], [], 0

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.scripts += tag == "script"
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "tr" in self.open:
            self.rows[-1][-1] += data


def test_html():
    page = Cells()
    page.feed(html(nasty_table()))
    page.close()
    assert page.open == []
    assert page.scripts == 0
    assert page.rows[1][0] == NASTY
    assert page.rows[0] == heads(nasty_table())
    assert [r[1] for r in page.rows[1:]] == ["2.50 ± 0.71", "4.50 ± 0.71", "6.00 (n=1)"]
    made = html(summary(SMALL, ["ece"]))
    assert made.startswith('<div class="scroll"')
    assert re.search(r'<td class="num best"[^>]*><strong><span class="v">2\.00', made)
    assert re.search(r'<td class="num second"[^>]*><u><span class="v">2\.67', made)


@pytest.mark.parametrize("write", [markdown, latex, csv, html, text])
def test_nothing_to_show(write):
    assert write(summary(Results(), ["ece"])) is not None
    assert write(expected(Results(), recipe())) is not None


def test_a_column_may_have_another_better_end():
    results = of({"a": [0.5], "b": [0.6]}, "mean_confidence") + of({"a": [0.5], "b": [0.6]}, "accuracy")
    columns = [Column("accuracy", direction="none"), Column("mean_confidence", direction="low")]
    assert text(summary(results, columns)) == [["a", "50.00", "¹ 50.00"], ["b", "60.00", "² 60.00"]]
    assert columns[0].head == "Accuracy (%)"


def test_ties_at_print_precision_share():
    table = summary(
        of({"a": [0.93201], "b": [0.93199], "c": [0.9312], "d": [0.93118], "e": [0.5]}, "accuracy"), ["accuracy"]
    )
    marks = [(line.cells[0].best, line.cells[0].second) for line in table.rows]
    assert marks == [(True, False), (True, False), (False, True), (False, True), (False, False)]
    assert text(table)[0] == ["a", "¹ 93.20"]  # one run has no spread


def test_digits():
    def shown(metric, value):
        return text(summary(of({"a": [value]}, metric), [metric]))[0][1]

    assert shown("accuracy", 0.57005) == "57.01"  # binary's nearest is below
    assert shown("ece", 0.0) == "0.00"
    assert shown("nll", 0.12345) == "0.1235"
    assert shown("nll", math.inf) == "∞"
    assert shown("aurc", 0.01234567) == "0.0123"
    assert shown("coverage_at_risk_0.05", 1.0) == "100.00"


def test_values_that_do_not_exist_count_for_no_run():
    table = summary(
        of({"a": (0.5, NAN, 0.7), "b": (NAN, NAN, NAN), "c": (0.1, 0.2, 0.3)}, "overconfidence"), ["overconfidence"]
    )
    assert [row[1] for row in text(table)] == ["² 60.00 ± 14.14 (n=2)", "", "¹ 20.00 ± 10.00"]
