"""The recipes that come with Calibrant: the papers' experiments, and under ``small/`` some of them for two cores.

A recipe's name is its path in this folder without ``.toml``: ``small/scenes``, ``acls_cifar10_resnet50``.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any, NamedTuple

from calibrant.base.files import parse_toml

FOLDER = Path(__file__).parent


class RecipeSummary(NamedTuple):
    """An entry of the list of recipes."""

    name: str
    title: str
    paper: str
    table: str


def names() -> list[str]:
    """The names of all recipes.

    Example:
        >>> "small/scenes" in names(), "acls_cifar10_resnet50" in names()
        (True, True)
    """
    return sorted(file.relative_to(FOLDER).with_suffix("").as_posix() for file in FOLDER.rglob("*.toml"))


def summaries() -> list[RecipeSummary]:
    """The title, paper and table of every recipe."""
    texts = {name: parse_toml(_file(name).read_bytes(), "a recipe") for name in names()}
    return [RecipeSummary(name, text["title"], text["paper"], text["table"]) for name, text in texts.items()]


def plain_recipe(recipe: str | Path) -> dict[str, Any]:
    """The values of a recipe as they stand in its file, unchecked: for lists, which need not import what checks them.

    Example:
        >>> plain_recipe("acls_cifar10_resnet50")["data"]["layout"]
        'cifar-10'
    """
    return parse_toml(find(recipe).read_bytes(), "a recipe")


def find(recipe: str | Path) -> Path:
    """The file of a recipe, given by path or by name.

    Raises:
        ValueError: there is neither; the message has the nearest names.

    Example:
        >>> find("small/scenes").name
        'scenes.toml'
    """
    path = Path(recipe)
    if path.exists() and not path.is_dir():
        return path
    name = path.as_posix().removesuffix(".toml")
    if name in names():
        return _file(name)
    if path.is_dir():
        raise ValueError(f"{path}: expected a recipe, got a folder")
    guesses = _near(name)
    hint = (
        f"did you mean {', '.join(guesses[:-1])}{' or ' if guesses[1:] else ''}{guesses[-1]}?"
        if guesses
        else "calibrant recipes lists those"
    )
    raise ValueError(f"{path}: neither a file nor a recipe that comes with Calibrant; {hint}")


def _file(name: str) -> Path:
    return FOLDER / f"{name}.toml"


def _near(name: str) -> list[str]:
    """Up to three similar names of recipes, with or without their folder."""
    aliases = {alias: recipe for recipe in names() for alias in (recipe, recipe.rpartition("/")[2])}
    words = (name[:200].lower(), name[:200].lower().rpartition("/")[2])
    matches = [alias for word in words for alias in difflib.get_close_matches(word, aliases, 3, 0.7)]
    return list(dict.fromkeys(aliases[alias] for alias in matches))[:3]
