"""What is tried for each method: the values of the papers, or those of a recipe.

    ls, lr   alpha      0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.4                    LR, section 4
    ecp      strength   0.1, 0.3, 0.5, 1, 2, 4, 8                                LR, section 4 (its beta)
    focal    gamma      0.1, 0.2, 0.5, 1, 2, 3.5, 5                              LR, section 4
    acls     lambda1    0.05, 0.1, 0.15, lambda2 0.005, 0.01, 0.015              ACLS, Table A
             margin     6, 10                                                    ACLS, section 4.1
    mbls     margin     6, 10, strength 0.05, 0.1, 0.2                           MbLS, Figure 1 (it prints no values)
    als      beta       1, 0.75, 0.25                                            ALS, Table 2

The papers give no search for the others: they keep their defaults, unless a recipe has one for them.
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

_ALPHA = (0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.4)

SPACES: dict[str, Space] = {
    "ls": {"alpha": _ALPHA},
    "lr": {"alpha": _ALPHA},
    "ecp": {"strength": (0.1, 0.3, 0.5, 1.0, 2.0, 4.0, 8.0)},
    "focal": {"gamma": (0.1, 0.2, 0.5, 1.0, 2.0, 3.5, 5.0)},
    "acls": {"margin": (6.0, 10.0), "lambda1": (0.05, 0.1, 0.15), "lambda2": (0.005, 0.01, 0.015)},
    "mbls": {"margin": (6.0, 10.0), "strength": (0.05, 0.1, 0.2)},
    "als": {"targets.beta": (1.0, 0.75, 0.25)},
}

#: Methods that are more than a loss, as settings of the recipe.
_ADAPTIVE = {"targets.name": "adaptive"}
BEYOND_LOSSES: dict[str, Settings] = {"als": _ADAPTIVE, "als+context": _ADAPTIVE | {"data.context_rate": 0.15}}


def methods() -> tuple[str, ...]:
    """Everything that can be compared: every loss, ALS, and ALS with images that show no object.

    Example:
        >>> methods()[:3], methods()[-1]
        (('ce', 'ls', 'focal'), 'als+context')
    """
    return tuple(name for name in names() if name != "soft") + tuple(BEYOND_LOSSES)


def changes(method: str, settings: Settings, recipe: Recipe) -> Settings:
    """What a method with its settings changes in a recipe: a name with dots, and a value, each.

    A method that is the recipe's own keeps the values that the recipe has for it.

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
    own = recipe.loss.parameters  # any other loss takes over from the recipe's which labels to leave out, and no more
    loss = {"name": name} | {k: v for k, v in own.items() if recipe.loss.name == name or k == "ignore_index"}
    for setting, value in settings.items():
        if "." in setting:
            changed[setting] = value
        elif setting in describe(name).defaults():
            loss[setting] = value
        else:
            known = ", ".join(describe(name).defaults()) or "none"
            raise ValueError(f"method {method!r} has no setting {setting!r}; it has {known}, and those of the recipe")
    return changed | {"loss": loss}


def space(method: str, recipe: Recipe) -> Space:
    """What is searched for a method: the recipe's word, else the papers'."""
    return recipe.search.get(method, SPACES.get(method.partition("+")[0], {}))


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
        raise ValueError(f"a search is among at most {MOST_COMBINATIONS} combinations of a method, got {number}")
    return number


def draw(values: Space, number: int, seed: int) -> list[Settings]:
    """So many combinations at random, none twice; all of them if there are no more."""
    total = combinations(values)
    random = np.random.default_rng([seed, len(values), total])
    chosen = sorted(random.choice(total, min(number, total), replace=False).tolist())
    every = grid(values)
    return [every[i] for i in chosen]
