"""How large a network would be, before memory is taken for it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable

import torch
from torch import nn

_BYTES = 2 * 4  # a weight and its gradient


def check_size(name: str, make: Callable[[], nn.Module]) -> None:
    """Raise if the weights and gradients of a network are more than this machine has memory.

    Args:
        name: of the network, for the message.
        make: builds it; here on the device "meta", where tensors have shapes and no values.
    """
    try:
        with torch.random.fork_rng(devices=[]), torch.device("meta"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parameters = sum(parameter.numel() for parameter in make().parameters())
    except Exception as error:
        if isinstance(error, RuntimeError) and "overflow" in str(error):
            raise ValueError(f"model {name!r}: a layer of these sizes is larger than any memory") from None
        return  # it cannot be built there, or not at all, which whoever builds it says
    memory = physical_memory()
    if parameters * _BYTES > memory:
        raise ValueError(
            f"model {name!r}: its {parameters:,} parameters and their gradients take "
            f"{parameters * _BYTES / 2**30:,.0f} GB, and this machine has {memory / 2**30:,.0f} GB"
        )


def physical_memory() -> int:
    """Bytes of memory that this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
