"""Checkpoints: one safetensors file with all tensors of a run, and its numbers as JSON in the file's header.

The file is written aside and renamed, so a process that is killed at any moment leaves the last complete one. Nothing
is unpickled. Names, shapes and types are compared with what the run expects before a tensor is read.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from calibrant.base.files import json_value, nulls_as_nan, open_regular, written_aside
from calibrant.data import Dataset
from calibrant.metrics import describe
from calibrant.models import one_line
from calibrant.training.recipe import Recipe
from calibrant.training.records import State, check_record, parse_values
from calibrant.training.run import Run, RunProgress, unwrap
from calibrant.training.run_folder import BEST, LAST, RunFolder

FORMAT = "calibrant-checkpoint"
VERSION = 1
#: The parts of a checkpoint.
NETWORK, OPTIMISER, LOSS = "model", "optimiser", "loss"

Parts = Mapping[str, Mapping[str, Tensor]]

_TYPES = {
    "BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "I16": torch.int16, "I32": torch.int32,
    "I64": torch.int64, "F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64,
}  # fmt: skip


def save(path: Path, parts: Parts, state: Mapping[str, Any]) -> None:
    """Write the tensors of some parts, and a state of plain values."""
    # Contiguous copies: safetensors refuses shared and strided memory.
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in _flat(parts).items()}
    header = {"format": FORMAT, "version": str(VERSION), "tensors": str(len(tensors))}
    header["state"] = json.dumps(json_value(state))
    with written_aside(path) as aside:
        try:
            save_file(tensors, str(aside), metadata=header)
        except SafetensorError as error:  # a full disk, as safetensors reports it
            raise OSError(errno.EIO, " ".join(str(error).split()), str(path)) from error


def load(
    path: Path, like: Parts | None = None, *, longest: int = 0
) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
    """The parts and the state of a checkpoint; all parts, unchecked, or those of ``like``.

    Names, shapes and types must be those of ``like``. But the optimiser may lack whole parameters, as it has no state
    for those without a gradient, and a loss may have stored arrays of up to ``longest`` entries in each dimension: for
    each sample, for each class.
    """
    open_regular(path).close()
    try:
        with safe_open(str(path), framework="pt") as file:
            names = list(file.keys())
            state = _state(file.metadata() or {}, names)
            if like is not None:
                names = [name for name in names if name.partition("/")[0] in like]
                _check_shapes({name: file.get_slice(name) for name in names}, _flat(like), longest)
            tensors = {name: file.get_tensor(name) for name in names}
        for name, tensor in tensors.items():
            if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
                raise ValueError(f"{name} holds values that are not finite")
    except (SafetensorError, ValueError) as error:
        raise ValueError(f"{path}: not a checkpoint of this run ({one_line(error, 300)})") from None
    parts: dict[str, dict[str, Tensor]] = {part: {} for part in like or ()}
    for name, tensor in tensors.items():
        part, _, member = name.partition("/")
        parts.setdefault(part, {})[member] = tensor
    return parts, state


def read_state(state: Mapping[str, Any], path: Path) -> State:
    """The progress of a run, from the state of its checkpoint."""
    try:
        return check_record(dict(state), State)
    except ValueError as error:
        raise ValueError(f"{path}: not a checkpoint of this run (its state is damaged: {error})") from None


def _flat(parts: Parts) -> dict[str, Tensor]:
    """Tensors by part and name: ``"model/fc.weight"``."""
    return {f"{part}/{name}": tensor for part, members in parts.items() for name, tensor in members.items()}


def _state(header: Mapping[str, str], names: list[str]) -> dict[str, Any]:
    if header.get("format") != FORMAT or header.get("version") != str(VERSION):
        raise ValueError(f"it is not a Calibrant checkpoint of version {VERSION}")
    for name in names:
        if name.partition("/")[0] not in (NETWORK, OPTIMISER, LOSS):
            raise ValueError(f"{name[:100]} is not expected in it")
    if header.get("tensors", str(len(names))) != str(len(names)):
        raise ValueError(f"it was written with {header['tensors'][:20]} tensors, and has {len(names)}")
    state = parse_values(header.get("state", "").encode())
    if not isinstance(state, dict):
        raise ValueError("its state is not a table")
    return state


def _check_shapes(slices: Mapping[str, Any], expected: Mapping[str, Tensor], longest: int) -> None:
    parameters = {name.rpartition("/")[0] for name in slices}
    for name in expected:
        is_optional = name.startswith(f"{OPTIMISER}/") and name.rpartition("/")[0] not in parameters
        if name not in slices and not is_optional:
            raise ValueError(f"{name} is missing")
    for name, part in slices.items():
        if name not in expected:
            raise ValueError(f"{name[:200]} is not expected in it")
        tensor, shape, dtype = expected[name], list(part.get_shape()), _TYPES.get(part.get_dtype())
        is_longer = name.startswith(f"{LOSS}/") and 0 < tensor.dim() == len(shape) and max(shape) <= longest
        if dtype != tensor.dtype or (shape != list(tensor.shape) and not is_longer):
            raise ValueError(f"{name} is {dtype} {shape}, and {tensor.dtype} {list(tensor.shape)} is needed")


def optimiser_like(optimiser: Optimizer) -> dict[str, Tensor]:
    """The tensors that an optimiser may store for each parameter: names, shapes and types, without values."""
    shapes: dict[str, Tensor] = {}
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    for number, parameter in enumerate(parameters):
        if isinstance(optimiser, SGD):
            members = ["momentum_buffer"] if optimiser.defaults["momentum"] else []
        else:
            members = ["exp_avg", "exp_avg_sq"]
            shapes[f"{number}/step"] = torch.empty((), dtype=torch.float32, device="meta")
        shapes |= {f"{number}/{member}": torch.empty_like(parameter, device="meta") for member in members}
    return shapes


def optimiser_tensors(optimiser: Optimizer) -> dict[str, Tensor]:
    """The tensors that an optimiser stores for each parameter, by number and name."""
    state = optimiser.state_dict()["state"]
    return {f"{n}/{name}": torch.as_tensor(value) for n, memory in state.items() for name, value in memory.items()
            if value is not None}  # fmt: skip


def restore_optimiser(optimiser: Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Restore the state of an optimiser; its settings stay those of the recipe."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        number, _, member = name.partition("/")
        state.setdefault(int(number), {})[member] = tensor
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})


def restore_module(module: nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Restore a module; every tensor must be there."""
    try:
        module.load_state_dict(dict(tensors))
    except RuntimeError as error:
        raise ValueError(f"{path}: the checkpoint is of another model ({one_line(error, 300)})") from error


def restore_network(model: nn.Module, path: Path) -> None:
    """Fill a model from a checkpoint."""
    parts, _ = load(path, {NETWORK: model.state_dict()})
    restore_module(model, parts[NETWORK], path)


def save_run(run: Run, path: Path) -> None:
    """Write a checkpoint; only the first process does."""
    if run.fabric.global_rank == 0:
        parts = {
            NETWORK: unwrap(run.model).state_dict(),
            OPTIMISER: optimiser_tensors(run.optimiser),
            LOSS: run.loss.state_dict(),
        }
        scaler = {} if run.scaler is None else {"scaler": run.scaler.state_dict()}
        save(path, parts, vars(run.progress) | scaler)


def restore_run(run: Run, folder: RunFolder) -> None:
    """Continue a run from its last checkpoint, if there is one.

    Call it after the set-up: tensors are restored to the precision and device of the run.
    """
    path = folder / LAST
    if not path.exists():
        return
    like = {
        NETWORK: unwrap(run.model).state_dict(),
        OPTIMISER: optimiser_like(run.optimiser),
        LOSS: run.loss.state_dict(),
    }
    parts, plain = load(path, like, longest=longest_memory(run.pipeline.dataset))
    state = read_state(plain, path)
    if problem := _state_problem(run, state, parts[OPTIMISER]):
        raise ValueError(f"{path}: not a checkpoint of this run ({problem})")
    if run.recipe.training.keep == "best" and state.best is not None:  # now, not when it is needed at the end
        if not (folder / BEST).exists():
            raise ValueError(f"{folder / BEST} is missing, the best model so far: the run cannot be resumed")
        load(folder / BEST, {NETWORK: like[NETWORK]})
    restore_module(unwrap(run.model), parts[NETWORK], path)
    restore_optimiser(run.optimiser, parts[OPTIMISER])
    restore_module(run.loss, parts[LOSS], path)
    if run.scaler is not None:
        run.scaler.load_state_dict(state.scaler)
    run.progress = RunProgress(state.epoch, state.batch, state.step, state.best, nulls_as_nan(state.history))


def longest_memory(train: Dataset) -> int:
    """How many entries a loss can have stored for the samples of a training set, or for its classes."""
    return max(len(train), len(train.classes))


def _state_problem(run: Run, state: State, memory: Mapping[str, Tensor]) -> str:
    """How the numbers of a checkpoint contradict each other or the run's length; empty if they do not."""
    per_epoch = run.steps_per_epoch
    # Whether a last batch that is not full counts depends on the number of processes.
    slack = 0 if run.batches.drop_last else state.epoch
    adds_up = abs(state.epoch * per_epoch + state.batch - state.step) <= slack
    counts = [float(tensor) for name, tensor in memory.items() if name.endswith("/step")]
    if not 0 < state.step <= run.steps:
        return f"step {state.step} is not within the run's {run.steps}"
    if state.batch > per_epoch or not (adds_up or (state.step == run.steps and state.batch == 0)):
        return f"epoch {state.epoch} and batch {state.batch} do not lead to step {state.step}"
    if [entry["epoch"] for entry in state.history] != list(range(1, state.epoch + 1)):
        return f"its history does not have all {state.epoch} epochs"
    if run.recipe.training.keep == "best" and state.best != _best(run.recipe, state.history):
        return "its best value is not in its history"
    if any(not 0 < count <= state.step for count in counts):
        return "the optimiser's step count differs"
    if not memory and optimiser_like(run.optimiser):
        return "the optimiser's state is missing"
    if set(state.scaler or ()) != set({} if run.scaler is None else run.scaler.state_dict()):
        return "the state of the gradient scaler is missing, or not expected"
    return ""


def _best(recipe: Recipe, history: Sequence[Mapping[str, Any]]) -> float | None:
    """The best value so far of the metric that chooses the model."""
    values = (entry.get(f"val_{recipe.training.best_by}") for entry in history)
    sign = describe(recipe.training.best_by).sign
    return min((v for v in values if v is not None), key=lambda value: sign * value, default=None)
