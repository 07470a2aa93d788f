"""Networks that train in minutes on two cores; channels-last images make their convolutions faster."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from torch import Tensor, nn

from calibrant._validation import check_rate, check_size
from calibrant.models.blocks import Trunk, TrunkClassifier, convolution
from calibrant.models.registry import register


class MLP(nn.Module):
    """Linear layers of the widths ``hidden`` with ReLU, and optional dropout, between them; inputs are flattened."""

    def __init__(self, inputs: int, hidden: Sequence[int], num_classes: int, dropout: float = 0.0):
        super().__init__()
        self.inputs = inputs
        widths = [inputs, *hidden]
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers += [nn.Linear(before, after), nn.ReLU(), *([nn.Dropout(dropout)] if dropout else [])]
        self.layers = nn.Sequential(*layers, nn.Linear(widths[-1], num_classes))

    def forward(self, x: Tensor) -> Tensor:
        """Logits [N, C] of ``[N, ...]``."""
        flat = x.flatten(1) if x.dim() > 1 else x
        if flat.dim() != 2 or flat.shape[1] != self.inputs:
            raise ValueError(f"the mlp takes [N, ...] with {self.inputs} numbers per sample, got {list(x.shape)}")
        return self.layers(flat)


@register(
    "mlp",
    summary="two hidden layers of 1024, ReLU; takes images, rows, anything of input_size",
    source="LR, experiments on MNIST and Fashion-MNIST",
    input_size=(1, 28, 28),
    num_classes=10,
    published=1_863_690,
    published_in="by hand from LR's text: 785 x 1024 + 1025 x 1024 + 1025 x 10",
)
def mlp(
    num_classes: int,
    *,
    input_size: int | Sequence[int] = (1, 28, 28),
    hidden: int | Sequence[int] = (1024, 1024),
    dropout: float = 0.0,
) -> nn.Module:
    """LR's network for MNIST; ``input_size`` is a count or a shape, ``hidden`` the width of each hidden layer."""
    inputs = check_size("the product of input_size", math.prod(_sizes("input_size", input_size)))
    return MLP(inputs, _sizes("hidden", hidden), num_classes, check_rate("dropout", dropout))


#: Numbers in a shape, or layers: a longer list is a mistake, and would take minutes to build.
_LONGEST = 1000


def _sizes(parameter: str, sizes: int | Sequence[int]) -> list[int]:
    values: Sequence[Any] = sizes if isinstance(sizes, list | tuple) else [sizes]
    if len(values) > _LONGEST:
        raise ValueError(f"{parameter} must have at most {_LONGEST} numbers, got {len(values)}")
    return [check_size(parameter, value) for value in values]


@register(
    "small_cnn",
    summary="four convolutions with batch norm, some 140,000 parameters, for the demo and for scenes",
    source="this project",
    input_size=(3, 32, 32),
    num_classes=10,
    last_block="11",
)
def small_cnn(num_classes: int, *, width: int = 24, dropout: float = 0.0, in_channels: int = 3) -> nn.Module:
    """Strides of 2, 2, 2 and 1, then the mean over the image."""
    width = check_size("width", width)

    def block(inputs: int, outputs: int, kernel: int, stride: int) -> list[nn.Module]:
        return [convolution(inputs, outputs, kernel, stride), nn.BatchNorm2d(outputs), nn.ReLU()]

    layers = [*block(check_size("in_channels", in_channels), width, 5, 2), *block(width, 2 * width, 3, 2)]
    layers += [*block(2 * width, 4 * width, 3, 2), *block(4 * width, 4 * width, 3, 1)]
    layers += [
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        *([nn.Dropout(dropout)] if check_rate("dropout", dropout) else []),
    ]
    layers.append(nn.Linear(4 * width, num_classes))
    return nn.Sequential(*layers)


@register(
    "small_resnet",
    summary="ResNet-18 with a quarter of its channels, for 64x64 images on two cores",
    source="this project, after He et al. 2016",
    input_size=(3, 64, 64),
    num_classes=200,
    last_block="trunk.stages.3",
)
def small_resnet(num_classes: int, *, width: int = 16, in_channels: int = 3) -> nn.Module:
    """Stages of two basic blocks with ``width`` times 1, 2, 4, 8 channels.

    The first convolution is 3x3 with stride 2 and there is no max-pool: stages see 32, 16, 8 and 4 pixels of 64.
    """
    widths = [check_size("width", width) * factor for factor in (1, 2, 4, 8)]
    trunk = Trunk(widths, 2, check_size("in_channels", in_channels), stride=2)
    return TrunkClassifier(trunk, widths[-1], num_classes)
