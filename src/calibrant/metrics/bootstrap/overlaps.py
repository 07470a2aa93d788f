r"""Mean intersection over union with an interval: counts of each class in each image, and images drawn as a whole.

For class k, :math:`\mathrm{IoU}_k = R_k / (L_k + P_k - R_k)` with R pixels that are labelled and predicted so, L that
are labelled, P that are predicted, over all images; the mean is over classes that occur [Long2015]. Beyond `MOST`
images several share a row of counts.
"""

from __future__ import annotations

import math

import numpy as np

from calibrant._arrays import Doubles
from calibrant.metrics.bootstrap.images import MOST
from calibrant.metrics.bootstrap.intervals import FEWEST, Interval, bootstrap_interval
from calibrant.metrics.sketch.samples import TopLabel


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
        draw = np.random.default_rng(seed)
        weights[:, images] = draw.multinomial(len(images), np.full(len(images), 1 / len(images)), size=replicates)
        drawn = np.nanmean(self._iou(weights), axis=1)  # of the classes that occur in the images drawn
        return bootstrap_interval("mean_iou", value, drawn - value, level)

    def _iou(self, weights: Doubles) -> Doubles:
        right, either = weights @ self.right, weights @ (self.labelled + self.predicted - self.right)
        return np.divide(right, either, out=np.full(right.shape, np.nan), where=either > 0)
