"""One training step, in one process or several."""

from __future__ import annotations

import contextlib
import math
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from calibrant.data import Batch
from calibrant.training.forward import memory_errors
from calibrant.training.optimisers import climb_weights, set_rate
from calibrant.training.run import MicroBatch, Run, unwrap

#: The terms of the loss are computed for the log once in this many steps.
TERMS_EVERY = 25

_ADVICE = "The last good checkpoint is kept; a new run with a lower rate, or with optimiser.clip, may do better"


class DivergedError(ArithmeticError, ValueError):
    """The loss became NaN or infinite; the last good checkpoint is kept."""


def step(run: Run, batch: Batch) -> dict[str, float]:
    """One step of the optimiser: forward and backward by micro-batches, then the update.

    Returns:
        The loss and the learning rate; on some steps the terms of the loss; with clipping the norm of the gradient.
    """
    recipe, progress, fabric = run.recipe, run.progress, run.fabric
    epoch = progress.step / run.steps_per_epoch
    rate = recipe.optimiser.rate * recipe.schedule.factor(epoch, run.epochs, progress.step)
    set_rate(run.optimiser, rate)
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


def check_weights(run: Run) -> None:
    """Raise if a weight or buffer of the model is NaN or infinite."""
    for name, tensor in unwrap(run.model).state_dict().items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise DivergedError(f"{name} became NaN or infinite after step {run.progress.step}. {_ADVICE}")


def in_any_process(run: Run, here: bool) -> bool:
    """Whether ``here`` is true in any process."""
    if run.fabric.world_size == 1:
        return here
    return bool(run.fabric.all_reduce(torch.tensor(float(here), device=run.fabric.device), reduce_op="sum") > 0)


def _gradients(run: Run, parts: list[MicroBatch]) -> tuple[float, list[Any]]:
    """Compute the gradients; return the loss, NaN if it cannot be computed, and the outputs."""
    run.optimiser.zero_grad(set_to_none=True)
    values: list[Tensor] = []
    outputs: list[Any] = []
    for number, part in enumerate(parts, start=1):
        with _gradient_exchange(run, now=number == len(parts)):
            value, output = run.task.loss(run, part)
            if in_any_process(run, value is None) or value is None:
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


def _gradient_exchange(run: Run, now: bool) -> AbstractContextManager[Any]:
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
