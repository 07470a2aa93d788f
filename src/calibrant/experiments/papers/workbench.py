"""Where items of the papers get their runs: trained here, trained here in small, or finished by somebody before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibrant._progress import Progress, silent
from calibrant.experiments.comparison import compare
from calibrant.experiments.evaluation import Flat, flat, numbers
from calibrant.experiments.folder import RUNS, STUDY
from calibrant.experiments.local_engine import Engine
from calibrant.experiments.measures import more_numbers
from calibrant.experiments.papers.small import small_recipe
from calibrant.experiments.recipe_tables import columns_of
from calibrant.experiments.results import ResultRow, Results
from calibrant.experiments.study import Study, contenders_of
from calibrant.predictions import Predictions
from calibrant.training import RESULT, TUNED_FOR, Recipe, RunFolder, check_recipe, load

#: Seeds of an item where nothing else is said.
SEEDS = (0, 1, 2)


@dataclass(frozen=True)
class RunSet:
    """Finished runs of a recipe's methods.

    Attributes:
        recipe: With the methods as its rows.
        results: Every number of every run.
        folders: The runs that are tested, by method and then by seed.
    """

    recipe: Recipe
    results: Results
    folders: Mapping[str, Mapping[int, RunFolder]]

    def outputs(self, method: str, seed: int | None = None, name: str = "test") -> Flat:
        """Logits and labels of a set, of a method's run with this seed, or with its first."""
        runs = self.folders[method]
        return flat(Predictions.open(runs[min(runs) if seed is None else seed] / f"{name}.npz"))


@dataclass(frozen=True)
class Workbench:
    """What an item is made with.

    Attributes:
        folder: Runs are kept here, by recipe, and found again by every item.
        small: The same methods on drawn scenes, in seconds a run.
        data: Where the papers' data lies.
        runs: Finished runs or comparisons, to be taken instead of training.
        seeds: Of the runs.
        engine: What executes them: processes of this machine if left out.
        progress: Called with the number of runs that are done.
    """

    folder: Path
    small: bool = False
    data: str | None = None
    runs: Sequence[Path] = ()
    seeds: Sequence[int] = SEEDS
    engine: Engine | None = None
    progress: Progress = silent

    def run(
        self,
        recipe: str,
        rows: Iterable[str] | None = None,
        *,
        methods: Mapping[str, Mapping[str, Any]] | None = None,
        seeds: Sequence[int] | None = None,
        tune: Sequence[str] = (),
        changes: Mapping[str, Any] | None = None,
    ) -> RunSet:
        """The runs of some rows of a recipe; those that are not there yet are trained.

        Args:
            recipe: By name.
            rows: Methods of it; all if left out.
            methods: More methods, as recipes write them, instead of rows of the recipe.
            seeds: Instead of the workbench's.
            tune: Metrics for which settings are searched.
            changes: Values of the small experiment to replace, by section.
        """
        plan = load(recipe)
        if methods is not None:
            plan = check_recipe(
                plan.model_dump(mode="json") | {"methods": dict(methods), "tables": {}, "expected": ()}, recipe
            )
            rows = None
        names = list(plan.methods) if rows is None else list(dict.fromkeys(row.partition(TUNED_FOR)[0] for row in rows))
        if self.small:
            plan = small_recipe(plan, names)
            if changes:
                plain = plan.model_dump(mode="json")
                plan = check_recipe(plain | {k: plain[k] | dict(v) for k, v in changes.items()}, "the small recipe")
            names = [name for name in names if name in plan.methods]
        if self.runs:
            return _existing(plan, self.runs)
        study = Study(plan, contenders_of(plan, names), tuple(seeds or self.seeds), tuple(tune))
        folder = self.folder / "runs" / ("small" if self.small else recipe.replace("/", "-"))
        folder.parent.mkdir(parents=True, exist_ok=True)
        comparison = compare(
            study, folder, data=None if self.small else self.data, engine=self.engine, progress=self.progress
        )
        if comparison.failures:
            failure = comparison.failures[0]
            raise ValueError(f"{failure.method}, seed {failure.seed}, failed: {failure.error}")
        folders: dict[str, dict[int, RunFolder]] = {}
        for run in comparison.finals:
            folders.setdefault(run.method, {}).setdefault(run.seed, comparison.run_folder(run))
        return RunSet(plan, comparison.results, folders)


def _existing(recipe: Recipe, paths: Sequence[Path]) -> RunSet:
    """Runs that others have made: of folders of runs and of comparisons, by the method of the recipe that they are."""
    columns, rows = columns_of(recipe), []
    folders: dict[str, dict[int, RunFolder]] = {}
    for path in paths:
        for folder in _run_folders(path):
            run = RunFolder(folder)
            own = run.recipe()
            method = _method_of(recipe, own) or folder.name
            if folders.setdefault(method, {}).setdefault(own.seed, run) is not run:
                continue
            labels = (own.key, method, "{}", "", "final", own.seed)
            rows += [ResultRow(*labels, *number) for number in (*numbers(folder), *more_numbers(folder, columns))]
    return RunSet(recipe, Results(rows), folders)


def _run_folders(path: Path) -> list[Path]:
    if (path / STUDY).exists():
        return sorted(folder for folder in (path / RUNS).iterdir() if (folder / RESULT).exists())
    if not (path / RESULT).exists():
        raise ValueError(f"{path} is neither the folder of a finished run nor that of a comparison")
    return [path]


def _method_of(recipe: Recipe, run: Recipe) -> str | None:
    """The method of a recipe that a run was trained by: the same loss, targets, mixing and context rate."""
    for name, contender in contenders_of(recipe).items():
        study = Study(recipe, {name: contender}, (run.seed,))
        planned = study.final(name, contender.settings, run.seed, "").recipe
        if planned.key == run.key or (
            all(getattr(planned, part) == getattr(run, part) for part in ("loss", "targets", "mixing"))
            and planned.data.context_rate == run.data.context_rate
        ):
            return name
    return None
