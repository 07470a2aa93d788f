"""Proper scores, class-wise and segmentation metrics against the slow ones of tests/reference and values by hand."""

import math

import numpy as np
import pytest
import torch

from calibrant import metrics as M
from calibrant.metrics import logits
from tests.helpers.metric_data import LOGITS, close, images, scores
from tests.reference import metrics as R

scored = pytest.mark.parametrize("data", LOGITS.values(), ids=LOGITS.keys())


def softmax(z, dtype=np.float64):
    powers = np.exp(z.astype(np.float64) - z.max(1, keepdims=True))
    return (powers / powers.sum(1, keepdims=True)).astype(dtype)


@scored
@pytest.mark.parametrize("entries", [1 << 20, 24, 1])
def test_proper_scores(data, entries, monkeypatch):
    monkeypatch.setattr(logits, "ENTRIES", entries)  # blocks of many rows, of parts of an image, of one position
    assert M.nll(*data) == close(R.nll(*data))
    for scale in ("sum", "half", "mean"):
        assert M.brier(*data, scale=scale) == close(R.brier(*data, scale=scale))
    for seen, expected in zip(M.top_label(*data), R.top_label(*data), strict=True):
        np.testing.assert_allclose(seen, expected, rtol=1e-15)
        assert seen.shape == np.shape(data[1])
    assert len(M.top_label(data[0])) == 2


@scored
@pytest.mark.parametrize("size", [1, 7, 15])
def test_classwise_ece(data, size):
    z, y = R.rows_of(*data)
    expected = R.classwise_ece(np.array(z), y, bins=size, average=None)
    np.testing.assert_allclose(M.classwise_ece(*data, bins=size, average=None), expected, rtol=1e-12, atol=2e-15)
    assert M.classwise_ece(*data, bins=size) == close(float(np.mean(expected)), rel=1e-12)


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


def test_probabilities_on_edges_of_bins():
    p = torch.tensor([[0.2, 0.8], [0.6, 0.4], [1.0, 0.0], [0.4, 0.6]])
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        given, y = p.to(dtype), [0, 1, 0, 1]
        expected = R.classwise_ece(given, y, bins=5, kind="probabilities", average=None)
        seen = M.classwise_ece(given, y, bins=5, kind="probabilities", average=None)
        np.testing.assert_allclose(seen, expected, rtol=1e-14)


@pytest.mark.parametrize("entries", [1 << 20, 16])
def test_ignored_positions_are_left_out(entries, monkeypatch):
    monkeypatch.setattr(logits, "ENTRIES", entries)
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


# ---------------------------------------------------------------------- segmentation


@pytest.mark.parametrize("entries", [1 << 20, 40])
def test_mean_iou(entries, monkeypatch):
    monkeypatch.setattr(logits, "ENTRIES", entries)
    for seed in range(5):
        z, y = images(seed)
        if seed == 1:
            z[:, 2] = -50  # never predicted
        if seed == 2:
            z[:, 2], y[y == 2] = -50, 1  # absent from both
        for each in (z, z.argmax(1), torch.from_numpy(z).float(), torch.from_numpy(z.argmax(1))):
            expected = R.mean_iou(z, y, classes=4, average=None)
            np.testing.assert_array_equal(M.mean_iou(each, y, classes=4, average=None), expected)
            assert M.mean_iou(each, y, classes=4) == close(float(np.nanmean(expected)))


def test_mean_iou_without_ignored_pixels_and_what_was_predicted_there():
    y = np.array([[[0, 1, 255]]])
    assert M.mean_iou(np.array([[[0, 1, 7]]]), y, classes=2) == 1.0
    assert M.mean_iou(np.array([[[0, 1, 1]]]), np.array([[[0, 1, 0]]]), classes=2, ignore_index=None) == 0.5


@pytest.mark.parametrize("background", [None, 0, 2])
def test_pixels(background):
    z, y = images(6)
    expected = R.pixels(z, y, exclude_background=background)
    for seen, want in zip(M.pixels(z, y, exclude_background=background), expected, strict=True):
        np.testing.assert_array_equal(seen, want)
    tensors = M.pixels(torch.from_numpy(z).half(), torch.from_numpy(y), exclude_background=background)
    assert tensors[0].dtype == torch.float16
    np.testing.assert_array_equal(tensors[0].numpy(), expected[0].astype(np.float16))
    np.testing.assert_array_equal(tensors[1].numpy(), expected[1])


def test_drawn_pixels_are_the_same_for_every_model_and_every_batching():
    z, y = images(7, (4, 3, 9, 8))
    place = np.broadcast_to(np.arange(y.size).reshape(4, 1, 9, 8), z.shape).astype(np.float64)
    chosen, labels = M.pixels(place, y, per_image=20, seed=3)
    spots = chosen[:, 0].astype(int)
    assert len(set(spots)) == len(spots) == 4 * 20
    np.testing.assert_array_equal(labels, y.reshape(-1)[spots])
    assert np.bincount(spots // 72).tolist() == [20] * 4
    np.testing.assert_array_equal(
        M.pixels(z, y, per_image=20, seed=3)[0], z.transpose(0, 2, 3, 1).reshape(-1, 3)[spots]
    )
    halves = [M.pixels(z[i : i + 2], y[i : i + 2], per_image=20, seed=3, first_image=i)[0] for i in (0, 2)]
    np.testing.assert_array_equal(np.concatenate(halves), M.pixels(z, y, per_image=20, seed=3)[0])
    assert not np.array_equal(M.pixels(place, y, per_image=20, seed=4)[0][:, 0], chosen[:, 0])
    assert len(M.pixels(z, y, per_image=1000)[1]) == (y != 255).sum()
