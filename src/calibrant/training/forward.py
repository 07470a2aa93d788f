"""The inputs and targets of a batch, and the logits that a model gives for it.

For masks also: labels at the positions of the logits, an excluded class, and logits before interpolation.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from calibrant._validation import did_you_mean
from calibrant.data import Batch, Dataset, normalised, sample_generator
from calibrant.models import TERMINATED, one_line
from calibrant.targets import adaptive_targets, mixed_adaptive_targets
from calibrant.training.distributed import LOST
from calibrant.training.run import Run, dtype_of

# Messages of torch's allocators that run out of memory.
_NO_MEMORY = re.compile("not enough memory|out of memory|can't allocate memory|std::bad_alloc")

# Random stream of mixing and blanking; samples have streams from 0 on, their order has -1.
_MIXING = -2


def inputs_and_target(run: Run, batch: Batch) -> tuple[Tensor, Tensor]:
    """The inputs of the model, and its targets."""
    recipe, classes = run.recipe, len(run.pipeline.dataset.classes)
    dtype = dtype_of(recipe)
    if run.pipeline.dataset.kind != "image":
        inputs = batch.inputs.to(dtype) if batch.inputs.is_floating_point() else batch.inputs
        return inputs, batch.labels
    inputs = normalised(batch.inputs, *recipe.data.normalisation, dtype)
    if recipe.training.channels_last:
        inputs = inputs.contiguous(memory_format=torch.channels_last)
    adaptive = recipe.targets.name == "adaptive"
    plain_target = run.mixing is batch.context is None and not adaptive
    if plain_target and run.blanking is None:  # and no generator is needed
        return inputs, batch.labels if batch.masks is None else batch.masks
    random = sample_generator(recipe.seed, run.progress.step, _MIXING)
    if run.blanking is not None:
        inputs = run.blanking(inputs, random)
    if batch.masks is not None:
        return inputs, batch.masks
    if plain_target:
        return inputs, batch.labels
    share = batch.objectness if adaptive and batch.objectness is not None else 1.0
    settings: dict[str, Any] = {"beta": recipe.targets.beta, "context": batch.context, "dtype": torch.float32}
    if run.mixing is None:
        return inputs, adaptive_targets(batch.labels, share, classes, unknown="hard", **settings)
    mixed = run.mixing(inputs, random)
    if adaptive and recipe.targets.object_aware_mixing and batch.boxes is not None:
        target = mixed_adaptive_targets(mixed, batch.labels, batch.boxes, batch.views, classes, **settings)
    else:
        target = mixed.targets(adaptive_targets(batch.labels, share, classes, unknown="hard", **settings))
    return mixed.images, target


def forward(model: nn.Module, inputs: Tensor, name: str, *, is_first: bool) -> Tensor:
    """The logits that a model gives for a batch.

    Args:
        model: Gives a tensor, or a dictionary as torchvision's segmentation models do.
        inputs: As the model takes them.
        name: Name of the model, for messages.
        is_first: Whether this is the first call: an error then means that model and inputs do not fit.
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
