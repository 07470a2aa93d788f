"""Segmentation: intersection over union, and the pixels that the other metrics take.

`pixels` makes a list of pixels out of images; every metric of this package then applies to it. Pixels are pooled over
all images: the mean of per-image calibration errors is another, much larger, number.

The pixels of an image are alike, so for intervals whole images are drawn. Each has a table of counts and of sums of
confidence over the 300 base bins (`Clusters`); a replicate draws images with replacement and adds their tables up.
Beyond `MOST_IMAGES` several share a table. The mean intersection over union needs counts of each class in each image
(`ClassOverlaps`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Literal, overload

import numpy as np
import numpy.typing as npt

from calibrant.base.arrays import ArrayLike, Doubles, as_kind_of
from calibrant.base.checks import LARGEST_SEED, Bools, Ints, as_host_array, check_choice, check_integer, position
from calibrant.metrics.bootstrap import BATCH, FEWEST, Interval, bootstrap_interval, values_of
from calibrant.metrics.grid import BASE
from calibrant.metrics.kernel import TopLabel
from calibrant.metrics.proper import as_scored, label_array, top_label
from calibrant.metrics.summary import Summary
from calibrant.metrics.tables import Groups, check_weight

MOST_IMAGES = 256  # with a table of their own


@overload
def mean_iou(
    logits_or_predictions: ArrayLike,
    labels: ArrayLike,
    *,
    classes: int,
    weight: ArrayLike | None = None,
    ignore_index: int | None = 255,
    average: Literal["mean"] = "mean",
) -> float: ...


@overload
def mean_iou(
    logits_or_predictions: ArrayLike,
    labels: ArrayLike,
    *,
    classes: int,
    weight: ArrayLike | None = None,
    ignore_index: int | None = 255,
    average: None,
) -> npt.NDArray[np.float64]: ...


def mean_iou(
    logits_or_predictions: ArrayLike,
    labels: ArrayLike,
    *,
    classes: int,
    weight: ArrayLike | None = None,
    ignore_index: int | None = 255,
    average: Literal["mean"] | None = "mean",
) -> float | npt.NDArray[np.float64]:
    r"""Mean intersection over union, counted over all images together.

    For class k, :math:`\mathrm{IoU}_k = \frac{|\hat y = k \wedge y = k|}{|\hat y = k \vee y = k|}` over the pixels that
    count; the mean is over classes that occur in the labels or in the predictions.

    Args:
        logits_or_predictions: floating point ``[N, C, H, W]``, or whole numbers ``[N, H, W]``.
        labels: ``[N, H, W]``, from 0 to classes - 1.
        classes: the number of classes.
        weight: ``[N]`` importance of each image, at least 0; None if all count alike.
        ignore_index: a label whose pixels are left out.
        average: ``"mean"``, or None for each class's own IoU.

    Returns:
        The mean, or an array ``[classes]`` with NaN for absent classes; higher is better.

    Example:
        >>> from calibrant.metrics import mean_iou
        >>> mean_iou([[[0, 0], [1, 1]]], [[[0, 1], [1, 255]]], classes=3)  # 1/2 and 1/2, the third class is absent
        0.5

    Reference:
        [Long2015] Sec. 5 ("mean IU").
    """
    if average is not None:
        check_choice("average", average, ("mean",))
    classes = check_integer("classes", classes, 2)
    table = _confusion(logits_or_predictions, labels, classes, ignore_index, weight)
    intersection = np.diag(table)
    union = table.sum(0) + table.sum(1) - intersection
    iou = np.divide(intersection, union, out=np.full(classes, np.nan), where=union > 0)
    return iou if average is None else float(np.nanmean(iou))


def pixels(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    ignore_index: int | None = 255,
    exclude_background: int | None = None,
    per_image: int | None = None,
    seed: int = 0,
    first_image: int = 0,
) -> tuple[Any, Any]:
    """The pixels that count, as a list of samples.

    Args:
        logits: ``[N, C, H, W]``.
        labels: ``[N, H, W]``.
        ignore_index: a label whose pixels are left out.
        exclude_background: a class whose label pixels are left out as well, as MbLS does.
        per_image: draw at most so many of each image's pixels that count, without replacement (SC takes 5000).
        seed: of the draw, which depends on the seed, the index of the image and its labels alone, so that every model
            is measured on the same pixels.
        first_image: the index of the first image, when a data set is taken in several batches.

    Returns:
        Logits ``[M, C]`` and labels ``[M]`` (int64), images one after the other: tensors if the logits are a tensor,
        else NumPy arrays.

    Example:
        >>> import numpy as np
        >>> from calibrant.metrics import ece, pixels, top_label
        >>> logits, labels = np.zeros((2, 3, 4, 5)), np.zeros((2, 4, 5), dtype=int)
        >>> labels[0, 0] = 255
        >>> z, y = pixels(logits, labels)
        >>> z.shape, y.shape
        ((35, 3), (35,))
        >>> confidence, _, correct = top_label(z, y)
        >>> round(ece(confidence, correct), 4)
        0.6667

    Reference:
        SC, Sec. 2.4 and App. B.2 (5000 labelled pixels of each image, the same for every model).
    """
    data = as_scored(logits, None)
    y, counted = label_array(labels, data.shape, data.classes, ignore_index)
    if exclude_background is not None:
        foreground = y != check_integer("exclude_background", exclude_background, 0)
        counted = foreground if counted is None else counted & foreground
    indices = _draw_pixels(
        counted,
        data.shape,
        per_image,
        check_integer("seed", seed, 0, LARGEST_SEED),
        check_integer("first_image", first_image, 0),
    )
    values = [image.reshape(len(image), -1)[:, spots].T for image, spots in zip(data.scores, indices, strict=True)]
    classes = [image.reshape(-1)[spots] for image, spots in zip(y, indices, strict=True)]
    return as_kind_of(logits, np.concatenate(values)), as_kind_of(logits, np.concatenate(classes))


def _draw_pixels(
    counted: Bools | None, shape: tuple[int, ...], per_image: int | None, seed: int, first_image: int
) -> list[Ints]:
    """For each image the flat indices of the pixels to take, rising."""
    if per_image is not None:
        per_image = check_integer("per_image", per_image, 1)
    indices = []
    for image in range(shape[0]):
        spots = np.arange(int(np.prod(shape[1:]))) if counted is None else np.flatnonzero(counted[image])
        if per_image is not None and len(spots) > per_image:
            draw = np.random.default_rng([seed, first_image + image])
            spots = np.sort(draw.choice(spots, per_image, replace=False))
        indices.append(spots)
    if not any(map(len, indices)):
        raise ValueError("labels must not all be ignored, got no pixel that counts")
    return indices


def _confusion(
    predictions: ArrayLike, labels: ArrayLike, classes: int, ignore_index: int | None, weight: ArrayLike | None
) -> npt.NDArray[Any]:
    """How often each label (row) was predicted as each class (column), over the pixels that count."""
    predicted, _ = as_host_array("predictions", predictions)
    if predicted.dtype.kind == "f":
        data = as_scored(predicted, labels, ignore_index=ignore_index)
        if data.classes != classes:
            raise ValueError(f"logits must have {classes} classes as said by classes, got {data.classes}")
        predicted = top_label(predicted)[1]
    if predicted.dtype.kind not in "iu" or not predicted.size:
        requirement = "floating-point logits [N, C, ...] or whole numbers [N, ...]"
        raise ValueError(f"predictions must be {requirement}, got {predicted.dtype} {list(predicted.shape)}")
    y, counted = label_array(labels, predicted.shape, classes, ignore_index)
    outside = (predicted < 0) | (predicted >= classes)
    if counted is not None:
        outside &= counted
    if outside.any():
        index = int(np.argmax(outside))
        value = f"{predicted.reshape(-1)[index]} {position(index, predicted.shape)}"
        raise ValueError(f"predictions must be in 0..{classes - 1}, got {value}")
    weights = check_weight(weight, len(y))
    if weights is not None:
        weights = np.broadcast_to(weights.reshape((-1,) + (1,) * (y.ndim - 1)), y.shape)
    cell = y * classes + predicted.astype(np.int64)
    which = slice(None) if counted is None else counted
    table = np.bincount(cell[which].ravel(), None if weights is None else weights[which].ravel(), minlength=classes**2)
    return table.reshape(classes, classes)


def _draw_images(rng: np.random.Generator, images: int, replicates: int) -> Ints:
    """How often each image is drawn in each replicate, ``[replicates, images]``."""
    return rng.multinomial(images, np.full(images, 1 / images), size=replicates)


class Clusters:
    """Counts, sums of confidence, of NLL and of Brier score for each image, filled block by block."""

    def __init__(self) -> None:
        self.counts, self.sums = np.zeros((2, MOST_IMAGES, 2 * BASE))
        self.proper = np.zeros((MOST_IMAGES, 2))

    def add(self, top: TopLabel, bins: Ints, first: int) -> None:
        """Add samples, with their base bins, whose rows are images: those of the batch count from ``first`` on."""
        image = (top.rows() + first) % MOST_IMAGES
        code = image * (2 * BASE) + 2 * bins + ~top.correct
        size, weight = MOST_IMAGES * 2 * BASE, 1.0 if top.weight is None else top.weight
        self.counts += np.bincount(code, top.weight, minlength=size).reshape(MOST_IMAGES, -1)
        self.sums += np.bincount(code, weight * top.confidence, minlength=size).reshape(MOST_IMAGES, -1)
        for column, values in enumerate((top.nll, top.brier)):
            self.proper[:, column] += np.bincount(image, weight * values, minlength=MOST_IMAGES)

    def intervals(self, summary: Summary, *, level: float, replicates: int, seed: int) -> dict[str, Interval]:
        """Intervals of every metric of the summary; limits are NaN with fewer than ten images."""
        images = np.flatnonzero(self.counts.any(1))
        values = {name: float(value) for name, value in summary.metrics().items()}
        if len(images) < FEWEST:
            return {name: Interval(value, math.nan, math.nan) for name, value in values.items()}
        rng = np.random.default_rng(seed)
        parts: dict[str, list[Doubles]] = {}
        scale = summary.samples / self.counts.sum()  # weights of mean 1, as those of the summary are
        centre = self._metrics(np.full((1, len(images)), scale), images, values)
        for start in range(0, replicates, BATCH):
            size = min(BATCH, replicates - start)
            weights = _draw_images(rng, len(images), size) * scale
            for name, part in self._metrics(weights, images, values).items():
                with np.errstate(invalid="ignore"):  # of two infinite means there is no difference
                    parts.setdefault(name, []).append(part - centre[name])
        return {
            name: bootstrap_interval(name, value, np.concatenate(parts[name]), level) for name, value in values.items()
        }

    def _metrics(self, weights: Doubles, images: Ints, names: Iterable[str]) -> dict[str, Doubles]:
        """Metrics of replicates, by how often each image is drawn; the base bins are the groups of the confidence."""
        numbers, tables = np.arange(BASE)[::-1], (self.counts, self.sums)
        counts, sums = ((weights @ table[images]).reshape(-1, BASE, 2)[:, numbers] for table in tables)
        sides = counts.sum(2), counts[:, :, 1], sums.sum(2), sums[:, :, 1]
        groups = Groups((numbers + 0.5) / BASE, *sides, base=numbers)
        with np.errstate(invalid="ignore"):  # a label of probability 0 has an infinite NLL, and its mean no limits
            proper = weights @ self.proper[images] / groups.size[:, None]
        means = {"nll": proper[:, 0], "brier": proper[:, 1]}
        return values_of(groups, [name for name in names if name not in means]) | means


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
        self.right, self.labelled, self.predicted = np.zeros((3, MOST_IMAGES, classes))

    def add(self, top: TopLabel, first: int) -> None:
        """Add samples whose rows are images: those of the batch count from ``first`` on."""
        assert top.predicted is not None
        shape = self.right.shape
        row = (top.rows() + first) % MOST_IMAGES * shape[1]
        weight, size = top.weight, self.right.size
        self.labelled += np.bincount(row + top.labels, weight, minlength=size).reshape(shape)
        self.predicted += np.bincount(row + top.predicted, weight, minlength=size).reshape(shape)
        right_weight = None if weight is None else weight[top.correct]
        self.right += np.bincount((row + top.labels)[top.correct], right_weight, minlength=size).reshape(shape)

    def by_class(self) -> Doubles:
        """The IoU of every class over all images, ``[K]``; NaN for one that occurs nowhere."""
        return self._iou(np.ones((1, MOST_IMAGES)))[0]

    def mean_iou(self, *, level: float, replicates: int, seed: int) -> Interval:
        """The mean over the classes that occur; limits are NaN with fewer than ten images."""
        value = float(np.nanmean(self.by_class()))
        images = np.flatnonzero(self.labelled.any(1))
        if len(images) < FEWEST:
            return Interval(value, math.nan, math.nan)
        weights = np.zeros((replicates, MOST_IMAGES))
        weights[:, images] = _draw_images(np.random.default_rng(seed), len(images), replicates)
        means = np.nanmean(self._iou(weights), axis=1)  # of the classes that occur in the images drawn
        return bootstrap_interval("mean_iou", value, means - value, level)

    def _iou(self, weights: Doubles) -> Doubles:
        intersection, union = weights @ self.right, weights @ (self.labelled + self.predicted - self.right)
        return np.divide(intersection, union, out=np.full(union.shape, np.nan), where=union > 0)
