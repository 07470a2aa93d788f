"""The page of a watch, drawn from a document that was written by hand."""

import copy
import re

import pytest

from calibrant.report import write_watch
from calibrant.report.html.watch_page import draw_coverage, draw_evidence, draw_rates

NAMES = {"promise": "The promise", "score": "Score"}


def arrival(batch, errors, answers, low, high):
    return {"batch": batch, "errors": errors, "answers": answers, "value": errors / answers, "low": low, "high": high}


def watch_test(name, evidence, since=None, group=""):
    return {
        "name": name, "group": group, "alpha": 0.025, "log10_limit": 1.6, "log10_evidence": evidence,
        "batches": [f"week{k}.parquet" for k in range(1, len(evidence) + 1)], "alarm_since": since,
    }  # fmt: skip


def batch_row(name, risk=0.05, **changes):
    return {
        "name": name, "added": "2026-01-01", "samples": 1200, "accepted": 700, "coverage": 0.58, "implied_risk": 0.041,
        "answers_labelled": 300, "errors": 15, "risk": risk, "labels_only": False,
    } | changes  # fmt: skip


def document():
    promise = watch_test("promise", [-0.4, 0.3, 14.5], "week3.parquet")
    risk = {
        "group": "", "answers": 900, "errors": 63, "value": 0.07, "low": 0.05, "high": 0.095, "test": promise,
        "arrivals": [arrival("week1.parquet", 15, 300, 0.02, 0.1), arrival("week2.parquet", 30, 600, 0.03, 0.08),
                     arrival("<week3>", 63, 900, 0.05, 0.095)],
    }  # fmt: skip
    north = risk | {"group": "north & <east>", "test": watch_test("promise", [0.1], "week1.parquet", "north & <east>")}
    changes = [watch_test(name, [-0.1, -0.3, 0.9]) for name in ("coverage", "score", "confidence", "predicted")]
    interval = {"value": 0.04, "low": 0.01, "high": 0.06}
    return {
        "created": "2026-01-01", "calibrant": "0.1.0", "policy": "Answers 58.00% of samples.", "status": "alarm",
        "headline": "The promise is broken", "promised_risk": 0.05, "alpha": 0.05, "by_group": "site",
        "alarms": [{"name": "promise", "group": "", "since": "week3.parquet", "text": "More than 5% are wrong."}],
        "sentences": ["3 batches, 3,600 samples; at most 5% of such watches ever raise a false alarm."],
        "risk": risk, "groups": [north, north | {"group": "south", "test": None}], "tests": [promise, *changes],
        "coverage": {"value": 0.58, "low": 0.56, "high": 0.6},
        "reference_coverage": {"value": 0.6, "low": 0.57, "high": 0.63}, "implied_risk": 0.041,
        "reference_implied_risk": 0.039,
        "total_variation": dict.fromkeys(("score", "confidence", "predicted"), interval),
        "label_shift": {
            "batch": "week3.parquet", "samples": 1200, "gain": 0.0312, "p_value": 0.001, "total_variation": 0.1,
            "nll_before": 0.61, "nll_after": 0.58, "offered": True, "text": "The shares seem to have changed.",
            "classes": [{"name": "recreational vehicle", "before": 0.2, "after": 0.3}],
        },
        "batches": [batch_row("week1.parquet"), batch_row("week2.parquet"), batch_row("<week3>", None)],
        "untested": ["Nothing is untested."], "assumptions": ["Samples are independent."],
    }  # fmt: skip


def written(tmp_path, content):
    write_watch(tmp_path / "page.html", content)
    return (tmp_path / "page.html").read_text(encoding="utf-8")


def test_every_part_is_shown_and_escaped(tmp_path):
    page = written(tmp_path, document())
    texts = (
        "The promise is broken", "More than 5% are wrong.", "7.00%", "since week1.parquet", "north &amp; &lt;east&gt;",
        "&lt;week3&gt;", "recreational vehicle", "Samples are independent.",
    )  # fmt: skip
    for text in texts:
        assert text in page, text
    assert "<week3>" not in page
    assert page.count("<svg") >= 4


def test_the_batches_that_broke_the_promise_come_first(tmp_path):
    content = copy.deepcopy(document())
    breaking = {"batches": ["week3.parquet"], "errors": 33, "answers": 300, "value": 0.11}
    content["alarms"][0] |= {"breaking": breaking, "next": "Label more answers."}
    content["acknowledged"] = [{"text": "mended <it>", "date": "2026-01-01", "batches": 2, "tests": []}]
    page = written(tmp_path, content)
    assert page.index("11.00%") < page.index("7.00%")
    assert "Label more answers." in page
    assert "mended &lt;it&gt;" in page


def test_axes_carry_the_names_of_batches():
    rows = [batch_row(f"week{k}") for k in range(1, 4)]
    svg = draw_coverage("c", rows, 0.5)
    assert all(f">week{k}</text>" in svg for k in (1, 2, 3))
    many = draw_coverage("c", [batch_row(f"a-long-name-of-week{k}.parquet") for k in range(1000)], 0.5)
    shown = re.findall(r">week(\d+)</text>", many)  # without what all of them have in common
    assert len(shown) == len(set(shown)) >= 4
    assert len(heights(many)) <= 302


def test_dots_are_the_rates_of_the_arrivals(tmp_path):
    assert "week1.parquet: 5.00% of 300 answers wrong" in written(tmp_path, document())


@pytest.mark.parametrize("missing", ["labels", "sketch", "everything"])
def test_parts_that_are_not_there_are_left_out(tmp_path, missing):
    content = copy.deepcopy(document())
    if missing in ("labels", "everything"):
        content["risk"] |= {"answers": 0, "value": None, "low": None, "high": None, "arrivals": []}
        content["groups"], content["alarms"] = [], []
        content["tests"] = content["tests"][1:]
    if missing in ("sketch", "everything"):
        content["tests"] = [test for test in content["tests"] if test["name"] in ("promise", "coverage")]
        content["total_variation"], content["label_shift"] = {}, None
    if missing == "everything":
        content |= {"batches": [], "tests": [], "implied_risk": None, "coverage": {"value": None}}
    page = written(tmp_path, content)
    assert ('id="promise"' in page) == (missing == "sketch")
    assert ('id="labels"' in page) == (missing == "labels")


def heights(svg, kind="looked"):
    return [float(y) for y in re.findall(rf'class="{kind}[^"]*" cx="[\d.]+" cy="([\d.-]+)"', svg)]


def level(svg):
    return float(re.search(r'class="promised" x1="[\d.]+" y1="([\d.]+)"', svg)[1])


def test_a_rate_above_the_promise_lies_above_its_line():
    svg = draw_rates("r", [arrival("a", 2, 100, 0.0, 0.1), arrival("b", 9, 100, 0.02, 0.1)], 0.05)
    low, high = heights(svg)
    assert high < level(svg) < low
    assert "9.00% of 100 answers wrong" in svg


def test_coverage_lies_where_its_share_of_the_axis_is():
    svg = draw_coverage("c", [batch_row("a", coverage=0.0), batch_row("b", coverage=1.0)], 0.5)
    low, high = heights(svg)
    assert level(svg) == (low + high) / 2


def test_evidence_beyond_all_doubt_stays_in_the_picture():
    svg = draw_evidence(
        "e", [watch_test("promise", [0.0, 900.0], "week2.parquet"), watch_test("score", [-50.0, -60.0])]
    )
    assert min(heights(svg)) >= 0
    assert "It was reached by: The promise." in svg
