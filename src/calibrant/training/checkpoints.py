"""Checkpoints: one safetensors file with all tensors of a run, and its numbers as JSON in the file's own header.

One file, written aside and renamed, is whole or not there: a process that is killed at any moment leaves the last one.
Nothing is unpickled.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from calibrant._files import written_aside

FORMAT = "calibrant-checkpoint"
VERSION = 1


def save(path: Path, parts: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any]) -> None:
    """Write the tensors of some parts, and a state of plain values."""
    tensors: dict[str, Tensor] = {}
    for part, members in parts.items():
        for name, tensor in members.items():
            # A copy of its own, in rows: safetensors refuses shared and strided memory.
            tensors[f"{part}/{name}"] = tensor.detach().cpu().contiguous().clone()
    header = {"format": FORMAT, "version": str(VERSION), "state": json.dumps(state)}
    with written_aside(path) as aside:
        try:
            save_file(tensors, str(aside), metadata=header)
        except SafetensorError as error:  # a full disk, as safetensors tells it
            raise OSError(errno.EIO, " ".join(str(error).split()), str(path)) from error


def load(path: Path) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
    """The parts and the state of a checkpoint."""
    try:
        with safe_open(str(path), framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no dict)
        state = json.loads(header["state"])
    except (SafetensorError, KeyError, ValueError) as error:
        raise ValueError(f"{path}: not a checkpoint of Calibrant's ({' '.join(str(error).split())}).") from error
    if header.get("format") != FORMAT or header.get("version") != str(VERSION):
        raise ValueError(f"{path}: not a checkpoint of Calibrant's, version {VERSION}.")
    parts: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        part, _, member = name.partition("/")
        parts.setdefault(part, {})[member] = tensor
    return parts, state


def optimiser_tensors(optimiser: Optimizer) -> dict[str, Tensor]:
    """What an optimiser remembers of each parameter, by number and name."""
    state = optimiser.state_dict()["state"]
    return {f"{n}/{name}": torch.as_tensor(value) for n, memory in state.items() for name, value in memory.items()
            if value is not None}  # fmt: skip


def restore_optimiser(optimiser: Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Give an optimiser its memory back; its settings stay those of the recipe."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        number, _, member = name.partition("/")
        state.setdefault(int(number), {})[member] = tensor
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})


def restore_module(module: nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Give a module its tensors back; every one must be there."""
    try:
        module.load_state_dict(dict(tensors))
    except RuntimeError as error:
        raise ValueError(
            f"{path}: the checkpoint is of another model ({' '.join(str(error).split())[:300]})."
        ) from error
