"""The training loop: recipe in, run folder out. It knows no method by name.

A run depends on its recipe alone. Samples, augmentation, mixing and dropout draw from streams named by seed, epoch and
step, the learning rate is a function of the step, and a checkpoint holds the rest; so a run that was killed, at any
moment, ends bit for bit as the one that was not (on a CPU, with as many threads).
"""

from __future__ import annotations

import contextlib
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from calibrant.data import Batches, Dataset
from calibrant.metrics import describe
from calibrant.models import require_trust
from calibrant.training import checkpoints
from calibrant.training.forward import memory_told
from calibrant.training.predicting import Tally, must_fit, outputs
from calibrant.training.preparing import Run, bare, predicted, prepare_run, restore, save, size
from calibrant.training.processes import make_fabric, together
from calibrant.training.recipe import Recipe
from calibrant.training.rehearsal import rehearse
from calibrant.training.run_folder import BEST, LAST, MODEL, MODEL_FACTS, RESULT, RunFolder
from calibrant.training.sets import Sets, evaluation_pipeline, load_sets
from calibrant.training.stepping import DivergedError, any_of, check_weights, step

#: Told what a run is doing: an event's name and its numbers.
Listener = Callable[[str, Mapping[str, Any]], None]


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
    listen: Listener = lambda event, numbers: None,
) -> dict[str, Any]:
    """Train the model of a recipe, and write everything about it into a folder.

    Nothing is written before recipe, data, model and loss have been seen to go together.

    Args:
        recipe: What to do.
        folder: Of the run; it must be new, or this recipe's with ``resume``.
        data: Where the data lies, if not where the recipe says.
        resume: Go on from the last checkpoint; a finished run is left as it is.
        devices: Processes or GPUs per node.
        nodes: Machines.
        accelerator: As Lightning Fabric takes it.
        trust_code: Import and call a model that is neither Calibrant's, torchvision's nor timm's, as
            ``package.module:factory`` is.
        listen: Told of every step, epoch and checkpoint.

    Returns:
        The numbers of every set that was predicted, as ``result.json`` holds them.

    Raises:
        DivergedError: The loss is not finite.
    """
    place = RunFolder(folder)
    require_trust(recipe.model.name, recipe.model.options, trust_code)
    fabric = make_fabric(recipe, accelerator, devices, nodes)
    listen = listen if fabric.global_rank == 0 else _nobody
    with together(fabric), memory_told(), contextlib.ExitStack() as stack:
        # A folder that is there is held at once; a new one is made when there is something to put into it.
        if _enter(stack, fabric, place, recipe, resume, make=False):
            return _finished(place, recipe, listen)
        sets = load_sets(recipe, data)
        for dataset in sets.evaluated.values():
            must_fit(evaluation_pipeline(recipe, dataset), recipe.data.pixels)
        run = prepare_run(recipe, fabric, sets, None, trust_code=trust_code)
        rehearse(run)
        if _enter(stack, fabric, place, recipe, resume, make=True):  # by another process, in the meantime
            return _finished(place, recipe, listen)
        restore(run, place)
        return _run(run, sets, place, data, listen)


def _enter(
    stack: contextlib.ExitStack, fabric: Any, place: RunFolder, recipe: Recipe, resume: bool, *, make: bool
) -> bool:
    """Lock the run folder, unless it is new and not to be made yet, and tell whether the run is finished.

    Every process hears if the folder cannot be locked.
    """
    problem: ValueError | None = None
    if fabric.global_rank == 0:
        try:
            place.check(recipe, resume)
            if not place.is_locked and (make or not (place.is_new or (place / RESULT).exists())):
                stack.enter_context(place.held())
                place.check(recipe, resume)
        except ValueError as error:
            problem = error
    if fabric.broadcast(problem is not None):
        raise problem or ValueError("cannot lock the run folder")
    return bool(fabric.broadcast((place / RESULT).exists()))


def _finished(place: RunFolder, recipe: Recipe, listen: Listener) -> dict[str, Any]:
    result = place.result(recipe)
    listen("finished already", {})
    return result


def _run(run: Run, sets: Sets, place: RunFolder, data: str | None, listen: Listener) -> dict[str, Any]:
    """A run in a folder that is held."""
    if run.fabric.global_rank == 0:
        listen = _logged(listen, place, run.recipe.training.tensorboard)
        place.claim(run.recipe, data)
        place.forget_after(run.progress.step, run.progress.epoch)
    numbers = {"steps": run.steps, "step": run.progress.step, "parameters": size(run.model)}
    listen("start", numbers | {"left_out": sets.left_out})
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
                stopped = any_of(run, bool(interrupted))
                if stopped or time.monotonic() - saved > run.recipe.training.checkpoint_seconds:
                    check_weights(run)
                    save(run, place / LAST)
                    saved = time.monotonic()
                    listen("checkpoint", {"step": progress.step})
                if stopped:
                    raise KeyboardInterrupt
            run.loss.end_epoch()
            progress.epoch, progress.batch = progress.epoch + 1, 0
            check_weights(run)
            _end_of_epoch(run, sets, place, listen)
            save(run, place / LAST)
            saved = time.monotonic()
            if any_of(run, bool(interrupted)):
                raise KeyboardInterrupt


def _nobody(event: str, numbers: Mapping[str, Any]) -> None:
    """What every process but the first tells."""


def _logged(listen: Listener, place: RunFolder, tensorboard: bool) -> Listener:
    """Tell the log what the listener is told: every epoch, and the steps whose terms are known."""
    writer = _tensorboard(place) if tensorboard else None

    def record(event: str, numbers: Mapping[str, Any]) -> None:
        if event == "epoch" or (event == "step" and "fidelity" in numbers):
            place.log({"event": event, **numbers})
            if writer is not None:
                for name, value in numbers.items():
                    if isinstance(value, float):
                        writer.add_scalar(f"{event}/{name}", value, numbers["step"])
                writer.flush()
        listen(event, numbers)

    return record


def _tensorboard(place: RunFolder) -> Any:
    from torch.utils.tensorboard import SummaryWriter

    folder = place / "tensorboard"
    if folder.is_symlink():
        raise ValueError(f"{folder} is a link, and nothing is written through links: remove it")
    return SummaryWriter(str(folder))


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


def _end_of_epoch(run: Run, sets: Sets, place: RunFolder, listen: Listener) -> None:
    """Validate from one sketch, log, and keep the best."""
    entry: dict[str, Any] = {"epoch": run.progress.epoch, "step": run.progress.step}
    if run.fabric.world_size > 1:
        for buffer in bare(run.model).buffers():  # running means are each process's own; the first one's are saved
            torch.distributed.broadcast(buffer, src=0)
    if sets.val is not None:
        entry |= {f"val_{name}": value for name, value in _validated(run, sets.val).items()}
    run.progress.history.append(entry)
    listen("epoch", entry)
    training = run.recipe.training
    value = entry.get(f"val_{training.best_by}", math.nan)
    if training.keep == "best" and not math.isnan(value):
        sign = describe(training.best_by).sign
        if run.progress.best is None or sign * value < sign * run.progress.best:
            run.progress.best = value
            save(run, place / BEST)


def _validated(run: Run, val: Dataset) -> dict[str, float]:
    """Accuracy, NLL, ECE, AURC and the rest of one pass; every process takes its share of the samples."""
    settings = run.recipe.training
    pipeline = evaluation_pipeline(run.recipe, val)
    batches = Batches(len(pipeline), settings.eval_batch_size, shuffle=False, rank=run.fabric.global_rank,
                      world=run.fabric.world_size)  # fmt: skip
    mean, std = run.recipe.data.normalisation
    tally = Tally(val, run.fabric.device, shared=True)
    loader = pipeline.loader(batches, settings.workers)
    for batch, logits in outputs(bare(run.model), loader, mean, std, run.fabric.device):
        if not bool(torch.isfinite(logits).all()):
            raise DivergedError(f"logits of validation samples became NaN or infinite after step {run.progress.step}.")
        tally.update(logits, batch.labels if batch.masks is None else batch.masks)
    return tally.compute()


def _evaluated(run: Run, sets: Sets, place: RunFolder, listen: Listener) -> dict[str, Any]:
    """Predict every set with the model that is kept, write the predictions and their numbers."""
    if run.recipe.training.keep == "best" and (place / BEST).exists():
        checkpoints.restore_network(bare(run.model), place / BEST)
    result: dict[str, Any] = {}
    if run.fabric.global_rank == 0:
        for name, dataset in sets.evaluated.items():
            listen("predicting", {"set": name})
            tally = Tally(dataset, run.fabric.device)  # not shared: the other processes wait at the barrier below
            predictions = predicted(run.recipe, bare(run.model), dataset, run.fabric.device, tally=tally)
            predictions.save(place / f"{name}.npz")
            result[name] = tally.compute()
            listen("predicted", {"set": name, **result[name]})
        checkpoints.save(place / MODEL, {checkpoints.NETWORK: bare(run.model).state_dict()}, {})
        first = evaluation_pipeline(run.recipe, sets.test).batch([0]).inputs
        facts = {
            "classes": list(sets.test.classes),
            "input_shape": list(first.shape[1:]),
            "images": sets.test.kind == "image",
            "input_dtype": str(first.dtype).removeprefix("torch."),
        }
        place.write(MODEL_FACTS, facts | {"vocabulary_size": sets.vocabulary_size})
        place.write(RESULT, {"sets": result, "steps": run.progress.step, "history": run.progress.history})
    run.fabric.barrier()
    return _result(place)


def _result(place: RunFolder) -> dict[str, Any]:
    return place.result()
