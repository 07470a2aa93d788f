"""The exact calibration metrics against the slow ones of tests/reference, values worked by hand, and limit cases."""

import itertools

import numpy as np
import pytest
import torch

from calibrant import metrics as M
from calibrant.metrics import calibration, smooth
from tests.helpers.metric_data import CASES, LOGITS, close
from tests.reference import metrics as R

case = pytest.mark.parametrize("data", CASES.values(), ids=CASES.keys())

scored = pytest.mark.parametrize("data", LOGITS.values(), ids=LOGITS.keys())


@case
@pytest.mark.parametrize("size", [1, 2, 15, 40])
def test_binned_errors(data, size):
    assert M.ece(*data, bins=size) == close(R.ece(*data, bins=size))
    assert M.mce(*data, bins=size) == close(R.mce(*data, bins=size))
    assert M.aece(*data, bins=size) == close(R.aece(*data, bins=size))
    assert M.aece(*data, bins=size, convention="released") == close(R.aece(*data, bins=size, convention="released"))


@case
def test_pycalib(data):
    confidence, correct = data
    for classes, size in itertools.product([2, 10, 1000], [1, 15, 100]):
        within = np.maximum(confidence, 1 / classes)
        settings = {"bins": size, "convention": "pycalib", "classes": classes}
        assert M.ece(within, correct, **settings) == close(R.ece(within, correct, **settings))
        assert M.mce(within, correct, **settings) == close(R.mce(within, correct, **settings))


def test_pycalib_counts_what_rounding_put_below_the_first_edge():
    settings = {"bins": 4, "convention": "pycalib", "classes": 7}
    lowered = torch.tensor([1 / 7, 0.9]).bfloat16()
    assert float(lowered[0]) < 1 / 7
    for confidence in (lowered, [1 / 7 - 1e-9, 0.9]):
        assert M.ece(confidence, [1, 0], **settings) == M.ece([1 / 7, 0.9], [1, 0], **settings)


@case
@pytest.mark.parametrize("size", [1, 4, 15])
def test_reliability(data, size):
    seen, expected = M.reliability(*data, bins=size), R.reliability(*data, bins=size)
    for name in ("low", "high", "count", "confidence", "accuracy"):
        np.testing.assert_allclose(getattr(seen, name), getattr(expected, name), rtol=1e-14)
    assert seen.count.dtype == np.int64


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("size", [5, 15, 100])
def test_a_confidence_on_an_edge_is_in_the_bin_below_in_every_precision(dtype, size):
    rng = np.random.default_rng(size)
    edges = torch.arange(size + 1, dtype=torch.float64) / size
    confidence = torch.cat([edges, torch.from_numpy(rng.random(50))]).to(dtype)
    correct = torch.from_numpy(rng.random(size + 51) < 0.5)
    seen = M.reliability(confidence, correct, bins=size)
    assert seen.count.tolist() == R.reliability(confidence, correct, bins=size).count.tolist()
    assert M.reliability(confidence[1 : size + 1], correct[1 : size + 1], bins=size).count.tolist() == [1] * size
    assert M.ece(confidence, correct, bins=size) == close(R.ece(confidence, correct, bins=size))
    if dtype != torch.bfloat16:
        assert M.mce(confidence.numpy(), correct, bins=size) == M.mce(confidence, correct, bins=size)


def test_parts_of_a_large_array_add_up(monkeypatch):
    confidence, correct = CASES["ties"]
    expected = [f(confidence, correct) for f in (M.ece, M.mce, M.smooth_ece)]
    monkeypatch.setattr(calibration, "ROWS", 7)
    monkeypatch.setattr(smooth, "ROWS", 7)  # so few that the data count as large, and the first grid is finer
    assert [f(confidence, correct) for f in (M.ece, M.mce)] == close(expected[:2])
    assert M.smooth_ece(confidence, correct) == pytest.approx(expected[2], abs=1e-7)


def test_two_million_single_precision_confidences_lose_nothing():
    """torchmetrics sums in float32 and drifts; every confidence is one of two, so the value is known."""
    low, high, half = np.float32(0.6), np.float32(0.9), 1_000_000
    confidence = np.repeat([low, high], half)
    correct = np.arange(2 * half) % 2 == 0
    expected = (float(low) - 0.5) / 2 + (float(high) - 0.5) / 2
    for value in (M.ece(confidence, correct), M.aece(confidence, correct), M.mean_confidence(confidence) - 0.5):
        assert value == pytest.approx(expected, abs=1e-14)


@scored
@pytest.mark.parametrize("size", [1, 7, 15])
def test_classwise_ece(data, size):
    z, y = R.rows_of(*data)
    expected = R.classwise_ece(np.array(z), y, bins=size, average=None)
    np.testing.assert_allclose(M.classwise_ece(*data, bins=size, average=None), expected, rtol=1e-12, atol=2e-15)
    assert M.classwise_ece(*data, bins=size) == close(float(np.mean(expected)), rel=1e-12)


def test_probabilities_on_edges_of_bins():
    p = torch.tensor([[0.2, 0.8], [0.6, 0.4], [1.0, 0.0], [0.4, 0.6]])
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        given, y = p.to(dtype), [0, 1, 0, 1]
        expected = R.classwise_ece(given, y, bins=5, kind="probabilities", average=None)
        seen = M.classwise_ece(given, y, bins=5, kind="probabilities", average=None)
        np.testing.assert_allclose(seen, expected, rtol=1e-14)
