"""The first sentences of a comparison: their level, names and numbers are those of the tables, and of SciPy."""

import re

import numpy as np
import pytest
from scipy import stats

from calibrant.experiments import Results
from calibrant.experiments.tables import summary, text
from calibrant.experiments.tables.verdict import MEASURES, judge_methods
from tests.helpers.result_rows import of, two_targets

CE = np.array([0.050, 0.052, 0.049, 0.051, 0.048])
JITTER = np.array([0.001, -0.001, 0.0005, -0.0005, 0.0])
NOISE = np.array([0.01, -0.012, 0.008, -0.009, 0.001])


def says(sentence, *words):
    assert [word for word in words if word not in sentence] == [], sentence


@pytest.mark.parametrize(
    ("values", "level", "words"),
    [
        ({"ls": CE - 0.02 + JITTER, "lr": CE - 0.01 - JITTER, "als": CE + 0.03 + JITTER}, "good",
         ("LS", "3.00%", "5.00%", "CE", "LR", "ALS")),
        ({"ls": CE + 0.02 + JITTER, "lr": CE + 0.0001 * JITTER}, "info", ("CE", "5.00%", "LS")),
        ({"ls": CE + NOISE}, "info", ("CE", "5 seeds")),
    ],
    ids=["a better one", "the reference is the best", "noise"],
)  # fmt: skip
def test_a_level_is_that_of_the_tests(values, level, words):
    verdict = judge_methods(of({"ce": CE} | values), "ce")
    better = [stats.ttest_rel(v, CE).pvalue * len(values) < 0.05 and v.mean() < CE.mean() for v in values.values()]
    assert (level == "good") == any(better)
    assert verdict.level == level
    says(verdict.headline, *words)


@pytest.mark.parametrize(
    ("results", "reference", "words"),
    [
        (of({"ce": CE[:2], "ls": CE[:2] / 2}), "ce", ("2", "3")),
        (of({"ce": CE[:1], "ls": CE[:1] / 2}), "ce", ("1", "3")),
        (of({"ce": CE, "ls": CE / 2}), None, ()),
        (of({"lr": CE, "ls": CE / 2}), "ce", ("CE",)),
        (of({"ce": CE}), "ce", ("CE",)),
    ],
)
def test_what_cannot_be_told(results, reference, words):
    verdict = judge_methods(results, reference)
    assert verdict.level == "unknown"
    says(verdict.headline, *words)
    assert judge_methods(Results(), "ce") is None


@pytest.mark.slow
def test_sentences_and_marks_never_disagree():
    """Random comparisons: what a table marks is named, the best numbers are printed, and the level follows."""
    rng, marked = np.random.default_rng(3), 0
    for _ in range(30):
        names, results = ["ce", "aa", "bb", "cc"], Results()
        for metric in MEASURES:
            base = rng.normal(0.3, 0.02, 5)
            values = {
                name: base + rng.normal(rng.choice([0, 0.01, -0.01]), 0.008, 5) * (name != "ce") for name in names
            }
            results += of(values, metric)
        table, verdict = summary(results, MEASURES, reference="ce"), judge_methods(results, "ce")
        marks = {(line.method, cell.change) for line in table.rows for cell in line.cells if cell.change}
        assert (verdict.level == "good") == any(change == "better" for _, change in marks)
        words = f"{verdict.headline} {verdict.text}"
        says(words, *(name for name, _ in marks))
        for k, label in enumerate(("ECE", "accuracy", "AURC")):
            best = next(row[1 + k] for row in text(table) if row[1 + k].startswith("¹"))
            says(words, best.split()[1])
            sentence = next((part for part in words.split(". ") if f" {label}" in part), "") if marks else ""
            worse = [part for part in sentence.split("; ") if "worse" in part]
            named = {
                line.method for line in table.rows if any(re.search(rf"\b{line.method}\b", part) for part in worse)
            }
            assert named == {line.method for line in table.rows if line.cells[k].change == "worse"}, sentence
        marked += len(marks)
    assert marked > 25


AURC = of({"ce": CE / 5, "ls": CE / 5 + 0.004 + JITTER / 9, "mbls": CE / 5 + JITTER / 9}, "aurc")
LOSSES = of({"ce": CE + 0.03, "ls": CE - 0.03 + JITTER, "mbls": CE - 0.02 - JITTER}) + AURC


def scaled(results, values):
    return results + of({"ce": values}, posthoc="temperature", parameter=1.5)


def test_a_loss_is_compared_with_the_repaired_reference_first():
    """Both losses beat plain cross-entropy; with a temperature it does as well, and ranks better than LS."""
    plain = judge_methods(LOSSES, "ce")
    assert plain.level == "good"
    says(plain.headline, "LS", "2.00%", "8.00%")
    verdict = judge_methods(scaled(LOSSES, CE - 0.031 - JITTER), "ce")
    assert verdict.level == "info"
    says(verdict.headline, "CE with temperature scaling", "1.90%", "2.00%", "8.00%", "LS", "0.0140", "0.0100")
    says(verdict.text, plain.headline)  # against the reference as it is, as the tables mark
    base = CE - 0.015 - JITTER / 3
    verdict = judge_methods(scaled(LOSSES, base), "ce")
    assert verdict.level == "good"
    says(verdict.headline, "LS", "2.00%", "3.50%", "MbLS")
    assert max(stats.ttest_rel(values, base).pvalue for values in (CE - 0.03 + JITTER, CE - 0.02 - JITTER)) * 3 < 0.05


def test_the_repaired_reference_is_named_once():
    results = of({"ce": CE[:2], "ls": CE[:2] / 2}) + of({"ce": CE[:2] / 4}, posthoc="temperature")
    verdict = judge_methods(results, "ce")
    assert verdict.level == "unknown"  # too few seeds, and still
    says(verdict.text, "1.28%")
    verdict = judge_methods(scaled(LOSSES, CE - 0.031), "ce + temperature")  # a reference that is repaired itself
    assert "temperature scaling" not in verdict.headline


def test_rows_of_several_targets_have_their_names():
    says(judge_methods(two_targets(), "ce", ["ece"]).headline, "LS tuned for ece", "LS tuned for accuracy", "MbLS")
