"""Networks for small images that neither torchvision nor timm has: an MLP, small ones, and ResNets for CIFAR.

The small ones train in minutes on two cores; channels-last images make their convolutions faster.

The v1 networks for CIFAR are those of He et al. 2016 (Deep Residual Learning, Sec. 4.2): depth 6n+2, stages of 16, 32
and 64 channels, shortcuts without parameters (option A; ``shortcut="project"`` gives option B).

The v2 networks are those of Keras' example ``cifar10_resnet``, which LR's code takes over: pre-activation
bottlenecks of depth 9n+2, 56 = 9 x 6 + 2, stages of 64, 128 and 256 channels after a convolution of 16. They are not
the pre-activation networks of He et al.'s second paper in detail: convolutions have a bias, the first block starts
without batch norm and ReLU, and the stride is on the first 1x1 convolution. Batch norm has Keras' epsilon of 0.001 and
momentum of 0.99 (0.01 in PyTorch's definition).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from calibrant.base.checks import check_choice, check_rate, check_size
from calibrant.models.registry import register

#: Batch norm as in Keras, and what its published numbers of parameters count.
KERAS_NORM: dict[str, Any] = {"eps": 1e-3, "momentum": 0.01}
KERAS_COUNT = "Keras' summary, which counts batch norm's running means and variances too"

register_cifar = functools.partial(register, input_size=(3, 32, 32), num_classes=10)

#: Numbers in a vector register of AVX2.
_VECTOR = 8

#: Numbers in a shape, or layers: a longer list is a mistake, and would take minutes to build.
_LONGEST = 1000


class SubsampledConvolution(nn.Conv2d):
    """A 1x1 convolution with a stride, computed as one without a stride on every ``stride``-th pixel.

    With fewer input channels than a vector register holds and a channels-last input, the backward pass of oneDNN's own
    (torch 2.13.0, processors with AVX2 and without AVX-512) writes beyond its buffer, and the process crashes.
    """

    def forward(self, x: Tensor) -> Tensor:
        """[N, inputs, H, W] to [N, outputs, H / stride, W / stride], both rounded up."""
        rows, columns = self.stride
        return F.conv2d(x[:, :, ::rows, ::columns], self.weight, self.bias)


def convolution(inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> nn.Conv2d:
    """A convolution that keeps the size but for its stride, without bias: batch norm follows."""
    if kernel == 1 and stride > 1 and inputs < _VECTOR:
        return SubsampledConvolution(inputs, outputs, 1, stride=stride, bias=False)
    return nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)


def initialise(model: nn.Module) -> None:
    """He et al.'s initialisation of convolutions: variance 2 / fan-out, as in torchvision's ResNet."""
    for part in model.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")


class PaddedShortcut(nn.Module):
    """The shortcut without parameters (He et al. 2016, option A): every ``stride``-th pixel, zeros for new channels."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.stride, self.added = stride, outputs - inputs

    def forward(self, x: Tensor) -> Tensor:
        """[N, inputs, H, W] to [N, outputs, H / stride, W / stride]."""
        x = x[:, :, :: self.stride, :: self.stride]
        return F.pad(x, (0, 0, 0, 0, self.added // 2, self.added - self.added // 2))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with batch norm, ReLU after the sum (He et al. 2016, Fig. 2).

    Where sizes change, ``shortcut`` is "pad" (option A, no parameters) or "project" (option B, a 1x1 convolution with
    batch norm).
    """

    def __init__(self, inputs: int, outputs: int, stride: int = 1, shortcut: str = "project"):
        super().__init__()
        self.conv1, self.bn1 = convolution(inputs, outputs, stride=stride), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = convolution(outputs, outputs), nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if (stride != 1 or inputs != outputs) and shortcut == "pad":
            self.shortcut = PaddedShortcut(inputs, outputs, stride)
        elif stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """The block's output."""
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + self.shortcut(x))


class Trunk(nn.Module):
    """A convolution, and a stage of ``blocks`` basic blocks per width; all stages but the first halve the image."""

    def __init__(
        self, widths: Sequence[int], blocks: int, in_channels: int, stride: int = 1, shortcut: str = "project"
    ):
        super().__init__()
        self.conv1, self.bn1 = convolution(in_channels, widths[0], stride=stride), nn.BatchNorm2d(widths[0])
        self.stages = nn.ModuleList()
        inputs = widths[0]
        for number, outputs in enumerate(widths):
            first_block = BasicBlock(inputs, outputs, 1 if number == 0 else 2, shortcut)
            further = (BasicBlock(outputs, outputs) for _ in range(blocks - 1))
            self.stages.append(nn.Sequential(first_block, *further))
            inputs = outputs
        initialise(self)

    def forward(self, x: Tensor) -> list[Tensor]:
        """The outputs of all stages."""
        x = F.relu(self.bn1(self.conv1(x)))
        outputs = []
        for stage in self.stages:
            x = stage(x)
            outputs.append(x)
        return outputs


class TrunkClassifier(nn.Module):
    """A trunk, the mean over the image, and a linear layer."""

    def __init__(self, trunk: Trunk, features: int, num_classes: int):
        super().__init__()
        self.trunk = trunk
        self.fc = nn.Linear(features, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [N, C] of images of any size."""
        return self.fc(self.trunk(x)[-1].mean((2, 3)))


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


def _register_v1(depth: int, blocks: int, source: str, published: int, published_in: str) -> None:
    @register_cifar(
        f"resnet{depth}",
        summary=f"ResNet-{depth} for CIFAR: 3 x {blocks} basic blocks",
        source=source,
        published=published,
        published_in=published_in,
        last_block="trunk.stages.2",
    )
    def build_v1(num_classes: int, *, shortcut: str = "pad", in_channels: int = 3) -> nn.Module:
        check_choice("shortcut", shortcut, ("pad", "project"))
        trunk = Trunk((16, 32, 64), blocks, check_size("in_channels", in_channels), shortcut=shortcut)
        return TrunkClassifier(trunk, 64, num_classes)


_register_v1(20, 3, "He et al. 2016, Sec. 4.2; SC, Appendix B (demo)", 270_000, "He et al. 2016, Table 6: 0.27M")
_register_v1(56, 9, "He et al. 2016, Sec. 4.2", 850_000, "He et al. 2016, Table 6: 0.85M")


def keras_norm(channels: int) -> nn.BatchNorm2d:
    """Batch norm with Keras' settings."""
    return nn.BatchNorm2d(channels, **KERAS_NORM)


def weighted_layers(model: nn.Module) -> Iterator[Any]:
    """The convolutions and linear layers of a model, all of which have a bias."""
    return (part for part in model.modules() if isinstance(part, nn.Conv2d | nn.Linear))


class PreactivationBottleneck(nn.Module):
    """Batch norm, ReLU and convolution, three times (1x1, 3x3, 1x1), and the sum.

    ``project`` makes the shortcut a 1x1 convolution, as in the first block of a stage; ``activate`` puts batch norm
    and ReLU first, as in all blocks but the network's first.
    """

    def __init__(self, inputs: int, middle: int, outputs: int, stride: int, *, project: bool, activate: bool):
        super().__init__()
        self.bn1: nn.Module = keras_norm(inputs) if activate else nn.Identity()
        self.activate = activate
        self.conv1 = nn.Conv2d(inputs, middle, 1, stride=stride)
        self.bn2, self.conv2 = keras_norm(middle), nn.Conv2d(middle, middle, 3, padding=1)
        self.bn3, self.conv3 = keras_norm(middle), nn.Conv2d(middle, outputs, 1)
        self.shortcut: nn.Module = nn.Conv2d(inputs, outputs, 1, stride=stride) if project else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """The block's output."""
        y = F.relu(self.bn1(x)) if self.activate else x
        y = self.conv2(F.relu(self.bn2(self.conv1(y))))
        return self.shortcut(x) + self.conv3(F.relu(self.bn3(y)))


class PreactivationResNet(nn.Module):
    """Three stages of `PreactivationBottleneck`, each of ``blocks``."""

    def __init__(self, blocks: int, num_classes: int, in_channels: int):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(in_channels, 16, 3, padding=1), keras_norm(16)
        layers: list[nn.Module] = []
        for stage, (inputs, outputs) in enumerate(pairwise((16, 64, 128, 256))):
            for block in range(blocks):
                is_first, stride = block == 0, 2 if block == 0 and stage > 0 else 1
                before, activate = inputs if is_first else outputs, stage > 0 or not is_first
                layers.append(
                    PreactivationBottleneck(before, inputs, outputs, stride, project=is_first, activate=activate)
                )
        self.blocks = nn.Sequential(*layers)
        self.bn2 = keras_norm(256)
        self.fc = nn.Linear(256, num_classes)
        for layer in weighted_layers(self):  # Keras: he_normal, biases 0
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [N, C] of images of any size."""
        x = self.blocks(F.relu(self.bn1(self.conv1(x))))
        return self.fc(F.relu(self.bn2(x)).mean((2, 3)))


def _register_v2(depth: int, blocks: int, source: str, **published: Any) -> None:
    summary = f"Keras' ResNet{depth}v2 for CIFAR: 3 x {blocks} pre-activation bottlenecks"

    @register_cifar(f"resnet{depth}v2", summary=summary, source=source, last_block="blocks", **published)
    def build_v2(num_classes: int, *, in_channels: int = 3) -> nn.Module:
        return PreactivationResNet(blocks, num_classes, check_size("in_channels", in_channels))


_register_v2(20, 2, "Keras, examples/cifar10_resnet.py")
_LR = "Keras, examples/cifar10_resnet.py; LR, experiments on CIFAR"
_register_v2(56, 6, _LR, published=1_673_738, published_in=KERAS_COUNT)
