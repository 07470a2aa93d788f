r"""Intervals for samples that come in clusters: the pixels of an image are alike, so images are what is drawn.

A table for each cluster, of counts and sums of confidence over the 300 base bins; a replicate draws clusters with
replacement and adds their tables up. Beyond `MOST` images several share a table.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from calibrant.metrics.bootstrap.intervals import (
    ABSOLUTE,
    BATCH,
    FEWEST,
    Interval,
    bin_values,
    interval,
    interval_of_error,
)
from calibrant.metrics.catalogue import base_name, describe
from calibrant.metrics.sketch.grid import BASE
from calibrant.metrics.sketch.samples import TopLabel
from calibrant.metrics.sketch.summary import Summary

MOST = 256


class Clusters:
    """Counts, sums of confidence, of NLL and of Brier score for each cluster, filled block by block."""

    def __init__(self) -> None:
        self.counts = np.zeros((MOST, 2 * BASE), np.int64)
        self.sums = np.zeros((MOST, 2 * BASE))
        self.proper = np.zeros((MOST, 2))

    def add(self, top: TopLabel, bins: npt.NDArray[np.int32], first: int) -> None:
        """Add samples, with their base bins, whose rows are clusters: those of the batch count from ``first`` on."""
        cluster = (top.rows() + first) % MOST
        code = cluster * (2 * BASE) + 2 * bins + ~top.correct
        size = MOST * 2 * BASE
        self.counts += np.bincount(code, minlength=size).reshape(MOST, -1)
        self.sums += np.bincount(code, top.confidence, minlength=size).reshape(MOST, -1)
        for column, values in enumerate((top.nll, top.brier)):
            self.proper[:, column] += np.bincount(cluster, values, minlength=MOST)

    def intervals(self, summary: Summary, *, level: float, replicates: int, seed: int) -> dict[str, Interval]:
        """Intervals of every metric of the summary; limits are NaN with fewer than ten clusters."""
        held = np.flatnonzero(self.counts.any(1))
        values = {name: float(value) for name, value in summary.metrics().items()}
        if len(held) < FEWEST:
            return {name: Interval(value, math.nan, math.nan) for name, value in values.items()}
        rng = np.random.default_rng(seed)
        drawn: dict[str, list[npt.NDArray[np.float64]]] = {}
        centre = self._metrics(np.ones((1, len(held))), held)
        for start in range(0, replicates, BATCH):
            size = min(BATCH, replicates - start)
            weights = rng.multinomial(len(held), np.full(len(held), 1 / len(held)), size=size).astype(np.float64)
            for name, part in self._metrics(weights, held).items():
                with np.errstate(invalid="ignore"):  # of two infinite means there is no difference
                    drawn.setdefault(name, []).append(part - centre[name])
        found = {}
        for name, value in values.items():
            differences = np.concatenate(drawn[name])
            if base_name(name) in ABSOLUTE:
                found[name] = interval_of_error(value, differences, level)
            else:
                found[name] = interval(value, differences, level, bounds=describe(name).bounds)
        return found

    def _metrics(
        self, weights: npt.NDArray[np.float64], held: npt.NDArray[np.int64]
    ) -> dict[str, npt.NDArray[np.float64]]:
        counts, sums = weights @ self.counts[held], weights @ self.sums[held]
        values = bin_values(counts[:, ::2], counts[:, 1::2], sums[:, ::2], sums[:, 1::2], np.arange(BASE))
        with np.errstate(invalid="ignore"):  # a label of probability 0 has an infinite NLL, and its mean no limits
            proper = weights @ self.proper[held] / counts.sum(1, keepdims=True)
        return values | {"nll": proper[:, 0], "brier": proper[:, 1]}
