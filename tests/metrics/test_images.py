"""Intervals of images: as wide as the spread between images says, however many pixels each has."""

import math

import numpy as np
import pytest

from calibrant.metrics import Clusters, ConfidenceSketch, base_bins, intervals, top_label_blocks
from calibrant.metrics.bootstrap.images import MOST


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
    summary, clusters, shares = collect(MOST + 44, 3)
    assert clusters.counts.sum() == 9 * (MOST + 44) == summary.samples
    limits = clusters.intervals(summary, level=0.9, replicates=500, seed=0)["accuracy"]
    width = 2 * 1.645 * shares.std() / math.sqrt(len(shares))
    assert limits.high - limits.low == pytest.approx(width, rel=0.25)
