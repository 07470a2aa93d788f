"""Folders of finished runs without any training: the recipe, the recorded facts, and predictions drawn at random."""

import json

import numpy as np

from calibrant import Predictions
from calibrant.data import FASHION
from calibrant.experiments.results import ResultRow, Results
from calibrant.experiments.study import Study, contenders_of
from calibrant.metrics import ConfidenceSketch
from calibrant.training import Recipe, RunFolder, load
from calibrant.training.run_folder import MODEL_FACTS, RECIPE, RESULT

CIFAR = {"train": 45_000, "val": 5_000, "test": 10_000}
TINY = {"train": 90_000, "val": 10_000, "test": 10_000}
MNIST = {"train": 60_000, "test": 10_000}
NAMES = {"mnist": tuple("0123456789"), "fashion-mnist": FASHION}


def planned(recipe, method, seed=0, **changes):
    """The recipe of a method's run."""
    plan = recipe if isinstance(recipe, Recipe) else load(recipe)
    run = Study(plan, contenders_of(plan, [method]), (seed,)).finals({})[0].recipe
    return Recipe.model_validate(run.model_dump(mode="json") | changes)


def fake_run(folder, recipe, classes, samples, *, predicted=40, sets=(), accuracy=0.7):
    """A run folder of ``recipe``; ``classes`` is their names or number, ``samples`` what is recorded of each set.

    Only some predictions of each set are written: ``samples`` says how many there were.
    """
    run = RunFolder(folder)
    run.path.mkdir(parents=True)
    names = [f"n{k:08}" for k in range(classes)] if isinstance(classes, int) else list(classes)
    rng = np.random.default_rng([recipe.seed, len(names), round(1000 * accuracy)])
    numbers = {}
    for name in {"test": 0, **dict.fromkeys(sets), **({"val": 0} if "val" in samples else {})}:
        labels = rng.integers(0, len(names), predicted)
        logits = rng.normal(size=(predicted, len(names))).astype(np.float32)
        logits[np.arange(predicted), labels] += np.where(rng.random(predicted) < accuracy, 6, 0)
        Predictions.from_logits(logits, labels, class_names=names).save(run / f"{name}.npz")
        sketch = ConfidenceSketch()
        sketch.update(logits, labels)
        numbers[name] = {metric: float(value) for metric, value in sketch.compute().items()}
    run.write(RECIPE, recipe.model_dump(mode="json"))
    facts = {"classes": names, "input_shape": [3, 8, 8], "images": True, "input_dtype": "float32"}
    run.write(MODEL_FACTS, facts | {"vocabulary_size": None, "samples": samples})
    run.write(RESULT, {"sets": numbers, "steps": 1, "history": [{"epoch": 1, "step": 1}]})
    return run.path


def fake_comparison(folder, runs, *, tuned=()):
    """A comparison folder of fake runs: ``runs`` are (method, settings, recipe, classes, samples)."""
    (folder / "runs").mkdir(parents=True)
    (folder / "study.json").write_text(json.dumps({"format": "calibrant.study"}))
    rows = []
    for k, (method, settings, recipe, classes, samples) in enumerate(runs):
        path = folder / "runs" / recipe.key
        if not path.exists():
            fake_run(path, recipe, classes, samples, accuracy=0.4 + 0.05 * k)
        plain = json.dumps(settings, sort_keys=True)
        for target in tuned or ("",):
            about = (recipe.key, method, plain, target, "final", recipe.seed, "test", "none", float("nan"))
            rows.append(ResultRow(*about, "accuracy", 0.5))
    Results(rows).save(folder)
    return folder


__all__ = ["CIFAR", "MNIST", "NAMES", "TINY", "fake_comparison", "fake_run", "planned"]
