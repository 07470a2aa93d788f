"""Labels and references of tables."""

import numpy as np
import pytest
from scipy import stats

from calibrant.experiments import Results
from calibrant.experiments.spaces import short_title
from calibrant.experiments.tables import differences, paired, summary
from calibrant.experiments.tables.labels import check_reference
from tests.helpers.result_rows import CE, LR, LS, of, two_targets


def changes(table, k=0):
    return {(line.method, line.tuned_for): line.cells[k].change for line in table.rows}


def test_rows_of_the_same_runs_are_one_row():
    table = summary(two_targets(), ["ece"], ranks=True)
    assert [(line.method, line.tuned_for) for line in table.rows] == [
        ("ce", ""), ("ls", "ece"), ("ls", "accuracy"), ("lr", "ece"), ("lr", "accuracy"), ("mbls", "ece and accuracy"),
    ]  # fmt: skip
    means = [np.mean(v) for v in (CE, LS["ece"], LS["accuracy"], LR["ece"], LR["accuracy"], CE + 0.012)]
    assert [line.cells[1].mean for line in table.rows] == stats.rankdata(means).tolist()  # six, not eight
    one = summary(two_targets(), ["ece"], tuned_for="accuracy")
    assert [(line.method, line.tuned_for) for line in one.rows][-1] == ("mbls", "accuracy")
    # As a label it is no longer open which of the two is meant.
    assert paired(two_targets(), "mbls", "ce", "ece").mean == pytest.approx(0.012)


def test_a_reference_that_was_tuned_is_compared_by_target():
    table = differences(two_targets(), "ls", ["ece"])
    others = {
        ("ce", "ece"): CE - LS["ece"],
        ("ce", "accuracy"): CE - LS["accuracy"],
        ("lr", "ece"): LR["ece"] - LS["ece"],
        ("lr", "accuracy"): LR["accuracy"] - LS["accuracy"],
        ("mbls", "ece"): CE + 0.01 + 0.001 * np.arange(5) - LS["ece"],
        ("mbls", "accuracy"): CE + 0.01 + 0.001 * np.arange(5) - LS["accuracy"],
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
    assert found[("ce", "")] == pytest.approx((CE - LS["ece"]).mean())
    assert ("ls", "ece") not in found
    lacking = Results(r for r in two_targets() if (r.method, r.tuned_for) != ("ls", "accuracy"))
    rest = differences(lacking, "ls", ["ece"])  # nothing of the other target to compare with
    assert {(line.method, line.tuned_for) for line in rest.rows} == {("ce", ""), ("lr", "ece"), ("mbls", "ece")}


@pytest.mark.parametrize("reference", ["mbls", "mbls, tuned for ece", "ls, tuned for nll"])
def test_a_reference_without_numbers_is_said(reference):
    results = of({"ce": CE}) + of({"ls": LS["ece"]}, tuned_for="ece", settings={"alpha": 0.1})
    table = summary(results, ["ece"], reference=reference)
    assert set(changes(table).values()) == {""}
    assert f"Nothing is tested against {short_title(reference)}: it has no numbers here." in table.note
    assert differences(results, reference, ["ece"]).rows == ()


def test_references_are_checked_before_anything_runs():
    labels = ["ce", "ls", "acls:margin=6", "als+context"]
    for good in ("ce", "ls, tuned for ece", "ce + temperature", "als + context", "acls:margin=6", "hard"):
        check_reference(good, labels, ["ece"])
    for wrong, words in {
        "cee": r"unknown reference 'cee'.*; there are ce, ls, acls:margin=6, als\+context; did you mean 'ce'\?$",
        "ls tuned for ece": "did you mean 'ls, tuned for ece'",
        "qqqq": r"unknown reference 'qqqq'; there are ce, ls",
        "ls, tuned for nll": "'ls, tuned for nll' does not exist: nothing is tuned for nll, only for ece$",
    }.items():
        with pytest.raises(ValueError, match=words) as error:
            check_reference(wrong, iter(labels), ["ece"])
        assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="nothing is tuned for ece, nor for anything else"):
        check_reference("ce, tuned for ece", ["ce"], [])
