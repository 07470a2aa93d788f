"""Detection as a task of the training loop: Faster R-CNN on the recipe's network, and COCO's metrics of every set.

The backbone of a detector is the network of a finished run, or a file of weights.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from calibrant.base.extras import need
from calibrant.data import Batch, Batches, Boxes, Dataset, image_to_view, view_to_image
from calibrant.detection.coco_metrics import Detected, coco_metrics, is_object
from calibrant.models import build, build_detector, evaluation_mode, split_resnet
from calibrant.training import (
    DETECTIONS,
    MODEL,
    RESULT,
    DataSets,
    EventLog,
    MicroBatch,
    ModelSettings,
    Recipe,
    Run,
    RunFolder,
    Task,
    dtype_of,
    evaluation_pipeline,
    replace_settings,
    unwrap,
)

#: Shortest side of a box to train on, in pixels.
LEAST_SIDE = 1.0

Target = dict[str, Tensor]


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
        name, path = _split_name(text, recipe)
        backbones.setdefault(name, []).append(_read_backbone(name, Path(path), recipe))
    if not backbones:
        raise ValueError("no backbone is given: --backbone NAME=RUN names a finished run, or a file of weights")
    return backbones


def _split_name(text: str, recipe: Recipe) -> tuple[str, str]:
    """Name and path; names of the recipe's methods may contain "=", as in "als, beta=1"."""
    for method in sorted(recipe.methods, key=len, reverse=True):
        if text.startswith(f"{method}=") and text != f"{method}=":
            return method, text.removeprefix(f"{method}=")
    name, equals, path = text.partition("=")
    if not equals or not name.strip() or not path:
        raise ValueError(f"--backbone takes NAME=RUN, for example hard=runs/hard, got {text[:200]!r}")
    return name.strip(), path


def _read_backbone(name: str, path: Path, recipe: Recipe) -> Backbone:
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


class Detection(Task):
    """Detection of objects, by the detector that the recipe's section ``detection`` describes."""

    filled_up = True

    def select(self, sets: DataSets) -> DataSets:
        """Training images with at least one single object; all images of the other sets."""
        boxes = sets.train.boxes
        if boxes is None:
            return sets
        counts = np.bincount(boxes.owners[is_single(boxes)], minlength=len(boxes))
        return dataclasses.replace(sets, train=sets.train.take(counts > 0))

    def check(self, recipe: Recipe, sets: DataSets) -> None:
        """Refuse recipes without a detector, and data without boxes."""
        need("detection", "detection", "pycocotools")
        _settings(recipe)
        for dataset in (sets.train, *sets.evaluated.values()):
            if dataset.kind != "image" or dataset.boxes is None or not is_single(dataset.boxes).any():
                raise ValueError(f"{dataset.title} has no boxes of objects, and detection needs them")

    def model(self, recipe: Recipe, sets: DataSets, *, trust_code: bool) -> nn.Module:
        """The detector, with the backbone's weights and a new head."""
        return make_detector(recipe, len(sets.train.classes), trust_code=trust_code)

    def rehearse(self, run: Run) -> None:
        """Send one image through the detector."""
        batch = run.pipeline.batch([0]).to(run.fabric.device)
        model = unwrap(run.model)
        with torch.no_grad(), evaluation_mode(model):
            try:
                model(_images(batch, dtype_of(run.recipe)))
            except RuntimeError as error:
                words = " ".join(str(error).split())[:200]
                shape = list(batch.inputs.shape[1:])
                raise ValueError(f"the detector does not take images of shape {shape} ({words})") from error

    def parts(self, run: Run, batch: Batch) -> list[MicroBatch]:
        """Micro-batches weighted by their images."""
        images, targets = _images(batch, dtype_of(run.recipe)), _targets(run.pipeline.dataset, batch)
        world = run.fabric.world_size
        return [
            MicroBatch([images[i] for i in rows], [targets[i] for i in rows], batch.indices[rows],
                 len(rows) * world / max(run.batch_size, 1))
            for rows in torch.arange(len(images)).chunk(run.recipe.training.accumulate)
        ]  # fmt: skip

    def loss(self, run: Run, part: MicroBatch) -> tuple[Tensor | None, dict[str, Tensor]]:
        """The sum of the detector's four losses."""
        losses: dict[str, Tensor] = run.model(part.inputs, part.target)
        value = torch.stack(list(losses.values())).sum()
        return value * part.weight, {name: loss.detach() for name, loss in losses.items()}

    def terms(self, run: Run, part: MicroBatch, output: Any) -> dict[str, float]:
        """The four losses: objectness and box of proposals, class and box of regions."""
        return {name: float(value) for name, value in output.items()}

    def remember(self, run: Run, parts: list[MicroBatch], outputs: list[Any]) -> None:
        """The losses of a detector have no memory."""

    def validate(self, run: Run, val: Dataset) -> dict[str, float]:
        """COCO's metrics, computed by the first process for all."""
        metrics = coco_metrics(val, detect(run, val)) if run.fabric.global_rank == 0 else {}
        shared: dict[str, float] = run.fabric.broadcast(metrics)
        return shared

    def evaluate(self, run: Run, sets: DataSets, folder: RunFolder, event_log: EventLog) -> dict[str, dict[str, float]]:
        """Write the detections of every set."""
        numbers = {}
        for name, dataset in sets.evaluated.items():
            event_log("predicting", {"set": name})
            detected = detect(run, dataset)
            folder.write(f"{name}{DETECTIONS}", _document(dataset, detected))
            numbers[name] = coco_metrics(dataset, detected)
            event_log("predicted", {"set": name, **numbers[name]})
        return numbers


def make_detector(recipe: Recipe, classes: int, *, trust_code: bool = False) -> nn.Module:
    """Build the detector of a recipe, on its network."""
    settings, model = _settings(recipe), recipe.model
    network = build(model.name, num_classes=max(classes, 2), stem=model.stem, weights=model.weights, head="drop",
                    seed=recipe.seed, trust_code=trust_code, **model.options)  # fmt: skip
    mean, std = recipe.data.normalisation
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)  # for the layers that the classifier does not have
        detector = build_detector(network, classes, name=model.name, mean=mean, std=std, **settings.of_detector)
    if recipe.training.channels_last:
        detector = detector.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return detector.to(dtype_of(recipe))


def _settings(recipe: Recipe) -> Any:
    if recipe.detection is None:
        raise ValueError("the recipe has no [detection]: use calibrant train")
    return recipe.detection


def detect(run: Run, dataset: Dataset) -> list[Detected]:
    """The detections of a run in every image of a data set, in pixels of the images."""
    settings, device, dtype = run.recipe.training, run.fabric.device, dtype_of(run.recipe)
    pipeline = evaluation_pipeline(run.recipe, dataset, filled_up=True)
    batches = Batches(len(dataset), min(settings.eval_batch_size, settings.batch_size), shuffle=False)
    model, detected = unwrap(run.model), []
    with torch.no_grad(), evaluation_mode(model):
        for batch in pipeline.loader(batches, settings.workers):
            for view, output in zip(batch.views, model(_images(batch.to(device), dtype)), strict=True):
                corners, labels, scores = (output[k].cpu().double().numpy() for k in ("boxes", "labels", "scores"))
                detected.append(Detected(view_to_image(corners, view), labels.astype(np.int64) - 1, scores))
    return detected


def _images(batch: Batch, dtype: torch.dtype) -> list[Tensor]:
    """The images of a batch without their padding, with values from 0 to 1."""
    scaled = batch.inputs.to(dtype) / 255
    return [image[:, : view.height, : view.width] for image, view in zip(scaled, batch.views, strict=True)]


def _targets(dataset: Dataset, batch: Batch) -> list[Target]:
    """The visible single objects, in torchvision's format; class 0 is the background."""
    boxes, device = dataset.boxes, batch.inputs.device
    assert boxes is not None
    single, targets = is_single(boxes), []
    for row, view in zip(batch.indices.tolist(), batch.views, strict=True):
        span = boxes.span(row)
        corners = image_to_view(boxes.corners[span], view)
        is_target = single[span] & ((corners[:, 2:] - corners[:, :2]) >= LEAST_SIDE).all(axis=1)
        labels = torch.from_numpy(boxes.labels[span][is_target] + 1).to(device)
        visible = torch.from_numpy(corners[is_target]).to(device, torch.float32)
        targets.append({"boxes": visible, "labels": labels})
    return targets


def _document(dataset: Dataset, detected: list[Detected]) -> dict[str, Any]:
    """Detections as ``{"classes": [...], "images": {id: [[x1, y1, x2, y2, class, score], ...]}}``, rounded."""
    rows = {
        name: [
            [*(round(float(v), 2) for v in corners), int(label), round(float(score), 6)]
            for corners, label, score in zip(detections.corners, detections.labels, detections.scores, strict=True)
        ]
        for name, detections in zip(dataset.ids, detected, strict=True)
    }
    return {"classes": list(dataset.classes), "images": rows}


def is_single(boxes: Boxes) -> NDArray[np.bool_]:
    """Which boxes [M] are single objects, to train on."""
    return is_object(boxes) & ~boxes.crowd
