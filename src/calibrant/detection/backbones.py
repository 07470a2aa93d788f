"""Backbones of detectors: the network of a finished run or a file of weights, and the recipe of a run on it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibrant.models import build, split_resnet
from calibrant.training import MODEL, RESULT, ModelSettings, Recipe, RunFolder, replace_settings


@dataclass(frozen=True)
class Backbone:
    """The network that a detector starts from.

    Attributes:
        name: Its name in tables.
        model: The network.
        weights: The file of its weights.
        fingerprint: A hash of the file.
        data: The ``channels``, ``mean`` and ``std`` that it was trained with; if empty, those of the recipe.
    """

    name: str
    model: ModelSettings
    weights: Path
    fingerprint: str
    data: dict[str, Any]


def check_detection(recipe: Recipe, source: str) -> None:
    """Raise unless a recipe is for detection."""
    if recipe.detection is None:
        raise ValueError(f"{source} is not a recipe for detection: it has no [detection]; use calibrant train")


def read_backbones(texts: Sequence[str], recipe: Recipe) -> dict[str, list[Backbone]]:
    """Read and check backbones, by name; a repeated name has several, which the seeds take in turn.

    Args:
        texts: ``NAME=PATH``: the folder of a finished run, or a file of weights for the recipe's network.
        recipe: A recipe for detection.
    """
    backbones: dict[str, list[Backbone]] = {}
    for text in texts:
        name, path = _split(text, recipe)
        backbones.setdefault(name, []).append(_read(name, Path(path), recipe))
    if not backbones:
        raise ValueError("no backbone is given: --backbone NAME=RUN names a finished run, or a file of weights")
    return backbones


def _split(text: str, recipe: Recipe) -> tuple[str, str]:
    """Name and path; names of the recipe's methods may contain "=", as in "als, beta=1"."""
    for method in sorted(recipe.methods, key=len, reverse=True):
        if text.startswith(f"{method}=") and text != f"{method}=":
            return method, text.removeprefix(f"{method}=")
    name, equals, path = text.partition("=")
    if not equals or not name.strip() or not path:
        raise ValueError(f"--backbone takes NAME=RUN, for example hard=runs/hard, got {text[:200]!r}")
    return name.strip(), path


def _read(name: str, path: Path, recipe: Recipe) -> Backbone:
    data: dict[str, Any] = {}
    if path.is_dir():
        folder = RunFolder(path)
        trained = folder.recipe()
        if trained.detection is not None:
            raise ValueError(f"{path} is a run of a detector; a backbone is the run of a classifier")
        if not (folder / RESULT).exists() or not (folder / MODEL).exists():
            raise ValueError(f"{path}: the run is not finished; train --resume finishes it")
        mean, std = trained.data.normalisation
        data = {"channels": trained.data.channels, "mean": list(mean), "std": list(std)}
        model, weights = trained.model.model_copy(update={"weights": None, "head": "keep"}), folder / MODEL
    else:
        model, weights = recipe.model, path
        if not path.is_file():
            raise ValueError(f"{path}: neither the folder of a run nor a file of weights")
    network = build(
        model.name, num_classes=2, stem=model.stem, weights=weights, head="drop", trust_code=False, **model.options
    )
    split_resnet(network, model.name)
    with weights.open("rb") as file:
        fingerprint = hashlib.file_digest(file, "sha256").hexdigest()[:16]
    return Backbone(name, model, weights.absolute(), fingerprint, data)


def plan_run(recipe: Recipe, backbone: Backbone, seed: int) -> Recipe:
    """The recipe of a run on a backbone; its key depends on the backbone's weights, not on their path."""
    model = backbone.model.model_dump(mode="json") | {"weights": str(backbone.weights)}
    values = {"seed": seed, "model": model, "detection.backbone": backbone.name,
              "detection.weights": backbone.fingerprint}  # fmt: skip
    return replace_settings(recipe, values | {f"data.{name}": value for name, value in backbone.data.items()})
