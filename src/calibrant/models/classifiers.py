"""Torchvision's classifiers, with stems for small images where the papers' code has them; VGG16 and DenseNet for CIFAR.

Stems of ResNet:

- ``imagenet``: torchvision's: a 7x7 convolution with stride 2 and a max-pool, so blocks start at a quarter of the size.
- ``32``: a 3x3 convolution with stride 1, no max-pool; the mean over the last 4x4 features. The network for CIFAR in
  Mukhoti2020's code (``Net/resnet.py``).
- ``64``: the same convolution, no max-pool, and the last features averaged to 2x2, not to one, so that the linear layer
  has four times the inputs. The network for Tiny-ImageNet in Mukhoti2020's code (``Net/resnet_tiny_imagenet.py``); the
  configurations of MbLS and ACLS name a file of the same name.

In both, weights are initialised as in torchvision; the ``32`` of that code keeps PyTorch's defaults.

The stem ``32`` of DenseNet is one 3x3 convolution (Mukhoti2020's ``Net/densenet.py``). That of VGG has the
usual convolutions, and one linear layer from 512 features instead of three from 25,088: the usual form for CIFAR.
All stems take images of any size that survives the strides.

LR's code has a different VGG16, ``vgg16_cifar``, which is the widely copied Keras ``cifar-vgg`` (Geifman; the form for
CIFAR is Liu and Deng's, 2015): batch norm, as Keras has it, comes after each ReLU, dropout between the convolutions of
a block, and there is one hidden layer of 512. Its L2 penalties, 5e-4 times the squared kernels of all layers but the
last, are left to the optimiser.
"""

from __future__ import annotations

import functools
import math
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from torch import nn

from calibrant.base import torchvision_operators
from calibrant.base.checks import check_flag, check_rate, check_size
from calibrant.models.registry import register
from calibrant.models.small import KERAS_COUNT, KERAS_NORM, initialise, keras_norm, register_cifar, weighted_layers

_register = functools.partial(register, input_size=(3, 224, 224), num_classes=1000)
_TABLE = "torchvision's table of weights"
_register_torchvision = functools.partial(_register, published_in=_TABLE, torchvision=True)

#: Channels of the convolutions of each block; a max-pool follows each.
_VGG16 = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


def _vgg16_features(in_channels: int, dropout: bool) -> Iterator[nn.Module]:
    inputs = in_channels
    for block, widths in enumerate(_VGG16):
        for number, outputs in enumerate(widths):
            if number > 0:
                yield nn.Dropout((0.3 if block == 0 else 0.4) * dropout)
            yield from (nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(inplace=True), keras_norm(outputs))
            inputs = outputs
        yield nn.MaxPool2d(2)


@register_cifar(
    "vgg16_cifar",
    summary="LR's VGG16 for CIFAR: batch norm after ReLU, dropout between convolutions, a hidden layer of 512",
    source="LR's released code, which is Keras' cifar-vgg (Geifman, after Liu and Deng 2015)",
    published=15_001_418,
    published_in=f"{KERAS_COUNT}; 14,991,946 are trained",
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
            norm=nn.BatchNorm1d(512, **KERAS_NORM),
            dropout2=nn.Dropout(head),
            classifier=nn.Linear(512, num_classes),
        )
    )
    for layer in weighted_layers(model):
        nn.init.xavier_uniform_(layer.weight)
        nn.init.zeros_(layer.bias)
    return model


@register_cifar(
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
    torchvision_operators.ensure()
    from torchvision.models import DenseNet

    shape = {"growth_rate": 12, "block_config": (16, 16, 16), "num_init_features": 24}
    model = DenseNet(**shape, num_classes=num_classes, drop_rate=check_rate("dropout", dropout))
    _plain_densenet_stem(model, check_size("in_channels", in_channels))
    return model


def _plain_densenet_stem(model: Any, in_channels: int) -> None:
    """Give a DenseNet one 3x3 convolution as its first layers, as its paper has it for CIFAR."""
    for name in ("norm0", "relu0", "pool0"):
        delattr(model.features, name)
    model.features.conv0 = nn.Conv2d(in_channels, model.features.conv0.out_channels, 3, padding=1, bias=False)
    nn.init.kaiming_normal_(model.features.conv0.weight)


def _register_resnet(depth: int, published: int, source: str) -> None:
    name = f"resnet{depth}"

    @_register_torchvision(
        name,
        summary=f"ResNet-{depth}, with stems for 224, 64 and 32 pixels",
        source=source,
        published=published,
        stems=("imagenet", "64", "32"),
        last_block="layer4",
    )
    def build_resnet(
        num_classes: int, *, stem: str = "imagenet", dropout: float = 0.0, in_channels: int = 3
    ) -> nn.Module:
        torchvision_operators.ensure()
        from torchvision import models

        check_size("in_channels", in_channels)
        model: Any = models.get_model(name, weights=None, num_classes=num_classes)
        if stem != "imagenet":
            model.conv1 = nn.Conv2d(in_channels, 64, 3, padding=1, bias=False)
            model.maxpool = nn.Identity()
            initialise(model.conv1)
        elif in_channels != 3:
            model.conv1 = nn.Conv2d(in_channels, 64, 7, stride=2, padding=3, bias=False)
            initialise(model.conv1)
        if stem == "64":
            model.avgpool = nn.AdaptiveAvgPool2d(2)
            model.fc = nn.Linear(4 * model.fc.in_features, num_classes)
        if check_rate("dropout", dropout):  # beside the pooling, which has no weights whose names would change
            model.avgpool = nn.Sequential(model.avgpool, nn.Dropout(dropout))
        return model


_register_resnet(18, 11_689_512, "He et al. 2016")
_register_resnet(34, 21_797_672, "He et al. 2016; Mukhoti2020's and MbLS's code")
_register_resnet(50, 25_557_032, "He et al. 2016; ALS, ACLS, MbLS and SC on ImageNet, CIFAR-10 and Tiny-ImageNet")
_register_resnet(101, 44_549_160, "He et al. 2016; ALS, ACLS and MbLS")


def _register_vgg(name: str, published: int, batch_norm: bool, words: str) -> None:
    @_register_torchvision(
        name,
        summary=f"VGG16{words}; with stem 32 a single linear layer as head",
        source="Simonyan and Zisserman 2015; LR's code for CIFAR has vgg16_cifar",
        published=published,
        stems=("imagenet", "32"),
        last_block="features.42" if batch_norm else "features.29",
    )
    def build_vgg(
        num_classes: int, *, stem: str = "imagenet", dropout: float | None = None, in_channels: int = 3
    ) -> nn.Module:
        torchvision_operators.ensure()
        from torchvision.models import vgg

        layers = vgg.make_layers(vgg.cfgs["D"], batch_norm=batch_norm)
        if check_size("in_channels", in_channels) != 3:
            layers[0] = nn.Conv2d(in_channels, 64, 3, padding=1)
        usual = 0.5 if stem == "imagenet" else 0.0
        drop = check_rate("dropout", usual if dropout is None else dropout)
        if stem == "imagenet":
            network: nn.Module = vgg.VGG(layers, num_classes=num_classes, dropout=drop)
            return network
        parts = OrderedDict[str, nn.Module](features=layers, avgpool=nn.AdaptiveAvgPool2d(1), flatten=nn.Flatten())
        parts |= {"dropout": nn.Dropout(drop), "classifier": nn.Linear(512, num_classes)}
        model = nn.Sequential(parts)
        initialise(model)
        for part in layers.modules():
            if isinstance(part, nn.Conv2d) and part.bias is not None:
                nn.init.zeros_(part.bias)
        return model


_register_vgg("vgg16", 138_357_544, False, "")
_register_vgg("vgg16_bn", 138_365_992, True, " with batch norm")


def _register_densenet(depth: int, published: int) -> None:
    name = f"densenet{depth}"

    @_register_torchvision(
        name,
        summary=f"DenseNet-{depth}, with stems for 224 and 32 pixels",
        source="Huang et al. 2017; Mukhoti2020's code for the stem of 32",
        published=published,
        stems=("imagenet", "32"),
        last_block="features.denseblock4",
    )
    def build_densenet(
        num_classes: int, *, stem: str = "imagenet", dropout: float = 0.0, in_channels: int = 3
    ) -> nn.Module:
        torchvision_operators.ensure()
        from torchvision import models

        drop = check_rate("dropout", dropout)
        model: Any = models.get_model(name, weights=None, num_classes=num_classes, drop_rate=drop)
        conv0 = model.features.conv0
        if stem == "32":
            _plain_densenet_stem(model, check_size("in_channels", in_channels))
        elif check_size("in_channels", in_channels) != 3:
            model.features.conv0 = nn.Conv2d(in_channels, conv0.out_channels, 7, stride=2, padding=3, bias=False)
            nn.init.kaiming_normal_(model.features.conv0.weight)
        return model


for _depth, _count in ((121, 7_978_856), (161, 28_681_000), (169, 14_149_480), (201, 20_013_928)):
    _register_densenet(_depth, _count)


def _register_vit(name: str, width: int, heads: int, summary: str, source: str, **facts: Any) -> None:
    summary = f"{summary}: 12 layers of {width}, {heads} heads; takes images of image_size only"

    @_register(name, summary=summary, source=f"Dosovitskiy et al. 2021{source}", **facts)
    def build_vit(num_classes: int, *, image_size: int = 224, dropout: float = 0.0, in_channels: int = 3) -> nn.Module:
        torchvision_operators.ensure()
        from torchvision.models import VisionTransformer

        if check_size("image_size", image_size, 16) % 16:
            raise ValueError(f"image_size must be a multiple of the patches' 16 pixels, got {image_size}")
        model: Any = VisionTransformer(
            image_size=image_size, patch_size=16, num_layers=12, num_heads=heads, hidden_dim=width, mlp_dim=4 * width,
            dropout=check_rate("dropout", dropout), num_classes=num_classes,
        )  # fmt: skip
        if check_size("in_channels", in_channels) != 3:
            model.conv_proj = nn.Conv2d(in_channels, width, 16, stride=16)
            nn.init.trunc_normal_(model.conv_proj.weight, std=math.sqrt(1 / (in_channels * 16 * 16)))
            nn.init.zeros_(model.conv_proj.bias)
        return model


_MBLS = "; MbLS, appendix, Table 2 (its configuration names this size)"
_register_vit("vit_b_16", 768, 12, "ViT-B/16", _MBLS, published=86_567_656, published_in=_TABLE, torchvision=True)
_SC = ", at the small size of later work; SC on ImageNet"  # where it is trained with a dropout of 0.1
_register_vit("vit_s_16", 384, 6, "ViT-S/16", _SC, published=22_050_664, published_in="timm's vit_small_patch16_224")
