"""A run: its model, loss, optimiser and progress, built from a recipe and restored from a checkpoint.

A `Task` holds everything in which classification and detection differ, so that one loop trains both.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from calibrant.base.extras import need
from calibrant.data import Batch, Batches, Dataset, Pipeline
from calibrant.losses import Loss
from calibrant.models import TIMM, build
from calibrant.training.datasets import DataSets, training_pipeline
from calibrant.training.recipe import Recipe
from calibrant.training.run_folder import RunFolder

#: Called with an event of a run ("start", "step", "epoch", "checkpoint", "predicting", "predicted", "finished already")
#: and its numbers.
EventLog = Callable[[str, Mapping[str, Any]], None]


class MicroBatch(NamedTuple):
    """A part of a batch, and its weight in the mean over the whole batch of all processes."""

    inputs: Any
    target: Any
    ids: Tensor
    weight: float


class Task(ABC):
    """Model, batches, loss and evaluation of one kind of run; it has no state."""

    #: Whether images may have different sizes: they are filled up to the largest of their batch.
    filled_up = False

    def select(self, sets: DataSets) -> DataSets:
        """The samples of each set that are used; all by default."""
        return sets

    @abstractmethod
    def check(self, recipe: Recipe, sets: DataSets) -> None:
        """Raise a ValueError if recipe and data do not fit, before anything is built or written."""

    @abstractmethod
    def model(self, recipe: Recipe, sets: DataSets, *, trust_code: bool) -> nn.Module:
        """The network, from the recipe's seed or weights."""

    @abstractmethod
    def rehearse(self, run: Run) -> None:
        """Raise a ValueError unless the model takes the data and gives what the loss needs."""

    @abstractmethod
    def parts(self, run: Run, batch: Batch) -> list[MicroBatch]:
        """The micro-batches of a step, each with its weight."""

    @abstractmethod
    def loss(self, run: Run, part: MicroBatch) -> tuple[Tensor | None, Any]:
        """The weighted loss of a part, None if it cannot be computed, and the outputs that `terms` takes."""

    @abstractmethod
    def terms(self, run: Run, part: MicroBatch, output: Any) -> dict[str, float]:
        """The terms of the loss of a part, for the log."""

    @abstractmethod
    def remember(self, run: Run, parts: list[MicroBatch], outputs: list[Any]) -> None:
        """Pass the outputs to a loss with a memory."""

    @abstractmethod
    def validate(self, run: Run, val: Dataset) -> dict[str, float]:
        """Metrics after an epoch; every process calls it."""

    @abstractmethod
    def evaluate(self, run: Run, sets: DataSets, folder: RunFolder, event_log: EventLog) -> dict[str, dict[str, float]]:
        """Metrics of every set at the end; called by the first process, which writes the predictions to the folder."""


class DivergedError(ArithmeticError, ValueError):
    """The loss became NaN or infinite; the last good checkpoint is kept."""


@dataclass
class RunProgress:
    """How far a run has come, as saved in a checkpoint."""

    epoch: int = 0
    batch: int = 0  # the next one of this epoch
    step: int = 0
    best: float | None = None
    history: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Run:
    """Everything that a step needs."""

    recipe: Recipe
    fabric: Any
    model: nn.Module
    loss: Loss
    optimiser: Optimizer
    pipeline: Pipeline
    batches: Batches
    backward: Callable[[Tensor], None]
    task: Task
    progress: RunProgress = field(default_factory=RunProgress)
    has_begun: bool = False  # whether the model was called in this process
    observed: Tensor | None = None  # what the loss has observed in the last validation

    def __post_init__(self) -> None:
        self.mixing, self.blanking = self.recipe.build_mixing(), self.recipe.build_blanking()

    @property
    def steps_per_epoch(self) -> int:
        """Batches of one pass over the data."""
        return self.batches.per_epoch

    @property
    def epochs(self) -> float:
        """Epochs of the whole run, which its schedule is defined on."""
        length = self.recipe.training
        return length.steps / self.steps_per_epoch if length.steps is not None else length.epochs or 1.0

    @property
    def steps(self) -> int:
        """Steps of the whole run."""
        length = self.recipe.training.steps or math.ceil(self.epochs * self.steps_per_epoch - 1e-9)
        return min(length, self.recipe.training.max_steps or length)

    @property
    def samples_per_batch(self) -> int:
        """Samples of a full batch, of all processes together."""
        return min(self.batches.size, self.batches.number)

    @property
    def batch_size(self) -> int:
        """Samples of the next batch, of all processes together: the last of an epoch may be smaller."""
        return min(self.batches.size, self.batches.number - self.progress.batch * self.batches.size)

    @functools.cached_property
    def loader(self) -> Any:
        """Loads the batches of the current epoch; its workers live as long as the run."""
        memory = {"pin_memory": True} if self.fabric.device.type == "cuda" else {}
        return self.pipeline.loader(self.batches, self.recipe.training.workers, **memory)

    @functools.cached_property
    def parameters(self) -> list[nn.Parameter]:
        """The trained parameters."""
        return [p for group in self.optimiser.param_groups for p in group["params"]]

    @property
    def size(self) -> int:
        """Number of the model's parameters."""
        return sum(p.numel() for p in self.model.parameters())

    @property
    def scaler(self) -> Any:
        """The gradient scaler of 16-bit precision; None otherwise."""
        return getattr(self.fabric.strategy.precision, "scaler", None)


def prepare_run(recipe: Recipe, fabric: Any, sets: DataSets, task: Task, *, trust_code: bool = False) -> Run:
    """Build the model, loss and optimiser of a recipe."""
    if recipe.training.tensorboard:
        need("training.tensorboard", "tensorboard", "tensorboard")
    if recipe.training.keep == "best" and sets.val is None:
        raise ValueError("training.keep = 'best' needs validation data: data.val or data.hold_out")
    task.check(recipe, sets)
    model = task.model(recipe, sets, trust_code=trust_code)
    optimiser = recipe.optimiser.build(model)
    loss = recipe.build_loss(sets.train.ignore_index).to(fabric.device)
    if loss.learns_from_validation and sets.val is None:
        raise ValueError(
            f"loss {recipe.loss.name!r} learns from validation data, and there are none: data.val or data.hold_out"
        )
    wrapped, optimiser = fabric.setup(torch.compile(model) if recipe.training.compile else model, optimiser)
    batches = Batches(
        len(sets.train), recipe.training.batch_size, seed=recipe.seed, drop_last=recipe.training.drop_last,
        rank=fabric.global_rank, world=fabric.world_size,
    )  # fmt: skip
    if batches.per_epoch == 0:
        raise ValueError(f"{sets.train.title}: {len(sets.train)} samples do not fill a batch of {batches.size}")
    backward = fabric.backward
    if recipe.training.precision.endswith("true"):
        # Fabric's wrappers do nothing then, which still takes 2% of a small model's step.
        wrapped, optimiser, backward = wrapped._forward_module, optimiser.optimizer, Tensor.backward
    pipeline = training_pipeline(recipe, sets.train, filled_up=task.filled_up)
    return Run(recipe, fabric, wrapped, loss, optimiser, pipeline, batches, backward, task)


def make_model(
    recipe: Recipe,
    classes: int,
    vocabulary_size: int | None,
    vectors: Any = None,
    *,
    trust_code: bool = False,
    filled: bool = False,
) -> nn.Module:
    """The network of a recipe, from its seed or its weights, with all the logits that its loss takes.

    With ``filled`` it will be filled from a checkpoint: initial weights are neither read nor downloaded. ``vectors``
    are initial word vectors, for texts.
    """
    if recipe.detection is not None:
        raise ValueError("this is a recipe for detection, not for a classifier: use calibrant detect")
    options, weights = recipe.model.options, recipe.model.weights
    if vocabulary_size is not None:
        options.setdefault("vocabulary_size", vocabulary_size)
        options.setdefault("dimensions", recipe.data.text.dimensions if recipe.data.text else 100)
    if vectors is not None:
        options["vectors"] = vectors
    if filled:
        weights = None
        name, value = ("pretrained", False) if recipe.model.name.startswith(TIMM) else ("backbone_weights", None)
        if name in options and ":" not in recipe.model.name:
            options[name] = value
    outputs = classes + recipe.build_loss().extra_logits
    model = build(recipe.model.name, num_classes=outputs, stem=recipe.model.stem, weights=weights,
                  head=recipe.model.head, seed=recipe.seed, trust_code=trust_code, **options)  # fmt: skip
    if recipe.training.channels_last:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model.to(dtype_of(recipe))


def dtype_of(recipe: Recipe) -> torch.dtype:
    """The floating-point type of weights and inputs."""
    return torch.float64 if recipe.training.precision == "64-true" else torch.float32


def unwrap(model: nn.Module) -> nn.Module:
    """The model without the wrappers of Fabric and torch.compile."""
    for name in ("_forward_module", "_orig_mod", "module", "_orig_mod"):
        is_wrapper = name != "module" or isinstance(model, DistributedDataParallel)
        model = getattr(model, name, model) if is_wrapper else model
    return model
