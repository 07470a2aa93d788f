"""Segmentation against torchvision and the papers' parts."""

import pytest
import torch
from torch import nn

from calibrant import _torchvision
from calibrant.models import build
from tests.helpers.networks import SEGMENTATION, count, on_meta, saved

_torchvision.ensure()
import torchvision  # noqa: E402


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def test_deeplabv3plus_has_the_parts_of_chen_2018():
    def layer(inputs, outputs, kernel):  # a convolution without bias, batch norm
        return kernel * kernel * inputs * outputs + 2 * outputs

    backbone = 44_549_160 - 2049 * 1000  # torchvision's ResNet-101 without its head
    pyramid = 2 * layer(2048, 256, 1) + 3 * layer(2048, 256, 3) + layer(5 * 256, 256, 1)
    decoder = layer(256, 48, 1) + layer(256 + 48, 256, 3) + layer(256, 256, 3)
    model = on_meta("deeplabv3plus_resnet101")
    assert count(model) == backbone + pyramid + decoder + 257 * 19
    assert [part[0].dilation[0] for part in model.aspp.convs[1:4]] == [6, 12, 18]
    assert model.backbone(torch.empty(1, 3, 64, 96, device="meta"))["out"].shape == (1, 2048, 4, 6)  # stride 16


@pytest.mark.parametrize("name", SEGMENTATION)
def test_segmentation_gives_logits_of_every_pixel(name):
    images = torch.empty(2, 3, 67, 98, device="meta")
    assert on_meta(name, num_classes=5)(images).shape == (2, 5, 67, 98)
    stride = 4 if "plus" in name else 8
    small = on_meta(name, num_classes=5, upsample=False)(images)
    assert small.shape == (2, 5, -(-67 // stride), -(-98 // stride))


def test_deeplabv3_gives_torchvisions_logits():
    theirs = torchvision.models.segmentation.deeplabv3_resnet50(weights=None, weights_backbone=None, num_classes=5)
    model = build("deeplabv3_resnet50", num_classes=5).eval()
    model.load_state_dict(theirs.state_dict())
    images = torch.randn(1, 3, 33, 41)
    torch.testing.assert_close(model(images), theirs.eval()(images)["out"])


def test_a_classifier_becomes_a_backbone(tmp_path):
    classifier = build("resnet50", num_classes=3)
    nn.init.normal_(classifier.bn1.running_mean)
    path = saved(tmp_path / "a.safetensors", classifier)
    plus = build("deeplabv3plus_resnet50", backbone_weights=path)
    detector = build("fasterrcnn_resnet50_fpn", backbone_weights=path)
    for body in (plus.backbone, detector.backbone.body):
        assert torch.equal(body.bn1.running_mean, classifier.bn1.running_mean)
        assert torch.equal(body.layer4[2].conv3.weight, classifier.layer4[2].conv3.weight)
    frozen = {key.split(".")[2] for key, p in detector.named_parameters() if not p.requires_grad}
    assert frozen == {"conv1", "layer1"}  # torchvision's default: three of five parts are trained


_torchvision.ensure()
