"""Running a comparison: an engine executes every stage of its plan, then all numbers become one table.

The folder holds `study.json` (the study, by which it is recognised), `data.json`, `runs/KEY` (a folder per run),
`runs.csv` (the purpose and outcome of each run) and the results. It is checked before anything in it is changed, and
running the same comparison again does only what is missing.

The key of a run does not depend on the path of its data. So that runs on different data are never mixed, data.json has
a checksum of the data: ids and labels of all samples, and the contents of a few.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, RootModel

from calibrant.base.files import PART, check_output, json_value, remove_leftovers, write_json, written_aside
from calibrant.base.progress import Progress, silent
from calibrant.data import Dataset, layouts
from calibrant.experiments.engines import Engine, Job, Local, Stage
from calibrant.experiments.evaluation import more_numbers, numbers
from calibrant.experiments.results import ResultRow, Results
from calibrant.experiments.study import PlannedRun, Scores, Study, first_candidates, search, trials_of
from calibrant.experiments.tables.summaries import columns_of
from calibrant.models import require_trust
from calibrant.predictions import Predictions
from calibrant.training import (
    Classification,
    DamagedError,
    DataSets,
    Recipe,
    RunFolder,
    environment,
    load_sets,
    make_fabric,
    prepare_run,
    read_record,
    replace_settings,
)

RUNS, STUDY, DATA = "runs", "study.json", "data.json"
FORMAT = "calibrant.study"

_READ = 8  # samples whose contents are part of the checksum
_BYTES = 2**20  # of each
#: Settings of a recipe that determine the samples.
_SAMPLES = {"layout", "options", "split_options", "train", "val", "test", "test_share", "variant", "variant_of", "text"}
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


class _StudyRecord(BaseModel):
    """The entry that identifies a study.json."""

    model_config = ConfigDict(extra="allow")

    format: Literal["calibrant.study"]


class _DataRecord(BaseModel):
    """The data of some settings: path, number of samples, and checksums."""

    model_config = ConfigDict(extra="forbid")

    where: str
    samples: int
    checksum: str
    classes: str | None = None


class _DataRecords(RootModel[dict[str, _DataRecord]]):
    """The contents of data.json, by a key of the settings that determine the samples."""


def has_record(folder: Path, name: str, work: str) -> bool:
    """Whether a folder has the record of a work; raise if it holds something else instead. Nothing is changed."""
    check_output(folder, folder=True)
    names = sorted(os.listdir(folder)) if folder.exists() else []
    foreign = [other for other in names if not other.startswith(PART)]
    if foreign and name not in names:
        raise ValueError(f"{folder} is not the folder of a {work}: it holds {foreign[0]}; name a new folder")
    return name in names


def check_folder(folder: Path) -> bool:
    """Whether a folder holds a comparison; raise if it holds something else. Nothing is changed."""
    if not has_record(folder, STUDY, "comparison"):
        return False
    try:
        read_record(folder / STUDY, _StudyRecord, "name a new folder")
    except DamagedError as error:
        raise ValueError(f"{folder} is not the folder of a comparison: {error}") from None
    return True


def claim(folder: Path, study: Study, data_record: Mapping[str, Any] | None = None) -> None:
    """Write study.json, and the record of the data, into a folder that was checked."""
    description = {
        "format": FORMAT,
        "version": 1,
        "methods": {label: {"name": m.name, "settings": m.settings} for label, m in study.methods.items()},
        "seeds": list(study.seeds),
        "tune": list(study.tune),
        "search": study.search,
        "trials": study.trials,
        "recipe": study.recipe.model_dump(mode="json"),
        "environment": environment(),
    }
    write_json(folder / STUDY, json_value(description))
    remove_leftovers(folder)
    (folder / RUNS).mkdir(exist_ok=True)
    if data_record is not None:
        write_json(folder / DATA, data_record)


def record_data(study: Study, folder: Path, data: str | None, trust_code: bool = False) -> dict[str, Any]:
    """Read the data once before anything runs, and check the model and loss of every method against them.

    Returns the contents of `DATA`; an error if the folder's runs were trained on other data.
    """
    records = _read_records(folder)
    path = _data_path(study.recipe, data)
    for kind, recipes in _by_samples(study).items():
        sets = load_sets(recipes[0], data)
        with torch.random.fork_rng(devices=[]):
            for recipe in recipes:
                run = prepare_run(
                    recipe, make_fabric(recipe, "cpu", 1, 1), sets, Classification(), trust_code=trust_code
                )
                run.task.rehearse(run)
        if _is_embedded(study.recipe, data):
            continue
        if recipes[0].data.train_count is not None:  # others of the same samples are drawn for each seed
            sets = load_sets(replace_settings(recipes[0], {"data.train_count": None}), data)
        record = {"where": path, **_checksum(sets)}
        before = records.setdefault(kind, record)
        if any(before.get(name, record[name]) != record[name] for name in ("checksum", "classes")):
            raise ValueError(
                f"{folder} holds runs on the data of {before['where']} ({before['samples']} samples), and those of "
                f"{path} ({record['samples']} samples) are different: name another folder"
            )
        records[kind] = record
    return records


def _by_samples(study: Study) -> dict[str, list[Recipe]]:
    """The recipes of a study's methods, with the first settings and seed of each, by a key of their samples."""
    recipes: dict[str, list[Recipe]] = {}
    for label in study.methods:
        recipe = study.final(label, study.candidates(label)[0], study.seeds[0], "").recipe
        plain = recipe.data.model_dump(mode="json", include=_SAMPLES)
        key = hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16]
        recipes.setdefault(key, []).append(recipe)
    return recipes


def has_data(study: Study, folder: Path, data: str | None) -> bool:
    """Whether the folder's runs were trained on data from this path, which may have changed since."""
    if _is_embedded(study.recipe, data):
        return True
    records, path = _read_records(folder), _data_path(study.recipe, data)
    return all(records.get(kind, {}).get("where") == path for kind in _by_samples(study))


def check_tested(finals: list[PlannedRun], runs: Path) -> None:
    """Raise if runs of one seed were tested on different samples or labels: they cannot be compared."""
    digests: dict[int, tuple[str, bytes]] = {}
    for run in finals:
        file = runs / run.key / "test.npz"
        predictions = Predictions.open(file)
        digest = hashlib.sha256(repr(predictions.class_names).encode("utf-8", "backslashreplace"))
        digest.update(np.ascontiguousarray(predictions.labels).tobytes())
        if predictions.ids is not None:
            digest.update("\n".join(map(str, predictions.ids.tolist())).encode("utf-8", "backslashreplace"))
        earlier_file, earlier_digest = digests.setdefault(run.seed, (str(file), digest.digest()))
        if earlier_digest != digest.digest():
            raise ValueError(
                f"{file} and {earlier_file} have different samples, labels or classes: they cannot be compared"
            )


def _read_records(folder: Path) -> dict[str, Any]:
    if not (folder / DATA).exists():
        return {}
    advice = "delete it if the folder's runs are on the same data"
    return read_record(folder / DATA, _DataRecords, advice).model_dump(exclude_none=True)


def _data_path(recipe: Recipe, data: str | None) -> str:
    return str(Path(data or recipe.data.path or ".").absolute())


def _is_embedded(recipe: Recipe, data: str | None) -> bool:
    layout, readers = recipe.data.layout, layouts()
    is_embedded = layout in readers and bool(readers[layout].splits(Path(layout)))
    return is_embedded and not (data or recipe.data.path)


def _checksum(sets: DataSets) -> dict[str, Any]:
    """A checksum of all samples, however they are split."""
    parts = [part for part in (sets.train, sets.val, sets.test) if part is not None]
    rows = sorted((zlib.crc32(f"{name}\n{label}".encode()), n, i) for n, part in enumerate(parts)
                  for i, (name, label) in enumerate(zip(part.ids, part.labels.tolist(), strict=True)))  # fmt: skip
    digest = hashlib.sha256(np.array([row for row, _, _ in rows], np.uint32).tobytes())
    for _, n, i in rows[:_READ]:
        digest.update(_contents(parts[n], i))
    classes = hashlib.sha256("\n".join(sets.train.classes).encode("utf-8", "backslashreplace")).hexdigest()[:16]
    return {"samples": len(rows), "checksum": digest.hexdigest()[:16], "classes": classes}


def _contents(part: Dataset, index: int) -> bytes:
    """The bytes of an image's file, since decoders differ; nothing for texts and rows, whose ids suffice."""
    if part.kind != "image":
        return b""
    path = Path(part.inputs.where(index))
    if path.is_file():
        with path.open("rb") as file:
            return file.read(_BYTES)
    return np.asarray(part.inputs[index]).tobytes()
