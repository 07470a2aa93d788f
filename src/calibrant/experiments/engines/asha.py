"""Asynchronous successive halving on a Ray cluster: Ray Tune's ASHA over the candidates of a method.

Every candidate is trained with its full recipe and judged after each epoch; one that is not among the best third of
those that came as far, at an eighth and at a third of the training, is stopped there. Nobody waits for a round to be
complete, so which are stopped depends on which came first: unlike everything else here, a second search may choose
otherwise.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import RootModel

from calibrant._files import write_json
from calibrant._progress import Progress
from calibrant._ray import RETRIES
from calibrant.experiments.engines.job import LASTING, Job, Stage
from calibrant.experiments.plan.study import ETA, Choice, PlannedRun, Study
from calibrant.metrics import describe
from calibrant.training import read_record

if TYPE_CHECKING:
    from calibrant.experiments.engines.ray import RayEngine

#: Hundredths of the training at the first of the two rungs; the next lies at ETA times as many, and the end at none:
#: a run that is stopped at its end would have no predictions.
FIRST_RUNG = 12
CHOSEN = "asha.json"


class _Chosen(RootModel[dict[str, str]]):
    """What `CHOSEN` holds: by target and candidates, the key of the one that was chosen."""


def search_with_asha(
    study: Study, runs: Path, data: str | None, engine: RayEngine, progress: Progress, trust_code: bool = False
) -> tuple[list[PlannedRun], Choice]:
    """The search of a study: runs that were trained to the end, and what was chosen.

    A search that has ended is not repeated: what it chose is kept beside the runs. Ray is connected.
    """
    file = runs.parent / CHOSEN
    chosen = dict(read_record(file, _Chosen, "delete it, and the search is repeated").root) if file.exists() else {}
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
            if name in chosen and chosen[name] not in jobs:
                raise ValueError(f"{file} is damaged (it chose none of the candidates); delete it")
            searches.append(((label, seed, target), trials, jobs, name))
    total = sum(len(jobs) for _, _, jobs, _ in searches)
    missing = sum(len(jobs) for _, _, jobs, name in searches if name not in chosen)
    stage = (
        Stage(f"searching, up to {study.most_finals} runs to follow", total, missing, progress) if searches else None
    )
    planned: dict[str, PlannedRun] = {}
    for key, trials, jobs, name in searches:
        if name not in chosen and stage is not None:
            _run_tune(list(jobs.values()), key[-1], runs.parent / "tune", engine, stage)
            best = _best(jobs, key[-1])
            if best is None:  # every candidate failed: another time it may not
                continue
            chosen[name] = best
            write_json(file, chosen)
        planned |= {run: trial for run, trial in trials.items() if jobs[run].is_done}
        choice[key] = trials[chosen[name]].settings
    return list(planned.values()), choice


def _run_tune(jobs: Sequence[Job], target: str, folder: Path, engine: RayEngine, stage: Stage) -> None:
    """Run candidates until all but the promising ones are stopped; ``folder`` is for Tune's own records."""
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
    """Reports Tune's trials as any other runs, an epoch at a time."""

    class StageCallback(tune.Callback):  # type: ignore[misc]
        def __reduce__(self) -> tuple[type, tuple[()]]:
            return object, ()  # Tune keeps a copy of its settings on disk; the progress is no part of them

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
    """In a process of the cluster: one candidate, until it is done or Tune stops it."""
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
