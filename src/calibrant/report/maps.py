"""Maps of one image by several methods, as pages and figures draw them: all numbers are given, none is computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant.report.map_colours import CONFIDENCE, Pixels, paint_labels, paint_ramp, paint_wrong

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class MethodMaps:
    """What one method says of every pixel of an image.

    Attributes:
        name: Of the method.
        run: The folder of its run.
        predicted: [H, W] classes.
        confidence: [H, W].
        wrong: [H, W], whether a pixel counts and its class is wrong.
        rank: [H, W], the share of the pixels that count of which the model is surer: 0 is the surest.
        normalised_rank: The same by normalised logits.
        norm: Which logit normalisation that is, in words.
        reliability: Series of a reliability diagram over the pixels that count.
        numbers: Of the image, by name: accuracy, mean_iou, ece, aurc, normalised_aurc, and the mean ranks of wrong
            pixels, wrong_rank and normalised_wrong_rank.
    """

    name: str
    run: str
    predicted: npt.NDArray[np.int64]
    confidence: Doubles
    wrong: npt.NDArray[np.bool_]
    rank: Doubles
    normalised_rank: Doubles
    norm: str
    reliability: Mapping[str, Any]
    numbers: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class ImageMaps:
    """An image with its labels, and what methods say of it.

    Attributes:
        image: Its id.
        dataset: Where it is from.
        classes: Names.
        picture: [H, W, 3], as the networks see it.
        truth: [H, W] labels; what is no class is void.
        pixels: How many count.
        methods: Side by side.
    """

    image: str
    dataset: str
    classes: tuple[str, ...]
    picture: Pixels
    truth: npt.NDArray[np.int64]
    pixels: int
    methods: tuple[MethodMaps, ...]

    @property
    def shown_classes(self) -> list[int]:
        """Classes that are labelled or predicted somewhere."""
        used = np.unique(np.concatenate([self.truth.ravel(), *(m.predicted.ravel() for m in self.methods)]))
        return [int(k) for k in used if 0 <= k < len(self.classes)]

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
