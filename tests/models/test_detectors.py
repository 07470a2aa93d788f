"""Detectors on the stages of a ResNet. Oracles: the classifier's own logits; the published number of parameters."""

import pytest
import torch

from calibrant.models import build, build_detector, describe, split_resnet
from tests.helpers.errors import facts

USUAL = {"mean": [0.5] * 3, "std": [0.25] * 3}


@pytest.mark.parametrize("name", ["resnet18", "small_resnet", "resnet20"])
def test_the_stages_are_the_whole_classifier_but_its_head(name):
    network = build(name, num_classes=3, seed=1).eval()
    stem, stages = split_resnet(network, name)
    x = torch.randn(2, 3, 64, 48)
    features = stem(x)
    for stage in stages:
        features = stage(features)
    torch.testing.assert_close(network.fc(features.mean((2, 3))), network(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["small_cnn", "vgg16_cifar", "deeplabv3plus_small"])
def test_other_networks_are_no_backbone(name):
    with pytest.raises(ValueError, match=facts(name, "ResNet")):
        split_resnet(build(name, num_classes=3), name)


def test_a_pyramid_on_resnet50_has_the_published_size():
    with torch.device("meta"):
        network = build("resnet50", num_classes=2)
    network = network.to_empty(device="cpu")
    detector = build_detector(network, 90, name="resnet50", pyramid=True, anchors=(32, 64, 128, 256, 512), **USUAL)
    published = describe("fasterrcnn_resnet50_fpn").published
    assert sum(p.numel() for p in detector.parameters()) == published


def test_frozen_stages_and_batch_norm_are_not_trained():
    network = build("small_resnet", num_classes=2, width=4, seed=0)
    statistics = network.trunk.bn1.running_mean.clone()
    detector = build_detector(network, 3, name="small_resnet", anchors=(8, 16), frozen_stages=2, **USUAL)
    target = {"boxes": torch.tensor([[2.0, 3.0, 30.0, 31.0]]), "labels": torch.tensor([2])}
    losses = detector.train()([torch.rand(3, 64, 48)], [target])
    assert set(losses) == {"loss_classifier", "loss_box_reg", "loss_objectness", "loss_rpn_box_reg"}
    sum(losses.values()).backward()
    trained = {name.split(".")[2] for name, p in detector.named_parameters() if p.grad is not None and "stages" in name}
    assert trained == {"2"}  # the last stage is in the head
    assert detector.roi_heads.box_head.stage[0].conv1.weight.grad is not None
    assert torch.equal(detector.backbone.stem[1].running_mean, statistics)
    assert not [name for name, _ in detector.named_parameters() if "bn" in name]


def test_images_are_not_scaled_and_detections_are_in_their_pixels():
    network = build("small_resnet", num_classes=2, width=4, seed=0)
    detector = build_detector(network, 3, name="small_resnet", anchors=(8, 16), least_score=0.0, **USUAL).eval()
    seen = []
    detector.backbone.stem.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].shape))
    with torch.no_grad():
        (output,) = detector([torch.rand(3, 40, 72)])
    assert seen == [torch.Size([1, 3, 64, 96])]  # filled up to multiples of 32
    assert (output["boxes"][:, 2] <= 72).all()
    assert (output["boxes"][:, 3] <= 40).all()
    assert set(output["labels"].tolist()) <= {1, 2, 3}


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"pyramid": True, "anchors": (8, 16)}, facts("anchors", "5", "2")), ({"frozen_stages": 5}, facts("4", "5"))],
)
def test_counts_must_fit(settings, words):
    with pytest.raises(ValueError, match=words):
        build_detector(build("small_resnet", num_classes=2, width=4), 3, name="small_resnet", **(USUAL | settings))


def test_detection_gives_losses_and_detections():
    model = build("fasterrcnn_resnet50_fpn", num_classes=4)
    model.transform.min_size, model.transform.max_size = (32,), 32
    target = {"boxes": torch.tensor([[4.0, 5.0, 20.0, 30.0]]), "labels": torch.tensor([3])}
    losses = model([torch.rand(3, 32, 32)], [target])
    assert set(losses) == {"loss_classifier", "loss_box_reg", "loss_objectness", "loss_rpn_box_reg"}
    assert all(torch.isfinite(value) for value in losses.values())
    with torch.no_grad():
        (found,) = model.eval()([torch.rand(3, 32, 32)])
    assert set(found) == {"boxes", "labels", "scores"}
