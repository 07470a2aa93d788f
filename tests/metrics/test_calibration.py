"""The exact calibration metrics against the slow ones of tests/reference, values worked by hand, and limit cases."""

import itertools
import math

import numpy as np
import pytest
import torch

from calibrant import metrics as M
from calibrant.metrics import calibration
from tests.helpers.metric_data import CASES, close, judged
from tests.reference import metrics as R

case = pytest.mark.parametrize("data", CASES.values(), ids=CASES.keys())


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
    monkeypatch.setattr(calibration, "RESIDUALS", 7)  # so few that the data count as large, and the first grid is finer
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


@pytest.mark.parametrize("name", ["random", "few", "ties", "one tie", "ends", "one wrong", "all right", "image"])
def test_smooth_ece_against_direct_evaluation(name):
    data = CASES[name]
    for width in (0.004, 0.03, 0.2, 3.0):
        assert M.smooth_ece(*data, bandwidth=width) == pytest.approx(R.smooth_ece_at(*data, width), abs=1e-5)
    value = M.smooth_ece(*data)
    assert M.smooth_ece(*data, bandwidth=max(value, 1e-4)) == pytest.approx(value, abs=1e-5)
    assert R.smooth_ece_at(*data, value) == pytest.approx(value, abs=1e-5)


def test_smooth_ece_of_calibrated_predictions_against_direct_evaluation():
    confidence, _ = judged(8, 200)
    correct = np.random.default_rng(9).random(200) < confidence
    for width in (0.002, 0.02):
        direct = R.smooth_ece_at(confidence, correct, width)
        assert M.smooth_ece(confidence, correct, bandwidth=width) == pytest.approx(direct, abs=1e-5)
    value = M.smooth_ece(confidence, correct)
    assert R.smooth_ece_at(confidence, correct, value) == pytest.approx(value, abs=1e-5)


@pytest.mark.parametrize("gap", [0.3, 1e-2, 1e-3, 1e-4, 1e-5, 1e-9, 0.0])
def test_smooth_ece_of_residuals_at_one_place_is_their_mean(gap):
    """Smoothing keeps the integral of residuals of one sign: every prediction right with confidence 1 - gap."""
    assert M.smooth_ece(np.full(9, 1 - gap), np.ones(9)) == pytest.approx(gap, abs=1e-7)


def test_smooth_ece_between_its_limits():
    confidence, correct = np.array([0.2, 0.8, 0.8]), np.array([1, 0, 0])
    narrow, wide = (0.8 + 1.6) / 3, abs(0.8 - 1.6) / 3  # every place on its own; all of them together
    assert M.smooth_ece(confidence, correct, bandwidth=0.001) == pytest.approx(narrow, abs=1e-5)
    assert M.smooth_ece(confidence, correct, bandwidth=100) == pytest.approx(wide, abs=1e-9)
    values = [M.smooth_ece(confidence, correct, bandwidth=w) for w in (1e-4, 0.01, 0.1, 0.2, 0.4, 0.8)]
    assert values == sorted(values, reverse=True)


def test_smooth_ece_of_two_neighbours_by_hand():
    """Residuals +r and -r at distance d: the integral of |K(t) - K(t - d)| is 2 (2 Phi(d / 2s) - 1)."""
    distance, width = 0.01, 0.05
    confidence, correct = np.array([0.5, 0.5 + distance]), np.array([1, 0])
    middle = 2 * math.erf(distance / (2 * width) / math.sqrt(2))
    # The second residual is a little larger than the first, which adds the difference once.
    assert M.smooth_ece(confidence, correct, bandwidth=width) == pytest.approx(0.5 * middle / 2, abs=distance / 2)
    assert M.smooth_ece(confidence, correct, bandwidth=width) == pytest.approx(
        R.smooth_ece_at(confidence, correct, width), abs=1e-6
    )


def test_smooth_ece_of_residual_sums():
    confidence, correct = CASES["ties"]
    distinct, place = np.unique(confidence, return_inverse=True)
    sums = np.bincount(place, weights=correct - confidence)
    value = calibration.smooth_ece_of_residuals(distinct, sums, len(confidence))
    assert value == pytest.approx(M.smooth_ece(confidence, correct), abs=1e-6)
