"""Finished runs: their predictions, their model to be exported; and what a recipe would take."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from calibrant.predictions import Predictions
from calibrant.training import checkpoints
from calibrant.training.loop import step
from calibrant.training.preparing import make_fabric, make_model, predicted, prepared, size
from calibrant.training.recipe import Recipe
from calibrant.training.run_folder import BEST, LAST, MODEL, MODEL_FACTS, RunFolder
from calibrant.training.sets import load_sets, read_split


def estimate(recipe: Recipe, data: str | None = None, steps: int = 5) -> dict[str, Any]:
    """Size and speed of a recipe here, from a few real steps; nothing is written."""
    sets = load_sets(recipe, data)
    run = prepared(recipe, make_fabric(recipe, "auto", 1, 1), sets, None)
    run.model.train()
    times = []
    for batch in run.pipeline.loader(run.batches):
        start = time.perf_counter()
        step(run, batch)
        run.progress.step += 1
        times.append(time.perf_counter() - start)
        if len(times) > steps:
            break
    seconds = sorted(times)[len(times) // 2]
    return {
        "parameters": size(run.model),
        "samples": len(sets.train),
        "steps": run.steps,
        "seconds_per_step": seconds,
        "seconds": seconds * run.steps,
    }


def predict_run(
    folder: str | Path,
    *,
    data: str | None = None,
    split: str | None = None,
    best: bool = False,
    watch: Any = None,
) -> Predictions:
    """Predict a split with the model of a run.

    Args:
        folder: Of the run.
        data: Where the data lies, if not where the recipe says.
        split: Which; the recipe's test split if left out.
        best: From the best checkpoint instead of the last.
        watch: Shows progress over batches.
    """
    place = RunFolder(folder)
    recipe = place.recipe()
    file = place / (BEST if best else LAST)
    if not file.exists():
        raise ValueError(f"{place.path}: there is no {file.name}; the run has not come that far.")
    sets = load_sets(recipe, data)
    named = {recipe.data.test: sets.test} | sets.evaluated
    dataset = named.get(split or recipe.data.test)
    if dataset is None:
        dataset = read_split(recipe, data, str(split), sets.vocabulary)
    model = make_model(recipe, len(sets.train.classes), sets.vocabulary_size)
    parts, _ = checkpoints.load(file)
    checkpoints.restore_module(model, parts["model"], file)
    return predicted(recipe, model, dataset, "cpu", watch)


def load_model(folder: str | Path) -> tuple[nn.Module, list[int], list[str]]:
    """The model of a finished run, ready to be exported.

    Returns:
        The model, which takes images with values from 0 to 1 (or the rows of the data set) and normalises them itself;
        the shape of its input without the batch; and the names of the classes.
    """
    place = RunFolder(folder)
    recipe = place.recipe()
    try:
        facts = json.loads((place / MODEL_FACTS).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{place.path}: there is no {MODEL_FACTS}; the run is not finished.") from None
    model = make_model(recipe, len(facts["classes"]), facts["vocabulary_size"])
    parts, _ = checkpoints.load(place / MODEL)
    checkpoints.restore_module(model, parts["model"], place / MODEL)
    if facts["images"]:
        model = nn.Sequential(Normalise(recipe.data.mean, recipe.data.std), model)
    return model.eval(), facts["input_shape"], facts["classes"]


class Normalise(nn.Module):
    """(x - mean) / std per channel, as a part of an exported model."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]):
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(1, -1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        """Normalise [N, C, H, W]."""
        return (images - self.mean) / self.std
