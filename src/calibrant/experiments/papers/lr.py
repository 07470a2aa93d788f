"""Tables and figures of LR."""

from __future__ import annotations

import numpy as np
import torch

from calibrant.experiments.papers.registry import Output, item
from calibrant.experiments.papers.workbench import Workbench
from calibrant.losses import get
from calibrant.report import new_figure

#: Smoothing and relaxation in the figures.
_ALPHA = 0.1


@item("lr.fig2", "Losses of a binary problem against the probability of the label", minutes=0.1)
def loss_curves(bench: Workbench) -> Output:
    """Cross-entropy, label smoothing, focal loss and label relaxation of two classes."""
    probability = np.linspace(0.005, 0.995, 199)
    logits = torch.tensor(np.log(np.stack([probability, 1 - probability], 1)))
    labels = torch.zeros(len(probability), dtype=torch.int64)
    figure = new_figure((4.2, 3.0))
    axis = figure.subplots()
    for name, label, settings in (
        ("ce", "cross-entropy", {}),
        ("ls", "label smoothing", {"alpha": _ALPHA}),
        ("focal", "focal loss", {"gamma": 2.0}),
        ("lr", "label relaxation", {"alpha": _ALPHA}),
    ):
        axis.plot(probability, get(name, reduction="none", **settings)(logits, labels).numpy(), label=label)
    axis.set_xlabel("probability of the label")
    axis.set_ylabel("loss")
    axis.set_ylim(0, 4)
    axis.legend(frameon=False)
    return Output(figures={"fig2": figure})
