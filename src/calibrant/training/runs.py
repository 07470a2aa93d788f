"""Finished runs: their predictions, their model to be exported; and what a recipe would take."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from calibrant.data import Dataset, encoded
from calibrant.models import require_trust
from calibrant.predictions import Predictions
from calibrant.training import checkpoints
from calibrant.training.forward import memory_told
from calibrant.training.preparing import make_model, predicted, prepare_run, size
from calibrant.training.processes import make_fabric
from calibrant.training.recipe import Recipe
from calibrant.training.rehearsal import rehearse
from calibrant.training.run_folder import BEST, LAST, MODEL, MODEL_FACTS, RunFolder
from calibrant.training.sets import Sets, aligned, load_sets, read_split
from calibrant.training.stepping import step


def estimate(recipe: Recipe, data: str | None = None, steps: int = 5, *, trust_code: bool = False) -> dict[str, Any]:
    """Size and speed of a recipe here, from a few real steps, reading included; nothing is written.

    Args:
        recipe: What would be done.
        data: Where the data lies, if not where the recipe says.
        steps: How many are timed, after a first one.
        trust_code: As for `train`.
    """
    require_trust(recipe.model.name, recipe.model.options, trust_code)
    sets = load_sets(recipe, data)
    run = prepare_run(recipe, make_fabric(recipe, "auto", 1, 1), sets, None, trust_code=trust_code)
    rehearse(run)
    run.model.train()
    times = [time.perf_counter()]
    for batch in run.loader:
        step(run, batch)
        run.progress.step += 1
        times.append(time.perf_counter())
        if len(times) > steps + 1:
            break
    lengths = sorted(b - a for a, b in itertools.pairwise(times))
    seconds = lengths[(len(lengths) - 1) // 2]
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
    layout: str | None = None,
    checkpoint: Literal["kept", "last", "best"] = "kept",
    accelerator: str = "auto",
    trust_code: bool = False,
    watch: Any = None,
) -> Predictions:
    """Predict a split with the model of a run.

    Args:
        folder: Of the run.
        data: Where the data lies, if not where the recipe says.
        split: Which; the recipe's test split if left out.
        layout: Of ``data``, if it is another data set than the one that was trained on; classes are matched by name, or
            by position if their names are numbers.
        checkpoint: ``"kept"`` is the model that the run itself was judged by, the last or the best as its recipe says.
        accelerator: As Lightning Fabric takes it.
        trust_code: Import and call the run's model also if it is neither Calibrant's, torchvision's nor timm's: it
            is the run folder that names it.
        watch: Shows progress over batches.
    """
    place = RunFolder(folder)
    recipe = place.recipe()
    require_trust(recipe.model.name, recipe.model.options, trust_code)
    usual = MODEL if (place / MODEL).exists() else BEST if recipe.training.keep == "best" else LAST
    file = place / {"kept": usual, "last": LAST, "best": BEST}[checkpoint]
    if not file.exists():
        raise ValueError(f"{place.path}: there is no {file.name}; the run has not come that far.")
    sets = load_sets(recipe, None if layout else data)
    dataset = None if layout else _named(recipe, sets, split)
    if dataset is None:
        dataset = aligned(read_split(recipe, data, split or "", layout), sets.train.classes)
        if sets.vocabulary is not None and recipe.data.text is not None:
            dataset = encoded(dataset, sets.vocabulary, recipe.data.text.length)
    model = make_model(recipe, len(sets.train.classes), sets.vocabulary_size, trust_code=trust_code, filled=True)
    checkpoints.restore_network(model, file)
    device = make_fabric(recipe, accelerator, 1, 1).device
    with memory_told():
        return predicted(recipe, model.to(device), dataset, device, watch)


def _named(recipe: Recipe, sets: Sets, split: str | None) -> Dataset | None:
    """A set by its part in the run (val, test, a name in also), or by the name of a split that the run has whole."""
    if split is None:
        return sets.test
    if split in sets.evaluated:
        if split == "val" == recipe.data.test and recipe.data.hold_out is not None:
            raise ValueError("'val' is what was held out of this run and the name of its test split; leave --split out "
                             "for the test data, or read another with --layout.")  # fmt: skip
        return sets.evaluated[split]
    whole = recipe.data.hold_out is None or recipe.data.hold_out.of == "train"
    return sets.test if split == recipe.data.test and whole and not recipe.data.resample else None


def load_model(folder: str | Path, *, trust_code: bool = False) -> tuple[nn.Module, list[int], list[str]]:
    """The model of a finished run, ready to be exported.

    Args:
        folder: Of the run.
        trust_code: As for `predict_run`.

    Returns:
        The model, which takes images with values from 0 to 1 (or the rows of the data set) and normalises them itself;
        the shape of its input without the batch; and the names of the classes.
    """
    place = RunFolder(folder)
    recipe = place.recipe()
    require_trust(recipe.model.name, recipe.model.options, trust_code)
    facts = place.model_facts()
    model = make_model(recipe, len(facts.classes), facts.vocabulary_size, trust_code=trust_code, filled=True)
    if not (place / MODEL).exists():
        raise ValueError(f"{place.path}: there is no {MODEL}; the run is not finished.")
    checkpoints.restore_network(model, place / MODEL)
    model = model.float()
    if facts.images:
        mean, std = recipe.data.normalisation
        if facts.input_shape[0] != len(mean):
            raise ValueError(
                f"{place / MODEL_FACTS}: images of {len(mean)} channels are expected, got {facts.input_shape}"
            )
        model = nn.Sequential(Normalise(mean, std), model)
    return model.eval(), list(facts.input_shape), list(facts.classes)


def example_inputs(folder: str | Path) -> np.ndarray | None:
    """Inputs that a finished run's model can take, where random numbers will not do: rows of word ids."""
    facts = RunFolder(folder).model_facts()
    if not facts.vocabulary_size:
        return None
    words = np.random.default_rng(0).integers(0, facts.vocabulary_size, (4, *facts.input_shape))
    return words.astype(facts.input_dtype)


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
