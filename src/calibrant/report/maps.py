"""Maps of one image by several methods, as pages and figures draw them: all numbers are given, none is computed.

Colours are those of classes, of confidences, and of wrong pixels by how sure the model was of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant._arrays import Doubles

Pixels = npt.NDArray[np.uint8]

#: From no confidence to all of it: the deeper the surer [MbLS, Fig. 3].
CONFIDENCE = ("#f7fbff", "#9ecae1", "#2171b5", "#08306b")
#: Wrong pixels from the surest of all pixels to the least sure.
RANK = ("#a50026", "#f46d43", "#fee08b", "#ffffd9")
#: Pixels without a label.
VOID = (128, 128, 128)


@dataclass(frozen=True, eq=False)
class MethodMaps:
    """What one method says of every pixel of an image."""

    name: str
    run: str  # the folder of its run
    predicted: npt.NDArray[np.int64]  # [H, W] classes
    confidence: Doubles  # [H, W]
    wrong: npt.NDArray[np.bool_]  # [H, W], whether a pixel counts and its class is wrong
    rank: Doubles  # [H, W], the share of the pixels that count of which the model is surer: 0 is the surest
    normalised_rank: Doubles  # the same by normalised logits
    norm: str  # which logit normalisation that is, in words
    reliability: Mapping[str, Any]  # series of a reliability diagram over the pixels that count
    # By name: accuracy, mean_iou, ece, aurc, normalised_aurc, and the mean ranks of wrong pixels, wrong_rank and
    # normalised_wrong_rank.
    numbers: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class ImageMaps:
    """An image with its labels, and what methods say of it."""

    image: str  # its id
    dataset: str  # where it is from
    classes: tuple[str, ...]
    picture: Pixels  # [H, W, 3], as the networks see it
    truth: npt.NDArray[np.int64]  # [H, W] labels; whatever is not a class is void
    pixels: int  # how many count
    methods: tuple[MethodMaps, ...]  # side by side

    @property
    def shown_classes(self) -> list[int]:
        """Classes that are labelled or predicted somewhere."""
        labels = np.unique(np.concatenate([self.truth.ravel(), *(m.predicted.ravel() for m in self.methods)]))
        return [int(k) for k in labels if 0 <= k < len(self.classes)]

    def truth_map(self) -> Pixels:
        """The labels in colours."""
        return paint_labels(self.truth, len(self.classes))

    def maps_of(self, method: MethodMaps) -> dict[str, Pixels]:
        """Prediction, confidence, and wrong pixels by both ranks, in colours."""
        return {
            "prediction": paint_labels(method.predicted, len(self.classes)),
            "confidence": paint_ramp(method.confidence, CONFIDENCE),
            "rank": paint_wrong(self.picture, method.rank, method.wrong),
            "normalised_rank": paint_wrong(self.picture, method.normalised_rank, method.wrong),
        }


def label_colours(number: int) -> Doubles:
    """Colours [number, 3] in 0..1 that differ: twenty, then again."""
    from matplotlib import colormaps

    return np.array([colormaps["tab20"](k % 20)[:3] for k in range(number)])


def paint_labels(labels: npt.NDArray[np.integer], classes: int) -> Pixels:
    """Labels [H, W] in the colours of their classes; whatever is not a class is grey."""
    colours = np.rint(255 * label_colours(classes)).astype(np.uint8)
    is_class = (labels >= 0) & (labels < classes)
    painted = colours[np.where(is_class, labels, 0)]
    painted[~is_class] = VOID
    return painted


def paint_ramp(values: Doubles, ramp: tuple[str, ...]) -> Pixels:
    """Values [H, W] from 0 to 1 in colours between those of a ramp.

    Example:
        >>> paint_ramp(np.array([[0.0, 0.5, 1.0]]), ("#000000", "#ffffff")).tolist()
        [[[0, 0, 0], [128, 128, 128], [255, 255, 255]]]
    """
    anchors = np.array([[int(colour[k : k + 2], 16) for k in (1, 3, 5)] for colour in ramp], np.float64)
    at = np.linspace(0, 1, len(ramp))
    channels = [np.interp(values, at, anchors[:, k]) for k in range(3)]
    return np.rint(np.stack(channels, axis=-1)).astype(np.uint8)


def paint_wrong(picture: Pixels, rank: Doubles, is_wrong: npt.NDArray[np.bool_]) -> Pixels:
    """A picture [H, W, 3] in pale grey, and its wrong pixels by the rank of their uncertainty."""
    grey = picture.mean(axis=2, keepdims=True)
    pale = np.rint(np.repeat(150 + 0.35 * grey, 3, axis=2)).astype(np.uint8)
    return np.where(is_wrong[..., None], paint_ramp(rank, RANK), pale)
