"""Every metric of a summary against the slow reference: a sketch within the bounds it states, few samples exactly."""

import math

import numpy as np
import pytest
import torch

from calibrant import Predictions, audit
from calibrant.auditing.collect import collect, collect_part
from calibrant.auditing.shards import Offsets, merge
from calibrant.metrics import METRICS, Confidences, ConfidenceSketch, Metric, ece
from calibrant.metrics.grid import CELLS, shortfall_edges
from calibrant.metrics.tables import FUNCTIONS
from calibrant.predictions import Piece
from tests.reference import metrics as reference

NAMES = ("aece", "mce", "overconfidence", "underconfidence", "aurc", "e_aurc", "augrc")
RISKS, COVERAGES = (0.01, 0.02, 0.05, 0.1), (0.8, 0.9, 0.95)


def definitions(confidence, correct):
    """Every metric of a confidence, in exact fractions."""
    values = {name: getattr(reference, name)(confidence, correct) for name in NAMES}
    values |= {"accuracy": reference.accuracy(correct), "mean_confidence": reference.mean_confidence(confidence)}
    values |= {f"ece_{bins}": reference.ece(confidence, correct, bins=bins) for bins in (10, 15, 100)}
    values |= {f"coverage_at_risk_{r:g}": reference.coverage_at_risk(confidence, correct, r) for r in RISKS}
    return values | {f"risk_at_coverage_{c:g}": reference.risk_at_coverage(confidence, correct, c) for c in COVERAGES}


def of(confidence, correct):
    sketch = ConfidenceSketch()
    sketch.update_confidence(torch.as_tensor(confidence), torch.as_tensor(correct))
    return sketch


def sketched(confidence, correct):
    return of(confidence, correct).summary()


def exact(confidence, correct):
    return collect(Predictions.from_confidence(confidence, np.asarray(correct, bool))).summary()


def cases():
    rng = np.random.default_rng(5)
    c = rng.beta(4, 1.2, 157)
    yield "spread", c, rng.random(157) < c**1.4
    yield "saturated", 1 - 10.0 ** -rng.uniform(1, 15, 121), rng.random(121) < 0.9
    yield "on edges", rng.integers(1, 31, 149) / 30, rng.random(149) < 0.6
    yield "heavily tied", rng.choice([0.2, 0.4, 0.6, 0.8, 1.0], 101), rng.random(101) < 0.5
    yield "all right", rng.random(31), np.ones(31, bool)
    yield "all wrong", rng.random(37), np.zeros(37, bool)
    yield "two digits", np.round(rng.beta(6, 1, 170), 2), rng.random(170) < 0.8
    yield "one right", np.array([0.7]), np.array([True])
    yield "one wrong", np.array([1.0]), np.array([False])
    yield "zero and one", np.array([0.0, 1.0, 0.5]), np.array([True, False, True])


MANY_BINS = (1, 7, 11, 13, 16, 64, 1000)


@pytest.fixture(scope="module", params=list(cases()), ids=lambda case: case[0])
def case(request):
    """Confidences, whether each is right, and every metric by its definition."""
    pairs = request.param[1:]
    by_bins = {
        (name, b): getattr(reference, name)(*pairs, bins=b) for name in ("ece", "mce", "aece") for b in MANY_BINS
    }
    return pairs, definitions(*pairs), by_bins


def close(value, expected, bound):
    return (math.isnan(value) and math.isnan(expected)) or abs(value - expected) <= bound + 1e-12


@pytest.mark.parametrize("summarise", [sketched, exact])
def test_metrics_are_the_references_within_their_bounds(case, summarise):
    pairs, metrics, by_bins = case
    summary = summarise(*pairs)
    values = summary.metrics()
    pairs_of_values = [(name, values[name], expected) for name, expected in metrics.items()]
    pairs_of_values += [((name, bins), summary.measure(f"{name}_{bins}"), e) for (name, bins), e in by_bins.items()]
    for name, value, expected in pairs_of_values:
        assert close(value, expected, value.bound), name
        assert value.bound == 0 or summarise is sketched
    if summarise is exact:
        curve, expected = summary.risk_coverage_curve(), reference.risk_coverage_curve(*pairs)
        for name in ("coverage", "risk", "threshold"):
            np.testing.assert_allclose(getattr(curve, name), getattr(expected, name), rtol=1e-12)


@pytest.mark.parametrize("bins", [10, 12, 15, 20, 25, 30, 50, 60, 75, 100, 150, 300])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_edges_belong_to_the_bin_below_whatever_the_type(bins, dtype):
    confidence = torch.arange(1, bins + 1, dtype=torch.float64).div(bins).to(dtype)
    counts = of(confidence, torch.ones(bins)).summary().reliability(bins).count
    assert counts.tolist() == [1] * bins


@pytest.mark.slow
def test_smooth_ece_within_its_bound():
    rng = np.random.default_rng(2)
    c = rng.beta(4, 1.2, 60)
    correct = rng.random(60) < c**2
    value = of(c, correct).summary().measure("smooth_ece")
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


@pytest.mark.slow
def test_bounds_are_small_on_realistic_data():
    generator = torch.Generator().manual_seed(0)
    for scale in (2.0, 6.0):
        honest = scale * torch.randn(500_000, 10, generator=generator)
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
        value = of(c, correct).summary().measure(f"ece_{bins}")
        assert value == pytest.approx(ece(c, correct, bins=bins), abs=1e-9), bins


def test_coverage_bound_counts_cells_of_errors_alone():
    rng = np.random.default_rng(9)
    c = np.concatenate([rng.uniform(0.95, 0.99, 500), 0.8 + 1e-10 * np.arange(500)])
    correct = np.arange(1000) < 500
    value = of(c, correct).summary().measure("coverage_at_risk_0.1")
    assert abs(value - reference.coverage_at_risk(c, correct, 0.1)) <= value.bound + 1e-12


def test_what_is_no_number_has_no_bound():
    bounds = of(np.linspace(0.3, 0.9, 50), np.ones(50, bool)).bounds()
    assert bounds["auroc"] == bounds["aupr_errors"] == 0
    assert all(math.isfinite(bound) for bound in bounds.values())


def test_mce_with_a_cut_cell():
    c, correct = np.array([3 / 13, 1 / 7]), np.array([False, True])
    value = of(c, correct).summary().measure("mce_7")
    assert abs(value - reference.mce(c, correct, bins=7)) <= value.bound


def test_a_summary_does_not_change_when_the_sketch_goes_on():
    sketch = of(torch.rand(50), torch.rand(50) < 0.5)
    summary = sketch.summary()
    before = {name: float(value) for name, value in summary.metrics().items()}
    sketch.update_confidence(torch.rand(500), torch.zeros(500))
    assert {name: float(value) for name, value in summary.metrics().items()} == before


# ---------------------------------------------------------------------- audits of few samples


def clipped(dtype, size=1500):
    """Probabilities of a sure model, clipped as people clip them: hundreds share the largest value."""
    rng = np.random.default_rng(5)
    z = 6 * rng.standard_normal((size, 4))
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    labels = (0.3 * z + rng.gumbel(size=z.shape)).argmax(1)
    p = np.clip(p, 1e-5, 1 - 1e-5)
    return (p / p.sum(1, keepdims=True)).astype(dtype), labels


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_audit_of_probabilities_is_exact(dtype):
    p, labels = clipped(dtype)
    found = audit(Predictions.from_probabilities(p, labels), replicates=20)
    expected = definitions(p.max(1), p.argmax(1) == labels)
    for name, value in expected.items():
        assert found.metrics[name] == pytest.approx(value, abs=1e-12), name
    assert set(found.bounds.values()) == {0.0}


@pytest.mark.slow
def test_logits_are_ranked_in_float64():
    z = np.round(np.random.default_rng(2).normal(size=(700, 3)) * 8, 1).astype(np.float32)
    labels = np.random.default_rng(3).integers(0, 3, 700)
    found = audit(Predictions.from_logits(z, labels), replicates=20)
    wide = z.astype(np.float64)
    e = np.exp(wide - wide.max(1, keepdims=True))
    for name, value in definitions(1 / e.sum(1), z.argmax(1) == labels).items():
        assert found.metrics[name] == pytest.approx(value, abs=2e-6), name


def test_what_is_kept_is_no_more_than_it_says():
    """Nine bytes a sample: no column keeps the memory of its whole block."""
    p, labels = clipped(np.float64)
    for made in (Predictions.from_probabilities(p, labels), Predictions.from_logits(np.log(p), labels)):
        kept = collect(made).confidences
        assert all(part.base is None for part in [*kept.confidence, *kept.correct])
        assert sum(part.nbytes for part in [*kept.confidence, *kept.correct]) == 9 * 1500


def test_more_samples_than_are_kept_are_sketched(monkeypatch):
    p, labels = clipped(np.float64)
    whole = collect(Predictions.from_probabilities(p, labels)).summary()
    monkeypatch.setattr(Confidences.__init__, "__defaults__", (1000,))
    found = collect(Predictions.from_probabilities(p, labels))
    assert found.confidences.confidence == []
    for name, value in found.summary().metrics().items():
        assert abs(value - whole.metrics()[name]) <= value.bound + 1e-12, name
    assert found.summary().measure("aurc").bound > 0


@pytest.mark.parametrize("most", [2**22, 1000])
def test_parts_together_are_as_exact_as_the_whole(monkeypatch, most):
    monkeypatch.setattr(Confidences.__init__, "__defaults__", (most,))
    p, labels = clipped(np.float64)
    whole = collect(Predictions.from_probabilities(p, labels)).summary().metrics()
    halves = [slice(0, 700), slice(700, 1500)]
    pieces = [Piece(Predictions.from_probabilities(p[rows], labels[rows]), start=rows.start) for rows in halves]
    parts = [next(collect_part(piece, (), [Offsets(piece.start, piece.start, 1500)])) for piece in pieces]
    together = merge(parts).collected.summary().metrics()
    for name, value in together.items():
        assert value.bound == pytest.approx(whole[name].bound, rel=1e-9)
        assert value == pytest.approx(whole[name], abs=1e-12)


@pytest.mark.parametrize("family", ["Calibration", "Accuracy"])
def test_a_metric_without_a_bound_of_its_own_may_be_anything(monkeypatch, family):
    metric = Metric("claim", "Claim", "share", family, "low", (0, 1), "mean claim", table="ranked")
    monkeypatch.setitem(METRICS, "claim", metric)
    monkeypatch.setitem(FUNCTIONS, "claim", lambda groups: float(groups.sure.sum() / groups.size))
    value = sketched([0.9, 0.6, 0.5], [True, False, True]).measure("claim")
    assert value == pytest.approx(2 / 3, abs=1e-5)
    assert value.bound == 1.0
