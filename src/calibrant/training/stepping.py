"""One step of training, by whatever loss, mixing and target a recipe has, in one process or several."""

from __future__ import annotations

import contextlib
import math
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from calibrant.data import Batch, normalised, sample_generator
from calibrant.targets import adaptive_targets, mixed_adaptive_targets
from calibrant.training.forward import forward, logits_of, memory_told
from calibrant.training.optimisers import climbed, set_rate
from calibrant.training.preparing import Run, bare, dtype_of

#: The terms of the loss are computed for the log every so many steps.
TERMS_EVERY = 25

# The stream of random numbers of mixing and blanking; those of the samples are 0 and up, that of their order is -1.
_MIXING = -2

_NOTHING = contextlib.nullcontext()


class DivergedError(ArithmeticError):
    """The loss became NaN or infinite; the last good checkpoint is kept."""


def step(run: Run, batch: Batch) -> dict[str, float]:
    """One step of the optimiser: forward and backward by micro-batches, then the update."""
    with memory_told():
        return _step(run, batch)


def _step(run: Run, batch: Batch) -> dict[str, float]:
    recipe, progress, fabric = run.recipe, run.progress, run.fabric
    epoch = progress.step / run.steps_per_epoch
    rate = recipe.optimiser.rate * recipe.schedule.factor(epoch, run.epochs, progress.step)
    set_rate(run.optimiser, rate)
    _seed_step(recipe.seed, progress.step, fabric.global_rank, fabric.device)
    batch = batch.to(fabric.device, non_blocking=True)
    inputs, target = inputs_and_target(run, batch)
    parts = _parts(run, inputs, target, batch.indices)

    value, logits = _gradients(run, parts)
    _check_loss(run, value, rate, batch)
    numbers = {"loss": value, "rate": rate}
    if progress.step % TERMS_EVERY == 0:
        with torch.no_grad():
            terms = run.loss.terms(logits[0], parts[0].target, ids=parts[0].ids)
        numbers |= {name: float(term) for name, term in terms.items()}
    if run.loss.has_memory:
        _remember(run, torch.cat(logits), target, batch.indices)
    if recipe.optimiser.sam is not None:
        with climbed(run.parameters, recipe.optimiser.sam):
            _check_loss(run, _gradients(run, parts)[0], rate, batch)
    if recipe.optimiser.clip is not None:
        # Fabric undoes the loss scaling of 16-bit precision first.
        norm = fabric.clip_gradients(run.model, run.optimiser, max_norm=recipe.optimiser.clip)
        numbers["gradient_norm"] = float(norm)
    run.optimiser.step()
    return numbers


class _Part(NamedTuple):
    """A micro-batch, and its weight in the mean over the batch of all processes."""

    inputs: Tensor
    target: Tensor
    ids: Tensor
    weight: float


def _parts(run: Run, inputs: Tensor, target: Tensor, ids: Tensor) -> list[_Part]:
    """The micro-batches of a step, weighted by their samples, or by their labelled pixels."""
    number, world = run.recipe.training.accumulate, run.fabric.world_size
    chunks = list(zip(inputs.chunk(number), target.chunk(number), ids.chunk(number), strict=True))
    if target.dim() == 3:
        counts = [int((t != run.loss.ignore_index).sum()) for _, t, _ in chunks]
        whole = int(run.fabric.all_reduce(torch.tensor(sum(counts)), reduce_op="sum")) if world > 1 else sum(counts)
    else:
        counts, whole = [len(x) for x, _, _ in chunks], run.batch_size
    # Gradients are averaged over processes, whence their number.
    return [_Part(*chunk, count * world / max(whole, 1)) for chunk, count in zip(chunks, counts, strict=True)]


def _gradients(run: Run, parts: list[_Part]) -> tuple[float, list[Tensor]]:
    """Leave the gradient of the loss in the parameters; gives the loss, NaN if it has none, and the logits."""
    run.optimiser.zero_grad(set_to_none=True)
    values: list[Tensor] = []
    seen: list[Tensor] = []
    for number, part in enumerate(parts, start=1):
        with _exchanged(run, now=number == len(parts)):
            logits = logits_of(forward(run.model, part.inputs, run.recipe.model.name, first=not run.begun))
            run.begun = True
            value = _loss(run, logits, part)
            if any_of(run, value is None) or value is None:
                return math.nan, seen
            run.backward(value)
        values.append(value.detach())
        seen.append(logits.detach())
    return float(torch.stack(values).sum() if len(values) > 1 else values[0]), seen


def _loss(run: Run, logits: Tensor, part: _Part) -> Tensor | None:
    """The share of a part in the loss; None if its logits are no numbers, which losses refuse."""
    try:
        value = run.loss(logits, part.target, ids=part.ids)
    except ValueError:
        if bool(torch.isfinite(logits).all()):
            raise
        return None
    return value if part.weight == 1.0 else value * part.weight


def _check_loss(run: Run, value: float, rate: float, batch: Batch) -> None:
    if not math.isfinite(value):
        raise DivergedError(
            f"the loss is {value} at step {run.progress.step + 1} with learning rate {rate:g}; samples "
            f"{', '.join(batch.ids[:8])}{', ...' if len(batch) > 8 else ''}. The last good checkpoint is kept; a "
            "new run with a lower rate, or with optimiser.clip, may do better."
        )


def any_of(run: Run, here: bool) -> bool:
    """Whether something is so in any of the processes."""
    if run.fabric.world_size == 1:
        return here
    return bool(run.fabric.all_reduce(torch.tensor(float(here), device=run.fabric.device), reduce_op="sum") > 0)


def _exchanged(run: Run, now: bool) -> AbstractContextManager[Any]:
    """Processes exchange gradients once a step, with the last part of the batch."""
    if now or run.fabric.world_size == 1:
        return _NOTHING
    model: Any = getattr(run.model, "_forward_module", run.model)
    return model.no_sync() if hasattr(model, "no_sync") else _NOTHING


def inputs_and_target(run: Run, batch: Batch) -> tuple[Tensor, Tensor]:
    """What the model sees, and what it is trained towards."""
    recipe, classes = run.recipe, len(run.pipeline.dataset.classes)
    dtype = dtype_of(recipe)
    if run.pipeline.dataset.kind != "image":
        inputs = batch.inputs.to(dtype) if batch.inputs.is_floating_point() else batch.inputs
        return inputs, batch.labels
    inputs = normalised(batch.inputs, *recipe.data.normalisation, dtype)
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


def check_weights(run: Run) -> None:
    """See that what would be saved is worth it."""
    for name, tensor in bare(run.model).state_dict().items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise DivergedError(
                f"{name} became NaN or infinite after step {run.progress.step}. The last good checkpoint is kept; a "
                "new run with a lower rate, or with optimiser.clip, may do better."
            )


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
