"""Runs as tasks of a Ray cluster: the same runs in the same folders, on as many machines as there are.

Folders lie on storage that all machines share. A task whose process is killed, or whose machine goes away, is tried
again elsewhere and continues from the run's last checkpoint; a run that fails by an error of its own is recorded and
not tried again. The lock of a run's folder goes with the process that held it, so no run is ever done twice at once.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from calibrant import __version__
from calibrant._progress import Progress, silent
from calibrant._ray import RETRIES, Board, check_fits, connect, import_ray
from calibrant.experiments.engines.job import Job, Stage, perform
from calibrant.experiments.plan.study import Choice, PlannedRun, Study
from calibrant.training import Resources

_WHAT = "the engine ray"
_CALLS = 20
_GRACE_SECONDS = 30.0
_POLL_SECONDS = 1.0
_VISIBLE_SECONDS = 30.0  # network file systems show a new file late


@dataclass
class RayEngine:
    """The engine for more than one machine.

    Attributes:
        address: Address of a Ray cluster; ``"auto"`` for the one that this machine belongs to; None starts one here.
        resources: What each run takes.
        jobs: Number of parallel runs; as many as fit if left out.
        accelerator: As Lightning Fabric takes it.
    """

    address: str | None = None
    resources: Resources = field(default_factory=Resources)
    jobs: int | None = None
    accelerator: str = "auto"

    def __post_init__(self) -> None:
        import_ray(_WHAT)

    def run(self, jobs: Sequence[Job], stage: Stage) -> None:
        """Do all jobs; each leaves its numbers, or the reason why it failed."""
        with connect(_WHAT, self.address) as ray:
            check_fits(ray, "a run", self.resources.cpus, self.resources.gpus)
            _Sweep(ray, self, stage).run(jobs)

    def search(
        self, study: Study, runs: Path, data: str | None, progress: Progress = silent, trust_code: bool = False
    ) -> tuple[list[PlannedRun], Choice]:
        """Search by Ray Tune's ASHA: the runs that came to the end, and what was chosen."""
        from calibrant.experiments.engines.asha import search_with_asha

        with connect(_WHAT, self.address) as ray:
            check_fits(ray, "a run", self.resources.cpus, self.resources.gpus)
            return search_with_asha(study, runs, data, self, progress, trust_code)


class _Sweep:
    """The jobs of one call that wait or run."""

    def __init__(self, ray: Any, engine: RayEngine, stage: Stage):
        self.ray, self.stage = ray, stage
        self.slots = engine.jobs
        # Never on a machine that may go away: beside the driver, who alone reads it.
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=True
        )
        self.board = ray.remote(Board).options(num_cpus=0, max_restarts=-1, scheduling_strategy=here).remote()
        cpus, gpus = engine.resources.cpus, engine.resources.gpus
        # To import everything takes seconds, so a process does some runs; on a GPU one, as its memory goes with it.
        calls = 1 if gpus else _CALLS
        task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=RETRIES, max_calls=calls)(_task)
        threads = max(1, int(cpus))
        self.submit = lambda job: task.remote(job, threads, engine.accelerator, self.board, os.getcwd(), __version__)
        self.running: dict[Any, Job] = {}
        self.steps: dict[str, tuple[float, float | None]] = {}  # as last heard of

    def run(self, jobs: Sequence[Job]) -> None:
        """Until every job has ended."""
        waiting = deque(replace(job, folder=os.path.abspath(job.folder)) for job in jobs)
        try:
            while waiting or self.running:
                while waiting and (self.slots is None or len(self.running) < self.slots):
                    job = waiting.popleft()
                    self.running[self.submit(job)] = job
                ended, _ = self.ray.wait(list(self.running), num_returns=1, timeout=_POLL_SECONDS)
                self._read_board()
                for task in ended:
                    self._ended(task)
        finally:
            self._stop()

    def _read_board(self) -> None:
        """Pass on how far runs are; that a report is lost does not matter."""
        steps: dict[str, tuple[float, float | None]] = {}
        with contextlib.suppress(self.ray.exceptions.RayError):
            steps = self.ray.get(self.board.read.remote(), timeout=_POLL_SECONDS)
        for job in self.running.values():
            if job.key in steps and self.steps.get(job.key) != steps[job.key]:
                self.steps[job.key] = steps[job.key]
                self.stage.update(job, *steps[job.key])

    def _ended(self, task: Any) -> None:
        job = self.running.pop(task)
        try:
            machine = self.ray.get(task)
            if not _is_visible(job):
                where = f"the run ended on {machine}, and nothing of it is here"
                job.fail(f"{where}: all machines must share the folder {job.folder}", lasting=False)
        except self.ray.exceptions.RayError as error:
            if not job.is_done:
                words = " ".join(str(error).split()).partition(". ")[0].rstrip(".")
                reason = f"{type(error).__name__}, {words[:200]}"
                job.fail(f"its process was lost {RETRIES + 1} times: {reason}", lasting=False)
        self.stage.end(job)

    def _stop(self) -> None:
        """Let the runs that are left save what they have, and end."""
        left = list(self.running)
        for force in (False, True):
            for task in left:
                with contextlib.suppress(self.ray.exceptions.RayError, ValueError):
                    self.ray.cancel(task, force=force)
            if left:
                _, left = self.ray.wait(left, num_returns=len(left), timeout=_GRACE_SECONDS)
        self.running.clear()
        self.ray.kill(self.board)


def _task(job: Job, threads: int, accelerator: str, board: Any, folder: str, version: str) -> str:
    """In the process of a run, on any machine: the name of the machine, when the run is done or recorded as failed."""
    with contextlib.suppress(OSError):  # so that relative paths in a recipe mean the same as on one machine
        os.chdir(folder)

    def progress(what: str, done: float, total: float | None) -> None:
        board.write.remote(job.key, done, total)

    progress(job.title, 0, None)
    machine = os.uname().nodename
    if version == __version__:
        perform(job, threads, progress, accelerator)
    else:
        job.fail(f"{machine} has Calibrant {__version__}, and the command is {version}'s", lasting=False)
    return machine


def _is_visible(job: Job) -> bool:
    """Whether the end of a run can be seen from here."""
    until = time.monotonic() + _VISIBLE_SECONDS
    while not job.is_done and job.failure is None:
        if time.monotonic() > until:
            return False
        time.sleep(0.5)
        with contextlib.suppress(OSError):
            os.listdir(job.folder)  # makes a network file system look again
    return True
