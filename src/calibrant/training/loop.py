"""The training loop: recipe in, run folder out. It knows no method by name.

A run depends on its recipe alone. Samples, augmentation, mixing and dropout draw from streams named by seed, epoch and
step, the learning rate is a function of the step, and a checkpoint holds the rest; so a run that was killed at any
moment and resumed ends bit for bit like one that was not (on a CPU, with the same number of threads).
"""

from __future__ import annotations

import contextlib
import itertools
import math
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from calibrant.data import Batch
from calibrant.metrics import describe
from calibrant.models import require_trust
from calibrant.training import checkpoints
from calibrant.training.checkpoints import restore_run, save_run
from calibrant.training.classification import Classification
from calibrant.training.datasets import DataSets, load_sets
from calibrant.training.distributed import end_together, make_fabric
from calibrant.training.optimisers import climb_weights
from calibrant.training.prediction import memory_errors
from calibrant.training.recipe import Recipe
from calibrant.training.run import DivergedError, EventLog, MicroBatch, Run, Task, prepare_run, unwrap
from calibrant.training.run_folder import BEST, LAST, MODEL, RESULT, RunFolder

#: The terms of the loss are computed for the log once in this many steps.
TERMS_EVERY = 25

#: What every step reports; steps that report more, the terms of the loss, are logged.
_EVERY_STEP = {"loss", "rate", "step", "epoch", "gradient_norm"}

_ADVICE = "The last good checkpoint is kept; a new run with a lower rate, or with optimiser.clip, may do better"


def _no_log(event: str, numbers: Mapping[str, Any]) -> None:
    pass


def train(
    recipe: Recipe,
    folder: str | Path,
    *,
    data: str | None = None,
    resume: bool = False,
    devices: int = 1,
    nodes: int = 1,
    accelerator: str = "auto",
    trust_code: bool = False,
    task: Task | None = None,
    event_log: EventLog = _no_log,
) -> dict[str, Any]:
    """Train the model of a recipe, and write everything about it into a folder.

    Nothing is written before recipe, data, model and loss have been checked against each other.

    Args:
        recipe: What to train.
        folder: The run folder; it must be new, or with ``resume`` hold a run of this recipe.
        data: Folder of the data, if not the recipe's.
        resume: Continue from the last checkpoint; a finished run is left as it is.
        devices: Processes or GPUs per machine.
        nodes: Number of machines.
        accelerator: As in Lightning Fabric.
        trust_code: Allow importing and calling a model given as ``package.module:factory``.
        task: What is trained; classification of samples or pixels if left out.
        event_log: Called with every event of the run and its numbers.

    Returns:
        The metrics of every set, as in ``result.json``.

    Raises:
        DivergedError: The loss became NaN or infinite.
    """
    run_folder, task = RunFolder(folder), task or Classification()
    require_trust(recipe.model.name, recipe.model.options, trust_code)
    fabric = make_fabric(recipe, accelerator, devices, nodes)
    is_first = fabric.global_rank == 0
    event_log = event_log if is_first else _no_log
    with end_together(fabric), memory_errors(), contextlib.ExitStack() as stack:
        # A folder that exists is locked at once; a new one is made when there is something to put into it.
        is_finished = _lock(stack, fabric, run_folder, recipe, resume, make=False)
        if not is_finished:
            sets = task.select(load_sets(recipe, data))
            run = prepare_run(recipe, fabric, sets, task, trust_code=trust_code)
            task.rehearse(run)
            # Another process may have finished the run in the meantime.
            is_finished = _lock(stack, fabric, run_folder, recipe, resume, make=True)
        if is_finished:
            result = run_folder.result(recipe)
            event_log("finished already", {})
            return result
        restore_run(run, run_folder)
        if is_first:
            event_log = _log_to_folder(event_log, run_folder, recipe.training.tensorboard)
            run_folder.claim(recipe, data)
            run_folder.forget_after(run.progress.step, run.progress.epoch)
        numbers = {"steps": run.steps, "step": run.progress.step, "parameters": run.size}
        event_log("start", numbers | {"left_out": sets.left_out})
        _train(run, sets, run_folder, event_log)
        _evaluate(run, sets, run_folder, event_log)
        return run_folder.result()


def _lock(
    stack: contextlib.ExitStack, fabric: Any, folder: RunFolder, recipe: Recipe, resume: bool, *, make: bool
) -> bool:
    """Lock the run folder, unless it is new and ``make`` is false; return whether the run is finished.

    If the folder cannot be locked, every process raises.
    """
    problem: ValueError | None = None
    if fabric.global_rank == 0:
        try:
            folder.check(recipe, resume)
            if not folder.is_locked and (make or not (folder.is_new or (folder / RESULT).exists())):
                stack.enter_context(folder.lock())
                folder.check(recipe, resume)
        except ValueError as error:
            problem = error
    if fabric.broadcast(problem is not None):
        raise problem or ValueError("cannot lock the run folder")
    return bool(fabric.broadcast((folder / RESULT).exists()))


def _train(run: Run, sets: DataSets, folder: RunFolder, event_log: EventLog) -> None:
    progress = run.progress
    last_save = time.monotonic()
    with _delay_interrupts() as interrupts:
        while progress.step < run.steps:
            run.batches.epoch, run.batches.start = progress.epoch, progress.batch
            run.model.train()
            for batch in run.loader:
                numbers = step(run, batch)
                progress.batch, progress.step = progress.batch + 1, progress.step + 1
                event_log("step", numbers | {"step": progress.step, "epoch": progress.epoch})
                if progress.step >= run.steps:
                    break
                is_interrupted = _in_any_process(run, bool(interrupts))
                if is_interrupted or time.monotonic() - last_save > run.recipe.training.checkpoint_seconds:
                    _check_weights(run)
                    save_run(run, folder / LAST)
                    last_save = time.monotonic()
                    event_log("checkpoint", {"step": progress.step})
                if is_interrupted:
                    raise KeyboardInterrupt
            progress.epoch, progress.batch = progress.epoch + 1, 0
            _check_weights(run)
            _end_epoch(run, sets, folder, event_log)
            save_run(run, folder / LAST)
            last_save = time.monotonic()
            if _in_any_process(run, bool(interrupts)):
                raise KeyboardInterrupt


def step(run: Run, batch: Batch) -> dict[str, float]:
    """One step of the optimiser: forward and backward by micro-batches, then the update.

    Returns:
        The loss and the learning rate; on some steps the terms of the loss; with clipping the norm of the gradient.
    """
    recipe, progress, fabric = run.recipe, run.progress, run.fabric
    epoch = progress.step / run.steps_per_epoch
    rate = recipe.optimiser.rate * recipe.schedule.factor(epoch, run.epochs, progress.step)
    for group in run.optimiser.param_groups:
        group["lr"] = rate * group["factor"]
    _seed_step(recipe.seed, progress.step, fabric.global_rank, fabric.device)
    with memory_errors():
        batch = batch.to(fabric.device, non_blocking=True)
        parts = run.task.parts(run, batch)

        value, outputs = _gradients(run, parts)
        _check_loss(run, value, rate, batch)
        numbers = {"loss": value, "rate": rate}
        if progress.step % TERMS_EVERY == 0:
            with torch.no_grad():
                numbers |= run.task.terms(run, parts[0], outputs[0])
        if run.loss.has_memory:
            run.task.remember(run, parts, outputs)
        if recipe.optimiser.sam is not None:
            with climb_weights(run.parameters, recipe.optimiser.sam):
                _check_loss(run, _gradients(run, parts)[0], rate, batch)
        if recipe.optimiser.clip is not None:
            # Fabric undoes the loss scaling of 16-bit precision first.
            norm = fabric.clip_gradients(run.model, run.optimiser, max_norm=recipe.optimiser.clip)
            numbers["gradient_norm"] = float(norm)
        run.optimiser.step()
    return numbers


def _gradients(run: Run, parts: list[MicroBatch]) -> tuple[float, list[Any]]:
    """Compute the gradients; return the loss, NaN if it cannot be computed, and the outputs."""
    run.optimiser.zero_grad(set_to_none=True)
    values: list[Tensor] = []
    outputs: list[Any] = []
    for number, part in enumerate(parts, start=1):
        with _gradient_exchange(run, now=number == len(parts)):
            value, output = run.task.loss(run, part)
            if _in_any_process(run, value is None) or value is None:
                return math.nan, outputs
            run.backward(value)
        values.append(value.detach())
        outputs.append(output)
    return float(torch.stack(values).sum() if len(values) > 1 else values[0]), outputs


def _check_loss(run: Run, value: float, rate: float, batch: Batch) -> None:
    if not math.isfinite(value):
        raise DivergedError(
            f"the loss is {value} at step {run.progress.step + 1} with learning rate {rate:g}; samples "
            f"{', '.join(batch.ids[:8])}{', ...' if len(batch) > 8 else ''}. {_ADVICE}"
        )


def _gradient_exchange(run: Run, now: bool) -> contextlib.AbstractContextManager[Any]:
    """Let processes exchange gradients once per step, with the last part of the batch."""
    if now or run.fabric.world_size == 1:
        return contextlib.nullcontext()
    model: Any = getattr(run.model, "_forward_module", run.model)
    return model.no_sync() if hasattr(model, "no_sync") else contextlib.nullcontext()


def _seed_step(seed: int, step: int, rank: int, device: torch.device) -> None:
    """Seed torch's generator for one step: dropout draws from it.

    torch.manual_seed seeds every generator and takes a millisecond; this seeds those that a step uses.
    """
    mixed = (seed * 0x9E3779B97F4A7C15 + step * 0xBF58476D1CE4E5B9 + rank * 0x94D049BB133111EB) % 2**64
    mixed = ((mixed ^ (mixed >> 31)) * 0x94D049BB133111EB) % 2**63  # unrelated for neighbouring steps
    torch.default_generator.manual_seed(mixed)
    if device.type == "cuda":
        torch.cuda.manual_seed(mixed)
    elif device.type == "mps":
        torch.mps.manual_seed(mixed)


def _check_weights(run: Run) -> None:
    """Raise if a weight or buffer of the model is NaN or infinite."""
    for name, tensor in unwrap(run.model).state_dict().items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise DivergedError(f"{name} became NaN or infinite after step {run.progress.step}. {_ADVICE}")


def _in_any_process(run: Run, here: bool) -> bool:
    """Whether ``here`` is true in any process."""
    if run.fabric.world_size == 1:
        return here
    return bool(run.fabric.all_reduce(torch.tensor(float(here), device=run.fabric.device), reduce_op="sum") > 0)


def _end_epoch(run: Run, sets: DataSets, folder: RunFolder, event_log: EventLog) -> None:
    """Validate, let the loss learn from it, log, and keep the best model."""
    progress, training = run.progress, run.recipe.training
    entry: dict[str, Any] = {"epoch": progress.epoch, "step": progress.step}
    if run.fabric.world_size > 1:
        for buffer in unwrap(run.model).buffers():  # each process has its own running means; the first one's are saved
            torch.distributed.broadcast(buffer, src=0)
    if sets.val is not None:
        entry |= {f"val_{name}": value for name, value in run.task.validate(run, sets.val).items()}
    run.loss.end_epoch(run.observed)
    progress.history.append(entry)
    event_log("epoch", entry)
    value, sign = entry.get(f"val_{training.best_by}", math.nan), describe(training.best_by).sign
    is_better = not math.isnan(value) and (progress.best is None or sign * value < sign * progress.best)
    if training.keep == "best" and is_better:
        progress.best = value
        save_run(run, folder / BEST)


def _evaluate(run: Run, sets: DataSets, folder: RunFolder, event_log: EventLog) -> None:
    """Evaluate the kept model on every set; write its predictions, metrics and weights."""
    model = unwrap(run.model)
    if run.recipe.training.keep == "best" and (folder / BEST).exists():
        checkpoints.restore_network(model, folder / BEST)
    if run.fabric.global_rank == 0:  # the other processes wait at the barrier below
        numbers = run.task.evaluate(run, sets, folder, event_log)
        checkpoints.save(folder / MODEL, {checkpoints.NETWORK: model.state_dict()}, {})
        folder.write(RESULT, {"sets": numbers, "steps": run.progress.step, "history": run.progress.history})
    run.fabric.barrier()


def _log_to_folder(event_log: EventLog, folder: RunFolder, tensorboard: bool) -> EventLog:
    """An event log that also writes epochs, and steps with the terms of the loss, to the folder's log."""
    writer: Any = None
    if tensorboard:
        from torch.utils.tensorboard import SummaryWriter

        if (folder / "tensorboard").is_symlink():
            raise ValueError(f"{folder / 'tensorboard'} is a link, and nothing is written through links: remove it")
        writer = SummaryWriter(str(folder / "tensorboard"))

    def write(event: str, numbers: Mapping[str, Any]) -> None:
        if event == "epoch" or (event == "step" and not numbers.keys() <= _EVERY_STEP):
            folder.log({"event": event, **numbers})
            if writer is not None:
                for name, value in numbers.items():
                    if isinstance(value, float):
                        writer.add_scalar(f"{event}/{name}", value, numbers["step"])
                writer.flush()
        event_log(event, numbers)

    return write


@contextlib.contextmanager
def _delay_interrupts() -> Iterator[list[int]]:
    """Inside, Ctrl-C is recorded in the list so that no step is cut short; a second Ctrl-C acts at once."""
    interrupts: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield interrupts
        return
    before = signal.getsignal(signal.SIGINT)

    def note(number: int, frame: Any) -> None:
        if interrupts and callable(before):
            before(number, frame)
        interrupts.append(number)

    signal.signal(signal.SIGINT, note)
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, before)


def estimate(recipe: Recipe, data: str | None = None, steps: int = 5, *, trust_code: bool = False) -> dict[str, Any]:
    """Size and speed of a recipe on this machine, from a few real steps with data loading; nothing is written.

    Args:
        recipe: What would be trained.
        data: Folder of the data, if not the recipe's.
        steps: Number of timed steps, after a first one.
        trust_code: As for `train`.
    """
    require_trust(recipe.model.name, recipe.model.options, trust_code)
    sets = load_sets(recipe, data)
    run = prepare_run(recipe, make_fabric(recipe, "auto", 1, 1), sets, Classification(), trust_code=trust_code)
    run.task.rehearse(run)
    run.model.train()
    times = [time.perf_counter()]
    for batch in itertools.islice(run.loader, steps + 1):
        step(run, batch)
        run.progress.step += 1
        times.append(time.perf_counter())
    durations = sorted(b - a for a, b in itertools.pairwise(times))
    seconds = durations[(len(durations) - 1) // 2]
    return {
        "parameters": run.size,
        "samples": len(sets.train),
        "steps": run.steps,
        "seconds_per_step": seconds,
        "seconds": seconds * run.steps,
    }
