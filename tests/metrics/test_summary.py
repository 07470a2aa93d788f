"""Every metric of a sketch against the slow reference, within the bounds it states."""

import math

import numpy as np
import pytest
import torch

from calibrant.metrics import ConfidenceSketch, ece
from calibrant.metrics.grid import CELLS, shortfall_edges
from tests.reference import metrics as reference

NAMES = ("accuracy", "ece", "mce", "aece", "overconfidence", "underconfidence", "mean_confidence", "aurc", "e_aurc",
         "augrc")  # fmt: skip


def of(confidence, correct):
    sketch = ConfidenceSketch()
    sketch.update_confidence(torch.as_tensor(confidence), torch.as_tensor(correct))
    return sketch


def cases():
    rng = np.random.default_rng(5)
    c = rng.beta(4, 1.2, 331)
    yield "spread", c, rng.random(331) < c**1.4
    yield "saturated", 1 - 10.0 ** -rng.uniform(1, 15, 257), rng.random(257) < 0.9
    yield "on edges", rng.integers(1, 31, 313) / 30, rng.random(313) < 0.6
    yield "heavily tied", rng.choice([0.2, 0.4, 0.6, 0.8, 1.0], 199), rng.random(199) < 0.5
    yield "all right", rng.random(31), np.ones(31, bool)
    yield "all wrong", rng.random(37), np.zeros(37, bool)
    yield "one right", np.array([0.7]), np.array([True])
    yield "one wrong", np.array([1.0]), np.array([False])
    yield "zero and one", np.array([0.0, 1.0, 0.5]), np.array([True, False, True])


@pytest.fixture(params=list(cases()), ids=lambda case: case[0])
def pairs(request):
    return request.param[1:]


def close(value, expected, bound):
    return (math.isnan(value) and math.isnan(expected)) or abs(value - expected) <= bound + 1e-12


def test_metrics_are_the_references_within_their_bounds(pairs):
    sketch = of(*pairs)
    values, bounds = sketch.compute(), sketch.bounds()
    arguments = {"accuracy": pairs[1:], "mean_confidence": pairs[:1]}
    for name in NAMES:
        expected = getattr(reference, name)(*arguments.get(name, pairs))
        assert close(values[name], expected, bounds[name]), name
    assert close(values["ece_10"], reference.ece(*pairs, bins=10), 0)
    assert close(values["ece_100"], reference.ece(*pairs, bins=100), 0)
    for risk in (0.01, 0.02, 0.05, 0.1):
        name = f"coverage_at_risk_{risk:g}"
        assert close(values[name], reference.coverage_at_risk(*pairs, risk), bounds[name])
    for coverage in (0.8, 0.9, 0.95):
        name = f"risk_at_coverage_{coverage:g}"
        assert close(values[name], reference.risk_at_coverage(*pairs, coverage), bounds[name])


@pytest.mark.parametrize("bins", [1, 7, 11, 13, 16, 64, 1000])
def test_any_number_of_bins(pairs, bins):
    summary = of(*pairs).summary()
    for name in ("ece", "mce", "aece"):
        value = getattr(summary, name)(bins)
        assert close(value, getattr(reference, name)(*pairs, bins=bins), value.bound), name


@pytest.mark.parametrize("bins", [10, 12, 15, 20, 25, 30, 50, 60, 75, 100, 150, 300])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_edges_belong_to_the_bin_below_whatever_the_type(bins, dtype):
    confidence = torch.arange(1, bins + 1, dtype=torch.float64).div(bins).to(dtype)
    counts = of(confidence, torch.ones(bins)).summary().reliability(bins).count
    assert counts.tolist() == [1] * bins


def test_smooth_ece_within_its_bound():
    rng = np.random.default_rng(2)
    c = rng.beta(4, 1.2, 150)
    correct = rng.random(150) < c**2
    value = of(c, correct).summary().smooth_ece()
    assert abs(value - reference.smooth_ece(c, correct)) <= value.bound + 1e-5


def test_bounds_hold_for_every_placement_inside_the_cells():
    """The worst that could hide in a cell: the same cells, other confidences."""
    rng = np.random.default_rng(3)
    cells = np.repeat(rng.integers(200_000, CELLS - 2, 40), 3)
    correct = rng.random(len(cells)) < 0.6
    edges = 1 - shortfall_edges()
    low, high = np.nextafter(edges[cells], 1), edges[cells + 1]
    middle = of((low + high) / 2, correct)
    values, bounds = middle.compute(), middle.bounds()
    for confidence in reference.random_placements(rng, low, high, 40):
        for name in ("aurc", "e_aurc", "augrc", "aece"):
            assert close(values[name], getattr(reference, name)(confidence, correct), 2 * bounds[name] + 1e-9), name


def test_bounds_are_small_on_realistic_data():
    generator = torch.Generator().manual_seed(0)
    for scale in (2.0, 6.0):
        honest = scale * torch.randn(700_000, 10, generator=generator)
        labels = torch.multinomial(honest.softmax(1), 1, generator=generator).squeeze(1)
        sketch = ConfidenceSketch()
        sketch.update(1.5 * honest, labels)
        bounds = sketch.bounds()
        reached = max(bounds.pop(name) for name in list(bounds) if name.startswith("coverage_at_risk"))
        assert max(bounds.values()) < 1e-5, bounds
        assert reached < 1e-4  # as many samples as lie in the cells about the place where the risk is met


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])  # bfloat16 is coarser than the base bins
def test_confidences_of_any_type_are_binned_as_the_exact_function_bins_them(dtype):
    c = torch.rand(3000, generator=torch.Generator().manual_seed(8)).to(dtype)
    correct = torch.arange(3000) % 3 > 0
    for bins in (10, 15, 100):
        value = of(c, correct).summary().ece(bins)
        assert value == pytest.approx(ece(c, correct, bins=bins), abs=1e-9), bins


def test_coverage_bound_counts_cells_of_errors_alone():
    rng = np.random.default_rng(9)
    c = np.concatenate([rng.uniform(0.95, 0.99, 500), 0.8 + 1e-10 * np.arange(500)])
    correct = np.arange(1000) < 500
    value = of(c, correct).summary().coverage_at_risk(0.1)
    assert abs(value - reference.coverage_at_risk(c, correct, 0.1)) <= value.bound + 1e-12


def test_mce_with_a_cut_cell():
    c, correct = np.array([3 / 13, 1 / 7]), np.array([False, True])
    value = of(c, correct).summary().mce(7)
    assert abs(value - reference.mce(c, correct, bins=7)) <= value.bound


def test_a_summary_does_not_change_when_the_sketch_goes_on():
    sketch = of(torch.rand(50), torch.rand(50) < 0.5)
    summary = sketch.summary()
    before = {name: float(value) for name, value in summary.metrics().items()}
    sketch.update_confidence(torch.rand(500), torch.zeros(500))
    assert {name: float(value) for name, value in summary.metrics().items()} == before
