"""Mean IoU and pixels as samples against the slow ones of tests/reference and values by hand."""

import numpy as np
import pytest
import torch

from calibrant import metrics as M
from calibrant.metrics import proper
from tests.helpers.metric_data import close, images
from tests.reference import metrics as R


@pytest.mark.parametrize("entries", [1 << 20, 40])
def test_mean_iou(entries, monkeypatch):
    monkeypatch.setattr(proper, "ENTRIES", entries)
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
