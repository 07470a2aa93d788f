r"""Intervals for samples that come in images: the pixels of an image are alike, so whole images are drawn.

Each image has a table of counts and of sums of confidence over the 300 base bins; a replicate draws images with
replacement and adds their tables up. Beyond `MOST` images several share a table.

The mean intersection over union needs counts of each class in each image. For class k,
:math:`\mathrm{IoU}_k = R_k / (L_k + P_k - R_k)` with R pixels that are labelled and predicted so, L that are labelled,
P that are predicted, over all images; the mean is over classes that occur [Long2015].
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


def _draw_images(rng: np.random.Generator, images: int, replicates: int) -> Ints:
    """How often each image is drawn in each replicate, ``[replicates, images]``."""
    return rng.multinomial(images, np.full(images, 1 / images), size=replicates)


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
            weights = _draw_images(rng, len(images), size).astype(np.float64)
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


class ClassOverlaps:
    """For each image and class how many pixels are labelled so, predicted so, and both; filled block by block.

    Example:
        >>> from calibrant.metrics import top_label_blocks
        >>> overlaps = ClassOverlaps(2)
        >>> logits = np.array([[2.0, 0.0], [2.0, 0.0], [0.0, 2.0], [0.0, 2.0]])
        >>> for block in top_label_blocks(logits, np.array([0, 1, 1, 1]), kind="logits"):
        ...     overlaps.add(block, 0)
        >>> overlaps.by_class().tolist()  # 1 of 2, 2 of 3
        [0.5, 0.6666666666666666]
    """

    def __init__(self, classes: int) -> None:
        self.right, self.labelled, self.predicted = (np.zeros((MOST, classes), np.int64) for _ in range(3))

    def add(self, top: TopLabel, first: int) -> None:
        """Add samples whose rows are images: those of the batch count from ``first`` on."""
        assert top.predicted is not None
        shape = self.right.shape
        row = (top.rows() + first) % MOST * shape[1]
        self.labelled += np.bincount(row + top.labels, minlength=self.right.size).reshape(shape)
        self.predicted += np.bincount(row + top.predicted, minlength=self.right.size).reshape(shape)
        self.right += np.bincount((row + top.labels)[top.correct], minlength=self.right.size).reshape(shape)

    def by_class(self) -> Doubles:
        """The IoU of every class over all images, ``[K]``; NaN for one that occurs nowhere."""
        return self._iou(np.ones((1, MOST)))[0]

    def mean_iou(self, *, level: float, replicates: int, seed: int) -> Interval:
        """The mean over the classes that occur; limits are NaN with fewer than ten images."""
        value = float(np.nanmean(self.by_class()))
        images = np.flatnonzero(self.labelled.any(1))
        if len(images) < FEWEST:
            return Interval(value, math.nan, math.nan)
        weights = np.zeros((replicates, MOST))
        weights[:, images] = _draw_images(np.random.default_rng(seed), len(images), replicates)
        means = np.nanmean(self._iou(weights), axis=1)  # of the classes that occur in the images drawn
        return bootstrap_interval("mean_iou", value, means - value, level)

    def _iou(self, weights: Doubles) -> Doubles:
        right, either = weights @ self.right, weights @ (self.labelled + self.predicted - self.right)
        return np.divide(right, either, out=np.full(right.shape, np.nan), where=either > 0)
