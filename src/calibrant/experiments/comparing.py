"""A comparison, run: every stage of its plan by an engine, then one table of all numbers.

The folder holds `study.json` (what was asked), `runs/KEY` (a folder per run), `runs.csv` (what each run was for and how
it ended) and the results. Running the same comparison again does what is missing, and nothing else.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from calibrant._files import write_json, written_aside
from calibrant.experiments.data_seen import SEEN, check_data, check_tested, is_known
from calibrant.experiments.evaluation import numbers
from calibrant.experiments.folder import RUNS, claim, look
from calibrant.experiments.local import Local, Staged, Told
from calibrant.experiments.results import Results, Row
from calibrant.experiments.study import Choice, Judged, Planned, Study
from calibrant.experiments.work import Job
from calibrant.models import require_trust
from calibrant.training import RunFolder, make_fabric


class Engine(Protocol):
    """What executes runs."""

    def run(self, jobs: Sequence[Job], told: Told) -> None:
        """Do all jobs; each leaves its numbers in its folder, or why it failed."""


@dataclass(frozen=True)
class Failure:
    """A run that has no numbers."""

    run: str
    method: str
    seed: int
    error: str


@dataclass(frozen=True)
class Comparison:
    """What came of a study.

    Attributes:
        study: What was asked.
        folder: Where everything lies.
        planned: Every run, and what it is for; one run may serve several purposes.
        results: Every number.
        failures: Runs without numbers.
    """

    study: Study
    folder: Path
    planned: tuple[Planned, ...]
    results: Results
    failures: tuple[Failure, ...]

    def run_folder(self, run: Planned) -> RunFolder:
        """Where a run lies."""
        return RunFolder(self.folder / RUNS / run.key)

    @property
    def finals(self) -> list[Planned]:
        """The runs that are tested and have numbers."""
        known = set(self.results.where(stage="final").column("run"))
        return [run for run in self.planned if run.stage == "final" and run.key in known]

    @property
    def twins(self) -> list[tuple[str, str]]:
        """Methods that gave the very numbers of another, with that other: what makes them differ never acted."""
        seen: dict[tuple[tuple[int, float], ...], str] = {}
        found = []
        for method in self.study.methods:
            tested = self.results.where(method=method, stage="final", set="test", posthoc="none", metric="nll")
            numbers = tuple(sorted({(row.seed, row.value) for row in tested}))
            if numbers and (other := seen.setdefault(numbers, method)) != method:
                found.append((method, other))
        return found


def compare(
    study: Study,
    folder: str | Path,
    *,
    data: str | None = None,
    engine: Engine | None = None,
    retry: bool = False,
    trust_code: bool = False,
    told: Told = lambda event, job, steps: None,
    stage: Staged = lambda name, runs, missing, later: None,
    begun: Callable[[Path], None] = lambda folder: None,
) -> Comparison:
    """Run what a study needs and is not on disk yet, and collect all numbers.

    Nothing is written before the data were read, and model and loss of every method were seen to go with them.

    Args:
        study: What is compared.
        folder: Where runs and results lie: a new one, or one of another comparison.
        data: Where the data lies, if not where the recipe says.
        engine: What executes the runs: processes of this machine if left out.
        retry: Try again what failed for a reason that is likely to come again.
        trust_code: Import and call a model that is neither Calibrant's, torchvision's nor timm's.
        told: Told of every job that starts, goes on and ends.
        stage: Told of every stage: its name, its runs, how many are missing, and how many may follow.
        begun: Told once the folder is this comparison's.
    """
    folder, engine = Path(folder), engine or Local(cpus=study.recipe.resources.cpus)
    for model in study.models:
        require_trust(model.name, model.options, trust_code)
    look(folder)
    first = next(study.stages())
    data_record = None
    finished = bool(first) and all(Job.of(run.recipe, folder / RUNS, data, "").done for run in first)
    if not (finished and is_known(study, folder, data)):
        if isinstance(engine, Local):  # else the runs are other machines'
            make_fabric(study.recipe, engine.accelerator, 1, 1)
        data_record = check_data(study, folder, data, trust_code)
        for run in first:
            RunFolder(folder / RUNS / run.key).check_run()
    claim(folder, study)
    if data_record is not None:
        write_json(folder / SEEN, data_record)
    begun(folder)
    trials, chosen = _searched(study, folder / RUNS, data, trust_code, engine, told, stage)
    plan = study.stages(chosen)
    now = next(plan)
    known = [*trials]
    while True:
        known += now
        jobs = {run.key: Job.of(run.recipe, folder / RUNS, data, f"{run.method} {run.seed}", trust_code) for run in now}
        missing = [job for job in jobs.values() if not job.done and (retry or not _lasting(job))]
        if now:
            stage(now[0].stage, len(jobs), len(missing), 0 if now[0].stage == "final" else study.most_finals)
        if missing:
            try:
                engine.run(missing, told)
            except KeyboardInterrupt:
                collected(study, folder, known)  # what is finished is in the table, whatever comes next
                raise
        try:
            now = plan.send(_judged(jobs))
        except StopIteration as end:
            planned = (*trials, *end.value)
            break
    comparison = collected(study, folder, planned)
    check_tested(comparison.finals, folder / RUNS)
    return comparison


def collected(study: Study, folder: Path, planned: Sequence[Planned]) -> Comparison:
    """Every number of the planned runs that is on disk, written as one table."""
    rows, failures, told = [], {}, []
    for run in planned:
        job = Job.of(run.recipe, folder / RUNS, None, run.method)
        failure = job.failure
        if job.done:
            labels = (run.key, run.method, run.label, run.tuned_for, run.stage, run.seed)
            rows += [Row(*labels, *number) for number in numbers(job.folder)]
        elif failure is not None:
            failures[run.key] = Failure(run.key, run.method, run.seed, str(failure["error"]))
        state = "done" if job.done else "failed" if failure else "missing"
        told.append([run.key, run.method, run.label, run.tuned_for, run.stage, run.seed, state,
                     "" if job.done or failure is None else failure["error"]])  # fmt: skip
    results = Results(rows)
    results.save(folder)
    with written_aside(folder / "runs.csv") as aside, aside.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["run", "method", "settings", "tuned_for", "stage", "seed", "state", "error"])
        writer.writerows(told)
    return Comparison(study, folder, tuple(planned), results, tuple(failures.values()))


def _searched(
    study: Study, runs: Path, data: str | None, trust_code: bool, engine: Engine, told: Told, stage: Staged
) -> tuple[Sequence[Planned], Choice | None]:
    """Halving by an engine that has its own way to search; nothing otherwise, and the plan of the study does it."""
    search = getattr(engine, "search", None) if study.tune and study.search == "halving" else None
    return ((), None) if search is None else search(study, runs, data, told, stage, trust_code)


def _judged(jobs: dict[str, Job]) -> Judged:
    """The validation numbers of the runs that have any."""
    return {
        key: {n.metric: n.value for n in numbers(job.folder) if n.set == "val" and n.posthoc == "none"}
        for key, job in jobs.items()
        if job.done
    }


def _lasting(job: Job) -> bool:
    failure = job.failure
    return failure is not None and bool(failure.get("lasting"))
