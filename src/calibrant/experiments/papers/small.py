"""The papers' experiments in small: the same methods on drawn scenes, with a network of two layers.

A method keeps what defines it: its loss with every value, its targets, its mixing and its share of images without an
object. Network, data and schedule are those of the small experiment, in which a run takes seconds on one core; the
study of the demonstration uses the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from calibrant.training import TUNED_FOR, MethodSettings, Recipe, check_recipe

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


def small_recipe(recipe: Recipe, rows: Iterable[str] | None = None, *, masks: bool = False) -> Recipe:
    """A recipe's methods, tables and printed numbers over the small experiment.

    Rows that differ from another only in what the small experiment replaces are left out.

    Args:
        recipe: The paper's recipe.
        rows: Methods to keep; all if left out.
        masks: Over the small experiment with a label for every pixel.
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
