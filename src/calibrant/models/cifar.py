"""Networks for 32x32 images that neither torchvision nor timm has: ResNets, LR's VGG16, and DenseNet-BC.

The v1 networks are those of He et al. 2016 (Deep Residual Learning, Sec. 4.2): depth 6n+2, stages of 16, 32 and 64
channels, shortcuts without parameters (option A; ``shortcut="project"`` gives option B).

The v2 networks are those of Keras' example ``cifar10_resnet``, which LR's code takes over: pre-activation
bottlenecks of depth 9n+2, 56 = 9 x 6 + 2, stages of 64, 128 and 256 channels after a convolution of 16. They are not
the pre-activation networks of He et al.'s second paper in detail: convolutions have a bias, the first block starts
without batch norm and ReLU, and the stride is on the first 1x1 convolution.

VGG16 is that of LR's code, which is the widely copied Keras ``cifar-vgg`` (Geifman; the form for CIFAR is Liu and
Deng's, 2015): batch norm comes after each ReLU, dropout between the convolutions of a block, and there is one hidden
layer of 512. Its L2 penalties, 5e-4 times the squared kernels of all layers but the last, are left to the optimiser.

In both of Keras' networks batch norm has Keras' epsilon of 0.001 and momentum of 0.99 (0.01 in PyTorch's definition).
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from calibrant import _torchvision
from calibrant._validation import check_choice, check_flag, check_rate, check_size
from calibrant.models.registry import register
from calibrant.models.small import Trunk, TrunkClassifier

_register = functools.partial(register, input_size=(3, 32, 32), num_classes=10)
_EPSILON, _MOMENTUM = 1e-3, 0.01  # Keras' batch norm


def _register_v1(depth: int, blocks: int, source: str, published: int, published_in: str) -> None:
    summary = f"ResNet-{depth} for CIFAR: 3 x {blocks} basic blocks"

    @_register(
        f"resnet{depth}",
        summary=summary,
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


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=_EPSILON, momentum=_MOMENTUM)


def _layers(model: nn.Module) -> Iterator[Any]:
    """The convolutions and linear layers of a model, all of which have a bias."""
    return (part for part in model.modules() if isinstance(part, nn.Conv2d | nn.Linear))


class PreactivationBottleneck(nn.Module):
    """Batch norm, ReLU and convolution, three times (1x1, 3x3, 1x1), and the sum.

    ``project`` makes the shortcut a 1x1 convolution, as in the first block of a stage; ``activate`` puts batch norm
    and ReLU first, as in all blocks but the network's first.
    """

    def __init__(self, inputs: int, middle: int, outputs: int, stride: int, *, project: bool, activate: bool):
        super().__init__()
        self.bn1: nn.Module = _norm(inputs) if activate else nn.Identity()
        self.activate = activate
        self.conv1 = nn.Conv2d(inputs, middle, 1, stride=stride)
        self.bn2, self.conv2 = _norm(middle), nn.Conv2d(middle, middle, 3, padding=1)
        self.bn3, self.conv3 = _norm(middle), nn.Conv2d(middle, outputs, 1)
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
        self.conv1, self.bn1 = nn.Conv2d(in_channels, 16, 3, padding=1), _norm(16)
        layers: list[nn.Module] = []
        for stage, (inputs, outputs) in enumerate(pairwise((16, 64, 128, 256))):
            for block in range(blocks):
                is_first, stride = block == 0, 2 if block == 0 and stage > 0 else 1
                before, activate = inputs if is_first else outputs, stage > 0 or not is_first
                layers.append(
                    PreactivationBottleneck(before, inputs, outputs, stride, project=is_first, activate=activate)
                )
        self.blocks = nn.Sequential(*layers)
        self.bn2 = _norm(256)
        self.fc = nn.Linear(256, num_classes)
        for layer in _layers(self):  # Keras: he_normal, biases 0
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [N, C] of images of any size."""
        x = self.blocks(F.relu(self.bn1(self.conv1(x))))
        return self.fc(F.relu(self.bn2(x)).mean((2, 3)))


def _register_v2(depth: int, blocks: int, source: str, **published: Any) -> None:
    summary = f"Keras' ResNet{depth}v2 for CIFAR: 3 x {blocks} pre-activation bottlenecks"

    @_register(f"resnet{depth}v2", summary=summary, source=source, last_block="blocks", **published)
    def build_v2(num_classes: int, *, in_channels: int = 3) -> nn.Module:
        return PreactivationResNet(blocks, num_classes, check_size("in_channels", in_channels))


_KERAS = "Keras' summary, which counts batch norm's running means and variances too"
_register_v2(20, 2, "Keras, examples/cifar10_resnet.py")
_LR = "Keras, examples/cifar10_resnet.py; LR, experiments on CIFAR"
_register_v2(56, 6, _LR, published=1_673_738, published_in=_KERAS)


#: Channels of the convolutions of each block; a max-pool follows each.
_VGG16 = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


def _vgg16_features(in_channels: int, dropout: bool) -> Iterator[nn.Module]:
    inputs = in_channels
    for block, widths in enumerate(_VGG16):
        for number, outputs in enumerate(widths):
            if number > 0:
                yield nn.Dropout((0.3 if block == 0 else 0.4) * dropout)
            yield from (nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(inplace=True), _norm(outputs))
            inputs = outputs
        yield nn.MaxPool2d(2)


@_register(
    "vgg16_cifar",
    summary="LR's VGG16 for CIFAR: batch norm after ReLU, dropout between convolutions, a hidden layer of 512",
    source="LR's released code, which is Keras' cifar-vgg (Geifman, after Liu and Deng 2015)",
    published=15_001_418,
    published_in=f"{_KERAS}; 14,991,946 are trained",
    last_block="features.50",
)
def vgg16_cifar(num_classes: int, *, dropout: bool = True, in_channels: int = 3) -> nn.Module:
    """As the code has it: dropout of 0.3 in the first block, 0.4 in the others, 0.5 before both linear layers.

    LR's text avoids dropout "as much as possible", as ``dropout=False`` does. Weights are initialised as in Keras:
    Glorot's uniform distribution, biases 0. Images of 32 pixels leave one feature per channel; larger ones, which the
    code does not take, are averaged.
    """
    head = 0.5 * check_flag("dropout", dropout)
    model = nn.Sequential(
        OrderedDict(
            features=nn.Sequential(*_vgg16_features(check_size("in_channels", in_channels), dropout)),
            avgpool=nn.AdaptiveAvgPool2d(1),
            flatten=nn.Flatten(),
            dropout1=nn.Dropout(head),
            hidden=nn.Linear(512, 512),
            relu=nn.ReLU(inplace=True),
            norm=nn.BatchNorm1d(512, eps=_EPSILON, momentum=_MOMENTUM),
            dropout2=nn.Dropout(head),
            classifier=nn.Linear(512, num_classes),
        )
    )
    for layer in _layers(model):
        nn.init.xavier_uniform_(layer.weight)
        nn.init.zeros_(layer.bias)
    return model


@_register(
    "densenet_bc_100_12",
    summary="DenseNet-BC for CIFAR: depth 100, growth rate 12",
    source="Huang et al. 2017 (Densely Connected Convolutional Networks); LR and SC on CIFAR",
    published=769_162,
    published_in="public PyTorch ports on CIFAR-10; Huang et al. 2017, Table 2, prints 0.8M",
    last_block="features.denseblock3",
)
def densenet_bc_100_12(num_classes: int, *, dropout: float = 0.0, in_channels: int = 3) -> nn.Module:
    """Torchvision's class with three blocks of 16 bottlenecks and the paper's first layer for CIFAR, one convolution.

    The paper drops out 0.2 where the data are not augmented. LR's code leaves the first convolution without padding.
    """
    _torchvision.ensure()
    from torchvision.models import DenseNet

    from calibrant.models.classifiers import plain_densenet_stem

    shape = {"growth_rate": 12, "block_config": (16, 16, 16), "num_init_features": 24}
    model = DenseNet(**shape, num_classes=num_classes, drop_rate=check_rate("dropout", dropout))
    plain_densenet_stem(model, check_size("in_channels", in_channels))
    return model
