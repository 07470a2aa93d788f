"""Runs that were finished earlier, as the methods of a recipe: run folders and comparisons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from calibrant.experiments.comparison.folder import RUNS, STUDY
from calibrant.experiments.plan.study import Study, contenders_of
from calibrant.experiments.results import ResultRow, Results
from calibrant.experiments.results.evaluation import numbers
from calibrant.experiments.results.paper_metrics import more_numbers
from calibrant.experiments.tables.recipe_tables import columns_of
from calibrant.losses import describe
from calibrant.training import RESULT, Recipe, RunFolder

#: What a run and a method have in common if they are the same.
_METHOD = ("loss", "targets", "mixing", "data.context_rate")


def existing_runs(recipe: Recipe, paths: Sequence[Path]) -> tuple[Results, dict[str, dict[int, RunFolder]]]:
    """Every number of finished runs, and their folders by method and seed; of two runs of a seed the first.

    A run that matches no method of the recipe keeps its name in its comparison, or the name of its folder.

    Args:
        recipe: Whose methods the runs are of.
        paths: Folders of runs and of comparisons.
    """
    columns, rows = columns_of(recipe), []
    folders: dict[str, dict[int, RunFolder]] = {}
    taken: dict[tuple[str, str, int], str] = {}
    for path in paths:
        for run, labels in _runs(path, recipe):
            name, key = labels[0][1], run.path.name
            if any(taken.setdefault((row[1], row[3], row[5]), key) != key for row in labels):
                continue
            folders.setdefault(name, {}).setdefault(labels[0][5], run)
            values = (*numbers(run.path), *more_numbers(run.path, columns))
            rows += [ResultRow(*row, *number) for row in labels for number in values]
    return Results(rows), folders


def is_of(recipe: Recipe, paths: Sequence[Path]) -> bool:
    """Whether any of the runs is of the data and the network of a recipe."""
    networks = {recipe.model.name, *(method.model.get("name") for method in recipe.methods.values())}
    runs = (run.recipe() for path in paths for run in _run_folders(path))
    return any(own.data.layout == recipe.data.layout and own.model.name in networks for own in runs)


def _runs(path: Path, recipe: Recipe) -> Iterator[tuple[RunFolder, list[tuple[str, str, str, str, str, int]]]]:
    """Tested runs with what results say of each: key, method, settings, target of the tuning, stage, seed."""
    if not (path / STUDY).exists():
        for run in _run_folders(path):
            own = run.recipe()
            yield run, [(own.key, method_of(recipe, own) or path.name, "{}", "", "final", own.seed)]
        return
    finals: dict[str, list[ResultRow]] = {}
    for row in Results.load(path).where(stage="final", set="test", posthoc="none", metric="accuracy"):
        finals.setdefault(row.run, []).append(row)
    for key, purposes in finals.items():
        run = RunFolder(path / RUNS / key)
        method = None if purposes[0].method in recipe.methods else method_of(recipe, run.recipe())
        # Of a run that serves several methods or targets, each is a purpose of its own.
        yield (
            run,
            [(row.run, method or row.method, row.settings, row.tuned_for, row.stage, row.seed) for row in purposes],
        )


def _run_folders(path: Path) -> list[RunFolder]:
    if (path / STUDY).exists():
        return [RunFolder(folder) for folder in sorted((path / RUNS).iterdir()) if (folder / RESULT).exists()]
    if not (path / RESULT).exists():
        raise ValueError(f"{path} is neither the folder of a finished run nor that of a comparison")
    return [RunFolder(path)]


def method_of(recipe: Recipe, run: Recipe) -> str | None:
    """The method of a recipe that a run was trained by: the same loss, targets, mixing and share of context images.

    Of several it is the one that agrees in most of what methods of the recipe change: network, data, length.
    """
    contenders = contenders_of(recipe)
    names = sorted({key for contender in contenders.values() for key in contender.settings} - set(_METHOD))
    best, most = None, -1
    own = _plain(run)
    for name, contender in contenders.items():
        planned = Study(recipe, {name: contender}, (run.seed,)).final(name, contender.settings, run.seed, "").recipe
        if planned.key == run.key:
            return name
        plain = _plain(planned)
        if any(_value(plain, key) != _value(own, key) for key in _METHOD):
            continue
        agreement = sum(_value(plain, key) == _value(own, key) for key in names)
        if agreement > most:
            best, most = name, agreement
    return best


def _plain(recipe: Recipe) -> dict[str, Any]:
    """A recipe as plain values, the loss with its defaults."""
    plain: dict[str, Any] = recipe.model_dump(mode="json")
    return plain | {"loss": describe(recipe.loss.name).defaults() | plain["loss"]}


def _value(plain: Mapping[str, Any], name: str) -> Any:
    """What a recipe has under a name with dots; None if nothing."""
    value: Any = plain
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value
