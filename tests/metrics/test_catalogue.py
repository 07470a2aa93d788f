"""The catalogue of metrics: every metric has one entry, and values keep to the bounds it states."""

import inspect
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrant import metrics as M
from calibrant.metrics import ConfidenceSketch
from calibrant.metrics.catalogue import ECE_BINS, MEASURED, split_name
from tests.helpers.errors import facts

#: Public functions that are no metric, and why.
OTHERS = {
    "context_reliance": "four metrics at once",
    "describe": "reads the catalogue",
    "intervals": "limits of metrics",
    "paired_differences": "limits of differences of metrics",
    "pixels": "samples of images",
    "reliability": "a diagram",
    "risk_coverage_curve": "a curve",
    "top_label": "what metrics take",
}


def sketch_of(samples=60):
    rng = np.random.default_rng(0)
    sketch = ConfidenceSketch()
    sketch.update(rng.normal(size=(samples, 4)), rng.integers(0, 4, samples))
    return sketch


def test_every_public_function_is_a_metric_or_named_with_a_reason():
    functions = {name for name in M.__all__ if inspect.isfunction(getattr(M, name))}
    assert functions == set(M.METRICS) | set(OTHERS)
    assert not set(M.METRICS) & set(OTHERS)


def test_entries_are_complete():
    for name, metric in M.METRICS.items():
        assert metric.name == name
        assert metric.label
        assert metric.description
        assert not metric.description.endswith(".")
        assert metric.bounds[0] < metric.bounds[1]
    assert len({metric.label for metric in M.METRICS.values()}) == len(M.METRICS)
    assert {metric.better for metric in M.METRICS.values()} == {"low", "high", "none"}


def test_every_metric_has_an_example():
    assert all(">>>" in getattr(M, name).__doc__ for name in M.METRICS)


def test_what_is_measured_is_what_a_sketch_gives():
    sketch = sketch_of()
    assert tuple(sketch.summary().metrics()) == MEASURED
    assert tuple(sketch.compute()) == tuple(sketch.bounds()) == MEASURED
    assert set(M.intervals(sketch.summary(), replicates=20)) == set(MEASURED)
    assert all(split_name(name)[0] in M.METRICS for name in MEASURED)


def test_a_setting_in_a_name_is_the_argument_of_its_metric():
    summary = sketch_of().summary()
    values = summary.metrics()
    for bins in ECE_BINS:
        assert values[f"ece_{bins}"] == summary.ece(bins)
    assert values["coverage_at_risk_0.05"] == summary.coverage_at_risk(0.05)
    assert values["risk_at_coverage_0.9"] == summary.risk_at_coverage(0.9)
    assert values["ece"] == summary.ece()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ece", ("ece", None)),
        ("ece_10", ("ece", 10)),
        ("e_aurc", ("e_aurc", None)),
        ("coverage_at_risk_0.05", ("coverage_at_risk", 0.05)),
        ("ece_1.2.3", ("ece_1.2.3", None)),
        ("ece_\u00b2", ("ece_\u00b2", None)),
        ("_5", ("_5", None)),
        ("ece_" + "9" * 5000, ("ece_" + "9" * 5000, None)),
    ],
)
def test_names_are_split_at_their_setting(name, expected):
    assert split_name(name) == expected


def test_descriptions_of_metrics_with_a_setting():
    assert M.describe("ece_20").label == "ECE (20 bins)"
    assert M.describe("coverage_at_risk_0.05").label == "Coverage at 5% risk"
    assert M.describe("risk_at_coverage_0.9").bounds == (0, 1)
    with pytest.raises(ValueError, match=facts("ecce", "mean_iou")):
        M.describe("ecce")


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.1, 0.35, 0.5, 1.0]), st.booleans()), min_size=1, max_size=20))
def test_values_keep_to_their_bounds(rows):
    confidence, correct = map(np.array, zip(*rows, strict=True))
    p = np.stack([confidence, 1 - confidence], axis=1)
    labels = correct.astype(int)
    arguments = {
        "accuracy": (correct,),
        "mean_confidence": (confidence,),
        "coverage_at_risk": (confidence, correct, 0.1),
        "risk_at_coverage": (confidence, correct, 0.8),
        "objectness_deviation": (confidence, confidence[::-1]),
        "mean_iou": (labels, correct[::-1].astype(int)),
    }
    extra = {"mean_iou": {"classes": 2}} | {n: {"kind": "probabilities"} for n in ("nll", "brier", "classwise_ece")}
    for name, metric in M.METRICS.items():
        pair = (p, labels) if name in ("nll", "brier", "classwise_ece") else (confidence, correct)
        value = getattr(M, name)(*arguments.get(name, pair), **extra.get(name, {}))
        assert math.isnan(value) or metric.bounds[0] <= value <= metric.bounds[1] + 1e-12, name
