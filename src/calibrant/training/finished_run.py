"""A finished run: its network and data, its logits on a split or on one image, and its last epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from calibrant._progress import Progress, silent
from calibrant._validation import did_you_mean, listing
from calibrant.data import Batches, Dataset
from calibrant.losses import Loss
from calibrant.models import require_trust
from calibrant.predictions import Predictions
from calibrant.training import checkpoints
from calibrant.training.checkpoints import LOSS, NETWORK, restore_network
from calibrant.training.datasets import (
    Sets,
    align_classes,
    encode_texts,
    evaluation_pipeline,
    have_same_data,
    load_sets,
    read_split,
)
from calibrant.training.distributed import make_fabric
from calibrant.training.prediction import memory_errors, predict_dataset
from calibrant.training.recipe import Recipe
from calibrant.training.run import make_model
from calibrant.training.run_folder import BEST, LAST, MODEL, MODEL_FACTS, RunFolder


def predict_run(
    folder: str | Path,
    *,
    data: str | None = None,
    split: str | None = None,
    layout: str | None = None,
    checkpoint: Literal["kept", "last", "best"] = "kept",
    accelerator: str = "auto",
    trust_code: bool = False,
    whole_maps: bool = False,
    wrap: Callable[[nn.Module], nn.Module] | None = None,
    progress: Progress = silent,
) -> Predictions:
    """Predict a split with the model of a run.

    Args:
        folder: The run folder.
        data: Folder of the data, if not the recipe's.
        split: Name of the split; the recipe's test split if left out.
        layout: Layout of ``data``, if it is not the data set that the model was trained on; classes are matched by
            name, or by position if their names are numbers.
        checkpoint: ``"kept"`` is the model that the run evaluated, the last or the best as its recipe says.
        accelerator: As in Lightning Fabric.
        trust_code: Allow importing and calling a model that the run folder gives as ``package.module:factory``.
        whole_maps: For masks: keep every pixel, whatever ``data.pixels`` says.
        wrap: Wraps the model before it predicts.
        progress: Called after every batch.
    """
    run = open_run(
        folder, data=data, split=split, layout=layout, checkpoint=checkpoint, accelerator=accelerator,
        trust_code=trust_code,
    )  # fmt: skip
    recipe = run.recipe
    if whole_maps:
        recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update={"pixels": None})})
    model = run.model if wrap is None else wrap(run.model)
    with memory_errors():
        return predict_dataset(recipe, model.to(run.device), run.dataset, run.device, progress=progress)


@dataclass(frozen=True)
class OpenedRun:
    """A run's recipe and model, the data set to use it on, and all sets of the run."""

    recipe: Recipe
    model: nn.Module
    dataset: Dataset
    device: torch.device
    sets: Sets


def open_run(
    folder: str | Path,
    *,
    data: str | None = None,
    split: str | None = None,
    layout: str | None = None,
    checkpoint: Literal["kept", "last", "best"] = "kept",
    accelerator: str = "auto",
    trust_code: bool = False,
    after: OpenedRun | None = None,
) -> OpenedRun:
    """Open the model of a run and a set to predict; arguments as for `predict_run`.

    ``after`` is a run opened before with the same arguments: its data are used again if both recipes read the same.
    """
    run_folder = RunFolder(folder)
    recipe = run_folder.recipe()
    require_trust(recipe.model.name, recipe.model.options, trust_code)
    default = MODEL if (run_folder / MODEL).exists() else BEST if recipe.training.keep == "best" else LAST
    file = run_folder / {"kept": default, "last": LAST, "best": BEST}[checkpoint]
    if not file.exists():
        raise ValueError(f"{run_folder.path}: there is no {file.name}; the run has not written it yet")
    if after is not None and have_same_data(after.recipe, recipe):
        sets = after.sets
    else:
        sets = load_sets(recipe, None if layout else data)
    dataset = None if layout else _set_of_run(recipe, sets, split)
    if dataset is None:
        dataset = align_classes(read_split(recipe, data, split or "", layout), sets.train.classes)
        if sets.vocabulary is not None and recipe.data.text is not None:
            dataset = encode_texts(dataset, sets.vocabulary, recipe.data.text)
    model = make_model(recipe, len(sets.train.classes), sets.vocabulary_size, trust_code=trust_code, filled=True)
    restore_network(model, file)
    device = make_fabric(recipe, accelerator, 1, 1).device
    return OpenedRun(recipe, model.to(device), dataset, device, sets)


def _set_of_run(recipe: Recipe, sets: Sets, split: str | None) -> Dataset | None:
    """A set by its role in the run (val, test, a name in also), or by the name of a split that the run uses whole."""
    if split is None:
        return sets.test
    if split in sets.evaluated:
        if split == "val" == recipe.data.test and recipe.data.hold_out is not None:
            raise ValueError("'val' is both the data held out of this run and its test split; leave out --split for "
                             "the test data, or read another set with --layout")  # fmt: skip
        return sets.evaluated[split]
    is_whole = recipe.data.hold_out is None or recipe.data.hold_out.of == "train"
    return sets.test if split == recipe.data.test and is_whole and not recipe.data.resample else None


def load_model(folder: str | Path, *, trust_code: bool = False) -> tuple[nn.Module, list[int], list[str]]:
    """The model of a finished run, for export.

    Args:
        folder: The run folder.
        trust_code: As for `predict_run`.

    Returns:
        The model, which takes images with values from 0 to 1 (or the rows of the data set) and normalises them itself;
        the shape of its input without the batch; and the names of the classes.
    """
    run_folder = RunFolder(folder)
    recipe = run_folder.recipe()
    require_trust(recipe.model.name, recipe.model.options, trust_code)
    facts = run_folder.model_facts()
    model = make_model(recipe, len(facts.classes), facts.vocabulary_size, trust_code=trust_code, filled=True)
    if not (run_folder / MODEL).exists():
        raise ValueError(f"{run_folder.path}: there is no {MODEL}; the run is not finished")
    restore_network(model, run_folder / MODEL)
    model = model.float()
    if facts.images:
        mean, std = recipe.data.normalisation
        if facts.input_shape[0] != len(mean):
            raise ValueError(
                f"{run_folder / MODEL_FACTS}: images of {len(mean)} channels are expected, got {facts.input_shape}"
            )
        model = nn.Sequential(Normalise(mean, std), model)
    return model.eval(), list(facts.input_shape), list(facts.classes)


def example_inputs(folder: str | Path) -> np.ndarray | None:
    """Example inputs of a finished run's model where random numbers will not do: rows of word ids."""
    facts = RunFolder(folder).model_facts()
    if not facts.vocabulary_size:
        return None
    words = np.random.default_rng(0).integers(0, facts.vocabulary_size, (4, *facts.input_shape))
    return words.astype(facts.input_dtype)


class Normalise(nn.Module):
    """(x - mean) / std per channel, as the first layer of an exported model."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]):
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(1, -1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        """Normalise [N, C, H, W]."""
        return (images - self.mean) / self.std


class ImagePrediction(NamedTuple):
    """What a network predicts for an image.

    Attributes:
        dataset: The data set with this image only.
        picture: [H, W, 3], after the recipe's steps.
        mask: [H, W] labels.
        predictions: Logits [1, K, H, W], and labels with excluded pixels set to ignore_index.
    """

    dataset: Dataset
    picture: NDArray[np.uint8]
    mask: NDArray[np.int64]
    predictions: Predictions


def predict_image(
    folder: str | Path, image: str, *, data: str | None = None, split: str | None = None, trust_code: bool = False
) -> ImagePrediction:
    """Predict one image of a set with the network of a run, interpolated to the size of its mask.

    Args:
        folder: The run folder.
        image: Its id in the data set, or an ending of the id that is unique.
        data: Folder of the data, if not the recipe's.
        split: Name of the split; the recipe's test split if left out.
        trust_code: As for `predict_run`.
    """
    run = open_run(folder, data=data, split=split, trust_code=trust_code)
    if run.dataset.masks is None:
        raise ValueError(f"{run.dataset.title} has one class for each image: maps are for data sets with masks")
    settings = run.recipe.data.model_copy(update={"interpolate": True, "pixels": None})
    recipe = run.recipe.model_copy(update={"data": settings})
    single = run.dataset.take(np.array([index_of(run.dataset.ids, image, run.dataset.title)]))
    batch = evaluation_pipeline(recipe, single).batch([0])
    assert batch.masks is not None
    with memory_errors():
        predictions = predict_dataset(recipe, run.model.to(run.device), single, run.device)
    picture = batch.inputs[0].permute(1, 2, 0).expand(-1, -1, 3).contiguous().numpy()
    if predictions.logits.shape[2:] != batch.masks.shape[1:]:
        raise ValueError(
            f"{folder}: the network gives maps of {list(predictions.logits.shape[2:])} for masks of "
            f"{list(batch.masks.shape[1:])}; maps are drawn of networks that interpolate to the size of their input"
        )
    return ImagePrediction(single, picture, batch.masks[0].numpy().astype(np.int64), predictions)


def index_of(ids: Sequence[str], image: str, title: str) -> int:
    """The position of an id, given whole, without its suffix, or by a unique ending.

    Example:
        >>> index_of(("test/a.png", "test/b.png"), "b", "camvid/test")
        1
    """
    if image in ids:
        return list(ids).index(image)
    ends = [k for k, name in enumerate(ids) if name.endswith(f"/{image}") or Path(name).stem == image]
    ends = ends or [k for k, name in enumerate(ids) if name.endswith(image)]
    if len(ends) == 1:
        return ends[0]
    if ends:
        raise ValueError(f"{title}: {len(ends)} images end with {image!r}: {listing([ids[k] for k in ends], 3)}")
    hint = did_you_mean(image, [Path(name).stem for name in ids]) or f"; there are {listing(list(ids), 3)}"
    raise ValueError(f"{title} has no image {image!r}{hint}")


@dataclass(frozen=True)
class LastEpoch:
    """The last epoch of a run, as its loss saw it.

    Attributes:
        loss: With the memory from the checkpoint.
        logits: Logits of the training samples ``[N, C]``, by the network of the last checkpoint, without augmentation.
        labels: Their classes ``[N]``.
        order: Batches of the last epoch, as positions of samples.
    """

    loss: Loss
    logits: Tensor
    labels: Tensor
    order: tuple[Tensor, ...]

    def batches(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Logits, labels and positions of the samples of each batch."""
        for ids in self.order:
            yield self.logits[ids], self.labels[ids], ids


def last_epoch(folder: str | Path, *, data: str | None = None) -> LastEpoch:
    """Read the last checkpoint of a run, and predict its training samples.

    Losses with a memory know samples by their positions in the training set. A model given as
    ``package.module:factory`` is refused.

    Args:
        folder: The run folder.
        data: Folder of the data, if not the recipe's.
    """
    run_folder = RunFolder(folder)
    recipe = run_folder.recipe()
    require_trust(recipe.model.name, recipe.model.options, False)
    path = run_folder / LAST
    if not path.exists():
        raise ValueError(f"{run_folder.path}: there is no {LAST}; the loss's memory is in it")
    sets = load_sets(recipe, data)
    if sets.train.masks is not None:
        raise ValueError(f"{run_folder.path}: the last epoch is read of data with one class per sample, not of masks")
    model = make_model(recipe, len(sets.train.classes), sets.vocabulary_size, filled=True)
    loss = recipe.build_loss(sets.train.ignore_index)
    like = {NETWORK: model.state_dict(), LOSS: loss.state_dict()}
    parts, plain = checkpoints.load(path, like, longest=len(sets.train))
    checkpoints.restore_module(model, parts[NETWORK], path)
    checkpoints.restore_module(loss, parts[LOSS], path)
    device = make_fabric(recipe, "auto", 1, 1).device
    predictions = predict_dataset(recipe, model.to(device), sets.train, device)
    batches = Batches(
        len(sets.train), recipe.training.batch_size, seed=recipe.seed, drop_last=recipe.training.drop_last
    )
    batches.epoch = max(0, checkpoints.read_state(plain, path).epoch - 1)
    return LastEpoch(
        loss,
        torch.tensor(predictions.logits),
        torch.tensor(predictions.labels),
        tuple(torch.tensor([position for _, position in batch]) for batch in batches),
    )
