"""Networks for segmentation.

Torchvision's DeepLab v3 returns a dictionary; here it returns the logits, with the same names of weights. ACLS and MbLS
train the DeepLab v3 of another library (segmentation_models_pytorch) on VOC 2012: the same design on the same
backbone, with other details in the head.

DeepLab v3+ [SC] follows Chen et al. 2018 (Encoder-Decoder with Atrous Separable Convolution): a backbone of output
stride 16, an atrous pyramid with rates 6, 12 and 18, features of a quarter of the size reduced to 48 channels, and two
3x3 convolutions of 256 over both. Its convolutions are plain, not separable, and the pyramid is torchvision's, with its
dropout of 0.5. ``upsample=False`` gives the logits before the last interpolation, from which SC draws its samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from calibrant.base import torchvision_operators
from calibrant.base.checks import check_flag, check_size
from calibrant.models.foreign import load_weights
from calibrant.models.registry import register
from calibrant.models.small import Trunk, convolution, initialise


def _resize(x: Tensor, like: Tensor) -> Tensor:
    return F.interpolate(x, size=like.shape[-2:], mode="bilinear", align_corners=False)


class DeepLabV3(nn.Module):
    """A backbone that gives features as "out", and a head over them."""

    def __init__(self, backbone: nn.Module, classifier: nn.Module, upsample: bool):
        super().__init__()
        self.backbone, self.classifier, self.upsample = backbone, classifier, check_flag("upsample", upsample)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [N, C, H, W], or at the features' size when not upsampled."""
        logits = self.classifier(self.backbone(x)["out"])
        return _resize(logits, x) if self.upsample else logits


class DeepLabV3Plus(nn.Module):
    """An atrous pyramid over the backbone's features "out", refined by its early features "low".

    ``low`` and ``out`` are the channels of these, ``width`` those of pyramid and decoder, ``reduced`` what the early
    features are reduced to, ``rates`` those of the pyramid's convolutions.
    """

    def __init__(
        self,
        backbone: nn.Module,
        low: int,
        out: int,
        *,
        rates: Sequence[int],
        width: int,
        reduced: int,
        num_classes: int,
        upsample: bool,
    ):
        super().__init__()
        torchvision_operators.ensure()
        from torchvision.models.segmentation.deeplabv3 import ASPP

        def block(inputs: int, outputs: int, kernel: int) -> list[nn.Module]:
            return [convolution(inputs, outputs, kernel), nn.BatchNorm2d(outputs), nn.ReLU()]

        self.backbone, self.upsample = backbone, check_flag("upsample", upsample)
        self.aspp = ASPP(out, list(rates), width)
        self.reduce = nn.Sequential(*block(low, reduced, 1))
        self.decoder = nn.Sequential(*block(width + reduced, width, 3), *block(width, width, 3))
        for part in (self.aspp, self.reduce, self.decoder):
            initialise(part)
        self.classifier = nn.Conv2d(width, num_classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [N, C, H, W], or at a quarter of the size when not upsampled."""
        features = self.backbone(x)
        low = self.reduce(features["low"])
        joined = torch.cat([_resize(self.aspp(features["out"]), low), low], dim=1)
        logits = self.classifier(self.decoder(joined))
        return _resize(logits, x) if self.upsample else logits


def _backbone(depth: int, output_stride: int, layers: dict[str, str], weights: str | Path | None) -> nn.Module:
    """Torchvision's ResNet, dilated to an output stride of 8 or 16, without its head."""
    torchvision_operators.ensure()
    from torchvision import models
    from torchvision.models._utils import IntermediateLayerGetter

    name = f"resnet{depth}"
    dilated = [False, output_stride == 8, True]
    classifier: nn.Module = models.get_model(name, weights=None, replace_stride_with_dilation=dilated)
    if weights is not None:
        load_weights(classifier, weights, head="drop", torchvision=name)
    getter: nn.Module = IntermediateLayerGetter(classifier, return_layers=layers)
    return getter


def _register_v3(depth: int, published: int) -> None:
    @register(
        f"deeplabv3_resnet{depth}",
        task="segmentation",
        summary=f"DeepLab v3 on ResNet-{depth}, output stride 8",
        source="Chen et al. 2017; ACLS and MbLS on VOC 2012" if depth == 50 else "Chen et al. 2017",
        input_size=(3, 512, 512),
        num_classes=21,
        published=published,
        published_in="torchvision's table of weights, which counts its auxiliary head too",
        torchvision=True,
    )
    def build_v3(num_classes: int, *, backbone_weights: str | Path | None = None, upsample: bool = True) -> nn.Module:
        backbone = _backbone(depth, 8, {"layer4": "out"}, backbone_weights)
        from torchvision.models.segmentation.deeplabv3 import DeepLabHead

        return DeepLabV3(backbone, DeepLabHead(2048, num_classes), upsample)


def _register_v3plus(depth: int) -> None:
    @register(
        f"deeplabv3plus_resnet{depth}",
        task="segmentation",
        summary=f"DeepLab v3+ on ResNet-{depth}, output stride 16",
        source="Chen et al. 2018; SC on Cityscapes" if depth == 101 else "Chen et al. 2018",
        input_size=(3, 768, 768),
        num_classes=19,
    )
    def build_v3plus(
        num_classes: int, *, backbone_weights: str | Path | None = None, upsample: bool = True
    ) -> nn.Module:
        backbone = _backbone(depth, 16, {"layer1": "low", "layer4": "out"}, backbone_weights)
        return DeepLabV3Plus(
            backbone, 256, 2048, rates=(6, 12, 18), width=256, reduced=48, num_classes=num_classes, upsample=upsample
        )


_register_v3(50, 42_004_074)
_register_v3(101, 60_996_202)
_register_v3plus(50)
_register_v3plus(101)


class _Stages(nn.Module):
    """The second and the last stage of a trunk whose first convolution has stride 2: strides 4 and 16."""

    def __init__(self, trunk: Trunk):
        super().__init__()
        self.trunk = trunk

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        stages: Any = self.trunk(x)
        return {"low": stages[1], "out": stages[-1]}


@register(
    "deeplabv3plus_small",
    task="segmentation",
    summary="DeepLab v3+ on the trunk of small_resnet, for CamVid on two cores",
    source="this project, after Chen et al. 2018",
    input_size=(3, 180, 240),
    num_classes=11,
)
def deeplabv3plus_small(num_classes: int, *, width: int = 16, in_channels: int = 3, upsample: bool = True) -> nn.Module:
    """A quarter of the channels of a ResNet-18 and of the decoder; rates 3, 6 and 9 for its small images."""
    widths = [check_size("width", width) * factor for factor in (1, 2, 4, 8)]
    trunk = Trunk(widths, 2, check_size("in_channels", in_channels), stride=2)
    return DeepLabV3Plus(
        _Stages(trunk), widths[1], widths[3], rates=(3, 6, 9), width=4 * width, reduced=width,
        num_classes=num_classes, upsample=upsample,
    )  # fmt: skip
