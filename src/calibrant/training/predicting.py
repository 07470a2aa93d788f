"""A model's predictions on a data set, as the `Predictions` that everything else takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from calibrant.data import Batches, Dataset, Pipeline, normalised
from calibrant.data.views import Step
from calibrant.predictions import Predictions


def predict(
    model: nn.Module,
    dataset: Dataset,
    steps: Sequence[Step] = (),
    *,
    mean: Sequence[float] = (0.5, 0.5, 0.5),
    std: Sequence[float] = (0.25, 0.25, 0.25),
    padding: int = 0,
    batch_size: int = 256,
    workers: int = 0,
    device: torch.device | str = "cpu",
    watch: Callable[[Iterable[Any], int], Iterable[Any]] | None = None,
) -> Predictions:
    """Run a model over a data set without training it.

    Args:
        model: Takes images [N, 3, H, W] as floats, or the data set's rows; gives logits.
        dataset: Samples without a class are left out, unless it has masks.
        steps: As for `calibrant.data.Pipeline`: usually a resize and a centre crop.
        mean: Of the channels, for `calibrant.data.normalised`.
        std: Of the channels.
        padding: The colour of padding.
        batch_size: Samples at a time.
        workers: Processes that read.
        device: Where the model is.
        watch: Shows progress over the batches.

    Returns:
        Logits, labels, ids, class names; groups where the data set has them, objectness where it is known for all.

    Example:
        >>> from calibrant.data import ImageArray
        >>> pixels = np.full((5, 8, 8, 3), 255, dtype=np.uint8)
        >>> data = Dataset("tiny", "test", ("cat", "dog"), tuple("abcde"), [0, 1, 0, 1, 1], ImageArray(pixels))
        >>> model = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LazyLinear(2))
        >>> predict(model, data).logits.shape
        (5, 2)
    """
    if dataset.masks is None and (dataset.labels < 0).any():
        dataset = dataset.take(dataset.labels >= 0)
    if len(dataset) == 0:
        raise ValueError(f"{dataset.title}: no samples with a class to predict.")
    pipeline = Pipeline(dataset, steps, padding=padding)
    batches = pipeline.loader(Batches(len(dataset), batch_size, shuffle=False), workers)
    logits, labels, shares = [], [], []
    training = {module: module.training for module in model.modules()}
    precision = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    model.eval()
    try:
        with torch.inference_mode():
            for batch in watch(batches, len(batches)) if watch else batches:
                inputs = batch.inputs.to(device)
                if dataset.kind == "image":
                    inputs = normalised(inputs, mean, std, precision)
                elif inputs.is_floating_point():
                    inputs = inputs.to(precision)
                logits.append(_logits(model(inputs)))
                labels.append(batch.labels if batch.masks is None else batch.masks)
                if batch.objectness is not None:
                    shares.append(batch.objectness)
    finally:
        for module, was in training.items():  # one by one: a frozen normalisation stays frozen
            module.training = was
    known = torch.cat(shares).numpy() if shares else None
    return Predictions.from_logits(
        np.concatenate(logits),
        torch.cat(labels).numpy(),
        ids=list(dataset.ids),
        objectness=known if known is not None and np.isfinite(known).all() else None,
        groups=None if dataset.groups is None else {"group": list(dataset.groups)},
        class_names=dataset.classes,
        kind="classification" if dataset.masks is None else "segmentation",
        ignore_index=dataset.ignore_index,
    )


def _logits(output: Any) -> np.ndarray:
    """The logits among what a model gives; torchvision's segmentation models give a dictionary."""
    if isinstance(output, dict):
        output = output["out"]
    if not isinstance(output, Tensor):
        raise ValueError(f"the model must give a tensor of logits, got {type(output).__name__}.")
    return output.float().cpu().numpy()
