"""Backbones compared by the detectors that are trained on them [ALS, Tables 4 and 7]: runs, tables and a page.

A detector is trained on every backbone with every seed. If a backbone has several runs, the seeds take them in turn, so
that intervals are over classifiers and detectors; with one run they are over detectors alone.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from calibrant.base.checks import listing
from calibrant.base.files import check_output, read_json, write_json
from calibrant.detection import Backbone, Detection, plan_run
from calibrant.experiments import tables
from calibrant.experiments.comparison_page import PAGE, further_tables
from calibrant.experiments.results import ResultRow, Results
from calibrant.experiments.tables.cells import Table
from calibrant.experiments.tables.formats import write_table
from calibrant.metrics import DETECTION
from calibrant.report import PaperPart, write_paper_page
from calibrant.training import EventLog, Recipe, RunFolder, train

RUNS, RECORD = "runs", "detection.json"
FORMAT = "calibrant.detection"
#: Metrics that are tested seed by seed.
PAIRED = ("ap", "ap50", "ap75", "ar100")

Backbones = Mapping[str, Sequence[Backbone]]


def check_detectors(folder: Path) -> None:
    """Raise unless a folder is new, or one of `compare_detectors`; nothing is changed."""
    check_output(folder, folder=True)
    names = set(os.listdir(folder)) if folder.exists() else set()
    if names <= {RUNS}:  # new, or ended before the first numbers; runs check their own folders
        return
    if RECORD not in names or read_json(folder / RECORD, 2**20, "a record").get("format") != FORMAT:
        raise ValueError(f"{folder} is not a folder of detectors: name a new folder")


def compare_detectors(
    recipe: Recipe,
    backbones: Backbones,
    seeds: Sequence[int],
    folder: Path,
    *,
    data: str | None = None,
    event_log: Callable[[str, int], EventLog] | None = None,
    **options: Any,
) -> Results:
    """Train a detector on every backbone with every seed; what is finished is not computed again.

    The name of a backbone is the ``method`` of its results; ``event_log`` returns the event log for a backbone and a
    seed. Further options are those of `calibrant.training.train`: devices, nodes, accelerator, trust_code.
    """
    check_detectors(folder)
    rows: list[ResultRow] = []
    for number, seed in enumerate(seeds):
        for name, runs in backbones.items():
            plan = plan_run(recipe, runs[number % len(runs)], seed)
            run = RunFolder(folder / RUNS / plan.key)
            _check_data(run, data)
            log: dict[str, Any] = {} if event_log is None else {"event_log": event_log(name, seed)}
            result = train(plan, run.path, data=data, resume=True, task=Detection(), **log, **options)
            rows += [
                ResultRow(plan.key, name, "{}", "", "final", seed, set_name, "none", math.nan, metric, value)
                for set_name, values in result["sets"].items()
                for metric, value in values.items()
            ]
    results = Results(rows)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / RECORD, {"format": FORMAT, "backbones": list(backbones), "seeds": list(seeds)})
    results.save(folder)
    return results


def _check_data(run: RunFolder, data: str | None) -> None:
    """Raise if a run has begun on other data: its key does not depend on the path of the data."""
    if data is None or run.is_new or not (run / "recipe.json").exists():
        return
    before = run.recipe().data.path
    if before and Path(before) != Path(data).absolute():
        raise ValueError(f"{run.path} is a run on the data in {before}, not on {data}: name a new folder")


def detector_tables(results: Results, recipe: Recipe, reference: str | None) -> dict[str, Table]:
    """Every table of a comparison of backbones, by the name of its file."""
    metrics = results.where(set="test").column("metric")
    names = [name for name in DETECTION if name in metrics]
    pages = {
        word: tables.summary(
            results,
            [name for name in names if name.startswith(kind)],
            reference=reference,
            title=f"Average {word} on the test data",
        )
        for kind, word in (("ap", "precision"), ("ar", "recall"))
    }
    pages |= further_tables(results, recipe, reference, [metric for metric in PAIRED if metric in names])
    expected = tables.expected(results, recipe)
    if any(line.cells[1] for line in expected.rows):
        pages["expected"] = expected
    return pages


def write_detectors(
    pages: Mapping[str, Table], recipe: Recipe, backbones: Backbones, folder: Path, *, command: str
) -> Path:
    """Write the tables (md, tex, csv, html) and a page; return the path of the page."""
    files = [file.name for name, table in pages.items() for file in write_table(table, folder, name)]
    parts = [PaperPart(table.title, text=table.note, table=tables.html(table)) for table in pages.values()]
    write_paper_page(
        folder / PAGE,
        title=recipe.title or "Detectors compared",
        lead=f"Detectors on the backbones {listing(list(backbones), 10)}.",
        parts=parts,
        notes=describe_setting(backbones, recipe),
        files=["results.csv", *files],
        command=command,
    )
    return folder / PAGE


def describe_setting(backbones: Backbones, recipe: Recipe) -> list[str]:
    """Notes on the detector and on what the intervals cover."""
    assert recipe.detection is not None
    most = max(map(len, backbones.values()))
    kind = "with a feature pyramid" if recipe.detection.pyramid else "without a feature pyramid"
    over = (
        f"Seeds take the {most} runs of a backbone in turn: intervals are over classifiers and detectors."
        if most > 1
        else "Each backbone is one run: intervals are over the seeds of the detectors alone, not of the classifiers."
    )
    sizes = "Sizes of objects are as annotated, or those of their boxes."
    return [f"Faster R-CNN {kind} on {recipe.model.name}.", over, sizes]


def default_reference(names: Sequence[str], usual: Sequence[str]) -> str | None:
    """The backbone that others are tested against: the first whose name is, or begins with, a usual one."""
    return next((name for word in usual for name in names if name == word or name.startswith(f"{word},")), None)


def as_plain(results: Results) -> dict[str, Any]:
    """Numbers by backbone, set, metric and seed."""
    plain: dict[str, Any] = {}
    for row in results:
        metrics = plain.setdefault(row.method, {}).setdefault(row.set, {})
        metrics.setdefault(row.metric, {})[str(row.seed)] = row.value
    return plain
