"""Paired tests against SciPy and by hand; the labels and references of tables."""

import csv as csv_files
import io
import math

import numpy as np
import pytest
from scipy import stats

from calibrant.experiments import Results, tables
from calibrant.experiments.spaces import short_title
from calibrant.experiments.tables import differences, paired, summary, text
from calibrant.experiments.tables.labels import check_reference
from calibrant.report.text import DASH, MINUS
from tests.helpers.errors import facts
from tests.helpers.result_rows import CE as BASE
from tests.helpers.result_rows import LR, LS, of, row, two_targets

RNG = np.random.default_rng(5)


CE = RNG.normal(0.05, 0.004, 5)


def changes(table, k=0):
    return {(line.method, line.tuned_for): line.cells[k].change for line in table.rows}


def test_no_marks_of_two_seeds_nor_of_one_difference():
    two = summary(of({"ce": (0.1, 0.2), "ls": (0.05, 0.1500001)}), ["ece"], reference="ce")
    assert stats.ttest_rel((0.05, 0.1500001), (0.1, 0.2)).pvalue < 0.001
    assert set(changes(two).values()) == {""}
    assert "3 seeds" in two.note
    base = np.array([0.91, 0.93, 0.94, 0.92])  # a hundredth more each, up to the last digits
    same = of({"ce": base, "ls": base + 0.01, "lr": base + np.array([0.02, 0.021, 0.019, 0.02])}, "accuracy")
    assert changes(summary(same, ["accuracy"], reference="ce")) == {
        ("ce", ""): "",
        ("ls", ""): "",
        ("lr", ""): "better",
    }
    lines = text(differences(same, "ce", ["accuracy"]))
    assert lines[0] == ["LS", "Accuracy (%)", "+1.00", DASH, DASH, DASH, "0.1250", "4 of 4"]
    p = stats.ttest_1samp((0.02, 0.021, 0.019, 0.02), 0).pvalue
    assert lines[1][4:6] == ["<0.0001"] * 2 if p < 1e-4 else [f"{p:.4f}"] * 2  # one test: nothing to correct


def test_paired_table_against_scipy_and_holm_by_hand():
    values = {"ce": CE, "a": CE - 0.01 + RNG.normal(0, 0.003, 5), "b": CE + RNG.normal(0, 0.01, 5),
              "c": CE + 0.01 + RNG.normal(0, 0.004, 5)}  # fmt: skip
    nll = {name: 10 * v for name, v in values.items() if name != "c"}
    table = differences(of(values) + of(nll, "nll"), "ce", ["ece", "nll"], title="")
    assert [(line.method, line.metric) for line in table.rows] == [
        ("a", "ece"), ("b", "ece"), ("c", "ece"), ("a", "nll"), ("b", "nll"),
    ]  # fmt: skip
    tests = [stats.ttest_rel(values[name], CE) for name in "abc"]
    first, second, third = sorted(t.pvalue for t in tests)
    by_hand = {first: 3 * first, second: max(3 * first, 2 * second), third: max(3 * first, 2 * second, third)}
    for line, test, name in zip(table.rows, tests, "abc", strict=False):
        gap, interval, t, holm, wilcoxon, wins = line.cells
        ends = test.confidence_interval(0.95)
        assert gap.mean == pytest.approx((values[name] - CE).mean(), rel=1e-12)
        assert (interval.mean, interval.high) == pytest.approx((ends.low, ends.high), rel=1e-9)
        assert t.mean == pytest.approx(test.pvalue, rel=1e-9)
        assert holm.mean == pytest.approx(min(1, by_hand[test.pvalue]), rel=1e-9)
        assert wilcoxon.mean == pytest.approx(stats.wilcoxon(values[name], CE, method="exact").pvalue)
        assert (wins.mean, wins.runs) == ((values[name] < CE).sum(), 5)
        assert bool(gap.change) == (holm.mean < 0.05)
    marked = {line.method: line.cells[0].change for line in summary(of(values), ["ece"], reference="ce").rows}
    assert {line.method: line.cells[0].change for line in table.rows[:3]} | {"ce": ""} == marked
    lines = list(csv_files.DictReader(io.StringIO(tables.csv(table))))
    assert float(lines[0]["95% interval high"]) == table.rows[0].cells[1].high
    assert (lines[0]["Measure"], lines[0]["Better in seeds"]) == ("ece", "5")
    assert tables.markdown(table).count("\n| ") == 5
    assert f"[{MINUS}" in tables.html(table)


@pytest.mark.parametrize(
    ("ls", "difference", "wins"),
    [([0.03], "1.00", "1 of 1"), ([0.03, 0.04], "1.00", "2 of 2"), ([0.03, 0.05], "0.50", "1 of 2")],
)
def test_one_or_two_seeds_have_a_difference_and_no_interval(ls, difference, wins):
    table = differences(of({"ce": [0.04, 0.05][: len(ls)], "ls": ls}), "ce", ["ece"])
    assert text(table) == [["LS", "ECE (%)", f"{MINUS}{difference}", wins]]


@pytest.mark.parametrize("n", [2, 5, 9, 14, 15, 40])
def test_paired_against_scipy(n):
    rng = np.random.default_rng(n)
    one, other = rng.normal(0.3, 0.1, n), rng.normal(0.33, 0.1, n)
    found = paired(of({"a": one, "b": other}), "a", "b", "ece")
    t = stats.ttest_rel(one, other)
    assert found.seeds == tuple(range(n))
    assert found.mean == pytest.approx((one - other).mean(), rel=1e-12)
    assert found.t_p == pytest.approx(t.pvalue, rel=1e-9)
    interval = t.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-9)
    exact = stats.wilcoxon(one, other, method="exact" if n <= 14 else "approx")
    assert found.wilcoxon_p == pytest.approx(exact.pvalue, rel=1e-9)
    assert found.wins == int((one < other).sum())
    assert paired(of({"a": one, "b": other}, "accuracy"), "a", "b", "accuracy").wins == int((one > other).sum())


def test_signed_ranks_with_ties_against_a_permutation_test():
    d = np.array([1.0, 1.0, -1.0, 2.0, 2.0, 3.0, 0.0])
    found = paired(of({"a": d, "b": 0 * d}), "a", "b", "ece")
    signed = d[d != 0]
    ranks = stats.rankdata(np.abs(signed))
    oracle = stats.permutation_test(
        (np.sign(signed) * ranks,), np.sum, permutation_type="samples", n_resamples=np.inf, alternative="two-sided"
    )
    assert found.wilcoxon_p == pytest.approx(oracle.pvalue)


def test_pairs_at_the_edges():
    results = of({"a": (0.1, 0.2, 0.3), "b": (0.1, 0.2), "c": (0.2, 0.3, 0.4)}) + Results([row("d", 7)])
    same = paired(results, "a", "b", "ece")
    assert (same.seeds, same.mean, same.wilcoxon_p, same.wins) == ((0, 1), 0.0, 1.0, 0)
    assert np.isnan([same.low, same.high, same.t_p]).all()  # equal differences say nothing of how seeds differ
    assert np.isnan(paired(results, "c", "a", "ece").low)  # up to their last digits
    one = paired(of({"a": [0.1], "b": [0.3]}), "a", "b", "ece")
    assert one.wins == 1
    assert math.isnan(one.low)
    assert math.isnan(one.t_p)
    with pytest.raises(ValueError, match=facts("'a'", "'d'", "seed")):
        paired(results, "a", "d", "ece")
    with pytest.raises(ValueError, match=facts("'x'", "a, b, c, d")):
        paired(results, "x", "a", "ece")


def test_rows_of_the_same_runs_are_one_row():
    table = summary(two_targets(), ["ece"], ranks=True)
    assert [(line.method, line.tuned_for) for line in table.rows] == [
        ("ce", ""), ("ls", "ece"), ("ls", "accuracy"), ("lr", "ece"), ("lr", "accuracy"), ("mbls", "ece and accuracy"),
    ]  # fmt: skip
    means = [np.mean(v) for v in (BASE, LS["ece"], LS["accuracy"], LR["ece"], LR["accuracy"], BASE + 0.012)]
    assert [line.cells[1].mean for line in table.rows] == stats.rankdata(means).tolist()  # six, not eight
    one = summary(two_targets(), ["ece"], tuned_for="accuracy")
    assert [(line.method, line.tuned_for) for line in one.rows][-1] == ("mbls", "accuracy")
    # As a label it is no longer open which of the two is meant.
    assert paired(two_targets(), "mbls", "ce", "ece").mean == pytest.approx(0.012)


def test_a_reference_that_was_tuned_is_compared_by_target():
    table = differences(two_targets(), "ls", ["ece"])
    others = {
        ("ce", "ece"): BASE - LS["ece"],
        ("ce", "accuracy"): BASE - LS["accuracy"],
        ("lr", "ece"): LR["ece"] - LS["ece"],
        ("lr", "accuracy"): LR["accuracy"] - LS["accuracy"],
        ("mbls", "ece"): BASE + 0.01 + 0.001 * np.arange(5) - LS["ece"],
        ("mbls", "accuracy"): BASE + 0.01 + 0.001 * np.arange(5) - LS["accuracy"],
    }
    assert [(line.method, line.tuned_for) for line in table.rows] == list(others)
    for line, gaps in zip(table.rows, others.values(), strict=True):
        assert line.cells[0].mean == pytest.approx(gaps.mean(), rel=1e-12)
        assert line.cells[2].mean == pytest.approx(stats.ttest_1samp(gaps, 0).pvalue, rel=1e-9)
    assert "LS tuned for the same" in table.note
    marks = changes(summary(two_targets(), ["ece"], reference="ls"))
    assert marks[("ls", "ece")] == marks[("ls", "accuracy")] == marks[("lr", "ece")] == ""
    assert marks[("lr", "accuracy")] == "better"
    assert marks[("ce", "")] == ""  # worse than the one and better than the other
    same = differences(two_targets(), "ce", ["ece"])
    assert [(line.method, line.tuned_for) for line in same.rows] == [
        ("ls", "ece"), ("ls", "accuracy"), ("lr", "ece"), ("lr", "accuracy"), ("mbls", "ece and accuracy"),
    ]  # fmt: skip


def test_a_reference_of_one_target_serves_all():
    table = differences(two_targets(), "ls, tuned for ece", ["ece"])
    found = {(line.method, line.tuned_for): line.cells[0].mean for line in table.rows}
    assert found[("ls", "accuracy")] == pytest.approx((LS["accuracy"] - LS["ece"]).mean())
    assert found[("ce", "")] == pytest.approx((BASE - LS["ece"]).mean())
    assert ("ls", "ece") not in found
    lacking = Results(r for r in two_targets() if (r.method, r.tuned_for) != ("ls", "accuracy"))
    rest = differences(lacking, "ls", ["ece"])  # nothing of the other target to compare with
    assert {(line.method, line.tuned_for) for line in rest.rows} == {("ce", ""), ("lr", "ece"), ("mbls", "ece")}


@pytest.mark.parametrize("reference", ["mbls", "mbls, tuned for ece", "ls, tuned for nll"])
def test_a_reference_without_numbers_is_said(reference):
    results = of({"ce": BASE}) + of({"ls": LS["ece"]}, tuned_for="ece", settings={"alpha": 0.1})
    table = summary(results, ["ece"], reference=reference)
    assert set(changes(table).values()) == {""}
    assert short_title(reference) in table.note
    assert differences(results, reference, ["ece"]).rows == ()


def test_references_are_checked_before_anything_runs():
    labels = ["ce", "ls", "acls:margin=6", "als+context"]
    for good in ("ce", "ls, tuned for ece", "ce + temperature", "als + context", "acls:margin=6", "hard"):
        check_reference(good, labels, ["ece"])
    for wrong, words in {
        "cee": ("cee", "acls:margin=6", "'ce'"),
        "ls tuned for ece": ("'ls, tuned for ece'",),
        "qqqq": ("qqqq", "ce, ls"),
        "ls, tuned for nll": ("nll", "ece"),
    }.items():
        with pytest.raises(ValueError, match=facts(*words)):
            check_reference(wrong, iter(labels), ["ece"])
    with pytest.raises(ValueError, match=facts("ece")):
        check_reference("ce, tuned for ece", ["ce"], [])
