"""One batch through model and loss before anything is written: what does not go together is found here.

Where it can be, only shapes go through the model (tensors on the device "meta" have no values), so that this costs no
time, draws no random numbers and changes nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from calibrant.models import physical_memory
from calibrant.training.forward import forward, logits_of
from calibrant.training.preparing import Run, bare
from calibrant.training.stepping import inputs_and_target


def rehearse(run: Run) -> None:
    """Raise a ValueError unless the model takes the data's inputs, gives a logit for each class, and the loss fits."""
    rows = list(range(min(2, len(run.pipeline), run.batches.size)))
    batch = run.pipeline.batch(rows).to(run.fabric.device)
    inputs, target = inputs_and_target(run, batch)
    _check_memory(run, inputs)
    logits = _logits(run, inputs)
    classes = len(run.pipeline.dataset.classes)
    if logits.dim() < 2 or len(logits) != len(inputs) or logits.shape[1] != classes:
        raise ValueError(
            f"model {run.recipe.model.name!r} gives {list(logits.shape)} for inputs of shape {list(inputs.shape)}: "
            f"logits of {classes} classes are needed, [{len(inputs)}, {classes}, ...]"
        )
    with torch.no_grad():
        run.loss(logits, target, ids=batch.indices)


def _check_memory(run: Run, inputs: Tensor) -> None:
    size = min(run.batches.size, run.batches.number) / run.fabric.world_size
    needed, memory = size * inputs[0].nbytes, physical_memory()
    if needed > memory:
        raise ValueError(
            f"a batch of {run.batches.size} inputs of shape {list(inputs.shape[1:])} takes {needed / 2**30:,.0f} GB, "
            f"and this machine has {memory / 2**30:,.0f} GB"
        )


def _logits(run: Run, inputs: Tensor) -> Tensor:
    """Zeros of the shape of the logits of a few inputs."""
    model, name = bare(run.model), run.recipe.model.name
    count = -(-min(run.batches.size, run.batches.number) // (run.fabric.world_size * run.recipe.training.accumulate))
    try:
        shape = _shape(model, inputs.new_empty((count, *inputs.shape[1:]), device="meta"), name)
        shape = torch.Size((len(inputs), *shape[1:])) if shape[:1] == (count,) else shape
    except ValueError:
        if ":" not in name and "/" not in name:
            raise
        # Somebody else's model may look at values, which are not there on "meta".
        with torch.no_grad(), torch.random.fork_rng(devices=[]), _evaluating(model):
            shape = logits_of(forward(model, inputs, name, first=True)).shape
    return torch.zeros(shape, dtype=inputs.dtype if inputs.is_floating_point() else None, device=inputs.device)


def _shape(model: nn.Module, inputs: Tensor, name: str) -> torch.Size:
    tensors = dict(model.named_parameters()) | dict(model.named_buffers())
    shapes = {key: torch.empty_like(tensor, device="meta") for key, tensor in tensors.items()}
    call = _Called(model, shapes)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        return logits_of(forward(call, inputs, name, first=True)).shape


class _Called(nn.Module):
    """A model with other tensors in the place of its own."""

    def __init__(self, model: nn.Module, tensors: dict[str, Tensor]):
        super().__init__()
        self._call = lambda inputs: torch.func.functional_call(model, tensors, (inputs,))

    def forward(self, inputs: Tensor) -> object:
        """As the model's own."""
        return self._call(inputs)


@contextlib.contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    before = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in before.items():
            module.training = training
