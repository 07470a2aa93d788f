"""Every metric of the catalogue: its function, its slow version, the sketch, the replicates and the intervals agree.

A metric that is added to the catalogue is tested here without being named; one without a slow version fails.
"""

import functools
import inspect
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrant import Predictions, audit, metrics
from calibrant.metrics import COMPARED, MEASURED, METRICS, SHOWN, ConfidenceSketch, Judged, describe, intervals
from calibrant.metrics.bootstrap import by_chance, merge_cells, replicate_differences, values_of
from calibrant.metrics.catalogue import ECE_BINS, split_name
from tests.helpers.errors import facts
from tests.reference import metrics as reference


def samples(size=307):
    """Logits of an overconfident model with ties, labels, and what metrics are computed from."""
    rng = np.random.default_rng(11)
    logits = np.round(4 * rng.standard_normal((size, 5)), 1)
    labels = (0.4 * logits + rng.gumbel(size=logits.shape)).argmax(1)
    confidence, _, correct = metrics.top_label(logits, labels)
    return {"logits": logits, "labels": labels, "confidence": confidence, "score": confidence, "correct": correct}


DATA = samples()


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


def test_every_public_function_is_a_metric_or_named_with_a_reason():
    functions = {name for name in metrics.__all__ if inspect.isfunction(getattr(metrics, name))}
    assert functions == set(METRICS) | set(OTHERS)
    assert not set(METRICS) & set(OTHERS)


def test_entries_are_complete():
    for name, metric in METRICS.items():
        assert metric.name == name
        assert metric.label
        assert metric.description
        assert metric.bounds[0] < metric.bounds[1]
        assert ">>>" in getattr(metrics, name).__doc__
    assert len({metric.label for metric in METRICS.values()}) == len(METRICS)
    assert {metric.better for metric in METRICS.values()} == {"low", "high", "none"}


@functools.cache  # the slow versions are slow
def value_of(module, name):
    """A metric by the function of a module, called with the columns that its own function takes."""
    base, setting = split_name(name)
    parameters = list(inspect.signature(getattr(metrics, base)).parameters)
    columns = [DATA[parameter] for parameter in parameters if parameter in DATA]
    settings = {} if setting is None else {METRICS[base].setting: setting}
    return getattr(module, base)(*columns, **settings)


@pytest.fixture(scope="module")
def summary():
    sketch = ConfidenceSketch()
    sketch.update(DATA["logits"], DATA["labels"])
    return sketch.summary()


@pytest.mark.slow
@pytest.mark.parametrize("name", MEASURED)
def test_the_function_is_its_definition(name):
    assert value_of(metrics, name) == pytest.approx(value_of(reference, name), rel=1e-5, abs=1e-12)


@pytest.mark.parametrize("name", MEASURED)
def test_the_sketch_is_as_close_as_it_says(name, summary):
    value = summary.metrics()[name]
    assert abs(value - value_of(reference, name)) <= value.bound + 1e-9
    assert value.bound < 0.05


@pytest.fixture(scope="module")
def limits(summary):
    return intervals(summary, replicates=200)


@pytest.mark.parametrize("name", MEASURED)
def test_an_interval_lies_around_the_value_and_within_the_bounds(name, summary, limits):
    interval = limits[name]
    low, high = describe(name).bounds
    assert low <= interval.low <= interval.value <= interval.high <= high
    assert interval.low < interval.high
    assert interval.value == pytest.approx(value_of(reference, name), abs=summary.metrics()[name].bound + 1e-9)


def test_replicates_are_drawn_around_the_value(summary):
    """The drawn samples themselves, as a replicate, have the value of the metric, whatever the way it is computed."""
    groups, names = merge_cells(summary), [name for name in MEASURED if METRICS[split_name(name)[0]].table != "samples"]
    own = groups.with_counts((groups.count - groups.errors)[None], groups.errors[None])
    for name, (value,) in values_of(own, names).items():
        assert value == pytest.approx(value_of(reference, name), abs=summary.metrics()[name].bound + 2e-3), name
    changes = replicate_differences(groups, np.random.default_rng(0), 400, names)
    for name, change in changes.items():
        assert abs(change.mean()) < 0.06, name  # noise inflates errors of calibration
        assert 0 < change.std() < 0.1, name


def test_what_noise_makes_larger_is_compared_with_chance(summary):
    """An interval reaches down to 0 where a perfectly calibrated model would show as much."""
    nulls = by_chance(merge_cells(summary), np.random.default_rng(0), 20, MEASURED)
    assert {name for name in MEASURED if describe(name).absolute} == set(nulls)


def test_an_audit_shows_all_of_them(summary):
    assert tuple(summary.metrics()) == MEASURED
    document = audit(Predictions.from_logits(DATA["logits"], DATA["labels"]), replicates=20)
    assert set(MEASURED) <= set(document.metrics)
    assert set(MEASURED) - set(SHOWN) == {"ece"}  # which is ece_15
    assert {split_name(name)[0] for name in SHOWN} == set(METRICS)


def test_what_is_compared_is_what_has_paired_differences():
    first = Judged(DATA["confidence"], DATA["correct"], nll=DATA["confidence"], brier=DATA["confidence"])
    second = Judged(1 - DATA["confidence"], DATA["correct"], nll=DATA["confidence"], brier=DATA["confidence"])
    assert set(metrics.paired_differences(first, second, replicates=20)) == set(COMPARED)


def test_a_setting_in_a_name_is_the_argument_of_its_metric(summary):
    values = summary.metrics()
    for bins in ECE_BINS:
        assert values[f"ece_{bins}"] == metrics.ece(summary.bins, bins=bins)
    assert values["coverage_at_risk_0.05"] == metrics.coverage_at_risk(summary.ranked, risk=0.05)
    assert values["risk_at_coverage_0.9"] == metrics.risk_at_coverage(summary.ranked, coverage=0.9)
    assert values["ece"] == metrics.ece(summary.bins)


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
    assert metrics.describe("ece_20").label == "ECE (20 bins)"
    assert metrics.describe("coverage_at_risk_0.05").label == "Coverage at 5% risk"
    assert metrics.describe("risk_at_coverage_0.9").bounds == (0, 1)
    with pytest.raises(ValueError, match=facts("ecce", "mean_iou")):
        metrics.describe("ecce")


@pytest.mark.slow
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
    for name, metric in metrics.METRICS.items():
        pair = (p, labels) if name in ("nll", "brier", "classwise_ece") else (confidence, correct)
        value = getattr(metrics, name)(*arguments.get(name, pair), **extra.get(name, {}))
        assert math.isnan(value) or metric.bounds[0] <= value <= metric.bounds[1] + 1e-12, name
