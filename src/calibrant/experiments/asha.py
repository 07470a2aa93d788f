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
from typing import Any

from pydantic import RootModel

from calibrant._files import write_json
from calibrant._ray import RETRIES
from calibrant.experiments.evaluation import numbers
from calibrant.experiments.local import Staged, Told
from calibrant.experiments.spaces import Settings
from calibrant.experiments.study import ETA, Planned, Study
from calibrant.experiments.work import Job, in_turn
from calibrant.metrics import describe
from calibrant.training import Resources, check_recipe, read_record, train

#: Hundredths of the training at the first of the two rungs; the next lies at ETA times as many, and the end at none:
#: a run that is stopped at its end would have no predictions.
FIRST_RUNG = 12
CHOSEN = "asha.json"


class _Chosen(RootModel[dict[str, str]]):
    """What `CHOSEN` holds: by target and candidates, the key of the one that was chosen."""


def asha(
    jobs: Sequence[Job],
    target: str,
    folder: Path,
    resources: Resources,
    accelerator: str = "auto",
    told: Told = lambda event, job, steps: None,
    most: int | None = None,
) -> list[Job]:
    """Run candidates until all but the promising ones are stopped; those that were trained to the end.

    Ray is connected.

    Args:
        jobs: One of each candidate, whole runs with validation data.
        target: The metric that judges.
        folder: For Tune's own records, shared by all machines.
        resources: Of each run.
        accelerator: As Lightning Fabric takes it.
        told: Told of every candidate that starts, goes on and ends, or is stopped.
        most: Candidates at a time; as many as fit if left out.
    """
    os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
    os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
    os.environ.setdefault("TUNE_DISABLE_SIGINT_HANDLER", "1")  # Tune would end as if it had finished
    from ray import tune
    from ray.tune.schedulers import ASHAScheduler

    place = os.getcwd()
    work = tune.with_resources(
        tune.with_parameters(_trial, jobs=list(jobs), target=target, accelerator=accelerator, folder=place),
        {"CPU": resources.cpus, "GPU": resources.gpus},
    )
    better = "max" if describe(target).better == "high" else "min"
    scheduler = ASHAScheduler(
        time_attr="percent", metric=target, mode=better, max_t=10**6, grace_period=FIRST_RUNG, reduction_factor=ETA
    )
    tuner = tune.Tuner(
        work,
        param_space={"candidate": tune.grid_search(list(range(len(jobs))))},
        tune_config=tune.TuneConfig(scheduler=scheduler, max_concurrent_trials=most),
        run_config=tune.RunConfig(
            name=f"asha-{target}-{jobs[0].key}",
            storage_path=str(folder.absolute()),
            failure_config=tune.FailureConfig(max_failures=RETRIES),
            callbacks=[_heard(tune, jobs, told)],
            verbose=0,
        ),
    )
    tuner.fit()
    return [job for job in jobs if job.done]


def _heard(tune: Any, jobs: Sequence[Job], told: Told) -> Any:
    """Tells of Tune's trials as of any other runs; an epoch at a time."""

    class Heard(tune.Callback):  # type: ignore[misc]
        def __reduce__(self) -> tuple[type, tuple[()]]:
            return object, ()  # Tune keeps a copy of its settings on disk; whoever listens is no part of them

        def on_trial_start(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            told("start", jobs[trial.config["candidate"]], (0, 0))

        def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: Any, **info: Any) -> None:
            told("progress", jobs[trial.config["candidate"]], (int(result.get("percent", 0)), 100))

        def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            job = jobs[trial.config["candidate"]]
            told("done" if job.done else "failed" if job.failure else "stopped", job, (0, 0))

        def on_trial_error(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            told("failed", jobs[trial.config["candidate"]], (0, 0))

    return Heard()


def searched(
    study: Study,
    runs: Path,
    data: str | None,
    resources: Resources,
    accelerator: str = "auto",
    most: int | None = None,
    told: Told = lambda event, job, steps: None,
    stage: Staged = lambda name, runs, missing, later: None,
    trust_code: bool = False,
) -> tuple[list[Planned], dict[tuple[str, int, str], Settings]]:
    """The search of a study: runs that were trained to the end, and by label, seed and target what was chosen.

    A search that has ended is not repeated: what it chose is kept beside the runs. Ray is connected.

    Args:
        study: What is compared.
        runs: Folder of the runs.
        data: Where the data lies, if not where the recipe says.
        resources: Of each run.
        accelerator: As Lightning Fabric takes it.
        most: Candidates at a time; as many as fit if left out.
        told: Told of every candidate that starts, goes on and ends, or is stopped.
        stage: Told of the search: its candidates, how many of them are missing, and how many runs may follow.
        trust_code: Whether a model that is neither Calibrant's, torchvision's nor timm's may be imported.
    """
    file = runs.parent / CHOSEN
    kept = read_record(file, _Chosen, "delete it, and the search is repeated").root if file.exists() else {}
    planned: dict[str, Planned] = {}
    chosen: dict[tuple[str, int, str], Settings] = {}
    searches = []
    for label, seed in itertools.product(study.methods, study.search_seeds):
        trials = [study.trial(label, seed, settings) for settings in study.candidates(label)]
        jobs = {
            trial.key: Job.of(trial.recipe, runs.absolute(), data, f"{label} {seed}", trust_code) for trial in trials
        }
        for target in study.tune:
            if len(trials) == 1:
                chosen[label, seed, target] = trials[0].settings
            else:
                name = " ".join([target, *sorted(jobs)])
                if kept.get(name, trials[0].key) not in jobs:
                    raise ValueError(f"{file} is damaged (it chose none of the candidates); delete it")
                searches.append(((label, seed, target), trials, jobs, name))
    if searches:
        sizes = [(len(jobs), name not in kept) for _, _, jobs, name in searches]
        whole, missing = sum(size for size, _ in sizes), sum(size for size, missing in sizes if missing)
        stage("search", whole, missing, study.most_finals)
    for place, trials, jobs, name in searches:
        if name not in kept:
            asha(list(jobs.values()), place[-1], runs.parent / "tune", resources, accelerator, told, most)
            best = _best(jobs, place[-1])
            if best is None:  # every candidate failed: another time it may not
                continue
            kept[name] = best
            write_json(file, kept)
        planned |= {one.key: one for one in trials if jobs[one.key].done}
        chosen[place] = next(one.settings for one in trials if one.key == kept[name])
    return list(planned.values()), chosen


def _best(jobs: Mapping[str, Job], target: str) -> str | None:
    """The key of the best run that was trained to the end; None if every candidate failed."""
    sign = describe(target).sign
    values = {
        key: sign * n.value
        for key, job in jobs.items()
        if job.done
        for n in numbers(job.folder)
        if (n.set, n.posthoc, n.metric) == ("val", "none", target) and not math.isnan(n.value)
    }
    return min(values, key=values.__getitem__, default=None)


def _trial(config: Mapping[str, Any], jobs: Sequence[Job], target: str, accelerator: str, folder: str) -> None:
    """In a process of the cluster: one candidate, until it is done or Tune stops it."""
    from ray import tune

    with contextlib.suppress(OSError):
        os.chdir(folder)
    job, steps = jobs[config["candidate"]], 0

    def listen(event: str, found: Mapping[str, Any]) -> None:
        nonlocal steps
        if event == "start":
            steps = found["steps"]
        value = found.get(f"val_{target}", math.nan)
        if event == "epoch" and found["step"] < steps and not math.isnan(value):
            tune.report({target: value, "percent": 100 * found["step"] // steps})

    try:
        if not job.done:
            recipe = check_recipe(dict(job.recipe), job.folder)
            in_turn(
                lambda: train(
                    recipe, job.folder, data=job.data, resume=True, accelerator=accelerator,
                    trust_code=job.trust_code, event_log=listen,
                )
            )  # fmt: skip
        values = {n.metric: n.value for n in numbers(job.folder) if n.set == "val" and n.posthoc == "none"}
    except (ValueError, ArithmeticError, TypeError, KeyError) as error:
        job.fail(" ".join(str(error).split()), lasting=True)
        return
    tune.report({target: values[target], "percent": 100})
