"""Mean IoU and pixels against the slow ones of tests/reference and values by hand; intervals over whole images."""

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import jaccard_score

from calibrant import metrics as M
from calibrant.metrics import ClassOverlaps, Clusters, ConfidenceSketch, base_bins, intervals, kernel, top_label_blocks
from calibrant.metrics.segmentation import MOST_IMAGES
from tests.helpers.metric_data import close, images
from tests.reference import metrics as R


@pytest.mark.parametrize("entries", [1 << 20, 40])
def test_mean_iou(entries, monkeypatch):
    monkeypatch.setattr(kernel, "BLOCK_NUMBERS", entries)
    monkeypatch.setattr(kernel, "CHUNK", entries)
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


def collect(images, side, seed=0):
    """Logits of two classes, where the share of right pixels differs between images."""
    rng = np.random.default_rng(seed)
    rate = rng.uniform(0.4, 1.0, images)
    right = rng.random((images, side, side)) < rate[:, None, None]
    z = np.stack([np.full(right.shape, 1.0), np.full(right.shape, 0.0)], axis=1)
    sketch, clusters = ConfidenceSketch(), Clusters()
    for top in top_label_blocks(z, (~right).astype(np.int64), kind="logits"):
        sketch.observe(top)
        clusters.add(top, base_bins(top.cells), 0)
    return sketch.summary(), clusters, right.mean((1, 2))


@pytest.mark.slow
def test_the_interval_of_accuracy_has_the_spread_of_the_images():
    summary, clusters, shares = collect(100, 12)
    limits = clusters.intervals(summary, level=0.9, replicates=2000, seed=0)
    width = 2 * 1.645 * shares.std() / math.sqrt(len(shares))
    assert limits["accuracy"].value == pytest.approx(shares.mean())
    assert limits["accuracy"].high - limits["accuracy"].low == pytest.approx(width, rel=0.1)
    pixels = intervals(summary, level=0.9, replicates=200)["accuracy"]
    assert pixels.high - pixels.low < width / 3


def test_every_metric_has_an_interval_that_contains_it():
    summary, clusters, _ = collect(30, 5)
    limits = clusters.intervals(summary, level=0.95, replicates=100, seed=1)
    assert list(limits) == list(summary.metrics())
    for name, interval in limits.items():
        assert interval.value == summary.metrics()[name]
        assert interval.low <= interval.value <= interval.high, name


def test_nine_images_are_too_few():
    summary, clusters, _ = collect(9, 6)
    for interval in clusters.intervals(summary, level=0.95, replicates=100, seed=0).values():
        assert math.isnan(interval.low)
        assert math.isnan(interval.high)


def test_more_images_than_tables_share_them():
    summary, clusters, shares = collect(MOST_IMAGES + 44, 3)
    assert clusters.counts.sum() == 9 * (MOST_IMAGES + 44) == summary.samples
    limits = clusters.intervals(summary, level=0.9, replicates=500, seed=0)["accuracy"]
    width = 2 * 1.645 * shares.std() / math.sqrt(len(shares))
    assert limits.high - limits.low == pytest.approx(width, rel=0.25)


def masks(images, seed=0):
    random = np.random.default_rng(seed)
    labels = random.integers(0, 4, (images, 6, 5))
    logits = random.normal(size=(images, 5, 6, 5)) + 2 * (np.arange(5)[:, None, None] == labels[:, None])
    logits[:, 4] = -50  # a class that occurs nowhere
    labels[0, :2] = 255
    return logits, labels


def overlaps_of(logits, labels, batch):
    overlaps = ClassOverlaps(5)
    for start in range(0, len(logits), batch):
        rows = slice(start, start + batch)
        for block in top_label_blocks(logits[rows], labels[rows], kind="logits", ignore_index=255):
            overlaps.add(block, start)
    return overlaps


def expected(logits, labels):
    counted = labels != 255
    return jaccard_score(labels[counted], logits.argmax(1)[counted], labels=range(4), average=None)


def test_iou_of_every_class_is_scikit_learns():
    logits, labels = masks(7)
    overlaps = overlaps_of(logits, labels, 3)
    assert overlaps.by_class()[:4] == pytest.approx(expected(logits, labels))
    assert math.isnan(overlaps.by_class()[4])
    few = overlaps.mean_iou(level=0.95, replicates=50, seed=0)
    assert few.value == pytest.approx(expected(logits, labels).mean())
    assert math.isnan(few.low)  # of seven images


@pytest.mark.slow
def test_the_interval_is_that_of_images_drawn_as_a_whole():
    logits, labels = masks(40, seed=1)
    interval = overlaps_of(logits, labels, 11).mean_iou(level=0.9, replicates=2000, seed=0)
    random = np.random.default_rng(5)
    drawn = []
    for _ in range(300):
        rows = random.integers(0, 40, 40)
        drawn.append(expected(logits[rows], labels[rows]).mean())
    low, high = np.quantile(drawn, (0.05, 0.95))
    assert interval.low == pytest.approx(low, abs=0.006)
    assert interval.high == pytest.approx(high, abs=0.006)
    assert high - low > 0.015  # which the tolerance does not hide


def test_images_beyond_the_table_share_rows():
    logits, labels = masks(300)
    assert overlaps_of(logits, labels, 64).by_class()[:4] == pytest.approx(expected(logits, labels))
