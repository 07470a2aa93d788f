"""ConfidenceSketch against the slow reference, its bounds, merging, two processes, files and bad input."""

import math

import numpy as np
import pytest
import torch

from calibrant.metrics import ConfidenceSketch, ece
from calibrant.metrics.sketch.grid import CELLS, cells_of, shortfall_edges, squash, unsquash
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


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_logits(dtype):
    generator = torch.Generator().manual_seed(1)
    z = (4 * torch.randn(257, 7, generator=generator, dtype=torch.float64)).to(dtype)
    y = torch.randint(0, 7, (257,), generator=generator)
    sketch = ConfidenceSketch()
    sketch.update(z, y)
    values = sketch.compute()
    exact = z.double()
    confidence, predicted = exact.softmax(1).max(1)
    correct = (predicted == y).numpy()
    tolerance = 1e-12 if dtype == torch.float64 else 2e-6
    assert values["nll"] == pytest.approx(reference.nll(exact.numpy(), y.numpy()), abs=tolerance)
    assert values["brier"] == pytest.approx(reference.brier(exact.numpy(), y.numpy()), abs=tolerance)
    assert values["ece"] == pytest.approx(reference.ece(confidence.numpy(), correct), abs=tolerance)
    assert values["aurc"] == pytest.approx(reference.aurc(confidence.numpy(), correct), abs=tolerance)


def test_first_of_tied_maxima_is_the_prediction():
    z = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [2.0, 2.0, 2.0], [0.0, 3.0, 3.0]])
    sketch = ConfidenceSketch()
    sketch.update(z, torch.tensor([0, 1, 2, 1]))
    assert sketch.compute()["accuracy"] == 0.5


def test_saturated_predictions_are_ranked():
    """float32 softmax is 1 for all of these; their order is in the logits."""
    z = torch.zeros(6, 2)
    z[:, 0] = torch.tensor([20.0, 22.0, 24.0, 26.0, 28.0, 30.0])
    sketch = ConfidenceSketch()
    sketch.update(z, torch.tensor([1, 1, 0, 0, 0, 0]))
    assert sketch.compute()["aurc"] == pytest.approx((1 / 5 + 2 / 6) / 6, abs=1e-12)


def test_large_logits():
    sketch = ConfidenceSketch()
    sketch.update(torch.tensor([[1e4, -1e4, 0.0], [0.0, 1e4, 9.9e3]]), torch.tensor([0, 0]))
    values = sketch.compute()
    assert all(math.isfinite(value) for value in values.values())
    assert values["nll"] == pytest.approx(5e3)


def test_probabilities_give_what_logits_give():
    z = torch.randn(101, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    y = torch.arange(101) % 5
    a, b = ConfidenceSketch(), ConfidenceSketch(kind="probabilities")
    a.update(z, y)
    b.update(z.softmax(1), y)
    for name, value in a.compute().items():
        assert b.compute()[name] == pytest.approx(value, abs=1e-6, nan_ok=True), name


def test_pixels_are_pooled_and_ignored_ones_count_nowhere():
    generator = torch.Generator().manual_seed(3)
    z = 3 * torch.randn(3, 4, 5, 7, generator=generator, dtype=torch.float64)
    y = torch.randint(0, 4, (3, 5, 7), generator=generator)
    y[torch.rand(3, 5, 7, generator=generator) < 0.3] = 255
    whole, flat = ConfidenceSketch(ignore_index=255), ConfidenceSketch()
    whole.update(z, y)
    keep = y != 255
    flat.update(z.movedim(1, -1)[keep], y[keep])
    assert whole.compute() == pytest.approx(flat.compute(), nan_ok=True)
    assert whole.summary().samples == int(keep.sum())


def test_any_score_ranks_and_calibration_stays_of_the_confidence():
    z = 5 * torch.randn(300, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    y = torch.arange(300) % 4
    sketch = ConfidenceSketch(score=lambda v: v.amax(1))
    sketch.update(z, y)
    values, bounds = sketch.compute(), sketch.bounds()
    correct = (z.argmax(1) == y).numpy()
    assert close(values["aurc"], reference.aurc(z.amax(1).numpy(), correct), bounds["aurc"])
    assert values["ece"] == pytest.approx(reference.ece(z.softmax(1).amax(1).numpy(), correct))
    curve = sketch.summary().risk_coverage_curve()
    assert curve.threshold[0] <= float(z.amax()) <= curve.threshold[0] + 1e-3
    with pytest.raises(ValueError, match="AECE needs a sketch by confidence"):
        sketch.summary().aece()


def test_squash_keeps_the_order_and_can_be_undone():
    score = np.array([-1e6, -3.0, -1e-9, 0.0, 2.5, 40.0])
    value, rest = squash(score)
    assert (np.diff(value) > 0).all()
    assert value + rest == pytest.approx(np.ones(6))
    assert unsquash(value) == pytest.approx(score, rel=1e-6, abs=1e-12)


def test_cells_are_monotone_and_hold_what_their_edges_say():
    rng = np.random.default_rng(0)
    c = np.concatenate([rng.random(5000), 1 - 10.0 ** rng.uniform(-17, -2, 5000), np.arange(301) / 300])
    u = 1 - c
    index = cells_of(c, u)
    edges = shortfall_edges()
    assert (u <= edges[index] * (1 + 1e-12) + 1e-18).all()
    assert (u >= edges[index + 1] * (1 - 1e-12)).all()
    assert (np.diff(index[np.argsort(c, kind="stable")]) >= 0).all()
    assert (np.diff(edges) <= 0).all()


def test_sketches_add_up_to_the_whole():
    rng = np.random.default_rng(6)
    c, correct = rng.random(1000), rng.random(1000) < 0.5
    whole = of(c, correct)
    parts = [of(c[i::3], correct[i::3]) for i in range(3)]
    merged = sum(parts)
    for name, value in whole.compute().items():
        assert merged.compute()[name] == pytest.approx(value, abs=1e-12), name
    assert (merged.cells == whole.cells).all()
    assert parts[0].summary().samples == 334


def test_counts_stay_exact_far_beyond_2_24_and_sums_do_not_saturate():
    sketch = of(torch.tensor([0.9, 0.9, 0.6, 0.7, 0.7]), torch.tensor([1, 0, 1, 1, 0]))
    values = sketch.compute()
    for _ in range(33):
        sketch = sketch + sketch
    assert sketch.summary().samples == 5 * 2**33
    for name in ("ece", "mce", "accuracy", "mean_confidence", "overconfidence"):
        assert sketch.compute()[name] == pytest.approx(values[name], abs=1e-12), name


def test_save_and_load(tmp_path):
    sketch = of(torch.rand(500), torch.rand(500) < 0.7)
    sketch.save(tmp_path / "s.safetensors")
    again = ConfidenceSketch.load(tmp_path / "s.safetensors")
    assert again.compute() == sketch.compute()
    assert (again + sketch).summary().samples == 1000
    assert (tmp_path / "s.safetensors").stat().st_size < 50_000


def test_damaged_files_are_refused(tmp_path):
    sketch = of(torch.rand(50), torch.rand(50) < 0.7)
    sketch.save(tmp_path / "s.safetensors")
    whole = (tmp_path / "s.safetensors").read_bytes()
    for name, content in {"cut": whole[:-40], "empty": b"", "text": b"not a sketch", "short": whole[:9]}.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=f"{name}: cannot read a sketch"):
            ConfidenceSketch.load(tmp_path / name)
    with pytest.raises(ValueError, match="no such file"):
        ConfidenceSketch.load(tmp_path / "missing")


@pytest.mark.parametrize(
    ("update", "words"),
    [
        (lambda s: s.update(torch.full((3, 2), math.nan), torch.zeros(3, dtype=torch.int64)), "must be finite"),
        (lambda s: s.update(torch.tensor([[0.0, math.inf]]), torch.tensor([0])), "must be finite"),
        (lambda s: s.update(torch.tensor([[0.0, -math.inf]]), torch.tensor([1])), "must be finite"),
        (lambda s: s.update(torch.zeros(3, 2), torch.tensor([0, 1, 2])), r"must lie in 0\.\.1, got 2"),
        (lambda s: s.update(torch.zeros(3, 2), torch.tensor([0, 1])), r"whole numbers \[3\]"),
        (lambda s: s.update(torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64)), "N >= 1"),
        (lambda s: s.update(torch.zeros(3, 1), torch.zeros(3, dtype=torch.int64)), "C >= 2"),
        (lambda s: s.update(torch.zeros(3, 2), torch.zeros(3)), "whole numbers"),
        (lambda s: s.update_confidence(torch.tensor([0.5, 1.1]), torch.tensor([1, 0])), r"in \[0, 1\]"),
        (lambda s: s.update_confidence(torch.tensor([0.5, math.nan]), torch.tensor([1, 0])), r"in \[0, 1\]"),
        (lambda s: s.update_confidence(torch.tensor([0.5]), torch.tensor([2])), "bool or 0/1"),
        (lambda s: s.update_confidence(torch.tensor([0.5]), torch.tensor([1, 0])), "correct"),
        (lambda s: s.update_confidence(torch.tensor([]), torch.tensor([])), "N >= 1"),
    ],
)
def test_bad_input_leaves_the_sketch_as_it_was(update, words):
    sketch = of(torch.rand(10), torch.rand(10) < 0.5)
    before = sketch.compute()
    with pytest.raises(ValueError, match=words):
        update(sketch)
    sketch._computed = None
    assert sketch.compute() == before


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])  # bfloat16 is coarser than the base bins
def test_confidences_of_any_type_are_binned_as_the_exact_function_bins_them(dtype):
    c = torch.rand(3000, generator=torch.Generator().manual_seed(8)).to(dtype)
    correct = torch.arange(3000) % 3 > 0
    for bins in (10, 15, 100):
        value = of(c, correct).summary().ece(bins)
        assert value == pytest.approx(ece(c, correct, bins=bins), abs=1e-9), bins


def test_float32_probabilities_on_an_edge():
    p = torch.tensor([[0.6, 0.4], [0.6, 0.4], [0.65, 0.35], [0.62, 0.38]])
    sketch = ConfidenceSketch(kind="probabilities")
    sketch.update(p, torch.tensor([0, 1, 0, 0]))
    confidence, correct = p.amax(1), torch.tensor([True, False, True, True])
    assert sketch.compute()["ece"] == pytest.approx(ece(confidence, correct), abs=1e-7)


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


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32])
def test_labels_of_any_whole_type(dtype):
    sketch = ConfidenceSketch()
    sketch.update(torch.eye(3), torch.arange(3).to(dtype))
    assert sketch.compute()["accuracy"] == 1


def test_samples_without_logits_leave_out_nll():
    sketch = of(torch.rand(10), torch.rand(10) < 0.5)
    sketch.update(torch.randn(10, 3), torch.arange(10) % 3)
    assert "nll" not in sketch.compute()


@pytest.mark.parametrize("score", [lambda z: z.amax(1, keepdim=True), lambda z: z.amax(1) * math.nan, lambda z: 1.0])
def test_bad_scores_are_refused(score):
    sketch = ConfidenceSketch(score=score)
    with pytest.raises(ValueError, match="a score must be finite"):
        sketch.update(torch.randn(5, 3), torch.arange(5) % 3)


def test_sketches_of_different_scores_do_not_add():
    with pytest.raises(ValueError, match="same score"):
        ConfidenceSketch(score=lambda z: z.amax(1)) + ConfidenceSketch()
