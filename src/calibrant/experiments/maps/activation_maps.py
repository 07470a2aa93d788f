r"""Class activation maps by Grad-CAM++ [Chattopadhyay2018], and the share of a map that lies on the objects.

    map = relu(sum_k w_k A_k)
    w_k = sum_ij alpha_kij relu(g_kij),   alpha_kij = g_kij^2 / (2 g_kij^2 + (sum_ab A_kab) g_kij^3)

The package grad-cam computes it; maps are scaled to 0..1 and to the size of the network's input.

    paper: A_k = activations of channel k of the last convolutional block; g = derivative of the class's logit by A
           (the paper's Y = exp(S) makes the derivatives powers of g); i, j, a, b = positions

Departures: the package adds 1e-6 to the denominator of alpha, and takes g itself, without the common factor exp(S).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from calibrant import _torchvision
from calibrant._arrays import Doubles
from calibrant._imports import need
from calibrant._progress import Progress, silent, track
from calibrant._validation import did_you_mean
from calibrant.data import Batches, Dataset, boxes_in_view, normalised
from calibrant.models import TIMM, describe
from calibrant.training import OpenedRun, RunFolder, evaluation_pipeline

Pixels = NDArray[np.uint8]
#: Of which class a map is: the one that the network predicts, or that of the label.
Explained = Literal["predicted", "label"]

#: Images at a time: the graph of a batch is kept for its gradients.
BATCH = 32


class MappedImage(NamedTuple):
    """An image as a network sees it, and where the network looks.

    Attributes:
        ident: Id of the image.
        label: Its class.
        pixels: [H, W, 3] what the network takes.
        heat: [H, W] the map, from 0 to 1.
        probabilities: [K].
        boxes: [B, 4] in pixels of the network's input; None if the objects' positions are unknown.
    """

    ident: str
    label: int
    pixels: Pixels
    heat: Doubles
    probabilities: Doubles
    boxes: Doubles | None

    @property
    def inside(self) -> float:
        """The share of the map inside the boxes; NaN if there are none, or if the map is 0 everywhere."""
        return math.nan if self.boxes is None else mass_inside(self.heat, box_mask(self.boxes, self.heat.shape))

    @property
    def area(self) -> float:
        """The share of the image inside the boxes, which an even map would have there."""
        return math.nan if self.boxes is None else float(box_mask(self.boxes, self.heat.shape).mean())


def box_mask(boxes: Doubles, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Pixels [H, W] whose centre lies in any of the boxes [B, 4].

    Example:
        >>> box_mask(np.array([[0.6, 0.0, 2.0, 1.0]]), (2, 3)).astype(int).tolist()
        [[0, 1, 0], [0, 0, 0]]
    """
    y, x = (np.arange(size) + 0.5 for size in shape)
    x1, y1, x2, y2 = boxes.T[:, :, None]
    rows, columns = (y >= y1) & (y < y2), (x >= x1) & (x < x2)
    return (rows[:, :, None] & columns[:, None, :]).any(0)


def mass_inside(heat: Doubles, mask: NDArray[np.bool_]) -> float:
    """The share of a map's sum that lies inside a mask; NaN if the sum or the mask is empty."""
    total = float(heat.sum())
    return float(heat[mask].sum()) / total if total > 0 and mask.any() else math.nan


def check_network(folder: str | Path, layer: str | None = None) -> str:
    """The name of the layer that the maps of a run are made of; an error if its network has none."""
    need("calibrant cam", "cam", "pytorch_grad_cam")
    name = RunFolder(folder).recipe().model.name
    if name.startswith(TIMM) or ":" in name:
        if layer is None:
            raise ValueError(
                f"{folder}: the model {name!r} is not one of Calibrant's: name its last block with --layer"
            )
        return layer
    about = describe(name)
    if about.task != "classification" or not about.last_block:
        kind = "a network without convolutions" if about.task == "classification" else f"for {about.task}"
        raise ValueError(
            f"{folder}: class activation maps are of image classifiers with convolutions, and {name!r} is {kind}"
        )
    return about.last_block if layer is None else layer


def find_layer(model: nn.Module, name: str) -> nn.Module:
    """The part of a network with a dotted name."""
    parts = dict(model.named_modules())
    if name not in parts or not name:
        raise ValueError(f"the network has no layer {name!r}{did_you_mean(name, [n for n in parts if n])}")
    return parts[name]


def map_images(
    run: OpenedRun, dataset: Dataset, layer: str, *, explained: Explained = "predicted", progress: Progress = silent
) -> Iterator[MappedImage]:
    """Every image of a data set as a run's network sees it, with its map.

    Args:
        run: Whose network, and whose recipe prepares the images.
        dataset: A data set of images.
        layer: The dotted name of the layer whose maps are drawn.
        explained: The class whose maps they are.
        progress: Called after every batch.
    """
    pipeline = evaluation_pipeline(run.recipe, dataset)
    mean, std = run.recipe.data.normalisation
    dtype = next(p.dtype for p in run.model.parameters() if p.is_floating_point())
    part = find_layer(run.model, layer)
    loader = pipeline.loader(Batches(len(pipeline), BATCH, shuffle=False))
    for number, batch in enumerate(track(loader, "maps", len(loader), progress)):
        inputs = normalised(batch.inputs.to(run.device), mean, std, dtype)
        if number == 0:
            _check_layer(run.model, part, layer, inputs[:1])
        heat, logits = activation_maps(run.model, part, inputs, batch.labels if explained == "label" else None)
        probabilities = torch.softmax(logits.double(), 1).cpu().numpy()
        pictures = batch.inputs.permute(0, 2, 3, 1).numpy()
        for i, index in enumerate(batch.indices.tolist()):
            picture = np.repeat(pictures[i], 3, 2) if pictures.shape[3] == 1 else pictures[i]
            corners = None if batch.boxes is None else batch.boxes[i]
            boxes = None if corners is None or not len(corners) else boxes_in_view(corners, batch.views[i])
            yield MappedImage(
                pipeline.dataset.ids[index], int(batch.labels[i]), picture, heat[i], probabilities[i], boxes
            )


def activation_maps(
    model: nn.Module, layer: nn.Module, inputs: Tensor, classes: Sequence[int] | Tensor | None = None
) -> tuple[Doubles, Tensor]:
    """Grad-CAM++ maps [N, H, W] from 0 to 1, and the logits [N, K].

    Args:
        model: A classifier, in evaluation mode afterwards.
        layer: A layer of the model, with activations [N, C, h, w].
        inputs: [N, channels, H, W].
        classes: The class whose map is drawn, for each input; the predicted one if left out.
    """
    need("class activation maps", "cam", "pytorch_grad_cam")
    _torchvision.ensure()  # the package imports it
    from pytorch_grad_cam import GradCAMPlusPlus
    from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget

    targets = None if classes is None else [ClassifierOutputTarget(int(k)) for k in classes]
    with torch.enable_grad(), GradCAMPlusPlus(model, [layer]) as method:
        maps: Any = method(inputs, targets)
        logits = method.outputs.detach()
    model.zero_grad(set_to_none=True)
    return np.asarray(maps, np.float64), logits


def _check_layer(model: nn.Module, part: nn.Module, name: str, inputs: Tensor) -> None:
    """Raise unless a layer gives features over a grid of positions."""
    shapes: list[list[int]] = []

    def look(module: nn.Module, arguments: Any, output: Any) -> None:
        shapes.append(list(output.shape) if isinstance(output, Tensor) else [])

    handle = part.register_forward_hook(look)
    try:
        with torch.no_grad():
            model.eval()(inputs)
    finally:
        handle.remove()
    if not shapes or len(shapes[-1]) != 4 or math.prod(shapes[-1][2:]) < 2:
        words = f"gives {shapes[-1]}" if shapes else "is not used"
        raise ValueError(f"layer {name!r} must give features [N, C, h, w] of several positions, and it {words}")
