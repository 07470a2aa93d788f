"""Finished runs that stand for those of a recipe: data set, network and method are the recipe's.

A run is taken by what its folder records, not by its name: the layout, the names of the classes and the number of
samples of its data, its network with every option, and its loss, targets, mixing and share of context images.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import Any

import numpy as np

from calibrant import models
from calibrant.base.checks import listing
from calibrant.base.numbers import count
from calibrant.experiments.comparison import RUNS, STUDY
from calibrant.experiments.evaluation import flat, more_numbers, numbers
from calibrant.experiments.papers.data_sets import PUBLISHED, PublishedData, data_of, size_words
from calibrant.experiments.results import ResultRow, Results
from calibrant.experiments.spaces import space
from calibrant.experiments.study import Contender, Study, contenders_of
from calibrant.experiments.tables.summaries import columns_of
from calibrant.losses import describe
from calibrant.predictions import Predictions
from calibrant.training import RESULT, ModelSettings, Recipe, RunFolder, differences

#: The settings that make a run one of a method.
_METHOD = ("loss", "targets", "mixing", "data.context_rate")
#: Settings that determine the samples of drawn scenes.
_SAMPLES = {"options", "split_options", "train", "val", "test", "test_share", "train_count", "variant", "variant_of"}
#: Options of a network that change where its weights start, and not what it computes.
_START = {"weights", "head", "backbone_weights"}
#: Parts of a recipe in which a run may differ from the paper's and still be that method: said, not refused.
_TRAINING = ("optimiser.", "schedule.", "training.", "data.")
_WITHOUT_EFFECT = (
    "training.workers",
    "training.checkpoint_seconds",
    "training.eval_batch_size",
    "training.tensorboard",
)


@dataclass(frozen=True)
class FinishedRun:
    """A finished run, and what its folder records.

    Attributes:
        folder: The folder.
        recipe: What it was trained by.
        classes: The names of its classes.
        samples: The number of samples of each set; of the test set alone in a run of before they were recorded.
        purposes: In a comparison: a row of results, of any number, for each method and tuning target that it serves.
    """

    folder: RunFolder
    recipe: Recipe
    classes: tuple[str, ...]
    samples: Mapping[str, int]
    purposes: tuple[ResultRow, ...] = ()

    @property
    def words(self) -> str:
        """What it is: network, data and method."""
        layout = self.recipe.data.layout
        known = [data for data in (PUBLISHED.get(layout), data_of("lr_fashion_mnist_mlp")) if data is not None]
        titles = [data.title for data in known if data.layout == layout and data.has_classes(self.classes)]
        title = (
            titles[0] if titles else f"{layout} with the first class {self.classes[0]!r}" if self.classes else layout
        )
        sizes = size_words(len(self.classes), {name: count(number) for name, number in self.samples.items()})
        loss = [self.recipe.loss.name, *(f"{name}={value}" for name, value in self.recipe.loss.parameters.items())]
        return f"a run of {_network_words(self.recipe.model)} on {title} ({sizes}), trained with {', '.join(loss)},"


def read_runs(path: Path) -> list[FinishedRun]:
    """The finished runs of a folder: of a run, or of a comparison, whose searches are left out."""
    if not (path / STUDY).exists():
        if not (path / RESULT).exists():
            raise ValueError(f"{path} is neither the folder of a finished run nor that of a comparison")
        return [_read_run(RunFolder(path))]
    finals: dict[str, list[ResultRow]] = {}
    for row in Results.load(path).where(stage="final", set="test", posthoc="none", metric="accuracy"):
        finals.setdefault(row.run, []).append(row)
    if not finals:
        raise ValueError(f"{path}: the comparison has no finished runs")
    return [_read_run(RunFolder(path / RUNS / key), tuple(purposes)) for key, purposes in finals.items()]


def _read_run(folder: RunFolder, purposes: tuple[ResultRow, ...] = ()) -> FinishedRun:
    facts = folder.model_facts()
    samples = {str(name): number for name, number in facts.samples.items()}
    if not samples:
        samples = {"test": len(np.unique(flat(Predictions.open(folder / "test.npz")).sample))}
    return FinishedRun(folder, folder.recipe(), tuple(facts.classes), samples, purposes)


def fits_data(run: FinishedRun, plan: Recipe, data: PublishedData | None) -> bool:
    """Whether a run has the data of a recipe, whose data set is ``data``, and the network of any of its methods."""
    settings = run.recipe.data
    if settings.layout != plan.data.layout:
        return False
    if data is None:  # drawn scenes: as many, drawn in the same way
        if settings.model_dump(include=_SAMPLES) != plan.data.model_dump(include=_SAMPLES):
            return False
    else:
        if not data.has_classes(run.classes):
            return False
        if not data.has_sizes(run.samples, val_of=val_source(run.recipe), redrawn=settings.resample):
            return False
    return any(_network(model) == _network(run.recipe.model) for model in _models(plan))


def val_source(recipe: Recipe) -> str:
    """The set that the validation samples of a recipe are taken from; empty if they are a split of their own."""
    if recipe.data.val is not None:
        return ""
    return "train" if recipe.data.hold_out is None else recipe.data.hold_out.of


def _models(plan: Recipe) -> list[ModelSettings]:
    return [_plan_run(plan, contender, 0).model for contender in contenders_of(plan).values()] or [plan.model]


def _network(model: ModelSettings) -> dict[str, Any]:
    """A network with the defaults of its options, without where its weights start."""
    plain = {name: value for name, value in model.model_dump(mode="json").items() if name not in _START}
    if model.name not in models.names():
        return plain
    architecture = models.describe(model.name)
    options = inspect.signature(architecture.builder).parameters.values()
    defaults = {o.name: o.default for o in options if o.default is not o.empty and o.name not in _START}
    usual = {"stem": architecture.stems[0]} if architecture.stems else {}
    given = {name: value for name, value in plain.items() if value is not None}
    return json.loads(json.dumps(defaults | usual | given, default=str)) | {"num_classes": None}


def _network_words(model: ModelSettings) -> str:
    given = {"stem": model.stem, **model.options}
    options = [f"{name}={value}" for name, value in given.items() if name not in _START and value is not None]
    return model.name + (f" ({', '.join(options)})" if options else "")


def _plan_run(plan: Recipe, contender: Contender, seed: int) -> Recipe:
    return Study(plan, {"": contender}, (seed,)).final("", contender.settings, seed, "").recipe


def method_of(plan: Recipe, run: Recipe) -> str | None:
    """The method of a recipe that a run was trained by: the same network, loss, targets, mixing and context images.

    Of several, the one that agrees in most of the other settings that methods change: data, length.
    """
    contenders = contenders_of(plan)
    names = sorted({key for contender in contenders.values() for key in contender.settings} - set(_METHOD))
    trained, agreement = _plain(run), {}
    for name, contender in contenders.items():
        planned = _plan_run(plan, contender, run.seed)
        if planned.key == run.key:
            return name
        if _is_method(planned, run):
            plain = _plain(planned)
            agreement[name] = sum(_value(plain, key) == _value(trained, key) for key in names)
    return max(agreement, key=lambda name: agreement[name], default=None)


def _is_method(planned: Recipe, run: Recipe) -> bool:
    plain, trained = _plain(planned), _plain(run)
    is_same = all(_value(plain, key) == _value(trained, key) for key in _METHOD)
    return is_same and _network(planned.model) == _network(run.model)


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


def purposes_of(run: FinishedRun, plan: Recipe) -> list[ResultRow]:
    """What a run stands for among a recipe's methods: a row of results, of any number, for each; none if for nothing.

    A tuned run has other values of the searched settings, and all others of the method.
    """
    recipe = run.recipe
    if not run.purposes:
        name = method_of(plan, recipe)
        # Settings of a method without any to search are empty: it is the same for every tuning target.
        is_fixed = name is None or not space(contenders_of(plan)[name].name, plan)
        settings = "{}" if is_fixed else json.dumps(recipe.loss.model_dump(mode="json"), sort_keys=True)
        row = (recipe.key, name or "", settings, "", "final", recipe.seed, "test", "none", nan, "accuracy", nan)
        return [ResultRow(*row)] if name is not None else []
    contenders = contenders_of(plan)
    rows = []
    for purpose in run.purposes:
        contender = contenders.get(purpose.method)
        if contender is not None:
            searched = space(contender.name, plan) if purpose.tuned_for else {}
            chosen = {name: value for name, value in json.loads(purpose.settings).items() if name in searched}
            tuned = Contender(contender.name, contender.settings | chosen)
            if _is_method(_plan_run(plan, tuned, recipe.seed), recipe):
                rows.append(purpose)
                continue
        name = method_of(plan, recipe)
        if name is not None:
            rows.append(purpose._replace(method=name))
    return rows


@dataclass(frozen=True)
class Matched:
    """The finished runs of a recipe's methods: every number, their folders by method and seed, and remarks."""

    results: Results
    folders: Mapping[str, Mapping[int, RunFolder]]
    notes: tuple[str, ...]


def match_runs(plan: Recipe, runs: Iterable[FinishedRun], data: PublishedData | None, rows: Iterable[str]) -> Matched:
    """The runs that fit a recipe, of the methods in ``rows``; of two with the same method and seed, the first.

    What is left out is named in the remarks, as are settings of the training in which runs differ from the recipe.
    """
    columns, wanted = columns_of(plan), set(rows)
    contenders = contenders_of(plan)
    values: list[ResultRow] = []
    folders: dict[str, dict[int, RunFolder]] = {}
    owners: dict[tuple[str, str, int], Path] = {}
    notes: list[str] = []
    changed: dict[str, list[str]] = {}
    for run in runs:
        if not fits_data(run, plan, data):
            continue
        path, purposes = run.folder.path, purposes_of(run, plan)
        if not purposes:
            notes.append(f"{path} is left out: {run.words} is of none of the methods of {plan.title or 'the recipe'}.")
        purposes = [purpose for purpose in purposes if purpose.method in wanted]
        if not purposes:
            continue
        keys = [(purpose.method, purpose.tuned_for, purpose.seed) for purpose in purposes]
        if any(owners.setdefault(key, path) != path for key in keys):
            method, _, seed = keys[0]
            notes.append(f"{path} is left out: {owners[keys[0]]} is the run of {method} with seed {seed}.")
            continue
        folders.setdefault(purposes[0].method, {}).setdefault(purposes[0].seed, run.folder)
        of_run = (*numbers(path), *more_numbers(path, columns))
        values += [purpose._replace(**number._asdict()) for purpose in purposes for number in of_run]
        for method, target, seed in keys[:1]:
            names = _training_differences(_plan_run(plan, contenders[method], seed), run.recipe, tuned=bool(target))
            if names:
                changed.setdefault(names, []).append(f"{method}, seed {seed}")
    notes += [
        f"Trained with other values of {names} than in the recipe: {listing(labels, 6)}."
        for names, labels in changed.items()
    ]
    return Matched(Results(values), folders, tuple(notes))


def _training_differences(planned: Recipe, run: Recipe, *, tuned: bool) -> str:
    """The settings of data and training in which a run differs from its plan; a tuned one may have chosen some."""
    names = [
        name
        for name in differences(planned, run)
        if name.startswith(_TRAINING) and name not in _WITHOUT_EFFECT and not name.startswith("data.hold_out")
    ]
    return listing([name for name in names if not (tuned and name.startswith("optimiser."))], 6) if names else ""


def check_fitting(
    runs: Mapping[Path, Sequence[FinishedRun]], plans: Mapping[str, tuple[Recipe, PublishedData | None]], place: str
) -> None:
    """Refuse the first folder none of whose runs has the data and the network of any of the recipes."""
    for finished in runs.values():
        if not any(fits_data(run, plan, data) for run in finished for plan, data in plans.values()):
            raise ValueError(f"{_first(finished)} is not what {place} is made from: {'; or '.join(_columns(plans))}")


def check_methods(runs: Mapping[Path, Sequence[FinishedRun]], plan: Recipe, data: PublishedData | None) -> None:
    """Refuse the first folder whose runs have the data and the network of a recipe, and none of its methods."""
    for finished in runs.values():
        fitting = [run for run in finished if fits_data(run, plan, data)]
        if fitting and not any(purposes_of(run, plan) for run in fitting):
            methods = listing([repr(name) for name in contenders_of(plan)], 12)
            raise ValueError(f"{_first(fitting)} is of none of the methods of {plan.title or 'the recipe'}: {methods}")


def _first(finished: Sequence[FinishedRun]) -> str:
    return f"{finished[0].folder.path}: {finished[0].words}"


def _columns(plans: Mapping[str, tuple[Recipe, PublishedData | None]]) -> Iterator[str]:
    for plan, data in plans.values():
        networks = " or ".join(dict.fromkeys(map(_network_words, _models(plan))))
        samples = sum(options.get("samples", 0) for options in plan.data.split_options.values())
        yield f"{networks} on {data.words if data is not None else f'{plan.data.layout} ({count(samples)} samples)'}"
