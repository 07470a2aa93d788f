"""Data for the tests of the metrics: with and without ties, on edges of bins, one sample, all right, all wrong."""

import numpy as np
import pytest


def close(value, rel=1e-13, abs=2e-15):
    return pytest.approx(value, rel=rel, abs=abs, nan_ok=True)


def judged(seed, size, *, levels=None, rate=0.7):
    """Confidences (rounded to so many levels, which makes ties) and whether each is right."""
    rng = np.random.default_rng(seed)
    confidence = rng.uniform(0.1, 1, size) if levels is None else rng.integers(1, levels + 1, size) / levels
    return confidence, rng.random(size) < rate


CASES = {
    "random": judged(0, 61),
    "few": judged(1, 7),
    "ties": judged(2, 83, levels=10),
    "many ties": judged(3, 59, levels=3),
    "one tie": (np.full(11, 0.7), np.arange(11) % 3 > 0),
    "edges": (np.arange(16) / 15, np.arange(16) % 2 == 0),
    "ends": (np.array([0.0, 1.0, 1.0, 0.0, 0.5]), np.array([1, 0, 1, 0, 1])),
    "one right": ([0.3], [1]),
    "one wrong": ([0.3], [0]),
    "all right": (judged(4, 23)[0], np.ones(23)),
    "all wrong": (judged(5, 23, levels=7)[0], np.zeros(23)),
    "image": (judged(6, 30, levels=20)[0].reshape(2, 3, 5), judged(6, 30)[1].reshape(2, 3, 5)),
}


def scores(seed, shape, dtype=np.float64, spread=3.0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, shape[1], (shape[0], *shape[2:]))
    return (spread * rng.normal(size=shape)).astype(dtype), labels


LOGITS = {
    "plain": scores(0, (37, 5)),
    "single": scores(1, (23, 4), np.float32),
    "half": scores(2, (19, 3), np.float16),
    "large": scores(3, (17, 6), spread=1e4),
    "one row": scores(4, (1, 2)),
    "images": scores(5, (2, 3, 4, 5)),
    "sequence": scores(6, (3, 4, 7), np.float32),
    "ties": (np.array([[1, 1, 0], [0, 2, 2], [3, 3, 3]]), np.array([1, 2, 0])),
    "class absent": (scores(7, (13, 4))[0], np.arange(13) % 3),
    "all right": (10.0 * np.eye(4)[np.arange(11) % 4], np.arange(11) % 4),
    "all wrong": (10.0 * np.eye(4)[np.arange(11) % 4], (np.arange(11) + 1) % 4),
}


def images(seed, size=(3, 4, 5, 6)):
    z, y = scores(seed, size)
    y[np.random.default_rng(seed).random(y.shape) < 0.2] = 255
    return z, y
