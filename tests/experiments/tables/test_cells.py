"""Cells of tables: digits, ties, directions."""

import math

from calibrant.experiments.tables import Column, summary, text
from tests.helpers.result_rows import NAN, of


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
    assert "One run each." in table.note


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
