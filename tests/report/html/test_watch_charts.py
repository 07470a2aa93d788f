"""Charts of a watch: where their marks lie, worked by hand."""

import re

from calibrant.report.html.watch_charts import coverage, evidence, rates
from tests.report.html.test_watch_page import arrival, batch_row, watch_test

NAMES = {"promise": "The promise", "score": "Score"}


def heights(svg, kind="looked"):
    return [float(y) for y in re.findall(rf'class="{kind}[^"]*" cx="[\d.]+" cy="([\d.-]+)"', svg)]


def level(svg):
    return float(re.search(r'class="promised" x1="[\d.]+" y1="([\d.]+)"', svg)[1])


def test_a_rate_above_the_promise_lies_above_its_line():
    svg = rates("r", [arrival("a", 2, 100, 0.0, 0.1), arrival("b", 9, 100, 0.02, 0.1)], 0.05)
    low, high = heights(svg)
    assert high < level(svg) < low
    assert "9.00% of 100 answers wrong" in svg


def test_coverage_lies_where_its_share_of_the_axis_is():
    svg = coverage("c", [batch_row("a", coverage=0.0), batch_row("b", coverage=1.0)], 0.5)
    low, high = heights(svg)
    assert level(svg) == (low + high) / 2


def test_evidence_beyond_all_doubt_stays_in_the_picture():
    svg = evidence(
        "e", [watch_test("promise", [0.0, 900.0], "week2.parquet"), watch_test("score", [-50.0, -60.0])], NAMES
    )
    assert min(heights(svg)) >= 0
    assert "It was reached by: The promise." in svg
