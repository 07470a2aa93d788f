"""ConfidenceSketch against the slow reference, merging and bad input."""

import math

import numpy as np
import pytest
import torch

from calibrant.metrics import ConfidenceSketch, ece
from tests.reference import metrics as reference


def of(confidence, correct):
    sketch = ConfidenceSketch()
    sketch.update_confidence(torch.as_tensor(confidence), torch.as_tensor(correct))
    return sketch


def close(value, expected, bound):
    return (math.isnan(value) and math.isnan(expected)) or abs(value - expected) <= bound + 1e-12


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


@pytest.mark.parametrize(
    ("update", "words"),
    [
        (lambda s: s.update(torch.full((3, 2), math.nan), torch.zeros(3, dtype=torch.int64)), "must be finite"),
        (lambda s: s.update(torch.tensor([[0.0, math.inf]]), torch.tensor([0])), "must be finite"),
        (lambda s: s.update(torch.tensor([[0.0, -math.inf]]), torch.tensor([1])), "must be finite"),
        (lambda s: s.update(torch.zeros(3, 2), torch.tensor([0, 1, 2])), r"must be in 0\.\.1, got 2 in row 2"),
        (lambda s: s.update(torch.zeros(3, 2), torch.tensor([0, 1])), r"whole numbers \[3\]"),
        (lambda s: s.update(torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64)), "N >= 1"),
        (lambda s: s.update(torch.zeros(3, 1), torch.zeros(3, dtype=torch.int64)), "C >= 2"),
        (lambda s: s.update(torch.zeros(3, 2), torch.zeros(3)), "whole numbers"),
        (lambda s: s.update_confidence(torch.tensor([0.5, 1.1]), torch.tensor([1, 0])), r"in \[0, 1\]"),
        (lambda s: s.update_confidence(torch.tensor([0.5, math.nan]), torch.tensor([1, 0])), r"in \[0, 1\]"),
        (lambda s: s.update_confidence(torch.tensor([0.5]), torch.tensor([2])), "True and False or 1 and 0, got 2"),
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


def test_float32_probabilities_on_an_edge():
    p = torch.tensor([[0.6, 0.4], [0.6, 0.4], [0.65, 0.35], [0.62, 0.38]])
    sketch = ConfidenceSketch(kind="probabilities")
    sketch.update(p, torch.tensor([0, 1, 0, 0]))
    confidence, correct = p.amax(1), torch.tensor([True, False, True, True])
    assert sketch.compute()["ece"] == pytest.approx(ece(confidence, correct), abs=1e-7)


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
