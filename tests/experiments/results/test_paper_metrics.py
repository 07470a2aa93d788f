import itertools
import json

import numpy as np
import pytest

from calibrant.experiments.results.paper_metrics import MORE_NUMBERS, SetOutputs, measure, more_numbers
from calibrant.experiments.tables.cells import Column
from tests.reference import metrics as reference


@pytest.fixture
def outputs():
    random = np.random.default_rng(3)
    logits = random.normal(0, 2, (301, 7))
    return SetOutputs(logits, random.integers(0, 7, 301), random.uniform(0, 1, 301))


def test_bins_in_a_name_are_the_bins(outputs):
    probability = np.exp(outputs.logits) / np.exp(outputs.logits).sum(1, keepdims=True)
    confidence, correct = probability.max(1), probability.argmax(1) == outputs.labels
    for bins in (4, 23):
        edges = np.linspace(0, 1, bins + 1)
        gaps = [
            abs(np.sum(confidence[inside] - correct[inside]))
            for low, high in itertools.pairwise(edges)
            if (inside := (confidence > low) & (confidence <= high)).any()
        ]
        assert measure(f"ece_{bins}", outputs) == pytest.approx(sum(gaps) / 301, abs=1e-12)
    assert measure("objectness_deviation", outputs) == pytest.approx(np.abs(confidence - outputs.objectness).mean())


def test_pycalib_and_equal_counts_are_those_of_the_reference(outputs):
    probability = np.exp(outputs.logits) / np.exp(outputs.logits).sum(1, keepdims=True)
    confidence, correct = probability.max(1), probability.argmax(1) == outputs.labels
    for bins in (15, 20):
        expected = reference.ece(confidence, correct, bins=bins, convention="pycalib", classes=7)
        assert measure(f"pycalib_ece_{bins}", outputs) == pytest.approx(expected, abs=1e-9)
        expected = reference.mce(confidence, correct, bins=bins, convention="pycalib", classes=7)
        assert measure(f"pycalib_mce_{bins}", outputs) == pytest.approx(expected, abs=1e-9)
        assert measure(f"aece_{bins}", outputs) == pytest.approx(
            reference.aece(confidence, correct, bins=bins), abs=1e-9
        )


def test_numbers_beyond_those_of_a_run_are_computed_once(compared, monkeypatch):
    folder = min((compared / "runs").iterdir())
    columns = [Column("ece_7"), Column("ece", posthoc="temperature-mbls"), Column("ece"), Column("ece_7", "nowhere")]
    first = more_numbers(folder, columns)
    names = {(number.set, number.posthoc, number.metric) for number in first}
    assert names == {("test", "none", "ece_7"), ("test", "temperature-mbls", "ece")}
    (scaled,) = [n for n in first if n.posthoc != "none"]
    assert 0.1 <= scaled.parameter <= 10  # the mean over the folds of a cross-fit
    monkeypatch.setattr("calibrant.experiments.results.paper_metrics.measure", pytest.fail)
    assert more_numbers(folder, columns) == first
    (folder / MORE_NUMBERS).write_text(json.dumps(["nonsense"]))
    with pytest.raises(ValueError, match="delete it, and the same command computes it again"):
        more_numbers(folder, columns)
