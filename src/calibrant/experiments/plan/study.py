"""A comparison as a plan: which runs are needed, in which order, and for what purpose.

The protocol is LR's: every candidate of a method is trained on a part of the training data and judged on the rest; the
best one, for each target, is trained again on all of it and tested. With `data.resample` the splits are drawn anew for
every seed and each seed has its own search; otherwise one search, with the first seed, serves all.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

from calibrant._validation import LARGEST_SEED, short
from calibrant.experiments.plan.spaces import Settings, changes, combinations, draw, grid, methods, space
from calibrant.metrics import describe
from calibrant.training import ModelSettings, Recipe, replaced

TARGETS = ("accuracy", "ece", "nll", "aurc")
Search = Literal["grid", "random", "halving"]

#: Of one comparison, each a run of every method; and of one method, each a run of the search.
MOST_SEEDS, MOST_CANDIDATES = 1000, 1000

#: LR's share of the training data for the search, where a recipe names none.
HELD_OUT = 1 / 6
#: Successive halving keeps one candidate in ETA, and trains it ETA times as long.
ETA = 3
RUNGS = 3

#: Validation numbers by the key of a run; a run that failed is missing.
Scores = Mapping[str, Mapping[str, float]]
#: What a search chose: settings by label, seed and target.
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
        """What a progress bar calls it."""
        return f"{self.method} {self.seed}"


class Contender(NamedTuple):
    """What takes part in a comparison: the name of a method, and settings that are not searched."""

    name: str
    settings: Settings


def contender_of(recipe: Recipe, name: str) -> Contender:
    """A method of a recipe as it takes part in a comparison: nothing of the recipe's own method is left in it."""
    method = recipe.methods[name]
    unset: Settings = {"mixing": None} if recipe.mixing is not None else {}
    if recipe.data.context_rate:
        unset["data.context_rate"] = 0.0
    return Contender(method.loss.name if method.loss is not None else "ce", unset | method.changes)


def contenders_of(recipe: Recipe, names: Iterable[str] | None = None) -> dict[str, Contender]:
    """The methods of a recipe that have runs of their own, for some of its rows or for all of them.

    A row that is repaired from the runs of another stands for that one.
    """
    rows = recipe.methods if names is None else names
    owners = dict.fromkeys(recipe.methods[row].of or row for row in rows)
    return {name: contender_of(recipe, name) for name in owners}


@dataclass(frozen=True)
class Study:
    """What is compared.

    Attributes:
        recipe: Everything but the method.
        methods: By their labels in the tables.
        seeds: One run of each method, and for resampled data one split, per seed.
        tune: Metrics for which settings are searched; none keeps the settings as they are.
        search: ``"grid"``: all; ``"random"``: some; ``"halving"``: all or some for a ninth of the training, the best
            third of them for a third, the best third of those for the whole.
        trials: How many of a method's combinations, for ``"random"`` and ``"halving"``.
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
        for label in self.methods:  # a wrong setting is an error before anything runs
            runs = [self.final(label, settings, self.seeds[0], "") for settings in self.candidates(label)]
            other = labels.setdefault(" ".join(run.key for run in runs), label)
            if other != label:
                raise ValueError(f"{other!r} and {label!r} are the same method with the same settings")
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
        """Every network that a run would build, each once."""
        runs = (self.final(label, s, self.seeds[0], "") for label in self.methods for s in self.candidates(label))
        return list({run.recipe.model.model_dump_json(): run.recipe.model for run in runs}.values())

    def finals(self, choice: Choice) -> list[PlannedRun]:
        """The runs that are tested, with the settings that a search chose; none where every candidate failed."""
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
        """Runs that are tested, if every method and target has its own."""
        return len(self.methods) * len(self.seeds) * max(1, len(self.tune))

    @property
    def search_seeds(self) -> Sequence[int]:
        """Seeds with a search of their own."""
        return self.seeds if self.recipe.data.resample else self.seeds[:1]

    def candidates(self, label: str) -> list[Settings]:
        """What is tried for a method."""
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
        """A run of the search: a part of the training data is held out, and training may be shorter."""
        data = self.recipe.data
        changed = self._changes(label, settings, seed)
        if data.val is None or data.val == data.test:
            held_out = {"fraction": HELD_OUT} if data.hold_out is None else data.hold_out.model_dump(exclude_none=True)
            changed["data.hold_out"] = held_out | {"seed": seed}
        recipe = shortened(replaced(self.recipe, changed), share)
        return PlannedRun(recipe, label, settings, "search" if share == 1.0 else "short", "", seed)

    def final(self, label: str, settings: Settings, seed: int, tuned_for: str) -> PlannedRun:
        """A run that is tested: on all of the training data, unless a part of it has to choose the epoch.

        What a method holds out for a repair of its own stays held out.
        """
        hold_out, changed = self.recipe.data.hold_out, self._changes(label, settings, seed)
        if "data.hold_out" in changed:
            changed["data.hold_out"] = changed["data.hold_out"] | {"seed": seed}
        elif hold_out is not None:
            is_train = hold_out.of == "train"
            is_joined = self.tune and is_train and self.recipe.training.keep == "last" and not self.keep_held_out
            # What a search has looked at must not be test data of any seed.
            cut = seed if is_train or seed in self.search_seeds else self.search_seeds[0]
            changed["data.hold_out"] = None if is_joined else hold_out.model_dump(exclude_none=True) | {"seed": cut}
        return PlannedRun(replaced(self.recipe, changed), label, settings, "final", tuned_for, seed)

    def _changes(self, label: str, settings: Settings, seed: int) -> Settings:
        return changes(self.methods[label].name, settings, self.recipe) | {"seed": seed}


def search(study: Study, execute: Callable[[Sequence[PlannedRun]], Scores]) -> tuple[list[PlannedRun], Choice]:
    """Search the settings of every method: the runs that were made for it, and what was chosen.

    Args:
        study: What is compared; without anything to tune for, nothing is searched.
        execute: Makes runs, and gives their validation numbers.
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
            candidates[label, seed] = _distinct(settings for r in rankings.values() for settings in r[:count])
    # Where one was left before the last round, or was all there is, nothing had to be judged.
    for (label, seed), remaining in candidates.items():
        for target in study.tune:
            if len(remaining) == 1:
                choice.setdefault((label, seed, target), remaining[0])
    return runs, choice


def first_candidates(study: Study) -> dict[tuple[str, int], list[Settings]]:
    """What is searched, by label and seed."""
    seeds = study.search_seeds if study.tune else ()
    return {(label, seed): study.candidates(label) for label in study.methods for seed in seeds}


def trials_of(
    study: Study, candidates: Mapping[tuple[str, int], list[Settings]], rung: int
) -> dict[tuple[str, int], list[PlannedRun]]:
    """The runs of one round of a search, of the methods that have a choice left."""
    share = float(ETA) ** (rung - (RUNGS if study.search == "halving" else 1) + 1)
    return {
        (label, seed): [study.trial(label, seed, settings, share) for settings in several]
        for (label, seed), several in candidates.items()
        if len(several) > 1
    }


def _test_data(recipe: Recipe) -> str:
    """The settings that decide which samples a run is tested on, and by which labels."""
    data = recipe.data
    plain = data.model_dump(mode="json", include={"layout", "path", "options", "test", "test_share", "resample"})
    plain["split_options"] = data.split_options.get("test", {})
    plain["variant"] = data.variant if "test" in data.variant_of else None
    if data.hold_out is not None and data.hold_out.of == "test":
        plain["hold_out"] = data.hold_out.model_dump(mode="json")
    return json.dumps(plain, sort_keys=True)


def shortened(recipe: Recipe, share: float) -> Recipe:
    """The same with a share of the training, its schedule included."""
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
    return replaced(recipe, changed)


def _ranked(trials: Sequence[PlannedRun], scores: Scores, target: str) -> list[Settings]:
    """Settings, the best first; runs that failed or have no number are left out."""
    sign = describe(target).sign
    values = [(sign * scores[trial.key][target], n) for n, trial in enumerate(trials) if trial.key in scores]
    return [trials[n].settings for value, n in sorted(pair for pair in values if not math.isnan(pair[0]))]


def _distinct(several: Iterable[Settings]) -> list[Settings]:
    """Settings, each once, in order of appearance."""
    distinct: list[Settings] = []
    for settings in several:
        if settings not in distinct:
            distinct.append(settings)
    return distinct
