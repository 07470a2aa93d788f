"""A comparison as tables and as one page to open."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from calibrant.auditing import reliability_series
from calibrant.base.files import json_value
from calibrant.experiments import tables
from calibrant.experiments.comparison import RUNS, Comparison
from calibrant.experiments.evaluation import flat
from calibrant.experiments.results import Results
from calibrant.experiments.spaces import short_title, space, title_of
from calibrant.experiments.study import TARGETS
from calibrant.experiments.tables import Column, Table
from calibrant.experiments.tables.cells import cell_of
from calibrant.experiments.tables.formats import FORMATS, write_table
from calibrant.experiments.tables.labels import enumerate_words, sources
from calibrant.experiments.tables.summaries import recipe_table
from calibrant.experiments.tables.verdict import judge_methods
from calibrant.metrics import ConfidenceSketch
from calibrant.predictions import Predictions
from calibrant.report import write_comparison
from calibrant.training import Recipe, RunFolder, environment

PAGE = "index.html"
MAIN = ("accuracy", "nll", "ece", "aece", "aurc")
#: What ALS also prints: the confidence of wrong and right predictions, and the ECE with many bins.
CONFIDENCE = ("mean_confidence", "overconfidence", "underconfidence", "mce", "ece_100", "objectness_deviation")
RANKED = ("accuracy", "ece", "nll", "aurc")
PAIRED = ("ece", "accuracy", "nll", "aurc")
#: Points of a curve.
POINTS = 200
#: Names of all possible tables, and prefixes of those of other sets and of the recipe.
NAMES = ("methods", "confidence", "repairs", "ranks", *(f"ranks-{target}" for target in TARGETS), "paired", "expected")
SET, TABLE = "set-", "table-"


def all_tables(comparison: Comparison, *, reference: str | None = None, expected: bool = False) -> dict[str, Table]:
    """Every table of a comparison, by the name of its file."""
    results, study = comparison.results, comparison.study
    if not comparison.finals:
        return {}
    without_runs = list(_methods_without_runs(comparison))
    columns = [
        Column("ece"), Column("ece", posthoc="temperature"), Column("nll"), Column("nll", posthoc="temperature"),
        Column("aurc"), Column("aurc", posthoc="logit-norm"),
    ]  # fmt: skip
    if "abstention" in results.where(stage="final", set="test").column("posthoc"):
        columns.append(Column("aurc", posthoc="abstention"))
    metrics = results.where(stage="final", set="test").column("metric")
    main = [*MAIN[:1], *(["mean_iou"] if "mean_iou" in metrics else []), *MAIN[1:]]
    pages = {
        "methods": tables.summary(
            results, main, reference=reference, ranks=True, missing=without_runs, title="On the test data"
        ),
        "confidence": tables.summary(
            results, [name for name in CONFIDENCE if name in metrics], missing=without_runs, title="Confidence"
        ),
        "repairs": tables.summary(results, columns, missing=without_runs, title="Before and after a repair"),
    }
    final = results.where(stage="final")
    pages["repairs"] = tables.retitle(pages["repairs"], note=f"{pages['repairs'].note} {_norm_words(final)}".strip())
    for name in final.column("set"):
        if name not in ("val", "test"):
            pages[f"{SET}{name}"] = _table_of_set(comparison, name, without_runs)
    nowhere = [label for label, target in without_runs if not target]
    ranks = {"ranks": ("", "Average ranks")}
    if len(study.tune) > 1:
        tuned = [target for target in study.tune if target in final.column("tuned_for")]
        ranks = {"ranks": ("", "Average ranks over all tuning targets")}
        ranks |= {f"ranks-{target}": (target, f"Average ranks, tuned for {target}") for target in tuned}
    for name, (target, title) in ranks.items():
        pages[name] = tables.average_ranks(results, RANKED, target=target, missing=nowhere, title=title)
    pages |= further_tables(results, study.recipe, reference, [metric for metric in PAIRED if metric in metrics])
    if expected and study.recipe.expected:
        pages["expected"] = tables.expected(results, study.recipe)
    return pages


def further_tables(results: Results, recipe: Recipe, reference: str | None, metrics: Sequence[str]) -> dict[str, Table]:
    """The differences from the reference and the tables of the recipe, where they have rows."""
    pages: dict[str, Table] = {}
    if reference is not None:
        pages["paired"] = tables.differences(results, reference, metrics)
    pages |= {f"{TABLE}{number}": recipe_table(results, recipe, number) for number in recipe.tables}
    return {name: table for name, table in pages.items() if table.rows}


def _norm_words(final: Results) -> str:
    """How often each reading of logit normalisation was chosen."""
    rows = final.where(set="test", posthoc="logit-norm")
    powers = {row.run: row.parameter for row in rows}
    counts = {
        "normalises centred logits": sum(p > 0 for p in powers.values()),
        "normalises the logits as they are": sum(p < 0 for p in powers.values()),
        "keeps the confidence, which no norm improved on,": sum(math.isnan(p) for p in powers.values()),
    }
    words = [f"{words} in {count} of {len(powers)} runs" for words, count in counts.items() if count]
    return f"Logit normalisation, chosen on held-out data, {enumerate_words(words)}." if words else ""


def _methods_without_runs(comparison: Comparison) -> Iterator[tuple[str, str]]:
    """Methods without a final run, and the tuning target, which is empty if it is all of them."""
    final, targets = comparison.results.where(stage="final"), comparison.study.tune or ("",)
    for label in comparison.study.methods:
        tuned = final.where(method=label).column("tuned_for")
        without = [target for target in targets if target not in tuned]
        yield from [(label, "")] if len(without) == len(targets) else ((label, target) for target in without)


def _table_of_set(comparison: Comparison, name: str, missing: Sequence[tuple[str, str]]) -> Table:
    """The table of a further set. Without a visible object there is no reason to be right, or confident."""
    also = comparison.study.recipe.data.also.get(name)
    is_context = "context-only" in (also, getattr(also, "variant", None))
    columns = [Column(metric, name) for metric in ("accuracy", "mean_confidence", "ece", "aurc")]
    if is_context:
        columns = [c._replace(direction="low" if c.metric == "mean_confidence" else "none") for c in columns]
    table = tables.summary(comparison.results, columns, missing=missing, title=f"On the set {name!r}")
    why = "No object is visible in these images: lower confidence is better, and the other metrics have no direction."
    return tables.retitle(table, note=f"{table.note} {why}") if is_context else table


def write(
    comparison: Comparison, *, reference: str | None = None, expected: bool = False, **additions: Sequence[Any]
) -> dict[str, Table]:
    """Write every table in four formats and the page; return the tables.

    Tables of an earlier command that this one does not have are removed.

    Args:
        comparison: The comparison.
        reference: The label that others are tested against.
        expected: Show the paper's numbers beside ours.
        additions: Further ``lead``, ``effects``, ``files`` and ``commands`` for the page.
    """
    tables_by_name = all_tables(comparison, reference=reference, expected=expected)
    page = document(comparison, tables_by_name)
    page["verdict"] = None if (verdict := judge_methods(comparison.results, reference)) is None else verdict._asdict()
    for name, values in additions.items():
        page[name] = [*page.get(name, ()), *json_value(list(values))]
    folder = comparison.folder / "tables"
    if folder.is_symlink():
        raise ValueError(f"{folder} is a link, and nothing is written through links: remove it")
    folder.mkdir(exist_ok=True)
    for name, table in tables_by_name.items():
        write_table(table, folder, name)
    _remove_stale(folder, tables_by_name)
    write_comparison(comparison.folder / PAGE, page)
    return tables_by_name


def _remove_stale(folder: Path, names: Collection[str]) -> None:
    """Remove tables of an earlier command that this one does not have, and no other file."""
    for name in [*NAMES, *(path.stem for head in (SET, TABLE) for path in folder.glob(f"{head}*.tex"))]:
        files = [folder / f"{name}.{suffix}" for suffix in FORMATS]
        # The name of a set can be anything: the files are ours if they exist in every format.
        if name not in names and (name in NAMES or all(file.is_file() for file in files)):
            for file in filter(Path.is_file, files):
                file.unlink()


def document(comparison: Comparison, tables_by_name: dict[str, Table]) -> dict[str, Any]:
    """The contents of the page, as plain values."""
    study, results = comparison.study, comparison.results
    machine, figures = environment(), _figures(comparison)
    runs = {run.key for run in comparison.planned}
    finished = set(results.column("run"))
    lead = [
        f"{_count(len(study.methods), 'method')}, {_count(len(study.seeds), 'seed')}: {_count(len(finished), 'run')}"
        + (f", {len(runs - finished)} without numbers" if runs - finished else "") + ".",
        *([f"Settings are tuned for {enumerate_words(study.tune)} on held-out data."] if study.tune else []),
    ]  # fmt: skip
    return json_value(
        {
            "format": "calibrant.comparison",
            "version": 1,
            "title": study.recipe.title or "Comparison",
            "lead": lead,
            "facts": [
                ["Data", study.recipe.data.layout],
                ["Network", study.recipe.model.name],
                ["Seeds", ", ".join(map(str, study.seeds))],
                ["Software", f"calibrant {machine['calibrant']}, torch {machine['torch']}"],
            ],
            "methods": {short_title(method.name): title_of(method.name) for method in study.methods.values()},
            "tables": [{"title": t.title, "note": t.note, "html": tables.html(t)} for t in tables_by_name.values()],
            "reliability": figures["reliability"],
            "curves": figures["curves"],
            "scatter": figures["scatter"],
            "ablation": list(_ablation(comparison)),
            "training": figures["training"],
            "failures": [
                {"run": f.run, "name": short_title(f.method), "seed": f.seed, "error": f.error}
                for f in comparison.failures
            ],
            "files": [
                ["All numbers", "results.csv"],
                ["All numbers, Parquet", "results.parquet"],
                ["Every run", "runs.csv"],
                *(
                    [f"{table.title}, {kind}", f"tables/{name}.{suffix}"]
                    for name, table in tables_by_name.items()
                    for suffix, kind in (("md", "Markdown"), ("tex", "LaTeX"))
                ),
            ],
            "commands": [],
        }
    )


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'s' * (number != 1)}"


def _figures(comparison: Comparison) -> dict[str, list[dict[str, Any]]]:
    """The data of the figures, for every row of the tables: bins, risk over coverage, seeds, epochs."""
    figures: dict[str, list[dict[str, Any]]] = {"reliability": [], "curves": [], "scatter": [], "training": []}
    has_targets = len(comparison.study.tune) > 1
    for source in sources(comparison.results):
        tuned = f", tuned for {source.tuned_for}" if has_targets and source.targets else ""
        names = {"name": short_title(source.name) + tuned, "method": source.name}
        means = {
            word: cell.mean
            for word, metric in (("accuracy", "accuracy"), ("confidence", "mean_confidence"), ("ece", "ece"))
            if (cell := cell_of(source.values(Column(metric)).values())) is not None
        }
        folders = [RunFolder(comparison.folder / RUNS / run) for run in source.rows.column("run")]
        sketch = ConfidenceSketch()
        for folder in folders:
            data = flat(Predictions.open(folder / "test.npz"))
            sketch.update(data.logits, data.labels)
        summary = sketch.summary()
        figures["reliability"].append({**names, **means, "bins": reliability_series(summary, 0.95)})
        curve = summary.risk_coverage_curve()
        at = np.unique(np.searchsorted(curve.coverage, np.linspace(0, 1, POINTS)).clip(max=len(curve.coverage) - 1))
        figures["curves"].append({**names, "coverage": curve.coverage[at], "risk": curve.risk[at]})
        accuracy, ece = (source.values(Column(metric)) for metric in ("accuracy", "ece"))
        figures["scatter"].append({**names, "points": [[accuracy[seed], ece[seed]] for seed in accuracy]})
        histories = [folder.result()["history"] for folder in folders]
        figures["training"] += [{**names, **curves} for curves in _epochs(histories)]
    return figures


def _epochs(histories: Sequence[Sequence[Mapping[str, Any]]]) -> Iterator[dict[str, Any]]:
    """Validation metrics over the epochs, if every run has them."""
    for metric in ("val_accuracy", "val_ece"):
        curves = [[entry.get(metric) for entry in history] for history in histories]
        if not curves or any(None in curve or not curve for curve in curves):
            continue
        shortest = min(map(len, curves))
        values = np.array([curve[:shortest] for curve in curves])
        yield {
            "metric": metric, "epochs": list(range(1, shortest + 1)), "mean": values.mean(0), "low": values.min(0),
            "high": values.max(0),
        }  # fmt: skip


def _ablation(comparison: Comparison) -> Iterator[dict[str, Any]]:
    """How the held-out ECE depends on each searched setting."""
    results, column = comparison.results, Column("ece", "val")
    for label, method in comparison.study.methods.items():
        for parameter in space(method.name, comparison.study.recipe) if comparison.study.tune else ():
            if parameter in method.settings:
                continue
            # Final runs have few values, the best ones only: used if the search has left none.
            points = tables.sensitivity(results, label, parameter, column, stage="search")
            if len(points) < 2:
                points = tables.sensitivity(results, label, parameter, column, stage="final")
            if len(points) > 1:
                curve = [[p.value, p.mean, None if math.isnan(p.std) else p.std, p.runs] for p in points]
                yield {
                    "name": short_title(label),
                    "method": label,
                    "parameter": parameter,
                    "metric": "val_ece",
                    "points": curve,
                }
