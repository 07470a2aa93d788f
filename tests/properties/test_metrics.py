"""Every metric of the catalogue: its function, its slow version, the sketch, the replicates and the intervals agree.

A metric that is added to the catalogue is tested here without being named; one without a slow version fails.
"""

import functools
import inspect

import numpy as np
import pytest

from calibrant import Predictions, audit, metrics
from calibrant.metrics import COMPARED, MEASURED, METRICS, SHOWN, ConfidenceSketch, Judged, describe, intervals
from calibrant.metrics.bootstrap import ScoreGroups
from calibrant.metrics.catalogue import split_name
from tests.reference import metrics as reference


def samples(size=307):
    """Logits of an overconfident model with ties, labels, and what metrics are computed from."""
    rng = np.random.default_rng(11)
    logits = np.round(4 * rng.standard_normal((size, 5)), 1)
    labels = (0.4 * logits + rng.gumbel(size=logits.shape)).argmax(1)
    confidence, _, correct = metrics.top_label(logits, labels)
    return {"logits": logits, "labels": labels, "confidence": confidence, "score": confidence, "correct": correct}


DATA = samples()


@functools.cache  # the slow versions are slow
def value_of(module, name):
    """A metric by the function of a module, called with the columns that its own function takes."""
    base, setting = split_name(name)
    parameters = list(inspect.signature(getattr(metrics, base)).parameters)
    columns = [DATA[parameter] for parameter in parameters if parameter in DATA]
    further = [parameter for parameter in parameters if parameter not in DATA][:1]
    settings = {} if setting is None else {further[0]: setting}
    return getattr(module, base)(*columns, **settings)


@pytest.fixture(scope="module")
def summary():
    sketch = ConfidenceSketch()
    sketch.update(DATA["logits"], DATA["labels"])
    return sketch.summary()


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
    groups = ScoreGroups.of_cells(summary)
    own = groups.metrics(groups.counts[None])
    for name, (value,) in own.items():
        assert value == pytest.approx(value_of(reference, name), abs=summary.metrics()[name].bound + 2e-3), name
    changes = groups.differences(np.random.default_rng(0), 400)
    for name, change in changes.items():
        assert abs(change.mean()) < 0.06, name  # noise inflates errors of calibration
        assert 0 < change.std() < 0.1, name


def test_what_noise_makes_larger_is_compared_with_chance(summary):
    """An interval reaches down to 0 where a perfectly calibrated model would show as much."""
    by_chance = ScoreGroups.of_cells(summary).by_chance(np.random.default_rng(0), 20)
    assert {name for name in MEASURED if describe(name).absolute} == set(by_chance)


def test_an_audit_shows_all_of_them():
    document = audit(Predictions.from_logits(DATA["logits"], DATA["labels"]), replicates=20)
    assert set(MEASURED) <= set(document.metrics)
    assert set(MEASURED) - set(SHOWN) == {"ece"}  # which is ece_15
    assert {split_name(name)[0] for name in SHOWN} == set(METRICS)


def test_what_is_compared_is_what_has_paired_differences():
    first = Judged(DATA["confidence"], DATA["correct"], nll=DATA["confidence"], brier=DATA["confidence"])
    second = Judged(1 - DATA["confidence"], DATA["correct"], nll=DATA["confidence"], brier=DATA["confidence"])
    assert set(metrics.paired_differences(first, second, replicates=20)) == set(COMPARED)
