"""What a run is made of: model, loss, optimiser and progress, as a recipe or a checkpoint gives them."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from calibrant import _torchvision
from calibrant.data import Batches, Dataset, Pipeline, read_glove
from calibrant.losses import Loss
from calibrant.models import build
from calibrant.predictions import Predictions
from calibrant.training import checkpoints
from calibrant.training.predicting import predict
from calibrant.training.recipe import Recipe, chain
from calibrant.training.run_folder import LAST, RunFolder
from calibrant.training.sets import Sets, training_pipeline


@dataclass
class Progress:
    """How far a run has come: what a checkpoint's state holds."""

    epoch: int = 0
    batch: int = 0  # of this epoch, the next
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
    progress: Progress
    mixing: Any = None
    blanking: Any = None

    @property
    def steps(self) -> int:
        """Of the whole run."""
        whole = math.ceil(self.recipe.training.epochs * self.steps_per_epoch)
        return min(whole, self.recipe.training.max_steps or whole)

    @property
    def steps_per_epoch(self) -> int:
        """Batches of one pass over the data."""
        whole, size = self.batches.number, self.batches.size
        return whole // size if self.batches.drop_last else -(-whole // size)


def prepared(recipe: Recipe, fabric: Any, sets: Sets, place: RunFolder | None) -> Run:
    """Model, loss and optimiser, as the recipe makes them or as the last checkpoint left them."""
    model = make_model(recipe, len(sets.train.classes), sets.vocabulary_size, _vectors(recipe, sets))
    optimiser = recipe.optimiser.build(model)
    loss = recipe.build_loss(sets.train.ignore_index)
    progress = Progress()
    if place is not None and (place / LAST).exists():
        parts, state = checkpoints.load(place / LAST)
        checkpoints.restore_module(model, parts["model"], place / LAST)
        checkpoints.restore_optimiser(optimiser, parts.get("optimiser", {}))
        loss.load_state_dict(parts.get("loss", {}))
        progress = Progress(**state)
    wrapped, optimiser = fabric.setup(torch.compile(model) if recipe.training.compile else model, optimiser)
    loss = loss.to(fabric.device)
    batches = Batches(
        len(sets.train), recipe.training.batch_size, seed=recipe.seed, drop_last=recipe.training.drop_last,
        rank=fabric.global_rank, world=fabric.world_size,
    )  # fmt: skip
    run = Run(recipe, fabric, wrapped, loss, optimiser, training_pipeline(recipe, sets.train), batches, progress)
    run.mixing, run.blanking = recipe.build_mixing(), recipe.build_blanking()
    if run.steps_per_epoch == 0:
        raise ValueError(f"{sets.train.title}: {len(sets.train)} samples do not fill a batch of {batches.size}.")
    return run


def _vectors(recipe: Recipe, sets: Sets) -> Any:
    """Word vectors of the vocabulary, if the recipe names a file of them."""
    text = recipe.data.text
    if text is None or text.vectors is None or sets.vocabulary is None:
        return None
    return read_glove(text.vectors, sets.vocabulary, text.dimensions, seed=recipe.seed).values


def make_model(recipe: Recipe, classes: int, vocabulary_size: int | None, vectors: Any = None) -> nn.Module:
    """The network of a recipe, from its seed or its weights; ``vectors`` is what its embedding starts from."""
    options = dict(recipe.model.model_extra or {})
    if vocabulary_size is not None:
        options.setdefault("vocabulary_size", vocabulary_size)
        options.setdefault("dimensions", recipe.data.text.dimensions if recipe.data.text else 100)
    if vectors is not None:
        options["vectors"] = vectors
    model = build(recipe.model.name, num_classes=classes, stem=recipe.model.stem,
                  weights=recipe.model.weights, head=recipe.model.head, seed=recipe.seed, **options)  # fmt: skip
    if recipe.training.channels_last:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model


def predicted(recipe: Recipe, model: nn.Module, dataset: Dataset, device: Any, watch: Any = None) -> Predictions:
    """A model's predictions on a data set, seen as the recipe sees it."""
    return predict(
        model, dataset, chain(recipe.data.steps), mean=recipe.data.mean, std=recipe.data.std,
        batch_size=recipe.training.eval_batch_size, workers=recipe.training.workers, device=device, watch=watch,
        padding=recipe.data.padding,
    )  # fmt: skip


def save(run: Run, path: Path) -> None:
    """Write a checkpoint, from the first process."""
    if run.fabric.global_rank == 0:
        parts = {
            "model": bare(run.model).state_dict(),
            "optimiser": checkpoints.optimiser_tensors(run.optimiser),
            "loss": run.loss.state_dict(),
        }
        checkpoints.save(path, parts, vars(run.progress))


def make_fabric(recipe: Recipe, accelerator: str, devices: int, nodes: int) -> Any:
    """Lightning Fabric, launched."""
    _torchvision.ensure()
    from lightning_fabric import Fabric

    logging.getLogger("lightning.fabric").setLevel(logging.WARNING)
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)

    strategy = "ddp" if devices * nodes > 1 else "auto"
    fabric = Fabric(accelerator=accelerator, devices=devices, num_nodes=nodes, strategy=strategy,
                    precision=recipe.training.precision)  # fmt: skip
    fabric.launch()
    return fabric


def bare(model: nn.Module) -> nn.Module:
    """The model itself, without what Fabric and torch.compile put around it."""
    inner = getattr(model, "_forward_module", model)
    inner = getattr(inner, "module", inner)
    return getattr(inner, "_orig_mod", inner)


def size(model: nn.Module) -> int:
    """Number of parameters."""
    return sum(p.numel() for p in model.parameters())
