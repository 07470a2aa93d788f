"""What executes the runs of a comparison: a job is one run, wherever it is executed, and an engine executes many.

The folder of a run is named by the key of its recipe, and holds everything about it. A finished run is never repeated,
an interrupted one continues from its last checkpoint, and a failed one has the reason on record. The engine of this
machine gives every run a process with its share of the cores.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import platform
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Protocol

import torch

from calibrant.base import arrays
from calibrant.base.files import write_json
from calibrant.base.progress import Progress, silent
from calibrant.experiments.evaluation import numbers, read_numbers
from calibrant.models import TERMINATED
from calibrant.training import FAILED, RESULT, InUseError, Recipe, RunFolder, check_recipe, train

#: Errors that would occur again; others (a killed process, a full disk) may not.
LASTING = (ValueError, ArithmeticError, TypeError, KeyError)
#: Largest number of parallel runs: larger numbers are typos.
MOST_JOBS = 4096

_REPORT_SECONDS = 0.5
_GRACE_SECONDS = 30.0

# Imported once by the process that the runs are forked from.
_PRELOADED = [
    "calibrant.experiments.engines", "calibrant.predictions.formats.arrays", "calibrant.training.fabric",
    "scipy.special", "sklearn.utils.validation",
]  # fmt: skip


@dataclass(frozen=True)
class Job:
    """A run to execute."""

    key: str
    recipe: Mapping[str, Any]  # as plain values, which can be sent to other processes
    folder: str
    data: str | None  # folder of the data, if not the recipe's
    title: str  # in a progress bar
    trust_code: bool = False  # whether a package.module:factory may be imported and called

    @classmethod
    def of(cls, recipe: Recipe, runs: Path, data: str | None, title: str, trust_code: bool = False) -> Job:
        """The job of a recipe, in a folder of runs."""
        return cls(recipe.key, recipe.model_dump(mode="json"), str(runs / recipe.key), data, title, trust_code)

    @property
    def is_done(self) -> bool:
        """Whether its numbers are on disk and intact."""
        return self._outcome == (True, "")

    @property
    def failure(self) -> dict[str, Any] | None:
        """Why it failed, and whether it would fail again: ``error`` and ``lasting``; None if it did not."""
        is_finished, damage = self._outcome
        if is_finished:  # damaged results are neither used nor overwritten
            return {"error": damage, "lasting": True} if damage else None
        folder = RunFolder(self.folder)
        failed = folder.failure()
        if failed is None and os.path.lexists(folder / FAILED):
            return {"error": f"{folder / FAILED}, which says why, is damaged", "lasting": False}
        return None if failed is None else failed.model_dump()

    @property
    def _outcome(self) -> tuple[bool, str]:
        """Whether the run is finished, and what is wrong with its numbers."""
        folder = RunFolder(self.folder)
        try:
            folder.result()
            read_numbers(folder)
        except (FileNotFoundError, NotADirectoryError):
            return False, ""
        except ValueError as error:
            return True, str(error)
        return True, ""

    def validation(self) -> dict[str, float]:
        """The validation metrics of the finished run, before any repair."""
        return {n.metric: n.value for n in numbers(self.folder) if n.set == "val" and n.posthoc == "none"}

    def fail(self, error: BaseException | str, *, lasting: bool) -> None:
        """Record why it failed."""
        if isinstance(error, BaseException):
            words = " ".join(str(error).split()) or "no reason given"
            error = words if isinstance(error, ValueError | ArithmeticError) else f"{type(error).__name__}: {words}"
        record = {"error": error, "lasting": lasting, "time": round(time.time(), 3), "machine": platform.node()}
        write_json(Path(self.folder) / FAILED, record)

    def train(self, accelerator: str, event_log: Callable[[str, Mapping[str, Any]], None], wait: Callable[[], object]
              ) -> None:  # fmt: skip
        """Train in this process unless the run is finished; wait while another process trains it.

        That may be another command, or a process that has not noticed yet that its parent has ended.
        """
        recipe = check_recipe(dict(self.recipe), self.folder)
        while not (Path(self.folder) / RESULT).exists():
            try:
                train(recipe, self.folder, data=self.data, resume=True, accelerator=accelerator,
                      trust_code=self.trust_code, event_log=event_log)  # fmt: skip
            except InUseError:
                wait()
                time.sleep(_REPORT_SECONDS)


def perform(job: Job, threads: int, progress: Progress = silent, accelerator: str = "auto") -> bool:
    """Execute a job in this process; return whether it succeeded. An error is recorded, not raised.

    0 ``threads`` leaves those of PyTorch unchanged.
    """
    if threads:
        torch.set_num_threads(threads)
    steps, last_report = 0, 0.0

    def report(event: str, values: Mapping[str, Any]) -> None:
        nonlocal steps, last_report
        steps = values["steps"] if event == "start" else steps
        if event in ("start", "step") and time.monotonic() - last_report > _REPORT_SECONDS:
            last_report = time.monotonic()
            progress(job.title, values["step"], steps)

    try:
        job.train(accelerator, report, lambda: progress(job.title, 0, None))
        numbers(job.folder)
    except (MemoryError, OSError) as error:
        job.fail(error, lasting=False)
        return False
    except SystemExit as error:
        if error.code == TERMINATED:
            raise
        job.fail(f"the model's code ended the process with exit code {error.code}", lasting=True)
        return False
    except Exception as error:  # before the first step it may be the data or the machine, which can be fixed
        job.fail(error, lasting=isinstance(error, LASTING) and steps > 0)
        return False
    (Path(job.folder) / FAILED).unlink(missing_ok=True)
    return True


class Stage:
    """The runs of one stage of a comparison, such as "testing", of which ``pending`` are not on disk.

    Reports the number of finished ones to a `Progress`; current ones count by their shares.
    """

    def __init__(self, name: str, total: int, pending: int, progress: Progress = silent):
        self.name, self.total, self.done = name, total, total - pending
        self._progress = progress
        self._running: dict[str, tuple[str, float]] = {}
        on_disk = f", {self.done} of them on disk" if self.done else ""
        self._report(f"{total} run{'s' * (total != 1)}{on_disk}")

    def update(self, job: Job, steps: float = 0, total: float | None = None) -> None:
        """Report that a job starts or advances."""
        self._running[job.key] = job.title, steps / total if total else 0.0
        self._report(", ".join(f"{title} {share:.0%}" for title, share in list(self._running.values())[:4]))

    def end(self, job: Job, outcome: str | None = None) -> None:
        """Report that a job has ended: done, failed, or stopped by a search."""
        self._running.pop(job.key, None)
        self.done += 1
        self._report(f"{job.title} {outcome or ('done' if job.is_done else 'failed')}")

    def _report(self, words: str) -> None:
        shares = sum(share for _, share in self._running.values())
        self._progress(f"{self.name}: {words}", self.done + shares, self.total)


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
        threads = self.threads or max(1, min(arrays.threads(), cores // slots))
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
    from calibrant.experiments.ray_engine import RayEngine  # here, because Ray is an extra

    return RayEngine(address, recipe.resources, jobs, accelerator)
