"""One image of a data set with masks, as a run's network sees it and what it says of every pixel."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibrant._validation import did_you_mean, listing
from calibrant.data import Dataset
from calibrant.predictions import Predictions
from calibrant.training.datasets import evaluation_pipeline
from calibrant.training.finished_run import open_run
from calibrant.training.forward import memory_errors
from calibrant.training.prediction import predict_dataset


class ImagePrediction(NamedTuple):
    """What a network says of an image.

    Attributes:
        dataset: With the image alone.
        picture: [H, W, 3], after the recipe's steps.
        mask: [H, W] labels.
        predictions: Logits [1, K, H, W], and labels in which what is not measured is ignored.
    """

    dataset: Dataset
    picture: NDArray[np.uint8]
    mask: NDArray[np.int64]
    predictions: Predictions


def predict_image(
    folder: str | Path, image: str, *, data: str | None = None, split: str | None = None, trust_code: bool = False
) -> ImagePrediction:
    """Predict one image of a set with the network of a run, interpolated to the size of its mask.

    Args:
        folder: Of the run.
        image: Its id in the data set, or the end of one that no other has.
        data: Where the data lies, if not where the recipe says.
        split: Which; the recipe's test split if left out.
        trust_code: As for `calibrant.training.predict_run`.
    """
    run = open_run(folder, data=data, split=split, trust_code=trust_code)
    if run.dataset.masks is None:
        raise ValueError(f"{run.dataset.title} has one class for each image: maps are for data sets with masks")
    whole = run.recipe.data.model_copy(update={"interpolate": True, "pixels": None})
    recipe = run.recipe.model_copy(update={"data": whole})
    alone = run.dataset.take(np.array([index_of(run.dataset.ids, image, run.dataset.title)]))
    batch = evaluation_pipeline(recipe, alone).batch([0])
    assert batch.masks is not None
    with memory_errors():
        predictions = predict_dataset(recipe, run.model.to(run.device), alone, run.device)
    picture = batch.inputs[0].permute(1, 2, 0).expand(-1, -1, 3).contiguous().numpy()
    if predictions.logits.shape[2:] != batch.masks.shape[1:]:
        raise ValueError(
            f"{folder}: the network gives maps of {list(predictions.logits.shape[2:])} for masks of "
            f"{list(batch.masks.shape[1:])}; maps are drawn of networks that interpolate to the size of their input"
        )
    return ImagePrediction(alone, picture, batch.masks[0].numpy().astype(np.int64), predictions)


def index_of(ids: Sequence[str], image: str, title: str) -> int:
    """The position of an id, given whole, without its suffix, or by an end that no other id has.

    Example:
        >>> index_of(("test/a.png", "test/b.png"), "b", "camvid/test")
        1
    """
    if image in ids:
        return list(ids).index(image)
    ends = [k for k, name in enumerate(ids) if name.endswith(f"/{image}") or Path(name).stem == image]
    ends = ends or [k for k, name in enumerate(ids) if name.endswith(image)]
    if len(ends) == 1:
        return ends[0]
    if ends:
        raise ValueError(f"{title}: {len(ends)} images end with {image!r}: {listing([ids[k] for k in ends], 3)}")
    hint = did_you_mean(image, [Path(name).stem for name in ids]) or f"; there are {listing(list(ids), 3)}"
    raise ValueError(f"{title} has no image {image!r}{hint}")
