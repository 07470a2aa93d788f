"""The values that a search tries for each method: those of the papers, which its file has, or those of a recipe.

Methods for which the papers give none keep their defaults, unless the recipe has a search for them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from calibrant.losses import describe, names
from calibrant.training import Recipe

#: Values by setting: of the loss, or with a dot of the recipe.
Space = Mapping[str, Sequence[Any]]
Settings = dict[str, Any]

#: Largest number of combinations of a method's values; a random search tries some of them.
MOST_COMBINATIONS = 100_000

#: The search of ALS (its Table 2).
_ALS: Space = {"targets.beta": (1.0, 0.75, 0.25)}

#: Methods that are more than a loss: their names in words, and what they change in a recipe.
_ADAPTIVE: Settings = {"targets.name": "adaptive"}
BEYOND_LOSSES: dict[str, tuple[str, Settings]] = {
    "als": ("Adaptive label smoothing", _ADAPTIVE),
    "als+context": ("Adaptive label smoothing with context-only samples", _ADAPTIVE | {"data.context_rate": 0.15}),
    "cutmix": ("CutMix", {"mixing": {"name": "cutmix"}}),
    "ricap": ("Random image cropping and patching", {"mixing": {"name": "ricap"}}),
    "mixup": ("Mixup", {"mixing": {"name": "mixup"}}),
}


def title_of(method: str) -> str:
    """A method's name in words.

    Example:
        >>> title_of("ls"), title_of("als")
        ('Label smoothing', 'Adaptive label smoothing')
    """
    return BEYOND_LOSSES[method][0] if method in BEYOND_LOSSES else describe(method).title


#: How papers write the methods that are more than a loss.
_SHORT = {"als": "ALS", "als+context": "ALS + context", "cutmix": "CutMix", "ricap": "RICAP", "mixup": "Mixup"}


def short_title(label: str) -> str:
    """The label of a row as papers write it: the method that it begins with is abbreviated as they do.

    Example:
        >>> short_title("ls"), short_title("mbls:margin=6"), short_title("ce + temperature"), short_title("mine")
        ('LS', 'MbLS:margin=6', 'CE + temperature', 'mine')
    """
    for method in sorted(methods(), key=len, reverse=True):
        rest = label.removeprefix(method)
        if label.startswith(method) and (not rest or rest[0] in " ,:"):
            return (_SHORT[method] if method in _SHORT else describe(method).abbreviation) + rest
    return label


def methods() -> tuple[str, ...]:
    """Everything that can be compared: every loss, ALS, ALS with context-only images, and mixing.

    Example:
        >>> methods()[:3], methods()[-5:]
        (('ce', 'ls', 'focal'), ('als', 'als+context', 'cutmix', 'ricap', 'mixup'))
    """
    return losses_to_compare() + tuple(BEYOND_LOSSES)


def losses_to_compare() -> tuple[str, ...]:
    """Every loss that trains on labels as they are."""
    return tuple(name for name in names() if name != "soft")


def changes(method: str, settings: Settings, recipe: Recipe) -> Settings:
    """The changes of a method with its settings to a recipe, as values by dotted name.

    The recipe's own method keeps the values of the recipe, unless the settings give a whole loss.

    Example:
        >>> from calibrant.training.recipe import check_recipe
        >>> recipe = check_recipe({"data": {"layout": "digits"}, "model": {"name": "mlp"}}, "digits")
        >>> changes("ls", {"alpha": 0.2}, recipe)
        {'targets.name': 'hard', 'loss': {'name': 'ls', 'alpha': 0.2}}
    """
    if method not in methods():
        raise ValueError(f"unknown method {method!r}; known are {', '.join(methods())}")
    changed: Settings = {"targets.name": "hard"} | (BEYOND_LOSSES[method][1] if method in BEYOND_LOSSES else {})
    name = "ce" if method in BEYOND_LOSSES else method
    # Any other loss, and one that is given whole, takes over ignore_index only.
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
    """The values to search for a method: the recipe's, or else the papers'."""
    if method in recipe.search:
        return recipe.search[method]
    if method in BEYOND_LOSSES:
        return _ALS if "targets.name" in BEYOND_LOSSES[method][1] else {}
    return describe(method).search


def grid(values: Space) -> list[Settings]:
    """Every combination, the first name slowest.

    Example:
        >>> grid({"margin": [6, 10], "strength": [0.1]})
        [{'margin': 6, 'strength': 0.1}, {'margin': 10, 'strength': 0.1}]
    """
    combinations(values)
    return [dict(zip(values, combination, strict=True)) for combination in itertools.product(*values.values())]


def combinations(values: Space) -> int:
    """The number of combinations; an error if it is too large."""
    number = math.prod(len(v) for v in values.values())
    if number > MOST_COMBINATIONS:
        raise ValueError(f"a search covers at most {MOST_COMBINATIONS} combinations of a method, got {number}")
    return number


def draw(values: Space, number: int, seed: int) -> list[Settings]:
    """Combinations drawn at random without repetition; all of them if there are no more."""
    total = combinations(values)
    random = np.random.default_rng([seed, len(values), total])
    indices = sorted(random.choice(total, min(number, total), replace=False).tolist())
    settings = grid(values)
    return [settings[i] for i in indices]
