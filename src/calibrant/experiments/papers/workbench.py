"""The runs of the papers' items: trained here, trained here in small, or finished earlier.

In small, the same methods are trained on drawn scenes, with a network of two layers. A method keeps what defines it:
its loss with every value, its targets, its mixing and its share of images without an object. Network, data and schedule
are those of the small experiment, in which a run takes seconds on one core; the study of the demonstration uses the
same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import Any

from calibrant._progress import Progress, silent
from calibrant.experiments.comparison import RUNS, STUDY, Failure, compare
from calibrant.experiments.engines import Engine
from calibrant.experiments.evaluation import Flat, flat, more_numbers, numbers
from calibrant.experiments.results import ResultRow, Results
from calibrant.experiments.study import Study, contenders_of
from calibrant.experiments.tables.cells import NOTHING, TableCell, cell_of
from calibrant.experiments.tables.summaries import columns_of
from calibrant.losses import describe
from calibrant.predictions import Predictions
from calibrant.training import RESULT, TUNED_FOR, MethodSettings, Recipe, RunFolder, check_recipe, load

#: Default seeds of an item.
SEEDS = (0, 1, 2)
#: The settings that make a run one of a method.
_METHOD = ("loss", "targets", "mixing", "data.context_rate")

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
        return self.folders[method][self.seeds(method)[0] if seed is None else seed]

    def seeds(self, method: str) -> list[int]:
        """The seeds of a method's runs."""
        return sorted(self.folders[method])

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
        runs: Finished runs or comparisons, used instead of training.
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

    @property
    def data_path(self) -> str | None:
        """Folder of the data; None for drawn scenes."""
        return None if self.small else self.data

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
        study = Study(plan, contenders_of(plan, names), tuple(self.seeds), tuple(tune))
        small = "small-masks" if masks else "small"
        folder = self.folder / "runs" / (small if self.small else recipe.replace("/", "-"))
        folder.parent.mkdir(parents=True, exist_ok=True)
        comparison = compare(study, folder, data=self.data_path, engine=self.engine, progress=self.progress)
        if comparison.failures and not comparison.finals:
            failure = comparison.failures[0]
            raise ValueError(f"{failure.method}, seed {failure.seed}, failed: {failure.error}")
        folders: dict[str, dict[int, RunFolder]] = {}
        for run in comparison.finals:
            folders.setdefault(run.method, {}).setdefault(run.seed, comparison.run_folder(run))
        return RunSet(plan, comparison.results, folders, comparison.failures)

    def recipes(self, names: Sequence[str]) -> list[str]:
        """The recipes of an item to use: all; in small the first; with finished runs, those they belong to."""
        if self.small:
            return list(names[:1])
        if self.runs:
            return [name for name in names if is_of(load(name), self.runs)] or list(names[:1])
        return list(names)


def existing_runs(recipe: Recipe, paths: Sequence[Path]) -> tuple[Results, dict[str, dict[int, RunFolder]]]:
    """Every number of finished runs, and their folders by method and seed; of two runs with one seed, the first.

    A run that matches no method of the recipe keeps its name in its comparison, or the name of its folder. Paths are
    folders of runs and of comparisons.
    """
    columns, rows = columns_of(recipe), []
    folders: dict[str, dict[int, RunFolder]] = {}
    owners: dict[tuple[str, str, int], Path] = {}
    for path in paths:
        for run, purposes in _runs(path, recipe):
            if any(owners.setdefault((p.method, p.tuned_for, p.seed), run.path) != run.path for p in purposes):
                continue
            folders.setdefault(purposes[0].method, {}).setdefault(purposes[0].seed, run)
            values = (*numbers(run.path), *more_numbers(run.path, columns))
            rows += [purpose._replace(**number._asdict()) for purpose in purposes for number in values]
    return Results(rows), folders


def is_of(recipe: Recipe, paths: Sequence[Path]) -> bool:
    """Whether any of the runs has the data and the network of a recipe."""
    networks = {recipe.model.name, *(method.model.get("name") for method in recipe.methods.values())}
    runs = (run.recipe() for path in paths for run in _run_folders(path))
    return any(run.data.layout == recipe.data.layout and run.model.name in networks for run in runs)


def _runs(path: Path, recipe: Recipe) -> Iterator[tuple[RunFolder, list[ResultRow]]]:
    """Final runs with their purposes: one row of results, of any number, per method and tuning target."""
    if not (path / STUDY).exists():
        for run in _run_folders(path):
            plan = run.recipe()
            name = method_of(recipe, plan) or path.name
            yield run, [ResultRow(plan.key, name, "{}", "", "final", plan.seed, "test", "none", nan, "accuracy", nan)]
        return
    finals: dict[str, list[ResultRow]] = {}
    for row in Results.load(path).where(stage="final", set="test", posthoc="none", metric="accuracy"):
        finals.setdefault(row.run, []).append(row)
    for key, purposes in finals.items():
        run = RunFolder(path / RUNS / key)
        method = None if purposes[0].method in recipe.methods else method_of(recipe, run.recipe())
        yield run, [row._replace(method=method or row.method) for row in purposes]


def _run_folders(path: Path) -> list[RunFolder]:
    if (path / STUDY).exists():
        return [RunFolder(folder) for folder in sorted((path / RUNS).iterdir()) if (folder / RESULT).exists()]
    if not (path / RESULT).exists():
        raise ValueError(f"{path} is neither the folder of a finished run nor that of a comparison")
    return [RunFolder(path)]


def method_of(recipe: Recipe, run: Recipe) -> str | None:
    """The method of a recipe that a run was trained by: the same loss, targets, mixing and share of context images.

    Of several, the one that agrees in most of the other settings that methods change: network, data, length.
    """
    contenders = contenders_of(recipe)
    names = sorted({key for contender in contenders.values() for key in contender.settings} - set(_METHOD))
    trained, agreement = _plain(run), {}
    for name, contender in contenders.items():
        planned = Study(recipe, {name: contender}, (run.seed,)).final(name, contender.settings, run.seed, "").recipe
        if planned.key == run.key:
            return name
        plain = _plain(planned)
        if all(_value(plain, key) == _value(trained, key) for key in _METHOD):
            agreement[name] = sum(_value(plain, key) == _value(trained, key) for key in names)
    return max(agreement, key=lambda name: agreement[name], default=None)


def _plain(recipe: Recipe) -> dict[str, Any]:
    """A recipe as plain values, the loss with its defaults."""
    plain: dict[str, Any] = recipe.model_dump(mode="json")
    return plain | {"loss": describe(recipe.loss.name).defaults() | plain["loss"]}


def _value(plain: Mapping[str, Any], name: str) -> Any:
    """The value of a recipe under a dotted name, or None."""
    value: Any = plain
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


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
        "title": "drawn scenes, in small",
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
