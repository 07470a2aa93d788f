"""Torchvision's Faster R-CNN, for ALS's transfer of a classifier to detection."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from calibrant import _torchvision
from calibrant.models.checks import whole
from calibrant.models.registry import register
from calibrant.models.weights import load


@register(
    "fasterrcnn_resnet50_fpn",
    task="detection",
    summary="Faster R-CNN with a feature pyramid on ResNet-50, batch norm frozen",
    source="Ren et al. 2015, Lin et al. 2017 (Feature Pyramid Networks); ALS, Table 4, has it without the pyramid",
    input_size=(3, 800, 800),
    num_classes=91,
    published=41_755_286,
    published_in="torchvision's table of weights",
    torchvision=True,
)
def fasterrcnn_resnet50_fpn(
    num_classes: int, *, backbone_weights: str | Path | None = None, trainable_layers: int | None = None
) -> nn.Module:
    """Torchvision's detector: a list of images ``[3, H, W]`` with targets gives losses, without gives detections.

    Args:
        num_classes: with the background, which is class 0.
        backbone_weights: of a ResNet-50 classifier with stem "imagenet": a file, or ``torchvision:NAME``; its head is
            left out.
        trainable_layers: how many of the backbone's 5 parts are trained, from the last on; if left out, 3 of a
            backbone with weights, as in torchvision, and all of one without.
    """
    _torchvision.ensure()
    from torchvision import models
    from torchvision.models.detection import FasterRCNN
    from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
    from torchvision.ops import FrozenBatchNorm2d

    if trainable_layers is None:
        trainable_layers = 5 if backbone_weights is None else 3
    if whole("trainable_layers", trainable_layers, 0) > 5:
        raise ValueError(f"trainable_layers must be from 0 to 5, got {trainable_layers}")
    backbone: Any = resnet_fpn_backbone(
        backbone_name="resnet50", weights=None, norm_layer=FrozenBatchNorm2d, trainable_layers=trainable_layers
    )
    if backbone_weights is not None:
        classifier = models.resnet50(weights=None, norm_layer=FrozenBatchNorm2d)
        load(classifier, backbone_weights, head="drop", torchvision="resnet50")
        state = classifier.state_dict()
        backbone.body.load_state_dict({key: state[key] for key in backbone.body.state_dict()})
    detector: nn.Module = FasterRCNN(backbone, num_classes=num_classes)
    return detector
