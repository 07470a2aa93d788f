"""The runs of the papers' items: trained here, trained here in small, or finished earlier.

In small, the same methods are trained on drawn scenes, with a network of two layers. A method keeps what defines it:
its loss with every value, its targets, its mixing and its share of images without an object. Network, data and schedule
are those of the small experiment, in which a run takes seconds on one core; the study of the demonstration uses the
same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from calibrant.base.checks import listing
from calibrant.base.numbers import count
from calibrant.base.progress import Progress, silent
from calibrant.data import FASHION, name_of_files
from calibrant.experiments.comparison import Failure, compare
from calibrant.experiments.engines import Engine
from calibrant.experiments.evaluation import Flat, flat
from calibrant.experiments.papers.catalogue import PaperItem
from calibrant.experiments.papers.data_sets import PublishedData, data_of, find_data, size_words
from calibrant.experiments.papers.finished import (
    FinishedRun,
    check_fitting,
    check_methods,
    fits_data,
    match_runs,
    read_runs,
    val_source,
)
from calibrant.experiments.results import Results
from calibrant.experiments.study import Study, contenders_of
from calibrant.experiments.tables.cells import NOTHING, TableCell, cell_of
from calibrant.predictions import Predictions
from calibrant.training import (
    TUNED_FOR,
    MethodSettings,
    Recipe,
    RunFolder,
    check_recipe,
    load,
    load_sets,
    replace_settings,
)

#: Default seeds of an item.
SEEDS = (0, 1, 2)

#: A recipe without its method: scenes of 16 x 16 pixels, a network of two layers. ``context`` shows the test pictures
#: with every object covered, ``texture`` with colours and patterns never seen, and ``mixed`` pools the latter with the
#: test set.
EXPERIMENT: dict[str, Any] = {
    "data": {
        "layout": "scenes",
        "val": "val",
        "options": {"context": 0.7, "ambiguous": 0.0, "size": 16},
        "split_options": {"train": {"samples": 1500}, "val": {"samples": 1000}, "test": {"samples": 3000}},
        "also": {
            "context": "context-only",
            "texture": {"options": {"shift": "texture"}},
            "mixed": {"options": {"shift": "texture"}, "pool": True},
        },
    },
    "model": {"name": "mlp", "input_size": [3, 16, 16], "hidden": [256]},
    "optimiser": {"rate": 0.05, "nesterov": True, "weight_decay": 1e-4},
    "schedule": {"name": "cosine", "warmup": 1},
    "training": {"epochs": 20, "batch_size": 50},
}

#: The same for masks: scenes of 24 x 24 pixels, shapes in four families and the background, a small DeepLab v3+.
MASKS: dict[str, Any] = {
    "data": {
        "layout": "scene-masks",
        "val": "val",
        "options": {"context": 0.9, "size": 24, "families": 4},
        "split_options": {"train": {"samples": 700}, "val": {"samples": 150}, "test": {"samples": 300}},
        "pixels": 200,
    },
    "model": {"name": "deeplabv3plus_small", "width": 8},
    "optimiser": {"rate": 0.1, "nesterov": True, "weight_decay": 1e-4, "clip": 2.0},
    "schedule": {"name": "cosine", "warmup": 1},
    "training": {"epochs": 10, "batch_size": 20, "channels_last": True},
}

#: Sets of the papers, and those that stand in for them.
SETS = {"imagenet-v2": "texture", "imagenet-val": "test", "shifted": "texture"}
#: Values of a recipe's data that belong to a method.
_OF_A_METHOD = ("context_rate", "hold_out")
SMALL_NOTE = "With --small the data are drawn scenes with a label for every pixel, and the network a small DeepLab v3+."


@dataclass(frozen=True)
class RunSet:
    """Finished runs of a recipe's methods.

    Attributes:
        recipe: With the methods as its rows.
        results: Every number of every run.
        folders: The runs that are tested, by method and then by seed.
        failures: Runs without numbers, each with the reason.
        remarks: Sentences on finished runs that were given: which are left out, and which were trained otherwise.
    """

    recipe: Recipe
    results: Results
    folders: Mapping[str, Mapping[int, RunFolder]]
    failures: tuple[Failure, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """The remarks, and a sentence for each run that failed."""
        return (*self.remarks, *(f"{f.method}, seed {f.seed}, has no numbers: {f.error}" for f in self.failures))

    def folder(self, method: str, seed: int | None = None) -> RunFolder:
        """The folder of a method's run with this seed, or with its first."""
        return self.folders[method][self.seeds(method)[0] if seed is None else seed]

    def seeds(self, method: str) -> list[int]:
        """The seeds of a method's runs."""
        return sorted(self.folders[method])

    def common_seeds(self, methods: Sequence[str]) -> list[int]:
        """The seeds that all of some methods have runs with; at least one."""
        for method in methods:
            if method not in self.folders:
                raise ValueError(
                    f"the figure needs runs of {method!r}, and the runs given are of {listing([*self.folders])}"
                )
        seeds = sorted(set.intersection(*(set(self.folders[method]) for method in methods)))
        if not seeds:
            raise ValueError(
                f"the figure compares {listing(methods)} on the same seeds, and the runs have none in common"
            )
        return seeds

    def predictions(self, method: str, seed: int, name: str = "test") -> Predictions:
        """Predictions of a set, by a method's run with this seed."""
        return Predictions.open(self.folder(method, seed) / f"{name}.npz")

    def outputs(self, method: str, seed: int, name: str = "test") -> Flat:
        """Logits and labels of a set, of a method's run with this seed."""
        return flat(self.predictions(method, seed, name))

    def mean(self, method: str, metric: str, name: str = "test") -> TableCell:
        """A metric of a method on a set, mean and standard deviation over its seeds."""
        values = self.results.by_seed(method=method, stage="final", set=name, posthoc="none", metric=metric)
        return cell_of(values.values()) or NOTHING

    def label(self, method: str) -> str:
        """What the paper calls a method."""
        return self.recipe.methods[method].label or method if method in self.recipe.methods else method


@dataclass(frozen=True)
class Workbench:
    """How the runs of an item are made.

    Attributes:
        folder: Folder of the runs, by recipe, which all items share.
        small: The same methods on drawn scenes, in seconds per run.
        data: Folder of the papers' data.
        named_data: Folders of data sets by their names, which take precedence.
        runs: Finished runs or comparisons, used instead of training.
        seeds: Seeds of the runs.
        engine: What executes them: processes of this machine if left out.
        progress: Called with the number of runs that are done.
        item: The item that the runs are for, whose data and finished runs are checked before the first is trained.
    """

    folder: Path
    small: bool = False
    data: str | None = None
    named_data: Mapping[str, str] = field(default_factory=dict)
    runs: Sequence[Path] = ()
    seeds: Sequence[int] = SEEDS
    engine: Engine | None = None
    progress: Progress = silent
    item: PaperItem | None = None

    def data_path(self, recipe: str) -> str | None:
        """Folder of the data of a recipe; None for drawn scenes, and for the folder that a run remembers."""
        return None if self.small else find_data(recipe, self.data, self.named_data)

    @cached_property
    def finished(self) -> dict[Path, list[FinishedRun]]:
        """The finished runs that were given, by the folders that they were given as."""
        return {path: read_runs(path) for path in self.runs}

    @cached_property
    def _checked(self) -> Workbench:
        """Itself, once the data of every recipe of the item are whole and every folder of finished runs fits one."""
        item = self.item
        if item is None or self.small:
            return self
        if self.runs:
            plans = {name: load(name) for name in item.recipes}
            names = [name if plan.detection is None else plan.detection.pretraining for name, plan in plans.items()]
            check_fitting(self.finished, {name: (load(name), data_of(name)) for name in names}, item.place)
        if self.data is not None or self.named_data:
            for name in item.recipes:
                if not self.runs or load(name).detection is not None:
                    self._check_data(name, item.place)
        return self

    def _check_data(self, recipe: str, place: str) -> None:
        """Read the data of a recipe, and refuse a part of its data set or another one."""
        path, data, plan = self.data_path(recipe), data_of(recipe), self._plan(recipe)
        if path is None:
            title, name = (data.title, data.name) if data is not None else (plan.data.layout,) * 2
            raise ValueError(f"{place} needs {title} too; give its folder with --data {name}=DIR")
        try:
            sets = load_sets(plan, path)
        except ValueError as error:
            takes = data.words if data is not None else f"data in the layout {plan.data.layout}"
            raise ValueError(f"{place} takes {takes}, and {path} cannot be read as such: {error}") from error
        parts = (("train", sets.train), ("val", sets.val), ("test", sets.test))
        samples = {name: len(part) for name, part in parts if part is not None}
        classes, held_out = sets.train.classes, val_source(plan)
        if data is not None and not (
            data.has_classes(classes) and data.has_sizes(samples, val_of=held_out, redrawn=plan.data.resample)
        ):
            actual = size_words(len(classes), {name: count(number) for name, number in samples.items()})
            raise ValueError(
                f"{path}: {place} takes {data.words}, and this folder has {actual}; --small makes it on drawn scenes"
            )

    def _plan(self, recipe: str) -> Recipe:
        """A recipe, with the names of the classes where the data set is known by its name in ``--data`` alone."""
        plan, data = load(recipe), data_of(recipe)
        if self.small or data is None or data.name not in self.named_data or data.name != "fashion-mnist":
            return plan
        path = self.data_path(recipe)
        is_known = path is not None and name_of_files(Path(path)) == data.name
        return plan if is_known else replace_settings(plan, {"data.options": {"classes": list(FASHION)}})

    def run(
        self,
        recipe: str,
        rows: Iterable[str] | None = None,
        *,
        methods: Mapping[str, Mapping[str, Any]] | None = None,
        tune: Sequence[str] = (),
        changes: Mapping[str, Any] | None = None,
        masks: bool = False,
    ) -> RunSet:
        """Provide the runs of some rows of a recipe; missing ones are trained.

        Args:
            recipe: Name of the recipe.
            rows: Methods of it; all if left out.
            methods: Other methods, as in a recipe, instead of its rows.
            tune: Metrics for which settings are searched.
            changes: In small: values of the experiment to replace, by section; another network has its own options.
            masks: In small: scenes with a label for every pixel.
        """
        plan = self._checked._plan(recipe)
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
            return self._take_finished(plan, None if self.small else data_of(recipe), names)
        study = Study(plan, contenders_of(plan, names), tuple(self.seeds), tuple(tune))
        small = "small-masks" if masks else "small"
        folder = self.folder / "runs" / (small if self.small else recipe.replace("/", "-"))
        folder.parent.mkdir(parents=True, exist_ok=True)
        comparison = compare(study, folder, data=self.data_path(recipe), engine=self.engine, progress=self.progress)
        if comparison.failures and not comparison.finals:
            failure = comparison.failures[0]
            raise ValueError(f"{failure.method}, seed {failure.seed}, failed: {failure.error}")
        folders: dict[str, dict[int, RunFolder]] = {}
        for run in comparison.finals:
            folders.setdefault(run.method, {}).setdefault(run.seed, comparison.run_folder(run))
        return RunSet(plan, comparison.results, folders, comparison.failures)

    def _take_finished(self, plan: Recipe, data: PublishedData | None, rows: Sequence[str]) -> RunSet:
        """The finished runs of some rows of a recipe; at least one."""
        if self.small:
            check_fitting(self.finished, {"": (plan, data)}, "the small experiment")
        check_methods(self.finished, plan, data)
        methods = list(dict.fromkeys(plan.methods[row].of or row for row in rows))
        runs = [run for finished in self.finished.values() for run in finished]
        matched = match_runs(plan, runs, data, methods)
        if not matched.folders:
            raise ValueError(
                f"expected finished runs of {listing([repr(method) for method in methods])}, and those on "
                f"{data.title if data is not None else plan.data.layout} are of other methods"
            )
        return RunSet(plan, matched.results, matched.folders, remarks=matched.notes)

    def recipes(self, names: Sequence[str]) -> list[str]:
        """The recipes of an item to use: all; in small the first; with finished runs, those they fit."""
        if self.small:
            return list(names[:1])
        if self._checked.runs:
            runs = [run for finished in self.finished.values() for run in finished]
            return [name for name in names if any(fits_data(run, load(name), data_of(name)) for run in runs)]
        return list(names)


def small_recipe(recipe: Recipe, rows: Iterable[str] | None = None, *, masks: bool = False) -> Recipe:
    """A recipe's methods, tables and printed numbers over the small experiment.

    Of the rows, or all methods, those that differ from another only in what the small experiment replaces are left
    out. With ``masks`` it is the one with a label for every pixel.
    """
    names = list(recipe.methods) if rows is None else [row.partition(TUNED_FOR)[0] for row in rows]
    methods = _distinct({name: _reduce(recipe.methods[name]) for name in names}, recipe)
    experiment = MASKS if masks else EXPERIMENT
    if masks:  # what is measured, and where, is as in the recipe
        measured = {"exclude": recipe.data.exclude, "interpolate": recipe.data.interpolate}
        experiment = experiment | {"data": experiment["data"] | measured}
    plain = experiment | {
        "title": "drawn scenes (small)",
        "paper": recipe.paper,
        "table": recipe.table,
        "methods": methods,
        "tables": _tables(recipe, methods, masks=masks),
        "expected": [
            entry.model_dump(mode="json") | {"where": SETS.get(entry.where, entry.where)}
            for entry in recipe.expected
            if entry.method.partition(TUNED_FOR)[0] in methods
        ],
        "search": {name: dict(values) for name, values in recipe.search.items()},
    }
    return check_recipe(plain, "the small recipe")


def _reduce(method: MethodSettings) -> dict[str, Any]:
    plain = method.model_dump(
        mode="json", exclude_none=True, include={"label", "loss", "mixing", "targets", "repair", "of"}
    )
    data = {name: value for name, value in method.data.items() if name in _OF_A_METHOD}
    return plain | ({"data": data} if data else {})


def _distinct(methods: Mapping[str, dict[str, Any]], recipe: Recipe) -> dict[str, dict[str, Any]]:
    """The methods without duplicates in small, and the methods that they repair."""
    distinct: dict[str, dict[str, Any]] = {}
    for name, method in methods.items():
        changes = {key: value for key, value in method.items() if key != "label"}
        if not any(changes == {k: v for k, v in earlier.items() if k != "label"} for earlier in distinct.values()):
            distinct[name] = method
    for method in list(distinct.values()):
        if (owner := method.get("of")) is not None and owner not in distinct:
            distinct[owner] = _reduce(recipe.methods[owner])
    return distinct


def _tables(recipe: Recipe, methods: Mapping[str, Any], *, masks: bool) -> dict[str, Any]:
    tables = {}
    for number, table in recipe.tables.items():
        rows = [row for row in table.rows if row.partition(TUNED_FOR)[0] in methods]
        if rows:
            columns = dict.fromkeys(_column(c) for c in table.columns if masks or not c.startswith("mean_iou"))
            tables[number] = {"title": table.title, "rows": rows, "columns": list(columns)}
    return tables


def _column(text: str) -> str:
    measured, plus, repair = text.partition(" + ")
    metric, at, name = measured.partition("@")
    return f"{metric}{at}{SETS.get(name, name)}{plus}{repair}"
