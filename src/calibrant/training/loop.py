"""The training loop: recipe in, run folder out. It knows no method by name.

A run depends on its recipe alone. Samples, augmentation, mixing and dropout draw from streams named by seed, epoch and
step, the learning rate is a function of the step, and a checkpoint holds the rest; so a run that was killed, at any
moment, ends bit for bit as the one that was not (on a CPU, with as many threads).
"""

from __future__ import annotations

import contextlib
import json
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from calibrant.data import Batch, Batches, Dataset, normalised
from calibrant.data.loading import sample_generator
from calibrant.metrics import METRICS, ConfidenceSketch
from calibrant.targets import adaptive_targets, mixed_adaptive_targets
from calibrant.training import checkpoints
from calibrant.training.optimisers import climbed, set_rate
from calibrant.training.predicting import logits_of, must_fit, outputs
from calibrant.training.preparing import Run, bare, make_fabric, predicted, prepared, save, size
from calibrant.training.recipe import Recipe
from calibrant.training.run_folder import BEST, LAST, MODEL, MODEL_FACTS, RESULT, RunFolder
from calibrant.training.sets import Sets, evaluation_pipeline, load_sets

#: Told what a run is doing: an event's name and its numbers.
Listener = Callable[[str, Mapping[str, Any]], None]

#: The terms of the loss are computed for the log every so many steps.
TERMS_EVERY = 25

# The stream of random numbers of mixing and blanking; those of the samples are 0 and up, that of their order is -1.
_MIXING = -2

_NOTHING = contextlib.nullcontext()


class DivergedError(ArithmeticError):
    """The loss is no number any more; the last good checkpoint is kept."""


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
    fabric = make_fabric(recipe, accelerator, devices, nodes)
    first = fabric.global_rank == 0
    listen = listen if first else _nobody
    with place.held() if first else contextlib.nullcontext():
        if first:
            place.claim(recipe, resume)
        fabric.barrier()
        if (place / RESULT).exists():
            listen("finished already", {})
            return _result(place)
        sets = load_sets(recipe, data)
        for dataset in sets.evaluated.values():
            must_fit(evaluation_pipeline(recipe, dataset), recipe.data.pixels)
        run = prepared(recipe, fabric, sets, place)
        if first:
            place.forget_after(run.progress.step)
            listen = _logged(listen, place, recipe.training.tensorboard)
        listen("start", {"steps": run.steps, "step": run.progress.step, "parameters": size(run.model),
                         "left_out": sets.left_out})  # fmt: skip
        _train(run, sets, place, listen)
        return _evaluated(run, sets, place, listen)


def _train(run: Run, sets: Sets, place: RunFolder, listen: Listener) -> None:
    """From where the run stands to its last step."""
    progress = run.progress
    saved = time.monotonic()
    with _interrupts_held() as interrupted:
        while progress.step < run.steps:
            run.batches.epoch, run.batches.start = progress.epoch, progress.batch
            run.model.train()
            for batch in run.loader:
                numbers = step(run, batch)
                progress.batch, progress.step = progress.batch + 1, progress.step + 1
                listen("step", numbers | {"step": progress.step, "epoch": progress.epoch})
                if progress.step >= run.steps:
                    break
                if interrupted or time.monotonic() - saved > run.recipe.training.checkpoint_seconds:
                    _save(run, place)
                    saved = time.monotonic()
                    listen("checkpoint", {"step": progress.step})
                if interrupted:
                    raise KeyboardInterrupt
            run.loss.end_epoch()
            progress.epoch, progress.batch = progress.epoch + 1, 0
            _end_of_epoch(run, sets, place, listen)
            _save(run, place)
            saved = time.monotonic()
            if interrupted:
                raise KeyboardInterrupt


def _save(run: Run, place: RunFolder) -> None:
    """Write the last checkpoint, unless it would be worse than the one that is there."""
    if not all(bool(torch.isfinite(p).all()) for p in run.parameters):
        raise DivergedError(f"weights are no numbers after step {run.progress.step}. The last good checkpoint is kept.")
    save(run, place / LAST)


def _nobody(event: str, numbers: Mapping[str, Any]) -> None:
    """What every process but the first tells."""


def _logged(listen: Listener, place: RunFolder, tensorboard: bool) -> Listener:
    """Tell the log what the listener is told: every epoch, and the steps whose terms are known."""
    writer = _tensorboard(place) if tensorboard else None

    def told(event: str, numbers: Mapping[str, Any]) -> None:
        if event == "epoch" or (event == "step" and "fidelity" in numbers):
            place.log({"event": event, **numbers})
            if writer is not None:
                for name, value in numbers.items():
                    if isinstance(value, float):
                        writer.add_scalar(f"{event}/{name}", value, numbers["step"])
                writer.flush()
        listen(event, numbers)

    return told


def _tensorboard(place: RunFolder) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ValueError(
            "training.tensorboard needs the package tensorboard: pip install 'calibrant[tensorboard]'."
        ) from None
    return SummaryWriter(str(place / "tensorboard"))


@contextlib.contextmanager
def _interrupts_held() -> Iterator[list[int]]:
    """Inside, Ctrl-C only fills the list, so that no step is cut in two; a second Ctrl-C does not wait."""
    seen: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield seen
        return
    before = signal.getsignal(signal.SIGINT)

    def note(number: int, frame: Any) -> None:
        if seen and callable(before):
            before(number, frame)
        seen.append(number)

    signal.signal(signal.SIGINT, note)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, before)


def step(run: Run, batch: Batch) -> dict[str, float]:
    """One step of the optimiser: forward and backward by micro-batches, then the update."""
    recipe, progress, fabric = run.recipe, run.progress, run.fabric
    epoch = progress.step / run.steps_per_epoch
    rate = recipe.optimiser.rate * recipe.schedule.factor(epoch, run.epochs, progress.step)
    set_rate(run.optimiser, rate)
    _seed_step(recipe.seed, progress.step, fabric.global_rank, fabric.device)
    batch = batch.to(fabric.device, non_blocking=True)
    inputs, target = _inputs_and_target(run, batch)
    parts = list(zip(*(x.chunk(recipe.training.accumulate) for x in (inputs, target, batch.indices)), strict=True))
    terms: dict[str, float] = {}

    def gradients(remember: bool) -> Tensor:
        run.optimiser.zero_grad(set_to_none=True)
        values, seen = [], []
        for number, (x, t, ids) in enumerate(parts, start=1):
            with _exchanged(run, now=number == len(parts)):
                logits = logits_of(run.model(x))
                try:
                    value = run.loss(logits, t, ids=ids)
                except ValueError:
                    if bool(torch.isfinite(logits).all()):
                        raise
                    return torch.full((), math.nan)  # losses refuse logits that are no numbers
                # A mean over the samples of all processes, whose gradients are averaged.
                if (share := len(x) * fabric.world_size) != run.batch_size:
                    value = value * (share / run.batch_size)
                run.backward(value)
            values.append(value.detach())
            seen.append(logits.detach())
            if remember and progress.step % TERMS_EVERY == 0 and not terms:
                with torch.no_grad():
                    terms.update({name: float(v) for name, v in run.loss.terms(seen[0], t, ids=ids).items()})
        if remember and run.loss.has_memory:
            _remember(run, torch.cat(seen), target, batch.indices)
        return torch.stack(values).sum() if len(values) > 1 else values[0]

    value = float(gradients(remember=True))
    if not math.isfinite(value):
        raise DivergedError(
            f"the loss is {value} at step {progress.step + 1} with learning rate {rate:g}; samples "
            f"{', '.join(batch.ids[:8])}{', ...' if len(batch) > 8 else ''}. The last good checkpoint is kept."
        )
    if recipe.optimiser.sam is not None:
        with climbed(run.parameters, recipe.optimiser.sam):
            gradients(remember=False)
    numbers = {"loss": value, "rate": rate} | terms
    if recipe.optimiser.clip is not None:
        # Fabric undoes the loss scaling of 16-bit precision first.
        norm = fabric.clip_gradients(run.model, run.optimiser, max_norm=recipe.optimiser.clip)
        numbers["gradient_norm"] = float(norm)
    run.optimiser.step()
    return numbers


def _exchanged(run: Run, now: bool) -> AbstractContextManager[Any]:
    """Processes exchange gradients once a step, with the last part of the batch."""
    if now or run.fabric.world_size == 1:
        return _NOTHING
    return run.fabric.no_backward_sync(run.model)


def _inputs_and_target(run: Run, batch: Batch) -> tuple[Tensor, Tensor]:
    """What the model sees, and what it is trained towards."""
    recipe, classes = run.recipe, len(run.pipeline.dataset.classes)
    if run.pipeline.dataset.kind != "image":
        return batch.inputs, batch.labels
    inputs = normalised(batch.inputs, *recipe.data.normalisation)
    if recipe.training.channels_last:
        inputs = inputs.contiguous(memory_format=torch.channels_last)
    adaptive = recipe.targets.name == "adaptive"
    if run.blanking is run.mixing is batch.context is None and not adaptive:
        return inputs, batch.labels if batch.masks is None else batch.masks
    random = sample_generator(recipe.seed, run.progress.step, _MIXING)
    if run.blanking is not None:
        inputs = run.blanking(inputs, random)
    if batch.masks is not None:
        return inputs, batch.masks
    if run.mixing is batch.context is None and not adaptive:
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


def _remember(run: Run, *columns: Tensor) -> None:
    """Tell the loss what was predicted: in every process what all of them saw."""
    logits, target, ids = columns
    if run.fabric.world_size > 1:
        logits, target, ids = (_together(x, run.fabric.world_size, run.batch_size) for x in columns)
    run.loss.update(logits, target, ids=ids)


def _end_of_epoch(run: Run, sets: Sets, place: RunFolder, listen: Listener) -> None:
    """Validate from one sketch, log, and keep the best."""
    entry: dict[str, Any] = {"epoch": run.progress.epoch, "step": run.progress.step}
    if sets.val is not None:
        entry |= {f"val_{name}": value for name, value in _validated(run, sets.val).items()}
    run.progress.history.append(entry)
    listen("epoch", entry)
    training = run.recipe.training
    if training.keep == "best" and (value := entry.get(f"val_{training.best_by}")) is not None:
        sign = 1 if METRICS[training.best_by].better == "high" else -1
        if run.progress.best is None or sign * value > sign * run.progress.best:
            run.progress.best = value
            save(run, place / BEST)


def _validated(run: Run, val: Dataset) -> dict[str, float]:
    """Accuracy, NLL, ECE, AURC and the rest of one pass; every process takes its share of the samples."""
    settings = run.recipe.training
    pipeline = evaluation_pipeline(run.recipe, val)
    batches = Batches(len(pipeline), settings.eval_batch_size, shuffle=False, rank=run.fabric.global_rank,
                      world=run.fabric.world_size)  # fmt: skip
    mean, std = run.recipe.data.normalisation
    sketch = ConfidenceSketch(ignore_index=val.ignore_index).to(run.fabric.device)
    loader = pipeline.loader(batches, settings.workers)
    for batch, logits in outputs(bare(run.model), loader, mean, std, run.fabric.device):
        sketch.update(logits, (batch.labels if batch.masks is None else batch.masks).to(logits.device))
    return {name: float(value) for name, value in sketch.compute().items()}


def _evaluated(run: Run, sets: Sets, place: RunFolder, listen: Listener) -> dict[str, Any]:
    """Predict every set with the model that is kept, write the predictions and their numbers."""
    if run.recipe.training.keep == "best" and (place / BEST).exists():
        parts, _ = checkpoints.load(place / BEST)
        checkpoints.restore_module(bare(run.model), parts["model"], place / BEST)
    result: dict[str, Any] = {}
    if run.fabric.global_rank == 0:
        for name, dataset in sets.evaluated.items():
            # Not synchronised: the other processes wait at the barrier below.
            sketch = ConfidenceSketch(ignore_index=dataset.ignore_index, sync_on_compute=False).to(run.fabric.device)
            predictions = predicted(run.recipe, bare(run.model), dataset, run.fabric.device, sketch=sketch)
            predictions.save(place / f"{name}.npz")
            result[name] = {key: float(value) for key, value in sketch.compute().items()}
            listen("predicted", {"set": name, **result[name]})
        checkpoints.save(place / MODEL, {"model": bare(run.model).state_dict()}, {})
        first = evaluation_pipeline(run.recipe, sets.test).batch([0]).inputs
        facts = {
            "classes": list(sets.test.classes),
            "input_shape": list(first.shape[1:]),
            "images": sets.test.kind == "image",
        }
        place.write(MODEL_FACTS, facts | {"vocabulary_size": sets.vocabulary_size})
        place.write(RESULT, {"sets": result, "steps": run.progress.step, "history": run.progress.history})
    run.fabric.barrier()
    return _result(place)


def _together(mine: Tensor, world: int, whole: int) -> Tensor:
    """The parts of all processes as one batch, in the order of the samples before they were shared out."""
    short = -(-whole // world) - len(mine)  # of a batch that does not share out evenly some processes have one less
    mine = torch.cat([mine, mine[:1].expand(short, *mine.shape[1:])]) if short else mine.contiguous()
    parts = [torch.empty_like(mine) for _ in range(world)]
    torch.distributed.all_gather(parts, mine)
    return torch.stack(parts, dim=1).flatten(0, 1)[:whole]


def _seed_step(seed: int, step: int, rank: int, device: torch.device) -> None:
    """For everything that a step draws from torch's own stream, such as dropout.

    As torch.manual_seed, which takes a millisecond, for the generators that a step can draw from.
    """
    mixed = (seed * 0x9E3779B97F4A7C15 + step * 0xBF58476D1CE4E5B9 + rank * 0x94D049BB133111EB) % 2**64
    mixed = ((mixed ^ (mixed >> 31)) * 0x94D049BB133111EB) % 2**63  # so that neighbours have nothing in common
    torch.default_generator.manual_seed(mixed)
    if device.type == "cuda":
        torch.cuda.manual_seed(mixed)
    elif device.type == "mps":
        torch.mps.manual_seed(mixed)


def _result(place: RunFolder) -> dict[str, Any]:
    return json.loads((place / RESULT).read_text(encoding="utf-8"))
