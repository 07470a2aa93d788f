"""What is tried for each method: the values that the papers try, which its file has, or those of a recipe.

The papers give no search for some: they keep their defaults, unless a recipe has one for them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from calibrant.losses import describe, names
from calibrant.training import Recipe

#: Values by the name of a setting: one of the loss, or with a dot one of the recipe.
Space = Mapping[str, Sequence[Any]]
Settings = dict[str, Any]

#: Of the values of one method; some of them, or all of a smaller space, are tried.
MOST_COMBINATIONS = 100_000

#: Of ALS (its Table 2), which is more than a loss.
_ALS: Space = {"targets.beta": (1.0, 0.75, 0.25)}

#: Methods that are more than a loss, as settings of the recipe.
_ADAPTIVE = {"targets.name": "adaptive"}
BEYOND_LOSSES: dict[str, Settings] = {
    "als": _ADAPTIVE,
    "als+context": _ADAPTIVE | {"data.context_rate": 0.15},
    "cutmix": {"mixing": {"name": "cutmix"}},
    "ricap": {"mixing": {"name": "ricap"}},
    "mixup": {"mixing": {"name": "mixup"}},
}

#: Their names in words.
_TITLES = {
    "als": "Adaptive label smoothing",
    "als+context": "Adaptive label smoothing with context-only samples",
    "cutmix": "CutMix",
    "ricap": "Random image cropping and patching",
    "mixup": "Mixup",
}


def title_of(method: str) -> str:
    """A method's name in words.

    Example:
        >>> title_of("ls"), title_of("als")
        ('Label smoothing', 'Adaptive label smoothing')
    """
    return _TITLES.get(method) or describe(method).title


def methods() -> tuple[str, ...]:
    """Everything that can be compared: every loss, ALS, ALS with images that show no object, and mixed images.

    Example:
        >>> methods()[:3], methods()[-5:]
        (('ce', 'ls', 'focal'), ('als', 'als+context', 'cutmix', 'ricap', 'mixup'))
    """
    return losses_to_compare() + tuple(BEYOND_LOSSES)


def losses_to_compare() -> tuple[str, ...]:
    """Every loss that trains on labels as they are."""
    return tuple(name for name in names() if name != "soft")


def changes(method: str, settings: Settings, recipe: Recipe) -> Settings:
    """What a method with its settings changes in a recipe: a name with dots, and a value, each.

    A method that is the recipe's own keeps the values that the recipe has for it, unless they name a whole loss.

    Example:
        >>> from calibrant.training.recipe import check_recipe
        >>> recipe = check_recipe({"data": {"layout": "digits"}, "model": {"name": "mlp"}}, "digits")
        >>> changes("ls", {"alpha": 0.2}, recipe)
        {'targets.name': 'hard', 'loss': {'name': 'ls', 'alpha': 0.2}}
    """
    if method not in methods():
        raise ValueError(f"unknown method {method!r}; known are {', '.join(methods())}")
    changed: Settings = {"targets.name": "hard"} | BEYOND_LOSSES.get(method, {})
    name = "ce" if method in BEYOND_LOSSES else method
    # Any other loss, and one that comes whole, takes over which labels to leave out, and no more.
    is_own = recipe.loss.name == name and "loss" not in settings
    loss = {"name": name} | {k: v for k, v in recipe.loss.parameters.items() if is_own or k == "ignore_index"}
    for setting, value in settings.items():
        if setting == "loss":
            loss |= value
        elif "." in setting or setting == "mixing":
            changed[setting] = value
        elif setting in describe(name).defaults():
            loss[setting] = value
        else:
            names = ", ".join(describe(name).defaults()) or "none"
            raise ValueError(f"method {method!r} has no setting {setting!r}; it has {names}, and those of the recipe")
    return changed | {"loss": loss}


def space(method: str, recipe: Recipe) -> Space:
    """What is searched for a method: the recipe's word, else the papers'."""
    if method in recipe.search:
        return recipe.search[method]
    if method in BEYOND_LOSSES:
        return _ALS if "targets.name" in BEYOND_LOSSES[method] else {}
    return describe(method).search


def grid(values: Space) -> list[Settings]:
    """Every combination, the first name slowest.

    Example:
        >>> grid({"margin": [6, 10], "strength": [0.1]})
        [{'margin': 6, 'strength': 0.1}, {'margin': 10, 'strength': 0.1}]
    """
    combinations(values)
    return [dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())]


def combinations(values: Space) -> int:
    """How many combinations there are; an error if they are more than anybody can run."""
    number = math.prod(len(v) for v in values.values())
    if number > MOST_COMBINATIONS:
        raise ValueError(f"a search covers at most {MOST_COMBINATIONS} combinations of a method, got {number}")
    return number


def draw(values: Space, number: int, seed: int) -> list[Settings]:
    """Combinations drawn at random without repetition; all of them if there are no more."""
    total = combinations(values)
    random = np.random.default_rng([seed, len(values), total])
    chosen = sorted(random.choice(total, min(number, total), replace=False).tolist())
    settings = grid(values)
    return [settings[i] for i in chosen]
