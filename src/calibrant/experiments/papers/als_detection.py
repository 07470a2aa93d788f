"""ALS, Tables 4 and 7: detectors on the classifiers of als_imagenet.

On the paper's data the classifiers are finished runs, for they are trained on other data than the detectors. In small
both are trained on drawn scenes, and seed by seed a detector has the classifier of the same seed.
"""

from __future__ import annotations

from typing import Any

from calibrant.detection import read_backbones
from calibrant.experiments.comparison.detectors import compare_detectors, notes_on
from calibrant.experiments.papers.recipe_items import beside_of
from calibrant.experiments.papers.registry import Output
from calibrant.experiments.papers.workbench import RunSet, Workbench
from calibrant.training import Recipe, check_recipe, load

RECIPE = "als_detection_coco"

#: In small: a ResNet instead of a network without convolutions, and scenes that are large enough for its stages.
CLASSIFIER: dict[str, Any] = {
    "model": {"name": "small_resnet", "width": 8},
    "data": {"options": {"context": 0.7, "ambiguous": 0.0, "size": 32}},
}
#: In small: what is other than in the recipe.
DETECTOR: dict[str, Any] = {
    "title": "drawn scenes, in small",
    "data": {
        "layout": "scenes",
        "options": CLASSIFIER["data"]["options"],
        "split_options": {"train": {"samples": 800}, "test": {"samples": 300}},
        "train_steps": [{"step": "flip"}],
    },
    "model": CLASSIFIER["model"],
    "detection": {
        "anchors": [8, 16, 24], "frozen_stages": 0, "pooled": 4, "candidates": [200, 100], "proposals": [60, 30],
        "regions": 16,
    },
    "optimiser": {"name": "adam", "rate": 2e-3},
    "training": {"epochs": 10, "batch_size": 8},
}  # fmt: skip


def detection_table(bench: Workbench, number: str) -> Output:
    """A table of the recipe of detection, with the printed numbers beside.

    Args:
        bench: Where classifiers are from; its seeds are those of the detectors.
        number: Number of the table.
    """
    plan = load(RECIPE)
    assert plan.detection is not None
    if not bench.small and not (bench.runs and bench.data):
        raise ValueError(
            f"ALS, Table {number} is made from finished runs of {plan.detection.pretraining}, given with --runs, and "
            "from the folder of COCO, given with --data; or give --small for drawn scenes"
        )
    rows = plan.tables[number].rows
    classifiers = bench.run(plan.detection.pretraining, rows, changes=CLASSIFIER)
    names = [row for row in rows if row in classifiers.folders]
    if not names:
        raise ValueError(f"none of the runs is a method of ALS's Table {number}: {', '.join(rows)}")
    if bench.small:
        plan = small_detection(plan, names)
    texts = [f"{name}={folder.path}" for name in names for _, folder in sorted(classifiers.folders[name].items())]
    backbones = read_backbones(texts, plan)
    folder = bench.folder / "runs" / ("small-detectors" if bench.small else RECIPE)
    data = None if bench.small else bench.data
    results = compare_detectors(plan, backbones, bench.seeds, folder, data=data)
    runs = RunSet(plan, results, {})
    return beside_of({RECIPE: runs}, number, notes=(*notes_on(backbones, plan), *classifiers.notes))


def small_detection(recipe: Recipe, names: list[str]) -> Recipe:
    """The recipe over drawn scenes, with some of its methods."""
    tables = {
        number: {"columns": list(table.columns), "rows": [row for row in table.rows if row in names]}
        for number, table in recipe.tables.items()
    }
    words = {"paper": recipe.paper, "table": recipe.table, "tables": tables}
    methods = {name: recipe.methods[name].model_dump(mode="json", exclude_none=True) for name in names}
    expected = [entry.model_dump(mode="json") for entry in recipe.expected if entry.method in names]
    return check_recipe({**DETECTOR, **words, "methods": methods, "expected": expected}, "the small recipe")
