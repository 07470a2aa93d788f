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
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from calibrant.data import Batch, Batches, Dataset, Pipeline, normalised
from calibrant.data.loading import sample_generator
from calibrant.metrics import METRICS, ConfidenceSketch
from calibrant.targets import adaptive_targets, mixed_adaptive_targets
from calibrant.training import checkpoints
from calibrant.training.optimisers import climbed, set_rate
from calibrant.training.preparing import Run, bare, make_fabric, predicted, prepared, save, size
from calibrant.training.recipe import Recipe, chain
from calibrant.training.run_folder import BEST, LAST, MODEL, MODEL_FACTS, RESULT, RunFolder
from calibrant.training.sets import Sets, load_sets

#: Told what a run is doing: an event's name and its numbers.
Listener = Callable[[str, Mapping[str, Any]], None]

#: The terms of the loss are computed for the log every so many steps.
TERMS_EVERY = 25

# Streams of random numbers besides those of the samples (0 and up) and of their order (-1).
_MIXING, _STEP = -2, -3


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
    with place.held() if fabric.global_rank == 0 else contextlib.nullcontext():
        if fabric.global_rank == 0:
            place.claim(recipe, resume)
        fabric.barrier()
        if (place / RESULT).exists():
            listen("finished already", {})
            return _result(place)
        sets = load_sets(recipe, data)
        run = prepared(recipe, fabric, sets, place)
        if fabric.global_rank == 0:
            place.forget_after(run.progress.step)
            listen = _logged(listen, place, recipe.training.tensorboard)
        listen("start", {"steps": run.steps, "step": run.progress.step, "parameters": size(run.model)})
        _train(run, sets, place, listen)
        return _evaluated(run, sets, place, listen)


def _train(run: Run, sets: Sets, place: RunFolder, listen: Listener) -> None:
    """From where the run stands to its last step."""
    progress = run.progress
    saved = time.monotonic()
    while progress.step < run.steps:
        run.batches.epoch, run.batches.start = progress.epoch, progress.batch
        run.model.train()
        with _interrupts_between_steps() as interrupted:
            for batch in run.pipeline.loader(run.batches, run.recipe.training.workers):
                numbers = step(run, batch)
                progress.batch, progress.step = progress.batch + 1, progress.step + 1
                listen("step", numbers | {"step": progress.step, "epoch": progress.epoch})
                if progress.step >= run.steps:
                    break
                if interrupted or time.monotonic() - saved > run.recipe.training.checkpoint_seconds:
                    save(run, place / LAST)
                    saved = time.monotonic()
                    listen("checkpoint", {"step": progress.step})
                if interrupted:
                    raise KeyboardInterrupt
        run.loss.end_epoch()
        progress.epoch, progress.batch = progress.epoch + 1, 0
        _end_of_epoch(run, sets, place, listen)
        save(run, place / LAST)
        saved = time.monotonic()


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
def _interrupts_between_steps() -> Iterator[list[int]]:
    """Inside, Ctrl-C only fills the list, so that a step is never cut in two; a second Ctrl-C does not wait."""
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
                if progress.step % TERMS_EVERY == 0 and not terms:
                    with torch.no_grad():
                        found = run.loss.terms(logits.detach(), t, ids=ids)
                    terms.update({name: float(term) for name, term in found.items()})
                _remember(run, logits.detach(), t, ids)
        return total

    terms: dict[str, float] = {}
    value = gradients(remember=True)
    if not bool(torch.isfinite(value)):
        raise DivergedError(
            f"the loss is {float(value)} at step {progress.step + 1} with learning rate {rate:g}; samples "
            f"{', '.join(batch.ids[:8])}{', ...' if len(batch) > 8 else ''}. The last good checkpoint is kept."
        )
    if recipe.optimiser.sam is not None:
        with climbed(parameters, recipe.optimiser.sam):
            gradients(remember=False)
    numbers = {"loss": float(value), "rate": rate} | terms
    if recipe.optimiser.clip is not None:
        # Fabric undoes the loss scaling of 16-bit precision first.
        norm = run.fabric.clip_gradients(run.model, run.optimiser, max_norm=recipe.optimiser.clip)
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
    listen("epoch", entry)
    training = run.recipe.training
    if training.keep == "best" and (value := entry.get(f"val_{training.best_by}")) is not None:
        sign = 1 if METRICS[training.best_by].better == "high" else -1
        if run.progress.best is None or sign * value > sign * run.progress.best:
            run.progress.best = value
            save(run, place / BEST)


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
        checkpoints.restore_module(bare(run.model), parts["model"], place / BEST)
    result: dict[str, Any] = {}
    if run.fabric.global_rank == 0:
        for name, dataset in sets.evaluated.items():
            predictions = predicted(run.recipe, bare(run.model), dataset, run.fabric.device)
            predictions.save(place / f"{name}.npz")
            # Not synchronised: the other processes wait at the barrier below.
            sketch = ConfidenceSketch(ignore_index=dataset.ignore_index, sync_on_compute=False)
            sketch.update(torch.from_numpy(predictions.logits), torch.from_numpy(predictions.labels))
            result[name] = {key: float(value) for key, value in sketch.compute().items()}
            listen("predicted", {"set": name, **result[name]})
        checkpoints.save(place / MODEL, {"model": bare(run.model).state_dict()}, {})
        first = Pipeline(sets.test, chain(run.recipe.data.steps)).batch([0]).inputs
        facts = {
            "classes": list(sets.test.classes),
            "input_shape": list(first.shape[1:]),
            "images": sets.test.kind == "image",
        }
        place.write(MODEL_FACTS, facts | {"vocabulary_size": sets.vocabulary_size})
        place.write(RESULT, {"sets": result, "steps": run.progress.step, "history": run.progress.history})
    run.fabric.barrier()
    return _result(place)


def _together(mine: Tensor, world: int) -> Tensor:
    """The parts of all processes as one batch, in the order of the samples before they were shared out."""
    parts = [torch.empty_like(mine) for _ in range(world)]
    torch.distributed.all_gather(parts, mine.contiguous())
    return torch.stack(parts, dim=1).flatten(0, 1)


def _logits(output: Any) -> Tensor:
    return output["out"] if isinstance(output, dict) else output


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
