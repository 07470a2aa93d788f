"""Where items of the papers get their runs: trained here, trained here in small, or finished earlier."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibrant._progress import Progress, silent
from calibrant.experiments.comparison.run import Failure, compare
from calibrant.experiments.engines.local import Engine
from calibrant.experiments.papers.existing import existing_runs, is_of
from calibrant.experiments.papers.small import small_recipe
from calibrant.experiments.plan.study import Study, contenders_of
from calibrant.experiments.results import Results
from calibrant.experiments.results.evaluation import Flat, flat
from calibrant.predictions import Predictions
from calibrant.training import TUNED_FOR, Recipe, RunFolder, check_recipe, load

#: Seeds of an item where nothing else is said.
SEEDS = (0, 1, 2)


@dataclass(frozen=True)
class RunSet:
    """Finished runs of a recipe's methods.

    Attributes:
        recipe: With the methods as its rows.
        results: Every number of every run.
        folders: The runs that are tested, by method and then by seed.
        failures: Runs without numbers, each with the reason.
    """

    recipe: Recipe
    results: Results
    folders: Mapping[str, Mapping[int, RunFolder]]
    failures: tuple[Failure, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence for each run that failed."""
        return tuple(f"{f.method}, seed {f.seed}, has no numbers: {f.error}" for f in self.failures)

    def folder(self, method: str, seed: int | None = None) -> RunFolder:
        """The folder of a method's run with this seed, or with its first."""
        runs = self.folders[method]
        return runs[min(runs) if seed is None else seed]

    def predictions(self, method: str, seed: int | None = None, name: str = "test") -> Predictions:
        """Predictions of a set, by a method's run with this seed, or with its first."""
        return Predictions.open(self.folder(method, seed) / f"{name}.npz")

    def outputs(self, method: str, seed: int | None = None, name: str = "test") -> Flat:
        """Logits and labels of a set, of a method's run with this seed, or with its first."""
        return flat(self.predictions(method, seed, name))

    def label(self, method: str) -> str:
        """What the paper calls a method."""
        return self.recipe.methods[method].label or method if method in self.recipe.methods else method


@dataclass(frozen=True)
class Workbench:
    """What an item is made with.

    Attributes:
        folder: Runs are kept here, by recipe, and found again by every item.
        small: The same methods on drawn scenes, in seconds a run.
        data: Where the papers' data lies.
        runs: Finished runs or comparisons, to be taken instead of training.
        seeds: Seeds of the runs.
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
        masks: bool = False,
    ) -> RunSet:
        """The runs of some rows of a recipe; those that are not there yet are trained.

        Args:
            recipe: Name of the recipe.
            rows: Methods of it; all if left out.
            methods: More methods, as recipes write them, instead of rows of the recipe.
            seeds: Instead of the workbench's.
            tune: Metrics for which settings are searched.
            changes: In small: values of the experiment to replace, by section; another network has its own options.
            masks: In small: scenes with a label for every pixel.
        """
        plan = load(recipe)
        if methods is not None:
            plan = check_recipe(
                plan.model_dump(mode="json") | {"methods": dict(methods), "tables": {}, "expected": ()}, recipe
            )
            rows = None
        names = list(plan.methods) if rows is None else list(dict.fromkeys(row.partition(TUNED_FOR)[0] for row in rows))
        if self.small:
            plan = small_recipe(plan, names, masks=masks)
            if changes:
                plain = plan.model_dump(mode="json")
                sections = {k: dict(v) if k == "model" else plain[k] | dict(v) for k, v in changes.items()}
                plan = check_recipe(plain | sections, "the small recipe")
            names = [name for name in names if name in plan.methods]
        if self.runs:
            return RunSet(plan, *existing_runs(plan, self.runs))
        study = Study(plan, contenders_of(plan, names), tuple(seeds or self.seeds), tuple(tune))
        small = "small-masks" if masks else "small"
        folder = self.folder / "runs" / (small if self.small else recipe.replace("/", "-"))
        folder.parent.mkdir(parents=True, exist_ok=True)
        comparison = compare(
            study, folder, data=None if self.small else self.data, engine=self.engine, progress=self.progress
        )
        if comparison.failures and not comparison.finals:
            failure = comparison.failures[0]
            raise ValueError(f"{failure.method}, seed {failure.seed}, failed: {failure.error}")
        folders: dict[str, dict[int, RunFolder]] = {}
        for run in comparison.finals:
            folders.setdefault(run.method, {}).setdefault(run.seed, comparison.run_folder(run))
        return RunSet(plan, comparison.results, folders, comparison.failures)

    def recipes(self, names: Sequence[str]) -> list[str]:
        """The recipes of an item that are made: all; in small the first; of finished runs those that they are of."""
        if self.small:
            return list(names[:1])
        if self.runs:
            return [name for name in names if is_of(load(name), self.runs)] or list(names[:1])
        return list(names)
