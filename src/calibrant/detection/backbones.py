"""Backbones of detectors: the network of a finished run, or of a file of weights, and the recipe of a run with it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibrant.models import build, split_resnet
from calibrant.training import MODEL, RESULT, ModelSettings, Recipe, RunFolder, replaced


@dataclass(frozen=True)
class Backbone:
    """What a detector starts from.

    Attributes:
        name: In tables.
        model: The network.
        weights: Its file.
        fingerprint: A hash of the file.
        data: How images were prepared for it: ``channels``, ``mean`` and ``std``; as the recipe of detection says if
            empty.
    """

    name: str
    model: ModelSettings
    weights: Path
    fingerprint: str
    data: dict[str, Any]


def check_detection(recipe: Recipe, where: str) -> None:
    """Raise unless a recipe is one of detection."""
    if recipe.detection is None:
        raise ValueError(f"{where} is not a recipe of detection: it has no [detection]; calibrant train trains it")


def read_backbones(texts: Sequence[str], recipe: Recipe) -> dict[str, list[Backbone]]:
    """Backbones by name, each checked; a name that is given several times has several, one for each seed in turn.

    Args:
        texts: ``NAME=PATH``: the folder of a finished run, or a file of weights for the recipe's own network.
        recipe: A recipe of detection.
    """
    backbones: dict[str, list[Backbone]] = {}
    for text in texts:
        name, path = _split(text, recipe)
        backbones.setdefault(name, []).append(_read(name, Path(path), recipe))
    if not backbones:
        raise ValueError("no backbone is given: --backbone NAME=RUN names a finished run, or a file of weights")
    return backbones


def _split(text: str, recipe: Recipe) -> tuple[str, str]:
    """Name and path; names of the recipe's methods may have a sign of equality, as "als, beta=1" has."""
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
        own = folder.recipe()
        if own.detection is not None:
            raise ValueError(f"{path} is a run of detection; a backbone is the run of a classifier")
        if not (folder / RESULT).exists() or not (folder / MODEL).exists():
            raise ValueError(f"{path}: the run is not finished; train --resume finishes it")
        mean, std = own.data.normalisation
        data = {"channels": own.data.channels, "mean": list(mean), "std": list(std)}
        model, weights = own.model.model_copy(update={"weights": None, "head": "keep"}), folder / MODEL
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
    """The recipe of a run on a backbone; it depends on the backbone's weights, and not on where they lie."""
    model = backbone.model.model_dump(mode="json") | {"weights": str(backbone.weights)}
    values = {"seed": seed, "model": model, "detection.backbone": backbone.name,
              "detection.weights": backbone.fingerprint}  # fmt: skip
    return replaced(recipe, values | {f"data.{name}": value for name, value in backbone.data.items()})
