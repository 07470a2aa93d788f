"""A comparison as tables and as one page to open."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from calibrant.auditing.document import clean, reliability_series
from calibrant.experiments import tables
from calibrant.experiments.comparing import RUNS, Comparison
from calibrant.experiments.evaluation import flat
from calibrant.experiments.spaces import space
from calibrant.experiments.study import Planned
from calibrant.experiments.tables import Column, Table
from calibrant.files import written_aside
from calibrant.metrics import ConfidenceSketch
from calibrant.predictions import Predictions
from calibrant.report import write_comparison
from calibrant.training.run_folder import environment

PAGE = "index.html"
MAIN = ("accuracy", "nll", "ece", "aece", "aurc")
RANKED = ("accuracy", "ece", "nll", "aurc")
#: How many points a curve of the page has.
POINTS = 200
WRITERS = {"md": tables.markdown, "tex": tables.latex, "csv": tables.csv, "html": tables.html}


def all_tables(comparison: Comparison, *, reference: str | None = None, expected: bool = False) -> dict[str, Table]:
    """Every table of a comparison, by the name of its file."""
    results = comparison.results
    if not comparison.finals:
        return {}
    reference = reference if reference in comparison.study.methods else None
    sets = [name for name in results.where(stage="final").column("set") if name not in ("val", "test")]
    found = {"methods": tables.summary(results, MAIN, reference=reference, ranks=True, title="On the test data")}
    repaired = [
        Column("ece"), Column("ece", posthoc="temperature"), Column("nll"), Column("nll", posthoc="temperature"),
        Column("aurc"), Column("aurc", posthoc="logit-norm"),
    ]  # fmt: skip
    found["repairs"] = tables.summary(results, repaired, title="Before and after a repair")
    for name in sets:
        columns = [Column(metric, name) for metric in ("accuracy", "mean_confidence", "ece", "aurc")]
        found[f"set-{name}"] = tables.summary(results, columns, title=f"On the set {name!r}")
    found["ranks"] = tables.average_ranks(results, RANKED)
    if expected:
        found["expected"] = tables.expected(results, comparison.study.recipe)
    return found


def write(
    comparison: Comparison, *, reference: str | None = None, expected: bool = False, **more: Sequence[Any]
) -> dict[str, Table]:
    """Write every table in four formats and the page; gives the tables.

    Args:
        comparison: What to show.
        reference: A method that the others are tested against.
        expected: Lay the paper's numbers beside ours.
        more: For the page: ``lead``, ``effects``, ``files`` and ``commands``, after its own.
    """
    found = all_tables(comparison, reference=reference, expected=expected)
    folder = comparison.folder / "tables"
    folder.mkdir(exist_ok=True)
    for name, table in found.items():
        for suffix, writer in WRITERS.items():
            with written_aside(folder / f"{name}.{suffix}") as aside:
                aside.write_text(writer(table), encoding="utf-8")
    page = document(comparison, found)
    for name, values in more.items():
        page[name] = [*page.get(name, ()), *clean(list(values))]
    write_comparison(comparison.folder / PAGE, page)
    return found


def document(comparison: Comparison, found: dict[str, Table]) -> dict[str, Any]:
    """What the page shows, as plain values."""
    study, results = comparison.study, comparison.results
    machine = environment()
    runs = {run.key for run in comparison.planned}
    done = set(results.column("run"))
    lead = [
        f"{len(study.methods)} methods, {len(study.seeds)} seeds: {len(done)} runs"
        + (f", {len(runs - done)} without numbers" if runs - done else "") + ".",
        *([f"Settings are tuned for {', '.join(study.tune)} on held-out data."] if study.tune else []),
    ]  # fmt: skip
    return clean(
        {
            "format": "calibrant.comparison",
            "version": 1,
            "title": study.recipe.title or "Comparison",
            "lead": lead,
            "facts": [
                ["data", study.recipe.data.layout],
                ["network", study.recipe.model.name],
                ["seeds", ", ".join(map(str, study.seeds))],
                ["software", f"calibrant {machine['calibrant']}, torch {machine['torch']}"],
            ],
            "tables": [{"title": t.title, "note": t.note, "html": tables.html(t)} for t in found.values()],
            "reliability": list(_reliability(comparison)),
            "curves": list(_curves(comparison)),
            "scatter": list(_scatter(comparison)),
            "ablation": list(_ablation(comparison)),
            "training": list(_training(comparison)),
            "failures": [
                {"run": f.run, "name": f.method, "seed": f.seed, "error": f.error} for f in comparison.failures
            ],
            "files": [
                ["all numbers", "results.csv"],
                ["all numbers, Parquet", "results.parquet"],
                ["every run", "runs.csv"],
                *([f"{name}, {suffix}", f"tables/{name}.{suffix}"] for name in found for suffix in ("md", "tex")),
            ],
            "commands": [],
        }
    )


def rows_of(comparison: Comparison) -> Iterator[tuple[str, list[Planned]]]:
    """The final runs of each row of the tables, by the row's name."""
    several = len(comparison.study.tune) > 1
    grouped: dict[str, list[Planned]] = {}
    for run in comparison.finals:
        name = f"{run.method}, tuned for {run.tuned_for}" if several else run.method
        grouped.setdefault(name, []).append(run)
    yield from grouped.items()


def _sketch(comparison: Comparison, runs: Sequence[Planned]) -> ConfidenceSketch:
    """One sketch of the test predictions of several runs."""
    sketch = ConfidenceSketch(sync_on_compute=False)
    for run in runs:
        data = flat(Predictions.open(comparison.run_folder(run) / "test.npz"))
        sketch.update(data.logits, data.labels)
    return sketch


def _reliability(comparison: Comparison) -> Iterator[dict[str, Any]]:
    for name, runs in rows_of(comparison):
        sketch = _sketch(comparison, runs)
        values = {key: float(value) for key, value in sketch.compute().items()}
        yield {
            "name": name, "accuracy": values["accuracy"], "confidence": values["mean_confidence"],
            "ece": values["ece"], "bins": reliability_series(sketch.summary(), 0.95),
        }  # fmt: skip


def _curves(comparison: Comparison) -> Iterator[dict[str, Any]]:
    for name, runs in rows_of(comparison):
        curve = _sketch(comparison, runs).summary().risk_coverage_curve()
        at = np.unique(np.searchsorted(curve.coverage, np.linspace(0, 1, POINTS)).clip(max=len(curve.coverage) - 1))
        yield {"name": name, "coverage": curve.coverage[at], "risk": curve.risk[at]}


def _scatter(comparison: Comparison) -> Iterator[dict[str, Any]]:
    numbers = comparison.results.where(stage="final", set="test", posthoc="none")
    for name, runs in rows_of(comparison):
        mine = numbers.where(run=[run.key for run in runs], tuned_for=runs[0].tuned_for, method=runs[0].method)
        accuracy, ece = (mine.by_seed(metric=metric) for metric in ("accuracy", "ece"))
        yield {"name": name, "points": [[accuracy[seed], ece[seed]] for seed in accuracy]}


def _ablation(comparison: Comparison) -> Iterator[dict[str, Any]]:
    """How the held-out ECE depends on each setting that was searched."""
    for label, method in comparison.study.methods.items():
        for parameter in space(method.name, comparison.study.recipe) if comparison.study.tune else ():
            if parameter in method.settings:
                continue
            points = tables.sensitivity(comparison.results, label, parameter, Column("ece", "val"))
            if len(points) > 1:
                curve = [[p.value, p.mean, None if math.isnan(p.std) else p.std, p.runs] for p in points]
                yield {"name": label, "parameter": parameter, "metric": "ece", "points": curve}


def _training(comparison: Comparison) -> Iterator[dict[str, Any]]:
    """Validation numbers over the epochs, where runs have any."""
    for name, runs in rows_of(comparison):
        histories = [_history(comparison.folder / RUNS / run.key) for run in runs]
        for metric in ("accuracy", "ece"):
            curves = [[entry.get(f"val_{metric}") for entry in history] for history in histories]
            if not curves or any(None in curve or not curve for curve in curves):
                continue
            shortest = min(map(len, curves))
            values = np.array([curve[:shortest] for curve in curves])
            yield {
                "name": name, "metric": metric, "epochs": list(range(1, shortest + 1)), "mean": values.mean(0),
                "low": values.min(0), "high": values.max(0),
            }  # fmt: skip


def _history(folder: Path) -> list[dict[str, Any]]:
    return list(json.loads((folder / "result.json").read_text(encoding="utf-8"))["history"])
