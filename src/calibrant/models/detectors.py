"""Faster R-CNN on the stages of any ResNet, to which ALS transfers its classifiers (Sec. 4.3).

Without a pyramid it is the design of Ren et al. 2015 on a ResNet (He et al. 2016, "C4"), which is that of the code ALS
trains with (jwyang/faster-rcnn.pytorch): regions are proposed on the features of the last stage but one, and the last
stage works on what is pooled from each region. With a pyramid it is Lin et al. 2017: regions are proposed on every
stage, and two linear layers work on what is pooled.

Batch norm keeps the statistics of the classifier and is not trained. Proposals, losses and detections are
torchvision's.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from calibrant.base import torchvision_operators
from calibrant.base.checks import check_integer
from calibrant.models.foreign import load_weights
from calibrant.models.registry import evaluation_mode, register
from calibrant.models.small import TrunkClassifier

#: Channels of every level of a pyramid, and of the linear layers behind it.
PYRAMID_WIDTH, HEAD_WIDTH = 256, 1024


def split_resnet(network: nn.Module, name: str) -> tuple[nn.Module, list[nn.Module]]:
    """The first layers of a ResNet, and its stages; a ValueError if the classifier of this name is not a ResNet.

    Example:
        >>> from calibrant.models import build
        >>> stem, stages = split_resnet(build("small_resnet", num_classes=3), "small_resnet")
        >>> len(stages)
        4
    """
    torchvision_operators.ensure()
    from torchvision.models import ResNet

    if isinstance(network, ResNet):
        stem = nn.Sequential(network.conv1, network.bn1, network.relu, network.maxpool)
        return stem, [network.layer1, network.layer2, network.layer3, network.layer4]
    if isinstance(network, TrunkClassifier):
        trunk = network.trunk
        return nn.Sequential(trunk.conv1, trunk.bn1, nn.ReLU()), list(trunk.stages)
    raise ValueError(
        f"the model {name!r} cannot be the backbone of a detector: it must be a ResNet (resnet18, resnet50, "
        "small_resnet and the like)"
    )


class _BackboneStages(nn.Module):
    """The stages of a backbone: the features of the last of them, or of all through a pyramid."""

    def __init__(self, stem: nn.Module, stages: Sequence[nn.Module], widths: Sequence[int], pyramid: bool):
        super().__init__()
        from torchvision.ops import FeaturePyramidNetwork
        from torchvision.ops.feature_pyramid_network import LastLevelMaxPool

        self.stem, self.stages = stem, nn.ModuleList(stages)
        self.pyramid = FeaturePyramidNetwork(list(widths), PYRAMID_WIDTH, LastLevelMaxPool()) if pyramid else None
        self.out_channels = PYRAMID_WIDTH if pyramid else widths[-1]

    def forward(self, x: Tensor) -> Any:
        """A tensor, or the levels of the pyramid by name."""
        x = self.stem(x)
        outputs: OrderedDict[str, Tensor] = OrderedDict()
        for number, stage in enumerate(self.stages):
            x = outputs[str(number)] = stage(x)
        return x if self.pyramid is None else self.pyramid(outputs)


class _StageHead(nn.Module):
    """The last stage over what is pooled from a region, and the mean."""

    def __init__(self, stage: nn.Module):
        super().__init__()
        self.stage = stage

    def forward(self, x: Tensor) -> Tensor:
        """[R, C, P, P] to [R, width]."""
        return self.stage(x).mean((2, 3))


def build_detector(
    network: nn.Module,
    num_classes: int,
    *,
    name: str,
    mean: Sequence[float],
    std: Sequence[float],
    pyramid: bool = False,
    anchors: Sequence[int] = (64, 128, 256, 512),
    aspects: Sequence[float] = (0.5, 1.0, 2.0),
    frozen_stages: int = 1,
    pooled: int = 7,
    candidates: tuple[int, int] = (12_000, 6_000),
    proposals: tuple[int, int] = (2_000, 300),
    regions: int = 256,
    nms: float = 0.3,
    least_score: float = 0.05,
    detections: int = 100,
) -> nn.Module:
    """Faster R-CNN on a ResNet classifier, whose modules it takes over.

    Args:
        network: the classifier, with the weights that detection starts from.
        num_classes: without the background.
        name: of the network, for messages.
        mean: of the channels of images with values from 0 to 1.
        std: likewise.
        pyramid: propose regions on every stage, through a feature pyramid.
        anchors: sides of the anchors in pixels; with a pyramid one per level, of which there is one more than stages.
        aspects: heights of the anchors over their widths.
        frozen_stages: number of first stages that are not trained; if above 0, the first layers are not either.
        pooled: side in pixels of the features pooled from a region.
        candidates: regions before non-maximum suppression, in training and in evaluation.
        proposals: regions after it, in training and in evaluation.
        regions: regions per image to train the second part on.
        nms: overlap above which the weaker of two detections of a class is dropped.
        least_score: detections with a lower score are dropped.
        detections: largest number per image.

    Returns:
        Torchvision's detector: a list of images ``[C, H, W]`` with values from 0 to 1, with targets gives losses,
        without gives detections. Images are not scaled.
    """
    stem, stages = split_resnet(network, name)
    from torchvision.models.detection import FasterRCNN
    from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead
    from torchvision.models.detection.rpn import AnchorGenerator
    from torchvision.ops import MultiScaleRoIAlign

    if pyramid and len(anchors) != len(stages) + 1:
        raise ValueError(
            f"a pyramid over {len(stages)} stages takes {len(stages) + 1} sizes of anchors, one for each of its "
            f"levels, got {len(anchors)}"
        )
    if frozen_stages > len(stages):
        raise ValueError(f"the backbone has {len(stages)} stages, and {frozen_stages} of them cannot be frozen")
    widths = _widths(stem, stages)
    for part in [stem, *stages[:frozen_stages]] if frozen_stages else []:
        part.requires_grad_(requires_grad=False)
    if pyramid:
        backbone = _BackboneStages(stem, stages, widths, pyramid=True)
        levels = [str(number) for number in range(len(stages))]
        sizes: list[tuple[int, ...]] = [(anchor,) for anchor in anchors]
        head: nn.Module = TwoMLPHead(PYRAMID_WIDTH * pooled**2, HEAD_WIDTH)
        features = HEAD_WIDTH
    else:
        backbone = _BackboneStages(stem, stages[:-1], widths[:-1], pyramid=False)
        levels, sizes = ["0"], [tuple(anchors)]
        head, features = _StageHead(stages[-1]), widths[-1]
    detector: Any = FasterRCNN(
        backbone,
        rpn_anchor_generator=AnchorGenerator(tuple(sizes), (tuple(aspects),) * len(sizes)),
        box_roi_pool=MultiScaleRoIAlign(levels, pooled, sampling_ratio=2),
        box_head=head,
        box_predictor=FastRCNNPredictor(features, num_classes + 1),
        image_mean=list(mean),
        image_std=list(std),
        rpn_pre_nms_top_n_train=candidates[0],
        rpn_pre_nms_top_n_test=candidates[1],
        rpn_post_nms_top_n_train=proposals[0],
        rpn_post_nms_top_n_test=proposals[1],
        box_batch_size_per_image=regions,
        box_nms_thresh=nms,
        box_score_thresh=least_score,
        box_detections_per_img=detections,
    )
    detector.transform.resize = _keep_size
    freeze_batch_norm(detector)
    model: nn.Module = detector
    return model


def _keep_size(image: Tensor, target: dict[str, Tensor] | None = None) -> tuple[Tensor, dict[str, Tensor] | None]:
    return image, target


def _widths(stem: nn.Module, stages: Sequence[nn.Module]) -> list[int]:
    """Output channels of each stage, from a forward pass."""
    convolution: Any = next(part for part in stem.modules() if isinstance(part, nn.Conv2d))
    widths = []
    with torch.no_grad(), evaluation_mode(nn.ModuleList([stem, *stages])):  # batch norm keeps its statistics
        x = stem(convolution.weight.new_zeros(1, convolution.in_channels, 64, 64))
        for stage in stages:
            x = stage(x)
            widths.append(x.shape[1])
    return widths


def freeze_batch_norm(model: nn.Module) -> None:
    """Replace every batch norm by torchvision's frozen one, with the same statistics and weights."""
    from torchvision.ops import FrozenBatchNorm2d

    for name, part in list(model.named_children()):
        if isinstance(part, nn.BatchNorm2d):
            frozen = FrozenBatchNorm2d(part.num_features, eps=part.eps)
            frozen.load_state_dict(part.state_dict(), strict=False)
            setattr(model, name, frozen)
        else:
            freeze_batch_norm(part)


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
    torchvision_operators.ensure()
    from torchvision import models
    from torchvision.models.detection import FasterRCNN
    from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
    from torchvision.ops import FrozenBatchNorm2d

    if trainable_layers is None:
        trainable_layers = 5 if backbone_weights is None else 3
    check_integer("trainable_layers", trainable_layers, 0, 5)
    backbone: Any = resnet_fpn_backbone(
        backbone_name="resnet50", weights=None, norm_layer=FrozenBatchNorm2d, trainable_layers=trainable_layers
    )
    if backbone_weights is not None:
        classifier = models.resnet50(weights=None, norm_layer=FrozenBatchNorm2d)
        load_weights(classifier, backbone_weights, head="drop", torchvision="resnet50")
        state = classifier.state_dict()
        backbone.body.load_state_dict({key: state[key] for key in backbone.body.state_dict()})
    detector: nn.Module = FasterRCNN(backbone, num_classes=num_classes)
    return detector
