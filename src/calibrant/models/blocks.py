"""Parts that several networks share: basic residual blocks, and a narrow trunk of them; and evaluation mode."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import torch.nn.functional as F
from torch import Tensor, nn

#: Numbers in a vector register of AVX2.
_VECTOR = 8


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


@contextlib.contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Inside, the model is in evaluation mode; afterwards every module has its own mode again."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


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
