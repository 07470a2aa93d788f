"""Executing the runs of a comparison as processes of this machine, each with its share of the cores."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

from calibrant import _arrays
from calibrant.experiments.engines.job import Job, Stage, perform
from calibrant.training import Recipe

#: Largest number of parallel runs: larger numbers are typos.
MOST_JOBS = 4096

_GRACE_SECONDS = 30.0

# Imported once by the process that the runs are forked from.
_PRELOADED = [
    "calibrant.experiments.engines.job", "calibrant.predictions.formats.npz", "calibrant.training.fabric",
    "scipy.special", "sklearn.utils.validation",
]  # fmt: skip


class Engine(Protocol):
    """Executes runs."""

    def run(self, jobs: Sequence[Job], stage: Stage) -> None:
        """Execute all jobs; each leaves its numbers or the reason of its failure in its folder, and is reported."""


@dataclass
class Local:
    """The engine for this machine.

    Attributes:
        jobs: Number of parallel runs; as many as fit the cores if left out.
        cpus: Cores per run.
        threads: Threads per run; if left out, its share of the cores, at most OMP_NUM_THREADS.
        accelerator: As in Lightning Fabric.
    """

    jobs: int | None = None
    cpus: float = 1.0
    threads: int | None = None
    accelerator: str = "auto"
    _running: dict[Connection, tuple[Job, Any]] = field(default_factory=dict, repr=False)

    def run(self, jobs: Sequence[Job], stage: Stage) -> None:
        """Execute all jobs; each leaves its numbers, or the reason why it failed."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        slots = self.jobs or max(1, int(cores / self.cpus))
        # By the slots, not by the remaining jobs: the number of threads changes the rounding, and an interrupted
        # comparison must end like any other.
        threads = self.threads or max(1, min(_arrays.threads(), cores // slots))
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(_PRELOADED)
        waiting = deque(jobs)
        try:
            while waiting or self._running:
                while waiting and len(self._running) < slots:
                    job = waiting.popleft()
                    self._start(context, job, threads)
                    stage.update(job)
                for connection in wait(list(self._running), timeout=1.0):
                    self._receive(connection, stage)  # type: ignore[arg-type]
        finally:
            self._stop()

    def _start(self, context: Any, job: Job, threads: int) -> None:
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_child, args=(job, threads, self.accelerator, sender), name=job.title)
        process.start()
        sender.close()  # so that the end of the process is noticed here
        self._running[receiver] = job, process

    def _receive(self, connection: Connection, stage: Stage) -> None:
        job, process = self._running[connection]
        try:
            stage.update(job, *connection.recv())
            return
        except EOFError:
            pass
        del self._running[connection]
        connection.close()
        process.join()
        code = process.exitcode
        if not job.is_done and (code not in (0, 1) or job.failure is None):
            ended = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
            job.fail(f"the process {ended}", lasting=False)
        stage.end(job)

    def _stop(self) -> None:
        """Let the remaining runs save their state and end."""
        for _, process in self._running.values():
            if process.is_alive():
                os.kill(process.pid, signal.SIGINT)
        for connection, (_, process) in self._running.items():
            process.join(_GRACE_SECONDS)
            if process.is_alive():
                process.kill()
                process.join()
            connection.close()
        self._running.clear()


def _child(job: Job, threads: int, accelerator: str, parent: Connection) -> None:
    """The process of a run, which stops when its parent has ended."""
    os.setsid()  # Ctrl-C in a terminal reaches the parent alone, which then interrupts its children once
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def progress(what: str, done: float, total: float | None) -> None:
        try:
            parent.send((done, total))
        except OSError:
            raise KeyboardInterrupt from None

    with contextlib.suppress(KeyboardInterrupt):
        raise SystemExit(0 if perform(job, threads, progress, accelerator) else 1)
    raise SystemExit(130)


def engine_of(
    name: str, recipe: Recipe, jobs: int | None = None, address: str | None = None, accelerator: str = "auto"
) -> Engine:
    """The engine that executes the runs of a recipe.

    Args:
        name: ``"local"`` or ``"ray"``.
        recipe: The recipe, with the resources of one run.
        jobs: Number of parallel runs; as many as fit if None.
        address: Address of a Ray cluster; None starts one on this machine.
        accelerator: As in Lightning Fabric.
    """
    if jobs is not None and not 1 <= jobs <= MOST_JOBS:
        raise ValueError(f"the number of parallel runs must be from 1 to {MOST_JOBS}, got {jobs}")
    if name == "local":
        if address is not None:
            raise ValueError("an address is for the engine ray; local runs are processes of this machine")
        return Local(jobs, recipe.resources.cpus, accelerator=accelerator)
    if name != "ray":
        raise ValueError(f"unknown engine {name!r}; known are local and ray")
    from calibrant.experiments.engines.ray import RayEngine  # here, because Ray is an extra

    return RayEngine(address, recipe.resources, jobs, accelerator)
