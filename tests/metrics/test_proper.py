"""Proper scores and the top label against the slow ones of tests/reference and values by hand."""

import math

import numpy as np
import pytest
import torch

from calibrant import metrics as M
from calibrant.metrics import proper
from tests.helpers.metric_data import LOGITS, close, scores
from tests.reference import metrics as R

scored = pytest.mark.parametrize("data", LOGITS.values(), ids=LOGITS.keys())


def softmax(z, dtype=np.float64):
    powers = np.exp(z.astype(np.float64) - z.max(1, keepdims=True))
    return (powers / powers.sum(1, keepdims=True)).astype(dtype)


@scored
@pytest.mark.parametrize("entries", [1 << 20, 24, 1])
def test_proper_scores(data, entries, monkeypatch):
    monkeypatch.setattr(proper, "ENTRIES", entries)  # blocks of many rows, of parts of an image, of one position
    assert M.nll(*data) == close(R.nll(*data))
    for scale in ("sum", "half", "mean"):
        assert M.brier(*data, scale=scale) == close(R.brier(*data, scale=scale))
    for seen, expected in zip(M.top_label(*data), R.top_label(*data), strict=True):
        np.testing.assert_allclose(seen, expected, rtol=1e-15)
        assert seen.shape == np.shape(data[1])
    assert len(M.top_label(data[0])) == 2


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_probabilities_are_taken_as_they_are(dtype):
    z, y = scores(8, (29, 4))
    p = softmax(z, dtype)
    assert M.nll(p, y, kind="probabilities") == close(R.nll(p, y, kind="probabilities"))
    assert M.brier(p, y, kind="probabilities") == close(R.brier(p, y, kind="probabilities"))
    assert M.classwise_ece(p, y, kind="probabilities") == close(R.classwise_ece(p, y, kind="probabilities"))
    confidence, predicted, correct = M.top_label(p, y, kind="probabilities")
    expected = R.top_label(p, y, kind="probabilities")
    np.testing.assert_array_equal(predicted, expected[1])
    np.testing.assert_array_equal(correct, expected[2])
    np.testing.assert_array_equal(confidence, np.minimum(expected[0], 1))


@pytest.mark.parametrize("entries", [1 << 20, 16])
def test_ignored_positions_are_left_out(entries, monkeypatch):
    monkeypatch.setattr(proper, "ENTRIES", entries)
    z, y = scores(9, (2, 3, 4, 5))
    y[0, 1] = 255
    y[1, :, 2] = 255
    rows, held = map(np.array, R.rows_of(z, y, 255))
    assert len(held) == 40 - 5 - 4
    assert M.nll(z, y, ignore_index=255) == close(M.nll(rows, held))
    assert M.brier(z, y, ignore_index=255) == close(M.brier(rows, held))
    assert M.classwise_ece(z, y, ignore_index=255) == close(M.classwise_ece(rows, held))


def test_extreme_logits():
    assert M.nll([[1e4, 0.0], [0.0, 1e4]], [1, 1]) == 5e3
    assert M.nll(torch.tensor([[6e4, -6e4]], dtype=torch.float16), [1]) == 120_000
    assert M.nll([[40.0, 0.0]], [0]) == pytest.approx(math.log1p(math.exp(-40)), rel=1e-15)
    assert M.brier([[1e4, 0.0]], [1]) == 2
    assert M.nll([[1.0, 0.0], [0.5, 0.5]], [1, 0], kind="probabilities") == math.inf
    assert M.top_label([[1e4, 1e4, -1e4]])[0].tolist() == [0.5]


def test_proper_scores_by_hand():
    p, y = [[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]], [0, 1]
    assert M.nll(p, y, kind="probabilities") == close(-(math.log(0.7) + math.log(0.3)) / 2)
    assert M.brier(p, y, kind="probabilities") == close((0.09 + 0.04 + 0.01 + 0.01 + 0.49 + 0.36) / 2)
    assert M.nll(np.zeros((3, 8)), [0, 5, 7]) == close(math.log(8))


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
