r"""Mean probabilities: of several runs (deep ensemble [Lakshminarayanan2017]) or passes (MC dropout [Gal2016]).

The mean is stored as its logarithm, which a softmax leaves unchanged:

.. math:: z = \log \frac1M \sum_m \mathrm{softmax}(z_m)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.special import log_softmax
from torch import Tensor, nn

from calibrant._validation import check_integer
from calibrant.predictions import Predictions
from calibrant.training.finished_run import predict_run

MOST_PASSES = 10_000
_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


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
        total: Tensor | None = None
        layers = list(dropout_layers(self.model))
        modes = [layer.training for layer in layers]
        with torch.random.fork_rng():
            torch.manual_seed(int(np.random.SeedSequence([self.seed, self.batches]).generate_state(1)[0]))
            for layer in layers:
                layer.train()
            try:
                for _ in range(self.passes):
                    log_probabilities = self.model(inputs).double().log_softmax(1)
                    total = log_probabilities if total is None else torch.logaddexp(total, log_probabilities)
            finally:
                for layer, mode in zip(layers, modes, strict=True):
                    layer.train(mode)
        self.batches += 1
        assert total is not None
        return total - math.log(self.passes)


def dropout_layers(model: nn.Module) -> Iterator[nn.Module]:
    """The dropout layers of a model with a rate above 0."""
    return (layer for layer in model.modules() if isinstance(layer, _DROPOUTS) and layer.p > 0)


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
    wrap = None if dropout_passes is None else lambda model: DropoutPasses(model, dropout_passes, seed)
    reference: Predictions | None = None
    total = np.empty(0)
    for folder in folders:
        member = predict_run(folder, wrap=wrap, **options)
        log_probabilities = log_softmax(np.asarray(member.logits, np.float64), axis=1)
        if reference is None:
            reference, total = member, log_probabilities
            continue
        reason = _difference(reference, member)
        if reason is not None:
            raise ValueError(f"{folder} cannot be averaged with {folders[0]}: {reason}")
        total = np.logaddexp(total, log_probabilities)
    if reference is None:
        raise ValueError("predictions are averaged over at least one run, got none")
    facts: dict[str, Any] = {"kind": reference.kind, "ignore_index": reference.ignore_index}
    return Predictions.from_logits(
        total - math.log(len(folders)), reference.labels, ids=reference.ids, objectness=reference.objectness,
        groups=reference.groups or None, class_names=reference.class_names, **facts,
    )  # fmt: skip


def _difference(first: Predictions, second: Predictions) -> str | None:
    """Why two runs cannot be averaged, or None."""
    if first.class_names != second.class_names:
        return "the classes are not the same"
    if np.shape(first.logits) != np.shape(second.logits):
        return f"{np.shape(second.logits)} logits are not the same as {np.shape(first.logits)}"
    if not np.array_equal(np.asarray(first.ids), np.asarray(second.ids)):
        return "the samples, or their order, are not the same"
    return (
        None if np.array_equal(np.asarray(first.labels), np.asarray(second.labels)) else "the labels are not the same"
    )
