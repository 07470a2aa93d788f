"""Runs as processes of this machine: so many at a time, each with its share of the cores."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

from calibrant.experiments.work import Job, perform

#: Told of a job: "start", "progress" (steps done, of all), "done", "failed", or "stopped" by a search.
Told = Callable[[str, Job, tuple[int, int]], None]
#: Told of a stage that begins: its name, its runs, how many are missing, and how many may follow in later stages.
Staged = Callable[[str, int, int, int], None]

_GRACE_SECONDS = 30.0


@dataclass
class Local:
    """The engine that needs nothing but this machine.

    Attributes:
        jobs: Runs at a time; one per core if left out.
        cpus: Cores that each run is worth.
        threads: Of each run; its share of the cores if left out.
        accelerator: As Lightning Fabric takes it.
    """

    jobs: int | None = None
    cpus: float = 1.0
    threads: int | None = None
    accelerator: str = "auto"
    _running: dict[Connection, tuple[Job, Any]] = field(default_factory=dict, repr=False)

    def run(self, jobs: Sequence[Job], told: Told) -> None:
        """Do all jobs; each leaves its numbers or why it failed."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        slots = self.jobs or max(1, int(cores / self.cpus))
        # By the slots, not by the jobs that are left: other threads, other rounding, and a sweep that was interrupted
        # has to end as one that was not.
        threads = self.threads or max(1, cores // slots)
        # Processes are forked from one that has everything imported and has run nothing: they start at once, and
        # share no state with this one.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["calibrant.experiments.preloaded"])
        waiting = deque(jobs)
        try:
            while waiting or self._running:
                while waiting and len(self._running) < slots:
                    self._start(context, waiting.popleft(), threads, told)
                for connection in wait(list(self._running), timeout=1.0):
                    self._heard(connection, told)  # type: ignore[arg-type]
        finally:
            self._stop()

    def _start(self, context: Any, job: Job, threads: int, told: Told) -> None:
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_child, args=(job, threads, self.accelerator, theirs), name=job.title)
        process.start()
        theirs.close()  # so that its end is noticed here
        self._running[ours] = job, process
        told("start", job, (0, 0))

    def _heard(self, connection: Connection, told: Told) -> None:
        job, process = self._running[connection]
        try:
            told("progress", job, connection.recv())
            return
        except EOFError:
            pass
        del self._running[connection]
        connection.close()
        process.join()
        if not job.done and (process.exitcode not in (0, 1) or job.failure is None):
            job.fail(_ended(process.exitcode), lasting=False)
        told("done" if job.done else "failed", job, (0, 0))

    def _stop(self) -> None:
        """Let the runs that are left save what they have, and end."""
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
    """In the process of a run: when nobody listens any more, stop."""
    os.setsid()  # Ctrl-C in a terminal is the parent's to answer, which then asks its children, once
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def report(step: int, steps: int) -> None:
        try:
            parent.send((step, steps))
        except OSError:
            raise KeyboardInterrupt from None

    with contextlib.suppress(KeyboardInterrupt):
        raise SystemExit(0 if perform(job, threads, report, accelerator) else 1)
    raise SystemExit(130)


def _ended(code: int) -> str:
    if code < 0:
        return f"the process was ended by {signal.Signals(-code).name}"
    return f"the process ended with exit code {code}"
