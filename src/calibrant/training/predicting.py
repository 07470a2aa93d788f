"""A model's predictions on a data set, as the `Predictions` that everything else takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from calibrant.data import Batch, Batches, Dataset, Pipeline, Step, normalised, sample_generator
from calibrant.predictions import Predictions
from calibrant.torchmetrics import ConfidenceSketch
from calibrant.training.forward import forward, logits_of

#: Logits of whole images are kept in memory up to this many bytes.
MOST_BYTES = 8 * 2**30


def predict(
    model: nn.Module,
    dataset: Dataset | Pipeline,
    steps: Sequence[Step] = (),
    *,
    mean: Sequence[float] = (0.5, 0.5, 0.5),
    std: Sequence[float] = (0.25, 0.25, 0.25),
    padding: int = 0,
    batch_size: int = 256,
    workers: int = 0,
    device: torch.device | str = "cpu",
    pixels: int | None = None,
    tally: Tally | None = None,
    watch: Callable[[Iterable[Any], int], Iterable[Any]] | None = None,
) -> Predictions:
    """Run a model over a data set without training it.

    Args:
        model: Takes images [N, 3, H, W] as floats, or the data set's rows; gives logits.
        dataset: Samples without a class are left out, unless it has masks. A pipeline says how it is seen, by itself.
        steps: As for `calibrant.data.Pipeline`: usually a resize and a centre crop.
        mean: Of the channels, for `calibrant.data.normalised`.
        std: Of the channels.
        padding: The colour of padding.
        batch_size: Samples at a time.
        workers: Processes that read.
        device: Where the model is.
        pixels: Of data with masks: keep the logits of so many labelled pixels of every image, drawn at random, each as
            a sample of its own whose id is ``image * 2**32 + pixel``, both counted from 0. Images may then differ in
            size.
        tally: Updated with everything that is seen, all pixels included.
        watch: Shows progress over the batches.

    Returns:
        Logits, labels, ids, class names; groups where the data set has them, objectness where it is known for all.

    Example:
        >>> from calibrant.data import ImageArray
        >>> images = np.full((5, 8, 8, 3), 255, dtype=np.uint8)
        >>> data = Dataset("tiny", "test", ("cat", "dog"), tuple("abcde"), [0, 1, 0, 1, 1], ImageArray(images))
        >>> model = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LazyLinear(2))
        >>> predict(model, data).logits.shape
        (5, 2)
    """
    pipeline = dataset if isinstance(dataset, Pipeline) else Pipeline(labelled(dataset), steps, padding=padding)
    data = pipeline.dataset
    must_fit(pipeline, pixels)
    sampled = pixels if data.masks is not None else None
    batches = pipeline.loader(Batches(len(data), batch_size, shuffle=False), workers)
    kept: list[tuple[NDArray[Any], NDArray[np.int64], NDArray[np.int64]]] = []
    shares = []
    for batch, logits in outputs(model, watch(batches, len(batches)) if watch else batches, mean, std, device):
        labels = batch.labels if batch.masks is None else batch.masks
        if tally is not None:
            tally.update(logits, labels)
        if batch.objectness is not None:
            shares.append(batch.objectness)
        if sampled is not None:
            kept += _some_pixels(logits, labels, batch.indices, sampled, data.ignore_index)
            continue
        if kept and logits.shape[2:] != kept[0][0].shape[2:]:
            raise ValueError(
                f"{data.title}: images of different sizes: end the steps with a resize, or keep some pixels of every "
                "image (data.pixels = 5000)."
            )
        kept.append((logits.cpu().numpy(), labels.numpy(), batch.indices.numpy()))
    values, labels_, places = (np.concatenate(column) for column in zip(*kept, strict=True))
    known = torch.cat(shares).numpy() if shares and sampled is None else None
    return Predictions.from_logits(
        values,
        labels_,
        ids=places if sampled is not None else list(data.ids),
        objectness=known if known is not None and np.isfinite(known).all() else None,
        groups=None if data.groups is None or sampled is not None else {"group": list(data.groups)},
        class_names=data.classes,
        kind="classification" if data.masks is None or sampled is not None else "segmentation",
        ignore_index=data.ignore_index,
    )


class Tally:
    """What is counted of a set: a sketch of its confidences, and with masks the right and wrong pixels of every class.

    Args:
        dataset: Whose labels are seen.
        device: Where logits are.
        shared: Add up what several processes have seen.
    """

    def __init__(self, dataset: Dataset, device: torch.device | str = "cpu", *, shared: bool = False):
        self.sketch = ConfidenceSketch(ignore_index=dataset.ignore_index, sync_on_compute=shared).to(device)
        self.ignored = dataset.ignore_index
        classes = len(dataset.classes)
        self.pixels = torch.zeros(classes, classes, dtype=torch.int64) if dataset.masks is not None else None
        self.shared = shared

    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Count a batch."""
        labels = labels.to(logits.device)
        self.sketch.update(logits, labels)
        if self.pixels is not None:
            kept = torch.ones_like(labels, dtype=torch.bool) if self.ignored is None else labels != self.ignored
            pairs = labels[kept] * len(self.pixels) + logits.argmax(1)[kept]
            self.pixels += pairs.bincount(minlength=self.pixels.numel()).view_as(self.pixels).cpu()

    def compute(self) -> dict[str, float]:
        """Every metric, by name."""
        found = {name: float(value) for name, value in self.sketch.compute().items()}
        if self.pixels is None:
            return found
        pixels = self.pixels.to(self.sketch.device)
        if self.shared and torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.all_reduce(pixels)
        both, either = pixels.diagonal(), pixels.sum(0) + pixels.sum(1) - pixels.diagonal()
        there = either > 0
        found["mean_iou"] = float((both[there] / either[there]).double().mean()) if bool(there.any()) else math.nan
        return found


def labelled(dataset: Dataset) -> Dataset:
    """The samples that have a class; all of them, if it has masks."""
    if dataset.masks is None and (dataset.labels < 0).any():
        dataset = dataset.take(dataset.labels >= 0)
    if len(dataset) == 0:
        raise ValueError(f"{dataset.title}: no samples with a class to predict.")
    return dataset


def must_fit(pipeline: Pipeline, pixels: int | None) -> None:
    """Stop before memory does, by the size of the first image: logits of whole images are large."""
    data = pipeline.dataset
    if data.masks is None or pixels is not None:
        return
    needed = 4 * len(data) * len(data.classes) * pipeline.batch([0]).inputs[0, 0].nelement()
    if needed > MOST_BYTES:
        raise ValueError(
            f"{data.title}: the logits of {len(data)} images are {needed / 2**30:.0f} GB, more than are kept in memory "
            f"({MOST_BYTES / 2**30:.0f} GB); keep some pixels of every image instead (data.pixels = 5000)."
        )


def outputs(
    model: nn.Module,
    batches: Iterable[Batch],
    mean: Sequence[float],
    std: Sequence[float],
    device: torch.device | str,
    name: str | None = None,
) -> Iterator[tuple[Batch, Tensor]]:
    """Every batch with the logits that a model gives for it, in at least single precision, without training.

    ``name`` names the model in messages; its class, if left out.
    """
    training = {module: module.training for module in model.modules()}
    first = True
    precision = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    model.eval()
    try:
        for batch in batches:
            inputs = batch.inputs.to(device)
            if batch.views:
                inputs = normalised(inputs, mean, std, precision)
            elif inputs.is_floating_point():
                inputs = inputs.to(precision)
            with torch.inference_mode():
                logits = logits_of(forward(model, inputs, name or type(model).__name__, first=first))
            first = False
            yield batch, logits.float() if logits.dtype.itemsize < 4 else logits
    finally:
        for module, was in training.items():  # one by one: a frozen normalisation stays frozen
            module.training = was


def _some_pixels(
    logits: Tensor, masks: Tensor, images: Tensor, number: int, ignored: int | None
) -> Iterator[tuple[NDArray[Any], NDArray[np.int64], NDArray[np.int64]]]:
    """Of every image: logits [n, K], labels and ids of some labelled pixels, by a draw that is the image's own."""
    for values, mask, image in zip(logits, masks, images.tolist(), strict=True):
        flat = mask.flatten()
        labelled = flat.new_ones(len(flat), dtype=torch.bool) if ignored is None else flat != ignored
        there = labelled.nonzero()[:, 0].numpy()
        random = sample_generator(0, 0, image)
        chosen = np.sort(random.choice(there, min(number, len(there)), replace=False))
        rows = values.flatten(1)[:, torch.from_numpy(chosen).to(values.device)].T
        yield rows.cpu().numpy(), flat.numpy()[chosen], (image << 32) + chosen
