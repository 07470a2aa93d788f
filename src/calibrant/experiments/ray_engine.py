"""Runs as tasks of a Ray cluster: the same runs in the same folders, on as many machines as there are.

Folders are on storage that all machines share. A task whose process is killed, or whose machine is lost, is retried
elsewhere and continues from the run's last checkpoint; a run that fails by its own error is recorded and not retried.
The lock of a run folder is released with the process that held it, so no run is ever executed twice at once.

A search by halving is Ray Tune's asynchronous ASHA. Every candidate is trained with its full recipe and evaluated after
each epoch; at an eighth and at a third of the training, a candidate that is not among the best third of those that got
that far is stopped. ASHA does not wait for a round to be complete, so which are stopped depends on their order: unlike
everything else here, a second search may choose differently.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import RootModel

from calibrant import __version__
from calibrant.base.cluster import RETRIES, Board, check_fits, connect, import_ray
from calibrant.base.files import write_json
from calibrant.base.progress import Progress, silent
from calibrant.experiments.engines import LASTING, Job, Stage, perform
from calibrant.experiments.study import ETA, Choice, PlannedRun, Study
from calibrant.metrics import describe
from calibrant.training import Resources, read_record

_CALLER = "the engine ray"
_CALLS = 20
_GRACE_SECONDS = 30.0
_POLL_SECONDS = 1.0
_VISIBLE_SECONDS = 30.0  # network file systems show new files late
#: Percent of the training at the first of the two rungs; the second is at ETA times as many. There is none at the end:
#: a run that is stopped there would have no predictions.
FIRST_RUNG = 12
CHOSEN = "asha.json"


@dataclass
class RayEngine:
    """The engine for more than one machine.

    Attributes:
        address: Address of a Ray cluster; ``"auto"`` for the one that this machine belongs to; None starts one here.
        resources: Resources of each run.
        jobs: Number of parallel runs; as many as fit if left out.
        accelerator: As in Lightning Fabric.
    """

    address: str | None = None
    resources: Resources = field(default_factory=Resources)
    jobs: int | None = None
    accelerator: str = "auto"

    def __post_init__(self) -> None:
        import_ray(_CALLER)

    def run(self, jobs: Sequence[Job], stage: Stage) -> None:
        """Execute all jobs; each leaves its numbers, or the reason why it failed."""
        with connect(_CALLER, self.address) as ray:
            check_fits(ray, "a run", self.resources.cpus, self.resources.gpus)
            _Sweep(ray, self, stage).run(jobs)

    def search(
        self, study: Study, runs: Path, data: str | None, progress: Progress = silent, trust_code: bool = False
    ) -> tuple[list[PlannedRun], Choice]:
        """Search by Ray Tune's ASHA; return the runs that were trained to the end, and the choice."""
        with connect(_CALLER, self.address) as ray:
            check_fits(ray, "a run", self.resources.cpus, self.resources.gpus)
            return _search_with_asha(study, runs, data, self, progress, trust_code)


class _Sweep:
    """The waiting and running jobs of one call."""

    def __init__(self, ray: Any, engine: RayEngine, stage: Stage):
        self.ray, self.stage = ray, stage
        self.slots = engine.jobs
        # On the machine of the driver, which alone reads it, and not on one that may be lost.
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=True
        )
        self.board = ray.remote(Board).options(num_cpus=0, max_restarts=-1, scheduling_strategy=here).remote()
        cpus, gpus = engine.resources.cpus, engine.resources.gpus
        # Imports take seconds, so a process executes several runs; on a GPU one, whose memory is freed with it.
        calls = 1 if gpus else _CALLS
        task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=RETRIES, max_calls=calls)(_task)
        threads = max(1, int(cpus))
        self.submit = lambda job: task.remote(job, threads, engine.accelerator, self.board, os.getcwd(), __version__)
        self.running: dict[Any, Job] = {}
        self.steps: dict[str, tuple[float, float | None]] = {}  # as last reported

    def run(self, jobs: Sequence[Job]) -> None:
        """Run until every job has ended."""
        waiting = deque(replace(job, folder=os.path.abspath(job.folder)) for job in jobs)
        try:
            while waiting or self.running:
                while waiting and (self.slots is None or len(self.running) < self.slots):
                    job = waiting.popleft()
                    self.running[self.submit(job)] = job
                ended, _ = self.ray.wait(list(self.running), num_returns=1, timeout=_POLL_SECONDS)
                self._read_board()
                for task in ended:
                    self._finish(task)
        finally:
            self._stop()

    def _read_board(self) -> None:
        """Report the progress of runs; a lost report does not matter."""
        steps: dict[str, tuple[float, float | None]] = {}
        with contextlib.suppress(self.ray.exceptions.RayError):
            steps = self.ray.get(self.board.read.remote(), timeout=_POLL_SECONDS)
        for job in self.running.values():
            if job.key in steps and self.steps.get(job.key) != steps[job.key]:
                self.steps[job.key] = steps[job.key]
                self.stage.update(job, *steps[job.key])

    def _finish(self, task: Any) -> None:
        job = self.running.pop(task)
        try:
            machine = self.ray.get(task)
            if not _is_visible(job):
                reason = f"the run ended on {machine}, but its files are not visible here"
                job.fail(f"{reason}: all machines must share the folder {job.folder}", lasting=False)
        except self.ray.exceptions.RayError as error:
            if not job.is_done:
                words = " ".join(str(error).split()).partition(". ")[0].rstrip(".")
                reason = f"{type(error).__name__}, {words[:200]}"
                job.fail(f"its process was lost {RETRIES + 1} times: {reason}", lasting=False)
        self.stage.end(job)

    def _stop(self) -> None:
        """Let the remaining runs save their state and end."""
        tasks = list(self.running)
        for force in (False, True):
            for task in tasks:
                with contextlib.suppress(self.ray.exceptions.RayError, ValueError):
                    self.ray.cancel(task, force=force)
            if tasks:
                _, tasks = self.ray.wait(tasks, num_returns=len(tasks), timeout=_GRACE_SECONDS)
        self.running.clear()
        self.ray.kill(self.board)


def _task(job: Job, threads: int, accelerator: str, board: Any, folder: str, version: str) -> str:
    """Execute a job in a process of the cluster; return the name of the machine."""
    with contextlib.suppress(OSError):  # so that relative paths in a recipe mean the same as on one machine
        os.chdir(folder)

    def progress(what: str, done: float, total: float | None) -> None:
        board.write.remote(job.key, done, total)

    progress(job.title, 0, None)
    machine = os.uname().nodename
    if version == __version__:
        perform(job, threads, progress, accelerator)
    else:
        job.fail(f"{machine} has Calibrant {__version__}, but the command was started with {version}", lasting=False)
    return machine


def _is_visible(job: Job) -> bool:
    """Whether the result or failure of a run becomes visible here."""
    until = time.monotonic() + _VISIBLE_SECONDS
    while not job.is_done and job.failure is None:
        if time.monotonic() > until:
            return False
        time.sleep(0.5)
        with contextlib.suppress(OSError):
            os.listdir(job.folder)  # makes a network file system look again
    return True


class _Chosen(RootModel[dict[str, str]]):
    """The contents of `CHOSEN`: the key of the chosen run, by target and candidates."""


def _search_with_asha(
    study: Study, runs: Path, data: str | None, engine: RayEngine, progress: Progress, trust_code: bool
) -> tuple[list[PlannedRun], Choice]:
    """Search the settings of a study; return the runs that were trained to the end, and the choice.

    A finished search is not repeated: its choice is stored beside the runs. Ray must be connected.
    """
    file = runs.parent / CHOSEN
    chosen_keys = (
        dict(read_record(file, _Chosen, "delete it, and the search is repeated").root) if file.exists() else {}
    )
    choice: Choice = {}
    searches = []
    for label, seed in itertools.product(study.methods, study.search_seeds):
        trials = {t.key: t for t in (study.trial(label, seed, settings) for settings in study.candidates(label))}
        jobs = {key: Job.of(t.recipe, runs.absolute(), data, t.title, trust_code) for key, t in trials.items()}
        for target in study.tune:
            if len(trials) == 1:
                choice[label, seed, target] = next(iter(trials.values())).settings
                continue
            name = " ".join([target, *sorted(jobs)])
            if name in chosen_keys and chosen_keys[name] not in jobs:
                raise ValueError(f"{file} is damaged (it chose none of the candidates); delete it")
            searches.append(((label, seed, target), trials, jobs, name))
    total = sum(len(jobs) for _, _, jobs, _ in searches)
    pending = sum(len(jobs) for _, _, jobs, name in searches if name not in chosen_keys)
    stage = (
        Stage(f"searching, up to {study.most_finals} runs to follow", total, pending, progress) if searches else None
    )
    planned: dict[str, PlannedRun] = {}
    for key, trials, jobs, name in searches:
        if name not in chosen_keys and stage is not None:
            _run_tune(list(jobs.values()), key[-1], runs.parent / "tune", engine, stage)
            best = _best(jobs, key[-1])
            if best is None:  # every candidate failed, which may not happen again
                continue
            chosen_keys[name] = best
            write_json(file, chosen_keys)
        planned |= {run: trial for run, trial in trials.items() if jobs[run].is_done}
        choice[key] = trials[chosen_keys[name]].settings
    return list(planned.values()), choice


def _run_tune(jobs: Sequence[Job], target: str, folder: Path, engine: RayEngine, stage: Stage) -> None:
    """Run candidates with ASHA; ``folder`` is for Tune's own records."""
    os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
    os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
    os.environ.setdefault("TUNE_DISABLE_SIGINT_HANDLER", "1")  # Tune would end as if it had finished
    from ray import tune
    from ray.tune.schedulers import ASHAScheduler

    trial = tune.with_parameters(
        _trial, jobs=list(jobs), target=target, accelerator=engine.accelerator, folder=os.getcwd()
    )
    better = "max" if describe(target).better == "high" else "min"
    scheduler = ASHAScheduler(
        time_attr="percent", metric=target, mode=better, max_t=10**6, grace_period=FIRST_RUNG, reduction_factor=ETA
    )
    tune.Tuner(
        tune.with_resources(trial, {"CPU": engine.resources.cpus, "GPU": engine.resources.gpus}),
        param_space={"candidate": tune.grid_search(list(range(len(jobs))))},
        tune_config=tune.TuneConfig(scheduler=scheduler, max_concurrent_trials=engine.jobs),
        run_config=tune.RunConfig(
            name=f"asha-{target}-{jobs[0].key}",
            storage_path=str(folder.absolute()),
            failure_config=tune.FailureConfig(max_failures=RETRIES),
            callbacks=[_stage_callback(tune, jobs, stage)],
            verbose=0,
        ),
    ).fit()


def _stage_callback(tune: Any, jobs: Sequence[Job], stage: Stage) -> Any:
    """A callback that reports Tune's trials as runs of a stage, epoch by epoch."""

    class StageCallback(tune.Callback):  # type: ignore[misc]
        def __reduce__(self) -> tuple[type, tuple[()]]:
            return object, ()  # Tune writes its settings to disk, and the progress cannot be written

        def on_trial_start(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            stage.update(jobs[trial.config["candidate"]])

        def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: Any, **info: Any) -> None:
            stage.update(jobs[trial.config["candidate"]], int(result.get("percent", 0)), 100)

        def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            job = jobs[trial.config["candidate"]]
            stage.end(job, None if job.is_done or job.failure else "stopped")

        def on_trial_error(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            stage.end(jobs[trial.config["candidate"]], "failed")

    return StageCallback()


def _best(jobs: Mapping[str, Job], target: str) -> str | None:
    """The key of the best run that was trained to the end; None if every candidate failed."""
    sign = describe(target).sign
    values = {key: sign * job.validation().get(target, math.nan) for key, job in jobs.items() if job.is_done}
    numbers = {key: value for key, value in values.items() if not math.isnan(value)}
    return min(numbers, key=numbers.__getitem__, default=None)


def _trial(config: Mapping[str, Any], jobs: Sequence[Job], target: str, accelerator: str, folder: str) -> None:
    """Train one candidate in a process of the cluster, until it is finished or Tune stops it."""
    from ray import tune

    with contextlib.suppress(OSError):
        os.chdir(folder)
    job, steps = jobs[config["candidate"]], 0

    def report(event: str, values: Mapping[str, Any]) -> None:
        nonlocal steps
        steps = values["steps"] if event == "start" else steps
        value = values.get(f"val_{target}", math.nan)
        if event == "epoch" and values["step"] < steps and not math.isnan(value):
            tune.report({target: value, "percent": 100 * values["step"] // steps})

    try:
        job.train(accelerator, report, lambda: None)
        value = job.validation()[target]
    except LASTING as error:
        job.fail(error, lasting=True)
        return
    tune.report({target: value, "percent": 100})
