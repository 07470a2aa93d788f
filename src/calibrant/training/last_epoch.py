"""A run as its last epoch left it: the loss with its memory, and the logits of the samples that it was trained on.

Losses that remember samples know them by their numbers in the training set, so both are read together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from calibrant.data import Batches
from calibrant.losses import Loss
from calibrant.models import require_trust
from calibrant.training import checkpoints
from calibrant.training.checkpoints import LOSS, NETWORK
from calibrant.training.datasets import load_sets
from calibrant.training.distributed import make_fabric
from calibrant.training.prediction import predict_dataset
from calibrant.training.run import make_model
from calibrant.training.run_folder import LAST, RunFolder


@dataclass(frozen=True)
class LastEpoch:
    """What the loss of a run saw last.

    Attributes:
        loss: With the memory that the checkpoint holds.
        logits: Logits of the training samples ``[N, C]``, by the network of the last checkpoint, without augmentation.
        labels: Their classes ``[N]``.
        order: Batches of the last epoch: numbers of samples.
    """

    loss: Loss
    logits: Tensor
    labels: Tensor
    order: tuple[Tensor, ...]

    def batches(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Logits, labels and numbers of the samples of each batch."""
        for ids in self.order:
            yield self.logits[ids], self.labels[ids], ids


def last_epoch(folder: str | Path, *, data: str | None = None, trust_code: bool = False) -> LastEpoch:
    """Read the last checkpoint of a run, and predict the samples that it was trained on.

    Args:
        folder: The run folder.
        data: Where the data lies, if not where the run's recipe says.
        trust_code: As for `calibrant.training.predict_run`.
    """
    run_folder = RunFolder(folder)
    recipe = run_folder.recipe()
    require_trust(recipe.model.name, recipe.model.options, trust_code)
    path = run_folder / LAST
    if not path.exists():
        raise ValueError(f"{run_folder.path}: there is no {LAST}; the loss's memory is in it")
    sets = load_sets(recipe, data)
    if sets.train.masks is not None:
        raise ValueError(f"{run_folder.path}: the last epoch is read of data with one class per sample, not of masks")
    model = make_model(recipe, len(sets.train.classes), sets.vocabulary_size, trust_code=trust_code, filled=True)
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
