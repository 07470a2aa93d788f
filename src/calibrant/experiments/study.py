"""The plan of a comparison: which runs are needed, in which order, and for what purpose.

The protocol is LR's: every candidate of a method is trained on part of the training data and evaluated on the rest; the
best one for each target is trained again on all of it and tested. With `data.resample` the splits are drawn anew for
every seed and each seed has its own search; otherwise the search of the first seed is used for all.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

from calibrant.base.checks import LARGEST_SEED, short
from calibrant.experiments.spaces import Settings, changes, combinations, draw, grid, methods, space
from calibrant.metrics import describe
from calibrant.training import ModelSettings, Recipe, replace_settings

TARGETS = ("accuracy", "ece", "nll", "aurc")
Search = Literal["grid", "random", "halving"]

#: Largest number of seeds of a comparison, and of candidates of a method.
MOST_SEEDS, MOST_CANDIDATES = 1000, 1000

#: LR's share of the training data to hold out for the search, if the recipe has none.
HELD_OUT = 1 / 6
#: Successive halving keeps one candidate in ETA, and trains it ETA times as long.
ETA = 3
RUNGS = 3

#: Validation metrics by the key of a run; failed runs are missing.
Scores = Mapping[str, Mapping[str, float]]
#: The chosen settings by label, seed and target.
Choice = dict[tuple[str, int, str], Settings]


@dataclass(frozen=True)
class PlannedRun:
    """A run, and its purpose."""

    recipe: Recipe = field(repr=False)
    method: str
    settings: Settings
    stage: Literal["short", "search", "final"]
    tuned_for: str
    seed: int

    @cached_property
    def key(self) -> str:
        """The recipe's key: runs with the same key are one run."""
        return self.recipe.key

    @property
    def label(self) -> str:
        """The settings as text."""
        return json.dumps(self.settings, sort_keys=True)

    @property
    def title(self) -> str:
        """Its name in a progress bar."""
        return f"{self.method} {self.seed}"


class Contender(NamedTuple):
    """A participant of a comparison: the name of a method, and settings that are not searched."""

    name: str
    settings: Settings


def contenders_of(recipe: Recipe, names: Iterable[str] | None = None) -> dict[str, Contender]:
    """The methods of a recipe that have runs, for some of its rows or all; nothing of its own method is left in them.

    A row that repairs another method stands for that method.
    """
    unset: Settings = {"mixing": None} if recipe.mixing is not None else {}
    if recipe.data.context_rate:
        unset["data.context_rate"] = 0.0
    contenders = {}
    for row in recipe.methods if names is None else names:
        name = recipe.methods[row].of or row
        method = recipe.methods[name]
        contenders[name] = Contender(method.loss.name if method.loss is not None else "ce", unset | method.changes)
    return contenders


@dataclass(frozen=True)
class Study:
    """What is compared.

    Attributes:
        recipe: Everything but the method.
        methods: The methods by their labels in tables.
        seeds: One run of each method, and for resampled data one split, per seed.
        tune: Metrics to tune settings for; none keeps the settings.
        search: ``"grid"``: all combinations; ``"random"``: some; ``"halving"``: all or some for a ninth of the
            training, the best third of them for a third, the best third of those in full.
        trials: Number of combinations per method, for ``"random"`` and ``"halving"``.
        keep_held_out: Do not train again on the data that the search held out.
    """

    recipe: Recipe
    methods: Mapping[str, Contender]
    seeds: Sequence[int]
    tune: Sequence[str] = ()
    search: Search = "grid"
    trials: int | None = None
    keep_held_out: bool = False

    def __post_init__(self) -> None:
        if not self.methods or not self.seeds:
            raise ValueError("a comparison takes at least one method and one seed")
        if len(self.seeds) > MOST_SEEDS:
            raise ValueError(f"a comparison takes at most {MOST_SEEDS} seeds, got {len(self.seeds)}")
        if len(set(self.seeds)) < len(self.seeds) or not all(0 <= seed <= LARGEST_SEED for seed in self.seeds):
            raise ValueError(
                f"seeds are whole numbers from 0 to 2**63 - 1, each given once, got {short(list(self.seeds))}"
            )
        for target in self.tune:
            if target not in TARGETS:
                raise ValueError(f"a method is tuned for one of {', '.join(TARGETS)}, got {target!r}")
            if list(self.tune).count(target) > 1:
                raise ValueError(f"a metric to tune for is named once, got {target!r} twice")
        self._check_search()
        labels: dict[str, str] = {}
        tested: dict[str, str] = {}
        for label in self.methods:  # wrong settings are found before anything runs
            runs = [self.final(label, settings, self.seeds[0], "") for settings in self.candidates(label)]
            earlier = labels.setdefault(" ".join(run.key for run in runs), label)
            if earlier != label:
                raise ValueError(f"{earlier!r} and {label!r} are the same method with the same settings")
            for run in runs:
                tested.setdefault(_test_data(run.recipe), label)
        if len(tested) > 1:
            first, second = list(tested.values())[:2]
            raise ValueError(
                f"{first!r} and {second!r} would be tested on different data: methods are compared on the same samples "
                "and labels"
            )

    def _check_search(self) -> None:
        if self.search == "random" and self.trials is None:
            raise ValueError("a random search takes a number of trials")
        if self.search == "grid" and self.trials is not None:
            raise ValueError("a grid is searched whole; a number of trials is for a random search and for halving")
        if (self.search != "grid" or self.trials is not None) and not self.tune:
            raise ValueError(f"a search takes a metric to tune for: {', '.join(TARGETS)}")
        for method, values in self.recipe.search.items():
            if method not in methods():
                raise ValueError(f"the recipe's search has an unknown method {method!r}; known: {', '.join(methods())}")
            for name, choices in values.items():
                if any(list(choices).count(value) > 1 for value in choices):
                    raise ValueError(f"the recipe's search of {method!r} has the same value of {name!r} twice")

    @property
    def models(self) -> list[ModelSettings]:
        """The networks of all runs, each once."""
        runs = (self.final(label, s, self.seeds[0], "") for label in self.methods for s in self.candidates(label))
        return list({run.recipe.model.model_dump_json(): run.recipe.model for run in runs}.values())

    def finals(self, choice: Choice) -> list[PlannedRun]:
        """The final runs, with the settings that a search chose; none where every candidate failed."""
        runs = []
        for label, contender in self.methods.items():
            for seed in self.seeds:
                if not self.tune:
                    runs.append(self.final(label, contender.settings, seed, ""))
                search_seed = seed if seed in self.search_seeds else self.search_seeds[0]
                for target in self.tune:
                    if (label, search_seed, target) in choice:
                        runs.append(self.final(label, choice[label, search_seed, target], seed, target))
        return runs

    @property
    def most_finals(self) -> int:
        """The largest number of final runs: every method and target has its own."""
        return len(self.methods) * len(self.seeds) * max(1, len(self.tune))

    @property
    def search_seeds(self) -> Sequence[int]:
        """Seeds with a search of their own."""
        return self.seeds if self.recipe.data.resample else self.seeds[:1]

    def candidates(self, label: str) -> list[Settings]:
        """The settings that are tried for a method."""
        method = self.methods[label]
        if not self.tune:
            return [method.settings]
        fixed = {*method.settings, *method.settings.get("loss", ())}
        values = {k: v for k, v in space(method.name, self.recipe).items() if k not in fixed}
        number = combinations(values) if self.trials is None else min(self.trials, combinations(values))
        if number > MOST_CANDIDATES:
            raise ValueError(
                f"at most {MOST_CANDIDATES} candidates of a method are tried, got {number} of {label!r}: try some of "
                "them with --search random --trials 100"
            )
        combined = grid(values) if self.trials is None else draw(values, self.trials, seed=0)
        return [method.settings | settings for settings in combined]

    def trial(self, label: str, seed: int, settings: Settings, share: float = 1.0) -> PlannedRun:
        """A run of the search: part of the training data is held out, and training may be shorter."""
        data = self.recipe.data
        changed = self._changes(label, settings, seed)
        if data.val is None or data.val == data.test:
            held_out = {"fraction": HELD_OUT} if data.hold_out is None else data.hold_out.model_dump(exclude_none=True)
            changed["data.hold_out"] = held_out | {"seed": seed}
        recipe = shorten(replace_settings(self.recipe, changed), share)
        return PlannedRun(recipe, label, settings, "search" if share == 1.0 else "short", "", seed)

    def final(self, label: str, settings: Settings, seed: int, tuned_for: str) -> PlannedRun:
        """A final run, on all of the training data unless part of it chooses the epoch.

        What a method holds out for a repair stays held out.
        """
        hold_out, changed = self.recipe.data.hold_out, self._changes(label, settings, seed)
        if "data.hold_out" in changed:
            changed["data.hold_out"] = changed["data.hold_out"] | {"seed": seed}
        elif hold_out is not None:
            is_train = hold_out.of == "train"
            is_joined = self.tune and is_train and self.recipe.training.keep == "last" and not self.keep_held_out
            # Data that a search has used must not be test data of any seed.
            cut = seed if is_train or seed in self.search_seeds else self.search_seeds[0]
            changed["data.hold_out"] = None if is_joined else hold_out.model_dump(exclude_none=True) | {"seed": cut}
        return PlannedRun(replace_settings(self.recipe, changed), label, settings, "final", tuned_for, seed)

    def _changes(self, label: str, settings: Settings, seed: int) -> Settings:
        return changes(self.methods[label].name, settings, self.recipe) | {"seed": seed}


def search(study: Study, execute: Callable[[Sequence[PlannedRun]], Scores]) -> tuple[list[PlannedRun], Choice]:
    """Search the settings of every method; return the runs of the search, and the choice.

    ``execute`` executes runs, and returns their validation metrics.
    """
    runs: list[PlannedRun] = []
    choice: Choice = {}
    candidates = first_candidates(study)
    rungs = RUNGS if study.search == "halving" else 1
    for rung in range(rungs if candidates else 0):
        trials = trials_of(study, candidates, rung)
        planned = [run for group in trials.values() for run in group]
        runs += planned
        scores = execute(planned)
        for (label, seed), group in trials.items():
            rankings = {target: _ranked(group, scores, target) for target in study.tune}
            if rung == rungs - 1:
                choice |= {(label, seed, target): ranking[0] for target, ranking in rankings.items() if ranking}
            count = 1 if rung == rungs - 1 else math.ceil(len(group) / ETA)
            best = [settings for ranking in rankings.values() for settings in ranking[:count]]
            candidates[label, seed] = [settings for n, settings in enumerate(best) if settings not in best[:n]]
    # A single candidate, or one left before the last round, is chosen without a comparison.
    for (label, seed), remaining in candidates.items():
        for target in study.tune:
            if len(remaining) == 1:
                choice.setdefault((label, seed, target), remaining[0])
    return runs, choice


def first_candidates(study: Study) -> dict[tuple[str, int], list[Settings]]:
    """The candidates of every search, by label and seed."""
    seeds = study.search_seeds if study.tune else ()
    return {(label, seed): study.candidates(label) for label in study.methods for seed in seeds}


def trials_of(
    study: Study, candidates: Mapping[tuple[str, int], list[Settings]], rung: int
) -> dict[tuple[str, int], list[PlannedRun]]:
    """The runs of one round of a search, for methods with more than one candidate."""
    share = float(ETA) ** (rung - (RUNGS if study.search == "halving" else 1) + 1)
    return {
        (label, seed): [study.trial(label, seed, settings, share) for settings in remaining]
        for (label, seed), remaining in candidates.items()
        if len(remaining) > 1
    }


def _test_data(recipe: Recipe) -> str:
    """The settings that determine the test samples and their labels."""
    data = recipe.data
    plain = data.model_dump(mode="json", include={"layout", "path", "options", "test", "test_share", "resample"})
    plain["split_options"] = data.split_options.get("test", {})
    plain["variant"] = data.variant if "test" in data.variant_of else None
    if data.hold_out is not None and data.hold_out.of == "test":
        plain["hold_out"] = data.hold_out.model_dump(mode="json")
    return json.dumps(plain, sort_keys=True)


def shorten(recipe: Recipe, share: float) -> Recipe:
    """A recipe with a share of the training, its schedule included."""
    if share == 1.0:
        return recipe
    length, schedule = recipe.training, recipe.schedule
    changed: Settings = {
        "schedule.milestones": [m * share for m in schedule.milestones],
        "schedule.every": schedule.every * share,
        "schedule.warmup": schedule.warmup * share,
    }
    if length.steps is not None:
        changed["training.steps"] = max(1, round(length.steps * share))
    else:
        changed["training.epochs"] = (length.epochs or 1) * share
    return replace_settings(recipe, changed)


def _ranked(trials: Sequence[PlannedRun], scores: Scores, target: str) -> list[Settings]:
    """Settings, the best first, without runs that failed or have no number."""
    sign = describe(target).sign
    values = [(sign * scores[trial.key][target], n) for n, trial in enumerate(trials) if trial.key in scores]
    return [trials[n].settings for value, n in sorted(pair for pair in values if not math.isnan(pair[0]))]
