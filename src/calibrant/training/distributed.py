"""The processes of one run: how they start, and how the failure of one ends them all with one message."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import re
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.distributed.distributed_c10d import _get_default_store

from calibrant.models import one_line
from calibrant.training.recipe import Recipe

#: Devices per machine, and machines, of one run: larger numbers are typos.
MOST_DEVICES, MOST_NODES = 1024, 1024

#: Messages of gloo and NCCL when another process has ended.
LOST = re.compile("gloo|NCCL|ncclRemote|onnection closed|onnection reset|peer")

# Seconds that the first process waits for the others after a failure.
_PATIENCE = 2.0

_REASON = "calibrant/reason"

#: Keeps oneDNN, which torch computes with, from using AMX.
ISA_LIMIT = "ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16"


def make_fabric(recipe: Recipe, accelerator: str, devices: int, nodes: int) -> Any:
    """Lightning Fabric, launched."""
    if not 1 <= devices <= MOST_DEVICES or not 1 <= nodes <= MOST_NODES:
        raise ValueError(
            f"a run takes from 1 to {MOST_DEVICES} devices on each of 1 to {MOST_NODES} machines, got {devices} on "
            f"{nodes}"
        )
    from calibrant.training.fabric import DDPStrategy, Fabric

    for name in ("lightning.fabric", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # The other processes wait during the last evaluation by the first one, however long it takes.
    strategy = DDPStrategy(timeout=timedelta(days=7)) if devices * nodes > 1 else "auto"
    try:
        fabric = Fabric(accelerator=accelerator, devices=devices, num_nodes=nodes, strategy=strategy,
                        precision=recipe.training.precision)  # fmt: skip
    except Exception as error:  # of many types, some of them Lightning's own
        raise ValueError(
            f"the accelerator {accelerator!r} cannot be used here ({one_line(error, 200)}); --accelerator cpu "
            "always can"
        ) from error
    most = max(8, 2 * (os.cpu_count() or 1))
    if fabric.device.type == "cpu" and devices > most:
        raise ValueError(f"at most {most} processes make sense on this machine's cores, got {devices}")
    if fabric.device.type == "cpu" and recipe.training.precision == "bf16-mixed":
        check_bf16()
    fabric.launch()
    return fabric


@functools.cache
def check_bf16() -> None:
    """Refuse bf16 where it would kill the process: some virtual machines report instructions that they lack."""
    program = "import torch; square = torch.ones(128, 128, dtype=torch.bfloat16); square @ square"
    if subprocess.run([sys.executable, "-c", program], capture_output=True, check=False).returncode < 0:
        raise ValueError(
            "this machine's processor fails at bf16 (an illegal instruction); set the environment variable "
            f"{ISA_LIMIT}, or train with precision 32-true"
        )


@contextlib.contextmanager
def end_together(fabric: Any) -> Iterator[None]:
    """Inside, several processes train together: the first reports a failure, and none is left running."""
    if fabric.world_size == 1:
        yield
        return
    children = _take_over_children(fabric)
    try:
        yield
        _end_group()
    except BaseException as error:
        lost = isinstance(error, RuntimeError) and LOST.search(str(error)) is not None
        if fabric.global_rank > 0 and not lost:
            _leave_reason(error)
            _end_children(children)
            leave(2 if fabric.local_rank == 0 else 0)
        _end_children(children)
        if lost:
            raise ConnectionError(
                f"another process of this run has ended{_read_reason()}; --resume continues from the last checkpoint"
            ) from error
        raise


def gather_rows(rows: list[Tensor], device: torch.device) -> Tensor | None:
    """The rows ``[n, ...]`` of this process, and of any others, as one tensor; None if there are none."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        everywhere: list[Any] = [None] * torch.distributed.get_world_size()
        torch.distributed.all_gather_object(everywhere, [part.cpu() for part in rows])
        rows = [part.to(device) for parts in everywhere for part in parts]
    return torch.cat(rows) if rows else None


def _end_group() -> None:
    """Destroy the process group, whose threads might abort the process at exit otherwise.

    Its destructor waits for its threads with Python's lock held, and one that is still freeing the tensors of the last
    collective needs that lock: both would wait for ever. So the group is kept until its threads have had time for that.
    """
    group = torch.distributed.group.WORLD
    torch.distributed.destroy_process_group()
    time.sleep(0.1)  # without the lock
    del group


def leave(code: int) -> NoReturn:
    """End this process: at once if it is one of several, else as Python does.

    Destroying a process group while the other processes do the same can hang.
    """
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)
    sys.exit(code)


def _take_over_children(fabric: Any) -> list[subprocess.Popen[bytes]]:
    """The processes that this one has started, taken over from Fabric on a CPU.

    Fabric kills all processes, this one too, within five seconds of the end of one, perhaps before the reason is
    reported. NCCL needs that; gloo itself reports a lost process.
    """
    processes = getattr(fabric.strategy.launcher, "procs", [])
    children = list(processes)
    if fabric.device.type == "cpu":
        processes.clear()
    return children


def _end_children(children: list[subprocess.Popen[bytes]]) -> None:
    """Wait a moment for them, then kill them: only the first process of a run writes anything."""
    for child in children:
        try:
            child.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            child.kill()


def _leave_reason(error: BaseException) -> None:
    """Leave the reason where the first process can read it."""
    is_sentence = isinstance(error, (ValueError, ArithmeticError, OSError))
    with contextlib.suppress(RuntimeError):
        _get_default_store().set(_REASON, str(error) if is_sentence else repr(error))
    if not is_sentence and not isinstance(error, (KeyboardInterrupt, SystemExit)):
        traceback.print_exception(error)


def _read_reason() -> str:
    """The reason that another process has left, if any."""
    with contextlib.suppress(RuntimeError):
        store = _get_default_store()
        if store.check([_REASON]):
            return f" ({store.get(_REASON).decode().rstrip('.')})"
    return ""
