"""The first sentences of a comparison: never other than what the tables mark, print and SciPy finds."""

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


def test_a_method_that_is_better_beyond_chance():
    results = of({"ce": CE, "ls": CE - 0.02 + JITTER, "lr": CE - 0.01 - JITTER, "als": CE + 0.03 + JITTER})
    verdict = judge_methods(results, "ce")
    assert verdict.level == "good"
    assert verdict.headline.startswith("LS has the lowest ECE: 3.00% against 5.00% of CE")
    assert re.search("better beyond chance: LR; worse beyond chance: ALS", verdict.headline)
    assert "over 5 seeds" in verdict.text
    values = [CE - 0.02 + JITTER, CE - 0.01 - JITTER, CE + 0.03 + JITTER]
    assert max(stats.ttest_rel(value, CE).pvalue for value in values) * 3 < 0.05


def test_three_seeds_can_be_enough():
    verdict = judge_methods(of({"ce": [0.04, 0.05, 0.06], "ls": [0.02, 0.02, 0.04]}), "ce")
    assert verdict.headline == "LS has the lowest ECE: 2.67% against 5.00% of CE, which is beyond chance."


def test_nothing_differs_beyond_chance():
    noise = np.array([0.01, -0.012, 0.008, -0.009, 0.001])
    results = of({"ce": CE, "ls": CE + noise}) + of({"ce": 1 - CE, "ls": 1 - CE - noise}, "accuracy")
    assert stats.ttest_1samp(noise, 0).pvalue > 0.5
    verdict = judge_methods(results, "ce")
    assert (verdict.level, verdict.headline) == ("info", "Nothing differs from CE beyond chance over 5 seeds.")
    assert verdict.text.startswith("By the means alone: lowest ECE 4.96% (LS), highest accuracy 95.04% (LS). Tested")


def test_the_reference_is_the_best():
    verdict = judge_methods(of({"ce": CE, "ls": CE + 0.02 + JITTER, "lr": CE + 0.0001 * JITTER}), "ce")
    assert verdict.level == "info"
    assert verdict.headline == "No method has a lower ECE than CE (5.00%); worse beyond chance: LS."


@pytest.mark.parametrize(
    ("results", "reference", "headline"),
    [
        (of({"ce": CE[:2], "ls": CE[:2] / 2}), "ce", "Too few seeds to tell: there are 2, and a test takes 3."),
        (of({"ce": CE[:1], "ls": CE[:1] / 2}), "ce", "Too few seeds to tell: there is 1, and a test takes 3."),
        (of({"ce": CE, "ls": CE / 2}), None, "Which differences are beyond chance was not tested: no method is the "
         "reference."),
        (of({"lr": CE, "ls": CE / 2}), "ce", "Which differences are beyond chance was not tested: the reference CE has "
         "no numbers."),
        (of({"ce": CE}), "ce", "Only CE has numbers: there is nothing to compare."),
    ],
)  # fmt: skip
def test_what_cannot_be_told(results, reference, headline):
    verdict = judge_methods(results, reference)
    assert (verdict.level, verdict.headline) == ("unknown", headline)


def test_nothing_is_said_of_no_numbers():
    assert judge_methods(Results(), "ce") is None


def test_rows_of_several_targets_have_their_names():
    verdict = judge_methods(two_targets(), "ce", ["ece"])
    assert "LS tuned for ece" in verdict.headline
    assert "LS tuned for accuracy" in verdict.headline
    assert "MbLS" in verdict.headline


def test_sentences_and_marks_never_disagree():
    """Random comparisons: a method is called better, or worse, beyond chance exactly where the table marks it."""
    rng, spoken = np.random.default_rng(3), 0
    for _ in range(60):
        names, results = ["ce", "aa", "bb", "cc"], Results()
        for metric in MEASURES:
            base = rng.normal(0.3, 0.02, 5)
            values = {
                name: base + rng.normal(rng.choice([0, 0.01, -0.01]), 0.008, 5) * (name != "ce") for name in names
            }
            results += of(values, metric)
        table = summary(results, MEASURES, reference="ce")
        verdict = judge_methods(results, "ce")
        words = f"{verdict.headline} {verdict.text}"
        for k, label in enumerate(("ECE", "accuracy", "AURC")):
            marks = {line.method: line.cells[k].change for line in table.rows}
            sentence = next(
                (part for part in words.split(". ") if f" {label}" in part and "By the means" not in part), ""
            )
            if not any(change for line in table.rows for change in (cell.change for cell in line.cells)):
                assert verdict.headline.startswith("Nothing differs from CE beyond chance")
                continue
            first, *lists = sentence.split("; ")
            for name, change in marks.items():
                in_lists = [part for part in lists if re.search(rf"\b{name}\b", part.partition(": ")[2])]
                is_first = name in first.partition(" the ")[0].split() and "which is beyond chance" in first
                is_better = is_first or any(part.startswith(("also better", "better")) for part in in_lists)
                assert is_better == (change == "better"), (sentence, marks)
                assert any(part.startswith("worse") for part in in_lists) == (change == "worse"), (sentence, marks)
                spoken += bool(change)
            best = next(row[1 + k] for row in text(table) if row[1 + k].startswith("¹"))
            assert best.split()[1] in first  # the number of the table
    assert spoken > 50


def scaled(results, values):
    return results + of({"ce": values}, posthoc="temperature", parameter=1.5)


AURC = of({"ce": CE / 5, "ls": CE / 5 + 0.004 + JITTER / 9, "mbls": CE / 5 + JITTER / 9}, "aurc")
LOSSES = of({"ce": CE + 0.03, "ls": CE - 0.03 + JITTER, "mbls": CE - 0.02 - JITTER}) + AURC


def test_a_loss_is_compared_with_the_repaired_reference_first():
    """Both losses beat plain cross-entropy; with a temperature it does as well, and ranks better than LS."""
    plain = judge_methods(LOSSES, "ce")
    assert plain.headline.startswith("LS has the lowest ECE: 2.00% against 8.00% of CE")
    verdict = judge_methods(scaled(LOSSES, CE - 0.031 - JITTER), "ce")
    assert verdict.level == "info"
    headline = verdict.headline
    assert re.match("CE with temperature scaling has an ECE of 1.90%, which no method beats", headline)
    assert [number for number in ("1.90%", "2.00%", "8.00%") if number not in headline] == []
    assert "LS ranks errors worse: AURC 0.0140 against 0.0100 of CE, which is beyond chance" in headline
    assert plain.headline in verdict.text  # against the reference as it is, as the tables mark


def test_a_loss_that_beats_the_repaired_reference_is_said_to():
    verdict = judge_methods(scaled(LOSSES, CE - 0.015 - JITTER / 3), "ce")
    assert verdict.level == "good"
    assert re.match("LS has a lower ECE than CE with temperature scaling: 2.00% against 3.50%", verdict.headline)
    assert "also better beyond chance: MbLS" in verdict.headline
    base = CE - 0.015 - JITTER / 3
    assert max(stats.ttest_rel(values, base).pvalue for values in (CE - 0.03 + JITTER, CE - 0.02 - JITTER)) * 3 < 0.05


def test_too_few_seeds_still_name_the_repaired_reference():
    results = of({"ce": CE[:2], "ls": CE[:2] / 2}) + of({"ce": CE[:2] / 4}, posthoc="temperature")
    verdict = judge_methods(results, "ce")
    assert verdict.level == "unknown"
    assert "CE with temperature scaling has an ECE of 1.28%" in verdict.text


def test_a_reference_that_is_repaired_itself_is_not_repaired_again():
    verdict = judge_methods(scaled(LOSSES, CE - 0.031), "ce + temperature")
    assert "with temperature scaling" not in verdict.headline
