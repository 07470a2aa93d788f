"""Segmentation: intersection over union, and the pixels that the other metrics take.

`pixels` makes a list of pixels out of images; every metric of this package then applies to it. Pixels are pooled over
all images: the mean of per-image calibration errors is another, much larger, number.
"""

from __future__ import annotations

from typing import Any, Literal, overload

import numpy as np
import numpy.typing as npt

from calibrant._arrays import ArrayLike, as_kind_of
from calibrant._validation import LARGEST_SEED, Bools, Ints, as_host_array, check_choice, check_integer, position
from calibrant.metrics.proper import as_scored, label_array


@overload
def mean_iou(
    logits_or_predictions: ArrayLike,
    labels: ArrayLike,
    *,
    classes: int,
    ignore_index: int | None = 255,
    average: Literal["mean"] = "mean",
) -> float: ...


@overload
def mean_iou(
    logits_or_predictions: ArrayLike, labels: ArrayLike, *, classes: int, ignore_index: int | None = 255, average: None
) -> npt.NDArray[np.float64]: ...


def mean_iou(
    logits_or_predictions: ArrayLike,
    labels: ArrayLike,
    *,
    classes: int,
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
    table = _confusion(logits_or_predictions, labels, classes, ignore_index)
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
        raise ValueError("labels must have a pixel that counts, got none")
    return indices


def _confusion(predictions: ArrayLike, labels: ArrayLike, classes: int, ignore_index: int | None) -> Ints:
    """How often each label (row) was predicted as each class (column), over the pixels that count."""
    predicted, _ = as_host_array("predictions", predictions)
    table = np.zeros((classes, classes), dtype=np.int64)
    if predicted.dtype.kind == "f":
        data = as_scored(predicted, labels, ignore_index=ignore_index)
        if data.classes != classes:
            raise ValueError(f"logits must have {classes} classes as said by classes, got {data.classes}")
        for block in data.blocks():
            assert block.labels is not None
            mask = slice(None) if block.counted is None else block.counted
            table += _count(block.labels[mask], block.scores.argmax(1)[mask], classes)
        return table
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
    if counted is not None:
        y, predicted = y[counted], predicted[counted]
    return _count(y, predicted.astype(np.int64), classes)


def _count(labels: Ints, predicted: Ints, classes: int) -> Ints:
    cell = (labels * classes + predicted).reshape(-1)
    return np.bincount(cell, minlength=classes * classes).reshape(classes, classes)
