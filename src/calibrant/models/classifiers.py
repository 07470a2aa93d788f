"""Torchvision's classifiers, with stems for small images where the papers' code has them.

Stems of ResNet:

- ``imagenet``: torchvision's: a 7x7 convolution with stride 2 and a max-pool, so blocks start at a quarter of the size.
- ``32``: a 3x3 convolution with stride 1, no max-pool; the mean over the last 4x4 features. The network for CIFAR in
  Mukhoti2020's code (``Net/resnet.py``).
- ``64``: the same convolution, no max-pool, and the last features averaged to 2x2, not to one, so that the linear layer
  has four times the inputs. The network for Tiny-ImageNet in Mukhoti2020's code (``Net/resnet_tiny_imagenet.py``); the
  configurations of MbLS and ACLS name a file of the same name.

In both, weights are initialised as torchvision does it; the ``32`` of that code leaves PyTorch's defaults.

The stem ``32`` of DenseNet is one 3x3 convolution (Mukhoti2020's ``Net/densenet.py``). That of VGG has the same
convolutions as ever, and one linear layer from 512 features instead of three from 25,088: the usual form for CIFAR.
LR's code has another, which is ``vgg16_cifar``.
All stems take images of any size that survives the strides.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Any

from torch import nn

from calibrant import _torchvision
from calibrant.models.blocks import initialise
from calibrant.models.checks import share, whole
from calibrant.models.registry import register

_IMAGE = (3, 224, 224)
_META = "torchvision's table of weights"


def _resnet(name: str, num_classes: int, stem: str, in_channels: int) -> nn.Module:
    _torchvision.ensure()
    from torchvision import models

    whole("in_channels", in_channels, 1)
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
    return model


def _enter_resnet(depth: int, published: int, source: str) -> None:
    name = f"resnet{depth}"

    @register(
        name,
        summary=f"ResNet-{depth}, with stems for 224, 64 and 32 pixels",
        source=source,
        input_size=_IMAGE,
        num_classes=1000,
        published=published,
        published_in=_META,
        stems=("imagenet", "64", "32"),
        torchvision=True,
    )
    def build_resnet(num_classes: int, *, stem: str = "imagenet", in_channels: int = 3) -> nn.Module:
        return _resnet(name, num_classes, stem, in_channels)


_enter_resnet(18, 11_689_512, "He et al. 2016")
_enter_resnet(34, 21_797_672, "He et al. 2016; Mukhoti2020's and MbLS's code")
_enter_resnet(50, 25_557_032, "He et al. 2016; ALS, ACLS, MbLS and SC on ImageNet, CIFAR-10 and Tiny-ImageNet")
_enter_resnet(101, 44_549_160, "He et al. 2016; ALS, ACLS and MbLS")


def _vgg16(num_classes: int, stem: str, batch_norm: bool, dropout: float, in_channels: int) -> nn.Module:
    _torchvision.ensure()
    from torchvision.models import vgg

    layers = vgg.make_layers(vgg.cfgs["D"], batch_norm=batch_norm)
    if whole("in_channels", in_channels, 1) != 3:
        layers[0] = nn.Conv2d(in_channels, 64, 3, padding=1)
    drop = share("dropout", dropout)
    if stem == "imagenet":
        whole_network: nn.Module = vgg.VGG(layers, num_classes=num_classes, dropout=drop)
        return whole_network
    parts: list[tuple[str, nn.Module]] = [("features", layers), ("avgpool", nn.AdaptiveAvgPool2d(1))]
    parts += [("flatten", nn.Flatten()), ("dropout", nn.Dropout(drop)), ("classifier", nn.Linear(512, num_classes))]
    model = nn.Sequential(OrderedDict(parts))
    initialise(model)
    for part in layers.modules():
        if isinstance(part, nn.Conv2d) and part.bias is not None:
            nn.init.zeros_(part.bias)
    return model


def _enter_vgg(name: str, published: int, batch_norm: bool, words: str) -> None:
    @register(
        name,
        summary=f"VGG16{words}; with stem 32 a single linear layer as head",
        source="Simonyan and Zisserman 2015; LR's code for CIFAR has vgg16_cifar",
        input_size=_IMAGE,
        num_classes=1000,
        published=published,
        published_in=_META,
        stems=("imagenet", "32"),
        torchvision=True,
    )
    def build_vgg(
        num_classes: int, *, stem: str = "imagenet", dropout: float | None = None, in_channels: int = 3
    ) -> nn.Module:
        usual = 0.5 if stem == "imagenet" else 0.0
        return _vgg16(num_classes, stem, batch_norm, usual if dropout is None else dropout, in_channels)


_enter_vgg("vgg16", 138_357_544, False, "")
_enter_vgg("vgg16_bn", 138_365_992, True, " with batch norm")


def plain_densenet_stem(model: Any, in_channels: int) -> None:
    """Give a DenseNet one 3x3 convolution as its first layers, as its paper has it for CIFAR."""
    for name in ("norm0", "relu0", "pool0"):
        delattr(model.features, name)
    model.features.conv0 = nn.Conv2d(in_channels, model.features.conv0.out_channels, 3, padding=1, bias=False)
    nn.init.kaiming_normal_(model.features.conv0.weight)


def _enter_densenet(depth: int, published: int) -> None:
    name = f"densenet{depth}"

    @register(
        name,
        summary=f"DenseNet-{depth}, with stems for 224 and 32 pixels",
        source="Huang et al. 2017; Mukhoti2020's code for the stem of 32",
        input_size=_IMAGE,
        num_classes=1000,
        published=published,
        published_in=_META,
        stems=("imagenet", "32"),
        torchvision=True,
    )
    def build_densenet(
        num_classes: int, *, stem: str = "imagenet", dropout: float = 0.0, in_channels: int = 3
    ) -> nn.Module:
        _torchvision.ensure()
        from torchvision import models

        drop = share("dropout", dropout)
        model: Any = models.get_model(name, weights=None, num_classes=num_classes, drop_rate=drop)
        first = model.features.conv0
        if stem == "32":
            plain_densenet_stem(model, whole("in_channels", in_channels, 1))
        elif whole("in_channels", in_channels, 1) != 3:
            model.features.conv0 = nn.Conv2d(in_channels, first.out_channels, 7, stride=2, padding=3, bias=False)
            nn.init.kaiming_normal_(model.features.conv0.weight)
        return model


for _depth, _count in ((121, 7_978_856), (161, 28_681_000), (169, 14_149_480), (201, 20_013_928)):
    _enter_densenet(_depth, _count)


def _vit(width: int, heads: int, num_classes: int, image_size: int, dropout: float, in_channels: int) -> nn.Module:
    _torchvision.ensure()
    from torchvision.models import VisionTransformer

    if whole("image_size", image_size, 16) % 16:
        raise ValueError(f"image_size must be a multiple of the patches' 16 pixels, got {image_size}")
    model: Any = VisionTransformer(
        image_size=image_size, patch_size=16, num_layers=12, num_heads=heads, hidden_dim=width, mlp_dim=4 * width,
        dropout=share("dropout", dropout), num_classes=num_classes,
    )  # fmt: skip
    if whole("in_channels", in_channels, 1) != 3:
        model.conv_proj = nn.Conv2d(in_channels, width, 16, stride=16)
        nn.init.trunc_normal_(model.conv_proj.weight, std=math.sqrt(1 / (in_channels * 16 * 16)))
        nn.init.zeros_(model.conv_proj.bias)
    return model


@register(
    "vit_b_16",
    summary="ViT-B/16: 12 layers of 768, 12 heads; takes images of image_size only",
    source="Dosovitskiy et al. 2021; MbLS, appendix, Table 2 (its configuration names this size)",
    input_size=_IMAGE,
    num_classes=1000,
    published=86_567_656,
    published_in=_META,
    torchvision=True,
)
def vit_b_16(num_classes: int, *, image_size: int = 224, dropout: float = 0.0, in_channels: int = 3) -> nn.Module:
    """Torchvision's ViT-B/16."""
    return _vit(768, 12, num_classes, image_size, dropout, in_channels)


@register(
    "vit_s_16",
    summary="ViT-S/16: 12 layers of 384, 6 heads; takes images of image_size only",
    source="Dosovitskiy et al. 2021, at the small size of later work; SC on ImageNet",
    input_size=_IMAGE,
    num_classes=1000,
    published=22_050_664,
    published_in="timm's vit_small_patch16_224",
)
def vit_s_16(num_classes: int, *, image_size: int = 224, dropout: float = 0.0, in_channels: int = 3) -> nn.Module:
    """Torchvision's class at the small size; SC trains it with a dropout of 0.1."""
    return _vit(384, 6, num_classes, image_size, dropout, in_channels)
