r"""A finished run: its network and data, its logits on a split or on one image, and its last epoch.

Probabilities are averaged over several runs (deep ensemble [Lakshminarayanan2017]) or passes (MC dropout [Gal2016]).
The mean is stored as its logarithm, which a softmax leaves unchanged:

.. math:: z = \log \frac1M \sum_m \mathrm{softmax}(z_m)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import log_softmax
from torch import Tensor, nn

from calibrant.base.checks import check_integer
from calibrant.base.progress import Progress, silent
from calibrant.data import Batches, Dataset
from calibrant.losses import Loss
from calibrant.models import require_trust
from calibrant.predictions import Predictions
from calibrant.training import checkpoints
from calibrant.training.datasets import DataSets, choose_set, evaluation_pipeline, have_same_data, index_of, load_sets
from calibrant.training.distributed import make_fabric
from calibrant.training.prediction import memory_errors, predict_dataset, predictor
from calibrant.training.recipe import Recipe
from calibrant.training.run import make_model
from calibrant.training.run_folder import BEST, LAST, MODEL, MODEL_FACTS, RunFolder

#: Upper bound of the passes with dropout.
MOST_PASSES = 10_000

_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


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
    recipe = _replace_data_settings(run.recipe, pixels=None) if whole_maps else run.recipe
    model = run.model if wrap is None else wrap(run.model).to(run.device)
    with memory_errors():
        return predict_dataset(recipe, model, run.dataset, run.device, progress=progress)


def _replace_data_settings(recipe: Recipe, **changes: Any) -> Recipe:
    return recipe.model_copy(update={"data": recipe.data.model_copy(update=changes)})


def predict_mean(
    folders: Sequence[str | Path], *, dropout_passes: int | None = None, seed: int = 0, **options: Any
) -> Predictions:
    """Predict a split with several runs, or with several passes of each, and average the probabilities.

    Args:
        folders: The run folders; they must predict the same samples and classes.
        dropout_passes: Passes of each run with dropout; None is one pass without.
        seed: Seed of the passes.
        options: As `predict_run` takes them.

    Returns:
        The predictions, with log probabilities as logits.
    """
    if not folders:
        raise ValueError("predictions are averaged over at least one run, got none")
    wrap = None if dropout_passes is None else lambda model: DropoutPasses(model, dropout_passes, seed)
    reference = predict_run(folders[0], wrap=wrap, **options)
    total = _log_probabilities(reference)
    for folder in folders[1:]:
        member = predict_run(folder, wrap=wrap, **options)
        if reason := _difference(reference, member):
            raise ValueError(f"{folder} cannot be averaged with {folders[0]}: {reason}")
        total = np.logaddexp(total, _log_probabilities(member))
    facts: dict[str, Any] = {"kind": reference.kind, "ignore_index": reference.ignore_index}
    return Predictions.from_logits(
        total - math.log(len(folders)), reference.labels, ids=reference.ids, objectness=reference.objectness,
        groups=reference.groups or None, class_names=reference.class_names, **facts,
    )  # fmt: skip


def _log_probabilities(predictions: Predictions) -> NDArray[np.float64]:
    values: NDArray[np.float64] = log_softmax(np.asarray(predictions.logits, np.float64), axis=1)
    return values


def _difference(first: Predictions, second: Predictions) -> str:
    """Why two runs cannot be averaged; empty if they can."""
    if first.class_names != second.class_names:
        return "the classes are not the same"
    if np.shape(first.logits) != np.shape(second.logits):
        return f"{np.shape(second.logits)} logits are not the same as {np.shape(first.logits)}"
    if not np.array_equal(np.asarray(first.ids), np.asarray(second.ids)):
        return "the samples, or their order, are not the same"
    return "" if np.array_equal(np.asarray(first.labels), np.asarray(second.labels)) else "the labels are not the same"


class DropoutPasses(nn.Module):
    """A model whose logits are the logarithm of the mean probabilities of several passes with dropout.

    The passes have their own random stream: the same seed and the same batches give the same numbers.

    Example:
        >>> model = nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 3))
        >>> passes = DropoutPasses(model, 8, seed=0).eval()
        >>> logits = passes(torch.ones(2, 4))
        >>> bool(torch.allclose(logits.exp().sum(1), torch.ones(2, dtype=torch.float64)))
        True
    """

    def __init__(self, model: nn.Module, passes: int, seed: int = 0):
        super().__init__()
        self.model, self.passes = model, check_integer("dropout passes", passes, 1, MOST_PASSES)
        if not list(dropout_layers(model)):
            raise ValueError(
                "dropout passes need a network with dropout, and this has none: train it with --set model.dropout=0.1"
            )
        self.seed, self.batches = seed, 0

    def forward(self, inputs: Tensor) -> Tensor:
        """Log of the mean probabilities ``[N, C, ...]``."""
        layers = list(dropout_layers(self.model))
        modes = [layer.training for layer in layers]
        with torch.random.fork_rng():
            torch.manual_seed(int(np.random.SeedSequence([self.seed, self.batches]).generate_state(1)[0]))
            for layer in layers:
                layer.train()
            try:
                total = self.model(inputs).double().log_softmax(1)
                for _ in range(1, self.passes):
                    total = torch.logaddexp(total, self.model(inputs).double().log_softmax(1))
            finally:
                for layer, mode in zip(layers, modes, strict=True):
                    layer.train(mode)
        self.batches += 1
        return total - math.log(self.passes)


def dropout_layers(model: nn.Module) -> Iterator[nn.Module]:
    """The dropout layers of a model with a rate above 0."""
    return (layer for layer in model.modules() if isinstance(layer, _DROPOUTS) and layer.p > 0)


@dataclass(frozen=True)
class OpenedRun:
    """A run's recipe and its model on a device, the data set to use it on, and all sets of the run."""

    recipe: Recipe
    model: nn.Module
    dataset: Dataset
    device: torch.device
    sets: DataSets


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
    run_folder, recipe = _trusted_recipe(folder, trust_code)
    default = MODEL if (run_folder / MODEL).exists() else BEST if recipe.training.keep == "best" else LAST
    name = {"kept": default, "last": LAST, "best": BEST}[checkpoint]
    file = _existing_file(run_folder, name, "the run has not written it yet")
    if after is not None and have_same_data(after.recipe, recipe):
        sets = after.sets
    else:
        sets = load_sets(recipe, None if layout else data)
    dataset = choose_set(recipe, sets, data, split, layout)
    model = make_model(recipe, len(sets.train.classes), sets.vocabulary_size, trust_code=trust_code, filled=True)
    checkpoints.restore_network(model, file)
    model = predictor(model, recipe, len(sets.train.classes))
    device = make_fabric(recipe, accelerator, 1, 1).device
    return OpenedRun(recipe, model.to(device), dataset, device, sets)


def _trusted_recipe(folder: str | Path, trust_code: bool) -> tuple[RunFolder, Recipe]:
    run_folder = RunFolder(folder)
    recipe = run_folder.recipe()
    require_trust(recipe.model.name, recipe.model.options, trust_code)
    return run_folder, recipe


def _existing_file(run_folder: RunFolder, name: str, reason: str) -> Path:
    if not (run_folder / name).exists():
        raise ValueError(f"{run_folder.path}: there is no {name}; {reason}")
    return run_folder / name


def load_model(folder: str | Path, *, trust_code: bool = False) -> tuple[nn.Module, list[int], list[str]]:
    """The model of a finished run, for export.

    Args:
        folder: The run folder.
        trust_code: As for `predict_run`.

    Returns:
        The model, which takes images with values from 0 to 1 (or the rows of the data set) and normalises them itself;
        the shape of its input without the batch; and the names of the classes.
    """
    run_folder, recipe = _trusted_recipe(folder, trust_code)
    facts = run_folder.model_facts()
    model = make_model(recipe, len(facts.classes), facts.vocabulary_size, trust_code=trust_code, filled=True)
    checkpoints.restore_network(model, _existing_file(run_folder, MODEL, "the run is not finished"))
    model = predictor(model, recipe, len(facts.classes)).float()
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
    """What a network predicts for an image."""

    dataset: Dataset  # with this image only
    picture: NDArray[np.uint8]  # [H, W, 3], after the recipe's steps
    mask: NDArray[np.int64]  # [H, W] labels
    predictions: Predictions  # logits [1, K, H, W], and labels with excluded pixels set to ignore_index


def predict_image(
    folder: str | Path, image: str, *, data: str | None = None, split: str | None = None, trust_code: bool = False
) -> ImagePrediction:
    """Predict one image of a set with the network of a run, interpolated to the size of its mask.

    ``image`` is its id in the data set, or an ending of the id that is unique; the others are as for `predict_run`.
    """
    run = open_run(folder, data=data, split=split, trust_code=trust_code)
    if run.dataset.masks is None:
        raise ValueError(f"{run.dataset.title} has one class for each image: maps are for data sets with masks")
    recipe = _replace_data_settings(run.recipe, interpolate=True, pixels=None)
    single = run.dataset.take(np.array([index_of(run.dataset.ids, image, run.dataset.title)]))
    batch = evaluation_pipeline(recipe, single).batch([0])
    assert batch.masks is not None
    with memory_errors():
        predictions = predict_dataset(recipe, run.model, single, run.device)
    picture = batch.inputs[0].permute(1, 2, 0).expand(-1, -1, 3).contiguous().numpy()
    if predictions.logits.shape[2:] != batch.masks.shape[1:]:
        raise ValueError(
            f"{folder}: the network gives maps of {list(predictions.logits.shape[2:])} for masks of "
            f"{list(batch.masks.shape[1:])}; maps are drawn of networks that interpolate to the size of their input"
        )
    return ImagePrediction(single, picture, batch.masks[0].numpy().astype(np.int64), predictions)


@dataclass(frozen=True)
class LastEpoch:
    """The last epoch of a run, as its loss saw it."""

    loss: Loss  # with the memory from the checkpoint
    logits: Tensor  # [N, C], of the training samples by the network of the last checkpoint, without augmentation
    labels: Tensor  # [N]
    order: tuple[Tensor, ...]  # batches of the last epoch, as positions of samples

    def batches(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Logits, labels and positions of the samples of each batch."""
        for ids in self.order:
            yield self.logits[ids], self.labels[ids], ids


def last_epoch(folder: str | Path, *, data: str | None = None) -> LastEpoch:
    """Read the last checkpoint of a run, and predict its training samples; ``data`` as for `predict_run`.

    Losses with a memory know samples by their positions in the training set. A model given as
    ``package.module:factory`` is refused.
    """
    run_folder, recipe = _trusted_recipe(folder, trust_code=False)
    path = _existing_file(run_folder, LAST, "the loss's memory is in it")
    run = open_run(folder, data=data, checkpoint="last")
    train, training = run.sets.train, recipe.training
    if train.masks is not None:
        raise ValueError(f"{run_folder.path}: the last epoch is read of data with one class per sample, not of masks")
    loss = recipe.build_loss(train.ignore_index)
    if loss.extra_logits:
        raise ValueError(f"{run_folder.path}: the last epoch is read of losses with one logit for each class")
    parts, plain = checkpoints.load(
        path, {checkpoints.LOSS: loss.state_dict()}, longest=checkpoints.longest_memory(train)
    )
    checkpoints.restore_module(loss, parts[checkpoints.LOSS], path)
    predictions = predict_dataset(recipe, run.model, train, run.device)
    batches = Batches(len(train), training.batch_size, seed=recipe.seed, drop_last=training.drop_last)
    batches.epoch = max(0, checkpoints.read_state(plain, path).epoch - 1)
    order = tuple(torch.tensor([position for _, position in batch]) for batch in batches)
    return LastEpoch(loss, torch.tensor(predictions.logits), torch.tensor(predictions.labels), order)
