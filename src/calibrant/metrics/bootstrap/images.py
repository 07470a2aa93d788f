r"""Intervals for samples that come in images: the pixels of an image are alike, so whole images are drawn.

Each image has a table of counts and of sums of confidence over the 300 base bins; a replicate draws images with
replacement and adds their tables up. Beyond `MOST` images several share a table.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from calibrant._arrays import Doubles
from calibrant._validation import Ints
from calibrant.metrics.bootstrap.intervals import FEWEST, Interval, bootstrap_interval
from calibrant.metrics.bootstrap.replicates import BATCH, bin_values, point_values
from calibrant.metrics.sketch.grid import BASE
from calibrant.metrics.sketch.samples import TopLabel
from calibrant.metrics.sketch.summary import Summary

MOST = 256


class Clusters:
    """Counts, sums of confidence, of NLL and of Brier score for each image, filled block by block."""

    def __init__(self) -> None:
        self.counts = np.zeros((MOST, 2 * BASE), np.int64)
        self.sums = np.zeros((MOST, 2 * BASE))
        self.proper = np.zeros((MOST, 2))

    def add(self, top: TopLabel, bins: npt.NDArray[np.int32], first: int) -> None:
        """Add samples, with their base bins, whose rows are images: those of the batch count from ``first`` on."""
        image = (top.rows() + first) % MOST
        code = image * (2 * BASE) + 2 * bins + ~top.correct
        size = MOST * 2 * BASE
        self.counts += np.bincount(code, minlength=size).reshape(MOST, -1)
        self.sums += np.bincount(code, top.confidence, minlength=size).reshape(MOST, -1)
        for column, values in enumerate((top.nll, top.brier)):
            self.proper[:, column] += np.bincount(image, values, minlength=MOST)

    def intervals(self, summary: Summary, *, level: float, replicates: int, seed: int) -> dict[str, Interval]:
        """Intervals of every metric of the summary; limits are NaN with fewer than ten images."""
        images = np.flatnonzero(self.counts.any(1))
        values = {name: float(value) for name, value in summary.metrics().items()}
        if len(images) < FEWEST:
            return {name: Interval(value, math.nan, math.nan) for name, value in values.items()}
        rng = np.random.default_rng(seed)
        parts: dict[str, list[Doubles]] = {}
        centre = self._metrics(np.ones((1, len(images))), images)
        for start in range(0, replicates, BATCH):
            size = min(BATCH, replicates - start)
            weights = rng.multinomial(len(images), np.full(len(images), 1 / len(images)), size=size).astype(np.float64)
            for name, part in self._metrics(weights, images).items():
                with np.errstate(invalid="ignore"):  # of two infinite means there is no difference
                    parts.setdefault(name, []).append(part - centre[name])
        return {
            name: bootstrap_interval(name, value, np.concatenate(parts[name]), level) for name, value in values.items()
        }

    def _metrics(self, weights: Doubles, images: Ints) -> dict[str, Doubles]:
        counts, sums = weights @ self.counts[images], weights @ self.sums[images]
        right, wrong = counts[:, ::2], counts[:, 1::2]
        values = bin_values(right, wrong, sums[:, ::2], sums[:, 1::2], np.arange(BASE))
        values |= point_values((right + wrong)[:, ::-1], wrong[:, ::-1], (right + wrong).sum(1))
        with np.errstate(invalid="ignore"):  # a label of probability 0 has an infinite NLL, and its mean no limits
            proper = weights @ self.proper[images] / counts.sum(1, keepdims=True)
        return values | {"nll": proper[:, 0], "brier": proper[:, 1]}
