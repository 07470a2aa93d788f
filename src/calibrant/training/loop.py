"""The training loop: recipe in, run folder out. It knows no method by name.

A run depends on its recipe alone. Samples, augmentation, mixing and dropout draw from streams named by seed, epoch and
step, the learning rate is a function of the step, and a checkpoint holds the rest; so a run that was killed, at any
moment, ends bit for bit as the one that was not (on a CPU, with as many threads).
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from calibrant import _torchvision
from calibrant.data import Batch, Batches, Dataset, Pipeline, normalised
from calibrant.data.loading import sample_generator
from calibrant.losses import Loss
from calibrant.metrics import METRICS, ConfidenceSketch
from calibrant.models import build
from calibrant.predictions import Predictions
from calibrant.targets import adaptive_targets, mixed_adaptive_targets
from calibrant.training import checkpoints
from calibrant.training.optimisers import climbed, gradient_norm, set_rate
from calibrant.training.predicting import predict
from calibrant.training.recipe import Recipe, chain
from calibrant.training.run_folder import BEST, LAST, RESULT, RunFolder
from calibrant.training.sets import Sets, load_sets, read_split, training_pipeline

#: Told what a run is doing: an event's name and its numbers.
Listener = Callable[[str, Mapping[str, Any]], None]

# Streams of random numbers besides those of the samples (0 and up) and of their order (-1).
_MIXING, _STEP = -2, -3


class DivergedError(ArithmeticError):
    """The loss is no number any more; the last good checkpoint is kept."""


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


def train(
    recipe: Recipe,
    folder: str | Path,
    *,
    data: str | None = None,
    resume: bool = False,
    devices: int = 1,
    nodes: int = 1,
    accelerator: str = "auto",
    listen: Listener = lambda event, numbers: None,
) -> dict[str, Any]:
    """Train the model of a recipe, and write everything about it into a folder.

    Args:
        recipe: What to do.
        folder: Of the run; it must be new, or this recipe's with ``resume``.
        data: Where the data lies, if not where the recipe says.
        resume: Go on from the last checkpoint; a finished run is left as it is.
        devices: Processes or GPUs per node.
        nodes: Machines.
        accelerator: As Lightning Fabric takes it.
        listen: Told of every step, epoch and checkpoint.

    Returns:
        The numbers of every set that was predicted, as ``result.json`` holds them.

    Raises:
        DivergedError: The loss is not finite.
    """
    place = RunFolder(folder)
    fabric = _fabric(recipe, accelerator, devices, nodes)
    with place.held() if fabric.global_rank == 0 else contextlib.nullcontext():
        if fabric.global_rank == 0:
            place.claim(recipe, resume)
        fabric.barrier()
        if (place / RESULT).exists():
            listen("finished already", {})
            return _result(place)
        sets = load_sets(recipe, data)
        run = _prepared(recipe, fabric, sets, place)
        listen("start", {"steps": run.steps, "step": run.progress.step, "parameters": _size(run.model)})
        _train(run, sets, place, listen)
        return _evaluated(run, sets, place, listen)


def estimate(recipe: Recipe, data: str | None = None, steps: int = 5) -> dict[str, Any]:
    """Size and speed of a recipe here, from a few real steps; nothing is written."""
    sets = load_sets(recipe, data)
    run = _prepared(recipe, _fabric(recipe, "auto", 1, 1), sets, None)
    run.model.train()
    times = []
    for batch in run.pipeline.loader(run.batches):
        start = time.perf_counter()
        _step(run, batch)
        run.progress.step += 1
        times.append(time.perf_counter() - start)
        if len(times) > steps:
            break
    seconds = sorted(times)[len(times) // 2]
    return {
        "parameters": _size(run.model),
        "samples": len(sets.train),
        "steps": run.steps,
        "seconds_per_step": seconds,
        "seconds": seconds * run.steps,
    }


def predict_run(
    folder: str | Path,
    *,
    data: str | None = None,
    split: str | None = None,
    best: bool = False,
    watch: Any = None,
) -> Predictions:
    """Predict a split with the model of a run.

    Args:
        folder: Of the run.
        data: Where the data lies, if not where the recipe says.
        split: Which; the recipe's test split if left out.
        best: From the best checkpoint instead of the last.
        watch: Shows progress over batches.
    """
    place = RunFolder(folder)
    recipe = place.recipe()
    file = place / (BEST if best else LAST)
    if not file.exists():
        raise ValueError(f"{place.path}: there is no {file.name}; the run has not come that far.")
    sets = load_sets(recipe, data)
    named = {recipe.data.test: sets.test} | sets.evaluated
    dataset = named.get(split or recipe.data.test)
    if dataset is None:
        dataset = read_split(recipe, data, str(split), sets.vocabulary)
    model = _model(recipe, sets)
    parts, _ = checkpoints.load(file)
    checkpoints.restore_module(model, parts["model"], file)
    return _predicted(recipe, model, dataset, "cpu", watch)


def _train(run: Run, sets: Sets, place: RunFolder, listen: Listener) -> None:
    """From where the run stands to its last step."""
    progress = run.progress
    saved = time.monotonic()
    while progress.step < run.steps:
        run.batches.epoch, run.batches.start = progress.epoch, progress.batch
        run.model.train()
        for batch in run.pipeline.loader(run.batches, run.recipe.training.workers):
            numbers = _step(run, batch)
            progress.batch, progress.step = progress.batch + 1, progress.step + 1
            listen("step", numbers | {"step": progress.step, "epoch": progress.epoch})
            if progress.step >= run.steps:
                break
            if time.monotonic() - saved > run.recipe.training.checkpoint_seconds:
                _save(run, place / LAST)
                saved = time.monotonic()
                listen("checkpoint", {"step": progress.step})
        run.loss.end_epoch()
        progress.epoch, progress.batch = progress.epoch + 1, 0
        _end_of_epoch(run, sets, place, listen)
        _save(run, place / LAST)
        saved = time.monotonic()


def _step(run: Run, batch: Batch) -> dict[str, float]:
    """One step of the optimiser: forward and backward by micro-batches, then the update."""
    recipe, progress = run.recipe, run.progress
    rate = recipe.optimiser.rate * recipe.schedule.factor(progress.step / run.steps_per_epoch, recipe.training.epochs)
    set_rate(run.optimiser, rate)
    _seed_step(_seed(recipe.seed, progress.step, run.fabric.global_rank), run.fabric.device)
    inputs, target = _inputs_and_target(run, batch.to(run.fabric.device))
    parameters = [p for group in run.optimiser.param_groups for p in group["params"]]

    def gradients(remember: bool) -> Tensor:
        run.optimiser.zero_grad(set_to_none=True)
        total = torch.zeros((), device=run.fabric.device)
        parts = zip(inputs.chunk(recipe.training.accumulate), target.chunk(recipe.training.accumulate),
                    batch.indices.to(inputs.device).chunk(recipe.training.accumulate), strict=True)  # fmt: skip
        for x, t, ids in parts:
            logits = _logits(run.model(x))
            if not bool(torch.isfinite(logits).all()):
                return torch.full((), math.nan)
            value = run.loss(logits, t, ids=ids) * (len(x) / len(inputs))
            run.fabric.backward(value)
            total += value.detach()
            if remember:
                _remember(run, logits.detach(), t, ids)
        return total

    value = gradients(remember=True)
    if not bool(torch.isfinite(value)):
        raise DivergedError(
            f"the loss is {float(value)} at step {progress.step + 1} with learning rate {rate:g}; samples "
            f"{', '.join(batch.ids[:8])}{', ...' if len(batch) > 8 else ''}. The last good checkpoint is kept."
        )
    if recipe.optimiser.sam is not None:
        with climbed(parameters, recipe.optimiser.sam):
            gradients(remember=False)
    numbers = {"loss": float(value), "rate": rate}
    if recipe.optimiser.clip is not None:
        norm = gradient_norm(parameters)
        torch.nn.utils.clip_grads_with_norm_(parameters, recipe.optimiser.clip, norm)
        numbers["gradient_norm"] = float(norm)
    run.optimiser.step()
    return numbers


def _inputs_and_target(run: Run, batch: Batch) -> tuple[Tensor, Tensor]:
    """What the model sees, and what it is trained towards."""
    recipe, classes = run.recipe, len(run.pipeline.dataset.classes)
    if run.pipeline.dataset.kind != "image":
        return batch.inputs, batch.labels
    inputs = normalised(batch.inputs, recipe.data.mean, recipe.data.std)
    if recipe.training.channels_last:
        inputs = inputs.contiguous(memory_format=torch.channels_last)
    random = sample_generator(recipe.seed, run.progress.step, _MIXING)
    if run.blanking is not None:
        inputs = run.blanking(inputs, random)
    if batch.masks is not None:
        return inputs, batch.masks
    adaptive = recipe.targets.name == "adaptive"
    share = batch.objectness if adaptive and batch.objectness is not None else 1.0
    settings: dict[str, Any] = {"beta": recipe.targets.beta, "context": batch.context, "dtype": torch.float32}
    if run.mixing is None and not adaptive and batch.context is None:
        return inputs, batch.labels
    if run.mixing is None:
        return inputs, adaptive_targets(batch.labels, share, classes, unknown="hard", **settings)
    mixed = run.mixing(inputs, random)
    if adaptive and recipe.targets.object_aware_mixing and batch.boxes is not None:
        target = mixed_adaptive_targets(mixed, batch.labels, batch.boxes, batch.views, classes, **settings)
    else:
        target = mixed.targets(adaptive_targets(batch.labels, share, classes, unknown="hard", **settings))
    return mixed.images, target


def _remember(run: Run, logits: Tensor, target: Tensor, ids: Tensor) -> None:
    """Tell the loss what was predicted, in every process what all of them saw."""
    if run.fabric.world_size > 1:
        logits, target, ids = (_together(x, run.fabric.world_size) for x in (logits, target, ids))
    run.loss.update(logits, target, ids=ids)


def _end_of_epoch(run: Run, sets: Sets, place: RunFolder, listen: Listener) -> None:
    """Validate from one sketch, log, and keep the best."""
    entry: dict[str, Any] = {"epoch": run.progress.epoch, "step": run.progress.step}
    if sets.val is not None:
        entry |= {f"val_{name}": value for name, value in _validated(run, sets.val).items()}
    run.progress.history.append(entry)
    if run.fabric.global_rank == 0:
        place.log(entry)
    listen("epoch", entry)
    training = run.recipe.training
    if training.keep == "best" and (value := entry.get(f"val_{training.best_by}")) is not None:
        sign = 1 if METRICS[training.best_by].better == "high" else -1
        if run.progress.best is None or sign * value > sign * run.progress.best:
            run.progress.best = value
            _save(run, place / BEST)


def _validated(run: Run, val: Dataset) -> dict[str, float]:
    """Accuracy, NLL, ECE, AURC and the rest of one pass; every process takes its share of the batches."""
    recipe = run.recipe
    sketch = ConfidenceSketch(ignore_index=val.ignore_index).to(run.fabric.device)
    pipeline = Pipeline(val, chain(recipe.data.steps), padding=recipe.data.padding)
    batches = Batches(len(val), recipe.training.eval_batch_size, shuffle=False, rank=run.fabric.global_rank,
                      world=run.fabric.world_size)  # fmt: skip
    run.model.eval()
    with torch.inference_mode():
        for batch in pipeline.loader(batches, recipe.training.workers):
            batch = batch.to(run.fabric.device)
            inputs = batch.inputs
            if val.kind == "image":
                inputs = normalised(inputs, recipe.data.mean, recipe.data.std)
            sketch.update(_logits(run.model(inputs)).float(), batch.labels if batch.masks is None else batch.masks)
    run.model.train()
    return {name: float(value) for name, value in sketch.compute().items()}


def _evaluated(run: Run, sets: Sets, place: RunFolder, listen: Listener) -> dict[str, Any]:
    """Predict every set with the model that is kept, write the predictions and their numbers."""
    if run.recipe.training.keep == "best" and (place / BEST).exists():
        parts, _ = checkpoints.load(place / BEST)
        checkpoints.restore_module(_bare(run.model), parts["model"], place / BEST)
    result: dict[str, Any] = {}
    if run.fabric.global_rank == 0:
        for name, dataset in sets.evaluated.items():
            predictions = _predicted(run.recipe, _bare(run.model), dataset, run.fabric.device)
            predictions.save(place / f"{name}.npz")
            # Not synchronised: the other processes wait at the barrier below.
            sketch = ConfidenceSketch(ignore_index=dataset.ignore_index, sync_on_compute=False)
            sketch.update(torch.from_numpy(predictions.logits), torch.from_numpy(predictions.labels))
            result[name] = {key: float(value) for key, value in sketch.compute().items()}
            listen("predicted", {"set": name, **result[name]})
        place.write(RESULT, {"sets": result, "steps": run.progress.step, "history": run.progress.history})
    run.fabric.barrier()
    return _result(place)


def _predicted(recipe: Recipe, model: nn.Module, dataset: Dataset, device: Any, watch: Any = None) -> Predictions:
    return predict(
        model, dataset, chain(recipe.data.steps), mean=recipe.data.mean, std=recipe.data.std,
        batch_size=recipe.training.eval_batch_size, workers=recipe.training.workers, device=device, watch=watch,
        padding=recipe.data.padding,
    )  # fmt: skip


def _model(recipe: Recipe, sets: Sets) -> nn.Module:
    options = dict(recipe.model.model_extra or {})
    if sets.vocabulary is not None:
        options.setdefault("vocabulary_size", len(sets.vocabulary.words))
    model = build(recipe.model.name, num_classes=len(sets.train.classes), stem=recipe.model.stem,
                  weights=recipe.model.weights, head=recipe.model.head, seed=recipe.seed, **options)  # fmt: skip
    if recipe.training.channels_last:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model


def _prepared(recipe: Recipe, fabric: Any, sets: Sets, place: RunFolder | None) -> Run:
    """Model, loss and optimiser, as the recipe makes them or as the last checkpoint left them."""
    model = _model(recipe, sets)
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


def _save(run: Run, path: Path) -> None:
    if run.fabric.global_rank == 0:
        parts = {
            "model": _bare(run.model).state_dict(),
            "optimiser": checkpoints.optimiser_tensors(run.optimiser),
            "loss": run.loss.state_dict(),
        }
        checkpoints.save(path, parts, vars(run.progress))


def _fabric(recipe: Recipe, accelerator: str, devices: int, nodes: int) -> Any:
    _torchvision.ensure()
    from lightning_fabric import Fabric

    logging.getLogger("lightning.fabric").setLevel(logging.WARNING)
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)

    strategy = "ddp" if devices * nodes > 1 else "auto"
    fabric = Fabric(accelerator=accelerator, devices=devices, num_nodes=nodes, strategy=strategy,
                    precision=recipe.training.precision)  # fmt: skip
    fabric.launch()
    return fabric


def _together(mine: Tensor, world: int) -> Tensor:
    """The parts of all processes as one batch, in the order of the samples before they were shared out."""
    parts = [torch.empty_like(mine) for _ in range(world)]
    torch.distributed.all_gather(parts, mine.contiguous())
    return torch.stack(parts, dim=1).flatten(0, 1)


def _logits(output: Any) -> Tensor:
    return output["out"] if isinstance(output, dict) else output


def _bare(model: nn.Module) -> nn.Module:
    """The model itself, without what Fabric and torch.compile put around it."""
    inner = getattr(model, "_forward_module", model)
    inner = getattr(inner, "module", inner)
    return getattr(inner, "_orig_mod", inner)


def _size(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def _seed(seed: int, step: int, rank: int) -> int:
    """Of everything that a step draws from torch's own stream, such as dropout."""
    return int(sample_generator(seed, step, _STEP - rank).integers(2**62))


def _seed_step(seed: int, device: torch.device) -> None:
    """As torch.manual_seed, which takes a millisecond, for the generators that a step can draw from."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
    elif device.type == "mps":
        torch.mps.manual_seed(seed)


def _result(place: RunFolder) -> dict[str, Any]:
    return json.loads((place / RESULT).read_text(encoding="utf-8"))
