"""The forward pass, and what is said when a model and its inputs do not go together."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from calibrant.models import TERMINATED, one_line

# How torch's allocators say that there is no memory left.
_NO_MEMORY = re.compile("not enough memory|out of memory|can't allocate memory|std::bad_alloc")

# How the libraries below torch say that a process at the other end is gone.
LOST = re.compile("gloo|NCCL|ncclRemote|onnection closed|onnection reset|peer")


def forward(model: nn.Module, inputs: Tensor, name: str, *, first: bool) -> Any:
    """What a model gives for a batch.

    Args:
        model: Anybody's.
        inputs: As it takes them.
        name: Of the model, for messages.
        first: Nothing went through it before in this process: if this fails, the two do not fit.
    """
    with memory_told():
        if not first:
            return model(inputs)
        try:
            return model(inputs)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            lost = isinstance(error, RuntimeError) and (LOST.search(str(error)) or _NO_MEMORY.search(str(error)))
            ended = isinstance(error, SystemExit) and error.code == TERMINATED
            if lost or ended or isinstance(error, MemoryError):
                raise
            words = one_line(error, 200) or type(error).__name__
            raise ValueError(f"model {name!r} does not take inputs of shape {list(inputs.shape)} ({words})") from error


def logits_of(output: Any) -> Tensor:
    """The logits among what a model gives; torchvision's segmentation models give a dictionary."""
    if isinstance(output, dict):
        output = output.get("out")
    if not isinstance(output, Tensor):
        raise ValueError(f"the model must give a tensor of logits, got {type(output).__name__}.")
    return output


@contextlib.contextmanager
def memory_told() -> Iterator[None]:
    """Turn the errors of torch's allocators into a MemoryError."""
    try:
        yield
    except (RuntimeError, torch.OutOfMemoryError) as error:
        if not _NO_MEMORY.search(str(error)):
            raise
        raise MemoryError(f"{one_line(error, 200)}; a smaller batch or model needs less") from error
