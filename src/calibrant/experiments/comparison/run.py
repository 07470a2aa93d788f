"""Running a comparison: an engine executes every stage of its plan, then all numbers become one table.

The folder holds `study.json` (the study), `runs/KEY` (a folder per run), `runs.csv` (the purpose and outcome of each
run) and the results. Running the same comparison again does only what is missing.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from calibrant._files import written_aside
from calibrant._progress import Progress, silent
from calibrant.experiments.comparison.folder import RUNS, check_folder, check_tested, claim, has_data, record_data
from calibrant.experiments.engines.job import Job, Stage
from calibrant.experiments.engines.local import Engine, Local
from calibrant.experiments.plan.study import PlannedRun, Scores, Study, first_candidates, search, trials_of
from calibrant.experiments.results import ResultRow, Results
from calibrant.experiments.results.evaluation import more_numbers, numbers
from calibrant.experiments.tables.summaries import columns_of
from calibrant.models import require_trust
from calibrant.training import RunFolder, make_fabric

_STAGES = {"short": "searching, short runs", "search": "searching", "final": "testing"}


@dataclass(frozen=True)
class Failure:
    """A run that has no numbers."""

    run: str
    method: str
    seed: int
    error: str


@dataclass(frozen=True)
class Comparison:
    """The outcome of a study.

    Attributes:
        study: The study.
        folder: Its folder.
        planned: Every run, and its purpose; one run may serve several purposes.
        results: Every number.
        failures: Runs without numbers.
    """

    study: Study
    folder: Path
    planned: tuple[PlannedRun, ...]
    results: Results
    failures: tuple[Failure, ...]

    def run_folder(self, run: PlannedRun) -> RunFolder:
        """The folder of a run."""
        return RunFolder(self.folder / RUNS / run.key)

    @property
    def finals(self) -> list[PlannedRun]:
        """The final runs that have numbers."""
        finished = set(self.results.where(stage="final").column("run"))
        return [run for run in self.planned if run.stage == "final" and run.key in finished]

    @property
    def twins(self) -> list[tuple[str, str]]:
        """Pairs of methods whose numbers match exactly: the regulariser of the first was never active."""
        owners: dict[tuple[tuple[int, float], ...], str] = {}
        twins = []
        for method in self.study.methods:
            rows = self.results.where(method=method, stage="final", set="test", posthoc="none", metric="nll")
            values = tuple(sorted({(row.seed, row.value) for row in rows}))
            if values and (owner := owners.setdefault(values, method)) != method:
                twins.append((method, owner))
        return twins


def compare(
    study: Study,
    folder: str | Path,
    *,
    data: str | None = None,
    engine: Engine | None = None,
    retry: bool = False,
    trust_code: bool = False,
    centre: bool | None = None,
    progress: Progress = silent,
) -> Comparison:
    """Execute the runs of a study that are not on disk yet, and collect all numbers.

    Nothing is written before the data are read, and the model and loss of every method are checked against them.

    Args:
        study: What is compared.
        folder: The folder for runs and results: a new one, or that of a comparison.
        data: Folder of the data, if not the recipe's.
        engine: Executes the runs; processes of this machine if left out.
        retry: Also retry runs that failed deterministically.
        trust_code: Allow importing and calling a model given as ``package.module:factory``.
        centre: Whether logit normalisation centres the logits; both readings are tried if left out.
        progress: Called with the number of finished runs of a stage.
    """
    folder, engine = Path(folder), engine or Local(cpus=study.recipe.resources.cpus)
    for model in study.models:
        require_trust(model.name, model.options, trust_code)
    check_folder(folder)
    _claim(study, folder, data, engine, trust_code)
    runs: list[PlannedRun] = []

    def execute(planned: Sequence[PlannedRun]) -> Scores:
        """Execute runs that are not on disk yet; return the validation metrics of all finished ones."""
        runs.extend(planned)
        jobs = {run.key: Job.of(run.recipe, folder / RUNS, data, run.title, trust_code) for run in planned}
        pending = [
            job for job in jobs.values() if not job.is_done and (retry or not (job.failure or {}).get("lasting"))
        ]
        if planned:
            later = "" if planned[0].stage == "final" else f", up to {study.most_finals} runs to follow"
            stage = Stage(_STAGES[planned[0].stage] + later, len(jobs), len(pending), progress)
        if pending:
            try:
                engine.run(pending, stage)
            except KeyboardInterrupt:
                collect(study, folder, runs, centre)  # finished runs are in the table even so
                raise
        return {key: job.validation() for key, job in jobs.items() if job.is_done}

    search_on_engine = getattr(engine, "search", None) if study.tune and study.search == "halving" else None
    if search_on_engine is None:
        _, choice = search(study, execute)
    else:
        trials, choice = search_on_engine(study, folder / RUNS, data, progress, trust_code)
        runs.extend(trials)
    execute(study.finals(choice))
    comparison = collect(study, folder, runs, centre)
    check_tested(comparison.finals, folder / RUNS)
    return comparison


def _claim(study: Study, folder: Path, data: str | None, engine: Engine, trust_code: bool) -> None:
    """Claim the folder, after checking the data unless they and the first runs are known."""
    groups = trials_of(study, first_candidates(study), 0)
    first_runs = [run for group in groups.values() for run in group] if study.tune else study.finals({})
    is_finished = bool(first_runs) and all(Job.of(run.recipe, folder / RUNS, data, "").is_done for run in first_runs)
    if is_finished and has_data(study, folder, data):
        claim(folder, study)
        return
    if isinstance(engine, Local):  # else other machines execute the runs
        make_fabric(study.recipe, engine.accelerator, 1, 1)
    record = record_data(study, folder, data, trust_code)
    for run in first_runs:
        RunFolder(folder / RUNS / run.key).check_run()
    claim(folder, study, record)


def collect(study: Study, folder: Path, planned: Sequence[PlannedRun], centre: bool | None = None) -> Comparison:
    """Collect and write the numbers of all finished runs; ``centre`` as for `compare`."""
    rows, failures, lines = [], {}, []
    columns = columns_of(study.recipe)
    for run in planned:
        job = Job.of(run.recipe, folder / RUNS, None, run.method)
        is_done, failure = job.is_done, job.failure
        labels = (run.key, run.method, run.label, run.tuned_for, run.stage, run.seed)
        if is_done:
            of_tables = more_numbers(job.folder, columns) if run.stage == "final" else []
            rows += [ResultRow(*labels, *number) for number in (*numbers(job.folder, centre), *of_tables)]
        elif failure is not None:
            failures[run.key] = Failure(run.key, run.method, run.seed, str(failure["error"]))
        state = "done" if is_done else "failed" if failure else "missing"
        lines.append([*labels, state, "" if is_done or failure is None else failure["error"]])
    results = Results(rows)
    results.save(folder)
    with written_aside(folder / "runs.csv") as aside, aside.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["run", "method", "settings", "tuned_for", "stage", "seed", "state", "error"])
        writer.writerows(lines)
    return Comparison(study, folder, tuple(planned), results, tuple(failures.values()))
