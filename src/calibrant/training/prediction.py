"""The forward pass of a model, and its predictions on a data set.

For masks also: labels at the positions of the logits, an excluded class, and logits before interpolation.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from calibrant._tensor_sketch import count_tensors, sum_over_processes
from calibrant.base.checks import did_you_mean
from calibrant.base.progress import Progress, silent, track
from calibrant.data import Batch, Batches, Dataset, Pipeline, Step, normalised, sample_generator
from calibrant.metrics import ConfidenceSketch, objectness_deviation, top_label
from calibrant.models import TERMINATED, evaluation_mode, one_line
from calibrant.predictions import Predictions
from calibrant.training.datasets import evaluation_pipeline, select_labelled
from calibrant.training.distributed import LOST
from calibrant.training.recipe import Recipe

#: Logits of whole images are kept in memory up to this many bytes.
MOST_BYTES = 8 * 2**30

# Messages of torch's allocators that run out of memory.
_NO_MEMORY = re.compile("not enough memory|out of memory|can't allocate memory|std::bad_alloc")

#: Logits, labels and ids of some samples.
_Samples = tuple[NDArray[Any], NDArray[np.int64], NDArray[np.int64]]


class DatasetTally:
    """Counts for the metrics of a set: a sketch of its confidences, and for masks the confusion matrix of its pixels.

    The labelled pixels of the class ``exclude`` are left out of the sketch, and the class is left out of the mean IoU.
    ``shared`` adds up the counts of several processes.
    """

    def __init__(
        self, dataset: Dataset, device: torch.device | str = "cpu", *, exclude: str | None = None, shared: bool = False
    ):
        self.sketch = ConfidenceSketch(ignore_index=dataset.ignore_index)
        self.device = device
        self.ignore_index = dataset.ignore_index
        self.excluded = excluded_label(dataset, exclude)
        classes = len(dataset.classes)
        self.pixels = torch.zeros(classes, classes, dtype=torch.int64) if dataset.masks is not None else None
        self.shared = shared

    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Count a batch; masks are read at the positions of the logits."""
        labels = labels.to(logits.device)
        if self.pixels is not None:
            labels = labels_at(labels, logits)
        count_tensors(self.sketch, logits, without_class(labels, self.excluded, self.ignore_index))
        if self.pixels is not None:
            counted = slice(None) if self.ignore_index is None else labels != self.ignore_index
            pairs = (labels[counted] * len(self.pixels) + logits.argmax(1)[counted]).flatten()
            self.pixels += pairs.bincount(minlength=self.pixels.numel()).view_as(self.pixels).cpu()

    def compute(self) -> dict[str, float]:
        """Every metric, by name."""
        metrics = (sum_over_processes(self.sketch, self.device) if self.shared else self.sketch).compute()
        if self.pixels is None:
            return metrics
        pixels = self.pixels.to(self.device)
        if self.shared and torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.all_reduce(pixels)
        intersection, union = pixels.diagonal(), pixels.sum(0) + pixels.sum(1) - pixels.diagonal()
        counts = union > 0
        if self.excluded is not None:
            counts[self.excluded] = False
        iou = (intersection[counts] / union[counts]).double()
        metrics["mean_iou"] = float(iou.mean()) if len(iou) else math.nan
        return metrics


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
    exclude: str | None = None,
    interpolate: bool = True,
    tally: DatasetTally | None = None,
    progress: Progress = silent,
) -> Predictions:
    """Run a model over a data set without training it.

    Args:
        model: Takes images [N, 3, H, W] as floats, or the data set's rows; gives logits.
        dataset: Samples without a class are left out, unless it has masks. A pipeline has its own steps.
        steps: As for `calibrant.data.Pipeline`: usually a resize and a centre crop.
        mean: Mean of each channel, for `calibrant.data.normalised`.
        std: Standard deviation of each channel.
        padding: The colour of padding.
        batch_size: Samples per batch.
        workers: Processes that read the data.
        device: Device of the model.
        pixels: For masks: keep the logits of this many labelled pixels of every image, drawn at random, each as a
            sample whose id is ``image * 2**32 + pixel``, both counted from 0. Images may then differ in size.
        exclude: For masks: a class whose labelled pixels are left out.
        interpolate: For masks: false takes the logits before the model's last interpolation, with the labels of the
            nearest pixels.
        tally: Updated with every batch, all pixels included.
        progress: Called after every batch.

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
    pipeline = dataset if isinstance(dataset, Pipeline) else Pipeline(select_labelled(dataset), steps, padding=padding)
    data = pipeline.dataset
    check_logits_fit(pipeline, pixels)
    excluded = excluded_label(data, exclude)
    pixels_per_image = pixels if data.masks is not None else None
    loader = pipeline.loader(Batches(len(data), batch_size, shuffle=False), workers)
    samples: list[_Samples] = []
    shares = []
    batches = track(loader, "predicting", len(loader), progress)
    for batch, logits in logits_by_batch(model, batches, mean, std, device, interpolate=interpolate):
        labels = batch.labels if batch.masks is None else labels_at(batch.masks, logits)
        if tally is not None:
            tally.update(logits, labels)
        labels = without_class(labels, excluded, data.ignore_index)
        if batch.objectness is not None:
            shares.append(batch.objectness)
        if pixels_per_image is not None:
            samples += _draw_pixels(logits, labels, batch.indices, pixels_per_image, data.ignore_index)
            continue
        if samples and logits.shape[2:] != samples[0][0].shape[2:]:
            raise ValueError(
                f"{data.title}: images of different sizes: end the steps with a resize, or keep some pixels of every "
                "image (data.pixels = 5000)"
            )
        samples.append((logits.cpu().numpy(), labels.numpy(), batch.indices.numpy()))
    values, all_labels, indices = (np.concatenate(column) for column in zip(*samples, strict=True))
    objectness = torch.cat(shares).numpy() if shares and pixels_per_image is None else None
    return Predictions.from_logits(
        values,
        all_labels,
        ids=indices if pixels_per_image is not None else list(data.ids),
        objectness=objectness if objectness is not None and np.isfinite(objectness).all() else None,
        groups=None if data.groups is None or pixels_per_image is not None else {"group": list(data.groups)},
        class_names=data.classes,
        kind="classification" if data.masks is None or pixels_per_image is not None else "segmentation",
        ignore_index=data.ignore_index,
    )


def predict_dataset(
    recipe: Recipe,
    model: nn.Module,
    dataset: Dataset,
    device: Any,
    *,
    tally: DatasetTally | None = None,
    progress: Progress = silent,
) -> Predictions:
    """Predict a data set as a recipe prepares it."""
    mean, std = recipe.data.normalisation
    return predict(
        model, evaluation_pipeline(recipe, dataset), mean=mean, std=std, batch_size=recipe.training.eval_batch_size,
        workers=recipe.training.workers, device=device, pixels=recipe.data.pixels, exclude=recipe.data.exclude,
        interpolate=recipe.data.interpolate, tally=tally, progress=progress,
    )  # fmt: skip


def object_numbers(predictions: Predictions) -> dict[str, float]:
    """The objectness deviation, for predictions with objectness."""
    if predictions.objectness is None:
        return {}
    confidence = top_label(np.asarray(predictions.logits), np.asarray(predictions.labels))[0]
    return {"objectness_deviation": objectness_deviation(confidence, np.asarray(predictions.objectness, np.float64))}


def check_logits_fit(pipeline: Pipeline, pixels: int | None) -> None:
    """Raise if the logits of whole images would not fit into memory, judged by the first image."""
    data = pipeline.dataset
    if data.masks is None or pixels is not None:
        return
    needed = 4 * len(data) * len(data.classes) * pipeline.batch([0]).inputs[0, 0].nelement()
    if needed > MOST_BYTES:
        raise ValueError(
            f"{data.title}: the logits of {len(data)} images are {needed / 2**30:.0f} GB, more than are kept in memory "
            f"({MOST_BYTES / 2**30:.0f} GB); keep some pixels of every image instead (data.pixels = 5000)"
        )


def logits_by_batch(
    model: nn.Module,
    batches: Iterable[Batch],
    mean: Sequence[float],
    std: Sequence[float],
    device: torch.device | str,
    *,
    interpolate: bool = True,
) -> Iterator[tuple[Batch, Tensor]]:
    """Every batch with its logits, in at least single precision."""
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    is_first = True
    with evaluation_mode(model), contextlib.nullcontext() if interpolate else without_interpolation(model):
        for batch in batches:
            inputs = batch.inputs.to(device)
            if batch.views:
                inputs = normalised(inputs, mean, std, dtype)
            elif inputs.is_floating_point():
                inputs = inputs.to(dtype)
            with torch.inference_mode():
                logits = forward(model, inputs, type(model).__name__, is_first=is_first)
            is_first = False
            yield batch, logits.float() if logits.dtype.itemsize < 4 else logits


def _draw_pixels(
    logits: Tensor, masks: Tensor, images: Tensor, number: int, ignore_index: int | None
) -> Iterator[_Samples]:
    """For each image, logits [n, K], labels and ids of some labelled pixels; the draw depends on the image alone."""
    for values, mask, image in zip(logits, masks, images.tolist(), strict=True):
        flat = mask.flatten()
        pixels = np.arange(len(flat)) if ignore_index is None else (flat != ignore_index).nonzero()[:, 0].numpy()
        positions = np.sort(sample_generator(0, 0, image).choice(pixels, min(number, len(pixels)), replace=False))
        rows = values.flatten(1)[:, torch.from_numpy(positions).to(values.device)].T
        yield rows.cpu().numpy(), flat.numpy()[positions], (image << 32) + positions


class ClassLogits(nn.Module):
    """A model without the logit of abstaining, which follows those of the classes.

    Attributes:
        reserved: the probability of abstaining of every sample predicted so far, ``[n, ...]`` for each batch, where it
            is to be kept; else None.

    Example:
        >>> model = ClassLogits(nn.Identity(), 3)
        >>> model(torch.tensor([[2.0, 1.0, 0.0, 5.0]]))
        tensor([[2., 1., 0.]])
    """

    def __init__(self, model: nn.Module, classes: int):
        super().__init__()
        self.model, self.classes = model, classes
        self.reserved: list[Tensor] | None = None

    def forward(self, inputs: Tensor) -> Tensor:
        """The logits of the classes ``[N, C, ...]``."""
        output = self.model(inputs)
        logits: Tensor = output["out"] if isinstance(output, dict) else output
        if self.reserved is not None:
            self.reserved.append(logits.double().softmax(1)[:, self.classes].cpu())
        return logits[:, : self.classes]


def predictor(model: nn.Module, recipe: Recipe, classes: int) -> nn.Module:
    """The network of a recipe as it predicts: with one logit for each class."""
    return ClassLogits(model, classes) if recipe.build_loss().extra_logits else model


def forward(model: Callable[[Tensor], Any], inputs: Tensor, name: str, *, is_first: bool) -> Tensor:
    """The logits that a model gives for a batch: as a tensor, or as "out" of torchvision's segmentation models.

    An error of the first call means that the inputs do not fit the model, which ``name`` names in the message.
    """
    with memory_errors():
        try:
            output = model(inputs)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            is_other = isinstance(error, RuntimeError) and (LOST.search(str(error)) or _NO_MEMORY.search(str(error)))
            is_terminated = isinstance(error, SystemExit) and error.code == TERMINATED
            if not is_first or is_other or is_terminated or isinstance(error, MemoryError):
                raise
            words = one_line(error, 200) or type(error).__name__
            raise ValueError(f"model {name!r} does not take inputs of shape {list(inputs.shape)} ({words})") from error
    logits = output.get("out") if isinstance(output, dict) else output
    if not isinstance(logits, Tensor):
        raise ValueError(f"the model must give a tensor of logits, got {type(logits).__name__}")
    return logits


@contextlib.contextmanager
def memory_errors() -> Iterator[None]:
    """Turn the errors of torch's allocators into a MemoryError."""
    try:
        yield
    except (RuntimeError, torch.OutOfMemoryError) as error:
        if not _NO_MEMORY.search(str(error)):
            raise
        raise MemoryError(f"{one_line(error, 200)}; a smaller batch or model needs less") from error


def labels_at(masks: Tensor, logits: Tensor) -> Tensor:
    """Labels [N, h, w] at the positions of logits [N, C, h, w]: those of the nearest pixels of the masks [N, H, W].

    Targets other than masks are returned unchanged.

    Example:
        >>> import torch
        >>> masks = torch.arange(16).view(1, 4, 4)
        >>> labels_at(masks, torch.zeros(1, 3, 2, 2)).tolist()  # pixels 1 and 3 are nearest to centres 1 and 3
        [[[5, 7], [13, 15]]]
    """
    if logits.dim() != 4 or masks.dim() != 3 or masks.shape[1:] == logits.shape[2:]:
        return masks
    # Whole numbers below 2^24 are exact as floats, and labels are below 256.
    nearest = F.interpolate(masks[:, None].float(), size=logits.shape[2:], mode="nearest-exact")
    return nearest[:, 0].to(masks.dtype)


def excluded_label(dataset: Dataset, name: str | None) -> int | None:
    """The label of the class excluded from the metrics; an error if the data set has no such class, or no masks."""
    if name is None:
        return None
    if dataset.masks is None or dataset.ignore_index is None:
        raise ValueError(f"data.exclude is for data sets with masks, and {dataset.title} has none")
    if name not in dataset.classes:
        hint = did_you_mean(name, dataset.classes)
        raise ValueError(f"data.exclude: {dataset.title} has no class {name!r}{hint}")
    return dataset.classes.index(name)


def without_class(labels: Tensor, excluded: int | None, ignore_index: int | None) -> Tensor:
    """The labels with those of a class set to ignore_index."""
    return labels if excluded is None or ignore_index is None else labels.masked_fill(labels == excluded, ignore_index)


@contextlib.contextmanager
def without_interpolation(model: nn.Module) -> Iterator[None]:
    """Inside, the network gives logits before its last interpolation; an error if it has no such switch."""
    parts: list[Any] = [module for module in model.modules() if isinstance(getattr(module, "upsample", None), bool)]
    if not parts:
        raise ValueError(
            f"data.interpolate = false is for networks that interpolate their logits last (Calibrant's DeepLab v3 and "
            f"v3+), and {type(model).__name__} does not say that it does"
        )
    before = [part.upsample for part in parts]
    for part in parts:
        part.upsample = False
    try:
        yield
    finally:
        for part, value in zip(parts, before, strict=True):
            part.upsample = value
